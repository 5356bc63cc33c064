use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::model::Digest;

/// Why the caller of [`DiskStore::adopt_noting`](super::DiskStore::adopt_noting) could not note the digests.
pub type NoteError = Arc<dyn Error + Send + Sync>;

/// Why a request to a store elsewhere failed; nothing of what was sent or received is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TransportFault {
    /// The answer's status says neither success nor absence.
    #[error("it answered with status {0}")]
    Status(u16),
    /// The whole was not done in its time.
    #[error("it took too long")]
    Deadline,
    /// Nobody listens there, the name is not known, or the way is closed; with the system's number, if it told one.
    #[error("no connection{}", told(*.0))]
    Connect(Option<i32>),
    /// The other side's certificate or its part of the TLS handshake is not acceptable.
    #[error("no secure connection")]
    Tls,
    /// The connection ended before the answer did, or what came was no HTTP.
    #[error("the connection broke{}", told(*.0))]
    Broken(Option<i32>),
    /// The connection ended while a body was sent. The server may have answered before: that is not seen then.
    #[error("the connection broke while bytes were sent{}", told(*.0))]
    Unsent(Option<i32>),
    /// More bytes came, or were declared, than are taken.
    #[error("it sends more than is taken")]
    TooLarge,
    /// The answer is not of the agreed form.
    #[error("its answer can't be understood")]
    BadAnswer,
}

fn told(errno: Option<i32>) -> String {
    errno.map_or_else(String::new, |errno| format!(" (os error {errno})"))
}

