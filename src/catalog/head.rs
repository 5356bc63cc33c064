//! Writing the head tree and its history: what check-in and import share.

use rusqlite::Transaction;

use super::error::doing;
use super::rows::{content_columns, ino_code, kind_code, size_code};
use super::view::{execute, many, one};
use super::{Place, Result};
use crate::model::{
    ArtifactId, ChangeNumber, CheckoutId, Entry, Holder, Seq, Timestamp, VersionInfo, VersionNumber,
};

/// A change in the making.
pub(super) struct ChangeHead<'a> {
    pub at: Timestamp,
    pub author: &'a Holder,
    pub message: &'a str,
}

/// Begins the next change of the workspace.
pub(super) fn begin_change(tx: &Transaction<'_>, head: &ChangeHead<'_>) -> Result<ChangeNumber> {
    let sql = "INSERT INTO change (number, at, author, message)
        SELECT coalesce(max(number), 0) + 1, ?1, ?2, ?3 FROM change RETURNING number";
    let params = (head.at.0, head.author.as_str(), head.message);
    let mut statement = tx.prepare_cached(sql).map_err(doing("begin a change"))?;
    statement.query_row(params, |row| row.get(0).map(ChangeNumber)).map_err(doing("begin a change"))
}

/// The number that an artifact's next version gets.
pub(super) fn next_version(tx: &Transaction<'_>, artifact: Seq) -> Result<VersionNumber> {
    let sql = "SELECT coalesce(max(number), 0) + 1 FROM version WHERE artifact = ?1";
    let number = one(tx, "number a version", sql, [artifact.0], |row| row.get(0).map(VersionNumber))?;
    Ok(number.unwrap_or(VersionNumber(1)))
}

/// Writes a version, which nobody changes any more.
pub(super) fn insert_version(
    tx: &Transaction<'_>,
    change: ChangeNumber,
    version: &VersionInfo,
    base: Option<VersionNumber>,
    author: &Holder,
) -> Result<()> {
    let sql =
        "INSERT INTO version (artifact, number, change, ino, kind, mode, size, digest, target, mtime, ctime,
          base, author)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    let (digest, _, _, target) = content_columns(&version.content);
    let params = (
        version.artifact.0,
        version.number.0,
        change.0,
        ino_code(version.ino),
        kind_code(version.kind),
        version.attrs.mode,
        size_code(version.size),
        digest,
        target,
        version.attrs.mtime.0,
        version.attrs.ctime.0,
        base.map(|base| base.0),
        author.as_str(),
    );
    execute(tx, "write a version", sql, params).map(drop)
}

/// Takes an artifact out of the head tree; its place is free afterwards.
pub(super) fn take_from_head(tx: &Transaction<'_>, artifact: Seq) -> Result<()> {
    execute(tx, "clear a head", "DELETE FROM head WHERE artifact = ?1", [artifact.0]).map(drop)
}

/// Puts an artifact that is not in the head tree into a free place of it.
pub(super) fn put_in_head(
    tx: &Transaction<'_>,
    id: ArtifactId,
    place: &Place,
    version: &VersionInfo,
) -> Result<()> {
    let sql = "INSERT INTO head (parent, artifact, id, name, version, ino, kind, mode, size, digest, target,
          mtime, ctime)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)";
    let (digest, _, _, target) = content_columns(&version.content);
    let name = if version.artifact == Seq::ROOT { &[][..] } else { place.name.as_bytes() };
    let params = (
        place.parent.0,
        version.artifact.0,
        id.0,
        name,
        version.number.0,
        ino_code(version.ino),
        kind_code(version.kind),
        version.attrs.mode,
        size_code(version.size),
        digest,
        target,
        version.attrs.mtime.0,
        version.attrs.ctime.0,
    );
    execute(tx, "write a head", sql, params).map(drop)
}

/// The version that an entry of the head tree shows.
pub(super) fn shown_version(head: &Entry) -> VersionInfo {
    VersionInfo {
        artifact: head.artifact,
        number: head.head.unwrap_or(VersionNumber(0)),
        ino: head.ino,
        kind: head.kind,
        attrs: head.attrs,
        size: head.size,
        content: head.content.clone(),
    }
}

