//! Reads what one worker reports over one link, and hands it to the front in its order (the protocol is in
//! [`wire::report`](crate::wire::report)).

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Sleep, sleep, timeout};

use super::message::{FrontMessage, WholeSnapshot};
use super::relayed::claimed;
use super::session::LinkId;
use crate::clock::{Clock, RunTime};
use crate::limits::{DELTAS_QUEUED_MAX, RESOURCES_MAX, SETTLED_ROWS_MAX, WAITERS_MAX};
use crate::link::listen::Snapshots;
use crate::link::{FrameReader, FrameWriter, LinkError, read, write};
use crate::model::NodeName;
use crate::wire::report::{Control, Delta, LAYOUT, Part, Report, ResourceReport};
use crate::wire::requests::{SettledRow, WaitingRow};

/// A snapshot must have come this long after it was due.
const SNAPSHOT_BOUND: Duration = Duration::from_secs(30);
/// Reports of one worker that the front has not taken in yet; then the link's own flow control holds the worker back.
const REPORTS_QUEUED_MAX: usize = 256;

/// One link's reports.
pub(super) struct Follow {
    pub(super) worker: NodeName,
    pub(super) gateway: NodeName,
    pub(super) link: LinkId,
    pub(super) incarnation: u64,
    pub(super) front: ActorRef<FrontMessage>,
    pub(super) snapshots: Snapshots,
    pub(super) reports: FrameReader,
    pub(super) control: FrameWriter,
    pub(super) resyncs: mpsc::Receiver<()>,
    pub(super) clock: Clock,
}

/// A whole snapshot.
#[derive(Debug)]
struct Snapshot {
    number: u64,
    /// When its first part was read.
    at: RunTime,
    resources: Vec<ResourceReport>,
    waiting: Vec<WaitingRow>,
    settled: Vec<SettledRow>,
}

/// A report on its way to the front; the room it takes is free once this is dropped.
#[derive(Debug)]
pub struct Arrival {
    /// When it was read: what it says in times left counts from then, however long the front takes to get to it.
    pub at: RunTime,
    #[expect(dead_code, reason = "held for its drop")]
    room: OwnedSemaphorePermit,
}

/// A delta, and when it was read.
#[derive(Debug, PartialEq)]
struct Read {
    at: RunTime,
    delta: Delta,
}

/// Follows until the link breaks or the worker breaks the protocol.
pub(super) async fn follow(follow: Follow) -> LinkError {
    let Follow { worker, gateway, link, incarnation, front, snapshots, mut reports, mut control, mut resyncs, clock } =
        follow;
    let (whole, mut wholes) = mpsc::channel(1);
    // Read beside the deltas: a worker whose deltas are not read could not finish its snapshot.
    let mut reading = JoinSet::new();
    reading.spawn(read_snapshots(snapshots, incarnation, clock.clone(), whole));
    let room = Arc::new(Semaphore::new(REPORTS_QUEUED_MAX));
    let mut order = Order::Unknown { early: Vec::new() };
    let mut due = Some(Box::pin(sleep(SNAPSHOT_BOUND)));
    // A page of events is out at the disk at most.
    let (taken, mut stored) = mpsc::channel(1);
    let mut page_out = false;
    loop {
        let ready = tokio::select! {
            whole = wholes.recv() => match whole {
                Some(Ok(Snapshot { number, at, resources, waiting, settled })) => {
                    due = None;
                    let arrival = arrival(at, &room).await;
                    let snapshot = WholeSnapshot { incarnation, number, resources, waiting, settled };
                    let _ = front.cast(FrontMessage::Snapshot { worker: worker.clone(), link, snapshot, arrival });
                    if let Err(error) = write(&mut control, &Control::Taken { number }).await {
                        return error;
                    }
                    order.snapshot(number)
                }
                Some(Err(error)) => return error,
                None => return LinkError::Protocol("no more snapshots".to_owned()),
            },
            report = read::<Report>(&mut reports) => match report {
                Ok(Some(Report::Delta(delta))) if delta.incarnation == incarnation => {
                    order.delta(Read { at: clock.now().run, delta })
                }
                Ok(Some(Report::Delta(_))) => return LinkError::Protocol("a delta of another incarnation".to_owned()),
                Ok(Some(Report::Digest(digest))) => {
                    let arrival = arrival(clock.now().run, &room).await;
                    let _ = front.cast(FrontMessage::Digest { worker: worker.clone(), link, digest, arrival });
                    continue;
                }
                Ok(Some(Report::Events(_))) if page_out => {
                    return LinkError::Protocol("events before the last were acknowledged".to_owned());
                }
                Ok(Some(Report::Events(page))) => match claimed(page, &worker, &gateway) {
                    Ok(page) => {
                        page_out = true;
                        let (worker, taken) = (worker.clone(), taken.clone());
                        let _ = front.cast(FrontMessage::Events { worker, page, taken });
                        continue;
                    }
                    Err(why) => return LinkError::Protocol(why.to_owned()),
                },
                Ok(None) => return LinkError::Protocol("the control stream ended".to_owned()),
                Err(error) => return error,
            },
            Some(seq) = stored.recv() => {
                page_out = false;
                if let Err(error) = write(&mut control, &Control::EventsTaken { seq }).await {
                    return error;
                }
                continue;
            }
            Some(()) = resyncs.recv() => Ready::Ask,
            () = waiting(&mut due) => return LinkError::Timeout,
        };
        match ready {
            Ready::Deltas(deltas) => {
                for Read { at, delta: Delta { number, change, .. } } in deltas {
                    let arrival = arrival(at, &room).await;
                    let message = FrontMessage::Delta { worker: worker.clone(), link, number, change, arrival };
                    let _ = front.cast(message);
                }
            }
            Ready::Gap => {
                let _ = front.cast(FrontMessage::Gap { worker: worker.clone(), link });
            }
            Ready::Ask => {
                if due.is_none() {
                    due = Some(Box::pin(sleep(SNAPSHOT_BOUND)));
                    if let Err(error) = write(&mut control, &Control::Resync).await {
                        return error;
                    }
                }
            }
            Ready::TooMany => return LinkError::Protocol("too many deltas without a snapshot".to_owned()),
        }
    }
}

