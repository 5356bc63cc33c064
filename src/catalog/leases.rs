//! The lease table: who may begin a write to what, until when.
//!
//! A lease is a permission to *begin* a write, not a lock: its end does not prove that the writer stopped. What keeps
//! versions safe is that publishing and checking in compare the lease's generation in their own transaction.
//! Not guaranteed: fairness among waiters, and anything about programs that write round the mount.

use rusqlite::{Connection, Transaction};

use super::error::doing;
use super::rows::lease_row;
use super::terms::{terms_at, terms_of, warn_of_holder};
use super::view::{self, execute, many, one};
use super::{Actor, Catalog, CatalogError, Durability, Place, Result};
use crate::config::{LeaseNeed, LeasePolicy, Renew, UnresolvedWriter};
use crate::model::{
    ArtifactId, CheckoutId, Decision, Generation, Holder, Instant, Lease, LeaseRequest, ResourceKey, Scratch,
    Seq, VersionNumber, decide,
};

use crate::sys::{self, ProcessKey};

const LEASE_COLUMNS: &str = "l.key, l.holder, l.generation, l.boot, l.expires_boot_ms, l.expires";

/// Which leases to list.
#[derive(Debug, Clone, Default)]
pub struct LeaseFilter {
    /// Only this holder's.
    pub holder: Option<Holder>,
}

impl Catalog {
    /// Takes or renews a lease on a key that is no artifact of the tree.
    pub fn acquire_key(&self, key: &ResourceKey, request: &LeaseRequest, now: Instant) -> Result<Lease> {
        self.write(Durability::Full, |tx| grant(tx, key, None, request, now))
    }

    /// Takes or renews the leases of some artifacts, all or none.
    ///
    /// `seen` is the version that the writer has read of each: an older one than the head is refused as stale. So is one
    /// whose name somebody else took after its reservation had ended. What needs no lease on the actor's terms, or is
    /// somebody else's and may be written all the same, has none in the answer.
    pub fn acquire(&self, actor: &Actor, artifacts: &[(Seq, Option<VersionNumber>)]) -> Result<Vec<Lease>> {
        self.write(Durability::Full, |tx| {
            let take = |(artifact, seen): &(_, _)| take_named(tx, actor, *artifact, *seen).transpose();
            artifacts.iter().filter_map(take).collect()
        })
    }

    /// Gives leases of an actor's their whole time again, from the actor's present on, where they are still those of the
    /// generations that he has, and have not ended; none of the others.
    pub fn renew_held(&self, actor: &Actor, held: &[(Seq, Generation)]) -> Result<Vec<Option<Lease>>> {
        self.write(Durability::Grouped, |tx| {
            held.iter().map(|(artifact, generation)| renew_held(tx, actor, *artifact, *generation)).collect()
        })
    }

    /// Gives a lease back; tells whether the holder had it. What this generation protects can't be published later.
    pub fn release(&self, key: &ResourceKey, holder: &Holder) -> Result<bool> {
        self.write(Durability::Full, |tx| release(tx, key, holder))
    }

    /// Gives back a lease on an artifact, but only if it is still the one of this generation.
    pub fn release_generation(&self, id: ArtifactId, generation: Generation) -> Result<bool> {
        self.write(Durability::Full, |tx| {
            let sql = "DELETE FROM lease WHERE key = ?1 AND generation = ?2";
            execute(tx, "release a lease", sql, (ResourceKey::Artifact(id).to_string(), generation.0))
                .map(|n| n > 0)
        })
    }

    /// The row of a lease, ended or not.
    pub fn lease(&self, key: &ResourceKey) -> Result<Option<Lease>> {
        self.read(|conn| lease_on(conn, key))
    }

