//! How synced files of staging become blobs.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;

use super::ground::{Dir, Ground};
use super::{DiskStore, Stamp};
use crate::blobs::BlobError;
use crate::blobs::error::repeat;
use crate::blobs::locks::Lock;
use crate::model::Digest;
use crate::sys;

/// Up to how many files or directories one sync each measures faster than one of the whole filesystem.
pub(super) const FEW: usize = 4;

/// Known bytes that are to be a blob.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) body: Body,
    pub(super) digest: Digest,
    pub(super) size: u64,
}

/// Where the bytes of a candidate are.
#[derive(Debug)]
pub(super) enum Body {
    /// In a file of staging, durably.
    Staged {
        /// Its name.
        name: OsString,
        /// What the file was when it was hashed.
        stamp: Stamp,
    },
    /// Here: they are few, and something is at their address already.
    Known(Box<[u8]>),
}

impl Candidate {
    pub(super) fn sync_error(&self, store: &DiskStore, source: io::Error) -> BlobError {
        let path = match &self.body {
            Body::Staged { name, .. } => store.staging().join(name),
            Body::Known(_) => store.path_of(&self.digest),
        };
        BlobError::Sync { path, source }
    }
}

/// What became of a candidate before the barrier.
enum Placed {
    /// A file with this stamp was renamed to its address.
    Moved(Stamp),
    /// The address already had the bytes: the stamp of that file, freshened. (A batch can't keep all of them open.)
    Kept(Stamp),
    /// An earlier candidate of the round, at this position, has the same bytes.
    Twin(usize),
}

/// What is at an address.
enum Present {
    Nothing,
    /// A corrupt or unreadable file: to be replaced.
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

/// One batch on its way to the addresses.
struct Round<'a> {
    store: &'a DiskStore,
    ground: &'a Ground,
    /// For a syncfs, if there are many: it reports what failed since it was opened.
    filesystem: Option<File>,
    fan_outs: HashMap<u8, Dir>,
    /// The positions of those that are at their addresses.
    placed: HashMap<Digest, usize>,
    /// The lock of the last address.
    lock: Option<Lock<'a>>,
}

impl DiskStore {
    /// Makes blobs of candidates, with one barrier for all, and removes those whose bytes are there already.
    ///
    /// Returns one result each, in order. A candidate that failed is in staging; its bytes may be at their address, too.
    pub(super) fn publish(&self, ground: &Ground, candidates: &[Candidate]) -> Vec<Result<(), BlobError>> {
        let mut round = Round::new(self, ground, candidates.len());
        let mut placed: Vec<_> = candidates.iter().enumerate().map(|(i, one)| round.place(i, one)).collect();
        // Under the lock if it is a single put: what it found stored can't be removed before it is synced.
        let kept = round.sync_kept(candidates, &placed);
        round.unlock(candidates, &mut placed);
        let barrier = round.barrier();
        let mut results = Vec::with_capacity(candidates.len());
        let mut stamps = Vec::with_capacity(candidates.len());
        for ((candidate, placed), kept) in candidates.iter().zip(placed).zip(kept) {
            results.push(placed.and_then(|placed| {
                round.confirm(&barrier, candidate, &placed, &results)?;
                kept?;
                stamps.extend(round.settle(candidate, &placed).map(|stamp| (candidate.digest, stamp)));
                Ok(())
            }));
        }
        self.parts.stamps.record(&stamps);
        self.counts.note_puts(results.iter().filter(|result| result.is_ok()).count());
        results
    }

    /// Looks for whole bytes at an address, and freshens them, since a sweep goes by mtime; the stamp after that.
    ///
    /// They are read anew each time, since no earlier proof says what the disk holds now. The lock is confirmed after
    /// that: a sweep that took it away before may have judged by the old mtime.
    fn find_stored(&self, dir: &Dir, digest: &Digest, lock: &Lock<'_>) -> Result<Option<Stamp>, BlobError> {
        let hex = OsString::from(digest.to_hex());
        let Present::Whole(file) = self.examine(dir, &hex, digest)? else { return Ok(None) };
        let freshened = self.steps.touch(&file);
        lock.confirm()?;
        let stamp = self.stamp_of(&file, digest)?;
        if let Err(error) = freshened {
            tracing::warn!(%digest, error = &error as &dyn std::error::Error, "can't freshen a blob");
        }
        // It may have been removed or replaced after it was read.
        match self.steps.probe(&dir.file, &hex) {
            Ok(found) if found.inode == stamp.inode => Ok(Some(stamp)),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(_) => Ok(Some(stamp)),
        }
    }

