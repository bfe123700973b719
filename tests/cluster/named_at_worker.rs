//! What a worker answers its gateway about requests by name, and what it reports of them, call by call.

use std::time::Duration;

use berth::model::{Caller, Code, Mode, WaitingFor};
use berth::wire::call::{Answer, Call, Dispatch, Wait};
use berth::wire::report::Changed;
use berth::wire::requests::SettledOutcome;
use berth::wire::room::{RoomAnswer, RoomAsk};

use crate::lab::{acquire, active};
use crate::scripted::{Scripted, attended, dispatch};

const CI: &str = "gw:gateway:ci/job-1";
const OPS: &str = "gw:gateway:ops";
const HOUR: Duration = Duration::from_secs(3600);

/// A local client holds the resource; the report of that has come.
async fn held_locally(gateway: &mut Scripted) -> berth::model::LeaseId {
    let acquired = gateway.worker().acquire(&Caller::admin(), acquire("local", "pixel", HOUR)).await;
    assert!(matches!(gateway.change().await, Changed::Resource(report) if report.leases.len() == 1));
    active(acquired.unwrap()).id
}

async fn give_back(gateway: &Scripted, lease: &berth::model::LeaseId) -> Option<String> {
    let released = gateway.worker().release(&Caller::admin(), lease, None).await.unwrap();
    released.admitted_waiter.map(|holder| holder.to_string())
}

