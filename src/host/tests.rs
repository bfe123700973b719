//! A resource's actor dies: the others serve on, and what was in flight ends as the database says.

mod at_once;
mod auto_acquire;
mod calendar_deaths;
mod calendar_limits;
mod calendar_races;
mod calls;
mod deaths;
mod devices;
mod enforced;
mod fleet_calls;
mod fleet_waiters;
mod hand_over;
mod hands;
mod holds;
mod lab;
mod monitor;
mod no_show;
mod order;
mod races;
mod reload;
mod reported;
mod returning;
mod seeds;
mod soak;
mod uplink_grace;
mod wake_ups;
mod worker_drain;

use std::path::PathBuf;
use std::time::Duration;

use ractor::RpcReplyPort;
use tokio::sync::oneshot::Receiver;

use super::message::{Asked, DeskMessage, Grant, Origin, ReleasedNow, Said};
use super::{Host, HostArguments, start};
use crate::admission::Rules;
use crate::admission::ticket::TicketKey;
use crate::clock::Clock;
use crate::model::{Ask, Authority, Caller, Code, Door, LeftOut, Mode, RequestId, ResourceSpec, Target, WaitPolicy};

struct Bench {
    host: Host,
    database: PathBuf,
    _directory: tempfile::TempDir,
}

impl Bench {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("berth.db");
        let resource = |id: &str| ResourceSpec::bare(id.parse().unwrap());
        let arguments = HostArguments {
            name: "rack-1".parse().unwrap(),
            database: database.clone(),
            resources: vec![resource("a"), resource("b")],
            gateway: Some("gateway".parse().unwrap()),
            rules: Rules::default(),
            tickets: TicketKey::new(&[7; 32]),
            hands: hands::Scripted::new(),
            clock: Clock::system(),
        };
        Self { host: start(arguments).await.unwrap(), database, _directory: directory }
    }

    fn send<T: ractor::Message>(&self, build: impl FnOnce(RpcReplyPort<T>) -> DeskMessage) -> Receiver<T> {
        let (reply, answer) = ractor::concurrency::oneshot();
        self.host.desk.cast(build(reply.into())).unwrap();
        answer
    }

    fn acquire(&self, requester: &str, resource: &str) -> Receiver<Said<Asked>> {
        let ask = ask(requester, resource);
        self.send(|reply| DeskMessage::Request { ask: Box::new(ask), origin: Origin::Client, reply })
    }

    /// The same request by a gateway, as its `attempt`.
    fn dispatch(&self, id: &RequestId, attempt: u32) -> Receiver<Said<Asked>> {
        let ask = Ask { id: id.clone(), ..ask("gw:gateway:ci", "a") };
        let fingerprint = ask.fingerprint();
        self.send(|reply| DeskMessage::Request {
            ask: Box::new(ask),
            origin: Origin::Gateway { attempt, fingerprint, not_on: None },
            reply,
        })
    }

    fn release(&self, grant: &Grant) -> Receiver<Said<ReleasedNow>> {
        let (lease, authority) = (grant.lease.id.clone(), Authority::Client(Caller::admin()));
        self.send(|reply| DeskMessage::Release { lease, fence: None, authority, reply })
    }

    fn renew(&self, grant: &Grant) -> Receiver<Said<Grant>> {
        let (lease, authority) = (grant.lease.id.clone(), Authority::Client(Caller::admin()));
        self.send(|reply| DeskMessage::Renew { lease, fence: None, ttl: None, allow_shorter: false, authority, reply })
    }

    fn kill(&self, resource: &str) {
        self.host.desk.cast(DeskMessage::PanicResource(resource.parse().unwrap())).unwrap();
    }

    /// Keeps every commit waiting until it is dropped.
    fn hold_commits(&self) -> rusqlite::Connection {
        let other = rusqlite::Connection::open(&self.database).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        other
    }
}

fn ask(requester: &str, resource: &str) -> Ask {
    Ask {
        id: RequestId::generate(),
        door: Door::Acquire,
        requester: requester.parse().unwrap(),
        target: Target::Resource(resource.parse().unwrap()),
        mode: Mode::Exclusive,
        ttl: Duration::from_secs(60),
        priority: Default::default(),
        lease_id: None,
        wait: WaitPolicy::Fail,
        note: None,
        ticket: None,
        allow_shorter: false,
        by_admin: false,
        left_out: LeftOut::default(),
        key: Some("the-same-key".parse().unwrap()),
    }
}

/// The lease that was asked for.
async fn granted(asked: Receiver<Said<Asked>>) -> Result<Grant, Code> {
    answer(asked).await.map(|asked| match asked {
        Asked::Granted(grant) => grant,
        other => panic!("no lease: {other:?}"),
    })
}

async fn answer<T>(answer: Receiver<Said<T>>) -> Result<T, Code> {
    let said = tokio::time::timeout(Duration::from_secs(20), answer).await.expect("an answer in time").unwrap();
    said.result.map_err(|refusal| refusal.code)
}

