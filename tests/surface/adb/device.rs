//! A small Android device for a real adb server: the device's side of the adb transport over TCP.
//!
//! A message is six little-endian words (command, two arguments, length, sum of the bytes, command inverted) and its bytes.
//! The server says CNXN, the device says CNXN with its name and features; then the server OPENs a stream for each service,
//! and each WRTE is acknowledged with OKAY before the next one of its stream, until one side CLSEs it. The version is the
//! one that still checks the sums, and the device checks them too.
//!
//! Its shell knows `getprop NAME` and `echo WORDS`, several behind each other with `;`, by the old service `shell:` and by
//! `shell,v2`, which wraps the output and says the exit code.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use crate::ports::free_port;

const CNXN: u32 = u32::from_le_bytes(*b"CNXN");
const AUTH: u32 = u32::from_le_bytes(*b"AUTH");
const OPEN: u32 = u32::from_le_bytes(*b"OPEN");
const OKAY: u32 = u32::from_le_bytes(*b"OKAY");
const WRTE: u32 = u32::from_le_bytes(*b"WRTE");
const CLSE: u32 = u32::from_le_bytes(*b"CLSE");
/// The last version whose messages have sums.
const VERSION: u32 = 0x0100_0000;
const PAYLOAD_BYTES_MAX: u32 = 4096;

/// What a device is.
#[derive(Debug, Clone)]
pub struct Model {
    pub name: &'static str,
    pub release: &'static str,
    pub sdk: &'static str,
}

/// Two that tests tell apart.
pub const PIXEL_8: Model = Model { name: "Pixel 8", release: "14", sdk: "34" };
pub const MOTO_G: Model = Model { name: "moto g(7)", release: "10", sdk: "29" };

/// How a device behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// As it should.
    Well,
    /// It takes commands and says nothing.
    Hangs,
    /// It repeats something else than it was told.
    Confused,
    /// It does not trust the machine it is plugged in to.
    Distrusts,
}

/// A device. It goes away when it is dropped.
#[derive(Debug)]
pub struct Device {
    port: u16,
    shared: Arc<Shared>,
    listening: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    model: Model,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    mood: Mood,
    plugged: bool,
    connections: Vec<TcpStream>,
}

impl Device {
    /// A device that listens on a port of its own; no server knows it yet.
    pub fn new(model: Model) -> Self {
        let state = Mutex::new(State { mood: Mood::Well, plugged: false, connections: Vec::new() });
        let mut device = Self { port: free_port(), shared: Arc::new(Shared { model, state }), listening: None };
        device.power_on();
        device
    }

    /// The serial that a server gives it.
    pub fn serial(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// From now on it behaves so; streams that hang go on hanging.
    pub fn set(&self, mood: Mood) {
        self.shared.state.lock().unwrap().mood = mood;
    }

    /// It is gone, with its connections.
    pub fn power_off(&mut self) {
        let Some(listening) = self.listening.take() else { return };
        let mut state = self.shared.state.lock().unwrap();
        state.plugged = false;
        for connection in state.connections.drain(..) {
            // It may have been ended by the server.
            let _ = connection.shutdown(Shutdown::Both);
        }
        drop(state);
        // The listener looks up when somebody comes.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        listening.join().expect("the listener ends well");
    }

    /// It is back, on the same port.
    pub fn power_on(&mut self) {
        assert!(self.listening.is_none(), "it is on");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).expect("its port is free");
        self.shared.state.lock().unwrap().plugged = true;
        let shared = self.shared.clone();
        self.listening = Some(thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(connection) = connection else { continue };
                let mut state = shared.state.lock().unwrap();
                if !state.plugged {
                    return;
                }
                state.connections.push(connection.try_clone().expect("a socket can be cloned"));
                drop(state);
                let shared = shared.clone();
                // A connection ends when the server or the device is gone.
                thread::spawn(move || drop(shared.serve(connection)));
            }
        }));
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.power_off();
    }
}

/// One message.
struct Message {
    command: u32,
    first: u32,
    second: u32,
    bytes: Vec<u8>,
}