    /// Renames the bytes of a candidate to their address.
    fn move_in(
        &self,
        ground: &Ground,
        fan_out: &Dir,
        candidate: &Candidate,
        lock: &Lock<'_>,
    ) -> Result<Placed, BlobError> {
        self.remove_litter_once(ground);
        let (name, stamp) = match &candidate.body {
            Body::Staged { name, stamp } => (name.clone(), *stamp),
            Body::Known(bytes) => self.write_known(ground, bytes)?,
        };
        let moved = self.check_places(ground, fan_out, &name, &stamp).and_then(|()| {
            lock.confirm()?;
            let hex = OsString::from(candidate.digest.to_hex());
            let renamed = self.steps.rename(&ground.staging.file, &name, &fan_out.file, &hex);
            renamed.map_err(BlobError::io("rename", &ground.staging.path.join(&name)))
        });
        if moved.is_err() && matches!(candidate.body, Body::Known(_)) {
            self.remove_staged(ground, &name, stamp.inode);
        }
        moved.map(|()| Placed::Moved(stamp))
    }

    /// Proves that the directories are what their names say, and the file what was hashed: right before it is renamed.
    fn check_places(
        &self,
        ground: &Ground,
        fan_out: &Dir,
        name: &OsStr,
        stamp: &Stamp,
    ) -> Result<(), BlobError> {
        ground.objects.check_at_path()?;
        fan_out.check_in(&ground.objects)?;
        let path = || ground.staging.path.join(name);
        let found = sys::facts_at(&ground.staging.file, name);
        let found = found.map_err(|error| BlobError::io("stat", &path())(error))?;
        if found.inode == stamp.inode && found.is_file() {
            Ok(())
        } else {
            Err(BlobError::Swapped { path: path() })
        }
    }

    /// Looks at an address; corrupt bytes are found here, and logged.
    ///
    /// # Errors
    /// `NotAFile`, for what nobody of us has put there: it is neither followed nor replaced.
    fn examine(&self, dir: &Dir, hex: &OsStr, digest: &Digest) -> Result<Present, BlobError> {
        let file = match self.steps.open_blob(&dir.file, hex) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Present::Nothing),
            Err(error) => return self.examine_unopened(dir, hex, digest, error),
        };
        match self.prove(&file, digest) {
            Ok(()) => Ok(Present::Whole(file)),
            Err(BlobError::Corrupt { .. } | BlobError::Unsettled { .. }) => Ok(Present::Rubbish),
            Err(BlobError::Io { source, .. }) if sys::is_unreadable(&source) => Ok(Present::Rubbish),
            Err(error) => Err(error),
        }
    }

    /// What is at an address that can't be opened: only a regular file may be replaced.
    fn examine_unopened(
        &self,
        dir: &Dir,
        hex: &OsStr,
        digest: &Digest,
        refused: io::Error,
    ) -> Result<Present, BlobError> {
        match self.steps.probe(&dir.file, hex) {
            Ok(found) if !found.is_file() => Err(BlobError::NotAFile { digest: *digest }),
            Ok(_) if sys::is_unreadable(&refused) => Ok(Present::Rubbish),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Present::Nothing),
            Ok(_) | Err(_) => Err(BlobError::io("open", &self.path_of(digest))(refused)),
        }
    }
}

impl<'a> Round<'a> {
    fn new(store: &'a DiskStore, ground: &'a Ground, candidates: usize) -> Self {
        let many = candidates > FEW;
        let filesystem = many.then(|| sys::open_dir_at(&ground.objects.file, OsStr::new(".")).ok()).flatten();
        Self { store, ground, filesystem, fan_outs: HashMap::new(), placed: HashMap::new(), lock: None }
    }

    /// Brings one candidate to its address; all that is done per digest is done here, under the address's lock.
    fn place(&mut self, position: usize, candidate: &Candidate) -> Result<Placed, BlobError> {
        if let Some(first) = self.placed.get(&candidate.digest) {
            return Ok(Placed::Twin(*first));
        }
        let lock = self.store.locks.lock_next(self.lock.take(), &candidate.digest)?;
        let placed = self.place_locked(candidate, &lock);
        self.lock = Some(lock);
        if placed.is_ok() {
            self.placed.insert(candidate.digest, position);
        }
        placed
    }

    fn place_locked(&mut self, candidate: &Candidate, lock: &Lock<'_>) -> Result<Placed, BlobError> {
        let (store, ground) = (self.store, self.ground);
        let fan_out = self.fan_out(fan_out_of(&candidate.digest))?;
        match store.find_stored(fan_out, &candidate.digest, lock)? {
            Some(stamp) => Ok(Placed::Kept(stamp)),
            None => store.move_in(ground, fan_out, candidate, lock),
        }
    }

