use super::super::error::{CommandError, Result};
use super::super::output::Printer;
use super::Asked;
use super::acquire::{acquire_waiting, held_by_others, print_admission};
use super::forms::ReleaseForm;
use super::target::{Targets, task_key};
use crate::cli::{LeaseBeginArgs, LeaseEndArgs};
use crate::engine::{Acquisition, LeaseError};

/// Takes a task and declares what it is to work on, in one step.
pub(super) fn begin(asked: &Asked<'_>, args: &LeaseBeginArgs, printer: &mut Printer<'_>) -> Result<()> {
    let targets = Targets::find_intents(asked, &args.paths, &args.who)?;
    let acquisition = targets.acquisition(args.ttl.ttl_ms, args.request.request_id.as_deref())?;
    let acquisition = Acquisition { task: Some(task_key(&args.task)?), ..acquisition };
    let admission = acquire_waiting(&targets.workspace, &acquisition, args.wait.wait_ms)?;
    print_admission(&targets, &admission, asked.context.environment.clock.now(), printer)
}

/// Gives a task back and withdraws what was declared for it.
pub(super) fn end(asked: &Asked<'_>, args: &LeaseEndArgs, printer: &mut Printer<'_>) -> Result<()> {
    let targets = Targets::find(asked, &[], &args.who)?;
    let task = task_key(&args.task)?;
    let ended = targets.workspace.end_task(&task, &targets.holder)?;
    if ended.is_empty() {
        let blockers = held_by_others(&targets.workspace, [&task].into_iter(), &targets.holder)?;
        let missing = CommandError::Unheld { object: args.task.clone() };
        return Err(if blockers.is_empty() { missing } else { LeaseError::Busy { blockers }.into() });
    }
    let form = |key: &crate::model::ResourceKey| ReleaseForm { key: key.to_string(), released: true };
    printer.print(&ended.iter().map(form).collect::<Vec<_>>(), |_| Ok(()))?;
    Ok(())
}
