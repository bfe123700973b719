//! A program and everything that has come of it, seen from its guard.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus};
use rustix::process::{kill_process, kill_process_group, wait, waitid, waitpid};

use super::Ended;

/// The processes below a guard: the program, what it has started, and on Linux the orphans among those.
#[derive(Debug)]
pub(super) struct Family {
    /// It leads a group with its own number. Until its end is taken from the system the number is nobody else's.
    program: Pid,
    ended: Option<Ended>,
}

/// Whether anybody of a family is left.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left {
    Somebody,
    Nobody,
}

impl Family {
    pub(super) fn of(program: Pid) -> Self {
        Self { program, ended: None }
    }

    /// True when the program has ended. Orphans that have ended are buried on the way; the program is not yet, so that its
    /// group can still be killed.
    pub(super) fn program_has_ended(&self) -> bool {
        for orphan in children().into_iter().filter(|child| *child != self.program) {
            let _ = waitpid(Some(orphan), WaitOptions::NOHANG);
        }
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(self.program), look), Ok(None) | Err(Errno::INTR))
    }

    /// Sends a signal to the program's group. Only before [`Family::bury`].
    pub(super) fn signal(&self, signal: Signal) {
        // A group whose members have all ended meanwhile needs no signal.
        let _ = kill_process_group(self.program, signal);
    }

    /// Kills the children of the guard. The children of those become its own then, and are killed when it is called again.
    pub(super) fn kill_children(&self) {
        for child in children() {
            // The number of a child is nobody else's until it is buried here. One of another user cannot be killed; it is
            // told at the end.
            let _ = kill_process(child, Signal::KILL);
        }
    }

    /// Takes the end of every child that has one.
    pub(super) fn bury(&mut self) -> Left {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.program => self.ended = Some(ended(status)),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return Left::Somebody,
                Err(_) => return Left::Nobody,
            }
        }
    }

    /// How the program has ended, and who is left.
    pub(super) fn account(self) -> (Ended, Vec<Pid>) {
        let ended = self.ended.unwrap_or_else(|| Ended::Failed("could not be killed".to_owned()));
        (ended, children())
    }
}

fn ended(status: WaitStatus) -> Ended {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Ended::Exited(code),
        (None, Some(number)) => Ended::Signalled(number),
        (None, None) => Ended::Failed(format!("ended in a way that is not known: {status:?}")),
    }
}

/// The children of this process, those that have ended and are not buried among them. One that is born or dies meanwhile may
/// be missed.
#[cfg(target_os = "linux")]
fn children() -> Vec<Pid> {
    listed().unwrap_or_else(sought)
}

/// The guard gets no orphans here, and the program's group is killed as one.
#[cfg(not(target_os = "linux"))]
fn children() -> Vec<Pid> {
    Vec::new()
}

/// What the system lists as children; none where it is built without that list.
#[cfg(target_os = "linux")]
fn listed() -> Option<Vec<Pid>> {
    let mut found = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let list = std::fs::read_to_string(task.ok()?.path().join("children")).ok()?;
        found.extend(list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    Some(found)
}

/// The same, found among all processes.
#[cfg(target_os = "linux")]
fn sought() -> Vec<Pid> {
    let own = rustix::process::getpid();
    let Ok(all) = std::fs::read_dir("/proc") else { return Vec::new() };
    let child = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.ok()?;
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // Behind the name, which may hold anything, come the state and the parent.
        let parent: i32 = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        (Pid::from_raw(parent) == Some(own)).then_some(pid)
    };
    all.filter_map(child).collect()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_child_is_found_with_the_systems_list_and_without() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = Pid::from_child(&child);
        // Other tests of this process have children of their own.
        assert!(listed().is_none_or(|listed| listed.contains(&pid)));
        assert!(sought().contains(&pid));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(!sought().contains(&pid));
    }
}
