use crate::catalog::Conflict;
use crate::engine::{EngineError, LeaseStatus};
use crate::host::HostError;
use crate::model::{ArtifactPath, Lease, RequestId, ResourceKey};

/// Why a request for leases was refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Somebody else holds the artifact, or may still be writing it.
    #[error("{}", in_the_way(lease.as_deref(), Conflict::Held))]
    ArtifactBusy {
        /// The lease that refused, as the refusing transaction saw it; none if it ended meanwhile: try again.
        lease: Option<Box<Lease>>,
    },
    /// Some resources of a set are not to be had; nothing was granted.
    #[error("{}", all_of(blockers))]
    Busy {
        /// Every one that is in the way.
        blockers: Vec<BlockedBy>,
    },
    /// The holder has no live lease on some of these.
    #[error("{}", not_held(keys))]
    NotHeld {
        /// The keys, with who has them now.
        keys: Vec<(ResourceKey, Option<Lease>)>,
    },
    /// There is no such artifact, path or lease.
    #[error("{0}: no such artifact or lease")]
    NotFound(String),
    /// The request makes no sense as it stands.
    #[error("{0}")]
    ValidationFailed(String),
    /// The request's id was used for another request.
    #[error("request {}: was made before, for something else; choose another id", .0.as_str())]
    RequestReused(RequestId),
    /// The leases of the machine can't be used.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// A resource that is not to be had, and who is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockedBy {
    /// What was asked for.
    pub key: ResourceKey,
    /// The path that is held, where it is known: the one asked for, or one above or below it.
    pub path: Option<ArtifactPath>,
    /// In which way.
    pub conflict: Conflict,
    /// The lease or intent in the way; none if it ended meanwhile.
    pub lease: Option<Lease>,
}

impl BlockedBy {
    /// What somebody else has of a key.
    pub fn of(key: &ResourceKey, status: LeaseStatus) -> Self {
        let conflict = if status.quarantined { Conflict::Quarantined } else { Conflict::Held };
        Self { key: key.clone(), path: status.path, conflict, lease: Some(status.lease) }
    }

    /// What it is on, in words.
    pub fn object(&self) -> String {
        self.path.as_ref().map_or_else(|| self.key.to_string(), ToString::to_string)
    }
}

impl std::fmt::Display for BlockedBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.object(), in_the_way(self.lease.as_ref(), self.conflict))
    }
}

/// Who is in the way, until when, by which generation.
fn in_the_way(lease: Option<&Lease>, conflict: Conflict) -> String {
    let Some(Lease { key, holder, expires, generation, .. }) = lease else {
        return "was held by somebody else a moment ago; try again".to_owned();
    };
    let until = expires.to_rfc3339();
    match conflict {
        Conflict::Held => format!("held by {holder} until {until} (generation {generation})"),
        Conflict::Quarantined => format!(
            "the lease of {holder} ended at {until} (generation {generation}), but he may still be writing"
        ),
        Conflict::IntentHere | Conflict::IntentElsewhere => {
            format!("{holder} means to work on {key} until {until} (generation {generation})")
        }
    }
}

fn all_of(blockers: &[BlockedBy]) -> String {
    blockers.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn not_held(keys: &[(ResourceKey, Option<Lease>)]) -> String {
    let one = |(key, lease): &(ResourceKey, Option<Lease>)| match lease {
        Some(lease) => format!("{key}: {}", in_the_way(Some(lease), Conflict::Held)),
        None => format!("{key}: its lease has ended, or is not yours"),
    };
    keys.iter().map(one).collect::<Vec<_>>().join("; ")
}

impl LeaseError {
    /// Whether somebody else is in the way.
    pub fn is_busy(&self) -> bool {
        match self {
            Self::ArtifactBusy { .. } | Self::Busy { .. } => true,
            Self::NotHeld { keys } => keys.iter().any(|(_, lease)| lease.is_some()),
            Self::Engine(EngineError::Held { .. } | EngineError::Quarantined { .. }) => true,
            _ => false,
        }
    }

    /// What to do about it, where the text of the error doesn't say so itself.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Busy { blockers } if blockers.iter().any(|b| b.conflict == Conflict::Quarantined) => {
                Some("wait until he has saved, or end that with `leasehold lease resolve`".to_owned())
            }
            Self::ArtifactBusy { lease: Some(_) } | Self::Busy { .. } => {
                Some("`leasehold lease ask` tells the holder, or try again after that".to_owned())
            }
            Self::NotHeld { .. } => Some("acquire it again".to_owned()),
            Self::Host(error) => error.remedy(),
            Self::Engine(error) => error.remedy(),
            _ => None,
        }
    }
}
