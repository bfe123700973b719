//! The lab file is read anew while the node runs.

use std::time::Duration;

use tokio::sync::oneshot::Receiver;

use super::super::message::{DeskMessage, Leftovers, Reloaded, ResourceNow};
use super::calls::{ENFORCED, booked, slot};
use super::devices::device;
use super::lab::{End, Lab, acquires, holder, joins, reply, resource, waits};
use crate::admission::{LeaseRules, Rules, WaitingRules};
use crate::limits::STORE_GROUP_MAX;
use crate::model::{Code, EventKind, Refusal, ResourceId, ResourceSpec};
use crate::wire::report::{Changed, Report};

fn begin(lab: &Lab, resources: &[ResourceSpec], rules: &Rules) -> Receiver<Result<Reloaded, Refusal>> {
    let (resources, rules) = (resources.to_vec(), Box::new(rules.clone()));
    lab.send(|reply| DeskMessage::Reload { resources, rules, reply })
}

/// What has come, changed and gone.
async fn reload(lab: &Lab, resources: &[ResourceSpec]) -> [Vec<String>; 3] {
    let Reloaded { added, changed, gone } = reply(begin(lab, resources, &lab.host.rules.now())).await.unwrap();
    lab.settle().await;
    let named = |ids: Vec<ResourceId>| ids.iter().map(ToString::to_string).collect();
    [named(added), named(changed), named(gone)]
}

fn names(lists: [&[&str]; 3]) -> [Vec<String>; 3] {
    lists.map(|list| list.iter().map(ToString::to_string).collect())
}

async fn there(lab: &Lab) -> Vec<String> {
    let all: Vec<ResourceNow> = reply(lab.send(|reply| DeskMessage::Resources(None, reply))).await;
    all.iter().map(|now| now.spec.id.to_string()).collect()
}

