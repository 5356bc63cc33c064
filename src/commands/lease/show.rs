use std::io::Write;

use super::super::error::{CommandError, Result, one_line};
use super::super::forms::{Form, LeaseStatusForm, all};
use super::super::output::{Printer, table, time_left};
use super::super::status::{lease_rows, section};
use super::Asked;
use super::acquire::held_by_others;
use super::forms::{IntentForm, ListForm, StandingForm};
use super::target::Targets;
use crate::cli::{CheckoutOfArgs, LeaseListArgs, LeaseTargetsArgs};
use crate::engine::{Intent, LeaseError, LeaseFilter, LeaseStatus};
use crate::model::{ArtifactPath, Holder, Instant, IntentPattern};

/// Shows how resources stand.
pub(super) fn show(asked: &Asked<'_>, args: &LeaseTargetsArgs, printer: &mut Printer<'_>) -> Result<()> {
    let targets = Targets::find(asked, &args.targets, &args.who)?;
    let now = asked.context.environment.clock.now();
    let mut rows = Vec::new();
    let mut forms = Vec::new();
    for (key, argument) in targets.keys()?.iter().zip(&args.targets) {
        let lease = targets.workspace.lease_over(key, &targets.holder)?;
        let state = state(lease.as_ref(), &targets.holder);
        rows.push(match &lease {
            Some(lease) => lease_rows(std::slice::from_ref(lease), now).remove(0),
            None => vec![one_line(&argument.display().to_string()), "free".to_owned()],
        });
        let lease = lease.as_ref().map(LeaseStatusForm::of);
        forms.push(StandingForm { key: key.to_string(), state, lease });
    }
    printer.print(&forms, |out| table(out, "", &rows))?;
    Ok(())
}

fn state(lease: Option<&LeaseStatus>, holder: &Holder) -> &'static str {
    match lease {
        None => "free",
        Some(status) if status.quarantined => "quarantined",
        Some(status) if status.lease.holder == *holder => "mine",
        Some(_) => "held",
    }
}

/// Lists leases and intents.
pub(super) fn list(asked: &Asked<'_>, args: &LeaseListArgs, printer: &mut Printer<'_>) -> Result<()> {
    let site =
        asked.context.site(&asked.args.workspace, &CheckoutOfArgs::default(), args.under.as_slice())?;
    let under = args.under.as_ref().map(|_| site.path_or_root());
    let filter = LeaseFilter { under: under.clone(), ..LeaseFilter::default() };
    let mut leases = site.workspace.all_leases(&filter)?;
    leases.retain(|status| args.all || status.live || status.quarantined);
    let mut intents = site.workspace.intents()?;
    intents.retain(|intent| under.as_ref().is_none_or(|under| meets(intent, under)));
    let now = asked.context.environment.clock.now();
    let form = ListForm { leases: all(&leases), intents: intents.iter().map(IntentForm::of).collect() };
    printer.print(&form, |out| {
        table(out, "", &lease_rows(&leases, now))?;
        section(out, "intents", &intent_rows(&intents, now))
    })?;
    Ok(())
}

fn meets(intent: &Intent, under: &ArtifactPath) -> bool {
    intent.pattern.overlaps(&IntentPattern::subtree(under.clone()))
}

fn intent_rows(intents: &[Intent], now: Instant) -> Vec<Vec<String>> {
    let row = |intent: &Intent| {
        let lease = &intent.lease;
        let task = intent.task.as_ref().map_or_else(String::new, ToString::to_string);
        vec![
            intent.pattern.to_string(),
            lease.holder.to_string(),
            lease.expires.to_rfc3339(),
            time_left(lease, now),
            task,
        ]
    };
    intents.iter().map(row).collect()
}

/// Says by the exit status whose the resources are, for hooks.
pub(super) fn guard(asked: &Asked<'_>, args: &LeaseTargetsArgs, printer: &mut Printer<'_>) -> Result<()> {
    let targets = Targets::find(asked, &args.targets, &args.who)?;
    let keys = targets.keys()?;
    let blockers = held_by_others(&targets.workspace, keys.iter(), &targets.holder)?;
    if !blockers.is_empty() {
        return Err(LeaseError::Busy { blockers }.into());
    }
    let mut forms = Vec::new();
    let mut free = None;
    for (key, argument) in keys.iter().zip(&args.targets) {
        let lease = targets.workspace.lease_over(key, &targets.holder)?;
        if lease.is_none() {
            free.get_or_insert_with(|| argument.display().to_string());
        }
        let state = state(lease.as_ref(), &targets.holder);
        forms.push(StandingForm {
            key: key.to_string(),
            state,
            lease: lease.as_ref().map(LeaseStatusForm::of),
        });
    }
    printer.print(&forms, |_: &mut dyn Write| Ok(()))?;
    free.map_or(Ok(()), |object| Err(CommandError::Unheld { object }))
}
