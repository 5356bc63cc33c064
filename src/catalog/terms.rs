//! On which terms an actor leases what: the policy of the workspace at the path of each artifact.
//!
//! What governs an artifact is its path in the head tree, and only before its first check-in the one in its checkout. So
//! all checkouts are under the same terms for it, and nobody gets out of them by moving it in his own.

use std::sync::Arc;

use rusqlite::{Connection, Transaction};

use super::events::{self, EventKind, NewEvent};
use super::view::{self, one};
use super::{Actor, Catalog, CatalogError, Place, Result};
use crate::config::{LeasePolicy, OnConflict, Policy, Renew};
use crate::model::{ArtifactPath, CheckoutId, Holder, Seq};

/// A policy, and what the actor wants for himself.
#[derive(Debug, Clone)]
pub struct LeaseTerms {
    policy: Arc<Policy>,
    asked_ttl_ms: Option<i64>,
    asks: bool,
}

impl LeaseTerms {
    /// The terms of a policy for one who uses artifacts; `ttl_ms` is the time that he wants instead of the policy's, in
    /// milliseconds, and is cut to what the policy permits.
    pub fn of_use(policy: Arc<Policy>, ttl_ms: Option<i64>) -> Self {
        Self { policy, asked_ttl_ms: ttl_ms, asks: false }
    }

    /// The terms for one who asks for leases as such: he is refused what somebody else holds, and renews what he has.
    pub fn of_asking(policy: Arc<Policy>, ttl_ms: Option<i64>) -> Self {
        Self { policy, asked_ttl_ms: ttl_ms, asks: true }
    }

    /// What holds at a path.
    pub fn at(&self, path: &ArtifactPath) -> LeasePolicy {
        self.complete(self.policy.lease_at(path))
    }

    /// What holds everywhere, where no rule makes a difference.
    pub fn everywhere(&self) -> Option<LeasePolicy> {
        self.policy.rules.is_empty().then(|| self.complete(self.policy.leasing.clone()))
    }

    /// What holds for keys that are no artifacts.
    pub fn of_keys(&self) -> LeasePolicy {
        self.complete(self.policy.leasing.clone())
    }

    fn complete(&self, policy: LeasePolicy) -> LeasePolicy {
        let ttl_ms = policy.ttl_for(self.asked_ttl_ms);
        if self.asks {
            return LeasePolicy { ttl_ms, on_conflict: OnConflict::Block, renew: Renew::Activity, ..policy };
        }
        LeasePolicy { ttl_ms, ..policy }
    }
}

impl Catalog {
    /// The path by which a policy governs an artifact that a checkout sees.
    pub fn governing_path(&self, checkout: CheckoutId, artifact: Seq) -> Result<ArtifactPath> {
        self.read(|conn| governing_path(conn, checkout, artifact))
    }
}

fn governing_path(conn: &Connection, checkout: CheckoutId, artifact: Seq) -> Result<ArtifactPath> {
    match view::head_path_of(conn, artifact)? {
        Some(path) => Ok(path),
        None => super::deltas::any_path_of(conn, checkout, artifact),
    }
}

/// The terms for an artifact.
pub(super) fn terms_of(conn: &Connection, actor: &Actor, artifact: Seq) -> Result<LeasePolicy> {
    match actor.terms.everywhere() {
        Some(terms) => Ok(terms),
        None => Ok(actor.terms.at(&governing_path(conn, actor.checkout, artifact)?)),
    }
}

/// The terms for a name that something is about to stand on.
pub(super) fn terms_at(conn: &Connection, actor: &Actor, place: &Place) -> Result<LeasePolicy> {
    match actor.terms.everywhere() {
        Some(terms) => Ok(terms),
        None => {
            let dir = governing_path(conn, actor.checkout, place.parent)?;
            Ok(actor.terms.at(&dir.join(place.name.clone())))
        }
    }
}

/// Where the terms only warn of somebody else's lease, tells both of it and goes on; everything else is passed on.
/// Tells whether there was such a lease.
pub(super) fn warn_of_holder(
    tx: &Transaction<'_>,
    actor: &Actor,
    terms: &LeasePolicy,
    refused: Result<()>,
) -> Result<bool> {
    match refused {
        Err(CatalogError::Quarantined { artifact, lease }) if terms.on_conflict == OnConflict::Warn => {
            note_conflict(tx, actor, artifact, &lease.holder)?;
            Ok(true)
        }
        Err(CatalogError::Held { artifact, lease }) if terms.on_conflict == OnConflict::Warn => {
            if let Some(lease) = lease {
                note_conflict(tx, actor, artifact, &lease.holder)?;
            }
            Ok(true)
        }
        Err(error) => Err(error),
        Ok(()) => Ok(false),
    }
}

fn note_conflict(tx: &Transaction<'_>, actor: &Actor, artifact: Seq, holder: &Holder) -> Result<()> {
    let writer = &actor.holder;
    let detail = format!("{writer} writes to what {holder} holds: the first to check in wins");
    for told in [writer, holder] {
        if !is_told(tx, artifact, told, &detail)? {
            let (at, kind) = (actor.now.wall, EventKind::LeaseConflict);
            let event = NewEvent { at, kind, artifact: Some(artifact), holder: Some(told), detail: &detail };
            events::append(tx, &event)?;
        }
    }
    Ok(())
}

/// Whether somebody was told of it since he last settled what is wrong with the artifact.
fn is_told(tx: &Transaction<'_>, artifact: Seq, holder: &Holder, detail: &str) -> Result<bool> {
    let sql =
        "SELECT 1 FROM event WHERE artifact = ?1 AND holder = ?2 AND kind = 'lease-conflict' AND detail = ?3
        AND seq > coalesce((SELECT max(seq) FROM event
          WHERE artifact = ?1 AND holder = ?2 AND kind = 'settled'), 0) LIMIT 1";
    let params = (artifact.0, holder.as_str(), detail);
    Ok(one(tx, "look for an event", sql, params, |_| Ok(()))?.is_some())
}
