//! The content and attributes of drafts.

use rusqlite::Transaction;

use super::leases;
use super::rows::{ContentColumns, content_columns, ino_code, kind_code, scratch_code, size_code};
use super::unsynced::{Solid, Unsynced, unsynced_of};
use super::view::{self, execute};
use super::{Actor, Catalog, CatalogError, Durability, Result};
use crate::model::{
    Attrs, CheckoutId, Content, Entry, Generation, Ino, Kind, Layer, Lease, Protection, Scratch, Seq,
    Timestamp, VersionNumber, protection,
};

/// The save of a file: its whole new content.
#[derive(Debug, Clone)]
pub struct Save {
    /// The artifact.
    pub artifact: Seq,
    /// The inode number of the draft.
    pub ino: Ino,
    /// Where the bytes are.
    pub content: Content,
    /// How many.
    pub size: u64,
    /// Mode, owner and times.
    pub attrs: Attrs,
    /// The version that it was made on, if it is the first save of its draft.
    pub base: Option<VersionNumber>,
    /// The generation of the lease under which the bytes were written; none for scratch.
    pub generation: Option<Generation>,
}

/// What a save came to.
#[derive(Debug, Clone)]
pub struct Saved {
    /// The content that the save replaced.
    pub before: Content,
    /// Whether that may come back after a power cut; not if its file was never synced.
    pub before_may_return: bool,
    /// Since when the draft has had no content that is known to be on the disk, by the boot's clock; none if it has one.
    pub unsynced_since_ms: Option<i64>,
    /// The lease, if it was renewed, or had to be taken again because it had lapsed.
    pub lease: Option<Lease>,
}

/// Attributes that are set without a save.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AttrChange {
    /// The permission bits.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// Last read.
    pub atime: Option<Timestamp>,
    /// Last change of the content.
    pub mtime: Option<Timestamp>,
}

impl Catalog {
    /// Makes bytes the draft of an artifact, if the lease under which they were written still protects them.
    ///
    /// With [`Durability::Full`] the caller has synced them. Without, what the draft was before comes back if a power cut
    /// keeps the row and not the bytes ([`Catalog::fall_back`]).
    ///
    /// Fails with [`CatalogError::LeaseLost`] where somebody else took the lease, and with [`CatalogError::Stale`]
    /// where the head has moved past the draft's base.
    pub fn save(&self, actor: &Actor, save: &Save, durability: Durability) -> Result<Saved> {
        self.write_draft(actor, durability, |tx| {
            let entry = view::entry_of(tx, actor.checkout, save.artifact)?.ok_or(CatalogError::NotFound)?;
            let base = base_of(&entry, save.base);
            let lease = if entry.scratch == Scratch::No { fence(tx, actor, save, base)? } else { None };
            let generation = lease.as_ref().map(|lease| lease.generation).or(save.generation);
            let codes = [
                ino_code(save.ino),
                kind_code(entry.kind),
                size_code(save.size),
                scratch_code(entry.scratch),
            ];
            let replaced = unsynced_of(tx, actor.checkout, &entry)?;
            let before_may_return = replaced.is_none();
            let unsynced = match (&save.content, durability) {
                (Content::Staged(_), Durability::Grouped) => {
                    Some(Unsynced::of(tx, actor, self.life(actor.now), &entry, replaced)?)
                }
                _ => None,
            };
            let columns = (content_columns(&save.content), unsynced.as_ref());
            let key = (actor.checkout, save.artifact);
            insert_draft(tx, key, codes, &save.attrs, columns, (base, generation))?;
            let unsynced_since_ms = unsynced.map(|unsynced| unsynced.since_ms);
            Ok(Saved { before: entry.content, before_may_return, unsynced_since_ms, lease })
        })
    }

