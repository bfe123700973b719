//! A node in this process, on a paused clock and a database of its own, spoken to through its desk.

use std::sync::Arc;
use std::time::Duration;

use ractor::RpcReplyPort;
use tokio::sync::oneshot::Receiver;

use super::super::message::{Asked, DeskMessage, Leftovers, LinkNow, Origin, RequestNow, Said, Until};
use super::super::{Host, HostArguments, start};
use super::hands::Scripted;
use crate::admission::ticket::TicketKey;
use crate::admission::{RequestState, Rules};
use crate::clock::Clock;
use crate::model::{
    Ask, Authority, Caller, Code, Door, EventKind, Fence, LeaseRecord, LeftOut, Mode, NodeName, Priority, RequestId,
    Requester, ResourceSpec, Target, WaitPolicy,
};
use crate::store::EventFilter;

/// The gateway of every lab that has one.
pub(super) const GATEWAY: &str = "gateway";
pub(super) const HOUR: Duration = Duration::from_secs(3600);

pub(super) struct Lab {
    pub(super) host: Host,
    pub(super) clock: Clock,
    resources: Vec<ResourceSpec>,
    gateway: Option<NodeName>,
    rules: Rules,
    pub(super) hands: Arc<Scripted>,
    directory: tempfile::TempDir,
}

/// A node that does not run.
pub(super) struct Stopped {
    pub(super) clock: Clock,
    resources: Vec<ResourceSpec>,
    gateway: Option<NodeName>,
    rules: Rules,
    pub(super) hands: Arc<Scripted>,
    directory: tempfile::TempDir,
}

impl Stopped {
    /// The lab file names these from the next start on.
    pub(super) fn names(self, resources: &[ResourceSpec]) -> Self {
        Self { resources: resources.to_vec(), ..self }
    }

    pub(super) async fn start(self) -> Lab {
        let Self { clock, resources, gateway, rules, hands, directory } = self;
        let host = begin(&resources, gateway.clone(), &rules, &hands, &directory, &clock).await;
        Lab { host, clock, resources, gateway, rules, hands, directory }
    }
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum End {
    Lease(Box<LeaseRecord>),
    Refused(Code),
    Cancelled,
}

impl End {
    pub(super) fn into_lease(self) -> Option<LeaseRecord> {
        if let End::Lease(lease) = self { Some(*lease) } else { None }
    }

    pub(super) fn lease(self) -> LeaseRecord {
        match self {
            End::Lease(lease) => *lease,
            other => panic!("no lease: {other:?}"),
        }
    }
}

/// What the database refuses until it is dropped.
pub(super) struct Fault {
    database: rusqlite::Connection,
}

impl Drop for Fault {
    fn drop(&mut self) {
        self.database.execute_batch("DROP TRIGGER fault").unwrap();
    }
}

impl Lab {
    pub(super) async fn new(resources: &[ResourceSpec], rules: Rules) -> Self {
        Self::of(resources, rules, Some(GATEWAY)).await
    }

    /// One that has no gateway.
    pub(super) async fn standalone(resources: &[ResourceSpec], rules: Rules) -> Self {
        Self::of(resources, rules, None).await
    }

    async fn of(resources: &[ResourceSpec], rules: Rules, gateway: Option<&str>) -> Self {
        let gateway = gateway.map(|name| name.parse().unwrap());
        // What is flushed there costs nothing, and no test pulls the plug.
        let memory = std::path::Path::new("/dev/shm");
        let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let clock = Clock::tokio("2026-01-01T00:00:00Z".parse().unwrap());
        let hands = Scripted::new();
        let host = begin(resources, gateway.clone(), &rules, &hands, &directory, &clock).await;
        Self { host, clock, resources: resources.to_vec(), gateway, rules, hands, directory }
    }

    /// Ends the node in good order and starts it on the same database.
    pub(super) async fn restart(self) -> Self {
        self.stop().await.start().await
    }

    pub(super) async fn stop(self) -> Stopped {
        let Self { host, clock, resources, gateway, rules, hands, directory } = self;
        host.desk.drain().unwrap();
        host.desk_task.await.unwrap();
        host.store_end.wait().await.unwrap();
        Stopped { clock, resources, gateway, rules, hands, directory }
    }

    pub(super) fn send<T: ractor::Message>(&self, build: impl FnOnce(RpcReplyPort<T>) -> DeskMessage) -> Receiver<T> {
        let (reply, answer) = ractor::concurrency::oneshot();
        self.host.desk.cast(build(reply.into())).unwrap();
        answer
    }

    pub(super) fn begin(&self, ask: Ask) -> Receiver<Said<Asked>> {
        self.send(|reply| DeskMessage::Request { ask: Box::new(ask), origin: Origin::Client, reply })
    }

