//! Which life of the gateway this is, and what was waited for in it, as its directory keeps it.
//!
//! The number grows with every start. What is waited for is written at most once a second, and nobody waits for that: a
//! gateway that dies within that second keeps nothing for those who had just begun to wait.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::front::FrontState;
use super::message::FrontMessage;
use super::returning::Waited;
use crate::clock::RunTime;
use crate::trust::replace_private_file;

/// The file, under the node's directory.
const FILE: &str = "run.state";
/// The least time between two writes.
const PACE: Duration = Duration::from_secs(1);

/// Where a gateway keeps its run.
#[derive(Debug, Clone)]
pub struct RunFile(PathBuf);

/// A run as it is found at the start of the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its number.
    pub number: u64,
    /// What was waited for when the run before this one ended.
    pub waited: Waited,
}

#[derive(Debug, Serialize, Deserialize)]
struct Written {
    run: u64,
    /// Canonical selectors.
    waited: Vec<String>,
    /// True when there were more.
    more: bool,
}

impl RunFile {
    /// The file of the gateway whose directory this is.
    pub fn under(directory: &Path) -> Self {
        Self(directory.join(FILE))
    }

    /// Begins the next run: its number is above the last one's and not below the Unix time in ms. Blocks on the disk.
    ///
    /// # Errors
    /// What the system says, and `InvalidData` when the file is no run's.
    pub fn begin(&self, now: Timestamp) -> io::Result<Run> {
        let former = self.read()?;
        let (number, waited) = former.map_or((0, Waited::default()), |run| (run.number, run.waited));
        let today = u64::try_from(now.as_millisecond()).unwrap_or(0);
        let run = Run { number: number.saturating_add(1).max(today), waited };
        // Should this run end before anybody is back, the next one expects them all the same.
        self.write(run.number, &run.waited)?;
        Ok(run)
    }

    /// Makes it durable what is waited for. Blocks on the disk.
    ///
    /// # Errors
    /// What the system says; then the file is as it was.
    pub fn write(&self, run: u64, waited: &Waited) -> io::Result<()> {
        let (waited, more) = waited.written();
        let text = serde_json::to_vec(&Written { run, waited, more }).map_err(io::Error::other)?;
        replace_private_file(&self.0, &text)
    }

    fn read(&self) -> io::Result<Option<Run>> {
        let text = match std::fs::read(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let Written { run, waited, more } = serde_json::from_slice(&text).map_err(|error| {
            let why = format!("{} does not read as a run ({error}); remove it", self.0.display());
            io::Error::new(io::ErrorKind::InvalidData, why)
        })?;
        Ok(Some(Run { number: run, waited: Waited::read(&waited, more) }))
    }
}

/// What is on disk of this run, and what is being written.
#[derive(Debug)]
pub(super) struct RunMark {
    file: RunFile,
    written: Waited,
    writing: bool,
    again_at: RunTime,
}

impl RunMark {
    /// Of a run that has just begun.
    pub(super) fn new(file: RunFile, waited: Waited) -> Self {
        Self { file, written: waited, writing: false, again_at: RunTime::default() }
    }
}

impl FrontState {
    /// Has it written down what is waited for, if that has changed.
    pub(super) fn mark_waited(&mut self, now: RunTime) {
        if self.mark.writing || now < self.mark.again_at {
            return;
        }
        let waited = Waited::of(self.fleet.pool().groups()).and(self.returning.waited());
        if waited == self.mark.written {
            return;
        }
        (self.mark.writing, self.mark.again_at) = (true, now + PACE);
        let (file, run, front) = (self.mark.file.clone(), self.returning.run(), self.myself.clone());
        tokio::task::spawn_blocking(move || {
            let outcome = file.write(run, &waited);
            let _ = front.cast(FrontMessage::WaitedWritten(waited, outcome));
        });
    }

    /// It is on disk, or is not; then it is tried again.
    pub(super) fn waited_written(&mut self, waited: Waited, outcome: io::Result<()>) {
        self.mark.writing = false;
        match outcome {
            Ok(()) => self.mark.written = waited,
            Err(error) => tracing::warn!(%error, "cannot write down what is waited for; it is tried again"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_a_higher_number_and_finds_what_was_waited_for_in_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let file = RunFile::under(directory.path());
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let today = u64::try_from(now.as_millisecond()).unwrap();
        let first = file.begin(now).unwrap();
        assert_eq!(first, Run { number: today, waited: Waited::default() });
        let waited = Waited::read(&["platform=linux".to_owned()], false);
        file.write(first.number, &waited).unwrap();
        let second = RunFile::under(directory.path()).begin(now).unwrap();
        assert_eq!(second, Run { number: today + 1, waited: waited.clone() });
        let third = RunFile::under(directory.path()).begin("2020-01-01T00:00:00Z".parse().unwrap()).unwrap();
        assert_eq!(third, Run { number: today + 2, waited }, "nobody has been back in between");
        std::fs::write(directory.path().join(FILE), "7").unwrap();
        assert_eq!(file.begin(now).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
