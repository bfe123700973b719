//! `berth up` and `berth config check`.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Reloader, Running, Surroundings, start_reloadable, stop};
use crate::cli::{ConfigArgs, JoinArgs, Operator, PkiCommand, UpArgs};
use crate::config::{Effective, Lab, Source, environment};
use crate::model::{Code, NodeRole, Refusal};
use crate::service::reload::Reloads;
use crate::telemetry;

/// The commands that run a node rather than ask one.
#[derive(Debug, Default)]
pub struct Commands;

impl Operator for Commands {
    fn up(&self, args: UpArgs) -> anyhow::Result<ExitCode> {
        telemetry::start().map_err(|why| Refusal::new(Code::BadRequest, why))?;
        let source = source(args.config);
        let effective = load(source.clone())?;
        let reloader = Arc::new(Reloader::of(source, &effective));
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        // One core is left for the store's writer: on two cores one thread is faster than two.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads((cores - 1).max(1))
            .enable_all()
            .build()
            .context("the runtime could not be started")?;
        let ended = runtime.block_on(run(&effective.lab, args.node.as_ref(), reloader));
        // A disk that hangs must not keep the process; what is durable is the truth.
        runtime.shutdown_background();
        ended
    }

    fn join(&self, args: JoinArgs) -> anyhow::Result<ExitCode> {
        super::joining::run(&args)
    }

    fn pki(&self, command: PkiCommand, json: bool) -> anyhow::Result<ExitCode> {
        super::pki::run(&command, json)
    }

    fn check_config(&self, args: ConfigArgs) -> anyhow::Result<ExitCode> {
        let effective = load(source(args.config))?;
        if args.json {
            let values: Vec<_> = (effective.values.iter())
                .map(|value| {
                    serde_json::json!({
                        "key": value.key, "value": value.value, "origin": value.origin.to_string()
                    })
                })
                .collect();
            say(&format!("{}\n", serde_json::json!({ "values": values })));
        } else {
            say(&effective.to_string());
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Data on stdout. A reader that has seen enough is a success, and no reason for a node to end.
pub(super) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn source(config: Option<std::path::PathBuf>) -> Source {
    config.map_or(Source::Embedded, Source::File)
}

fn load(source: Source) -> anyhow::Result<Effective> {
    Effective::load(source, environment()).map_err(|error| bad(&error).into())
}

/// An error of the configuration, with what is behind it.
pub(super) fn bad(error: &dyn std::error::Error) -> Refusal {
    Refusal::new(Code::BadRequest, chain(error))
}

/// An error with what is behind it, on one line; a cause that its effect has named already is not said twice.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |line, cause| {
        let cause = cause.to_string();
        if line.contains(&cause) { line } else { format!("{line} ({cause})") }
    })
}

async fn run(lab: &Lab, only: Option<&crate::model::NodeName>, reloader: Arc<Reloader>) -> anyhow::Result<ExitCode> {
    // Before a port opens, so that a stop in the middle of the start is not lost.
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for signals")?;
    let hangup = signal(SignalKind::hangup()).context("cannot listen for signals")?;
    let mut running = match start_reloadable(lab, only, &Surroundings::default(), &reloader).await {
        Ok(running) => running,
        Err(error) if error.is_configuration() => return Err(bad(&error).into()),
        Err(error) => return Err(error.into()),
    };
    say(&greeting(lab, &running));
    let reloading = tokio::spawn(reload_on(hangup, reloader));
    let ended = {
        let ready = announce_ready(&running);
        let ends = running_ends(&mut running);
        tokio::pin!(ready, ends);
        let mut announced = false;
        loop {
            tokio::select! {
                _ = terminate.recv() => break None,
                _ = interrupt.recv() => break None,
                ended = &mut ends => break Some(ended),
                line = &mut ready, if !announced => {
                    announced = true;
                    say(&line);
                }
            }
        }
    };
    reloading.abort();
    match ended {
        None => {
            tracing::info!("stopping; a second signal ends it at once");
            tokio::select! {
                () = stop(running) => Ok(ExitCode::SUCCESS),
                _ = terminate.recv() => Ok(ExitCode::FAILURE),
                _ = interrupt.recv() => Ok(ExitCode::FAILURE),
            }
        }
        Some(ended) => {
            // What was in flight is not answered; the disk is the truth, and the next start reads it.
            tracing::error!("{}", chain(&ended));
            Err(ended.into())
        }
    }
}

/// Reads the lab file again whenever a signal says so. Those that come meanwhile are one.
async fn reload_on(mut hangup: Signal, reloader: Arc<Reloader>) {
    while hangup.recv().await.is_some() {
        // It says itself what has changed, or why nothing has.
        let _ = reloader.reload().await;
    }
}

async fn running_ends(running: &mut [Running]) -> super::Ended {
    let ends = running.iter_mut().map(|node| Box::pin(node.ended()));
    futures_util::future::select_all(ends).await.0
}

/// Waits until every node admits requests, and says what to try.
fn announce_ready(running: &[Running]) -> impl Future<Output = String> + use<> {
    const POLL: Duration = Duration::from_millis(100);
    let nodes: Vec<_> = running.iter().map(|node| std::sync::Arc::clone(&node.coordinator)).collect();
    async move {
        for node in &nodes {
            while !node.readiness().await.ready {
                tokio::time::sleep(POLL).await;
            }
        }
        let program = program();
        format!("ready. Next, in another terminal:\n  {program} lease --platform android\n  {program} status\n")
    }
}

/// How this program is called: by its name where the shell finds it so, else by its path.
pub(super) fn program() -> String {
    let Ok(here) = std::env::current_exe() else { return "berth".to_owned() };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("berth")).find(|file| file.is_file());
    let same = |found: &std::path::PathBuf| found.canonicalize().is_ok_and(|found| found == here);
    if found.as_ref().is_some_and(same) {
        return "berth".to_owned();
    }
    let shown = std::env::current_dir().ok().and_then(|dir| here.strip_prefix(dir).ok().map(ToOwned::to_owned));
    shown.unwrap_or(here).display().to_string()
}

fn greeting(lab: &Lab, running: &[Running]) -> String {
    let mut text =
        format!("berth {} · lab {} · state in {}\n", env!("CARGO_PKG_VERSION"), lab.name, lab.state_dir.display());
    for node in running {
        let mut parts = Vec::new();
        if node.role == NodeRole::Worker {
            parts.push(format!("{} resources", node.resources));
        }
        if let Some(api) = node.api {
            parts.push(format!("http://{api}"));
        }
        if let Some(link) = node.link_address() {
            parts.push(format!("workers at {link} (QUIC)"));
        }
        text.push_str(&format!("  {:<8} {:<10} {}\n", node.role.as_str(), node.name.as_str(), parts.join(" · ")));
    }
    if let Some(front) = running.iter().find(|node| node.api.is_some()) {
        let token = lab.node_dir(&front.name).join(crate::trust::ADMIN_TOKEN_FILE);
        text.push_str(&format!("  the admin token for other HTTP tools is in {}\n", token.display()));
    }
    text
}
