//! How sealed files of staging, to which an application wrote, become blobs.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use super::ground::Ground;
use super::publish::{Body, Candidate, FEW};
use super::{DiskStore, Stamp};
use crate::blobs::parallel::in_parallel;
use crate::blobs::{BlobError, NoteError};
use crate::model::Digest;
use crate::sys;

/// How many files are open at once: a quarter of the usual limit of a process.
const ROUND_FILES: usize = 256;

/// Notes which staging files are about to become which blobs, where it outlives this program.
pub type Note<'a> = dyn FnMut(&[(PathBuf, Digest)]) -> Result<(), NoteError> + 'a;

/// A sealed file, opened.
struct Sealed {
    name: OsString,
    file: File,
    /// What it was before it was hashed.
    before: Stamp,
}

impl DiskStore {
    /// Makes blobs of sealed files of staging: files to which nobody writes any more.
    ///
    /// They are hashed while they are synced, renamed to their addresses, and the directories synced; a batch shares
    /// its barriers. Bytes that are there already are verified, healed if corrupt, and freshened, and the staging file
    /// is removed. Returns a result for each, in order. A file that failed is still in staging; one whose sync failed
    /// (`Sync` with its path, then `Tainted`) never becomes a blob.
    pub fn adopt(&self, staged: &[PathBuf]) -> Vec<Result<(Digest, u64), BlobError>> {
        self.adopt_noting(staged, &mut |_| Ok(()))
    }

    /// As [`adopt`](Self::adopt), but tells the digests before any file leaves its name in staging.
    ///
    /// A caller that keeps the staging name of a file must note the digest here: after a crash between the rename and
    /// its own commit the bytes are known by the digest alone. If `note` fails, its files stay in staging.
    pub fn adopt_noting(
        &self,
        staged: &[PathBuf],
        note: &mut Note<'_>,
    ) -> Vec<Result<(Digest, u64), BlobError>> {
        staged.chunks(ROUND_FILES).flat_map(|round| self.adopt_round(round, note)).collect()
    }

    fn adopt_round(&self, staged: &[PathBuf], note: &mut Note<'_>) -> Vec<Result<(Digest, u64), BlobError>> {
        match self.ground() {
            Ok(ground) => self.adopt_on(&ground, staged, note),
            Err(error) => staged.iter().map(|_| Err(error.again())).collect(),
        }
    }

    fn adopt_on(
        &self,
        ground: &Ground,
        staged: &[PathBuf],
        note: &mut Note<'_>,
    ) -> Vec<Result<(Digest, u64), BlobError>> {
        let mut results = Vec::with_capacity(staged.len());
        let mut sealed = Vec::with_capacity(staged.len());
        for path in staged {
            results.push(self.open_sealed(ground, path).map(|file| sealed.push(file)));
        }
        let mut ready = Vec::with_capacity(sealed.len());
        let hashed = self.hash_and_sync(ground, &sealed);
        let mut hashed = hashed.into_iter().map(|result| result.map(|candidate| ready.push(candidate)));
        for result in results.iter_mut().filter(|result| result.is_ok()) {
            *result = hashed.next().expect("BUG: each opened file is hashed");
        }
        let mut published = self.note_and_publish(ground, ready, note).into_iter();
        let finish =
            |opened: Result<(), _>| opened.and_then(|()| published.next().expect("BUG: each is published"));
        results.into_iter().map(finish).collect()
    }

    /// Opens a staging file and gives it the mode and the mtime of a new blob.
    fn open_sealed(&self, ground: &Ground, path: &Path) -> Result<Sealed, BlobError> {
        let not_staged = || BlobError::NotStaged { path: path.to_owned() };
        let name =
            path.file_name().filter(|_| path.parent() == Some(self.staging())).ok_or_else(not_staged)?;
        if self.tainted.lock().contains(name) {
            return Err(BlobError::Tainted { path: path.to_owned() });
        }
        let file = sys::open_file_at(&ground.staging.file, name).map_err(BlobError::io("open", path))?;
        let metadata = file.metadata().map_err(BlobError::io("stat", path))?;
        if !metadata.is_file() {
            return Err(not_staged());
        }
        let mode = self.parts.settings.blob_mode;
        if metadata.permissions().mode() & 0o7777 != mode {
            self.steps.set_mode(&file, mode).map_err(BlobError::io("set the mode of", path))?;
        }
        // A sweep goes by mtime: bytes that waited long in staging are a new blob nevertheless.
        self.steps.touch(&file).map_err(BlobError::io("freshen", path))?;
        let before = Stamp::of(&file.metadata().map_err(BlobError::io("stat", path))?);
        Ok(Sealed { name: name.to_owned(), file, before })
    }

