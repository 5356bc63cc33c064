//! Changing a checkout's names: create, unlink, rename.
//!
//! Identity follows the name: where a file comes to stand on a name that the head tree has, it is that artifact,
//! whatever file was moved there; so a save by temporary file and rename is a save. What the moved file was before
//! (its content, attributes and inode) is its *body*, and rename moves bodies.

use rusqlite::Transaction;

use super::leases;
use super::rows::{content_columns, ino_code, kind_code, scratch_code, size_code};
use super::saves::{forget_draft, insert_draft};
use super::unsynced::{Unsynced, unsynced_of};
use super::view::{self, Override, execute, one};
use super::{Actor, Catalog, CatalogError, Durability, Place, Result};
use crate::model::{
    ArtifactId, Attrs, CheckoutId, Content, Entry, Generation, Ino, Instant, Kind, Layer, Scratch, Seq,
    VersionNumber,
};

/// A file, directory, symlink or special file that is to be made.
#[derive(Debug, Clone)]
pub struct NewEntry {
    /// The identity that it gets unless the name has one.
    pub id: ArtifactId,
    /// What it is.
    pub kind: Kind,
    /// Its inode number, from [`Catalog::next_ino`].
    pub ino: Ino,
    /// Mode, owner and times.
    pub attrs: Attrs,
    /// Its first content.
    pub content: Content,
    /// The size of that content in bytes.
    pub size: u64,
    /// Whether the name is scratch; never where the head tree has it.
    pub scratch: Scratch,
}

/// What a rename does with a name that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces it.
    Replace,
    /// Fails (`RENAME_NOREPLACE`).
    NoReplace,
    /// Swaps the two (`RENAME_EXCHANGE`).
    Exchange,
}

/// A rename that is asked for.
#[derive(Debug, Clone)]
pub struct RenameRequest {
    /// The old name.
    pub from: Place,
    /// The new name.
    pub to: Place,
    /// What happens to what the new name is.
    pub mode: RenameMode,
    /// Whether the old name (for exchanges) and the new one are scratch, unless the head tree has them.
    pub classes: (Scratch, Scratch),
    /// An identity for what needs a new one.
    pub spare: ArtifactId,
}

/// What a rename did.
#[derive(Debug, Clone)]
pub struct Renamed {
    /// What the old name was.
    pub source: Entry,
    /// What the new name is now.
    pub moved: Entry,
    /// What the new name was and no name is any more.
    pub replaced: Option<Entry>,
    /// Since when the new name has had no content that is known to be on the disk, by the boot's clock; none if it has.
    pub unsynced_since_ms: Option<i64>,
    /// What the old name is now, after an exchange.
    pub exchanged: Option<Entry>,
}

/// What a name holds apart from its identity.
struct Body {
    ino: Ino,
    kind: Kind,
    attrs: Attrs,
    size: u64,
    content: Content,
    /// What comes back if the content is lost.
    unsynced: Option<Unsynced>,
    generation: Option<Generation>,
}

impl Body {
    fn of(tx: &Transaction<'_>, actor: &Actor, entry: &Entry) -> Result<Self> {
        let generation = entry.generation();
        let unsynced = unsynced_of(tx, actor.checkout, entry)?;
        let Entry { ino, kind, size, ref content, .. } = *entry;
        Ok(Self {
            ino,
            kind,
            attrs: actor.attrs_of(entry),
            size,
            content: content.clone(),
            unsynced,
            generation,
        })
    }

    /// The same body where it replaces something: that comes back if its own bytes are lost.
    fn replacing(mut self, tx: &Transaction<'_>, checkout: CheckoutId, entry: &Entry) -> Result<Self> {
        if let Some(unsynced) = &mut self.unsynced {
            *unsynced = unsynced.replacing(tx, checkout, entry)?;
        }
        Ok(self)
    }
}

impl Catalog {
    /// Makes a new name. A name of the head tree that the checkout had removed keeps its artifact.
    pub fn create_entry(&self, actor: &Actor, place: &Place, new: &NewEntry) -> Result<Entry> {
        let seq = Seq(self.next_number()?);
        self.write_draft(actor, Durability::Grouped, |tx| create(tx, actor, place, new, seq))
    }