    /// The same as the gateway's, in its first attempt.
    pub(super) fn begin_dispatch(&self, ask: Ask, attempt: u32) -> Receiver<Said<Asked>> {
        let origin = Origin::Gateway { attempt, fingerprint: ask.fingerprint(), not_on: None };
        self.send(|reply| DeskMessage::Request { ask: Box::new(ask), origin, reply })
    }

    /// Asks as the gateway does; the first answer.
    pub(super) async fn dispatch(&self, ask: Ask) -> Result<Asked, Code> {
        said(self.begin_dispatch(ask, 1)).await
    }

    /// The uplink says how its link is.
    pub(super) fn link(&self, now: LinkNow) {
        self.host.desk.cast(DeskMessage::Link(now)).unwrap();
    }

    /// The gateway has taken a snapshot in.
    pub(super) fn link_up(&self) {
        self.link(LinkNow::Up);
        self.link(LinkNow::Acknowledged);
    }

    /// Lets time pass in which the gateway is heard, as the uplink says it.
    pub(super) async fn hears(&self, span: Duration) {
        let every = Duration::from_millis(200);
        let until = self.clock.now().run + span;
        while let left @ 1.. = until.left(self.clock.now().run).as_millis() {
            let since = self.clock.now().run;
            self.pass(every.min(Duration::from_millis(left as u64))).await;
            self.link(LinkNow::Heard(since));
        }
        self.settle().await;
    }

    /// Takes the whole worker out, or brings it back.
    pub(super) async fn drain_worker(&self, drained: bool) -> Result<bool, Code> {
        said(self.send(|reply| DeskMessage::DrainWorker(drained, reply))).await
    }

    /// The first answer.
    pub(super) async fn ask(&self, ask: Ask) -> Result<Asked, Code> {
        said(self.begin(ask)).await
    }

    /// Asks and gets a lease at once.
    pub(super) async fn lease(&self, ask: Ask) -> LeaseRecord {
        match self.ask(ask).await {
            Ok(Asked::Granted(grant)) => grant.lease,
            other => panic!("no lease at once: {other:?}"),
        }
    }

    /// Asks and hears that it waits.
    pub(super) async fn wait(&self, ask: Ask) -> RequestId {
        match self.ask(ask).await {
            Ok(Asked::Open(id)) => id,
            other => panic!("it does not wait: {other:?}"),
        }
    }

    /// Asks, stands in a waiting room, and hears where.
    pub(super) async fn join(&self, ask: Ask) -> usize {
        match self.ask(ask).await {
            Ok(Asked::Pending(pending)) => pending.position,
            other => panic!("it does not stand in a waiting room: {other:?}"),
        }
    }

    pub(super) fn watch(&self, id: &RequestId) -> Receiver<Option<RequestNow>> {
        self.send(|reply| DeskMessage::Watch(id.clone(), Until::Settled, reply))
    }

    /// Waits for the end of a request, at most ten minutes.
    pub(super) async fn end(&self, id: &RequestId) -> End {
        end_of(reply(self.watch(id)).await)
    }

    /// Where a request stands, without waiting for it.
    pub(super) async fn state(&self, id: &RequestId) -> Option<End> {
        let now = reply(self.send(|reply| DeskMessage::Peek(id.clone(), reply))).await;
        (!matches!(&now, Some(now) if now.request.state == RequestState::Open)).then(|| end_of(now))
    }

    /// The ticket of one who waits.
    pub(super) async fn ticket(&self, id: &RequestId) -> crate::model::Ticket {
        let now = reply(self.send(|reply| DeskMessage::Peek(id.clone(), reply))).await.unwrap();
        self.host.tickets.issue(&now.waiting.unwrap().place)
    }

    pub(super) fn begin_cancel(&self, request: &RequestId) -> Receiver<Said<()>> {
        let (request, authority) = (request.clone(), Authority::Client(Caller::admin()));
        self.send(|reply| DeskMessage::Cancel { request, authority, reply })
    }

    pub(super) async fn cancel(&self, request: &RequestId) -> Result<(), Code> {
        said(self.begin_cancel(request)).await
    }

    pub(super) fn begin_release(&self, lease: &LeaseRecord) -> Receiver<Said<super::super::message::ReleasedNow>> {
        let (lease, fence, authority) = (lease.id.clone(), Some(lease.fence), Authority::Client(Caller::admin()));
        self.send(|reply| DeskMessage::Release { lease, fence, authority, reply })
    }

    /// Releases; the one who was taken first of those who wait.
    pub(super) async fn release(&self, lease: &LeaseRecord) -> Result<Option<String>, Code> {
        let released = said(self.begin_release(lease)).await?;
        Ok(released.admitted.map(|holder| holder.to_string()))
    }