async fn shown(lab: &Lab, id: &str) -> Result<ResourceNow, Code> {
    let address = id.parse().unwrap();
    reply(lab.send(|reply| DeskMessage::Resource(address, reply))).await.map_err(|refusal| refusal.code)
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_has_come_serves_the_first_who_waits_for_its_like() {
    let old = resource("old", "os=15", 1);
    let lab = Lab::new(std::slice::from_ref(&old), Rules::default()).await;
    lab.lease(acquires("kim", "old")).await;
    let (first, second) = (lab.wait(waits("ruth", "os=15")).await, lab.wait(waits("omar", "os=15")).await);
    let came = reload(&lab, &[resource("new", "os=15", 1), old.clone()]).await;
    assert_eq!(came, names([&["new"], &[], &[]]));
    let End::Lease(lease) = lab.end(&first).await else { panic!("it waits on") };
    assert_eq!(lease.resource_id.as_str(), "new");
    assert_eq!(reload(&lab, &[resource("new", "os=15", 1), old]).await, names([&[], &[], &[]]));
    lab.release(&lease).await.unwrap();
    assert!(matches!(lab.end(&second).await, End::Lease(lease) if lease.resource_id.as_str() == "new"));
    assert_eq!(there(&lab).await, ["new", "old"]);
}

#[tokio::test(start_paused = true)]
async fn a_check_that_ends_after_its_resource_has_gone_does_not_keep_that_from_being_checked_when_it_is_back() {
    let (checked, other) = (device("a", "os=15", "health"), resource("b", "os=15", 1));
    let lab = Lab::new(&[checked.clone(), other.clone()], Rules::default()).await;
    lab.pass(Duration::from_secs(31)).await;
    let check = lab.job("health a").await;
    assert_eq!(reload(&lab, std::slice::from_ref(&other)).await, names([&[], &[], &["a"]]));
    check.fails();
    lab.settle().await;
    assert_eq!(reload(&lab, &[checked, other]).await, names([&["a"], &[], &[]]));
    lab.pass(Duration::from_secs(31)).await;
    lab.job("health a").await.succeeds();
}

#[tokio::test(start_paused = true)]
async fn a_reset_whose_driver_was_not_in_the_file_at_the_start_waits_until_it_is() {
    let (dirty, other) = (device("a", "os=15", "reset"), resource("b", "os=15", 1));
    for named_while_leased in [true, false] {
        let lab = Lab::new(&[dirty.clone(), other.clone()], Rules::default()).await;
        let lease = lab.lease(acquires("kim", "a")).await;
        let mut lab = lab.stop().await.names(std::slice::from_ref(&other)).start().await;
        if !named_while_leased {
            lab.release(&lease).await.unwrap();
            lab.no_job().await;
            assert_eq!(there(&lab).await, ["b"]);
            // Nor does another start forget it.
            lab = lab.stop().await.start().await;
        }
        reload(&lab, &[dirty.clone(), other.clone()]).await;
        if named_while_leased {
            lab.release(&lease).await.unwrap();
        }
        let next = lab.wait(waits("next", "a")).await;
        lab.job("reset a").await.succeeds();
        assert!(matches!(lab.end(&next).await, End::Lease(_)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_leased_resource_that_is_gone_ends_who_waits_for_it_and_goes_after_its_release() {
    let rules = Rules {
        waiting: WaitingRules { admission_grace: Duration::from_secs(30), ..WaitingRules::default() },
        ..Rules::default()
    };
    let stays = resource("stays", "os=15", 1);
    let lab = Lab::new(&[resource("goes", "os=15", 1), stays.clone()], rules).await;
    let lease = lab.lease(acquires("kim", "goes")).await;
    let attended = lab.wait(waits("ruth", "goes")).await;
    lab.join(joins("omar", "goes")).await;
    let gone = reload(&lab, std::slice::from_ref(&stays)).await;
    assert_eq!(gone, names([&[], &[], &["goes"]]));
    assert_eq!(lab.end(&attended).await, End::Refused(Code::UnknownResource));
    assert_eq!(there(&lab).await, ["stays"]);
    assert_eq!(shown(&lab, "goes").await.unwrap_err(), Code::UnknownResource);
    assert_eq!(lab.ask(acquires("ruth", "goes")).await.unwrap_err(), Code::UnknownResource);
    assert!(lab.ask(acquires("omar", "stays")).await.is_ok(), "whoever stood there may have something else");
    // The holder keeps what it has.
    assert_eq!(lab.renew(&lease).await.unwrap(), lease.fence);
    assert_eq!(lab.release(&lease).await.unwrap(), None);
    lab.settle().await;
    assert_eq!(lab.renew(&lease).await.unwrap_err(), Code::UnknownLease);
    assert_eq!(lab.leftovers().await, Leftovers { ledger: 1, ..Leftovers::default() }, "of omar alone");
    let rejected = lab.events().await.into_iter().filter(|kind| *kind == EventKind::LeaseRejected).count();
    assert_eq!(rejected, 1);
    // The database knows it still: its next fence is a later one.
    assert_eq!(reload(&lab, &[stays, resource("goes", "os=15", 1)]).await, names([&["goes"], &[], &[]]));
    assert!(lab.lease(acquires("kim", "goes")).await.fence > lease.fence);
}

#[tokio::test(start_paused = true)]
async fn one_that_comes_back_while_it_is_going_is_itself_again() {
    let spec = resource("board", "os=15", 1);
    let lab = Lab::new(std::slice::from_ref(&spec), Rules::default()).await;
    let lease = lab.lease(acquires("kim", "board")).await;
    assert_eq!(reload(&lab, &[]).await, names([&[], &[], &["board"]]));
    assert_eq!(reload(&lab, &[]).await, names([&[], &[], &[]]), "said once");
    assert_eq!(reload(&lab, std::slice::from_ref(&spec)).await, names([&["board"], &[], &[]]));
    assert_eq!(lab.leases_on("board").await, std::slice::from_ref(&lease));
    let next = lab.wait(waits("ruth", "board")).await;
    assert_eq!(lab.release(&lease).await.unwrap().as_deref(), Some("ruth"));
    assert!(matches!(lab.end(&next).await, End::Lease(_)));
    assert_eq!(there(&lab).await, ["board"]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_one_that_is_going_may_run_out_as_well() {
    let lab = Lab::new(&[resource("board", "os=15", 1)], Rules::default()).await;
    let lease = lab.lease(acquires("kim", "board")).await;
    reload(&lab, &[]).await;
    lab.pass(Duration::from_secs(3 * 3600)).await;
    lab.settle().await;
    assert_eq!(lab.renew(&lease).await.unwrap_err(), Code::UnknownLease);
    assert_eq!(lab.leftovers().await, Leftovers::default());
    assert_eq!(reload(&lab, &[resource("board", "os=15", 1)]).await, names([&["board"], &[], &[]]));
}

#[tokio::test(start_paused = true)]
async fn what_is_stored_of_a_resource_goes_on_when_it_is_back() {
    let specs = [booked("board", "os=15", ENFORCED), resource("other", "os=14", 1)];
    let lab = Lab::new(&specs, Rules::default()).await;
    let booking = lab.book("ruth", "board", slot(60, 120)).await.unwrap();
    lab.drain("other", true).await.unwrap();
    assert_eq!(reload(&lab, &[]).await, names([&[], &[], &["board", "other"]]));
    assert_eq!(there(&lab).await, [] as [String; 0]);
    assert_eq!(reload(&lab, &specs).await, names([&["board", "other"], &[], &[]]));
    let board = shown(&lab, "board").await.unwrap();
    assert_eq!(board.held, []);
    let refused = lab.ask(waits_two_hours("kim", "board")).await.unwrap_err();
    assert_eq!(refused, Code::ResourceBooked, "the window is {:?}", booking.window);
    assert_eq!(lab.ask(acquires("kim", "other")).await.unwrap_err(), Code::ResourceUnavailable);
    let (calendars, agrees) = reply(lab.send(DeskMessage::Calendars)).await;
    assert!(agrees && calendars.iter().any(|calendar| calendar.bookings().count() == 1));
}

fn waits_two_hours(requester: &str, resource: &str) -> crate::model::Ask {
    crate::model::Ask { ttl: Duration::from_secs(2 * 3600), ..acquires(requester, resource) }
}

#[tokio::test(start_paused = true)]
async fn other_labels_and_more_seats_count_at_once() {
    let lab = Lab::new(&[resource("a", "os=15", 1), resource("b", "os=14", 1)], Rules::default()).await;
    let held = lab.lease(acquires("kim", "a")).await;
    let waiting = lab.wait(waits("ruth", "os=15")).await;
    let changed = reload(&lab, &[resource("a", "os=15", 1), resource("b", "os=15", 1)]).await;
    assert_eq!(changed, names([&[], &["b"], &[]]));
    assert!(matches!(lab.end(&waiting).await, End::Lease(lease) if lease.resource_id.as_str() == "b"));
    lab.release(&held).await.unwrap();
    let shared = |who: &str| super::lab::shared(waits(who, "a"));
    lab.lease(super::lab::shared(acquires("omar", "a"))).await;
    let second = lab.wait(shared("eve")).await;
    reload(&lab, &[resource("a", "os=15", 2), resource("b", "os=15", 1)]).await;
    assert!(matches!(lab.end(&second).await, End::Lease(_)), "there is a second seat");
}

#[tokio::test(start_paused = true)]
async fn other_numbers_count_at_once() {
    let specs = [resource("a", "os=15", 1), resource("b", "os=15", 1)];
    let lab = Lab::new(&specs, Rules::default()).await;
    lab.lease(acquires("kim", "a")).await;
    assert_eq!(lab.ask(acquires("kim", "b")).await.unwrap_err(), Code::RequesterAlreadyLeased);
    let waiting = lab.wait(waits("ruth", "a")).await;
    let (lease, waits) = (LeaseRules::default(), WaitingRules::default());
    let rules = Rules {
        lease: LeaseRules { max_per_requester: 2, ..lease },
        waiting: WaitingRules { waiter_ttl: Duration::from_secs(10), ..waits },
        ..Rules::default()
    };
    assert_eq!(reply(begin(&lab, &specs, &rules)).await.unwrap(), Reloaded::default());
    assert_eq!(*lab.host.rules.now(), rules);
    assert!(lab.ask(acquires("kim", "b")).await.is_ok());
    lab.pass(Duration::from_secs(11)).await;
    assert_eq!(lab.state(&waiting).await, Some(End::Refused(Code::NoCapacity)), "nobody asked about it for so long");
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_before_a_resource_had_gone_is_answered() {
    let spec = resource("board", "os=15", 1);
    let lab = Lab::new(&[spec.clone(), resource("other", "os=15", 1)], Rules::default()).await;
    let blocked = lab.hold_commits();
    let first = lab.begin(acquires("kim", "board"));
    let behind = lab.begin(acquires("ruth", "board"));
    lab.turn().await;
    let reloading = begin(&lab, &[resource("other", "os=15", 1)], &Rules::default());
    lab.turn().await;
    drop(blocked);
    assert_eq!(holder(&reply(first).await.result.map(asked).unwrap()), "kim", "it was decided before");
    let late = reply(behind).await.result.unwrap_err();
    assert_eq!(late.code, Code::UnknownResource);
    assert_eq!(reply(reloading).await.unwrap().gone.len(), 1);
    assert_eq!(there(&lab).await, ["other"]);
}

fn asked(asked: super::super::message::Asked) -> crate::model::LeaseRecord {
    match asked {
        super::super::message::Asked::Granted(grant) => grant.lease,
        other => panic!("no lease: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_resource_whose_actor_had_died_can_go_and_come_back() {
    let spec = resource("board", "os=15", 1);
    let lab = Lab::new(std::slice::from_ref(&spec), Rules::default()).await;
    for _ in 0..3 {
        let lease = lab.lease(acquires("kim", "board")).await;
        lab.panic("board");
        lab.settle().await;
        lab.release(&lease).await.unwrap();
    }
    reload(&lab, &[]).await;
    reload(&lab, std::slice::from_ref(&spec)).await;
    let lease = lab.lease(acquires("kim", "board")).await;
    lab.release(&lease).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn many_come_and_many_are_dismissed() {
    let many = 2 * STORE_GROUP_MAX + 7;
    let specs: Vec<ResourceSpec> = (0..many).map(|n| resource(&format!("r{n}"), "os=15", 1)).collect();
    let hub = resource("hub", "os=16", 1);
    let lab = Lab::new(std::slice::from_ref(&hub), Rules::default()).await;
    let lease = lab.lease(acquires("kim", "hub")).await;
    let mut waiting = Vec::new();
    for n in 0..STORE_GROUP_MAX + 3 {
        waiting.push(lab.wait(waits(&format!("w{n}"), "hub")).await);
    }
    let [added, _, gone] = reload(&lab, &specs).await;
    assert_eq!((added.len(), gone), (many, vec!["hub".to_owned()]));
    for request in waiting {
        assert_eq!(lab.end(&request).await, End::Refused(Code::UnknownResource));
    }
    lab.release(&lease).await.unwrap();
    lab.settle().await;
    assert_eq!(lab.leftovers().await, Leftovers::default());
}

#[tokio::test(start_paused = true)]
async fn a_second_file_does_not_overtake_the_first() {
    let lab = Lab::new(&[], Rules::default()).await;
    let (first, second) = ([resource("a", "os=15", 1)], [resource("b", "os=15", 1)]);
    let (first, second) = (begin(&lab, &first, &lab.host.rules.now()), begin(&lab, &second, &lab.host.rules.now()));
    assert_eq!(reply(first).await.unwrap().added.len(), 1);
    assert_eq!(reply(second).await.unwrap_err().code, Code::QueueFull);
    assert_eq!(there(&lab).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn the_gateway_is_told_when_a_resource_is_going_and_when_it_has_gone() {
    let lab = Lab::new(&[resource("board", "os=15", 1), resource("idle", "os=15", 1)], Rules::default()).await;
    let lease = lab.lease(acquires("kim", "board")).await;
    let gateway = "gateway".parse().unwrap();
    let mut told = reply(lab.send(|reply| DeskMessage::Subscribe(gateway, reply))).await;
    reload(&lab, &[]).await;
    lab.release(&lease).await.unwrap();
    lab.settle().await;
    let mut said = Vec::new();
    while let Ok(Report::Delta(delta)) = told.reports.try_recv() {
        said.push(match delta.change {
            Changed::Resource(report) => format!("{} {} {}", report.id, report.grantable, report.leases.len()),
            Changed::ResourceGone(resource) => format!("{resource} gone"),
            other => panic!("{other:?}"),
        });
    }
    let expected = ["board false 1", "idle false 0", "idle gone", "board false 0", "board gone"];
    assert_eq!(said, expected);
}
