use std::io::Write;

use serde::Serialize;

use super::error::{CommandError, Result};
use super::forms::{Form, PathForm};
use super::output::Printer;
use super::place::{Context, Site, VersionSpec, versioned_site};
use crate::cli::RestoreArgs;
use crate::engine::EngineError;
use crate::model::{ArtifactPath, VersionNumber};

#[derive(Serialize)]
struct RestoreForm {
    #[serde(flatten)]
    path: PathForm,
    version: i64,
}

/// Makes an old version the draft of its path.
pub(super) fn run(args: &RestoreArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let common = &args.common;
    let (site, path, spec) = versioned_site(context, &common.workspace, &common.checkout_of, &args.path)?;
    let version = match spec {
        Some(VersionSpec::Number(number)) => number,
        Some(VersionSpec::Head) => newest(&site, &path)?,
        None => return Err(CommandError::NoVersion(args.path.clone())),
    };
    site.ops()?.restore(&path, version)?;
    let form = RestoreForm { path: PathForm::of(&path), version: version.0 };
    Printer::new(out, common.format.json).print(&form, |_| Ok(()))?;
    Ok(())
}

fn newest(site: &Site, path: &ArtifactPath) -> Result<VersionNumber> {
    let entries = site.workspace.log(Some(path), None)?;
    let items = entries.iter().flat_map(|entry| &entry.items).map(|logged| &logged.item);
    let versions = items.filter(|item| item.path == *path).filter_map(|item| item.version);
    versions.max().ok_or_else(|| EngineError::NotFound(path.clone()).into())
}
