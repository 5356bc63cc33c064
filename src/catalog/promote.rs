//! What people claim by hand: scratch as artifacts, and leases of whole directories; and leases by path.

use rusqlite::Transaction;

use super::leases::{self, LeaseFilter};
use super::view::{self, execute};
use super::{Actor, Catalog, CatalogError, Durability, Place, Result};
use crate::model::{ArtifactPath, CheckoutId, Entry, Holder, Kind, Lease, Scratch, Seq, Timestamp};

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

    /// Takes or renews the leases of some artifacts, all or none; of a directory with all that lies below it.
    pub fn acquire_whole(&self, actor: &Actor, artifacts: &[Seq]) -> Result<Vec<Lease>> {
        self.write(Durability::Full, |tx| {
            let take = |artifact: &Seq| {
                let entry = view::entry_of(tx, actor.checkout, *artifact)?.ok_or(CatalogError::NotFound)?;
                match entry.kind {
                    Kind::Directory => leases::take_subtree(tx, actor, *artifact),
                    _ => leases::take(tx, actor, *artifact, None),
                }
            };
            artifacts.iter().filter_map(|artifact| take(artifact).transpose()).collect()
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

    /// Every row of the lease table that passes the filter, with the path of the artifact: in the head tree, or in the
    /// holder's checkout if it was never checked in.
    pub fn leases_by_path(&self, filter: &LeaseFilter) -> Result<Vec<(Option<ArtifactPath>, Lease)>> {
        let mut listed = Vec::new();
        for (artifact, lease) in self.leases(filter)? {
            let path = match artifact {
                Some(artifact) => self.lease_path(artifact, &lease.holder)?,
                None => None,
            };
            listed.push((path, lease));
        }
        listed.sort_by(|(a, x), (b, y)| (a, &x.key).cmp(&(b, &y.key)));
        Ok(listed)
    }

    fn lease_path(&self, artifact: Seq, holder: &Holder) -> Result<Option<ArtifactPath>> {
        if let Some(path) = self.read(|conn| view::head_path_of(conn, artifact))? {
            return Ok(Some(path));
        }
        match self.existing_checkout(holder)? {
            Some(checkout) => self.path_of(checkout, artifact),
            None => Ok(None),
        }
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
