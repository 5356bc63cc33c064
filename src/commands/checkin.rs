use std::io::{self, Write};

use super::error::Result;
use super::forms::{CheckInForm, Form};
use super::output::{Printer, letter, table};
use super::place::Context;
use super::status::left_out;
use crate::cli::CheckinArgs;
use crate::engine::{ChangedItem, CheckInReport, CheckInRequest};
use crate::model::VersionNumber;

/// Publishes drafts as one change.
pub(super) fn run(args: &CheckinArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let common = &args.common;
    let site = context.site(&common.workspace, &common.checkout_of, &args.paths)?;
    let request = CheckInRequest {
        paths: site.paths.clone(),
        message: args.message.clone(),
        keep: args.keep,
        onto: args.onto.map(VersionNumber),
        busy: Vec::new(),
    };
    let report = site.ops()?.check_in(&request)?;
    let quiet_ms = site.workspace.policy().quiet_ms;
    Printer::new(out, common.format.json)
        .print(&CheckInForm::of(&report), |out| human(out, &report, quiet_ms))?;
    Ok(())
}

/// Says what a check-in made, and what it left out.
pub(super) fn human(out: &mut dyn Write, report: &CheckInReport, quiet_ms: i64) -> io::Result<()> {
    match report.change {
        Some(change) => writeln!(out, "change {change}:")?,
        None => writeln!(out, "nothing to check in")?,
    }
    table(out, "  ", &report.items.iter().map(item_row).collect::<Vec<_>>())?;
    left_out(out, &report.left_out, quiet_ms)
}

/// The action's letter, the path and the new version.
pub(super) fn item_row(item: &ChangedItem) -> Vec<String> {
    let from = item.from.as_ref().map_or_else(String::new, |from| format!("{from} -> "));
    let version = item.version.map_or_else(String::new, |version| format!("v{version}"));
    vec![letter(item.action).to_string(), format!("{from}{}", item.path), version]
}
