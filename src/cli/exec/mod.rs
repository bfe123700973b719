//! `berth exec`: runs a command for as long as it holds a lease, and holds the lease for as long as the command runs
//! (SPEC §7).
//!
//! The command runs in a process group of its own. It has the streams that `berth` was given, untouched, and what the
//! lease's environment says. It is ended, by SIGTERM to its group and SIGKILL 10 s later, when the lease is lost and
//! when the process is gone that it is bound to: the parent, or `--bind-pid`. Every way out gives the lease back, but
//! SIGKILL. What the command has left running in the background when it ends by itself is its own affair.

mod bond;
mod command;
mod environment;
mod proc;
mod signals;
mod terminal;

use std::rc::Rc;

use futures_util::FutureExt;

use self::bond::Bond;
use self::command::Running;
use self::signals::Signals;
use super::connect::Connector;
use super::exec_args::ExecArgs;
use super::failure::{Interrupted, Lost};
use super::holding::{Holding, Unreleased};
use super::interrupt::Signal;
use super::lease::said;
use super::output::Output;
use super::patience::Pace;
use super::request;

pub(super) use self::command::NotStarted;

/// Gets a lease, runs the command under it, and answers with what the process ends.
pub(super) async fn run(
    args: ExecArgs,
    connector: &Connector,
    output: &mut Output<'_>,
    pace: Pace,
) -> anyhow::Result<u8> {
    let bond = Rc::new(Bond::new(args.bind_pid)?);
    // From here on no signal ends the process while there is something to give back.
    let signals = Signals::passed_on()?;
    let mut interrupt = signals::before_the_command(bond.clone())?;
    if let Some(signal) = interrupt.came().now_or_never() {
        return Err(Interrupted { signal, outcome: "nothing was asked for".to_owned() }.into());
    }
    let client = connector.client().await?;
    let said_key = args.request.has_key();
    let granted = request::granted(args.request.body()?, &client, output, &mut interrupt, pace).await?;
    if granted.waited {
        output.talk(said("leased", &granted.lease).trim_end());
    }
    let mut holding = Holding::new(granted, &client, pace);
    if said_key {
        // The key may be an old one, and its lease over.
        tokio::select! {
            biased;
            signal = interrupt.came() => return Err(given_back(&holding, signal).await.into()),
            confirmed = holding.confirmed(output) => confirmed?,
        }
    }
    if let Some(signal) = interrupt.came().now_or_never() {
        return Err(given_back(&holding, signal).await.into());
    }
    let environment = environment::of(holding.lease());
    let started = environment.and_then(|set| Ok(Running::start(&args.command, &set, signals, holding.deadline())?));
    match started {
        Ok(running) => held(running, holding, &bond, output).await,
        Err(error) => {
            if let Err(Unreleased::Unknown(error)) = holding.release().await {
                output.talk(&format!("{error:#}"));
            }
            Err(error)
        }
    }
}

/// How it came that the command runs no more.
enum Over {
    /// It ended, and with that.
    Ended(u8),
    Lost(Lost),
    /// Whom it was bound to is gone.
    Unbound,
}

/// Sees the command to its end, and gives the lease back.
async fn held(
    mut running: Running,
    mut holding: Holding<'_>,
    bond: &Bond,
    output: &mut Output<'_>,
) -> anyhow::Result<u8> {
    let over = tokio::select! {
        biased;
        end = running.ended() => Over::Ended(end),
        lost = holding.lost(output) => Over::Lost(lost),
        () = bond.broken() => Over::Unbound,
    };
    match over {
        Over::Ended(exit) => {
            drop(running);
            match holding.release().await {
                Ok(_) => Ok(exit),
                Err(Unreleased::Lost(lost)) => {
                    output.talk(&format!("the command has ended with {exit}; it may have run without its lease"));
                    Err(lost.into())
                }
                Err(Unreleased::Unknown(error)) => {
                    output.talk(&format!("{error:#}"));
                    Ok(exit)
                }
            }
        }
        Over::Lost(lost) => {
            output.talk(&format!("lease {} is lost; ending the command", lost.lease));
            running.put_down().await;
            Err(lost.into())
        }
        Over::Unbound => {
            output.talk("ending the command");
            {
                // It still has the device in its hands, so the lease is kept until it is gone.
                let mut down = std::pin::pin!(running.put_down());
                tokio::select! {
                    biased;
                    () = &mut down => {}
                    _ = holding.lost(output) => down.await,
                }
            }
            Err(given_back(&holding, bond.news()).await.into())
        }
    }
}

/// Gives the lease back because of `signal`.
async fn given_back(holding: &Holding<'_>, signal: Signal) -> Interrupted {
    let outcome = match holding.release().await {
        Ok(message) => message,
        Err(Unreleased::Lost(lost)) => lost.to_string(),
        Err(Unreleased::Unknown(error)) => format!("{error:#}"),
    };
    Interrupted { signal, outcome }
}
