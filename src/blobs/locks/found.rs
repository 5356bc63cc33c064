use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

use super::STALE_MS;
use super::dir::{Dir, FileId, gone_is_removed};
use super::env::Env;
use super::token::{self, Signer};
use crate::blobs::{BlobError, Step};
use crate::sys;

/// How much is read of a token: far more than any peer writes.
const TOKEN_BYTES: u64 = 64 << 10;

/// The attribute that holds a token of ours once more.
const SIGNER_XATTR: &std::ffi::CStr = c"user.leasehold.signer";

/// What tells one holder of a name from the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Generation {
    /// The text in the file; it may be empty for a moment, and after a crash.
    Token(Vec<u8>),
    /// An early kind of lock, which names no owner.
    Directory,
}

impl Generation {
    /// The generation as a part of the name of a claim.
    pub(super) fn in_name(&self) -> String {
        match self {
            Self::Token(token) => token::in_name(token),
            Self::Directory => "legacy-directory".into(),
        }
    }
}

/// What was found at the name of a lock, a claim or the marker.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) generation: Generation,
    /// Whether nobody holds it: its holder is dead, or hasn't touched it for too long.
    pub(super) is_free: bool,
    id: FileId,
}

/// Looks at a name: first who holds it, then since when, so that a new holder is never judged by an old time.
pub(super) fn look(env: &Env, dir: &Dir, name: &OsStr) -> Result<Option<Found>, BlobError> {
    let file = match sys::open_file_at(&dir.file, name) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(dir.error("open", name)(error)),
    };
    let generation = read_generation(&file).map_err(dir.error("read", name))?;
    let metadata = file.metadata().map_err(dir.error("stat", name))?;
    let is_free = is_stale(env, dir, name, &metadata) || is_orphan(env, &file, &generation);
    Ok(Some(Found { generation, is_free, id: FileId::of(&metadata) }))
}

/// Removes a name if it still is of what was found there.
pub(super) fn remove_found(env: &Env, dir: &Dir, name: &OsStr, found: &Found) -> Result<(), BlobError> {
    dir.check()?;
    let remove = || match dir.holds(name, found.id)? {
        true => env.step(Step::RemoveLock, || sys::unlink_at(&dir.file, name)),
        false => Ok(()),
    };
    gone_is_removed(remove()).map_err(dir.error("remove", name))
}

fn read_generation(file: &File) -> io::Result<Generation> {
    match read_token(file) {
        Ok(token) => Ok(Generation::Token(token)),
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(Generation::Directory),
        Err(error) => Err(error),
    }
}

pub(super) fn read_token(file: &File) -> io::Result<Vec<u8>> {
    let mut token = Vec::with_capacity(128);
    file.take(TOKEN_BYTES).read_to_end(&mut token)?;
    Ok(token)
}

/// Both times in whole milliseconds, as a peer counts them. A time in the future is no age.
fn is_stale(env: &Env, dir: &Dir, name: &OsStr, metadata: &Metadata) -> bool {
    let age_ms = env.now().wall.0.div_euclid(1_000_000) - mtime_ms(metadata);
    if age_ms < -STALE_MS {
        let path = dir.path_of(name);
        tracing::warn!(path = %path.display(), ahead_ms = -age_ms, "a lock of the future never ends by itself");
    }
    age_ms > STALE_MS
}

/// Whether it is one of ours whose holder is dead: nobody has it locked (flock(2) ends with the process), and no other
/// process of that number runs. The latter is for a lock that a peer took away and wrote anew: its holder has yet to find
/// that out.
fn is_orphan(env: &Env, file: &File, generation: &Generation) -> bool {
    let Generation::Token(token) = generation else { return false };
    // Closing the file unlocks it.
    signer_of(file, token).is_some_and(|signer| file.try_lock().is_ok() && !signer.lives_elsewhere(env))
}

/// Who signed a file, if it is one of ours; after a power cut the name may be there without what was written to the file.
fn signer_of(file: &File, token: &[u8]) -> Option<Signer> {
    if token.iter().any(|byte| *byte != 0) {
        return Signer::of(token);
    }
    sys::xattr_of(file, SIGNER_XATTR).ok().flatten().and_then(|token| Signer::of(&token))
}

/// Notes who signs a file where a power cut leaves it: with the name, in the filesystem's journal. Where the filesystem
/// can't, such a lock costs others a minute.
pub(super) fn note_signer(file: &File, token: &str) {
    if let Err(error) = sys::set_xattr_of(file, SIGNER_XATTR, token.as_bytes()) {
        tracing::trace!(%error, "a lock has no attribute");
    }
}

fn mtime_ms(metadata: &Metadata) -> i64 {
    metadata.mtime().saturating_mul(1_000).saturating_add(metadata.mtime_nsec() / 1_000_000)
}
