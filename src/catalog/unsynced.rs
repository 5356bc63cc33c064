//! Saves whose bytes may not be on the disk yet.
//!
//! A grouped commit costs no sync, and neither does the file that it names. But any full commit, another process's too,
//! makes the grouped ones before it survive a power cut, and then a row could name a file without its bytes. So the row
//! of such a save says in which life of the filesystem its file was written, and has beside it the last content of the
//! draft that is known to be on the disk. Syncing the file ends that ([`Catalog::note_synced`],
//! [`Catalog::note_digests`]); in another life the draft falls back ([`Catalog::fall_back`]).

use std::fs::File;
use std::path::Path;

use rusqlite::{Connection, Row, Transaction};

use super::rows::{ContentColumns, content_columns, digest_at, kind_code, size_at};
use super::view::{self, execute, many, one};
use super::{Actor, Catalog, CatalogError, Durability, Result};
use crate::model::{CheckoutId, Content, Digest, Entry, Instant, Kind, Seq, Timestamp, VersionNumber};
use crate::sys;

/// A content of a draft that is on the disk, as far as a sync can tell: anything but a file that is written in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Solid {
    pub(super) content: Content,
    pub(super) size: u64,
    pub(super) mtime: Timestamp,
}

/// What the row of a save says until its file is synced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unsynced {
    /// The life of the filesystem in which the file was written.
    pub(super) life: i64,
    /// Since when the draft has had no content that is on the disk, by the boot's clock.
    pub(super) since_ms: i64,
    /// The last one that it had.
    pub(super) before: Solid,
}

/// A save whose file was never synced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsyncedSave {
    /// The artifact.
    pub artifact: Seq,
    /// The version on which the draft is made.
    pub base: Option<VersionNumber>,
    /// The file of `staging/`.
    pub file: String,
    /// Whether it was written in an earlier life of the filesystem: what it holds now is anybody's guess.
    pub lost: bool,
}

impl Solid {
    pub(super) fn of(entry: &Entry) -> Self {
        let content = match &entry.content {
            Content::Direct(_) => Content::None,
            other => other.clone(),
        };
        let size = if content == Content::None { 0 } else { entry.size };
        Self { content, size, mtime: entry.attrs.mtime }
    }

    pub(super) fn columns(&self) -> ContentColumns<'_> {
        content_columns(&self.content)
    }
}

impl Unsynced {
    /// Of a save that is made now and replaces what an entry has, which is `replaced` if that was never synced either.
    pub(super) fn of(
        tx: &Transaction<'_>,
        actor: &Actor,
        life: i64,
        entry: &Entry,
        replaced: Option<Self>,
    ) -> Result<Self> {
        match replaced {
            Some(replaced) => Ok(Self { life, ..replaced }),
            None => Ok(Self { life, since_ms: actor.now.boot_ms, before: solid_of(tx, entry)? }),
        }
    }

    /// Of the same save, where it comes to replace what an entry has.
    pub(super) fn replacing(&self, conn: &Connection, checkout: CheckoutId, entry: &Entry) -> Result<Self> {
        if let Some(replaced) = unsynced_of(conn, checkout, entry)? {
            return Ok(Self { life: self.life, ..replaced });
        }
        Ok(Self { before: solid_of(conn, entry)?, ..self.clone() })
    }
}

/// What an entry's row says of its save, if that isn't known to be synced.
pub(super) fn unsynced_of(
    conn: &Connection,
    checkout: CheckoutId,
    entry: &Entry,
) -> Result<Option<Unsynced>> {
    if !matches!(entry.content, Content::Staged(_)) {
        return Ok(None);
    }
    let sql =
        "SELECT unsynced, unsynced_since, old_digest, old_staged, old_target, old_size, old_mtime FROM draft
        WHERE checkout = ?1 AND artifact = ?2 AND unsynced IS NOT NULL";
    one(conn, "read an unsynced save", sql, (checkout.0, entry.artifact.0), |row| {
        Ok(Unsynced {
            life: row.get(0)?,
            since_ms: row.get(1)?,
            before: Solid {
                content: old_content(digest_at(row, 2)?, row.get(3)?, row.get(4)?),
                size: size_at(row, 5)?,
                mtime: Timestamp(row.get(6)?),
            },
        })
    })
}

