//! Leases of the machine beside those of the workspace: a set may have both.

use std::path::Path;

use super::{BlockedBy, LeaseError, LeaseResult};
use crate::catalog::{Conflict, EventKind};
use crate::engine::{LeaseStatus, Workspace};
use crate::host::{Blocker, HostError, HostLease, HostLeases, Places};
use crate::model::{Holder, HostKey, Lease, LeaseRequest, ResourceKey};

impl Workspace {
    /// The leases of this machine, as the user sees them who runs this process.
    pub(super) fn host_leases(&self) -> HostLeases {
        let runtime_dir = std::env::var_os("XDG_RUNTIME_DIR");
        let places = Places::of_machine(runtime_dir.as_deref().map(Path::new));
        HostLeases::new(places, self.shared_clock(), self.shared_ids())
    }

    /// Who has something of the machine; nobody where none is kept.
    pub(super) fn host_lease(&self, key: &HostKey) -> LeaseResult<Option<LeaseStatus>> {
        match self.host_leases().show(key) {
            Ok(Some(Blocker::Lease(lease))) => Ok(Some(self.host_status(&lease))),
            Ok(Some(unclear)) => Err(LeaseError::Busy { blockers: vec![blocked(&unclear)] }),
            Ok(None) | Err(HostError::NoPlace(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// All that is held of the machine; nothing where none is kept.
    pub(super) fn host_listing(&self) -> LeaseResult<Vec<LeaseStatus>> {
        match self.host_leases().list() {
            Ok(listing) => Ok(listing.leases.iter().map(|lease| self.host_status(lease)).collect()),
            Err(HostError::NoPlace(_)) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    fn host_status(&self, lease: &HostLease) -> LeaseStatus {
        let live = lease.is_live(self.now());
        LeaseStatus { path: None, lease: lease.to_lease(), live, quarantined: false }
    }

    /// Extends leases of the machine, and tells of it.
    pub(super) fn renew_host(&self, keys: &[HostKey], request: &LeaseRequest) -> LeaseResult<Vec<Lease>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let not_held = |key: &HostKey, lease| LeaseError::NotHeld {
            keys: vec![(ResourceKey::Host(key.clone()), lease)],
        };
        let renewed = self.host_leases().renew(keys, request).map_err(|error| match error {
            HostError::NotHeld { key } => not_held(&key, None),
            HostError::Held { blockers } => match blockers.first() {
                Some(Blocker::Lease(lease)) => not_held(&lease.key, Some(lease.to_lease())),
                _ => LeaseError::Busy { blockers: blockers.iter().map(blocked).collect() },
            },
            other => other.into(),
        })?;
        self.tell_of_host(EventKind::Renewed, &renewed)
    }

    /// Gives leases of the machine back, and tells of it; tells which of them the holder had.
    pub(super) fn release_host(&self, keys: &[HostKey], holder: &Holder) -> LeaseResult<Vec<ResourceKey>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        match self.host_leases().release(keys, holder) {
            Err(HostError::NoPlace(_)) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
            Ok(released) => {
                let released = self.tell_of_host(EventKind::Released, &released)?;
                Ok(released.into_iter().map(|lease| lease.key).collect())
            }
        }
    }

    fn tell_of_host(&self, kind: EventKind, leases: &[HostLease]) -> LeaseResult<Vec<Lease>> {
        let leases: Vec<Lease> = leases.iter().map(HostLease::to_lease).collect();
        self.in_catalog(self.catalog().note_leases(kind, &leases, self.now()))?;
        Ok(leases)
    }
}

/// A refusal of the machine's leases, as a set's are told.
pub(super) fn blocked(blocker: &Blocker) -> BlockedBy {
    let lease = match blocker {
        Blocker::Lease(lease) => Some(lease.to_lease()),
        Blocker::Unclear { .. } => None,
    };
    BlockedBy { key: ResourceKey::Host(blocker.key().clone()), path: None, conflict: Conflict::Held, lease }
}

/// The keys of the machine among those of a set.
pub(super) fn host_keys<'a>(keys: impl IntoIterator<Item = &'a ResourceKey>) -> Vec<HostKey> {
    let of_host = |key: &ResourceKey| match key {
        ResourceKey::Host(key) => Some(key.clone()),
        _ => None,
    };
    keys.into_iter().filter_map(of_host).collect()
}
