//! The signals that reach `berth exec`.
//!
//! One that it was started to ignore (`nohup`, a background job of a script) stays ignored, by it and by the command.

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;

use futures_util::FutureExt;
use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use super::super::interrupt::{Interrupt, Signal as End};
use super::bond::Bond;
use super::proc::Ignored;

/// What the command is told as well.
const PASSED_ON: [Signal; 7] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2, Signal::WINCH];
/// What ends the wait for a lease.
const ENDING: [Signal; 4] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM];

/// Signals as they come. Some that come at once count as one.
#[derive(Debug)]
pub(super) struct Signals(Vec<(Signal, Stream)>);

impl Signals {
    /// Those that the command is told as well.
    ///
    /// # Errors
    /// The system does not let them be caught.
    pub(super) fn passed_on() -> io::Result<Self> {
        let mut signals = Self(Vec::new());
        signals.add(&PASSED_ON)?;
        Ok(signals)
    }

    /// Catches more of them, but those that are ignored.
    ///
    /// # Errors
    /// The system does not let them be caught.
    pub(super) fn add(&mut self, more: &[Signal]) -> io::Result<()> {
        let ignored = Ignored::of_process();
        for kind in more.iter().filter(|kind| !ignored.has(**kind)) {
            self.0.push((*kind, signal(SignalKind::from_raw(kind.as_raw()))?));
        }
        Ok(())
    }

    /// Forgets what has come so far of those that mean nothing before there is a command.
    pub(super) fn forget_news(&mut self) {
        for (_, stream) in self.0.iter_mut().filter(|(kind, _)| !ENDING.contains(kind)) {
            let _ = stream.recv().now_or_never();
        }
    }

    /// The next one. May be dropped and asked again.
    pub(super) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (kind, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*kind);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// What ends `berth exec` while there is no command yet. It is listened for from now on.
///
/// # Errors
/// The system does not let a signal be caught.
pub(super) fn before_the_command(bond: Rc<Bond>) -> io::Result<Interrupt> {
    let mut signals = Signals(Vec::new());
    signals.add(&ENDING)?;
    Ok(Interrupt::when(async move {
        tokio::select! {
            biased;
            signal = signals.next() => match signal {
                Signal::HUP => End::Hangup,
                Signal::INT => End::Interrupt,
                Signal::QUIT => End::Quit,
                _ => End::Terminate,
            },
            () = bond.broken() => bond.news(),
        }
    }))
}
