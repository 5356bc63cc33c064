use std::io;

use crate::blobs::BlobError;
use crate::catalog::CatalogError;
use crate::model::{Lease, VersionNumber};

/// Why the mounted tree refused or failed: facts, which the protocol's adapter turns into numbers.
#[derive(Debug, thiserror::Error)]
pub enum VfsError {
    /// Somebody else holds the lease or has reserved the name.
    #[error("held by somebody else")]
    Held {
        /// The lease that refused, unless it ended meanwhile.
        lease: Option<Box<Lease>>,
    },
    /// The draft, or what the process has read, is older than the head version.
    #[error("made on version {base}, and the newest is {head}")]
    Stale {
        /// The version that it was made on.
        base: VersionNumber,
        /// The head version.
        head: VersionNumber,
    },
    /// The bytes can't become the draft any more: the lease was lost, or the draft was reverted.
    #[error("the lease was lost; the bytes are kept as a recovery copy")]
    LeaseLost,
    /// An earlier write, flush or fsync of the file failed: what it holds is not whole.
    #[error("an earlier write of this file failed")]
    Tainted,
    /// The name means another node now: the kernel looks it up again.
    #[error("the name means another node now")]
    Reopen,
    /// A writable handle can't be had beside passthrough handles of the old version.
    #[error("the version is open for reading in a way that forbids writing through it")]
    InUse,
    /// There is no such name.
    #[error("no such name")]
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
    /// The operation is refused for everybody.
    #[error("not permitted")]
    NotPermitted,
    /// The caller has no right to it.
    #[error("permission denied")]
    Denied,
    /// The mount, or the version, is read-only.
    #[error("read-only")]
    ReadOnly,
    /// There is no such extended attribute.
    #[error("no such attribute")]
    NoAttribute,
    /// The extended attribute can't be set or removed.
    #[error("the attribute can't be changed")]
    AttributeRefused,
    /// The handle isn't open.
    #[error("no such handle")]
    BadHandle,
    /// The arguments make no sense.
    #[error("invalid arguments")]
    Invalid,
    /// The name is longer than 255 bytes.
    #[error("the name is too long")]
    NameTooLong,
    /// The stored bytes are not what their digest says, or are gone.
    #[error("the stored bytes can't be read")]
    Store {
        /// The store's error.
        source: BlobError,
    },
    /// A call to the filesystem below failed.
    #[error("can't {doing}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The catalog failed.
    #[error("the catalog failed")]
    Catalog {
        /// The catalog's error.
        source: CatalogError,
    },
}

/// A result of the vfs.
pub type Result<T> = std::result::Result<T, VfsError>;

impl From<CatalogError> for VfsError {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::Held { lease, .. } => Self::Held { lease },
            CatalogError::Quarantined { lease, .. } => Self::Held { lease: Some(lease) },
            CatalogError::Stale { base, head, .. } => Self::Stale { base, head },
            CatalogError::LeaseLost { .. } | CatalogError::Fenced { .. } => Self::LeaseLost,
            CatalogError::NotFound => Self::NotFound,
            CatalogError::Denied { .. } => Self::Denied,
            CatalogError::Exists => Self::Exists,
            CatalogError::NotEmpty => Self::NotEmpty,
            CatalogError::IsDirectory => Self::IsDirectory,
            CatalogError::NotDirectory => Self::NotDirectory,
            source => Self::Catalog { source },
        }
    }
}

impl From<BlobError> for VfsError {
    fn from(source: BlobError) -> Self {
        Self::Store { source }
    }
}

/// Names what a system call was for.
pub(super) fn io(doing: &'static str) -> impl Fn(io::Error) -> VfsError {
    move |source| VfsError::Io { doing, source }
}
