use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::{CommandError, Result, one_line};
use super::forms::HostPathForm;
use super::import::{ImportForm, print_report};
use super::output::Printer;
use super::place::Context;
use super::progress::Bar;
use crate::cli::InitArgs;
use crate::engine::{ImportReport, ImportRequest, Layout, Workspace};
use crate::model::{ArtifactPath, Holder};

#[derive(Serialize)]
struct InitForm {
    workspace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    workspace_hex: Option<String>,
    import: Option<ImportForm>,
    /// How many names in the directory are no part of the workspace.
    not_imported: usize,
}

/// Makes a workspace, and imports what lies in a directory.
pub(super) fn run(args: &InitArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let root = context.cwd.join(&args.workspace);
    let from = args.from.as_ref().map(|dir| context.cwd.join(dir));
    // What can't be done is found out before anything is made.
    from.as_deref().map(check_readable).transpose()?;
    let source = from.map(|dir| context.holder(None, None).map(|author| (dir, author))).transpose()?;
    let workspace = match &args.shared {
        Some(group) => Workspace::init_shared(&root, group, &context.environment)?,
        None => Workspace::init(&root, &context.environment)?,
    };
    let report = source.map(|(dir, author)| import(&workspace, dir, author)).transpose()?;
    let HostPathForm { path: workspace, path_hex: workspace_hex } = HostPathForm::of(workspace.root());
    let not_imported = count_others(&root, args.from.as_ref().map(|dir| context.cwd.join(dir)).as_deref());
    let import = report.as_ref().map(ImportForm::of);
    let form = InitForm { workspace, workspace_hex, import, not_imported };
    Printer::new(out, args.format.json).print(&form, |out| {
        report.as_ref().map_or(Ok(()), |report| print_report(out, report))?;
        tell_others(out, &args.workspace, not_imported)
    })?;
    Ok(())
}

/// Counts what lies in the new workspace's directory, unless it was imported from there.
fn count_others(root: &Path, from: Option<&Path>) -> usize {
    let imported = from.is_some_and(|from| from.canonicalize().ok() == root.canonicalize().ok());
    let names = std::fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.file_name());
    if imported { 0 } else { names.filter(|name| name != Layout::DOT).count() }
}

fn tell_others(out: &mut dyn Write, workspace: &Path, count: usize) -> io::Result<()> {
    let shown = one_line(&workspace.display().to_string());
    match count {
        0 => Ok(()),
        _ => writeln!(
            out,
            "{shown}: holds {count} files or directories that were not imported; check them in with \
             `leasehold import -w {shown} -m MSG FILE...` (`leasehold init --from DIR` does it at once)"
        ),
    }
}

fn check_readable(dir: &Path) -> Result<()> {
    let read = std::fs::read_dir(dir).map(drop);
    read.map_err(|source| CommandError::File { doing: "import", path: dir.to_owned(), source })
}

fn import(workspace: &Workspace, dir: PathBuf, author: Holder) -> Result<ImportReport> {
    let bar = Bar::new("files");
    let request = ImportRequest {
        message: format!("Import of {}", dir.display()),
        sources: vec![dir],
        into: ArtifactPath::root(),
        author,
        contents_only: true,
    };
    Ok(workspace.import(&request, &|progress| {
        bar.update(progress.files, progress.total_files, Some(progress.bytes))
    })?)
}
