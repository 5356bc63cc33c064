//! What a change is, whole: enough to make its rows again when the catalog is lost.

use rusqlite::{Connection, Row, Transaction};
use uuid::Uuid;

use super::head;
use super::history::version;
use super::rows::{bad, digest_at, holder_at, id_at, kind_at, kind_code, name_at};
use super::view::{self, execute, many, one};
use super::{Catalog, CatalogError, Durability, Place, Result};
use crate::model::{
    ArtifactId, Attrs, ChangeNumber, CheckoutId, Content, Digest, Holder, Ino, Kind, Name, Seq, Timestamp,
    VersionInfo, VersionNumber,
};

/// A change, and what was true of the workspace when its manifest was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeFacts {
    /// The identity of the root directory, which is the workspace's.
    pub workspace: ArtifactId,
    /// The change.
    pub number: ChangeNumber,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub author: Holder,
    /// Why.
    pub message: String,
    /// The manifest of the change before.
    pub previous: Option<Digest>,
    /// No artifact and no inode had this number yet, nor a higher one.
    pub next_number: i64,
    /// No lease had this generation yet, nor a higher one.
    pub next_generation: i64,
    /// Whose checkouts there were.
    pub checkouts: Vec<(CheckoutId, Holder)>,
}

/// What a change did to one artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemFacts {
    /// The artifact.
    pub artifact: Seq,
    /// Its identity.
    pub id: ArtifactId,
    /// What it was made as.
    pub kind: Kind,
    /// Where it was in the head tree.
    pub before: Option<Place>,
    /// Where it is since.
    pub after: Option<Place>,
    /// Its new version.
    pub version: Option<VersionInfo>,
    /// The version on which that one was made.
    pub base: Option<VersionNumber>,
}

impl Catalog {
    /// The changes whose manifest was not stored yet, oldest first.
    pub fn changes_without_manifest(&self) -> Result<Vec<ChangeNumber>> {
        let sql = "SELECT number FROM change WHERE manifest IS NULL ORDER BY number";
        self.read(|conn| many(conn, "list changes", sql, [], |row| row.get(0).map(ChangeNumber)))
    }

