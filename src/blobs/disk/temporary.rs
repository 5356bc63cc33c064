//! Temporary files of staging: bytes on their way to an address that isn't known yet.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::ground::Ground;
use super::publish::{Body, Candidate};
use super::{DiskStore, Stamp};
use crate::blobs::BlobError;
use crate::blobs::hashing::{BUFFER_BYTES, Hasher, fill};
use crate::model::Digest;
use crate::sys;

/// How many bytes a streamed put writes before it asks the kernel to begin writing them to the disk.
const WRITEBACK_BYTES: u64 = 8 << 20;

/// From how many bytes on a source is hashed by a thread of its own: hashing fewer takes little more than its start.
const LONG_BYTES: u64 = 1 << 20;

/// How many pieces of a long source are between reading and hashing.
const PIECES: usize = 4;

/// How many names are tried for one temporary file before somebody must be taking them on purpose.
const NAMES_TRIED: u32 = 16;

impl DiskStore {
    /// Streams a source into a new file of staging, unless it is short and something is at its address already.
    ///
    /// The bytes are written, not synced. On failure nothing is left of them.
    pub(super) fn write_temporary(
        &self,
        ground: &Ground,
        source: &mut dyn Read,
        buffer: &mut [u8],
    ) -> Result<(Candidate, Option<File>), BlobError> {
        let mut hasher = Hasher::default();
        let count = fill(source, buffer).map_err(|source| BlobError::Source { source })?;
        hasher.update(&buffer[..count]);
        if count < buffer.len() {
            let digest = hasher.clone().finish();
            if self.is_present(Some(&ground.objects.file), &digest)? {
                let body = Body::Known(buffer[..count].into());
                return Ok((Candidate { body, digest, size: count as u64 }, None));
            }
        }
        let (name, file) = self.create_temporary(ground)?;
        let path = ground.staging.path.join(&name);
        let written = self.write_rest(source, buffer, (hasher, count), &file, &path);
        match written.and_then(|done| Ok((done, stamp_of_new(&file, &path)?))) {
            Ok(((digest, size), stamp)) => {
                Ok((Candidate { body: Body::Staged { name, stamp }, digest, size }, Some(file)))
            }
            Err(error) => {
                self.remove_own(ground, &name, &file);
                Err(error)
            }
        }
    }

    /// Writes and syncs bytes that were not expected to be needed; on failure nothing is left of them.
    pub(super) fn write_known(&self, ground: &Ground, bytes: &[u8]) -> Result<(OsString, Stamp), BlobError> {
        let (name, file) = self.create_temporary(ground)?;
        let path = ground.staging.path.join(&name);
        let written = self.steps.write(&file, bytes).map_err(BlobError::io("write", &path));
        let synced = written.and_then(|()| {
            let synced = self.steps.tolerate(self.steps.sync_file(&file));
            synced.map_err(|source| BlobError::Sync { path: path.clone(), source })
        });
        match synced.and_then(|()| stamp_of_new(&file, &path)) {
            Ok(stamp) => Ok((name, stamp)),
            Err(error) => {
                self.remove_own(ground, &name, &file);
                Err(error)
            }
        }
    }

