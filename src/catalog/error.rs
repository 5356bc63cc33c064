use std::path::PathBuf;

use super::Blocker;
use crate::model::{Lease, Seq, VersionNumber};

/// What helps whoever has no catalog any more.
const LOST: &str = "bring it back from a backup, or let `leasehold rescue` make one of what check-ins left";

/// Why the catalog refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// SQLite failed.
    #[error("failed to {doing}")]
    Sqlite {
        /// What was being done.
        doing: &'static str,
        /// SQLite's error.
        source: rusqlite::Error,
    },
    /// There is no catalog, or it can't be opened.
    #[error("failed to open it")]
    Open {
        /// SQLite's error.
        source: rusqlite::Error,
    },
    /// A call on one of its files failed, without SQLite.
    #[error("can't {doing} {}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is an empty database: what it held is gone.
    #[error("it is empty")]
    NotACatalog,
    /// The catalog is on a read-only filesystem, so that nothing can be changed.
    #[error("its filesystem is read-only")]
    Archived,
    /// The catalog is on a read-only filesystem, and was not closed, or is an older program's.
    #[error("its filesystem is read-only, and it was not closed by this release")]
    NotClosed,
    /// A newer program made the catalog.
    #[error("it has schema {found}, and this program knows {known}")]
    NewerSchema {
        /// The catalog's `user_version`.
        found: i64,
        /// The newest that this program knows.
        known: i64,
    },
    /// Somebody else holds a lease, or has reserved the name; the lease, unless it ended meanwhile.
    #[error("held by {}", lease.as_deref().map_or("somebody else", |l| l.holder.as_str()))]
    Held {
        /// The artifact that is held.
        artifact: Seq,
        /// The lease that refused.
        lease: Option<Box<Lease>>,
    },
    /// Somebody's lease ended, but he is not known to have stopped writing.
    #[error("{} may still be writing", lease.holder)]
    Quarantined {
        /// The artifact that is closed to others.
        artifact: Seq,
        /// The lease that ended.
        lease: Box<Lease>,
    },
    /// The lease under which bytes were written was ended by hand.
    #[error("the lease was broken")]
    Fenced {
        /// The artifact.
        artifact: Seq,
        /// The lease that was ended.
        lease: Box<Lease>,
    },
    /// Some of the resources of a set are not to be had; nothing was granted.
    #[error("{} of the resources are not to be had", .0.len())]
    Blocked(Vec<Blocker>),
    /// A request's id was used before, for other contents.
    #[error("this request id was used for another request")]
    RequestReused,
    /// The draft, or what the process read, is older than the head version.
    #[error("made on version {base}, and the newest is {head}")]
    Stale {
        /// The artifact.
        artifact: Seq,
        /// The version that it was made on.
        base: VersionNumber,
        /// The head version; 0 where the artifact is gone from the head tree.
        head: VersionNumber,
    },
    /// The lease under which bytes were written is not the present one.
    #[error("the lease was lost")]
    LeaseLost {
        /// The artifact.
        artifact: Seq,
        /// Who has it now.
        lease: Option<Box<Lease>>,
    },
    /// A time to live that isn't positive, or too long.
    #[error("a lease's time to live must be positive and at most 100 years")]
    BadTtl,
    /// There is no such name, artifact, version or checkout.
    #[error("no such entry")]
    NotFound,
    /// The name is taken.
    #[error("the name is taken")]
    Exists,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// A directory stands where a file is needed.
    #[error("is a directory")]
    IsDirectory,
    /// A file stands where a directory is needed.
    #[error("is not a directory")]
    NotDirectory,
    /// Another live process has the checkout mounted.
    #[error("mounted at {} by process {pid}", mountpoint.display())]
    Mounted {
        /// The daemon.
        pid: u32,
        /// Where.
        mountpoint: PathBuf,
    },
    /// The bytes of a draft are not in the store yet.
    #[error("the draft is not in the store yet")]
    Unpublished {
        /// The artifact.
        artifact: Seq,
    },
    /// A directory would come to lie within itself, since another check-in moved its new parent.
    #[error("the directory would lie within itself")]
    Cycle {
        /// The directory.
        artifact: Seq,
    },
    /// The actor may not change an artifact.
    #[error("no right to change it")]
    Denied {
        /// The artifact.
        artifact: Seq,
    },
    /// Only an owner of what a glob covers may change its access rules.
    #[error("only its owners may change its access rules")]
    NotOwner {
        /// The glob.
        glob: String,
    },
    /// Nobody would own everything any more.
    #[error("nobody would own everything any more")]
    LastOwner,
    /// A check-in needs something that was not asked for.
    #[error("a check-in of this needs more: {0}")]
    Incomplete(String),
}

impl CatalogError {
    /// Whether there was no space to write.
    pub fn is_disk_full(&self) -> bool {
        self.sqlite_code() == Some(rusqlite::ErrorCode::DiskFull)
    }

    /// Whether the catalog can only be read.
    pub fn is_read_only(&self) -> bool {
        matches!(self, Self::Archived) || self.sqlite_code() == Some(rusqlite::ErrorCode::ReadOnly)
    }

    /// What helps where the catalog itself failed; none for its refusals, and where nothing is known to.
    pub fn remedy(&self) -> Option<&'static str> {
        use rusqlite::ErrorCode;
        match (self, self.sqlite_code()) {
            (Self::NotACatalog, _) => Some(LOST),
            (Self::NewerSchema { .. }, _) => Some("use a newer leasehold"),
            (Self::Archived, _) => {
                Some("log, cat, leases and recovered work there; for the rest copy the workspace")
            }
            (Self::NotClosed, _) => Some("run a command on it once where it can be written"),
            (_, Some(ErrorCode::DiskFull)) => Some("make space on its filesystem"),
            (_, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)) => {
                Some("another process keeps it busy; try again")
            }
            (_, Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt)) => Some(LOST),
            (_, Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied)) => Some(
                "see that you may write it and its directory; if it is gone, `leasehold rescue` makes another",
            ),
            _ => None,
        }
    }

    fn sqlite_code(&self) -> Option<rusqlite::ErrorCode> {
        match self {
            Self::Sqlite { source, .. } | Self::Open { source, .. } => source.sqlite_error_code(),
            _ => None,
        }
    }
}

/// Names what SQLite failed at.
pub(super) fn doing(doing: &'static str) -> impl Fn(rusqlite::Error) -> CatalogError {
    move |source| CatalogError::Sqlite { doing, source }
}
