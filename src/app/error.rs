use std::io;
use std::path::PathBuf;

use crate::blobs::BlobError;
use crate::commands::error::{CommandError, chain};
use crate::config::duration_text;
use crate::engine::EngineError;
use crate::fuse::FuseError;
use crate::model::Holder;
use crate::serve::ServeError;

/// A result of the composition root.
pub(super) type Result<T> = std::result::Result<T, AppError>;

/// Why the program failed.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// A command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// Another live process has mounted the checkout.
    #[error("{holder}: mounted on {} by process {pid}; unmount it there, or use --checkout NAME", mountpoint.display())]
    CheckoutMounted {
        /// The checkout's holder.
        holder: Holder,
        /// Where it is mounted.
        mountpoint: PathBuf,
        /// The daemon.
        pid: u32,
    },
    /// The workspace is on a read-only filesystem, where a mount can't keep its state.
    #[error(
        "{}: on a read-only filesystem, and a mount keeps its state in the workspace; copy it elsewhere to mount it, or use `leasehold log` and `leasehold cat`",
        .0.display()
    )]
    Archived(PathBuf),
    /// A mount of ours is on the mountpoint already.
    #[error("{}: a Leasehold mount already; `leasehold umount` it first", .0.display())]
    MountpointTaken(PathBuf),
    /// The mountpoint is no directory.
    #[error("{}: not a directory to mount on; name an empty one", .0.display())]
    NotADirectory(PathBuf),
    /// The mount would hide the workspace's own files from its daemon.
    #[error("{}: would cover the workspace itself; mount elsewhere", .0.display())]
    CoversWorkspace(PathBuf),
    /// Leases are to last longer than the policy permits.
    #[error(
        "--ttl {}: longer than the {} that config.toml permits (max_ttl); ask for less",
        duration_text(*ttl_ms),
        duration_text(*max_ttl_ms)
    )]
    TtlTooLong {
        /// What was asked for, in milliseconds.
        ttl_ms: i64,
        /// What is permitted, in milliseconds.
        max_ttl_ms: i64,
    },
    /// The kernel refused to mount.
    #[error(transparent)]
    Mount(#[from] FuseError),
    /// The control socket can't be made.
    #[error("{}: can't make the control socket", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The runtime, a signal handler or a thread can't be set up.
    #[error("can't {doing}")]
    Setup {
        /// What was being done.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The store of a bare directory can't be opened.
    #[error("{}: can't be served", path.display())]
    Objects {
        /// The directory.
        path: PathBuf,
        /// The store's error.
        source: BlobError,
    },
    /// The server doesn't start.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The daemon said why it doesn't start.
    #[error("{line}")]
    DaemonRefused {
        /// Its exit status.
        status: u8,
        /// Its error.
        line: String,
    },
    /// The daemon ended without a word.
    #[error("the mount's process ended before it was ready; see {}", log.display())]
    DaemonDied {
        /// Its log.
        log: PathBuf,
    },
}

impl From<EngineError> for AppError {
    fn from(error: EngineError) -> Self {
        Self::Command(error.into())
    }
}

impl AppError {
    /// The process's exit status.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Command(error) => error.exit_status(),
            Self::Serve(ServeError::OpenToAll(_)) => 2,
            Self::DaemonRefused { status, .. } => *status,
            _ => 1,
        }
    }

    /// Whether the reader of standard output went away.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Command(error) if error.is_closed_pipe())
    }

    /// Whether there is nothing left to say.
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::Command(error) if error.is_silent())
    }

    /// Whether the line is a JSON value.
    pub fn is_json(&self) -> bool {
        matches!(self, Self::Command(error) if error.is_json())
    }

    /// The error as one line, without the program's name.
    pub fn line(&self) -> String {
        match self {
            Self::Command(error) => error.line(),
            other => chain(other),
        }
    }
}
