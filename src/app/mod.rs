//! The composition root: what a process is made of, and how long a mount lives.
//!
//! A mount is one process. `mount` starts it in the background by running this program again with `--foreground` in a
//! session of its own, and waits for a line on a pipe; nothing forks after threads or the catalog exist.

mod asks;
mod background;
mod control;
mod daemon;
mod error;
mod logging;
mod plan;
mod readiness;
mod serving;
mod stop;
mod timers;

pub use error::AppError;

use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::process::ExitCode;
use std::sync::Arc;

use crate::cli::{self, Cli, Command, MountArgs, Unparsed};
use crate::clock::SystemClock;
use crate::commands;
use crate::commands::error::{CommandError, one_line};
use crate::commands::place::Context;
use crate::engine::Environment;
use crate::ids::SystemIds;
use error::Result;
use plan::MountPlan;
use readiness::Readiness;

/// The exit status of wrong usage.
const WRONG_USAGE: u8 = 2;

/// Runs the program: 0 done, 1 failed, 2 wrong usage, 3 held by someone else, 4 stale, 5 `store has` could not tell.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match cli::parse(arguments) {
        Ok(cli) => run_command_line(&cli),
        Err(Unparsed::Wrong(line)) => {
            let _ = writeln!(std::io::stderr(), "{}", one_line(&line));
            ExitCode::from(WRONG_USAGE)
        }
        Err(Unparsed::Asked(help)) => {
            // Whoever closed the pipe has read enough.
            let _ = help.print();
            ExitCode::SUCCESS
        }
    }
}

fn run_command_line(cli: &Cli) -> ExitCode {
    let outcome = match &cli.command {
        Command::Mount(args) => mount(args),
        Command::Serve(args) => context().and_then(|context| serving::run(args, &context)),
        command => run_command(command),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            if !error.is_silent() {
                let name = if error.is_json() { "" } else { "leasehold: " };
                // Where standard error is gone there is nobody left to tell.
                let _ = writeln!(std::io::stderr(), "{name}{}", error.line());
            }
            ExitCode::from(error.exit_status())
        }
    }
}

fn run_command(command: &Command) -> Result<()> {
    logging::start("off");
    let mut out = BufWriter::new(std::io::stdout().lock());
    let context = Context { only_looks: commands::only_looks(command), ..context()? };
    let ran = commands::run(command, &context, &mut out);
    // Also before an exit status that is an answer.
    let flushed = out.flush().map_err(CommandError::from);
    ran?;
    flushed?;
    Ok(())
}

fn context() -> Result<Context> {
    let boot =
        |source| CommandError::File { doing: "read", path: "/proc/sys/kernel/random/boot_id".into(), source };
    let clock = SystemClock::new().map_err(boot)?;
    Ok(Context::new(Environment { clock: Arc::new(clock), ids: Arc::new(SystemIds) })?)
}

/// Mounts in the foreground, or starts the process that does and waits until the mount is usable.
fn mount(args: &MountArgs) -> Result<()> {
    let mut readiness = Readiness::from_environment()?;
    let outcome = context().and_then(|context| {
        let plan = MountPlan::new(args, &context)?;
        if args.foreground {
            daemon::run(&plan, context.environment, &mut readiness)
        } else {
            background::start(&plan)
        }
    });
    if let (Err(error), Some(readiness)) = (&outcome, readiness) {
        readiness.report_failed(error.exit_status(), &error.line());
    }
    outcome
}
