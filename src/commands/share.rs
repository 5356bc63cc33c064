use std::io::Write;

use serde::Serialize;

use super::error::{CommandError, Result};
use super::output::Printer;
use super::place::Context;
use crate::cli::ShareArgs;
use crate::engine::ShareReport;

#[derive(Serialize)]
struct ShareForm {
    /// Changes that are shared by now.
    shared: u64,
    /// Blobs that were uploaded.
    uploaded: u64,
    /// Why not everything is shared; null if it is.
    failure: Option<String>,
}

/// Brings the shared store up to date; fails if something could not be uploaded, or if there is none.
pub(super) fn run(args: &ShareArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let workspace = context.workspace(&args.workspace)?;
    let root = workspace.root().to_owned();
    let Some(report) = workspace.share(&|| true)? else { return Err(CommandError::NoRemote(root)) };
    let ShareReport { shared, uploaded, failure } = report;
    let form = ShareForm { shared, uploaded, failure: failure.clone() };
    Printer::new(out, args.format.json)
        .print(&form, |out| writeln!(out, "shared {shared} changes, uploaded {uploaded} blobs"))?;
    match failure {
        Some(reason) => Err(CommandError::Unshared { workspace: root, reason }),
        None => Ok(()),
    }
}
