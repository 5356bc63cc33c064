use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::error::PathError;
use super::table::{Mount, MountTable, inner_path};
use super::{RealPrefix, real_prefix};
use crate::model::{ArtifactPath, IntentPattern, Name, NameError};
use crate::sys::{self, PathFacts};

/// The longest path that the kernel takes, without its NUL (`PATH_MAX` in linux/limits.h).
const MAX_BYTES: usize = 4095;

/// How much of a path that is too long is told.
const SHOWN_BYTES: usize = 60;

/// What admission asks the disk, besides realpath(3).
pub trait Disk {
    /// Looks at a path, without following its last symlink.
    fn look(&self, path: &Path) -> io::Result<PathFacts>;

    /// Whether names in a directory are positively known to be compared without their case.
    fn folds_case(&self, dir: &Path) -> io::Result<bool>;
}

/// The kernel's answers.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn look(&self, path: &Path) -> io::Result<PathFacts> {
        sys::path_facts(path)
    }

    fn folds_case(&self, dir: &Path) -> io::Result<bool> {
        sys::folds_case(&sys::open_dir(dir)?)
    }
}

/// Turns paths as somebody wrote them into what leases are on: paths in one checkout, one for each resource.
///
/// All ways to a file come to one path: symlinked directories, symlinks to files, bind mounts, and other cases of the
/// letters where the filesystem says that it ignores them. What isn't there yet is named by what is above it. What can't
/// be told for sure is refused, since two holders of one file are worse than none.
///
/// It looks at the present: who exchanges a directory for a symlink afterwards has moved the file, not the lease.
pub struct AdmissionPaths<'a> {
    mounts: &'a MountTable,
    disk: &'a dyn Disk,
    ground: Ground,
}

/// Where the checkout's files are.
struct Ground {
    /// Where it shows.
    root: PathBuf,
    /// The filesystem's device.
    device: String,
    /// The checkout's root in that filesystem.
    inner: PathBuf,
    /// Whether it is a directory of the host's, with whatever its filesystem allows: a mount of ours has neither hard
    /// links nor names that ignore case.
    is_host: bool,
}

/// What exists of a path, and where.
struct Found {
    prefix: RealPrefix,
    facts: PathFacts,
}

impl<'a> AdmissionPaths<'a> {
    /// Paths of the checkout that a mount of ours shows, by whichever of its mountpoints.
    pub fn in_mount(mounts: &'a MountTable, disk: &'a dyn Disk, mount: &Mount) -> Self {
        let original = mounts.original(mount);
        let ground = Ground {
            root: original.mountpoint.clone(),
            device: original.device.clone(),
            inner: PathBuf::new(),
            is_host: false,
        };
        Self { mounts, disk, ground }
    }

    /// Paths of a directory that stands for a checkout: one that isn't mounted, whose files need not be there.
    pub fn in_directory(mounts: &'a MountTable, disk: &'a dyn Disk, root: &Path) -> Result<Self, PathError> {
        let real = std::fs::canonicalize(root).map_err(|source| unverified(root, source))?;
        let facts = disk.look(&real).map_err(|source| unverified(root, source))?;
        if !facts.is_dir() {
            return Err(PathError::BelowFile { path: root.to_owned(), file: real });
        }
        let mount = mount_of(mounts, facts, &real).ok_or_else(|| PathError::Changed(root.to_owned()))?;
        let (device, inner) = (mount.device.clone(), inner_path(mount, &real));
        Ok(Self { mounts, disk, ground: Ground { root: real, device, inner, is_host: true } })
    }

    /// Resolves a path, absolute or relative to `base`; `/**` at its end means all below, and no other star means anything.
    pub fn resolve(&self, base: &Path, text: &OsStr) -> Result<IntentPattern, PathError> {
        let written = Path::new(text);
        check_text(written)?;
        let (path, is_subtree) = split_subtree(written);
        // By components: a slash at the end asks for nothing more.
        let absolute: PathBuf = base.join(path).components().collect();
        let found = self.find(written, &absolute)?;
        let relative = self.place(written, &found)?;
        if self.ground.is_host {
            refuse_hard_links(written, &found)?;
        }
        let names = self.fold(written, &relative)?;
        if is_subtree {
            return Ok(IntentPattern::subtree(names));
        }
        IntentPattern::literal(names).map_err(|source| bad_name(written, source))
    }

