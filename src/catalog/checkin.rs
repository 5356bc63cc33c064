//! Check-in: one transaction that turns drafts into a change of the head tree, or refuses and changes nothing.
//!
//! What a selection depends on goes along: a new directory above a new file, whatever stands on a name that the
//! selection needs, and what the checkout removed from a directory that it deletes. What makes it safe is compared in
//! the same transaction: that nobody else holds a lease on any of it, and that every draft was made on the head
//! version, unless the author says onto which other one it is to go.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::Transaction;

use super::deltas::{self, Delta, any_path_of, is_selected};
use super::events::{self, EventKind, NewEvent};
use super::head::{self, ChangeHead};
use super::leases;
use super::revert::forget_dir_time;
use super::rows::DraftRow;
use super::view::{self, execute, many, one};
use super::{Actor, Catalog, CatalogError, Durability, Place, Result};
use crate::model::{ArtifactPath, Attrs, ChangeNumber, Content, Ino, Kind, Seq, VersionInfo, VersionNumber};

/// What is to be checked in.
#[derive(Debug, Clone, Default)]
pub struct CheckIn {
    /// Paths of the checkout or of the head tree, with all that lies below; none: everything.
    pub paths: Vec<ArtifactPath>,
    /// Why, in the author's words.
    pub message: String,
    /// Whether the leases stay.
    pub keep: bool,
    /// The head version that the author knowingly replaces by a draft of another base.
    pub onto: Option<VersionNumber>,
    /// Inode numbers of drafts that applications still have open for writing: their bytes will go on changing, so the
    /// versions get numbers of their own.
    pub busy: Vec<Ino>,
}

/// What a check-in did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckedIn {
    /// The new change; none where nothing of the selection differed from the head tree.
    pub change: Option<ChangeNumber>,
    /// What it holds, by path.
    pub items: Vec<CheckedItem>,
    /// What is no draft any more, with the head version that its name shows now; none where it is deleted.
    pub settled: Vec<(Seq, Option<VersionInfo>)>,
}

/// One artifact of a new change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedItem {
    /// The artifact.
    pub artifact: Seq,
    /// Its path before; none where it is new.
    pub before: Option<ArtifactPath>,
    /// Its path since; none where it is deleted.
    pub after: Option<ArtifactPath>,
    /// Its new version; none for deletions and plain renames.
    pub version: Option<VersionNumber>,
}

impl Catalog {
    /// Makes drafts of a checkout one new change, and releases their leases unless told to keep them.
    ///
    /// Every selected draft must be in the store: [`CatalogError::Unpublished`] names one that isn't. Refuses with
    /// `Held`, `Stale`, `Incomplete` or `Cycle`, and then nothing has changed.
    pub fn check_in(&self, actor: &Actor, request: &CheckIn) -> Result<CheckedIn> {
        self.write(Durability::Full, |tx| {
            let checking = CheckingIn { tx, actor, request };
            let chosen = checking.choose()?;
            let (same, changed): (Vec<Delta>, Vec<Delta>) = chosen.into_iter().partition(Delta::is_nothing);
            let mut overwrites = Vec::new();
            for delta in &changed {
                if checking.check(delta)? {
                    overwrites.push(delta);
                }
            }
            let mut report = checking.apply(&changed)?;
            checking.note(&report, &overwrites)?;
            report.settled.extend(checking.drop_unchanged(&same)?);
            checking.release_leases(same.iter().chain(&changed))?;
            checking.settle(same.iter().chain(&changed))?;
            Ok(report)
        })
    }
}

/// One check-in, with what its steps share.
struct CheckingIn<'a> {
    tx: &'a Transaction<'a>,
    actor: &'a Actor,
    request: &'a CheckIn,
}

