//! The lease table for people, agents and machines: what a program may ask of it.
//!
//! Nothing renews by itself, and a call that is cut short releases nothing that its holder had before: it either took
//! effect as a whole, which a repeated request of the same id tells, or not at all. A lease is advisory for whoever
//! writes round the mount.

mod acquire;
mod by_hand;
mod error;
mod host;
mod terms;

pub use acquire::{Acquisition, Resource};
pub use error::{BlockedBy, LeaseError};

use super::{LeaseStatus, Result, Workspace};
use crate::catalog::{Intent, LeaseFilter, ListedLease};
use crate::model::{ArtifactId, ArtifactPath, CheckoutId, Holder, Instant, Lease, ResourceKey, Seq};

/// A result of the lease table.
pub type LeaseResult<T> = std::result::Result<T, LeaseError>;

impl Workspace {
    /// Takes or renews the lease on an artifact for `ttl_ms` milliseconds from now; of a directory with all below it.
    ///
    /// Fails with `ArtifactBusy`, `NotFound`, or `ValidationFailed` for a time that isn't positive or is too long.
    pub fn lease_artifact(&self, id: ArtifactId, holder: &Holder, ttl_ms: i64) -> LeaseResult<Lease> {
        let resource = Resource::Key(ResourceKey::Artifact(id));
        let acquisition = Acquisition { ttl_ms: Some(ttl_ms), ..Acquisition::of(holder, vec![resource]) };
        match self.acquire(&acquisition) {
            Ok(admission) => {
                let granted = admission.granted.into_iter().next();
                Ok(granted.expect("BUG: one resource has one lease").lease)
            }
            Err(LeaseError::Busy { blockers }) => {
                let lease = blockers.into_iter().next().and_then(|blocker| blocker.lease);
                Err(LeaseError::ArtifactBusy { lease: lease.map(Box::new) })
            }
            Err(error) => Err(error),
        }
    }

    /// The live lease on an artifact, or none.
    ///
    /// Fails with `NotFound` where there is no such artifact.
    pub fn artifact_lease(&self, id: ArtifactId) -> LeaseResult<Option<Lease>> {
        let artifact = self.in_catalog(self.catalog().artifact_by_id(id))?;
        if !artifact.map_or(Ok(false), |artifact| self.access(CheckoutId(0))?.sees(artifact))? {
            return Err(LeaseError::NotFound(ResourceKey::Artifact(id).to_string()));
        }
        let lease = self.in_catalog(self.catalog().lease(&ResourceKey::Artifact(id)))?;
        Ok(lease.filter(|lease| lease.is_live(self.now())))
    }

    /// Gives back the holder's lease on an artifact; nothing happens where he has none.
    pub fn release_artifact(&self, id: ArtifactId, holder: &Holder) -> LeaseResult<()> {
        self.release(&[ResourceKey::Artifact(id)], holder).map(drop)
    }

    /// Gives leases back; tells of each whether the holder had it.
    pub fn release(&self, keys: &[ResourceKey], holder: &Holder) -> LeaseResult<Vec<bool>> {
        let mut seen = Vec::with_capacity(keys.len());
        for key in keys {
            if self.may_change(key, holder)? {
                seen.push(key.clone());
            }
        }
        let of_host = self.release_host(&host::host_keys(&seen), holder)?;
        let released = self.in_catalog(self.catalog().release(&seen, holder, self.now()))?;
        self.wake();
        let mut given_back = of_host;
        given_back
            .extend(seen.into_iter().zip(released).filter(|(_, released)| *released).map(|(key, _)| key));
        Ok(keys.iter().map(|key| given_back.contains(key)).collect())
    }

    /// The leases that pass a filter, by path and key, and those of the machine before them; ended ones are marked, and so
    /// are those whose resources are closed all the same.
    pub fn all_leases(&self, filter: &LeaseFilter) -> LeaseResult<Vec<LeaseStatus>> {
        let mut leases = if filter.under.is_none() { self.host_listing()? } else { Vec::new() };
        leases.retain(|status| filter.holder.as_ref().is_none_or(|holder| *holder == status.lease.holder));
        leases.extend(self.leases(filter)?);
        Ok(leases)
    }

