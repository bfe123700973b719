//! A tool that runs at a device: from its permit until nothing of it is left (SPEC §7).
//!
//! One task for each. It holds a window's worth of stdin and one piece of output at most: a caller that does not acknowledge
//! what it was sent stalls the tool, whose pipes fill, and a tool that does not read stalls the caller. What comes from
//! the caller is always taken in, so that the two can never wait for each other.

use std::io;
use std::pin::pin;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use ractor::ActorRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::time::{sleep, timeout};

use super::execs::{ExecEnd, ExecRequest, Permit, stopping};
use super::message::{DeskMessage, Said};
use crate::driver::{Ended, Guard, Tool};
use crate::limits::EXEC_CHUNK_BYTES_MAX;
use crate::link::exec::{CallerLine, ToolLine, line};
use crate::model::span::written;
use crate::model::{Code, Refusal};
use crate::wire::exec::{FromTool, ToTool, Window};

/// How long the desk has for a permit, which is on disk by then.
const PERMIT_BOUND: Duration = Duration::from_secs(15);
/// How long a caller that has stalled has to take the last frame.
const FAREWELL_BOUND: Duration = Duration::from_secs(10);
/// How long output may still come of a tool that is gone. What holds its pipe then is out of its guard's reach.
const REST_BOUND: Duration = Duration::from_secs(1);

/// Where tools are asked for.
#[derive(Debug, Clone)]
pub struct ExecDoor {
    /// This node's desk.
    pub desk: ActorRef<DeskMessage>,
    /// Guards what the node runs.
    pub guard: Guard,
}

impl ExecDoor {
    /// Has a tool run. It goes on until it has ended, or the line is dropped.
    ///
    /// # Errors
    /// Those of SPEC §7: `UNKNOWN_LEASE`, `INSUFFICIENT_PERMISSIONS`, `BAD_REQUEST` for a tool that is not allowed,
    /// `RATE_LIMITED`, `QUEUE_FULL`, `STOPPING`, and `DEVICE_FAILED` when it cannot be started.
    pub async fn open(&self, request: ExecRequest) -> Result<ToolLine, Refusal> {
        let (reply, answer) = ractor::concurrency::oneshot();
        let asked = self.desk.cast(DeskMessage::Exec(Box::new(request), reply.into()));
        let said = match asked {
            Ok(()) => timeout(PERMIT_BOUND, answer).await.ok().and_then(Result::ok),
            Err(_) => None,
        };
        let Some(Said { result, .. }) = said else {
            return Err(Refusal::internal("no answer came in time, and nothing runs; ask again"));
        };
        let permit = result?;
        let tool = Tool::start(&self.guard, &permit.argv, &permit.environment, permit.directory.as_deref());
        let tool = match tool {
            Ok(tool) => tool,
            Err(error) => {
                tracing::warn!(%error, "a tool's process could not be started");
                let refusal = not_started(&error.to_string());
                self.tell(&permit, ExecEnd::Failed(refusal.code));
                return Err(refusal);
            }
        };
        let (caller, own) = line();
        tokio::spawn(self.clone().run(permit, tool, own));
        Ok(caller)
    }

    async fn run(self, mut permit: Permit, tool: Tool, mut caller: CallerLine) {
        let mut running = Running::new(tool);
        let stopped = running.serve(&mut permit, &mut caller).await;
        let last = match stopped {
            Stopped::Ended(ended) => last_of(ended),
            Stopped::Left => {
                running.end().await;
                return self.tell(&permit, ExecEnd::Left);
            }
            Stopped::Over(refusal) => {
                running.end().await;
                FromTool::Failed(refusal)
            }
        };
        self.tell(
            &permit,
            match &last {
                FromTool::Failed(refusal) => ExecEnd::Failed(refusal.code),
                FromTool::Exit(code) => ExecEnd::Exit(*code),
                _ => ExecEnd::Left,
            },
        );
        // One that does not take it in time has gone, or as good as gone.
        let _ = timeout(FAREWELL_BOUND, caller.to.send(last)).await;
    }

    fn tell(&self, permit: &Permit, end: ExecEnd) {
        // A desk that is gone takes the whole node with it.
        let _ = self.desk.cast(DeskMessage::ExecEnded(Box::new(permit.run.clone()), end));
    }
}

/// Why a tool is served no more.
enum Stopped {
    /// It has ended, and all that it wrote has been passed on.
    Ended(Ended),
    /// Its caller has gone.
    Left,
    /// It is to be ended.
    Over(Refusal),
}

