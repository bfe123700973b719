//! How a command that failed says so, and with what the process ends (SPEC §11).

use std::io;

use serde::Serialize;
use serde_json::{Map, Value};

use super::doctor::Unsound;
use super::exec::NotStarted;
use super::interrupt::Signal;
use super::output::Output;
use super::select::Unselectable;
use super::wait::NotReady;
use crate::client::discovery::DiscoveryError;
use crate::client::{ClientError, InvalidEndpoint};
use crate::model::{Code, LeaseId, Refusal};

/// Nobody knows the answer. No node says this, so it is not among its codes.
const UNANSWERED: &str = "UNANSWERED";
/// A signal came. No node says this either.
const INTERRUPTED: &str = "INTERRUPTED";
/// A holder lost its lease.
const LEASE_LOST: (&str, u8) = ("LEASE_LOST", 14);
/// The command that was to run under a lease is not there, or is none.
const COMMAND_NOT_FOUND: (&str, u8) = ("COMMAND_NOT_FOUND", 127);
const COMMAND_NOT_EXECUTABLE: (&str, u8) = ("COMMAND_NOT_EXECUTABLE", 126);

/// The node has found what must not be.
const INVARIANT_VIOLATED: (&str, u8) = ("INVARIANT_VIOLATED", 1);

/// The command was used wrongly in a way that clap cannot see.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Misuse(pub(super) String);

/// A signal ended the command before it was done.
#[derive(Debug, thiserror::Error)]
#[error("{signal}; {outcome}")]
pub(super) struct Interrupted {
    pub(super) signal: Signal,
    /// What became of what the command had begun.
    pub(super) outcome: String,
}

/// The lease that the command held is over.
#[derive(Debug, thiserror::Error)]
#[error("lease {lease} is lost: {why}")]
pub(super) struct Lost {
    pub(super) lease: LeaseId,
    pub(super) why: String,
}

/// What is printed about a failure.
#[derive(Debug, Serialize)]
struct Verdict {
    #[serde(skip)]
    exit: u8,
    code: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Map<String, Value>>,
    #[serde(rename = "retryAfter", skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

/// Prints the failure and, for people, what to try; answers the exit code.
pub(super) fn report(error: &anyhow::Error, hint: Option<&str>, output: &mut Output) -> u8 {
    if closed(error) {
        return 0;
    }
    let verdict = Verdict::of(error);
    if output.json() {
        #[derive(Serialize)]
        struct Line<'a> {
            error: &'a Verdict,
        }
        let line = serde_json::to_string(&Line { error: &verdict }).unwrap_or_else(|error| error.to_string());
        output.complain(&line);
    } else {
        output.labelled("error", "31", &format!("{}: {}", verdict.code, verdict.message));
        if let Some(hint) = hint {
            output.labelled("hint:", "36", hint);
        }
    }
    verdict.exit
}

/// The refusal that `error` is about.
pub(super) fn refusal(error: &anyhow::Error) -> Option<&Refusal> {
    error.chain().find_map(|cause| {
        cause.downcast_ref::<Refusal>().or_else(|| cause.downcast_ref::<ClientError>().and_then(ClientError::refusal))
    })
}

/// True when the reader of stdout has seen enough.
fn closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

impl Verdict {
    fn of(error: &anyhow::Error) -> Self {
        if let Some(refusal) = refusal(error) {
            return Self {
                exit: refusal.code.exit_code(),
                code: refusal.code.as_str(),
                message: refusal.message.clone(),
                details: refusal.details.clone(),
                retry_after: refusal.retry_after,
            };
        }
        let misuse = |code: Code| (code.as_str(), code.exit_code());
        let (code, exit) = match error {
            e if e.is::<Misuse>() || e.is::<Unselectable>() || e.is::<InvalidEndpoint>() => misuse(Code::BadRequest),
            e if matches!(e.downcast_ref(), Some(DiscoveryError::Several { .. })) => misuse(Code::BadRequest),
            e if e.is::<DiscoveryError>() || e.is::<NotReady>() => (UNANSWERED, 1),
            e if e.is::<Lost>() => LEASE_LOST,
            e if let Some(why) = e.downcast_ref::<NotStarted>() => match why.is_missing() {
                true => COMMAND_NOT_FOUND,
                false => COMMAND_NOT_EXECUTABLE,
            },
            e if e.is::<Unsound>() => INVARIANT_VIOLATED,
            e if let Some(Interrupted { signal, .. }) = e.downcast_ref() => (INTERRUPTED, signal.exit_code()),
            e if matches!(e.downcast_ref(), Some(ClientError::Unanswered { .. })) => (UNANSWERED, 1),
            _ => misuse(Code::Internal),
        };
        Self { exit, code, message: chained(error), details: None, retry_after: None }
    }
}

