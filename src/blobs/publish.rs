//! How synced files of staging become blobs.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{File, symlink_metadata};
use std::io;
use std::os::unix::fs::MetadataExt;

use super::error::repeat;
use super::verify::Proof;
use super::{BlobError, DiskStore, Stamp};
use crate::model::Digest;
use crate::sys;

/// Up to how many files or directories one sync each measures faster than one of the whole filesystem.
pub(super) const FEW: usize = 4;

/// A file of staging with known and durable bytes.
pub(super) struct Candidate {
    pub(super) name: OsString,
    pub(super) digest: Digest,
    pub(super) size: u64,
    /// What the file was when it was hashed.
    pub(super) stamp: Stamp,
}

/// What became of a candidate before the barrier.
enum Placed {
    /// It was renamed to its address.
    Moved,
    /// The address already had the bytes: that file, freshened.
    Kept(File),
    /// Another candidate of the round has the same bytes.
    Twin,
}

/// What is at an address.
enum Present {
    Nothing,
    /// Corrupt, unreadable, or not a regular file: to be replaced.
    Rubbish,
    Whole(File, Proof),
}

struct FanOut {
    dir: File,
    inode: u64,
}

/// One batch on its way to the addresses.
struct Round<'a> {
    store: &'a DiskStore,
    fan_outs: HashMap<u8, FanOut>,
    placed: HashSet<Digest>,
}

impl DiskStore {
    /// Makes blobs of candidates, with one barrier for all, and removes those whose bytes are there already.
    ///
    /// Returns one result each, in order. On an error a candidate may be at its address nevertheless.
    pub(super) fn publish(&self, candidates: &[Candidate]) -> Vec<Result<(), BlobError>> {
        let mut round = Round { store: self, fan_outs: HashMap::new(), placed: HashSet::new() };
        let placed: Vec<_> = candidates.iter().map(|candidate| round.place(candidate)).collect();
        let failures = round.barrier();
        let mut stamps = Vec::with_capacity(candidates.len());
        let results = candidates.iter().zip(placed).map(|(candidate, placed)| {
            let placed = placed?;
            if let Some(error) = failures.get(&fan_out_of(&candidate.digest)) {
                let path = self.objects.join(fan_out_name(fan_out_of(&candidate.digest)));
                return Err(BlobError::Sync { path, source: repeat(error) });
            }
            stamps.extend(self.settle(candidate, placed)?.map(|stamp| (candidate.digest, stamp)));
            Ok(())
        });
        let results = results.collect();
        self.stamps.record(&stamps);
        results
    }

    /// Ends the publication of one candidate after the barrier: its new stamp, if it can be trusted.
    fn settle(&self, candidate: &Candidate, placed: Placed) -> Result<Option<Stamp>, BlobError> {
        match placed {
            Placed::Moved => {
                let path = self.path_of(&candidate.digest);
                let metadata = symlink_metadata(&path).map_err(BlobError::io("stat", &path))?;
                // Another process may have renamed its own file of these bytes over ours meanwhile.
                Ok(Some(Stamp::of(&metadata)).filter(|stamp| stamp.same_content(&candidate.stamp)))
            }
            Placed::Kept(file) => {
                self.discard(&candidate.name);
                self.stamp_of(&file, &candidate.digest).map(Some)
            }
            Placed::Twin => {
                self.discard(&candidate.name);
                Ok(None)
            }
        }
    }

    /// Looks at an address; corrupt bytes are found here, and logged.
    fn examine(&self, dir: &File, hex: &OsStr, digest: &Digest) -> Result<Present, BlobError> {
        let file = match sys::open_file_at(dir, hex) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Present::Nothing),
            Err(error) if sys::is_unreadable(&error) => return Ok(Present::Rubbish),
            Err(error) => return Err(BlobError::io("open", &self.path_of(digest))(error)),
        };
        match self.verify(&file, digest) {
            Ok(proof) => Ok(Present::Whole(file, proof)),
            Err(BlobError::Corrupt { .. } | BlobError::NotAFile { .. }) => Ok(Present::Rubbish),
            Err(BlobError::Io { source, .. }) if sys::is_unreadable(&source) => Ok(Present::Rubbish),
            Err(error) => Err(error),
        }
    }

    /// Freshens a blob that was put again, so that a sweep, which goes by mtime, spares it.
    fn freshen(&self, file: &File, digest: &Digest, proof: Proof) -> Result<(), BlobError> {
        self.steps.touch(file).map_err(BlobError::io("freshen", &self.path_of(digest)))?;
        if proof == Proof::Stamp {
            return Ok(());
        }
        // Nobody told us that whoever wrote these bytes synced them.
        let synced = self.steps.sync_file(file);
        synced.map_err(|source| BlobError::Sync { path: self.path_of(digest), source })
    }
}

