//! Revert: a checkout gives up what it changed, and shows the head tree again.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::Transaction;

use super::deltas::{self, Delta, any_path_of, is_selected};
use super::events::{self, EventKind, NewEvent};
use super::head;
use super::leases;
use super::names::{self, NewEntry};
use super::saves;
use super::view::{self, execute, many};
use super::{Actor, Catalog, CatalogError, Durability, Place, Result};
use crate::model::{ArtifactPath, Content, Entry, Kind, ResourceKey, Seq, VersionInfo};

/// One artifact that a revert gave back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevertedItem {
    /// The artifact.
    pub artifact: Seq,
    /// Its path before the revert.
    pub path: ArtifactPath,
    /// The version that its name shows now; none where it was new, or is deleted in the head tree.
    pub shown: Option<VersionInfo>,
}

impl Catalog {
    /// What a revert of some paths would give up, scratch in new directories included, with the content of each.
    pub fn revertible(&self, actor: &Actor, paths: &[ArtifactPath]) -> Result<Vec<(Seq, Content)>> {
        self.read(|conn| {
            let chosen = choose(conn, actor, paths)?;
            Ok(chosen
                .into_iter()
                .map(|delta| (delta.artifact, delta.draft.map_or(Content::None, |draft| draft.content)))
                .collect())
        })
    }

    /// Drops what a checkout changed at and below some paths (none: everything), and releases the leases.
    ///
    /// What depends on it goes along: files in a new directory, and whatever stands on a name that comes back.
    pub fn revert(&self, actor: &Actor, paths: &[ArtifactPath]) -> Result<Vec<RevertedItem>> {
        self.write(Durability::Full, |tx| {
            let chosen = choose(tx, actor, paths)?;
            let items = revert_all(tx, actor, &chosen)?;
            settle(tx, actor, &chosen, paths)?;
            Ok(items)
        })
    }

    /// Gives the draft of an artifact to a new one with another name, and the artifact back to the head tree.
    ///
    /// The content goes over as it is: the new artifact's row names the same file or blob.
    pub fn save_as(&self, actor: &Actor, artifact: Seq, to: &Place, new: &NewEntry) -> Result<Entry> {
        let seq = Seq(self.next_number()?);
        self.write(Durability::Full, |tx| {
            let draft = view::draft_of(tx, actor.checkout, artifact)?.ok_or(CatalogError::NotFound)?;
            let new = NewEntry {
                kind: draft.kind,
                attrs: draft.attrs,
                content: draft.content,
                size: draft.size,
                ..new.clone()
            };
            let entry = names::create(tx, actor, to, &new, seq)?;
            let delta = deltas::delta_of(tx, actor.checkout, artifact)?;
            revert_all(tx, actor, delta.as_slice())?;
            settle(tx, actor, delta.as_slice(), &[any_path_of(tx, actor.checkout, artifact)?])?;
            Ok(entry)
        })
    }
}

/// What went wrong with what is given up is over, and so it is with what is selected and was not changed.
fn settle(tx: &Transaction<'_>, actor: &Actor, done: &[Delta], paths: &[ArtifactPath]) -> Result<()> {
    let done = done.iter().map(|delta| delta.artifact).collect();
    events::settle_problems(tx, actor, |problem| {
        deltas::is_settled(tx, actor.checkout, problem, (&done, paths))
    })
}

/// The selected deltas, with what has to go for them.
fn choose(conn: &rusqlite::Connection, actor: &Actor, paths: &[ArtifactPath]) -> Result<Vec<Delta>> {
    let checkout = actor.checkout;
    let mut all: BTreeMap<Seq, Delta> =
        deltas::with_scratch(conn, checkout)?.into_iter().map(|d| (d.artifact, d)).collect();
    let mut queue = Vec::new();
    for delta in all.values().filter(|delta| !delta.is_scratch()) {
        if is_selected(conn, checkout, delta, paths)? {
            queue.push(delta.artifact);
        }
    }
    let mut chosen: BTreeSet<Seq> = queue.iter().copied().collect();
    while let Some(artifact) = queue.pop() {
        let needs =
            all.get(&artifact).map(|delta| needs(conn, actor, delta)).transpose()?.unwrap_or_default();
        queue.extend(needs.into_iter().filter(|need| all.contains_key(need) && chosen.insert(*need)));
    }
    all.retain(|artifact, _| chosen.contains(artifact));
    Ok(all.into_values().collect())
}

