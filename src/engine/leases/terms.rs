use super::{LeaseError, LeaseResult};
use crate::catalog::{Actor, LeaseTerms, Want};
use crate::config::{LeaseNeed, LeasePolicy, duration_text};
use crate::engine::{EngineError, Result, Workspace};
use crate::model::{ResourceKey, Seq};

impl Workspace {
    /// The same actor on the terms of one who asks for leases as such.
    pub(in crate::engine) fn asking(&self, actor: Actor, ttl_ms: Option<i64>) -> Actor {
        Actor { terms: LeaseTerms::of_asking(self.policy(), ttl_ms), ..actor }
    }

    /// What holds for a resource; of an artifact by its place in the head tree.
    pub(super) fn terms_for(&self, actor: &Actor, key: &ResourceKey) -> Result<LeasePolicy> {
        let ResourceKey::Artifact(id) = key else { return Ok(actor.terms.of_keys()) };
        match self.in_catalog(self.catalog().artifact_by_id(*id))? {
            Some(artifact) => {
                let path = self.in_catalog(self.catalog().governing_path(actor.checkout, artifact))?;
                Ok(actor.terms.at(&path))
            }
            None => Ok(actor.terms.of_keys()),
        }
    }

    /// Refuses a longer time than policy permits: who asks for it would count on it.
    pub(super) fn refuse_too_long(&self, actor: &Actor, want: &Want, ttl_ms: Option<i64>) -> LeaseResult<()> {
        let policy = self.terms_for(actor, &want.key)?;
        let object =
            want.artifact.as_ref().map_or_else(|| want.key.to_string(), |(_, path)| path.to_string());
        match ttl_ms {
            Some(ttl_ms) if ttl_ms > policy.max_ttl_ms => Err(LeaseError::ValidationFailed(format!(
                "{object}: a lease of {} is longer than the {} that config.toml permits (max_ttl); ask for less",
                duration_text(ttl_ms),
                duration_text(policy.max_ttl_ms)
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses artifacts on which a lease would hold nobody back.
    pub(in crate::engine) fn refuse_unleased(&self, actor: &Actor, artifacts: &[Seq]) -> Result<()> {
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
}
