//! A tool at a device, as a conversation (SPEC §7): the WebSocket `berth-exec.v1` at `GET /v1/leases/{id}/exec`.
//!
//! 1. The client sends one text frame `{"tool","args"?,"fence"?}`, within 30 s.
//! 2. The node answers the text frame `{"started":true}`, or `{"error":{"code","message","details"?,"retryAfter"?}}` and
//!    closes.
//! 3. Binary frames carry bytes; the first byte says of what: 0 stdin (from the client), 1 stdout, 2 stderr (from the node).
//!    Text frames of the client: `{"eof":true}`, stdin has ended; `{"signal":"INT"}`, also `TERM`, `HUP`, `QUIT`, `USR1`,
//!    `USR2` and `KILL`, for the tool and what it has started.
//! 4. Either side may have at most 64 KiB on their way: bytes that it has sent, of stdout and stderr together, and that the
//!    other has not acknowledged by the text frame `{"ack":n}`, n bytes more. The client acknowledges what it is done with;
//!    the node what the tool has taken. A client that acknowledges nothing gets 64 KiB, and then the tool waits. One that
//!    sends more than it may is told `BAD_REQUEST`, and the tool is killed.
//! 5. The last text frame of the node is `{"exit":n}`, the tool's own exit code, or 128 and the number of the signal that
//!    ended it; or `{"error":{…}}` with why it was ended: `UNKNOWN_LEASE` with the lease, `EXEC_TIMEOUT`, `STOPPING`,
//!    `WORKER_UNREACHABLE`, `BAD_REQUEST`. Then the node closes.
//!
//! A client that closes, or is not heard for 45 s, has gone, and the tool is killed; the node pings every 15 s. Text frames
//! that a client does not know are to be ignored.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::answer::Answer;
use super::body::parse;
use super::exec::failed;
use super::path::Id;
use super::router::Front;
use super::stream::Opening;
use crate::limits::{BODY_BYTES_MAX, EXEC_WINDOW_BYTES};
use crate::link::exec::ToolLine;
use crate::model::{Caller, Code, ExecSignal, LeaseId, Refusal};
use crate::service::Coordinator;
use crate::service::exec::{ExecBody, STDERR, STDIN, STDOUT, SUBPROTOCOL};
use crate::wire::exec::{FromTool, ToTool};

/// How long the first frame may take to arrive.
const FIRST_BOUND: Duration = Duration::from_secs(30);
/// Between two pings.
const PING_EVERY: Duration = Duration::from_secs(15);
/// A client that has not been heard for so long has gone.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// How long a client may take to read the end and to close.
const FAREWELL_BOUND: Duration = Duration::from_secs(10);
/// The largest frame that is read at all. One that is larger than it may be is answered so; a yet larger one cuts the
/// connection.
const FRAME_BYTES_MAX: usize = 2 * EXEC_WINDOW_BYTES;
/// What is kept of a connection's bytes, in each direction.
const BUFFER_BYTES: usize = 16 * 1024;