    /// The changes that have a manifest, with its digest, oldest first.
    pub fn manifests(&self) -> Result<Vec<(ChangeNumber, Digest)>> {
        let sql = "SELECT number, manifest FROM change WHERE manifest IS NOT NULL ORDER BY number";
        let read = |row: &Row<'_>| {
            let digest = digest_at(row, 1)?.ok_or_else(|| bad(1, "digest"))?;
            Ok((ChangeNumber(row.get(0)?), digest))
        };
        self.read(|conn| many(conn, "list manifests", sql, [], read))
    }

    /// A change without its items.
    pub fn change_facts(&self, number: ChangeNumber) -> Result<Option<ChangeFacts>> {
        self.read(|conn| {
            let sql = "SELECT c.at, c.author, c.message, p.manifest, h.id FROM change c
                JOIN head h ON h.artifact = 1 LEFT JOIN change p ON p.number = c.number - 1
                WHERE c.number = ?1";
            let (next_number, next_generation) =
                (counter(conn, "next_number")?, counter(conn, "next_generation")?);
            let checkouts =
                many(conn, "list checkouts", "SELECT id, holder FROM checkout ORDER BY id", [], |row| {
                    Ok((CheckoutId(row.get(0)?), holder_at(row, 1)?))
                })?;
            one(conn, "read a change", sql, [number.0], |row| {
                Ok(ChangeFacts {
                    workspace: id_at(row, 4)?,
                    number,
                    at: Timestamp(row.get(0)?),
                    author: holder_at(row, 1)?,
                    message: row.get(2)?,
                    previous: digest_at(row, 3)?,
                    next_number,
                    next_generation,
                    checkouts,
                })
            })
        })
    }

    /// Up to `limit` items of a change, by artifact, those after `after`.
    pub fn item_facts(&self, change: ChangeNumber, after: Seq, limit: u32) -> Result<Vec<ItemFacts>> {
        let sql =
            "SELECT i.artifact, a.id, a.kind, i.version, i.parent_before, i.name_before, i.parent_after,
              i.name_after, v.base
            FROM change_item i JOIN artifact a ON a.seq = i.artifact
              LEFT JOIN version v ON v.artifact = i.artifact AND v.number = i.version
            WHERE i.change = ?1 AND i.artifact > ?2 ORDER BY i.artifact LIMIT ?3";
        self.read(|conn| {
            let rows = many(conn, "list a change", sql, (change.0, after.0, limit), item_at)?;
            let items = rows.into_iter().map(|(mut item, number)| {
                item.version = match number {
                    Some(number) => version(conn, item.artifact, number)?,
                    None => None,
                };
                Ok(item)
            });
            items.collect()
        })
    }

    /// Notes the digest of a manifest that is on its way into the store, by its file in `staging/`.
    ///
    /// A power cut may take this back: then the change gets another manifest.
    pub fn note_manifest(&self, file: &str, digest: &Digest) -> Result<()> {
        let sql = "INSERT OR REPLACE INTO sealed (file, digest) VALUES (?1, ?2)";
        let params = (file, digest.as_bytes());
        self.write(Durability::Grouped, |tx| execute(tx, "note a manifest", sql, params).map(drop))
    }

    /// Says that the noted manifest of a change is in the store.
    pub fn set_manifest(&self, change: ChangeNumber, file: &str) -> Result<()> {
        let sql =
            "UPDATE change SET manifest = (SELECT digest FROM sealed WHERE file = ?2) WHERE number = ?1";
        self.write(Durability::Grouped, |tx| {
            execute(tx, "name a manifest", sql, (change.0, file))?;
            execute(tx, "forget a noted digest", "DELETE FROM sealed WHERE file = ?1", [file]).map(drop)
        })
    }

    /// Makes the rows of a change again, after those of all earlier ones that are known.
    ///
    /// Checkouts and counters become those of the change, which must not go back. A directory that no change before
    /// has made is made, without a version, under a name that says so.
    pub fn replay(&self, change: &ChangeFacts, manifest: &Digest, items: &[ItemFacts]) -> Result<()> {
        self.write(Durability::Full, |tx| {
            let sql =
                "INSERT INTO change (number, at, author, message, manifest) VALUES (?1, ?2, ?3, ?4, ?5)";
            let author = change.author.as_str();
            let params = (change.number.0, change.at.0, author, &change.message, manifest.as_bytes());
            execute(tx, "write a change", sql, params)?;
            raise_counter(tx, "next_number", change.next_number)?;
            raise_counter(tx, "next_generation", change.next_generation)?;
            for (id, holder) in &change.checkouts {
                let sql = "INSERT OR IGNORE INTO checkout (id, holder) VALUES (?1, ?2)";
                execute(tx, "make a checkout", sql, (id.0, holder.as_str()))?;
            }
            Replay { tx, change }.items(items)
        })
    }
}

fn item_at(row: &Row<'_>) -> rusqlite::Result<(ItemFacts, Option<VersionNumber>)> {
    let place = |parent: usize| -> rusqlite::Result<Option<Place>> {
        let Some(seq) = row.get::<_, Option<i64>>(parent)? else { return Ok(None) };
        Ok(Some(Place { parent: Seq(seq), name: name_at(row, parent + 1)? }))
    };
    let item = ItemFacts {
        artifact: Seq(row.get(0)?),
        id: id_at(row, 1)?,
        kind: kind_at(row, 2)?,
        before: place(4)?,
        after: place(6)?,
        version: None,
        base: row.get::<_, Option<i64>>(8)?.map(VersionNumber),
    };
    Ok((item, row.get::<_, Option<i64>>(3)?.map(VersionNumber)))
}

