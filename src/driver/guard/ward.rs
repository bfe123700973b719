//! The guard's side: one program, from its start until nothing of it is left.

use std::ffi::OsString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::signal::unix::{Signal as Told, SignalKind, signal};

use super::family::{Family, Left};
use super::{BEGIN, DIRECTORY, Ended, KILL_BOUND, SURVIVORS_MAX, Said, WHY_CHARS_MAX, WORD, of_system};
use crate::model::ExecSignal;

/// How long a guard waits before it looks again for children that the system's list has missed.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What one guard is to run.
#[derive(Debug)]
pub struct Ward {
    program: OsString,
    arguments: Vec<OsString>,
    directory: Option<PathBuf>,
}

impl Ward {
    /// From the arguments of the process, its name first; none when they do not ask for a guard.
    pub fn of_arguments(arguments: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut arguments = arguments.into_iter().skip(1);
        if arguments.next()? != WORD {
            return None;
        }
        let mut next = arguments.next()?;
        let mut directory = None;
        if next == DIRECTORY {
            directory = Some(PathBuf::from(arguments.next()?));
            next = arguments.next()?;
        }
        if next != "--" {
            return None;
        }
        Some(Self { program: arguments.next()?, arguments: arguments.collect(), directory })
    }

    /// Runs the program and guards it, until nothing of it is left. The code is 0 when it was done as the node wished,
    /// however the program has ended.
    pub fn guard(self) -> ExitCode {
        match self.run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("berth guard: {error}; it is started by a node and needs its connection as standard input");
                ExitCode::FAILURE
            }
        }
    }

    fn run(self) -> io::Result<()> {
        let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let Some(input) = first_word(&control)? else { return Ok(()) };
        become_parent_of_orphans()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        runtime.block_on(self.serve(control, input))
    }

    async fn serve(self, control: UnixStream, input: Stdio) -> io::Result<()> {
        control.set_nonblocking(true)?;
        let (mut control, mut node) = tokio::net::UnixStream::from_std(control)?.into_split();
        // Nothing that can fail comes after the start of the program.
        let mut endings = signal(SignalKind::child())?;
        let mut orders = Orders::listen()?;
        let [output, error] = part_with_streams()?;
        let program = match self.start(input, output, error) {
            Ok(program) => program,
            Err(ended) => {
                say(&mut node, &Said::Over { ended, survivors: Vec::new() }).await;
                return Ok(());
            }
        };
        say(&mut node, &Said::Started(program.as_raw_nonzero().get())).await;
        let family = Family::of(program);
        loop {
            tokio::select! {
                biased;
                _ = endings.recv() => if family.program_has_ended() { break },
                () = orders.stop() => break,
                order = next_signal(&mut control) => match order {
                    Some(signal) => family.signal(signal),
                    None => break,
                },
            }
        }
        say(&mut node, &end(family, &mut endings).await).await;
        Ok(())
    }

    fn start(&self, input: Stdio, output: Stdio, error: Stdio) -> Result<Pid, Ended> {
        let failed = |what: String, error: &io::Error| {
            let why = format!("{what}: {}", without_number(error));
            Ended::NotStarted(why.chars().take(WHY_CHARS_MAX).collect())
        };
        if let Some(directory) = &self.directory {
            std::env::set_current_dir(directory)
                .map_err(|error| failed(format!("its directory {}", directory.display()), &error))?;
        }
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(input).stdout(output).stderr(error).process_group(0);
        let child = command.spawn().map_err(|error| failed(self.program.display().to_string(), &error))?;
        Ok(Pid::from_child(&child))
    }
}

/// Reads the first byte, and what the program is to read; none when the node is gone already.
fn first_word(control: &UnixStream) -> io::Result<Option<Stdio>> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(control, &mut [IoSliceMut::new(&mut byte)], &mut beside, RecvFlags::empty())?;
    let mut input: Option<OwnedFd> = None;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(mut files) = message {
            input = files.next();
        }
    }
    if got.bytes == 0 {
        return Ok(None);
    }
    if byte != [BEGIN] {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the first byte is of no node"));
    }
    if let Some(input) = &input {
        // The program has it as its standard input and under no other number.
        fcntl_setfd(input, FdFlags::CLOEXEC)?;
    }
    Ok(Some(input.map_or_else(Stdio::null, Stdio::from)))
}