fn old_content(digest: Option<Digest>, staged: Option<String>, target: Option<Vec<u8>>) -> Content {
    match (digest, staged, target) {
        (Some(digest), ..) => Content::Blob(digest),
        (_, Some(staged), _) => Content::Staged(staged),
        (.., Some(target)) => Content::Target(target),
        _ => Content::None,
    }
}

/// What an entry has that is on the disk. One that was made anew on a name of the head tree and never saved since has the
/// head's.
fn solid_of(conn: &Connection, entry: &Entry) -> Result<Solid> {
    let head = match (&entry.content, entry.kind) {
        (Content::None, Kind::File) => view::head_of(conn, entry.artifact)?,
        _ => None,
    };
    Ok(Solid::of(head.as_ref().unwrap_or(entry)))
}

/// What tells the life of a database's filesystem from others of the same boot.
///
/// It is the directory that is opened: closing the database would end SQLite's locks of it (fcntl(2)).
pub(super) fn life_of(database: &Path) -> Result<i64> {
    let dir = database.parent().unwrap_or(Path::new("/"));
    let life = File::open(dir).and_then(|dir| sys::filesystem_life(&dir));
    life.map(u64::cast_signed).map_err(|source| CatalogError::File {
        doing: "examine",
        path: dir.to_owned(),
        source,
    })
}

impl Catalog {
    /// The present life of the catalog's filesystem: boots have random numbers, and what tells its lives within one is
    /// added.
    pub(super) fn life(&self, now: Instant) -> i64 {
        now.boot.wrapping_add(self.life)
    }

    /// The saves of a checkout whose files were never synced and whose digests aren't known.
    pub fn unsynced_saves(&self, checkout: CheckoutId, now: Instant) -> Result<Vec<UnsyncedSave>> {
        let sql = "SELECT d.artifact, d.base, d.staged, d.unsynced FROM draft d
            WHERE d.checkout = ?1 AND d.staged IS NOT NULL AND d.unsynced IS NOT NULL
              AND NOT EXISTS (SELECT 1 FROM sealed WHERE file = d.staged) ORDER BY d.artifact";
        let life = self.life(now);
        let read = |row: &Row<'_>| {
            Ok(UnsyncedSave {
                artifact: Seq(row.get(0)?),
                base: row.get::<_, Option<i64>>(1)?.map(VersionNumber),
                file: row.get(2)?,
                lost: row.get::<_, i64>(3)? != life,
            })
        };
        self.read(|conn| many(conn, "list unsynced saves", sql, [checkout.0], read))
    }

    /// Notes that a save's file is on the disk, durably: with it goes what the draft was before.
    pub fn note_synced(&self, file: &str) -> Result<()> {
        self.write(Durability::Full, |tx| {
            note_synced(tx, file)?;
            // A commit without a change syncs nothing, and earlier ones may be grouped.
            let sql = "UPDATE meta SET value = value + 1 WHERE key = 'sync'";
            execute(tx, "sync", sql, ()).map(drop)
        })
    }

    /// Gives a draft back what it was before a save whose file is lost; false if it has another content by now, or the save
    /// was synced.
    pub fn fall_back(&self, checkout: CheckoutId, save: &UnsyncedSave) -> Result<bool> {
        let sql =
            "UPDATE draft SET digest = old_digest, staged = old_staged, target = old_target, size = old_size,
              mtime = old_mtime, kind = CASE WHEN old_target IS NULL THEN ?4 ELSE ?5 END,
              unsynced = NULL, unsynced_since = NULL,
              old_digest = NULL, old_staged = NULL, old_target = NULL, old_size = NULL, old_mtime = NULL
            WHERE checkout = ?1 AND artifact = ?2 AND staged = ?3 AND unsynced IS NOT NULL";
        let kinds = (kind_code(Kind::File), kind_code(Kind::Symlink));
        let params = (checkout.0, save.artifact.0, &save.file, kinds.0, kinds.1);
        self.write(Durability::Full, |tx| execute(tx, "take a save back", sql, params).map(|rows| rows > 0))
    }
}

/// Notes that a save's file is on the disk.
pub(super) fn note_synced(tx: &Transaction<'_>, file: &str) -> Result<()> {
    let sql = "UPDATE draft SET unsynced = NULL, unsynced_since = NULL,
          old_digest = NULL, old_staged = NULL, old_target = NULL, old_size = NULL, old_mtime = NULL
        WHERE staged = ?1 AND unsynced IS NOT NULL";
    execute(tx, "note a synced save", sql, [file]).map(drop)
}
