//! A worker that only says what a test has laid ready: its link is real, its desk is not.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use berth::admission::ticket::TicketKey;
use berth::admission::{LeaseRules, LiveRules, Rules};
use berth::host::Subscription;
use berth::host::exec::ExecDoor;
use berth::host::message::{DeskMessage, Said};
use berth::host::uplink::{Standings, Uplink};
use berth::link::dial::Dialer;
use berth::model::{NodeRole, Refusal};
use berth::store::Store;
use berth::wire::calendar::{CalendarAnswer, CalendarCall};
use berth::wire::report::{LeaseRow, Report, ResourceReport};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::lab::{Lab, guard};
use crate::liar::report;
use crate::strangers::identity;

/// What is asked of a pretended desk, and what it answers; with nothing laid ready it answers a pause as it was asked,
/// and nothing else.
#[derive(Clone, Default)]
pub struct Script {
    asked: Arc<Mutex<Vec<CalendarCall>>>,
    answers: Arc<Mutex<VecDeque<Result<CalendarAnswer, Refusal>>>>,
}

impl Script {
    pub fn answers(&self, answer: CalendarAnswer) {
        self.answers.lock().unwrap().push_back(Ok(answer));
    }

    pub fn refuses(&self, refusal: Refusal) {
        self.answers.lock().unwrap().push_back(Err(refusal));
    }

    /// Forgets what was asked, and what is laid ready.
    pub fn forget(&self) {
        self.asked.lock().unwrap().clear();
        self.answers.lock().unwrap().clear();
    }

    /// What was asked so far.
    pub fn asked(&self) -> Vec<CalendarCall> {
        self.asked.lock().unwrap().clone()
    }
}

/// A worker with one resource, as long as this lives.
pub struct Pretender {
    uplink: JoinHandle<()>,
    desk: ActorRef<DeskMessage>,
    /// Where its log of events is, in which nothing happens.
    _store: (Store, tempfile::TempDir),
}

impl Drop for Pretender {
    fn drop(&mut self) {
        self.uplink.abort();
        self.desk.stop(None);
    }
}

impl Pretender {
    /// Takes the place of a worker of the lab's, with one resource that holds these leases.
    pub async fn join(lab: &Lab, name: &str, resource: &str, script: &Script, leases: Vec<LeaseRow>) -> Self {
        let report = report(resource, leases);
        let (desk, _) = Actor::spawn(None, Desk, (report, script.clone())).await.unwrap();
        let identity = identity(&lab.file.state_dir, "cluster", NodeRole::Worker, name);
        let (address, gateway) = (lab.file.gateway.as_ref().unwrap().link.to_string(), "gateway".parse().unwrap());
        let directory = tempfile::tempdir().unwrap();
        let (store, events, ..) = Store::open(&directory.path().join("berth.db"), lab.clock.now()).unwrap();
        let (standings, _) = Standings::new(gateway, address.clone(), &lab.clock);
        let gateway = "gateway".parse().unwrap();
        let uplink = Uplink {
            dialer: Arc::new(Dialer::new(&identity, &gateway, &address, &lab.weather.udp()).unwrap()),
            address,
            gateway,
            desk: desk.clone(),
            events,
            incarnation: u64::MAX,
            clock: lab.clock.clone(),
            rules: up_to(std::time::Duration::from_secs(60)),
            tickets: Arc::new(TicketKey::new(&[7; 32])),
            standings,
            execs: ExecDoor { desk: desk.clone(), guard: guard() },
        };
        Self {
            uplink: tokio::spawn(async move { uplink.run(uuid::Uuid::new_v4()).await }),
            desk,
            _store: (store, directory),
        }
    }
}

struct Desk;

struct DeskState {
    report: ResourceReport,
    script: Script,
    reports: Option<mpsc::Sender<Report>>,
}

impl Actor for Desk {
    type Msg = DeskMessage;
    type State = DeskState;
    type Arguments = (ResourceReport, Script);

    async fn pre_start(
        &self,
        _: ActorRef<DeskMessage>,
        (report, script): Self::Arguments,
    ) -> Result<DeskState, ActorProcessingErr> {
        Ok(DeskState { report, script, reports: None })
    }

    async fn handle(
        &self,
        _: ActorRef<DeskMessage>,
        message: DeskMessage,
        state: &mut DeskState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            DeskMessage::Subscribe(_, reply) => {
                let (sender, reports) = mpsc::channel(1);
                state.reports = Some(sender);
                let resources = vec![state.report.clone()];
                let (waiting, settled) = (Vec::new(), Vec::new());
                let incarnation = u64::MAX;
                let _ = reply.send(Subscription { incarnation, number: 0, resources, waiting, settled, reports });
            }
            DeskMessage::Digest => {}
            DeskMessage::Calendar(call, reply) => {
                let pause = match call.ask {
                    berth::wire::calendar::CalendarAsk::PauseHolds { paused, .. } => {
                        Some(Ok(CalendarAnswer::Paused(paused)))
                    }
                    _ => None,
                };
                state.script.asked.lock().unwrap().push(*call);
                let laid = state.script.answers.lock().unwrap().pop_front();
                if let Some(result) = laid.or(pause) {
                    let _ = reply.send(Said { result, number: 0 });
                }
            }
            DeskMessage::Link(_) => {}
            DeskMessage::DrainWorker(drained, reply) => drop(reply.send(Said { result: Ok(drained), number: 0 })),
            other => panic!("a pretended desk is asked {other:?}"),
        }
        Ok(())
    }
}

/// The rules of a worker that grants leases up to so long.
pub fn up_to(max_ttl: std::time::Duration) -> Arc<LiveRules> {
    let lease = LeaseRules { max_ttl, ..LeaseRules::default() };
    Arc::new(LiveRules::new(Rules { lease, ..Rules::default() }))
}
