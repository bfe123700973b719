//! The README's console blocks do what they show.
//!
//! A line `$ …` is a command, the lines after it are what it says. `…` stands for anything in a line, or, alone on a
//! line, for any lines. Runs of spaces count as one.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use crate::ports::free_port;

const README: &str = include_str!("../../README.md");
const BERTH: &str = env!("CARGO_BIN_EXE_berth");
const UP: &str = "cargo run --release -- up";

/// A command of the README and what it shows.
struct Shown {
    command: String,
    output: Vec<String>,
}

/// The demonstration lab on ports of its own.
struct Lab {
    state: tempfile::TempDir,
    api: u16,
    link: u16,
    node: Option<Child>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(node) = &mut self.node {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

impl Lab {
    fn new() -> Self {
        Self { state: tempfile::tempdir().unwrap(), api: free_port(), link: free_port(), node: None }
    }

    fn dress(&self, command: &mut Command) {
        let programs = Path::new(BERTH).parent().unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        command
            .env("PATH", path)
            .env("XDG_STATE_HOME", self.state.path())
            .env("BERTH_GATEWAY__API", format!("127.0.0.1:{}", self.api))
            .env("BERTH_GATEWAY__LINK", format!("127.0.0.1:{}", self.link))
            .env_remove("BERTH_URL")
            .env_remove("BERTH_TOKEN")
            .env_remove("BERTH_NODE");
    }

    /// Starts the lab; what it says until it has nothing more to say.
    fn up(&mut self) -> Vec<String> {
        let mut command = Command::new(BERTH);
        self.dress(&mut command);
        let mut node = command.arg("up").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = BufReader::new(node.stdout.take().unwrap());
        self.node = Some(node);
        let (sender, lines) = sync_channel(64);
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut said: Vec<String> = Vec::new();
        let mut bound = Duration::from_secs(20);
        loop {
            match lines.recv_timeout(bound) {
                Ok(line) => {
                    if line.starts_with("ready") {
                        // What follows comes at once.
                        bound = Duration::from_millis(500);
                    }
                    said.push(line);
                }
                Err(RecvTimeoutError::Timeout) if said.iter().any(|line| line.starts_with("ready")) => return said,
                Err(error) => panic!("the lab is not ready ({error}): {said:#?}"),
            }
        }
    }

    fn run(&self, line: &str) -> Vec<String> {
        let mut command = Command::new("sh");
        self.dress(&mut command);
        let output = command.arg("-c").arg(format!("{line} 2>&1")).output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(ToOwned::to_owned).collect()
    }
}

fn shown() -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    let mut inside = false;
    for line in README.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if !inside => {}
            _ => match line.strip_prefix("$ ") {
                Some(command) => all.push(Shown { command: command.to_owned(), output: Vec::new() }),
                None => all.last_mut().expect("a block begins with a command").output.push(line.to_owned()),
            },
        }
    }
    all
}

/// The excerpts of lab files.
fn excerpts() -> Vec<String> {
    let blocks = README.split("```toml\n").skip(1);
    blocks.map(|rest| rest.split("```").next().expect("a split has a first part").to_owned()).collect()
}

/// True when the lines are as they are shown.
fn as_shown(shown: &[String], said: &[String]) -> bool {
    match shown.split_first() {
        None => said.is_empty(),
        Some((any, rest)) if any.trim() == "…" => (0..=said.len()).any(|skip| as_shown(rest, &said[skip..])),
        Some((first, rest)) => {
            said.split_first().is_some_and(|(line, more)| line_as_shown(first, line) && as_shown(rest, more))
        }
    }
}

fn line_as_shown(shown: &str, said: &str) -> bool {
    let one_space = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (shown, said) = (one_space(shown), one_space(said));
    let parts: Vec<&str> = shown.split('…').map(str::trim).collect();
    let (Some(rest), true) = (said.strip_prefix(parts[0]), parts.len() > 1) else { return shown == said };
    let mut rest = rest;
    for part in &parts[1..parts.len() - 1] {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(parts[parts.len() - 1])
}

#[test]
fn every_console_block_of_the_readme_does_what_it_shows() {
    let shown = shown();
    assert!(shown.len() > 10, "the README shows how Berth is used");
    let mut lab = Lab::new();
    for Shown { command, output } in &shown {
        let said = if command == UP { lab.up() } else { lab.run(command) };
        let said: Vec<String> = (said.iter())
            .map(|line| line.replace(&lab.api.to_string(), "4700").replace(&lab.link.to_string(), "4701"))
            .collect();
        assert!(as_shown(output, &said), "$ {command}\nshown:\n{}\nsaid:\n{}", output.join("\n"), said.join("\n"));
    }
}

#[test]
fn every_excerpt_of_a_lab_file_is_one_that_berth_takes() {
    let excerpts = excerpts();
    assert!(excerpts.len() > 1, "the README shows devices");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lab.toml");
    for excerpt in excerpts {
        std::fs::write(&file, format!("[lab]\nname = \"test\"\n\n[[worker]]\nname = \"rack-1\"\n\n{excerpt}")).unwrap();
        let said = Command::new(BERTH).args(["config", "check", "--config"]).arg(&file).output().unwrap();
        assert!(said.status.success(), "{excerpt}\n{}", String::from_utf8_lossy(&said.stderr));
    }
}

#[test]
fn what_differs_from_the_readme_is_noticed() {
    let lines = |text: &str| -> Vec<String> { text.lines().map(ToOwned::to_owned).collect() };
    assert!(as_shown(&lines("leased … until …"), &lines("leased a b   until noon")));
    assert!(as_shown(&lines("a\n…\nd"), &lines("a\nb\nc\nd")));
    assert!(!as_shown(&lines("a\n…\nd"), &lines("a\nb")));
    assert!(!as_shown(&lines("leased … until …"), &lines("error … until")));
    assert!(!as_shown(&lines("a"), &lines("a\nb")));
    assert!(!as_shown(&lines("a …"), &lines("b a")));
}
