//! The publisher: a thread that makes sealed saves blobs of the store, many under one barrier.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::{Vfs, VfsError};
use crate::blobs::BlobError;
use crate::engine::{EngineError, Sealed};
use crate::model::{Content, Digest, Ino, Seq};

/// How long a save waits for others that can share its barrier. With the time of a barrier it stays well below the
/// second within which a closed file survives a power cut.
const GATHER_STEP: Duration = Duration::from_millis(20);
const GATHER_STEPS: u32 = 5;

/// How many saves share a barrier at most.
const BATCH: usize = 1_024;

/// A sealed save that is to become a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SealedSave {
    pub artifact: Seq,
    pub ino: Ino,
    /// The name in `staging/`.
    pub name: String,
}

/// Saves that wait. Locking: one mutex, never held across I/O.
#[derive(Debug, Default)]
pub(super) struct Queue {
    inner: Mutex<Inner>,
    changed: Condvar,
    /// For whoever gathers: somebody waits, or there is nothing more to gather.
    hurry: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    waiting: Vec<SealedSave>,
    /// How many were ever queued, and how many of them were tried.
    queued: u64,
    tried: u64,
    /// How many are being published.
    running: usize,
    /// Somebody waits for the queue to become empty: nothing is gathered.
    drainers: usize,
    /// How many keep the publisher from beginning a batch.
    pauses: usize,
    stopped: bool,
}

impl Queue {
    pub fn push(&self, save: SealedSave) {
        let mut inner = self.inner.lock();
        inner.waiting.push(save);
        inner.queued += 1;
        self.changed.notify_all();
        if inner.waiting.len() >= BATCH {
            self.hurry.notify_all();
        }
    }

    /// Waits until everything that is queued now has been tried.
    pub fn drain(&self) {
        let mut inner = self.inner.lock();
        inner.drainers += 1;
        self.hurry.notify_all();
        let ticket = inner.queued;
        while !inner.stopped && inner.tried < ticket {
            self.changed.wait(&mut inner);
        }
        inner.drainers -= 1;
    }

    /// Waits until the saves that are being published now are noted.
    pub fn wait_for_running(&self) {
        let mut inner = self.inner.lock();
        while !inner.stopped && inner.running > 0 {
            self.changed.wait(&mut inner);
        }
    }

    /// Lets nothing be published until the pause is dropped: somebody else publishes meanwhile.
    pub fn pause(&self) -> Pause<'_> {
        self.inner.lock().pauses += 1;
        self.wait_for_running();
        Pause(self)
    }

    pub fn stop(&self) {
        self.inner.lock().stopped = true;
        self.changed.notify_all();
        self.hurry.notify_all();
    }

    /// The next saves to publish together; none when the mount is gone.
    fn next_batch(&self) -> Option<Vec<SealedSave>> {
        let mut inner = self.inner.lock();
        while inner.waiting.is_empty() || inner.pauses > 0 && !inner.stopped {
            if inner.stopped {
                return None;
            }
            self.changed.wait(&mut inner);
        }
        let mut left = GATHER_STEPS;
        while left > 0 && inner.drainers == 0 && !inner.stopped && inner.waiting.len() < BATCH {
            self.hurry.wait_for(&mut inner, GATHER_STEP);
            left -= 1;
        }
        while inner.pauses > 0 && !inner.stopped {
            self.changed.wait(&mut inner);
        }
        let count = inner.waiting.len().min(BATCH);
        let batch: Vec<_> = inner.waiting.drain(..count).collect();
        inner.running = batch.len();
        Some(batch)
    }

    fn batch_done(&self) {
        let mut inner = self.inner.lock();
        inner.tried += inner.running as u64;
        inner.running = 0;
        drop(inner);
        self.changed.notify_all();
    }
}

/// Keeps the publisher from beginning a batch.
#[derive(Debug)]
pub(super) struct Pause<'a>(&'a Queue);

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.0.inner.lock().pauses -= 1;
        self.0.changed.notify_all();
    }
}

