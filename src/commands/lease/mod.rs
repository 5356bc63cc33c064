//! Leases for people and programs: `leasehold lease …`.

mod acquire;
mod by_hand;
mod events;
mod forms;
mod run;
mod show;
mod target;
mod task;

use std::io::Write;

use super::error::Result;
use super::output::Printer;
use super::place::Context;
use crate::cli::{LeaseAction, LeaseArgs};

/// Runs a subcommand.
pub(super) fn run(args: &LeaseArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let asked = Asked { args, context };
    if let LeaseAction::Events(events) = &args.action {
        return events::run(&asked, events, out);
    }
    let mut printer = Printer::new(out, args.format.json);
    match &args.action {
        LeaseAction::Show(targets) => show::show(&asked, targets, &mut printer),
        LeaseAction::List(list) => show::list(&asked, list, &mut printer),
        LeaseAction::Acquire(acquired) => acquire::acquire(&asked, acquired, &mut printer),
        LeaseAction::Renew(renewed) => acquire::renew(&asked, renewed, &mut printer),
        LeaseAction::Release(targets) => acquire::release(&asked, targets, &mut printer),
        LeaseAction::Guard(targets) => show::guard(&asked, targets, &mut printer),
        LeaseAction::Run(held) => run::run(&asked, held),
        LeaseAction::Begin(begun) => task::begin(&asked, begun, &mut printer),
        LeaseAction::End(ended) => task::end(&asked, ended, &mut printer),
        LeaseAction::Ask(asking) => by_hand::ask(&asked, asking, &mut printer),
        LeaseAction::Break(broken) => by_hand::break_lease(&asked, broken, &mut printer),
        LeaseAction::Resolve(resolved) => by_hand::resolve(&asked, resolved, &mut printer),
        LeaseAction::Events(_) => unreachable!("BUG: events are printed above"),
    }
}

/// What the command was given.
struct Asked<'a> {
    args: &'a LeaseArgs,
    context: &'a Context,
}