    /// Finds what exists of an absolute path; symlinks that lead nowhere are refused.
    fn find(&self, written: &Path, absolute: &Path) -> Result<Found, PathError> {
        let failed = |source| unverified(written, source);
        let prefix = match real_prefix(absolute) {
            Err(error) if sys::is_symlink_loop(&error) => return Err(PathError::Looping(written.to_owned())),
            other => other.map_err(failed)?,
        };
        let facts = self.disk.look(&prefix.real).map_err(failed)?;
        let Some(next) = prefix.rest.components().next() else { return Ok(Found { prefix, facts }) };
        if !facts.is_dir() {
            return Err(PathError::BelowFile { path: written.to_owned(), file: prefix.real });
        }
        let next = prefix.real.join(next);
        match self.disk.look(&next) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found { prefix, facts }),
            Err(error) => Err(failed(error)),
            Ok(facts) if facts.is_symlink() => {
                Err(PathError::Dangling { path: written.to_owned(), link: next })
            }
            Ok(_) => Err(PathError::Changed(written.to_owned())),
        }
    }

    /// The path relative to the checkout's root, by the place in the filesystem: aliases by bind mounts come to one.
    fn place(&self, written: &Path, found: &Found) -> Result<PathBuf, PathError> {
        let real = found.prefix.path();
        let mount = mount_of(self.mounts, found.facts, &found.prefix.real)
            .ok_or_else(|| PathError::Changed(written.to_owned()))?;
        let inner = inner_path(mount, &real);
        match inner.strip_prefix(&self.ground.inner) {
            Ok(relative) if mount.device == self.ground.device => Ok(relative.to_owned()),
            _ => {
                Err(PathError::Outside { path: written.to_owned(), real, checkout: self.ground.root.clone() })
            }
        }
    }

    /// The names in the one spelling that stands for all: small letters below a directory that ignores case.
    ///
    /// What isn't there yet will be as the directory above it (chattr(1), `F`: the attribute is inherited).
    fn fold(&self, written: &Path, relative: &Path) -> Result<ArtifactPath, PathError> {
        let mut dir = self.ground.root.clone();
        let (mut names, mut folds) = (Vec::new(), false);
        for component in relative.components() {
            let name = component.as_os_str();
            if self.ground.is_host {
                folds = match self.disk.folds_case(&dir) {
                    Err(error) if is_absent(&error) => folds,
                    other => other.map_err(|source| unverified(written, source))?,
                };
            }
            let bytes = name.as_bytes();
            if folds && !bytes.is_ascii() {
                return Err(PathError::Unfoldable { path: written.to_owned(), dir });
            }
            let spelled = if folds { bytes.to_ascii_lowercase() } else { bytes.to_vec() };
            names.push(Name::new(spelled).map_err(|source| bad_name(written, source))?);
            dir.push(name);
        }
        Ok(ArtifactPath::from_names(names))
    }
}

/// Refuses what is wrong whatever the disk holds.
fn check_text(written: &Path) -> Result<(), PathError> {
    let bytes = written.as_os_str().as_bytes();
    if bytes.is_empty() {
        return Err(bad_name(written, NameError::Empty));
    }
    if bytes.len() > MAX_BYTES {
        let start = PathBuf::from(OsStr::from_bytes(&bytes[..SHOWN_BYTES]));
        return Err(PathError::TooLong { start, most: MAX_BYTES });
    }
    for component in written.components() {
        match component {
            Component::ParentDir => return Err(PathError::Dots(written.to_owned())),
            Component::Normal(name) => {
                Name::new(name.as_bytes()).map_err(|source| bad_name(written, source))?;
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(())
}

/// Takes `/**` from the end of a path.
fn split_subtree(path: &Path) -> (&Path, bool) {
    match path.file_name() {
        Some(name) if name == "**" => (path.parent().unwrap_or(Path::new("")), true),
        _ => (path, false),
    }
}

/// The mount that a path without symlinks was found on.
fn mount_of<'a>(mounts: &'a MountTable, facts: PathFacts, real: &Path) -> Option<&'a Mount> {
    mounts.with_id(facts.mount).filter(|mount| real.starts_with(&mount.mountpoint))
}

fn refuse_hard_links(written: &Path, found: &Found) -> Result<(), PathError> {
    let facts = found.facts;
    if found.prefix.rest.as_os_str().is_empty() && facts.is_file() && facts.links > 1 {
        return Err(PathError::HardLinked { path: written.to_owned(), links: facts.links });
    }
    Ok(())
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn bad_name(path: &Path, source: NameError) -> PathError {
    PathError::BadName { path: path.to_owned(), source }
}

fn unverified(path: &Path, source: io::Error) -> PathError {
    PathError::Unverified { path: path.to_owned(), source }
}
