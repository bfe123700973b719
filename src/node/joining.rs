//! `berth join`: this machine becomes a worker of a lab (SPEC §9 Joining).
//!
//! The key is made and on disk before the gateway is asked, so that a second try asks with the same one. Until the gateway
//! has answered it lies beside the one that the node may have already. An existing lab file is never touched.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use super::StartError;
use super::command::{bad, program, say};
use super::prepare::{lock, private};
use crate::cli::JoinArgs;
use crate::config::default_state_dir;
use crate::link::Udp;
use crate::link::join::{JoinError, Joined, join};
use crate::model::{Code, NodeRole, Refusal};
use crate::trust::roster::NotJoined;
use crate::trust::{INVITATION_BYTES_MAX, Identity, Invitation, JoinerKey, keep_answer};

pub(super) fn run(args: &JoinArgs) -> anyhow::Result<ExitCode> {
    let invitation = read_invitation(args.invitation.as_deref())?;
    let state_dir = state_dir(args, &invitation)?;
    let node_dir = state_dir.join(invitation.worker.as_str());
    let configuration = |error: StartError| anyhow::Error::from(bad(&error));
    let unusable = |source| StartError::Directory { path: node_dir.clone(), source };
    private(&node_dir).map_err(|error| configuration(unusable(error)))?;
    // A running node has read its key; it is not to find another one at its next start by surprise.
    let _held = lock(&node_dir, &invitation.worker).map_err(configuration)?;
    let key = JoinerKey::open(&node_dir, args.new_key).map_err(|error| bad(&error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("the runtime could not be started")?;
    let joined = runtime.block_on(join(&invitation, &key, &Udp::default()));
    if matches!(&joined, Err(JoinError::Refused { reason, .. }) if reason == NotJoined::Revoked.word()) {
        // It is never let in again; the next try makes another.
        JoinerKey::forget_try(&node_dir).map_err(|error| bad(&error))?;
    }
    let Joined { certificate, authority } = joined.map_err(explained)?;
    let files = keep_answer(&invitation, &node_dir, &key, &certificate, &authority).map_err(|error| bad(&error))?;
    Identity::load(&files, &invitation.lab, NodeRole::Worker, &invitation.worker).map_err(|error| bad(&error))?;
    let written = write_once(&args.config, &lab_file(&invitation, &state_dir, &node_dir)?)?;
    tell(args, &invitation, written);
    Ok(ExitCode::SUCCESS)
}

fn read_invitation(file: Option<&Path>) -> anyhow::Result<Invitation> {
    let refused = |why: String| Refusal::new(Code::BadRequest, why);
    let line = match file.filter(|file| *file != Path::new("-")) {
        Some(path) => {
            let opened = File::open(path);
            let failed = |error| refused(format!("{} cannot be read: {error}", path.display()));
            first_line(BufReader::new(opened.map_err(failed)?)).map_err(failed)?
        }
        None => {
            if io::stdin().is_terminal() {
                let _ =
                    writeln!(io::stderr(), "paste the line that `berth worker invite` has printed, and press Enter:");
            }
            first_line(io::stdin().lock()).map_err(|error| refused(format!("the standard input: {error}")))?
        }
    };
    Ok(line.trim().parse().map_err(refused)?)
}

/// The first line, cut when it is longer than an invitation can be.
fn first_line(from: impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.take(INVITATION_BYTES_MAX as u64 + 2).read_until(b'\n', &mut line)?;
    Ok(String::from_utf8_lossy(&line).into_owned())
}

fn state_dir(args: &JoinArgs, invitation: &Invitation) -> anyhow::Result<PathBuf> {
    let refused = |why: &str| Refusal::new(Code::BadRequest, why);
    let environment = crate::config::environment().collect();
    let chosen = args.state_dir.clone().or_else(|| default_state_dir(&environment, &invitation.lab));
    let chosen = chosen.ok_or_else(|| refused("HOME is not set; say --state-dir DIR"))?;
    std::path::absolute(chosen).context("the current directory cannot be told; write an absolute --state-dir")
}

/// What the gateway said no to is the operator's to mend.
fn explained(error: JoinError) -> anyhow::Error {
    match error {
        JoinError::Refused { reason, why } => Refusal::new(Code::BadRequest, why).with("reason", reason).into(),
        JoinError::NotTheGateway { .. } | JoinError::Resolve { .. } | JoinError::Key(_) => bad(&error).into(),
        JoinError::Link { .. } => error.into(),
    }
}

/// This machine's part of the lab file.
fn lab_file(invitation: &Invitation, state_dir: &Path, node_dir: &Path) -> anyhow::Result<String> {
    let text = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let path = |path: PathBuf| {
        let shown = path.to_str().map(text);
        shown.ok_or_else(|| {
            Refusal::new(Code::BadRequest, format!("{} is no text; choose another --state-dir", path.display()))
        })
    };
    let Invitation { lab, worker, gateway, address, .. } = invitation;
    let file = |name: &str| path(node_dir.join(name));
    Ok(format!(
        "# Worker {worker} of lab {lab}, written by `berth join`. Start it with --node {worker}.\n\
         \n\
         [lab]\nname = {}\nstate_dir = {}\n\
         \n\
         [gateway]\nname = {}\naddress = {}\n\
         \n\
         [pki]\nca = {}\ncert = {}\nkey = {}\n\
         \n\
         [[worker]]\nname = {}\n\
         \n\
         # What this machine has: take the # away, write what it is, and start the node.\n\
         # [[worker.resource]]\n\
         # id = \"pixel-8-a\"\n\
         # labels = {{ platform = \"android\", model = \"Pixel 8\", os = \"15\" }}\n",
        text(lab.as_str()),
        path(state_dir.to_owned())?,
        text(gateway.as_str()),
        text(address),
        file("ca.crt")?,
        file("node.crt")?,
        file("node.key")?,
        text(worker.as_str()),
    ))
}

/// Writes a file that is not there yet. False when there is one, which stays as it is.
fn write_once(path: &Path, text: &str) -> anyhow::Result<bool> {
    let made = OpenOptions::new().write(true).create_new(true).open(path);
    let written = match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        Err(error) => Err(error),
        Ok(mut file) => file.write_all(text.as_bytes()).and_then(|()| file.sync_all()),
    };
    written.map(|()| true).map_err(|error| {
        let why = format!(
            "this machine has joined, but {} cannot be written: {error}; join again with --config and another file",
            path.display()
        );
        Refusal::new(Code::BadRequest, why).into()
    })
}

fn tell(args: &JoinArgs, invitation: &Invitation, written: bool) {
    let Invitation { lab, worker, gateway, .. } = invitation;
    let config = args.config.display();
    let next = format!("{} up --config {config} --node {worker}", program());
    if args.json {
        let answer = serde_json::json!({
            "lab": lab.as_str(), "worker": worker.as_str(), "gateway": gateway.as_str(),
            "config": config.to_string(), "configWritten": written, "next": next,
        });
        return say(&format!("{answer}\n"));
    }
    let file = if written {
        format!("wrote {config}; say in it what this machine has")
    } else {
        format!(
            "{config} is there already and stays as it is; it must name worker {worker}, or join again with --config and \
             another file"
        )
    };
    say(&format!("this machine is worker {worker} of lab {lab}\n{file}\nnext:\n  {next}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Effective, Source};
    use crate::trust::{InvitationSecret, Sha256Print};

    #[test]
    fn what_is_written_is_a_lab_file_with_this_worker_and_is_written_once() {
        let directory = tempfile::tempdir().unwrap();
        let authority: Sha256Print = "ab".repeat(32).parse().unwrap();
        let invitation = Invitation {
            lab: "berlin".parse().unwrap(),
            worker: "rack-3".parse().unwrap(),
            gateway: "hub".parse().unwrap(),
            address: "gw.lab.example:4701".to_owned(),
            authority,
            secret: InvitationSecret::generate().unwrap(),
        };
        let state = directory.path().join("a \"strange\" place");
        let text = lab_file(&invitation, &state, &state.join("rack-3")).unwrap();
        assert!(!text.contains("bji_"), "no secret is kept");
        let file = directory.path().join("lab.toml");
        assert!(write_once(&file, &text).unwrap());
        assert!(!write_once(&file, "another").unwrap());
        let lab = Effective::load(Source::File(file), std::iter::empty()).unwrap().lab;
        assert_eq!((lab.name.as_str(), lab.workers.len()), ("berlin", 1));
        assert_eq!((lab.workers[0].name.as_str(), &lab.state_dir), ("rack-3", &state));
        let gateway = lab.gateway.unwrap();
        assert_eq!((gateway.name.as_str(), gateway.address.as_str()), ("hub", "gw.lab.example:4701"));
        assert_eq!(lab.pki.unwrap().key, state.join("rack-3/node.key"));
    }

    #[test]
    fn only_the_first_line_counts_and_never_more_of_it_than_an_invitation_has() {
        assert_eq!(first_line(&b"one\ntwo\n"[..]).unwrap(), "one\n");
        assert_eq!(first_line(&vec![b'x'; 100_000][..]).unwrap().len(), INVITATION_BYTES_MAX + 2);
    }
}
