use super::{EngineError, LeaseStatus, Result, Workspace};
use crate::catalog::{Actor, CatalogError, LeaseFilter, LeaseTerms};
use crate::config::{LeaseNeed, LeasePolicy, duration_text};
use crate::model::{ArtifactPath, CheckoutId, Holder, Lease, LeaseRequest, ResourceKey, Seq};
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

    /// The live lease on a key; where an artifact's is free, that on a directory above it in a holder's checkout.
    pub fn lease_over(&self, key: &ResourceKey, holder: &Holder) -> Result<Option<LeaseStatus>> {
        let mut key = key.clone();
        if let ResourceKey::Artifact(id) = key
            && let Some(artifact) = self.in_catalog(self.catalog().artifact_by_id(id))?
        {
            let checkout = self.checkout_or_head(holder)?;
            let over = self.in_catalog(self.catalog().covering_lease(checkout, artifact, self.now()))?;
            let Some(over) = over else { return Ok(None) };
            key = over.key;
        }
        Ok(self.lease(&key)?.filter(|status| status.live))
    }

    /// A holder's checkout; where he has none, the number that no checkout has, and with which one sees the head tree.
    fn checkout_or_head(&self, holder: &Holder) -> Result<CheckoutId> {
        let checkout = self.in_catalog(self.catalog().existing_checkout(holder))?;
        Ok(checkout.unwrap_or(CheckoutId(0)))
    }

    /// The key of the artifact that a path names in a holder's checkout, or in the head tree if he has none.
    pub fn key_of(&self, path: &ArtifactPath, holder: &Holder) -> Result<ResourceKey> {
        let checkout = self.checkout_or_head(holder)?;
        let entry = self.in_catalog(self.catalog().resolve(checkout, path))?;
        let entry = entry.ok_or_else(|| EngineError::NotFound(path.clone()))?;
        Ok(ResourceKey::Artifact(entry.id))
    }

    /// Takes or renews a lease for `ttl_ms` from now, or for as long as policy says; refuses more than policy permits.
    pub fn acquire(&self, key: &ResourceKey, holder: &Holder, ttl_ms: Option<i64>) -> Result<Lease> {
        let ResourceKey::Artifact(id) = key else { return self.acquire_free(key, holder, ttl_ms) };
        let artifact = self.in_catalog(self.catalog().artifact_by_id(*id))?;
        let artifact = artifact.ok_or_else(|| {
            EngineError::Refused(format!("{key}: no such artifact; user.artifact.id of a file tells its own"))
        })?;
        let checkout = self.in_catalog(self.catalog().checkout(holder))?;
        let actor = self.asking(self.actor(checkout, holder, ttl_ms, sys::effective_ids()), ttl_ms);
        self.refuse_too_long(&actor, artifact, ttl_ms)?;
        self.refuse_unleased(&actor, &[artifact])?;
        let taken = self.catalog().acquire_whole(&actor, &[artifact]);
        let taken = taken.map_err(|error| self.refusal(Some(checkout), &ArtifactPath::root(), error))?;
        self.wake();
        Ok(taken.into_iter().next().expect("BUG: one artifact that is leased has one lease"))
    }

    fn acquire_free(&self, key: &ResourceKey, holder: &Holder, ttl_ms: Option<i64>) -> Result<Lease> {
        let policy = self.policy();
        refuse_longer(ttl_ms, &policy.leasing, &key.to_string())?;
        let ttl_ms = policy.leasing.ttl_for(ttl_ms);
        let request = LeaseRequest { holder: holder.clone(), ttl_ms };
        match self.catalog().acquire_key(key, &request, self.now()) {
            Err(CatalogError::Held { lease, .. }) => Err(EngineError::KeyHeld { key: key.clone(), lease }),
            other => self.in_catalog(other),
        }
    }

    /// The same actor on the terms of one who asks for leases as such.
    pub(super) fn asking(&self, actor: Actor, ttl_ms: Option<i64>) -> Actor {
        Actor { terms: LeaseTerms::of_asking(self.policy(), ttl_ms), ..actor }
    }

    /// Refuses a longer time than policy permits: who asks for it would count on it.
    fn refuse_too_long(&self, actor: &Actor, artifact: Seq, ttl_ms: Option<i64>) -> Result<()> {
        let path = self.in_catalog(self.catalog().governing_path(actor.checkout, artifact))?;
        refuse_longer(ttl_ms, &actor.terms.at(&path), &path.to_string())
    }

    /// Refuses artifacts on which a lease would hold nobody back.
    pub(super) fn refuse_unleased(&self, actor: &Actor, artifacts: &[Seq]) -> Result<()> {
        for artifact in artifacts {
            let path = self.in_catalog(self.catalog().governing_path(actor.checkout, *artifact))?;
            if actor.terms.at(&path).need == LeaseNeed::None {
                return Err(EngineError::Refused(format!(
                    "{path}: config.toml says lease = \"none\" for it, so that a lease would hold nobody back; change \
                     that first"
                )));
            }
        }
        Ok(())
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

fn refuse_longer(ttl_ms: Option<i64>, policy: &LeasePolicy, object: &str) -> Result<()> {
    match ttl_ms {
        Some(ttl_ms) if ttl_ms > policy.max_ttl_ms => Err(EngineError::Refused(format!(
            "{object}: a lease of {} is longer than the {} that config.toml permits (max_ttl); ask for less",
            duration_text(ttl_ms),
            duration_text(policy.max_ttl_ms)
        ))),
        _ => Ok(()),
    }
}
