//! Import: many files become one change, without drafts.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use rusqlite::Transaction;

use super::error::doing;
use super::events::{self, EventKind, NewEvent};
use super::head::{self, ChangeHead};
use super::leases;
use super::rows::{ino_at, kind_code};
use super::view::{self, execute, one};
use super::{Actor, Catalog, CatalogError, Durability, LeaseTerms, Place, Result};
use crate::ids::Ids;
use crate::model::{
    ArtifactId, ArtifactPath, Attrs, ChangeNumber, CheckoutId, Content, Entry, Holder, Identity, Ino,
    Instant, Kind, Seq, Timestamp, VersionInfo, VersionNumber,
};

/// The mode of directories that an import needs and does not have itself.
const NEW_DIR_MODE: u32 = 0o755;

/// One file, symlink or directory that is to be imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportItem {
    /// Where.
    pub path: ArtifactPath,
    /// What.
    pub kind: Kind,
    /// The permission bits.
    pub mode: u32,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// `Blob`, `Target` or `None`.
    pub content: Content,
    /// The size in bytes.
    pub size: u64,
}

/// Who imports, when and why.
#[derive(Debug, Clone)]
pub struct Importing<'a> {
    /// Who.
    pub author: &'a Holder,
    /// Why.
    pub message: &'a str,
    /// The present.
    pub now: Instant,
}

impl Catalog {
    /// Makes files and directories one new change; none where the head tree has them all already.
    ///
    /// A path that is there gets a new version of its artifact. Directories that are missing above a path are made.
    /// Refuses with `Held` where somebody else holds or has reserved a path, and with `IsDirectory` or `NotDirectory`
    /// where a file and a directory would take each other's place; then nothing has changed.
    pub fn import(
        &self,
        importing: &Importing<'_>,
        items: &[ImportItem],
        ids: &dyn Ids,
    ) -> Result<Option<ChangeNumber>> {
        self.write(Durability::Full, |tx| {
            let mut import = Import::begin(tx, importing, items, ids)?;
            for item in items {
                import.put(item)?;
            }
            import.finish()
        })
    }
}

struct Import<'a> {
    tx: &'a Transaction<'a>,
    actor: Actor,
    ids: &'a dyn Ids,
    change: ChangeNumber,
    /// Numbers for new artifacts and inodes, taken at once.
    numbers: std::ops::Range<i64>,
    /// Whether anybody has any lease, so that each path must be looked at.
    leased: bool,
    dirs: HashMap<ArtifactPath, Seq>,
    new_dirs: BTreeSet<Seq>,
    touched: BTreeSet<Seq>,
    count: usize,
}

impl<'a> Import<'a> {
    fn begin(
        tx: &'a Transaction<'a>,
        importing: &Importing<'_>,
        items: &[ImportItem],
        ids: &'a dyn Ids,
    ) -> Result<Self> {
        let Importing { author, message, now } = *importing;
        let change = head::begin_change(tx, &ChangeHead { at: now.wall, author, message })?;
        let leased = one(tx, "look for leases", "SELECT EXISTS (SELECT 1 FROM lease)", [], |row| row.get(0))?;
        // An import has no checkout; no row has the number 0, and the holder alone tells whose a lease is.
        let actor = Actor {
            checkout: CheckoutId(0),
            holder: author.clone(),
            // It takes none, and is refused what anybody holds.
            terms: LeaseTerms::of_asking(Arc::default(), None),
            now,
            owner: (0, 0),
            // Who may import what is the engine's to know.
            identity: Arc::new(Identity::root()),
            granted: std::cell::Cell::default(),
        };
        Ok(Self {
            tx,
            actor,
            ids,
            change,
            numbers: take_numbers(tx, items)?,
            leased: leased.unwrap_or(true),
            dirs: HashMap::from([(ArtifactPath::root(), Seq::ROOT)]),
            new_dirs: BTreeSet::new(),
            touched: BTreeSet::new(),
            count: 0,
        })
    }

    fn put(&mut self, item: &ImportItem) -> Result<()> {
        let (Some(parent), Some(name)) = (item.path.parent(), item.path.file_name()) else { return Ok(()) };
        let place = Place { parent: self.dir(&parent)?, name: name.clone() };
        let artifact = match view::head_at(self.tx, &place)? {
            Some(present) => self.renew(&present, &place, item)?,
            None => self.add(&place, item)?,
        };
        if item.kind == Kind::Directory {
            self.dirs.insert(item.path.clone(), artifact);
        }
        Ok(())
    }

