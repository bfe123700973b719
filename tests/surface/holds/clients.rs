//! Clients in processes of their own that send at the same moment.
//!
//! Each is this test program, running nothing but [`a_client_sends_when_the_gate_opens`]. It is told a call, says that it
//! is ready, and waits at the gate: a file that stays locked until all of them stand there.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::{Call, Door};
use crate::waiting::text;

const VARIABLE: &str = "BERTH_TEST_CLIENT";
const NAME: &str = "holds::clients::a_client_sends_when_the_gate_opens";
/// What a client says begins so; the rest of what its process prints is the test harness's.
const SAYS: &str = ">> ";

/// Clients, and the gate before them.
pub struct Clients {
    clients: Vec<Client>,
    /// Used by turns: while the ones go through the first, nobody waits at the second.
    gates: [File; 2],
    folder: TempDir,
    turns: usize,
}

struct Client {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

/// What one client is to send, and as whom.
pub struct Turn<'a> {
    /// The node's port.
    pub port: u16,
    /// The token of a principal.
    pub secret: &'a str,
    /// The method.
    pub method: &'a str,
    /// The path.
    pub path: String,
    /// The body.
    pub body: Value,
    /// The token of a hold, for its header.
    pub hold_token: Option<&'a str>,
}

/// What came back to one client.
#[derive(Debug, Clone)]
pub struct Told {
    /// The status.
    pub status: u64,
    /// The body.
    pub body: Value,
}

impl Told {
    /// The code of a refusal; empty when the answer was yes.
    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }
}

impl Clients {
    /// Starts so many.
    pub fn start(count: usize) -> Self {
        let folder = tempfile::tempdir().expect("a directory for the gates");
        let gates = ["0", "1"].map(|gate| File::create(folder.path().join(gate)).expect("a gate"));
        Self { clients: (0..count).map(|_| Client::start()).collect(), gates, folder, turns: 0 }
    }

    /// Has each client send its own; what each was told, in the same order.
    #[track_caller]
    pub fn send(&mut self, turns: &[Turn<'_>]) -> Vec<Told> {
        assert_eq!(turns.len(), self.clients.len());
        let gate = self.turns % 2;
        self.turns += 1;
        self.gates[gate].lock().expect("the gate can be closed");
        let path = self.folder.path().join(gate.to_string());
        for (client, turn) in self.clients.iter_mut().zip(turns) {
            client.tell(&path, turn);
        }
        for client in &mut self.clients {
            assert_eq!(client.hear(), json!("ready"));
        }
        self.gates[gate].unlock().expect("the gate can be opened");
        self.clients
            .iter_mut()
            .map(|client| {
                let told = client.hear();
                Told { status: told["status"].as_u64().expect("a status"), body: told["body"].clone() }
            })
            .collect()
    }
}

impl Client {
    fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", NAME, "--nocapture", "--test-threads=1"]).env(VARIABLE, "1");
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = pipes.spawn().expect("the client starts");
        let (to, from) = (process.stdin.take().expect("a pipe"), process.stdout.take().expect("a pipe"));
        Self { process, to, from: BufReader::new(from) }
    }

    fn tell(&mut self, gate: &Path, turn: &Turn<'_>) {
        let told = json!({
            "gate": gate, "port": turn.port, "secret": turn.secret, "method": turn.method, "path": turn.path,
            "body": turn.body, "holdToken": turn.hold_token.unwrap_or_default(),
        });
        writeln!(self.to, "{told}").expect("the client listens");
    }

    #[track_caller]
    fn hear(&mut self) -> Value {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.from.read_line(&mut line).expect("the client can be heard") > 0, "a client has ended");
            if let Some(said) = line.strip_prefix(SAYS) {
                return serde_json::from_str(said).expect("it says JSON");
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_client_sends_when_the_gate_opens() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let say = |what: &Value| {
        let mut out = io::stdout();
        // The harness may have begun a line.
        out.write_all(format!("\n{SAYS}{what}\n").as_bytes()).and_then(|()| out.flush()).expect("somebody listens");
    };
    for line in io::stdin().lines() {
        let turn: Value = serde_json::from_str(&line.expect("a line")).expect("it is JSON");
        let gate = File::open(text(&turn["gate"])).expect("the gate is there");
        let port = turn["port"].as_u64().and_then(|port| port.try_into().ok()).expect("a port");
        let door = Door::tcp(port).with_token(&text(&turn["secret"]));
        let (method, path, token) = (text(&turn["method"]), text(&turn["path"]), text(&turn["holdToken"]));
        let mut call = match &turn["body"] {
            Value::Null => Call { method: &method, path: &path, ..Call::default() },
            body => Call { method: &method, ..Call::json(&path, &body.to_string()) },
        };
        if !token.is_empty() {
            call = call.header("Berth-Hold-Token", &token);
        }
        say(&json!("ready"));
        gate.lock_shared().and_then(|()| gate.unlock()).expect("one goes through the gate");
        let told = door.send(&call);
        say(&json!({ "status": told.status, "body": told.body }));
    }
}
