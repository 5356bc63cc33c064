//! Every change that the store makes to the disk, one function each, so that tests can fail each.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use crate::blobs::faults::{Faults, Step, run_step};
use crate::sys;

/// The mode of blobs; a peer of another kind opens them for reading and writing to sync them, so not 0400.
pub(super) const BLOB_MODE: u32 = 0o600;
/// The mode of the store's directories.
pub(super) const DIR_MODE: u32 = 0o700;

/// Makes the changes.
#[derive(Default)]
pub(super) struct Steps {
    pub(super) faults: Option<Arc<dyn Faults>>,
}

impl Steps {
    fn run<T>(&self, step: Step, action: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        run_step(self.faults.as_ref(), step, action)
    }

    pub(super) fn create(&self, dir: &File, name: &OsStr) -> io::Result<File> {
        self.run(Step::Create, || sys::create_file_at(dir, name, BLOB_MODE))
    }

    pub(super) fn write(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        self.run(Step::Write, || file.write_all(bytes))
    }

    pub(super) fn set_mode(&self, file: &File) -> io::Result<()> {
        self.run(Step::SetMode, || file.set_permissions(Permissions::from_mode(BLOB_MODE)))
    }

    pub(super) fn sync_file(&self, file: &File) -> io::Result<()> {
        self.run(Step::SyncFile, || file.sync_all())
    }

    pub(super) fn sync_filesystem(&self, dir: &File) -> io::Result<()> {
        self.run(Step::SyncFilesystem, || sys::syncfs(dir))
    }

    pub(super) fn make_dir(&self, dir: &File, name: &OsStr) -> io::Result<()> {
        self.run(Step::MakeDir, || sys::make_dir_at(dir, name, DIR_MODE))
    }

    pub(super) fn touch(&self, file: &File) -> io::Result<()> {
        self.run(Step::Touch, || sys::touch(file))
    }

    pub(super) fn rename(&self, from: &File, old: &OsStr, to: &File, new: &OsStr) -> io::Result<()> {
        self.run(Step::Rename, || sys::rename_at(from, old, to, new))
    }

    pub(super) fn sync_dir(&self, dir: &File) -> io::Result<()> {
        self.run(Step::SyncDir, || dir.sync_all())
    }

    pub(super) fn link(&self, from: &File, old: &OsStr, to: &File, new: &OsStr) -> io::Result<()> {
        self.run(Step::Link, || sys::link_at(from, old, to, new))
    }

    pub(super) fn remove(&self, dir: &File, name: &OsStr) -> io::Result<()> {
        self.run(Step::Remove, || sys::unlink_at(dir, name))
    }

    pub(super) fn sweep(&self, dir: &File, name: &OsStr) -> io::Result<()> {
        self.run(Step::Sweep, || sys::unlink_at(dir, name))
    }
}
