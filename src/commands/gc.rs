use std::io::{self, Write};

use serde::Serialize;

use super::error::Result;
use super::output::{Printer, human_size};
use super::place::Context;
use super::progress::Bar;
use super::remote::Remote;
use crate::cli::GcArgs;
use crate::engine::{CheckoutOps, CollectReport, CollectRequest, EngineError, Tally, Workspace};
use crate::model::Digest;

#[derive(Serialize)]
pub(super) struct TallyForm {
    blobs: u64,
    bytes: u64,
}

impl TallyForm {
    pub(super) fn of(tally: Tally) -> Self {
        Self { blobs: tally.blobs, bytes: tally.bytes }
    }
}

#[derive(Serialize)]
struct GcForm {
    seen: TallyForm,
    /// Nothing needs them, and they are too young.
    spared: TallyForm,
    /// With `dry_run`: what would be removed.
    removed: TallyForm,
    dry_run: bool,
}

/// Removes stored bytes that nothing needs.
pub(super) fn run(args: &GcArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let workspace = context.workspace(&args.workspace)?;
    let request = CollectRequest { grace_ms: args.grace_ms, dry_run: args.dry_run };
    let bar = Bar::new("blobs");
    let open = || open_blobs(&workspace);
    let report = workspace.collect(&request, &open, &|done, total| bar.update(done, total, None))?;
    drop(bar);
    let CollectReport { seen, spared, removed } = report;
    let form = GcForm {
        seen: TallyForm::of(seen),
        spared: TallyForm::of(spared),
        removed: TallyForm::of(removed),
        dry_run: args.dry_run,
    };
    Printer::new(out, args.format.json).print(&form, |out| human(out, &report, args.dry_run))?;
    Ok(())
}

/// What live mounts have open; one that doesn't answer stops the collection.
fn open_blobs(workspace: &Workspace) -> crate::engine::Result<Vec<Digest>> {
    let mut open = Vec::new();
    for (holder, mount) in workspace.live_mounts()? {
        let at = mount.mountpoint.display().to_string();
        let silent = |error: &dyn std::fmt::Display| {
            EngineError::Refused(format!(
                "{at}: can't tell what is open there, so nothing was collected: {error}"
            ))
        };
        let remote = Remote::of(workspace, &holder, mount).map_err(|error| silent(&error))?;
        open.extend(remote.open_blobs()?);
    }
    Ok(open)
}

fn human(out: &mut dyn Write, report: &CollectReport, dry_run: bool) -> io::Result<()> {
    let counted = |tally: Tally| format!("{} blobs, {}", tally.blobs, human_size(tally.bytes));
    let verb = if dry_run { "would remove" } else { "removed" };
    writeln!(out, "{verb} {} of {}", counted(report.removed), counted(report.seen))?;
    if report.spared.blobs > 0 {
        writeln!(out, "not needed, and younger than the grace time: {}", counted(report.spared))?;
    }
    Ok(())
}