    /// Removes a name that is no directory; returns what it was.
    pub fn unlink(&self, actor: &Actor, place: &Place) -> Result<Entry> {
        self.write_draft(actor, Durability::Grouped, |tx| {
            let entry = view::lookup(tx, actor.checkout, place)?.ok_or(CatalogError::NotFound)?;
            if entry.kind == Kind::Directory {
                return Err(CatalogError::IsDirectory);
            }
            remove(tx, actor, place, &entry)?;
            Ok(entry)
        })
    }

    /// Removes an empty directory; returns what it was.
    pub fn rmdir(&self, actor: &Actor, place: &Place) -> Result<Entry> {
        self.write_draft(actor, Durability::Grouped, |tx| {
            let entry = view::lookup(tx, actor.checkout, place)?.ok_or(CatalogError::NotFound)?;
            check_removable_dir(tx, actor, &entry)?;
            remove(tx, actor, place, &entry)?;
            Ok(entry)
        })
    }

    /// Moves a name.
    pub fn rename(&self, actor: &Actor, request: &RenameRequest) -> Result<Renamed> {
        let seq = Seq(self.next_number()?);
        self.write_draft(actor, Durability::Grouped, |tx| rename(tx, actor, request, seq))
    }

    /// Whether a rename would be refused now; changes nothing.
    pub fn check_rename(&self, actor: &Actor, request: &RenameRequest) -> Result<()> {
        let seq = Seq(self.next_number()?);
        let rehearsed = self.rehearse(|tx| rename(tx, actor, request, seq).map(drop));
        actor.granted.set(false);
        rehearsed
    }
}

fn rename(tx: &Transaction<'_>, actor: &Actor, request: &RenameRequest, seq: Seq) -> Result<Renamed> {
    let RenameRequest { from, to, classes, spare, .. } = request;
    let source = view::lookup(tx, actor.checkout, from)?.ok_or(CatalogError::NotFound)?;
    let target = view::lookup(tx, actor.checkout, to)?;
    let renaming = Renaming { tx, actor, from, to, classes: *classes, spare: (seq, *spare) };
    match (request.mode, target) {
        (RenameMode::NoReplace, Some(_)) => Err(CatalogError::Exists),
        (RenameMode::Exchange, None) => Err(CatalogError::NotFound),
        (RenameMode::Exchange, Some(target)) => renaming.exchange(source, target),
        (_, target) => renaming.replace(source, target),
    }
}

pub(super) fn create(
    tx: &Transaction<'_>,
    actor: &Actor,
    place: &Place,
    new: &NewEntry,
    seq: Seq,
) -> Result<Entry> {
    if view::lookup(tx, actor.checkout, place)?.is_some() {
        return Err(CatalogError::Exists);
    }
    let body = Body {
        ino: new.ino,
        kind: new.kind,
        attrs: new.attrs,
        size: new.size,
        content: new.content.clone(),
        unsynced: None,
        generation: None,
    };
    settle_on(tx, actor, place, body, new.scratch, (seq, new.id))?;
    touch_dir(tx, actor.checkout, place.parent, actor)?;
    view::lookup(tx, actor.checkout, place)?.ok_or(CatalogError::NotFound)
}

/// Lets a body stand on a name that nothing has in this checkout, as the head's artifact or as a new one.
fn settle_on(
    tx: &Transaction<'_>,
    actor: &Actor,
    place: &Place,
    body: Body,
    scratch: Scratch,
    fresh: (Seq, ArtifactId),
) -> Result<()> {
    match view::head_at(tx, place)?.filter(|head| same_family(head.kind, body.kind)) {
        Some(head) => {
            let base = gone_base(tx, actor.checkout, place)?;
            let lease = leases::take(tx, actor, head.artifact, base.or(head.head))?;
            give_way(tx, actor, head.artifact, fresh)?;
            forget_name(tx, actor.checkout, place)?;
            let body = Body { generation: lease.map(|lease| lease.generation), ..body };
            let body = body.replacing(tx, actor.checkout, &head)?;
            put_body(tx, actor.checkout, head.artifact, &body, base.or(head.head), Scratch::No)
        }
        None => add(tx, actor, place, body, scratch, fresh),
    }
}

