//! `bookings.mode = "enforced"`: whoever does not fit before or in a window of somebody else waits, and stops nobody.

use std::time::Duration;

use super::super::message::{Asked, DeskMessage};
use super::calls::{ENFORCED, MINUTE, booked, slot};
use super::lab::{HOUR, Lab, acquires, holder, joins, reply, resource, said, waits};
use crate::admission::Rules;
use crate::model::{Ask, Authority, Caller, Code, EventKind, Role};

const TARGETS: [&str; 2] = ["a", "os=1"];
const MILLISECOND: Duration = Duration::from_millis(1);

/// What takes a window away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    Cancelled,
    Rescheduled,
    Missed,
    Released,
    Expired,
    Over,
}

impl Ends {
    const ALL: [Self; 6] =
        [Self::Cancelled, Self::Rescheduled, Self::Missed, Self::Released, Self::Expired, Self::Over];

    fn is_of_a_hold(self) -> bool {
        matches!(self, Self::Released | Self::Expired)
    }
}

async fn lab() -> Lab {
    let mut rules = Rules::default();
    rules.waiting.waiter_ttl = 4 * HOUR;
    Lab::new(&[booked("a", "os=1", ENFORCED)], rules).await
}

fn short(ask: Ask) -> Ask {
    Ask { ttl: 5 * MINUTE, ..ask }
}

