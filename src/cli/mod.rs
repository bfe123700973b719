//! The command line (SPEC §12). It speaks to a node through [`crate::client`] and knows nothing else of it.
//!
//! Data goes to stdout, everything else to stderr. A command ends with 0, with the exit code of the refusal
//! (SPEC §11), with 2 when it was used wrongly, or with 1. A reader that has seen enough (`berth lease list | head`)
//! is a success.

mod acquire;
mod args;
mod booking_args;
mod bookings;
mod config;
mod connect;
mod doctor;
mod events;
mod exec;
mod exec_args;
mod failure;
mod fleet;
mod hint;
mod hold_args;
mod holding;
mod holds;
mod interrupt;
mod join_args;
mod keep;
mod lease;
mod lease_args;
mod lease_exec;
mod output;
mod patience;
mod request;
mod select;
mod slot_args;
mod span;
mod table;
#[cfg(test)]
mod tests;
mod token;
mod wait;
mod waiting_room;
mod workers;

use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser};

use self::args::{Cli, Command, ConfigCommand};
pub use self::args::{ConfigArgs, UpArgs};
use self::connect::Connector;
use self::failure::Misuse;
use self::interrupt::Interrupt;
pub use self::join_args::{JoinArgs, PkiArgs, PkiCommand};
use self::lease_exec::LeaseExecArgs;
use self::output::Output;
use self::patience::Pace;

/// The commands that run or read a node rather than ask one. An error with a
/// [`crate::model::Refusal`] in its chain is printed as that refusal and ends the process with its exit code; any
/// other is printed with its chain, as `INTERNAL`, and ends it with 1.
pub trait Operator {
    /// `berth up`: runs until it is told to stop.
    ///
    /// # Errors
    /// The node could not start, or failed.
    fn up(&self, args: UpArgs) -> anyhow::Result<ExitCode>;

    /// `berth config check` and `berth config show`: the effective settings and where each came from.
    ///
    /// # Errors
    /// The settings are wrong, or cannot be read.
    fn check_config(&self, args: ConfigArgs) -> anyhow::Result<ExitCode>;

    /// `berth join`: makes this machine a worker of a lab.
    ///
    /// # Errors
    /// The gateway has refused, or was not reached, or a file cannot be written.
    fn join(&self, args: JoinArgs) -> anyhow::Result<ExitCode>;

    /// `berth pki`: makes an authority, or a node's certificate.
    ///
    /// # Errors
    /// A file cannot be read or written, or is of another lab.
    fn pki(&self, command: PkiCommand, json: bool) -> anyhow::Result<ExitCode>;
}

/// Runs the command that the process was started with.
pub fn main(operator: &dyn Operator) -> ExitCode {
    let cli = match Cli::try_parse().and_then(|cli| cli.check().map(|()| cli)) {
        Ok(cli) => cli,
        Err(error) => return misused(&error, std::env::args_os().any(|argument| argument == "--json")),
    };
    let mut output = Output::of_process(cli.global.json);
    match dispatch(cli, operator, &mut output) {
        Ok(code) => code,
        Err(error) => ExitCode::from(failure::report(&error, None, &mut output)),
    }
}

/// Says how the command was meant, or shows the help that was asked for. A program that asked for JSON gets one line.
fn misused(error: &clap::Error, json: bool) -> ExitCode {
    if !(json && error.use_stderr()) {
        // A reader that has seen enough of the help is a success.
        let _ = error.print();
        return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
    }
    let text = error.to_string();
    let why = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    ExitCode::from(failure::report(&Misuse(why).into(), None, &mut Output::of_process(true)))
}

fn dispatch(cli: Cli, operator: &dyn Operator, output: &mut Output) -> anyhow::Result<ExitCode> {
    let json = cli.global.json;
    match cli.command {
        Command::Up(args) => operator.up(args),
        Command::Config { command: ConfigCommand::Check(args) | ConfigCommand::Show(args) } => {
            operator.check_config(ConfigArgs { json, ..args })
        }
        Command::Join(args) => operator.join(JoinArgs { json, ..args }),
        Command::Pki { command } => operator.pki(command, json),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "berth", &mut script);
            output.data(&String::from_utf8_lossy(&script))?;
            Ok(ExitCode::SUCCESS)
        }
        command => {
            let connector = Connector::new(&cli.global, &|name| std::env::var_os(name))?;
            // A command asks one question after the other; it needs no threads.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.context("the runtime could not be started")?;
            Ok(ExitCode::from(runtime.block_on(ask(
                command,
                &connector,
                output,
                Interrupt::of_process(),
                Pace::default(),
            ))))
        }
    }
}

/// Carries out a command that asks a node, and says how the process ends.
async fn ask(
    command: Command,
    connector: &Connector,
    output: &mut Output<'_>,
    mut interrupt: Interrupt,
    pace: Pace,
) -> u8 {
    let subject = hint::Subject::of(&command);
    let answered = match command.into_tool() {
        Ok(args) => run_tool(args, connector, output).await,
        Err(Command::Exec(args)) => Box::pin(exec::run(*args, connector, output, pace)).await,
        Err(command) => answer(command, connector, output, &mut interrupt, pace).await.map(|()| 0),
    };
    let error = match answered {
        Ok(exit) => return exit,
        Err(error) => error,
    };
    // A program reads the code and the details; only people are told what to try.
    let hint = if output.json() { None } else { hint::after(&error, &subject, connector).await };
    failure::report(&error, hint.as_deref(), output)
}

/// Runs a tool at a device; the process ends as it does.
async fn run_tool(args: LeaseExecArgs, connector: &Connector, output: &mut Output<'_>) -> anyhow::Result<u8> {
    let client = connector.client().await?;
    lease_exec::run(args, &client, output).await
}

async fn answer(
    command: Command,
    connector: &Connector,
    output: &mut Output<'_>,
    interrupt: &mut Interrupt,
    pace: Pace,
) -> anyhow::Result<()> {
    if let Command::Wait(args) = command {
        return wait::ready(&args, connector, output).await;
    }
    if let Command::Config { command: ConfigCommand::Reload } = command {
        return config::reload(connector, output).await;
    }
    let client = connector.client().await?;
    match command {
        Command::Lease(args) => lease::run(*args, &client, output, interrupt, pace).await,
        Command::Resource { command } => fleet::resources(command, &client, output).await,
        Command::Worker { command } => workers::run(command, &client, output).await,
        Command::Holds { command } => holds::operate(command, &client, output).await,
        Command::Doctor => doctor::run(&client, output).await,
        Command::Events(args) => events::run(&args, &client, output, pace).await,
        Command::Status => fleet::status(&client, output).await,
        Command::Token { command } => token::run(command, &client, output).await,
        Command::Up(_)
        | Command::Join(_)
        | Command::Pki { .. }
        | Command::Config { .. }
        | Command::Completions { .. }
        | Command::Exec(_)
        | Command::Wait(_) => {
            unreachable!("these ask no node, or do so in a way of their own")
        }
    }
}
