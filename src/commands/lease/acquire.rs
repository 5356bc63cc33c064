use std::io::{self, Write};

use super::super::error::{CommandError, Result, one_line};
use super::super::forms::{LeaseStatusForm, all};
use super::super::output::{Printer, table};
use super::super::status::lease_rows;
use super::Asked;
use super::forms::{AdmissionForm, ReleaseForm};
use super::target::Targets;
use crate::cli::{LeaseAcquireArgs, LeaseRenewArgs, LeaseTargetsArgs};
use crate::engine::{Acquisition, Admission, BlockedBy, LeaseError, LeaseStatus, Workspace};
use crate::model::{Holder, Instant, Lease, ResourceKey};

/// The longest pause between two tries, in milliseconds: a lease may end without anybody's commit.
const MAX_PAUSE_MS: i64 = 1_000;

/// Takes or renews leases, all or none.
pub(super) fn acquire(asked: &Asked<'_>, args: &LeaseAcquireArgs, printer: &mut Printer<'_>) -> Result<()> {
    let targets = Targets::find_to_take(asked, &args.targets.targets, &args.targets.who)?;
    let acquisition = targets.acquisition(args.ttl.ttl_ms, args.request.request_id.as_deref())?;
    let admission = acquire_waiting(&targets.workspace, &acquisition, args.wait.wait_ms)?;
    print_admission(&targets, &admission, asked.context.environment.clock.now(), printer)
}

/// Takes leases; waits up to `wait_ms` milliseconds for who is in the way.
pub(super) fn acquire_waiting(
    workspace: &Workspace,
    acquisition: &Acquisition,
    wait_ms: Option<i64>,
) -> Result<Admission> {
    // Before the first try, so that no commit between the two is missed.
    let watch = wait_ms.map(|_| workspace.watch());
    let deadline_ms = workspace.now().boot_ms.saturating_add(wait_ms.unwrap_or(0));
    loop {
        let error = match workspace.acquire(acquisition) {
            Err(error @ LeaseError::Busy { .. }) => error,
            other => return Ok(other?),
        };
        let now = workspace.now();
        let left_ms = deadline_ms - now.boot_ms;
        match &watch {
            Some(watch) if left_ms > 0 => watch.wait(pause_ms(&error, now).min(left_ms)),
            _ => return Err(error.into()),
        }
    }
}

/// Until when nothing can have changed without a commit: the first blocker's end.
fn pause_ms(error: &LeaseError, now: Instant) -> i64 {
    let LeaseError::Busy { blockers } = error else { return MAX_PAUSE_MS };
    let ends = blockers.iter().filter_map(|blocker| blocker.lease.as_ref());
    let left = ends.filter(|lease| lease.boot == now.boot).map(|lease| lease.expires_boot_ms - now.boot_ms);
    left.filter(|left_ms| *left_ms > 0).min().unwrap_or(MAX_PAUSE_MS).clamp(1, MAX_PAUSE_MS)
}

/// Prints what was granted, and what to mind.
pub(super) fn print_admission(
    targets: &Targets,
    admission: &Admission,
    now: Instant,
    printer: &mut Printer<'_>,
) -> Result<()> {
    let leases = with_paths(&targets.workspace, admission)?;
    let warnings = targets.workspace.named_warnings(&targets.checkout_of, admission)?;
    let form = AdmissionForm::of(admission, &leases, &warnings);
    printer.print(&form, |out| {
        if admission.replayed {
            writeln!(out, "granted before; nothing was taken or extended now")?;
        }
        table(out, "", &lease_rows(&leases, now))?;
        print_warnings(out, &warnings)
    })?;
    Ok(())
}

fn print_warnings(out: &mut dyn Write, warnings: &[BlockedBy]) -> io::Result<()> {
    warnings.iter().try_for_each(|warning| writeln!(out, "mind: {}", one_line(&warning.to_string())))
}

fn with_paths(workspace: &Workspace, admission: &Admission) -> Result<Vec<LeaseStatus>> {
    let status = |granted: &crate::engine::Granted| {
        let lease = granted.lease.clone();
        let path = workspace.lease(&lease.key)?.and_then(|status| status.path);
        Ok(LeaseStatus { path, lease, live: granted.live, quarantined: false })
    };
    admission.granted.iter().map(status).collect()
}

/// Extends leases that have not ended.
pub(super) fn renew(asked: &Asked<'_>, args: &LeaseRenewArgs, printer: &mut Printer<'_>) -> Result<()> {
    let targets = Targets::find(asked, &args.targets.targets, &args.targets.who)?;
    let leases = targets.workspace.renew(&targets.keys()?, &targets.holder, args.ttl.ttl_ms)?;
    let statuses: Vec<LeaseStatus> = leases.into_iter().map(renewed).collect();
    let now = asked.context.environment.clock.now();
    let form: Vec<LeaseStatusForm> = all(&statuses);
    printer.print(&form, |out| table(out, "", &lease_rows(&statuses, now)))?;
    Ok(())
}

fn renewed(lease: Lease) -> LeaseStatus {
    LeaseStatus { path: None, lease, live: true, quarantined: false }
}

/// Gives leases back; what somebody else holds is named, after the rest was given back.
pub(super) fn release(asked: &Asked<'_>, args: &LeaseTargetsArgs, printer: &mut Printer<'_>) -> Result<()> {
    let targets = Targets::find(asked, &args.targets, &args.who)?;
    let keys = targets.keys()?;
    let released = targets.workspace.release(&keys, &targets.holder)?;
    let form =
        |(key, released): (&ResourceKey, &bool)| ReleaseForm { key: key.to_string(), released: *released };
    let forms: Vec<ReleaseForm> = keys.iter().zip(&released).map(form).collect();
    printer.print(&forms, |_| Ok(()))?;
    let left = keys.iter().zip(&released).filter(|(_, released)| !**released).map(|(key, _)| key);
    let others = held_by_others(&targets.workspace, left, &targets.holder)?;
    if others.is_empty() { Ok(()) } else { Err(CommandError::from(LeaseError::Busy { blockers: others })) }
}

/// What somebody else than `holder` has of some keys.
pub(super) fn held_by_others<'a>(
    workspace: &Workspace,
    keys: impl Iterator<Item = &'a ResourceKey>,
    holder: &Holder,
) -> Result<Vec<BlockedBy>> {
    let mut others = Vec::new();
    for key in keys {
        let over = workspace.lease_over(key, holder)?.filter(|status| status.lease.holder != *holder);
        others.extend(over.map(|status| BlockedBy::of(key, status)));
    }
    Ok(others)
}