impl Message {
    fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut header = [0; 24];
        from.read_exact(&mut header)?;
        let mut words = [0; 6];
        for (word, bytes) in words.iter_mut().zip(header.chunks_exact(4)) {
            *word = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
        }
        let [command, first, second, length, sum, magic] = words;
        assert_eq!(magic, !command, "the magic is the command inverted");
        assert!(length <= 1024 * 1024, "{length} bytes are too many");
        let mut bytes = vec![0; length as usize];
        from.read_exact(&mut bytes)?;
        // The server knows the version only after the device has said it.
        assert!(command == CNXN || sum == checksum(&bytes), "the sum is wrong");
        Ok(Self { command, first, second, bytes })
    }

    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let (command, length) = (self.command, self.bytes.len() as u32);
        let words = [command, self.first, self.second, length, checksum(&self.bytes), !command];
        let mut message: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
        message.extend(&self.bytes);
        to.write_all(&message)
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |sum: u32, byte| sum.wrapping_add(u32::from(*byte)))
}

impl Shared {
    fn mood(&self) -> Mood {
        self.state.lock().unwrap().mood
    }

    /// Serves one connection of a server to its end.
    fn serve(&self, mut connection: TcpStream) -> io::Result<()> {
        // The streams that end when what was said on them is acknowledged.
        let mut ending = BTreeSet::new();
        let mut last = 0;
        loop {
            let Message { command, first: theirs, second: ours, bytes } = Message::read(&mut connection)?;
            let mut say =
                |command, first, second, bytes| Message { command, first, second, bytes }.write(&mut connection);
            match command {
                CNXN if self.mood() == Mood::Distrusts => say(AUTH, 1, 0, vec![7; 20])?,
                CNXN => say(CNXN, VERSION, PAYLOAD_BYTES_MAX, self.banner())?,
                // A signature is not known, and who offers a key waits for somebody to accept it.
                AUTH if theirs == 2 => say(AUTH, 1, 0, vec![7; 20])?,
                OPEN => {
                    let service = String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned();
                    let Some(output) = self.run(&service) else {
                        say(CLSE, 0, theirs, Vec::new())?;
                        continue;
                    };
                    last += 1;
                    say(OKAY, last, theirs, Vec::new())?;
                    if let Some(output) = output {
                        assert!(output.len() <= PAYLOAD_BYTES_MAX as usize, "a shell of few words");
                        say(WRTE, last, theirs, output)?;
                        ending.insert(last);
                    }
                }
                OKAY if ending.remove(&ours) => say(CLSE, ours, theirs, Vec::new())?,
                WRTE => say(OKAY, ours, theirs, Vec::new())?,
                CLSE => {
                    ending.remove(&ours);
                }
                _ => {}
            }
        }
    }

    fn banner(&self) -> Vec<u8> {
        let name = self.model.name;
        format!("device::ro.product.name=fake;ro.product.model={name};ro.product.device=fake;features=shell_v2,cmd")
            .into()
    }

    /// What a service says, once; nothing ever from one that hangs. None for a service that the device does not have.
    fn run(&self, service: &str) -> Option<Option<Vec<u8>>> {
        let (kind, command) = service.split_once(':')?;
        let mut options = kind.split(',');
        if options.next() != Some("shell") {
            return None;
        }
        let Some((exit, output)) = self.shell(command) else { return Some(None) };
        if options.next() != Some("v2") {
            return Some(Some(output.into()));
        }
        let packet = |id: u8, bytes: &[u8]| [&[id][..], &(bytes.len() as u32).to_le_bytes(), bytes].concat();
        Some(Some([packet(1, output.as_bytes()), packet(3, &[exit])].concat()))
    }

    /// The exit code and the output of commands; none when it hangs.
    fn shell(&self, commands: &str) -> Option<(u8, String)> {
        let mood = self.mood();
        if mood == Mood::Hangs {
            return None;
        }
        let mut said = (0, String::new());
        for command in commands.split(';') {
            let mut words = command.split_whitespace();
            let (exit, line) = match (words.next().unwrap_or_default(), words.collect::<Vec<_>>().as_slice()) {
                ("getprop", ["ro.product.model"]) => (0, self.model.name.to_owned()),
                ("getprop", ["ro.build.version.release"]) => (0, self.model.release.to_owned()),
                ("getprop", ["ro.build.version.sdk"]) => (0, self.model.sdk.to_owned()),
                ("getprop", [_]) => (0, String::new()),
                ("echo", _) if mood == Mood::Confused => (0, "what?".to_owned()),
                ("echo", words) => (0, words.join(" ")),
                (other, _) => (127, format!("/system/bin/sh: {other}: not found")),
            };
            said.0 = exit;
            said.1 += &(line + "\n");
        }
        Some(said)
    }
}
