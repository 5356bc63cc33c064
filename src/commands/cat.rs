use std::io::{self, Read, Write};

use super::error::{CommandError, Result};
use super::place::{Context, VersionSpec, versioned_site};
use crate::cli::CatArgs;

/// Holds the bytes between store and standard output.
const BUFFER_BYTES: usize = 128 * 1024;

/// Writes a version's bytes.
pub(super) fn run(args: &CatArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let (site, path, spec) = versioned_site(context, &args.workspace, &args.checkout_of, &args.path)?;
    let version = match spec {
        Some(VersionSpec::Number(number)) => Some(number),
        Some(VersionSpec::Head) | None => None,
    };
    let mut reader = site.workspace.read_version(&path, version)?;
    let failed = |source| CommandError::File { doing: "read", path: path.to_path_buf(), source };
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => out.write_all(&buffer[..length])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(out.flush()?)
}
