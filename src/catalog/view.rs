//! Reading one checkout's view: the head tree with the checkout's names and drafts over it.

use rusqlite::{Connection, OptionalExtension, Row};

use super::error::doing;
use super::rows::{DRAFT_COLUMNS, DraftRow, HEAD_COLUMNS, draft_row, head_entry, id_at, name_at};
use super::{Catalog, CatalogError, Place, Result};
use crate::model::{
    ArtifactId, ArtifactPath, CheckoutId, Content, Entry, Kind, Layer, Name, Seq, Timestamp, VersionNumber,
};

/// How deep a tree may be; a longer walk to the root can only be a cycle.
const MAX_DEPTH: usize = 4_096;

impl Catalog {
    /// What a name stands for in a checkout.
    pub fn lookup(&self, checkout: CheckoutId, place: &Place) -> Result<Option<Entry>> {
        self.read(|conn| lookup(conn, checkout, place))
    }

    /// Up to `limit` entries of a directory whose artifact's number is above `after`, in the order of those numbers.
    pub fn children(&self, checkout: CheckoutId, dir: Seq, after: Seq, limit: usize) -> Result<Vec<Entry>> {
        self.read(|conn| children(conn, checkout, dir, after, limit))
    }

    /// The entry that an artifact has in a checkout, under whatever name.
    pub fn entry_of(&self, checkout: CheckoutId, artifact: Seq) -> Result<Option<Entry>> {
        self.read(|conn| entry_of(conn, checkout, artifact))
    }

    /// Walks a path from the root; none where a name is missing.
    pub fn resolve(&self, checkout: CheckoutId, path: &ArtifactPath) -> Result<Option<Entry>> {
        self.read(|conn| resolve(conn, checkout, path))
    }

    /// The path that an artifact has in a checkout; none where it has no name there.
    pub fn path_of(&self, checkout: CheckoutId, artifact: Seq) -> Result<Option<ArtifactPath>> {
        self.read(|conn| path_of(conn, checkout, artifact))
    }

    /// What the head tree has under a name, whatever a checkout did with it.
    pub fn head_at(&self, place: &Place) -> Result<Option<Entry>> {
        self.read(|conn| head_at(conn, place))
    }

    /// The artifact that the head tree has under a name, where a checkout has moved it: who comes to stand on the name
    /// takes its identity.
    pub fn moved_away(&self, checkout: CheckoutId, place: &Place) -> Result<Option<Entry>> {
        self.read(|conn| {
            let Some(head) = head_at(conn, place)? else { return Ok(None) };
            let entry = entry_of(conn, checkout, head.artifact)?;
            Ok(entry.filter(|entry| entry.parent != place.parent || entry.name != place.name))
        })
    }

    /// When a checkout last changed the names in a directory, if it did since its last check-in, and how many directories
    /// are in it.
    pub fn dir_facts(&self, checkout: CheckoutId, dir: Seq) -> Result<(Option<Timestamp>, u32)> {
        let sql = "SELECT (SELECT mtime FROM dir_time WHERE checkout = ?1 AND dir = ?2),
            (SELECT count(*) FROM head h WHERE h.parent = ?2 AND h.kind = 3 AND NOT EXISTS
              (SELECT 1 FROM name n WHERE n.parent = h.parent AND n.name = h.name AND n.checkout = ?1))
            + (SELECT count(*) FROM name n WHERE n.checkout = ?1 AND n.parent = ?2 AND n.is_dir = 1)";
        let read = |row: &Row<'_>| Ok((row.get::<_, Option<i64>>(0)?.map(Timestamp), row.get(1)?));
        let facts = self.read(|conn| one(conn, "look into a directory", sql, (checkout.0, dir.0), read))?;
        Ok(facts.unwrap_or_default())
    }

    /// When a checkout last changed the names in a directory, if it did since its last check-in.
    pub fn dir_time(&self, checkout: CheckoutId, dir: Seq) -> Result<Option<Timestamp>> {
        self.read(|conn| dir_time(conn, checkout, dir))
    }
}

pub(super) fn dir_time(conn: &Connection, checkout: CheckoutId, dir: Seq) -> Result<Option<Timestamp>> {
    let sql = "SELECT mtime FROM dir_time WHERE checkout = ?1 AND dir = ?2";
    one(conn, "read a directory's time", sql, (checkout.0, dir.0), |row| row.get(0).map(Timestamp))
}

