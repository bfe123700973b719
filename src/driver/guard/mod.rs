//! A process between the node and each program that it runs, so that the program dies with whoever wanted it.
//!
//! A hook that outlives its node would reset a device beside the hook of the next node. The node cannot see to that when it
//! is killed itself, so it starts its own program once more as a guard, and the guard starts the program. The guard
//! holds one end of a connection to the node. When the other end is gone, for whatever reason, it kills the program and
//! everything that this has started, and ends.
//!
//! # Who belongs to the program
//! The program has a process group of its own. On Linux the guard is also the parent of every orphan below it, so a process
//! that has left the group (a daemon, a session of its own) comes to the guard when its parent dies, and is killed like
//! the others. When the program ends by itself, whatever it has left behind is killed too. Out of reach are only
//! processes that some other daemon has started on the program's behalf, and those of another user (`sudo`): the
//! guard says that it could not kill them. Elsewhere the group has to do.
//!
//! # The conversation
//! `berth guard [--directory DIRECTORY] -- PROGRAM ARGUMENTS…`. The guard's standard input is one end of a pair of sockets;
//! its output and error, and its environment, are those of the program.
//! - node → guard: one byte [`BEGIN`], with the program's standard input beside it (`SCM_RIGHTS`), or without: then it is
//!   empty. After that the numbers of signals for the program's group, one byte each. The end of the stream means: kill.
//! - guard → node: [`Said`], as JSON, one to a line. First [`Said::Started`], unless nothing was; last [`Said::Over`].

mod family;
mod keeper;
mod ward;

use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use super::Ended;
use crate::model::ExecSignal;

pub use self::keeper::Guard;
pub(super) use self::keeper::{Guarded, Program};
pub use self::ward::Ward;

/// The word on the command line.
const WORD: &str = "guard";
/// The option before the directory of the program.
const DIRECTORY: &str = "--directory";
/// The first byte that a guard gets.
const BEGIN: u8 = 0;
/// The longest line that a guard says, in bytes.
const LINE_BYTES_MAX: u64 = 16 * 1024;
/// What is said of a program that could not be started, in characters.
const WHY_CHARS_MAX: usize = 1_024;
/// How many processes are named that could not be killed.
const SURVIVORS_MAX: usize = 16;
/// How long killed processes may take to be gone. One that waits for a broken device can take for ever.
const KILL_BOUND: Duration = Duration::from_secs(5);

/// What a guard says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Said {
    /// The program runs, and its process group has this number.
    Started(i32),
    /// The program has ended.
    Over {
        /// How.
        ended: Ended,
        /// What of it still runs and could not be killed, at most [`SURVIVORS_MAX`].
        survivors: Vec<i32>,
    },
}

/// The system's signal of that name.
fn of_system(signal: ExecSignal) -> Signal {
    match signal {
        ExecSignal::Int => Signal::INT,
        ExecSignal::Term => Signal::TERM,
        ExecSignal::Hup => Signal::HUP,
        ExecSignal::Quit => Signal::QUIT,
        ExecSignal::Usr1 => Signal::USR1,
        ExecSignal::Usr2 => Signal::USR2,
        ExecSignal::Kill => Signal::KILL,
    }
}
