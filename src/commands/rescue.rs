use std::io::{self, Write};

use serde::Serialize;

use super::error::{Result, one_line};
use super::forms::HostPathForm;
use super::output::Printer;
use super::place::Context;
use crate::cli::RescueArgs;
use crate::engine::{self, RescueReport};

#[derive(Serialize)]
struct RescueForm {
    changes: u64,
    head: Option<i64>,
    /// Changes before the head of which no manifest was found.
    missing: Vec<i64>,
    unreadable: Vec<UnreadableForm>,
    set_aside: Vec<HostPathForm>,
    kept: u64,
}

#[derive(Serialize)]
struct UnreadableForm {
    digest: String,
    reason: String,
}

/// Makes a new catalog from what check-ins left in the store.
pub(super) fn run(args: &RescueArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let root = context.cwd.join(&args.workspace);
    let report = engine::rescue(&root, &context.environment)?;
    let unreadable = report.unreadable.iter();
    let form = RescueForm {
        changes: report.changes,
        head: report.head.map(|head| head.0),
        missing: report.missing.iter().map(|change| change.0).collect(),
        unreadable: unreadable
            .map(|(digest, reason)| UnreadableForm { digest: digest.to_hex(), reason: reason.clone() })
            .collect(),
        set_aside: report.set_aside.iter().map(|path| HostPathForm::of(path)).collect(),
        kept: report.kept,
    };
    Printer::new(out, args.format.json).print(&form, |out| human(out, &report))?;
    Ok(())
}

fn human(out: &mut dyn Write, report: &RescueReport) -> io::Result<()> {
    let head = report.head.map_or_else(|| "none".into(), |head| head.to_string());
    writeln!(out, "{} changes came back, the newest is {head}", report.changes)?;
    for change in &report.missing {
        writeln!(out, "change {change} is lost, but for what later ones say")?;
    }
    for (digest, reason) in &report.unreadable {
        writeln!(out, "the manifest {digest} can't be read: {}", one_line(reason))?;
    }
    for path in &report.set_aside {
        writeln!(out, "set aside: {}", one_line(&path.display().to_string()))?;
    }
    if report.kept > 0 {
        writeln!(
            out,
            "{} drafts and other files are recovery copies: see `leasehold recovered`",
            report.kept
        )?;
    }
    writeln!(out, "check what is left with `leasehold fsck`")
}
