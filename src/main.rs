//! The `leasehold` program.

fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
