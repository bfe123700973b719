//! How a call can end without an answer.

use std::error::Error;

use crate::model::Refusal;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The node said no.
    #[error(transparent)]
    Refused(Refusal),
    /// No answer came. Unless `reached` is false, nobody knows whether the call took effect: ask what is there, or
    /// retry under the same idempotency key.
    #[error("{}", unanswered(endpoint, *reached))]
    Unanswered {
        /// The node.
        endpoint: String,
        /// False when no connection was made, so that nothing can have happened.
        reached: bool,
        /// What the connection says.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// What answered does not speak the contract of a node.
    #[error("{endpoint} gave an answer that is none of Berth's: {why}")]
    BadAnswer {
        /// The node, or what is taken for one.
        endpoint: String,
        /// What is wrong with the answer.
        why: String,
    },
}

impl ClientError {
    /// The same error of a later call about something that a first call has begun: that no connection was made this
    /// time does not mean that nothing has happened.
    pub fn after_a_first_answer(self) -> Self {
        match self {
            ClientError::Unanswered { endpoint, source, .. } => {
                ClientError::Unanswered { endpoint, reached: true, source }
            }
            other => other,
        }
    }

    /// The refusal, where it is one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            ClientError::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

fn unanswered(endpoint: &str, reached: bool) -> String {
    match reached {
        true => format!("no answer from {endpoint}"),
        false => format!("no connection to {endpoint}"),
    }
}

/// The innermost cause: what the system said, without the layers in between.
pub(super) fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