fn chained(error: &anyhow::Error) -> String {
    match error.downcast_ref::<ClientError>() {
        Some(error) => cause(error),
        None => format!("{error:#}"),
    }
}

/// What failed and, of its causes, the innermost: the layers of an HTTP library in between tell people nothing.
pub(super) fn cause(error: &ClientError) -> String {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    match causes.last() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(error: anyhow::Error, json: bool) -> (u8, String) {
        let mut err = Vec::new();
        let exit = report(&error, Some("try this"), &mut Output::to(json, io::sink(), &mut err));
        (exit, String::from_utf8(err).unwrap())
    }

    #[test]
    fn every_refusal_ends_with_the_exit_code_of_the_table() {
        for &code in Code::ALL {
            let (exit, text) = reported(Refusal::new(code, "no").into(), false);
            assert_eq!((exit, text), (code.exit_code(), format!("error {code}: no\nhint: try this\n")));
            let client: anyhow::Error = ClientError::Refused(Refusal::new(code, "no")).into();
            assert_eq!(reported(client.context("while asking"), false).0, code.exit_code());
        }
    }

    #[test]
    fn a_program_gets_one_line_with_code_message_and_details() {
        let refusal = Refusal::new(Code::LeaseIdTaken, "taken\nindeed").with("leaseId", "x");
        let (exit, text) = reported(refusal.into(), true);
        assert_eq!(exit, 13);
        assert_eq!(
            text,
            "{\"error\":{\"code\":\"LEASE_ID_TAKEN\",\"message\":\"taken\\nindeed\",\"details\":{\"leaseId\":\"x\"}}}\n"
        );
    }

    #[test]
    fn wrong_use_ends_with_2_silence_with_1_and_a_closed_reader_with_0() {
        assert_eq!(reported(Misuse("no".into()).into(), false).0, 2);
        assert_eq!(reported(DiscoveryError::Several { candidates: Vec::new() }.into(), false).0, 2);
        let (exit, text) = reported(DiscoveryError::NoneLive.into(), true);
        assert_eq!(exit, 1);
        assert!(text.starts_with("{\"error\":{\"code\":\"UNANSWERED\""), "{text}");
        let fault = anyhow::anyhow!("inner").context("outer");
        assert_eq!(reported(fault, false), (1, "error INTERNAL: outer: inner\nhint: try this\n".to_owned()));
        assert_eq!(reported(io::Error::from(io::ErrorKind::BrokenPipe).into(), false), (0, String::new()));
    }

    #[test]
    fn a_lost_lease_ends_with_14_and_a_signal_as_a_shell_expects() {
        let lost = Lost { lease: "mine".parse().unwrap(), why: "no active lease mine".to_owned() };
        let text = "error LEASE_LOST: lease mine is lost: no active lease mine\nhint: try this\n";
        assert_eq!(reported(lost.into(), false), (14, text.to_owned()));
        for (signal, exit, word) in [(Signal::Interrupt, 130, "interrupted"), (Signal::Terminate, 143, "terminated")] {
            let ended = Interrupted { signal, outcome: "cancelled it".to_owned() };
            let text = format!("error INTERRUPTED: {word}; cancelled it\nhint: try this\n");
            assert_eq!(reported(ended.into(), false), (exit, text));
        }
    }

    #[test]
    fn a_message_cannot_steer_the_terminal() {
        let (_, text) = reported(Refusal::new(Code::Internal, "a\x1b[2Jb").into(), false);
        assert!(!text.contains('\x1b'), "{text:?}");
    }
}