/// Makes a new artifact of a body, and reserves its name unless it is scratch.
fn add(
    tx: &Transaction<'_>,
    actor: &Actor,
    place: &Place,
    body: Body,
    scratch: Scratch,
    (seq, id): (Seq, ArtifactId),
) -> Result<()> {
    execute(
        tx,
        "insert an artifact",
        "INSERT INTO artifact VALUES (?1, ?2, ?3)",
        (seq.0, id.0, kind_code(body.kind)),
    )?;
    let generation = match scratch {
        Scratch::No => {
            leases::check_place(tx, actor, place)?;
            leases::reserve(tx, actor, place, seq, id)?.map(|lease| lease.generation)
        }
        Scratch::Provisional | Scratch::Yes => None,
    };
    name_artifact(tx, actor.checkout, place, seq)?;
    put_body(tx, actor.checkout, seq, &Body { generation, ..body }, None, scratch)
}

/// Files and symlinks may take each other's place as versions of one artifact; directories and specials may not.
fn same_family(a: Kind, b: Kind) -> bool {
    let family = |kind| matches!(kind, Kind::File | Kind::Symlink);
    family(a) && family(b)
}

/// The version that a removed name of the head tree had when it was removed.
fn gone_base(tx: &Transaction<'_>, checkout: CheckoutId, place: &Place) -> Result<Option<VersionNumber>> {
    Ok(match view::override_at(tx, checkout, place)? {
        Override::Gone { base } => base,
        Override::None | Override::Artifact(_) => None,
    })
}

/// If the checkout had moved the artifact elsewhere, lets what stands there become another artifact.
fn give_way(tx: &Transaction<'_>, actor: &Actor, artifact: Seq, (seq, id): (Seq, ArtifactId)) -> Result<()> {
    let sql = "SELECT 1 FROM name WHERE artifact = ?1 AND checkout = ?2";
    let params = (artifact.0, actor.checkout.0);
    if one(tx, "read a name", sql, params, |_| Ok(()))?.is_none() {
        return Ok(());
    }
    // The number is the caller's spare one: whoever settles on a head's name needs no new artifact himself.
    let Some(elsewhere) = view::entry_of(tx, actor.checkout, artifact)? else { return Ok(()) };
    let place = Place { parent: elsewhere.parent, name: elsewhere.name.clone() };
    let body = Body::of(tx, actor, &elsewhere)?;
    forget_draft(tx, actor.checkout, artifact)?;
    add(tx, actor, &place, body, elsewhere.scratch, (seq, id))
}

/// Takes a name away. A name of the head tree stays as gone, with the lease; anything else leaves no trace.
fn remove(tx: &Transaction<'_>, actor: &Actor, place: &Place, entry: &Entry) -> Result<()> {
    if entry.head.is_some() {
        leases::take(tx, actor, entry.artifact, None)?;
    }
    forget_draft(tx, actor.checkout, entry.artifact)?;
    take_name(tx, actor, place, entry)?;
    if entry.head.is_none() {
        forget_artifact(tx, entry.artifact, actor.now)?;
    }
    touch_dir(tx, actor.checkout, place.parent, actor)
}

/// Clears a name of a checkout: the head's own name is marked as gone, another is forgotten.
fn take_name(tx: &Transaction<'_>, actor: &Actor, place: &Place, entry: &Entry) -> Result<()> {
    match view::head_at(tx, place)? {
        Some(head) if head.artifact == entry.artifact => mark_gone(tx, actor, place, entry.base()),
        Some(_) => mark_gone(tx, actor, place, None),
        None => forget_name(tx, actor.checkout, place),
    }
}

