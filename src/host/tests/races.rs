//! Two things at the same instant: exactly one of them happens, and everybody hears of the same one.

use std::time::Duration;

use super::super::message::Leftovers;
use super::lab::{End, HOUR, Lab, acquires, holder, reply, resource, said, waits, waits_for};
use super::seeds::{Random, Seed, seeds};
use crate::admission::{RequestState, Rules};
use crate::model::{Ask, Code, LeaseRecord, RequestId};

/// By name and by selector.
const TARGETS: [&str; 2] = ["a", "os=1"];

/// Runs a race for each seed on one node, and wants to see every end of it.
async fn race<const ENDS: usize>(rounds: u64, run: impl AsyncFn(&Lab, &mut Random, &'static str) -> usize) {
    let lab = Lab::new(&[resource("a", "os=1", 1)], Rules::default()).await;
    let mut seen = [0; ENDS];
    for seed in seeds(rounds) {
        let _seed = Seed(seed);
        let mut random = Random::new(seed);
        let target = random.pick(&TARGETS);
        seen[run(&lab, &mut random, target).await] += 1;
        lab.settle().await;
        assert_eq!(lab.leftovers().await, Leftovers::default());
    }
    let all = std::env::var("BERTH_TEST_SEED").is_err();
    assert!(!all || seen.iter().all(|count| *count > 0), "the race had one end only: {seen:?}");
}

/// A request that waits for what `held` has.
async fn contended(lab: &Lab, ask: Ask) -> (LeaseRecord, RequestId) {
    let held = lab.lease(acquires("holder", "a")).await;
    let waiting = lab.wait(ask).await;
    (held, waiting)
}

/// What a request got is there, and what got nothing has nothing. Gives it back.
async fn is_true(lab: &Lab, request: &RequestId, end: &End) {
    assert_eq!(lab.state(request).await.as_ref(), Some(end), "what was told and what is read later");
    let there = lab.leases_on("a").await;
    match end {
        End::Lease(lease) => {
            assert_eq!(there, [(**lease).clone()], "it was told that it has a lease");
            lab.release(lease).await.unwrap();
        }
        _ => assert_eq!(there, [], "it was told that it has none"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_times_out_as_the_resource_is_released_either_has_the_lease_or_has_none() {
    race::<2>(1_500, async |lab, random, target| {
        let (held, request) = contended(lab, waits_for("ci", target, Duration::from_millis(50))).await;
        let watching = lab.watch(&request);
        tokio::time::sleep(random.ms(48, 54)).await;
        random.turns().await;
        let released = lab.begin_release(&held);
        let told = reply(watching).await.expect("it is known");
        said(released).await.unwrap();
        lab.settle().await;
        let end = lab.end(&request).await;
        is_true(lab, &request, &end).await;
        let told = if let RequestState::Granted(first) = told.request.state { Some(first.lease) } else { None };
        assert_eq!(told, end.clone().into_lease());
        match end {
            End::Lease(_) => 0,
            End::Refused(Code::QueueTimeout) => 1,
            other => panic!("{other:?}"),
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_cancelled_as_the_resource_is_released_either_has_the_lease_or_has_none() {
    race::<2>(1_500, async |lab, random, target| {
        let (held, request) = contended(lab, waits("ci", target)).await;
        let first = random.one_in(2);
        let early = first.then(|| lab.begin_cancel(&request));
        random.turns().await;
        let released = lab.begin_release(&held);
        random.turns().await;
        let cancelled = early.unwrap_or_else(|| lab.begin_cancel(&request));
        let told = reply(cancelled).await.result.map_err(|refusal| refusal.code);
        said(released).await.unwrap();
        let end = lab.end(&request).await;
        is_true(lab, &request, &end).await;
        match (end, told) {
            (End::Lease(_), Err(Code::RequestNotCancellable)) => 0,
            (End::Cancelled, Ok(())) => 1,
            other => panic!("{other:?}"),
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_renewed_at_its_deadline_either_goes_on_or_is_over() {
    race::<2>(1_500, async |lab, random, target| {
        let held = lab.lease(Ask { ttl: Duration::from_millis(50), ..acquires("holder", "a") }).await;
        let next = lab.wait(waits("next", target)).await;
        tokio::time::sleep(random.ms(47, 54)).await;
        random.turns().await;
        let renewed = said(lab.begin_renew(&held)).await;
        let holders: Vec<String> = lab.leases_on("a").await.iter().map(holder).collect();
        let renewed = match renewed {
            Ok(grant) => {
                assert_eq!(holders, ["holder"]);
                assert!(grant.deadline > lab.clock.now().run, "it has been told a time to come");
                lab.release(&held).await.unwrap();
                0
            }
            Err(code) => {
                assert_eq!(code, Code::UnknownLease);
                assert!(!holders.contains(&"holder".to_owned()), "{holders:?}");
                1
            }
        };
        let end = lab.end(&next).await;
        is_true(lab, &next, &end).await;
        renewed
    })
    .await;
}

/// How a waiter by selector may be met while it is offered what is free.
#[derive(Clone, Copy, PartialEq)]
enum Meets {
    Cancel,
    Loss,
    Constraint,
    Death,
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_offered_a_resource_gets_it_or_hears_why_not_whatever_happens_then() {
    race::<3>(600, async |lab, random, _| {
        let (held, request) = contended(lab, waits("ci", "os=1")).await;
        let behind = lab.wait(waits("behind", random.pick(&TARGETS))).await;
        let mut meets = Vec::new();
        for what in [Meets::Cancel, Meets::Loss, Meets::Constraint, Meets::Death] {
            if random.one_in(2) {
                meets.push(what);
            }
        }
        let fault = match meets.iter().find(|what| [Meets::Loss, Meets::Constraint].contains(what)) {
            Some(Meets::Loss) => Some(lab.lose_leases("NEW.holder = 'ci'")),
            Some(_) => Some(lab.forbid_leases("NEW.holder = 'ci'")),
            None => None,
        };
        let released = lab.begin_release(&held);
        random.turns().await;
        if meets.contains(&Meets::Death) {
            lab.panic("a");
            random.turns().await;
        }
        let cancelled = meets.contains(&Meets::Cancel).then(|| lab.begin_cancel(&request));
        tokio::time::sleep(random.ms(0, 400)).await;
        drop(fault);
        said(released).await.unwrap();
        let end = lab.end(&request).await;
        if let Some(cancelled) = cancelled {
            match (reply(cancelled).await.result.map_err(|refusal| refusal.code), &end) {
                (Ok(()), End::Cancelled | End::Refused(_)) | (Err(Code::RequestNotCancellable), _) => {}
                other => panic!("{other:?}"),
            }
        }
        if let End::Lease(lease) = &end {
            assert_eq!(lab.leases_on("a").await, [(**lease).clone()]);
            lab.release(lease).await.unwrap();
        }
        assert_eq!(lab.state(&request).await.as_ref(), Some(&end));
        // Whatever came of it: the next one is served.
        let next = lab.end(&behind).await;
        is_true(lab, &behind, &next).await;
        assert!(matches!(next, End::Lease(_)), "{next:?}");
        match end {
            End::Lease(_) => 0,
            End::Cancelled => 1,
            End::Refused(Code::Internal) if meets.contains(&Meets::Constraint) => 2,
            other => panic!("{other:?}"),
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn whoever_has_released_a_lease_may_at_once_have_the_next_of_the_same_id() {
    let lab = Lab::new(&[resource("a", "os=1", 1)], Rules::default()).await;
    let mut fence = crate::model::Fence::default();
    let rounds = seeds(2_000).count();
    for round in 0..rounds {
        let same = Ask { lease_id: Some("mine".parse().unwrap()), ..waits("ci", TARGETS[round % 2]) };
        let lease = lab.lease(Ask { ttl: HOUR, ..same }).await;
        assert!(lease.fence > fence, "round {round} of {rounds}");
        fence = lease.fence;
        lab.release(&lease).await.unwrap();
    }
    assert_eq!(lab.leftovers().await, Leftovers::default());
    println!("{rounds} times");
}
