use std::io;
use std::path::PathBuf;

use super::lease::Blocker;
use crate::model::HostKey;

/// A result of the host's leases.
pub type Result<T> = std::result::Result<T, HostError>;

/// Why the host's leases refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// Somebody else holds some of the set; nothing was granted.
    #[error("{}", told(blockers))]
    Held {
        /// Each lease that refused, in the order of the keys; at least one.
        blockers: Vec<Blocker>,
    },
    /// What is to be renewed has ended, or was never held.
    #[error("{key}: not held any more")]
    NotHeld {
        /// The key.
        key: HostKey,
    },
    /// A lease's time is not positive, or longer than [`MAX_TTL_MS`](crate::model::MAX_TTL_MS).
    #[error("a lease of {0} ms")]
    BadTtl(i64),
    /// The user would hold more than the readers of his file take.
    #[error("{}: more than {most} leases of one user", path.display())]
    TooMany {
        /// The user's file.
        path: PathBuf,
        /// How many there may be.
        most: usize,
    },
    /// There is no directory for the leases of this machine.
    #[error("{}: no such directory, and no runtime directory of the user's own", .0.display())]
    NoPlace(PathBuf),
    /// Others could change what is in the directory.
    #[error("{}: not a safe directory: it {fault}", path.display())]
    UnsafePlace {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        fault: &'static str,
        /// What makes it right.
        remedy: &'static str,
    },
    /// Another process has been changing the leases for too long.
    #[error("{}: locked for {waited_ms} ms by {}", path.display(), process(*pid))]
    Locked {
        /// The directory.
        path: PathBuf,
        /// How long it was waited for.
        waited_ms: i64,
        /// The process, if it can be told.
        pid: Option<u32>,
    },
    /// The user's own file can't be understood, so that it isn't known what it would be replaced by.
    #[error("{}: {fault}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        fault: String,
    },
    /// A file or directory can't be used.
    #[error("{}: can't {doing}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

fn told(blockers: &[Blocker]) -> String {
    blockers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
}

impl HostError {
    /// What to do about it, where the text of the error doesn't say so itself.
    pub fn remedy(&self) -> Option<String> {
        let text = match self {
            Self::Held { .. } => "ask for their release, or try again after that",
            Self::NotHeld { .. } => "acquire it again",
            Self::BadTtl(_) => "ask for a positive time of at most 100 years",
            Self::TooMany { .. } => "release some",
            Self::NoPlace(path) => {
                return Some(format!("root makes it with `install -d -m 1777 {}`", path.display()));
            }
            Self::UnsafePlace { remedy, .. } => remedy,
            Self::Locked { .. } => "if it is stopped, continue or end it; then try again",
            Self::Damaged { .. } => "remove it, which ends your leases on this machine",
            Self::File { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "make space on its filesystem"
            }
            Self::File { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "look at the owner and mode of its directory"
            }
            Self::File { .. } => return None,
        };
        Some(text.to_owned())
    }
}
