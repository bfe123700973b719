//! Tools at devices, each on a stream of its own ([`wire::exec`](crate::wire::exec)): the gateway opens it, the worker
//! serves it. Whatever a stream stalls on, the calls and the reports of the link do not: each stream has its own room.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::SinkExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use super::LinkError;
use super::stream::{FrameReader, FrameWriter, read, short_reader, write, writer};
use crate::limits::{CALL_BOUND, EXECS_MAX};
use crate::model::{Code, Refusal};
use crate::wire::ProtocolVersion;
use crate::wire::exec::{ExecCall, FromTool, Opened, Opening, ToTool};

/// The longest frame of such a stream: an opening with all its arguments, or a window's worth of bytes.
const FRAME_BYTES_MAX: usize = 128 * 1024;
/// Frames that wait in one direction between two tasks. What they hold is bounded by the window of the protocol.
const FRAMES_QUEUED_MAX: usize = 16;

/// The caller's end of a tool that runs. When it is dropped the caller has gone, and the tool is killed.
#[derive(Debug)]
pub struct ToolLine {
    /// To the tool.
    pub to: mpsc::Sender<ToTool>,
    /// From the tool; nothing comes after its last frame.
    pub from: mpsc::Receiver<FromTool>,
}

/// The tool's end.
#[derive(Debug)]
pub struct CallerLine {
    /// To the caller.
    pub to: mpsc::Sender<FromTool>,
    /// From the caller; it has gone when nothing comes any more.
    pub from: mpsc::Receiver<ToTool>,
}

/// Both ends of a line within this process.
pub fn line() -> (ToolLine, CallerLine) {
    let (to_tool, from_caller) = mpsc::channel(FRAMES_QUEUED_MAX);
    let (to_caller, from_tool) = mpsc::channel(FRAMES_QUEUED_MAX);
    (ToolLine { to: to_tool, from: from_tool }, CallerLine { to: to_caller, from: from_caller })
}

/// Why a tool does not run at a worker.
#[derive(Debug, thiserror::Error)]
pub enum NotOpened {
    /// The worker said no.
    #[error("the worker refused")]
    Refused(Refusal),
    /// It speaks a protocol that has no tools.
    #[error("the worker speaks protocol {}", .0.0)]
    TooOld(ProtocolVersion),
    /// As many as may run at it do.
    #[error("too many tools run at the worker")]
    Full,
    /// The link was lost before the answer came, or the answer took too long. The stream is ended, and with it the tool.
    #[error("the link was lost before the answer came")]
    Lost(#[source] LinkError),
}

/// Opens the streams of one link; the gateway's side.
#[derive(Debug, Clone)]
pub struct ExecStreams {
    connection: quinn::Connection,
    protocol: ProtocolVersion,
    room: Arc<Semaphore>,
}

impl ExecStreams {
    pub(super) fn new(connection: quinn::Connection, protocol: ProtocolVersion) -> Self {
        Self { connection, protocol, room: Arc::new(Semaphore::new(EXECS_MAX)) }
    }

    /// Has a tool run. Its last refusal goes through `shown`, so that the caller hears of its lease by the name that it
    /// knows; `lost` is what it hears when the link is lost.
    ///
    /// # Errors
    /// [`NotOpened`]; then nothing runs, or is about to be killed.
    pub async fn open(
        &self,
        call: ExecCall,
        shown: impl Fn(Refusal) -> Refusal + Send + Sync + 'static,
        lost: Refusal,
    ) -> Result<ToolLine, NotOpened> {
        if self.protocol < ProtocolVersion::V3 {
            return Err(NotOpened::TooOld(self.protocol));
        }
        let place = Arc::clone(&self.room).try_acquire_owned().map_err(|_| NotOpened::Full)?;
        let opened = timeout(CALL_BOUND, self.begin(call)).await.unwrap_or(Err(LinkError::Timeout));
        let (writer, reader, answer) = opened.map_err(NotOpened::Lost)?;
        match answer {
            Opened::Refused(refusal) => Err(NotOpened::Refused(shown(refusal))),
            Opened::Started => {
                let (tool, caller) = line();
                tokio::spawn(relay(writer, reader, caller, shown, lost, place));
                Ok(tool)
            }
        }
    }

