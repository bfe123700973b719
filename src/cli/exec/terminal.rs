//! The terminal that `berth exec` shares with its command: who has the foreground, and job control.
//!
//! The foreground is lent to the command's group at once when `berth` reads from and writes to a terminal, so that Ctrl-C
//! reaches the command only. Otherwise it may share the terminal with others (`berth exec … | less`), and the command gets
//! it when it stops for want of it. It is never taken from anybody: only what is `berth`'s own is lent, and only what was
//! lent is taken back.

use std::io::{IsTerminal, stdin, stdout};

use nix::sys::signal::{SigSet, Signal as Blocked};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::Pid;
use rustix::termios::{tcgetpgrp, tcsetpgrp};

use super::proc::Place;

/// Ancestors that are looked at for one that has job control.
const ANCESTORS_MAX: usize = 64;

/// The controlling terminal.
#[derive(Debug)]
pub(super) struct Terminal {
    tty: OwnedFd,
    /// The group of this process.
    own: Pid,
    /// The command's group has the foreground from us.
    lent: bool,
}

impl Terminal {
    /// The one of this process, if it has one.
    pub(super) fn controlling() -> Option<Self> {
        let tty = open("/dev/tty", OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        // A group of another PID namespace has no name here, and nothing can be given to it.
        let own = Pid::from_raw(Place::own()?.group)?;
        Some(Self { tty, own, lent: false })
    }

    /// Gives `group` the foreground if that is the way `berth` is used. From here on this thread may use the terminal
    /// from the background; children that it has already do not inherit that.
    pub(super) fn begin(&mut self, group: Pid) {
        let mut mask = SigSet::empty();
        mask.add(Blocked::SIGTTOU);
        mask.thread_block().expect("a mask of a valid signal is taken");
        if stdin().is_terminal() && stdout().is_terminal() {
            self.lend(group);
        }
    }

    /// Gives `group` the foreground if it is ours; true when `group` has it now.
    pub(super) fn lend(&mut self, group: Pid) -> bool {
        self.lent = match tcgetpgrp(&self.tty) {
            Ok(front) if front == self.own => tcsetpgrp(&self.tty, group).is_ok(),
            Ok(front) => front == group,
            Err(_) => false,
        };
        self.lent
    }

    /// Takes back what was lent.
    pub(super) fn take_back(&mut self) {
        if std::mem::take(&mut self.lent) {
            // A terminal that was hung up has no foreground any more.
            let _ = tcsetpgrp(&self.tty, self.own);
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}

/// True when there is nobody who would see that this process's group has stopped, and continue it. The kernel calls such
/// a group orphaned and has Ctrl-Z do nothing.
pub(super) fn is_orphaned() -> bool {
    let Some(own) = Place::own() else { return true };
    let mut ancestor = own.parent;
    for _ in 0..ANCESTORS_MAX {
        match Place::of(ancestor) {
            Some(place) if place.session != own.session => return true,
            Some(place) if place.group != own.group => return false,
            Some(place) => ancestor = place.parent,
            None => return true,
        }
    }
    true
}
