use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::super::error::{CommandError, Result};
use super::{Mount, MountTable};
use crate::engine::{inner_path, real_prefix};
use crate::model::{ArtifactPath, Name};
use crate::sys;

/// Finds what an argument names, without symlinks before its last component.
///
/// The last component is kept, since it may be a symlink that is an artifact itself, unless only its target is in a
/// mount of ours.
pub fn locate(mounts: &MountTable, cwd: &Path, argument: &Path) -> Result<PathBuf> {
    let absolute = cwd.join(argument);
    let kept = keep_last(&absolute).map_err(|source| unreadable(argument, source))?;
    if mounts.leasehold_at(&kept).is_some() {
        return Ok(kept);
    }
    match std::fs::canonicalize(&kept) {
        Ok(target) if mounts.leasehold_at(&target).is_some() => Ok(target),
        _ => Ok(kept),
    }
}

/// Finds the mountpoint that an argument names; a slash at its end asks for nothing more, as a dead mount can't answer.
pub fn locate_mountpoint(mounts: &MountTable, cwd: &Path, argument: &Path) -> Result<PathBuf> {
    locate(mounts, cwd, &argument.components().collect::<PathBuf>())
}

/// Why a path can't be resolved; a dead mount is named as such.
pub(super) fn unreadable(path: &Path, source: io::Error) -> CommandError {
    if sys::is_dead_mount(&source) {
        return CommandError::DeadMount(path.to_owned());
    }
    CommandError::File { doing: "resolve", path: path.to_owned(), source }
}

fn keep_last(absolute: &Path) -> io::Result<PathBuf> {
    let bytes = absolute.as_os_str().as_bytes();
    let follows = bytes.ends_with(b"/") || bytes.ends_with(b"/.");
    match (absolute.file_name(), absolute.parent()) {
        (Some(name), Some(parent)) if !follows => Ok(real_prefix(parent)?.path().join(name)),
        _ => Ok(real_prefix(absolute)?.path()),
    }
}

/// The artifact that a located path names in a mount.
pub(super) fn in_mount(mount: &Mount, located: &Path) -> Result<ArtifactPath> {
    parse(&inner_path(mount, located), located)
}

/// The artifact that an argument names outside a mount: relative to the workspace's root.
///
/// There is nothing on disk to resolve `..` by, so that it takes the name before it away.
pub(super) fn in_workspace(root: &Path, argument: &Path) -> Result<ArtifactPath> {
    let outside = || CommandError::Outside { path: argument.to_owned(), workspace: root.to_owned() };
    let relative = if argument.is_absolute() {
        let located = keep_last(argument).map_err(|source| unreadable(argument, source))?;
        located.strip_prefix(root).map_err(|_| outside())?.to_owned()
    } else {
        argument.to_owned()
    };
    let mut names = Vec::new();
    for component in relative.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => names.pop().map(drop).ok_or_else(outside)?,
            Component::Normal(name) => names.push(parse_name(name, argument)?),
            Component::RootDir | Component::Prefix(_) => return Err(outside()),
        }
    }
    Ok(ArtifactPath::from_names(names))
}

fn parse(relative: &Path, argument: &Path) -> Result<ArtifactPath> {
    ArtifactPath::parse(relative)
        .map_err(|source| CommandError::BadPath { path: argument.to_owned(), source })
}

fn parse_name(name: &OsStr, argument: &Path) -> Result<Name> {
    Name::new(name.as_bytes()).map_err(|source| CommandError::BadPath { path: argument.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(mountpoint: &Path) -> MountTable {
        let line = format!("9 1 0:50 / {} rw - fuse.leasehold /ws rw\n", mountpoint.display());
        MountTable::parse(line.as_bytes())
    }

    /// Every spelling of one file must come to one artifact.
    #[test]
    fn spellings_of_one_file_are_one_artifact() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let root = base.join("mnt");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/b/x"), "").unwrap();
        std::os::unix::fs::symlink("a", root.join("link")).unwrap();
        std::os::unix::fs::symlink(&root, base.join("outside")).unwrap();
        std::os::unix::fs::symlink(root.join("a/b/x"), base.join("shortcut")).unwrap();
        let mounts = table(&root);
        let expected = ArtifactPath::parse("a/b/x").unwrap();
        for (cwd, argument) in [
            ("mnt", "a/b/x"),
            ("mnt", "./a//b/./x"),
            ("mnt/a", "../a/b/x"),
            ("mnt", "link/b/x"),
            ("mnt/a/b", "x"),
            ("", "outside/a/b/x"),
            ("", "outside/link/../a/b/x"),
            ("", "shortcut"),
        ] {
            let located = locate(&mounts, &base.join(cwd), Path::new(argument)).unwrap();
            let mount = mounts.leasehold_at(&located).expect(argument);
            assert_eq!(in_mount(mount, &located).unwrap(), expected, "{cwd} {argument}");
        }
    }

    #[test]
    fn a_symlink_is_an_artifact_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("a")).unwrap();
        std::os::unix::fs::symlink("a", root.join("link")).unwrap();
        let mounts = table(&root);
        let name = |argument: &str| {
            let located = locate(&mounts, &root, Path::new(argument)).unwrap();
            in_mount(mounts.leasehold_at(&located).unwrap(), &located).unwrap().to_string()
        };
        assert_eq!(name("link"), "link");
        assert_eq!(name("link/"), "a", "a slash asks for the target, as everywhere");
        assert_eq!(name("gone/dir/x"), "gone/dir/x", "what was deleted keeps its name");
        assert_eq!(name("."), ".");
    }

    #[test]
    fn outside_a_mount_paths_start_at_the_workspace() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let path = |argument: &Path| in_workspace(&root, argument).map(|p| p.to_string());
        assert_eq!(path(Path::new("a/./b/../x")).unwrap(), "a/x");
        assert_eq!(path(&root.join("a/x")).unwrap(), "a/x");
        assert_eq!(path(&root).unwrap(), ".");
        assert!(path(Path::new("../x")).is_err());
        assert!(path(Path::new("/elsewhere/x")).is_err());
    }
}
