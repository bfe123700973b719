//! `berth pki`: the files of a lab that is set up without a running gateway.

use std::process::ExitCode;

use super::command::{bad, program, say};
use crate::cli::{PkiArgs, PkiCommand};
use crate::clock::Clock;
use crate::model::{Code, NodeName, NodeRole, Refusal};
use crate::trust::{Authority, Identity, TrustError};

pub(super) fn run(command: &PkiCommand, json: bool) -> anyhow::Result<ExitCode> {
    match command {
        PkiCommand::Init(args) => init(args, json),
        PkiCommand::Issue { role, name, args } => issue(*role, name, args, json),
    }
}

fn init(args: &PkiArgs, json: bool) -> anyhow::Result<ExitCode> {
    let there = Authority::is_in(&args.dir);
    let authority = opened(args)?;
    let (dir, lab) = (args.dir.display(), &args.lab);
    if json {
        let ca = args.dir.join("ca.crt");
        let answer = serde_json::json!({
            "lab": lab.as_str(), "ca": ca.display().to_string(), "fingerprint": authority.1, "made": !there,
        });
        say(&format!("{answer}\n"));
    } else {
        let what = if there { "is there already and stays as it is" } else { "is made; keep ca.key where it is safe" };
        say(&format!(
            "the authority of lab {lab} in {dir} {what}\nnext:\n  {} pki issue gateway gateway --lab {lab} --dir {dir}\n",
            program()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn issue(role: NodeRole, name: &NodeName, args: &PkiArgs, json: bool) -> anyhow::Result<ExitCode> {
    if !Authority::is_in(&args.dir) {
        let dir = args.dir.display();
        let why = format!("{dir} has no authority; make one with `berth pki init --lab {} --dir {dir}`", args.lab);
        return Err(Refusal::new(Code::BadRequest, why).into());
    }
    let failed = |error: TrustError| anyhow::Error::from(bad(&error));
    let (authority, _) = opened(args)?;
    let node_dir = args.dir.join(name.as_str());
    let there = node_dir.join("node.crt").exists();
    let now = Clock::system().now().wall;
    let files = authority.node_files(&node_dir, role, name, now).map_err(failed)?;
    // One that is there may be another's, or have expired.
    Identity::load(&files, &args.lab, role, name).map_err(failed)?;
    let (ca, cert, key) = (files.ca.display(), files.cert.display(), files.key.display());
    if json {
        let answer = serde_json::json!({
            "lab": args.lab.as_str(), "role": role.as_str(), "name": name.as_str(), "ca": ca.to_string(),
            "cert": cert.to_string(), "key": key.to_string(), "made": !there,
        });
        say(&format!("{answer}\n"));
    } else {
        let what = if there { "there already and stay as they are" } else { "made" };
        say(&format!(
            "key and certificate of {role} {name} are {what}:\n  {ca}\n  {cert}\n  {key}\nbring the three to its machine \
             and name them under [pki] in its lab file\n"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The authority, and the fingerprint of its certificate. Made if it is not there; of another lab it is refused.
fn opened(args: &PkiArgs) -> anyhow::Result<(Authority, String)> {
    let now = Clock::system().now().wall;
    let authority = Authority::open(&args.dir, &args.lab, now).map_err(|error| bad(&error))?;
    let fingerprint = authority.check(now).map_err(|error| bad(&error))?;
    Ok((authority, fingerprint.to_string()))
}
