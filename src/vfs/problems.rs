//! What went wrong in the background, for `status` and the log; and saves that could not be stored, which are tried again.

use parking_lot::Mutex;

use super::Vfs;
use super::publisher::SealedSave;
use crate::blobs::BlobError;

/// How many problems are kept: one that comes again and again tells nothing new.
const KEPT: usize = 100;

/// How long after a failure a save is tried again, in milliseconds: a lock that nobody holds ends within a minute.
const RETRY_MS: i64 = 10_000;

/// Problems of a mount. Locking: one mutex, for a look only.
#[derive(Debug, Default)]
pub(super) struct Problems(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    lines: Vec<String>,
    unpublished: Vec<Unpublished>,
}

/// A save that could not be stored.
#[derive(Debug)]
struct Unpublished {
    save: SealedSave,
    line: String,
    tried_boot_ms: i64,
}

impl Problems {
    fn all(&self) -> Vec<String> {
        let inner = self.0.lock();
        let unpublished = inner.unpublished.iter().map(|one| one.line.clone());
        inner.lines.iter().cloned().chain(unpublished).collect()
    }

    /// Forgets that a save could not be stored.
    pub fn forget(&self, save: &SealedSave) {
        self.0.lock().unpublished.retain(|one| one.save != *save);
    }

    /// The saves that are due to be tried again; they count as tried now.
    fn take_due(&self, now_boot_ms: i64) -> Vec<SealedSave> {
        let mut inner = self.0.lock();
        let due = inner.unpublished.iter_mut().filter(|one| now_boot_ms - one.tried_boot_ms >= RETRY_MS);
        due.map(|one| {
            one.tried_boot_ms = now_boot_ms;
            one.save.clone()
        })
        .collect()
    }

    fn unpublished(&self) -> Vec<SealedSave> {
        self.0.lock().unpublished.iter().map(|one| one.save.clone()).collect()
    }
}

impl Vfs {
    /// Notes what went wrong in the background: `status` shows it, and the log has it.
    pub(super) fn note_problem(&self, problem: String) {
        tracing::warn!("{problem}");
        let mut inner = self.problems.0.lock();
        if inner.lines.len() < KEPT {
            inner.lines.push(problem);
        }
    }

    /// What went wrong in the background, and what of it was not mended since.
    pub(super) fn present_problems(&self) -> Vec<String> {
        self.drop_replaced_failures();
        self.problems.all()
    }

    /// Notes that a save could not be stored; it is tried again.
    pub(super) fn note_unpublished(&self, save: &SealedSave, error: &BlobError) {
        let path = self.workspace.catalog().any_path_of(self.checkout, save.artifact).unwrap_or_default();
        let line = format!("{path}: its last save could not be stored, and is tried again: {error}");
        tracing::warn!("{line}");
        let one = Unpublished { save: save.clone(), line, tried_boot_ms: self.now().boot_ms };
        let mut inner = self.problems.0.lock();
        inner.unpublished.retain(|known| known.save != one.save);
        inner.unpublished.push(one);
    }

    /// Tries saves again that could not be stored some time ago.
    pub(super) fn retry_unpublished(&self, now_boot_ms: i64) {
        self.drop_replaced_failures();
        self.problems.take_due(now_boot_ms).into_iter().for_each(|save| self.publisher.push(save));
    }

    /// Forgets failures of saves that others have replaced, or that somebody else has stored since.
    fn drop_replaced_failures(&self) {
        for save in self.problems.unpublished() {
            if matches!(self.workspace.catalog().is_staged(&save.name), Ok(false)) {
                self.problems.forget(&save);
            }
        }
    }
}