impl Round<'_> {
    /// Brings one candidate to its address; all that is done per digest is done here.
    fn place(&mut self, candidate: &Candidate) -> Result<Placed, BlobError> {
        if self.placed.contains(&candidate.digest) {
            return Ok(Placed::Twin);
        }
        let store = self.store;
        let hex = OsString::from(candidate.digest.to_hex());
        let dir = self.fan_out(fan_out_of(&candidate.digest))?;
        let placed = match store.examine(dir, &hex, &candidate.digest)? {
            Present::Whole(file, proof) => {
                store.freshen(&file, &candidate.digest, proof)?;
                Placed::Kept(file)
            }
            Present::Nothing | Present::Rubbish => {
                let moved = store.steps.rename(&store.staging_dir, &candidate.name, dir, &hex);
                moved.map_err(BlobError::io("rename", &store.staging.join(&candidate.name)))?;
                Placed::Moved
            }
        };
        self.placed.insert(candidate.digest);
        Ok(placed)
    }

    /// The open fan-out directory, made where it is missing.
    fn fan_out(&mut self, number: u8) -> Result<&File, BlobError> {
        if !self.fan_outs.contains_key(&number) {
            let dir = self.store.open_or_make_fan_out(number)?;
            let path = self.store.objects.join(fan_out_name(number));
            let inode = dir.metadata().map_err(BlobError::io("stat", &path))?.ino();
            self.fan_outs.insert(number, FanOut { dir, inode });
        }
        Ok(&self.fan_outs[&number].dir)
    }

    /// Makes all renames durable; returns the fan-out directories for which that failed.
    fn barrier(&self) -> HashMap<u8, io::Error> {
        let store = self.store;
        if self.fan_outs.len() > FEW && store.steps.sync_filesystem(&store.objects_dir).is_ok() {
            self.remember_durable();
            return HashMap::new();
        }
        // After a failed syncfs, too: it may have told of other files.
        let mut failures: HashMap<u8, io::Error> = HashMap::new();
        for (number, fan_out) in &self.fan_outs {
            if let Err(error) = store.steps.sync_dir(&fan_out.dir) {
                failures.insert(*number, error);
            }
        }
        let news: Vec<u8> =
            self.fan_outs.iter().filter(|(n, f)| !self.is_durable(**n, f)).map(|(n, _)| *n).collect();
        if news.is_empty() {
            return failures;
        }
        match store.steps.sync_dir(&store.objects_dir) {
            Ok(()) => self.remember_durable(),
            Err(error) => failures.extend(news.into_iter().map(|number| (number, repeat(&error)))),
        }
        failures
    }

    fn is_durable(&self, number: u8, fan_out: &FanOut) -> bool {
        self.store.durable_fan_outs.lock().get(&number) == Some(&fan_out.inode)
    }

    fn remember_durable(&self) {
        let inodes = self.fan_outs.iter().map(|(number, fan_out)| (*number, fan_out.inode));
        self.store.durable_fan_outs.lock().extend(inodes);
    }
}

impl DiskStore {
    fn open_or_make_fan_out(&self, number: u8) -> Result<File, BlobError> {
        let name = OsString::from(fan_out_name(number));
        if let Some(dir) = self.open_fan_out(&name)? {
            return Ok(dir);
        }
        let path = self.objects.join(&name);
        match self.steps.make_dir(&self.objects_dir, &name) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(BlobError::io("create", &path)(error));
            }
            _ => {}
        }
        sys::open_dir_at(&self.objects_dir, &name).map_err(BlobError::open_dir(&path))
    }
}

fn fan_out_of(digest: &Digest) -> u8 {
    digest.as_bytes()[0]
}

fn fan_out_name(number: u8) -> String {
    format!("{number:02x}")
}