    /// The workspace's leases that pass a filter, by path and key; ended ones are marked, and so are those whose
    /// resources are closed all the same.
    pub fn leases(&self, filter: &LeaseFilter) -> Result<Vec<LeaseStatus>> {
        let now = self.now();
        let access = self.access(CheckoutId(0))?;
        let mut leases = self.in_catalog(self.catalog().leases(filter, now))?;
        leases.retain(|listed| match (&listed.path, &listed.lease.key) {
            (Some(path), _) => access.sees_path(path),
            // An artifact that no tree has a name for: nobody can tell whose it would be.
            (None, ResourceKey::Artifact(_)) => access.is_free(),
            (None, _) => true,
        });
        Ok(leases.into_iter().map(|listed| status(listed, now)).collect())
    }

    /// The lease on a key, ended or not.
    pub fn lease(&self, key: &ResourceKey) -> Result<Option<LeaseStatus>> {
        let filter = LeaseFilter { key: Some(key.clone()), ..LeaseFilter::default() };
        Ok(self.leases(&filter)?.into_iter().next())
    }

    /// The live intents of everybody, by pattern and holder.
    pub fn intents(&self) -> Result<Vec<Intent>> {
        let now = self.now();
        let mut intents = self.in_catalog(self.catalog().intents())?;
        let access = self.access(CheckoutId(0))?;
        intents.retain(|intent| intent.lease.is_live(now) && access.sees_path(intent.pattern.path()));
        Ok(intents)
    }

    /// The live lease on a key; where an artifact's is free, that on a directory above it in a holder's checkout. One
    /// whose writer may still write counts as well.
    pub fn lease_over(&self, key: &ResourceKey, holder: &Holder) -> LeaseResult<Option<LeaseStatus>> {
        if let ResourceKey::Host(key) = key {
            return self.host_lease(key);
        }
        let mut over = key.clone();
        if let ResourceKey::Artifact(id) = key
            && let Some(artifact) = self.seen_artifact(*id, holder)?
        {
            let checkout = self.checkout_or_head(holder)?;
            let covering = self.in_catalog(self.catalog().covering_lease(checkout, artifact, self.now()))?;
            over = covering.map_or(over, |lease| lease.key);
        }
        Ok(self.lease(&over)?.filter(|status| status.live || status.quarantined))
    }

    /// A holder's checkout; where he has none, the number that no checkout has, and with which one sees the head tree.
    pub(in crate::engine) fn checkout_or_head(&self, holder: &Holder) -> Result<CheckoutId> {
        let checkout = self.in_catalog(self.catalog().existing_checkout(holder))?;
        Ok(checkout.unwrap_or(CheckoutId(0)))
    }

    /// The key of the artifact that a path names in a holder's checkout, or in the head tree if he has none.
    pub fn key_of(&self, path: &ArtifactPath, holder: &Holder) -> Result<ResourceKey> {
        let entry = self.access(self.checkout_or_head(holder)?)?.entry(path)?;
        Ok(ResourceKey::Artifact(entry.id))
    }

    /// The artifact with an identity, if it was ever made and may be seen.
    pub(super) fn seen_artifact(&self, id: ArtifactId, holder: &Holder) -> Result<Option<Seq>> {
        let artifact = self.in_catalog(self.catalog().artifact_by_id(id))?;
        let access = self.access(self.checkout_or_head(holder)?)?;
        match artifact {
            Some(artifact) if access.sees(artifact)? => Ok(Some(artifact)),
            _ => Ok(None),
        }
    }

    /// Refuses an artifact that may be seen and not changed; false for one that may not even be seen.
    pub(super) fn may_change(&self, key: &ResourceKey, holder: &Holder) -> Result<bool> {
        let ResourceKey::Artifact(id) = key else { return Ok(true) };
        let Some(artifact) = self.seen_artifact(*id, holder)? else { return Ok(false) };
        let checkout = self.checkout_or_head(holder)?;
        let access = self.access(checkout)?;
        if access.edits(artifact)? {
            return Ok(true);
        }
        Err(access.denied(&self.in_catalog(self.catalog().any_path_of(checkout, artifact))?))
    }
}

fn status(listed: ListedLease, now: Instant) -> LeaseStatus {
    let ListedLease { path, lease, quarantined } = listed;
    LeaseStatus { path, live: lease.is_live(now), quarantined, lease }
}
