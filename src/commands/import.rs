use std::io::{self, Write};

use serde::Serialize;

use super::error::{Result, one_line};
use super::forms::HostPathForm;
use super::output::{Printer, human_size};
use super::place::Context;
use super::progress::Bar;
use crate::cli::ImportArgs;
use crate::engine::{ImportReport, ImportRequest};

#[derive(Serialize)]
pub(super) struct ImportForm {
    /// Null if every file was there already.
    change: Option<i64>,
    files: u64,
    bytes: u64,
    skipped: Vec<SkippedForm>,
}

#[derive(Serialize)]
struct SkippedForm {
    #[serde(flatten)]
    path: HostPathForm,
    reason: String,
}

impl ImportForm {
    pub(super) fn of(report: &ImportReport) -> Self {
        let skipped = report.skipped.iter();
        Self {
            change: report.change.map(|change| change.0),
            files: report.files,
            bytes: report.bytes,
            skipped: skipped
                .map(|(path, reason)| SkippedForm { path: HostPathForm::of(path), reason: reason.clone() })
                .collect(),
        }
    }
}

/// Checks in files and directories from elsewhere.
pub(super) fn run(args: &ImportArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let into = args.into.as_slice();
    let site = context.site(&args.common.workspace, &args.common.checkout_of, into)?;
    let request = ImportRequest {
        sources: args.sources.iter().map(|source| context.cwd.join(source)).collect(),
        into: if into.is_empty() { Default::default() } else { site.path_or_root() },
        message: args.message.clone(),
        author: site.holder.clone(),
        contents_only: false,
    };
    let bar = Bar::new("files");
    let report = site.workspace.import(&request, &|progress| {
        bar.update(progress.files, progress.total_files, Some(progress.bytes))
    })?;
    drop(bar);
    site.workspace.share_shortly();
    let form = ImportForm::of(&report);
    Printer::new(out, args.common.format.json).print(&form, |out| print_report(out, &report))?;
    Ok(())
}

/// Says what was imported, and what was not.
pub(super) fn print_report(out: &mut dyn Write, report: &ImportReport) -> io::Result<()> {
    for (path, reason) in &report.skipped {
        writeln!(out, "skipped {}: {}", one_line(&path.display().to_string()), one_line(reason))?;
    }
    let files = if report.files == 1 { "1 file".into() } else { format!("{} files", report.files) };
    let size = human_size(report.bytes);
    match report.change {
        Some(change) => writeln!(out, "change {change}: {files}, {size}"),
        None => writeln!(out, "nothing new in {files}, {size}"),
    }
}
