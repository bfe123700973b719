//! A worker with one free board whose answers to dispatches a test has laid ready: its link is real, its desk is not.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use berth::admission::ticket::TicketKey;
use berth::clock::Clock;
use berth::host::Subscription;
use berth::host::exec::ExecDoor;
use berth::host::message::{Asked, DeskMessage, Grant, Origin, ReleasedNow, Said};
use berth::host::uplink::{Standings, Uplink};
use berth::link::dial::Dialer;
use berth::model::{Ask, Code, Fence, Fingerprint, LeaseId, LeaseRecord, NodeRole, Refusal};
use berth::store::Store;
use berth::wire::report::{Changed, Delta, Report, ResourceReport};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::lab::{Lab, guard};
use crate::liar::report;
use crate::strangers::identity;

/// What a worker is asked, and what it answers. With nothing laid ready it does not answer.
#[derive(Clone, Default)]
pub struct Script {
    asked: Arc<Mutex<Vec<(Ask, u32)>>>,
    settled: Arc<Mutex<Vec<u32>>>,
    answers: Arc<Mutex<VecDeque<Laid>>>,
    unanswered: Arc<Mutex<VecDeque<Unanswered>>>,
    released: Arc<Mutex<Vec<Released>>>,
}

/// A lease that was to be released, and the grant that was meant.
pub type Released = (LeaseId, Option<Fence>);

/// An answer that is laid ready.
enum Laid {
    Refuses(Code),
    /// Grants under this id.
    Grants(LeaseId),
}

/// A dispatch that has not been answered.
struct Unanswered {
    ask: Ask,
    fingerprint: Fingerprint,
    clock: Clock,
    reply: RpcReplyPort<Said<Asked>>,
}

impl Unanswered {
    fn answer(self, laid: Laid, number: u64) {
        let result = match laid {
            Laid::Refuses(code) => Err(Refusal::new(code, "as the test says")),
            Laid::Grants(id) => Ok(Asked::Granted(self.grant(id))),
        };
        let _ = self.reply.send(Said { result, number });
    }

    /// The board for whoever asked, flagged as one whose id was chosen.
    fn grant(&self, id: LeaseId) -> Grant {
        let now = self.clock.now();
        let lease = LeaseRecord {
            id,
            request_id: self.ask.id.clone(),
            resource_id: "odd-board".parse().unwrap(),
            mode: self.ask.mode,
            holder: self.ask.requester.clone(),
            granted_at: now.wall,
            renewed_at: now.wall,
            ttl: self.ask.ttl,
            fence: Fence(7),
            note: None,
            id_chosen_by_requester: true,
            idempotency_key: self.ask.key.clone(),
            fingerprint: self.fingerprint,
            asked_ttl: None,
        };
        Grant {
            lease,
            deadline: now.run + self.ask.ttl,
            expires_at: now.wall,
            labels: Default::default(),
            environment: Default::default(),
            notices: Vec::new(),
        }
    }
}

impl Script {
    /// The next dispatch is refused with this.
    pub fn refuses(&self, code: Code) {
        self.answers.lock().unwrap().push_back(Laid::Refuses(code));
    }

    /// The next dispatch is granted under this id, whatever was asked for.
    pub fn grants(&self, id: &str) {
        self.answers.lock().unwrap().push_back(Laid::Grants(id.parse().unwrap()));
    }

    /// The oldest dispatch without an answer is granted now, under this id.
    pub fn grants_now(&self, id: &str) {
        let unanswered = self.unanswered.lock().unwrap().pop_front().expect("a dispatch waits for its answer");
        unanswered.answer(Laid::Grants(id.parse().unwrap()), 0);
    }

    /// The leases that were to be released so far.
    pub fn released(&self) -> Vec<Released> {
        self.released.lock().unwrap().clone()
    }

    /// The dispatches so far, with their attempts.
    pub fn asked(&self) -> Vec<(Ask, u32)> {
        self.asked.lock().unwrap().clone()
    }

    /// The attempts that were to be settled so far.
    pub fn settled(&self) -> Vec<u32> {
        self.settled.lock().unwrap().clone()
    }
}

/// The worker, as long as this lives.
pub struct Refuser {
    uplink: JoinHandle<()>,
    desk: ActorRef<DeskMessage>,
    reports: Arc<Mutex<Option<mpsc::Sender<Report>>>>,
    number: Arc<Mutex<u64>>,
    _store: (Store, tempfile::TempDir),
}

impl Drop for Refuser {
    fn drop(&mut self) {
        self.uplink.abort();
        self.desk.stop(None);
    }
}

/// The board as it is reported.
pub fn board(platform: &str) -> ResourceReport {
    ResourceReport {
        labels: [("platform".parse().unwrap(), platform.parse().unwrap())].into(),
        ..report("odd-board", vec![])
    }
}

