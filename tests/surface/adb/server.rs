//! A real adb server of a test's own: its port, its home and its keys are nobody else's.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::device::Device;
use crate::patience::{BOUND, eventually, poll};
use crate::ports::free_port;

/// A server that is ended with the test, and the one that somebody starts in its place too.
#[derive(Debug)]
pub struct AdbServer {
    /// Its port on the loopback.
    pub port: u16,
    home: TempDir,
    child: Option<Child>,
}

impl AdbServer {
    /// A place for a server, and none that runs. Nothing where there is no adb program, which is said aloud.
    pub fn none() -> Option<Self> {
        let version = Command::new("adb").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if version.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            // The test harness swallows what is printed.
            let _ = writeln!(
                io::stderr(),
                "SKIPPED the adb driver: there is no adb program here (Debian: apt-get install adb)"
            );
            return None;
        }
        let home = tempfile::tempdir().expect("a home for the server");
        let server = Self { port: free_port(), home, child: None };
        // Whoever starts a server by this program starts one that has this home. Another process writes it: a child of
        // another test could hold our copy open, and then it cannot be run.
        let environment = server.environment().map(|(name, value)| format!("{name}='{value}'")).join(" ");
        let mut write = Command::new("sh");
        write.args(["-c", r##"printf '%s\n' '#!/bin/sh' "exec env $1 adb \"\$@\"" > "$2" && chmod +x "$2""##, "sh"]);
        let written = write.arg(environment).arg(server.program()).status();
        assert!(written.expect("sh starts").success(), "the program is written");
        Some(server)
    }

    /// A server that runs.
    pub fn start() -> Option<Self> {
        let mut server = Self::none()?;
        server.run();
        Some(server)
    }

    /// Runs the server, until it listens.
    pub fn run(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let mut command = self.command(&["nodaemon", "server"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(command.spawn().expect("the server starts"));
        eventually("the adb server listens", BOUND, || self.listens().then_some(()));
    }

    /// SIGKILL.
    pub fn kill_9(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
    }

    /// The adb program, with the home of this server.
    pub fn program(&self) -> PathBuf {
        self.home.path().join("adb")
    }

    /// What a process needs to come to this server with the plain adb program, apart from its port.
    pub fn environment(&self) -> [(&'static str, String); 2] {
        // The server looks for emulators on ports that may be a test's.
        [("HOME", self.home.path().display().to_string()), ("ADB_LOCAL_TRANSPORT_MAX_PORT", "5554".to_owned())]
    }

    /// Plugs a device in, until the server has it.
    pub fn plug(&self, device: &Device) {
        let serial = device.serial();
        eventually(&format!("{serial} is plugged in"), BOUND, || {
            self.adb(&["connect", &serial]);
            self.lists(&serial, "device").then_some(())
        });
    }

    /// Tells the server of a device, whatever becomes of it.
    pub fn introduce(&self, device: &Device) {
        self.adb(&["connect", &device.serial()]);
    }

    /// Switches a device off, which the server then has as `offline`.
    pub fn power_off(&self, device: &mut Device) {
        device.power_off();
        eventually("it is offline", BOUND, || self.lists(&device.serial(), "offline").then_some(()));
    }

    /// Unplugs a device, until the server does not have it any more.
    pub fn unplug(&self, device: &mut Device) {
        device.power_off();
        let serial = device.serial();
        eventually(&format!("{serial} is unplugged"), BOUND, || {
            self.adb(&["disconnect", &serial]);
            (!self.adb(&["devices"]).contains(&serial)).then_some(())
        });
    }

    /// Plugs a device in again that was unplugged or switched off.
    pub fn replug(&self, device: &mut Device) {
        device.power_on();
        // The server may try by itself, some time: it is told to forget the device first.
        self.adb(&["disconnect", &device.serial()]);
        self.plug(device);
    }

    /// Runs a command in the device's shell by the adb program: its exit code and what it wrote.
    pub fn shell(&self, device: &Device, command: &str) -> (Option<i32>, String) {
        let (status, said) = self.finish(&["-s", &device.serial(), "shell", command]);
        (status.code(), said)
    }

    fn lists(&self, serial: &str, state: &str) -> bool {
        let row = |line: &str| line.split_whitespace().eq([serial, state]);
        self.adb(&["devices"]).lines().any(row)
    }

    /// Runs the adb program to its end; what it says.
    fn adb(&self, arguments: &[&str]) -> String {
        self.finish(arguments).1
    }

    fn finish(&self, arguments: &[&str]) -> (ExitStatus, String) {
        let mut command = self.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("adb starts");
        let ended = || child.try_wait().expect("a child can be asked");
        // A device that says nothing keeps it for a while.
        if poll(Duration::from_secs(60), ended).is_none() {
            let _ = child.kill();
            panic!("adb {arguments:?} does not end: {:?}", child.wait_with_output());
        }
        let output = child.wait_with_output().expect("what it said can be read");
        (output.status, String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("adb");
        command.args(["-P", &self.port.to_string()]).args(arguments).stdin(Stdio::null()).envs(self.environment());
        command
    }

    fn listens(&self) -> bool {
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
    }
}

impl Drop for AdbServer {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        if self.listens() {
            // Somebody has started another.
            self.adb(&["kill-server"]);
        }
    }
}
