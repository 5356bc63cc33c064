use std::io::Write;

use super::error::{CommandError, Result};
use super::output::copy_out;
use super::place::{Context, VersionSpec, versioned_site};
use crate::cli::CatArgs;

/// Writes a version's bytes.
pub(super) fn run(args: &CatArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let (site, path, spec) = versioned_site(context, &args.workspace, &args.checkout_of, &args.path)?;
    let version = match spec {
        Some(VersionSpec::Number(number)) => Some(number),
        Some(VersionSpec::Head) | None => None,
    };
    let mut reader = site.workspace.read_version(&path, version)?;
    let unreadable = |source| CommandError::File { doing: "read", path: path.to_path_buf(), source };
    copy_out(&mut *reader, out, unreadable)
}