    /// The directory at a path, made if it is missing.
    fn dir(&mut self, path: &ArtifactPath) -> Result<Seq> {
        if let Some(dir) = self.dirs.get(path) {
            return Ok(*dir);
        }
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(Seq::ROOT) };
        let place = Place { parent: self.dir(&above)?, name: name.clone() };
        let dir = match view::head_at(self.tx, &place)? {
            Some(present) if present.kind == Kind::Directory => present.artifact,
            Some(_) => return Err(CatalogError::NotDirectory),
            None => self.add(&place, &self.missing_dir(path))?,
        };
        self.dirs.insert(path.clone(), dir);
        Ok(dir)
    }

    fn missing_dir(&self, path: &ArtifactPath) -> ImportItem {
        ImportItem {
            path: path.clone(),
            kind: Kind::Directory,
            mode: NEW_DIR_MODE,
            mtime: self.actor.now.wall,
            content: Content::None,
            size: 0,
        }
    }

    fn add(&mut self, place: &Place, item: &ImportItem) -> Result<Seq> {
        if self.leased {
            leases::check_place(self.tx, &self.actor, place)?;
        }
        let artifact = Seq(self.number());
        let id = self.ids.artifact(self.actor.now.wall);
        let sql = "INSERT INTO artifact VALUES (?1, ?2, ?3)";
        execute(self.tx, "insert an artifact", sql, (artifact.0, id.0, kind_code(item.kind)))?;
        self.write(artifact, id, VersionNumber(1), None, place, item)?;
        self.touched.insert(place.parent);
        if item.kind == Kind::Directory {
            self.new_dirs.insert(artifact);
        }
        Ok(artifact)
    }

    /// Gives an artifact of the head tree a new version, unless it is the same.
    fn renew(&mut self, present: &Entry, place: &Place, item: &ImportItem) -> Result<Seq> {
        match (present.kind == Kind::Directory, item.kind == Kind::Directory) {
            (true, false) => return Err(CatalogError::IsDirectory),
            (false, true) => return Err(CatalogError::NotDirectory),
            _ => {}
        }
        let same = present.kind == item.kind
            && present.attrs.mode == item.mode
            && view::same_content(&present.content, &item.content);
        if same {
            return Ok(present.artifact);
        }
        let artifact = present.artifact;
        if let Some(lease) = leases::blocker(self.tx, &self.actor.holder, artifact, self.actor.now)? {
            return Err(CatalogError::Held { artifact, lease: Some(Box::new(lease)) });
        }
        let number = head::next_version(self.tx, artifact)?;
        head::take_from_head(self.tx, artifact)?;
        self.write(artifact, present.id, number, present.head, place, item)?;
        Ok(artifact)
    }

    fn write(
        &mut self,
        artifact: Seq,
        id: ArtifactId,
        number: VersionNumber,
        base: Option<VersionNumber>,
        place: &Place,
        item: &ImportItem,
    ) -> Result<()> {
        let (mtime, ctime) = (item.mtime, self.actor.now.wall);
        let version = VersionInfo {
            artifact,
            number,
            ino: self.ino(artifact, item.kind)?,
            kind: item.kind,
            attrs: Attrs { mode: item.mode, uid: 0, gid: 0, atime: mtime, mtime, ctime },
            size: item.size,
            content: item.content.clone(),
        };
        head::insert_version(self.tx, self.change, &version, base, &self.actor.holder)?;
        head::put_in_head(self.tx, id, place, &version)?;
        let before = base.map(|_| place);
        head::insert_item(self.tx, self.change, artifact, Some(number), before, Some(place))?;
        self.count += 1;
        Ok(())
    }

    /// A new content state has a new inode; a directory keeps its own.
    fn ino(&mut self, artifact: Seq, kind: Kind) -> Result<Ino> {
        if kind == Kind::Directory {
            let sql = "SELECT ino FROM version WHERE artifact = ?1 ORDER BY number DESC LIMIT 1";
            let present = one(self.tx, "read an inode", sql, [artifact.0], |row| ino_at(row, 0))?;
            if let Some(ino) = present {
                return Ok(ino);
            }
        }
        Ok(Ino(self.number().unsigned_abs()))
    }

    fn number(&mut self) -> i64 {
        self.numbers.next().expect("BUG: an import takes two numbers for each of its entries")
    }

    fn finish(self) -> Result<Option<ChangeNumber>> {
        if self.count == 0 {
            let sql = "DELETE FROM change WHERE number = ?1";
            execute(self.tx, "forget an empty change", sql, [self.change.0])?;
            return Ok(None);
        }
        for dir in self.touched.difference(&self.new_dirs) {
            head::set_dir_time(self.tx, *dir, self.actor.now.wall)?;
        }
        let detail = format!("change {}, {} items imported", self.change, self.count);
        let (at, holder) = (self.actor.now.wall, Some(&self.actor.holder));
        let kind = EventKind::CheckedIn;
        events::append(self.tx, &NewEvent { at, kind, artifact: None, holder, detail: &detail })?;
        Ok(Some(self.change))
    }
}

/// Takes two numbers for each path and each directory above one: an artifact's and an inode's.
fn take_numbers(tx: &Transaction<'_>, items: &[ImportItem]) -> Result<std::ops::Range<i64>> {
    let mut above = BTreeSet::new();
    for item in items {
        let mut dir = item.path.parent();
        while let Some(path) = dir.filter(|path| !above.contains(path)) {
            dir = path.parent();
            above.insert(path);
        }
    }
    let wanted = i64::try_from(2 * (items.len() + above.len())).unwrap_or(i64::MAX);
    let sql = "UPDATE meta SET value = value + ?1 WHERE key = 'next_number' RETURNING value - ?1";
    let mut statement = tx.prepare_cached(sql).map_err(doing("take numbers"))?;
    let start: i64 = statement.query_row([wanted], |row| row.get(0)).map_err(doing("take numbers"))?;
    Ok(start..start + wanted)
}
