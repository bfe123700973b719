//! A pseudo terminal, and what is run on it.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::beside;
use crate::patience::{BOUND, eventually, poll};

/// A terminal on which one session runs. Dropping it hangs up and kills the session's leader.
pub struct Pty {
    keys: Option<File>,
    screen: Arc<Mutex<Vec<u8>>>,
    /// What is shown is read no more.
    closing: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
    child: Child,
}

/// A session whose terminal is gone.
pub struct Hung(Pty);

impl Hung {
    /// Waits until the session's leader ends.
    #[track_caller]
    pub fn wait_end(&mut self) -> ExitStatus {
        self.0.wait_end()
    }
}

impl Pty {
    /// Runs a command as the leader of a session on a new terminal, all three streams on it.
    pub fn run(command: &Command) -> Self {
        Self::run_into(command, None)
    }

    /// The same, with another place for what it says on stdout.
    pub fn run_into(command: &Command, out: Option<File>) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&master).expect("it is ours");
        unlockpt(&master).expect("it can be opened");
        let name = ptsname(&master, Vec::new()).expect("it has a name");
        let slave = || -> OwnedFd {
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            open(name.as_c_str(), flags, Mode::empty()).expect("it can be opened")
        };
        // The program of util-linux makes its standard input the controlling terminal.
        let mut session = beside("setsid", command);
        session.arg("--ctty").arg(command.get_program()).args(command.get_args());
        session.stdin(slave()).stderr(slave());
        match out {
            Some(out) => session.stdout(out),
            None => session.stdout(slave()),
        };
        let child = session.spawn().expect("setsid of util-linux is there");
        let keys = File::from(master);
        let mut shown = keys.try_clone().expect("a second handle");
        let screen = Arc::new(Mutex::new(Vec::new()));
        let closing = Arc::new(AtomicBool::new(false));
        let (seen, close) = (screen.clone(), closing.clone());
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It ends when nobody has the terminal open any more.
            while let Ok(length) = shown.read(&mut bytes)
                && length > 0
            {
                seen.lock().expect("nobody panics with it").extend_from_slice(&bytes[..length]);
                if close.load(Ordering::SeqCst) {
                    return;
                }
            }
        });
        Self { keys: Some(keys), screen, closing, reader: Some(reader), child }
    }

    /// Types.
    pub fn type_in(&mut self, keys: &str) {
        let terminal = self.keys.as_mut().expect("it is not hung up");
        terminal.write_all(keys.as_bytes()).expect("the terminal takes it");
    }

    /// What has been shown so far.
    pub fn screen(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().expect("nobody panics with it")).into_owned()
    }

    /// Waits until something is shown.
    #[track_caller]
    pub fn wait_shown(&self, text: &str) {
        self.wait_shown_after(0, text);
    }

    /// Waits until something is shown after the first so many bytes.
    #[track_caller]
    pub fn wait_shown_after(&self, from: usize, text: &str) {
        let shown = || self.screen().get(from..).is_some_and(|screen| screen.contains(text)).then_some(());
        if poll(BOUND, shown).is_none() {
            panic!("{text:?} is not shown: {:?}", self.screen());
        }
    }

    /// Closes the terminal, and leaves the session alone. The terminal echoes.
    pub fn hang_up(mut self) -> Hung {
        self.closing.store(true, Ordering::SeqCst);
        self.type_in("\n");
        let reader = self.reader.take().expect("it is hung up once");
        eventually("the reader closes its end", BOUND, || reader.is_finished().then_some(()));
        drop(self.keys.take());
        Hung(self)
    }

    /// Waits until the session's leader ends.
    #[track_caller]
    pub fn wait_end(&mut self) -> ExitStatus {
        let child = &mut self.child;
        eventually("the session ends", BOUND, || child.try_wait().expect("a child can be asked"))
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- screen\n{}", self.screen());
        }
    }
}