async fn arrival(at: RunTime, room: &Arc<Semaphore>) -> Arrival {
    Arrival { at, room: Arc::clone(room).acquire_owned().await.expect("the semaphore is never closed") }
}

async fn waiting(due: &mut Option<std::pin::Pin<Box<Sleep>>>) {
    match due {
        Some(sleep) => sleep.await,
        None => pending().await,
    }
}

/// Which delta comes next.
#[derive(Debug)]
enum Order {
    /// No snapshot yet, or a gap after the last: deltas wait until one comes.
    Unknown { early: Vec<Read> },
    /// This number.
    Next(u64),
}

/// What is to be done with what came in.
#[derive(Debug, PartialEq)]
enum Ready {
    /// Hand these on.
    Deltas(Vec<Read>),
    /// Some are missing.
    Gap,
    /// Ask for a snapshot.
    Ask,
    /// Give the link up.
    TooMany,
}

impl Order {
    fn snapshot(&mut self, number: u64) -> Ready {
        let early = match self {
            Order::Unknown { early } => std::mem::take(early),
            // Asked for while the deltas went on in order: what came after the cut may have been handed on already.
            Order::Next(next) => {
                *next = (number + 1).max(*next);
                return Ready::Deltas(Vec::new());
            }
        };
        *self = Order::Next(number + 1);
        let mut deltas = Vec::new();
        for read in early.into_iter().filter(|read| read.delta.number > number) {
            match self.delta(read) {
                Ready::Deltas(more) => deltas.extend(more),
                gap => return gap,
            }
        }
        Ready::Deltas(deltas)
    }

    fn delta(&mut self, read: Read) -> Ready {
        let number = read.delta.number;
        match self {
            Order::Unknown { early } if early.len() >= DELTAS_QUEUED_MAX => Ready::TooMany,
            Order::Unknown { early } => {
                early.push(read);
                Ready::Deltas(Vec::new())
            }
            Order::Next(next) if number < *next => Ready::Deltas(Vec::new()),
            Order::Next(next) if number == *next => {
                *next += 1;
                Ready::Deltas(vec![read])
            }
            Order::Next(_) => {
                *self = Order::Unknown { early: vec![read] };
                Ready::Gap
            }
        }
    }
}

async fn read_snapshots(
    snapshots: Snapshots,
    incarnation: u64,
    clock: Clock,
    whole: mpsc::Sender<Result<Snapshot, LinkError>>,
) {
    loop {
        let result = match snapshots.next().await {
            Ok(mut stream) => timeout(SNAPSHOT_BOUND, read_snapshot(&mut stream, incarnation, &clock))
                .await
                .unwrap_or(Err(LinkError::Timeout)),
            Err(error) => Err(error),
        };
        let broken = result.is_err();
        if whole.send(result).await.is_err() || broken {
            return;
        }
    }
}