#[tokio::test(start_paused = true)]
async fn whoever_does_not_fit_is_passed_over_and_served_when_the_window_ends() {
    for target in TARGETS {
        for behind in TARGETS {
            let lab = lab().await;
            let held = lab.lease(short(acquires("holder", "a"))).await;
            lab.book("booker", "a", slot(10, 15)).await.unwrap();
            let long = lab.wait(waits("long", target)).await;
            let fits = lab.wait(short(waits("fits", behind))).await;
            assert_eq!(lab.release(&held).await.unwrap().as_deref(), Some("fits"), "{behind} behind {target}");
            let lease = lab.end(&fits).await.lease();
            lab.release(&lease).await.unwrap();
            lab.pass(15 * MINUTE - 10 * MILLISECOND).await;
            assert_eq!(lab.state(&long).await, None);
            lab.pass(20 * MILLISECOND).await;
            assert_eq!(holder(&lab.leases_on("a").await[0]), "long", "{target}");
            lab.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_takes_another_match_that_is_not_booked() {
    let resources = [booked("a", "os=1", ENFORCED), booked("b", "os=1", ENFORCED)];
    let lab = Lab::new(&resources, Rules::default()).await;
    for (booked, free) in [("a", "b"), ("b", "a")] {
        let booking = lab.book("booker", booked, slot(30, 60)).await.unwrap();
        let lease = lab.lease(waits("ci", "os=1")).await;
        assert_eq!(lease.resource_id.as_str(), free);
        // One that waits, too.
        let waiting = lab.wait(waits("waits", "os=1")).await;
        assert_eq!(lab.release(&lease).await.unwrap().as_deref(), Some("waits"));
        let lease = lab.end(&waiting).await.lease();
        assert_eq!(lease.resource_id.as_str(), free);
        lab.release(&lease).await.unwrap();
        lab.give_up("booker", &booking.id).await.unwrap();
    }
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn whatever_takes_a_window_away_serves_those_who_wait_for_it() {
    for target in TARGETS {
        for end in Ends::ALL {
            let mut policy = ENFORCED;
            policy.no_show_after = (end == Ends::Missed).then_some(5 * MINUTE);
            let mut rules = Rules::default();
            rules.waiting.waiter_ttl = 4 * HOUR;
            let lab = Lab::new(&[booked("a", "os=1", policy)], rules).await;
            let window = slot(5, 20);
            let hold = match end.is_of_a_hold() {
                true => Some(lab.hold("booker", "a", window, 12 * MINUTE).await.unwrap()),
                false => None,
            };
            let booking = match hold {
                None => Some(lab.book("booker", "a", window).await.unwrap()),
                Some(_) => None,
            };
            let waiting = lab.wait(waits("waits", target)).await;
            lab.pass(6 * MINUTE).await;
            assert_eq!(lab.state(&waiting).await, None, "{target} {end:?}");
            match (end, booking, hold) {
                (Ends::Cancelled, Some(booking), _) => drop(lab.give_up("booker", &booking.id).await.unwrap()),
                (Ends::Rescheduled, Some(booking), _) => {
                    drop(lab.move_to("booker", &booking.id, slot(120, 150)).await.unwrap());
                }
                (Ends::Missed, ..) => lab.pass(4 * MINUTE + 5 * MILLISECOND).await,
                (Ends::Released, _, Some(hold)) => drop(lab.give_back("booker", &hold.id).await.unwrap()),
                (Ends::Expired, ..) => lab.pass(6 * MINUTE + 5 * MILLISECOND).await,
                (Ends::Over, ..) => lab.pass(14 * MINUTE + 5 * MILLISECOND).await,
                other => panic!("{other:?}"),
            }
            lab.settle().await;
            let leases = lab.leases_on("a").await;
            assert_eq!(leases.iter().map(holder).collect::<Vec<_>>(), ["waits"], "{target} {end:?}");
            lab.stop().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_stands_in_line_is_admitted_when_the_window_ends() {
    let lab = lab().await;
    lab.book("booker", "a", slot(5, 20)).await.unwrap();
    lab.join(joins("stands", "a")).await;
    lab.join(joins("behind", "a")).await;
    lab.pass(20 * MINUTE - 5 * MILLISECOND).await;
    assert_eq!(lab.room("a").await, ["stands", "behind"]);
    lab.pass(10 * MILLISECOND).await;
    assert_eq!(lab.room("a").await, ["behind"], "one for each freeing");
    assert!(lab.events().await.contains(&EventKind::WaiterAdmitted));
    assert_eq!(holder(&lab.lease(joins("stands", "a")).await), "stands");
}

#[tokio::test(start_paused = true)]
async fn one_that_stands_in_line_is_admitted_also_when_the_end_could_not_be_written_or_the_actor_died() {
    for dies in [true, false] {
        let lab = lab().await;
        lab.book("booker", "a", slot(5, 20)).await.unwrap();
        lab.join(joins("stands", "a")).await;
        lab.pass(20 * MINUTE - MILLISECOND).await;
        if dies {
            let commits = lab.hold_commits();
            tokio::time::advance(4 * MILLISECOND).await;
            lab.turn().await;
            lab.panic("a");
            lab.turn().await;
            drop(commits);
        } else {
            let fault = lab.lose("DELETE", "waiter");
            lab.pass(10 * MILLISECOND).await;
            assert_eq!(lab.room("a").await, ["stands"]);
            drop(fault);
        }
        lab.pass(Duration::from_secs(6)).await;
        assert_eq!(lab.room("a").await, [""; 0], "dies: {dies}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_end_that_passes_while_something_else_is_being_written_admits_nevertheless() {
    let lab = lab().await;
    lab.book("booker", "a", slot(5, 20)).await.unwrap();
    lab.join(joins("stands", "a")).await;
    lab.pass(20 * MINUTE - MILLISECOND).await;
    let commits = lab.hold_commits();
    let other = lab.begin_book("other", "a", slot(300, 310));
    lab.turn().await;
    tokio::time::advance(4 * MILLISECOND).await;
    drop(commits);
    said(other).await.unwrap();
    lab.pass(Duration::from_secs(2)).await;
    assert_eq!(lab.room("a").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_window_that_ends_while_the_node_is_down_admits_whoever_stands_in_line_when_it_is_back() {
    let lab = lab().await;
    lab.book("booker", "a", slot(5, 20)).await.unwrap();
    lab.join(joins("stands", "a")).await;
    let stopped = lab.stop().await;
    tokio::time::sleep(21 * MINUTE).await;
    let lab = stopped.start().await;
    lab.pass(Duration::from_secs(6)).await;
    assert_eq!(lab.room("a").await, [""; 0]);
    assert_eq!(lab.ask(acquires("other", "a")).await, Err(Code::ResourceUnavailable), "it is kept for a while");
    assert_eq!(holder(&lab.lease(joins("stands", "a")).await), "stands");
}

#[tokio::test(start_paused = true)]
async fn before_a_window_a_lease_ends_by_its_start_or_is_cut_to_fit() {
    let lab = lab().await;
    lab.book("booker", "a", slot(30, 60)).await.unwrap();
    assert_eq!(lab.ask(acquires("ci", "a")).await, Err(Code::ResourceBooked));
    let refused = reply(lab.begin(acquires("ci", "a"))).await.result.unwrap_err();
    assert_eq!(refused.details.unwrap()["availableForMs"], 30 * 60_000);
    let cut = lab.lease(Ask { allow_shorter: true, ..acquires("ci", "a") }).await;
    assert_eq!((cut.ttl, cut.asked_ttl), (30 * MINUTE, Some(HOUR)));
    lab.pass(30 * MINUTE + 5 * MILLISECOND).await;
    assert_eq!(lab.leases_on("a").await, []);
    assert_eq!(lab.ask(acquires("ci", "a")).await, Err(Code::ResourceBooked));
    let own = lab.lease(acquires("booker", "a")).await;
    lab.release(&own).await.unwrap();
    lab.is_sound().await;
}

#[tokio::test(start_paused = true)]
async fn a_renew_into_a_window_is_refused_with_how_long_there_is_and_an_admin_is_not_stopped() {
    let lab = lab().await;
    let held = lab.lease(Ask { ttl: 20 * MINUTE, ..acquires("ci", "a") }).await;
    lab.book("booker", "a", slot(30, 60)).await.unwrap();
    lab.pass(15 * MINUTE).await;
    let renew = |role, allow_shorter, ttl| {
        let authority = Authority::Client(Caller { principal: "ci".parse().unwrap(), role });
        let lease = held.id.clone();
        lab.send(|reply| DeskMessage::Renew { lease, fence: None, ttl, allow_shorter, authority, reply })
    };
    let refused = reply(renew(Role::Agent, false, None)).await.result.unwrap_err();
    assert_eq!(refused.code, Code::ResourceBooked);
    assert_eq!(refused.details.unwrap()["availableForMs"], 15 * 60_000);
    let cut = said(renew(Role::Agent, true, None)).await.unwrap();
    assert_eq!((cut.lease.ttl, cut.lease.asked_ttl), (15 * MINUTE, Some(20 * MINUTE)));
    let renewed = said(renew(Role::Admin, false, Some(HOUR))).await.unwrap();
    assert!(renewed.expires_at > super::calls::minute(30));
    lab.release(&held).await.unwrap();
    lab.pass(20 * MINUTE).await;
    let admin = Ask { by_admin: true, ..acquires("admin", "a") };
    assert!(matches!(lab.ask(admin).await, Ok(Asked::Granted(_))), "in the window of another");
}

#[tokio::test(start_paused = true)]
async fn a_hold_keeps_others_out_as_long_as_it_is_there_and_no_longer() {
    let lab = Lab::new(&[booked("a", "os=1", ENFORCED), resource("b", "os=2", 1)], Rules::default()).await;
    lab.hold("customer", "a", slot(5, 30), 10 * MINUTE).await.unwrap();
    lab.pass(6 * MINUTE).await;
    assert_eq!(lab.ask(acquires("ci", "a")).await, Err(Code::ResourceBooked));
    assert!(matches!(lab.ask(acquires("customer", "a")).await, Ok(Asked::Granted(_))));
    let own = lab.leases_on("a").await;
    lab.release(&own[0]).await.unwrap();
    lab.pass(4 * MINUTE).await;
    assert!(matches!(lab.ask(acquires("ci", "a")).await, Ok(Asked::Granted(_))));
}
