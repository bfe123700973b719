//! Whoever waits here and came through the gateway: passed over while that is away, with its place kept (SPEC §9 Named
//! resources).

use std::time::Duration;

use super::super::message::{Asked, DeskMessage, Leftovers, LinkNow};
use super::lab::{End, HOUR, Lab, acquires, holder, joins, ranked, reply, resource, shared, waits, waits_for};
use crate::admission::Rules;
use crate::model::{Ask, Code, EventKind, LeaseRecord, RequestId};

const SECOND: Duration = Duration::from_secs(1);
/// `waiting_room.waiter_ttl`.
const WAITER_TTL: Duration = Duration::from_secs(300);

async fn lab() -> Lab {
    Lab::new(&[resource("a", "os=1", 1)], Rules::default()).await
}

impl Lab {
    /// Asks as the gateway does, and hears that it waits.
    pub(super) async fn wait_through(&self, ask: Ask) -> RequestId {
        match self.dispatch(ask).await {
            Ok(Asked::Pending(pending)) => pending.place.request,
            other => panic!("it does not wait: {other:?}"),
        }
    }

    /// The same for one who stands in a waiting room, unattended.
    pub(super) async fn join_through(&self, ask: Ask) -> usize {
        match self.dispatch(ask).await {
            Ok(Asked::Pending(pending)) => pending.position,
            other => panic!("it does not stand in a waiting room: {other:?}"),
        }
    }

    pub(super) async fn lease_through(&self, ask: Ask) -> LeaseRecord {
        match self.dispatch(ask).await {
            Ok(Asked::Granted(grant)) => grant.lease,
            other => panic!("no lease: {other:?}"),
        }
    }

