use super::{LeaseError, LeaseResult};
use crate::catalog::{Ask, ByHand, CatalogError, Unsaved};
use crate::engine::{EngineError, Workspace};
use crate::model::{Holder, Lease, ResourceKey};

impl Workspace {
    /// Ends a lease of somebody else, for a reason that he is told: what he wrote since his last save becomes a recovery
    /// copy. Tells which leases were ended: several where the key is an intent.
    ///
    /// Fails with `NotFound` where nobody has it.
    pub fn break_lease(&self, key: &ResourceKey, by: &Holder, reason: &str) -> LeaseResult<Vec<Lease>> {
        self.end_by_hand(key, ByHand::Break, by, reason)
    }

    /// Ends the quarantine of a resource whose lease ended and whose writer is not known to have stopped; `unsaved` says
    /// what becomes of what he wrote since his last save, when his mount comes to it.
    ///
    /// Fails with `NotFound` where there is no quarantine.
    pub fn resolve_writer(&self, key: &ResourceKey, by: &Holder, unsaved: Unsaved) -> LeaseResult<Lease> {
        let reason = match unsaved {
            Unsaved::Keep => "resolved, unsaved bytes are kept",
            Unsaved::Discard => "resolved, unsaved bytes are dropped",
        };
        let ended = self.end_by_hand(key, ByHand::Resolve(unsaved), by, reason)?;
        ended.into_iter().next().ok_or_else(|| LeaseError::NotFound(key.to_string()))
    }

    fn end_by_hand(
        &self,
        key: &ResourceKey,
        how: ByHand,
        by: &Holder,
        reason: &str,
    ) -> LeaseResult<Vec<Lease>> {
        if !self.may_change(key, by)? {
            return Err(LeaseError::NotFound(key.to_string()));
        }
        if how == ByHand::Break {
            self.refuse_breaker(key, by)?;
        }
        let ended = self.found(key, self.catalog().end_by_hand(key, how, by, reason, self.now()))?;
        self.wake();
        Ok(ended)
    }

    /// Refuses who may not break a lease, as policy says for the path.
    fn refuse_breaker(&self, key: &ResourceKey, by: &Holder) -> LeaseResult<()> {
        let checkout = self.checkout_or_head(by)?;
        let actor = self.actor(checkout, by, None, crate::sys::effective_ids());
        let user = crate::sys::user_name().unwrap_or_default();
        if self.terms_for(&actor, key)?.breakers.admit(&user) {
            return Ok(());
        }
        let refused = format!("{key}: config.toml lets only others break its lease (break); ask one of them");
        Err(EngineError::Refused(refused).into())
    }

    /// Leaves a request for the holder of a key, who is returned; he sees it in `status`, by event and on his desktop.
    ///
    /// Fails with `NotFound` where nobody has it.
    pub fn ask(&self, key: &ResourceKey, asker: &Holder, message: &str) -> LeaseResult<Lease> {
        if matches!(key, ResourceKey::Artifact(id) if self.seen_artifact(*id, asker)?.is_none()) {
            return Err(LeaseError::NotFound(key.to_string()));
        }
        let lease = self.found(key, self.catalog().ask(key, asker, message, self.now()))?;
        self.wake();
        Ok(lease)
    }

    /// What a holder was asked for and still has, oldest first.
    pub fn asks(&self, holder: &Holder) -> LeaseResult<Vec<Ask>> {
        Ok(self.in_catalog(self.catalog().asks(holder))?)
    }

    /// Withdraws what a holder declared for a task, and gives the task back; tells which keys he had.
    pub fn end_task(&self, task: &ResourceKey, holder: &Holder) -> LeaseResult<Vec<ResourceKey>> {
        let ended = self.in_catalog(self.catalog().end_task(task, holder, self.now()))?;
        self.wake();
        Ok(ended)
    }

    fn found<T>(&self, key: &ResourceKey, result: Result<T, CatalogError>) -> LeaseResult<T> {
        match result {
            Err(CatalogError::NotFound) => Err(LeaseError::NotFound(key.to_string())),
            other => Ok(self.in_catalog(other)?),
        }
    }
}