impl Refuser {
    /// Takes the place of a worker of the lab's, with this board.
    pub async fn join(lab: &Lab, name: &str, report: ResourceReport, script: &Script) -> Self {
        let (reports, number) = (Arc::default(), Arc::new(Mutex::new(0)));
        let arguments = DeskState {
            report,
            script: script.clone(),
            reports: Arc::clone(&reports),
            number: Arc::clone(&number),
            clock: lab.clock.clone(),
        };
        let (desk, _) = Actor::spawn(None, Desk, arguments).await.unwrap();
        let identity = identity(&lab.file.state_dir, "cluster", NodeRole::Worker, name);
        let (address, gateway) = (lab.file.gateway.as_ref().unwrap().link.to_string(), "gateway".parse().unwrap());
        let directory = tempfile::tempdir().unwrap();
        let (store, events, ..) = Store::open(&directory.path().join("berth.db"), lab.clock.now()).unwrap();
        let (standings, _) = Standings::new("gateway".parse().unwrap(), address.clone(), &lab.clock);
        let uplink = Uplink {
            dialer: Arc::new(Dialer::new(&identity, &gateway, &address, &lab.weather.udp()).unwrap()),
            address,
            gateway,
            desk: desk.clone(),
            incarnation: u64::MAX,
            clock: lab.clock.clone(),
            rules: crate::pretender::up_to(std::time::Duration::from_secs(24 * 3600)),
            events,
            tickets: Arc::new(TicketKey::new(&[7; 32])),
            standings,
            execs: ExecDoor { desk: desk.clone(), guard: guard() },
        };
        let uplink = tokio::spawn(async move { uplink.run(uuid::Uuid::new_v4()).await });
        Self { uplink, desk, reports, number, _store: (store, directory) }
    }

    /// Reports the board anew.
    pub async fn reports(&self, report: ResourceReport) {
        let number = {
            let mut number = self.number.lock().unwrap();
            *number += 1;
            *number
        };
        let sender = self.reports.lock().unwrap().clone().expect("somebody has subscribed");
        let delta = Delta { incarnation: u64::MAX, number, change: Changed::Resource(report) };
        sender.send(Report::Delta(delta)).await.unwrap();
    }
}

struct Desk;

struct DeskState {
    report: ResourceReport,
    script: Script,
    reports: Arc<Mutex<Option<mpsc::Sender<Report>>>>,
    number: Arc<Mutex<u64>>,
    clock: Clock,
}

impl Actor for Desk {
    type Msg = DeskMessage;
    type State = DeskState;
    type Arguments = DeskState;

    async fn pre_start(&self, _: ActorRef<DeskMessage>, state: DeskState) -> Result<DeskState, ActorProcessingErr> {
        Ok(state)
    }

    async fn handle(
        &self,
        _: ActorRef<DeskMessage>,
        message: DeskMessage,
        state: &mut DeskState,
    ) -> Result<(), ActorProcessingErr> {
        let number = *state.number.lock().unwrap();
        match message {
            DeskMessage::Digest | DeskMessage::Link(_) => {}
            DeskMessage::DrainWorker(drained, reply) => drop(reply.send(Said { result: Ok(drained), number })),
            DeskMessage::Subscribe(_, reply) => {
                let (sender, reports) = mpsc::channel(8);
                *state.reports.lock().unwrap() = Some(sender);
                let resources = vec![state.report.clone()];
                let (incarnation, waiting, settled) = (u64::MAX, Vec::new(), Vec::new());
                let _ = reply.send(Subscription { incarnation, number, resources, waiting, settled, reports });
            }
            DeskMessage::Request { ask, origin: Origin::Gateway { attempt, fingerprint, .. }, reply } => {
                state.script.asked.lock().unwrap().push(((*ask).clone(), attempt));
                let unanswered = Unanswered { ask: *ask, fingerprint, clock: state.clock.clone(), reply };
                match state.script.answers.lock().unwrap().pop_front() {
                    Some(laid) => unanswered.answer(laid, number),
                    // Kept: nobody hears what becomes of it before the test says so.
                    None => state.script.unanswered.lock().unwrap().push_back(unanswered),
                }
            }
            DeskMessage::Release { lease, fence, reply, .. } => {
                state.script.released.lock().unwrap().push((lease.clone(), fence));
                let refusal = Refusal::new(Code::UnknownLease, "as the test says");
                let _ = reply.send(Said::<ReleasedNow> { result: Err(refusal), number });
            }
            DeskMessage::Settle { attempt, reply, .. } => {
                state.script.settled.lock().unwrap().push(attempt);
                let _ = reply.send(Said { result: Ok(None), number });
            }
            other => panic!("a pretended desk is asked {other:?}"),
        }
        Ok(())
    }
}