/// `GET /v1/leases/{id}/exec`.
pub(super) async fn open(
    State(front): State<Front>,
    Extension(caller): Extension<Caller>,
    Id(lease): Id<LeaseId>,
    opening: Opening,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Answer {
    let upgrade = upgrade.map_err(|why| {
        let why = format!("this is a WebSocket ({why}); open one with the subprotocol {SUBPROTOCOL}, or POST");
        Refusal::bad_field("Upgrade", why)
    })?;
    let upgrade = upgrade.protocols([SUBPROTOCOL]);
    if upgrade.selected_protocol().is_none() {
        let why = format!("must offer {SUBPROTOCOL}, the only one that this route speaks");
        return Err(Refusal::bad_field("Sec-WebSocket-Protocol", why).into());
    }
    let upgrade = upgrade
        .max_message_size(FRAME_BYTES_MAX)
        .max_frame_size(FRAME_BYTES_MAX)
        .read_buffer_size(BUFFER_BYTES)
        .write_buffer_size(BUFFER_BYTES)
        .max_write_buffer_size(4 * FRAME_BYTES_MAX);
    let coordinator = Arc::clone(&front.app.coordinator);
    Ok(upgrade.on_upgrade(move |socket| async move {
        let (sink, frames) = socket.split();
        let talk = Talk { sink, frames, opening };
        talk.run(&*coordinator, &caller, &lease).await;
    }))
}

struct Talk {
    sink: SplitSink<WebSocket, Message>,
    frames: SplitStream<WebSocket>,
    opening: Opening,
}

/// How a conversation ends.
enum End {
    /// The last frame has been sent.
    Told,
    /// This is the last frame.
    Refused(Refusal),
    /// Nobody is there to be told.
    Gone,
}

impl Talk {
    async fn run(mut self, coordinator: &dyn Coordinator, caller: &Caller, lease: &LeaseId) {
        let opened = tokio::select! {
            biased;
            refusal = self.opening.over() => Err(End::Refused(refusal)),
            opened = begin(&mut self.frames, coordinator, caller, lease) => opened,
        };
        let end = match opened {
            Ok(line) => self.talk(line).await,
            Err(end) => end,
        };
        let last = match end {
            End::Gone => return,
            End::Told => None,
            End::Refused(refusal) => Some(text(&failed(&refusal))),
        };
        // Whoever closes with something unread cuts off what it has just said.
        let farewell = async {
            if let Some(last) = last {
                self.sink.send(last).await.ok()?;
            }
            self.sink.send(Message::Close(None)).await.ok()?;
            while let Some(Ok(_)) = self.frames.next().await {}
            Some(())
        };
        let _ = timeout(FAREWELL_BOUND, farewell).await;
    }

    /// Passes everything on, each direction in its own time. When this returns, the line is gone.
    async fn talk(&mut self, mut line: ToolLine) -> End {
        let ended = async {
            line.to.closed().await;
            // The last frames are on their way; a client that does not take them is not waited for.
            sleep(FAREWELL_BOUND).await;
        };
        tokio::select! {
            refusal = self.opening.over() => End::Refused(refusal),
            end = listen(&mut self.frames, &line.to) => end,
            end = tell(&mut self.sink, &mut line.from) => end,
            () = ended => End::Gone,
        }
    }
}

/// Hears what is to be run, and has it run.
async fn begin(
    frames: &mut SplitStream<WebSocket>,
    coordinator: &dyn Coordinator,
    caller: &Caller,
    lease: &LeaseId,
) -> Result<ToolLine, End> {
    let late = || End::Refused(Refusal::bad_field("body", "the first frame did not arrive in time; open it again"));
    let first = timeout(FIRST_BOUND, first(frames)).await.map_err(|_| late())?;
    let text = first.ok_or(End::Gone)?;
    if text.len() > BODY_BYTES_MAX {
        let message =
            format!("the first frame is larger than {BODY_BYTES_MAX} bytes; send less, and the rest as stdin");
        return Err(End::Refused(Refusal::new(Code::PayloadTooLarge, message)));
    }
    let body: ExecBody = parse(text.as_bytes()).map_err(End::Refused)?;
    coordinator.exec(caller, lease, body.into()).await.map_err(End::Refused)
}

/// The first text frame, or what stands for one in a refusal; none when the client has gone.
async fn first(frames: &mut SplitStream<WebSocket>) -> Option<String> {
    loop {
        match frames.next().await?.ok()? {
            Message::Text(text) => return Some(text.as_str().to_owned()),
            // It is no object, which is what the client is told.
            Message::Binary(_) => return Some("a binary frame".to_owned()),
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Close(_) => return None,
        }
    }
}

/// What the client says, until it has gone or breaks the protocol.
async fn listen(frames: &mut SplitStream<WebSocket>, to: &mpsc::Sender<ToTool>) -> End {
    loop {
        let message = match timeout(SILENCE_MAX, frames.next()).await {
            Ok(Some(Ok(message))) => message,
            Ok(Some(Err(_)) | None) | Err(_) => return End::Gone,
        };
        let frame = match message {
            Message::Binary(bytes) => stdin(bytes),
            Message::Text(text) => word(text.as_str()),
            Message::Ping(_) | Message::Pong(_) => continue,
            Message::Close(_) => return End::Gone,
        };
        match frame {
            Ok(frame) => {
                if to.send(frame).await.is_err() {
                    // It has ended, and the other direction says how.
                    return std::future::pending().await;
                }
            }
            Err(refusal) => return End::Refused(refusal),
        }
    }
}

fn stdin(mut bytes: Bytes) -> Result<ToTool, Refusal> {
    match bytes.first() {
        Some(&STDIN) => Ok(ToTool::Stdin(bytes.split_off(1))),
        _ => Err(broken("a binary frame of a client begins with 0, and stdin follows")),
    }
}

/// A text frame of the client.
fn word(text: &str) -> Result<ToTool, Refusal> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum Word {
        Eof(bool),
        Signal(ExecSignal),
        Ack(u32),
    }
    match serde_json::from_str(text) {
        Ok(Word::Eof(true)) => Ok(ToTool::Eof),
        Ok(Word::Signal(signal)) => Ok(ToTool::Signal(signal)),
        Ok(Word::Ack(bytes)) => Ok(ToTool::Ack(bytes)),
        Ok(Word::Eof(false)) | Err(_) => Err(broken(
            "a text frame of a client is {\"eof\":true}, {\"ack\":n}, or {\"signal\":s} with one of INT, TERM, HUP, QUIT, USR1, \
             USR2, KILL",
        )),
    }
}

fn broken(why: &str) -> Refusal {
    Refusal::new(Code::BadRequest, format!("{why}; the tool was ended"))
}

/// Tells the client what comes from the tool, up to its last frame.
async fn tell(sink: &mut SplitSink<WebSocket, Message>, from: &mut mpsc::Receiver<FromTool>) -> End {
    if sink.send(text(&json!({ "started": true }))).await.is_err() {
        return End::Gone;
    }
    let mut pings = interval(PING_EVERY);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.reset();
    loop {
        let frame = tokio::select! {
            frame = from.recv() => frame,
            _ = pings.tick() => {
                if sink.send(Message::Ping(Bytes::new())).await.is_err() {
                    return End::Gone;
                }
                continue;
            }
        };
        let Some(frame) = frame else { return End::Refused(Refusal::internal("the tool's end was not told")) };
        let last = frame.is_last();
        let message = match frame {
            FromTool::Stdout(bytes) => binary(STDOUT, &bytes),
            FromTool::Stderr(bytes) => binary(STDERR, &bytes),
            FromTool::Ack(bytes) => text(&json!({ "ack": bytes })),
            FromTool::Exit(code) => text(&json!({ "exit": code })),
            FromTool::Failed(refusal) => text(&failed(&refusal)),
        };
        match sink.send(message).await {
            Ok(()) if last => return End::Told,
            Ok(()) => {}
            Err(_) => return End::Gone,
        }
    }
}

fn text(value: &Value) -> Message {
    Message::Text(value.to_string().into())
}

fn binary(of: u8, bytes: &Bytes) -> Message {
    let mut frame = BytesMut::with_capacity(1 + bytes.len());
    frame.put_u8(of);
    frame.extend_from_slice(bytes);
    Message::Binary(frame.freeze())
}
