//! The `leasehold` program.

use std::process::ExitCode;

use clap::Parser;
use leasehold::{app, cli};

fn main() -> ExitCode {
    app::run(&cli::Cli::parse())
}
