use super::super::error::{CommandError, Result, one_line};
use super::super::output::Printer;
use super::Asked;
use super::forms::LeasesForm;
use super::target::Targets;
use crate::cli::{LeaseAskArgs, LeaseBreakArgs, LeaseResolveArgs, LeaseTargetArgs};
use crate::engine::{LeaseError, Unsaved};
use crate::model::Lease;

/// Asks a holder for what he has.
pub(super) fn ask(asked: &Asked<'_>, args: &LeaseAskArgs, printer: &mut Printer<'_>) -> Result<()> {
    let targets = one(asked, &args.target)?;
    let asked = targets.workspace.ask(&targets.key()?, &targets.holder, &args.message);
    let lease = asked.map_err(|error| unheld(&args.target, error))?;
    print(&args.target, &[lease], "asked", printer)
}

/// Ends somebody else's lease.
pub(super) fn break_lease(asked: &Asked<'_>, args: &LeaseBreakArgs, printer: &mut Printer<'_>) -> Result<()> {
    let targets = one(asked, &args.target)?;
    let broken = targets.workspace.break_lease(&targets.key()?, &targets.holder, &args.reason);
    let broken = broken.map_err(|error| unheld(&args.target, error))?;
    print(&args.target, &broken, "broken: it was held by", printer)
}

/// Ends the waiting for a writer.
pub(super) fn resolve(asked: &Asked<'_>, args: &LeaseResolveArgs, printer: &mut Printer<'_>) -> Result<()> {
    let targets = one(asked, &args.target)?;
    let unsaved = if args.discard { Unsaved::Discard } else { Unsaved::Keep };
    let resolved = targets.workspace.resolve_writer(&targets.key()?, &targets.holder, unsaved);
    let resolved = resolved.map_err(|error| match error {
        LeaseError::NotFound(_) => CommandError::NotQuarantined { object: object(&args.target) },
        error => error.into(),
    })?;
    print(&args.target, &[resolved], "free: it was written by", printer)
}

/// Names what nobody has as it was written.
fn unheld(args: &LeaseTargetArgs, error: LeaseError) -> CommandError {
    match error {
        LeaseError::NotFound(_) => CommandError::Unheld { object: object(args) },
        error => error.into(),
    }
}

fn object(args: &LeaseTargetArgs) -> String {
    args.target.display().to_string()
}

fn one(asked: &Asked<'_>, args: &LeaseTargetArgs) -> Result<Targets> {
    Targets::find(asked, std::slice::from_ref(&args.target), &args.who)
}

/// One line for each lease: what was done, and to whom.
fn print(asked: &LeaseTargetArgs, leases: &[Lease], done: &str, printer: &mut Printer<'_>) -> Result<()> {
    let object = one_line(&object(asked));
    printer.print(&LeasesForm::of(leases), |out| {
        leases
            .iter()
            .try_for_each(|lease| writeln!(out, "{object}  {done} {}", one_line(lease.holder.as_str())))
    })?;
    Ok(())
}
