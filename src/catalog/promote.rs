//! Scratch that people claim by hand as artifacts.

use rusqlite::Transaction;

use super::leases;
use super::view::{self, execute};
use super::{Actor, Catalog, CatalogError, Durability, Place, Result};
use crate::model::{CheckoutId, Entry, Scratch, Seq, Timestamp};

impl Catalog {
    /// Makes a scratch entry, and scratch directories above it, drafts that a check-in takes; reserves their names.
    ///
    /// What is a draft already stays as it is. FIFOs and sockets are refused as [`CatalogError::NotFound`].
    pub fn promote(&self, actor: &Actor, artifact: Seq) -> Result<Entry> {
        self.write(Durability::Full, |tx| {
            let mut at = artifact;
            while at != Seq::ROOT {
                let entry = view::entry_of(tx, actor.checkout, at)?.ok_or(CatalogError::NotFound)?;
                if !entry.kind.is_versioned() {
                    return Err(CatalogError::NotFound);
                }
                if entry.scratch != Scratch::No {
                    promote_one(tx, actor, &entry)?;
                }
                at = entry.parent;
            }
            view::entry_of(tx, actor.checkout, artifact)?.ok_or(CatalogError::NotFound)
        })
    }

    /// Provisional entries of a checkout that nobody changed since `before`, and that no scratch directory holds: they
    /// count as documents now.
    pub fn settled_provisional(&self, checkout: CheckoutId, before: Timestamp) -> Result<Vec<Seq>> {
        let sql = "SELECT d.artifact FROM draft d WHERE d.checkout = ?1 AND d.scratch = 1 AND d.ctime <= ?2
            AND NOT EXISTS (SELECT 1 FROM name n
              JOIN draft dir ON dir.checkout = n.checkout AND dir.artifact = n.parent AND dir.scratch <> 0
              WHERE n.artifact = d.artifact AND n.checkout = d.checkout)";
        self.read(|conn| {
            view::many(conn, "list provisional files", sql, (checkout.0, before.0), |row| row.get(0).map(Seq))
        })
    }
}

fn promote_one(tx: &Transaction<'_>, actor: &Actor, entry: &Entry) -> Result<()> {
    let place = Place { parent: entry.parent, name: entry.name.clone() };
    leases::check_place(tx, actor, &place)?;
    let lease = leases::reserve(tx, actor, &place, entry.artifact, entry.id)?;
    let sql = "UPDATE draft SET scratch = 0, generation = ?3 WHERE checkout = ?1 AND artifact = ?2";
    let params = (actor.checkout.0, entry.artifact.0, lease.map(|lease| lease.generation.0));
    execute(tx, "promote a scratch file", sql, params).map(drop)
}
