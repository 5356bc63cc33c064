//! Intents: what somebody means to work on, told to all checkouts. They keep nobody from writing; they warn, and where
//! two work in one checkout they may refuse each other.

use rusqlite::{Connection, Row, Transaction};

use super::super::events::{EventKind, append_of_lease};
use super::super::rows::{bad, holder_at};
use super::super::view::{execute, many, one};
use super::super::{Catalog, Durability, Result};
use super::{Conflict, next_generation};
use crate::model::{
    ArtifactPath, CheckoutId, Decision, Generation, Holder, Instant, IntentPattern, Lease, LeaseRequest,
    ResourceKey, Standing, Timestamp, decide,
};

const INTENT_COLUMNS: &str =
    "i.pattern, i.holder, i.generation, i.boot, i.expires_boot_ms, i.expires, i.checkout, i.task";

/// A declared intent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// What it covers.
    pub pattern: IntentPattern,
    /// Its holder and time, as those of a lease.
    pub lease: Lease,
    /// Where the work is to be done.
    pub checkout: CheckoutId,
    /// The task that it belongs to.
    pub task: Option<ResourceKey>,
}

/// Where and for which task an intent is declared.
pub(super) struct Declaring<'a> {
    pub checkout: CheckoutId,
    pub task: Option<&'a ResourceKey>,
}

impl Catalog {
    /// Every intent, ended or not, by pattern and holder.
    pub fn intents(&self) -> Result<Vec<Intent>> {
        self.read(all)
    }

    /// Withdraws what a holder declared for a task and gives back the task itself; tells which keys he had.
    pub fn end_task(&self, task: &ResourceKey, holder: &Holder, now: Instant) -> Result<Vec<ResourceKey>> {
        self.write(Durability::Full, |tx| {
            let sql = format!("SELECT {INTENT_COLUMNS} FROM intent i WHERE i.task = ?1 AND i.holder = ?2");
            let intents =
                many(tx, "list a task's intents", &sql, (task.to_string(), holder.as_str()), intent_row)?;
            let mut ended = Vec::new();
            if super::release(tx, task, holder, now)? {
                ended.push(task.clone());
            }
            for intent in intents {
                withdraw(tx, &intent.pattern, holder, now)?;
                ended.push(intent.lease.key);
            }
            Ok(ended)
        })
    }
}

pub(super) fn all(conn: &Connection) -> Result<Vec<Intent>> {
    let sql = format!("SELECT {INTENT_COLUMNS} FROM intent i ORDER BY i.pattern, i.holder");
    many(conn, "list intents", &sql, (), intent_row)
}

/// One holder's intent of exactly this pattern.
pub(super) fn intent_of(
    conn: &Connection,
    pattern: &IntentPattern,
    holder: &Holder,
) -> Result<Option<Intent>> {
    let sql = format!("SELECT {INTENT_COLUMNS} FROM intent i WHERE i.pattern = ?1 AND i.holder = ?2");
    one(conn, "read an intent", &sql, (pattern.to_text(), holder.as_str()), intent_row)
}

fn intent_row(row: &Row<'_>) -> rusqlite::Result<Intent> {
    let pattern = IntentPattern::from_text(row.get_ref(0)?.as_str()?).map_err(|_| bad(0, "intent"))?;
    let task = row.get_ref(7)?.as_str_or_null()?.map(str::parse).transpose();
    Ok(Intent {
        lease: Lease {
            key: ResourceKey::Intent(pattern.clone()),
            holder: holder_at(row, 1)?,
            generation: Generation(row.get(2)?),
            boot: row.get(3)?,
            expires_boot_ms: row.get(4)?,
            expires: Timestamp(row.get(5)?),
            fenced: false,
        },
        pattern,
        checkout: CheckoutId(row.get(6)?),
        task: task.map_err(|_| bad(7, "resource key"))?,
    })
}

/// Declares or renews an intent; whom it meets was judged before.
pub(super) fn declare(
    tx: &Transaction<'_>,
    pattern: &IntentPattern,
    declaring: &Declaring<'_>,
    request: &LeaseRequest,
    now: Instant,
) -> Result<Lease> {
    let present = intent_of(tx, pattern, &request.holder)?.map(|intent| intent.lease);
    let standing = Standing { lease: present.as_ref(), has_writer: false };
    let (kind, generation) = match (decide(standing, request, now), &present) {
        (Decision::BadTtl, _) => return Err(super::CatalogError::BadTtl),
        (Decision::Renew, Some(present)) => (EventKind::Renewed, present.generation),
        _ => (EventKind::Granted, next_generation(tx, now)?),
    };
    let lease = Lease::granted(ResourceKey::Intent(pattern.clone()), request, generation, now);
    let sql = "INSERT OR REPLACE INTO intent
        (pattern, holder, checkout, task, generation, boot, expires_boot_ms, expires)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let params = (
        pattern.to_text(),
        lease.holder.as_str(),
        declaring.checkout.0,
        declaring.task.map(ToString::to_string),
        lease.generation.0,
        lease.boot,
        lease.expires_boot_ms,
        lease.expires.0,
    );
    execute(tx, "declare an intent", sql, params)?;
    append_of_lease(tx, kind, None, &lease, now, "")?;
    Ok(lease)
}

/// Takes a holder's intent back; tells whether he had it.
pub(super) fn withdraw(
    tx: &Transaction<'_>,
    pattern: &IntentPattern,
    holder: &Holder,
    now: Instant,
) -> Result<bool> {
    let Some(intent) = intent_of(tx, pattern, holder)? else { return Ok(false) };
    let sql = "DELETE FROM intent WHERE pattern = ?1 AND holder = ?2";
    execute(tx, "withdraw an intent", sql, (pattern.to_text(), holder.as_str()))?;
    append_of_lease(tx, EventKind::Released, None, &intent.lease, now, "")?;
    Ok(true)
}

/// What a path or a pattern meets: the live intents of others, each with whether it is of the same checkout.
pub(super) fn met_by<'a>(
    intents: &'a [Intent],
    met: impl Fn(&IntentPattern) -> bool + 'a,
    (holder, checkout): (&'a Holder, CheckoutId),
    now: Instant,
) -> impl Iterator<Item = (Conflict, &'a Lease)> {
    intents.iter().filter_map(move |intent| {
        let others = intent.lease.holder != *holder && intent.lease.is_live(now) && met(&intent.pattern);
        let here = if intent.checkout == checkout { Conflict::IntentHere } else { Conflict::IntentElsewhere };
        others.then_some((here, &intent.lease))
    })
}

impl Catalog {
    /// The live intents that cover a path, whoever declared them.
    pub fn intents_on(&self, path: &ArtifactPath, now: Instant) -> Result<Vec<Intent>> {
        let mut intents = self.intents()?;
        intents.retain(|intent| intent.lease.is_live(now) && intent.pattern.covers(path));
        Ok(intents)
    }
}
