//! Changes and versions: what was, for logs and for the mounts that follow.

use std::collections::{BTreeSet, HashMap};

use rusqlite::{Connection, Row};

use super::error::doing;
use super::rows::{digest_at, holder_at, id_at, ino_at, kind_at, name_at, size_at};
use super::view::{self, many, one};
use super::{Catalog, Place, Result};
use crate::model::{
    ArtifactId, ArtifactPath, Attrs, ChangeNumber, Content, Holder, Ino, Seq, Timestamp, VersionInfo,
    VersionNumber,
};

/// A change, with what it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeRecord {
    /// Its number.
    pub number: ChangeNumber,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub author: Holder,
    /// Why.
    pub message: String,
    /// What it did, by path.
    pub items: Vec<ChangeRecordItem>,
}

/// What a change did to one artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeRecordItem {
    /// The artifact.
    pub artifact: Seq,
    /// Where it was before, in the tree of that time; none where it is new.
    pub before: Option<ArtifactPath>,
    /// Where it was afterwards; none where it was deleted.
    pub after: Option<ArtifactPath>,
    /// Its new version; none for deletions and plain renames.
    pub version: Option<VersionInfo>,
    /// The version on which that one was made.
    pub base: Option<VersionNumber>,
}

/// A place of the head tree, with the inode of its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlace {
    /// The directory and the name.
    pub place: Place,
    /// The inode number of the directory.
    pub parent_ino: Ino,
}

/// What a change did to one artifact, for those who show the head tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeItem {
    /// The change.
    pub change: ChangeNumber,
    /// The artifact.
    pub artifact: Seq,
    /// Its inode number before the change.
    pub ino_before: Option<Ino>,
    /// Where it was; none where it is new.
    pub before: Option<NodePlace>,
    /// Where it is since; none where it was deleted.
    pub after: Option<NodePlace>,
    /// Its new version; none for deletions and plain renames.
    pub version: Option<VersionInfo>,
}

/// An artifact, alive or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownArtifact {
    /// The artifact.
    pub artifact: Seq,
    /// Its identity.
    pub id: ArtifactId,
    /// Its head version; none where it is deleted.
    pub head: Option<VersionNumber>,
    /// Its newest version; none for the root directory before it got one.
    pub newest: Option<VersionNumber>,
}

impl Catalog {
    /// The number of the newest change; 0 before the first.
    pub fn head_change(&self) -> Result<ChangeNumber> {
        let sql = "SELECT coalesce(max(number), 0) FROM change";
        let newest = self.read(|conn| one(conn, "read the newest change", sql, [], |row| row.get(0)))?;
        Ok(ChangeNumber(newest.unwrap_or(0)))
    }

    /// One version of an artifact.
    pub fn version(&self, artifact: Seq, number: VersionNumber) -> Result<Option<VersionInfo>> {
        self.read(|conn| version(conn, artifact, number))
    }

    /// The artifact that a path of the head tree names, or the last one that it named.
    ///
    /// A path that is `hidden` from who asks is looked for as one that never was, no faster and no slower.
    pub fn artifact_at(&self, path: &ArtifactPath, hidden: bool) -> Result<Option<KnownArtifact>> {
        self.read(|conn| match find_artifact(conn, path, hidden)? {
            Some(artifact) => known(conn, artifact).map(Some),
            None => Ok(None),
        })
    }

    /// The artifact with an identity, if it was ever made.
    pub fn artifact_by_id(&self, id: ArtifactId) -> Result<Option<Seq>> {
        let sql = "SELECT seq FROM artifact WHERE id = ?1";
        self.read(|conn| one(conn, "find an artifact", sql, [id.0], |row| row.get(0).map(Seq)))
    }

    /// The identity of an artifact; none where it was forgotten.
    pub fn artifact_id(&self, artifact: Seq) -> Result<Option<ArtifactId>> {
        let sql = "SELECT id FROM artifact WHERE seq = ?1";
        self.read(|conn| one(conn, "read an artifact", sql, [artifact.0], |row| id_at(row, 0)))
    }

    /// The newest `limit` changes (none: all), newest first; `under` a path only those that touched what is or was there, across
    /// renames.
    pub fn log(&self, under: Option<&ArtifactPath>, limit: Option<usize>) -> Result<Vec<ChangeRecord>> {
        self.log_seen(under, limit, false, &mut |_| true)
    }

