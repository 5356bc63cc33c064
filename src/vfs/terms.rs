//! What policy says of leases, in the mount: on which terms each artifact is leased, and what time does to leases where
//! it says so.
//!
//! With `renew = "open"` a lease is renewed while somebody has the file open for writing, by a thread of its own, since a
//! renewal may hang. Whether it came too late is told by the clock alone: a lease that ended is lost, whatever a renewal
//! that is still on its way comes to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::node::{Claim, Epoch, Fate, HeldLease, KnownTerms, Node, Unleased};
use super::{Result, Vfs};
use crate::catalog::{CatalogError, LeaseTerms};
use crate::config::{LeaseNeed, LeasePolicy, Release, Renew};
use crate::engine::{PolicyChange, PolicyLook};
use crate::model::{ArtifactId, Generation, Instant, Lease, RENEW_FRACTION, ResourceKey, Scratch, Seq};

/// Time renews a lease when this part of its time has passed.
const OPEN_RENEW_FRACTION: i64 = 3;

/// Why a file's draft is taken away from those who have it open.
pub(super) const NOT_RENEWED: &str = "the lease ended, since it could not be renewed in time";

/// What is counted for [`Epoch`].
#[derive(Debug, Default)]
pub(super) struct Epochs {
    policy: AtomicU64,
    names: AtomicU64,
}

impl Epochs {
    /// Other rules may match some artifacts from now on.
    pub fn names_changed(&self) {
        self.names.fetch_add(1, Ordering::AcqRel);
    }
}

/// A lease that is to be renewed.
struct Due {
    node: Arc<Node>,
    artifact: Seq,
    id: ArtifactId,
    generation: Generation,
    terms: KnownTerms,
}

impl Vfs {
    pub(super) fn epoch(&self) -> Epoch {
        let Epochs { policy, names } = &self.epochs;
        Epoch { policy: policy.load(Ordering::Acquire), names: names.load(Ordering::Acquire) }
    }

    /// Takes over another `config.toml`, at once and without a new mount.
    pub fn look_at_policy(&self, look: PolicyLook) {
        match self.workspace.look_at_policy(look) {
            PolicyChange::None => {}
            PolicyChange::Taken => {
                self.epochs.policy.fetch_add(1, Ordering::AcqRel);
                tracing::info!("config.toml was changed, and holds from now on");
                if let Err(error) = self.give_back_drafts_later() {
                    tracing::warn!(%error, "leases of drafts can't be given back, and end by themselves");
                }
                for problem in self.workspace.policy_problems() {
                    tracing::warn!("{problem}");
                }
            }
            PolicyChange::Refused(line) => {
                tracing::warn!("config.toml can't be used, and what held before still does: {line}");
            }
        }
    }

    /// On which terms the artifact of a node is leased.
    pub(super) fn terms_of(&self, node: &Node) -> Result<KnownTerms> {
        // Before anything is looked at: what changes meanwhile makes the answer old.
        let found_at = self.epoch();
        let (artifact, known) = {
            let state = node.lock();
            (state.artifact, state.terms.clone())
        };
        if let Some(known) = known.filter(|it| it.artifact == artifact && it.found_at == found_at) {
            return Ok(known);
        }
        let found = KnownTerms { artifact, found_at, terms: Arc::new(self.terms_for(artifact)?) };
        node.lock().terms = Some(found.clone());
        Ok(found)
    }

    fn terms_for(&self, artifact: Seq) -> std::result::Result<LeasePolicy, CatalogError> {
        let terms = LeaseTerms::of_use(self.workspace.policy(), self.options.ttl_ms);
        match terms.everywhere() {
            Some(everywhere) => Ok(everywhere),
            None => Ok(terms.at(&self.workspace.catalog().governing_path(self.checkout, artifact)?)),
        }
    }

