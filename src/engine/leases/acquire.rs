use super::host::{blocked, host_keys};
use super::{BlockedBy, LeaseError, LeaseResult};
use crate::blobs::digest_of;
use crate::catalog::{Actor, Admission, AdmissionRequest, Blocker, CatalogError, Want};
use crate::engine::{EngineError, Workspace};
use crate::host::{HostError, HostLease};
use crate::model::{
    ArtifactPath, CheckoutId, Digest, Holder, HostKey, Lease, LeaseRequest, MAX_TTL_MS, RequestId,
    ResourceKey,
};
use crate::sys;

/// A resource as somebody names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    /// By its key.
    Key(ResourceKey),
    /// An artifact by its path in the checkout.
    Path(ArtifactPath),
}

/// A request for a complete set of resources.
#[derive(Debug, Clone)]
pub struct Acquisition {
    /// Names the request, so that it may be repeated.
    pub id: Option<RequestId>,
    /// Who asks.
    pub holder: Holder,
    /// Whose checkout the work is done in: paths are of it, and intents within it may refuse each other.
    pub checkout_of: Holder,
    /// What is wanted.
    pub resources: Vec<Resource>,
    /// For how long from now, in milliseconds; by default as the policy says.
    pub ttl_ms: Option<i64>,
    /// The task that the intents among them are for; it is taken with them.
    pub task: Option<ResourceKey>,
}

impl Acquisition {
    /// A request of a holder for resources, in his own checkout.
    pub fn of(holder: &Holder, resources: Vec<Resource>) -> Self {
        Self {
            id: None,
            holder: holder.clone(),
            checkout_of: holder.clone(),
            resources,
            ttl_ms: None,
            task: None,
        }
    }

    fn keys(&self) -> impl Iterator<Item = &ResourceKey> {
        self.resources.iter().filter_map(|resource| match resource {
            Resource::Key(key) => Some(key),
            Resource::Path(_) => None,
        })
    }

    /// A digest of all that is asked for.
    fn contents(&self) -> Digest {
        let mut text = format!("{}\n{}\n{:?}\n{:?}\n", self.holder, self.checkout_of, self.ttl_ms, self.task);
        for resource in &self.resources {
            match resource {
                Resource::Key(key) => text.push_str(&format!("key {key}\n")),
                Resource::Path(path) => text.push_str(&format!("path {:?}\n", path.names())),
            }
        }
        digest_of(text.as_bytes())
    }
}

impl Workspace {
    /// Takes or renews a complete set of resources, in one transaction with the events that tell of it and with what a
    /// repeated request is answered.
    ///
    /// Who already has one of them gets it extended. A request whose id was granted before gets that answer again, with
    /// the leases' present state, and extends nothing. Fails with `Busy` and every blocker, `NotFound`,
    /// `ValidationFailed`, or `RequestReused`; then nothing has changed.
    pub fn acquire(&self, acquisition: &Acquisition) -> LeaseResult<Admission> {
        validate(acquisition)?;
        let checkout = self.in_catalog(self.catalog().checkout(&acquisition.checkout_of))?;
        let actor = self.lease_actor(checkout, &acquisition.holder, acquisition.ttl_ms);
        let contents = acquisition.contents();
        if let Some(id) = &acquisition.id
            && let Some(replayed) = self.replayed(&actor, id, &contents)?
        {
            return Ok(replayed);
        }
        let wants = self.wants(acquisition, checkout, &actor)?;
        for want in &wants {
            self.refuse_too_long(&actor, want, acquisition.ttl_ms)?;
        }
        let request = AdmissionRequest {
            id: acquisition.id.clone().map(|id| (id, contents)),
            wants,
            task: acquisition.task.clone(),
            of_host: Vec::new(),
        };
        let admitted = match host_keys(acquisition.keys()) {
            keys if keys.is_empty() => self.catalog().admit(&actor, &request),
            keys => return self.admit_with_host(acquisition, &actor, request, &keys),
        };
        let admission = admitted.map_err(|error| self.lease_refusal(checkout, acquisition, error))?;
        self.wake();
        Ok(admission)
    }

