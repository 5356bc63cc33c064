use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::error::{CommandError, Result, one_line};
use super::forms::{HostPathForm, RecoveryForm, all};
use super::output::{Printer, table};
use super::place::Context;
use super::status::recovery_rows;
use crate::cli::{RecoveredAction, RecoveredArgs, RecoveredRestoreArgs};
use crate::engine::Workspace;

/// Lists recovery copies, or copies one to a new file.
pub(super) fn run(args: &RecoveredArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let workspace = context.workspace(&args.workspace)?;
    let mut printer = Printer::new(out, args.format.json);
    match &args.action {
        None | Some(RecoveredAction::List) => list(&workspace, &mut printer),
        Some(RecoveredAction::Restore(restored)) => restore(&workspace, context, restored, &mut printer),
    }
}

fn list(workspace: &Workspace, printer: &mut Printer<'_>) -> Result<()> {
    let copies = workspace.recovered()?;
    let form: Vec<RecoveryForm> = all(&copies);
    printer.print(&form, |out| table(out, "", &recovery_rows(&copies)))?;
    Ok(())
}

#[derive(Serialize)]
struct RestoredForm {
    id: String,
    #[serde(flatten)]
    path: HostPathForm,
}

fn restore(
    workspace: &Workspace,
    context: &Context,
    args: &RecoveredRestoreArgs,
    printer: &mut Printer<'_>,
) -> Result<()> {
    let source = workspace.recovered_file(&args.id)?;
    let dest = destination(workspace, &args.id, &context.cwd.join(&args.dest))?;
    copy(&source, &dest)?;
    let form = RestoredForm { id: args.id.clone(), path: HostPathForm::of(&dest) };
    let text = one_line(&dest.display().to_string());
    printer.print(&form, |out| writeln!(out, "{text}"))?;
    Ok(())
}

/// The new file; in a directory it gets the name that it had.
fn destination(workspace: &Workspace, id: &str, dest: &Path) -> Result<PathBuf> {
    if !dest.is_dir() {
        return Ok(dest.to_owned());
    }
    let copies = workspace.recovered()?;
    let name = copies.iter().find(|copy| copy.id == id).and_then(|copy| copy.path.file_name().cloned());
    Ok(name.map_or_else(|| dest.join(id), |name| dest.join(name.as_os_str())))
}

/// Copies to a new file, which must not exist, and makes it durable.
fn copy(source: &Path, dest: &Path) -> Result<()> {
    let read = |source_error| file_error("read", source, source_error);
    let write = |source_error| file_error("write", dest, source_error);
    let mut from = File::open(source).map_err(read)?;
    let mut to = OpenOptions::new().write(true).create_new(true).open(dest).map_err(write)?;
    io::copy(&mut from, &mut to).and_then(|_| to.sync_all()).map_err(write)
}

fn file_error(doing: &'static str, path: &Path, source: io::Error) -> CommandError {
    CommandError::File { doing, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_never_overwrites() {
        let dir = tempfile::tempdir().unwrap();
        let (source, dest) = (dir.path().join("s"), dir.path().join("d"));
        std::fs::write(&source, "bytes").unwrap();
        copy(&source, &dest).unwrap();
        assert_eq!(std::fs::read(&dest).unwrap(), b"bytes");
        std::fs::write(&source, "other").unwrap();
        assert!(copy(&source, &dest).unwrap_err().line().contains("exists"));
        assert_eq!(std::fs::read(&dest).unwrap(), b"bytes");
    }
}
