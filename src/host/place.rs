use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::{HostError, Result};
use crate::clock::Clock;
use crate::ids::Ids;
use crate::sys;

/// How often a gate that is locked is looked at: at first, and at last.
const POLL_MS: (u64, u64) = (1, 4);

/// Where the leases of a machine are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    /// The directory that all users share.
    pub shared: PathBuf,
    /// The user who owns it: whoever else did could take away what is another's.
    pub owner: u32,
    /// The user's own directory, for a machine without a shared one.
    pub private: Option<PathBuf>,
}

impl Places {
    /// The places of this machine; `runtime_dir` is `XDG_RUNTIME_DIR`, which counts if it is absolute (XDG Base Directory
    /// Specification).
    pub fn of_machine(runtime_dir: Option<&Path>) -> Self {
        let private = runtime_dir.filter(|dir| dir.is_absolute()).map(|dir| dir.join("leasehold"));
        Self { shared: "/run/leasehold".into(), owner: 0, private }
    }
}

/// What a process has open and locked while it works on the leases.
pub(super) struct Ground {
    /// The shared directory or the private one, where changes are written; then the private one, if both are there.
    pub(super) dirs: Vec<Dir>,
}

impl Ground {
    /// The directory where changes are written.
    pub(super) fn writable(&self) -> &Dir {
        self.dirs.first().expect("BUG: who writes has a directory")
    }
}

/// A directory of leases.
pub(super) struct Dir {
    pub(super) file: File,
    pub(super) path: PathBuf,
}

impl Dir {
    pub(super) fn path_of(&self, name: &OsStr) -> PathBuf {
        self.path.join(name)
    }
}

/// What is about to be done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Others may read at the same time, and no directory is made.
    Read,
    /// Nobody else reads or writes.
    Write,
}

/// Who opens the places, and how.
pub(super) struct Opener<'a> {
    pub(super) places: &'a Places,
    pub(super) clock: &'a dyn Clock,
    pub(super) ids: &'a dyn Ids,
    /// How long the gates are waited for, together.
    pub(super) wait_ms: i64,
}

impl Opener<'_> {
    /// Opens and locks what is there. Only a reader can find no directory at all.
    pub(super) fn open(&self, purpose: Purpose) -> Result<Ground> {
        let me = sys::effective_ids().0;
        let makes = purpose == Purpose::Write;
        let shared = match open_shared(self.places)? {
            None if makes && me == self.places.owner => Some(self.make_shared()?),
            other => other,
        };
        let private = self.places.private.as_deref().filter(|_| me != self.places.owner);
        let private = match private {
            Some(path) => open_private(path, me, makes && shared.is_none())?,
            None => None,
        };
        let dirs: Vec<Dir> = shared.into_iter().chain(private).collect();
        if makes && dirs.is_empty() {
            return Err(HostError::NoPlace(self.places.shared.clone()));
        }
        self.lock(&dirs, purpose)?;
        Ok(Ground { dirs })
    }

    /// Makes the shared directory under another name first, so that nobody ever finds it with another mode.
    fn make_shared(&self) -> Result<Dir> {
        let path = &self.places.shared;
        let failed = |source| HostError::File { doing: "make", path: path.clone(), source };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(failed(ErrorKind::InvalidInput.into()));
        };
        let parent = sys::open_dir(parent).map_err(failed)?;
        let temporary = format!(".{}.{}", name.display(), self.ids.token());
        let temporary = OsStr::new(&temporary);
        sys::make_dir_at(&parent, temporary, 0o700).map_err(failed)?;
        let made = sys::open_dir_at(&parent, temporary)
            .and_then(|dir| dir.set_permissions(Permissions::from_mode(0o1777)))
            .and_then(|()| sys::rename_new_at(&parent, temporary, name));
        if let Err(error) = made {
            // Of several processes of root's one makes it.
            let _ = std::fs::remove_dir(path.with_file_name(temporary));
            if error.kind() != ErrorKind::AlreadyExists {
                return Err(failed(error));
            }
        }
        open_shared(self.places)?.ok_or_else(|| failed(ErrorKind::NotFound.into()))
    }

    /// Locks the directories themselves (flock(2)): the shared one can't be taken away by those who lock it, as a file in
    /// it could be that one of them made.
    fn lock(&self, dirs: &[Dir], purpose: Purpose) -> Result<()> {
        let began_ms = self.clock.now().boot_ms;
        for dir in dirs {
            let mut pause_ms = POLL_MS.0;
            while !try_lock(dir, purpose)? {
                let waited_ms = self.clock.now().boot_ms.saturating_sub(began_ms);
                if waited_ms >= self.wait_ms {
                    let pid = sys::flock_holder(&dir.file);
                    return Err(HostError::Locked { path: dir.path.clone(), waited_ms, pid });
                }
                self.clock.sleep(Duration::from_millis(pause_ms));
                pause_ms = (pause_ms * 2).min(POLL_MS.1);
            }
        }
        Ok(())
    }
}

fn try_lock(dir: &Dir, purpose: Purpose) -> Result<bool> {
    let locked = match purpose {
        Purpose::Read => dir.file.try_lock_shared(),
        Purpose::Write => dir.file.try_lock(),
    };
    match locked {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Interrupted => Ok(false),
        Err(TryLockError::Error(source)) => {
            Err(HostError::File { doing: "lock", path: dir.path.clone(), source })
        }
    }
}

fn open_shared(places: &Places) -> Result<Option<Dir>> {
    let Some((dir, metadata)) = open(&places.shared)? else { return Ok(None) };
    let fault = if metadata.uid() != places.owner {
        Some(("belongs to an ordinary user", "root removes it, and the next use by root makes it"))
    } else if metadata.mode() & 0o1000 == 0 {
        Some(("has no sticky bit", "its owner gives it mode 1777"))
    } else {
        None
    };
    safe(dir, fault).map(Some)
}

fn open_private(path: &Path, me: u32, makes: bool) -> Result<Option<Dir>> {
    if makes {
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if !matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotFound) => {
                return Err(HostError::File { doing: "make", path: path.to_owned(), source: error });
            }
            _ => {}
        }
    }
    let Some((dir, metadata)) = open(path)? else { return Ok(None) };
    let fault = if metadata.uid() != me {
        Some(("belongs to another user", "set XDG_RUNTIME_DIR to your own"))
    } else if metadata.mode() & 0o077 != 0 {
        Some(("lets others in", "give it mode 700"))
    } else {
        None
    };
    safe(dir, fault).map(Some)
}

/// Opens a directory, if there is one; a symlink is none.
fn open(path: &Path) -> Result<Option<(Dir, std::fs::Metadata)>> {
    let failed = |source: io::Error| match source.kind() {
        ErrorKind::NotADirectory => HostError::UnsafePlace {
            path: path.to_owned(),
            fault: "is a file or a symlink",
            remedy: "remove it",
        },
        _ => HostError::File { doing: "open", path: path.to_owned(), source },
    };
    match sys::open_dir(path) {
        Ok(file) => {
            let metadata = file.metadata().map_err(failed)?;
            Ok(Some((Dir { file, path: path.to_owned() }, metadata)))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}

fn safe(dir: Dir, fault: Option<(&'static str, &'static str)>) -> Result<Dir> {
    match fault {
        None => Ok(dir),
        Some((fault, remedy)) => Err(HostError::UnsafePlace { path: dir.path, fault, remedy }),
    }
}
