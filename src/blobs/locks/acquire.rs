//! How a lock is taken: exclusively created, or first taken from a holder that is no more.
//!
//! Of many who find the same dead holder, the one that makes the claim for that very generation may move its file
//! away; all others, and it too, then contend for the free name.

use std::ffi::{OsStr, OsString};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::dir::{Dir, gone_is_removed};
use super::found::{Generation, look, remove_found};
use super::own::{OwnFile, Reuse};
use super::{
    Coordination, Held, LOCKS_DIR, LOCKS_DIR_MODE, Lock, Locks, POLL_MS, Places, Subject, token, turns,
};
use crate::blobs::{BlobError, Step};
use crate::sys;

/// What a contender does next.
enum Next {
    Again,
    Wait,
}

impl Locks {
    /// Takes a lock before the boot's clock shows `deadline_ms`.
    pub(super) fn acquire(&self, subject: Subject, deadline_ms: i64) -> Result<Lock<'_>, BlobError> {
        let begun_ms = self.env.now_ms();
        let locked = || BlobError::Locked {
            path: self.objects.join(LOCKS_DIR).join(subject.file_name()),
            waited_ms: self.env.now_ms() - begun_ms,
        };
        let places = self.places()?;
        let key = turns::Key { objects: places.objects.id, subject };
        let turn = turns::take(key, milliseconds(deadline_ms - begun_ms)).ok_or_else(locked)?;
        let held = match &places.locks {
            None => None,
            Some(dir) => Some(self.acquire_file(dir, &subject.file_name(), deadline_ms)?.ok_or_else(locked)?),
        };
        Ok(Lock { held, turn })
    }

    /// Takes the file of a lock; none, if that can't be done in time.
    pub(super) fn acquire_file(
        &self,
        dir: &Arc<Dir>,
        name: &OsStr,
        deadline_ms: i64,
    ) -> Result<Option<Held<'_>>, BlobError> {
        let token = token::new(&self.env);
        loop {
            if let Some(own) = self.make_file(dir, name, &token)? {
                return Held::begin(own, self).map(Some);
            }
            while let Next::Wait = self.clear(dir, name, &token)? {
                if self.env.now_ms() >= deadline_ms {
                    return Ok(None);
                }
                self.pause(deadline_ms);
            }
            if self.env.now_ms() > deadline_ms {
                return Ok(None);
            }
        }
    }

    /// Makes the file of a lock, of a spare one if there is one; none, if the name is taken.
    fn make_file(&self, dir: &Arc<Dir>, name: &OsStr, token: &str) -> Result<Option<OwnFile>, BlobError> {
        let spare = self.spare.lock().take();
        match spare.filter(|spare| spare.is_in(dir)).map(|spare| spare.reuse(&self.env, name, token)) {
            Some(Err(error)) => Err(error),
            Some(Ok(Reuse::Held(own))) => Ok(Some(own)),
            Some(Ok(Reuse::Taken(spare))) => {
                let before = self.spare.lock().replace(spare);
                if let Some(before) = before {
                    before.discard();
                }
                Ok(None)
            }
            Some(Ok(Reuse::Gone)) | None => OwnFile::create(&self.env, dir, name, token),
        }
    }

    /// Waits a moment for others.
    pub(super) fn pause(&self, deadline_ms: i64) {
        let left = milliseconds(deadline_ms - self.env.now_ms());
        self.env.clock.sleep(left.min(Duration::from_millis(POLL_MS)));
    }

    /// The directories as they are now; `.locks` is made where it is missing.
    pub(super) fn places(&self) -> Result<Arc<Places>, BlobError> {
        let known = self.places.lock().clone();
        if let Some(known) = known.filter(|known| known.are_there()) {
            return Ok(known);
        }
        let objects = Arc::new(Dir::open(&self.objects)?);
        let locks = match self.coordination {
            Coordination::Process => None,
            Coordination::Required => Some(Arc::new(self.open_or_make_locks(&objects)?)),
        };
        let places = Arc::new(Places { objects, locks });
        *self.places.lock() = Some(Arc::clone(&places));
        Ok(places)
    }

    /// Opens `.locks`, which is never a symlink: neither before it is made nor after.
    fn open_or_make_locks(&self, objects: &Dir) -> Result<Dir, BlobError> {
        let name = OsStr::new(LOCKS_DIR);
        let made = self.env.step(Step::MakeDir, || sys::make_dir_at(&objects.file, name, LOCKS_DIR_MODE));
        if let Err(error) = made
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(objects.error("create", name)(error));
        }
        let path = objects.path_of(name);
        match sys::open_dir_at(&objects.file, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(BlobError::Swapped { path }),
            opened => Dir::new(opened.map_err(BlobError::open_dir(&path))?, path),
        }
    }

    /// Looks at a lock that somebody has, and takes it from one who is no more.
    fn clear(&self, dir: &Arc<Dir>, name: &OsStr, token: &str) -> Result<Next, BlobError> {
        let Some(found) = look(&self.env, dir, name)? else { return Ok(Next::Again) };
        if !found.is_free {
            return Ok(Next::Wait);
        }
        let claimed = joined(name, ".reclaim-", &found.generation.in_name());
        let Some(claim) = OwnFile::create(&self.env, dir, &claimed, token)? else {
            self.clear_claim(dir, &claimed)?;
            return Ok(Next::Wait);
        };
        let moved = self.move_away(dir, name, &found.generation, token);
        let dropped = claim.remove();
        moved.and(dropped).map(|()| Next::Again)
    }

    /// Removes the claim of a contender that is no more, if nobody else did.
    fn clear_claim(&self, dir: &Dir, claim: &OsStr) -> Result<(), BlobError> {
        let Some(first) = look(&self.env, dir, claim)?.filter(|found| found.is_free) else { return Ok(()) };
        match look(&self.env, dir, claim)? {
            Some(second) if second.is_free && second.generation == first.generation => {
                remove_found(&self.env, dir, claim, &second)
            }
            _ => Ok(()),
        }
    }

    /// Moves a dead holder's file away; only who has the claim for its generation comes here.
    fn move_away(
        &self,
        dir: &Dir,
        name: &OsStr,
        generation: &Generation,
        token: &str,
    ) -> Result<(), BlobError> {
        let found = look(&self.env, dir, name)?;
        if !found.is_some_and(|found| found.is_free && found.generation == *generation) {
            return Ok(());
        }
        dir.check()?;
        let tombstone = joined(name, ".stale-", token);
        let moved = self.env.step(Step::MoveLock, || sys::rename_at(&dir.file, name, &dir.file, &tombstone));
        match moved {
            Ok(()) => self.bury(dir, name, generation, &tombstone),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(dir.error("rename", name)(error)),
        }
    }

    /// Removes what was moved away, after giving it back if it was another's after all.
    fn bury(
        &self,
        dir: &Dir,
        name: &OsStr,
        generation: &Generation,
        tombstone: &OsStr,
    ) -> Result<(), BlobError> {
        let Some(moved) = look(&self.env, dir, tombstone)? else { return Ok(()) };
        dir.check()?;
        if moved.generation == Generation::Directory {
            let removed = sys::remove_tree_at(&dir.file, tombstone);
            return gone_is_removed(removed).map_err(dir.error("remove", tombstone));
        }
        if moved.generation != *generation {
            self.hand_back(dir, name, tombstone);
        }
        remove_found(&self.env, dir, tombstone, &moved)
    }

    /// Gives a lock its name back, unless somebody has a new one: the same file, with its owner's flock and times.
    fn hand_back(&self, dir: &Dir, name: &OsStr, tombstone: &OsStr) {
        let link = || sys::link_at(&dir.file, tombstone, &dir.file, name);
        if let Err(error) = self.env.step(Step::HandBackLock, link) {
            let path = dir.path_of(name);
            tracing::warn!(path = %path.display(), %error, "a lock that was held was taken away");
        }
    }
}

impl Places {
    fn are_there(&self) -> bool {
        let dir = self.locks.as_ref().unwrap_or(&self.objects);
        dir.check().is_ok()
    }
}

fn joined(name: &OsStr, middle: &str, end: &str) -> OsString {
    let mut joined = name.to_owned();
    joined.push(middle);
    joined.push(end);
    joined
}

fn milliseconds(count: i64) -> Duration {
    Duration::from_millis(u64::try_from(count).unwrap_or(0))
}
