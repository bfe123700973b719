//! A tool at a device, talked to over the WebSocket `berth-exec.v1` (SPEC §7).
//!
//! At most 64 KiB are on their way in each direction. [`ExecInput::stdin`] waits until the tool has taken what was sent before;
//! what [`ExecOutput::next`] gives is to be acknowledged with [`ExecInput::ack`], or no more comes. The output is to be read
//! on and on, also while nothing is acknowledged: so the node hears that the client is there.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use reqwest::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use reqwest::{Method, Response, StatusCode, Upgraded};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Message, Role, WebSocketConfig};

use super::transport::Answer;
use super::{Client, ClientError};
use crate::limits::{BODY_BYTES_MAX, EXEC_CHUNK_BYTES_MAX, EXEC_WINDOW_BYTES};
use crate::model::{Code, ExecSignal, LeaseId, Refusal};
use crate::service::exec::{ExecBody, STDERR, STDIN, STDOUT, SUBPROTOCOL};

/// How long a node may take to start a tool.
const START_BOUND: Duration = Duration::from_secs(45);
/// A node pings every 15 s; after three times as long it is taken for gone.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// What is kept of a connection's bytes, in each direction.
const BUFFER_BYTES: usize = 16 * 1024;

type Socket = WebSocketStream<Upgraded>;

/// What goes to a tool that runs. Once this and the output are dropped the client has gone, and the tool is killed.
#[derive(Debug, Clone)]
pub struct ExecInput {
    sink: Arc<Mutex<SplitSink<Socket, Message>>>,
    /// Bytes that may be sent before the next acknowledgement.
    room: Arc<Semaphore>,
}

/// What comes from it.
#[derive(Debug)]
pub struct ExecOutput {
    client: Client,
    frames: SplitStream<Socket>,
    room: Arc<Semaphore>,
}

/// A piece of what comes from a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecNews {
    /// Bytes of its stdout.
    Stdout(Bytes),
    /// Bytes of its stderr.
    Stderr(Bytes),
    /// It has ended with this code, and this is the last that is told.
    Exit(u8),
}

/// A text frame of a node.
#[derive(Default, Deserialize)]
struct Word {
    #[serde(default)]
    started: bool,
    #[serde(default)]
    ack: Option<usize>,
    #[serde(default)]
    exit: Option<u8>,
    #[serde(default)]
    error: Option<Refusal>,
}

impl Client {
    /// Has a tool run at the device of a lease, and returns once it runs.
    ///
    /// # Errors
    /// A [`ClientError`]; the refusals are those of [`Execs::exec`](crate::service::exec::Execs::exec).
    pub async fn exec(&self, lease: &LeaseId, body: &ExecBody) -> Result<(ExecInput, ExecOutput), ClientError> {
        let first = serde_json::to_string(body).map_err(|error| self.bad_answer(error))?;
        if first.len() > BODY_BYTES_MAX {
            let message =
                format!("the arguments are larger than {BODY_BYTES_MAX} bytes; send them through the tool's stdin");
            return Err(ClientError::Refused(Refusal::new(Code::PayloadTooLarge, message)));
        }
        let socket = self.upgraded(&["leases", lease.as_str(), "exec"]).await?;
        let (mut sink, frames) = socket.split();
        sink.send(Message::Text(first.into())).await.map_err(|error| self.broken(error))?;
        let room = Arc::new(Semaphore::new(EXEC_WINDOW_BYTES));
        let mut output = ExecOutput { client: self.clone(), frames, room: Arc::clone(&room) };
        let started = timeout(START_BOUND, output.started()).await;
        started.map_err(|_| self.silent(START_BOUND))??;
        Ok((ExecInput { sink: Arc::new(Mutex::new(sink)), room }, output))
    }

    /// A WebSocket of the subprotocol.
    async fn upgraded(&self, segments: &[&str]) -> Result<Socket, ClientError> {
        let key = generate_key();
        let question = self
            .endless(Method::GET, segments)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "websocket")
            .header(SEC_WEBSOCKET_VERSION, "13")
            .header(SEC_WEBSOCKET_KEY, &key)
            .header(SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL);
        let begun = timeout(self.bound, question.send()).await;
        let response = begun.map_err(|_| self.silent(self.bound))?.map_err(|source| self.unanswered(source))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(self.not_upgraded(response).await);
        }
        let said = |name| response.headers().get(name).map(HeaderValue::as_bytes).unwrap_or_default();
        if said(SEC_WEBSOCKET_ACCEPT) != derive_accept_key(key.as_bytes()).as_bytes()
            || said(SEC_WEBSOCKET_PROTOCOL) != SUBPROTOCOL.as_bytes()
        {
            return Err(self.bad_answer(format_args!("no WebSocket of {SUBPROTOCOL} came")));
        }
        let upgraded = timeout(self.bound, response.upgrade()).await;
        let upgraded = upgraded.map_err(|_| self.silent(self.bound))?.map_err(|source| self.unanswered(source))?;
        let largest = Some(2 * EXEC_WINDOW_BYTES);
        let config = WebSocketConfig::default()
            .max_message_size(largest)
            .max_frame_size(largest)
            .read_buffer_size(BUFFER_BYTES)
            .write_buffer_size(BUFFER_BYTES);
        Ok(WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config)).await)
    }

    async fn not_upgraded(&self, mut response: Response) -> ClientError {
        let (status, headers) = (response.status(), std::mem::take(response.headers_mut()));
        let body = match timeout(self.bound, self.read(response)).await {
            Ok(Ok(body)) => body,
            Ok(Err(error)) => return error,
            Err(_) => return self.silent(self.bound),
        };
        match self.judge::<IgnoredAny>(Answer { status, headers, body }) {
            Err(error) => error,
            Ok(_) => self.bad_answer("no WebSocket came"),
        }
    }

    fn broken(&self, source: tokio_tungstenite::tungstenite::Error) -> ClientError {
        ClientError::Unanswered { endpoint: self.name.clone(), reached: true, source: source.into() }
    }
}

