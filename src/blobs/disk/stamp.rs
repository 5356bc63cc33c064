use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use parking_lot::Mutex;

use crate::model::Digest;
use crate::sys::Facts;

/// What a file was when this program wrote or verified it: while it still is, its bytes are the same.
///
/// Any write, truncation or replacement changes at least one of the four. (ext4 and XFS give a change that follows a
/// stat its own ctime since Linux 6.13; before that, one within the same clock tick, 4 ms, could go unseen.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The inode number.
    pub inode: u64,
    /// The size in bytes.
    pub size: u64,
    /// The time of the last write, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// The time of the last change of bytes or attributes, in nanoseconds since 1970; a rename is one on ext4.
    pub ctime_ns: i64,
}

impl Stamp {
    /// The stamp of a file with these attributes.
    pub fn of(metadata: &Metadata) -> Self {
        Self {
            inode: metadata.ino(),
            size: metadata.size(),
            mtime_ns: metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec()),
            ctime_ns: metadata.ctime().saturating_mul(1_000_000_000).saturating_add(metadata.ctime_nsec()),
        }
    }

    /// The stamp of what a name stands for.
    pub(super) fn of_facts(facts: &Facts) -> Self {
        let &Facts { inode, size, mtime_ns, ctime_ns, .. } = facts;
        Self { inode, size, mtime_ns, ctime_ns }
    }

    /// Whether the same bytes may be there: everything but ctime, which attributes and renames move, too.
    pub(super) fn same_content(&self, other: &Self) -> bool {
        (self.inode, self.size, self.mtime_ns) == (other.inode, other.size, other.mtime_ns)
    }
}

/// Keeps the stamps of blobs; a lost or old one costs a verification, nothing else.
pub trait Stamps: Send + Sync {
    /// The last stamp that was recorded for a blob.
    fn stamp(&self, digest: &Digest) -> Option<Stamp>;

    /// Records stamps, replacing older ones of the same blobs.
    fn record(&self, stamps: &[(Digest, Stamp)]);
}

/// How many stamps are kept in memory: some 100 MB.
const MOST_STAMPS: usize = 1 << 20;

/// Keeps stamps in memory; where they become too many it begins anew.
#[derive(Debug, Default)]
pub struct MemoryStamps(Mutex<HashMap<Digest, Stamp>>);

impl Stamps for MemoryStamps {
    fn stamp(&self, digest: &Digest) -> Option<Stamp> {
        self.0.lock().get(digest).copied()
    }

    fn record(&self, stamps: &[(Digest, Stamp)]) {
        let mut kept = self.0.lock();
        if kept.len() + stamps.len() > MOST_STAMPS {
            kept.clear();
        }
        kept.extend(stamps.iter().copied());
    }
}
