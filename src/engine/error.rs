use std::io::ErrorKind;
use std::path::PathBuf;

use crate::catalog::CatalogError;
use crate::model::{ArtifactPath, Lease, Principal, VersionNumber};

/// Why the engine refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Somebody else holds the lease.
    #[error("{path}: {}", held(lease.as_deref()))]
    Held {
        /// The object.
        path: ArtifactPath,
        /// The lease that refused, unless it ended meanwhile.
        lease: Option<Box<Lease>>,
    },
    /// The lease under which the draft was written was broken.
    #[error(
        "{path}: the lease was broken since it was saved; take it again with `leasehold checkout`, or `leasehold revert` it"
    )]
    Fenced {
        /// The object.
        path: ArtifactPath,
    },
    /// The draft was made on an older version.
    #[error(
        "{path}: made on version {base}, and the newest is {head}; read it again, `leasehold save-as`, or `leasehold checkin --onto {head}`"
    )]
    Stale {
        /// The object.
        path: ArtifactPath,
        /// The version that it was made on.
        base: VersionNumber,
        /// The head version.
        head: VersionNumber,
    },
    /// The draft's file was deleted from the head tree by another check-in.
    #[error(
        "{path}: made on version {base}, and deleted by another check-in since; keep it with `leasehold save-as`, or `leasehold revert` it"
    )]
    DeletedMeanwhile {
        /// The object.
        path: ArtifactPath,
        /// The version that it was made on.
        base: VersionNumber,
    },
    /// Somebody's lease ended, but he is not known to have stopped writing.
    #[error("{path}: the lease of {} ended at {}, but he may still be writing", lease.holder, lease.expires.to_rfc3339())]
    Quarantined {
        /// The object.
        path: ArtifactPath,
        /// The lease that ended.
        lease: Box<Lease>,
    },
    /// There is no such path in the checkout.
    #[error("{0}: no such file in this checkout")]
    NotFound(ArtifactPath),
    /// It may be seen, and not changed.
    #[error("{path}: you ({principal}) have no right to change it")]
    Denied {
        /// The object.
        path: ArtifactPath,
        /// Who asked.
        principal: Principal,
    },
    /// The request can't be carried out as it stands.
    #[error("{0}")]
    Refused(String),
    /// The catalog failed.
    #[error("{}: the catalog can't be used", file.display())]
    Catalog {
        /// The catalog's file.
        file: PathBuf,
        /// The catalog's error.
        source: CatalogError,
    },
    /// The store failed.
    #[error(transparent)]
    Blobs(#[from] crate::blobs::BlobError),
    /// A draft's bytes can't be brought into the store; where the disk lost some of them, never.
    #[error("{path}: its last save can't be stored; save it again, if that stays so")]
    NotStored {
        /// The draft.
        path: ArtifactPath,
        /// The store's error.
        source: crate::blobs::BlobError,
    },
    /// A file of the workspace can't be used.
    #[error("can't {doing} {}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] crate::config::ConfigError),
    /// The directory is no workspace.
    #[error("{}: not a Leasehold workspace (no .leasehold directory)", .0.display())]
    NotAWorkspace(PathBuf),
    /// The workspace exists already.
    #[error("{}: already a Leasehold workspace", .0.display())]
    WorkspaceExists(PathBuf),
}

fn held(lease: Option<&Lease>) -> String {
    match lease {
        Some(lease) => format!("held by {} until {}", lease.holder, lease.expires.to_rfc3339()),
        None => "was held by somebody else a moment ago; try again".to_owned(),
    }
}

impl EngineError {
    /// What to do about it, where the text of the error doesn't say so itself.
    pub fn remedy(&self) -> Option<String> {
        let ask = |lease: &Option<Box<Lease>>, act: &str| {
            lease.as_ref().map(|lease| format!("ask {} to {act}, or try again after that", lease.holder))
        };
        match self {
            Self::Held { lease, .. } => ask(lease, "check in"),
            Self::Quarantined { .. } => {
                Some("wait until he has saved, or end that with `leasehold lease resolve`".to_owned())
            }
            Self::NotFound(_) => Some("check its spelling".to_owned()),
            Self::Denied { .. } => {
                Some("ask one of its owners, whom `leasehold access list PATH` names, to grant you the role editor".to_owned())
            }
            Self::Catalog { source, .. } => source.remedy().map(str::to_owned),
            Self::Blobs(source) | Self::NotStored { source, .. } => source.remedy().map(str::to_owned),
            Self::NotAWorkspace(_) => Some("`leasehold init` makes one".to_owned()),
            Self::WorkspaceExists(_) => Some("`leasehold import` checks files in to it".to_owned()),
            Self::File { source, .. } if source.kind() == ErrorKind::StorageFull => {
                Some("make space on its filesystem".to_owned())
            }
            Self::Stale { .. }
            | Self::Fenced { .. }
            | Self::DeletedMeanwhile { .. }
            | Self::Refused(_)
            | Self::File { .. }
            | Self::Config(_) => None,
        }
    }
}