#[tokio::test]
async fn a_panic_without_a_commit_under_way_costs_no_lease_and_stops_no_other_resource() {
    let bench = Bench::new().await;
    let held = granted(bench.acquire("ci", "a")).await.unwrap();
    bench.kill("a");
    // Whichever comes first, the death or the renew: the lease is there.
    let renewed = answer(bench.renew(&held)).await;
    assert!(matches!(&renewed, Ok(grant) if grant.lease.fence == held.lease.fence) || renewed == Err(Code::Internal));
    granted(bench.acquire("other", "b")).await.unwrap();
    assert_eq!(granted(bench.acquire("third", "a")).await.unwrap_err(), Code::ResourceUnavailable);
    let renewed = answer(bench.renew(&held)).await.unwrap();
    assert_eq!(renewed.lease.fence, held.lease.fence);
}

#[tokio::test]
async fn a_grant_that_was_being_committed_when_the_actor_died_is_answered_as_the_database_says() {
    let bench = Bench::new().await;
    // The actor of `a` runs, so that it can die.
    let first = granted(bench.acquire("first", "a")).await.unwrap();
    answer(bench.release(&first)).await.unwrap();

    let commits = bench.hold_commits();
    let in_flight = bench.acquire("ci", "a");
    let queued_behind = bench.acquire("late", "a");
    bench.kill("a");
    let after_the_death = bench.acquire("later", "a");
    let elsewhere = bench.acquire("other", "b");
    drop(commits);
    let held = granted(in_flight).await.unwrap();
    assert!(held.lease.fence > first.lease.fence);
    assert_eq!(granted(queued_behind).await.unwrap_err(), Code::ResourceUnavailable, "it waited at the desk");
    // The death may be noticed before or after this one was handed over; it is refused in any case.
    let refused = granted(after_the_death).await.unwrap_err();
    assert_eq!(refused, Code::ResourceUnavailable);
    granted(elsewhere).await.unwrap();
    assert_eq!(answer(bench.renew(&held)).await.unwrap().lease.fence, held.lease.fence);

    // What ended without a row is not remembered: the same key is a new try.
    answer(bench.release(&held)).await.unwrap();
    assert_eq!(granted(bench.acquire("late", "a")).await.unwrap().lease.holder.to_string(), "late");
}

#[tokio::test]
async fn a_release_that_was_being_committed_when_the_actor_died_has_happened_if_the_lease_is_gone() {
    let bench = Bench::new().await;
    let held = granted(bench.acquire("ci", "a")).await.unwrap();
    let commits = bench.hold_commits();
    let released = bench.release(&held);
    bench.kill("a");
    drop(commits);
    assert_eq!(answer(released).await.unwrap().lease.id, held.lease.id);
    assert_eq!(answer(bench.renew(&held)).await.unwrap_err(), Code::UnknownLease);
    assert_eq!(
        granted(bench.acquire("ci", "a")).await.unwrap().lease.holder.to_string(),
        "ci",
        "its requester is free"
    );
}

#[tokio::test]
async fn an_idle_resource_is_retired_and_comes_back_with_its_lease() {
    let bench = Bench::new().await;
    let held = granted(bench.acquire("ci", "a")).await.unwrap();
    let actors = || async { bench.send(DeskMessage::Actors).await.unwrap() };
    assert_eq!(actors().await, 1);
    bench.host.desk.cast(DeskMessage::RetireIdle).unwrap();
    assert_eq!(actors().await, 0);
    assert_eq!(answer(bench.renew(&held)).await.unwrap().lease.fence, held.lease.fence);
    assert_eq!(actors().await, 1);
}

#[tokio::test]
async fn an_attempt_that_was_settled_as_nothing_is_refused_and_the_next_is_a_new_try() {
    let bench = Bench::new().await;
    let id = RequestId::generate();
    let first = granted(bench.dispatch(&id, 1)).await.unwrap();
    let again = granted(bench.dispatch(&id, 1)).await.unwrap();
    assert_eq!(again.lease.fence, first.lease.fence, "the same dispatch twice has one answer");
    assert_eq!(granted(bench.dispatch(&id, 2)).await.unwrap_err(), Code::Stopping, "the first attempt holds a lease");
    answer(bench.release(&first)).await.unwrap();
    let settled = bench.send(|reply| DeskMessage::Settle {
        request: id.clone(),
        attempt: 2,
        gateway: "gateway".parse().unwrap(),
        reply,
    });
    assert_eq!(answer(settled).await.unwrap(), None, "its lease is over");
    assert_eq!(granted(bench.dispatch(&id, 1)).await.unwrap_err(), Code::Stopping, "an ended lease is nobody's answer");
    let next = granted(bench.dispatch(&id, 3)).await.unwrap();
    assert!(next.lease.fence > first.lease.fence);
}
