//! How long a command that waits goes on asking a node that does not answer.

use std::time::Duration;

use crate::client::ClientError;
use crate::clock::{Clock, RunTime};
use crate::model::{Code, Refusal};

/// The times that waiting commands go by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// One long poll.
    pub(super) poll: Duration,
    /// Between two asks of an unattended waiter; far below the shortest time after which it would be given up.
    pub(super) ask: Duration,
    /// Between two tries, when the node does not answer or answers at once.
    pub(super) pause: Duration,
    /// How long a node may be away.
    pub(super) silence_max: Duration,
    /// How long it takes at most, after Ctrl-C, to give back what there is.
    pub(super) give_up: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(10),
            ask: Duration::from_secs(2),
            pause: Duration::from_secs(1),
            silence_max: Duration::from_secs(60),
            give_up: Duration::from_secs(2),
        }
    }
}

/// Counts how long nothing was heard.
#[derive(Debug)]
pub(super) struct Patience {
    clock: Clock,
    pace: Pace,
    heard: RunTime,
}

impl Patience {
    /// From now on.
    pub(super) fn new(pace: Pace) -> Self {
        let clock = Clock::system();
        let heard = clock.now().run;
        Self { clock, pace, heard }
    }

    /// An answer came.
    pub(super) fn heard(&mut self) {
        self.heard = self.clock.now().run;
    }

    /// Waits a moment before the next try.
    ///
    /// # Errors
    /// `error`, when another try would not help or nothing was heard for too long.
    pub(super) async fn after(&self, error: ClientError) -> Result<(), ClientError> {
        let left = (self.heard + self.pace.silence_max).left(self.clock.now().run);
        if left.is_zero() || !may_pass(&error) {
            return Err(error.after_a_first_answer());
        }
        tokio::time::sleep(self.pace.pause.min(left)).await;
        Ok(())
    }
}

/// True when the same question may be answered a little later: nobody is there, or whoever is there does not know yet.
pub(super) fn may_pass(error: &ClientError) -> bool {
    match error {
        ClientError::Unanswered { .. } => true,
        ClientError::Refused(refusal) => match refusal.code {
            Code::Stopping | Code::NodeRestarted | Code::WorkerUnreachable | Code::QueueFull => true,
            Code::UnknownLease => is_rebuilding(refusal),
            _ => false,
        },
        ClientError::BadAnswer { .. } => false,
    }
}

/// True when a gateway does not know the lease because it has not heard of all its workers yet.
pub(super) fn is_rebuilding(refusal: &Refusal) -> bool {
    let said = refusal.details.as_ref().and_then(|details| details.get("rebuilding"));
    said.and_then(serde_json::Value::as_bool).unwrap_or(false)
}