/// What went wrong in the store.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// No blob is at this address.
    #[error("blob {digest} is not in the store")]
    Missing {
        /// The address.
        digest: Digest,
    },
    /// Other bytes are at this address; they are never handed out, and a put of the right ones replaces them.
    #[error("blob {digest} is corrupt: its bytes are {found}")]
    Corrupt {
        /// The address.
        digest: Digest,
        /// What the bytes hash to.
        found: Digest,
    },
    /// Something that isn't a regular file is at this address.
    #[error("blob {digest} can't be read: something that is not a regular file is at its address")]
    NotAFile {
        /// The address.
        digest: Digest,
    },
    /// A blob could not be read, and whether it is there could not be found out either.
    #[error("blob {digest} can't be read, and can't be looked for: {probe}")]
    Unknown {
        /// The address.
        digest: Digest,
        /// Why it could not be read.
        #[source]
        source: Box<BlobError>,
        /// Why it could not be looked for.
        probe: io::Error,
    },
    /// The blob changed each time it was verified.
    #[error("blob {digest} keeps changing while it is verified")]
    Unsettled {
        /// The address.
        digest: Digest,
    },
    /// The source of a put could not be read.
    #[error("can't read the bytes to store")]
    Source {
        /// The reader's error.
        #[source]
        source: io::Error,
    },
    /// A call on a file or directory of the store failed.
    #[error("can't {action} {}", path.display())]
    Io {
        /// What was tried: a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The bytes of a file could not be made durable. Final: a later sync would succeed without writing them.
    #[error("can't make {} durable", path.display())]
    Sync {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// An earlier sync of this staging file failed, so it can't become a blob; a copy of it can.
    #[error("{} was not made durable before and can't be stored", path.display())]
    Tainted {
        /// The staging file.
        path: PathBuf,
    },
    /// The path isn't a regular file directly in the store's staging directory.
    #[error("{} is not a staging file of the store", path.display())]
    NotStaged {
        /// The path.
        path: PathBuf,
    },
    /// A staging file was written to while it was hashed.
    #[error("{} was changed while it was stored", path.display())]
    NotSealed {
        /// The staging file.
        path: PathBuf,
    },
    /// The caller could not note the digest, so the file stayed in staging.
    #[error("the digest of {} could not be noted", path.display())]
    NotNoted {
        /// The staging file.
        path: PathBuf,
        /// The caller's error.
        #[source]
        source: NoteError,
    },
    /// A directory of the store is a symlink, or no directory.
    #[error("{} is not a directory itself", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// A directory or file that a change was working with is not what its name stands for any more.
    #[error("{} was replaced while it was used", path.display())]
    Swapped {
        /// The path.
        path: PathBuf,
    },
    /// Somebody else had a lock for as long as it may be waited for; nothing was changed.
    #[error("{} is held by somebody else: waited {waited_ms} ms", path.display())]
    Locked {
        /// The lock's file.
        path: PathBuf,
        /// How long it was waited for.
        waited_ms: i64,
    },
    /// A lock was lost while it was held, or could be by now; what needed it was not done.
    #[error("{} was lost while it was held", path.display())]
    LockLost {
        /// The lock's file.
        path: PathBuf,
    },
    /// A sweep or a backup was asked of a store that takes no lock files, so that others could not know of it.
    #[error("{} is locked for this process alone, so it can't be swept or backed up", path.display())]
    Uncoordinated {
        /// The directory of blobs.
        path: PathBuf,
    },
    /// A request to a store elsewhere failed.
    #[error("the shared store could not {operation}: {fault}")]
    Transport {
        /// What was asked of it: a verb and an object.
        operation: &'static str,
        /// Why it failed.
        fault: TransportFault,
    },
    /// A store elsewhere can't be used as it is configured; the values are never repeated.
    #[error("the shared store is not configured well: {problem}")]
    Configuration {
        /// What is wrong, in constant words.
        problem: &'static str,
    },
    /// Every name that was tried for a temporary file is taken.
    #[error("no free name for a temporary file in {}", path.display())]
    NamesTaken {
        /// The directory.
        path: PathBuf,
    },
    /// Renames from staging to objects would not be atomic.
    #[error("{} and {} are on different filesystems", objects.display(), staging.display())]
    TwoFilesystems {
        /// The directory of blobs.
        objects: PathBuf,
        /// The directory of staging files.
        staging: PathBuf,
    },
}

impl BlobError {
    /// The system's error below this one, if there is one (to tell a full disk from a bad one).
    pub fn io_error(&self) -> Option<&io::Error> {
        match self {
            Self::Source { source } | Self::Io { source, .. } | Self::Sync { source, .. } => Some(source),
            Self::Unknown { source, .. } => source.io_error(),
            _ => None,
        }
    }

    /// What programs tell errors apart by, the same for every kind of store.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "artifact_missing",
            Self::Corrupt { .. } => "artifact_corruption",
            Self::Transport { .. } => "transport_failed",
            Self::Configuration { .. } | Self::Uncoordinated { .. } => "invalid_configuration",
            _ => "unavailable",
        }
    }

    /// What helps, where something is known to.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Missing { .. } | Self::Corrupt { .. } | Self::NotAFile { .. } => {
                Some("bring it back from a backup of .leasehold/objects")
            }
            _ if self.io_error().is_some_and(|error| error.kind() == io::ErrorKind::StorageFull) => {
                Some("make space on its filesystem")
            }
            _ => None,
        }
    }

    /// The same error once more: a directory that can't be opened is the failure of many files, and a download that of
    /// all who wait for it.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::Missing { digest } => Self::Missing { digest: *digest },
            Self::Corrupt { digest, found } => Self::Corrupt { digest: *digest, found: *found },
            Self::Transport { operation, fault } => Self::Transport { operation, fault: *fault },
            Self::NotADirectory { path } => Self::NotADirectory { path: path.clone() },
            Self::Io { action, path, source } => {
                Self::Io { action, path: path.clone(), source: repeat(source) }
            }
            other => Self::Source { source: io::Error::other(other.to_string()) },
        }
    }

    /// For `map_err`: names the action and the path of a failed call.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    /// For `map_err`: as [`io`](Self::io), where a directory was to be opened without following symlinks.
    pub(super) fn open_dir(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::NotADirectory => Self::NotADirectory { path: path.to_owned() },
            _ => Self::Io { action: "open", path: path.to_owned(), source },
        }
    }
}

/// The same error once more: one failed barrier is the failure of many files.
pub(super) fn repeat(error: &io::Error) -> io::Error {
    error
        .raw_os_error()
        .map_or_else(|| io::Error::new(error.kind(), error.to_string()), io::Error::from_raw_os_error)
}
