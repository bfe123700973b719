//! The whole worker is taken out and brought back (SPEC §7, §9 Operators).

use std::time::Duration;

use super::super::message::{Asked, DeskMessage, Leftovers};
use super::calls::{AUTO_ACQUIRE, ENFORCED, MINUTE, booked, slot};
use super::lab::{HOUR, Lab, acquires, holder, joins, reply, resource, said, waits};
use crate::admission::Rules;
use crate::model::{Ask, BookingPolicy, BookingStatus, Code, DeviceState, EventKind, WaitingFor};

const SECOND: Duration = Duration::from_secs(1);

async fn lab() -> Lab {
    let mut rules = Rules::default();
    rules.waiting.waiter_ttl = HOUR;
    Lab::new(&[resource("a", "os=1", 1), resource("b", "os=1", 1)], rules).await
}

impl Lab {
    async fn states(&self) -> Vec<DeviceState> {
        let resources = reply(self.send(|reply| DeskMessage::Resources(None, reply))).await;
        resources.into_iter().map(|resource| resource.state).collect()
    }

    async fn waiting_for(&self, request: &crate::model::RequestId) -> WaitingFor {
        let now = reply(self.send(|reply| DeskMessage::Peek(request.clone(), reply))).await.unwrap();
        now.waiting.unwrap().waiting_for
    }
}

#[tokio::test(start_paused = true)]
async fn a_drained_worker_grants_nothing_at_any_door_and_its_leases_stay() {
    let lab = lab().await;
    let held = lab.lease(acquires("holder", "a")).await;
    assert_eq!(lab.drain_worker(true).await, Ok(true));
    assert_eq!(lab.states().await, [DeviceState::Drained; 2]);
    assert_eq!(lab.ask(acquires("ci", "b")).await, Err(Code::ResourceUnavailable));
    assert_eq!(lab.dispatch(acquires("gw:gateway:ci", "b")).await, Err(Code::ResourceUnavailable));
    let no_wait = Ask { wait: crate::model::WaitPolicy::NoWait, ..waits("ci", "os=1") };
    assert_eq!(lab.ask(no_wait).await, Err(Code::NoCapacity));
    let mut waiting = Vec::new();
    for (requester, target) in [("named", "b"), ("selects", "os=1")] {
        let request = lab.wait(waits(requester, target)).await;
        assert_eq!(lab.waiting_for(&request).await, WaitingFor::Drained);
        waiting.push(request);
    }
    lab.join(joins("unattended", "b")).await;
    lab.renew(&held).await.unwrap();
    assert_eq!(lab.release(&held).await.unwrap(), None, "nobody is next");
    lab.pass(10 * SECOND).await;
    assert!(lab.leases_on("a").await.is_empty() && lab.leases_on("b").await.is_empty());
    assert_eq!(lab.room("b").await, ["named", "unattended"]);

    assert_eq!(lab.drain_worker(false).await, Ok(false));
    lab.settle().await;
    assert_eq!(holder(&lab.leases_on("b").await[0]), "named");
    assert_eq!(holder(&lab.leases_on("a").await[0]), "selects");
    let told = lab.events().await;
    let count = |kind| told.iter().filter(|it| **it == kind).count();
    assert_eq!((count(EventKind::WorkerDrainStarted), count(EventKind::WorkerDrainEnded)), (1, 1));
    assert_eq!(count(EventKind::ResourceStateChanged), 0, "said once for all");
}

#[tokio::test(start_paused = true)]
async fn bringing_it_back_admits_one_unattended_waiter_of_each_resource_as_a_resources_own_undrain_does() {
    let lab = lab().await;
    let held = lab.lease(acquires("holder", "a")).await;
    lab.join(joins("first", "a")).await;
    lab.join(joins("second", "a")).await;
    lab.drain_worker(true).await.unwrap();
    lab.release(&held).await.unwrap();
    assert_eq!(lab.room("a").await, ["first", "second"]);
    lab.drain_worker(false).await.unwrap();
    lab.settle().await;
    assert_eq!(lab.room("a").await, ["second"]);
}

#[tokio::test(start_paused = true)]
async fn the_workers_drain_and_a_resources_own_do_not_move_each_other() {
    let lab = lab().await;
    lab.drain("a", true).await.unwrap();
    lab.drain_worker(true).await.unwrap();
    lab.drain("b", true).await.unwrap();
    lab.drain("b", false).await.unwrap();
    assert_eq!(lab.ask(acquires("ci", "b")).await, Err(Code::ResourceUnavailable));
    lab.drain_worker(false).await.unwrap();
    assert_eq!(lab.states().await, [DeviceState::Drained, DeviceState::Available]);
    lab.lease(acquires("ci", "b")).await;
    assert_eq!(lab.ask(acquires("other", "a")).await, Err(Code::ResourceUnavailable));
    let told = lab.events().await;
    let changed = told.iter().filter(|kind| **kind == EventKind::ResourceStateChanged).count();
    assert_eq!(changed, 1, "what the worker's drain hides is not told");
}

