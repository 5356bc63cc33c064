//! Every call of the store that can be refused, one function each, so that tests can fail each.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use super::Durability;
use crate::blobs::faults::{Faults, Step, run_step};
use crate::blobs::hashing::{CopyError, copy_hashed, hash_file};
use crate::model::Digest;
use crate::sys::{self, Facts};

/// Makes the calls.
#[derive(Default)]
pub(super) struct Steps {
    pub(super) faults: Option<Arc<dyn Faults>>,
    pub(super) durability: Durability,
}

impl Steps {
    fn run<T>(&self, step: Step, action: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        run_step(self.faults.as_ref(), step, action)
    }

    /// What a sync comes to for its caller: with best effort a refused one is as good as another.
    pub(super) fn tolerate(&self, synced: io::Result<()>) -> io::Result<()> {
        match self.durability {
            Durability::Required => synced,
            Durability::BestEffort => Ok(()),
        }
    }

    pub(super) fn open_blob(&self, dir: &File, name: &OsStr) -> io::Result<File> {
        self.run(Step::Open, || sys::open_file_at(dir, name))
    }

    pub(super) fn probe(&self, dir: &File, name: &OsStr) -> io::Result<Facts> {
        self.run(Step::Probe, || sys::facts_at(dir, name))
    }

    pub(super) fn hash(&self, file: &File) -> io::Result<(Digest, u64)> {
        self.run(Step::Read, || hash_file(file))
    }

    /// Hashes a file, and hands its bytes on while they pass.
    pub(super) fn copy_hashed(
        &self,
        file: &File,
        sink: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<(Digest, u64), CopyError> {
        self.run(Step::Read, || Ok(())).map_err(CopyError::Read)?;
        copy_hashed(file, sink)
    }

    pub(super) fn create(&self, dir: &File, name: &OsStr, mode: u32) -> io::Result<File> {
        self.run(Step::Create, || sys::create_file_at(dir, name, mode))
    }

    pub(super) fn write(&self, mut file: &File, bytes: &[u8]) -> io::Result<()> {
        self.run(Step::Write, || match self.faults.as_ref().and_then(|faults| faults.cut()) {
            Some(error) => {
                file.write_all(&bytes[..bytes.len() / 2])?;
                Err(error)
            }
            None => file.write_all(bytes),
        })
    }

    pub(super) fn set_mode(&self, file: &File, mode: u32) -> io::Result<()> {
        self.run(Step::SetMode, || file.set_permissions(Permissions::from_mode(mode)))
    }

    pub(super) fn sync_file(&self, file: &File) -> io::Result<()> {
        self.run(Step::SyncFile, || file.sync_all())
    }

    pub(super) fn sync_filesystem(&self, dir: &File) -> io::Result<()> {
        self.run(Step::SyncFilesystem, || sys::syncfs(dir))
    }

    pub(super) fn make_objects(&self, make: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.run(Step::MakeDir, make)
    }

    pub(super) fn make_dir(&self, dir: &File, name: &OsStr, mode: u32) -> io::Result<()> {
        self.run(Step::MakeDir, || sys::make_dir_at(dir, name, mode))
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