fn mark_gone(tx: &Transaction<'_>, actor: &Actor, place: &Place, base: Option<VersionNumber>) -> Result<()> {
    let sql =
        "INSERT INTO name (parent, name, checkout, artifact, base, gone_at) VALUES (?1, ?2, ?3, NULL, ?4, ?5)
        ON CONFLICT DO UPDATE SET artifact = NULL, is_dir = 0, base = coalesce(excluded.base, base),
          gone_at = excluded.gone_at";
    let params =
        (place.parent.0, place.name.as_bytes(), actor.checkout.0, base.map(|b| b.0), actor.now.wall.0);
    execute(tx, "remove a name", sql, params).map(drop)
}

/// Gives an artifact a name, unless that is its name in the head tree anyway. A name of the head tree that it hides
/// is noted with the version that was hidden.
fn name_artifact(tx: &Transaction<'_>, checkout: CheckoutId, place: &Place, artifact: Seq) -> Result<()> {
    let head = view::head_at(tx, place)?;
    if head.as_ref().is_some_and(|head| head.artifact == artifact) {
        return forget_name(tx, checkout, place);
    }
    let hidden = head.and_then(|head| head.head).map(|version| version.0);
    let sql = "INSERT INTO name (parent, name, checkout, artifact, base, is_dir)
        VALUES (?1, ?2, ?3, ?4, ?5, (SELECT kind = 3 FROM artifact WHERE seq = ?4))
        ON CONFLICT DO UPDATE SET artifact = excluded.artifact, is_dir = excluded.is_dir, gone_at = NULL";
    let params = (place.parent.0, place.name.as_bytes(), checkout.0, artifact.0, hidden);
    execute(tx, "give a name", sql, params).map(drop)
}

fn forget_name(tx: &Transaction<'_>, checkout: CheckoutId, place: &Place) -> Result<()> {
    let sql = "DELETE FROM name WHERE parent = ?1 AND name = ?2 AND checkout = ?3";
    execute(tx, "forget a name", sql, (place.parent.0, place.name.as_bytes(), checkout.0)).map(drop)
}

/// Forgets an artifact that no version, name or draft has any more.
pub(super) fn forget_artifact(tx: &Transaction<'_>, artifact: Seq, now: Instant) -> Result<()> {
    leases::drop_lease(tx, artifact, now)?;
    // One that another check-in deleted while it was a draft here still has its versions.
    let sql = "DELETE FROM artifact WHERE seq = ?1 AND NOT EXISTS
        (SELECT 1 FROM version WHERE version.artifact = artifact.seq)";
    execute(tx, "forget an artifact", sql, [artifact.0]).map(drop)
}

fn put_body(
    tx: &Transaction<'_>,
    checkout: CheckoutId,
    artifact: Seq,
    body: &Body,
    base: Option<VersionNumber>,
    scratch: Scratch,
) -> Result<()> {
    let columns = (content_columns(&body.content), body.unsynced.as_ref());
    let codes = [ino_code(body.ino), kind_code(body.kind), size_code(body.size), scratch_code(scratch)];
    insert_draft(tx, (checkout, artifact), codes, &body.attrs, columns, (base, body.generation))
}

fn check_removable_dir(tx: &Transaction<'_>, actor: &Actor, entry: &Entry) -> Result<()> {
    if entry.kind != Kind::Directory {
        return Err(CatalogError::NotDirectory);
    }
    if !view::children(tx, actor.checkout, entry.artifact, Seq(0), 1)?.is_empty() {
        return Err(CatalogError::NotEmpty);
    }
    if entry.head.is_some() {
        leases::take_subtree(tx, actor, entry.artifact)?;
    }
    Ok(())
}

/// Moves a directory's time to now, as the checkout sees it.
fn touch_dir(tx: &Transaction<'_>, checkout: CheckoutId, dir: Seq, actor: &Actor) -> Result<()> {
    let sql = "INSERT OR REPLACE INTO dir_time VALUES (?1, ?2, ?3)";
    execute(tx, "set a directory's time", sql, (checkout.0, dir.0, actor.now.wall.0)).map(drop)
}