/// What else has to go back when an artifact does.
fn needs(conn: &rusqlite::Connection, actor: &Actor, delta: &Delta) -> Result<Vec<Seq>> {
    let mut needs = Vec::new();
    if let Some(home) = delta.home().filter(|_| delta.is_moved() || delta.is_deleted()) {
        needs.push(home.parent);
        let standing = view::lookup(conn, actor.checkout, &home)?.map(|entry| entry.artifact);
        needs.extend(standing.filter(|standing| *standing != delta.artifact));
    }
    let directory = delta.draft.as_ref().is_some_and(|draft| draft.kind == Kind::Directory);
    if delta.is_added() && directory {
        let sql = "SELECT artifact FROM name WHERE checkout = ?1 AND parent = ?2 AND artifact IS NOT NULL";
        let params = (actor.checkout.0, delta.artifact.0);
        needs.extend(many(conn, "list a directory", sql, params, |row| row.get(0).map(Seq))?);
    }
    Ok(needs)
}

fn revert_all(tx: &Transaction<'_>, actor: &Actor, chosen: &[Delta]) -> Result<Vec<RevertedItem>> {
    let mut items = Vec::with_capacity(chosen.len());
    for delta in chosen {
        let path = any_path_of(tx, actor.checkout, delta.artifact)?;
        let shown = delta.head.as_ref().map(head::shown_version);
        items.push(RevertedItem { artifact: delta.artifact, path, shown });
    }
    for delta in chosen {
        saves::forget_draft(tx, actor.checkout, delta.artifact)?;
        head::unname(tx, delta.artifact, Some(actor.checkout))?;
    }
    for delta in chosen {
        give_back(tx, actor, delta)?;
    }
    for delta in chosen.iter().filter(|delta| delta.head.is_some()) {
        if view::path_of(tx, actor.checkout, delta.artifact)?.is_none() {
            return Err(CatalogError::Cycle { artifact: delta.artifact });
        }
    }
    for item in &items {
        let detail = item.path.to_string();
        let (at, kind, holder) = (actor.now.wall, EventKind::Reverted, Some(&actor.holder));
        let event = NewEvent { at, kind, artifact: Some(item.artifact), holder, detail: &detail };
        events::append(tx, &event)?;
    }
    Ok(items)
}

/// Shows the head's name of an artifact again, and releases the lease.
fn give_back(tx: &Transaction<'_>, actor: &Actor, delta: &Delta) -> Result<()> {
    let (checkout, artifact) = (actor.checkout, delta.artifact);
    if let Some(home) = delta.home() {
        let sql = "DELETE FROM name WHERE parent = ?1 AND name = ?2 AND checkout = ?3 AND artifact IS NULL";
        execute(tx, "restore a name", sql, (home.parent.0, home.name.as_bytes(), checkout.0))?;
        forget_dir_time(tx, actor, home.parent)?;
    }
    if let Some(place) = &delta.place {
        forget_dir_time(tx, actor, place.parent)?;
    }
    let key = ResourceKey::Artifact(view::id_of(tx, artifact)?);
    leases::release(tx, &key, &actor.holder, actor.now)?;
    if delta.head.is_none() { names::forget_artifact(tx, artifact, actor.now) } else { Ok(()) }
}

/// Forgets the time of a directory in which the checkout has no names of its own any more.
pub(super) fn forget_dir_time(tx: &Transaction<'_>, actor: &Actor, dir: Seq) -> Result<()> {
    let sql = "DELETE FROM dir_time WHERE checkout = ?1 AND dir = ?2 AND NOT EXISTS
        (SELECT 1 FROM name WHERE checkout = ?1 AND parent = ?2)";
    execute(tx, "forget a directory's time", sql, (actor.checkout.0, dir.0)).map(drop)
}