    /// As [`acquire`](Self::acquire), for a set that has leases of the machine as well: while its lock is held nobody else
    /// can take them, the workspace's part is admitted, and theirs is taken last.
    fn admit_with_host(
        &self,
        acquisition: &Acquisition,
        actor: &Actor,
        request: AdmissionRequest,
        keys: &[HostKey],
    ) -> LeaseResult<Admission> {
        let refusal = |error| self.lease_refusal(actor.checkout, acquisition, error);
        let pending = match self.host_leases().begin(keys, &self.host_request(actor)) {
            Err(HostError::Held { blockers }) => {
                let mut all: Vec<BlockedBy> = blockers.iter().map(blocked).collect();
                // Whoever else is in the way is to be named as well.
                match self.catalog().would_refuse(actor, &request).map_err(refusal) {
                    Err(LeaseError::Busy { blockers }) => all.extend(blockers),
                    other => other?,
                }
                return Err(LeaseError::Busy { blockers: all });
            }
            other => other?,
        };
        let of_host = pending.leases().iter().map(HostLease::to_lease).collect();
        let request = AdmissionRequest { of_host, ..request };
        let had = self.held_of(&request, &acquisition.holder)?;
        let admission = self.catalog().admit(actor, &request).map_err(refusal)?;
        if let Err(error) = pending.commit() {
            // What was taken for this set goes with it; what its holder had before stays.
            let taken = admission.granted.iter().map(|granted| granted.lease.key.clone());
            let taken: Vec<ResourceKey> = taken.filter(|key| !had.contains(key)).collect();
            self.in_catalog(self.catalog().release(&taken, &acquisition.holder, self.now()))?;
            return Err(error.into());
        }
        self.wake();
        Ok(admission)
    }

    fn host_request(&self, actor: &Actor) -> LeaseRequest {
        let holder = actor.holder.clone();
        LeaseRequest { holder, ttl_ms: actor.terms.of_keys().ttl_ms, take_from_writers: false }
    }

    /// What of a set a holder has already.
    fn held_of(&self, request: &AdmissionRequest, holder: &Holder) -> LeaseResult<Vec<ResourceKey>> {
        let mut held = Vec::new();
        for want in &request.wants {
            let lease = self.in_catalog(self.catalog().lease(&want.key))?;
            let mine = lease.is_some_and(|lease| lease.holder == *holder && lease.is_live(self.now()));
            held.extend(mine.then(|| want.key.clone()));
        }
        Ok(held)
    }

    /// Extends live leases of a holder for `ttl_ms` milliseconds from now, by default as the policy says; all or none.
    ///
    /// Fails with `NotHeld`, naming each that he does not have: nothing that ended is taken again.
    pub fn renew(
        &self,
        keys: &[ResourceKey],
        holder: &Holder,
        ttl_ms: Option<i64>,
    ) -> LeaseResult<Vec<Lease>> {
        validate_ttl(ttl_ms)?;
        let actor = self.lease_actor(CheckoutId(0), holder, ttl_ms);
        for key in keys {
            if !self.may_change(key, holder)? {
                return Err(LeaseError::NotHeld { keys: vec![(key.clone(), None)] });
            }
        }
        let of_workspace = keys.iter().filter(|key| !matches!(key, ResourceKey::Host(_)));
        let timed = of_workspace.map(|key| Ok((key.clone(), self.terms_for(&actor, key)?.ttl_ms)));
        let timed = timed.collect::<LeaseResult<Vec<_>>>()?;
        let mut renewed = self.catalog().renew(&actor, &timed).map_err(|error| match error {
            CatalogError::Blocked(blockers) => {
                let keys = blockers.into_iter().map(|blocker| (blocker.key, blocker.lease)).collect();
                LeaseError::NotHeld { keys }
            }
            source => LeaseError::Engine(EngineError::Catalog { file: self.layout().catalog(), source }),
        })?;
        renewed.extend(self.renew_host(&host_keys(keys), &self.host_request(&actor))?);
        self.wake();
        Ok(renewed)
    }

    fn replayed(&self, actor: &Actor, id: &RequestId, contents: &Digest) -> LeaseResult<Option<Admission>> {
        match self.catalog().replayed(actor, id, contents) {
            Err(CatalogError::RequestReused) => Err(LeaseError::RequestReused(id.clone())),
            other => Ok(self.in_catalog(other)?),
        }
    }

    fn lease_actor(&self, checkout: CheckoutId, holder: &Holder, ttl_ms: Option<i64>) -> Actor {
        self.asking(self.actor(checkout, holder, ttl_ms, sys::effective_ids()), ttl_ms)
    }