/// Runs a query for at most one row.
pub(super) fn one<T, P: rusqlite::Params>(
    conn: &Connection,
    what: &'static str,
    sql: &str,
    params: P,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>> {
    let mut statement = conn.prepare_cached(sql).map_err(doing(what))?;
    statement.query_row(params, read).optional().map_err(doing(what))
}

/// Runs a query for any number of rows.
pub(super) fn many<T, P: rusqlite::Params>(
    conn: &Connection,
    what: &'static str,
    sql: &str,
    params: P,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>> {
    let mut statement = conn.prepare_cached(sql).map_err(doing(what))?;
    let rows = statement.query_map(params, read).and_then(Iterator::collect);
    rows.map_err(doing(what))
}

/// Runs a statement and returns the number of rows that it changed.
pub(super) fn execute<P: rusqlite::Params>(
    conn: &Connection,
    what: &'static str,
    sql: &str,
    params: P,
) -> Result<usize> {
    conn.prepare_cached(sql).and_then(|mut s| s.execute(params)).map_err(doing(what))
}

/// What a checkout says of a name: nothing, that the head's name is gone, or which artifact it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Override {
    None,
    Gone { base: Option<VersionNumber> },
    Artifact(Seq),
}

pub(super) fn override_at(conn: &Connection, checkout: CheckoutId, place: &Place) -> Result<Override> {
    let sql = "SELECT artifact, base FROM name WHERE parent = ?1 AND name = ?2 AND checkout = ?3";
    let params = (place.parent.0, place.name.as_bytes(), checkout.0);
    let row = one(conn, "read a name", sql, params, |row| Ok((row.get(0)?, row.get(1)?)));
    let row: Option<(Option<i64>, Option<i64>)> = row?;
    Ok(match row {
        None => Override::None,
        Some((Some(artifact), _)) => Override::Artifact(Seq(artifact)),
        Some((None, base)) => Override::Gone { base: base.map(VersionNumber) },
    })
}

pub(super) fn lookup(conn: &Connection, checkout: CheckoutId, place: &Place) -> Result<Option<Entry>> {
    match override_at(conn, checkout, place)? {
        Override::Gone { .. } => Ok(None),
        Override::Artifact(artifact) => entry_at(conn, checkout, artifact, place),
        Override::None => {
            let Some(head) = head_at(conn, place)? else { return Ok(None) };
            with_draft(conn, checkout, head).map(Some)
        }
    }
}

/// The head tree's entry of a name, whatever a checkout thinks of it.
pub(super) fn head_at(conn: &Connection, place: &Place) -> Result<Option<Entry>> {
    let sql = format!("SELECT {HEAD_COLUMNS} FROM head h WHERE h.parent = ?1 AND h.name = ?2");
    one(conn, "read the head tree", &sql, (place.parent.0, place.name.as_bytes()), head_entry)
}

/// The head tree's entry of an artifact.
pub(super) fn head_of(conn: &Connection, artifact: Seq) -> Result<Option<Entry>> {
    let sql = format!("SELECT {HEAD_COLUMNS} FROM head h WHERE h.artifact = ?1");
    one(conn, "read the head tree", &sql, [artifact.0], head_entry)
}

pub(super) fn draft_of(conn: &Connection, checkout: CheckoutId, artifact: Seq) -> Result<Option<DraftRow>> {
    let sql = format!("SELECT {DRAFT_COLUMNS} FROM draft d WHERE d.checkout = ?1 AND d.artifact = ?2");
    one(conn, "read a draft", &sql, (checkout.0, artifact.0), |row| draft_row(row, 0))
}

/// The identity of any artifact, checked in or not.
pub(super) fn id_of(conn: &Connection, artifact: Seq) -> Result<ArtifactId> {
    let sql = "SELECT id FROM artifact WHERE seq = ?1";
    one(conn, "read an artifact", sql, [artifact.0], |row| id_at(row, 0))?.ok_or(CatalogError::NotFound)
}

fn with_draft(conn: &Connection, checkout: CheckoutId, head: Entry) -> Result<Entry> {
    let draft = draft_of(conn, checkout, head.artifact)?;
    Ok(match draft {
        Some(draft) => draft_over(head, draft),
        None => head,
    })
}

/// The entry of an artifact whose name in the checkout is known.
fn entry_at(conn: &Connection, checkout: CheckoutId, artifact: Seq, place: &Place) -> Result<Option<Entry>> {
    let head = head_of(conn, artifact)?;
    let draft = draft_of(conn, checkout, artifact)?;
    let entry = match (head, draft) {
        (Some(head), Some(draft)) => draft_over(head, draft),
        (Some(head), None) => head,
        (None, Some(draft)) => added(id_of(conn, artifact)?, artifact, draft, place),
        (None, None) => return Ok(None),
    };
    Ok(Some(Entry { parent: place.parent, name: place.name.clone(), ..entry }))
}

fn draft_over(head: Entry, draft: DraftRow) -> Entry {
    Entry {
        kind: draft.kind,
        ino: draft.ino,
        attrs: draft.attrs,
        size: draft.size,
        content: draft.content,
        layer: Layer::Draft { base: draft.base, generation: draft.generation },
        scratch: draft.scratch,
        ..head
    }
}

fn added(id: ArtifactId, artifact: Seq, draft: DraftRow, place: &Place) -> Entry {
    Entry {
        artifact,
        id,
        parent: place.parent,
        name: place.name.clone(),
        kind: draft.kind,
        ino: draft.ino,
        attrs: draft.attrs,
        size: draft.size,
        content: draft.content,
        layer: Layer::Draft { base: draft.base, generation: draft.generation },
        scratch: draft.scratch,
        head: None,
        head_ino: None,
    }
}

/// The place that an artifact has in a checkout.
pub(super) fn place_of(conn: &Connection, checkout: CheckoutId, artifact: Seq) -> Result<Option<Place>> {
    let sql = "SELECT parent, name FROM name WHERE artifact = ?1 AND checkout = ?2";
    let moved = one(conn, "read a name", sql, (artifact.0, checkout.0), place_at_row)?;
    if moved.is_some() {
        return Ok(moved);
    }
    let sql = "SELECT h.parent, h.name FROM head h WHERE h.artifact = ?1 AND NOT EXISTS
        (SELECT 1 FROM name n WHERE n.parent = h.parent AND n.name = h.name AND n.checkout = ?2)";
    one(conn, "read the head tree", sql, (artifact.0, checkout.0), place_at_row)
}

pub(super) fn place_at_row(row: &Row<'_>) -> rusqlite::Result<Place> {
    Ok(Place { parent: Seq(row.get(0)?), name: name_at(row, 1)? })
}

pub(super) fn entry_of(conn: &Connection, checkout: CheckoutId, artifact: Seq) -> Result<Option<Entry>> {
    if artifact == Seq::ROOT {
        return root(conn, checkout).map(Some);
    }
    match place_of(conn, checkout, artifact)? {
        Some(place) => entry_at(conn, checkout, artifact, &place),
        None => Ok(None),
    }
}

/// The root directory, which always is there.
pub(super) fn root(conn: &Connection, checkout: CheckoutId) -> Result<Entry> {
    let head = head_of(conn, Seq::ROOT)?.ok_or(CatalogError::NotFound)?;
    with_draft(conn, checkout, head)
}

pub(super) fn resolve(conn: &Connection, checkout: CheckoutId, path: &ArtifactPath) -> Result<Option<Entry>> {
    let mut entry = root(conn, checkout)?;
    for name in path.names() {
        if entry.kind != Kind::Directory {
            return Ok(None);
        }
        let place = Place { parent: entry.artifact, name: name.clone() };
        match lookup(conn, checkout, &place)? {
            Some(child) => entry = child,
            None => return Ok(None),
        }
    }
    Ok(Some(entry))
}

pub(super) fn path_of(
    conn: &Connection,
    checkout: CheckoutId,
    artifact: Seq,
) -> Result<Option<ArtifactPath>> {
    climb(artifact, |at| place_of(conn, checkout, at))
}

/// The path of an artifact in the head tree.
pub(super) fn head_path_of(conn: &Connection, artifact: Seq) -> Result<Option<ArtifactPath>> {
    let sql = "SELECT parent, name FROM head WHERE artifact = ?1";
    climb(artifact, |at| one(conn, "read the head tree", sql, [at.0], place_at_row))
}

pub(super) fn climb(
    artifact: Seq,
    mut step: impl FnMut(Seq) -> Result<Option<Place>>,
) -> Result<Option<ArtifactPath>> {
    let mut names: Vec<Name> = Vec::new();
    let mut at = artifact;
    while at != Seq::ROOT {
        match step(at)? {
            Some(place) if names.len() < MAX_DEPTH => {
                names.push(place.name);
                at = place.parent;
            }
            _ => return Ok(None),
        }
    }
    names.reverse();
    Ok(Some(ArtifactPath::from_names(names)))
}

pub(super) fn children(
    conn: &Connection,
    checkout: CheckoutId,
    dir: Seq,
    after: Seq,
    limit: usize,
) -> Result<Vec<Entry>> {
    let limit_rows = i64::try_from(limit).unwrap_or(i64::MAX);
    let params = (dir.0, after.0, checkout.0, limit_rows);
    let sql = format!(
        "SELECT {HEAD_COLUMNS}, {DRAFT_COLUMNS} FROM head h
         LEFT JOIN draft d ON d.checkout = ?3 AND d.artifact = h.artifact
         WHERE h.parent = ?1 AND h.artifact > ?2 AND NOT EXISTS
           (SELECT 1 FROM name n WHERE n.parent = h.parent AND n.name = h.name AND n.checkout = ?3)
         ORDER BY h.artifact LIMIT ?4"
    );
    let mut entries = many(conn, "list a directory", &sql, params, |row| {
        let head = head_entry(row)?;
        let drafted = row.get_ref(13)? != rusqlite::types::ValueRef::Null;
        Ok(if drafted { draft_over(head, draft_row(row, 13)?) } else { head })
    })?;
    let sql = "SELECT artifact, name FROM name
        WHERE checkout = ?3 AND parent = ?1 AND artifact > ?2 ORDER BY artifact LIMIT ?4";
    let named = many(conn, "list a directory", sql, params, |row| Ok((Seq(row.get(0)?), name_at(row, 1)?)))?;
    for (artifact, name) in named {
        entries.extend(entry_at(conn, checkout, artifact, &Place { parent: dir, name })?);
    }
    entries.sort_by_key(|entry| entry.artifact);
    entries.truncate(limit);
    Ok(entries)
}

/// Whether two contents are the same bytes, as far as rows can tell.
pub(super) fn same_content(a: &Content, b: &Content) -> bool {
    a == b && !matches!(a, Content::Staged(_) | Content::Direct(_))
}
