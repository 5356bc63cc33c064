//! What keeps blobs from the collector: the digests that rows name, and work that will name more.

use std::collections::HashSet;

use rusqlite::{Connection, Row};

use super::rows::{bad, digest_at};
use super::view::{execute, many, one};
use super::{Catalog, Durability, Result};
use crate::model::{CheckoutId, Digest, Instant, Seq, VersionNumber};
use crate::sys::{self, ProcessKey};

/// Names a piece of work that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkId(i64);

/// A row that names a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    /// The content of a version.
    Version {
        /// Of which artifact.
        artifact: Seq,
        /// Which one.
        version: VersionNumber,
    },
    /// The content of a draft.
    Draft {
        /// Of which artifact.
        artifact: Seq,
        /// Whose.
        checkout: CheckoutId,
    },
    /// The manifest of a change.
    Manifest,
}

impl Catalog {
    /// Every digest that a row names: of versions, drafts, saves on their way into the store, and manifests.
    ///
    /// A digest that can't be read is an error: whoever collects garbage must not take it for none.
    pub fn named_digests(&self) -> Result<HashSet<Digest>> {
        let sql = "SELECT digest FROM version WHERE digest IS NOT NULL
            UNION ALL SELECT digest FROM draft WHERE digest IS NOT NULL
            UNION ALL SELECT old_digest FROM draft WHERE old_digest IS NOT NULL
            UNION ALL SELECT digest FROM sealed
            UNION ALL SELECT manifest FROM change WHERE manifest IS NOT NULL";
        let read = |row: &Row<'_>| digest_at(row, 0)?.ok_or_else(|| bad(0, "digest"));
        self.read(|conn| Ok(many(conn, "list digests", sql, [], read)?.into_iter().collect()))
    }

    /// Every row that names a blob, with its digest.
    pub fn references(&self) -> Result<Vec<(Digest, Reference)>> {
        let sql = "SELECT digest, 0, artifact, number FROM version WHERE digest IS NOT NULL
            UNION ALL SELECT digest, 1, artifact, checkout FROM draft WHERE digest IS NOT NULL
            UNION ALL SELECT old_digest, 1, artifact, checkout FROM draft WHERE old_digest IS NOT NULL
            UNION ALL SELECT manifest, 2, 0, 0 FROM change WHERE manifest IS NOT NULL";
        let read = |row: &Row<'_>| {
            let digest = digest_at(row, 0)?.ok_or_else(|| bad(0, "digest"))?;
            let (artifact, number) = (Seq(row.get(2)?), row.get(3)?);
            let reference = match row.get::<_, i64>(1)? {
                0 => Reference::Version { artifact, version: VersionNumber(number) },
                1 => Reference::Draft { artifact, checkout: CheckoutId(number) },
                _ => Reference::Manifest,
            };
            Ok((digest, reference))
        };
        self.read(|conn| many(conn, "list references", sql, [], read))
    }

    /// What SQLite finds wrong with the database, a line each: pages, indices, and references between rows.
    pub fn check_integrity(&self) -> Result<Vec<String>> {
        self.read(|conn| {
            let said = |row: &Row<'_>| row.get::<_, String>(0);
            let mut wrong = many(conn, "check the database", "PRAGMA integrity_check", [], said)?;
            wrong.retain(|line| line != "ok");
            let sql = "SELECT 'a row of ' || \"table\" || ' refers to none of ' || parent FROM pragma_foreign_key_check";
            wrong.extend(many(conn, "check references", sql, [], said)?);
            Ok(wrong)
        })
    }

    /// Whether a row names a digest, or work goes on that may be about to: see [`begin_work`](Self::begin_work).
    pub fn may_need(&self, digest: &Digest, now: Instant) -> Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM version WHERE digest = ?1)
              OR EXISTS (SELECT 1 FROM draft WHERE digest = ?1)
              OR EXISTS (SELECT 1 FROM draft WHERE old_digest = ?1)
              OR EXISTS (SELECT 1 FROM sealed WHERE digest = ?1)
              OR EXISTS (SELECT 1 FROM change WHERE manifest = ?1)";
        self.read(|conn| {
            let named = one(conn, "look for a digest", sql, [digest.as_bytes()], |row| row.get(0))?;
            Ok(named.unwrap_or(true) || goes_on(conn, now)?)
        })
    }

    /// Notes, durably, that this process is about to store blobs that no row names yet.
    ///
    /// A sweep removes nothing until [`end_work`](Self::end_work), or until the process is dead.
    pub fn begin_work(&self, process: ProcessKey, now: Instant) -> Result<WorkId> {
        let sql = "INSERT INTO work (boot, pid, start_ticks, started) VALUES (?1, ?2, ?3, ?4) RETURNING id";
        let params = (now.boot, process.pid, process.start_ticks.cast_signed(), now.wall.0);
        self.write(Durability::Full, |tx| {
            forget_dead(tx, now)?;
            let id = one(tx, "begin work", sql, params, |row| row.get(0))?;
            Ok(WorkId(id.expect("BUG: an insert returns its row")))
        })
    }

    /// Notes that what a piece of work stored is named by now, or never will be.
    pub fn end_work(&self, work: WorkId) -> Result<()> {
        let sql = "DELETE FROM work WHERE id = ?1";
        self.write(Durability::Grouped, |tx| execute(tx, "end work", sql, [work.0]).map(drop))
    }

    /// Whether a live process is storing blobs that no row names yet.
    pub fn work_goes_on(&self, now: Instant) -> Result<bool> {
        self.read(|conn| goes_on(conn, now))
    }

    /// Forgets the stamps of blobs that are gone.
    pub fn forget_stamps(&self, digests: &[Digest]) -> Result<()> {
        let sql = "DELETE FROM stamp WHERE digest = ?1";
        self.write(Durability::Grouped, |tx| {
            digests
                .iter()
                .try_for_each(|digest| execute(tx, "forget a stamp", sql, [digest.as_bytes()]).map(drop))
        })
    }
}

/// Removes what processes left that are dead.
fn forget_dead(tx: &Connection, now: Instant) -> Result<()> {
    let sql = "SELECT id, boot, pid, start_ticks FROM work";
    let rows = many(tx, "list work", sql, [], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get(2)?, row.get::<_, i64>(3)?))
    })?;
    for (id, boot, pid, start_ticks) in rows {
        let process = ProcessKey { pid, start_ticks: start_ticks.cast_unsigned() };
        if boot != now.boot || !sys::is_alive(process) {
            execute(tx, "forget work", "DELETE FROM work WHERE id = ?1", [id])?;
        }
    }
    Ok(())
}

fn goes_on(conn: &Connection, now: Instant) -> Result<bool> {
    let sql = "SELECT pid, start_ticks FROM work WHERE boot = ?1";
    let processes = many(conn, "list work", sql, [now.boot], |row| {
        Ok(ProcessKey { pid: row.get(0)?, start_ticks: row.get::<_, i64>(1)?.cast_unsigned() })
    })?;
    Ok(processes.into_iter().any(sys::is_alive))
}