struct Running {
    tool: Tool,
    stdin: Option<pipe::Sender>,
    stdout: Output<ChildStdout>,
    stderr: Output<ChildStderr>,
    /// Bytes of stdin that the tool has not taken.
    input: BytesMut,
    /// True when no more of them follow.
    input_ended: bool,
    /// How many it has taken that the caller has not been told of.
    taken: usize,
    /// Bytes of stdin that are not acknowledged.
    received: Window,
    /// Bytes of output that are not acknowledged.
    sent: Window,
    /// A piece of output that waits for room on the line.
    outgoing: Option<FromTool>,
}

impl Running {
    fn new(mut tool: Tool) -> Self {
        Self {
            stdin: tool.stdin.take(),
            stdout: Output::new(tool.stdout.take()),
            stderr: Output::new(tool.stderr.take()),
            tool,
            input: BytesMut::new(),
            input_ended: false,
            taken: 0,
            received: Window::default(),
            sent: Window::default(),
            outgoing: None,
        }
    }

    /// Passes everything on until there is nothing more to pass on, or a reason to stop.
    async fn serve(&mut self, permit: &mut Permit, caller: &mut CallerLine) -> Stopped {
        let mut deadline = pin!(sleep(permit.timeout));
        let mut ended = None;
        loop {
            let has_more = self.taken > 0 || self.outgoing.is_some();
            if let Some(ended) = &ended {
                // Nobody reads it any more.
                self.close_input();
                if !has_more && self.stdout.is_over() && self.stderr.is_over() {
                    return Stopped::Ended(Ended::clone(ended));
                }
            }
            let room = if self.outgoing.is_none() { self.sent.room().min(EXEC_CHUNK_BYTES_MAX) } else { 0 };
            tokio::select! {
                over = &mut permit.over => return Stopped::Over(over.unwrap_or_else(|_| stopping())),
                () = deadline.as_mut() => return Stopped::Over(too_long(permit.timeout)),
                () = caller.to.closed() => return Stopped::Left,
                frame = caller.from.recv() => {
                    let Some(frame) = frame else { return Stopped::Left };
                    if let Err(refusal) = self.take(frame) {
                        return Stopped::Over(refusal);
                    }
                }
                slot = caller.to.reserve(), if has_more => {
                    let Ok(slot) = slot else { return Stopped::Left };
                    if let Some(frame) = self.next_frame() {
                        slot.send(frame);
                    }
                }
                written = write_some(&mut self.stdin, &self.input), if !self.input.is_empty() => self.wrote(written),
                bytes = self.stdout.read(room), if room > 0 && !self.stdout.is_over() => self.put(bytes.map(FromTool::Stdout)),
                bytes = self.stderr.read(room), if room > 0 && !self.stderr.is_over() => self.put(bytes.map(FromTool::Stderr)),
                how = self.tool.wait(), if ended.is_none() => ended = Some(how),
                () = sleep(REST_BOUND), if ended.is_some() && room > 0 => {
                    self.stdout.close();
                    self.stderr.close();
                }
            }
        }
    }

    /// What the caller says.
    fn take(&mut self, frame: ToTool) -> Result<(), Refusal> {
        match frame {
            ToTool::Stdin(_) | ToTool::Eof if self.input_ended => return Err(broken("stdin has ended before")),
            ToTool::Stdin(bytes) => {
                self.received.send(bytes.len()).map_err(broken)?;
                if self.stdin.is_some() {
                    self.input.extend_from_slice(&bytes);
                } else {
                    // The tool has closed it.
                    self.taken += bytes.len();
                }
            }
            ToTool::Eof => {
                self.input_ended = true;
                if self.input.is_empty() {
                    self.stdin = None;
                }
            }
            ToTool::Ack(bytes) => {
                self.sent.acknowledge(usize::try_from(bytes).unwrap_or(usize::MAX)).map_err(broken)?
            }
            ToTool::Signal(signal) => {
                if let Err(error) = self.tool.signal(signal) {
                    tracing::debug!(%error, ?signal, "a signal did not reach a tool");
                }
            }
        }
        Ok(())
    }

    /// What the caller is told next.
    fn next_frame(&mut self) -> Option<FromTool> {
        let taken = std::mem::take(&mut self.taken);
        if taken == 0 {
            return self.outgoing.take();
        }
        // What is taken was received, so neither can fail.
        let _ = self.received.acknowledge(taken);
        Some(FromTool::Ack(u32::try_from(taken).unwrap_or(u32::MAX)))
    }

