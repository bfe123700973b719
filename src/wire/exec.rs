//! A tool that a holder of the gateway's runs at its device, on a stream of its own (SPEC §7). Since protocol 3.
//!
//! 1. The gateway opens a bidirectional stream and sends one [`Opening`]: `{"exec": …}` with the lease by the worker's own
//!    id, the requester with the gateway's prefix, the tool, its arguments, and the fence of the grant if one is meant.
//! 2. The worker answers one [`Opened`]: `started`, or `refused` with why not, which ends the stream. Only the owner of the
//!    lease is let in, an admin of the gateway's is not; another fence than the lease's is `UNKNOWN_LEASE`; a tool that the
//!    worker's lab file does not allow is `BAD_REQUEST`. An opening that the worker does not know is `BAD_REQUEST` too.
//! 3. From then on the gateway sends [`ToTool`] and the worker [`FromTool`], each in its own time.
//! 4. The worker's last frame is `exit` with the tool's exit code (128 and the signal's number, where a signal ended it), or
//!    `failed` with why it was ended: `UNKNOWN_LEASE` with the lease, `EXEC_TIMEOUT`, `STOPPING` with the node,
//!    `BAD_REQUEST` when the gateway broke these rules. Nothing of the tool runs then.
//!
//! `eof` says that stdin has ended. A stream of the gateway's that ends or breaks says that the caller has gone: the tool is
//! killed with everything that it has started.
//!
//! Of the bytes of stdin, and of those of stdout and stderr together, at most [`EXEC_WINDOW_BYTES`] are on their way in each
//! direction: sent, and not acknowledged. `ack` acknowledges so many bytes more. The worker acknowledges what the tool has
//! taken in, the caller what it has passed on; a gateway in between passes on and acknowledges nothing. So a caller that
//! reads slowly makes the tool wait, and nobody holds more of it than that. `eof`, signals and acknowledgements are not
//! counted and never wait for an acknowledgement.
//!
//! [`EXEC_WINDOW_BYTES`]: crate::limits::EXEC_WINDOW_BYTES

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::limits::EXEC_WINDOW_BYTES;
use crate::model::{ExecSignal, Fence, LeaseId, Refusal, Requester, ToolArgs, ToolName};

/// What a stream of the gateway's, other than that of the calls, begins with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Opening {
    /// Run a tool.
    Exec(ExecCall),
}

/// A tool that is to be run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecCall {
    /// Who asks: `gw:<gateway>:<requester>`.
    pub requester: Requester,
    /// The worker's own name of the lease.
    pub lease: LeaseId,
    /// The grant that is meant; none for whichever there is.
    pub fence: Option<Fence>,
    /// Which tool.
    pub tool: ToolName,
    /// Its arguments.
    pub args: ToolArgs,
}

/// The worker's first frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Opened {
    /// It runs.
    Started,
    /// It does not, and this is the last frame.
    Refused(Refusal),
}

/// What goes to a tool that runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToTool {
    /// Bytes of its stdin.
    Stdin(Bytes),
    /// Its stdin has ended.
    Eof,
    /// A signal for it and what it has started.
    Signal(ExecSignal),
    /// So many more bytes of its output have been taken.
    Ack(u32),
}

/// What comes from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FromTool {
    /// Bytes of its stdout.
    Stdout(Bytes),
    /// Bytes of its stderr.
    Stderr(Bytes),
    /// It has taken so many more bytes of its stdin.
    Ack(u32),
    /// It has ended with this code; nothing follows.
    Exit(u8),
    /// It has been ended; nothing follows.
    Failed(Refusal),
}

impl FromTool {
    /// True for the last.
    pub fn is_last(&self) -> bool {
        matches!(self, FromTool::Exit(_) | FromTool::Failed(_))
    }
}

/// What one side has sent and the other has not acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Window {
    unacknowledged: usize,
}

/// A peer has sent or acknowledged more than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Overrun {
    /// More bytes than the window has room for.
    #[error("more than {EXEC_WINDOW_BYTES} bytes were sent without an acknowledgement")]
    Sent,
    /// More bytes than were sent.
    #[error("more bytes were acknowledged than were sent")]
    Acknowledged,
}

impl Window {
    /// How many bytes may be sent now.
    pub fn room(&self) -> usize {
        EXEC_WINDOW_BYTES - self.unacknowledged
    }

    /// So many bytes are sent.
    ///
    /// # Errors
    /// There is no room for them; nothing has changed.
    pub fn send(&mut self, bytes: usize) -> Result<(), Overrun> {
        if bytes > self.room() {
            return Err(Overrun::Sent);
        }
        self.unacknowledged += bytes;
        Ok(())
    }

    /// So many bytes more are acknowledged.
    ///
    /// # Errors
    /// They were not sent; nothing has changed.
    pub fn acknowledge(&mut self, bytes: usize) -> Result<(), Overrun> {
        self.unacknowledged = self.unacknowledged.checked_sub(bytes).ok_or(Overrun::Acknowledged)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_takes_what_fits_and_no_acknowledgement_of_what_was_not_sent() {
        let mut window = Window::default();
        assert_eq!(window.send(EXEC_WINDOW_BYTES + 1), Err(Overrun::Sent));
        assert_eq!(window.send(EXEC_WINDOW_BYTES - 1), Ok(()));
        assert_eq!((window.send(2), window.room()), (Err(Overrun::Sent), 1));
        assert_eq!(window.acknowledge(EXEC_WINDOW_BYTES), Err(Overrun::Acknowledged));
        assert_eq!(window.acknowledge(EXEC_WINDOW_BYTES - 1), Ok(()));
        assert_eq!((window.room(), window.acknowledge(1)), (EXEC_WINDOW_BYTES, Err(Overrun::Acknowledged)));
    }
}
