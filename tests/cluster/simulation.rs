//! Whatever befalls packets at whatever step of a conversation: nobody holds together with another, what was answered
//! holds, renewed or not, and once the network is healed everybody is served.

use std::collections::HashSet;
use std::time::Duration;

use berth::admission::LeaseRules;
use berth::model::{Ask, Caller};
use berth::service::ask::{Headers, RequestBody};
use berth::service::views::{LeaseView, RequestState, RequestView};

use crate::lab::{GATEWAY, Lab, RACK_1, eventually, granted, request};
use crate::weather::{Fault, Storm};

/// Everybody is served within this of simulated time after the network is healed.
const SERVED_WITHIN: Duration = Duration::from_secs(20);
/// How many packets pass before the fault begins: every one of a conversation in turn.
const STEPS: u64 = 20;

/// A request for the resource by its name.
fn by_name(requester: &str) -> Ask {
    let body = RequestBody {
        requester: Some(requester.parse().unwrap()),
        resource_id: Some("pixel".parse().unwrap()),
        ..RequestBody::default()
    };
    body.into_ask(&Caller::admin(), Headers::default(), &LeaseRules::default()).unwrap()
}

async fn held(lab: &Lab) -> Vec<LeaseView> {
    let leases = lab.worker("rack-1").leases(&Caller::admin()).await.unwrap();
    assert!(leases.len() <= 1, "two hold the same: {leases:?}");
    leases
}

async fn now(lab: &Lab, request: &RequestView) -> RequestView {
    lab.gateway().lease_request(&Caller::admin(), &request.id, Duration::ZERO).await.unwrap()
}

/// Renews; what is promised then the worker keeps, whatever becomes of the answer.
async fn renewed_holds(lab: &Lab, lease: &LeaseView, said: &str) {
    let Ok(renewed) = lab.renew(&lease.id).await else { return };
    let kept = held(lab).await;
    let holds = kept.iter().any(|kept| kept.fence == lease.fence && kept.expires_at >= renewed.expires_at);
    assert!(holds, "promised {renewed:?}, kept {kept:?}; {said}");
}

