//! How synced files of staging become blobs.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, symlink_metadata};
use std::io;
use std::os::unix::fs::MetadataExt;

use super::{DiskStore, Stamp};
use crate::blobs::BlobError;
use crate::blobs::error::repeat;
use crate::model::Digest;
use crate::sys;

/// Up to how many files or directories one sync each measures faster than one of the whole filesystem.
pub(super) const FEW: usize = 4;

/// A file with known and durable bytes that is to be a blob.
pub(super) struct Candidate {
    /// Its name in staging; none, if its bytes were found stored and are only to be confirmed.
    pub(super) name: Option<OsString>,
    pub(super) digest: Digest,
    pub(super) size: u64,
    /// What the file was when it was hashed.
    pub(super) stamp: Stamp,
}

impl Candidate {
    pub(super) fn sync_error(&self, store: &DiskStore, source: io::Error) -> BlobError {
        let staged = self.name.as_ref().map(|name| store.staging.join(name));
        BlobError::Sync { path: staged.unwrap_or_else(|| store.path_of(&self.digest)), source }
    }
}

/// What became of a candidate before the barrier.
enum Placed {
    /// It was renamed to its address.
    Moved,
    /// The address already had the bytes: the stamp of that file, freshened. (A batch can't keep all of them open.)
    Kept(Stamp),
    /// An earlier candidate of the round, at this position, has the same bytes.
    Twin(usize),
}

/// What is at an address.
enum Present {
    Nothing,
    /// Corrupt, unreadable, or not a regular file: to be replaced.
    Rubbish,
    Whole(File),
}

/// How the barrier went.
enum Barrier {
    /// The whole filesystem was synced.
    Whole,
    /// Each directory was; these failed. Files that were kept have yet to be.
    Each(HashMap<u8, io::Error>),
}

struct FanOut {
    dir: File,
    inode: u64,
}

/// One batch on its way to the addresses.
struct Round<'a> {
    store: &'a DiskStore,
    /// For a syncfs, if there are many: it reports what failed since it was opened.
    filesystem: Option<File>,
    fan_outs: HashMap<u8, FanOut>,
    /// The positions of those that are at their addresses.
    placed: HashMap<Digest, usize>,
}

impl DiskStore {
    /// Makes blobs of candidates, with one barrier for all, and removes those whose bytes are there already.
    ///
    /// Returns one result each, in order. A candidate that failed is in staging; its bytes may be at their address, too.
    pub(super) fn publish(&self, candidates: &[Candidate]) -> Vec<Result<(), BlobError>> {
        let mut round = Round::new(self, candidates.len());
        let placed: Vec<_> = candidates.iter().enumerate().map(|(i, one)| round.place(i, one)).collect();
        let barrier = round.barrier();
        let mut results = Vec::with_capacity(candidates.len());
        let mut stamps = Vec::with_capacity(candidates.len());
        for (candidate, placed) in candidates.iter().zip(placed) {
            results.push(placed.and_then(|placed| {
                self.confirm(&barrier, candidate, &placed, &results)?;
                stamps.extend(self.settle(candidate, &placed).map(|stamp| (candidate.digest, stamp)));
                Ok(())
            }));
        }
        self.parts.stamps.record(&stamps);
        results
    }

    /// Whether the barrier made one candidate durable; if not, it is in staging again.
    fn confirm(
        &self,
        barrier: &Barrier,
        candidate: &Candidate,
        placed: &Placed,
        earlier: &[Result<(), BlobError>],
    ) -> Result<(), BlobError> {
        let failed = |path, source| Err(BlobError::Sync { path, source });
        if let Placed::Twin(first) = *placed
            && let Err(error) = &earlier[first]
        {
            let source = error.io_error().map_or_else(|| io::ErrorKind::NotFound.into(), repeat);
            return failed(self.path_of(&candidate.digest), source);
        }
        let Barrier::Each(failures) = barrier else { return Ok(()) };
        let fan_out = fan_out_of(&candidate.digest);
        if let Some(error) = failures.get(&fan_out) {
            if matches!(placed, Placed::Moved) {
                self.give_back(candidate);
            }
            return failed(self.objects.join(fan_out_name(fan_out)), repeat(error));
        }
        match placed {
            // Nobody told us that whoever wrote these bytes synced them.
            Placed::Kept(_) => {
                let synced = self.steps.sync_file(&self.open_blob(&candidate.digest)?);
                synced.or_else(|error| failed(self.path_of(&candidate.digest), error))
            }
            Placed::Moved | Placed::Twin(_) => Ok(()),
        }
    }

    /// Gives a file that was renamed, but not durably, its name in staging back.
    ///
    /// The blob stays: another process may have relied on it since. Both names are of a file that nobody writes to.
    fn give_back(&self, candidate: &Candidate) {
        let Some(name) = &candidate.name else { return };
        let hex = candidate.digest.to_hex();
        let linked = sys::open_dir_at(&self.objects_dir, OsStr::new(&hex[..2]))
            .and_then(|dir| self.steps.link(&dir, OsStr::new(&hex), &self.staging_dir, name));
        if let Err(error) = linked {
            let path = self.path_of(&candidate.digest);
            tracing::error!(blob = %path.display(), staged = ?name, %error, "only the blob's name is left");
        }
    }

