//! Unmounting that is never lazy: a busy mount stays, so that no open writer and no mapped page is cut off.

use std::io;
use std::path::Path;
use std::process::{Command, Output};

use super::FuseError;
use crate::sys;

/// The helpers that unmount for ordinary users, by age: fuse3's, then fuse2's.
const HELPERS: [&str; 2] = ["fusermount3", "fusermount"];

/// Unmounts with umount2(2), or with fuse's set-uid helper where that is not permitted.
pub(super) fn unmount(mountpoint: &Path) -> Result<(), FuseError> {
    match sys::unmount(mountpoint) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => unmount_with_helper(mountpoint),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Err(busy(mountpoint)),
        Err(source) => Err(FuseError::Unmount { mountpoint: mountpoint.into(), source }),
    }
}

fn unmount_with_helper(mountpoint: &Path) -> Result<(), FuseError> {
    let output = run_helper(mountpoint)
        .map_err(|source| FuseError::Unmount { mountpoint: mountpoint.into(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let message = said(&String::from_utf8_lossy(&output.stderr));
    // The helper's only status is 1; its locale is set so that the text is known.
    if message.ends_with("Device or resource busy") {
        return Err(busy(mountpoint));
    }
    Err(FuseError::UnmountHelper { mountpoint: mountpoint.into(), message })
}

/// Runs the first helper that is installed; without any, NotFound.
fn run_helper(mountpoint: &Path) -> io::Result<Output> {
    let mut outcome = Err(io::ErrorKind::NotFound.into());
    for helper in HELPERS {
        outcome = Command::new(helper).env("LC_ALL", "C").args(["-u", "--"]).arg(mountpoint).output();
        if !matches!(&outcome, Err(error) if error.kind() == io::ErrorKind::NotFound) {
            break;
        }
    }
    outcome
}

/// What a helper wrote, without its name, as one line.
pub(super) fn said(text: &str) -> String {
    let nameless = |line: &str| {
        let line = line.trim();
        let named = HELPERS.iter().find_map(|helper| line.strip_prefix(helper)?.strip_prefix(": "));
        named.unwrap_or(line).to_owned()
    };
    let lines: Vec<String> = text.lines().map(nameless).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() { "no reason was given".to_owned() } else { lines.join("; ") }
}

fn busy(mountpoint: &Path) -> FuseError {
    FuseError::Busy { mountpoint: mountpoint.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_helper_says_is_one_line_without_its_name() {
        let denied = "fusermount3: user has no write access to mountpoint /usr\n";
        assert_eq!(said(denied), "user has no write access to mountpoint /usr");
        assert_eq!(said("fusermount: one\n\n fusermount: two\r\n"), "one; two");
        assert_eq!(said("odd text"), "odd text");
        assert_eq!(said("\n"), "no reason was given");
    }
}
