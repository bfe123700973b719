//! Whether new holds are stopped on the whole lab. It is on the gateway's disk; what each worker makes of it is on its own.
//!
//! A worker is told as often as it may not know: when an admin says so, after the first report over each link, and again when
//! an answer got lost or the worker says no, after a pause that doubles from 1 s to 60 s. It is told in the gateway's own name, so that it can keep this apart from a pause of its own, which
//! the gateway never ends. A gateway that was never told says nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::front::{CallKind, FrontState, Worker};
use super::super::session::Outcome;
use crate::clock::RunTime;
use crate::limits::CALL_BOUND;
use crate::model::{Asker, Event, EventKind, NodeName, Principal, Requester, Role};
use crate::trust::replace_private_file;
use crate::wire::calendar::{CalendarAnswer, CalendarAsk, CalendarCall};
use crate::wire::call::{Answer, Call};

/// The file, under the node's directory.
const FILE: &str = "holds.state";
const PAUSED: &str = "paused\n";
const RESUMED: &str = "resumed\n";

/// The pause after the first telling that came to nothing, and the longest.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_LONGEST: Duration = Duration::from_secs(60);

/// What a worker has been told over its link of new holds. The default is nothing yet.
#[derive(Debug, Default)]
pub(in super::super) struct Told {
    paused: Option<bool>,
    /// Tellings in a row that came to nothing.
    failures: u32,
    /// Not before this.
    again_at: Option<RunTime>,
}

impl Told {
    /// True when it may not know, and is to be told now.
    fn is_due(&self, paused: bool, now: RunTime) -> bool {
        self.paused != Some(paused) && self.again_at.is_none_or(|at| now >= at)
    }

    /// Telling it came to nothing.
    fn failed(&mut self, now: RunTime) {
        let pause = AGAIN_FIRST.saturating_mul(1 << self.failures.min(6)).min(AGAIN_LONGEST);
        *self = Self { paused: None, failures: self.failures.saturating_add(1), again_at: Some(now + pause) };
    }
}

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
    /// It is on disk that new holds are stopped, or made again: every worker that is here is told, whatever it was told before.
    pub(in super::super) fn pause_holds(&mut self, paused: bool) {
        if self.around.holds_paused.replace(paused).unwrap_or(false) != paused {
            self.emit(match paused {
                true => Event::new(EventKind::HoldsPaused).with("reason", "admin"),
                false => Event::new(EventKind::HoldsResumed),
            });
        }
        self.workers.values_mut().for_each(|worker| worker.told = Told::default());
        tracing::info!(paused, "new holds of the whole lab");
        self.tell_pauses();
    }

    /// Tells every worker that can be asked and may not know it.
    pub(in super::super) fn tell_pauses(&mut self) {
        let Some(paused) = self.around.holds_paused else { return };
        let now = self.around.clock.now().run;
        let behind = |worker: &Worker| worker.takes_requests() && worker.told.is_due(paused, now);
        let behind: Vec<NodeName> =
            self.workers.iter().filter(|(_, worker)| behind(worker)).map(|(name, _)| name.clone()).collect();
        for worker in behind {
            if let Some(state) = self.workers.get_mut(&worker) {
                state.told.paused = Some(paused);
            }
            let requester = Requester::local(Principal::admin(), None).through(&self.around.name);
            let asker = Asker { requester, role: Role::Admin };
            let call = CalendarCall { asker, ask: CalendarAsk::PauseHolds { resource: None, paused } };
            self.ask(&worker, CallKind::Pause(paused), Call::Calendar(call), CALL_BOUND);
        }
    }

    /// What became of telling a worker. One that did not answer, or said no, is told again.
    pub(in super::super) fn pause_answered(&mut self, worker: &NodeName, paused: bool, outcome: &Outcome) {
        let now = self.around.clock.now().run;
        let Some(state) = self.workers.get_mut(worker).filter(|state| state.told.paused == Some(paused)) else {
            return;
        };
        match outcome {
            Outcome::Answered(answer, _) => match &**answer {
                Answer::Calendar(CalendarAnswer::Paused(_)) => state.told.failures = 0,
                other => {
                    tracing::warn!(%worker, paused, ?other, "a worker does not follow what is said of new holds");
                    state.told.failed(now);
                }
            },
            Outcome::NotSent | Outcome::Lost => state.told.failed(now),
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

    #[test]
    fn a_worker_that_does_not_follow_is_told_again_after_pauses_that_double_up_to_a_minute() {
        let mut now = RunTime::default();
        let mut told = Told::default();
        for pause in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
            assert!(told.is_due(true, now));
            told.paused = Some(true);
            assert!(!told.is_due(true, now) && told.is_due(false, now));
            told.failed(now);
            now = now + (Duration::from_secs(pause) - Duration::from_millis(1));
            assert!(!told.is_due(true, now), "{pause}");
            now = now + Duration::from_millis(1);
        }
    }
}