    /// Notes the sizes that files of `scratch/` have, where a crash left the rows behind, with their times.
    pub fn note_direct_sizes(
        &self,
        checkout: CheckoutId,
        files: &[(Seq, String, u64, Timestamp)],
    ) -> Result<()> {
        let sql = "UPDATE draft SET size = ?4, mtime = ?5
            WHERE checkout = ?1 AND artifact = ?2 AND direct = ?3 AND size <> ?4";
        self.write(Durability::Grouped, |tx| {
            for (artifact, file, size, mtime) in files {
                let params = (checkout.0, artifact.0, file, size_code(*size), mtime.0);
                execute(tx, "note a size", sql, params)?;
            }
            Ok(())
        })
    }

    /// Sets attributes; on an artifact of the head tree that takes the lease and makes a draft.
    pub fn set_attrs(&self, actor: &Actor, artifact: Seq, change: AttrChange) -> Result<Entry> {
        self.write_draft(actor, Durability::Grouped, |tx| {
            let entry = view::entry_of(tx, actor.checkout, artifact)?.ok_or(CatalogError::NotFound)?;
            if entry.kind == Kind::Directory && change.is_times() {
                return set_dir_time(tx, actor, &entry, change);
            }
            let base = base_of(&entry, entry.head);
            let generation = attr_generation(tx, actor, &entry, base)?;
            let attrs = apply(&actor.attrs_of(&entry), change, actor.now.wall);
            put_attrs(tx, actor, &entry, attrs, (base, generation))?;
            view::entry_of(tx, actor.checkout, artifact)?.ok_or(CatalogError::NotFound)
        })
    }
}

fn base_of(entry: &Entry, fresh: Option<VersionNumber>) -> Option<VersionNumber> {
    match entry.layer {
        Layer::Draft { base, .. } => base,
        Layer::Head => fresh.or(entry.head),
    }
}

/// Checks that a save is still protected, and renews the lease if that is due; takes a lapsed one again if nobody else
/// did and the head stayed.
fn fence(
    tx: &Transaction<'_>,
    actor: &Actor,
    save: &Save,
    base: Option<VersionNumber>,
) -> Result<Option<Lease>> {
    let lease = leases::lease_of(tx, save.artifact)?;
    match (protection(lease.as_ref(), &actor.holder, save.generation, actor.now), lease) {
        (Protection::Fenced, lease) => {
            Err(CatalogError::LeaseLost { artifact: save.artifact, lease: lease.map(Box::new) })
        }
        (Protection::Holds, Some(lease)) => {
            let head = view::head_of(tx, save.artifact)?.and_then(|head| head.head);
            match (base, head) {
                (Some(base), Some(head)) if base != head => {
                    Err(CatalogError::Stale { artifact: save.artifact, base, head })
                }
                _ => leases::renew(tx, actor, save.artifact, lease),
            }
        }
        _ => match leases::take_named(tx, actor, save.artifact, base) {
            Err(CatalogError::Held { artifact, lease }) => Err(CatalogError::LeaseLost { artifact, lease }),
            Err(CatalogError::Quarantined { artifact, lease }) => {
                Err(CatalogError::LeaseLost { artifact, lease: Some(lease) })
            }
            other => other,
        },
    }
}

impl AttrChange {
    fn is_times(&self) -> bool {
        self.mode.is_none() && self.uid.is_none() && self.gid.is_none()
    }
}

/// The times of a directory are the checkout's own: they need no lease, and are no draft.
fn set_dir_time(tx: &Transaction<'_>, actor: &Actor, entry: &Entry, change: AttrChange) -> Result<Entry> {
    if let Some(mtime) = change.mtime {
        let sql = "INSERT OR REPLACE INTO dir_time VALUES (?1, ?2, ?3)";
        execute(tx, "set a directory's time", sql, (actor.checkout.0, entry.artifact.0, mtime.0))?;
    }
    Ok(Entry { attrs: apply(&actor.attrs_of(entry), change, actor.now.wall), ..entry.clone() })
}

