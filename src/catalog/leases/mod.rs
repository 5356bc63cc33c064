//! The lease table: who may begin a write to what, until when.
//!
//! A lease is a permission to *begin* a write, not a lock: its end does not prove that the writer stopped. What keeps
//! versions safe is that publishing and checking in compare the lease's generation in their own transaction.
//! Not guaranteed: fairness among waiters, and anything about programs that write round the mount.

mod admission;
mod by_hand;
mod intents;
mod listing;
mod requests;
mod writers;

pub use admission::{Admission, AdmissionRequest, Blocker, Conflict, Granted, Want};
pub use by_hand::{Ask, ByHand, Unsaved};
pub use intents::Intent;
pub use listing::{LeaseFilter, ListedLease};

use rusqlite::{Connection, Transaction};

use super::access::Editing;
use super::error::doing;
use super::events::{EventKind, append_of_lease};
use super::rows::lease_row;
use super::terms::{terms_at, terms_of, warn_of_holder};
use super::view::{self, execute, many, one};
use super::{Actor, Catalog, CatalogError, Durability, Place, Result};
use crate::config::{LeaseNeed, LeasePolicy, Renew, UnresolvedWriter};
use crate::model::{
    ArtifactId, CheckoutId, Decision, Generation, Holder, Instant, Lease, LeaseRequest, Protection,
    ResourceKey, Scratch, Seq, Standing, VersionNumber, decide, protection,
};
use writers::{has_living_writer, is_writing};

const LEASE_COLUMNS: &str = "l.key, l.holder, l.generation, l.boot, l.expires_boot_ms, l.expires, l.fenced";

/// After how many generations leases that ended long ago are looked for.
const FORGET_EVERY: i64 = 1_000;

/// How long after its end a lease on no artifact is kept, for whoever wants to know of it: a week.
const KEPT_ENDED_NS: i64 = 7 * 86_400 * 1_000_000_000;

impl Catalog {
    /// Takes or renews the leases of some artifacts, all or none.
    ///
    /// `seen` is the version that the writer has read of each: an older one than the head is refused as stale. So is one
    /// whose name somebody else took after its reservation had ended. What needs no lease on the actor's terms, or is
    /// somebody else's and may be written all the same, has none in the answer.
    pub fn acquire(&self, actor: &Actor, artifacts: &[(Seq, Option<VersionNumber>)]) -> Result<Vec<Lease>> {
        self.write(Durability::Full, |tx| {
            let editing = Editing::new(tx, actor)?;
            let take = |(artifact, seen): &(Seq, Option<VersionNumber>)| {
                editing.check(*artifact)?;
                take_named(tx, actor, *artifact, *seen)
            };
            artifacts.iter().filter_map(|one| take(one).transpose()).collect()
        })
    }

    /// Gives leases of an actor's their whole time again, from the actor's present on, where they are still those of the
    /// generations that he has, and have not ended; none of the others.
    pub fn renew_held(&self, actor: &Actor, held: &[(Seq, Generation)]) -> Result<Vec<Option<Lease>>> {
        self.write(Durability::Grouped, |tx| {
            held.iter().map(|(artifact, generation)| renew_held(tx, actor, *artifact, *generation)).collect()
        })
    }

    /// Gives leases back; tells of each whether the holder had it. What their generations protect can't be published later.
    pub fn release(&self, keys: &[ResourceKey], holder: &Holder, now: Instant) -> Result<Vec<bool>> {
        self.write(Durability::Full, |tx| keys.iter().map(|key| release(tx, key, holder, now)).collect())
    }

    /// Gives back a lease on an artifact, but only if it is still the one of this generation.
    pub fn release_generation(&self, id: ArtifactId, generation: Generation, now: Instant) -> Result<bool> {
        self.write(Durability::Full, |tx| match lease_on(tx, &ResourceKey::Artifact(id))? {
            Some(lease) if lease.generation == generation => {
                give_back(tx, &lease, now)?;
                Ok(true)
            }
            _ => Ok(false),
        })
    }

    /// The row of a lease, ended or not.
    pub fn lease(&self, key: &ResourceKey) -> Result<Option<Lease>> {
        self.read(|conn| lease_on(conn, key))
    }

    /// The live lease of somebody else that would refuse a write to an artifact on an actor's terms, if any.
    pub fn refusing_lease(&self, actor: &Actor, artifact: Seq) -> Result<Option<Lease>> {
        self.read(|conn| refusing_lease(conn, actor, artifact))
    }

