use std::io::{self, Write};

use super::error::Result;
use super::forms::{Form, RevertForm};
use super::output::Printer;
use super::place::Context;
use super::status::{recovery_rows, section};
use crate::cli::RevertArgs;
use crate::engine::RevertReport;

/// Drops drafts, and keeps their bytes as recovery copies.
pub(super) fn run(args: &RevertArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let common = &args.common;
    let site = context.site(&common.workspace, &common.checkout_of, &args.paths)?;
    let report = site.ops()?.revert(&site.paths)?;
    Printer::new(out, common.format.json).print(&RevertForm::of(&report), |out| human(out, &report))?;
    Ok(())
}

fn human(out: &mut dyn Write, report: &RevertReport) -> io::Result<()> {
    let reverted: Vec<_> = report.reverted.iter().map(|path| vec![path.to_string()]).collect();
    section(out, "reverted", &reverted)?;
    section(out, "recovery copies", &recovery_rows(&report.recovered))
}
