//! Which changes a shared store is known to have.

use rusqlite::Row;

use super::rows::{bad, digest_at};
use super::view::{execute, many, one};
use super::{Catalog, Durability, Result};
use crate::model::{ChangeNumber, Digest, Timestamp};

/// What a shared store is not known to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unshared {
    /// How many changes.
    pub changes: u64,
    /// How many blobs of theirs, manifests included.
    pub blobs: u64,
    /// The bytes of those of them that versions name.
    pub bytes: u64,
}

/// The blobs of changes that are not shared, with their sizes; the catalog doesn't know those of manifests.
const UNSHARED_BLOBS: &str = "
  SELECT v.digest AS digest, v.size AS size FROM change c
    JOIN change_item i ON i.change = c.number
    JOIN version v ON v.artifact = i.artifact AND v.number = i.version
    WHERE c.shared = 0 AND v.digest IS NOT NULL
  UNION SELECT manifest, 0 FROM change WHERE shared = 0 AND manifest IS NOT NULL";

fn digest(row: &Row<'_>) -> rusqlite::Result<Digest> {
    digest_at(row, 0)?.ok_or_else(|| bad(0, "digest"))
}

impl Catalog {
    /// The changes that have a manifest and that the shared store is not known to have, oldest first.
    pub fn unshared_changes(&self) -> Result<Vec<ChangeNumber>> {
        let sql = "SELECT number FROM change WHERE shared = 0 AND manifest IS NOT NULL ORDER BY number";
        self.read(|conn| many(conn, "list unshared changes", sql, [], |row| row.get(0).map(ChangeNumber)))
    }

    /// The blobs that a change needs: those of its versions, and its manifest.
    pub fn blobs_of_change(&self, change: ChangeNumber) -> Result<Vec<Digest>> {
        let sql = "SELECT v.digest FROM change_item i
              JOIN version v ON v.artifact = i.artifact AND v.number = i.version
              WHERE i.change = ?1 AND v.digest IS NOT NULL
            UNION SELECT manifest FROM change WHERE number = ?1 AND manifest IS NOT NULL";
        self.read(|conn| many(conn, "list the blobs of a change", sql, [change.0], digest))
    }

    /// Notes that the shared store has all that a change needs. A power cut may take this back: then it is asked again.
    pub fn set_shared(&self, change: ChangeNumber) -> Result<()> {
        let sql = "UPDATE change SET shared = 1 WHERE number = ?1";
        self.write(Durability::Grouped, |tx| execute(tx, "note a shared change", sql, [change.0]).map(drop))
    }

    /// How much the shared store is not known to have.
    pub fn unshared(&self) -> Result<Unshared> {
        let sql = format!(
            "SELECT (SELECT COUNT(*) FROM change WHERE shared = 0), COUNT(*), COALESCE(SUM(size), 0)
            FROM ({UNSHARED_BLOBS})"
        );
        let count = |row: &Row<'_>, column| row.get::<_, i64>(column).map(i64::cast_unsigned);
        let read = |row: &Row<'_>| {
            Ok(Unshared { changes: count(row, 0)?, blobs: count(row, 1)?, bytes: count(row, 2)? })
        };
        self.read(|conn| Ok(one(conn, "count unshared changes", &sql, [], read)?.unwrap_or_default()))
    }

    /// Notes why the shared store can't be brought up to date, or that it could (none); one that goes on keeps its time.
    pub fn set_share_failure(&self, failure: Option<(Timestamp, &str)>) -> Result<()> {
        let known = self.share_failure()?.map(|(_, text)| text);
        if known.as_deref() == failure.map(|(_, text)| text) {
            return Ok(());
        }
        self.write(Durability::Grouped, |tx| {
            execute(tx, "forget a failure", "DELETE FROM share_failure", [])?;
            let Some((at, text)) = failure else { return Ok(()) };
            let sql = "INSERT INTO share_failure (id, at, text) VALUES (1, ?1, ?2)";
            execute(tx, "note a failure", sql, (at.0, text)).map(drop)
        })
    }

    /// Since when and why the shared store can't be brought up to date, unless it could be at last.
    pub fn share_failure(&self) -> Result<Option<(Timestamp, String)>> {
        let sql = "SELECT at, text FROM share_failure";
        self.read(|conn| {
            one(conn, "read a failure", sql, [], |row| Ok((Timestamp(row.get(0)?), row.get(1)?)))
        })
    }

    /// The blobs of the head tree's files, each once.
    pub fn head_blobs(&self) -> Result<Vec<Digest>> {
        let sql = "SELECT DISTINCT digest FROM head WHERE digest IS NOT NULL";
        self.read(|conn| many(conn, "list the head's blobs", sql, [], digest))
    }
}