    /// A piece of output goes to the caller.
    fn put(&mut self, frame: Option<FromTool>) {
        if let Some(FromTool::Stdout(bytes) | FromTool::Stderr(bytes)) = &frame {
            // No more is read than there is room for.
            let _ = self.sent.send(bytes.len());
        }
        self.outgoing = frame;
    }

    /// The tool has taken so many bytes, or takes no more.
    fn wrote(&mut self, written: io::Result<usize>) {
        match written {
            Ok(bytes) => {
                self.input.advance(bytes);
                self.taken += bytes;
                if self.input.is_empty() && self.input_ended {
                    self.stdin = None;
                }
            }
            Err(_) => self.close_input(),
        }
    }

    /// What the tool has not taken, nobody will take.
    fn close_input(&mut self) {
        self.stdin = None;
        self.taken += self.input.len();
        self.input.clear();
    }

    /// Kills what runs and waits until it is gone.
    async fn end(&mut self) {
        self.tool.kill();
        // Nobody reads what it still writes; with its pipes gone it does not wait for that.
        self.stdout.close();
        self.stderr.close();
        let ended = self.tool.wait().await;
        tracing::debug!(%ended, "a tool was ended");
    }
}

/// One of the two that a tool writes.
struct Output<P> {
    pipe: Option<P>,
    buffer: Box<[u8]>,
}

impl<P: AsyncRead + Unpin> Output<P> {
    fn new(pipe: Option<P>) -> Self {
        Self { pipe, buffer: vec![0; EXEC_CHUNK_BYTES_MAX].into() }
    }

    /// The next bytes, at most `room`; none at the end. May be dropped at any time.
    async fn read(&mut self, room: usize) -> Option<Bytes> {
        let room = room.min(self.buffer.len());
        let pipe = self.pipe.as_mut()?;
        match pipe.read(&mut self.buffer[..room]).await {
            Ok(bytes @ 1..) => Some(Bytes::copy_from_slice(&self.buffer[..bytes])),
            Ok(0) | Err(_) => {
                self.pipe = None;
                None
            }
        }
    }

    fn is_over(&self) -> bool {
        self.pipe.is_none()
    }

    fn close(&mut self) {
        self.pipe = None;
    }
}

/// Writes what fits. May be dropped at any time.
async fn write_some(stdin: &mut Option<pipe::Sender>, input: &[u8]) -> io::Result<usize> {
    match stdin {
        Some(stdin) => stdin.write(input).await,
        None => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// What the caller is told of a tool that has ended by itself.
fn last_of(ended: Ended) -> FromTool {
    match ended {
        Ended::Exited(code) => FromTool::Exit(u8::try_from(code).unwrap_or(u8::MAX)),
        // As a shell tells it.
        Ended::Signalled(number) => FromTool::Exit(u8::try_from(128 + number).unwrap_or(u8::MAX)),
        Ended::NotStarted(why) => FromTool::Failed(not_started(&why)),
        Ended::Failed(why) => {
            tracing::warn!(why, "nobody knows how a tool has ended");
            FromTool::Failed(Refusal::new(
                Code::DeviceFailed,
                format!("the tool {why}; look at the device, and run it again"),
            ))
        }
    }
}

fn not_started(why: &str) -> Refusal {
    let message =
        format!("the tool could not be started: {why}; its operator finds it in [exec.allow] of the lab file");
    Refusal::new(Code::DeviceFailed, message)
}

fn too_long(bound: Duration) -> Refusal {
    let message =
        format!("the tool ran for {} and was killed; its operator sets exec.timeout in the lab file", written(bound));
    Refusal::new(Code::ExecTimeout, message)
}

fn broken(why: impl std::fmt::Display) -> Refusal {
    Refusal::new(Code::BadRequest, format!("the tool was ended, because its caller broke the protocol: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_ends_as_a_shell_tells_it() {
        for (ended, code) in [(Ended::Exited(0), 0), (Ended::Exited(3), 3), (Ended::Signalled(9), 137)] {
            assert_eq!(last_of(ended), FromTool::Exit(code));
        }
        for ended in [Ended::NotStarted("no such file".to_owned()), Ended::Failed("left process 7 behind".to_owned())] {
            assert!(matches!(last_of(ended), FromTool::Failed(refusal) if refusal.code == Code::DeviceFailed));
        }
    }
}