/// Writes what a change did to one artifact.
pub(super) fn insert_item(
    tx: &Transaction<'_>,
    change: ChangeNumber,
    artifact: Seq,
    version: Option<VersionNumber>,
    before: Option<&Place>,
    after: Option<&Place>,
) -> Result<()> {
    let sql = "INSERT INTO change_item (change, artifact, version, parent_before, name_before, parent_after,
          name_after)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let params = (
        change.0,
        artifact.0,
        version.map(|version| version.0),
        before.map(|place| place.parent.0),
        before.map(|place| place.name.as_bytes()),
        after.map(|place| place.parent.0),
        after.map(|place| place.name.as_bytes()),
    );
    execute(tx, "write a change's item", sql, params).map(drop)
}

/// Sets the time of a directory of the head tree whose names changed.
pub(super) fn set_dir_time(tx: &Transaction<'_>, dir: Seq, time: Timestamp) -> Result<()> {
    let sql = "UPDATE head SET mtime = ?2, ctime = ?2 WHERE artifact = ?1";
    execute(tx, "set a directory's time", sql, (dir.0, time.0)).map(drop)
}

/// After an artifact left a place of the head tree: what other checkouts said of that name is about something else
/// from now on. A removal is done, and a replacement hides nothing any more.
pub(super) fn vacate(tx: &Transaction<'_>, place: &Place) -> Result<()> {
    let params = (place.parent.0, place.name.as_bytes());
    let sql = "DELETE FROM name WHERE parent = ?1 AND name = ?2 AND artifact IS NULL";
    execute(tx, "forget removals", sql, params)?;
    let sql = "UPDATE name SET base = NULL WHERE parent = ?1 AND name = ?2";
    execute(tx, "forget bases", sql, params).map(drop)
}

/// After an artifact left the head tree: other checkouts' drafts of it stay where they were, and names that they gave
/// it without a draft are forgotten.
pub(super) fn orphan(tx: &Transaction<'_>, artifact: Seq, place: &Place) -> Result<()> {
    let sql = "SELECT DISTINCT checkout FROM name WHERE artifact = ?1 AND NOT EXISTS
        (SELECT 1 FROM draft d WHERE d.artifact = name.artifact AND d.checkout = name.checkout)";
    for checkout in many(tx, "list names", sql, [artifact.0], |row| row.get(0).map(CheckoutId))? {
        unname(tx, artifact, Some(checkout))?;
    }
    let sql = "INSERT OR IGNORE INTO name (parent, name, checkout, artifact)
        SELECT ?2, ?3, d.checkout, d.artifact FROM draft d WHERE d.artifact = ?1 AND NOT EXISTS
          (SELECT 1 FROM name n WHERE n.artifact = d.artifact AND n.checkout = d.checkout)";
    let params = (artifact.0, place.parent.0, place.name.as_bytes());
    execute(tx, "keep drafts in place", sql, params).map(drop)
}

/// Forgets the names that a checkout (none: every one) gave an artifact. Where such a name stands for another artifact
/// in the head tree, that one stays hidden: the checkout has moved it, too, or removed it.
pub(super) fn unname(tx: &Transaction<'_>, artifact: Seq, checkout: Option<CheckoutId>) -> Result<()> {
    let params = (artifact.0, checkout.map(|checkout| checkout.0));
    let sql =
        "UPDATE name SET artifact = NULL WHERE artifact = ?1 AND (?2 IS NULL OR checkout = ?2) AND EXISTS
        (SELECT 1 FROM head h WHERE h.parent = name.parent AND h.name = name.name AND h.artifact <> ?1)";
    execute(tx, "hide names", sql, params)?;
    let sql = "DELETE FROM name WHERE artifact = ?1 AND (?2 IS NULL OR checkout = ?2)";
    execute(tx, "forget names", sql, params).map(drop)
}
