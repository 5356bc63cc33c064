use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use super::error::{CommandError, Result, one_line};
use super::output::{Printer, human_size};
use super::place::Context;
use super::progress::Bar;
use crate::cli::{BackupArgs, FormatArgs, RestoreBackupArgs};
use crate::engine::{self, CopyProgress, CopyReport};

#[derive(Serialize)]
struct CopyForm {
    named: u64,
    copied: u64,
    bytes: u64,
    lost: Vec<LostForm>,
    lost_files: Vec<LostFileForm>,
}

#[derive(Serialize)]
struct LostFileForm {
    file: String,
    reason: String,
}

#[derive(Serialize)]
struct LostForm {
    digest: String,
    reason: String,
}

/// Brings a backup up to date.
pub(super) fn run(args: &BackupArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let workspace = context.workspace(&args.workspace)?;
    let dest = context.cwd.join(&args.dest);
    let bar = Bar::new("blobs");
    let progress = |done: CopyProgress| bar.update(done.blobs, done.total, None);
    let report = workspace.backup(&dest, args.verify, &context.environment, &progress)?;
    drop(bar);
    finish(&report, &dest, args.format, out)
}

/// Makes a workspace of a backup.
pub(super) fn restore(args: &RestoreBackupArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let (source, root) = (context.cwd.join(&args.source), context.cwd.join(&args.workspace));
    let bar = Bar::new("blobs");
    let progress = |done: CopyProgress| bar.update(done.blobs, done.total, None);
    let report = engine::restore_backup(&source, &root, &context.environment, &progress)?;
    drop(bar);
    finish(&report, &root, args.format, out)
}

/// Prints what was copied; what is lost is a failure, though the rest is there.
fn finish(report: &CopyReport, place: &Path, format: FormatArgs, out: &mut dyn Write) -> Result<()> {
    let lost = report.lost.iter();
    let form = CopyForm {
        named: report.named,
        copied: report.copied,
        bytes: report.bytes,
        lost: lost
            .map(|(digest, reason)| LostForm { digest: digest.to_hex(), reason: reason.clone() })
            .collect(),
        lost_files: report
            .lost_files
            .iter()
            .map(|(file, reason)| LostFileForm { file: file.clone(), reason: reason.clone() })
            .collect(),
    };
    Printer::new(out, format.json).print(&form, |out| human(out, report))?;
    match (report.lost.len(), report.lost_files.len()) {
        (0, 0) => Ok(()),
        (lost, problems) => Err(CommandError::Damaged { workspace: place.to_owned(), lost, problems }),
    }
}

fn human(out: &mut dyn Write, report: &CopyReport) -> io::Result<()> {
    let CopyReport { named, copied, bytes, lost, lost_files } = report;
    let there = named - copied - lost.len() as u64;
    writeln!(out, "{copied} blobs copied, {}; {there} were there", human_size(*bytes))?;
    for (digest, reason) in lost {
        writeln!(out, "lost: {digest}: {}", one_line(reason))?;
    }
    for (file, reason) in lost_files {
        writeln!(out, "lost: {}: {}", one_line(file), one_line(reason))?;
    }
    Ok(())
}
