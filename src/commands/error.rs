use std::error::Error;
use std::io;
use std::path::PathBuf;

use crate::engine::{EngineError, LeaseError, PathError};
use crate::model::{NameError, ParseDigestError, ParseHolderError, with_sources};

/// A result of a command.
pub type Result<T> = std::result::Result<T, CommandError>;

/// Why a command refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Leases were refused.
    #[error(transparent)]
    Lease(Box<LeaseError>),
    /// A lease can't be taken on a path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Nobody has what was to be somebody's.
    #[error("{object}: free; nobody has it")]
    Unheld {
        /// The key, path or task, as it was written.
        object: String,
    },
    /// There is nobody to be waited for.
    #[error("{object}: no writer is waited for; `leasehold lease show` tells who has it")]
    NotQuarantined {
        /// The key or path, as it was written.
        object: String,
    },
    /// Bytes are lost, or something else is wrong: the command has told what.
    #[error(
        "{}: {lost} blobs are lost, and {problems} other things are wrong: see above; restore what you can from a backup",
        workspace.display()
    )]
    Damaged {
        /// The workspace or backup.
        workspace: PathBuf,
        /// How many blobs can't be had.
        lost: usize,
        /// How many other problems there are.
        problems: usize,
    },
    /// Nothing says which workspace is meant.
    #[error("{}: no workspace here; use -w, LEASEHOLD_WORKSPACE, or a path inside a mount", .0.display())]
    NoWorkspace(PathBuf),
    /// The path is neither in a mount nor in the workspace.
    #[error("{}: not in a mount or the workspace {}; name a path in one of them", path.display(), workspace.display())]
    Outside {
        /// The path.
        path: PathBuf,
        /// The workspace.
        workspace: PathBuf,
    },
    /// One command's paths are in different checkouts.
    #[error("{}: belongs to another checkout than {}; name paths of one checkout", path.display(), other.display())]
    TwoCheckouts {
        /// A path.
        path: PathBuf,
        /// Another path, or the workspace that was asked for.
        other: PathBuf,
    },
    /// The text is no path of an artifact.
    #[error("{}: no path of an artifact", path.display())]
    BadPath {
        /// The text.
        path: PathBuf,
        /// What is wrong with it.
        source: NameError,
    },
    /// The command needs a version.
    #[error("{}: says no version; write {}@@N", .0.display(), .0.display())]
    NoVersion(PathBuf),
    /// The text is no holder, or can't be a part of one.
    #[error("{text:?} can't be {what}")]
    BadHolder {
        /// What it was meant to be, with its article.
        what: &'static str,
        /// The option that says another.
        option: &'static str,
        /// The text.
        text: String,
        /// What is wrong with it.
        source: ParseHolderError,
    },
    /// The path is no mount of Leasehold.
    #[error("{}: not a Leasehold mount; `findmnt -t fuse.leasehold` lists them", .0.display())]
    NotAMount(PathBuf),
    /// The daemon of the mount that the path is in has ended without unmounting.
    #[error("{}: in a dead mount; mount it again, or use -w", .0.display())]
    DeadMount(PathBuf),
    /// The mount is another user's, and keeps everybody else out.
    #[error("{}: another user's mount; act as that user, or use -w and --as", .0.display())]
    ForeignMount(PathBuf),
    /// The path is another name (a bind mount) of a mount.
    #[error("{}: another name of the mount {}; unmount that one", path.display(), mountpoint.display())]
    Alias {
        /// The path.
        path: PathBuf,
        /// The mount's own mountpoint.
        mountpoint: PathBuf,
    },
    /// Processes have files of the mount open, or work in it.
    #[error("{}: in use by {users}; close them, or use --lazy", mountpoint.display())]
    Busy {
        /// The mountpoint.
        mountpoint: PathBuf,
        /// The processes, as `PID (COMMAND)`.
        users: String,
    },
    /// The daemon still runs, though its mount is gone.
    #[error("{}: the mount is gone, and process {pid} still saves; see its log", mountpoint.display())]
    StillSaving {
        /// The mountpoint.
        mountpoint: PathBuf,
        /// The daemon.
        pid: u32,
    },
    /// The daemon of a mounted checkout can't be talked to.
    #[error("{}: mounted by process {pid}, which doesn't answer", mountpoint.display())]
    DaemonSilent {
        /// The mountpoint.
        mountpoint: PathBuf,
        /// The daemon.
        pid: u32,
        /// What went wrong.
        source: io::Error,
    },
    /// Some saves could not be published.
    #[error("{object}: not settled: {reason}")]
    Unsettled {
        /// The first file, or the checkout.
        object: String,
        /// Why.
        reason: String,
    },
    /// Something could not be uploaded to the shared store.
    #[error("{}: not everything is shared: {reason}", workspace.display())]
    Unshared {
        /// The workspace.
        workspace: PathBuf,
        /// Why, in one line.
        reason: String,
    },
    /// There is no shared store to upload to.
    #[error("{}: no shared store is configured; set [remote] in .leasehold/config.toml", .0.display())]
    NoRemote(PathBuf),
    /// A file can't be used.
    #[error("{}: can't {doing}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A text is no digest; it is not repeated.
    #[error(transparent)]
    InvalidDigest(#[from] ParseDigestError),
    /// A command of the store failed.
    #[error("{code}")]
    Store {
        /// What programs tell errors apart by.
        code: &'static str,
        /// The process's exit status.
        status: u8,
        /// Whether to tell it as JSON.
        json: bool,
        /// What went wrong.
        source: Box<CommandError>,
    },
    /// It ends with this status, and all is said.
    #[error("ended with status {0}")]
    Ended(u8),
    /// Standard output can't be written.
    #[error("standard output: can't write")]
    Output(#[from] io::Error),
}

impl From<LeaseError> for CommandError {
    fn from(error: LeaseError) -> Self {
        Self::Lease(Box::new(error))
    }
}

impl CommandError {
    /// The process's exit status: 1 failed, 2 wrong usage, 3 held by someone else, 4 stale.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::Engine(
                EngineError::Held { .. } | EngineError::Quarantined { .. } | EngineError::Fenced { .. },
            ) => 3,
            Self::Lease(error) if error.is_busy() => 3,
            Self::Lease(error) if matches!(**error, LeaseError::ValidationFailed(_)) => 2,
            Self::Engine(EngineError::Stale { .. } | EngineError::DeletedMeanwhile { .. }) => 4,
            Self::NoWorkspace(_)
            | Self::Outside { .. }
            | Self::TwoCheckouts { .. }
            | Self::BadPath { .. }
            | Self::NoVersion(_)
            | Self::BadHolder { .. }
            | Self::Path(_)
            | Self::InvalidDigest(_) => 2,
            Self::Store { status, .. } | Self::Ended(status) => *status,
            _ => 1,
        }
    }

    /// Whether the reader of standard output went away, which is no failure of ours (`leasehold log | head`).
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(source) if source.kind() == io::ErrorKind::BrokenPipe)
    }

    /// What programs tell errors of the store apart by.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Engine(EngineError::Blobs(error)) => error.code(),
            Self::Store { code, .. } => code,
            Self::InvalidDigest(_) => "invalid_digest",
            Self::Engine(EngineError::NotAWorkspace(_) | EngineError::Config(_)) | Self::NoWorkspace(_) => {
                "invalid_configuration"
            }
            _ => "unavailable",
        }
    }

    /// Whether there is nothing left to say.
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::Ended(_))
    }

    /// Whether the line is a JSON value, and the program's name has no place before it.
    pub fn is_json(&self) -> bool {
        matches!(self, Self::Store { json: true, .. })
    }

    fn advice(&self) -> Option<String> {
        match self {
            Self::Engine(error) => error.remedy(),
            Self::Lease(error) => error.remedy(),
            Self::Path(error) => error.remedy().map(str::to_owned),
            Self::BadHolder { option, .. } => Some(format!("choose another with {option}")),
            Self::DaemonSilent { .. } => Some("see its log; if it hangs, end it and mount again".to_owned()),
            _ => None,
        }
    }

    /// The error as one line, without the program's name: `OBJECT: fact; holder and expiry; what to do`. Of the store:
    /// `CODE: fact`, or a JSON object of both.
    pub fn line(&self) -> String {
        if let Self::Store { code, json: true, source, .. } = self {
            return serde_json::json!({ "code": code, "message": source.line() }).to_string();
        }
        let mut line = chain(self);
        if let Some(advice) = self.advice() {
            line.push_str("; ");
            line.push_str(&advice);
        }
        line
    }
}

