//! Tools at devices (SPEC §7): what a holder asks, and the line to what runs.

mod gateway;
mod host;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::ask::given;
use crate::link::exec::ToolLine;
use crate::model::{Caller, ExecAsk, Fence, LeaseId, Refusal, ToolArgs, ToolName};

/// The subprotocol of the WebSocket on which a tool is talked to.
pub const SUBPROTOCOL: &str = "berth-exec.v1";
/// The first byte of a binary frame with bytes of stdin.
pub const STDIN: u8 = 0;
/// The first byte of a binary frame with bytes of stdout.
pub const STDOUT: u8 = 1;
/// The first byte of a binary frame with bytes of stderr.
pub const STDERR: u8 = 2;

/// Running tools. A front end sees nothing of where that is.
#[async_trait]
pub trait Execs: Send + Sync {
    /// Has a tool run at the device of a lease: on the machine that owns it, for the lease's owner alone. It goes on until
    /// it has ended, or the line is dropped.
    ///
    /// # Errors
    /// `UNKNOWN_LEASE`, also for another fence; `INSUFFICIENT_PERMISSIONS`, also for an admin who does not own it;
    /// `BAD_REQUEST` for a tool that is not allowed; `RATE_LIMITED`, `QUEUE_FULL`, `STOPPING`, `DEVICE_FAILED`; at a gateway
    /// `WORKER_UNREACHABLE` and `UNSUPPORTED_ON_WORKER`.
    async fn exec(&self, caller: &Caller, lease: &LeaseId, ask: ExecAsk) -> Result<ToolLine, Refusal>;
}

/// What is to be run: the first frame of a WebSocket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecBody {
    /// Which of the allowed tools.
    pub tool: ToolName,
    /// Its arguments; default none.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub args: ToolArgs,
    /// The grant that is meant; default whichever there is.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
}

fn is_empty(args: &ToolArgs) -> bool {
    args.as_slice().is_empty()
}

impl From<ExecBody> for ExecAsk {
    fn from(body: ExecBody) -> Self {
        let ExecBody { tool, args, fence } = body;
        Self { tool, args, fence }
    }
}

/// Body of `POST /v1/leases/{id}/exec`: the same, and what the tool reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExecOnceBody {
    /// Which of the allowed tools.
    pub tool: ToolName,
    /// Its arguments; default none.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub args: ToolArgs,
    /// The grant that is meant; default whichever there is.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub fence: Option<Fence>,
    /// All that it reads, as base64 with padding; default nothing.
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
}
