//! Access rules in the mounted tree: what the mount's principal may not see has no name here, and what he may only read
//! can't be opened for writing.
//!
//! The rules are the catalog's: a mount follows their changes as it follows check-ins, and lets the kernel forget what
//! it has cached of names that come or go. Handles that are open by then go on reading what they opened.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::node::Node;
use super::{Caller, Result, Vfs, VfsError};
use crate::catalog::{CatalogError, Place};
use crate::engine::{EngineError, Workspace};
use crate::model::{ArtifactPath, Entry, Ino, Kind, Name, Rights, Role, Seq};

/// The root's own place: nothing else is in it.
const NO_DIRECTORY: Seq = Seq(0);

/// How many entries of a directory are looked at at a time.
const BATCH: usize = 512;

/// What the mount's principal may do. Locking: one mutex, for a look only.
#[derive(Debug)]
pub(super) struct Following {
    known: Mutex<Known>,
    /// Whether nothing need be looked at: read at each call, and so beside the lock.
    free: AtomicBool,
}

#[derive(Debug, Clone)]
struct Known {
    rights: Arc<Rights>,
    counter: i64,
}

impl Following {
    pub fn new(workspace: &Workspace) -> std::result::Result<Self, EngineError> {
        let counter = workspace.in_catalog(workspace.catalog().access_counter())?;
        let rights = Arc::new(workspace.rights()?);
        Ok(Self { free: AtomicBool::new(rights.is_free()), known: Mutex::new(Known { rights, counter }) })
    }

    /// The rights, unless all may be seen and changed.
    fn limits(&self) -> Option<Arc<Rights>> {
        if self.free.load(Ordering::Acquire) { None } else { Some(Arc::clone(&self.known.lock().rights)) }
    }
}

/// Where a directory stands, for its entries to be judged: in the checkout and in the head tree.
pub(super) struct Judge<'a> {
    vfs: &'a Vfs,
    rights: Arc<Rights>,
    dir: [ArtifactPath; 2],
}

impl Judge<'_> {
    /// The role with a name of the directory, whatever is there.
    fn name(&self, name: &Name) -> Option<Role> {
        self.rights.role_at(&self.dir.clone().map(|dir| dir.join(name.clone())))
    }

    /// The role with an entry; one that the checkout has moved is judged by its place in the head tree as well.
    fn entry(&self, entry: &Entry, is_moved: bool) -> Result<Option<Role>> {
        match self.name(&entry.name) {
            Some(role) if is_moved => {
                let places = self.vfs.workspace.catalog().places_of(self.vfs.checkout, entry.artifact)?;
                Ok(self.rights.role_at(&places).min(Some(role)))
            }
            role => Ok(role),
        }
    }
}

impl Vfs {
    /// Whether rules may hide something from the principal.
    pub(super) fn is_limited(&self) -> bool {
        self.access.limits().is_some()
    }

