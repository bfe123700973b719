//! The process without which the command is not to run: the parent of `berth exec`, or the one of `--bind-pid`.
//!
//! It is watched by a descriptor of the process, so that another one that gets its number later is not taken for it. A
//! parent in another PID namespace cannot be seen and is not watched.

use anyhow::Context;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, getpid, getppid, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::super::interrupt::Signal;
use super::proc::Place;

/// Whom the command is bound to.
#[derive(Debug)]
pub(super) struct Bond {
    /// None for a parent that cannot be seen.
    pid: Option<Pid>,
    /// None when there is nobody to watch: never seen, or gone before.
    watched: Option<AsyncFd<OwnedFd>>,
}

impl Bond {
    /// Begins to watch process `pid`; the parent when it is none.
    ///
    /// # Errors
    /// This system does not let a process be watched.
    pub(super) fn new(pid: Option<Pid>) -> anyhow::Result<Self> {
        match pid {
            Some(pid) => Self::to(pid),
            None => Self::to_parent(),
        }
    }

    #[expect(
        deprecated,
        reason = "the other constructor is unsafe for the sake of types that do not own what they name"
    )]
    fn to(pid: Pid) -> anyhow::Result<Self> {
        let watched = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => Some(AsyncFd::with_interest(fd, Interest::READABLE)?),
            Err(Errno::SRCH) => None,
            Err(error) => return Err(error).with_context(|| format!("process {pid} cannot be watched")),
        };
        Ok(Self { pid: Some(pid), watched })
    }

    fn to_parent() -> anyhow::Result<Self> {
        let Some(parent) = getppid() else { return Ok(Self { pid: None, watched: None }) };
        let bond = Self::to(parent)?;
        // One that died before leaves its children to another process.
        let gone = getppid() != Some(parent) || is_adopted(parent);
        Ok(if gone { Self { watched: None, ..bond } } else { bond })
    }

    /// Waits until that process is gone.
    pub(super) async fn broken(&self) {
        match (&self.watched, self.pid) {
            // The descriptor of a process is readable once that has ended. An error is the end of the runtime.
            (Some(watched), _) => drop(watched.readable().await),
            (None, Some(_)) => {}
            (None, None) => std::future::pending().await,
        }
    }

    /// That it is gone.
    pub(super) fn news(&self) -> Signal {
        Signal::Gone(self.pid)
    }
}

/// True when `parent` is the first process and has not started this one. A process that it has started is in its
/// session or leads one, as under a service manager or as a container's command; an orphan is in that of its late parent.
fn is_adopted(parent: Pid) -> bool {
    let session = |place: Option<Place>| place.map(|place| place.session);
    let own = session(Place::own());
    parent == Pid::INIT
        && own != Some(getpid().as_raw_nonzero().get())
        && own != session(Place::of(parent.as_raw_nonzero().get()))
}
