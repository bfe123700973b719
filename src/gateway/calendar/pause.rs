//! Whether new holds are stopped on the whole lab. It is on the gateway's disk; what each worker makes of it is on its own.
//!
//! A worker is told as often as it may not know: when an admin says so, after the first report over each link, and again when
//! an answer got lost. It is told in the gateway's own name, so that it can keep this apart from a pause of its own, which
//! the gateway never ends. A gateway that was never told says nothing.

use std::io;
use std::path::{Path, PathBuf};

use super::super::front::{CallKind, FrontState};
use super::super::session::Outcome;
use crate::limits::CALL_BOUND;
use crate::model::{Asker, NodeName, Principal, Requester, Role};
use crate::trust::replace_private_file;
use crate::wire::calendar::{CalendarAsk, CalendarCall};
use crate::wire::call::{Answer, Call};

/// The file, under the node's directory.
const FILE: &str = "holds.state";
const PAUSED: &str = "paused\n";
const RESUMED: &str = "resumed\n";

/// Where a gateway keeps whether new holds are stopped.
#[derive(Debug)]
pub struct PauseFile(PathBuf);

impl PauseFile {
    /// The file of the gateway whose directory this is.
    pub fn under(directory: &Path) -> Self {
        Self(directory.join(FILE))
    }

    /// What was written last; none if nothing ever was.
    ///
    /// # Errors
    /// What the system says, and `InvalidData` when it is neither of the two words.
    pub fn read(&self) -> io::Result<Option<bool>> {
        match std::fs::read_to_string(&self.0) {
            Ok(text) if text == PAUSED => Ok(Some(true)),
            Ok(text) if text == RESUMED => Ok(Some(false)),
            Ok(_) => {
                let why = format!("{} says neither paused nor resumed; remove it", self.0.display());
                Err(io::Error::new(io::ErrorKind::InvalidData, why))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes it durable. Blocks on the disk.
    ///
    /// # Errors
    /// What the system says; then the file is as it was.
    pub fn write(&self, paused: bool) -> io::Result<()> {
        replace_private_file(&self.0, if paused { PAUSED } else { RESUMED }.as_bytes())
    }
}

impl FrontState {
    /// It is on disk that new holds are stopped, or made again: every worker that is here is told.
    pub(in super::super) fn pause_holds(&mut self, paused: bool) {
        self.around.holds_paused = Some(paused);
        tracing::info!(paused, "new holds of the whole lab");
        self.tell_pauses();
    }

    /// Tells every worker that can be asked and may not know it.
    pub(in super::super) fn tell_pauses(&mut self) {
        let Some(paused) = self.around.holds_paused else { return };
        let behind =
            |worker: &super::super::front::Worker| worker.takes_requests() && worker.told_paused != Some(paused);
        let behind: Vec<NodeName> =
            self.workers.iter().filter(|(_, worker)| behind(worker)).map(|(name, _)| name.clone()).collect();
        for worker in behind {
            if let Some(state) = self.workers.get_mut(&worker) {
                state.told_paused = Some(paused);
            }
            let requester = Requester::local(Principal::admin(), None).through(&self.around.name);
            let asker = Asker { requester, role: Role::Admin };
            let call = CalendarCall { asker, ask: CalendarAsk::PauseHolds { resource: None, paused } };
            self.ask(&worker, CallKind::Pause(paused), Call::Calendar(call), CALL_BOUND);
        }
    }

    /// What became of telling a worker. One that did not answer is told again.
    pub(in super::super) fn pause_answered(&mut self, worker: &NodeName, paused: bool, outcome: &Outcome) {
        match outcome {
            Outcome::Answered(answer, _) => {
                if let Answer::Refused(refusal) = &**answer {
                    tracing::warn!(%worker, paused, %refusal, "a worker does not follow what is said of new holds");
                }
            }
            Outcome::NotSent | Outcome::Lost => {
                if let Some(state) = self.workers.get_mut(worker)
                    && state.told_paused == Some(paused)
                {
                    state.told_paused = None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_read_back_by_the_next_life_of_the_gateway() {
        let directory = tempfile::tempdir().unwrap();
        let file = PauseFile::under(directory.path());
        assert_eq!(file.read().unwrap(), None);
        for paused in [true, false, true] {
            file.write(paused).unwrap();
            assert_eq!(PauseFile::under(directory.path()).read().unwrap(), Some(paused));
        }
        std::fs::write(directory.path().join(FILE), "pau").unwrap();
        assert_eq!(file.read().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