/// The lease under which attributes change. One on a directory would stand for all below it, so its mode changes
/// without, as long as nobody else holds it.
fn attr_generation(
    tx: &Transaction<'_>,
    actor: &Actor,
    entry: &Entry,
    base: Option<VersionNumber>,
) -> Result<Option<Generation>> {
    let artifact = entry.artifact;
    if entry.head.is_none() || entry.scratch != Scratch::No {
        return Ok(entry.generation());
    }
    if entry.kind != Kind::Directory {
        return Ok(leases::take(tx, actor, artifact, base)?.map(|lease| lease.generation));
    }
    match leases::refusing_lease(tx, actor, artifact)? {
        Some(lease) => Err(CatalogError::Held { artifact, lease: Some(Box::new(lease)) }),
        None => Ok(entry.generation()),
    }
}

fn apply(attrs: &Attrs, change: AttrChange, now: Timestamp) -> Attrs {
    Attrs {
        mode: change.mode.unwrap_or(attrs.mode) & 0o7777,
        uid: change.uid.unwrap_or(attrs.uid),
        gid: change.gid.unwrap_or(attrs.gid),
        atime: change.atime.unwrap_or(attrs.atime),
        mtime: change.mtime.unwrap_or(attrs.mtime),
        ctime: now,
    }
}

fn put_attrs(
    tx: &Transaction<'_>,
    actor: &Actor,
    entry: &Entry,
    attrs: Attrs,
    fence: (Option<VersionNumber>, Option<Generation>),
) -> Result<()> {
    let codes =
        [ino_code(entry.ino), kind_code(entry.kind), size_code(entry.size), scratch_code(entry.scratch)];
    let key = (actor.checkout, entry.artifact);
    let unsynced = unsynced_of(tx, actor.checkout, entry)?;
    insert_draft(tx, key, codes, &attrs, (content_columns(&entry.content), unsynced.as_ref()), fence)
}

/// Forgets what a checkout has saved of an artifact.
pub(super) fn forget_draft(tx: &Transaction<'_>, checkout: CheckoutId, artifact: Seq) -> Result<()> {
    let sql = "DELETE FROM draft WHERE checkout = ?1 AND artifact = ?2";
    execute(tx, "forget a draft", sql, (checkout.0, artifact.0)).map(drop)
}

/// Writes a draft's row. `codes`: inode, kind, size and scratch class as they are stored.
pub(super) fn insert_draft(
    tx: &Transaction<'_>,
    (checkout, artifact): (CheckoutId, Seq),
    [ino, kind, size, scratch]: [i64; 4],
    attrs: &Attrs,
    ((digest, staged, direct, target), unsynced): (ContentColumns<'_>, Option<&Unsynced>),
    (base, generation): (Option<VersionNumber>, Option<Generation>),
) -> Result<()> {
    let sql = "INSERT OR REPLACE INTO draft (checkout, artifact, ino, kind, size, scratch, mode, uid, gid,
          atime, mtime, ctime, digest, staged, direct, target, base, generation,
          unsynced, unsynced_since, old_digest, old_staged, old_target, old_size, old_mtime)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
          ?19, ?20, ?21, ?22, ?23, ?24, ?25)";
    let old = unsynced.map(|unsynced| &unsynced.before);
    let (old_digest, old_staged, _, old_target) = old.map(Solid::columns).unwrap_or_default();
    let params = rusqlite::params![
        checkout.0,
        artifact.0,
        ino,
        kind,
        size,
        scratch,
        attrs.mode,
        attrs.uid,
        attrs.gid,
        attrs.atime.0,
        attrs.mtime.0,
        attrs.ctime.0,
        digest,
        staged,
        direct,
        target,
        base.map(|b| b.0),
        generation.map(|g| g.0),
        unsynced.map(|unsynced| unsynced.life),
        unsynced.map(|unsynced| unsynced.since_ms),
        old_digest,
        old_staged,
        old_target,
        old.map(|old| size_code(old.size)),
        old.map(|old| old.mtime.0),
    ];
    execute(tx, "write a draft", sql, params).map(drop)
}
