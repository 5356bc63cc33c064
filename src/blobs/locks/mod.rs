//! Who may change an address of the store: locks that this program and a live peer of another kind both keep.
//!
//! A lock is a file of `objects/.locks` that its holder made exclusively, signed with a token of its own, and touches
//! every [`BEAT_MS`] (FORMAT.md, "Locks"). One that wasn't touched for [`STALE_MS`] may be taken over, so a holder must
//! prove that it still is one: [`Lock::confirm`], right before each rename or unlink.
//!
//! Not guaranteed: a holder that is stopped between its confirmation and the call that follows, for longer than
//! [`STALE_MS`], makes that call as the second holder. What it does then is small: a rename puts right bytes at their own
//! address, and an unlink takes away a blob that somebody freshened in between.

mod acquire;
mod backup;
mod dir;
mod env;
mod found;
mod heart;
mod own;
mod token;
mod turns;

#[cfg(test)]
mod tests;

pub use backup::BackupLease;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use self::dir::Dir;
use self::env::Env;
use self::heart::Heart;
use self::own::{OwnFile, Spare};
use self::turns::Turn;
use super::{BlobError, Faults};
use crate::clock::Clock;
use crate::ids::Ids;
use crate::model::Digest;

/// How often a holder touches its lock. A peer beats as often.
const BEAT_MS: u64 = 10_000;
/// A lock that wasn't touched for longer is nobody's. A peer judges ours by the same number.
const STALE_MS: i64 = 60_000;
/// A holder whose last beat is as old changes nothing more: 20 s before others may take its lock.
const FENCE_MS: i64 = 40_000;
/// How often a contender looks at a lock again. Files tell nobody that they go.
const POLL_MS: u64 = 25;
/// The mode of locks, claims and the backup marker.
const LOCK_MODE: u32 = 0o600;
/// The directory of locks, in `objects/`; a fan-out's name has two characters.
const LOCKS_DIR: &str = ".locks";
/// The mode of that directory, whatever the mode of others is set to.
const LOCKS_DIR_MODE: u32 = 0o700;

/// Whom the addresses of a store are locked against while they change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Coordination {
    /// All processes that keep the lock files.
    #[default]
    Required,
    /// The threads of this process alone: no file is made, and nothing may be swept or backed up.
    Process,
}

/// What can be locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Subject {
    /// An address.
    Address(Digest),
    /// What orders sweeps and backups; taken after an address, never before one.
    Gate,
}

impl Subject {
    fn file_name(&self) -> OsString {
        match self {
            Self::Address(digest) => format!("{digest}.lock").into(),
            Self::Gate => ".backup-lease-gate.lock".into(),
        }
    }
}

/// The locks of one store.
pub struct Locks {
    env: Arc<Env>,
    objects: PathBuf,
    coordination: Coordination,
    wait_ms: i64,
    /// Beats the locks. It waits for nobody.
    heart: Heart,
    /// Beats the backup marker, and waits for the gate.
    backup_heart: Heart,
    /// As they were last used. Held to take or replace the reference.
    places: Mutex<Option<Arc<Places>>>,
    /// The file of a lock that ended. Held to take or replace it.
    spare: Mutex<Option<Spare>>,
}

impl Drop for Locks {
    fn drop(&mut self) {
        if let Some(spare) = self.spare.get_mut().take() {
            spare.discard();
        }
    }
}

/// The directories of locks.
struct Places {
    objects: Arc<Dir>,
    /// `.locks` in it; none where no files are taken.
    locks: Option<Arc<Dir>>,
}

impl Locks {
    /// The locks of the store in `objects`, which must exist when one is taken. `wait_ms` is how long one is waited for.
    pub fn new(
        objects: &Path,
        coordination: Coordination,
        wait_ms: i64,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn Ids>,
    ) -> Result<Self, BlobError> {
        Ok(Self::with_env(Env::new(clock, ids)?, objects, coordination, wait_ms))
    }

    /// The same locks, whose changes of the disk fail as `faults` says; for tests.
    pub fn with_faults(&self, faults: Arc<dyn Faults>) -> Self {
        let env = Env { faults: Some(faults), ..(*self.env).clone() };
        Self::with_env(env, &self.objects, self.coordination, self.wait_ms)
    }

