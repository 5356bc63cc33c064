//! The backup lease: while its marker is there, nobody removes a blob.

use std::ffi::OsStr;
use std::sync::Arc;

use super::found::{look, remove_found};
use super::heart::Beating;
use super::own::OwnFile;
use super::{Lock, Locks, token};
use crate::blobs::BlobError;

/// The marker, in `objects/`.
const MARKER: &str = ".backup-lease";

/// Keeps all blobs where they are until it ends; puts go on.
///
/// A backup is good only if [`finish`](Self::finish) says so. Dropped, it ends as a backup that failed.
pub struct BackupLease {
    /// None after the end.
    marker: Option<Arc<Marker>>,
    beat: u64,
}

/// The marker with what its beats need. It keeps the locks alive as long as it is beaten for.
struct Marker {
    own: OwnFile,
    locks: Arc<Locks>,
}

impl Locks {
    /// Begins a backup; waits for another one to end.
    ///
    /// # Errors
    /// `Uncoordinated`; `Locked`, if another backup went on all the time.
    pub fn begin_backup(self: &Arc<Self>) -> Result<BackupLease, BlobError> {
        self.require_files()?;
        let (begun_ms, deadline_ms, token) = (self.env.now_ms(), self.deadline(), token::new(&self.env));
        loop {
            let gate = self.acquire(super::Subject::Gate, deadline_ms)?;
            if !self.backup_is_live(&gate)?
                && let Some(own) =
                    OwnFile::create(&self.env, &self.places()?.objects, OsStr::new(MARKER), &token)?
            {
                return BackupLease::begin(Marker { own, locks: Arc::clone(self) }, gate);
            }
            gate.release()?;
            if self.env.now_ms() >= deadline_ms {
                let waited_ms = self.env.now_ms() - begun_ms;
                return Err(BlobError::Locked { path: self.objects.join(MARKER), waited_ms });
            }
            self.pause(deadline_ms);
        }
    }

    /// Whether somebody makes a backup; the marker of one who is no more is removed.
    pub fn backup_is_live(&self, _gate: &Lock<'_>) -> Result<bool, BlobError> {
        let (name, objects) = (OsStr::new(MARKER), &self.places()?.objects);
        match look(&self.env, objects, name)? {
            Some(found) if found.is_free => remove_found(&self.env, objects, name, &found).map(|()| false),
            found => Ok(found.is_some()),
        }
    }
}

impl BackupLease {
    /// From here on the marker goes with this value, whatever fails.
    fn begin(marker: Marker, gate: Lock<'_>) -> Result<Self, BlobError> {
        let marker = Arc::new(marker);
        let heart = &marker.locks.backup_heart;
        let beat = match heart.add(Arc::clone(&marker) as _) {
            Ok(beat) => beat,
            Err(source) => {
                marker.own.remove()?;
                return Err(BlobError::io("start the heartbeat of", &marker.own.path())(source));
            }
        };
        let lease = Self { marker: Some(marker), beat };
        gate.release()?;
        Ok(lease)
    }

    /// Makes sure that nobody could remove a blob since the beginning.
    ///
    /// # Errors
    /// `LockLost`: what was copied so far may be incomplete.
    pub fn confirm(&self) -> Result<(), BlobError> {
        self.marker.as_ref().map_or(Ok(()), |marker| marker.own.confirm())
    }

    /// Ends the backup.
    ///
    /// # Errors
    /// `LockLost`, if blobs may have been removed meanwhile: the backup failed.
    pub fn finish(mut self) -> Result<(), BlobError> {
        let Some(marker) = self.marker.take() else { return Ok(()) };
        let confirmed = marker.own.confirm();
        let ended = marker.end(self.beat);
        confirmed.and(ended)
    }
}

impl Drop for BackupLease {
    fn drop(&mut self) {
        let Some(marker) = self.marker.take() else { return };
        if let Err(error) = marker.end(self.beat) {
            let (path, error) = (marker.own.path(), &error as &dyn std::error::Error);
            tracing::warn!(path = %path.display(), error, "the marker of a backup can't be removed");
        }
    }
}

impl Marker {
    fn end(&self, beat: u64) -> Result<(), BlobError> {
        self.locks.backup_heart.remove(beat);
        let gate = self.locks.gate()?;
        self.own.remove()?;
        gate.release()
    }
}

impl Beating for Marker {
    fn beat(&self) -> bool {
        let goes_on = match self.locks.gate() {
            Ok(gate) => {
                let goes_on = self.own.beat();
                gate.release().map(|()| goes_on)
            }
            Err(error) => Err(error),
        };
        goes_on.unwrap_or_else(|error| {
            let (path, error) = (self.own.path(), &error as &dyn std::error::Error);
            tracing::warn!(path = %path.display(), error, "a heartbeat failed");
            true
        })
    }
}
