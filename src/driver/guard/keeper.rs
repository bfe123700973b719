//! The node's side: it starts a guard, tells it what to do, and hears how the program has ended.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::timeout;

use super::{BEGIN, DIRECTORY, Ended, KILL_BOUND, LINE_BYTES_MAX, Said, WORD, of_system};
use crate::driver::environment::is_of_a_lease;
use crate::model::ExecSignal;

/// How long a guard may take beyond [`KILL_BOUND`] to say so and to end.
const ANSWER_BOUND: Duration = Duration::from_secs(3);

/// The program that guards what the node runs: the node's own.
#[derive(Debug, Clone)]
pub struct Guard {
    executable: PathBuf,
}

/// A program, as a node runs it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program<'a> {
    /// Itself and its arguments. With a slash its name is a path that counts from its directory; without one it is looked up
    /// in `PATH`.
    pub(crate) argv: &'a [String],
    /// What it finds in its environment beside that of the node, which is not that of a lease.
    pub(crate) environment: &'a BTreeMap<String, String>,
    /// Where it runs; the node's own directory when none is named.
    pub(crate) directory: Option<&'a Path>,
}

/// A program that runs under a guard. When this is dropped, the program and everything that it has started are killed.
#[derive(Debug)]
pub(crate) struct Guarded {
    guard: Child,
    said: BufReader<OwnedReadHalf>,
    /// A line that is not yet complete.
    line: Vec<u8>,
    /// Gone when the guard was told to kill.
    orders: Option<OwnedWriteHalf>,
    group: Option<Pid>,
    ended: Option<Ended>,
}

impl Guard {
    /// With this executable, a Berth of the same version.
    pub fn new(executable: impl Into<PathBuf>) -> Self {
        Self { executable: executable.into() }
    }

    /// With the program of this process, even when its file was replaced meanwhile.
    ///
    /// # Errors
    /// The system does not say where that is.
    pub fn of_this_process() -> io::Result<Self> {
        let living = Path::new("/proc/self/exe");
        if cfg!(target_os = "linux") && living.exists() {
            return Ok(Self::new(living));
        }
        Ok(Self::new(std::env::current_exe()?))
    }

    /// Starts a guard, which starts the program. What that reads is `input`, or nothing. Whether the program could be
    /// started is told by its end.
    ///
    /// # Errors
    /// The guard could not be started, or no program is named.
    pub(crate) fn start(
        &self,
        program: Program<'_>,
        input: Option<OwnedFd>,
        output: Stdio,
        error: Stdio,
    ) -> io::Result<Guarded> {
        if program.argv.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no program is named"));
        }
        let (own, its) = UnixStream::pair()?;
        begin(&own, input.as_ref())?;
        drop(input);
        own.set_nonblocking(true)?;
        let (said, orders) = tokio::net::UnixStream::from_std(own)?.into_split();
        let mut command = Command::new(&self.executable);
        command.arg0("berth").arg(WORD);
        if let Some(directory) = program.directory {
            command.arg(DIRECTORY).arg(directory);
        }
        command.arg("--").args(program.argv);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_of_a_lease)) {
            command.env_remove(name);
        }
        command.envs(program.environment);
        // In a group of its own it does not get what a terminal sends to the node.
        command.stdin(OwnedFd::from(its)).stdout(output).stderr(error).process_group(0);
        let guard = command.spawn()?;
        let said = BufReader::with_capacity(1024, said);
        Ok(Guarded { guard, said, line: Vec::new(), orders: Some(orders), group: None, ended: None })
    }
}

/// Says the first byte, with the program's input beside it.
fn begin(own: &UnixStream, input: Option<&OwnedFd>) -> io::Result<()> {
    let files = input.map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !files.as_slice().is_empty() {
        beside.push(SendAncillaryMessage::ScmRights(files.as_slice()));
    }
    sendmsg(own, &[IoSlice::new(&[BEGIN])], &mut beside, SendFlags::empty())?;
    Ok(())
}

impl Guarded {
    /// The read ends of the program's output, where they are pipes.
    pub(crate) fn take_output(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        (self.guard.stdout.take(), self.guard.stderr.take())
    }

    /// Sends a signal to the program's whole group. After its end this is nothing.
    ///
    /// # Errors
    /// The guard takes no more of them at the moment.
    pub(crate) fn signal(&self, signal: ExecSignal) -> io::Result<()> {
        let Some(orders) = &self.orders else { return Ok(()) };
        let number = u8::try_from(of_system(signal).as_raw()).map_err(io::Error::other)?;
        // Not by the runtime, which first has to see that the socket takes something.
        match rustix::io::write(orders.as_ref(), &[number]) {
            Ok(_) | Err(Errno::PIPE) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Tells the guard to kill the program and everything that it has started; [`Guarded::wait`] says when that is done.
    pub(crate) fn kill(&mut self) {
        // The end of this direction of the stream is the order.
        self.orders = None;
    }

    /// Waits until the program has ended and nothing of it runs any more. After [`Guarded::kill`] that is bounded. May be
    /// dropped and called again at any time, after the end too.
    pub(crate) async fn wait(&mut self) -> Ended {
        if let Some(ended) = &self.ended {
            return ended.clone();
        }
        let heard = if self.orders.is_some() {
            self.last_word().await
        } else {
            let within = timeout(KILL_BOUND + ANSWER_BOUND, self.last_word()).await;
            within.unwrap_or_else(|_| self.lost("its guard (berth guard) has not answered"))
        };
        // Kept first: whoever drops this wait asks again.
        let ended = self.ended.insert(heard).clone();
        self.orders = None;
        if timeout(ANSWER_BOUND, self.guard.wait()).await.is_err() {
            // The runtime buries it.
            let _ = self.guard.start_kill();
        }
        ended
    }

    /// Listens until the guard has said how it ended.
    async fn last_word(&mut self) -> Ended {
        loop {
            let left = LINE_BYTES_MAX.saturating_sub(self.line.len() as u64);
            let read = (&mut self.said).take(left).read_until(b'\n', &mut self.line).await;
            let line = match read {
                Ok(_) if self.line.ends_with(b"\n") => std::mem::take(&mut self.line),
                Ok(_) | Err(_) => return self.lost("its guard (berth guard) has ended too early"),
            };
            match serde_json::from_slice(&line) {
                Ok(Said::Started(group)) => self.group = Pid::from_raw(group),
                Ok(Said::Over { ended, survivors }) if survivors.is_empty() => return ended,
                Ok(Said::Over { survivors, .. }) => return Ended::Failed(left_behind(&survivors)),
                Err(_) => return self.lost("its guard (berth guard) has ended too early"),
            }
        }
    }

    /// There is no last word of the guard: somebody has killed or stopped it. What it had told of is killed from here.
    fn lost(&mut self, why: &str) -> Ended {
        if let Some(group) = self.group.take() {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.guard.start_kill();
        Ended::Failed(format!("was killed, because {why}"))
    }
}

fn left_behind(survivors: &[i32]) -> String {
    let numbers: Vec<String> = survivors.iter().map(i32::to_string).collect();
    let which = if numbers.len() == 1 { "process" } else { "processes" };
    format!("left {which} {} behind, which could not be killed", numbers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_killed_is_named() {
        assert_eq!(left_behind(&[7]), "left process 7 behind, which could not be killed");
        assert_eq!(left_behind(&[7, 9]), "left processes 7, 9 behind, which could not be killed");
    }
}
