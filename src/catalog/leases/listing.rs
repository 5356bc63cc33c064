//! The lease table as people read it: with paths, and who may still be writing.

use std::collections::{BTreeSet, HashMap};

use rusqlite::{Connection, Row};

use super::super::rows::{lease_row, name_at};
use super::super::view::{self, many, one};
use super::super::{Catalog, Result};
use super::{LEASE_COLUMNS, has_living_writer};
use crate::model::{
    ArtifactPath, CheckoutId, Generation, Holder, Instant, Lease, Name, ResourceKey, Seq, Standing,
};

/// Which leases to list.
#[derive(Debug, Clone, Default)]
pub struct LeaseFilter {
    /// Only this holder's.
    pub holder: Option<Holder>,
    /// Only this one.
    pub key: Option<ResourceKey>,
    /// Only those of this path and what lies below it.
    pub under: Option<ArtifactPath>,
}

/// A lease of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedLease {
    /// Where the artifact is: in the head tree, or in the holder's checkout if it was never checked in.
    pub path: Option<ArtifactPath>,
    /// The lease.
    pub lease: Lease,
    /// Whether it ended and its resource is closed all the same, since its writer is not known to have stopped.
    pub quarantined: bool,
}

/// A row of the table, with the artifact's place in the head tree.
struct ListedRow {
    lease: Lease,
    artifact: Option<Seq>,
    place: Option<(Seq, Name)>,
}

impl Catalog {
    /// Every row of the lease table that passes the filter, ended or not, by path and key.
    pub fn leases(&self, filter: &LeaseFilter, now: Instant) -> Result<Vec<ListedLease>> {
        self.read(|conn| {
            let rows = rows(conn, filter)?;
            let mut listing =
                Listing { conn, now, dirs: HashMap::new(), writers: generations_of_writers(conn)? };
            let mut listed = Vec::with_capacity(rows.len());
            for row in rows {
                listed.extend(listing.list(row, filter)?);
            }
            listed.sort_by(|a, b| (&a.path, &a.lease.key).cmp(&(&b.path, &b.lease.key)));
            Ok(listed)
        })
    }
}

fn rows(conn: &Connection, filter: &LeaseFilter) -> Result<Vec<ListedRow>> {
    let sql = format!(
        "SELECT {LEASE_COLUMNS}, l.artifact, h.parent, h.name FROM lease l LEFT JOIN head h ON h.artifact = l.artifact
         WHERE (?1 IS NULL OR l.holder = ?1) AND (?2 IS NULL OR l.key = ?2)"
    );
    let params = (filter.holder.as_ref().map(Holder::as_str), filter.key.as_ref().map(ToString::to_string));
    many(conn, "list leases", &sql, params, listed_row)
}

fn listed_row(row: &Row<'_>) -> rusqlite::Result<ListedRow> {
    let artifact = row.get::<_, Option<i64>>(7)?.map(Seq);
    let parent = row.get::<_, Option<i64>>(8)?.map(Seq);
    let place = match (artifact, parent) {
        (Some(Seq::ROOT), _) | (_, None) => None,
        (_, Some(parent)) => Some((parent, name_at(row, 9)?)),
    };
    Ok(ListedRow { lease: lease_row(row)?, artifact, place })
}

fn generations_of_writers(conn: &Connection) -> Result<BTreeSet<(Seq, Generation)>> {
    let sql = "SELECT artifact, generation FROM writer";
    let read = |row: &Row<'_>| Ok((Seq(row.get(0)?), Generation(row.get(1)?)));
    Ok(many(conn, "list writers", sql, (), read)?.into_iter().collect())
}

/// A listing under way: paths of directories are looked for once.
struct Listing<'a> {
    conn: &'a Connection,
    now: Instant,
    dirs: HashMap<Seq, Option<ArtifactPath>>,
    writers: BTreeSet<(Seq, Generation)>,
}

impl Listing<'_> {
    fn list(&mut self, row: ListedRow, filter: &LeaseFilter) -> Result<Option<ListedLease>> {
        let path = match (row.artifact, row.place) {
            (Some(Seq::ROOT), _) => Some(ArtifactPath::root()),
            (_, Some((parent, name))) => self.dir(parent)?.map(|dir| dir.join(name)),
            (Some(artifact), None) => self.draft_path(artifact, &row.lease.holder)?,
            (None, None) => None,
        };
        if let Some(under) = &filter.under
            && !path.as_ref().is_some_and(|path| path.is_within(under))
        {
            return Ok(None);
        }
        let quarantined = self.is_quarantined(row.artifact, &row.lease)?;
        Ok(Some(ListedLease { path, lease: row.lease, quarantined }))
    }

    fn dir(&mut self, dir: Seq) -> Result<Option<ArtifactPath>> {
        if let Some(path) = self.dirs.get(&dir) {
            return Ok(path.clone());
        }
        let path = view::head_path_of(self.conn, dir)?;
        self.dirs.insert(dir, path.clone());
        Ok(path)
    }

    fn draft_path(&self, artifact: Seq, holder: &Holder) -> Result<Option<ArtifactPath>> {
        let sql = "SELECT id FROM checkout WHERE holder = ?1";
        let checkout =
            one(self.conn, "read a checkout", sql, [holder.as_str()], |row| row.get(0).map(CheckoutId))?;
        checkout.map_or(Ok(None), |checkout| view::path_of(self.conn, checkout, artifact))
    }

    fn is_quarantined(&self, artifact: Option<Seq>, lease: &Lease) -> Result<bool> {
        let Some(artifact) = artifact else { return Ok(false) };
        // Most have none, and whether a daemon lives is asked of the system.
        let has_writer = !lease.is_live(self.now)
            && self.writers.contains(&(artifact, lease.generation))
            && has_living_writer(self.conn, artifact, lease.generation, self.now)?;
        Ok(Standing { lease: Some(lease), has_writer }.is_quarantined(self.now))
    }
}
