//! Requests that were granted: a repeated one gets the same answer, and extends nothing.

use rusqlite::{Connection, Row, Transaction};

use super::super::view::{execute, many, one};
use super::super::{CatalogError, Result};
use super::{Granted, intents, lease_on};
use crate::model::{Digest, Generation, Holder, Instant, Lease, RequestId, ResourceKey, Timestamp};

/// How many requests are remembered; older ones are new again.
const KEPT: i64 = 100_000;

/// After how many requests the old ones are looked for.
const TRIM_EVERY: i64 = 1_000;

/// What a request was granted, with what became of it; none if its id is new.
///
/// Fails with [`CatalogError::RequestReused`] where the id was used for other contents.
pub(super) fn recorded(
    conn: &Connection,
    id: &RequestId,
    contents: &Digest,
    holder: &Holder,
    now: Instant,
) -> Result<Option<Vec<Granted>>> {
    let sql = "SELECT number, contents FROM request WHERE id = ?1";
    let known = one(conn, "look for a request", sql, [id.as_str()], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?))
    })?;
    let Some((number, before)) = known else { return Ok(None) };
    if before != contents.as_bytes() {
        return Err(CatalogError::RequestReused);
    }
    let sql = "SELECT key, generation, boot, expires_boot_ms, expires FROM request_grant
        WHERE request = ?1 ORDER BY position";
    let leases = many(conn, "read a request", sql, [number], |row| recorded_row(row, holder))?;
    leases.into_iter().map(|lease| present_state(conn, lease, now)).collect::<Result<_>>().map(Some)
}

fn recorded_row(row: &Row<'_>, holder: &Holder) -> rusqlite::Result<Lease> {
    let key: ResourceKey =
        row.get_ref(0)?.as_str()?.parse().map_err(|_| super::super::rows::bad(0, "resource key"))?;
    Ok(Lease {
        key,
        holder: holder.clone(),
        generation: Generation(row.get(1)?),
        boot: row.get(2)?,
        expires_boot_ms: row.get(3)?,
        expires: Timestamp(row.get(4)?),
        fenced: false,
    })
}

/// The lease as it is now, if it still is the one of that grant; else as it was granted, ended.
fn present_state(conn: &Connection, lease: Lease, now: Instant) -> Result<Granted> {
    let present = match &lease.key {
        // Whoever keeps leases of the host knows.
        ResourceKey::Host(_) => Some(lease.clone()),
        ResourceKey::Intent(pattern) => {
            intents::intent_of(conn, pattern, &lease.holder)?.map(|intent| intent.lease)
        }
        key => lease_on(conn, key)?,
    };
    Ok(match present.filter(|present| present.generation == lease.generation) {
        Some(present) => Granted { live: present.is_live(now), lease: present },
        None => Granted { live: false, lease },
    })
}

/// Remembers what a request was granted.
pub(super) fn record(
    tx: &Transaction<'_>,
    id: &RequestId,
    contents: &Digest,
    leases: &[Lease],
    now: Instant,
) -> Result<()> {
    let sql = "INSERT INTO request (id, contents, at) VALUES (?1, ?2, ?3)";
    execute(tx, "remember a request", sql, (id.as_str(), contents.as_bytes(), now.wall.0))?;
    let number = tx.last_insert_rowid();
    let sql = "INSERT INTO request_grant (request, position, key, generation, boot, expires_boot_ms, expires)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    for (position, lease) in (0_i64..).zip(leases) {
        let key = lease.key.to_string();
        let params =
            (number, position, key, lease.generation.0, lease.boot, lease.expires_boot_ms, lease.expires.0);
        execute(tx, "remember a grant", sql, params)?;
    }
    if number % TRIM_EVERY == 0 { forget_up_to(tx, number - KEPT) } else { Ok(()) }
}

fn forget_up_to(tx: &Transaction<'_>, number: i64) -> Result<()> {
    execute(tx, "forget requests", "DELETE FROM request_grant WHERE request <= ?1", [number])?;
    execute(tx, "forget requests", "DELETE FROM request WHERE number <= ?1", [number]).map(drop)
}