    /// The lease on an artifact that ended and whose writer is not known to have stopped, if there is one.
    pub fn quarantined_lease(&self, artifact: Seq, now: Instant) -> Result<Option<Lease>> {
        self.read(|conn| {
            let lease = lease_of(conn, artifact)?;
            let quarantined = standing(conn, Some(artifact), lease.as_ref(), now)?.is_quarantined(now);
            Ok(lease.filter(|_| quarantined))
        })
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
}

pub(super) fn lease_on(conn: &Connection, key: &ResourceKey) -> Result<Option<Lease>> {
    let sql = format!("SELECT {LEASE_COLUMNS} FROM lease l WHERE l.key = ?1");
    one(conn, "read a lease", &sql, [key.to_string()], lease_row)
}

/// The row of a lease, with the artifact that it is on.
fn row_on(conn: &Connection, key: &ResourceKey) -> Result<Option<(Option<Seq>, Lease)>> {
    let sql = format!("SELECT {LEASE_COLUMNS}, l.artifact FROM lease l WHERE l.key = ?1");
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, Option<i64>>(7)?.map(Seq), lease_row(row)?));
    one(conn, "read a lease", &sql, [key.to_string()], read)
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
fn check_free(tx: &Transaction<'_>, actor: &Actor, terms: &LeasePolicy, artifact: Seq) -> Result<()> {
    if let Some(lease) = blocker(tx, &actor.holder, artifact, actor.now)? {
        return Err(CatalogError::Held { artifact, lease: Some(Box::new(lease)) });
    }
    match lease_of(tx, artifact)? {
        Some(lease) => check_passable(tx, artifact, lease, &request_of(actor, terms), actor.now),
        None => Ok(()),
    }
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

pub(super) fn request_of(actor: &Actor, terms: &LeasePolicy) -> LeaseRequest {
    LeaseRequest {
        holder: actor.holder.clone(),
        ttl_ms: terms.ttl_ms,
        take_from_writers: terms.unresolved_writer == UnresolvedWriter::Take,
    }
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
    let terms = terms_of(tx, actor, dir)?;
    let read = |row: &rusqlite::Row<'_>| Ok((Seq(row.get(7)?), lease_row(row)?));
    for (artifact, lease) in many(tx, "look for leases below", &sql, (dir.0, actor.holder.as_str()), read)? {
        check_passable(tx, artifact, lease, &request_of(actor, &terms), actor.now)?;
    }
    Ok(())
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
    let decision = decide(
        standing(conn, Some(artifact), Some(&lease), actor.now)?,
        &request_of(actor, terms),
        actor.now,
    );
    Ok(matches!(decision, Decision::Held | Decision::Quarantined).then_some(lease))
}

/// What is known of a resource whose last lease is `lease`.
fn standing<'a>(
    conn: &Connection,
    artifact: Option<Seq>,
    lease: Option<&'a Lease>,
    now: Instant,
) -> Result<Standing<'a>> {
    let has_writer = match (artifact, lease) {
        // Only where a lease has ended does it matter who still writes.
        (Some(artifact), Some(lease)) if !lease.is_live(now) && !lease.fenced => {
            has_living_writer(conn, artifact, lease.generation, now)?
        }
        _ => false,
    };
    Ok(Standing { lease, has_writer })
}

/// Refuses what somebody else has, or may still be writing.
fn check_passable(
    tx: &Transaction<'_>,
    artifact: Seq,
    lease: Lease,
    request: &LeaseRequest,
    now: Instant,
) -> Result<()> {
    match decide(standing(tx, Some(artifact), Some(&lease), now)?, request, now) {
        Decision::Held => Err(CatalogError::Held { artifact, lease: Some(Box::new(lease)) }),
        Decision::Quarantined => Err(CatalogError::Quarantined { artifact, lease: Box::new(lease) }),
        Decision::BadTtl => Err(CatalogError::BadTtl),
        Decision::Renew | Decision::Grant => Ok(()),
    }
}

