use std::ffi::{OsStr, OsString};
use std::fs::{File, FileTimes};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::dir::{Dir, FileId, gone_is_removed};
use super::env::Env;
use super::found::{note_signer, read_token};
use super::heart::Beating;
use super::{FENCE_MS, LOCK_MODE};
use crate::blobs::{BlobError, Step};
use crate::model::{Instant, Timestamp};
use crate::sys;

const HELD: u8 = 0;
const LOST: u8 = 1;
const ENDED: u8 = 2;

/// A file that this process made and signed: a lock, a claim, or the backup marker.
pub(super) struct OwnFile {
    env: Arc<Env>,
    dir: Arc<Dir>,
    name: OsString,
    token: String,
    /// Open, and locked (flock(2)) as long as it is. The mutex is held to take or replace the reference.
    file: Mutex<Arc<File>>,
    /// The boot's clock before the last touch that is known to have been of our own file.
    beaten_ms: AtomicI64,
    state: AtomicU8,
}

impl OwnFile {
    /// Makes the file; none, if the name is taken.
    ///
    /// It is locked before it is signed, and signed before it has a name: who reads a token of ours finds it locked, or
    /// its holder dead, and no crash leaves a lock that nobody signed.
    pub(super) fn create(
        env: &Arc<Env>,
        dir: &Arc<Dir>,
        name: &OsStr,
        token: &str,
    ) -> Result<Option<Self>, BlobError> {
        dir.check()?;
        let now = env.now();
        let file = match make_signed(env, dir, name, token, now) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(dir.swapped()),
            Err(error) => return Err(dir.error("create", name)(error)),
        };
        Ok(Some(Self {
            env: Arc::clone(env),
            dir: Arc::clone(dir),
            name: name.to_owned(),
            token: token.to_owned(),
            file: Mutex::new(Arc::new(file)),
            beaten_ms: AtomicI64::new(now.boot_ms),
            state: AtomicU8::new(HELD),
        }))
    }

    pub(super) fn path(&self) -> PathBuf {
        self.dir.path_of(&self.name)
    }

    /// Makes sure that the file is ours, and that nobody can think otherwise soon.
    pub(super) fn confirm(&self) -> Result<(), BlobError> {
        self.dir.check()?;
        let ours = self.find()?.is_some();
        if ours && !self.is_overdue() && self.state.load(Ordering::Relaxed) == HELD {
            return Ok(());
        }
        Err(BlobError::LockLost { path: self.path() })
    }

    /// Gives the file another name, where that is free: the end of one lock and the beginning of another.
    ///
    /// None, if that can't be done at once; then this one is as it was.
    pub(super) fn move_to(&self, name: &OsStr) -> Option<Self> {
        self.confirm().ok()?;
        let (file, now) = (Arc::clone(&self.file.lock()), self.env.now());
        touch(&self.env, &file, now).ok()?;
        // A beat that is under way must not take the old name for lost.
        self.state.store(ENDED, Ordering::Relaxed);
        let rename = || sys::rename_new_at(&self.dir.file, &self.name, name);
        if self.env.step(Step::NameLock, rename).is_err() {
            self.state.store(HELD, Ordering::Relaxed);
            return None;
        }
        Some(Self {
            env: Arc::clone(&self.env),
            dir: Arc::clone(&self.dir),
            name: name.to_owned(),
            token: self.token.clone(),
            file: Mutex::new(file),
            beaten_ms: AtomicI64::new(now.boot_ms),
            state: AtomicU8::new(HELD),
        })
    }

    /// Removes the file if it is ours; if it is gone or another's, nothing is left to do.
    pub(super) fn remove(&self) -> Result<(), BlobError> {
        match self.end()? {
            Some(_) => self.unlink(),
            None => Ok(()),
        }
    }

    /// As [`remove`](Self::remove), but keeps the file for the next lock, under a name that locks nothing.
    pub(super) fn set_aside(&self) -> Result<Option<Spare>, BlobError> {
        let Some(file) = self.end()? else { return Ok(None) };
        let name = Spare::name(&self.token);
        let rename = || sys::rename_new_at(&self.dir.file, &self.name, &name);
        match self.env.step(Step::RemoveLock, rename) {
            Ok(()) => {
                let length = self.token.len();
                Ok(Some(Spare { dir: Arc::clone(&self.dir), name, file, length }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // The filesystem can't rename so, or something has the name: nobody needs the file.
            Err(error) if sys::refuses_rename_new(&error) => self.unlink().map(|()| None),
            Err(error) => Err(self.error("remove", error)),
        }
    }

    /// Lets nobody take this for held any more; the file, if it is still ours.
    fn end(&self) -> Result<Option<Arc<File>>, BlobError> {
        if self.is_overdue() {
            // Others may be about to take it away: so it is young again, and they see that before they do.
            self.beat();
        }
        self.state.store(ENDED, Ordering::Relaxed);
        self.dir.check()?;
        self.find()
    }

    fn unlink(&self) -> Result<(), BlobError> {
        let removed = self.env.step(Step::RemoveLock, || sys::unlink_at(&self.dir.file, &self.name));
        gone_is_removed(removed).map_err(|error| self.error("remove", error))
    }

    fn is_overdue(&self) -> bool {
        self.env.now_ms() - self.beaten_ms.load(Ordering::Relaxed) >= FENCE_MS
    }

    /// The file at our name, if it holds our token.
    fn find(&self) -> Result<Option<Arc<File>>, BlobError> {
        let file = Arc::clone(&self.file.lock());
        let is_same = || {
            let is_there = self.dir.holds(&self.name, FileId::of(&file.metadata()?))?;
            Ok(is_there && self.is_signed(&file)?)
        };
        if is_same().map_err(|error| self.error("read", error))? {
            return Ok(Some(file));
        }
        self.find_anew().map_err(|error| self.error("read", error))
    }

    /// Looks for our token in another file: a peer that took ours for an older one writes it back.
    fn find_anew(&self) -> io::Result<Option<Arc<File>>> {
        let file = match sys::open_file_at(&self.dir.file, &self.name) {
            Ok(file) => Arc::new(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if file.metadata()?.is_dir() || read_token(&file)? != self.token.as_bytes() {
            return Ok(None);
        }
        // Somebody who looks whether we live may have it locked for a moment; the next beat tries again.
        if file.try_lock().is_ok() {
            *self.file.lock() = Arc::clone(&file);
        }
        Ok(Some(file))
    }

    fn is_signed(&self, file: &File) -> io::Result<bool> {
        let mut found = vec![0; self.token.len() + 1];
        let count = file.read_at(&mut found, 0)?;
        Ok(&found[..count] == self.token.as_bytes())
    }

    fn error(&self, action: &'static str, error: io::Error) -> BlobError {
        self.dir.error(action, &self.name)(error)
    }
}

/// A file of a lock that ended, kept for the next: ext4 looks at each inode that was freed within minutes before it
/// makes a new one, so that a file made and removed for each lock makes all others of the directory slow.
///
/// Who dies leaves it, and whoever sweeps the directory an hour later removes it.
pub(super) struct Spare {
    dir: Arc<Dir>,
    name: OsString,
    file: Arc<File>,
    /// The bytes of the token that it holds.
    length: usize,
}

/// What became of an attempt to make a spare file a lock.
pub(super) enum Reuse {
    /// It is the lock.
    Held(OwnFile),
    /// Somebody else has the name.
    Taken(Spare),
    /// It can't be used any more.
    Gone,
}

impl Spare {
    fn name(token: &str) -> OsString {
        format!("spare-{token}").into()
    }

    pub(super) fn is_in(&self, dir: &Dir) -> bool {
        self.dir.id == dir.id
    }

    /// Signs the file anew and gives it the name of a lock, if that is free.
    pub(super) fn reuse(mut self, env: &Arc<Env>, name: &OsStr, token: &str) -> Result<Reuse, BlobError> {
        self.dir.check()?;
        let now = env.now();
        if self.sign(env, token, now).is_err() {
            self.discard();
            return Ok(Reuse::Gone);
        }
        let rename = || sys::rename_new_at(&self.dir.file, &self.name, name);
        match env.step(Step::NameLock, rename) {
            Ok(()) => Ok(Reuse::Held(OwnFile {
                env: Arc::clone(env),
                dir: self.dir,
                name: name.to_owned(),
                token: token.to_owned(),
                file: Mutex::new(self.file),
                beaten_ms: AtomicI64::new(now.boot_ms),
                state: AtomicU8::new(HELD),
            })),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Reuse::Taken(self)),
            Err(_) => {
                self.discard();
                Ok(Reuse::Gone)
            }
        }
    }

    fn sign(&mut self, env: &Env, token: &str, now: Instant) -> io::Result<()> {
        env.step(Step::WriteLock, || self.file.write_all_at(token.as_bytes(), 0))?;
        if self.length != token.len() {
            self.file.set_len(token.len() as u64)?;
            self.length = token.len();
        }
        touch(env, &self.file, now)
    }

    /// Removes the file; where that fails, a sweep does it later.
    pub(super) fn discard(self) {
        let is_ours = self.file.metadata().and_then(|known| self.dir.holds(&self.name, FileId::of(&known)));
        if matches!(is_ours, Ok(true)) {
            let _ = sys::unlink_at(&self.dir.file, &self.name);
        }
    }
}

impl Beating for OwnFile {
    /// Touches the file if it is ours. The touch goes through its descriptor: it never reaches another's.
    fn beat(&self) -> bool {
        let now = self.env.now();
        let touched = self.dir.check().and_then(|()| self.find()).and_then(|file| {
            file.map(|file| touch(&self.env, &file, now).map_err(|error| self.error("freshen", error)))
                .transpose()
        });
        let path = self.path();
        match touched {
            Ok(Some(())) => self.beaten_ms.store(now.boot_ms, Ordering::Relaxed),
            Ok(None) => {
                if self.state.compare_exchange(HELD, LOST, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                    tracing::warn!(path = %path.display(), "a lock was lost while it was held");
                }
                return false;
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(path = %path.display(), error, "a heartbeat failed");
            }
        }
        true
    }
}

fn make_signed(env: &Env, dir: &Dir, name: &OsStr, token: &str, now: Instant) -> io::Result<File> {
    let file = match env.step(Step::CreateLock, || sys::create_unnamed_at(&dir.file, LOCK_MODE)) {
        Err(error) if sys::lacks_unnamed_files(&error) => return make_named(env, dir, name, token, now),
        created => created?,
    };
    sign(env, &file, token, now)?;
    env.step(Step::NameLock, || sys::name_at(&file, &dir.file, name))?;
    Ok(file)
}

/// Makes and signs the file under its name: a crash in between leaves it unsigned, which costs others a minute.
fn make_named(env: &Env, dir: &Dir, name: &OsStr, token: &str, now: Instant) -> io::Result<File> {
    let file = env.step(Step::NameLock, || sys::create_file_at(&dir.file, name, LOCK_MODE))?;
    if let Err(error) = sign(env, &file, token, now) {
        if dir.holds(name, FileId::of(&file.metadata()?))? {
            env.step(Step::RemoveLock, || sys::unlink_at(&dir.file, name))?;
        }
        return Err(error);
    }
    Ok(file)
}

fn sign(env: &Env, mut file: &File, token: &str, now: Instant) -> io::Result<()> {
    file.try_lock()?;
    note_signer(file, token);
    env.step(Step::WriteLock, || file.write_all(token.as_bytes()))?;
    touch(env, file, now)
}

fn touch(env: &Env, file: &File, now: Instant) -> io::Result<()> {
    let time = system_time(now.wall);
    env.step(Step::TouchLock, || file.set_times(FileTimes::new().set_accessed(time).set_modified(time)))
}

/// A time for a file; before 1970 nothing was ever locked.
fn system_time(time: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(u64::try_from(time.0).unwrap_or(0))
}
