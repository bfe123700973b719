//! One worker's link, as an actor: lets it in, hands its calls to the link, and tells the front what comes back.

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::follow::{Follow, follow};
use super::message::FrontMessage;
use super::rejections::Rejection;
use crate::clock::Clock;
use crate::limits::CALL_BOUND;
use crate::link::ask::Asker;
use crate::link::exec::ExecStreams;
use crate::link::listen::{Closer, GatewayLink, Guest};
use crate::model::NodeName;
use crate::store::Relays;
use crate::trust::Sha256Print;
use crate::trust::roster::Stranger;
use crate::wire::PROTOCOL;
use crate::wire::call::{Answer, Call};
use crate::wire::hello::{Hello, Welcome};

/// Names one link of one worker, in this life of the gateway; a later one has a higher number.
pub type LinkId = u64;
/// Names one call of the front's.
pub type CallId = u64;

/// The actor.
#[derive(Debug)]
pub struct Session;

/// Its protocol.
#[derive(Debug)]
pub enum SessionMessage {
    /// From the listener: the worker has said hello.
    Knock(Guest),
    /// From itself: the welcome has been sent, and the link is up. It said whether the worker is drained.
    Linked(Box<GatewayLink>, Hello, bool),
    /// From the front: ask the worker, answer with `Answered`.
    Ask {
        /// Comes back with the answer.
        id: CallId,
        /// What is asked.
        call: Call,
        /// How long the answer may take.
        bound: Duration,
    },
    /// From whoever has a tool run: the streams for that, if the link is up.
    Execs(RpcReplyPort<Option<ExecStreams>>),
    /// From the front: ask the worker for a new snapshot.
    Resync,
    /// From the front: the worker is out, or back.
    Drained(bool),
    /// From the front: the worker is off the roster. Its link ends, and the session too.
    Leave(String),
    /// From itself: the link has ended.
    Ended(LinkId, String),
}

/// What became of a call.
#[derive(Debug)]
pub enum Outcome {
    /// The worker has answered; with the number of the change that it made.
    Answered(Box<Answer>, u64),
    /// It certainly did not reach the worker.
    NotSent,
    /// Nobody knows.
    Lost,
}

/// What a session is started with.
pub struct SessionArguments {
    /// The worker.
    pub worker: NodeName,
    /// The gateway.
    pub gateway: NodeName,
    /// How far the worker's events are stored here.
    pub relays: Relays,
    /// Who is told.
    pub front: ActorRef<FrontMessage>,
    /// Stamps what the worker reports.
    pub clock: Clock,
    /// The key by which the worker is known; without one the first guest's is.
    pub key: Option<Sha256Print>,
    /// True when the worker is out.
    pub drained: bool,
    /// Its links are numbered from here.
    pub links: LinkId,
}

/// A session's state.
pub struct SessionState {
    around: SessionArguments,
    link: Option<Up>,
    links: LinkId,
    incarnation: u64,
}

/// The link that is up.
struct Up {
    id: LinkId,
    closer: Closer,
    asker: Arc<Asker>,
    execs: ExecStreams,
    resync: mpsc::Sender<()>,
    task: JoinHandle<()>,
}

impl Drop for Up {
    fn drop(&mut self) {
        self.closer.close("replaced by a newer link of the same worker");
        self.task.abort();
    }
}

impl Actor for Session {
    type Msg = SessionMessage;
    type State = SessionState;
    type Arguments = SessionArguments;

    async fn pre_start(
        &self,
        _myself: ActorRef<SessionMessage>,
        around: SessionArguments,
    ) -> Result<SessionState, ActorProcessingErr> {
        let links = around.links;
        Ok(SessionState { around, link: None, links, incarnation: 0 })
    }

    async fn handle(
        &self,
        myself: ActorRef<SessionMessage>,
        message: SessionMessage,
        state: &mut SessionState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SessionMessage::Knock(guest) => state.knock(&myself, guest),
            SessionMessage::Linked(link, hello, drained) => {
                state.linked(&myself, *link, &hello);
                if drained != state.around.drained {
                    state.tell_drained();
                }
            }
            SessionMessage::Drained(drained) => {
                state.around.drained = drained;
                state.tell_drained();
            }
            SessionMessage::Leave(why) => {
                if let Some(up) = state.link.take() {
                    up.closer.close(&why);
                }
                myself.stop(Some(why));
            }
            SessionMessage::Ask { id, call, bound } => state.ask(id, call, bound),
            SessionMessage::Execs(reply) => drop(reply.send(state.link.as_ref().map(|up| up.execs.clone()))),
            SessionMessage::Resync => {
                if let Some(up) = &state.link {
                    // One that waits already is enough.
                    let _ = up.resync.try_send(());
                }
            }
            SessionMessage::Ended(id, why) => {
                if state.link.as_ref().is_some_and(|up| up.id == id) {
                    state.link = None;
                    state.tell(FrontMessage::Down { worker: state.around.worker.clone(), link: id, why });
                }
            }
        }
        Ok(())
    }
}