    /// Who judges the entries of a directory; none where all may be seen and changed.
    fn judge(&self, dir: Seq) -> Result<Option<Judge<'_>>> {
        let Some(rights) = self.access.limits() else { return Ok(None) };
        let dir = self.workspace.catalog().places_of(self.checkout, dir)?;
        Ok(Some(Judge { vfs: self, rights, dir }))
    }

    /// What a name stands for, if the principal may see it. In place of a name that he may not see one is looked up that
    /// nothing has, so that the answer takes as long as for what isn't there.
    pub(super) fn seen_at(&self, place: &Place) -> Result<Option<Entry>> {
        let judge = self.judge(place.parent)?;
        let hidden = judge.as_ref().is_some_and(|judge| judge.name(&place.name).is_none());
        let nowhere = Place { parent: NO_DIRECTORY, name: place.name.clone() };
        let asked = if hidden { &nowhere } else { place };
        match (self.workspace.catalog().lookup(self.checkout, asked)?, judge) {
            (Some(entry), Some(judge)) => Ok(judge.entry(&entry, entry.head.is_some())?.map(|_| entry)),
            (found, _) => Ok(found),
        }
    }

    /// Which of a directory's entries the principal may see.
    pub(super) fn retain_seen(&self, dir: Seq, entries: &mut Vec<Entry>) -> Result<()> {
        let Some(judge) = self.judge(dir)? else { return Ok(()) };
        let named = self.workspace.catalog().named_in(self.checkout, dir)?;
        let mut seen = Vec::with_capacity(entries.len());
        for entry in entries.iter() {
            seen.push(judge.entry(entry, named.contains(&entry.artifact))?.is_some());
        }
        let mut seen = seen.into_iter();
        entries.retain(|_| seen.next().unwrap_or_default());
        Ok(())
    }

    /// Refuses to make something at a name where the principal may not: whether or not something is there.
    pub(super) fn check_new(&self, place: &Place) -> Result<()> {
        match self.judge(place.parent)? {
            Some(judge) if judge.name(&place.name) < Some(Role::Editor) => Err(VfsError::Denied),
            _ => Ok(()),
        }
    }

    /// Refuses to take a name away that the principal may only read; one that he may not see isn't there.
    pub(super) fn check_taken(&self, place: &Place) -> Result<()> {
        if self.access.limits().is_none() {
            return Ok(());
        }
        let entry = self.seen_at(place)?.ok_or(VfsError::NotFound)?;
        self.check_edit(entry.artifact)
    }

    /// Refuses what would move something out of, into or within a place where the principal may not change it. What lies
    /// below a directory moves with it.
    pub(super) fn check_moved(&self, entry: &Entry, to: &Place) -> Result<()> {
        let Some(judge) = self.judge(to.parent)? else { return Ok(()) };
        self.check_edit(entry.artifact)?;
        if entry.kind != Kind::Directory {
            return Ok(());
        }
        let catalog = self.workspace.catalog();
        let from = catalog.places_of(self.checkout, entry.artifact)?;
        let to = judge.dir.clone().map(|dir| dir.join(to.name.clone()));
        for below in catalog.all_below(self.checkout, entry.artifact)? {
            let places = catalog.places_of(self.checkout, below)?;
            let moved = places.iter().zip(&from).zip(&to);
            let moved: Vec<_> = moved.map(|((place, from), to)| moved_path(place, from, to)).collect();
            if judge.rights.role_at(places.iter().chain(&moved)) < Some(Role::Editor) {
                return Err(VfsError::Denied);
            }
        }
        Ok(())
    }

    fn check_edit(&self, artifact: Seq) -> Result<()> {
        match self.role_of(artifact)? {
            None => Err(VfsError::NotFound),
            Some(Role::Viewer) => Err(VfsError::Denied),
            Some(Role::Editor | Role::Owner) => Ok(()),
        }
    }

    /// Refuses to change a node that the principal may only read, or not even see any more.
    pub(super) fn check_node_edit(&self, node: &Node) -> Result<()> {
        if !self.is_limited() {
            return Ok(());
        }
        let artifact = node.lock().artifact;
        self.check_edit(artifact)
    }

    /// As [`Self::check_node_edit`], for who has it open: that it is there is no secret to him.
    pub(super) fn check_open_edit(&self, node: &Node) -> Result<()> {
        self.check_node_edit(node).map_err(|error| match error {
            VfsError::NotFound => VfsError::Denied,
            error => error,
        })
    }

    /// Refuses a new open of a node that the principal may not see any more.
    pub(super) fn check_node_seen(&self, node: &Node) -> Result<()> {
        if !self.is_limited() {
            return Ok(());
        }
        let artifact = node.lock().artifact;
        self.role_of(artifact)?.map(drop).ok_or(VfsError::NotFound)
    }

    /// The role with an artifact; an editor's where nobody has to be asked.
    fn role_of(&self, artifact: Seq) -> Result<Option<Role>> {
        let Some(rights) = self.access.limits() else { return Ok(Some(Role::Editor)) };
        let places = self.workspace.catalog().places_of(self.checkout, artifact)?;
        Ok(rights.role_at(&places))
    }

    /// The permission bits that a mount shows: nothing can be written that the principal may only read.
    pub(super) fn shown_mode(&self, artifact: Seq, mode: u32) -> Result<u32> {
        let read_only = self.access.limits().is_some() && self.role_of(artifact)? < Some(Role::Editor);
        Ok(if read_only { mode & !0o222 } else { mode })
    }

    /// A name that is to be made, after the checks that each change needs.
    pub(super) fn place_to_make(&self, caller: &Caller, parent: Ino, name: &OsStr) -> Result<Place> {
        let place = self.place_to_change(caller, parent, name)?;
        self.check_new(&place)?;
        Ok(place)
    }

    /// A name that is to be taken away, after the checks that each change needs.
    pub(super) fn place_to_take(&self, caller: &Caller, parent: Ino, name: &OsStr) -> Result<Place> {
        let place = self.place_to_change(caller, parent, name)?;
        self.check_taken(&place)?;
        Ok(place)
    }

    /// Looks whether the rules are others now, and lets the kernel forget what it knows of names that come or go.
    pub(super) fn follow_access(&self) -> std::result::Result<(), CatalogError> {
        let counter = self.workspace.catalog().access_counter()?;
        if self.access.known.lock().counter == counter {
            return Ok(());
        }
        let rules = self.workspace.catalog().access_records()?.rules();
        let rights = Arc::new(self.workspace.identity().rights(&rules));
        let before = {
            let mut known = self.access.known.lock();
            let before = Arc::clone(&known.rights);
            *known = Known { rights: Arc::clone(&rights), counter };
            before
        };
        self.access.free.store(rights.is_free(), Ordering::Release);
        if before != rights { self.tell_access(&before, &rights) } else { Ok(()) }
    }

    /// Only what lies in a directory that has a node can be in the kernel's caches.
    fn tell_access(&self, before: &Rights, now: &Rights) -> std::result::Result<(), CatalogError> {
        for node in self.nodes.all() {
            let (kind, artifact) = {
                let state = node.lock();
                (state.kind, state.artifact)
            };
            self.tell_attributes(node.ino);
            if kind == Kind::Directory {
                self.tell_children(node.ino, artifact, before, now)?;
            }
        }
        Ok(())
    }

    fn tell_children(
        &self,
        ino: Ino,
        dir: Seq,
        before: &Rights,
        now: &Rights,
    ) -> std::result::Result<(), CatalogError> {
        let catalog = self.workspace.catalog();
        let mut after = Seq(0);
        loop {
            let batch = catalog.children(self.checkout, dir, after, BATCH)?;
            for child in &batch {
                let places = catalog.places_of(self.checkout, child.artifact)?;
                if before.role_at(&places).is_some() != now.role_at(&places).is_some() {
                    self.tell_name(ino, &child.name);
                }
            }
            match batch.last() {
                Some(last) if batch.len() == BATCH => after = last.artifact,
                _ => return Ok(()),
            }
        }
    }
}

/// A path below `from` as it is when that has become `to`.
fn moved_path(path: &ArtifactPath, from: &ArtifactPath, to: &ArtifactPath) -> ArtifactPath {
    let below = path.names().get(from.names().len()..).filter(|_| path.is_within(from));
    below.unwrap_or_default().iter().fold(to.clone(), |path, name| path.join(name.clone()))
}
