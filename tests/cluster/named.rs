//! Requests by a resource's name through the gateway: they wait at the worker (SPEC §9 Named resources).

use std::time::Duration;

use berth::admission::LeaseRules;
use berth::model::{Ask, Caller, Code, LeaseId, RequestId, ResourceAddress, WaitingFor};
use berth::service::Coordinator;
use berth::service::answers::{Acquired, Pending};
use berth::service::ask::{AcquireBody, Headers, OnConflict, RequestBody};
use berth::service::views::{RequestState, RequestView};

use crate::lab::{FILE, Lab, RACK_1, acquire, active, eventually, granted, request, waiting_at};

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);
const SOON: Duration = Duration::from_secs(2);

/// What is asked by name, as its body says it.
pub fn body(requester: &str, resource: &str) -> RequestBody {
    RequestBody {
        requester: Some(requester.parse().unwrap()),
        resource_id: Some(resource.parse().unwrap()),
        ..RequestBody::default()
    }
}

pub fn asked(body: RequestBody) -> Ask {
    body.into_ask(&Caller::admin(), Headers::default(), &LeaseRules::default()).unwrap()
}

pub fn named(requester: &str, resource: &str) -> Ask {
    asked(body(requester, resource))
}

fn joining(requester: &str, resource: &str, lease_id: Option<&str>) -> Ask {
    let body = AcquireBody {
        requester: Some(requester.parse().unwrap()),
        on_conflict: Some(OnConflict::JoinWaitingRoom),
        lease_id: lease_id.map(|id| id.parse().unwrap()),
        ..AcquireBody::default()
    };
    let resource: ResourceAddress = resource.parse().unwrap();
    body.into_ask(resource, &Caller::admin(), Headers::default(), &LeaseRules::default()).unwrap()
}

/// Joins a waiting room; the place in it.
async fn joins(lab: &Lab, ask: Ask) -> Pending {
    match lab.gateway().acquire(&Caller::admin(), ask).await.unwrap() {
        Acquired::Pending(pending) => pending,
        Acquired::Active { lease } => panic!("it is free: {lease:?}"),
    }
}

/// Asks at the gateway and finds that it waits.
pub async fn waits(lab: &Lab, ask: Ask) -> RequestView {
    let view = lab.gateway().request(&Caller::admin(), ask, SOON).await.unwrap();
    assert_eq!(view.state, RequestState::Waiting, "{view:?}");
    view
}

pub async fn look(lab: &Lab, id: &RequestId) -> RequestView {
    lab.gateway().lease_request(&Caller::admin(), id, Duration::ZERO).await.unwrap()
}

pub async fn outcome(lab: &Lab, id: &RequestId) -> RequestView {
    let view = lab.gateway().lease_request(&Caller::admin(), id, MINUTE).await.unwrap();
    assert_ne!(view.state, RequestState::Waiting, "{view:?}");
    view
}

/// A local client of rack-1 holds `pixel`.
pub async fn held(lab: &Lab) -> LeaseId {
    active(lab.worker("rack-1").acquire(&Caller::admin(), acquire("local", "pixel", HOUR)).await.unwrap()).id
}

/// Gives a lease back at a node; who is taken next.
pub async fn gives_back(node: &dyn Coordinator, lease: &LeaseId) -> Option<String> {
    node.release(&Caller::admin(), lease, None).await.unwrap().admitted_waiter.map(|holder| holder.to_string())
}

/// Who waits for a resource, as the gateway lists it.
async fn room(lab: &Lab, resource: &str) -> Vec<String> {
    let room = lab.gateway().waiting_room(&Caller::admin(), &resource.parse().unwrap()).await.unwrap();
    assert_eq!(room.count, room.waiters.len());
    room.waiters.iter().map(|waiter| waiter.holder_id.to_string()).collect()
}

/// A lab whose workers both have a `twin`.
async fn twins() -> Lab {
    let twin = "\n[[worker.resource]]\nid = \"twin\"\n";
    let (first, second) = FILE.split_once("[[worker]]\nname = \"rack-2\"").unwrap();
    Lab::of(&format!("{first}{twin}[[worker]]\nname = \"rack-2\"{second}{twin}"), &[]).await
}