fn ask(dispatch: &Dispatch) -> Call {
    Call::Dispatch(dispatch.clone())
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_at_its_worker_and_its_end_comes_as_a_report() {
    let mut gateway = Scripted::start(&[]).await;
    let local = held_locally(&mut gateway).await;
    let asked =
        Dispatch { key: Some("k-1".parse().unwrap()), lease_id: Some("ad-7f3a".parse().unwrap()), ..attended(CI) };
    let (place, number) = gateway.place(ask(&asked)).await;
    assert_eq!((place.position, place.mode, place.resource.as_str()), (1, Mode::Exclusive, "pixel"));
    assert_eq!(place.waiting_for, Some(WaitingFor::Leased));
    let until = place.until_ms.unwrap();
    assert!((3_590_000..=3_600_000).contains(&until), "{until}");

    // The room first, then who has come.
    assert!(matches!(gateway.change().await, Changed::Resource(report) if report.queue_length == 1));
    let Changed::Waiting(row) = gateway.change().await else { panic!("the row is next") };
    assert_eq!(number, gateway.told.number, "the answer has the number of its last effect");
    assert_eq!((row.request, row.attended), (asked.request.clone(), true));
    assert_eq!(
        (row.key, row.lease_id, row.fingerprint),
        (asked.key.clone(), asked.lease_id.clone(), asked.fingerprint)
    );
    assert_eq!(row.requester.to_string(), CI);

    // The same dispatch again, and a look, are told the place.
    assert_eq!(gateway.place(ask(&asked)).await.0.position, 1);
    assert_eq!(gateway.place(Call::Look { request: asked.request.clone() }).await.0.position, 1);
    gateway.digest().await;

    assert_eq!(give_back(&gateway, &local).await, Some(CI.to_owned()));
    let Changed::Resource(report) = gateway.change().await else { panic!("the resource is next") };
    assert_eq!((report.leases.len(), report.queue_length), (1, 0));
    let Changed::Settled(row) = gateway.change().await else { panic!("then how the request was settled") };
    assert_eq!((&row.request, &row.key, row.ended_ms_ago), (&asked.request, &asked.key, None));
    let SettledOutcome::Granted { resource, lease, .. } = row.outcome else { panic!("granted") };
    let (lease, _) = lease.into_lease(&resource);
    assert_eq!((lease.id.as_str(), lease.request_id), ("ad-7f3a", asked.request.clone()));

    gateway.does_not_wait(&asked.request).await;
    let refused = gateway.refused(Call::Cancel { request: asked.request.clone() }).await;
    assert_eq!(refused.code, Code::RequestNotCancellable);
    assert_eq!(refused.details.unwrap()["leaseId"], "ad-7f3a");
    let (answer, _) = gateway.call(ask(&asked)).await;
    assert!(matches!(answer, Answer::Granted(_)), "the same dispatch has one outcome: {answer:?}");
    let (released, _) = gateway.call(Call::Release { lease: lease.id, fence: None }).await;
    assert_eq!(released, Answer::Released { admitted: None });
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_cancelled_at_its_worker_is_reported_as_that() {
    let mut gateway = Scripted::start(&[]).await;
    held_locally(&mut gateway).await;
    let asked = attended(CI);
    gateway.place(ask(&asked)).await;
    let (answer, number) = gateway.call(Call::Cancel { request: asked.request.clone() }).await;
    assert_eq!(answer, Answer::Cancelled);
    while gateway.told.number < number {
        gateway.change().await;
    }
    assert_eq!(gateway.told.settled[&asked.request].outcome, SettledOutcome::Cancelled);
    assert!(gateway.told.waiting.is_empty());
    let (again, _) = gateway.call(Call::Cancel { request: asked.request.clone() }).await;
    assert_eq!(again, Answer::Cancelled);
    gateway.does_not_wait(&asked.request).await;
    gateway.digest().await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_over_is_reported_with_its_refusal() {
    let mut gateway = Scripted::start(&[]).await;
    held_locally(&mut gateway).await;
    let asked = dispatch(CI, Wait::Attended { timeout_ms: Some(2_000) });
    let asked = Dispatch { key: Some("k-1".parse().unwrap()), ..asked };
    gateway.place(ask(&asked)).await;
    while !gateway.told.settled.contains_key(&asked.request) {
        gateway.change().await;
    }
    let row = &gateway.told.settled[&asked.request];
    assert!(matches!(&row.outcome, SettledOutcome::Failed(refusal) if refusal.code == Code::QueueTimeout));
    assert_eq!((&row.key, row.ended_ms_ago), (&asked.key, Some(0)));
}

#[tokio::test(start_paused = true)]
async fn a_dispatch_that_is_taken_back_waits_no_more_and_leaves_nothing_behind() {
    let mut gateway = Scripted::start(&[]).await;
    held_locally(&mut gateway).await;
    for asked in [attended(CI), dispatch(CI, Wait::Unattended)] {
        gateway.place(ask(&asked)).await;
        let (answer, number) = gateway.call(Call::Settle { request: asked.request.clone(), attempt: 1 }).await;
        assert_eq!(answer, Answer::Settled(None));
        let mut last = None;
        while gateway.told.number < number {
            last = Some(gateway.change().await);
        }
        assert_eq!(last, Some(Changed::Gone(asked.request.clone())));
        assert_eq!(gateway.refused(ask(&asked)).await.code, Code::Stopping, "it comes too late");
        let next = Dispatch { attempt: 2, ..asked.clone() };
        gateway.place(ask(&next)).await;
        gateway.call(Call::Cancel { request: asked.request.clone() }).await;
    }
    gateway.resync().await;
    assert_eq!(gateway.told.settled.len(), 1, "only the attended one that was cancelled is remembered");
    assert!(gateway.told.waiting.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_unattended_waiter_keeps_its_place_by_asking_again_and_by_a_look() {
    let ttl = [("BERTH_WAITING_ROOM__WAITER_TTL", "10s")];
    let mut gateway = Scripted::start(&ttl).await;
    held_locally(&mut gateway).await;
    let first = Dispatch { lease_id: Some("ad-7f3a".parse().unwrap()), ..dispatch(CI, Wait::Unattended) };
    let (place, _) = gateway.place(ask(&first)).await;
    assert_eq!((place.position, place.waiting_for, place.until_ms), (1, None, None));
    gateway.change().await;
    let Changed::Waiting(row) = gateway.change().await else { panic!("the row is next") };
    assert_eq!((&row.request, row.attended, &row.lease_id), (&first.request, false, &first.lease_id));

    // Asked again under another request it is the same entry, and no second request.
    let again = Dispatch { lease_id: first.lease_id.clone(), ..dispatch(CI, Wait::Unattended) };
    let (place, number) = gateway.place(ask(&again)).await;
    assert_eq!((place.position, number), (1, gateway.told.number));
    gateway.does_not_wait(&again.request).await;
    // Two and a half times as long as it would be kept without.
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        gateway.place(Call::Look { request: first.request.clone() }).await;
    }
    // With another width it is another entry at the same place.
    let other = Dispatch { ttl_ms: 1_000, ..again.clone() };
    let (place, _) = gateway.place(ask(&other)).await;
    assert_eq!(place.position, 1);
    let Changed::Gone(gone) = gateway.change().await else { panic!("the former entry goes") };
    let Changed::Waiting(row) = gateway.change().await else { panic!("and the new one comes") };
    assert_eq!((gone, row.request), (first.request, other.request.clone()));

    tokio::time::sleep(Duration::from_secs(12)).await;
    while !gateway.told.waiting.is_empty() {
        gateway.change().await;
    }
    gateway.does_not_wait(&other.request).await;
    gateway.digest().await;
}

#[tokio::test(start_paused = true)]
async fn an_admitted_waiter_is_named_and_claims_its_lease_by_asking_again() {
    let mut gateway = Scripted::start(&[("BERTH_WAITING_ROOM__ADMISSION_GRACE", "60s")]).await;
    let local = held_locally(&mut gateway).await;
    let asked = dispatch(CI, Wait::Unattended);
    gateway.place(ask(&asked)).await;
    assert_eq!(give_back(&gateway, &local).await, Some(CI.to_owned()));
    while gateway.told.resources.values().all(|report| report.reserved == 0) {
        gateway.change().await;
    }
    assert_eq!(gateway.change().await, Changed::Gone(asked.request.clone()));
    gateway.does_not_wait(&asked.request).await;
    let refused = gateway.refused(ask(&dispatch(OPS, Wait::Never))).await;
    assert_eq!(refused.code, Code::ResourceUnavailable, "it is kept");
    assert!(gateway.told.settled.is_empty(), "nothing is remembered of a probe that was declined");
    let claims = dispatch(CI, Wait::Unattended);
    let (answer, number) = gateway.call(ask(&claims)).await;
    assert!(matches!(&answer, Answer::Granted(granted) if granted.resource.as_str() == "pixel"), "{answer:?}");
    while gateway.told.number < number {
        gateway.change().await;
    }
    assert!(gateway.told.settled.contains_key(&claims.request));
    assert!(gateway.told.resources.values().all(|report| report.reserved == 0));
    gateway.digest().await;
}

#[tokio::test(start_paused = true)]
async fn the_waiting_room_is_told_left_and_drained_through_the_link() {
    let mut gateway = Scripted::start(&[]).await;
    held_locally(&mut gateway).await;
    gateway.place(ask(&dispatch(CI, Wait::Unattended))).await;
    gateway.place(ask(&attended(OPS))).await;
    let waiters = |after| Call::Room(RoomAsk::Waiters { resource: "pixel".parse().unwrap(), after });
    let listed = |answer: Answer| match answer {
        Answer::Room(RoomAnswer::Waiters { waiters, more: false }) => {
            waiters.into_iter().map(|row| row.holder.to_string()).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(listed(gateway.call(waiters(0)).await.0), [CI, OPS]);
    assert_eq!(listed(gateway.call(waiters(1)).await.0), [OPS]);
    assert!(listed(gateway.call(waiters(u64::MAX)).await.0).is_empty());
    let unknown = Call::Room(RoomAsk::Waiters { resource: "nothing".parse().unwrap(), after: 0 });
    assert_eq!(gateway.refused(unknown).await.code, Code::UnknownResource);

    let leave = |requester: &str| {
        Call::Room(RoomAsk::Leave { resource: "pixel".parse().unwrap(), requester: requester.parse().unwrap() })
    };
    for foreign in ["local", "gw:another:ci/job-1"] {
        assert_eq!(gateway.refused(leave(foreign)).await.code, Code::BadRequest, "{foreign}");
    }
    let left = |left| Answer::Room(RoomAnswer::Left(left));
    assert_eq!(gateway.call(leave(OPS)).await.0, left(false), "an attended waiter is cancelled");
    assert_eq!(gateway.call(leave(CI)).await.0, left(true));
    assert_eq!(gateway.call(leave(CI)).await.0, left(false));

    let drain = |drained| Call::Room(RoomAsk::Drain { resource: "pixel".parse().unwrap(), drained });
    for drained in [true, false] {
        let (answer, number) = gateway.call(drain(drained)).await;
        let Answer::Room(RoomAnswer::Resource(report)) = answer else { panic!("{answer:?}") };
        assert_eq!(report.drained, drained);
        while gateway.told.number < number {
            gateway.change().await;
        }
        assert_eq!(gateway.told.resources[&report.id].drained, drained);
    }
    assert_eq!(gateway.call(Call::DrainWorker { drained: false }).await.0, Answer::Drained(false));
}

#[tokio::test(start_paused = true)]
async fn what_a_gateway_claims_wrongly_is_refused_and_harms_nobody() {
    let mut gateway = Scripted::start(&[]).await;
    held_locally(&mut gateway).await;
    // A local client waits; its request is none of the gateway's.
    let local = crate::lab::waiting_at(&*gateway.worker(), "other", "pixel").await;
    let base = attended(CI);
    let never = dispatch(CI, Wait::Never);
    let door = |door, wait| Dispatch { door, wait, ..base.clone() };
    let timeout = |ms| door(base.door, Wait::Attended { timeout_ms: Some(ms) });
    let wrong = [
        Dispatch { target: "platform=android".parse().map(berth::model::Target::Select).unwrap(), ..base.clone() },
        Dispatch { target: berth::model::Target::Resource("rack-1/pixel".parse().unwrap()), ..base.clone() },
        Dispatch { requester: "ci".parse().unwrap(), ..base.clone() },
        Dispatch { requester: "gw:another:ci".parse().unwrap(), ..base.clone() },
        Dispatch { ttl_ms: u64::MAX, ..base.clone() },
        Dispatch { ttl_ms: 0, ..base.clone() },
        door(never.door, base.wait),
        door(base.door, Wait::Unattended),
        timeout(0),
        timeout(u64::MAX),
        // The local client's request id.
        Dispatch { request: local.clone(), ..base.clone() },
    ];
    for asked in wrong {
        let refused = gateway.refused(Call::Dispatch(asked.clone())).await;
        assert_eq!(refused.code, Code::BadRequest, "{asked:?}: {refused}");
    }
    gateway.does_not_wait(&local).await;
    let refused = gateway.refused(Call::Cancel { request: local.clone() }).await;
    assert_eq!(refused.code, Code::UnknownLeaseRequest);
    let (settled, _) = gateway.call(Call::Settle { request: local.clone(), attempt: u32::MAX }).await;
    assert_eq!(settled, Answer::Settled(None));
    let still = gateway.worker().lease_request(&Caller::admin(), &local, Duration::ZERO).await.unwrap();
    assert_eq!(still.position, Some(1), "it waits on");

    // One request id for two requesters, whichever way they wait.
    for first in [attended(CI), dispatch(CI, Wait::Unattended)] {
        gateway.place(ask(&first)).await;
        let second = Dispatch { requester: OPS.parse().unwrap(), attempt: 2, ..first.clone() };
        assert_eq!(gateway.refused(ask(&second)).await.code, Code::BadRequest);
        assert_eq!(gateway.call(Call::Cancel { request: first.request }).await.0, Answer::Cancelled);
    }
    let unknown = berth::model::RequestId::generate();
    gateway.does_not_wait(&unknown).await;
    assert_eq!(gateway.refused(Call::Cancel { request: unknown }).await.code, Code::UnknownLeaseRequest);
    gateway.digest().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_starts_anew_tells_again_who_waited_and_how_requests_ended() {
    let mut gateway = Scripted::start(&[]).await;
    // One that was granted and is over, one that was cancelled, one whose lease is active; each under a key.
    let keyed = |key: &str, asked: Dispatch| Dispatch { key: Some(key.parse().unwrap()), ..asked };
    let over = keyed("k-over", dispatch(CI, Wait::Never));
    let (answer, _) = gateway.call(ask(&over)).await;
    let Answer::Granted(granted) = answer else { panic!("{answer:?}") };
    let lease = granted.lease.into_lease(&granted.resource).0.id;
    gateway.call(Call::Release { lease, fence: None }).await;
    let active = keyed("k-active", dispatch(CI, Wait::Never));
    assert!(matches!(gateway.call(ask(&active)).await.0, Answer::Granted(_)));
    let cancelled = keyed("k-cancelled", attended(OPS));
    gateway.place(ask(&cancelled)).await;
    gateway.call(Call::Cancel { request: cancelled.request.clone() }).await;
    let waits = keyed("k-waits", attended(OPS));
    let (place, _) = gateway.place(ask(&waits)).await;
    gateway.place(ask(&dispatch("gw:gateway:nightly", Wait::Unattended))).await;

    gateway.restart_worker().await;
    let rows = &gateway.told.settled;
    assert_eq!(rows.len(), 4, "{rows:?}");
    for asked in [&over, &active, &cancelled] {
        let row = &rows[&asked.request];
        assert_eq!((&row.key, row.fingerprint, &row.requester), (&asked.key, asked.fingerprint, &asked.requester));
    }
    assert!(rows[&over.request].ended_ms_ago.is_some() && rows[&active.request].ended_ms_ago.is_none());
    assert_eq!(rows[&cancelled.request].outcome, SettledOutcome::Cancelled);
    let failed = &rows[&waits.request].outcome;
    assert!(matches!(failed, SettledOutcome::Failed(refusal) if refusal.code == Code::NodeRestarted), "{failed:?}");
    let waiting: Vec<_> = gateway.told.waiting.values().map(|row| (row.requester.to_string(), row.attended)).collect();
    assert_eq!(waiting, [("gw:gateway:nightly".to_owned(), false)]);

    // With its ticket the one that waited is before the other again, which joined later.
    let back = Dispatch { ticket: Some(place.ticket), ..keyed("k-waits", attended(OPS)) };
    assert_eq!(gateway.place(ask(&back)).await.0.position, 1);
    gateway.digest().await;
}