/// Each is false when it does not get there any more; then the output says why.
impl ExecInput {
    /// Bytes for the tool's stdin; waits until there is room for them.
    pub async fn stdin(&self, bytes: &[u8]) -> bool {
        for piece in bytes.chunks(EXEC_CHUNK_BYTES_MAX) {
            let least = u32::try_from(piece.len()).unwrap_or(u32::MAX);
            let Ok(room) = self.room.acquire_many(least).await else { return false };
            room.forget();
            let mut frame = BytesMut::with_capacity(1 + piece.len());
            frame.put_u8(STDIN);
            frame.extend_from_slice(piece);
            if !self.send(Message::Binary(frame.freeze())).await {
                return false;
            }
        }
        true
    }

    /// No more stdin follows.
    pub async fn eof(&self) -> bool {
        self.say(&json!({ "eof": true })).await
    }

    /// A signal for the tool and what it has started.
    pub async fn signal(&self, signal: ExecSignal) -> bool {
        self.say(&json!({ "signal": signal })).await
    }

    /// So many bytes more of its output are dealt with.
    pub async fn ack(&self, bytes: usize) -> bool {
        self.say(&json!({ "ack": bytes })).await
    }

    async fn say(&self, word: &Value) -> bool {
        self.send(Message::Text(word.to_string().into())).await
    }

    async fn send(&self, message: Message) -> bool {
        self.sink.lock().await.send(message).await.is_ok()
    }
}

impl ExecOutput {
    /// What comes next.
    ///
    /// # Errors
    /// The tool was ended, and the refusal says why; or the connection broke, nothing was heard for 45 s, or what came is not
    /// the contract: then nobody knows how the tool ended.
    pub async fn next(&mut self) -> Result<ExecNews, ClientError> {
        loop {
            match self.frame().await? {
                Message::Binary(mut bytes) => match bytes.first() {
                    Some(&STDOUT) => return Ok(ExecNews::Stdout(bytes.split_off(1))),
                    Some(&STDERR) => return Ok(ExecNews::Stderr(bytes.split_off(1))),
                    _ => return Err(self.client.bad_answer("a binary frame is of no stream")),
                },
                Message::Text(text) => {
                    let Word { ack, exit, error, .. } = self.word(text.as_str())?;
                    if let Some(refusal) = error {
                        return Err(ClientError::Refused(refusal));
                    }
                    if let Some(code) = exit {
                        return Ok(ExecNews::Exit(code));
                    }
                    self.acknowledged(ack.unwrap_or_default())?;
                }
                _ => {}
            }
        }
    }

    async fn started(&mut self) -> Result<(), ClientError> {
        loop {
            if let Message::Text(text) = self.frame().await? {
                match self.word(text.as_str())? {
                    Word { error: Some(refusal), .. } => return Err(ClientError::Refused(refusal)),
                    Word { started: true, .. } => return Ok(()),
                    // What a newer version says.
                    _ => {}
                }
            }
        }
    }

    async fn frame(&mut self) -> Result<Message, ClientError> {
        let frame = timeout(SILENCE_MAX, self.frames.next()).await.map_err(|_| self.client.silent(SILENCE_MAX))?;
        match frame {
            Some(Ok(Message::Close(_))) | None => {
                Err(self.client.bad_answer("it closed before the tool's end was told"))
            }
            Some(frame) => frame.map_err(|error| self.client.broken(error)),
        }
    }

    fn word(&self, text: &str) -> Result<Word, ClientError> {
        serde_json::from_str(text).map_err(|error| self.client.bad_answer(error))
    }

    fn acknowledged(&self, bytes: usize) -> Result<(), ClientError> {
        if bytes > EXEC_WINDOW_BYTES.saturating_sub(self.room.available_permits()) {
            return Err(self.client.bad_answer("more of stdin is acknowledged than was sent"));
        }
        self.room.add_permits(bytes);
        Ok(())
    }
}

impl Drop for ExecOutput {
    fn drop(&mut self) {
        // Whoever waits for room waits for nothing.
        self.room.close();
    }
}
