//! Unattended waiters: they stand in the waiting room of the worker and ask again through the gateway (SPEC §3).

use std::collections::HashMap;
use std::time::Duration;

use berth::admission::LeaseRules;
use berth::model::{Ask, Caller, Code};
use berth::service::answers::Acquired;
use berth::service::ask::{AcquireBody, Headers, OnConflict};
use berth::service::views::LeaseView;

use super::{FAULTS, SERVED_WITHIN, STEPS, Side, held, nothing_is_left, rounds};
use crate::lab::{Lab, RACK_1, eventually};
use crate::weather::Storm;

/// What happens in the storm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Restarts {
    Nobody,
    Worker,
}

const WHO: [&str; 3] = ["first", "second", "third"];

/// The same ask each time: whoever hears no answer asks again under its key.
fn joining(requester: &str, key: &str) -> Ask {
    let body = AcquireBody {
        requester: Some(requester.parse().unwrap()),
        on_conflict: Some(OnConflict::JoinWaitingRoom),
        idempotency_key: Some(key.parse().unwrap()),
        ttl_ms: Some(60_000.try_into().unwrap()),
        ..AcquireBody::default()
    };
    body.into_ask("pixel".parse().unwrap(), &Caller::admin(), Headers::default(), &LeaseRules::default()).unwrap()
}

/// Asks once: the lease, or none yet.
async fn asks(lab: &Lab, who: &str, key: &str, said: &str) -> Option<LeaseView> {
    match lab.gateway().acquire(&Caller::admin(), joining(who, key)).await {
        Ok(Acquired::Active { lease }) => Some(*lease),
        Ok(Acquired::Pending(pending)) => {
            assert!(pending.waiting_position <= WHO.len(), "{pending:?}; {said}");
            None
        }
        Err(refused) => {
            // It may have been done or not.
            assert_eq!(refused.code, Code::WorkerUnreachable, "{who}: {refused:?}; {said}");
            None
        }
    }
}

/// One holds, three stand in the room and ask again and again; each is served once and gives back.
async fn conversation(lab: &mut Lab, round: usize, storm: Storm, lasts: Duration, restarts: Restarts) {
    let said = format!("{storm:?}, for {lasts:?}, {restarts:?} restarts");
    let keys = WHO.map(|who| format!("{who}-{round}"));
    let holder = lab.acquire("holder", "pixel", Duration::from_secs(60)).await.expect(&said);
    for (place, (who, key)) in WHO.iter().zip(&keys).enumerate() {
        match lab.gateway().acquire(&Caller::admin(), joining(who, key)).await.expect(&said) {
            Acquired::Pending(pending) => assert_eq!(pending.waiting_position, place + 1, "{said}"),
            Acquired::Active { lease } => panic!("it is held: {lease:?}; {said}"),
        }
    }
    lab.weather.storm(storm);
    let begun = lab.clock.now().run;
    match restarts {
        Restarts::Nobody => {}
        Restarts::Worker => {
            lab.stop("rack-1").await;
            lab.restart("rack-1").await;
        }
    }
    let mut healed = None;
    // Whoever has it, until its release is known to have reached the worker.
    let mut has: HashMap<&str, LeaseView> = HashMap::from([("holder", holder)]);
    let mut waits: Vec<_> = WHO.iter().zip(&keys).collect();
    let mut served = Vec::new();
    while !waits.is_empty() || !has.is_empty() {
        let at = lab.clock.now().run;
        if healed.is_none() && at.left(begun) >= lasts {
            lab.weather.clear();
            healed = Some(at);
        }
        if let Some(healed) = healed {
            assert!(at.left(healed) < SERVED_WITHIN, "not served: {waits:?}, {has:?}; {said}");
        }
        for (who, lease) in std::mem::take(&mut has) {
            let kept = held(lab).await;
            if kept.iter().any(|kept| kept.fence == lease.fence) {
                // A rebuild or a lost packet may be in the way: it is released again the next time round.
                let _ = lab.gateway().release(&Caller::admin(), &lease.id, Some(lease.fence)).await;
                has.insert(who, lease);
            }
        }
        let mut left = Vec::new();
        for (who, key) in waits {
            match asks(lab, who, key, &said).await {
                None => left.push((who, key)),
                Some(lease) => {
                    let kept = held(lab).await;
                    assert_eq!(kept.iter().map(|kept| kept.fence).collect::<Vec<_>>(), [lease.fence], "{who}; {said}");
                    assert!(has.insert(who, lease).is_none());
                    served.push(*who);
                }
            }
        }
        waits = left;
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    assert!(healed.is_some() || lab.weather.storms(), "it never began: {said}");
    lab.weather.clear();
    let healed = healed.unwrap_or(lab.clock.now().run);
    lab.ready().await;
    nothing_is_left(lab, healed, &said).await;
    eventually(&said, || async {
        let room = lab.gateway().waiting_room(&Caller::admin(), &"pixel".parse().unwrap()).await.ok()?;
        (room.count == 0).then_some(())
    })
    .await;
    served.sort_unstable();
    assert_eq!(served, WHO, "{said}");
}

async fn at_every_step(restarts: Restarts) {
    let mut lab = Lab::start().await;
    let (mut rack, mut number) = (lab.weather.opened(RACK_1), 0);
    for round in rounds() {
        for fault in FAULTS {
            eprintln!("{fault:?}: run again with BERTH_TEST_SEED={round}");
            for (index, after) in (0..STEPS).step_by(4).enumerate() {
                for from in Side::ALL {
                    let lasts = Duration::from_secs(if index % 2 == 0 { 3 } else { 8 });
                    let storm = from.storm(&lab, rack, fault, after, (round << 8 | after) + 1);
                    number += 1;
                    conversation(&mut lab, number, storm, lasts, restarts).await;
                    if restarts == Restarts::Worker {
                        rack = lab.weather.newest();
                    }
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_befalls_those_in_a_waiting_room_each_is_served_once() {
    at_every_step(Restarts::Nobody).await;
}

#[tokio::test(start_paused = true)]
async fn whatever_befalls_those_in_a_waiting_room_whose_worker_restarts_each_is_served_once() {
    at_every_step(Restarts::Worker).await;
}
