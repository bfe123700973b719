//! The `berth` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    berth::cli::main(&berth::node::Commands)
}
