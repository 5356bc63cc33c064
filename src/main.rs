//! The `leasehold` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    leasehold::app::run(std::env::args_os())
}
