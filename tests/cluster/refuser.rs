//! A worker with one free board whose answers to dispatches a test has laid ready: its link is real, its desk is not.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use berth::admission::ticket::TicketKey;
use berth::host::Subscription;
use berth::host::message::{Asked, DeskMessage, Origin, Said};
use berth::host::uplink::{Standings, Uplink};
use berth::link::dial::Dialer;
use berth::model::{Ask, Code, Fence, NodeRole, Refusal};
use berth::store::Store;
use berth::wire::report::{Changed, Delta, Report, ResourceReport};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::lab::Lab;
use crate::strangers::identity;

/// What a worker is asked, and what it answers. With nothing laid ready it does not answer.
#[derive(Clone, Default)]
pub struct Script {
    asked: Arc<Mutex<Vec<(Ask, u32)>>>,
    settled: Arc<Mutex<Vec<u32>>>,
    answers: Arc<Mutex<VecDeque<Code>>>,
}

impl Script {
    /// The next dispatch is refused with this.
    pub fn refuses(&self, code: Code) {
        self.answers.lock().unwrap().push_back(code);
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
        id: "odd-board".parse().unwrap(),
        labels: [("platform".parse().unwrap(), platform.parse().unwrap())].into(),
        max_shared: 1,
        fence: Fence(0),
        grantable: true,
        drained: false,
        queue_length: 0,
        reserved: 0,
        next_window: None,
        leases: vec![],
    }
}

impl Refuser {
    /// Takes the place of a worker of the lab's, with this board.
    pub async fn join(lab: &Lab, name: &str, report: ResourceReport, script: &Script) -> Self {
        let (reports, number) = (Arc::default(), Arc::new(Mutex::new(0)));
        let arguments =
            DeskState { report, script: script.clone(), reports: Arc::clone(&reports), number: Arc::clone(&number) };
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
            max_ttl: std::time::Duration::from_secs(24 * 3600),
            events,
            tickets: Arc::new(TicketKey::new(&[7; 32])),
            standings,
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
            DeskMessage::Request { ask, origin: Origin::Gateway { attempt, .. }, reply } => {
                state.script.asked.lock().unwrap().push((*ask, attempt));
                if let Some(code) = state.script.answers.lock().unwrap().pop_front() {
                    let result: Result<Asked, Refusal> = Err(Refusal::new(code, "as the test says"));
                    let _ = reply.send(Said { result, number });
                } else {
                    // Kept for ever: nobody hears what becomes of it.
                    std::mem::forget(reply);
                }
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