    /// Every row of the lease table that passes the filter, by key, with the artifact's row.
    pub fn leases(&self, filter: &LeaseFilter) -> Result<Vec<(Option<Seq>, Lease)>> {
        let holder = filter.holder.as_ref().map(Holder::as_str);
        let sql = format!(
            "SELECT {LEASE_COLUMNS}, l.artifact FROM lease l WHERE ?1 IS NULL OR l.holder = ?1 ORDER BY l.key"
        );
        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, Option<i64>>(6)?.map(Seq), lease_row(row)?));
        self.read(|conn| many(conn, "list leases", &sql, [holder], read))
    }

    /// The live lease of somebody else that would refuse a write to an artifact on an actor's terms, if any.
    pub fn refusing_lease(&self, actor: &Actor, artifact: Seq) -> Result<Option<Lease>> {
        self.read(|conn| refusing_lease(conn, actor, artifact))
    }

    /// The live lease that covers an artifact in a checkout, whoever has it: its own, or one on a directory above.
    pub fn covering_lease(&self, checkout: CheckoutId, artifact: Seq, now: Instant) -> Result<Option<Lease>> {
        let sql = format!(
            "WITH RECURSIVE up (artifact) AS (
               SELECT ?1 UNION SELECT h.parent FROM head h JOIN up ON h.artifact = up.artifact
               UNION SELECT n.parent FROM name n JOIN up ON n.artifact = up.artifact WHERE n.checkout = ?2)
             SELECT {LEASE_COLUMNS} FROM up JOIN lease l ON l.artifact = up.artifact
             ORDER BY l.artifact <> ?1"
        );
        let leases =
            self.read(|conn| many(conn, "look for leases above", &sql, (artifact.0, checkout.0), lease_row))?;
        Ok(leases.into_iter().find(|lease| lease.is_live(now)))
    }

    /// Says which drafts have bytes that no save holds yet: their leases don't end while their mount lives.
    pub fn set_writers(&self, checkout: CheckoutId, artifacts: &[Seq], now: Instant) -> Result<()> {
        self.write(Durability::Grouped, |tx| {
            execute(tx, "clear writers", "DELETE FROM writer WHERE checkout = ?1", [checkout.0])?;
            for artifact in artifacts {
                let sql = "INSERT OR REPLACE INTO writer VALUES (?1, ?2, ?3)";
                execute(tx, "note a writer", sql, (artifact.0, checkout.0, now.wall.0))?;
            }
            Ok(())
        })
    }
}

pub(super) fn lease_on(conn: &Connection, key: &ResourceKey) -> Result<Option<Lease>> {
    let sql = format!("SELECT {LEASE_COLUMNS} FROM lease l WHERE l.key = ?1");
    one(conn, "read a lease", &sql, [key.to_string()], lease_row)
}

/// The lease on an artifact alone, not on what is above it.
pub(super) fn lease_of(conn: &Connection, artifact: Seq) -> Result<Option<Lease>> {
    let sql = format!("SELECT {LEASE_COLUMNS} FROM lease l WHERE l.artifact = ?1");
    one(conn, "read a lease", &sql, [artifact.0], lease_row)
}

/// A live lease of somebody else on the artifact or on a directory above it.
pub(super) fn blocker(
    conn: &Connection,
    holder: &Holder,
    artifact: Seq,
    now: Instant,
) -> Result<Option<Lease>> {
    let sql = format!(
        "WITH RECURSIVE up (artifact) AS (
           SELECT ?1 UNION SELECT h.parent FROM head h JOIN up ON h.artifact = up.artifact)
         SELECT {LEASE_COLUMNS} FROM up JOIN lease l ON l.artifact = up.artifact WHERE l.holder <> ?2"
    );
    let leases = many(conn, "look for leases above", &sql, (artifact.0, holder.as_str()), lease_row)?;
    Ok(leases.into_iter().find(|lease| lease.is_live(now)))
}

/// As [`Catalog::refusing_lease`].
pub(super) fn refusing_lease(conn: &Connection, actor: &Actor, artifact: Seq) -> Result<Option<Lease>> {
    let lease = blocker(conn, &actor.holder, artifact, actor.now)?;
    if lease.is_none() || terms_of(conn, actor, artifact)?.is_held_by_leases() { Ok(lease) } else { Ok(None) }
}

/// Refuses if somebody else holds the artifact, or if one who let it lapse has an unpublished writer on it.
fn check_free(tx: &Connection, actor: &Actor, terms: &LeasePolicy, artifact: Seq) -> Result<()> {
    if let Some(lease) = blocker(tx, &actor.holder, artifact, actor.now)? {
        return Err(CatalogError::Held { artifact, lease: Some(Box::new(lease)) });
    }
    if waits_for_writers(terms) && has_living_writer(tx, actor, artifact)? {
        let lease = lease_of(tx, artifact)?.map(Box::new);
        return Err(CatalogError::Held { artifact, lease });
    }
    Ok(())
}

fn waits_for_writers(terms: &LeasePolicy) -> bool {
    terms.unresolved_writer == UnresolvedWriter::Quarantine
}