/// One conversation under one storm: three ask, by selector and by name, each is served, renews and releases.
async fn conversation(lab: &Lab, storm: Storm, lasts: Duration) {
    let said = format!("{storm:?}, for {lasts:?}");
    lab.weather.storm(storm);
    let asks =
        [request("first", "platform=android", None), request("select", "platform=android", None), by_name("name")];
    let (mut open, mut released) = (Vec::new(), HashSet::new());
    let begun = lab.clock.now().run;
    for ask in asks {
        open.push(lab.gateway().request(&Caller::admin(), ask, Duration::from_secs(2)).await.expect(&said));
    }
    let mut healed = None;
    while !open.is_empty() {
        let at = lab.clock.now().run;
        if healed.is_none() && at.left(begun) >= lasts {
            assert!(lab.weather.storms(), "it never began: {said}");
            lab.weather.clear();
            healed = Some(at);
        }
        if let Some(healed) = healed {
            assert!(at.left(healed) < SERVED_WITHIN, "not served: {open:?}; {said}");
        }
        let mut left = Vec::new();
        for request in open {
            let seen = now(lab, &request).await;
            match seen.state {
                RequestState::Waiting => left.push(request),
                RequestState::Granted => {
                    let lease = seen.lease.unwrap();
                    let kept = held(lab).await;
                    if kept.iter().any(|kept| kept.fence == lease.fence) {
                        if !released.contains(&lease.fence) {
                            renewed_holds(lab, &lease, &said).await;
                        }
                        // Unanswered, it is released again the next time round.
                        released.insert(lease.fence);
                        if lab.gateway().release(&Caller::admin(), &lease.id, None).await.is_err() {
                            left.push(request);
                        }
                    } else {
                        // Only a release that was sent can have ended it.
                        assert!(released.contains(&lease.fence), "what was answered does not hold: {lease:?}; {said}");
                    }
                }
                other => panic!("{other:?}: {seen:?}; {said}"),
            }
        }
        open = left;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    lab.weather.clear();
    let healed = healed.unwrap_or(lab.clock.now().run);
    // A release whose answer was lost is known once its worker has reported.
    eventually(&said, || async { lab.leases().await.is_empty().then_some(()) }).await;
    assert!(lab.clock.now().run.left(healed) < SERVED_WITHIN, "not reported: {said}");
    assert!(held(lab).await.is_empty(), "{said}");
}

/// Runs the conversation with the fault at each of its packets, in each direction, in one lab.
async fn at_every_step(fault: Fault) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a whole number"));
    let (seed, rounds) = (number("BERTH_TEST_SEED").unwrap_or(1), number("BERTH_TEST_ROUNDS").unwrap_or(1));
    let lab = Lab::start().await;
    let (gateway, rack) = (lab.weather.opened(GATEWAY), lab.weather.opened(RACK_1));
    for round in seed..seed + rounds {
        eprintln!("{fault:?}: run again with BERTH_TEST_SEED={round}");
        for after in 0..STEPS {
            for from in [vec![gateway], vec![rack], vec![gateway, rack]] {
                // Once shorter than the link is missed, once longer.
                let lasts = Duration::from_secs(if after % 2 == 0 { 3 } else { 8 });
                let seed = (round << 8 | after) + 1;
                conversation(&lab, Storm { fault, from, after, seed }, lasts).await;
            }
        }
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

/// Stops a node and starts it again under a storm from `from`, while one holds and two wait; then the network is healed,
/// and the two are served in their order.
async fn restarted_in_a_storm(lab: &mut Lab, node: &str, storm: Storm) {
    let said = format!("{node} is restarted, {storm:?}");
    let lease = lab.acquire("holder", "pixel", Duration::from_secs(60)).await.expect(&said);
    let mut waited = Vec::new();
    for who in ["first", "second"] {
        waited.push((who, lab.lease(who, "platform=android").await.expect(&said)));
    }
    // So long until it is on disk that somebody waits.
    tokio::time::sleep(Duration::from_secs(2)).await;
    lab.stop(node).await;
    lab.weather.storm(storm);
    lab.restart(node).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    lab.weather.clear();
    let healed = lab.clock.now().run;
    lab.ready().await;
    let mut back = Vec::new();
    for (who, former) in &waited {
        // Only a gateway forgets who asked.
        back.push(if node == "gateway" {
            let ask = Ask { ticket: former.ticket.clone(), ..request(who, "platform=android", None) };
            lab.gateway().request(&Caller::admin(), ask, Duration::from_secs(2)).await.expect(&said)
        } else {
            former.clone()
        });
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

#[tokio::test(start_paused = true)]
async fn whatever_befalls_a_rebuild_what_was_granted_is_routed_and_those_who_waited_are_served_in_their_order() {
    let mut lab = Lab::start().await;
    let (gateway, rack) = (lab.weather.opened(GATEWAY), lab.weather.opened(RACK_1));
    for fault in [Fault::Lose, Fault::Delay, Fault::Double, Fault::Reorder] {
        for after in (0..STEPS).step_by(2) {
            for from in [vec![gateway], vec![rack], vec![gateway, rack]] {
                restarted_in_a_storm(&mut lab, "gateway", Storm { fault, from, after, seed: after + 1 }).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_befalls_the_restart_of_a_worker_its_leases_last_and_those_who_waited_are_served_in_their_order() {
    let mut lab = Lab::start().await;
    let gateway = lab.weather.opened(GATEWAY);
    for fault in [Fault::Lose, Fault::Delay, Fault::Double, Fault::Reorder] {
        for after in (0..STEPS).step_by(2) {
            let storm = Storm { fault, from: vec![gateway], after, seed: after + 1 };
            restarted_in_a_storm(&mut lab, "rack-1", storm).await;
        }
    }
}
