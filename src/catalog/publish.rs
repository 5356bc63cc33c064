//! Drafts on their way into the store.
//!
//! A save is a file of `staging/` until it is a blob. Between the file's rename to its address and the commit that says
//! so, only its digest tells where the bytes are: so the digest is noted in the row before the rename.

use rusqlite::Row;

use super::rows::digest_at;
use super::unsynced::note_synced;
use super::view::{execute, many, one};
use super::{Catalog, Durability, Result};
use crate::model::{CheckoutId, Digest, Seq};

/// A sealed save that some draft names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedSave {
    /// The checkout.
    pub checkout: CheckoutId,
    /// The artifact.
    pub artifact: Seq,
    /// The file of `staging/`.
    pub file: String,
    /// Its digest, if it was noted.
    pub digest: Option<Digest>,
    /// The file of the save before, if that comes back should this one be lost.
    pub before: Option<String>,
}

impl Catalog {
    /// The sealed saves of a checkout that are not known to be in the store.
    pub fn staged_saves(&self, checkout: CheckoutId) -> Result<Vec<StagedSave>> {
        let sql = "SELECT d.artifact, d.staged, s.digest, d.old_staged FROM draft d LEFT JOIN sealed s ON s.file = d.staged
            WHERE d.checkout = ?1 AND d.staged IS NOT NULL ORDER BY d.artifact";
        let read = |row: &Row<'_>| {
            Ok(StagedSave {
                checkout,
                artifact: Seq(row.get(0)?),
                file: row.get(1)?,
                digest: digest_at(row, 2)?,
                before: row.get(3)?,
            })
        };
        self.read(|conn| many(conn, "list sealed saves", sql, [checkout.0], read))
    }

    /// Notes the digests of sealed saves, durably, after their files were synced and before they leave `staging/`.
    pub fn note_digests(&self, saves: &[(String, Digest)]) -> Result<()> {
        let sql = "INSERT OR REPLACE INTO sealed (file, digest) VALUES (?1, ?2)";
        self.write(Durability::Full, |tx| {
            for (file, digest) in saves {
                execute(tx, "note a digest", sql, (file, digest.as_bytes()))?;
                note_synced(tx, file)?;
            }
            Ok(())
        })
    }

    /// Makes sealed saves whose digests were noted blobs; tells of each whether it still is a draft's content.
    ///
    /// A crash may take this back: then the noted digest tells that the bytes are in the store.
    pub fn publish_noted(&self, files: &[String]) -> Result<Vec<bool>> {
        let publish = "UPDATE draft SET digest = (SELECT digest FROM sealed WHERE file = ?1), staged = NULL
            WHERE staged = ?1 AND EXISTS (SELECT 1 FROM sealed WHERE file = ?1)";
        let behind =
            "UPDATE draft SET old_digest = (SELECT digest FROM sealed WHERE file = ?1), old_staged = NULL
            WHERE old_staged = ?1 AND EXISTS (SELECT 1 FROM sealed WHERE file = ?1)";
        let forget = "DELETE FROM sealed WHERE file = ?1";
        self.write(Durability::Grouped, |tx| {
            let mut current = Vec::with_capacity(files.len());
            for file in files {
                current.push(execute(tx, "publish a draft", publish, [file])? > 0);
                execute(tx, "publish what a draft was", behind, [file])?;
                execute(tx, "forget a noted digest", forget, [file])?;
            }
            Ok(current)
        })
    }

    /// Whether a draft names a file of `staging/`, as its content or as what it falls back to.
    pub fn is_staged(&self, file: &str) -> Result<bool> {
        let sql = "SELECT 1 FROM draft WHERE staged = ?1 UNION ALL SELECT 1 FROM draft WHERE old_staged = ?1 LIMIT 1";
        self.read(|conn| Ok(one(conn, "look for a save", sql, [file], |_| Ok(()))?.is_some()))
    }

    /// The digest that was noted of a file of `staging/` on its way into the store.
    pub fn noted_digest(&self, file: &str) -> Result<Option<Digest>> {
        let sql = "SELECT digest FROM sealed WHERE file = ?1";
        self.read(
            |conn| Ok(one(conn, "read a noted digest", sql, [file], |row| digest_at(row, 0))?.flatten()),
        )
    }

    /// Forgets noted digests of files that no draft names any more, but for those of manifests (`c.0.…`).
    pub fn forget_stray_digests(&self) -> Result<()> {
        let sql = "DELETE FROM sealed WHERE file NOT GLOB 'c.0.*'
            AND NOT EXISTS (SELECT 1 FROM draft WHERE draft.staged = sealed.file)
            AND NOT EXISTS (SELECT 1 FROM draft WHERE draft.old_staged = sealed.file)";
        self.write(Durability::Grouped, |tx| execute(tx, "forget digests", sql, ()).map(drop))
    }

    /// Replaces a draft's file of `scratch/` by the blob that holds a snapshot of it; false if it has another content.
    pub fn publish_direct(
        &self,
        checkout: CheckoutId,
        artifact: Seq,
        file: &str,
        blob: (Digest, u64),
    ) -> Result<bool> {
        let sql = "UPDATE draft SET digest = ?4, size = ?5, direct = NULL
            WHERE checkout = ?1 AND artifact = ?2 AND direct = ?3";
        let params = (checkout.0, artifact.0, file, blob.0.as_bytes(), super::rows::size_code(blob.1));
        self.write(Durability::Full, |tx| execute(tx, "publish a draft", sql, params).map(|rows| rows == 1))
    }
}