/// Whether another checkout's mount has unpublished bytes of an artifact, and its daemon is not proven dead.
fn has_living_writer(tx: &Connection, actor: &Actor, artifact: Seq) -> Result<bool> {
    let sql = "SELECT m.boot, m.pid, m.start_ticks FROM writer w JOIN mount m ON m.checkout = w.checkout
        WHERE w.artifact = ?1 AND w.checkout <> ?2";
    let read = |row: &rusqlite::Row<'_>| {
        let start_ticks = row.get::<_, i64>(2)?.cast_unsigned();
        Ok((row.get::<_, i64>(0)?, ProcessKey { pid: row.get(1)?, start_ticks }))
    };
    let daemons = many(tx, "look for writers", sql, (artifact.0, actor.checkout.0), read)?;
    Ok(daemons.into_iter().any(|(boot, daemon)| boot == actor.now.boot && sys::is_alive(daemon)))
}

/// Takes or renews the lease on an artifact, with every check that a write needs; none where the terms want none, or let
/// the actor write to what somebody else holds.
pub(super) fn take(
    tx: &Transaction<'_>,
    actor: &Actor,
    artifact: Seq,
    seen: Option<VersionNumber>,
) -> Result<Option<Lease>> {
    let terms = terms_of(tx, actor, artifact)?;
    let unleased = terms.need == LeaseNeed::None
        || warn_of_holder(tx, actor, &terms, check_free(tx, actor, &terms, artifact))?;
    check_base(tx, actor, artifact, seen)?;
    if unleased { Ok(None) } else { take_free(tx, actor, &terms, artifact).map(Some) }
}

/// Refuses a write that was made on an older version than the newest.
fn check_base(tx: &Connection, actor: &Actor, artifact: Seq, seen: Option<VersionNumber>) -> Result<()> {
    let head = view::head_of(tx, artifact)?;
    let draft = view::draft_of(tx, actor.checkout, artifact)?;
    let base = draft.as_ref().map_or(seen, |draft| draft.base.or(seen));
    let newest = head.as_ref().and_then(|head| head.head);
    match (base, newest) {
        (Some(base), Some(head)) if base != head => Err(CatalogError::Stale { artifact, base, head }),
        _ => Ok(()),
    }
}

/// Takes or renews the lease on an artifact that nobody else holds.
fn take_free(tx: &Transaction<'_>, actor: &Actor, terms: &LeasePolicy, artifact: Seq) -> Result<Lease> {
    let before = lease_of(tx, artifact)?;
    if let Some(lease) = &before
        && terms.renew == Renew::Never
        && lease.holder == actor.holder
        && lease.is_live(actor.now)
    {
        return Ok(lease.clone());
    }
    let id = view::id_of(tx, artifact)?;
    let request = request_of(actor, terms);
    let lease = grant(tx, &ResourceKey::Artifact(id), Some(artifact), &request, actor.now)?;
    if before.map(|lease| lease.generation) != Some(lease.generation) {
        actor.granted.set(true);
    }
    Ok(lease)
}

fn request_of(actor: &Actor, terms: &LeasePolicy) -> LeaseRequest {
    LeaseRequest { holder: actor.holder.clone(), ttl_ms: terms.ttl_ms }
}

/// Gives the holder's own live lease its whole time again, if use does that and it is due.
pub(super) fn renew(
    tx: &Transaction<'_>,
    actor: &Actor,
    artifact: Seq,
    lease: Lease,
) -> Result<Option<Lease>> {
    let terms = terms_of(tx, actor, artifact)?;
    let by_use = terms.need != LeaseNeed::None && terms.renew != Renew::Never;
    if !by_use || !lease.is_due(terms.ttl_ms, actor.now) {
        return Ok(None);
    }
    grant(tx, &lease.key, Some(artifact), &request_of(actor, &terms), actor.now).map(Some)
}

fn renew_held(
    tx: &Transaction<'_>,
    actor: &Actor,
    artifact: Seq,
    generation: Generation,
) -> Result<Option<Lease>> {
    let is_held = |lease: &Lease| {
        lease.holder == actor.holder && lease.generation == generation && lease.is_live(actor.now)
    };
    let Some(lease) = lease_of(tx, artifact)?.filter(is_held) else { return Ok(None) };
    let terms = terms_of(tx, actor, artifact)?;
    grant(tx, &lease.key, Some(artifact), &request_of(actor, &terms), actor.now).map(Some)
}

/// As [`take`], for bytes that are to be written under the name that the artifact has in the checkout.
pub(super) fn take_named(
    tx: &Transaction<'_>,
    actor: &Actor,
    artifact: Seq,
    seen: Option<VersionNumber>,
) -> Result<Option<Lease>> {
    check_name(tx, actor, artifact)?;
    take(tx, actor, artifact, seen)
}

