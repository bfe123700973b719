//! Whatever makes room serves the next who fits, whether it waits by name or by selector.

use std::time::Duration;

use super::super::message::{Asked, DeskMessage};
use super::lab::{End, HOUR, Lab, acquires, holder, joins, ranked, reply, resource, said, shared, waits, waits_for};
use crate::admission::Rules;
use crate::model::{Ask, Authority, Caller, Code, Principal, Role};

const TARGETS: [&str; 2] = ["a", "os=1"];
const MINUTE: Duration = Duration::from_secs(60);

async fn lab(seats: u32) -> Lab {
    let mut rules = Rules::default();
    rules.waiting.waiter_ttl = 5 * MINUTE;
    Lab::new(&[resource("a", "os=1", seats)], rules).await
}

#[tokio::test(start_paused = true)]
async fn a_release_by_its_holder_and_one_by_an_admin_serve_the_next() {
    for target in TARGETS {
        for role in [Role::Agent, Role::Admin] {
            let lab = lab(1).await;
            let held = lab.lease(acquires("holder", "a")).await;
            let next = lab.wait(waits("next", target)).await;
            let principal: Principal = if role == Role::Agent { "holder" } else { "admin" }.parse().unwrap();
            let authority = Authority::Client(Caller { principal, role });
            let lease = held.id.clone();
            let released = lab.send(|reply| DeskMessage::Release { lease, fence: None, authority, reply });
            assert_eq!(said(released).await.unwrap().admitted.unwrap().to_string(), "next");
            assert_eq!(holder(&lab.end(&next).await.lease()), "next");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_expiry_serves_the_next_within_a_second_of_the_deadline() {
    for target in TARGETS {
        let lab = lab(1).await;
        lab.lease(Ask { ttl: MINUTE, ..acquires("holder", "a") }).await;
        let next = lab.wait(waits("next", target)).await;
        lab.pass(MINUTE - Duration::from_millis(5)).await;
        assert_eq!(lab.state(&next).await, None);
        lab.pass(Duration::from_secs(1)).await;
        assert!(matches!(lab.state(&next).await, Some(End::Lease(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_one_that_stopped_others_from_sharing_serves_them() {
    for target in TARGETS {
        for ahead in TARGETS {
            for by_timeout in [false, true] {
                let lab = lab(2).await;
                lab.lease(shared(acquires("holder", "a"))).await;
                let alone = lab.wait(waits_for("alone", ahead, MINUTE)).await;
                let next = lab.wait(shared(waits("next", target))).await;
                lab.settle().await;
                assert_eq!(lab.state(&next).await, None, "{target} behind {ahead}");
                if by_timeout {
                    assert_eq!(lab.end(&alone).await, End::Refused(Code::QueueTimeout));
                } else {
                    lab.cancel(&alone).await.unwrap();
                }
                assert_eq!(holder(&lab.end(&next).await.lease()), "next", "{target} behind {ahead}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_stands_in_line_and_leaves_or_is_given_up_serves_whom_it_stopped() {
    for target in TARGETS {
        for leaves in [true, false] {
            let lab = lab(2).await;
            lab.lease(shared(acquires("holder", "a"))).await;
            lab.join(joins("stands", "a")).await;
            let next = lab.wait(shared(waits("next", target))).await;
            let ended = lab.watch(&next);
            lab.settle().await;
            assert_eq!(lab.state(&next).await, None, "the one ahead wants it alone");
            if leaves {
                assert_eq!(lab.leave("stands", "a").await, Ok(true));
            } else {
                lab.pass(5 * MINUTE).await;
            }
            assert!(reply(ended).await.is_some());
            assert_eq!(holder(&lab.end(&next).await.lease()), "next");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn bringing_a_resource_back_serves_the_next() {
    for target in TARGETS {
        let lab = lab(1).await;
        lab.drain("a", true).await.unwrap();
        let next = lab.wait(waits("next", target)).await;
        lab.settle().await;
        assert_eq!(lab.state(&next).await, None);
        lab.drain("a", false).await.unwrap();
        assert_eq!(holder(&lab.end(&next).await.lease()), "next");
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_grace_and_leaving_in_it_serve_the_next() {
    for target in TARGETS {
        for leaves in [true, false] {
            let mut rules = Rules::default();
            rules.waiting.admission_grace = MINUTE;
            let lab = Lab::new(&[resource("a", "os=1", 1)], rules).await;
            let held = lab.lease(acquires("holder", "a")).await;
            lab.join(ranked(joins("stands", "a"), 1.0)).await;
            let next = lab.wait(waits("next", target)).await;
            assert_eq!(lab.release(&held).await.unwrap().as_deref(), Some("stands"));
            lab.settle().await;
            assert_eq!(lab.state(&next).await, None, "it is kept for the one that was admitted");
            if leaves {
                assert_eq!(lab.leave("stands", "a").await, Ok(true));
            }
            assert_eq!(holder(&lab.end(&next).await.lease()), "next");
            assert_eq!(lab.clock.now().run.0 >= MINUTE, !leaves);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_grace_the_next_attended_one_is_served_behind_the_one_that_is_admitted() {
    for target in TARGETS {
        let lab = lab(1).await;
        let held = lab.lease(acquires("holder", "a")).await;
        lab.join(ranked(joins("stands", "a"), 1.0)).await;
        let next = lab.wait(waits("next", target)).await;
        assert_eq!(lab.release(&held).await.unwrap().as_deref(), Some("stands"));
        assert_eq!(holder(&lab.end(&next).await.lease()), "next");
        assert_eq!(lab.join(joins("stands", "a")).await, 1, "it comes too late");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shared_seat_that_is_given_back_serves_the_next() {
    for target in TARGETS {
        let lab = lab(2).await;
        let held = lab.lease(shared(acquires("first", "a"))).await;
        lab.lease(shared(acquires("second", "a"))).await;
        let next = lab.wait(shared(waits("next", target))).await;
        assert_eq!(lab.release(&held).await.unwrap().as_deref(), Some("next"));
        assert_eq!(holder(&lab.end(&next).await.lease()), "next");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_nobody_asks_about_is_given_up_and_one_that_is_watched_is_not() {
    for target in TARGETS {
        let lab = lab(1).await;
        lab.lease(acquires("holder", "a")).await;
        let (left, watched) = (lab.wait(waits("left", target)).await, lab.wait(waits("watched", target)).await);
        let mut watching = lab.watch(&watched);
        lab.pass(5 * MINUTE - Duration::from_secs(1)).await;
        let asks = lab.send(DeskMessage::OpenRequests);
        assert_eq!(reply(asks).await.len(), 2);
        lab.pass(Duration::from_secs(2)).await;
        assert_eq!(lab.state(&left).await, Some(End::Refused(Code::NoCapacity)), "abandoned");
        lab.pass(30 * MINUTE).await;
        assert!(watching.try_recv().is_err(), "it waits on");
        drop(watching);
        lab.pass(6 * MINUTE).await;
        assert_eq!(lab.state(&watched).await, Some(End::Refused(Code::NoCapacity)), "its watcher has gone");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_set_neither_ends_nor_prolongs_a_lease_or_a_wait() {
    const HOUR_MS: i64 = 3_600_000;
    for by in [HOUR_MS, -HOUR_MS, 24 * 365 * HOUR_MS] {
        let lab = lab(1).await;
        let held = lab.lease(Ask { ttl: HOUR, ..acquires("holder", "a") }).await;
        let bounded = lab.wait(waits_for("bounded", "os=1", 10 * MINUTE)).await;
        let next = lab.wait(waits_for("next", "a", 2 * HOUR)).await;
        let (watching, bounded_ends) = (lab.watch(&next), lab.watch(&bounded));
        lab.pass(5 * MINUTE).await;
        lab.clock.step_wall_ms(by);
        lab.pass(4 * MINUTE).await;
        assert_eq!(lab.leases_on("a").await.len(), 1);
        assert_eq!(lab.state(&bounded).await, None, "{by}");
        lab.pass(2 * MINUTE).await;
        drop(bounded_ends);
        assert_eq!(lab.state(&bounded).await, Some(End::Refused(Code::QueueTimeout)), "{by}");
        lab.pass(48 * MINUTE).await;
        assert_eq!(holder(&lab.leases_on("a").await[0]), "holder", "{by}");
        lab.pass(2 * MINUTE).await;
        drop(watching);
        assert_eq!(holder(&lab.leases_on("a").await[0]), "next", "{by}");
        assert_eq!(lab.renew(&held).await, Err(Code::UnknownLease));
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_wall_clock_was_set_and_the_node_restarted_deadlines_hold() {
    for by in [3_600_000, -3_600_000, 365 * 24 * 3_600_000] {
        let lab = lab(1).await;
        let held = lab.lease(Ask { ttl: HOUR, ..acquires("holder", "a") }).await;
        lab.pass(30 * MINUTE).await;
        lab.clock.step_wall_ms(by);
        lab.pass(MINUTE).await;
        let lab = lab.restart().await;
        lab.pass(28 * MINUTE).await;
        assert_eq!(lab.leases_on("a").await, [held], "{by}");
        lab.pass(2 * MINUTE).await;
        assert_eq!(lab.leases_on("a").await, [], "{by}");
        assert!(matches!(lab.ask(acquires("next", "a")).await, Ok(Asked::Granted(_))));
    }
}
