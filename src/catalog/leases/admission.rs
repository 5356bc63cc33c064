//! Admission: complete sets of resources, all or none, in one transaction with what tells of them.

use std::collections::BTreeMap;

use rusqlite::{Connection, Transaction};

use super::super::access::Editing;
use super::super::events::{EventKind, append_of_lease};
use super::super::rows::lease_row;
use super::super::view::{self, many};
use super::super::{Actor, Catalog, CatalogError, Durability, Result};
use super::intents::{self, Declaring, Intent};
use super::{LEASE_COLUMNS, grant, request_of, requests, take, take_subtree};
use crate::config::OnConflict;
use crate::model::{
    ArtifactPath, Digest, Instant, IntentPattern, Kind, Lease, LeaseRequest, RequestId, ResourceKey, Seq,
};

/// One resource that is wanted.
#[derive(Debug, Clone)]
pub struct Want {
    /// Its key.
    pub key: ResourceKey,
    /// The artifact, and the path by which it was named, where the key is one.
    pub artifact: Option<(Seq, ArtifactPath)>,
}

/// A complete set of resources that is wanted, all or none.
#[derive(Debug, Clone, Default)]
pub struct AdmissionRequest {
    /// The request's name, if it may be repeated, and a digest of all that it asks.
    pub id: Option<(RequestId, Digest)>,
    /// The resources.
    pub wants: Vec<Want>,
    /// The task that the intents among them are for.
    pub task: Option<ResourceKey>,
    /// Leases of the host that were granted for the same request: they are told and remembered with the others.
    pub of_host: Vec<Lease>,
}

/// Why a resource is not to be had, or what to mind though it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    /// Somebody else has a live lease on it, above or below it.
    Held,
    /// Somebody's lease ended, but he is not known to have stopped writing.
    Quarantined,
    /// Somebody else declared an intent on it, in the same checkout.
    IntentHere,
    /// Somebody else declared an intent on it, in another checkout.
    IntentElsewhere,
}

/// A resource that was asked for, and whose lease or intent is in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    /// What was asked for.
    pub key: ResourceKey,
    /// The artifact that is held: the one asked for, or one above or below it.
    pub artifact: Option<Seq>,
    /// In which way.
    pub conflict: Conflict,
    /// The lease in the way, as the refusing transaction saw it; none if it ended meanwhile.
    pub lease: Option<Lease>,
}

/// One lease of an admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// The lease; of a repeated request as it is now, or as it was granted if it is gone.
    pub lease: Lease,
    /// Whether it lives.
    pub live: bool,
}

/// What a request was granted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Admission {
    /// The leases, in the order in which they were asked for.
    pub granted: Vec<Granted>,
    /// What others mean to work on, or hold, of the same.
    pub warnings: Vec<Blocker>,
    /// Whether this is the answer to an earlier request of the same id: nothing was granted or extended now.
    pub replayed: bool,
}

impl Catalog {
    /// Takes or renews the leases of some artifacts, all or none; of a directory with all that lies below it.
    pub fn acquire_whole(&self, actor: &Actor, artifacts: &[Seq]) -> Result<Vec<Lease>> {
        self.write(Durability::Full, |tx| {
            let editing = Editing::new(tx, actor)?;
            artifacts.iter().map(|artifact| take_whole(tx, actor, &editing, *artifact)).collect()
        })
    }

    /// The recorded answer to a request of this id and contents; none if it is new.
    pub fn replayed(&self, actor: &Actor, id: &RequestId, contents: &Digest) -> Result<Option<Admission>> {
        self.read(|conn| replay(conn, actor, id, contents))
    }

    /// Refuses as [`admit`](Self::admit) would, and changes nothing.
    pub fn would_refuse(&self, actor: &Actor, request: &AdmissionRequest) -> Result<()> {
        self.rehearse(|tx| Admitting::new(tx, actor, request)?.take_all().map(drop))
    }

    /// Notes what became of leases that are kept elsewhere.
    pub fn note_leases(&self, kind: EventKind, leases: &[Lease], now: Instant) -> Result<()> {
        self.write(Durability::Full, |tx| {
            leases.iter().try_for_each(|lease| append_of_lease(tx, kind, None, lease, now, ""))
        })
    }

    /// Takes or renews a complete set of resources.
    ///
    /// Fails with [`CatalogError::Blocked`], naming every blocker, with `Stale`, `NotFound` or `BadTtl`, or with
    /// `RequestReused` where the id was used for other contents; then nothing has changed.
    pub fn admit(&self, actor: &Actor, request: &AdmissionRequest) -> Result<Admission> {
        self.write(Durability::Full, |tx| {
            if let Some((id, contents)) = &request.id
                && let Some(replayed) = replay(tx, actor, id, contents)?
            {
                return Ok(replayed);
            }
            let mut admitting = Admitting::new(tx, actor, request)?;
            let leases = admitting.take_all()?;
            if let Some((id, contents)) = &request.id {
                requests::record(tx, id, contents, &leases, actor.now)?;
            }
            let granted = leases.into_iter().map(|lease| Granted { lease, live: true }).collect();
            Ok(Admission { granted, warnings: admitting.warnings, replayed: false })
        })
    }
}