    fn wants(
        &self,
        acquisition: &Acquisition,
        checkout: CheckoutId,
        actor: &Actor,
    ) -> LeaseResult<Vec<Want>> {
        let task = acquisition.task.iter().cloned().map(Resource::Key);
        let resources = task.chain(acquisition.resources.iter().cloned());
        let of_workspace = resources.filter(|one| !matches!(one, Resource::Key(ResourceKey::Host(_))));
        of_workspace.map(|resource| self.want(&resource, checkout, actor)).collect()
    }

    fn want(&self, resource: &Resource, checkout: CheckoutId, actor: &Actor) -> LeaseResult<Want> {
        let (key, artifact) = match resource {
            Resource::Path(path) => {
                let entry = match self.access(checkout)?.entry(path) {
                    Err(EngineError::NotFound(path)) => Err(LeaseError::NotFound(path.to_string())),
                    entry => Ok(entry?),
                }?;
                (ResourceKey::Artifact(entry.id), Some((entry.artifact, path.clone())))
            }
            Resource::Key(key @ ResourceKey::Artifact(id)) => {
                let artifact = self.seen_artifact(*id, &actor.holder)?;
                let artifact = artifact.ok_or_else(|| LeaseError::NotFound(key.to_string()))?;
                let path = self.in_catalog(self.catalog().any_path_of(checkout, artifact))?;
                (key.clone(), Some((artifact, path)))
            }
            Resource::Key(key) => (key.clone(), None),
        };
        if let Some((artifact, _)) = &artifact {
            self.refuse_unleased(actor, &[*artifact])?;
        }
        Ok(Want { key, artifact })
    }

    fn lease_refusal(
        &self,
        checkout: CheckoutId,
        acquisition: &Acquisition,
        error: CatalogError,
    ) -> LeaseError {
        match (error, &acquisition.id) {
            (CatalogError::Blocked(blockers), _) => LeaseError::Busy {
                blockers: blockers.into_iter().map(|blocker| self.blocked_by(checkout, blocker)).collect(),
            },
            (CatalogError::RequestReused, Some(id)) => LeaseError::RequestReused(id.clone()),
            (CatalogError::BadTtl, _) => LeaseError::ValidationFailed(CatalogError::BadTtl.to_string()),
            (error, _) => self.refusal(Some(checkout), &ArtifactPath::root(), error).into(),
        }
    }

    /// What to mind of an admission, with the paths that are concerned.
    pub fn named_warnings(&self, checkout_of: &Holder, admission: &Admission) -> LeaseResult<Vec<BlockedBy>> {
        let checkout = self.checkout_or_head(checkout_of)?;
        let warnings = admission.warnings.iter().cloned();
        Ok(warnings.map(|warning| self.blocked_by(checkout, warning)).collect())
    }

    /// Names the path that is in the way.
    fn blocked_by(&self, checkout: CheckoutId, blocker: Blocker) -> BlockedBy {
        let Blocker { key, artifact, conflict, lease } = blocker;
        let artifact = artifact.or_else(|| match key {
            ResourceKey::Artifact(id) => self.catalog().artifact_by_id(id).ok().flatten(),
            _ => None,
        });
        let path = artifact.and_then(|artifact| self.catalog().any_path_of(checkout, artifact).ok());
        BlockedBy { key, path: path.filter(|path| !path.is_root()), conflict, lease }
    }
}

fn validate(acquisition: &Acquisition) -> LeaseResult<()> {
    validate_ttl(acquisition.ttl_ms)?;
    if acquisition.resources.is_empty() && acquisition.task.is_none() {
        return Err(LeaseError::ValidationFailed("nothing is asked for; name a resource".to_owned()));
    }
    let task = acquisition.task.iter().cloned().map(Resource::Key);
    let mut seen = std::collections::BTreeSet::new();
    for resource in task.chain(acquisition.resources.iter().cloned()) {
        let text = match &resource {
            Resource::Key(key) => key.to_string(),
            Resource::Path(path) => format!("path {:?}", path.names()),
        };
        if !seen.insert(text.clone()) {
            return Err(LeaseError::ValidationFailed(format!("{text}: is asked for twice; name it once")));
        }
    }
    Ok(())
}

fn validate_ttl(ttl_ms: Option<i64>) -> LeaseResult<()> {
    match ttl_ms {
        Some(ttl_ms) if !(1..=MAX_TTL_MS).contains(&ttl_ms) => {
            Err(LeaseError::ValidationFailed(CatalogError::BadTtl.to_string()))
        }
        _ => Ok(()),
    }
}
