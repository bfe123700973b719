//! A lab of real processes, in a directory and on ports of its own.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::http::{Call, Door};
use crate::patience::{BOUND, eventually, poll};
use crate::ports::free_port;
use crate::said::Said;

/// A gateway and two workers. A name in angle brackets stands for a free port.
pub const FLEET: &str = r#"
[lab]
name = "test"

[gateway]
api = "127.0.0.1:<gateway>"
link = "127.0.0.1:<link>"

[[worker]]
name = "rack-1"
api = "127.0.0.1:<rack-1>"

[[worker.resource]]
id = "pixel-a"
labels = { platform = "android", model = "Pixel 8", os = "15" }

[[worker.resource]]
id = "pixel-b"
labels = { platform = "android", model = "Pixel 8", os = "13" }

[[worker.resource]]
id = "twin"

[[worker]]
name = "rack-2"
api = "127.0.0.1:<rack-2>"

[[worker.resource]]
id = "bench"
labels = { platform = "linux", board = "imx8" }
max_shared = 2

[[worker.resource]]
id = "twin"
"#;

/// One lab. Dropping it kills what it started and, when the test has failed, prints what that said.
pub struct Lab {
    root: TempDir,
    ports: BTreeMap<String, u16>,
    nodes: BTreeMap<String, Child>,
    /// Variables that every process gets.
    env: Vec<(String, String)>,
}

impl Lab {
    /// Writes the lab file; nothing runs yet.
    pub fn new(file: &str) -> Self {
        let root = tempfile::tempdir().expect("a directory for the lab");
        let mut ports = BTreeMap::new();
        let mut text = String::new();
        let mut rest = file;
        while let Some((before, (name, after))) = split(rest) {
            let port = ports.entry(name.to_owned()).or_insert_with(free_port);
            text.push_str(&format!("{before}{port}"));
            rest = after;
        }
        text.push_str(rest);
        fs::write(root.path().join("lab.toml"), text).expect("the lab file is written");
        Self { root, ports, nodes: BTreeMap::new(), env: Vec::new() }
    }

    /// A lab whose nodes run in processes of their own.
    pub fn apart(file: &str, nodes: &[&str]) -> Self {
        let mut lab = Self::new(file);
        for node in nodes {
            lab.start(node);
        }
        for node in nodes {
            lab.wait_ready(node);
        }
        lab
    }

    /// A lab whose nodes run in one process, called `all`; `node` is the one to wait for.
    pub fn joined(file: &str, node: &str) -> Self {
        let mut lab = Self::new(file);
        lab.start_all();
        lab.wait_ready(node);
        lab
    }

