use std::sync::Arc;

use super::Stamps;
use crate::blobs::Coordination;
use crate::clock::Clock;
use crate::ids::Ids;
use crate::sys;

/// What a successful put promises about a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The blob and every name on the way to it survive; a refused sync is an error.
    #[default]
    Required,
    /// Every sync is asked for, and a refused one is ignored: for filesystems that can't sync.
    BestEffort,
}

/// How a store on disk works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskSettings {
    /// What a put promises.
    pub durability: Durability,
    /// The mode of new blobs, before the umask. A peer opens blobs for reading and writing to sync them, so not 0400.
    pub blob_mode: u32,
    /// The mode of new directories, before the umask.
    pub dir_mode: u32,
    /// Whom an address is locked against while it changes.
    pub coordination: Coordination,
    /// How long a change may wait for the lock of its address, in milliseconds.
    pub lock_wait_ms: i64,
}

impl Default for DiskSettings {
    fn default() -> Self {
        Self {
            durability: Durability::default(),
            blob_mode: 0o600,
            dir_mode: 0o700,
            coordination: Coordination::default(),
            lock_wait_ms: 120_000,
        }
    }
}

impl DiskParts {
    /// The same for a store whose directories are shared with a group. Its blobs may be written by the group: who puts
    /// the same bytes again gives them a fresh mtime, and only who may write a file may do that (utimensat(2)).
    pub(super) fn shared(mut self) -> Self {
        self.settings.blob_mode = sys::with_group(self.settings.blob_mode);
        self.settings.dir_mode = sys::with_group(self.settings.dir_mode);
        self
    }
}

/// What a store on disk is made with.
#[derive(Clone)]
pub struct DiskParts {
    /// How it works.
    pub settings: DiskSettings,
    /// Where it keeps the stamps of blobs.
    pub stamps: Arc<dyn Stamps>,
    /// Makes the names of temporary files.
    pub ids: Arc<dyn Ids>,
    /// Tells the age of what others left.
    pub clock: Arc<dyn Clock>,
}
