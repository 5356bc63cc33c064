//! The publisher: a thread that makes sealed saves blobs of the store, many under one barrier.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::{Result, Vfs};
use crate::blobs::BlobError;
use crate::model::{Content, Digest, Ino, Seq};

/// How long a save waits for others that can share its barrier. With the time of a barrier it stays well below the
/// second within which a closed file survives a power cut.
const GATHER: Duration = Duration::from_millis(100);

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
}

#[derive(Debug, Default)]
struct Inner {
    waiting: Vec<SealedSave>,
    /// How many are being published.
    running: usize,
    /// Somebody waits for the queue to become empty: nothing is gathered.
    drainers: usize,
    stopped: bool,
}

impl Queue {
    pub fn push(&self, save: SealedSave) {
        self.inner.lock().waiting.push(save);
        self.changed.notify_all();
    }

    /// Waits until everything that is queued now has been tried.
    pub fn drain(&self) {
        let mut inner = self.inner.lock();
        inner.drainers += 1;
        self.changed.notify_all();
        while !inner.stopped && (!inner.waiting.is_empty() || inner.running > 0) {
            self.changed.wait(&mut inner);
        }
        inner.drainers -= 1;
    }

    pub fn stop(&self) {
        self.inner.lock().stopped = true;
        self.changed.notify_all();
    }

    /// The next saves to publish together; none when the mount is gone.
    fn next_batch(&self) -> Option<Vec<SealedSave>> {
        let mut inner = self.inner.lock();
        while inner.waiting.is_empty() {
            if inner.stopped {
                return None;
            }
            self.changed.wait(&mut inner);
        }
        if inner.drainers == 0 && inner.waiting.len() < BATCH {
            self.changed.wait_for(&mut inner, GATHER);
        }
        let count = inner.waiting.len().min(BATCH);
        let batch: Vec<_> = inner.waiting.drain(..count).collect();
        inner.running = batch.len();
        Some(batch)
    }

    fn batch_done(&self) {
        self.inner.lock().running = 0;
        self.changed.notify_all();
    }
}

/// Starts the thread; it ends when the queue is stopped.
pub(super) fn start(vfs: &Arc<Vfs>) {
    let weak = Arc::downgrade(vfs);
    let spawned = std::thread::Builder::new().name("publisher".into()).spawn(move || run(&weak));
    if let Err(error) = spawned {
        vfs.note_problem(format!("saves stay in staging: the publisher can't be started: {error}"));
        vfs.publisher.stop();
    }
}

fn run(vfs: &Weak<Vfs>) {
    while let Some(vfs) = vfs.upgrade() {
        let Some(batch) = vfs.publisher.next_batch() else { return };
        vfs.publish(&batch);
        vfs.publisher.batch_done();
    }
}

impl Vfs {
    /// Queues what an earlier mount of the checkout left sealed.
    pub(super) fn requeue_staged(&self) -> std::result::Result<(), crate::engine::EngineError> {
        let staged = self.workspace.staged_drafts(self.checkout)?;
        for (artifact, ino, name) in staged {
            self.publisher.push(SealedSave { artifact, ino, name });
        }
        Ok(())
    }

    fn publish(&self, batch: &[SealedSave]) {
        let staging = self.workspace.layout().staging();
        let paths: Vec<_> = batch.iter().map(|save| staging.join(&save.name)).collect();
        let adopted = self.workspace.blobs().adopt(&paths);
        let mut published = Vec::with_capacity(batch.len());
        for (save, result) in batch.iter().zip(adopted) {
            match result {
                Ok((digest, _)) => published.push((save, digest)),
                // The draft got another content meanwhile, and its file was removed.
                Err(error) if is_gone(&error) => {}
                Err(error) => {
                    self.note_problem(format!("{}: a save could not be stored: {error}", save.name))
                }
            }
        }
        if let Err(error) = self.note_published(&published) {
            self.note_problem(format!(
                "saves were stored, but not noted, and are found at the next mount: {error}"
            ));
        }
    }

    fn note_published(&self, published: &[(&SealedSave, Digest)]) -> Result<()> {
        let row = |(save, digest): &(&SealedSave, Digest)| {
            (self.checkout, save.artifact, save.name.clone(), *digest)
        };
        let rows: Vec<_> = published.iter().map(row).collect();
        self.workspace.catalog().publish(&rows)?;
        for (save, digest) in published {
            let Some(node) = self.nodes.get(save.ino) else { continue };
            let mut state = node.lock();
            if matches!(&state.content, Content::Staged(name) if *name == save.name) {
                state.content = Content::Blob(*digest);
            }
        }
        Ok(())
    }
}

fn is_gone(error: &BlobError) -> bool {
    error.io_error().is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}