fn counter(conn: &Connection, key: &str) -> Result<i64> {
    let value =
        one(conn, "read a counter", "SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))?;
    value.ok_or(CatalogError::NotFound)
}

fn raise_counter(tx: &Transaction<'_>, key: &str, value: i64) -> Result<()> {
    let sql = "UPDATE meta SET value = max(value, ?2) WHERE key = ?1";
    execute(tx, "raise a counter", sql, (key, value)).map(drop)
}

/// Makes the rows of one change's items again.
struct Replay<'a> {
    tx: &'a Transaction<'a>,
    change: &'a ChangeFacts,
}

impl Replay<'_> {
    /// Places are cleared first, since two artifacts may have swapped theirs.
    fn items(&self, items: &[ItemFacts]) -> Result<()> {
        let mut shown = Vec::with_capacity(items.len());
        for item in items {
            shown.push(self.version_after(item)?);
            head::take_from_head(self.tx, item.artifact)?;
        }
        for (item, shown) in items.iter().zip(&shown) {
            self.item(item, shown.as_ref())?;
        }
        for place in items.iter().filter_map(|item| item.after.as_ref()) {
            self.make_parent(place.parent)?;
        }
        Ok(())
    }

    fn item(&self, item: &ItemFacts, shown: Option<&VersionInfo>) -> Result<()> {
        self.insert_artifact(item.artifact, item.id, item.kind)?;
        if let Some(version) = &item.version {
            head::insert_version(self.tx, self.change.number, version, item.base, &self.change.author)?;
        }
        if let (Some(place), Some(version)) = (&item.after, shown) {
            self.clear(place)?;
            head::put_in_head(self.tx, item.id, place, version)?;
        }
        let number = item.version.as_ref().map(|version| version.number);
        let (before, after) = (item.before.as_ref(), item.after.as_ref());
        head::insert_item(self.tx, self.change.number, item.artifact, number, before, after)
    }

    /// What the artifact's name shows after the change; a renamed one whose versions are lost shows nothing.
    fn version_after(&self, item: &ItemFacts) -> Result<Option<VersionInfo>> {
        match &item.version {
            Some(version) => Ok(Some(version.clone())),
            None => Ok(view::head_of(self.tx, item.artifact)?.as_ref().map(head::shown_version)),
        }
    }

    fn insert_artifact(&self, artifact: Seq, id: ArtifactId, kind: Kind) -> Result<()> {
        let sql = "INSERT OR IGNORE INTO artifact (seq, id, kind) VALUES (?1, ?2, ?3)";
        execute(self.tx, "insert an artifact", sql, (artifact.0, id.0, kind_code(kind))).map(drop)
    }

    /// Takes what stands on a place out of the head tree: the change that moved it away is lost.
    fn clear(&self, place: &Place) -> Result<()> {
        match view::head_at(self.tx, place)? {
            Some(present) => head::take_from_head(self.tx, present.artifact),
            None => Ok(()),
        }
    }

    /// Makes a directory whose own change is lost.
    fn make_parent(&self, dir: Seq) -> Result<()> {
        if dir == Seq::ROOT || dir == Seq(0) || view::head_of(self.tx, dir)?.is_some() {
            return Ok(());
        }
        let name = format!("(lost directory {dir})");
        let name = Name::new(name.as_bytes()).expect("BUG: a name without slash or NUL is valid");
        let time = self.change.at;
        let version = VersionInfo {
            artifact: dir,
            number: VersionNumber(0),
            ino: Ino(dir.0.unsigned_abs()),
            kind: Kind::Directory,
            attrs: Attrs { mode: 0o755, uid: 0, gid: 0, atime: time, mtime: time, ctime: time },
            size: 0,
            content: Content::None,
        };
        let id = ArtifactId(Uuid::from_u128(dir.0.unsigned_abs().into()));
        let place = Place { parent: Seq::ROOT, name };
        self.insert_artifact(dir, id, Kind::Directory)?;
        head::put_in_head(self.tx, id, &place, &version)?;
        head::insert_item(self.tx, self.change.number, dir, None, None, Some(&place))
    }
}
