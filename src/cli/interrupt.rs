//! Ctrl-C and SIGTERM, for commands that have something to give back first.

use std::fmt;
use std::pin::Pin;

use rustix::process::Pid;
use tokio::signal::unix::{SignalKind, signal};

/// What asked the command to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal is gone.
    Hangup,
    /// SIGQUIT: Ctrl-\.
    Quit,
    /// No signal: the process is gone that the command is bound to; none for one that was never seen.
    Gone(Option<Pid>),
}

impl Signal {
    /// What a shell reports of a command that the signal has ended. A process that is gone counts as SIGTERM.
    pub(super) fn exit_code(self) -> u8 {
        128 + match self {
            Signal::Hangup => 1,
            Signal::Interrupt => 2,
            Signal::Quit => 3,
            Signal::Terminate | Signal::Gone(_) => 15,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Signal::Interrupt => "interrupted",
            Signal::Terminate => "terminated",
            Signal::Hangup => "hung up",
            Signal::Quit => "quit",
            Signal::Gone(Some(pid)) => return write!(f, "process {pid}, which this is bound to, is gone"),
            Signal::Gone(None) => "the process that this is bound to is gone",
        })
    }
}

/// The signal that ends the command, once it comes. Until somebody waits for it, it ends the process as ever.
pub(super) struct Interrupt {
    coming: Pin<Box<dyn Future<Output = Signal>>>,
    come: Option<Signal>,
}

impl Interrupt {
    /// The signals of this process.
    pub(super) fn of_process() -> Self {
        Self::when(async {
            let (Ok(mut interrupt), Ok(mut terminate)) =
                (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
            else {
                // They stay what they are: the end of the process.
                return std::future::pending().await;
            };
            tokio::select! {
                _ = interrupt.recv() => Signal::Interrupt,
                _ = terminate.recv() => Signal::Terminate,
            }
        })
    }

    /// A signal that comes when `coming` says.
    pub(super) fn when(coming: impl Future<Output = Signal> + 'static) -> Self {
        Self { coming: Box::pin(coming), come: None }
    }

    /// Waits for the signal; at once when it has come before.
    pub(super) async fn came(&mut self) -> Signal {
        if let Some(come) = self.come {
            return come;
        }
        let come = self.coming.as_mut().await;
        self.come = Some(come);
        come
    }
}