/// Starts the thread; it ends when the queue is stopped or the mount is dropped, which it does not keep alive.
pub(super) fn start(vfs: &Arc<Vfs>) {
    let (queue, weak) = (Arc::clone(&vfs.publisher), Arc::downgrade(vfs));
    let spawned = std::thread::Builder::new().name("publisher".into()).spawn(move || run(&queue, &weak));
    if let Err(error) = spawned {
        vfs.note_problem(format!("saves stay in staging: the publisher can't be started: {error}"));
        vfs.publisher.stop();
    }
}

fn run(queue: &Queue, vfs: &Weak<Vfs>) {
    while let Some(batch) = queue.next_batch() {
        let Some(vfs) = vfs.upgrade() else { return };
        vfs.publish(&batch);
        queue.batch_done();
    }
}

impl Vfs {
    /// Queues what an earlier mount of the checkout left sealed.
    pub(super) fn requeue_staged(&self) -> std::result::Result<(), crate::engine::EngineError> {
        for save in self.workspace.in_catalog(self.workspace.catalog().staged_saves(self.checkout))? {
            let entry =
                self.workspace.in_catalog(self.workspace.catalog().entry_of(self.checkout, save.artifact))?;
            if let Some(entry) = entry {
                let (artifact, name) = (save.artifact, save.file);
                self.publisher.push(SealedSave { artifact, ino: entry.ino, name });
                save.before.into_iter().for_each(|file| self.delete_later(Content::Staged(file)));
            }
        }
        Ok(())
    }

    /// Publishes what the publisher could not, or did not come to: whoever asks wants to hear of failures.
    pub(super) fn publish_unsynced(&self) -> super::Result<()> {
        let left = self.workspace.catalog().unsynced_saves(self.checkout, self.now())?;
        if left.is_empty() {
            return Ok(());
        }
        let _pause = self.publisher.pause();
        let sealed = left.into_iter().map(|save| Sealed {
            checkout: self.checkout,
            artifact: save.artifact,
            file: save.file,
        });
        let results = self.workspace.publish(&sealed.collect::<Vec<_>>()).map_err(not_published)?;
        match results.into_iter().filter_map(std::result::Result::err).find(|error| !is_gone(error)) {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// Makes the saves of a batch blobs, but for those that a later save has replaced.
    fn publish(&self, batch: &[SealedSave]) {
        let batch: Vec<&SealedSave> = batch.iter().filter(|save| self.is_current(save)).collect();
        let sealed = |save: &SealedSave| Sealed {
            checkout: self.checkout,
            artifact: save.artifact,
            file: save.name.clone(),
        };
        let saves: Vec<Sealed> = batch.iter().copied().map(sealed).collect();
        let results = match self.workspace.publish(&saves) {
            Ok(results) => results,
            Err(error) => {
                return self.note_problem(format!("saves wait in staging for the next mount: {error}"));
            }
        };
        for (save, result) in batch.iter().zip(results) {
            match result {
                Ok(digest) => {
                    self.problems.forget(save);
                    self.note_published(save, digest);
                }
                // A check-in stored it, or a later save came meanwhile.
                Err(error) if is_gone(&error) => self.forget_note(),
                Err(error) => self.note_unpublished(save, &error),
            }
        }
    }

    /// Forgets the digests of saves that went before they were stored.
    fn forget_note(&self) {
        if let Err(error) = self.workspace.catalog().forget_stray_digests() {
            self.note_problem(format!("digests of replaced saves stay until the next mount: {error}"));
        }
    }

    /// Whether a node still has the save; one that nobody knows any more has its newest.
    fn is_current(&self, save: &SealedSave) -> bool {
        self.nodes
            .get(save.ino)
            .is_none_or(|node| matches!(&node.lock().content, Content::Staged(name) if *name == save.name))
    }

    fn note_published(&self, save: &SealedSave, digest: Digest) {
        let Some(node) = self.nodes.get(save.ino) else { return };
        let mut state = node.lock();
        if matches!(&state.content, Content::Staged(name) if *name == save.name) {
            state.content = Content::Blob(digest);
            state.unsynced_since_ms = None;
        }
    }
}

fn not_published(error: EngineError) -> VfsError {
    match error {
        EngineError::Catalog { source, .. } => source.into(),
        other => VfsError::Io { doing: "publish a save", source: std::io::Error::other(other) },
    }
}

fn is_gone(error: &BlobError) -> bool {
    error.io_error().is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}