    /// Every process that starts from now on gets this variable.
    pub fn set(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// The port that stands for `<name>` in the lab file.
    pub fn port(&self, name: &str) -> u16 {
        self.ports[name]
    }

    /// A file under the lab's own directory.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    /// The lab file.
    pub fn file(&self) -> PathBuf {
        self.path("lab.toml")
    }

    /// Where a node of the lab `test` keeps its state.
    pub fn state(&self, node: &str) -> PathBuf {
        self.path("berth/test").join(node)
    }

    /// A node's HTTP door, as its admin. The node has been started before.
    pub fn door(&self, node: &str) -> Door {
        let token = self.state(node).join("admin.token");
        let secret = fs::read_to_string(&token).unwrap_or_else(|error| panic!("{}: {error}", token.display()));
        Door::tcp(self.port(node)).with_token(secret.trim())
    }

    /// A node's Unix socket, as its operator.
    pub fn socket(&self, node: &str) -> Door {
        Door::unix(self.state(node).join("berth.sock"))
    }

    /// Starts one node, and returns before it listens.
    pub fn start(&mut self, node: &str) {
        let file = self.file();
        let mut command = self.command();
        command.arg("up").arg("--config").arg(file).args(["--node", node]);
        self.run(node, command);
    }

    /// Starts every node in one process, called `all`.
    pub fn start_all(&mut self) {
        let file = self.file();
        let mut command = self.command();
        command.arg("up").arg("--config").arg(file);
        self.run("all", command);
    }

    /// Starts a process that is ended with the lab; what it says is kept.
    pub fn run(&mut self, name: &str, command: Command) {
        let out = self.log(name, "out");
        self.run_into(name, command, out.into());
    }

    /// The same, with another place for what it says on stdout.
    pub fn run_into(&mut self, name: &str, mut command: Command, out: Stdio) {
        let child = command.stdout(out).stderr(self.log(name, "err")).stdin(Stdio::null()).spawn();
        let former = self.nodes.insert(name.to_owned(), child.expect("the program starts"));
        assert!(former.is_none(), "{name} runs already");
    }

    fn log(&self, name: &str, stream: &str) -> File {
        let path = self.path(&format!("{name}.{stream}"));
        File::options().create(true).append(true).open(path).expect("a log file")
    }

    /// What a process has said so far.
    pub fn said(&self, name: &str) -> String {
        let read = |stream: &str| fs::read_to_string(self.path(&format!("{name}.{stream}"))).unwrap_or_default();
        read("out") + &read("err")
    }

    /// Waits until a node admits requests.
    #[track_caller]
    pub fn wait_ready(&mut self, node: &str) {
        let door = self.socket(node);
        let ready = || {
            let call = Call { method: "GET", path: "/v1/readyz", ..Call::default() };
            matches!(door.try_send(&call), Ok(answer) if answer.status == 200).then_some(())
        };
        eventually(&format!("{node} is ready"), BOUND, || {
            for (name, child) in &mut self.nodes {
                if let Some(status) = child.try_wait().expect("a child can be asked") {
                    panic!("{name} has ended with {status}");
                }
            }
            ready()
        });
    }

    /// Waits until a node answers at all on its port.
    #[track_caller]
    pub fn wait_listening(&self, node: &str) {
        let door = Door::tcp(self.port(node));
        let call = Call { method: "GET", path: "/v1/healthz", ..Call::default() };
        eventually(&format!("{node} listens"), BOUND, || door.try_send(&call).ok());
    }

    /// SIGKILL, and waits for the end.
    pub fn kill_9(&mut self, node: &str) {
        let mut child = self.nodes.remove(node).unwrap_or_else(|| panic!("{node} does not run"));
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
    }

    /// SIGTERM; how it ended.
    #[track_caller]
    pub fn terminate(&mut self, node: &str) -> ExitStatus {
        self.signal(node, Signal::TERM);
        self.wait_end(node)
    }

    /// Waits until a process ends by itself.
    #[track_caller]
    pub fn wait_end(&mut self, node: &str) -> ExitStatus {
        let child = self.nodes.get_mut(node).unwrap_or_else(|| panic!("{node} does not run"));
        let status = eventually(&format!("{node} ends"), BOUND, || child.try_wait().expect("a child can be asked"));
        self.nodes.remove(node);
        status
    }

    /// The number of a process that runs.
    pub fn pid(&self, node: &str) -> u32 {
        self.nodes[node].id()
    }

    /// Sends a signal.
    pub fn signal(&self, node: &str, signal: Signal) {
        kill_process(Pid::from_child(&self.nodes[node]), signal).expect("it takes the signal");
    }

    /// Runs the command line beside the lab, to its end.
    #[track_caller]
    pub fn berth(&self, arguments: &[&str]) -> Said {
        let mut command = self.command();
        command.args(arguments);
        self.finish(command)
    }

    /// Runs a command to its end.
    #[track_caller]
    pub fn finish(&self, command: Command) -> Said {
        self.finish_fed(command, Stdio::null())
    }

    /// The same, with something to read.
    #[track_caller]
    pub fn finish_fed(&self, mut command: Command, input: Stdio) -> Said {
        let shown = format!("{command:?}");
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let ended = || child.try_wait().expect("a child can be asked");
        if poll(Duration::from_secs(90), ended).is_none() {
            let _ = child.kill();
            panic!("{shown} does not end: {:?}", child.wait_with_output());
        }
        let output = child.wait_with_output().expect("what it said can be read");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it says UTF-8");
        let exit = output.status.code().unwrap_or_else(|| panic!("{shown} was ended by {}", output.status));
        Said { exit, out: text(output.stdout), err: text(output.stderr) }
    }

    /// The program, with nothing of the caller's environment that would make a difference.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("BERTH_") && name != "BERTH_LOG" {
                command.env_remove(name);
            }
        }
        command.current_dir(self.root.path());
        command.env("XDG_STATE_HOME", self.root.path()).env("HOME", self.root.path()).env("NO_COLOR", "1");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for child in self.nodes.values_mut() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        if thread::panicking() {
            let mut logs: Vec<PathBuf> =
                fs::read_dir(self.root.path()).into_iter().flatten().flatten().map(|it| it.path()).collect();
            logs.sort();
            for log in logs.iter().filter(|log| is_log(log)) {
                eprintln!("--- {}\n{}", log.display(), fs::read_to_string(log).unwrap_or_default());
            }
        }
    }
}

/// The text before the first `<name>`, the name, and the text after it.
fn split(text: &str) -> Option<(&str, (&str, &str))> {
    let (before, rest) = text.split_once('<')?;
    Some((before, rest.split_once('>')?))
}

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "out" || extension == "err")
}