fn replay(conn: &Connection, actor: &Actor, id: &RequestId, contents: &Digest) -> Result<Option<Admission>> {
    let granted = requests::recorded(conn, id, contents, &actor.holder, actor.now)?;
    Ok(granted.map(|granted| Admission { granted, warnings: Vec::new(), replayed: true }))
}

/// One admission, with what its steps share.
struct Admitting<'a> {
    tx: &'a Transaction<'a>,
    actor: &'a Actor,
    request: &'a AdmissionRequest,
    editing: Editing<'a>,
    intents: Vec<Intent>,
    blockers: Vec<Blocker>,
    warnings: Vec<Blocker>,
}

impl<'a> Admitting<'a> {
    fn new(tx: &'a Transaction<'a>, actor: &'a Actor, request: &'a AdmissionRequest) -> Result<Self> {
        let concerned = |want: &Want| want.artifact.is_some() || matches!(want.key, ResourceKey::Intent(_));
        let intents = if request.wants.iter().any(concerned) { intents::all(tx)? } else { Vec::new() };
        let editing = Editing::new(tx, actor)?;
        Ok(Self { tx, actor, request, editing, intents, blockers: Vec::new(), warnings: Vec::new() })
    }

    /// Takes each resource and notes who is in the way; with anybody there the transaction is taken back.
    fn take_all(&mut self) -> Result<Vec<Lease>> {
        let mut leases = Vec::with_capacity(self.request.wants.len() + self.request.of_host.len());
        for want in &self.request.wants {
            self.judge_intents(want)?;
            match self.take_one(want) {
                Ok(lease) => leases.push(lease),
                Err(error) => self.blockers.push(blocker_of(want, error)?),
            }
        }
        if !self.blockers.is_empty() {
            return Err(CatalogError::Blocked(std::mem::take(&mut self.blockers)));
        }
        for lease in &self.request.of_host {
            append_of_lease(self.tx, EventKind::Granted, None, lease, self.actor.now, "")?;
            leases.push(lease.clone());
        }
        Ok(leases)
    }

    fn take_one(&self, want: &Want) -> Result<Lease> {
        let actor = self.actor;
        let request = || request_of(actor, &actor.terms.of_keys());
        match (&want.key, &want.artifact) {
            (ResourceKey::Intent(pattern), _) => {
                let declaring = Declaring { checkout: actor.checkout, task: self.request.task.as_ref() };
                intents::declare(self.tx, pattern, &declaring, &request(), actor.now)
            }
            (_, Some((artifact, _))) => take_whole(self.tx, actor, &self.editing, *artifact),
            (key, None) => grant(self.tx, key, None, &request(), actor.now),
        }
    }

    /// Notes the intents of others that a resource meets, and who holds what an intent covers.
    fn judge_intents(&mut self, want: &Want) -> Result<()> {
        let who = (&self.actor.holder, self.actor.checkout);
        let now = self.actor.now;
        let meets = |other: &IntentPattern| match (&want.key, &want.artifact) {
            (ResourceKey::Intent(pattern), _) => other.overlaps(pattern),
            (_, Some((_, path))) => other.covers(path),
            _ => false,
        };
        for (conflict, lease) in intents::met_by(&self.intents, meets, who, now) {
            let blocks = conflict == Conflict::IntentHere && self.is_blocked_by_intents(want);
            let lease = Some(lease.clone());
            let blocker = Blocker { key: want.key.clone(), artifact: None, conflict, lease };
            if blocks { &mut self.blockers } else { &mut self.warnings }.push(blocker);
        }
        if let ResourceKey::Intent(pattern) = &want.key {
            let held = self.held_below(pattern)?.into_iter().map(|(artifact, lease)| Blocker {
                key: want.key.clone(),
                artifact: Some(artifact),
                conflict: Conflict::Held,
                lease: Some(lease),
            });
            self.warnings.extend(held);
        }
        Ok(())
    }

    /// Whether an intent of somebody else in the same checkout refuses a resource, instead of warning.
    fn is_blocked_by_intents(&self, want: &Want) -> bool {
        let path = match (&want.key, &want.artifact) {
            (ResourceKey::Intent(pattern), _) => pattern.path(),
            (_, Some((_, path))) => path,
            _ => return false,
        };
        self.actor.terms.at(path).on_intent_overlap == OnConflict::Block
    }

