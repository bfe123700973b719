//! After a restart.

use std::time::Duration;

use super::lab::{HOUR, Lab, acquires, holder, joins, ranked, resource, said, waits};
use crate::admission::Rules;
use crate::model::{Ask, Code};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn the_first_admission_after_a_restart_is_reserved_for_ten_seconds_also_when_the_return_grace_comes_before() {
    let lab = Lab::new(&[resource("a", "os=1", 1)], Rules::default()).await;
    lab.lease(Ask { ttl: MINUTE, ..acquires("holder", "a") }).await;
    lab.join(joins("stands", "a")).await;
    lab.wait(waits("gone", "a")).await;
    let stopped = lab.stop().await;
    tokio::time::sleep(MINUTE).await;
    let lab = stopped.start().await;
    lab.pass(Duration::from_secs(6)).await;
    assert_eq!(lab.room("a").await, [""; 0], "it has been admitted");
    lab.pass(Duration::from_secs(8)).await;
    assert_eq!(lab.ask(acquires("other", "a")).await, Err(Code::ResourceUnavailable));
    assert_eq!(holder(&lab.lease(joins("stands", "a")).await), "stands");
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_when_the_return_grace_ends_is_served_also_while_another_asks() {
    let lab = Lab::new(&[resource("a", "os=1", 1)], Rules::default()).await;
    let held = lab.lease(Ask { ttl: HOUR, ..acquires("holder", "a") }).await;
    lab.wait(waits("gone", "a")).await;
    let lab = lab.restart().await;
    lab.release(&held).await.unwrap();
    let waiting = lab.wait(waits("waits", "a")).await;
    lab.pass(Duration::from_millis(4_900)).await;
    // One comes just before the end, and is being written then.
    let commits = lab.hold_commits();
    let late = lab.begin(waits("late", "a"));
    lab.turn().await;
    tokio::time::advance(Duration::from_millis(200)).await;
    lab.turn().await;
    drop(commits);
    said(late).await.unwrap();
    assert_eq!(holder(&lab.end(&waiting).await.lease()), "waits");
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_of_higher_priority_does_not_keep_one_who_has_come_back_from_what_is_free() {
    let lab = Lab::new(&[resource("a", "os=1", 1)], Rules::default()).await;
    let held = lab.lease(Ask { ttl: HOUR, ..acquires("holder", "a") }).await;
    let back = lab.ticket(&lab.wait(waits("back", "os=1")).await).await;
    lab.wait(waits("gone", "os=1")).await;
    let lab = lab.restart().await;
    let newcomer = lab.wait(ranked(waits("newcomer", "os=1"), 9.0)).await;
    let back = lab.wait(Ask { ticket: Some(back), ..waits("back", "os=1") }).await;
    lab.release(&held).await.unwrap();
    let lease = lab.end(&back).await.lease();
    assert_eq!(holder(&lease), "back", "though one more is expected, who stood behind it");
    lab.release(&lease).await.unwrap();
    lab.pass(Duration::from_secs(6)).await;
    assert_eq!(holder(&lab.end(&newcomer).await.lease()), "newcomer");
}

#[tokio::test(start_paused = true)]
async fn a_ticket_of_a_lease_request_gives_its_place_to_one_request_and_to_no_unattended_waiter() {
    let mut rules = Rules::default();
    rules.lease.max_per_requester = 2;
    let lab = Lab::new(&[resource("a", "os=1", 1)], rules).await;
    lab.lease(Ask { ttl: HOUR, ..acquires("holder", "a") }).await;
    let ticket = lab.ticket(&lab.wait(waits("back", "a")).await).await;
    let lab = lab.restart().await;
    lab.join(joins("other", "a")).await;
    let standing = Ask { ticket: Some(ticket.clone()), ..joins("back", "a") };
    assert_eq!(lab.join(standing).await, 2, "it joins now");
    lab.wait(Ask { ticket: Some(ticket), ..waits("back", "a") }).await;
    assert_eq!(lab.room("a").await, ["back", "other", "back"], "the request has the place");
}
