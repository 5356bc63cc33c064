use super::{EngineError, LeaseStatus, Result, Workspace};
use crate::catalog::{CatalogError, LeaseFilter};
use crate::model::{ArtifactPath, Holder, Lease, LeaseRequest, ResourceKey};
use crate::sys;

impl Workspace {
    /// Every lease, by path and key; ended ones are marked.
    pub fn leases(&self) -> Result<Vec<LeaseStatus>> {
        let now = self.now();
        let leases = self.in_catalog(self.catalog().leases_by_path(&LeaseFilter::default()))?;
        let status = |(path, lease): (Option<ArtifactPath>, Lease)| LeaseStatus {
            path,
            live: lease.is_live(now),
            lease,
        };
        Ok(leases.into_iter().map(status).collect())
    }

    /// The lease on a key, ended or not.
    pub fn lease(&self, key: &ResourceKey) -> Result<Option<LeaseStatus>> {
        Ok(self.leases()?.into_iter().find(|status| status.lease.key == *key))
    }

    /// The key of the artifact that a path names in a holder's checkout, or in the head tree if he has none.
    pub fn key_of(&self, path: &ArtifactPath, holder: &Holder) -> Result<ResourceKey> {
        let checkout = self.in_catalog(self.catalog().existing_checkout(holder))?;
        let checkout = checkout.unwrap_or(crate::model::CheckoutId(0));
        let entry = self.in_catalog(self.catalog().resolve(checkout, path))?;
        let entry = entry.ok_or_else(|| EngineError::NotFound(path.clone()))?;
        Ok(ResourceKey::Artifact(entry.id))
    }

    /// Takes or renews a lease for `ttl_ms` from now.
    pub fn acquire(&self, key: &ResourceKey, holder: &Holder, ttl_ms: i64) -> Result<Lease> {
        let ResourceKey::Artifact(id) = key else { return self.acquire_free(key, holder, ttl_ms) };
        let artifact = self.in_catalog(self.catalog().artifact_by_id(*id))?;
        let artifact = artifact.ok_or_else(|| EngineError::Refused(format!("{key}: no such artifact")))?;
        let checkout = self.in_catalog(self.catalog().checkout(holder))?;
        let actor = self.actor(checkout, holder, ttl_ms, sys::effective_ids());
        let taken = self.catalog().acquire_whole(&actor, &[artifact]);
        let taken = taken.map_err(|error| self.refusal(Some(checkout), &ArtifactPath::root(), error))?;
        self.wake();
        Ok(taken.into_iter().next().expect("BUG: one artifact has one lease"))
    }

    fn acquire_free(&self, key: &ResourceKey, holder: &Holder, ttl_ms: i64) -> Result<Lease> {
        let request = LeaseRequest { holder: holder.clone(), ttl_ms };
        match self.catalog().acquire_key(key, &request, self.now()) {
            Err(CatalogError::Held { lease, .. }) => Err(EngineError::KeyHeld { key: key.clone(), lease }),
            other => self.in_catalog(other),
        }
    }

    /// Gives a lease back; tells whether the holder had it.
    pub fn release(&self, key: &ResourceKey, holder: &Holder) -> Result<bool> {
        let released = self.in_catalog(self.catalog().release(key, holder))?;
        if released {
            self.wake();
        }
        Ok(released)
    }
}