impl SessionState {
    /// Judges a hello; the welcome itself is sent aside, because no handler waits for the network.
    fn knock(&mut self, myself: &ActorRef<SessionMessage>, guest: Guest) {
        let hello = guest.hello.clone();
        let welcome = match PROTOCOL.common(hello.protocol) {
            _ if *self.around.key.get_or_insert(guest.key) != guest.key => {
                self.reject(&guest, Stranger::AnotherKey.word());
                Welcome::Refused { why: Stranger::AnotherKey.advice(&self.around.worker) }
            }
            None => {
                self.reject(&guest, "incompatible-protocol");
                self.tell(FrontMessage::Incompatible { worker: self.around.worker.clone(), hello: hello.clone() });
                Welcome::Incompatible { protocol: PROTOCOL }
            }
            Some(_) if hello.incarnation < self.incarnation => {
                self.reject(&guest, "older-incarnation");
                let why = format!(
                    "incarnation {} is older than {}, which has been here: is a copy of the worker's state running?",
                    hello.incarnation, self.incarnation
                );
                Welcome::Refused { why }
            }
            Some(protocol) => {
                let events_after = self.around.relays.after(&self.around.worker);
                Welcome::Accepted { protocol, drained: self.around.drained, events_after }
            }
        };
        let (myself, worker, drained) = (myself.clone(), self.around.worker.clone(), self.around.drained);
        tokio::spawn(async move {
            if matches!(welcome, Welcome::Accepted { .. }) {
                match guest.welcome(welcome).await {
                    Ok(link) => drop(myself.cast(SessionMessage::Linked(Box::new(link), hello, drained))),
                    Err(error) => tracing::info!(%worker, %error, "a worker left before its welcome"),
                }
            } else {
                tracing::debug!(%worker, ?welcome, "refused a worker");
                let _ = guest.decline(welcome).await;
            }
        });
    }

    fn linked(&mut self, myself: &ActorRef<SessionMessage>, link: GatewayLink, hello: &Hello) {
        if hello.incarnation < self.incarnation {
            link.connection().close("an older incarnation");
            return;
        }
        self.incarnation = hello.incarnation;
        self.links += 1;
        let (id, worker) = (self.links, self.around.worker.clone());
        if let Some(former) = self.link.take() {
            let why = "replaced by a newer link".to_owned();
            self.tell(FrontMessage::Down { worker: worker.clone(), link: former.id, why });
        }
        self.tell(FrontMessage::Up { worker: worker.clone(), link: id, hello: hello.clone() });
        let closer = link.connection();
        let snapshots = link.snapshots();
        let (resync, resyncs) = mpsc::channel(1);
        let GatewayLink { control, reports, asker, execs, .. } = link;
        let arguments = Follow {
            worker,
            gateway: self.around.gateway.clone(),
            link: id,
            incarnation: hello.incarnation,
            front: self.around.front.clone(),
            snapshots,
            reports,
            control,
            resyncs,
            clock: self.around.clock.clone(),
        };
        let (myself, ending) = (myself.clone(), closer.clone());
        let calls_ended = asker.ended();
        let task = tokio::spawn(async move {
            let why = tokio::select! {
                why = ending.closed() => why,
                () = calls_ended => {
                    let why = "the call stream ended".to_owned();
                    ending.close(&why);
                    why
                }
                error = follow(arguments) => {
                    let why = error.to_string();
                    ending.close(&why);
                    why
                }
            };
            let _ = myself.cast(SessionMessage::Ended(id, why));
        });
        self.link = Some(Up { id, closer, asker: Arc::new(asker), execs, resync, task });
    }

    fn ask(&self, id: CallId, call: Call, bound: Duration) {
        // The link that is up is one of the latest life of the worker.
        let (worker, incarnation) = (self.around.worker.clone(), self.incarnation);
        let Some(pending) = self.link.as_ref().and_then(|up| up.asker.send(call).ok()) else {
            self.tell(FrontMessage::Answered { worker, incarnation, id, outcome: Outcome::NotSent });
            return;
        };
        let front = self.around.front.clone();
        tokio::spawn(async move {
            let outcome = match pending.answer(bound).await {
                Ok((answer, number)) => Outcome::Answered(Box::new(answer), number),
                Err(_) => Outcome::Lost,
            };
            let _ = front.cast(FrontMessage::Answered { worker, incarnation, id, outcome });
        });
    }

    fn reject(&self, guest: &Guest, reason: &'static str) {
        let rejection = Rejection::of_worker(self.around.worker.clone(), guest.address, reason);
        self.tell(FrontMessage::Rejected(rejection));
    }

    /// Says over the link that is up whether the worker is drained. A link on which that does not get through is given
    /// up, because the next one begins with it.
    fn tell_drained(&self) {
        let told = FrontMessage::ToldDrained(self.around.worker.clone());
        // Without a link the next one begins with it.
        let Some(up) = &self.link else { return self.tell(told) };
        let (drained, closer, worker) = (self.around.drained, up.closer.clone(), self.around.worker.clone());
        let Ok(pending) = up.asker.send(Call::DrainWorker { drained }) else {
            closer.close("the worker cannot be told whether it is drained");
            return self.tell(told);
        };
        let front = self.around.front.clone();
        tokio::spawn(async move {
            match pending.answer(CALL_BOUND).await {
                Ok((Answer::Drained(now), _)) if now == drained => {}
                Ok((answer, _)) => {
                    tracing::warn!(%worker, ?answer, drained, "a worker does not follow its draining");
                    closer.close("the worker has not stored whether it is drained");
                }
                Err(_) => closer.close("the worker did not say whether it is drained"),
            }
            let _ = front.cast(told);
        });
    }

    fn tell(&self, message: FrontMessage) {
        // A front that is gone takes the whole node with it.
        let _ = self.around.front.cast(message);
    }
}