    fn with_env(env: Env, objects: &Path, coordination: Coordination, wait_ms: i64) -> Self {
        let heart = |name| Heart::new(name, Duration::from_millis(BEAT_MS));
        Self {
            env: Arc::new(env),
            objects: objects.to_owned(),
            coordination,
            wait_ms,
            heart: heart("lock-heartbeat"),
            backup_heart: heart("backup-heartbeat"),
            places: Mutex::default(),
            spare: Mutex::default(),
        }
    }

    /// Locks an address, and waits for it.
    ///
    /// # Errors
    /// `Locked`, if somebody else had it all the time.
    pub fn lock(&self, digest: &Digest) -> Result<Lock<'_>, BlobError> {
        self.acquire(Subject::Address(*digest), self.deadline())
    }

    /// Locks the next address of a batch, after the last one: a rename of the same file, unless somebody is there.
    ///
    /// Never waits with the last one in hand, since another batch may wait for that.
    ///
    /// # Errors
    /// As [`lock`](Self::lock) has; and if the last one can't be given back.
    pub fn lock_next<'l>(&'l self, last: Option<Lock<'l>>, digest: &Digest) -> Result<Lock<'l>, BlobError> {
        if let Some(mut lock) = last {
            if lock.move_to(Subject::Address(*digest)) {
                return Ok(lock);
            }
            lock.release()?;
        }
        self.lock(digest)
    }

    /// Locks what orders sweeps and backups: a short moment, with no wait inside.
    pub fn gate(&self) -> Result<Lock<'_>, BlobError> {
        self.acquire(Subject::Gate, self.deadline())
    }

    /// Refuses what only locks that others keep make safe.
    pub fn require_files(&self) -> Result<(), BlobError> {
        match self.coordination {
            Coordination::Required => Ok(()),
            Coordination::Process => Err(BlobError::Uncoordinated { path: self.objects.clone() }),
        }
    }

    fn deadline(&self) -> i64 {
        self.env.now_ms().saturating_add(self.wait_ms)
    }
}

/// A lock that is held; it ends with this value.
pub struct Lock<'l> {
    /// None in a store that takes no files, and after the release.
    held: Option<Held<'l>>,
    /// Ends after the file went, so that the next thread finds none.
    turn: Turn,
}

impl Lock<'_> {
    /// Makes sure that the lock is still held and will be for a while: what follows must follow at once.
    ///
    /// # Errors
    /// `LockLost`, if the file isn't ours any more, or others are about to think so.
    pub fn confirm(&self) -> Result<(), BlobError> {
        self.held.as_ref().map_or(Ok(()), |held| held.own.confirm())
    }

    /// Gives the lock back, and tells if its file can't be removed. (Dropping it only logs that.)
    pub fn release(mut self) -> Result<(), BlobError> {
        self.held.take().map_or(Ok(()), Held::release)
    }

    fn move_to(&mut self, subject: Subject) -> bool {
        let Some(turn) = self.turn.beside(subject) else { return false };
        let is_moved = self.held.as_mut().is_none_or(|held| held.move_to(&subject.file_name()));
        if is_moved {
            self.turn = turn;
        }
        is_moved
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            let path = held.own.path();
            if let Err(error) = held.release() {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(path = %path.display(), error, "a lock can't be given back");
            }
        }
    }
}

/// A lock's file, with the heart that touches it.
struct Held<'l> {
    own: Arc<OwnFile>,
    heart: &'l Heart,
    spare: &'l Mutex<Option<Spare>>,
    beat: u64,
}

impl<'l> Held<'l> {
    fn begin(own: OwnFile, locks: &'l Locks) -> Result<Self, BlobError> {
        let own = Arc::new(own);
        let (heart, spare) = (&locks.heart, &locks.spare);
        match heart.add(Arc::clone(&own) as _) {
            Ok(beat) => Ok(Self { own, heart, spare, beat }),
            Err(source) => {
                own.remove()?;
                Err(BlobError::io("start the heartbeat of", &own.path())(source))
            }
        }
    }

    /// Gives the file another name; not if that is taken, or the file isn't surely ours.
    fn move_to(&mut self, name: &OsStr) -> bool {
        let Some(moved) = self.own.move_to(name).map(Arc::new) else { return false };
        self.heart.replace(self.beat, Arc::clone(&moved) as _);
        self.own = moved;
        true
    }

    fn release(self) -> Result<(), BlobError> {
        self.heart.remove(self.beat);
        if self.spare.lock().is_some() {
            return self.own.remove();
        }
        let aside = self.own.set_aside()?;
        let before = std::mem::replace(&mut *self.spare.lock(), aside);
        if let Some(before) = before {
            before.discard();
        }
        Ok(())
    }
}