    /// As [`Self::log`], of what somebody may see; changes of which he may see nothing are left out. A path that is
    /// `hidden` from him is worked on as one that never was.
    pub fn log_seen(
        &self,
        under: Option<&ArtifactPath>,
        limit: Option<usize>,
        hidden: bool,
        sees: &mut dyn FnMut(&ChangeRecordItem) -> bool,
    ) -> Result<Vec<ChangeRecord>> {
        self.read(|conn| {
            let filter = match under {
                Some(path) if !path.is_root() => Some(LogFilter::new(conn, path, hidden)?),
                _ => None,
            };
            let mut records = Vec::new();
            for mut record in changes(conn, filter.as_ref())? {
                if Some(records.len()) == limit {
                    break;
                }
                record.items = record_items(conn, record.number)?;
                if let Some(filter) = &filter {
                    record.items.retain(|item| filter.passes(item));
                }
                record.items.retain(&mut *sees);
                if !record.items.is_empty() {
                    records.push(record);
                }
            }
            Ok(records)
        })
    }

    /// What the changes after `since` did, oldest first.
    pub fn changes_since(&self, since: ChangeNumber) -> Result<Vec<ChangeItem>> {
        let sql = "SELECT change, artifact, version, parent_before, name_before, parent_after, name_after
            FROM change_item WHERE change > ?1 ORDER BY change, artifact";
        self.read(|conn| {
            let rows = many(conn, "list changes", sql, [since.0], ItemRow::read)?;
            rows.into_iter().map(|row| change_item(conn, row)).collect()
        })
    }
}

/// A row of `change_item`.
struct ItemRow {
    change: ChangeNumber,
    artifact: Seq,
    version: Option<VersionNumber>,
    before: Option<Place>,
    after: Option<Place>,
}

impl ItemRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let place = |column: usize| match row.get::<_, Option<i64>>(column)? {
            Some(parent) => Ok(Some(Place { parent: Seq(parent), name: name_at(row, column + 1)? })),
            None => Ok::<_, rusqlite::Error>(None),
        };
        Ok(Self {
            change: ChangeNumber(row.get(0)?),
            artifact: Seq(row.get(1)?),
            version: row.get::<_, Option<i64>>(2)?.map(VersionNumber),
            before: place(3)?,
            after: place(5)?,
        })
    }
}

fn change_item(conn: &Connection, row: ItemRow) -> Result<ChangeItem> {
    let node = |place: Option<Place>| match place {
        Some(place) => Ok(Some(NodePlace { parent_ino: dir_ino(conn, place.parent)?, place })),
        None => Ok(None),
    };
    let sql = "SELECT ino FROM version WHERE artifact = ?1 AND change < ?2 ORDER BY number DESC LIMIT 1";
    let params = (row.artifact.0, row.change.0);
    let before = one(conn, "read an inode", sql, params, |row| ino_at(row, 0))?;
    let version = match row.version {
        Some(number) => version(conn, row.artifact, number)?,
        None => None,
    };
    Ok(ChangeItem {
        change: row.change,
        artifact: row.artifact,
        ino_before: before.or((row.artifact == Seq::ROOT).then_some(Ino::ROOT)),
        before: node(row.before)?,
        after: node(row.after)?,
        version,
    })
}

/// The inode number of a directory, which may be deleted by now.
fn dir_ino(conn: &Connection, dir: Seq) -> Result<Ino> {
    if dir == Seq::ROOT {
        return Ok(Ino::ROOT);
    }
    let sql = "SELECT ino FROM version WHERE artifact = ?1 ORDER BY number DESC LIMIT 1";
    Ok(one(conn, "read an inode", sql, [dir.0], |row| ino_at(row, 0))?.unwrap_or(Ino(0)))
}

fn known(conn: &Connection, artifact: Seq) -> Result<KnownArtifact> {
    let sql = "SELECT a.id, h.version, (SELECT max(number) FROM version v WHERE v.artifact = a.seq)
        FROM artifact a LEFT JOIN head h ON h.artifact = a.seq WHERE a.seq = ?1";
    let read = |row: &Row<'_>| {
        let number = |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(VersionNumber));
        Ok(KnownArtifact { artifact, id: id_at(row, 0)?, head: number(1)?, newest: number(2)? })
    };
    one(conn, "read an artifact", sql, [artifact.0], read)?.ok_or(super::CatalogError::NotFound)
}