    /// Creates a file of a name that nobody has; what has a name that was tried is never touched.
    fn create_temporary(&self, ground: &Ground) -> Result<(OsString, File), BlobError> {
        for _ in 0..NAMES_TRIED {
            let name = OsString::from(self.parts.ids.token());
            match self.steps.create(&ground.staging.file, &name, self.parts.settings.blob_mode) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(BlobError::io("create", &ground.staging.path.join(&name))(error)),
                Ok(file) => return Ok((name, file)),
            }
        }
        Err(BlobError::NamesTaken { path: ground.staging.path.clone() })
    }

    /// Writes what the buffer holds, which is hashed already, and then the rest of the source.
    fn write_rest(
        &self,
        source: &mut dyn Read,
        buffer: &mut [u8],
        (mut hasher, mut count): (Hasher, usize),
        file: &File,
        path: &Path,
    ) -> Result<(Digest, u64), BlobError> {
        while count > 0 {
            self.steps.write(file, &buffer[..count]).map_err(BlobError::io("write", path))?;
            if count < buffer.len() {
                break;
            }
            if hasher.bytes() >= LONG_BYTES {
                hasher = self.write_while_hashing(source, hasher, file, path)?;
                break;
            }
            count = fill(source, buffer).map_err(|source| BlobError::Source { source })?;
            hasher.update(&buffer[..count]);
        }
        let size = hasher.bytes();
        Ok((hasher.finish(), size))
    }

    /// Writes the rest of a long source while another thread hashes what was read; each takes its time.
    fn write_while_hashing(
        &self,
        source: &mut dyn Read,
        mut hasher: Hasher,
        file: &File,
        path: &Path,
    ) -> Result<Hasher, BlobError> {
        let (full, to_hash) = channel::<(Vec<u8>, usize)>();
        let (hashed, free) = channel();
        for _ in 0..PIECES {
            hashed.send(vec![0; BUFFER_BYTES]).expect("BUG: the receiver is here");
        }
        let begun = hasher.bytes();
        thread::scope(|scope| {
            let hashing = scope.spawn(move || {
                for (piece, count) in to_hash {
                    hasher.update(&piece[..count]);
                    // Nobody wants it any more once the source has ended.
                    let _ = hashed.send(piece);
                }
                hasher
            });
            let written = self.write_pieces(source, &full, &free, begun, (file, path));
            drop(full);
            let hasher = hashing.join().expect("BUG: hashing doesn't panic");
            written.map(|()| hasher)
        })
    }

    /// Fills free pieces from the source, writes them and hands them on, until the source ends.
    fn write_pieces(
        &self,
        source: &mut dyn Read,
        full: &Sender<(Vec<u8>, usize)>,
        free: &Receiver<Vec<u8>>,
        begun: u64,
        (file, path): (&File, &Path),
    ) -> Result<(), BlobError> {
        let (mut written, mut started) = (begun, 0);
        loop {
            let mut piece = free.recv().expect("BUG: the hashing thread waits for the sender");
            let count = fill(source, &mut piece).map_err(|source| BlobError::Source { source })?;
            self.steps.write(file, &piece[..count]).map_err(BlobError::io("write", path))?;
            written += count as u64;
            started = begin_writeback(file, started, written);
            let ended = count < piece.len();
            full.send((piece, count)).expect("BUG: the hashing thread waits for the sender");
            if ended {
                return Ok(());
            }
        }
    }

    /// Removes what a candidate has in staging; what can't be removed is litter, and no error.
    pub(super) fn discard(&self, ground: &Ground, candidate: &Candidate) {
        if let Body::Staged { name, stamp } = &candidate.body {
            self.remove_staged(ground, name, stamp.inode);
        }
    }

    fn remove_own(&self, ground: &Ground, name: &OsStr, file: &File) {
        use std::os::unix::fs::MetadataExt;
        if let Ok(metadata) = file.metadata() {
            self.remove_staged(ground, name, metadata.ino());
        }
    }

    /// Removes a name of staging, if it still stands for the file that it was given to.
    pub(super) fn remove_staged(&self, ground: &Ground, name: &OsStr, inode: u64) {
        match sys::facts_at(&ground.staging.file, name) {
            Ok(found) if found.inode == inode => {}
            Ok(_) => return,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return cant_remove(&ground.staging.path.join(name), &error),
        }
        if let Err(error) = self.steps.remove(&ground.staging.file, name)
            && error.kind() != io::ErrorKind::NotFound
        {
            cant_remove(&ground.staging.path.join(name), &error);
        }
    }
}

fn cant_remove(path: &Path, error: &io::Error) {
    tracing::warn!(path = %path.display(), error = error as &dyn std::error::Error, "can't remove");
}

fn stamp_of_new(file: &File, path: &Path) -> Result<Stamp, BlobError> {
    Ok(Stamp::of(&file.metadata().map_err(BlobError::io("stat", path))?))
}

/// Lets the disk work while more bytes are hashed; returns up to where writeback was asked for.
fn begin_writeback(file: &File, started: u64, written: u64) -> u64 {
    if written - started < WRITEBACK_BYTES {
        return started;
    }
    let (offset, length) = (started.cast_signed(), (written - started).cast_signed());
    // Only a hint: the sync that follows is what tells errors.
    let _hint = sys::start_writeback(file, offset, length);
    written
}
