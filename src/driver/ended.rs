//! How a program that the node has run has ended.

use std::fmt;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

/// How a program has ended. Nothing that it has started runs any more, unless [`Ended::Failed`] says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// By itself, with this code.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// It has never run; why, in words.
    NotStarted(String),
    /// Nobody knows, or something of it could not be killed; in words.
    Failed(String),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Exited(code) => write!(f, "exited with {code}"),
            Ended::Signalled(number) => match name(*number) {
                Some(name) => write!(f, "was killed by signal {number} ({name})"),
                None => write!(f, "was killed by signal {number}"),
            },
            Ended::NotStarted(why) => write!(f, "could not be started: {why}"),
            Ended::Failed(why) => f.write_str(why),
        }
    }
}

/// The name of a signal, as the manuals write it.
fn name(number: i32) -> Option<&'static str> {
    Some(match Signal::from_named_raw(number)? {
        Signal::HUP => "SIGHUP",
        Signal::INT => "SIGINT",
        Signal::QUIT => "SIGQUIT",
        Signal::ILL => "SIGILL",
        Signal::TRAP => "SIGTRAP",
        Signal::ABORT => "SIGABRT",
        Signal::BUS => "SIGBUS",
        Signal::FPE => "SIGFPE",
        Signal::KILL => "SIGKILL",
        Signal::USR1 => "SIGUSR1",
        Signal::SEGV => "SIGSEGV",
        Signal::USR2 => "SIGUSR2",
        Signal::PIPE => "SIGPIPE",
        Signal::ALARM => "SIGALRM",
        Signal::TERM => "SIGTERM",
        Signal::XCPU => "SIGXCPU",
        Signal::XFSZ => "SIGXFSZ",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_told_in_words() {
        let table = [
            (Ended::Exited(3), "exited with 3"),
            (Ended::Signalled(9), "was killed by signal 9 (SIGKILL)"),
            (Ended::Signalled(6), "was killed by signal 6 (SIGABRT)"),
            (Ended::Signalled(40), "was killed by signal 40"),
            (Ended::NotStarted("no such program".to_owned()), "could not be started: no such program"),
            (Ended::Failed("left process 7 behind".to_owned()), "left process 7 behind"),
        ];
        for (ended, words) in table {
            assert_eq!(ended.to_string(), words);
        }
    }
}
