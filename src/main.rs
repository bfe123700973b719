//! The `berth` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    // A node starts its own program as a guard of what it runs; that asks for none of the command line.
    if let Some(ward) = berth::driver::Ward::of_arguments(std::env::args_os()) {
        return ward.guard();
    }
    berth::cli::main(&berth::node::Commands)
}
