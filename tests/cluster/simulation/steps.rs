//! Three ask, each is served and releases: dispatch, grant, release and report, with a fault at every packet.

use std::time::Duration;

use berth::model::Caller;

use super::{LOOK, Open, SERVED_WITHIN, by_name, storms};
use crate::lab::{Lab, request};
use crate::weather::{Fault, Storm};

/// One conversation under one storm: three ask, by selector and by name.
async fn conversation(lab: &Lab, storm: Storm, lasts: Duration) {
    let said = format!("{storm:?}, for {lasts:?}");
    lab.weather.storm(storm);
    let asks =
        [request("first", "platform=android", None), request("select", "platform=android", None), by_name("name")];
    let begun = lab.clock.now().run;
    let mut requests = Vec::new();
    for ask in asks {
        requests.push(lab.gateway().request(&Caller::admin(), ask, Duration::from_secs(2)).await.expect(&said));
    }
    let mut open = Open::new(requests);
    while !open.requests.is_empty() && lab.clock.now().run.left(begun) < lasts {
        open.look(lab, &said).await;
        tokio::time::sleep(LOOK).await;
    }
    assert!(open.requests.is_empty() || lab.weather.storms(), "it never began: {said}");
    lab.weather.clear();
    let healed = lab.clock.now().run;
    open.finish(lab, healed, &said).await;
    assert!(lab.clock.now().run.left(healed) < SERVED_WITHIN, "{said}");
}

/// Runs the conversation with the fault at each of its packets, in each direction, in one lab.
async fn at_every_step(fault: Fault) {
    let lab = Lab::start().await;
    for (storm, lasts) in storms(&lab, fault, 1) {
        conversation(&lab, storm, lasts).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_at_any_step_costs_nobody_a_lease_or_a_place() {
    at_every_step(Fault::Lose).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_late_at_any_step_costs_nobody_a_lease_or_a_place() {
    at_every_step(Fault::Delay).await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_twice_at_any_step_costs_nobody_a_lease_or_a_place() {
    at_every_step(Fault::Double).await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_out_of_order_at_any_step_costs_nobody_a_lease_or_a_place() {
    at_every_step(Fault::Reorder).await;
}
