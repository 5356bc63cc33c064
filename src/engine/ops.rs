//! What commands ask of a checkout, and what they are told.
//!
//! The same trait stands before the catalog alone ([`super::Detached`], for a checkout that nobody has mounted) and
//! before the daemon of a mounted one (over its control socket), so that a command need not know which it talks to.

use crate::model::{
    ArtifactPath, ChangeNumber, Digest, Holder, Ino, Kind, Lease, RecoveryCopy, Timestamp, VersionNumber,
};

use super::EngineError;

/// A result of the engine.
pub type Result<T> = std::result::Result<T, EngineError>;

/// One person's view of the workspace, as commands use it.
pub trait CheckoutOps: Send + Sync {
    /// Lists what the checkout changed under a path, and what it holds.
    fn status(&self, under: &ArtifactPath) -> Result<StatusReport>;

    /// Takes the leases of some artifacts before they are edited; all or none.
    fn checkout(&self, paths: &[ArtifactPath]) -> Result<Vec<Lease>>;

    /// Makes the drafts of some paths (none: all of them) one new change.
    fn check_in(&self, request: &CheckInRequest) -> Result<CheckInReport>;

    /// Drops the drafts at and under some paths, keeps their bytes as recovery copies, and releases their leases.
    fn revert(&self, paths: &[ArtifactPath]) -> Result<RevertReport>;

    /// Keeps the draft of a path under another name, as a new artifact, and gives the path back to the head tree.
    fn save_as(&self, path: &ArtifactPath, new: &ArtifactPath) -> Result<()>;

    /// Waits until the saves under a path are in the store, and pending check-ins on close are done.
    fn settle(&self, under: &ArtifactPath) -> Result<SettleReport>;

    /// Makes a scratch file an artifact that the next check-in takes.
    fn add(&self, path: &ArtifactPath) -> Result<()>;

    /// Makes an old version the draft of its path.
    fn restore(&self, path: &ArtifactPath, version: VersionNumber) -> Result<()>;

    /// The blobs that applications have open, whether or not a row still names them.
    fn open_blobs(&self) -> Result<Vec<Digest>>;
}

/// A check-in that is asked for.
#[derive(Debug, Clone, Default)]
pub struct CheckInRequest {
    /// What to check in, with all that lies below; empty: every draft of the checkout.
    pub paths: Vec<ArtifactPath>,
    /// Why, in the author's words.
    pub message: String,
    /// Whether the leases stay.
    pub keep: bool,
    /// Check in drafts though they were made on another version than the head: the head that the author has seen.
    pub onto: Option<VersionNumber>,
    /// Inode numbers of drafts that applications have open for writing, as a mount's daemon knows them.
    pub busy: Vec<Ino>,
}

/// What a check-in did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckInReport {
    /// The new change; none where every selected draft was the same as its base.
    pub change: Option<ChangeNumber>,
    /// What it holds, by path.
    pub items: Vec<ChangedItem>,
    /// Files with ambiguous names that were touched too lately to count as documents.
    pub left_out: Vec<ArtifactPath>,
}

/// One artifact in a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedItem {
    /// What was done.
    pub action: Action,
    /// Where it is, or was if it is deleted.
    pub path: ArtifactPath,
    /// Where it was before a rename.
    pub from: Option<ArtifactPath>,
    /// Its new version; none for deletions and plain renames.
    pub version: Option<VersionNumber>,
}

/// What a draft or a change does to an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It is new.
    Added,
    /// Its content or mode is changed.
    Modified,
    /// It is gone.
    Deleted,
    /// It has another path, and may be modified as well.
    Renamed,
}

/// What the checkout changed and holds.
#[derive(Debug, Clone, Default)]
pub struct StatusReport {
    /// The holder of the checkout's leases.
    pub holder: Option<Holder>,
    /// Where it is mounted, how, and by which process; none if it isn't.
    pub mount: Option<MountStatus>,
    /// The newest change.
    pub head: Option<ChangeNumber>,
    /// What is changed, by path.
    pub drafts: Vec<DraftStatus>,
    /// The leases that anybody holds under the path, by path.
    pub leases: Vec<LeaseStatus>,
    /// Files with ambiguous names, which a check-in takes as documents once they were left alone for a time.
    pub provisional: Vec<ArtifactPath>,
    /// The number of scratch files.
    pub scratch: u64,
    /// The recovery copies of this checkout.
    pub recovered: Vec<RecoveryCopy>,
    /// What failed in the background and wants attention, a line each.
    pub problems: Vec<String>,
    /// What others asked the holder for, a line each.
    pub asks: Vec<String>,
    /// What the shared store is not known to have; none where none is configured.
    pub sharing: Option<super::SharingStatus>,
}

/// A mount, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountStatus {
    /// The mountpoint.
    pub mountpoint: std::path::PathBuf,
    /// The daemon.
    pub pid: u32,
    /// `passthrough` or `cached`: how reads of versions are served; none where the daemon doesn't answer.
    pub reads: Option<String>,
}

/// One path that differs from the head tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftStatus {
    /// Where it is in the checkout, or was if it is deleted.
    pub path: ArtifactPath,
    /// Where it is in the head tree, if elsewhere.
    pub from: Option<ArtifactPath>,
    /// What a check-in would do.
    pub action: Action,
    /// What sort of thing it is.
    pub kind: Kind,
    /// Whether an application has written bytes that no save holds yet.
    pub dirty: bool,
    /// Whether the head has moved since: a check-in will be refused.
    pub stale: bool,
    /// The version that it was made on.
    pub base: Option<VersionNumber>,
    /// The size of the last save, in bytes.
    pub size: u64,
}

/// A lease on an artifact, with its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseStatus {
    /// The artifact's path in the head tree, or in its holder's checkout if it was never checked in.
    pub path: Option<ArtifactPath>,
    /// The lease.
    pub lease: Lease,
    /// Whether it has not ended.
    pub live: bool,
    /// Whether it ended, but its writer is not known to have stopped, so that nobody else may have it.
    pub quarantined: bool,
}

/// What a revert did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RevertReport {
    /// The paths that show the head again.
    pub reverted: Vec<ArtifactPath>,
    /// Where their bytes are.
    pub recovered: Vec<RecoveryCopy>,
}

/// What settling came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SettleReport {
    /// Files with bytes that are no save yet, since an application still has them open.
    pub unsettled: Vec<ArtifactPath>,
    /// What failed, a line each.
    pub problems: Vec<String>,
}

/// One line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// The change.
    pub change: ChangeNumber,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub author: Holder,
    /// Why.
    pub message: String,
    /// What it did, by path.
    pub items: Vec<LoggedItem>,
}

/// One artifact in a change, as a log shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedItem {
    /// What was done.
    pub item: ChangedItem,
    /// The version's bytes.
    pub digest: Option<Digest>,
    /// Their number.
    pub size: u64,
    /// The version that it was made on.
    pub base: Option<VersionNumber>,
}
