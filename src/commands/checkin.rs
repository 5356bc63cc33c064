use std::io::{self, Write};

use super::error::Result;
use super::forms::{CheckInForm, Form};
use super::output::{Printer, letter, table};
use super::place::Context;
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
    Printer::new(out, common.format.json).print(&CheckInForm::of(&report), |out| human(out, &report))?;
    Ok(())
}

/// Says what a check-in made.
pub(super) fn human(out: &mut dyn Write, report: &CheckInReport) -> io::Result<()> {
    let Some(change) = report.change else { return writeln!(out, "nothing to check in") };
    writeln!(out, "change {change}:")?;
    table(out, "  ", &report.items.iter().map(item_row).collect::<Vec<_>>())
}

/// The action's letter, the path and the new version.
pub(super) fn item_row(item: &ChangedItem) -> Vec<String> {
    let from = item.from.as_ref().map_or_else(String::new, |from| format!("{from} -> "));
    let version = item.version.map_or_else(String::new, |version| format!("v{version}"));
    vec![letter(item.action).to_string(), format!("{from}{}", item.path), version]
}