    pub(super) fn begin_renew(&self, lease: &LeaseRecord) -> Receiver<Said<super::super::message::Grant>> {
        let (lease, fence, authority) = (lease.id.clone(), Some(lease.fence), Authority::Client(Caller::admin()));
        self.send(|reply| DeskMessage::Renew { lease, fence, ttl: None, allow_shorter: false, authority, reply })
    }

    pub(super) async fn renew(&self, lease: &LeaseRecord) -> Result<Fence, Code> {
        said(self.begin_renew(lease)).await.map(|grant| grant.lease.fence)
    }

    pub(super) async fn leave(&self, requester: &str, resource: &str) -> Result<bool, Code> {
        let (requester, address) = (requester.parse().unwrap(), resource.parse().unwrap());
        said(self.send(|reply| DeskMessage::Leave { requester, address, reply })).await
    }

    pub(super) async fn drain(&self, resource: &str, drained: bool) -> Result<(), Code> {
        let address = resource.parse().unwrap();
        said(self.send(|reply| DeskMessage::Drain { address, drained, reply })).await.map(drop)
    }

    /// The resource as it is shown.
    pub(super) async fn shown(&self, resource: &str) -> super::super::message::ResourceNow {
        let address = resource.parse().unwrap();
        reply(self.send(|reply| DeskMessage::Resource(address, reply))).await.unwrap()
    }

    /// What the resource is doing.
    pub(super) async fn device(&self, resource: &str) -> &'static str {
        self.shown(resource).await.state.as_str()
    }

    /// An operator says that a device is as it should be.
    pub(super) async fn clear(&self, resource: &str) -> Result<(), Code> {
        let address = resource.parse().unwrap();
        said(self.send(|reply| DeskMessage::Clear { address, reply })).await.map(drop)
    }

    pub(super) fn panic(&self, resource: &str) {
        self.host.desk.cast(DeskMessage::PanicResource(resource.parse().unwrap())).unwrap();
    }

    /// The active leases of a resource.
    pub(super) async fn leases_on(&self, resource: &str) -> Vec<LeaseRecord> {
        let leases = reply(self.send(DeskMessage::Leases)).await.into_iter().map(|grant| grant.lease);
        leases.filter(|lease| lease.resource_id.as_str() == resource).collect()
    }

    /// Those who wait for a resource by its name, in their order.
    pub(super) async fn room(&self, resource: &str) -> Vec<String> {
        let address = resource.parse().unwrap();
        let (_, waiters) = reply(self.send(|reply| DeskMessage::WaitingRoom(address, reply))).await.unwrap();
        waiters.into_iter().map(|waiter| waiter.holder.to_string()).collect()
    }

    /// What the desk still has of requests and commands.
    pub(super) async fn leftovers(&self) -> Leftovers {
        reply(self.send(DeskMessage::Leftovers)).await
    }

    /// Lets time pass. The clock stands still while anything is to be done, so nothing is under way when it moves.
    pub(super) async fn pass(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }

    /// Lets everything be done that can be done now.
    pub(super) async fn settle(&self) {
        self.pass(Duration::from_millis(1)).await;
    }

