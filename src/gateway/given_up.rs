//! Attempts that have been given up, on the gateway's disk: a lease that one of them has got is released on sight, also
//! by the next life of the gateway (SPEC §9 In doubt).
//!
//! An attempt is on disk before its request goes back to the queue. It stays there until its worker has reported again
//! and has said what became of it, or is removed from the lab.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use ractor::RpcReplyPort;
use serde::{Deserialize, Serialize};

use super::fleet::Stage;
use super::front::FrontState;
use super::message::FrontMessage;
use crate::limits::GIVEN_UP_MAX;
use crate::model::{NodeName, Refusal, RequestId};
use crate::trust::replace_private_file;

/// The file, under the node's directory.
const FILE: &str = "given-up.state";

/// One attempt.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GivenUp {
    /// Of which request.
    pub request: RequestId,
    /// On which worker.
    pub worker: NodeName,
    /// Its number.
    pub attempt: u32,
}

/// Where a gateway keeps them.
#[derive(Debug, Clone)]
pub struct GivenUpFile(PathBuf);

impl GivenUpFile {
    /// The file of the gateway whose directory this is.
    pub fn under(directory: &Path) -> Self {
        Self(directory.join(FILE))
    }

    /// What was written last.
    ///
    /// # Errors
    /// What the system says, and `InvalidData` when it is something else.
    pub fn read(&self) -> io::Result<BTreeSet<GivenUp>> {
        let text = match std::fs::read(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
            Err(error) => return Err(error),
        };
        serde_json::from_slice(&text).map_err(|error| {
            let why = format!("{} does not read as attempts ({error}); remove it", self.0.display());
            io::Error::new(io::ErrorKind::InvalidData, why)
        })
    }

    /// Makes it durable. Blocks on the disk.
    ///
    /// # Errors
    /// What the system says; then the file is as it was.
    pub fn write(&self, rows: &BTreeSet<GivenUp>) -> io::Result<()> {
        replace_private_file(&self.0, &serde_json::to_vec(rows).map_err(io::Error::other)?)
    }
}

/// What is on disk, what is being written, and what waits for that.
#[derive(Debug)]
pub(super) struct GivenUpDisk {
    file: GivenUpFile,
    written: BTreeSet<GivenUp>,
    writing: bool,
    /// Those whose requests go on once they are on disk.
    pending: BTreeSet<GivenUp>,
    /// Who hears that all that is given up now is on disk; those of a writing that is under way already wait for the next.
    told: Vec<Told>,
    told_next: Vec<Told>,
}

type Told = RpcReplyPort<Result<(), Refusal>>;

impl GivenUpDisk {
    /// With what was read at the start.
    pub(super) fn new(file: GivenUpFile, written: BTreeSet<GivenUp>) -> Self {
        Self { file, written, writing: false, pending: BTreeSet::new(), told: Vec::new(), told_next: Vec::new() }
    }
}

impl FrontState {
    /// An attempt is to be given up. Its request goes on once that is on disk.
    pub(super) fn start_giving_up(&mut self, row: GivenUp) {
        if self.given_up.pending.contains(&row) {
            return;
        }
        if self.given_up.pending.len() + self.orphans.given_up() >= GIVEN_UP_MAX {
            tracing::warn!(?row, "too many attempts are given up; this one stays in doubt until its worker is back");
            return;
        }
        tracing::warn!(request = %row.request, worker = %row.worker, attempt = row.attempt, "gives up an attempt that its worker never answered");
        self.given_up.pending.insert(row);
    }

    /// Somebody is to hear, with success, when all that is given up now is on disk.
    pub(super) fn tell_once_given_up(&mut self, reply: Told) {
        self.given_up.told_next.push(reply);
        self.keep_given_up();
    }

    /// Has it written down which attempts are given up, if that has changed.
    pub(super) fn keep_given_up(&mut self) {
        if self.given_up.writing {
            return;
        }
        let next = std::mem::take(&mut self.given_up.told_next);
        self.given_up.told.extend(next);
        let rows: BTreeSet<GivenUp> = self.orphans.attempts().chain(self.given_up.pending.iter().cloned()).collect();
        if rows == self.given_up.written {
            self.tell_given_up();
            return self.go_on_without(&rows);
        }
        self.given_up.writing = true;
        let (file, front) = (self.given_up.file.clone(), self.myself.clone());
        tokio::task::spawn_blocking(move || {
            let outcome = file.write(&rows);
            let _ = front.cast(FrontMessage::GivenUpWritten(rows, outcome));
        });
    }

    /// They are on disk, or are not; then it is tried again.
    pub(super) fn given_up_written(&mut self, rows: BTreeSet<GivenUp>, outcome: io::Result<()>) {
        self.given_up.writing = false;
        match outcome {
            Ok(()) => {
                self.tell_given_up();
                self.go_on_without(&rows);
                self.given_up.written = rows;
            }
            Err(error) => tracing::warn!(%error, "cannot write down what is given up; it is tried again"),
        }
    }

    fn tell_given_up(&mut self) {
        for reply in self.given_up.told.drain(..) {
            // A caller that has gone needs no answer.
            let _ = reply.send(Ok(()));
        }
    }

    /// The requests whose attempts are on disk now go on, if those are still in doubt.
    fn go_on_without(&mut self, rows: &BTreeSet<GivenUp>) {
        let durable: Vec<GivenUp> = self.given_up.pending.intersection(rows).cloned().collect();
        for row in durable {
            self.given_up.pending.remove(&row);
            let in_doubt = |stage: &Stage| matches!(stage, Stage::InDoubt { worker, attempt, .. } if *worker == row.worker && *attempt == row.attempt);
            if self.fleet.get(&row.request).is_some_and(|open| in_doubt(&open.stage)) {
                self.orphans.give_up(row.request.clone(), row.worker.clone(), row.attempt);
                self.go_on_without_worker(&row.request, &row.worker);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_is_read_back_by_the_next_life_of_the_gateway() {
        let directory = tempfile::tempdir().unwrap();
        let file = GivenUpFile::under(directory.path());
        assert!(file.read().unwrap().is_empty());
        let row =
            |worker: &str| GivenUp { request: RequestId::generate(), worker: worker.parse().unwrap(), attempt: 3 };
        for rows in [BTreeSet::from([row("rack-1"), row("rack-2")]), BTreeSet::from([row("rack-1")]), BTreeSet::new()] {
            file.write(&rows).unwrap();
            assert_eq!(GivenUpFile::under(directory.path()).read().unwrap(), rows);
        }
        std::fs::write(directory.path().join(FILE), "{}").unwrap();
        assert_eq!(file.read().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
