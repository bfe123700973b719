//! Renews: what the answer to one promises holds, whatever befell it (SPEC §4).

use std::cell::Cell;
use std::time::Duration;

use berth::model::{Caller, Code};
use berth::service::views::{LeaseView, RequestState};

use super::{LOOK, by_name, held, nothing_is_left, now, storms};
use crate::lab::{Lab, eventually, granted, request};
use crate::weather::{Fault, Storm};

/// The width of the lease: it needs every second renew or so.
const TTL: Duration = Duration::from_secs(6);
const SECOND: Duration = Duration::from_secs(1);

/// One holds and renews, one waits for the same; then it renews no more and the other is served.
async fn conversation(lab: &Lab, index: usize, storm: Storm, lasts: Duration) {
    let said = format!("{storm:?}, for {lasts:?}");
    let lease = lab.acquire("holder", "pixel", TTL).await.expect(&said);
    let ask = if index.is_multiple_of(2) { by_name("next") } else { request("next", "platform=android", None) };
    let next = lab.gateway().request(&Caller::admin(), ask, Duration::from_secs(2)).await.expect(&said);
    lab.weather.storm(storm);
    let begun = lab.clock.now().run;
    let (promised, healed, over) = (Cell::new(lease.expires_at), Cell::new(None), Cell::new(false));
    let holder = async {
        // The first renew that is asked after the storm and answered is the last.
        while !over.get() {
            let storms = healed.get().is_none();
            match lab.renew(&lease.id).await {
                Ok(renewed) => {
                    assert_eq!(renewed.fence, lease.fence, "{said}");
                    let kept = held(lab).await;
                    let keeps = |kept: &LeaseView| kept.fence == lease.fence && kept.expires_at >= renewed.expires_at;
                    assert!(kept.iter().any(keeps), "the worker keeps less than {renewed:?}: {kept:?}; {said}");
                    promised.set(promised.get().max(renewed.expires_at));
                    over.set(!storms);
                }
                // The grace of the link keeps it past its deadline until the holder could have renewed it.
                Err(refused) => assert_eq!(refused.code, Code::WorkerUnreachable, "{refused:?}; {said}"),
            }
            tokio::time::sleep(SECOND / 2).await;
        }
    };
    let watcher = async {
        loop {
            let (at, kept) = (lab.clock.now(), held(lab).await);
            let holds = kept.iter().any(|kept| kept.fence == lease.fence);
            assert!(holds || at.wall >= promised.get(), "it ended before {}; {kept:?}; {said}", promised.get());
            if healed.get().is_none() && at.run.left(begun) >= lasts {
                assert!(lab.weather.storms(), "it never began: {said}");
                lab.weather.clear();
                healed.set(Some(at.run));
            }
            if !holds {
                break;
            }
            assert_eq!(now(lab, &next).await.state, RequestState::Waiting, "{said}");
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::join!(holder, watcher);
    let (healed, ended) = (healed.get().expect(&said), lab.clock.now().wall);
    let late = Duration::try_from(ended.duration_since(promised.get())).expect(&said);
    assert!(late <= SECOND + LOOK, "it ended {late:?} after its deadline; {said}");
    let served = eventually(&said, || async { Some(now(lab, &next).await).filter(|view| view.lease.is_some()) }).await;
    let lease = granted(&served);
    assert!(lease.granted_at >= promised.get(), "{said}");
    let late = Duration::try_from(lease.granted_at.duration_since(ended)).unwrap_or_default();
    assert!(late <= SECOND, "the next is served {late:?} later; {said}");
    lab.gateway().release(&Caller::admin(), &lease.id, None).await.expect(&said);
    nothing_is_left(lab, healed, &said).await;
}

async fn at_every_step(fault: Fault) {
    let lab = Lab::start().await;
    for (index, (storm, lasts)) in storms(&lab, fault, 3).into_iter().enumerate() {
        conversation(&lab, index, storm, lasts).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_renew_that_was_answered_holds_to_its_deadline_whatever_is_lost() {
    at_every_step(Fault::Lose).await;
}

#[tokio::test(start_paused = true)]
async fn a_renew_that_was_answered_holds_to_its_deadline_whatever_is_late() {
    at_every_step(Fault::Delay).await;
}

#[tokio::test(start_paused = true)]
async fn a_renew_that_was_answered_holds_to_its_deadline_whatever_comes_twice_or_out_of_order() {
    at_every_step(Fault::Double).await;
    at_every_step(Fault::Reorder).await;
}
