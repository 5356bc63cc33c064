use std::io::{self, Write};

use serde::Serialize;

use super::error::{CommandError, Result};
use super::forms::{Form, PathForm};
use super::gc::TallyForm;
use super::output::{Printer, human_size};
use super::place::Context;
use super::progress::Bar;
use super::status::section;
use crate::cli::FsckArgs;
use crate::engine::{FsckReport, Lost, LostUse};

#[derive(Serialize)]
struct FsckForm {
    checked: TallyForm,
    unreferenced: TallyForm,
    healed: Vec<String>,
    lost: Vec<LostForm>,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct LostForm {
    digest: String,
    reason: String,
    /// Empty if nothing refers to it.
    users: Vec<UseForm>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum UseForm {
    Version {
        #[serde(flatten)]
        path: PathForm,
        version: i64,
    },
    Draft {
        #[serde(flatten)]
        path: PathForm,
        holder: String,
    },
    Manifest,
}

/// Reads everything that is stored, and tells what is lost.
pub(super) fn run(args: &FsckArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let workspace = context.workspace(&args.workspace)?;
    let bar = Bar::new("blobs");
    let progress = |done: crate::engine::FsckProgress| bar.update(done.blobs, done.total, Some(done.bytes));
    let report = workspace.fsck(args.repair, &progress)?;
    drop(bar);
    Printer::new(out, args.format.json).print(&form_of(&report), |out| human(out, &report))?;
    if report.is_clean() {
        return Ok(());
    }
    let (lost, problems) = (report.lost.len(), report.problems.len());
    Err(CommandError::Damaged { workspace: workspace.root().to_owned(), lost, problems })
}

fn form_of(report: &FsckReport) -> FsckForm {
    FsckForm {
        checked: TallyForm::of(report.checked),
        unreferenced: TallyForm::of(report.unreferenced),
        healed: report.healed.iter().map(ToString::to_string).collect(),
        lost: report.lost.iter().map(lost_form).collect(),
        problems: report.problems.clone(),
    }
}

fn lost_form(lost: &Lost) -> LostForm {
    let users = lost.users.iter().map(|user| match user {
        LostUse::Version { path, version } => {
            UseForm::Version { path: PathForm::of(path), version: version.0 }
        }
        LostUse::Draft { path, holder } => {
            UseForm::Draft { path: PathForm::of(path), holder: holder.to_string() }
        }
        LostUse::Manifest => UseForm::Manifest,
    });
    LostForm { digest: lost.digest.to_hex(), reason: lost.reason.clone(), users: users.collect() }
}

fn human(out: &mut dyn Write, report: &FsckReport) -> io::Result<()> {
    let FsckReport { checked, unreferenced, healed, lost, problems } = report;
    writeln!(out, "{} blobs are whole, {}", checked.blobs, human_size(checked.bytes))?;
    if unreferenced.blobs > 0 {
        let size = human_size(unreferenced.bytes);
        writeln!(out, "nothing refers to {} of them, {size} (`leasehold gc`)", unreferenced.blobs)?;
    }
    let healed: Vec<_> = healed.iter().map(|digest| vec![digest.to_string()]).collect();
    section(out, "healed", &healed)?;
    section(out, "lost", &lost.iter().flat_map(lost_rows).collect::<Vec<_>>())?;
    let problems: Vec<_> = problems.iter().map(|problem| vec![problem.clone()]).collect();
    section(out, "problems", &problems)
}

/// A row for each that has lost its bytes.
fn lost_rows(lost: &Lost) -> Vec<Vec<String>> {
    let row = |user: String| vec![user, format!("blob {} is {}", lost.digest, lost.reason)];
    if lost.users.is_empty() {
        return vec![row("(nothing refers to it)".into())];
    }
    let user = |user: &LostUse| match user {
        LostUse::Version { path, version } => format!("{path}@@{version}"),
        LostUse::Draft { path, holder } => format!("{path} (draft of {holder})"),
        LostUse::Manifest => "(a manifest, made again by `leasehold fsck --repair`)".into(),
    };
    lost.users.iter().map(|lost| row(user(lost))).collect()
}