    /// Whether a lease that time was to renew has ended under those who have the file open for writing.
    pub(super) fn is_overdue(&self, node: &Node) -> bool {
        let (now_ms, policy) = (self.now().boot_ms, self.epoch().policy);
        let state = node.lock();
        let ended =
            |lease: &HeldLease| lease.kept_open && lease.policy == policy && now_ms >= lease.expires_boot_ms;
        let counts = state.fate == Fate::Named && state.writers > 0 && state.unleased.is_none();
        counts && state.lease.as_ref().is_some_and(ended)
    }

    /// Takes the drafts away from those whose leases could not be renewed in time; their bytes become recovery copies.
    pub(super) fn lose_overdue(&self) {
        if !self.may_renew_open() {
            return;
        }
        for node in self.nodes.all() {
            if !self.is_overdue(&node) {
                continue;
            }
            let claim = node.claim();
            // A renewal may have been noted while somebody else had the claim.
            if self.is_overdue(&claim.node) {
                self.detach_claimed(&claim, NOT_RENEWED);
            }
        }
    }

    /// Renews the leases of what is open for writing, where policy says so; called some times a second, from a thread that
    /// nobody waits for.
    pub fn renew_open(&self) {
        if !self.may_renew_open() {
            return;
        }
        let actor = self.actor();
        let due = self.due_for_renewal(actor.now);
        let held: Vec<(Seq, Generation)> = due.iter().map(|due| (due.artifact, due.generation)).collect();
        if held.is_empty() {
            return;
        }
        match self.workspace.catalog().renew_held(&actor, &held) {
            Ok(renewed) => {
                due.iter().zip(renewed).for_each(|(due, lease)| self.note_renewal(due, lease, actor.now))
            }
            Err(error) => tracing::warn!(%error, "{} leases could not be renewed yet", held.len()),
        }
    }

    fn may_renew_open(&self) -> bool {
        self.workspace.policy().may_lease(|terms| terms.renew == Renew::Open)
    }

    fn due_for_renewal(&self, now: Instant) -> Vec<Due> {
        let due = |node: Arc<Node>| {
            let (artifact, id, lease) = {
                let state = node.lock();
                let counts = state.fate == Fate::Named && state.writers > 0;
                (state.artifact, state.id, state.lease.filter(|_| counts)?)
            };
            let terms = self.terms_of(&node).ok().filter(|known| known.terms.renew == Renew::Open)?;
            let passed_ms = now.boot_ms - lease.renewed_boot_ms;
            // What another policy has granted is brought under this one first.
            let due = lease.policy != terms.found_at.policy
                || passed_ms >= terms.terms.ttl_ms / OPEN_RENEW_FRACTION;
            let generation = lease.generation;
            (due && now.boot_ms < lease.expires_boot_ms).then_some(Due {
                node,
                artifact,
                id,
                generation,
                terms,
            })
        };
        self.nodes.all().into_iter().filter_map(due).collect()
    }

    fn note_renewal(&self, due: &Due, lease: Option<Lease>, started: Instant) {
        let Some(lease) = lease else { return self.note_unrenewable(due) };
        let now_ms = self.now().boot_ms;
        let noted = {
            let mut state = due.node.lock();
            let is_held =
                |held: &HeldLease| held.generation == due.generation && now_ms < held.expires_boot_ms;
            let held = state.lease.filter(is_held);
            if let Some(held) = held {
                let renewed = HeldLease::new(&lease, started.boot_ms, &due.terms, held.came_with_open);
                state.lease = Some(renewed);
            }
            held.is_some()
        };
        if !noted {
            // It came too late: the lease counts as lost here, or was given back meanwhile.
            self.give_back_generation(due.id, due.generation);
        }
    }