pub(super) fn version(
    conn: &Connection,
    artifact: Seq,
    number: VersionNumber,
) -> Result<Option<VersionInfo>> {
    let sql = "SELECT artifact, number, ino, kind, mode, size, digest, target, mtime, ctime FROM version
        WHERE artifact = ?1 AND number = ?2";
    one(conn, "read a version", sql, (artifact.0, number.0), |row| version_at(row, 0))
}

/// Reads a version's ten columns that start at `first`.
fn version_at(row: &Row<'_>, first: usize) -> rusqlite::Result<VersionInfo> {
    let at = |offset: usize| first + offset;
    let target: Option<Vec<u8>> = row.get(at(7))?;
    let (mtime, ctime) = (Timestamp(row.get(at(8))?), Timestamp(row.get(at(9))?));
    Ok(VersionInfo {
        artifact: Seq(row.get(first)?),
        number: VersionNumber(row.get(at(1))?),
        ino: ino_at(row, at(2))?,
        kind: kind_at(row, at(3))?,
        attrs: Attrs { mode: row.get(at(4))?, uid: 0, gid: 0, atime: mtime, mtime, ctime },
        size: size_at(row, at(5))?,
        content: match (digest_at(row, at(6))?, target) {
            (Some(digest), _) => Content::Blob(digest),
            (None, Some(target)) => Content::Target(target),
            (None, None) => Content::None,
        },
    })
}

/// The last place in the head tree that a change gave an artifact, or took from it.
pub(super) fn last_place(conn: &Connection, artifact: Seq) -> Result<Option<Place>> {
    let sql = "SELECT coalesce(parent_after, parent_before), coalesce(name_after, name_before)
        FROM change_item WHERE artifact = ?1 ORDER BY change DESC LIMIT 1";
    one(conn, "read a past name", sql, [artifact.0], view::place_at_row)
}