impl CheckingIn<'_> {
    /// What the request selects, with all that it depends on.
    fn choose(&self) -> Result<Vec<Delta>> {
        let mut all: BTreeMap<Seq, Delta> =
            deltas::deltas(self.tx, self.actor.checkout)?.into_iter().map(|d| (d.artifact, d)).collect();
        let mut queue = Vec::new();
        for delta in all.values() {
            if is_selected(self.tx, self.actor.checkout, delta, &self.request.paths)? {
                queue.push(delta.artifact);
            }
        }
        let mut chosen: BTreeSet<Seq> = queue.iter().copied().collect();
        while let Some(artifact) = queue.pop() {
            let needs = all.get(&artifact).map(|delta| self.needs(delta)).transpose()?.unwrap_or_default();
            queue.extend(needs.into_iter().filter(|need| all.contains_key(need) && chosen.insert(*need)));
        }
        all.retain(|artifact, _| chosen.contains(artifact));
        Ok(all.into_values().collect())
    }

    /// What else has to change for a change to fit into the head tree.
    fn needs(&self, delta: &Delta) -> Result<Vec<Seq>> {
        let mut needs = Vec::new();
        if let Some(place) = delta.place.as_ref().filter(|_| delta.is_added() || delta.is_moved()) {
            needs.push(place.parent);
            let occupant = view::head_at(self.tx, place)?.map(|head| head.artifact);
            needs.extend(occupant.filter(|occupant| *occupant != delta.artifact));
        }
        if delta.is_deleted() && delta.head.as_ref().is_some_and(|head| head.kind == Kind::Directory) {
            needs.extend(self.head_children(delta.artifact)?.into_iter().map(|(child, _)| child));
        }
        Ok(needs)
    }

    fn head_children(&self, dir: Seq) -> Result<Vec<(Seq, Place)>> {
        let sql = "SELECT parent, name, artifact FROM head WHERE parent = ?1";
        many(self.tx, "list the head tree", sql, [dir.0], |row| {
            Ok((Seq(row.get(2)?), view::place_at_row(row)?))
        })
    }

    /// Refuses what may not be checked in; tells whether it replaces a version that it was not made on.
    fn check(&self, delta: &Delta) -> Result<bool> {
        let artifact = delta.artifact;
        let unpublished = |draft: &DraftRow| matches!(draft.content, Content::Staged(_) | Content::Direct(_));
        if delta.draft.as_ref().is_some_and(unpublished) {
            return Err(CatalogError::Unpublished { artifact });
        }
        if let Some(lease) = leases::refusing_lease(self.tx, self.actor, artifact)? {
            return Err(CatalogError::Held { artifact, lease: Some(Box::new(lease)) });
        }
        if let Some(place) = delta.place.as_ref().filter(|_| delta.is_added() || delta.is_moved()) {
            leases::check_place(self.tx, self.actor, place)?;
        }
        self.check_base(delta)
    }

    fn check_base(&self, delta: &Delta) -> Result<bool> {
        let artifact = delta.artifact;
        let stale = |head| {
            let base = delta.base.unwrap_or(VersionNumber(0));
            Err(CatalogError::Stale { artifact, base, head })
        };
        let Some(head) = delta.head.as_ref().and_then(|head| head.head) else {
            // An added artifact has neither base nor head; with a base, or without a name, it was deleted meanwhile.
            let added = delta.base.is_none() && delta.place.is_some();
            return if added { Ok(false) } else { stale(VersionNumber(0)) };
        };
        // A move or deletion says nothing about a place to which another check-in moved the artifact.
        let about_this_place = delta.hides_home || !(delta.is_moved() || delta.is_deleted());
        match delta.base {
            Some(base) if base == head && about_this_place => Ok(false),
            _ if self.request.onto == Some(head) => Ok(true),
            _ => stale(head),
        }
    }

    /// Writes the change; the places that it takes are cleared first, since two artifacts may swap theirs.
    fn apply(&self, changed: &[Delta]) -> Result<CheckedIn> {
        if changed.is_empty() {
            return Ok(CheckedIn::default());
        }
        let paths_before = self.head_paths(changed)?;
        let (at, message) = (self.actor.now.wall, self.request.message.as_str());
        let change = head::begin_change(self.tx, &ChangeHead { at, author: &self.actor.holder, message })?;
        for delta in changed {
            head::take_from_head(self.tx, delta.artifact)?;
        }
        let mut report = CheckedIn { change: Some(change), ..CheckedIn::default() };
        for delta in changed {
            report.settled.push((delta.artifact, self.apply_one(change, delta)?));
        }
        for delta in changed {
            self.clean_up(delta)?;
        }
        self.check_tree(changed, &paths_before)?;
        self.set_dir_times(changed)?;
        report.items = self.items(changed, paths_before, change)?;
        Ok(report)
    }

    fn head_paths(&self, changed: &[Delta]) -> Result<BTreeMap<Seq, ArtifactPath>> {
        let mut paths = BTreeMap::new();
        for delta in changed.iter().filter(|delta| delta.head.is_some()) {
            if let Some(path) = view::head_path_of(self.tx, delta.artifact)? {
                paths.insert(delta.artifact, path);
            }
        }
        Ok(paths)
    }

    fn apply_one(&self, change: ChangeNumber, delta: &Delta) -> Result<Option<VersionInfo>> {
        let shown = self.shown_after(delta)?;
        let number = match &shown {
            Some(version) if delta.is_modified() => {
                head::insert_version(self.tx, change, version, delta.base, &self.actor.holder)?;
                Some(version.number)
            }
            _ => None,
        };
        if let (Some(place), Some(version)) = (&delta.place, &shown) {
            let id = view::id_of(self.tx, delta.artifact)?;
            head::put_in_head(self.tx, id, place, version)?;
        }
        let home = delta.home();
        head::insert_item(self.tx, change, delta.artifact, number, home.as_ref(), delta.place.as_ref())?;
        Ok(shown)
    }

    /// The version that the artifact's name shows after the change.
    fn shown_after(&self, delta: &Delta) -> Result<Option<VersionInfo>> {
        match (&delta.place, &delta.draft, &delta.head) {
            (None, ..) => Ok(None),
            (Some(_), Some(draft), _) if delta.is_modified() => {
                let number = head::next_version(self.tx, delta.artifact)?;
                let ino =
                    if self.request.busy.contains(&draft.ino) { fresh_ino(self.tx)? } else { draft.ino };
                Ok(Some(VersionInfo { ino, ..version_of(delta.artifact, number, draft) }))
            }
            (Some(_), _, head) => Ok(head.as_ref().map(head::shown_version)),
        }
    }

    /// Forgets what the checkout said of an artifact, and what others said of the place that it left.
    fn clean_up(&self, delta: &Delta) -> Result<()> {
        super::saves::forget_draft(self.tx, self.actor.checkout, delta.artifact)?;
        let Some(home) = delta.home() else {
            return head::unname(self.tx, delta.artifact, Some(self.actor.checkout));
        };
        if delta.is_deleted() {
            head::vacate(self.tx, &home)?;
            head::orphan(self.tx, delta.artifact, &home)?;
            leases::drop_lease(self.tx, delta.artifact)?;
        } else if delta.is_moved() {
            head::vacate(self.tx, &home)?;
            // It is there in every checkout now, whatever name one gave it before.
            head::unname(self.tx, delta.artifact, None)?;
        }
        Ok(())
    }

    /// Refuses a change after which the head tree would be no tree.
    fn check_tree(&self, changed: &[Delta], paths_before: &BTreeMap<Seq, ArtifactPath>) -> Result<()> {
        for delta in changed {
            match &delta.place {
                None => self.check_left_empty(delta, paths_before)?,
                Some(place) if delta.is_added() || delta.is_moved() => self.check_parent(delta, place)?,
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn check_left_empty(&self, delta: &Delta, paths_before: &BTreeMap<Seq, ArtifactPath>) -> Result<()> {
        match self.head_children(delta.artifact)?.first() {
            Some((_, place)) => {
                let dir = paths_before.get(&delta.artifact).cloned().unwrap_or_default();
                let left = dir.join(place.name.clone());
                Err(CatalogError::Incomplete(format!(
                    "{dir} is removed, but {left} is still there; remove that as well, or `leasehold revert {dir}`"
                )))
            }
            None => Ok(()),
        }
    }

    /// Checks that the artifact's directory is in the head tree, and that a moved one does not lie within itself.
    fn check_parent(&self, delta: &Delta, place: &Place) -> Result<()> {
        let parent = view::head_of(self.tx, place.parent)?;
        if parent.is_none_or(|parent| parent.kind != Kind::Directory) {
            let dir = any_path_of(self.tx, self.actor.checkout, place.parent)?;
            return Err(CatalogError::Incomplete(format!(
                "the directory {dir} is not in the head tree; check that in as well, or use `leasehold save-as` if it is gone"
            )));
        }
        match view::head_path_of(self.tx, delta.artifact)? {
            Some(_) => Ok(()),
            None => Err(CatalogError::Cycle { artifact: delta.artifact }),
        }
    }

    /// Gives directories whose names changed the time that the checkout showed for them.
    fn set_dir_times(&self, changed: &[Delta]) -> Result<()> {
        let mut dirs = BTreeSet::new();
        for delta in changed.iter().filter(|delta| delta.place != delta.home()) {
            dirs.extend(delta.place.iter().map(|place| place.parent));
            dirs.extend(delta.home().map(|place| place.parent));
        }
        for dir in dirs {
            let shown = view::dir_time(self.tx, self.actor.checkout, dir)?;
            head::set_dir_time(self.tx, dir, shown.unwrap_or(self.actor.now.wall))?;
            forget_dir_time(self.tx, self.actor, dir)?;
        }
        Ok(())
    }

    fn items(
        &self,
        changed: &[Delta],
        mut before: BTreeMap<Seq, ArtifactPath>,
        change: ChangeNumber,
    ) -> Result<Vec<CheckedItem>> {
        let sql = "SELECT version FROM change_item WHERE change = ?1 AND artifact = ?2";
        let mut items = Vec::with_capacity(changed.len());
        for delta in changed {
            let artifact = delta.artifact;
            let version = one(self.tx, "read a change", sql, (change.0, artifact.0), |row| row.get(0))?;
            let after = match delta.place {
                Some(_) => view::head_path_of(self.tx, artifact)?,
                None => None,
            };
            let version = version.flatten().map(VersionNumber);
            items.push(CheckedItem { artifact, before: before.remove(&artifact), after, version });
        }
        items.sort_by(|a, b| {
            a.after.as_ref().or(a.before.as_ref()).cmp(&b.after.as_ref().or(b.before.as_ref()))
        });
        Ok(items)
    }

    fn note(&self, report: &CheckedIn, overwrites: &[&Delta]) -> Result<()> {
        let Some(change) = report.change else { return Ok(()) };
        let detail = format!("change {change}, {} items", report.items.len());
        self.event(EventKind::CheckedIn, None, &detail)?;
        for delta in overwrites {
            let base = delta.base.map_or_else(|| "none".to_owned(), |base| base.to_string());
            let detail = format!("change {change} replaces the newest version; made on version {base}");
            self.event(EventKind::OverwroteUnseen, Some(delta.artifact), &detail)?;
        }
        Ok(())
    }

    fn event(&self, kind: EventKind, artifact: Option<Seq>, detail: &str) -> Result<()> {
        let holder = Some(&self.actor.holder);
        events::append(self.tx, &NewEvent { at: self.actor.now.wall, kind, artifact, holder, detail })
    }

    /// Drops drafts that are what the head tree has anyway.
    fn drop_unchanged(&self, same: &[Delta]) -> Result<Vec<(Seq, Option<VersionInfo>)>> {
        let mut settled = Vec::with_capacity(same.len());
        for delta in same {
            super::saves::forget_draft(self.tx, self.actor.checkout, delta.artifact)?;
            settled.push((delta.artifact, delta.head.as_ref().map(head::shown_version)));
        }
        Ok(settled)
    }

    /// Releases the leases of what was checked in, and of what was leased and not changed; not those of open writers.
    fn release_leases<'d>(&self, done: impl Iterator<Item = &'d Delta>) -> Result<()> {
        if self.request.keep {
            return Ok(());
        }
        for delta in done {
            self.release(delta.artifact)?;
        }
        let sql = "SELECT artifact FROM lease WHERE holder = ?1 AND artifact IS NOT NULL AND NOT EXISTS
            (SELECT 1 FROM draft d WHERE d.artifact = lease.artifact AND d.checkout = ?2)";
        let params = (self.actor.holder.as_str(), self.actor.checkout.0);
        for artifact in many(self.tx, "list leases", sql, params, |row| row.get(0).map(Seq))? {
            if self.is_untouched(artifact)? {
                self.release(artifact)?;
            }
        }
        Ok(())
    }

    /// What went wrong with the selected artifacts is over, whether they were changed or not.
    fn settle<'d>(&self, done: impl Iterator<Item = &'d Delta>) -> Result<()> {
        let done = done.map(|delta| delta.artifact).collect();
        events::settle_problems(self.tx, self.actor, |problem| {
            let over = (&done, self.request.paths.as_slice());
            deltas::is_settled(self.tx, self.actor.checkout, problem, over)
        })
    }

    /// Whether a leased artifact without a draft is selected, and where the head tree has it.
    fn is_untouched(&self, artifact: Seq) -> Result<bool> {
        let Some(path) = view::head_path_of(self.tx, artifact)? else { return Ok(false) };
        let home = view::head_of(self.tx, artifact)?.as_ref().map(deltas::home_of);
        let in_place =
            artifact == Seq::ROOT || view::place_of(self.tx, self.actor.checkout, artifact)? == home;
        let paths = &self.request.paths;
        Ok(in_place && (paths.is_empty() || paths.iter().any(|wanted| path.is_within(wanted))))
    }

    fn release(&self, artifact: Seq) -> Result<()> {
        let sql = "DELETE FROM lease WHERE artifact = ?1 AND holder = ?2 AND NOT EXISTS
            (SELECT 1 FROM writer w WHERE w.artifact = lease.artifact AND w.checkout = ?3)";
        let params = (artifact.0, self.actor.holder.as_str(), self.actor.checkout.0);
        execute(self.tx, "release a lease", sql, params).map(drop)
    }
}

/// A number that no inode and no artifact ever had.
fn fresh_ino(tx: &Transaction<'_>) -> Result<Ino> {
    let sql = "UPDATE meta SET value = value + 1 WHERE key = 'next_number' RETURNING value - 1";
    let number: Option<i64> = one(tx, "take a number", sql, [], |row| row.get(0))?;
    number.map(|number| Ino(number.unsigned_abs())).ok_or(CatalogError::NotFound)
}

/// The version that a draft becomes: it keeps its inode and its times.
fn version_of(artifact: Seq, number: VersionNumber, draft: &DraftRow) -> VersionInfo {
    VersionInfo {
        artifact,
        number,
        ino: draft.ino,
        kind: draft.kind,
        attrs: Attrs { uid: 0, gid: 0, ..draft.attrs },
        size: draft.size,
        content: draft.content.clone(),
    }
}
