use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use super::error::{CommandError, Result};
use super::forms::HostPathForm;
use super::import::{ImportForm, print_report};
use super::output::Printer;
use super::place::Context;
use super::progress::Bar;
use crate::cli::InitArgs;
use crate::engine::{ImportReport, ImportRequest, Workspace};
use crate::model::ArtifactPath;

#[derive(Serialize)]
struct InitForm {
    workspace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace_hex: Option<String>,
    import: Option<ImportForm>,
}

/// Makes a workspace, and imports what lies in a directory.
pub(super) fn run(args: &InitArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let root = context.cwd.join(&args.workspace);
    let from = args.from.as_ref().map(|dir| context.cwd.join(dir));
    // What can't be read is found out before anything is made.
    from.as_deref().map(check_readable).transpose()?;
    let workspace = Workspace::init(&root, &context.environment)?;
    let report = from.as_deref().map(|dir| import(&workspace, dir, context)).transpose()?;
    let HostPathForm { path: workspace, path_hex: workspace_hex } = HostPathForm::of(workspace.root());
    let form = InitForm { workspace, workspace_hex, import: report.as_ref().map(ImportForm::of) };
    Printer::new(out, args.format.json).print(&form, |out| human(out, report.as_ref()))?;
    Ok(())
}

fn check_readable(dir: &Path) -> Result<()> {
    let read = std::fs::read_dir(dir).map(drop);
    read.map_err(|source| CommandError::File { doing: "import", path: dir.to_owned(), source })
}

fn import(workspace: &Workspace, dir: &Path, context: &Context) -> Result<ImportReport> {
    let bar = Bar::new("files");
    let request = ImportRequest {
        sources: vec![dir.to_owned()],
        into: ArtifactPath::root(),
        message: format!("Import of {}", dir.display()),
        author: context.holder(None, None)?,
        contents_only: true,
    };
    Ok(workspace.import(&request, &|progress| {
        bar.update(progress.files, progress.total_files, Some(progress.bytes))
    })?)
}

fn human(out: &mut dyn Write, report: Option<&ImportReport>) -> io::Result<()> {
    report.map_or(Ok(()), |report| print_report(out, report))
}