    /// The live leases of others on what a pattern covers.
    fn held_below(&self, pattern: &IntentPattern) -> Result<Vec<(Seq, Lease)>> {
        let entry = view::resolve(self.tx, self.actor.checkout, pattern.path())?;
        let Some(entry) = entry else { return Ok(Vec::new()) };
        let sql = format!(
            "WITH RECURSIVE below (artifact) AS (
               SELECT ?1 UNION SELECT h.artifact FROM head h JOIN below ON h.parent = below.artifact WHERE ?3)
             SELECT {LEASE_COLUMNS}, l.artifact FROM below JOIN lease l ON l.artifact = below.artifact
             WHERE l.holder <> ?2"
        );
        let params = (entry.artifact.0, self.actor.holder.as_str(), pattern.is_subtree());
        let read = |row: &rusqlite::Row<'_>| Ok((Seq(row.get(7)?), lease_row(row)?));
        let mut leases = many(self.tx, "look for leases below", &sql, params, read)?;
        leases.retain(|(_, lease)| lease.is_live(self.actor.now));
        Ok(leases)
    }
}

/// Takes the lease of a file, or that of a directory with all that lies below it.
fn take_whole(tx: &Transaction<'_>, actor: &Actor, editing: &Editing<'_>, artifact: Seq) -> Result<Lease> {
    let entry = view::entry_of(tx, actor.checkout, artifact)?.ok_or(CatalogError::NotFound)?;
    let lease = match entry.kind {
        Kind::Directory => {
            editing.check_with_all_below(artifact)?;
            take_subtree(tx, actor, artifact)?
        }
        _ => {
            editing.check(artifact)?;
            take(tx, actor, artifact, None)?
        }
    };
    // Who asks for a lease as such is on terms that want one.
    lease.ok_or(CatalogError::NotFound)
}

/// Who is in the way, where an error says so.
fn blocker_of(want: &Want, error: CatalogError) -> Result<Blocker> {
    let (conflict, artifact, lease) = match error {
        CatalogError::Held { artifact, lease } => (Conflict::Held, artifact, lease),
        CatalogError::Quarantined { artifact, lease } => (Conflict::Quarantined, artifact, Some(lease)),
        other => return Err(other),
    };
    let artifact = Some(artifact).filter(|artifact| *artifact != Seq(0));
    Ok(Blocker { key: want.key.clone(), artifact, conflict, lease: lease.map(|lease| *lease) })
}

impl Catalog {
    /// Extends live leases of a holder, all or none; the ttl of each, in milliseconds, counts from now.
    ///
    /// Fails with [`CatalogError::Blocked`], naming each that the holder does not have: nothing that ended is taken again.
    pub fn renew(&self, actor: &Actor, keys: &[(ResourceKey, i64)]) -> Result<Vec<Lease>> {
        self.write(Durability::Full, |tx| {
            let mut lost = BTreeMap::new();
            let mut renewed = Vec::with_capacity(keys.len());
            for (key, ttl_ms) in keys {
                match renew_one(tx, actor, key, *ttl_ms)? {
                    Ok(lease) => renewed.push(lease),
                    Err(present) => drop(lost.insert(key.clone(), present)),
                }
            }
            if lost.is_empty() {
                return Ok(renewed);
            }
            let blockers = lost.into_iter().map(|(key, lease)| Blocker {
                key,
                artifact: None,
                conflict: Conflict::Held,
                lease,
            });
            Err(CatalogError::Blocked(blockers.collect()))
        })
    }
}

/// Extends one live lease; else tells who has it now.
fn renew_one(
    tx: &Transaction<'_>,
    actor: &Actor,
    key: &ResourceKey,
    ttl_ms: i64,
) -> Result<std::result::Result<Lease, Option<Lease>>> {
    let request = LeaseRequest { ttl_ms, ..request_of(actor, &actor.terms.of_keys()) };
    let is_mine = |lease: &Lease| lease.holder == actor.holder && lease.is_live(actor.now);
    if let ResourceKey::Intent(pattern) = key {
        let Some(intent) = intents::intent_of(tx, pattern, &actor.holder)?.filter(|i| is_mine(&i.lease))
        else {
            return Ok(Err(None));
        };
        let declaring = Declaring { checkout: intent.checkout, task: intent.task.as_ref() };
        return intents::declare(tx, pattern, &declaring, &request, actor.now).map(Ok);
    }
    match super::row_on(tx, key)? {
        Some((artifact, lease)) if is_mine(&lease) => {
            grant(tx, &lease.key, artifact, &request, actor.now).map(Ok)
        }
        other => Ok(Err(other.map(|(_, lease)| lease).filter(|lease| lease.is_live(actor.now)))),
    }
}
