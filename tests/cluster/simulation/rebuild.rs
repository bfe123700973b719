//! The rebuild of a gateway that was restarted, with faults in one direction or both.

use std::time::Duration;

use berth::model::{Ask, Caller};

use super::{FAULTS, SERVED_WITHIN, STEPS, Side, held, rounds};
use crate::lab::{Lab, RACK_1, eventually, granted, request};
use crate::weather::{Fault, Storm};

/// One holds and two wait when the gateway is restarted into the storm.
async fn conversation(lab: &mut Lab, storm: Storm, lasts: Duration) {
    let said = format!("{storm:?}, for {lasts:?}");
    let lease = lab.acquire("holder", "pixel", Duration::from_secs(60)).await.expect(&said);
    let mut waited = Vec::new();
    for who in ["first", "second"] {
        waited.push((who, lab.lease(who, "platform=android").await.expect(&said)));
    }
    // So long until it is on disk that somebody waits.
    tokio::time::sleep(Duration::from_secs(2)).await;
    lab.stop("gateway").await;
    lab.weather.storm(storm);
    lab.restart("gateway").await;
    tokio::time::sleep(lasts).await;
    lab.weather.clear();
    let healed = lab.clock.now().run;
    lab.ready().await;
    let mut back = Vec::new();
    for (who, former) in &waited {
        let ask = Ask { ticket: former.ticket.clone(), ..request(who, "platform=android", None) };
        back.push(lab.gateway().request(&Caller::admin(), ask, Duration::from_secs(2)).await.expect(&said));
    }
    assert_eq!(held(lab).await[0].fence, lease.fence, "{said}");
    eventually(&said, || async { lab.gateway().release(&Caller::admin(), &lease.id, None).await.ok() }).await;
    for request in &back {
        let wait = Duration::from_secs(20);
        let served = lab.gateway().lease_request(&Caller::admin(), &request.id, wait).await.expect(&said);
        let lease = granted(&served);
        assert_eq!(held(lab).await[0].fence, lease.fence, "{said}");
        lab.gateway().release(&Caller::admin(), &lease.id, None).await.expect(&said);
    }
    assert!(lab.clock.now().run.left(healed) < SERVED_WITHIN, "{said}");
    // So long what was waited for before the restart is kept for those who come back.
    tokio::time::sleep(Duration::from_secs(10)).await;
}

/// Shorter than the link is missed, longer than that, and longer than the rebuild waits for anybody.
async fn at_every_step(faults: &[Fault]) {
    let mut lab = Lab::start().await;
    let rack = lab.weather.opened(RACK_1);
    for round in rounds() {
        for &fault in faults {
            eprintln!("{fault:?}: run again with BERTH_TEST_SEED={round}");
            for (after, lasts) in (0..STEPS).step_by(2).zip([3, 8, 12].into_iter().cycle()) {
                for from in Side::ALL {
                    let storm = from.storm(&lab, rack, fault, after, (round << 8 | after) + 1);
                    conversation(&mut lab, storm, Duration::from_secs(lasts)).await;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_is_lost_of_a_rebuild_what_was_granted_is_routed_and_those_who_waited_are_served_in_their_order() {
    at_every_step(&FAULTS[..1]).await;
}

#[tokio::test(start_paused = true)]
async fn whatever_befalls_a_rebuild_what_was_granted_is_routed_and_those_who_waited_are_served_in_their_order() {
    at_every_step(&FAULTS[1..]).await;
}