/// Refuses an artifact that was made or moved in the checkout, and whose name is somebody else's since its own lease
/// ended: reserved by another checkout, or checked in as another artifact.
fn check_name(tx: &Transaction<'_>, actor: &Actor, artifact: Seq) -> Result<()> {
    let lease = lease_of(tx, artifact)?;
    if lease.is_some_and(|lease| lease.holder == actor.holder && lease.is_live(actor.now)) {
        return Ok(());
    }
    let sql = "SELECT parent, name, base FROM name WHERE artifact = ?1 AND checkout = ?2";
    let named = one(tx, "read a name", sql, (artifact.0, actor.checkout.0), |row| {
        Ok((view::place_at_row(row)?, row.get::<_, Option<i64>>(2)?.map(VersionNumber)))
    })?;
    let Some((place, hidden)) = named else { return Ok(()) };
    check_place(tx, actor, &place)?;
    let occupant = view::head_at(tx, &place)?.filter(|head| head.artifact != artifact);
    match occupant.and_then(|head| head.head) {
        // What the checkout itself put it over is no surprise.
        Some(head) if Some(head) != hidden => {
            Err(CatalogError::Stale { artifact, base: hidden.unwrap_or(VersionNumber(0)), head })
        }
        _ => Ok(()),
    }
}

/// Takes the lease on a directory and on all that lies below it: nobody else may hold or have reserved any of it, unless
/// the terms for the directory say otherwise.
pub(super) fn take_subtree(tx: &Transaction<'_>, actor: &Actor, dir: Seq) -> Result<Option<Lease>> {
    let terms = terms_of(tx, actor, dir)?;
    if terms.need != LeaseNeed::None && warn_of_holder(tx, actor, &terms, check_free_below(tx, actor, dir))? {
        // A lease on the directory would stand for what somebody else holds below.
        return check_base(tx, actor, dir, None).map(|()| None);
    }
    take(tx, actor, dir, None)
}

fn check_free_below(tx: &Transaction<'_>, actor: &Actor, dir: Seq) -> Result<()> {
    let sql = format!(
        "WITH RECURSIVE below (artifact) AS (
           SELECT ?1
           UNION SELECT h.artifact FROM head h JOIN below ON h.parent = below.artifact
           UNION SELECT n.artifact FROM name n JOIN below ON n.parent = below.artifact
             WHERE n.artifact IS NOT NULL)
         SELECT {LEASE_COLUMNS}, l.artifact FROM below JOIN lease l ON l.artifact = below.artifact
         WHERE l.holder <> ?2"
    );
    let read = |row: &rusqlite::Row<'_>| Ok((Seq(row.get(6)?), lease_row(row)?));
    let below = many(tx, "look for leases below", &sql, (dir.0, actor.holder.as_str()), read)?;
    match below.into_iter().find(|(_, lease)| lease.is_live(actor.now)) {
        Some((artifact, lease)) => Err(CatalogError::Held { artifact, lease: Some(Box::new(lease)) }),
        None => Ok(()),
    }
}

/// Refuses a name that somebody else's checkout has reserved by creating it, or by moving an artifact there, unless the
/// terms for the name say otherwise.
pub(super) fn check_place(tx: &Transaction<'_>, actor: &Actor, place: &Place) -> Result<()> {
    let terms = terms_at(tx, actor, place)?;
    if terms.need == LeaseNeed::None {
        return Ok(());
    }
    warn_of_holder(tx, actor, &terms, check_unreserved(tx, actor, &terms, place)).map(drop)
}

fn check_unreserved(conn: &Connection, actor: &Actor, terms: &LeasePolicy, place: &Place) -> Result<()> {
    let sql = "SELECT n.artifact, n.checkout FROM name n
        WHERE n.parent = ?1 AND n.name = ?2 AND n.checkout <> ?3 AND n.artifact IS NOT NULL";
    let params = (place.parent.0, place.name.as_bytes(), actor.checkout.0);
    let others = many(conn, "look for reservations", sql, params, |row| {
        Ok((Seq(row.get(0)?), CheckoutId(row.get(1)?)))
    })?;
    for (artifact, checkout) in others {
        if let Some(lease) = reservation(conn, actor, terms, artifact, checkout)? {
            return Err(CatalogError::Held { artifact, lease: Some(Box::new(lease)) });
        }
    }
    match blocker(conn, &actor.holder, place.parent, actor.now)? {
        Some(lease) => Err(CatalogError::Held { artifact: place.parent, lease: Some(Box::new(lease)) }),
        None => Ok(()),
    }
}