    /// Hashes on the processors what the disk writes at the same time: the longer of the two is what it takes.
    fn hash_and_sync(&self, ground: &Ground, sealed: &[Sealed]) -> Vec<Result<Candidate, BlobError>> {
        if sealed.is_empty() {
            return Vec::new();
        }
        let (synced, hashed) = thread::scope(|scope| {
            let syncing = scope.spawn(|| self.sync(ground, sealed));
            let processors = thread::available_parallelism().map_or(1, usize::from);
            let hashed = in_parallel(processors, sealed, |sealed| self.steps.hash(&sealed.file));
            (syncing.join().expect("BUG: syncing doesn't panic"), hashed)
        });
        let each = sealed.iter().zip(synced).zip(hashed);
        each.map(|((sealed, synced), hashed)| self.candidate(sealed, synced, hashed)).collect()
    }

    fn candidate(
        &self,
        sealed: &Sealed,
        synced: io::Result<()>,
        hashed: io::Result<(Digest, u64)>,
    ) -> Result<Candidate, BlobError> {
        let path = self.staging().join(&sealed.name);
        if let Err(source) = synced {
            self.tainted.lock().insert(sealed.name.clone());
            return Err(BlobError::Sync { path, source });
        }
        let (digest, size) = hashed.map_err(BlobError::io("read", &path))?;
        let stamp = Stamp::of(&sealed.file.metadata().map_err(BlobError::io("stat", &path))?);
        if !stamp.same_content(&sealed.before) || stamp.size != size {
            return Err(BlobError::NotSealed { path });
        }
        Ok(Candidate { body: Body::Staged { name: sealed.name.clone(), stamp }, digest, size })
    }

    /// Syncs files: a few one by one, many by one sync of the filesystem.
    fn sync(&self, ground: &Ground, sealed: &[Sealed]) -> Vec<io::Result<()>> {
        let sync_all =
            || self.steps.sync_filesystem(&sys::open_dir_at(&ground.staging.file, OsStr::new("."))?);
        if sealed.len() > FEW && sync_all().is_ok() {
            let result = |sealed: &Sealed| self.steps.tolerate(sys::writeback_result(&sealed.file));
            return sealed.iter().map(result).collect();
        }
        // After a failed syncfs, too: each file tells its own errors, and it may have told of other files.
        let sync = |sealed: &Sealed| self.steps.tolerate(self.steps.sync_file(&sealed.file));
        sealed.iter().map(sync).collect()
    }

    fn note_and_publish(
        &self,
        ground: &Ground,
        ready: Vec<Candidate>,
        note: &mut Note<'_>,
    ) -> Vec<Result<(Digest, u64), BlobError>> {
        let noted = |one: &Candidate| match &one.body {
            Body::Staged { name, .. } => Some((self.staging().join(name), one.digest)),
            Body::Known(_) => None,
        };
        let digests: Vec<_> = ready.iter().filter_map(noted).collect();
        if digests.is_empty() {
            return Vec::new();
        }
        if let Err(source) = note(&digests) {
            let refuse = |(path, _)| Err(BlobError::NotNoted { path, source: Arc::clone(&source) });
            return digests.into_iter().map(refuse).collect();
        }
        let published = self.publish(ground, &ready);
        let finish = |(one, result): (&Candidate, Result<(), _>)| result.map(|()| (one.digest, one.size));
        ready.iter().zip(published).map(finish).collect()
    }
}
