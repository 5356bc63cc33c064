//! Drafts on their way into the store.
//!
//! A save is a file of `staging/` until it is a blob. Between the file's rename to its address and the commit that says
//! so, only its digest tells where the bytes are: so the digest is noted before the rename. It is noted by the file's
//! name, which is unique: a rename in the tree may give the file to another artifact's draft at any moment.

use rusqlite::{Row, Transaction};

use super::rows::digest_at;
use super::view::{execute, many};
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
}

impl Catalog {
    /// The sealed saves of a checkout that are not known to be in the store.
    pub fn staged_saves(&self, checkout: CheckoutId) -> Result<Vec<StagedSave>> {
        let sql = "SELECT d.artifact, d.staged, n.digest FROM draft d LEFT JOIN noted_digest n ON n.staged = d.staged
            WHERE d.checkout = ?1 AND d.staged IS NOT NULL ORDER BY d.artifact";
        let read = |row: &Row<'_>| {
            Ok(StagedSave {
                checkout,
                artifact: Seq(row.get(0)?),
                file: row.get(1)?,
                digest: digest_at(row, 2)?,
            })
        };
        self.read(|conn| many(conn, "list sealed saves", sql, [checkout.0], read))
    }

    /// Notes the digests of sealed saves, durably, before their files leave `staging/`.
    pub fn note_digests(&self, saves: &[(StagedSave, Digest)]) -> Result<()> {
        let sql = "INSERT OR REPLACE INTO noted_digest VALUES (?1, ?2)";
        self.write(Durability::Full, |tx| {
            for (save, digest) in saves {
                execute(tx, "note a digest", sql, (&save.file, digest.as_bytes()))?;
            }
            Ok(())
        })
    }

    /// Makes sealed saves whose digests were noted blobs; tells of each whether a draft still names it.
    ///
    /// A crash may take this back: then the noted digest tells that the bytes are in the store.
    pub fn publish_noted(&self, saves: &[StagedSave]) -> Result<Vec<bool>> {
        self.write(Durability::Grouped, |tx| saves.iter().map(|save| publish(tx, save)).collect())
    }

    /// Forgets noted digests of files that no draft names any more.
    pub fn forget_stray_digests(&self) -> Result<()> {
        let sql = "DELETE FROM noted_digest WHERE NOT EXISTS
            (SELECT 1 FROM draft WHERE draft.staged = noted_digest.staged)";
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

fn publish(tx: &Transaction<'_>, save: &StagedSave) -> Result<bool> {
    let sql =
        "UPDATE draft SET digest = (SELECT digest FROM noted_digest n WHERE n.staged = ?2), staged = NULL
        WHERE checkout = ?1 AND staged = ?2 AND EXISTS (SELECT 1 FROM noted_digest n WHERE n.staged = ?2)";
    let named = execute(tx, "publish a draft", sql, (save.checkout.0, &save.file))? > 0;
    execute(tx, "forget a digest", "DELETE FROM noted_digest WHERE staged = ?1", [&save.file])?;
    Ok(named)
}