#[tokio::test(start_paused = true)]
async fn a_request_by_name_waits_at_its_worker_in_one_order_with_local_ones() {
    let lab = Lab::start().await;
    let local = held(&lab).await;
    let first = waits(&lab, named("first", "pixel")).await;
    assert_eq!((first.position, first.waiting_for), (Some(1), Some(WaitingFor::Leased)));
    assert!(first.ticket.is_some() && first.until.is_some(), "{first:?}");
    let second = waiting_at(&*lab.worker("rack-1"), "second", "pixel").await;
    let third = waits(&lab, named("third", "rack-1/pixel")).await;
    assert_eq!(third.position, Some(3));
    assert_eq!(look(&lab, &third.id).await.position, Some(3));

    assert_eq!(gives_back(&*lab.worker("rack-1"), &local).await.as_deref(), Some("gw:gateway:admin/first"));
    let lease = granted(&outcome(&lab, &first.id).await);
    assert!(lease.id.as_str().starts_with("rack-1.lse_"), "{lease:?}");
    assert_eq!(lease.holder_id.to_string(), "admin/first");
    assert_eq!(gives_back(&*lab.gateway(), &lease.id).await.as_deref(), Some("admin/second"));
    let worker = lab.worker("rack-1");
    let lease = granted(&worker.lease_request(&Caller::admin(), &second, MINUTE).await.unwrap());
    gives_back(&*worker, &lease.id).await;
    let lease = granted(&outcome(&lab, &third.id).await);
    assert_eq!(lease.request_id, third.id);
    lab.renew(&lease.id).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_release_of_a_fleet_lease_names_the_waiter_of_this_gateway_without_its_prefix() {
    let lab = Lab::start().await;
    let lease = lab.acquire("holder", "pixel", HOUR).await.unwrap();
    waits(&lab, named("next", "pixel")).await;
    assert_eq!(gives_back(&*lab.gateway(), &lease.id).await.as_deref(), Some("admin/next"));
}

#[tokio::test(start_paused = true)]
async fn a_wait_by_name_ends_with_its_timeout_and_frees_all_it_held() {
    let lab = Lab::start().await;
    held(&lab).await;
    let ask = asked(RequestBody {
        timeout_ms: Some(3_000.try_into().unwrap()),
        lease_id: Some("mine".parse().unwrap()),
        ..body("job", "pixel")
    });
    let view = waits(&lab, ask).await;
    let refused = lab.ask(request("other", "platform=linux", Some("mine"))).await.unwrap_err();
    assert_eq!(refused.code, Code::LeaseIdTaken);
    let view = outcome(&lab, &view.id).await;
    assert_eq!(view.error.unwrap().code, Code::QueueTimeout);
    granted(&lab.ask(request("job", "platform=linux", Some("mine"))).await.unwrap());
    assert_eq!(room(&lab, "pixel").await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_wait_by_name_is_cancelled_and_after_its_grant_it_is_not() {
    let lab = Lab::start().await;
    let local = held(&lab).await;
    let (first, second) = (waits(&lab, named("first", "pixel")).await, waits(&lab, named("second", "pixel")).await);
    let gateway = lab.gateway();
    gateway.cancel(&Caller::admin(), &first.id).await.unwrap();
    assert_eq!(look(&lab, &first.id).await.state, RequestState::Cancelled);
    assert_eq!(room(&lab, "pixel").await, ["admin/second"]);
    gives_back(&*lab.worker("rack-1"), &local).await;
    let lease = granted(&outcome(&lab, &second.id).await);
    let refused = gateway.cancel(&Caller::admin(), &second.id).await.unwrap_err();
    assert_eq!(refused.code, Code::RequestNotCancellable);
    assert_eq!(refused.details.unwrap()["leaseId"], lease.id.as_str());
    granted(&lab.ask(request("first", "platform=linux", None)).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_cancel_that_meets_the_grant_at_the_worker_names_the_lease_as_the_gateway_does() {
    let lab = Lab::start().await;
    let local = held(&lab).await;
    let view = waits(&lab, named("first", "pixel")).await;
    let (gateway, worker, caller) = (lab.gateway(), lab.worker("rack-1"), Caller::admin());
    // The grant is there before the cancel, and its report may not be here yet.
    let (_, cancelled) = tokio::join!(biased; gives_back(&*worker, &local), gateway.cancel(&caller, &view.id));
    match cancelled {
        Ok(()) => assert_eq!(look(&lab, &view.id).await.state, RequestState::Cancelled),
        Err(refused) => {
            assert_eq!(refused.code, Code::RequestNotCancellable);
            let lease = granted(&outcome(&lab, &view.id).await);
            assert_eq!(refused.details.unwrap()["leaseId"], lease.id.as_str());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_cancelled_while_its_worker_is_away_gets_nothing_there() {
    let lab = Lab::start().await;
    let local = held(&lab).await;
    let view = waits(&lab, named("first", "pixel")).await;
    lab.weather.cut(lab.weather.opened(RACK_1));
    eventually("the place is the last that was told", || async {
        (look(&lab, &view.id).await.waiting_for == Some(WaitingFor::Absent)).then_some(())
    })
    .await;
    lab.gateway().cancel(&Caller::admin(), &view.id).await.unwrap();
    assert_eq!(look(&lab, &view.id).await.state, RequestState::Cancelled);
    granted(&lab.ask(request("first", "platform=linux", None)).await.unwrap());
    lab.weather.clear();
    eventually("it is taken out", || async { room_at(&lab).await.is_empty().then_some(()) }).await;
    assert_eq!(gives_back(&*lab.worker("rack-1"), &local).await, None);
    eventually("only its other lease is left", || async { (lab.leases().await.len() == 1).then_some(()) }).await;
}

/// Who waits for `pixel`, as its worker says.
pub async fn room_at(lab: &Lab) -> Vec<String> {
    let room = lab.worker("rack-1").waiting_room(&Caller::admin(), &"pixel".parse().unwrap()).await.unwrap();
    room.waiters.iter().map(|waiter| waiter.holder_id.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_join_through_the_gateway_keeps_its_place_and_takes_what_becomes_free() {
    let lab = Lab::start().await;
    let local = held(&lab).await;
    let first = joins(&lab, joining("first", "pixel", Some("mine"))).await;
    let second = joins(&lab, joining("second", "pixel", None)).await;
    assert_eq!((first.waiting_position, second.waiting_position), (1, 2));
    assert!(first.ticket.is_some() && first.resource_id.as_str() == "pixel", "{first:?}");
    assert_eq!(joins(&lab, joining("first", "rack-1/pixel", Some("mine"))).await.waiting_position, 1);
    assert_eq!(room(&lab, "pixel").await, ["admin/first", "admin/second"]);
    assert_eq!(room_at(&lab).await, ["gw:gateway:admin/first", "gw:gateway:admin/second"]);
    // Its id is held, and it may not ask for another thing.
    let taken = lab.ask(request("other", "platform=linux", Some("mine"))).await.unwrap_err();
    assert_eq!(taken.code, Code::LeaseIdTaken);
    let twice = lab.ask(request("first", "platform=linux", None)).await.unwrap_err();
    assert_eq!(twice.code, Code::RequesterAlreadyLeased);
    assert!(twice.message.contains("rack-1/pixel"), "{twice:?}");

    gives_back(&*lab.worker("rack-1"), &local).await;
    let lease = active(lab.gateway().acquire(&Caller::admin(), joining("first", "pixel", Some("mine"))).await.unwrap());
    assert_eq!((lease.id.as_str(), lease.holder_id.to_string().as_str()), ("mine", "admin/first"));
    assert_eq!(joins(&lab, joining("second", "pixel", None)).await.waiting_position, 1);
    let (gateway, pixel) = (lab.gateway(), "pixel".parse().unwrap());
    assert!(gateway.leave(&Caller::admin(), "admin/second".parse().unwrap(), &pixel).await.unwrap().left);
    granted(&lab.ask(request("second", "platform=linux", None)).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn two_resources_of_one_name_are_two_rooms_and_the_bare_name_is_neither() {
    let lab = twins().await;
    let refused = lab.acquire("a", "twin", HOUR).await.unwrap_err();
    assert_eq!(refused.code, Code::AmbiguousResource);
    let told = format!("{:?}", refused.details);
    assert!(told.contains("rack-1/twin") && told.contains("rack-2/twin"), "{told}");
    for rack in ["rack-1/twin", "rack-2/twin"] {
        lab.acquire(&rack[..6], rack, HOUR).await.unwrap();
    }
    assert_eq!(joins(&lab, joining("a", "rack-1/twin", None)).await.waiting_position, 1);
    assert_eq!(joins(&lab, joining("b", "rack-2/twin", None)).await.waiting_position, 1);
    let refused = lab.gateway().acquire(&Caller::admin(), joining("a", "rack-2/twin", None)).await.unwrap_err();
    assert_eq!(refused.code, Code::RequesterAlreadyLeased);
    assert_eq!(joins(&lab, joining("a", "rack-1/twin", None)).await.waiting_position, 1);
    let waiting = waits(&lab, named("c", "rack-2/twin")).await;
    assert_eq!(waiting.position, Some(2));
    let drained = lab.gateway().drain(&Caller::admin(), &"rack-1/twin".parse().unwrap(), true).await.unwrap();
    assert_eq!(drained.worker.unwrap().as_str(), "rack-1");
    let refused = lab.gateway().drain(&Caller::admin(), &"twin".parse().unwrap(), true).await.unwrap_err();
    assert_eq!(refused.code, Code::AmbiguousResource);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_when_its_worker_restarts_goes_there_again_with_its_place() {
    let mut lab = Lab::start().await;
    let local = held(&lab).await;
    let (first, second) = (waits(&lab, named("first", "pixel")).await, waits(&lab, named("second", "pixel")).await);
    lab.stop("rack-1").await;
    assert_eq!(look(&lab, &first.id).await.state, RequestState::Waiting);
    lab.restart("rack-1").await;
    for (view, place) in [(&second, 2), (&first, 1)] {
        eventually("it stands where it stood", || async {
            let now = look(&lab, &view.id).await;
            assert_eq!(now.state, RequestState::Waiting, "{now:?}");
            (now.position == Some(place) && now.waiting_for == Some(WaitingFor::Leased)).then_some(())
        })
        .await;
    }
    gives_back(&*lab.worker("rack-1"), &local).await;
    granted(&outcome(&lab, &first.id).await);
    assert_eq!(look(&lab, &second.id).await.position, Some(1));
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_of_the_gateway_key_ticket_and_id_each_have_their_place_again() {
    let mut lab = Lab::start().await;
    let local = held(&lab).await;
    let keyed = || asked(RequestBody { idempotency_key: Some("k-1".parse().unwrap()), ..body("by-key", "pixel") });
    let by_key = waits(&lab, keyed()).await;
    let by_ticket = waits(&lab, named("by-ticket", "pixel")).await;
    let by_id = waits(&lab, named("by-id", "pixel")).await;
    let nobody = waits(&lab, named("nobody", "pixel")).await;
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    lab.ready().await;
    let again = waits(&lab, keyed()).await;
    assert_eq!((again.id, again.position), (by_key.id.clone(), Some(1)));
    let other = asked(RequestBody { idempotency_key: Some("k-1".parse().unwrap()), ..body("by-key", "board-1") });
    let conflict = lab.ask(other).await.unwrap_err();
    assert_eq!(conflict.code, Code::IdempotencyConflict);
    let again =
        waits(&lab, asked(RequestBody { ticket: by_ticket.ticket.clone(), ..body("by-ticket", "pixel") })).await;
    assert_eq!((again.id, again.position), (by_ticket.id.clone(), Some(2)));
    assert_eq!(look(&lab, &by_id.id).await.position, Some(3));
    // Longer than `absence_grace`.
    tokio::time::sleep(Duration::from_secs(40)).await;
    for id in [&by_key.id, &by_ticket.id, &by_id.id] {
        assert_eq!(look(&lab, id).await.state, RequestState::Waiting);
    }
    assert_eq!(room_at(&lab).await.len(), 3);
    let ended = look(&lab, &nobody.id).await;
    assert_ne!(ended.state, RequestState::Waiting, "nobody has claimed it");

    gives_back(&*lab.worker("rack-1"), &local).await;
    let lease = granted(&outcome(&lab, &by_key.id).await);
    assert_eq!(granted(&lab.ask(keyed()).await.unwrap()).id, lease.id);
    gives_back(&*lab.gateway(), &lease.id).await;
    let lease = granted(&outcome(&lab, &by_ticket.id).await);
    gives_back(&*lab.gateway(), &lease.id).await;
    granted(&outcome(&lab, &by_id.id).await);
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_request_was_settled_before_a_restart_of_the_gateway_answers_as_before() {
    let mut lab = Lab::start().await;
    let local = held(&lab).await;
    let keyed = |requester, resource, timeout: Option<u64>| {
        asked(RequestBody {
            idempotency_key: Some("k-1".parse().unwrap()),
            timeout_ms: timeout.map(|ms| ms.try_into().unwrap()),
            ..body(requester, resource)
        })
    };
    let late = waits(&lab, keyed("late", "pixel", Some(3_000))).await;
    outcome(&lab, &late.id).await;
    let first = waits(&lab, keyed("job", "pixel", None)).await;
    gives_back(&*lab.worker("rack-1"), &local).await;
    let lease = granted(&outcome(&lab, &first.id).await);
    gives_back(&*lab.gateway(), &lease.id).await;
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    lab.ready().await;
    let again = granted(&lab.ask(keyed("job", "pixel", None)).await.unwrap());
    assert_eq!((&again.id, &again.request_id, again.fence), (&lease.id, &first.id, lease.fence));
    let conflict = lab.ask(keyed("job", "board-1", None)).await.unwrap_err();
    assert_eq!(conflict.code, Code::IdempotencyConflict);
    let again = lab.ask(keyed("late", "pixel", Some(3_000))).await.unwrap_err();
    assert_eq!(again.code, Code::QueueTimeout);
    assert_eq!(lab.leases().await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_that_joined_keeps_its_place_over_a_restart_of_the_gateway() {
    let mut lab = Lab::start().await;
    held(&lab).await;
    joins(&lab, joining("first", "pixel", Some("mine"))).await;
    joins(&lab, joining("second", "pixel", None)).await;
    lab.stop("gateway").await;
    lab.restart("gateway").await;
    lab.ready().await;
    let taken = lab.ask(request("other", "platform=linux", Some("mine"))).await.unwrap_err();
    assert_eq!(taken.code, Code::LeaseIdTaken);
    let twice = lab.ask(request("second", "platform=linux", None)).await.unwrap_err();
    assert_eq!(twice.code, Code::RequesterAlreadyLeased);
    assert_eq!(joins(&lab, joining("second", "pixel", None)).await.waiting_position, 2);
    assert_eq!(joins(&lab, joining("first", "pixel", Some("mine"))).await.waiting_position, 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_a_worker_that_is_away_for_long_holds_its_requester_and_id_no_more_until_it_is_back() {
    let lab = Lab::start().await;
    let ask = Ask { lease_id: Some("mine".parse().unwrap()), ..acquire("job", "pixel", MINUTE) };
    let lease = active(lab.gateway().acquire(&Caller::admin(), ask).await.unwrap());
    lab.weather.cut(lab.weather.opened(RACK_1));
    // Its minute, the minute of `uplink_grace`, and the minute that clocks may differ by.
    tokio::time::sleep(Duration::from_secs(170)).await;
    let still = lab.ask(request("job", "platform=linux", None)).await.unwrap_err();
    assert_eq!(still.code, Code::RequesterAlreadyLeased);
    let still = lab.ask(request("other", "platform=linux", Some("mine"))).await.unwrap_err();
    assert_eq!(still.code, Code::LeaseIdTaken);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(lab.renew(&lease.id).await.unwrap_err().code, Code::WorkerUnreachable);
    let next = granted(&lab.ask(request("job", "platform=linux", None)).await.unwrap());
    lab.gateway().release(&Caller::admin(), &next.id, None).await.unwrap();
    assert_eq!(lab.renew(&lease.id).await.unwrap_err().code, Code::WorkerUnreachable);
}
