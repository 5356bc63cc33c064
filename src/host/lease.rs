use std::fmt;
use std::path::PathBuf;

use crate::model::{Generation, Holder, HostKey, Instant, Lease, LeaseRequest, ResourceKey, Timestamp};
use crate::sys::ProcessKey;

/// A lease on something that this machine has once.
///
/// It ends with its time or with the boot that it was taken in, whichever is first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostLease {
    /// What it is on.
    pub key: HostKey,
    /// Who has it, in that user's own words.
    pub holder: Holder,
    /// The user; with `holder` the whole identity of who has it.
    pub uid: u32,
    /// Its generation: larger than that of every earlier grant in this boot.
    pub generation: Generation,
    /// The boot that it was taken in.
    pub boot: i64,
    /// When it ends, by the boot's clock.
    pub expires_boot_ms: i64,
    /// When it ends, by the wall clock: for people.
    pub expires: Timestamp,
    /// The process that took it: for people, since it may have ended.
    pub taken_by: ProcessKey,
}

impl HostLease {
    /// The lease with its time begun anew.
    pub(super) fn renewed(mut self, request: &LeaseRequest, now: Instant) -> Self {
        self.expires_boot_ms = now.boot_ms.saturating_add(request.ttl_ms);
        self.expires = Timestamp(now.wall.0.saturating_add(request.ttl_ms.saturating_mul(1_000_000)));
        self
    }

    /// Whether it has not ended by `now`.
    pub fn is_live(&self, now: Instant) -> bool {
        self.boot == now.boot && self.expires_boot_ms > now.boot_ms
    }

    /// The lease as [`crate::model::decide`] judges it, which is by the holder alone.
    pub fn to_lease(&self) -> Lease {
        Lease {
            key: ResourceKey::Host(self.key.clone()),
            holder: self.holder.clone(),
            generation: self.generation,
            expires_boot_ms: self.expires_boot_ms,
            boot: self.boot,
            expires: self.expires,
            fenced: false,
        }
    }
}

/// Why a key can't be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocker {
    /// Somebody else's live lease.
    Lease(HostLease),
    /// A record of another user's file names the key and can't be understood otherwise.
    Unclear {
        /// The key.
        key: HostKey,
        /// The file.
        path: PathBuf,
    },
}

impl Blocker {
    /// The key that can't be had.
    pub fn key(&self) -> &HostKey {
        match self {
            Self::Lease(lease) => &lease.key,
            Self::Unclear { key, .. } => key,
        }
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lease(HostLease { key, holder, uid, expires, .. }) => {
                write!(f, "{key}: held by {holder} (user {uid}) until {}", expires.to_rfc3339())
            }
            Self::Unclear { key, path } => {
                write!(f, "{key}: may be held: {} has a record of it that can't be read", path.display())
            }
        }
    }
}