    /// Gives the last lock back, before the barrier: what was just placed has a fresh mtime, so that a sweep leaves it
    /// alone, and for all others it is a blob like any other. If it can't be given back, the last candidate failed.
    fn unlock(&mut self, candidates: &[Candidate], placed: &mut [Result<Placed, BlobError>]) {
        let Some(Err(error)) = self.lock.take().map(Lock::release) else { return };
        let Some((last, candidate)) = placed.last_mut().zip(candidates.last()) else { return };
        if matches!(last, Ok(Placed::Moved(_))) {
            self.give_back(candidate);
        }
        *last = Err(error);
    }

    /// The open fan-out directory, made where it is missing.
    fn fan_out(&mut self, number: u8) -> Result<&Dir, BlobError> {
        if !self.fan_outs.contains_key(&number) {
            let dir = self.store.open_or_make_fan_out(&self.ground.objects, number)?;
            self.fan_outs.insert(number, dir);
        }
        Ok(&self.fan_outs[&number])
    }

    /// Syncs the files that were at their addresses already, for nobody told us that whoever wrote them did; a batch
    /// leaves that to its barrier, and comes back for what the barrier could not do.
    fn sync_kept(
        &self,
        candidates: &[Candidate],
        placed: &[Result<Placed, BlobError>],
    ) -> Vec<Result<(), BlobError>> {
        let sync = |(candidate, placed): (&Candidate, &Result<Placed, _>)| match placed {
            Ok(Placed::Kept(_)) if self.filesystem.is_none() => self.sync_blob(&candidate.digest),
            _ => Ok(()),
        };
        candidates.iter().zip(placed).map(sync).collect()
    }

    fn sync_blob(&self, digest: &Digest) -> Result<(), BlobError> {
        let synced = self.store.steps.sync_file(&self.store.open_blob(digest)?);
        let failed = |source| BlobError::Sync { path: self.store.path_of(digest), source };
        self.store.steps.tolerate(synced).map_err(failed)
    }

    /// Makes all renames durable.
    fn barrier(&self) -> Barrier {
        let steps = &self.store.steps;
        let synced = self.filesystem.as_ref().is_some_and(|dir| steps.sync_filesystem(dir).is_ok());
        let mut failures = HashMap::new();
        if !synced {
            // After a failed syncfs, too: it may have told of other files.
            let sync = |(number, fan_out): (&u8, &Dir)| {
                Some((*number, steps.tolerate(steps.sync_dir(&fan_out.file)).err()?))
            };
            failures = self.fan_outs.iter().filter_map(sync).collect();
        }
        let named = self.store.sync_names(&self.ground.objects, &self.fan_outs, synced);
        if let Err(error) = steps.tolerate(named) {
            failures.extend(self.fan_outs.keys().map(|number| (*number, repeat(&error))));
        }
        if synced && failures.is_empty() { Barrier::Whole } else { Barrier::Each(failures) }
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
            return failed(self.store.path_of(&candidate.digest), source);
        }
        let Barrier::Each(failures) = barrier else { return Ok(()) };
        let fan_out = fan_out_of(&candidate.digest);
        if let Some(error) = failures.get(&fan_out) {
            if matches!(placed, Placed::Moved(_)) {
                self.give_back(candidate);
            }
            return failed(self.fan_outs[&fan_out].path.clone(), repeat(error));
        }
        match placed {
            Placed::Kept(_) if self.filesystem.is_some() => self.sync_blob(&candidate.digest),
            _ => Ok(()),
        }
    }

    /// Gives a file that was renamed, but not durably, its name in staging back.
    ///
    /// The blob stays: another process may have relied on it since. Both names are of a file that nobody writes to.
    fn give_back(&self, candidate: &Candidate) {
        let Body::Staged { name, .. } = &candidate.body else { return };
        let hex = OsString::from(candidate.digest.to_hex());
        let fan_out = &self.fan_outs[&fan_out_of(&candidate.digest)];
        let linked = self.store.steps.link(&fan_out.file, &hex, &self.ground.staging.file, name);
        if let Err(error) = linked {
            let path = self.store.path_of(&candidate.digest);
            tracing::error!(blob = %path.display(), staged = ?name, %error, "only the blob's name is left");
        }
    }

    /// Ends the publication of one candidate: its new stamp, if it has one that can be trusted.
    fn settle(&self, candidate: &Candidate, placed: &Placed) -> Option<Stamp> {
        if !matches!(placed, Placed::Moved(_)) {
            self.store.discard(self.ground, candidate);
        }
        let (Placed::Moved(expected) | Placed::Kept(expected)) = placed else { return None };
        // Another process may have renamed its own file of these bytes to the address meanwhile.
        let fan_out = &self.fan_outs[&fan_out_of(&candidate.digest)];
        let found = sys::facts_at(&fan_out.file, OsStr::new(&candidate.digest.to_hex())).ok()?;
        Some(Stamp::of_facts(&found)).filter(|stamp| stamp.same_content(expected))
    }
}

pub(super) fn fan_out_of(digest: &Digest) -> u8 {
    digest.as_bytes()[0]
}