/// Reads one snapshot; it counts only when its end has come and the count is right.
async fn read_snapshot(stream: &mut FrameReader, expected: u64, clock: &Clock) -> Result<Snapshot, LinkError> {
    let broken = |why: &str| Err(LinkError::Protocol(why.to_owned()));
    let number = match read::<Part>(stream).await? {
        Some(Part::Begin { incarnation, number }) if incarnation == expected => number,
        _ => return broken("a snapshot begins with its incarnation and number"),
    };
    // It was cut before it began to be sent, so this is no later than what it says allows.
    let at = clock.now().run;
    let (mut resources, mut waiting, mut settled) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        match read::<Part>(stream).await? {
            Some(Part::Chunk { layout: LAYOUT, resources: more }) => resources.extend(more),
            Some(Part::Chunk { .. }) => return broken("a snapshot in an unknown layout"),
            Some(Part::Requests { waiting: more, settled: ended }) => {
                waiting.extend(more);
                settled.extend(ended);
            }
            Some(Part::End { resources: count, waiting: waiters, settled: ended })
                if [count, waiters, ended] == [resources.len(), waiting.len(), settled.len()].map(|it| it as u64) =>
            {
                return Ok(Snapshot { number, at, resources, waiting, settled });
            }
            _ => return broken("a snapshot without its end"),
        }
        // A worker may also show what its lab file no longer has, hence twice.
        if resources.len() > 2 * RESOURCES_MAX {
            return broken("more resources than a node may have");
        }
        if waiting.len() > WAITERS_MAX || settled.len() > SETTLED_ROWS_MAX {
            return broken("more requests than a node may keep");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Fence;

    fn delta(number: u64) -> Read {
        let resource = ResourceReport {
            id: "board".parse().unwrap(),
            labels: Default::default(),
            max_shared: 1,
            fence: Fence(0),
            grantable: true,
            drained: false,
            queue_length: 0,
            reserved: 0,
            next_window: None,
            device: None,
            environment: Default::default(),
            identity: None,
            failure: None,
            prepared_ms: 0,
            leases: vec![],
        };
        let delta = Delta { incarnation: 1, number, change: crate::wire::report::Changed::Resource(resource) };
        Read { at: RunTime(Duration::from_secs(number)), delta }
    }

    fn numbers(ready: Ready) -> Vec<u64> {
        let Ready::Deltas(deltas) = ready else { panic!("{ready:?}") };
        deltas.iter().map(|read| read.delta.number).collect()
    }

    #[test]
    fn deltas_before_the_snapshot_wait_and_those_at_or_below_its_cut_are_ignored() {
        let mut order = Order::Unknown { early: vec![] };
        assert!(numbers(order.delta(delta(4))).is_empty());
        assert!(numbers(order.delta(delta(5))).is_empty());
        assert!(numbers(order.delta(delta(6))).is_empty());
        let Ready::Deltas(deltas) = order.snapshot(4) else { panic!("a gap") };
        assert_eq!(deltas, [delta(5), delta(6)], "each with the time it was read at");
        assert!(numbers(order.delta(delta(6))).is_empty(), "a duplicate");
        assert_eq!(numbers(order.delta(delta(7))), [7]);
    }

    #[test]
    fn a_gap_is_seen_and_nothing_is_lost_that_came_after_it() {
        let mut order = Order::Next(5);
        assert_eq!(order.delta(delta(7)), Ready::Gap);
        assert!(numbers(order.delta(delta(8))).is_empty());
        assert_eq!(numbers(order.snapshot(6)), [7, 8]);
        assert_eq!(order.delta(delta(10)), Ready::Gap);
        assert_eq!(order.snapshot(8), Ready::Gap, "it is still there");
    }

    #[test]
    fn a_snapshot_that_deltas_have_overtaken_does_not_turn_the_count_back() {
        let mut order = Order::Next(8);
        assert!(numbers(order.snapshot(5)).is_empty());
        assert_eq!(numbers(order.delta(delta(8))), [8]);
        assert!(numbers(order.snapshot(20)).is_empty());
        assert_eq!(numbers(order.delta(delta(21))), [21]);
    }
}