/// Refuses to publish bytes of an artifact that were written under a generation: somebody else holds it or may still be
/// writing it, or the generation was ended by hand.
pub(super) fn check_publishable(
    tx: &Transaction<'_>,
    actor: &Actor,
    artifact: Seq,
    generation: Option<Generation>,
) -> Result<()> {
    if let Some(lease) = refusing_lease(tx, actor, artifact)? {
        return Err(CatalogError::Held { artifact, lease: Some(Box::new(lease)) });
    }
    let terms = terms_of(tx, actor, artifact)?;
    let Some(lease) = lease_of(tx, artifact)? else { return Ok(()) };
    match protection(Some(&lease), &actor.holder, generation, actor.now) {
        Protection::Holds => Ok(()),
        Protection::Fenced => Err(CatalogError::Fenced { artifact, lease: Box::new(lease) }),
        Protection::Lapsed if !terms.is_held_by_leases() => Ok(()),
        Protection::Lapsed => check_passable(tx, artifact, lease, &request_of(actor, &terms), actor.now),
    }
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
    let decision = decide(standing(tx, artifact, present.as_ref(), now)?, request, now);
    let at = artifact.unwrap_or(Seq(0));
    match (decision, present) {
        (Decision::BadTtl, _) => Err(CatalogError::BadTtl),
        (Decision::Quarantined, Some(lease)) => {
            Err(CatalogError::Quarantined { artifact: at, lease: Box::new(lease) })
        }
        (Decision::Held | Decision::Quarantined, lease) => {
            Err(CatalogError::Held { artifact: at, lease: lease.map(Box::new) })
        }
        (Decision::Renew, Some(present)) => {
            let lease = Lease::granted(key.clone(), request, present.generation, now);
            put(tx, EventKind::Renewed, artifact, &lease, now)?;
            Ok(lease)
        }
        (Decision::Renew | Decision::Grant, _) => {
            let lease = Lease::granted(key.clone(), request, next_generation(tx, now)?, now);
            put(tx, EventKind::Granted, artifact, &lease, now)?;
            Ok(lease)
        }
    }
}

/// Writes a lease and tells of it.
fn put(
    tx: &Transaction<'_>,
    kind: EventKind,
    artifact: Option<Seq>,
    lease: &Lease,
    now: Instant,
) -> Result<()> {
    insert(tx, artifact, lease)?;
    append_of_lease(tx, kind, artifact, lease, now, "")
}

fn insert(tx: &Transaction<'_>, artifact: Option<Seq>, lease: &Lease) -> Result<()> {
    let sql =
        "INSERT OR REPLACE INTO lease (key, artifact, holder, generation, boot, expires_boot_ms, expires, fenced)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0)";
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

fn next_generation(tx: &Transaction<'_>, now: Instant) -> Result<Generation> {
    let sql = "UPDATE meta SET value = value + 1 WHERE key = 'next_generation' RETURNING value - 1";
    let mut statement = tx.prepare_cached(sql).map_err(doing("take a generation"))?;
    let generation: i64 = statement.query_row([], |row| row.get(0)).map_err(doing("take a generation"))?;
    if generation % FORGET_EVERY == 0 {
        forget_ended(tx, now)?;
    }
    Ok(Generation(generation))
}

/// Forgets leases that ended long ago, but for those of artifacts, of which there is one each.
fn forget_ended(tx: &Transaction<'_>, now: Instant) -> Result<()> {
    let before_ns = now.wall.0 - KEPT_ENDED_NS;
    for sql in
        ["DELETE FROM lease WHERE artifact IS NULL AND expires < ?1", "DELETE FROM intent WHERE expires < ?1"]
    {
        execute(tx, "forget ended leases", sql, [before_ns])?;
    }
    Ok(())
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
    let lease = Lease::granted(key, &request, next_generation(tx, actor.now)?, actor.now);
    put(tx, EventKind::Granted, Some(artifact), &lease, actor.now)?;
    Ok(Some(lease))
}

/// Gives back a lease that the holder has; tells whether he had it.
pub(super) fn release(
    tx: &Transaction<'_>,
    key: &ResourceKey,
    holder: &Holder,
    now: Instant,
) -> Result<bool> {
    if let ResourceKey::Intent(pattern) = key {
        return intents::withdraw(tx, pattern, holder, now);
    }
    match lease_on(tx, key)? {
        Some(lease) if lease.holder == *holder => {
            give_back(tx, &lease, now)?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Gives back the actor's lease on an artifact, unless his mount has bytes of it that no save holds.
pub(super) fn release_unless_writing(tx: &Transaction<'_>, actor: &Actor, artifact: Seq) -> Result<()> {
    match lease_of(tx, artifact)?.filter(|lease| lease.holder == actor.holder) {
        Some(lease) if !is_writing(tx, artifact, actor.checkout)? => give_back(tx, &lease, actor.now),
        _ => Ok(()),
    }
}

/// Drops the lease of an artifact that ceases to exist.
pub(super) fn drop_lease(tx: &Transaction<'_>, artifact: Seq, now: Instant) -> Result<()> {
    match lease_of(tx, artifact)? {
        Some(lease) => give_back(tx, &lease, now),
        None => Ok(()),
    }
}

fn give_back(tx: &Transaction<'_>, lease: &Lease, now: Instant) -> Result<()> {
    let sql = "DELETE FROM lease WHERE key = ?1 RETURNING artifact";
    let artifact =
        one(tx, "release a lease", sql, [lease.key.to_string()], |row| row.get::<_, Option<i64>>(0))?;
    append_of_lease(tx, EventKind::Released, artifact.flatten().map(Seq), lease, now, "")
}
