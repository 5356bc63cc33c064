use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{file_error, remove_file};
use super::{Result, StagingName, StagingRole, Workspace};
use crate::blobs::BlobError;
use crate::model::{CheckoutId, Digest, Seq, VersionNumber};
use crate::sys;

/// A sealed save that a draft names by its file in `staging/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The checkout.
    pub checkout: CheckoutId,
    /// The artifact.
    pub artifact: Seq,
    /// The file of `staging/`.
    pub file: String,
}

impl Workspace {
    /// Brings sealed saves into the store, and says so in their drafts; returns a result for each, in order.
    ///
    /// A save that its draft no longer names is stored all the same. One that failed is still a file of `staging/`, and
    /// still its draft's content.
    ///
    /// # Errors
    /// Only where the catalog can't say so: what is stored by then is found again by its noted digest.
    pub fn publish(&self, saves: &[Sealed]) -> Result<Vec<std::result::Result<Digest, BlobError>>> {
        let paths: Vec<PathBuf> = saves.iter().map(|save| self.layout().staging().join(&save.file)).collect();
        let mut note = |digests: &[(PathBuf, Digest)]| {
            let noted: Vec<(String, Digest)> =
                digests.iter().filter_map(|(path, digest)| Some((file_name(path)?, *digest))).collect();
            self.catalog().note_digests(&noted).map_err(|e| Arc::new(e) as Arc<dyn Error + Send + Sync>)
        };
        let adopted = self.blobs().adopt_noting(&paths, &mut note);
        let done = saves.iter().zip(&adopted).filter(|(_, result)| result.is_ok());
        let done: Vec<String> = done.map(|(save, _)| save.file.clone()).collect();
        self.in_catalog(self.catalog().publish_noted(&done))?;
        Ok(adopted.into_iter().map(|result| result.map(|(digest, _)| digest)).collect())
    }

    /// Brings a snapshot of a draft's file in `scratch/` into the store, and makes the blob the draft's content.
    ///
    /// Nobody may be writing to the file meanwhile; if it is open in an application, it stays.
    pub(super) fn publish_direct(
        &self,
        checkout: CheckoutId,
        (artifact, base): (Seq, Option<VersionNumber>),
        file: &str,
        open: bool,
    ) -> Result<()> {
        let direct = self.layout().scratch().join(file);
        let name = self.copy_name(checkout, artifact, base);
        let copy = self.layout().staging().join(name.to_string());
        copy_file(&direct, &copy)?;
        let _work = self.begin_work()?;
        let adopted = self.blobs().adopt(std::slice::from_ref(&copy)).pop();
        let blob = adopted.expect("BUG: one file has one result")?;
        if self.in_catalog(self.catalog().publish_direct(checkout, artifact, file, blob))? && !open {
            remove_file(&direct)?;
        }
        Ok(())
    }

    /// The name of a new copy of bytes that are elsewhere, too.
    pub(super) fn copy_name(
        &self,
        checkout: CheckoutId,
        artifact: Seq,
        base: Option<VersionNumber>,
    ) -> StagingName {
        StagingName { role: StagingRole::Copy, checkout, artifact, base, token: self.ids().token() }
    }
}

fn file_name(path: &Path) -> Option<String> {
    path.file_name().and_then(|name| name.to_str()).map(str::to_owned)
}

/// Copies a file's bytes to a new file of mode 0600; shares the blocks where the filesystem can.
pub(super) fn copy_file(from: &Path, to: &Path) -> Result<()> {
    copy_open_file(&File::open(from).map_err(file_error("open", from))?, to)
}

/// As [`copy_file`], from an open file.
pub(super) fn copy_open_file(source: &File, to: &Path) -> Result<()> {
    let copy = || sys::copy_bytes(source, &sys::create_private(to)?, u64::MAX);
    copy().map_err(|error| {
        // A part of the bytes is worth nothing; the disk may be full.
        let _ = fs::remove_file(to);
        file_error("write", to)(error)
    })
}
