//! A worker that is restarted in the storm: it comes back with its disk under a new incarnation and another port.

use std::time::Duration;

use berth::model::Caller;
use berth::service::views::RequestState;

use super::{FAULTS, LOOK, Open, STEPS, Side, by_name, held, now, rounds};
use crate::lab::{Lab, eventually, request};
use crate::weather::{Fault, Storm};

const TTL: Duration = Duration::from_secs(60);

/// One holds, two wait by selector and two by name while the worker restarts; then all are served, in the order of
/// their door. The worker's new port.
async fn conversation(lab: &mut Lab, rack: u16, storm: impl FnOnce(&Lab) -> Storm, lasts: Duration) -> u16 {
    let storm = storm(lab);
    let said = format!("{storm:?}, for {lasts:?}, worker at {rack}");
    let lease = lab.acquire("holder", "pixel", TTL).await.expect(&said);
    let mut requests = Vec::new();
    for ask in [
        request("select-1", "platform=android", None),
        by_name("name-1"),
        request("select-2", "platform=android", None),
        by_name("name-2"),
    ] {
        requests.push(lab.gateway().request(&Caller::admin(), ask, Duration::from_secs(2)).await.expect(&said));
    }
    let promised = lab.renew(&lease.id).await.expect(&said).expires_at;
    lab.weather.storm(storm);
    let begun = lab.clock.now().run;
    tokio::time::sleep(lasts / 3).await;
    lab.stop("rack-1").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    lab.restart("rack-1").await;
    let port = lab.weather.newest();
    while lab.clock.now().run.left(begun) < lasts {
        let kept = held(lab).await;
        assert_eq!(kept.iter().map(|kept| kept.fence).collect::<Vec<_>>(), [lease.fence], "{said}");
        assert!(kept[0].expires_at >= promised, "{promised} was answered: {kept:?}; {said}");
        for request in &requests {
            let seen = now(lab, request).await;
            assert_eq!(seen.state, RequestState::Waiting, "it is held: {seen:?}; {said}");
        }
        tokio::time::sleep(LOOK).await;
    }
    assert!(lab.weather.storms(), "it never began: {said}");
    lab.weather.clear();
    let healed = lab.clock.now().run;
    let renewed = eventually(&said, || async { lab.renew(&lease.id).await.ok() }).await;
    assert_eq!(renewed.fence, lease.fence, "{said}");
    lab.gateway().release(&Caller::admin(), &lease.id, None).await.expect(&said);
    let mut open = Open::new(requests);
    open.finish(lab, healed, &said).await;
    for door in ["admin/select-", "admin/name-"] {
        let served: Vec<_> = open.served.iter().filter_map(|who| who.strip_prefix(door)).collect();
        assert_eq!(served, ["1", "2"], "{:?}; {said}", open.served);
    }
    port
}

async fn at_every_step(faults: &[Fault]) {
    let mut lab = Lab::start().await;
    let mut rack = lab.weather.opened(crate::lab::RACK_1);
    for round in rounds() {
        for &fault in faults {
            eprintln!("{fault:?}: run again with BERTH_TEST_SEED={round}");
            for (index, after) in (0..STEPS).step_by(3).enumerate() {
                for from in Side::ALL {
                    let lasts = Duration::from_secs(if index % 2 == 0 { 3 } else { 8 });
                    let storm = |lab: &Lab| from.storm(lab, rack, fault, after, (round << 8 | after) + 1);
                    rack = conversation(&mut lab, rack, storm, lasts).await;
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_restarts_while_packets_are_lost_costs_nobody_a_lease_or_a_place() {
    at_every_step(&FAULTS[..1]).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_restarts_while_packets_are_late_doubled_or_out_of_order_costs_nobody_a_lease_or_a_place() {
    at_every_step(&FAULTS[1..]).await;
}
