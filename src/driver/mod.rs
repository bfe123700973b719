//! The devices themselves: what is done to them, and what is seen of them (SPEC §7).
//!
//! A host says what is to be done, one [`Job`] at a time for each resource, and hears how it ended. Whether that still
//! counts is the host's to know: here nothing is remembered of a lease.
//!
//! Hooks ([`Programs`]) and the tools of remote holders ([`Tool`]) are programs. Each runs under a [`Guard`], a process that
//! kills it, with everything that it has started, when it is to end or when the node is gone.

pub mod adb;
mod command;
mod drivers;
mod ended;
mod environment;
mod guard;
mod output;
pub mod placeholder;
mod tool;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

pub use self::command::Programs;
pub use self::drivers::Drivers;
pub use self::ended::Ended;
pub use self::environment::{Tenure, environment};
pub use self::guard::{Guard, Ward};
pub use self::tool::Tool;
use crate::model::{DeviceFacts, Driver, HookFailure, HookKind, ResourceId};

/// One thing that is to be done to a device.
#[derive(Debug, Clone)]
pub struct Job {
    /// Whose device.
    pub resource: ResourceId,
    /// What.
    pub hook: HookKind,
    /// How.
    pub driver: Arc<Driver>,
    /// What is known of the device.
    pub facts: Arc<DeviceFacts>,
    /// What the hooks find in their environment beside that of the node: the `BERTH_…` of SPEC §7.
    pub environment: BTreeMap<String, String>,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// It was not.
    Failed(HookFailure),
    /// It was told to stop, and nothing of it runs any more.
    Stopped,
}

/// Whoever does the jobs.
#[async_trait]
pub trait Hands: fmt::Debug + Send + Sync + 'static {
    /// Does a job to its end, within the timeout of its hook. When `stop` is cancelled the job is killed, with everything
    /// that it has started; the answer comes when that is gone. A job without a hook of its kind is done at once, apart
    /// from what the driver's kind checks by itself.
    async fn run(&self, job: Job, stop: CancellationToken) -> Outcome;
}

/// What a driver says of a device by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sighting {
    /// It is there, and this is what is known of it.
    Present(DeviceFacts),
    /// It is not there, or cannot be used; in words.
    Absent(String),
}