/// An error and its sources as one line, from the outermost to the cause.
pub fn chain(error: &dyn Error) -> String {
    one_line(&with_sources(error))
}

/// Makes text safe to print as one line on a terminal: control characters show as `\xNN`.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            let mut buffer = [0; 4];
            c.encode_utf8(&mut buffer).bytes().for_each(|b| line.push_str(&format!("\\x{b:02x}")));
        } else {
            line.push(c);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ArtifactPath, Generation, Lease, ResourceKey, Timestamp, VersionNumber};

    fn lease() -> Box<Lease> {
        Box::new(Lease {
            key: ResourceKey::Free("thread:1".into()),
            holder: "ada@desk".parse().unwrap(),
            generation: Generation(4),
            expires_boot_ms: 0,
            boot: 1,
            expires: Timestamp(1_796_000_000_000_000_000),
            fenced: false,
        })
    }

    #[test]
    fn a_refusal_names_object_holder_expiry_and_what_to_do() {
        let path = ArtifactPath::parse("a/b\n.docx").unwrap();
        let error = CommandError::from(EngineError::Held { path, lease: Some(lease()) });
        assert_eq!(
            error.line(),
            "a/b\\x0a.docx: held by ada@desk until 2026-11-30T00:53:20Z; ask ada@desk to check in, or try again after that"
        );
        assert_eq!(error.exit_status(), 3);
    }

    #[test]
    fn exit_statuses_tell_the_kinds_apart() {
        let path = ArtifactPath::parse("a").unwrap();
        let stale = EngineError::Stale { path: path.clone(), base: VersionNumber(1), head: VersionNumber(2) };
        assert_eq!(CommandError::from(stale).exit_status(), 4);
        assert_eq!(CommandError::from(EngineError::NotFound(path)).exit_status(), 1);
        assert_eq!(CommandError::NoVersion("a".into()).exit_status(), 2);
        assert_eq!(CommandError::from(LeaseError::ArtifactBusy { lease: None }).exit_status(), 3);
        assert_eq!(CommandError::from(LeaseError::NotFound("a".into())).exit_status(), 1);
        assert_eq!(CommandError::from(LeaseError::ValidationFailed("a".into())).exit_status(), 2);
    }

    #[test]
    fn sources_are_told_in_the_one_line_and_control_characters_are_escaped() {
        let source = io::Error::from_raw_os_error(13);
        let error = CommandError::File { doing: "read", path: "a\u{1b}[2J\nb".into(), source };
        assert_eq!(error.line(), "a\\x1b[2J\\x0ab: can't read: Permission denied (os error 13)");
    }
}