/// Walks a path of the head tree; from the first name that is gone on, the last artifacts that had the names.
fn find_artifact(conn: &Connection, path: &ArtifactPath, hidden: bool) -> Result<Option<Seq>> {
    let mut at = Seq::ROOT;
    for (number, name) in (1..).zip(path.names()) {
        let place = Place { parent: at, name: name.clone() };
        let now = view::head_at(conn, &place)?.map(|head| head.artifact);
        if hidden && number == path.names().len() {
            // Past names are searched only for what isn't there now: so they are searched here, too.
            return last_at(conn, &place).map(|_| None);
        }
        match now.map_or_else(|| last_at(conn, &place), |artifact| Ok(Some(artifact)))? {
            Some(artifact) => at = artifact,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// The last artifact that a change put at, or took from, a place.
fn last_at(conn: &Connection, place: &Place) -> Result<Option<Seq>> {
    let sql = "SELECT artifact FROM change_item
        WHERE (parent_before = ?1 AND name_before = ?2) OR (parent_after = ?1 AND name_after = ?2)
        ORDER BY change DESC LIMIT 1";
    let params = (place.parent.0, place.name.as_bytes());
    one(conn, "search past names", sql, params, |row| row.get(0).map(Seq))
}

/// Which items a log of one path shows.
struct LogFilter {
    path: ArtifactPath,
    /// The path's artifact, and what the head tree has below it.
    artifacts: BTreeSet<Seq>,
}

impl LogFilter {
    fn new(conn: &Connection, path: &ArtifactPath, hidden: bool) -> Result<Self> {
        let mut artifacts = BTreeSet::new();
        if let Some(top) = find_artifact(conn, path, hidden)? {
            let sql = "WITH RECURSIVE below (artifact) AS (
                  SELECT ?1 UNION SELECT h.artifact FROM head h JOIN below ON h.parent = below.artifact)
                SELECT artifact FROM below";
            artifacts = many(conn, "walk the head tree", sql, [top.0], |row| row.get(0).map(Seq))?
                .into_iter()
                .collect();
        }
        Ok(Self { path: path.clone(), artifacts })
    }

    fn passes(&self, item: &ChangeRecordItem) -> bool {
        let within = |path: &Option<ArtifactPath>| path.as_ref().is_some_and(|p| p.is_within(&self.path));
        self.artifacts.contains(&item.artifact) || within(&item.before) || within(&item.after)
    }
}

fn changes(conn: &Connection, filter: Option<&LogFilter>) -> Result<Vec<ChangeRecord>> {
    let read = |row: &Row<'_>| {
        Ok(ChangeRecord {
            number: ChangeNumber(row.get(0)?),
            at: Timestamp(row.get(1)?),
            author: holder_at(row, 2)?,
            message: row.get(3)?,
            items: Vec::new(),
        })
    };
    // A file's own changes are found by index; below a directory, deleted artifacts count by their old paths.
    let single = filter.filter(|f| f.artifacts.len() == 1).and_then(|f| f.artifacts.first());
    match single {
        Some(artifact) if !is_directory(conn, *artifact)? => {
            let sql = "SELECT c.number, c.at, c.author, c.message FROM change c
                JOIN change_item i ON i.change = c.number WHERE i.artifact = ?1 ORDER BY c.number DESC";
            many(conn, "list changes", sql, [artifact.0], read)
        }
        _ => {
            let sql = "SELECT number, at, author, message FROM change ORDER BY number DESC";
            many(conn, "list changes", sql, [], read)
        }
    }
}

fn is_directory(conn: &Connection, artifact: Seq) -> Result<bool> {
    let sql = "SELECT kind FROM artifact WHERE seq = ?1";
    let kind = one(conn, "read an artifact", sql, [artifact.0], |row| kind_at(row, 0))?;
    Ok(kind == Some(crate::model::Kind::Directory))
}

/// What a change did, with the paths of its time.
fn record_items(conn: &Connection, change: ChangeNumber) -> Result<Vec<ChangeRecordItem>> {
    let sql = "SELECT i.change, i.artifact, i.version, i.parent_before, i.name_before, i.parent_after,
          i.name_after FROM change_item i WHERE i.change = ?1";
    let rows = many(conn, "list a change", sql, [change.0], ItemRow::read)?;
    let mut old = PastTree::new(conn, ChangeNumber(change.0 - 1));
    let mut new = PastTree::new(conn, change);
    let mut items = Vec::with_capacity(rows.len());
    for row in rows {
        let (version, base) = match row.version {
            Some(number) => (version(conn, row.artifact, number)?, base_of(conn, row.artifact, number)?),
            None => (None, None),
        };
        let before = row.before.as_ref().map(|place| old.path(row.artifact, place)).transpose()?;
        let after = row.after.as_ref().map(|place| new.path(row.artifact, place)).transpose()?;
        items.push(ChangeRecordItem { artifact: row.artifact, before, after, version, base });
    }
    items.sort_by(|a, b| a.after.as_ref().or(a.before.as_ref()).cmp(&b.after.as_ref().or(b.before.as_ref())));
    Ok(items)
}

fn base_of(conn: &Connection, artifact: Seq, number: VersionNumber) -> Result<Option<VersionNumber>> {
    let sql = "SELECT base FROM version WHERE artifact = ?1 AND number = ?2";
    let mut statement = conn.prepare_cached(sql).map_err(doing("read a version"))?;
    let base = statement.query_row((artifact.0, number.0), |row| row.get::<_, Option<i64>>(0));
    base.map(|base| base.map(VersionNumber)).map_err(doing("read a version"))
}

/// The directories of the head tree as one change left it.
struct PastTree<'a> {
    conn: &'a Connection,
    change: ChangeNumber,
    dirs: HashMap<Seq, ArtifactPath>,
}

impl<'a> PastTree<'a> {
    fn new(conn: &'a Connection, change: ChangeNumber) -> Self {
        Self { conn, change, dirs: HashMap::from([(Seq::ROOT, ArtifactPath::root())]) }
    }

    fn path(&mut self, artifact: Seq, place: &Place) -> Result<ArtifactPath> {
        if artifact == Seq::ROOT {
            return Ok(ArtifactPath::root());
        }
        Ok(self.dir(place.parent)?.join(place.name.clone()))
    }

    fn dir(&mut self, dir: Seq) -> Result<ArtifactPath> {
        if let Some(path) = self.dirs.get(&dir) {
            return Ok(path.clone());
        }
        let sql = "SELECT coalesce(parent_after, parent_before), coalesce(name_after, name_before)
            FROM change_item WHERE artifact = ?1 AND change <= ?2 ORDER BY change DESC LIMIT 1";
        let params = (dir.0, self.change.0);
        let place = one(self.conn, "read a past name", sql, params, view::place_at_row)?;
        let path = match place {
            Some(place) => self.dir(place.parent)?.join(place.name),
            None => ArtifactPath::root(),
        };
        self.dirs.insert(dir, path.clone());
        Ok(path)
    }
}
