use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::blobs::faults::run_step;
use crate::blobs::{BlobError, Faults, Step};
use crate::clock::Clock;
use crate::ids::Ids;
use crate::model::Instant;
use crate::sys::{self, ProcessKey};

/// What the locks of a store work with.
#[derive(Clone)]
pub(super) struct Env {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) ids: Arc<dyn Ids>,
    pub(super) process: ProcessKey,
    pub(super) faults: Option<Arc<dyn Faults>>,
}

impl Env {
    pub(super) fn new(clock: Arc<dyn Clock>, ids: Arc<dyn Ids>) -> Result<Self, BlobError> {
        let process = sys::this_process().map_err(BlobError::io("read", Path::new("/proc/self/stat")))?;
        Ok(Self { clock, ids, process, faults: None })
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The boot's clock in milliseconds: it doesn't jump, and counts time that the machine slept.
    pub(super) fn now_ms(&self) -> i64 {
        self.now().boot_ms
    }

    pub(super) fn step<T>(&self, step: Step, action: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        run_step(self.faults.as_ref(), step, action)
    }
}
