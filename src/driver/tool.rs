//! A tool that a holder runs on the machine that owns its device (SPEC §7).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;

use tokio::net::unix::pipe;
use tokio::process::{ChildStderr, ChildStdout};

use super::Ended;
use super::guard::{Guard, Guarded, Program};
use crate::model::ExecSignal;

/// A tool that runs. When it is dropped, it is killed with everything that it has started; so it is when the node dies. Its
/// streams are pipes of the system, and nothing beyond them is kept: a reader that stalls stalls the tool.
#[derive(Debug)]
pub struct Tool {
    /// What the tool reads; its end is seen when this is dropped.
    pub stdin: Option<pipe::Sender>,
    /// What it writes. What was written before its end can be read after it.
    pub stdout: Option<ChildStdout>,
    /// What it writes as its errors.
    pub stderr: Option<ChildStderr>,
    guarded: Guarded,
}

impl Tool {
    /// Starts a tool: a program and its arguments, at least the program. Its environment is that of the node with
    /// `environment` over it. Without a `directory` it runs in the node's. A program that does not exist is told by
    /// [`Tool::wait`] as [`Ended::NotStarted`].
    ///
    /// # Errors
    /// The system has no process, or no file, for it, or `argv` is empty.
    pub fn start(
        guard: &Guard,
        argv: &[String],
        environment: &BTreeMap<String, String>,
        directory: Option<&Path>,
    ) -> io::Result<Self> {
        let (its, own) = io::pipe()?;
        let stdin = pipe::Sender::from_owned_fd(own.into())?;
        let program = Program { argv, environment, directory };
        let mut guarded = guard.start(program, Some(OwnedFd::from(its)), Stdio::piped(), Stdio::piped())?;
        let (stdout, stderr) = guarded.take_output();
        Ok(Self { stdin: Some(stdin), stdout, stderr, guarded })
    }

    /// Sends a signal to the tool's whole process group. After its end this is nothing.
    ///
    /// # Errors
    /// Thousands of signals have not been taken yet.
    pub fn signal(&self, signal: ExecSignal) -> io::Result<()> {
        self.guarded.signal(signal)
    }

    /// Kills the tool with everything that it has started, whatever process group that is in. [`Tool::wait`] says when it is
    /// gone.
    pub fn kill(&mut self) {
        self.guarded.kill();
    }

    /// Waits until the tool has ended; what it has left running is killed by then. After [`Tool::kill`] that takes a few
    /// seconds at most. May be dropped and called again at any time, after the end too.
    ///
    /// A tool whose output nobody reads does not end while the pipe is full.
    pub async fn wait(&mut self) -> Ended {
        self.guarded.wait().await
    }
}
