//! The command that runs under a lease, from its start to its end.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_current_process_group, kill_process_group,
    test_kill_process_group, waitid,
};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::signals::Signals;
use super::terminal::{Terminal, is_orphaned};
use crate::clock::{Clock, RunTime};

/// Between SIGTERM and SIGKILL (SPEC §7).
const GRACE: Duration = Duration::from_secs(10);
/// How long after SIGKILL a process may take to go; one that the kernel does not let go is left behind.
const KILLED_BOUND: Duration = Duration::from_secs(5);
/// Between two looks whether a group is empty; the kernel tells nobody.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// The command could not be started.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be run", program.display())]
pub struct NotStarted {
    program: OsString,
    source: io::Error,
}

impl NotStarted {
    /// True when there is no such program, rather than one that cannot be executed.
    pub fn is_missing(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }
}

/// A command that runs, or has ended. Its group has its number.
#[derive(Debug)]
pub(super) struct Running {
    group: Pid,
    signals: Signals,
    terminal: Option<Terminal>,
    /// When the lease ends if nothing renews it.
    deadline: watch::Receiver<RunTime>,
    clock: Clock,
    /// It was stopped together with us, and goes on once the lease is known to be held still.
    held_back: bool,
    /// It is being ended, and is not to stop.
    ending: bool,
    /// With what it has ended.
    end: Option<u8>,
}

impl Running {
    /// Starts it in a group of its own.
    ///
    /// # Errors
    /// There is no such program, or it cannot be executed.
    pub(super) fn start(
        line: &[OsString],
        environment: &BTreeMap<String, String>,
        mut signals: Signals,
        deadline: watch::Receiver<RunTime>,
    ) -> Result<Self, NotStarted> {
        let (program, arguments) = line.split_first().expect("clap requires a command");
        let failed = |source| NotStarted { program: program.clone(), source };
        let mut terminal = Terminal::controlling();
        signals.forget_news();
        signals.add(&[Signal::CHILD]).map_err(failed)?;
        if terminal.is_some() {
            signals.add(&[Signal::TSTP, Signal::CONT]).map_err(failed)?;
        }
        let child = Command::new(program).args(arguments).envs(environment).process_group(0).spawn();
        let group = Pid::from_child(&child.map_err(failed)?);
        if let Some(terminal) = &mut terminal {
            terminal.begin(group);
        }
        let clock = Clock::system();
        let mut running =
            Self { group, signals, terminal, deadline, clock, held_back: false, ending: false, end: None };
        // It may have stopped already because it did not have the terminal yet.
        running.tell(Signal::CONT);
        Ok(running)
    }

    /// Passes signals on until the command has ended; its exit code, or 128 and the number of the signal that ended it.
    /// May be dropped and asked again.
    pub(super) async fn ended(&mut self) -> u8 {
        loop {
            if let Some(end) = self.look() {
                return end;
            }
            let clock = &self.clock;
            let signal = tokio::select! {
                biased;
                signal = self.signals.next() => Some(signal),
                Ok(_) = self.deadline.wait_for(|deadline| *deadline > clock.now().run), if self.held_back => None,
            };
            match signal {
                Some(Signal::CHILD) => {}
                Some(Signal::CONT) => self.continued(),
                Some(signal) => self.tell(signal),
                None => self.resume(),
            }
        }
    }

    /// Ends its whole group: SIGTERM, and SIGKILL when something of it is still there after the grace. What gets no
    /// SIGKILL has gone by itself.
    pub(super) async fn put_down(&mut self) {
        self.ending = true;
        self.tell(Signal::TERM);
        // A stopped process takes no signal.
        self.tell(Signal::CONT);
        if timeout(GRACE, self.gone()).await.is_err() {
            self.tell(Signal::KILL);
            let _ = timeout(KILLED_BOUND, self.gone()).await;
        }
    }

    /// Waits until nothing of its group is left.
    async fn gone(&mut self) {
        self.ended().await;
        self.reap();
        // While one of the group is there, its number is no other's; nor is it soon after.
        while test_kill_process_group(self.group) != Err(Errno::SRCH) {
            sleep(LOOK_PAUSE).await;
        }
    }

    /// Sees what has become of the command. One that has ended keeps its number until [`Self::reap`].
    fn look(&mut self) -> Option<u8> {
        if self.end.is_none() {
            let ended = self.state(WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            self.end = ended.map(|status| exit_code(&status));
        }
        if self.end.is_none()
            && let Some(signal) = self.state(WaitIdOptions::STOPPED).and_then(|status| status.stopping_signal())
        {
            self.stopped(signal);
        }
        self.end
    }

    fn state(&self, what: WaitIdOptions) -> Option<WaitIdStatus> {
        // It is our child, so there is no error until it is reaped.
        waitid(WaitId::Pid(self.group), what | WaitIdOptions::NOHANG).ok().flatten()
    }

    /// Lets an ended command's number go.
    fn reap(&mut self) {
        self.state(WaitIdOptions::EXITED);
    }

    /// The command has stopped.
    fn stopped(&mut self, signal: i32) {
        // Without a terminal, whoever has stopped it continues it.
        let Some(terminal) = &mut self.terminal else { return };
        let wants_terminal = [Signal::TTIN, Signal::TTOU].iter().any(|it| it.as_raw() == signal);
        if self.ending || wants_terminal && terminal.lend(self.group) {
            self.tell(Signal::CONT);
        } else if !is_orphaned() {
            // The shell sees that its job has stopped. Whoever shares the job with us stops as well.
            terminal.take_back();
            let _ = kill_current_process_group(Signal::STOP);
        } else if signal == Signal::TSTP.as_raw() {
            self.resume();
        }
    }

    /// We were continued. The deadline may have passed meanwhile.
    fn continued(&mut self) {
        self.held_back = true;
        if *self.deadline.borrow() > self.clock.now().run {
            self.resume();
        }
    }

    fn resume(&mut self) {
        self.held_back = false;
        if let Some(terminal) = &mut self.terminal {
            terminal.lend(self.group);
        }
        self.tell(Signal::CONT);
    }

    /// Sends its group a signal. One that is empty does not hear it.
    fn tell(&mut self, signal: Signal) {
        let _ = kill_process_group(self.group, signal);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.reap();
    }
}

fn exit_code(status: &WaitIdStatus) -> u8 {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    // A status has eight bits, and no signal has a number above 64.
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