#[cfg(target_os = "linux")]
fn become_parent_of_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Only the program's group is known here.
#[cfg(not(target_os = "linux"))]
fn become_parent_of_orphans() -> io::Result<()> {
    Ok(())
}

/// Takes the guard's standard streams, so that it holds none of them while the program runs: what reads the program's output
/// sees the end of it when the program has closed it.
fn part_with_streams() -> io::Result<[Stdio; 2]> {
    let output = io::stdout().as_fd().try_clone_to_owned()?;
    let error = io::stderr().as_fd().try_clone_to_owned()?;
    let nothing = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    Ok([output.into(), error.into()])
}

/// The signals that tell a guard itself to stop: of an operator, or of a service manager that stops the node with all its
/// processes. A program that is started later does not inherit that they are caught.
struct Orders([Told; 4]);

impl Orders {
    fn listen() -> io::Result<Self> {
        let [terminate, interrupt, hang_up, quit] =
            [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup(), SignalKind::quit()].map(signal);
        Ok(Self([terminate?, interrupt?, hang_up?, quit?]))
    }

    async fn stop(&mut self) {
        let [terminate, interrupt, hang_up, quit] = &mut self.0;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hang_up.recv() => {}
            _ = quit.recv() => {}
        }
    }
}

/// The next signal for the program; none when the node wants it killed, or is gone. May be dropped at any time.
async fn next_signal(control: &mut OwnedReadHalf) -> Option<Signal> {
    let number = i32::from(control.read_u8().await.ok()?);
    // A number that no node sends has the same meaning as its end: the node is not what it should be.
    ExecSignal::ALL.into_iter().map(of_system).find(|signal| signal.as_raw() == number)
}

/// Kills all of a family and waits until it is gone.
async fn end(mut family: Family, endings: &mut Told) -> Said {
    family.signal(Signal::KILL);
    let gone = async {
        loop {
            family.kill_children();
            if family.bury() == Left::Nobody {
                break;
            }
            let _ = tokio::time::timeout(LOOK_AGAIN, endings.recv()).await;
        }
    };
    let within = tokio::time::timeout(KILL_BOUND, gone).await;
    let (ended, survivors) = family.account();
    let survivors = if within.is_ok() { Vec::new() } else { survivors };
    let survivors = survivors.into_iter().take(SURVIVORS_MAX).map(|pid| pid.as_raw_nonzero().get()).collect();
    Said::Over { ended, survivors }
}

/// A node that is gone hears nothing; the guard's work is the same.
async fn say(node: &mut OwnedWriteHalf, said: &Said) {
    let mut line = serde_json::to_vec(said).unwrap_or_default();
    line.push(b'\n');
    let _ = node.write_all(&line).await;
}

/// The system's words alone: they are for people.
fn without_number(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ward(arguments: &[&str]) -> Option<Ward> {
        Ward::of_arguments(arguments.iter().map(OsString::from))
    }

    #[test]
    fn a_guard_is_asked_for_by_its_word_and_a_program() {
        let asked = ward(&["berth", "guard", "--directory", "/lab", "--", "flash", "--", "guard"]).unwrap();
        assert_eq!((asked.program, asked.directory), ("flash".into(), Some("/lab".into())));
        assert_eq!(asked.arguments, ["--", "guard"]);
        let bare = ward(&["berth", "guard", "--", "--directory"]).unwrap();
        assert_eq!((bare.program, bare.directory), ("--directory".into(), None));
        for other in
            [&["berth", "up"][..], &["berth"], &["berth", "guard"], &["guard", "--", "x"], &["berth", "guard", "x"]]
        {
            assert!(ward(other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn a_guard_hears_no_signal_that_a_holder_cannot_send() {
        let numbers: Vec<i32> = ExecSignal::ALL.into_iter().map(|signal| of_system(signal).as_raw()).collect();
        assert!(numbers.iter().all(|number| u8::try_from(*number).is_ok_and(|byte| byte != BEGIN)));
    }
}