/// The lease that reserves the name of somebody else's new or moved artifact: it lives, or its holder's mount has bytes
/// of it that no save holds. Scratch reserves nothing.
fn reservation(
    conn: &Connection,
    actor: &Actor,
    terms: &LeasePolicy,
    artifact: Seq,
    checkout: CheckoutId,
) -> Result<Option<Lease>> {
    let draft = view::draft_of(conn, checkout, artifact)?;
    if draft.is_some_and(|draft| draft.scratch != Scratch::No) {
        return Ok(None);
    }
    let Some(lease) = lease_of(conn, artifact)?.filter(|lease| lease.holder != actor.holder) else {
        return Ok(None);
    };
    let reserves =
        lease.is_live(actor.now) || waits_for_writers(terms) && has_living_writer(conn, actor, artifact)?;
    Ok(reserves.then_some(lease))
}

/// Writes what [`decide`] says.
pub(super) fn grant(
    tx: &Transaction<'_>,
    key: &ResourceKey,
    artifact: Option<Seq>,
    request: &LeaseRequest,
    now: Instant,
) -> Result<Lease> {
    let present = lease_on(tx, key)?;
    let generation = match decide(present.as_ref(), request, now) {
        Decision::BadTtl => return Err(CatalogError::BadTtl),
        Decision::Refuse => {
            let artifact = artifact.unwrap_or(Seq(0));
            return Err(CatalogError::Held { artifact, lease: present.map(Box::new) });
        }
        Decision::Renew => present.map(|lease| lease.generation).ok_or(CatalogError::NotFound)?,
        Decision::Grant => next_generation(tx)?,
    };
    let lease = lease_from(key, request, generation, now);
    insert(tx, artifact, &lease)?;
    Ok(lease)
}

fn lease_from(key: &ResourceKey, request: &LeaseRequest, generation: Generation, now: Instant) -> Lease {
    let ttl_ns = request.ttl_ms.saturating_mul(1_000_000);
    Lease {
        key: key.clone(),
        holder: request.holder.clone(),
        generation,
        expires_boot_ms: now.boot_ms.saturating_add(request.ttl_ms),
        boot: now.boot,
        expires: crate::model::Timestamp(now.wall.0.saturating_add(ttl_ns)),
    }
}

fn insert(tx: &Transaction<'_>, artifact: Option<Seq>, lease: &Lease) -> Result<()> {
    let sql =
        "INSERT OR REPLACE INTO lease (key, artifact, holder, generation, boot, expires_boot_ms, expires)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let params = (
        lease.key.to_string(),
        artifact.map(|a| a.0),
        lease.holder.as_str(),
        lease.generation.0,
        lease.boot,
        lease.expires_boot_ms,
        lease.expires.0,
    );
    execute(tx, "grant a lease", sql, params).map(drop)
}

fn next_generation(tx: &Transaction<'_>) -> Result<Generation> {
    let sql = "UPDATE meta SET value = value + 1 WHERE key = 'next_generation' RETURNING value - 1";
    let mut statement = tx.prepare_cached(sql).map_err(doing("take a generation"))?;
    statement.query_row([], |row| row.get(0).map(Generation)).map_err(doing("take a generation"))
}

/// Reserves a new artifact for its checkout by a lease that nobody else can have had, unless the terms for its name want
/// none.
pub(super) fn reserve(
    tx: &Transaction<'_>,
    actor: &Actor,
    place: &Place,
    artifact: Seq,
    id: ArtifactId,
) -> Result<Option<Lease>> {
    let terms = terms_at(tx, actor, place)?;
    if terms.need == LeaseNeed::None {
        return Ok(None);
    }
    let (key, request) = (ResourceKey::Artifact(id), request_of(actor, &terms));
    let lease = lease_from(&key, &request, next_generation(tx)?, actor.now);
    insert(tx, Some(artifact), &lease)?;
    Ok(Some(lease))
}

pub(super) fn release(tx: &Transaction<'_>, key: &ResourceKey, holder: &Holder) -> Result<bool> {
    let sql = "DELETE FROM lease WHERE key = ?1 AND holder = ?2";
    execute(tx, "release a lease", sql, (key.to_string(), holder.as_str())).map(|n| n > 0)
}

/// Drops the lease of an artifact that ceases to exist.
pub(super) fn drop_lease(tx: &Transaction<'_>, artifact: Seq) -> Result<()> {
    execute(tx, "drop a lease", "DELETE FROM lease WHERE artifact = ?1", [artifact.0]).map(drop)
}
