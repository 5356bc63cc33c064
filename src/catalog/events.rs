//! What happened that somebody may want to know later: appended by the transaction that did it.

use std::collections::BTreeSet;

use rusqlite::{Connection, Transaction};

use super::rows::{bad, holder_at};
use super::view::{execute, many, one};
use super::{Actor, Catalog, Durability, Result};
use crate::model::{Generation, Holder, Instant, Lease, ResourceKey, Seq, Timestamp};

/// How many events are kept; older ones are forgotten.
const KEPT: i64 = 100_000;

/// After how many events the old ones are looked for.
const TRIM_EVERY: i64 = 1_000;

/// What sort of thing an event tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// A change was made.
    CheckedIn,
    /// Drafts were dropped.
    Reverted,
    /// A version was made on another one than the newest, knowingly or because nobody could tell.
    OverwroteUnseen,
    /// Bytes were written under a lease that somebody else had taken.
    LeaseLost,
    /// Somebody wrote to what somebody else holds, as policy permits; both are told.
    LeaseConflict,
    /// A save was made on an older version than the newest.
    StaleSave,
    /// Bytes were put aside as a recovery copy.
    Recovered,
    /// A save could not be brought into the store.
    PublishFailed,
    /// A check-in in the background was refused or failed.
    CheckInFailed,
    /// A check-in or a revert settled what had gone wrong with an artifact.
    Settled,
    /// A lease was granted, with a new generation.
    Granted,
    /// A lease was extended; its generation stays.
    Renewed,
    /// A lease was given back.
    Released,
    /// A lease was ended by somebody else than its holder.
    Broken,
    /// A resource was closed since its writer was not known to have stopped, and somebody ended that.
    Resolved,
    /// A holder was asked for what he has.
    Asked,
    /// A principal got a role.
    AccessGranted,
    /// A principal lost a role.
    AccessRevoked,
    /// Paths were hidden from those who have no grant.
    AccessRestricted,
    /// Paths are everybody's again.
    AccessUnrestricted,
}

impl EventKind {
    /// The name by which the event is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CheckedIn => "checked-in",
            Self::Reverted => "reverted",
            Self::OverwroteUnseen => "overwrote-unseen",
            Self::LeaseLost => "lease-lost",
            Self::LeaseConflict => "lease-conflict",
            Self::StaleSave => "stale-save",
            Self::Recovered => "recovered",
            Self::PublishFailed => "publish-failed",
            Self::CheckInFailed => "checkin-failed",
            Self::Settled => "settled",
            Self::Granted => "granted",
            Self::Renewed => "renewed",
            Self::Released => "released",
            Self::Broken => "broken",
            Self::Resolved => "resolved",
            Self::Asked => "asked",
            Self::AccessGranted => "access-granted",
            Self::AccessRevoked => "access-revoked",
            Self::AccessRestricted => "access-restricted",
            Self::AccessUnrestricted => "access-unrestricted",
        }
    }
}

/// One line of the event log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its number; later ones are larger.
    pub seq: i64,
    /// When.
    pub at: Timestamp,
    /// What: [`EventKind::as_str`], or the word of a newer program.
    pub kind: String,
    /// On which artifact.
    pub artifact: Option<Seq>,
    /// By whom or to whom.
    pub holder: Option<Holder>,
    /// Further words for people.
    pub detail: String,
    /// The lease that it is about, as it was after.
    pub lease: Option<EventLease>,
}

/// What an event tells of a lease: together such events tell the whole table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventLease {
    /// What it is on.
    pub key: ResourceKey,
    /// Its generation.
    pub generation: Generation,
    /// The boot that the two times below count from.
    pub boot: i64,
    /// When the event happened, in milliseconds since that boot: no stepped clock changes that.
    pub boot_ms: i64,
    /// When the lease ends, in milliseconds since that boot.
    pub expires_boot_ms: i64,
    /// When the lease ends, by the wall clock.
    pub expires: Timestamp,
}

/// An event that is to be appended.
#[derive(Debug, Clone)]
pub struct NewEvent<'a> {
    /// When.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
    /// On which artifact.
    pub artifact: Option<Seq>,
    /// By whom or to whom.
    pub holder: Option<&'a Holder>,
    /// Further words for people.
    pub detail: &'a str,
}

impl Catalog {
    /// Appends an event that is no part of another operation.
    pub fn note(&self, event: &NewEvent<'_>) -> Result<()> {
        self.write(Durability::Grouped, |tx| append(tx, event))
    }

    /// Up to `limit` events whose number is above `after`, oldest first.
    pub fn events(&self, after: i64, limit: usize) -> Result<Vec<Event>> {
        let sql = format!("SELECT {EVENT_COLUMNS} FROM event e WHERE e.seq > ?1 ORDER BY e.seq LIMIT ?2");
        let limit_rows = i64::try_from(limit).unwrap_or(i64::MAX);
        self.read(|conn: &Connection| many(conn, "list events", &sql, (after, limit_rows), event_row))
    }

    /// The numbers of the oldest event that is kept and of the newest; none before the first.
    pub fn event_range(&self) -> Result<Option<(i64, i64)>> {
        let sql = "SELECT min(seq), max(seq) FROM event";
        let read = |row: &rusqlite::Row<'_>| Ok(row.get::<_, Option<i64>>(0)?.zip(row.get(1)?));
        self.read(|conn| Ok(one(conn, "read the ends of the event log", sql, (), read)?.flatten()))
    }