    /// Lets every actor have its turn, while commits may be held.
    pub(super) async fn turn(&self) {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    /// Keeps every commit waiting until it is dropped.
    pub(super) fn hold_commits(&self) -> rusqlite::Connection {
        let other = self.database();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        other
    }

    /// The database, past the node.
    pub(super) fn database(&self) -> rusqlite::Connection {
        let database = rusqlite::Connection::open(self.directory.path().join("berth.db")).unwrap();
        database.busy_timeout(Duration::from_secs(5)).unwrap();
        database
    }

    /// The kinds of all events so far.
    pub(super) async fn events(&self) -> Vec<EventKind> {
        let filter = EventFilter { private: true, ..EventFilter::default() };
        let (mut kinds, mut after) = (Vec::new(), 0);
        loop {
            let page = self.host.events.read(after, 1_000, &filter).await.unwrap();
            let Some(last) = page.last() else { return kinds };
            after = last.seq;
            kinds.extend(page.iter().map(|event| event.kind));
        }
    }

    /// From now on a lease that fulfils `condition` breaks a constraint.
    pub(super) fn forbid_leases(&self, condition: &str) -> Fault {
        self.fault(&format!("BEFORE INSERT ON lease WHEN {condition} BEGIN SELECT RAISE(ABORT, 'a fault'); END"))
    }

    /// From now on a booking that fulfils `condition` breaks a constraint.
    pub(super) fn forbid_bookings(&self, condition: &str) -> Fault {
        self.fault(&format!("BEFORE UPDATE ON booking WHEN {condition} BEGIN SELECT RAISE(ABORT, 'a fault'); END"))
    }

    /// From now on a lease that fulfils `condition` cannot be written, as if the disk failed.
    pub(super) fn lose_leases(&self, condition: &str) -> Fault {
        self.fault(&format!("BEFORE INSERT ON lease WHEN {condition} BEGIN DELETE FROM nothing_there; END"))
    }

    /// From now on this statement on this table cannot be written, as if the disk failed.
    pub(super) fn lose(&self, statement: &str, table: &str) -> Fault {
        self.fault(&format!("BEFORE {statement} ON {table} BEGIN DELETE FROM nothing_there; END"))
    }

    fn fault(&self, when: &str) -> Fault {
        let database = self.database();
        database.execute_batch(&format!("CREATE TRIGGER fault {when}")).unwrap();
        Fault { database }
    }
}

async fn begin(
    resources: &[ResourceSpec],
    gateway: Option<NodeName>,
    rules: &Rules,
    hands: &Arc<Scripted>,
    directory: &tempfile::TempDir,
    clock: &Clock,
) -> Host {
    let arguments = HostArguments {
        name: "rack-1".parse().unwrap(),
        database: directory.path().join("berth.db"),
        resources: resources.to_vec(),
        gateway,
        rules: rules.clone(),
        tickets: TicketKey::new(&[7; 32]),
        hands: Arc::clone(hands) as Arc<dyn crate::driver::Hands>,
        clock: clock.clone(),
    };
    start(arguments).await.unwrap()
}

/// An answer, which comes within ten minutes of the node's clock.
pub(super) async fn reply<T>(answer: Receiver<T>) -> T {
    tokio::time::timeout(Duration::from_secs(600), answer).await.expect("an answer in time").expect("an answer")
}

pub(super) async fn said<T>(answer: Receiver<Said<T>>) -> Result<T, Code> {
    reply(answer).await.result.map_err(|refusal| refusal.code)
}

fn end_of(now: Option<RequestNow>) -> End {
    match now.map(|now| now.request.state) {
        Some(RequestState::Granted(first)) => End::Lease(Box::new(first.lease)),
        Some(RequestState::Failed(refusal)) => End::Refused(refusal.code),
        Some(RequestState::Cancelled) => End::Cancelled,
        Some(RequestState::Open) => panic!("it is open"),
        None => panic!("it is not known"),
    }
}

/// A resource with labels like `a=1,b=2`.
pub(super) fn resource(id: &str, labels: &str, max_shared: u32) -> ResourceSpec {
    let pairs = labels.split(',').filter_map(|pair| pair.split_once('='));
    ResourceSpec {
        labels: pairs.map(|(key, value)| (key.parse().unwrap(), value.parse().unwrap())).collect(),
        max_shared: max_shared.try_into().unwrap(),
        ..ResourceSpec::bare(id.parse().unwrap())
    }
}

/// A request by name, or where `target` has an operator by selector, that waits as long as it takes.
pub(super) fn waits(requester: &str, target: &str) -> Ask {
    let by_selector = target.contains(['=', '>', '<']);
    Ask {
        id: RequestId::generate(),
        door: Door::Request,
        requester: requester.parse().unwrap(),
        target: match by_selector {
            true => Target::Select(target.parse().unwrap()),
            false => Target::Resource(target.parse().unwrap()),
        },
        mode: Mode::Exclusive,
        ttl: HOUR,
        priority: Priority::default(),
        lease_id: None,
        wait: WaitPolicy::Wait { timeout: None },
        note: None,
        key: None,
        ticket: None,
        allow_shorter: false,
        by_admin: false,
        left_out: LeftOut::default(),
    }
}

/// The same, that gives up after a while.
pub(super) fn waits_for(requester: &str, target: &str, timeout: Duration) -> Ask {
    Ask { wait: WaitPolicy::Wait { timeout: Some(timeout) }, ..waits(requester, target) }
}

/// An acquire that does not wait.
pub(super) fn acquires(requester: &str, resource: &str) -> Ask {
    Ask { door: Door::Acquire, wait: WaitPolicy::Fail, ..waits(requester, resource) }
}

/// An acquire that stands in the waiting room.
pub(super) fn joins(requester: &str, resource: &str) -> Ask {
    Ask { wait: WaitPolicy::JoinWaitingRoom, ..acquires(requester, resource) }
}

pub(super) fn shared(ask: Ask) -> Ask {
    Ask { mode: Mode::Shared, ..ask }
}

pub(super) fn ranked(ask: Ask, priority: f64) -> Ask {
    Ask { priority: priority.try_into().unwrap(), ..ask }
}

pub(super) fn holder(lease: &LeaseRecord) -> String {
    Requester::to_string(&lease.holder)
}
