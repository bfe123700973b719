//! A lease that came through the gateway outlives its deadline while the gateway is away (SPEC §9 Worker away).

use std::time::Duration;

use super::super::message::{Asked, DeskMessage, LinkNow};
use super::calls::{ENFORCED, booked, slot};
use super::lab::{Lab, acquires, holder, joins, reply, resource, said, waits};
use crate::admission::Rules;
use crate::model::{Ask, Authority, Code, EventKind, LeaseRecord, WaitingFor};

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

async fn lab() -> Lab {
    Lab::new(&[resource("a", "os=1", 1)], Rules::default()).await
}

/// A lease of a minute that came through the gateway.
async fn fleet_lease(lab: &Lab, requester: &str) -> LeaseRecord {
    let ask = Ask { ttl: 60 * SECOND, ..acquires(requester, "a") };
    match lab.dispatch(ask).await {
        Ok(Asked::Granted(grant)) => grant.lease,
        other => panic!("no lease: {other:?}"),
    }
}

impl Lab {
    async fn is_leased(&self) -> bool {
        !self.leases_on("a").await.is_empty()
    }

    /// How long from now until the lease ends, to the millisecond; at most ten minutes.
    async fn lasts(&self) -> Duration {
        let begun = self.clock.now().run;
        for _ in 0..600_000 {
            if !self.is_leased().await {
                let took = self.clock.now().run.left(begun);
                return Duration::from_millis(took.as_millis() as u64);
            }
            self.pass(MILLISECOND).await;
        }
        panic!("it does not end");
    }

    async fn renew_through(&self, lease: &LeaseRecord) -> Result<(), Code> {
        let (lease, fence) = (lease.id.clone(), Some(lease.fence));
        let authority = Authority::Gateway { name: "gateway".parse().unwrap(), admin: false };
        let renewed =
            self.send(|reply| DeskMessage::Renew { lease, fence, ttl: None, allow_shorter: false, authority, reply });
        said(renewed).await.map(drop)
    }
}