    async fn holders(&self) -> Vec<String> {
        self.leases_on("a").await.iter().map(holder).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn with_its_gateway_there_a_fleet_waiter_is_served_in_one_order_with_local_ones() {
    let lab = lab().await;
    lab.link_up();
    let held = lab.lease(acquires("holder", "a")).await;
    let local = lab.wait(waits("local", "a")).await;
    let fleet = lab.wait_through(waits("gw:gateway:ci", "a")).await;
    let first = lab.wait_through(ranked(waits("gw:gateway:first", "a"), 5.0)).await;
    assert_eq!(lab.room("a").await, ["gw:gateway:first", "local", "gw:gateway:ci"]);
    assert_eq!(lab.release(&held).await.unwrap().as_deref(), Some("gw:gateway:first"));
    for request in [first, local, fleet] {
        let lease = lab.end(&request).await.lease();
        lab.release(&lease).await.unwrap();
    }
    assert_eq!(lab.leftovers().await, Leftovers::default());
}

#[tokio::test(start_paused = true)]
async fn while_its_gateway_is_away_it_is_passed_over_and_keeps_its_place() {
    let lab = lab().await;
    lab.link_up();
    let held = lab.lease(acquires("holder", "a")).await;
    let fleet = lab.wait_through(waits("gw:gateway:ci", "a")).await;
    lab.join_through(joins("gw:gateway:unattended", "a")).await;
    let local = lab.wait(waits("local", "a")).await;
    lab.link(LinkNow::Down);
    assert_eq!(lab.release(&held).await.unwrap().as_deref(), Some("local"));
    let lease = lab.end(&local).await.lease();
    assert_eq!(lab.room("a").await, ["gw:gateway:ci", "gw:gateway:unattended"]);
    assert_eq!(lab.release(&lease).await.unwrap(), None);
    // A free resource goes to whoever asks first, and to one by selector.
    let lease = lab.lease(acquires("walks-up", "a")).await;
    lab.release(&lease).await.unwrap();
    let lease = lab.lease(waits("selects", "os=1")).await;
    lab.release(&lease).await.unwrap();
    // Welcomed alone the gateway does not know yet who waits.
    lab.link(LinkNow::Up);
    lab.settle().await;
    assert_eq!(lab.state(&fleet).await, None);
    lab.link(LinkNow::Acknowledged);
    assert_eq!(holder(&lab.end(&fleet).await.lease()), "gw:gateway:ci");
    assert_eq!(lab.room("a").await, ["gw:gateway:unattended"]);
}

#[tokio::test(start_paused = true)]
async fn one_that_has_gone_with_its_gateway_stops_nobody_who_would_share() {
    let lab = Lab::new(&[resource("a", "os=1", 3)], Rules::default()).await;
    lab.link_up();
    let held = lab.lease(shared(acquires("holder", "a"))).await;
    let alone = lab.wait_through(waits("gw:gateway:alone", "a")).await;
    let shares = lab.wait(shared(waits("shares", "a"))).await;
    let by_selector = lab.wait(shared(waits("selects", "os=1"))).await;
    lab.settle().await;
    assert_eq!(lab.holders().await, ["holder"]);
    lab.link(LinkNow::Down);
    lab.settle().await;
    assert_eq!(lab.holders().await, ["holder", "shares", "selects"]);
    lab.link_up();
    for lease in [held, lab.end(&shares).await.lease(), lab.end(&by_selector).await.lease()] {
        lab.release(&lease).await.unwrap();
    }
    assert_eq!(holder(&lab.end(&alone).await.lease()), "gw:gateway:alone");
}

#[tokio::test(start_paused = true)]
async fn an_admission_that_was_due_to_one_whose_gateway_was_away_comes_when_that_is_back_and_only_once() {
    let mut rules = Rules::default();
    rules.waiting.admission_grace = 5 * SECOND;
    let lab = Lab::new(&[resource("a", "os=1", 1)], rules).await;
    lab.link_up();
    let held = lab.lease(acquires("holder", "a")).await;
    lab.join_through(joins("gw:gateway:first", "a")).await;
    lab.join_through(joins("gw:gateway:second", "a")).await;
    lab.link(LinkNow::Down);
    assert_eq!(lab.release(&held).await.unwrap(), None);
    lab.pass(20 * SECOND).await;
    assert_eq!(lab.room("a").await, ["gw:gateway:first", "gw:gateway:second"]);
    lab.link_up();
    lab.settle().await;
    assert_eq!(lab.room("a").await, ["gw:gateway:second"], "one for each freeing");
    lab.link(LinkNow::Down);
    lab.link_up();
    lab.settle().await;
    assert_eq!(lab.room("a").await, ["gw:gateway:second"]);
    // It is kept for the first; and when that does not come, it passes on.
    assert_eq!(lab.ask(acquires("walks-up", "a")).await, Err(Code::ResourceUnavailable));
    lab.pass(6 * SECOND).await;
    assert!(lab.room("a").await.is_empty());
    lab.lease_through(joins("gw:gateway:second", "a")).await;
}

#[tokio::test(start_paused = true)]
async fn a_flapping_link_admits_nobody_without_a_freeing() {
    let lab = lab().await;
    lab.link_up();
    let held = lab.lease(acquires("holder", "a")).await;
    for requester in ["gw:gateway:first", "gw:gateway:second", "gw:gateway:third"] {
        lab.join_through(joins(requester, "a")).await;
    }
    lab.release(&held).await.unwrap();
    for _ in 0..5 {
        lab.link(LinkNow::Down);
        lab.settle().await;
        lab.link_up();
        lab.settle().await;
    }
    assert_eq!(lab.room("a").await, ["gw:gateway:second", "gw:gateway:third"]);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_given_up_for_not_asking_while_nobody_can_ask() {
    let lab = lab().await;
    lab.link_up();
    lab.lease(Ask { ttl: 4 * HOUR, ..acquires("holder", "a") }).await;
    let attended = lab.wait_through(waits("gw:gateway:attended", "a")).await;
    let bounded = lab.wait_through(waits_for("gw:gateway:bounded", "a", HOUR)).await;
    lab.join_through(joins("gw:gateway:unattended", "a")).await;
    lab.join(joins("local", "a")).await;
    lab.pass(100 * SECOND).await;
    lab.link(LinkNow::Down);
    lab.pass(HOUR / 2).await;
    assert_eq!(lab.room("a").await, ["gw:gateway:attended", "gw:gateway:bounded", "gw:gateway:unattended"]);
    lab.pass(HOUR / 2).await;
    assert_eq!(lab.end(&bounded).await, End::Refused(Code::QueueTimeout), "its own bound is its own");
    lab.link_up();
    lab.pass(WAITER_TTL - 2 * SECOND).await;
    assert_eq!(lab.room("a").await, ["gw:gateway:attended", "gw:gateway:unattended"]);
    lab.pass(4 * SECOND).await;
    assert!(lab.room("a").await.is_empty(), "it has had its time");
    assert_eq!(lab.end(&attended).await, End::Refused(Code::NoCapacity));
}

#[tokio::test(start_paused = true)]
async fn one_that_is_asked_about_is_kept() {
    let lab = lab().await;
    lab.link_up();
    lab.lease(Ask { ttl: 4 * HOUR, ..acquires("holder", "a") }).await;
    let fleet = lab.wait_through(waits("gw:gateway:ci", "a")).await;
    for _ in 0..10 {
        lab.pass(WAITER_TTL - 10 * SECOND).await;
        assert_eq!(lab.state(&fleet).await, None);
    }
    lab.pass(WAITER_TTL + 2 * SECOND).await;
    assert_eq!(lab.state(&fleet).await, Some(End::Refused(Code::NoCapacity)));
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_requests_have_failed_and_unattended_waiters_keep_their_places_until_the_gateway_is_back() {
    let lab = lab().await;
    lab.link_up();
    let held = lab.lease(acquires("holder", "a")).await;
    let fleet = lab.wait_through(waits("gw:gateway:ci", "a")).await;
    lab.join_through(joins("gw:gateway:unattended", "a")).await;
    lab.join(joins("local", "a")).await;
    let ticket = lab.ticket(&fleet).await;
    let lab = lab.restart().await;
    assert_eq!(lab.end(&fleet).await, End::Refused(Code::NodeRestarted));
    assert_eq!(lab.room("a").await, ["gw:gateway:unattended", "local"]);
    assert_eq!(lab.release(&held).await.unwrap(), None, "what was waited for is kept for those who come back");
    // It is back with its ticket, as the gateway sends it: the place is the old one.
    lab.link_up();
    let again = lab.dispatch(Ask { ticket: Some(ticket), ..waits("gw:gateway:ci", "a") }).await;
    let Ok(Asked::Granted(grant)) = again else { panic!("{again:?}") };
    lab.link(LinkNow::Down);
    lab.pass(10 * SECOND).await;
    assert_eq!(lab.release(&grant.lease).await.unwrap().as_deref(), Some("local"));
    assert_eq!(lab.room("a").await, ["gw:gateway:unattended"]);
    lab.link_up();
    lab.settle().await;
    assert_eq!(lab.room("a").await, ["gw:gateway:unattended"], "the freeing was the other's");
    let events = lab.events().await;
    let rejected = events.iter().filter(|kind| **kind == EventKind::LeaseRejected).count();
    assert_eq!(rejected, 1);
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_a_gateway_that_this_worker_does_not_go_by_is_passed_over_and_ages() {
    for lab in [lab().await, Lab::standalone(&[resource("a", "os=1", 1)], Rules::default()).await] {
        lab.link_up();
        let held = lab.lease(acquires("holder", "a")).await;
        lab.join_through(joins("gw:other:ci", "a")).await;
        let local = lab.wait(waits("local", "a")).await;
        assert_eq!(lab.release(&held).await.unwrap().as_deref(), Some("local"));
        lab.end(&local).await.lease();
        lab.pass(WAITER_TTL + 2 * SECOND).await;
        assert!(lab.room("a").await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_death_of_the_actor_costs_a_fleet_waiter_nothing() {
    let lab = lab().await;
    lab.link_up();
    let held = lab.lease(acquires("holder", "a")).await;
    let fleet = lab.wait_through(waits("gw:gateway:ci", "a")).await;
    lab.join_through(joins("gw:gateway:unattended", "a")).await;
    lab.panic("a");
    lab.pass(SECOND).await;
    assert_eq!(lab.room("a").await, ["gw:gateway:ci", "gw:gateway:unattended"]);
    assert_eq!(lab.release(&held).await.unwrap().as_deref(), Some("gw:gateway:ci"));
    assert_eq!(holder(&lab.end(&fleet).await.lease()), "gw:gateway:ci");
    let peeked = reply(lab.send(|reply| DeskMessage::Peek(fleet.clone(), reply))).await;
    assert!(peeked.is_some());
}
