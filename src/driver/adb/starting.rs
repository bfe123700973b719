//! Starts an adb server where there is none, by the program that comes with Android's tools.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

/// How long the program has. It comes back when the server takes connections.
const START_BOUND: Duration = Duration::from_secs(15);
/// What is kept of the program's complaint, in bytes.
const COMPLAINT_BYTES_MAX: u64 = 1_024;

/// The adb program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdbProgram(OsString);

impl AdbProgram {
    /// A program other than the one on the path.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self(program.into())
    }

    /// Starts a server on `port`, and waits until it takes connections. It outlives this node: others may use it too.
    /// The error is why not, in words.
    pub(super) async fn start_server(&self, port: u16) -> Result<(), String> {
        let mut command = Command::new(&self.0);
        command.args(["-P", &port.to_string(), "start-server"]).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err("no adb program to start one".to_owned());
            }
            Err(error) => return Err(format!("the adb program does not start: {error}")),
        };
        let mut complaints = child.stderr.take().expect("it is a pipe").take(COMPLAINT_BYTES_MAX);
        let mut complaint = Vec::new();
        let ended = async {
            // The pipe is read beside the wait: a server that keeps its end open keeps nobody here.
            let mut open = true;
            loop {
                tokio::select! {
                    biased;
                    read = complaints.read_buf(&mut complaint), if open => open = read.is_ok_and(|bytes| bytes > 0),
                    status = child.wait() => return status,
                }
            }
        };
        match timeout(START_BOUND, ended).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(format!("`adb start-server` has ended with {status}{}", last_line(&complaint))),
            Ok(Err(error)) => Err(format!("`adb start-server` cannot be waited for: {error}")),
            Err(_) => Err(format!("`adb start-server` took longer than {}s and was killed", START_BOUND.as_secs())),
        }
    }
}

impl Default for AdbProgram {
    /// The one on the path.
    fn default() -> Self {
        Self::new("adb")
    }
}

fn last_line(complaint: &[u8]) -> String {
    let text = String::from_utf8_lossy(complaint);
    let line = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    line.map(|line| format!(": {}", line.chars().filter(|c| !c.is_control()).collect::<String>())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program of these lines of shell, in a directory that lasts as long as it is held.
    fn script(lines: &str) -> (tempfile::TempDir, AdbProgram) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("adb");
        // Another process writes it: a child of another test could hold our copy open, and then it cannot be run.
        let mut write = std::process::Command::new("sh");
        write.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$2\" && chmod +x \"$2\"", "sh", lines]).arg(&path);
        assert!(write.status().unwrap().success());
        (folder, AdbProgram::new(path))
    }

    #[tokio::test]
    async fn a_server_is_started_on_its_port() {
        let (_folder, program) = script("[ \"$*\" = '-P 6037 start-server' ]");
        assert_eq!(program.start_server(6037).await, Ok(()));
    }

    #[tokio::test]
    async fn a_start_that_fails_says_why() {
        let (_folder, program) = script("echo '* daemon not running' >&2; echo 'cannot bind' >&2; exit 3");
        let why = program.start_server(6037).await.unwrap_err();
        assert_eq!(why, "`adb start-server` has ended with exit status: 3: cannot bind");
        let missing = AdbProgram::new("/nowhere/adb").start_server(6037).await.unwrap_err();
        assert_eq!(missing, "no adb program to start one");
    }

    #[tokio::test]
    async fn a_server_that_keeps_the_pipe_of_its_starter_keeps_nobody() {
        let (_folder, program) = script("sleep 5 & exit 0");
        let started = timeout(Duration::from_secs(4), program.start_server(6037)).await;
        assert_eq!(started, Ok(Ok(())));
    }
}
