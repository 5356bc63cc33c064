use super::{LeaseError, LeaseResult};
use crate::catalog::{Actor, LeaseTerms, Want};
use crate::config::{LeaseNeed, LeasePolicy, duration_text};
use crate::engine::{EngineError, Result, Workspace};
use crate::model::{ArtifactPath, ResourceKey, Seq};

impl Workspace {
    /// The same actor on the terms of one who asks for leases as such.
    pub(in crate::engine) fn asking(&self, actor: Actor, ttl_ms: Option<i64>) -> Actor {
        Actor { terms: LeaseTerms::of_asking(self.policy(), ttl_ms), ..actor }
    }

    /// What holds for a resource; of an artifact by its place in the head tree.
    pub(super) fn terms_for(&self, actor: &Actor, key: &ResourceKey) -> Result<LeasePolicy> {
        let ResourceKey::Artifact(id) = key else { return Ok(actor.terms.of_keys()) };
        match self.in_catalog(self.catalog().artifact_by_id(*id))? {
            Some(artifact) => Ok(self.terms_of(actor, artifact)?.1),
            None => Ok(actor.terms.of_keys()),
        }
    }

    /// The path by which policy governs an artifact, and what holds there.
    fn terms_of(&self, actor: &Actor, artifact: Seq) -> Result<(ArtifactPath, LeasePolicy)> {
        let path = self.in_catalog(self.catalog().governing_path(actor.checkout, artifact))?;
        let terms = actor.terms.at(&path);
        Ok((path, terms))
    }

    /// Refuses a longer time than policy permits: who asks for it would count on it.
    pub(super) fn refuse_too_long(&self, actor: &Actor, want: &Want, ttl_ms: Option<i64>) -> LeaseResult<()> {
        let Some(ttl_ms) = ttl_ms else { return Ok(()) };
        let (object, policy) = match &want.artifact {
            Some((artifact, path)) => (path.to_string(), self.terms_of(actor, *artifact)?.1),
            None => (want.key.to_string(), actor.terms.of_keys()),
        };
        if ttl_ms <= policy.max_ttl_ms {
            return Ok(());
        }
        Err(LeaseError::ValidationFailed(format!(
            "{object}: a lease of {} is longer than the {} that config.toml permits (max_ttl); ask for less",
            duration_text(ttl_ms),
            duration_text(policy.max_ttl_ms)
        )))
    }

    /// Refuses artifacts on which a lease would hold nobody back.
    pub(in crate::engine) fn refuse_unleased(&self, actor: &Actor, artifacts: &[Seq]) -> Result<()> {
        for artifact in artifacts {
            let (path, terms) = self.terms_of(actor, *artifact)?;
            if terms.need == LeaseNeed::None {
                return Err(EngineError::Refused(format!(
                    "{path}: config.toml says lease = \"none\" for it, so that a lease would hold nobody back; change \
                     that first"
                )));
            }
        }
        Ok(())
    }
}
