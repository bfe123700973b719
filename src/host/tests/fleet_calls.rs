//! Requests of the gateway's that wait here: attempts, what is taken back, cancelling, and what is checked.

use std::time::Duration;

use tokio::sync::oneshot::Receiver;

use super::super::message::{Asked, DeskMessage, Grant, Leftovers, Said};
use super::lab::{End, Lab, acquires, joins, reply, resource, said, waits, waits_for};
use crate::admission::Rules;
use crate::model::{Ask, Authority, Caller, Code, EventKind, RequestId, Role, WaitPolicy};

const SECOND: Duration = Duration::from_secs(1);

async fn lab() -> Lab {
    let lab = Lab::new(&[resource("a", "os=1", 1), resource("b", "os=2", 1)], Rules::default()).await;
    lab.link_up();
    lab
}

impl Lab {
    async fn settle_attempt(&self, request: &RequestId, attempt: u32) -> Result<Option<Grant>, Code> {
        said(self.begin_settle(request, attempt)).await
    }

    fn begin_settle(&self, request: &RequestId, attempt: u32) -> Receiver<Said<Option<Grant>>> {
        let (request, gateway) = (request.clone(), "gateway".parse().unwrap());
        self.send(|reply| DeskMessage::Settle { request, attempt, gateway, reply })
    }

    async fn cancel_by(&self, request: &RequestId, authority: Authority) -> Result<(), Code> {
        let request = request.clone();
        said(self.send(|reply| DeskMessage::Cancel { request, authority, reply })).await
    }
}

/// What a gateway is told of a request that waits here.
fn waits_as(told: &Result<Asked, Code>, request: &RequestId) {
    assert!(matches!(told, Ok(Asked::Pending(place)) if place.place.request == *request), "{told:?}");
}

fn gateway(name: &str) -> Authority {
    Authority::Gateway { name: name.parse().unwrap(), admin: true }
}