    /// A lease that is not the holder's any more: it is lost if somebody else has it, and asked for again if nobody has.
    fn note_unrenewable(&self, due: &Due) {
        let present = match self.workspace.catalog().lease(&ResourceKey::Artifact(due.id)) {
            Ok(present) => present,
            Err(error) => return tracing::warn!(%error, "a lease can't be read"),
        };
        let taken = present.is_some_and(|it| it.holder != self.options.holder && it.is_live(self.now()));
        let claim = due.node.claim();
        // A check-in of one's own gives leases back, and has noted it before it gave the claim back.
        let still_held = {
            let mut state = claim.node.lock();
            let held = state.lease.is_some_and(|held| held.generation == due.generation);
            if held && !taken {
                state.lease = None;
            }
            held
        };
        if still_held && taken {
            self.detach_claimed(&claim, "somebody else took the lease while the file was open");
        }
    }

    /// Where policy says so, the lease goes some time after the last writer has closed, though the draft stays.
    pub(super) fn give_back_later(&self, artifact: Seq, scratch: Scratch) {
        let policy = self.workspace.policy();
        if scratch == Scratch::No && policy.may_lease(|terms| terms.release == Release::Close) {
            self.pending.add_release(artifact, self.grace_deadline());
        }
    }

    /// As [`Vfs::give_back_later`], for all drafts: who has one open keeps its lease, whose close nobody saw gives it back.
    pub(super) fn give_back_drafts_later(&self) -> std::result::Result<(), CatalogError> {
        if self.workspace.policy().may_lease(|terms| terms.release == Release::Close) {
            for draft in self.workspace.catalog().drafts(self.checkout)? {
                self.give_back_later(draft.artifact, Scratch::No);
            }
        }
        Ok(())
    }

    /// Gives back the leases of what was closed long enough ago.
    pub(super) fn give_back_due(&self, now_ms: i64) {
        for artifact in self.pending.take_releases(now_ms) {
            if let Err(error) = self.give_back_closed(artifact) {
                tracing::warn!(%error, "a lease could not be given back, and ends by itself");
            }
        }
    }

    fn give_back_closed(&self, artifact: Seq) -> std::result::Result<(), CatalogError> {
        // His close will be the last one.
        if self.is_being_written(artifact) || self.terms_for(artifact)?.release != Release::Close {
            return Ok(());
        }
        let catalog = self.workspace.catalog();
        let Some(id) = catalog.artifact_id(artifact)? else { return Ok(()) };
        let lease = catalog.lease(&ResourceKey::Artifact(id))?;
        let Some(lease) = lease.filter(|lease| lease.holder == self.options.holder) else { return Ok(()) };
        // Nobody renews it between the look and the release.
        let claims: Vec<Claim> = self.claims_of(artifact);
        let waits = claims.iter().any(|claim| {
            let state = claim.node.lock();
            state.writers > 0 || state.is_dirty()
        });
        if waits {
            // Bytes that no save holds yet become one, or a recovery copy.
            self.pending.add_release(artifact, self.grace_deadline());
            return Ok(());
        }
        for claim in &claims {
            claim.node.lock().lease = None;
        }
        catalog.release_generation(id, lease.generation, self.now())?;
        self.workspace.wake();
        Ok(())
    }

    /// Claims the nodes of an artifact, in the order of their numbers, as a rename claims two.
    fn claims_of(&self, artifact: Seq) -> Vec<Claim> {
        let mut nodes = self.nodes.of_artifacts(&[artifact]);
        nodes.sort_by_key(|node| node.ino);
        nodes.iter().map(Node::claim).collect()
    }

    fn give_back_generation(&self, id: ArtifactId, generation: Generation) {
        if let Err(error) = self.workspace.catalog().release_generation(id, generation, self.now()) {
            tracing::warn!(%error, "a lease could not be given back, and ends by itself");
        }
    }
}

/// That writing needs no lease: for good under terms that want none, else until it is worth asking again.
pub(super) fn unleased(terms: &KnownTerms, now_boot_ms: i64) -> Unleased {
    let until_boot_ms = match terms.terms.need {
        LeaseNeed::None => i64::MAX,
        LeaseNeed::Required | LeaseNeed::OnFirstWrite => now_boot_ms + terms.terms.ttl_ms / RENEW_FRACTION,
    };
    Unleased { found_at: terms.found_at, until_boot_ms }
}
