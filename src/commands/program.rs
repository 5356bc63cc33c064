//! Programs that a command runs.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use super::error::CommandError;

/// The exit status, or 128 and the signal.
pub(super) fn as_shells_tell(status: ExitStatus) -> u8 {
    let number = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(number).unwrap_or(1)
}

/// A program that can't be run.
pub(super) fn failed(program: &OsStr, source: std::io::Error) -> CommandError {
    CommandError::File { doing: "run", path: program.into(), source }
}
