//! How very many sources become blobs: an import.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use super::DiskStore;
use super::ground::Ground;
use super::publish::{Body, Candidate};
use crate::blobs::BlobError;
use crate::blobs::hashing::BUFFER_BYTES;
use crate::model::Digest;
use crate::sys;

/// How many files share their barriers: more doesn't measure faster.
const BATCH_FILES: usize = 2048;
/// How many bytes share their barriers, so that the disk begins early and a crash costs little.
const BATCH_BYTES: u64 = 64 << 20;
/// How many bytes of a batch may be in memory, for the case that what is at their addresses is not what it should be.
const KNOWN_BYTES: u64 = 8 << 20;
/// How many batches may wait for a barrier while the next one is written.
const BATCHES_WAITING: usize = 1;

/// Files that were written together and share their barriers.
struct Batch {
    /// Opened before the first file was written, so that a syncfs of its staging reports whatever fails after.
    ground: Ground,
    files: Vec<Result<Candidate, BlobError>>,
    bytes: u64,
    /// How many of the bytes are in memory.
    known_bytes: u64,
}

impl Batch {
    fn has_room(&self) -> bool {
        self.files.len() < BATCH_FILES && self.bytes < BATCH_BYTES && self.known_bytes < KNOWN_BYTES
    }

    fn take(&mut self, file: Result<Candidate, BlobError>) {
        if let Ok(candidate) = &file {
            self.bytes += candidate.size;
            if let Body::Known(bytes) = &candidate.body {
                self.known_bytes += bytes.len() as u64;
            }
        }
        self.files.push(file);
    }
}

type Outcomes = Vec<Result<(Digest, u64), BlobError>>;

impl DiskStore {
    /// Stores very many sources: each is streamed and hashed once, and batches of them share their barriers.
    ///
    /// While one batch is made durable the next one is written. `stored` is called on this thread once for each source,
    /// in their order, when it is durable or has failed: it is the place for a progress bar. Sources are opened one at a
    /// time. Memory: one buffer, and for each of three batches 8 MiB and some hundred bytes for each file, whatever the sizes.
    ///
    /// # Errors
    /// Only what keeps all from being stored; what keeps one goes to `stored`.
    pub fn put_batch<'s>(
        &self,
        sources: &mut dyn Iterator<Item = io::Result<Box<dyn Read + 's>>>,
        stored: &mut dyn FnMut(usize, Result<(Digest, u64), BlobError>),
    ) -> Result<(), BlobError> {
        let (batches, waiting) = sync_channel(BATCHES_WAITING);
        let (outcomes, done) = channel();
        let mut number = 0;
        let mut report = |outcomes: Outcomes| {
            for outcome in outcomes {
                stored(number, outcome);
                number += 1;
            }
        };
        thread::scope(|scope| {
            scope.spawn(move || self.land_all(&waiting, &outcomes));
            let written = self.write_all(sources, batches, &mut || done.try_iter().for_each(&mut report));
            done.iter().for_each(report);
            written
        })
    }

    /// Writes batch after batch and hands them on; `between` is called after each.
    fn write_all<'s>(
        &self,
        sources: &mut dyn Iterator<Item = io::Result<Box<dyn Read + 's>>>,
        batches: SyncSender<Batch>,
        between: &mut dyn FnMut(),
    ) -> Result<(), BlobError> {
        let mut sources = sources.peekable();
        let mut buffer = vec![0; BUFFER_BYTES];
        while sources.peek().is_some() {
            let batch = self.write_batch(&mut sources, &mut buffer)?;
            batches.send(batch).expect("BUG: the other thread ends after this one");
            between();
        }
        Ok(())
    }

    fn write_batch<'s>(
        &self,
        sources: &mut dyn Iterator<Item = io::Result<Box<dyn Read + 's>>>,
        buffer: &mut [u8],
    ) -> Result<Batch, BlobError> {
        let files = Vec::with_capacity(BATCH_FILES);
        let mut batch = Batch { ground: self.ground()?, files, bytes: 0, known_bytes: 0 };
        while batch.has_room() {
            let Some(source) = sources.next() else { break };
            let written = source
                .map_err(|source| BlobError::Source { source })
                .and_then(|mut source| self.write_temporary(&batch.ground, &mut source, buffer));
            batch.take(written.map(|(candidate, _)| candidate));
        }
        Ok(batch)
    }

    fn land_all(&self, batches: &Receiver<Batch>, outcomes: &Sender<Outcomes>) {
        for batch in batches {
            outcomes.send(self.land(batch)).expect("BUG: the other thread waits for all outcomes");
        }
    }

    /// Makes a batch durable and publishes it; what fails is removed.
    fn land(&self, mut batch: Batch) -> Outcomes {
        let mut outcomes: Vec<Result<(), BlobError>> = Vec::with_capacity(batch.files.len());
        let mut candidates = Vec::with_capacity(batch.files.len());
        self.sync_batch(&mut batch);
        for file in batch.files {
            outcomes.push(file.map(|candidate| candidates.push(candidate)));
        }
        let published = self.publish(&batch.ground, &candidates);
        let mut published = candidates.into_iter().zip(published).map(|(candidate, result)| {
            if result.is_err() {
                self.discard(&batch.ground, &candidate);
            }
            result.map(|()| (candidate.digest, candidate.size))
        });
        let finish =
            |written: Result<(), _>| written.and_then(|()| published.next().expect("BUG: each is published"));
        outcomes.into_iter().map(finish).collect()
    }

    fn sync_batch(&self, batch: &mut Batch) {
        if self.steps.sync_filesystem(&batch.ground.staging.file).is_ok() {
            return;
        }
        // It may have told of other files; each file tells its own error.
        for file in &mut batch.files {
            let Ok(candidate) = file else { continue };
            if let Err(source) = self.steps.tolerate(self.sync_alone(&batch.ground, candidate)) {
                self.discard(&batch.ground, candidate);
                *file = Err(candidate.sync_error(self, source));
            }
        }
    }

    fn sync_alone(&self, ground: &Ground, candidate: &Candidate) -> io::Result<()> {
        let Body::Staged { name, .. } = &candidate.body else { return Ok(()) };
        self.steps.sync_file(&sys::open_file_at(&ground.staging.file, name)?)
    }
}
