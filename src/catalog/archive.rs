//! What the catalog of a backup says besides: which files the drafts had outside the store, by their digests.

use std::path::Path;

use super::rows::{bad, digest_at};
use super::view::{execute, many, one};
use super::{Catalog, CatalogError, Durability, Result, connect_archived, schema, view};
use crate::model::{ArtifactId, Digest, Seq};

/// In copies alone: a workspace's own catalog has no such table.
const TABLE: &str = "CREATE TABLE IF NOT EXISTS archived_file (
  part   TEXT NOT NULL,
  name   TEXT NOT NULL,
  digest BLOB NOT NULL,
  PRIMARY KEY (part, name)
) STRICT";

/// A file of a workspace that a backup keeps as a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedFile {
    /// The directory in `.leasehold/`.
    pub part: String,
    /// Its name there.
    pub name: String,
    /// Its bytes.
    pub digest: Digest,
}

/// A backup's catalog, as it lies there; reading it makes no file and changes none.
#[derive(Debug)]
pub struct ArchivedCatalog {
    /// The workspace's identity.
    pub workspace: ArtifactId,
    /// The files that it keeps.
    pub files: Vec<ArchivedFile>,
}

impl ArchivedCatalog {
    /// Reads the catalog of a finished backup; an older program's, too.
    pub fn read(path: &Path) -> Result<Self> {
        let conn = connect_archived(path)?;
        if !schema::is_catalog(&conn)? {
            return Err(CatalogError::NotACatalog);
        }
        Ok(Self { workspace: view::id_of(&conn, Seq::ROOT)?, files: files_of(&conn)? })
    }
}

impl Catalog {
    /// Notes in a copy of a catalog which files are kept beside it.
    pub fn add_archived_files(&self, files: &[ArchivedFile]) -> Result<()> {
        let sql = "INSERT OR REPLACE INTO archived_file (part, name, digest) VALUES (?1, ?2, ?3)";
        self.write(Durability::Full, |tx| {
            execute(tx, "make a table", TABLE, ())?;
            for file in files {
                let params = (&file.part, &file.name, file.digest.as_bytes());
                execute(tx, "note a file", sql, params)?;
            }
            Ok(())
        })
    }

    /// Makes a copy of a catalog a workspace's own again; returns the files that were kept beside it.
    pub fn take_archived_files(&self) -> Result<Vec<ArchivedFile>> {
        let files = self.read(files_of)?;
        self.write(Durability::Full, |tx| {
            execute(tx, "drop a table", "DROP TABLE IF EXISTS archived_file", ()).map(drop)
        })?;
        Ok(files)
    }
}

fn files_of(conn: &rusqlite::Connection) -> Result<Vec<ArchivedFile>> {
    let table = "SELECT 1 FROM sqlite_schema WHERE name = 'archived_file'";
    if one(conn, "look for a table", table, (), |_| Ok(()))?.is_none() {
        return Ok(Vec::new());
    }
    let sql = "SELECT part, name, digest FROM archived_file ORDER BY part, name";
    many(conn, "list files", sql, (), |row| {
        let digest = digest_at(row, 2)?.ok_or_else(|| bad(2, "digest"))?;
        Ok(ArchivedFile { part: row.get(0)?, name: row.get(1)?, digest })
    })
}