    /// What others did after an event to what a holder has, oldest first: broken, resolved or asked for; and after which
    /// event to ask the next time.
    pub fn told(&self, holder: &Holder, after: i64) -> Result<(Vec<Event>, i64)> {
        let sql = format!(
            "SELECT {EVENT_COLUMNS} FROM event e
             WHERE e.seq > ?1 AND e.holder = ?2 AND e.kind IN ('broken', 'resolved', 'asked') ORDER BY e.seq"
        );
        // Read first: what comes meanwhile is listed now or the next time.
        let newest = self.event_range()?.map_or(after, |(_, newest)| newest);
        let told = self.read(|conn| {
            many(conn, "list what a holder is told", &sql, (after, holder.as_str()), event_row)
        })?;
        let next = told.last().map_or(newest, |event| event.seq.max(newest));
        Ok((told, next))
    }

    /// What went wrong for a holder and no check-in or revert of the artifact has settled since, oldest first: of each
    /// kind and artifact the newest event.
    pub fn problems(&self, holder: &Holder) -> Result<Vec<Event>> {
        self.read(|conn| problems_of(conn, holder))
    }
}

const EVENT_COLUMNS: &str = "e.seq, e.at, e.kind, e.artifact, e.holder, e.detail, e.key, e.generation, e.boot, e.boot_ms, e.expires_boot_ms, e.expires";

fn problems_of(conn: &Connection, holder: &Holder) -> Result<Vec<Event>> {
    let sql = "WITH settled AS (SELECT artifact, max(seq) AS seq FROM event
          WHERE holder = ?1 AND kind = 'settled' GROUP BY artifact)
        SELECT max(e.seq), e.at, e.kind, e.artifact, e.holder, e.detail, e.key, e.generation, e.boot, e.boot_ms,
          e.expires_boot_ms, e.expires
        FROM event e LEFT JOIN settled s ON s.artifact IS e.artifact
        WHERE e.holder = ?1 AND e.kind IN
            ('lease-lost', 'lease-conflict', 'stale-save', 'publish-failed', 'checkin-failed', 'broken')
          AND e.seq > coalesce(s.seq, 0)
        GROUP BY e.kind, e.artifact ORDER BY 1";
    many(conn, "list problems", sql, [holder.as_str()], event_row)
}

/// Notes that what went wrong for the actor with some artifacts is settled; `is_meant` says with which.
pub(super) fn settle_problems(
    tx: &Transaction<'_>,
    actor: &Actor,
    is_meant: impl Fn(Option<Seq>) -> Result<bool>,
) -> Result<()> {
    let mut settled = BTreeSet::new();
    for problem in problems_of(tx, &actor.holder)? {
        if settled.contains(&problem.artifact) || !is_meant(problem.artifact)? {
            continue;
        }
        settled.insert(problem.artifact);
        let (at, kind, holder) = (actor.now.wall, EventKind::Settled, Some(&actor.holder));
        append(tx, &NewEvent { at, kind, artifact: problem.artifact, holder, detail: "" })?;
    }
    Ok(())
}

fn event_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Event> {
    let nobody = row.get_ref(4)? == rusqlite::types::ValueRef::Null;
    Ok(Event {
        seq: row.get(0)?,
        at: Timestamp(row.get(1)?),
        kind: row.get(2)?,
        artifact: row.get::<_, Option<i64>>(3)?.map(Seq),
        holder: if nobody { None } else { Some(holder_at(row, 4)?) },
        detail: row.get(5)?,
        lease: lease_of_row(row)?,
    })
}

fn lease_of_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<EventLease>> {
    let Some(generation) = row.get::<_, Option<i64>>(7)? else { return Ok(None) };
    Ok(Some(EventLease {
        key: row.get_ref(6)?.as_str()?.parse().map_err(|_| bad(6, "resource key"))?,
        generation: Generation(generation),
        boot: row.get(8)?,
        boot_ms: row.get(9)?,
        expires_boot_ms: row.get(10)?,
        expires: Timestamp(row.get(11)?),
    }))
}

pub(super) fn append(tx: &Transaction<'_>, event: &NewEvent<'_>) -> Result<()> {
    let sql = "INSERT INTO event (at, kind, artifact, holder, detail) VALUES (?1, ?2, ?3, ?4, ?5)";
    let params = (
        event.at.0,
        event.kind.as_str(),
        event.artifact.map(|a| a.0),
        event.holder.map(Holder::as_str),
        event.detail,
    );
    execute(tx, "append an event", sql, params)?;
    trim(tx)
}

/// Appends an event about a lease.
pub(super) fn append_of_lease(
    tx: &Transaction<'_>,
    kind: EventKind,
    artifact: Option<Seq>,
    lease: &Lease,
    now: Instant,
    detail: &str,
) -> Result<()> {
    let sql = "INSERT INTO event
        (at, kind, artifact, holder, detail, key, generation, boot, boot_ms, expires_boot_ms, expires)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    let params = (
        now.wall.0,
        kind.as_str(),
        artifact.map(|artifact| artifact.0),
        lease.holder.as_str(),
        detail,
        lease.key.to_string(),
        lease.generation.0,
        now.boot,
        now.boot_ms,
        lease.expires_boot_ms,
        lease.expires.0,
    );
    execute(tx, "append an event", sql, params)?;
    trim(tx)
}

fn trim(tx: &Transaction<'_>) -> Result<()> {
    let newest = tx.last_insert_rowid();
    if newest % TRIM_EVERY == 0 { forget_up_to(tx, newest - KEPT) } else { Ok(()) }
}

fn forget_up_to(tx: &Transaction<'_>, seq: i64) -> Result<()> {
    execute(tx, "forget events", "DELETE FROM event WHERE seq <= ?1", [seq]).map(drop)
}
