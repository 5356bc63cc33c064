use super::{EngineError, LeaseStatus, Result, Workspace};
use crate::catalog::{CatalogError, LeaseFilter};
use crate::model::{ArtifactId, ArtifactPath, CheckoutId, Holder, Lease, LeaseRequest, ResourceKey, Seq};
use crate::sys;

impl Workspace {
    /// Every lease on what may be seen, by path and key; ended ones are marked.
    pub fn leases(&self) -> Result<Vec<LeaseStatus>> {
        let now = self.now();
        let access = self.access(CheckoutId(0))?;
        let mut leases = self.in_catalog(self.catalog().leases_by_path(&LeaseFilter::default()))?;
        leases.retain(|(path, lease)| match (path, &lease.key) {
            (Some(path), _) => access.sees_path(path),
            // An artifact that no tree has a name for: nobody can tell whose it would be.
            (None, ResourceKey::Artifact(_)) => access.is_free(),
            (None, _) => true,
        });
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

    /// The live lease on a key; where an artifact's is free, that on a directory above it in a holder's checkout.
    pub fn lease_over(&self, key: &ResourceKey, holder: &Holder) -> Result<Option<LeaseStatus>> {
        let mut key = key.clone();
        if let ResourceKey::Artifact(id) = key
            && let Some(artifact) = self.seen_artifact(id, holder)?
        {
            let checkout = self.checkout_or_head(holder)?;
            let over = self.in_catalog(self.catalog().covering_lease(checkout, artifact, self.now()))?;
            let Some(over) = over else { return Ok(None) };
            key = over.key;
        }
        Ok(self.lease(&key)?.filter(|status| status.live))
    }

    /// A holder's checkout; where he has none, the number that no checkout has, and with which one sees the head tree.
    pub(super) fn checkout_or_head(&self, holder: &Holder) -> Result<CheckoutId> {
        let checkout = self.in_catalog(self.catalog().existing_checkout(holder))?;
        Ok(checkout.unwrap_or(CheckoutId(0)))
    }

    /// The key of the artifact that a path names in a holder's checkout, or in the head tree if he has none.
    pub fn key_of(&self, path: &ArtifactPath, holder: &Holder) -> Result<ResourceKey> {
        let entry = self.access(self.checkout_or_head(holder)?)?.entry(path)?;
        Ok(ResourceKey::Artifact(entry.id))
    }

    /// Takes or renews a lease for `ttl_ms` from now.
    pub fn acquire(&self, key: &ResourceKey, holder: &Holder, ttl_ms: i64) -> Result<Lease> {
        let ResourceKey::Artifact(id) = key else { return self.acquire_free(key, holder, ttl_ms) };
        let artifact = self.seen_artifact(*id, holder)?.ok_or_else(|| {
            EngineError::Refused(format!("{key}: no such artifact; user.artifact.id of a file tells its own"))
        })?;
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

    /// The artifact with an identity, if it was ever made and may be seen.
    fn seen_artifact(&self, id: ArtifactId, holder: &Holder) -> Result<Option<Seq>> {
        let artifact = self.in_catalog(self.catalog().artifact_by_id(id))?;
        let access = self.access(self.checkout_or_head(holder)?)?;
        match artifact {
            Some(artifact) if access.sees(artifact)? => Ok(Some(artifact)),
            _ => Ok(None),
        }
    }

    /// Refuses an artifact that may be seen and not changed; false for one that may not even be seen.
    fn may_release(&self, id: ArtifactId, holder: &Holder) -> Result<bool> {
        let Some(artifact) = self.seen_artifact(id, holder)? else { return Ok(false) };
        let access = self.access(self.checkout_or_head(holder)?)?;
        if access.edits(artifact)? {
            return Ok(true);
        }
        let path = self.in_catalog(self.catalog().any_path_of(self.checkout_or_head(holder)?, artifact))?;
        Err(access.denied(&path))
    }

    /// Gives a lease back; tells whether the holder had it.
    pub fn release(&self, key: &ResourceKey, holder: &Holder) -> Result<bool> {
        if let ResourceKey::Artifact(id) = key
            && !self.may_release(*id, holder)?
        {
            return Ok(false);
        }
        let released = self.in_catalog(self.catalog().release(key, holder))?;
        if released {
            self.wake();
        }
        Ok(released)
    }
}
