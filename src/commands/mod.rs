//! The subcommands, one file each: read the arguments, ask the engine, print.
//!
//! A command doesn't know whether its checkout is mounted: [`place::Site::ops`] gives it the daemon or the catalog.

/// Why commands fail, in one line, and their exit statuses.
pub mod error;
pub mod forms;
pub mod output;
pub mod place;
pub mod remote;

mod access;
mod add;
mod backup;
mod cat;
mod checkin;
mod checkout;
mod fsck;
mod gc;
mod generate;
mod import;
mod init;
mod lease;
mod leases;
mod log;
mod program;
mod progress;
mod recovered;
mod rescue;
mod restore;
mod revert;
mod save_as;
mod settle;
mod share;
mod status;
mod store;
mod umount;
mod users;

use std::io::Write;

use crate::cli::{Command, LeaseAction};
use error::Result;
use place::Context;

/// Whether a subcommand changes nothing that a policy governs, and so goes on without a usable one.
pub fn only_looks(command: &Command) -> bool {
    match command {
        Command::Status(_)
        | Command::Log(_)
        | Command::Cat(_)
        | Command::Leases(_)
        | Command::Recovered(_)
        | Command::Backup(_) => true,
        Command::Lease(args) => matches!(
            args.action,
            LeaseAction::Show(_) | LeaseAction::List(_) | LeaseAction::Guard(_) | LeaseAction::Events(_)
        ),
        // Its daemon knows what held before. With a message it checks in.
        Command::Umount(args) => args.message.is_none(),
        Command::Fsck(args) => !args.repair,
        _ => false,
    }
}

/// Runs a subcommand, which prints to `out`.
///
/// `mount` and `serve` are not among them: they are the composition root's (`app`).
pub fn run(command: &Command, context: &Context, out: &mut dyn Write) -> Result<()> {
    match command {
        Command::Init(args) => init::run(args, context, out),
        Command::Import(args) => import::run(args, context, out),
        Command::Mount(_) | Command::Serve(_) => unreachable!("BUG: the composition root runs what stays"),
        Command::Umount(args) => umount::run(args, context, out),
        Command::Status(args) => status::run(args, context, out),
        Command::Checkout(args) => checkout::run(args, context, out),
        Command::Checkin(args) => checkin::run(args, context, out),
        Command::SaveAs(args) => save_as::run(args, context, out),
        Command::Settle(args) => settle::run(args, context, out),
        Command::Add(args) => add::run(args, context, out),
        Command::Revert(args) => revert::run(args, context, out),
        Command::Log(args) => log::run(args, context, out),
        Command::Cat(args) => cat::run(args, context, out),
        Command::Restore(args) => restore::run(args, context, out),
        Command::Leases(args) => leases::run(args, context, out),
        Command::Lease(args) => lease::run(args, context, out),
        Command::Access(args) => access::run(args, context, out),
        Command::Recovered(args) => recovered::run(args, context, out),
        Command::Gc(args) => gc::run(args, context, out),
        Command::Fsck(args) => fsck::run(args, context, out),
        Command::Share(args) => share::run(args, context, out),
        Command::Rescue(args) => rescue::run(args, context, out),
        Command::Backup(args) => backup::run(args, context, out),
        Command::RestoreBackup(args) => backup::restore(args, context, out),
        Command::Store(args) => store::run(&args.action, context, out),
        Command::Generate(args) => generate::run(args, out),
    }
}