#[tokio::test(start_paused = true)]
async fn a_dispatch_that_comes_twice_waits_once_and_hears_the_same() {
    let lab = lab().await;
    let held = lab.lease(acquires("holder", "a")).await;
    let ask = waits("gw:gateway:ci", "a");
    let (first, second) = (lab.begin_dispatch(ask.clone(), 1), lab.begin_dispatch(ask.clone(), 1));
    waits_as(&said(first).await, &ask.id);
    waits_as(&said(second).await, &ask.id);
    waits_as(&lab.dispatch(ask.clone()).await, &ask.id);
    assert_eq!(lab.room("a").await, ["gw:gateway:ci"]);
    assert_eq!(said(lab.begin_dispatch(ask.clone(), 2)).await, Err(Code::Stopping), "the first attempt waits");
    lab.release(&held).await.unwrap();
    let lease = lab.end(&ask.id).await.lease();
    let again = lab.dispatch(ask).await;
    assert!(matches!(&again, Ok(Asked::Granted(grant)) if grant.lease == lease), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn a_settled_attempt_waits_no_more_and_the_next_is_a_new_try() {
    let lab = lab().await;
    let held = lab.lease(acquires("holder", "a")).await;
    let ask = Ask { lease_id: Some("mine".parse().unwrap()), ..waits("gw:gateway:ci", "a") };
    for attempt in 1..=3 {
        waits_as(&said(lab.begin_dispatch(ask.clone(), attempt)).await, &ask.id);
        let other = Ask { lease_id: Some("mine".parse().unwrap()), ..waits("other", "b") };
        assert_eq!(lab.ask(other).await, Err(Code::LeaseIdTaken), "it holds its lease id while it waits");
        assert_eq!(lab.settle_attempt(&ask.id, attempt).await, Ok(None));
        assert!(lab.room("a").await.is_empty());
        assert_eq!(said(lab.begin_dispatch(ask.clone(), attempt)).await, Err(Code::Stopping), "it comes too late");
        let known = reply(lab.send(|reply| DeskMessage::Peek(ask.id.clone(), reply))).await;
        assert!(known.is_none(), "nothing is left of it");
    }
    lab.settle().await;
    let rows: i64 = lab
        .database()
        .query_row("SELECT COUNT(*) FROM request WHERE requester LIKE 'gw:%'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 0);
    waits_as(&said(lab.begin_dispatch(ask.clone(), 4)).await, &ask.id);
    lab.release(&held).await.unwrap();
    let lease = lab.end(&ask.id).await.lease();
    assert_eq!(lease.id.as_str(), "mine");
    assert_eq!(lab.settle_attempt(&ask.id, 4).await.unwrap().unwrap().lease, lease, "one that is granted is told");
    lab.release(&lease).await.unwrap();
    assert_eq!(lab.leftovers().await, Leftovers::default());
    let told = lab.events().await;
    let count = |kind| told.iter().filter(|it| **it == kind).count();
    // Taken back three times; refused at once: too late, and the other's lease id.
    assert_eq!(count(EventKind::LeaseDeclined), 3);
    assert_eq!(count(EventKind::LeaseRejected), 3, "the local ones, whose lease id was taken");
}

#[tokio::test(start_paused = true)]
async fn one_that_is_settled_while_it_is_on_its_way_never_gets_a_lease_later() {
    let lab = lab().await;
    let held = lab.lease(acquires("holder", "a")).await;
    let ask = waits("gw:gateway:ci", "a");
    let commits = lab.hold_commits();
    let asked = lab.begin_dispatch(ask.clone(), 1);
    lab.turn().await;
    let settled = lab.begin_settle(&ask.id, 1);
    lab.turn().await;
    drop(commits);
    assert_eq!(said(settled).await, Ok(None));
    let told = said(asked).await;
    waits_as(&told, &ask.id);
    lab.release(&held).await.unwrap();
    lab.pass(SECOND).await;
    assert!(lab.leases_on("a").await.is_empty());
    assert_eq!(lab.leftovers().await, Leftovers::default());
}

#[tokio::test(start_paused = true)]
async fn one_that_is_settled_as_the_resource_is_released_is_told_as_it_is() {
    let lab = lab().await;
    let mut seen = [0; 2];
    for turns in 0..40 {
        let held = lab.lease(acquires("holder", "a")).await;
        let ask = waits("gw:gateway:ci", "a");
        assert!(lab.dispatch(ask.clone()).await.is_ok());
        let released = (turns % 2 == 0).then(|| lab.begin_release(&held));
        for _ in 0..turns / 2 {
            tokio::task::yield_now().await;
        }
        let settled = lab.begin_settle(&ask.id, 1);
        said(released.unwrap_or_else(|| lab.begin_release(&held))).await.unwrap();
        let told = said(settled).await.unwrap();
        lab.settle().await;
        let there = lab.leases_on("a").await;
        assert_eq!(there.first(), told.as_ref().map(|grant| &grant.lease), "what was told, and what is there");
        seen[usize::from(told.is_some())] += 1;
        if let Some(grant) = told {
            lab.release(&grant.lease).await.unwrap();
        }
        assert_eq!(lab.leftovers().await, Leftovers::default());
    }
    assert!(seen.iter().all(|count| *count > 0), "the race had one end only: {seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_gateway_cancels_what_its_own_requesters_wait_for_and_nothing_else() {
    let lab = lab().await;
    lab.lease(acquires("holder", "a")).await;
    let fleet = lab.wait_through(waits("gw:gateway:ci", "a")).await;
    let local = lab.wait(waits("local", "a")).await;
    assert_eq!(lab.cancel_by(&local, gateway("gateway")).await, Err(Code::UnknownLeaseRequest));
    assert_eq!(lab.cancel_by(&fleet, gateway("other")).await, Err(Code::UnknownLeaseRequest));
    let agent = Authority::Client(Caller { principal: "ci".parse().unwrap(), role: Role::Agent });
    assert_eq!(lab.cancel_by(&fleet, agent).await, Err(Code::InsufficientPermissions));
    assert_eq!(lab.cancel_by(&fleet, gateway("gateway")).await, Ok(()));
    assert_eq!(lab.cancel_by(&fleet, gateway("gateway")).await, Ok(()), "twice is once");
    assert_eq!(lab.end(&fleet).await, End::Cancelled);
    assert_eq!(lab.cancel_by(&RequestId::generate(), gateway("gateway")).await, Err(Code::UnknownLeaseRequest));
    assert_eq!(lab.room("a").await, ["local"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_waited_and_ends_is_rejected_here_and_one_that_was_refused_at_once_is_declined() {
    let lab = lab().await;
    lab.lease(acquires("holder", "a")).await;
    let refused = Ask { wait: WaitPolicy::NoWait, ..waits("gw:gateway:ci", "a") };
    assert_eq!(lab.dispatch(refused).await, Err(Code::NoCapacity));
    assert_eq!(lab.events().await.last(), Some(&EventKind::LeaseDeclined));
    let fleet = lab.wait_through(waits_for("gw:gateway:ci", "a", 5 * SECOND)).await;
    let begun = [EventKind::LeaseRequested, EventKind::LeaseQueued];
    assert!(lab.events().await.ends_with(&begun));
    assert_eq!(lab.end(&fleet).await, End::Refused(Code::QueueTimeout));
    assert_eq!(lab.events().await.last(), Some(&EventKind::LeaseRejected));
}

#[tokio::test(start_paused = true)]
async fn neither_its_key_nor_what_its_requester_has_is_compared_but_its_lease_id_is() {
    let lab = lab().await;
    lab.lease(acquires("holder", "a")).await;
    let keyed = |ask: Ask| Ask { key: Some("the-same-key".parse().unwrap()), ..ask };
    lab.lease_through(keyed(acquires("gw:gateway:ci", "b"))).await;
    let first = lab.wait_through(keyed(waits("gw:gateway:ci", "a"))).await;
    let second = lab.wait_through(keyed(waits("gw:gateway:ci", "a"))).await;
    assert_ne!(first, second);
    let chosen = |requester, resource| Ask { lease_id: Some("mine".parse().unwrap()), ..waits(requester, resource) };
    lab.wait_through(chosen("gw:gateway:one", "a")).await;
    assert_eq!(lab.dispatch(chosen("gw:gateway:two", "a")).await, Err(Code::LeaseIdTaken));
    assert_eq!(lab.ask(chosen("local", "a")).await, Err(Code::LeaseIdTaken));
}

#[tokio::test(start_paused = true)]
async fn an_unattended_waiter_that_asks_again_through_the_gateway_keeps_its_place() {
    let lab = lab().await;
    let held = lab.lease(acquires("holder", "a")).await;
    let mine = |ask: Ask| Ask { lease_id: Some("mine".parse().unwrap()), ..ask };
    assert_eq!(lab.join_through(mine(joins("gw:gateway:ci", "a"))).await, 1);
    assert_eq!(lab.join(joins("local", "a")).await, 2);
    for _ in 0..5 {
        lab.pass(200 * SECOND).await;
        lab.join(joins("local", "a")).await;
        assert_eq!(lab.join_through(mine(joins("gw:gateway:ci", "a"))).await, 1, "its own lease id is no other's");
    }
    // Also two asks at once, one after the other.
    let asks = [joins("gw:gateway:ci", "a"), joins("gw:gateway:ci", "a")].map(|ask| lab.begin_dispatch(ask, 1));
    for ask in asks {
        assert!(matches!(said(ask).await, Ok(Asked::Pending(pending)) if pending.position == 1));
    }
    assert_eq!(lab.room("a").await, ["gw:gateway:ci", "local"]);
    assert_eq!(lab.dispatch(acquires("gw:gateway:ci", "a")).await, Err(Code::ResourceUnavailable));
    assert_eq!(lab.room("a").await, ["gw:gateway:ci", "local"], "a refused ask costs no place");
    lab.release(&held).await.unwrap();
    assert_eq!(lab.room("a").await, ["local"], "admitted");
    let lease = lab.lease_through(mine(joins("gw:gateway:ci", "a"))).await;
    assert_eq!(lease.id.as_str(), "mine");
    lab.release(&lease).await.unwrap();
    assert_eq!(lab.leave("local", "a").await, Ok(false), "admitted");
    assert_eq!(lab.leftovers().await, Leftovers::default());
}

#[tokio::test(start_paused = true)]
async fn who_leaves_a_waiting_room_through_the_gateway_holds_nothing_any_more() {
    let lab = lab().await;
    let held = lab.lease(acquires("holder", "a")).await;
    lab.join_through(joins("gw:gateway:ci", "a")).await;
    assert_eq!(lab.leave("gw:gateway:ci", "a").await, Ok(true));
    assert_eq!(lab.leave("gw:gateway:ci", "a").await, Ok(false));
    lab.release(&held).await.unwrap();
    assert_eq!(lab.leftovers().await, Leftovers::default());
}