    /// Ends the publication of one candidate: its new stamp, if it has one that can be trusted.
    fn settle(&self, candidate: &Candidate, placed: &Placed) -> Option<Stamp> {
        if !matches!(placed, Placed::Moved) {
            self.discard(candidate);
        }
        let expected = match placed {
            Placed::Moved => &candidate.stamp,
            Placed::Kept(stamp) => stamp,
            Placed::Twin(_) => return None,
        };
        // Another process may have renamed its own file of these bytes to the address meanwhile.
        let metadata = symlink_metadata(self.path_of(&candidate.digest)).ok()?;
        Some(Stamp::of(&metadata)).filter(|stamp| stamp.same_content(expected))
    }

    /// Looks for whole bytes at the address, and freshens them, since a sweep goes by mtime.
    pub(super) fn find_stored(&self, digest: Digest) -> Result<Option<Candidate>, BlobError> {
        let hex = digest.to_hex();
        let Some(dir) = self.open_fan_out(OsStr::new(&hex[..2]))? else { return Ok(None) };
        let Present::Whole(file) = self.examine(&dir, OsStr::new(&hex), &digest)? else { return Ok(None) };
        self.steps.touch(&file).map_err(BlobError::io("freshen", &self.path_of(&digest)))?;
        let stamp = self.stamp_of(&file, &digest)?;
        Ok(Some(Candidate { name: None, digest, size: stamp.size, stamp }))
    }

    /// Makes sure that bytes which were found stored still are.
    fn place_stored(&self, candidate: &Candidate) -> Result<Placed, BlobError> {
        let file = self.open_blob(&candidate.digest)?;
        if self.stamp_of(&file, &candidate.digest)? != candidate.stamp {
            self.verify(&file, &candidate.digest)?;
        }
        Ok(Placed::Kept(self.stamp_of(&file, &candidate.digest)?))
    }

    /// Renames a staging file to its address, unless its bytes are there already.
    fn place_staged(&self, dir: &File, name: &OsStr, candidate: &Candidate) -> Result<Placed, BlobError> {
        if let Some(stored) = self.find_stored(candidate.digest)? {
            return Ok(Placed::Kept(stored.stamp));
        }
        let hex = OsString::from(candidate.digest.to_hex());
        let moved = self.steps.rename(&self.staging_dir, name, dir, &hex);
        moved.map_err(BlobError::io("rename", &self.staging.join(name)))?;
        Ok(Placed::Moved)
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
            Ok(()) => Ok(Present::Whole(file)),
            Err(BlobError::Corrupt { .. } | BlobError::NotAFile { .. } | BlobError::Unsettled { .. }) => {
                Ok(Present::Rubbish)
            }
            Err(BlobError::Io { source, .. }) if sys::is_unreadable(&source) => Ok(Present::Rubbish),
            Err(error) => Err(error),
        }
    }
}

impl<'a> Round<'a> {
    fn new(store: &'a DiskStore, candidates: usize) -> Self {
        let many = candidates > FEW;
        let filesystem = many.then(|| sys::open_dir_at(&store.objects_dir, OsStr::new(".")).ok()).flatten();
        Self { store, filesystem, fan_outs: HashMap::new(), placed: HashMap::new() }
    }

    /// Brings one candidate to its address; all that is done per digest is done here.
    fn place(&mut self, position: usize, candidate: &Candidate) -> Result<Placed, BlobError> {
        if let Some(first) = self.placed.get(&candidate.digest) {
            return Ok(Placed::Twin(*first));
        }
        let store = self.store;
        let dir = self.fan_out(fan_out_of(&candidate.digest))?;
        let placed = match &candidate.name {
            Some(name) => store.place_staged(dir, name, candidate)?,
            None => store.place_stored(candidate)?,
        };
        self.placed.insert(candidate.digest, position);
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

    /// Makes all renames durable.
    fn barrier(&self) -> Barrier {
        let synced = self.filesystem.as_ref().map(|dir| self.store.steps.sync_filesystem(dir));
        if matches!(synced, Some(Ok(()))) {
            self.remember_durable();
            return Barrier::Whole;
        }
        // After a failed syncfs, too: it may have told of other files.
        let sync = |(number, fan_out): (&u8, &FanOut)| {
            Some((*number, self.store.steps.sync_dir(&fan_out.dir).err()?))
        };
        let mut failures: HashMap<u8, io::Error> = self.fan_outs.iter().filter_map(sync).collect();
        if let Err(error) = self.sync_new_fan_outs() {
            failures.extend(self.fan_outs.keys().map(|number| (*number, repeat(&error))));
        }
        Barrier::Each(failures)
    }

    /// Makes the names of fan-out directories durable, unless all are known to be.
    fn sync_new_fan_outs(&self) -> io::Result<()> {
        let known = self.store.durable_fan_outs.lock().clone();
        if self.fan_outs.iter().any(|(number, fan_out)| known.get(number) != Some(&fan_out.inode)) {
            self.store.steps.sync_dir(&self.store.objects_dir)?;
            self.remember_durable();
        }
        Ok(())
    }

    fn remember_durable(&self) {
        let inodes = self.fan_outs.iter().map(|(number, fan_out)| (*number, fan_out.inode));
        self.store.durable_fan_outs.lock().extend(inodes);
    }
}

impl DiskStore {
    /// Opens a fan-out directory, and makes it if it is missing.
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