#[tokio::test(start_paused = true)]
async fn it_is_on_disk_and_survives_restarts() {
    let lab = lab().await;
    lab.drain_worker(true).await.unwrap();
    let lab = lab.restart().await;
    assert_eq!(lab.states().await, [DeviceState::Drained; 2]);
    assert_eq!(lab.ask(acquires("ci", "b")).await, Err(Code::ResourceUnavailable));
    assert_eq!(lab.drain_worker(true).await, Ok(true), "it is so already");
    let waiting = lab.wait(waits("ci", "a")).await;
    lab.drain_worker(false).await.unwrap();
    assert_eq!(holder(&lab.end(&waiting).await.lease()), "ci");
    let lab = lab.restart().await;
    assert_eq!(lab.states().await, [DeviceState::Leased, DeviceState::Available]);
}

#[tokio::test(start_paused = true)]
async fn nothing_that_was_under_way_is_granted_after_the_answer() {
    let lab = lab().await;
    let commits = lab.hold_commits();
    let asked = lab.begin(acquires("ci", "a"));
    lab.turn().await;
    let mut drained = lab.send(|reply| DeskMessage::DrainWorker(true, reply));
    let late = lab.begin(acquires("late", "b"));
    lab.turn().await;
    assert!(drained.try_recv().is_err(), "it is not on disk");
    assert_eq!(said(late).await, Err(Code::ResourceUnavailable), "and it counts already");
    drop(commits);
    assert_eq!(said(drained).await, Ok(true));
    let granted = said(asked).await;
    assert!(matches!(granted, Ok(Asked::Granted(_))), "{granted:?}");
    assert_eq!(lab.leases_on("a").await.len(), 1, "it was there before the answer");
}

#[tokio::test(start_paused = true)]
async fn one_that_cannot_be_written_has_not_happened() {
    let lab = lab().await;
    {
        let _fault = lab.lose("UPDATE OF drained", "node");
        let drained = lab.send(|reply| DeskMessage::DrainWorker(true, reply));
        let again = lab.send(|reply| DeskMessage::DrainWorker(true, reply));
        assert_eq!(said(drained).await, Err(Code::Internal));
        assert_eq!(said(again).await, Err(Code::Internal));
    }
    let held = lab.lease(acquires("ci", "a")).await;
    lab.drain_worker(true).await.unwrap();
    {
        let _fault = lab.lose("UPDATE OF drained", "node");
        assert_eq!(lab.drain_worker(false).await, Err(Code::Internal));
        assert_eq!(lab.ask(acquires("other", "b")).await, Err(Code::ResourceUnavailable));
    }
    lab.renew(&held).await.unwrap();
    lab.drain_worker(false).await.unwrap();
    lab.lease(acquires("other", "b")).await;
}

#[tokio::test(start_paused = true)]
async fn turned_round_while_it_is_written_the_last_word_stands_and_each_is_answered() {
    let lab = lab().await;
    for last in [false, true] {
        let words = [true, false, true, false, true];
        let words = &words[usize::from(!last)..];
        let answers: Vec<_> =
            words.iter().map(|drained| lab.send(|reply| DeskMessage::DrainWorker(*drained, reply))).collect();
        for (answer, word) in answers.into_iter().zip(words) {
            assert_eq!(said(answer).await, Ok(*word));
        }
        lab.settle().await;
        assert_eq!(lab.states().await, [DeviceState::Drained; 2]);
        lab.drain_worker(false).await.unwrap();
        assert_eq!(lab.states().await, [DeviceState::Available; 2]);
    }
    assert_eq!(lab.leftovers().await, Leftovers::default());
}

#[tokio::test(start_paused = true)]
async fn a_booking_gets_its_lease_when_the_worker_is_back() {
    let lab = Lab::new(&[booked("a", "os=1", AUTO_ACQUIRE)], Rules::default()).await;
    let booking = lab.book("booker", "a", slot(10, 60)).await.unwrap();
    lab.drain_worker(true).await.unwrap();
    lab.pass(20 * MINUTE).await;
    assert!(lab.leases_on("a").await.is_empty());
    lab.drain_worker(false).await.unwrap();
    lab.settle().await;
    assert_eq!(holder(&lab.leases_on("a").await[0]), "booker");
    assert_eq!(lab.status(&booking.id).await, BookingStatus::Fulfilled);
}

#[tokio::test(start_paused = true)]
async fn time_in_which_the_worker_was_out_counts_for_no_no_show() {
    let policy = BookingPolicy { no_show_after: Some(10 * MINUTE), ..ENFORCED };
    let lab = Lab::new(&[booked("a", "os=1", policy)], Rules::default()).await;
    let booking = lab.book("booker", "a", slot(10, 60)).await.unwrap();
    lab.drain_worker(true).await.unwrap();
    lab.pass(30 * MINUTE).await;
    lab.drain_worker(false).await.unwrap();
    lab.pass(10 * MINUTE - SECOND).await;
    assert_eq!(lab.status(&booking.id).await, BookingStatus::Scheduled);
    lab.pass(2 * SECOND).await;
    assert_eq!(lab.status(&booking.id).await, BookingStatus::Missed);
}