/// One rename, with what its steps share.
struct Renaming<'a> {
    tx: &'a Transaction<'a>,
    actor: &'a Actor,
    from: &'a Place,
    to: &'a Place,
    /// Whether the old and the new name are scratch.
    classes: (Scratch, Scratch),
    spare: (Seq, ArtifactId),
}

impl Renaming<'_> {
    fn replace(&self, source: Entry, target: Option<Entry>) -> Result<Renamed> {
        if self.from == self.to {
            let moved = source.clone();
            return Ok(Renamed { source, moved, replaced: None, unsynced_since_ms: None, exchanged: None });
        }
        match (&target, source.kind) {
            (Some(target), Kind::Directory) => check_removable_dir(self.tx, self.actor, target)?,
            (Some(target), _) if target.kind == Kind::Directory => return Err(CatalogError::IsDirectory),
            _ => {}
        }
        if source.kind == Kind::Directory {
            self.move_directory(&source, target.as_ref())?;
        } else {
            self.move_file(&source, target.as_ref())?;
        }
        self.touch_both()?;
        let moved = self.now_at(self.to)?;
        let unsynced_since_ms = unsynced_of(self.tx, self.actor.checkout, &moved)?.map(|one| one.since_ms);
        Ok(Renamed { source, moved, replaced: target, unsynced_since_ms, exchanged: None })
    }

    fn exchange(&self, source: Entry, target: Entry) -> Result<Renamed> {
        self.take_whole(&source)?;
        self.take_whole(&target)?;
        if same_family(source.kind, target.kind) {
            let bodies = (self.body(&source)?, self.body(&target)?);
            self.put_on(&target, bodies.0)?;
            self.put_on(&source, bodies.1)?;
        } else {
            self.rename_artifact(&source, self.to)?;
            self.rename_artifact(&target, self.from)?;
        }
        self.touch_both()?;
        let (moved, exchanged) = (self.now_at(self.to)?, self.now_at(self.from)?);
        let unsynced_since_ms = None;
        Ok(Renamed { source, moved, replaced: None, unsynced_since_ms, exchanged: Some(exchanged) })
    }

    fn body(&self, entry: &Entry) -> Result<Body> {
        Body::of(self.tx, self.actor, entry)
    }

    /// Takes the lease on a file, or on a directory with all that is below it.
    fn take_whole(&self, entry: &Entry) -> Result<()> {
        match (entry.head, entry.kind) {
            (None, _) => Ok(()),
            (Some(_), Kind::Directory) => leases::take_subtree(self.tx, self.actor, entry.artifact).map(drop),
            (Some(_), _) => leases::take(self.tx, self.actor, entry.artifact, None).map(drop),
        }
    }

    fn move_directory(&self, source: &Entry, target: Option<&Entry>) -> Result<()> {
        self.take_whole(source)?;
        if let Some(target) = target {
            remove(self.tx, self.actor, self.to, target)?;
        } else if self.classes.1 == Scratch::No {
            leases::check_place(self.tx, self.actor, self.to)?;
        }
        take_name(self.tx, self.actor, self.from, source)?;
        self.rename_artifact(source, self.to)?;
        let sql = "UPDATE draft SET ctime = ?3 WHERE checkout = ?1 AND artifact = ?2";
        let params = (self.actor.checkout.0, source.artifact.0, self.actor.now.wall.0);
        execute(self.tx, "move a directory", sql, params)?;
        if source.scratch != self.classes.1 {
            self.reclassify_below(source.artifact)?;
        }
        Ok(())
    }

    fn move_file(&self, source: &Entry, target: Option<&Entry>) -> Result<()> {
        self.take_whole(source)?;
        let mut body = self.body(source)?;
        body.attrs.ctime = self.actor.now.wall;
        match target {
            Some(target) => {
                self.take_whole(target)?;
                self.leave(source)?;
                let body = body.replacing(self.tx, self.actor.checkout, target)?;
                self.put_on(target, body)?;
                self.end_identity(source)
            }
            None if self.goes_along(source)? => {
                if self.classes.1 == Scratch::No {
                    leases::check_place(self.tx, self.actor, self.to)?;
                }
                self.leave(source)?;
                self.rename_artifact(source, self.to)?;
                self.carry_draft(source, body)
            }
            None => {
                self.leave(source)?;
                forget_draft(self.tx, self.actor.checkout, source.artifact)?;
                settle_on(self.tx, self.actor, self.to, body, self.classes.1, self.spare)?;
                if source.head.is_none() {
                    forget_artifact(self.tx, source.artifact, self.actor.now)
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Whether a file keeps its identity under a new name: not where the head tree has the name, and an artifact of
    /// the head tree not where the name is scratch, since then only its bytes went there as a backup.
    fn goes_along(&self, source: &Entry) -> Result<bool> {
        let head = view::head_at(self.tx, self.to)?.filter(|head| same_family(head.kind, source.kind));
        let home = head.as_ref().is_some_and(|head| head.artifact == source.artifact);
        Ok(home || head.is_none() && (source.head.is_none() || self.classes.1 == Scratch::No))
    }

    fn leave(&self, source: &Entry) -> Result<()> {
        take_name(self.tx, self.actor, self.from, source)
    }

    /// Gives an artifact another name in the checkout.
    fn rename_artifact(&self, entry: &Entry, to: &Place) -> Result<()> {
        name_artifact(self.tx, self.actor.checkout, to, entry.artifact)
    }

    /// After a rename that kept the identity: the draft's change time, its class, and the reservation of a new name.
    fn carry_draft(&self, source: &Entry, body: Body) -> Result<()> {
        let Layer::Draft { base, generation } = source.layer else { return Ok(()) };
        let scratch = if source.head.is_some() { Scratch::No } else { self.classes.1 };
        let reserves = source.scratch != Scratch::No && scratch == Scratch::No;
        let generation = if reserves {
            let reserved = leases::reserve(self.tx, self.actor, self.to, source.artifact, source.id)?;
            reserved.map(|lease| lease.generation)
        } else {
            generation
        };
        if scratch != Scratch::No {
            leases::drop_lease(self.tx, source.artifact, self.actor.now)?;
        }
        put_body(self.tx, self.actor.checkout, source.artifact, &Body { generation, ..body }, base, scratch)
    }

    /// Lets a body become the draft of an entry that keeps its name and identity.
    fn put_on(&self, entry: &Entry, body: Body) -> Result<()> {
        let (base, generation) = (entry.base(), entry.generation());
        let lease = leases::lease_of(self.tx, entry.artifact)?;
        let generation = lease.map(|lease| lease.generation).or(generation);
        let body = Body { generation, ..body };
        put_body(self.tx, self.actor.checkout, entry.artifact, &body, base, entry.scratch)
    }

    /// Ends what a body was before it went over another name.
    fn end_identity(&self, source: &Entry) -> Result<()> {
        forget_draft(self.tx, self.actor.checkout, source.artifact)?;
        if source.head.is_none() { forget_artifact(self.tx, source.artifact, self.actor.now) } else { Ok(()) }
    }

    fn reclassify_below(&self, dir: Seq) -> Result<()> {
        let sql = "WITH RECURSIVE below (artifact) AS (
              SELECT ?1 UNION SELECT n.artifact FROM name n JOIN below ON n.parent = below.artifact
                WHERE n.checkout = ?2 AND n.artifact IS NOT NULL)
            UPDATE draft SET scratch = ?3 WHERE checkout = ?2 AND artifact IN below";
        let params = (dir.0, self.actor.checkout.0, scratch_code(self.classes.1));
        execute(self.tx, "reclassify a directory", sql, params).map(drop)
    }

    fn touch_both(&self) -> Result<()> {
        touch_dir(self.tx, self.actor.checkout, self.from.parent, self.actor)?;
        touch_dir(self.tx, self.actor.checkout, self.to.parent, self.actor)
    }

    fn now_at(&self, place: &Place) -> Result<Entry> {
        view::lookup(self.tx, self.actor.checkout, place)?.ok_or(CatalogError::NotFound)
    }
}
