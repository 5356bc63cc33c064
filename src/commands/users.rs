//! Who uses a mount: processes with files of it open, mapped or run, or that work in it.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    /// Its number.
    pub(super) pid: u32,
    /// Its command's short name (proc(5), `comm`).
    pub(super) command: String,
}

/// What tells that a process uses a mount.
pub(super) struct Target<'a> {
    /// Where the mount shows, bind mounts included.
    pub(super) mountpoints: &'a [&'a Path],
    /// The device, as `MAJOR:MINOR` in decimal.
    pub(super) device: &'a str,
}

/// Finds the processes that use a mount, but for those in `except`; those of other users only if one may look at them.
pub(super) fn users_of(target: &Target<'_>, except: &[u32]) -> Vec<User> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut pids: Vec<u32> = pids.filter(|pid| !except.contains(pid)).collect();
    pids.sort_unstable();
    pids.into_iter().filter(|pid| uses(target, *pid)).map(user).collect()
}

fn user(pid: u32) -> User {
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    User { pid, command: command.trim_end().to_owned() }
}

fn uses(target: &Target<'_>, pid: u32) -> bool {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let links = ["cwd", "root", "exe"].map(|name| proc.join(name));
    links.iter().any(|link| points_into(target, link)) || has_open(target, &proc) || has_mapped(target, &proc)
}

/// Reads the link's text only: to follow it would ask the mount.
fn points_into(target: &Target<'_>, link: &Path) -> bool {
    fs::read_link(link).is_ok_and(|path| target.mountpoints.iter().any(|root| path.starts_with(root)))
}

fn has_open(target: &Target<'_>, proc: &Path) -> bool {
    let Ok(descriptors) = fs::read_dir(proc.join("fd")) else { return false };
    descriptors.flatten().any(|entry| points_into(target, &entry.path()))
}

/// `7f00-7f01 rw-s 00000000 00:3f 12 /mnt/file` (proc(5), `maps`; the device is in hexadecimal).
fn has_mapped(target: &Target<'_>, proc: &Path) -> bool {
    let Some(device) = hex_device(target.device) else { return false };
    let maps = fs::read(proc.join("maps")).unwrap_or_default();
    let mut devices = maps.split(|b| *b == b'\n').filter_map(|line| line.split(|b| *b == b' ').nth(3));
    devices.any(|found| found == std::ffi::OsStr::new(&device).as_bytes())
}

fn hex_device(device: &str) -> Option<String> {
    let (major, minor) = device.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    Some(format!("{major:02x}:{minor:02x}"))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn devices_are_written_as_maps_does() {
        assert_eq!(hex_device("0:63").as_deref(), Some("00:3f"));
        assert_eq!(hex_device("259:300").as_deref(), Some("103:12c"));
        assert_eq!(hex_device("odd"), None);
    }

    #[test]
    fn an_open_file_and_a_working_directory_are_uses() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let target = Target { mountpoints: &[&root], device: "0:999999" };
        let me = std::process::id();
        let found =
            |except: &[u32]| users_of(&target, except).iter().map(|user| user.pid).collect::<Vec<_>>();
        assert!(found(&[]).is_empty());
        let file = fs::File::create(root.join("x")).unwrap();
        assert_eq!(found(&[]), [me]);
        assert!(found(&[me]).is_empty());
        drop(file);
        let mut child = Command::new("cat").stdin(Stdio::piped()).current_dir(&root).spawn().unwrap();
        assert_eq!(found(&[]), [child.id()]);
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