fn about(span: Duration, expected: Duration) {
    assert!(span >= expected && span <= expected + 5 * MILLISECOND, "{span:?}, not {expected:?}");
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_is_heard_after_the_deadline_lets_the_lease_end_then() {
    let lab = lab().await;
    lab.link_up();
    fleet_lease(&lab, "gw:gateway:ci").await;
    lab.hears(59 * SECOND).await;
    assert!(lab.is_leased().await);
    // What was received before the deadline says nothing, whenever it is told.
    let before = lab.clock.now().run;
    lab.pass(2 * SECOND).await;
    lab.link(LinkNow::Heard(before));
    lab.settle().await;
    assert!(lab.is_leased().await);
    lab.link(LinkNow::Heard(lab.clock.now().run));
    lab.pass(5 * MILLISECOND).await;
    assert!(!lab.is_leased().await);
    assert!(lab.events().await.contains(&EventKind::LeaseExpired));
}

#[tokio::test(start_paused = true)]
async fn with_a_living_gateway_a_lease_ends_within_a_second_of_its_deadline() {
    let lab = lab().await;
    lab.link_up();
    let lease = fleet_lease(&lab, "gw:gateway:ci").await;
    lab.hears(30 * SECOND).await;
    lab.renew_through(&lease).await.unwrap();
    lab.hears(60 * SECOND - 10 * MILLISECOND).await;
    assert!(lab.is_leased().await);
    lab.hears(SECOND).await;
    assert!(!lab.is_leased().await);
}

#[tokio::test(start_paused = true)]
async fn an_outage_shorter_than_the_grace_costs_no_lease() {
    let lab = lab().await;
    lab.link_up();
    let lease = fleet_lease(&lab, "gw:gateway:ci").await;
    lab.hears(40 * SECOND).await;
    lab.link(LinkNow::Down);
    lab.pass(75 * SECOND).await;
    // It is a lease like any other: it keeps others out, and shows when it was to end.
    let leases = reply(lab.send(DeskMessage::Leases)).await;
    assert!(leases[0].expires_at < lab.clock.now().wall);
    assert_eq!(lab.ask(acquires("local", "a")).await, Err(Code::ResourceUnavailable));
    let waiting = lab.wait(waits("local", "os=1")).await;
    let now = reply(lab.send(|reply| DeskMessage::Peek(waiting.clone(), reply))).await.unwrap().waiting.unwrap();
    assert_eq!((now.waiting_for, now.until), (WaitingFor::Leased, None));
    lab.link_up();
    lab.hears(4 * SECOND).await;
    lab.renew_through(&lease).await.unwrap();
    lab.hears(59 * SECOND).await;
    assert_eq!(lab.leases_on("a").await[0].fence, lease.fence);
    lab.hears(2 * SECOND).await;
    assert_eq!(holder(&lab.end(&waiting).await.lease()), "local");
}

#[tokio::test(start_paused = true)]
async fn when_the_gateway_stays_away_the_lease_ends_with_the_grace_and_whoever_waits_is_next() {
    let lab = lab().await;
    lab.link_up();
    fleet_lease(&lab, "gw:gateway:ci").await;
    lab.link(LinkNow::Down);
    let next = lab.wait(waits("next", "a")).await;
    lab.pass(120 * SECOND - 5 * MILLISECOND).await;
    assert_eq!(lab.state(&next).await, None);
    lab.pass(10 * MILLISECOND).await;
    assert_eq!(holder(&lab.state(&next).await.unwrap().lease()), "next");
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_is_back_has_ten_seconds_to_renew_but_never_more_than_the_grace() {
    for (away, lasts) in [(61, 10), (90, 10), (115, 5), (52, 10)] {
        let lab = lab().await;
        lab.link_up();
        fleet_lease(&lab, "gw:gateway:ci").await;
        lab.link(LinkNow::Down);
        lab.pass(away * SECOND).await;
        lab.link_up();
        // Only who has been heard after the deadline is known to be there.
        let heard = lab.hears((lasts as u32) * SECOND - 5 * MILLISECOND);
        heard.await;
        assert!(lab.is_leased().await, "{away}");
        lab.hears(800 * MILLISECOND).await;
        assert!(!lab.is_leased().await, "{away}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_link_that_comes_and_goes_after_the_deadline_begins_the_ten_seconds_anew() {
    let lab = lab().await;
    lab.link_up();
    fleet_lease(&lab, "gw:gateway:ci").await;
    lab.link(LinkNow::Down);
    lab.pass(65 * SECOND).await;
    lab.link_up();
    lab.hears(9 * SECOND).await;
    lab.link(LinkNow::Down);
    lab.pass(20 * SECOND).await;
    assert!(lab.is_leased().await);
    // Welcomed alone is not known.
    lab.link(LinkNow::Up);
    lab.link(LinkNow::Heard(lab.clock.now().run));
    lab.pass(10 * SECOND).await;
    assert!(lab.is_leased().await);
    lab.link(LinkNow::Acknowledged);
    // Another snapshot over the same link puts nothing off.
    lab.hears(5 * SECOND).await;
    lab.link(LinkNow::Acknowledged);
    lab.hears(4_900 * MILLISECOND).await;
    assert!(lab.is_leased().await);
    lab.hears(200 * MILLISECOND).await;
    assert!(!lab.is_leased().await);
}

#[tokio::test(start_paused = true)]
async fn leases_of_this_nodes_clients_end_at_their_deadline_whatever_the_gateway_does() {
    for up in [true, false] {
        let lab = lab().await;
        if up {
            lab.link_up();
        }
        lab.lease(Ask { ttl: 60 * SECOND, ..acquires("local", "a") }).await;
        about(lab.lasts().await, 60 * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_gateway_with_another_one_and_without_a_grace_a_lease_ends_at_its_deadline() {
    let standalone = Lab::standalone(&[resource("a", "os=1", 1)], Rules::default()).await;
    let mut rules = Rules::default();
    rules.lease.uplink_grace = Duration::ZERO;
    let off = Lab::new(&[resource("a", "os=1", 1)], rules).await;
    for (lab, requester) in [(standalone, "gw:gateway:ci"), (lab().await, "gw:other:ci"), (off, "gw:gateway:ci")] {
        fleet_lease(&lab, requester).await;
        about(lab.lasts().await, 60 * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn a_window_of_somebody_else_is_never_touched_and_ones_own_stops_nothing() {
    for (booker, lasts) in [("booker", 80), ("gw:gateway:ci", 120)] {
        let lab = Lab::new(&[booked("a", "os=1", ENFORCED)], Rules::default()).await;
        fleet_lease(&lab, "gw:gateway:ci").await;
        let window = |seconds| {
            let at = "2026-01-01T00:00:00Z".parse::<jiff::Timestamp>().unwrap();
            at.checked_add(jiff::SignedDuration::from_secs(seconds)).unwrap()
        };
        let slot = crate::model::Slot { starts_at: window(80), length: crate::model::SlotLength::Until(window(200)) };
        lab.book(booker, "a", slot).await.unwrap();
        about(lab.lasts().await, lasts * SECOND);
        if booker == "booker" {
            lab.lease(Ask { ttl: 60 * SECOND, ..acquires("booker", "a") }).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_window_that_is_booked_after_the_deadline_ends_the_lease_when_it_begins() {
    let lab = Lab::new(&[booked("a", "os=1", ENFORCED)], Rules::default()).await;
    fleet_lease(&lab, "gw:gateway:ci").await;
    lab.pass(70 * SECOND).await;
    lab.book("booker", "a", slot(2, 5)).await.unwrap();
    // Into which nobody renews it either.
    let lease = lab.leases_on("a").await.remove(0);
    assert_eq!(lab.renew_through(&lease).await, Err(Code::ResourceBooked));
    about(lab.lasts().await, 50 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_starts_lets_its_gateways_leases_live_on_as_long_as_if_it_had_run() {
    let two = [resource("a", "os=1", 1), resource("b", "os=2", 1)];
    for (down, left) in [(70, Some(50)), (119, Some(1)), (121, None)] {
        let lab = Lab::new(&two, Rules::default()).await;
        lab.link_up();
        fleet_lease(&lab, "gw:gateway:ci").await;
        lab.lease(Ask { ttl: 60 * SECOND, ..acquires("local", "b") }).await;
        let stopped = lab.stop().await;
        tokio::time::sleep(down * SECOND).await;
        let lab = stopped.start().await;
        assert!(lab.leases_on("b").await.is_empty(), "it ended at the start");
        match left {
            Some(left) => {
                let lasts = lab.lasts().await;
                assert!(
                    lasts <= left * SECOND + 5 * MILLISECOND && lasts > (left - 1) * SECOND,
                    "{lasts:?}, not {left} s"
                );
            }
            None => assert!(!lab.is_leased().await),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_start_a_lease_past_its_deadline_is_renewed_once_the_gateway_is_back() {
    let lab = lab().await;
    lab.link_up();
    let lease = fleet_lease(&lab, "gw:gateway:ci").await;
    let stopped = lab.stop().await;
    tokio::time::sleep(90 * SECOND).await;
    let lab = stopped.start().await;
    lab.link_up();
    lab.hears(8 * SECOND).await;
    lab.renew_through(&lease).await.unwrap();
    lab.hears(58 * SECOND).await;
    assert!(lab.is_leased().await);
}

#[tokio::test(start_paused = true)]
async fn a_death_of_its_actor_costs_a_lease_past_its_deadline_nothing() {
    let lab = lab().await;
    lab.link_up();
    fleet_lease(&lab, "gw:gateway:ci").await;
    lab.link(LinkNow::Down);
    lab.pass(80 * SECOND).await;
    assert_eq!(lab.join(joins("wakes-it", "a")).await, 1);
    lab.panic("a");
    lab.pass(SECOND).await;
    assert!(lab.is_leased().await);
    let lasts = lab.lasts().await;
    assert!(lasts > 38 * SECOND && lasts <= 40 * SECOND, "{lasts:?}");
}

#[tokio::test(start_paused = true)]
async fn each_of_those_who_share_ends_by_its_own_deadline() {
    let lab = Lab::new(&[resource("a", "os=1", 3)], Rules::default()).await;
    lab.link_up();
    for (requester, seconds) in [("gw:gateway:one", 30), ("gw:gateway:two", 60), ("local", 90)] {
        let ask = Ask { ttl: seconds * SECOND, ..super::lab::shared(acquires(requester, "a")) };
        let asked = if requester == "local" { lab.ask(ask).await } else { lab.dispatch(ask).await };
        assert!(matches!(asked, Ok(Asked::Granted(_))), "{asked:?}");
    }
    lab.hears(20 * SECOND).await;
    lab.link(LinkNow::Down);
    lab.pass(25 * SECOND).await;
    assert_eq!(lab.leases_on("a").await.len(), 3);
    lab.pass(46 * SECOND).await;
    let there: Vec<String> = lab.leases_on("a").await.iter().map(holder).collect();
    assert_eq!(there, ["gw:gateway:two"], "the grace of the first, and the deadline of the local one");
    lab.link_up();
    lab.hears(10 * SECOND + 100 * MILLISECOND).await;
    assert!(lab.leases_on("a").await.is_empty());
}