    async fn begin(&self, call: ExecCall) -> Result<(FrameWriter, FrameReader, Opened), LinkError> {
        let (send, receive) = self.connection.open_bi().await?;
        let (mut writer, mut reader) = (writer(send), short_reader(receive, FRAME_BYTES_MAX));
        write(&mut writer, &Opening::Exec(call)).await?;
        let answer = read(&mut reader).await?.ok_or_else(|| LinkError::Protocol("no answer to an exec".to_owned()))?;
        Ok((writer, reader, answer))
    }
}

/// Passes everything on, each direction in its own time, until the tool has ended, the caller has gone, or the link is lost.
async fn relay(
    mut writer: FrameWriter,
    mut reader: FrameReader,
    mut caller: CallerLine,
    shown: impl Fn(Refusal) -> Refusal,
    lost: Refusal,
    _place: OwnedSemaphorePermit,
) {
    let up = async {
        while let Some(frame) = caller.from.recv().await {
            if write(&mut writer, &frame).await.is_err() {
                // The other direction knows more: the tool may have ended.
                return std::future::pending().await;
            }
        }
    };
    let down = async {
        loop {
            let frame = match read(&mut reader).await {
                Ok(Some(FromTool::Failed(refusal))) => FromTool::Failed(shown(refusal)),
                Ok(Some(frame)) => frame,
                Ok(None) | Err(_) => FromTool::Failed(lost.clone()),
            };
            let last = frame.is_last();
            if caller.to.send(frame).await.is_err() || last {
                return;
            }
        }
    };
    tokio::select! {
        () = up => {}
        () = down => {}
        () = caller.to.closed() => {}
    }
}

/// A stream that the gateway has opened; the worker's side.
#[derive(Debug)]
pub struct ExecArrival {
    writer: FrameWriter,
    reader: FrameReader,
}

impl ExecArrival {
    pub(super) fn new(send: quinn::SendStream, receive: quinn::RecvStream) -> Self {
        Self { writer: writer(send), reader: short_reader(receive, FRAME_BYTES_MAX) }
    }

    /// What the gateway asks.
    ///
    /// # Errors
    /// `BAD_REQUEST`: it is nothing that this worker knows.
    pub async fn hear(&mut self) -> Result<ExecCall, Refusal> {
        match timeout(CALL_BOUND, read(&mut self.reader)).await {
            Ok(Ok(Some(Opening::Exec(call)))) => Ok(call),
            Ok(Ok(None)) => Err(Refusal::new(Code::BadRequest, "the stream ended before its opening")),
            Ok(Err(error)) => Err(Refusal::new(Code::BadRequest, format!("unknown opening of a stream: {error}"))),
            Err(_) => Err(Refusal::new(Code::BadRequest, "the stream's opening did not come in time")),
        }
    }

    /// Says no, and ends the stream.
    pub async fn refuse(mut self, refusal: Refusal) {
        // A gateway that has gone needs no answer.
        if write(&mut self.writer, &Opened::Refused(refusal)).await.is_ok() {
            let _ = finish(self.writer).await;
        }
    }

    /// Says yes, and passes everything on until the tool has ended or the gateway has given the stream up.
    pub async fn serve(self, mut tool: ToolLine) {
        let Self { mut writer, mut reader } = self;
        if write(&mut writer, &Opened::Started).await.is_err() {
            return;
        }
        let up = async {
            loop {
                match read::<ToTool>(&mut reader).await {
                    Ok(Some(frame)) => {
                        if tool.to.send(frame).await.is_err() {
                            // It has ended, and its last frame is on its way.
                            return std::future::pending().await;
                        }
                    }
                    Err(LinkError::Frame(error)) => return Some(broken(&error)),
                    Ok(None) | Err(_) => return None,
                }
            }
        };
        let down = async {
            while let Some(frame) = tool.from.recv().await {
                if write(&mut writer, &frame).await.is_err() {
                    break;
                }
            }
        };
        let broken = tokio::select! {
            broken = up => broken,
            () = down => None,
        };
        if let Some(refusal) = broken {
            let _ = write(&mut writer, &FromTool::Failed(refusal)).await;
        }
        let _ = finish(writer).await;
    }
}

/// Says that nothing follows; what was written is delivered as long as the link lasts.
async fn finish(mut writer: FrameWriter) -> Result<(), LinkError> {
    Ok(SinkExt::<Bytes>::close(&mut writer).await?)
}

fn broken(error: &crate::wire::frame::FrameError) -> Refusal {
    Refusal::new(Code::BadRequest, format!("what was sent to the tool is none of the protocol: {error}"))
}
