//! What waits for a quiet moment: cuts to nothing that may be the first half of a save, and check-ins on close.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::node::{Fate, Node};
use super::saving::Closing;
use super::{Result, Vfs};
use crate::catalog::{CatalogError, EventKind};
use crate::engine::{CheckInRequest, CheckoutOps};
use crate::model::{ArtifactPath, Ino, Scratch, Seq};

/// Nodes that wait, with the time of the boot's clock at which they are due. Locking: one mutex, for a look only.
#[derive(Debug, Default)]
pub(super) struct Pending {
    emptied: Mutex<HashMap<Ino, i64>>,
    checkins: Mutex<HashMap<Seq, i64>>,
    releases: Mutex<HashMap<Seq, i64>>,
}

impl Pending {
    pub fn add_emptied(&self, node: &Node, due_boot_ms: i64) {
        self.emptied.lock().insert(node.ino, due_boot_ms);
    }

    pub fn add_release(&self, artifact: Seq, due_boot_ms: i64) {
        self.releases.lock().insert(artifact, due_boot_ms);
    }

    pub fn take_releases(&self, now_ms: i64) -> Vec<Seq> {
        take_due(&self.releases, now_ms)
    }

    pub fn add_checkin(&self, artifact: Seq, due_boot_ms: i64) {
        self.checkins.lock().insert(artifact, due_boot_ms);
    }
}

fn take_due<K: Copy + Eq + std::hash::Hash>(waiting: &Mutex<HashMap<K, i64>>, now_ms: i64) -> Vec<K> {
    let mut waiting = waiting.lock();
    let due: Vec<K> = waiting.iter().filter(|(_, due)| **due <= now_ms).map(|(key, _)| *key).collect();
    for key in &due {
        waiting.remove(key);
    }
    due
}

impl Vfs {
    pub(super) fn grace_deadline(&self) -> i64 {
        self.now().boot_ms + self.workspace.policy().grace_ms
    }

    pub(super) fn checkin_deadline(&self) -> i64 {
        self.now().boot_ms + self.workspace.policy().checkin_delay_ms
    }

    /// Saves the cuts to nothing that nobody followed up.
    pub(super) fn settle_due(&self, now_ms: i64) {
        for ino in take_due(&self.pending.emptied, now_ms) {
            if let Some(node) = self.nodes.get(ino) {
                self.save_emptied(&node);
            }
        }
    }

    fn save_emptied(&self, node: &Arc<Node>) {
        if node.lock().writers > 0 {
            return;
        }
        if let Err(error) = self.save(node, Closing::Save) {
            self.note_problem(format!("inode {}: a cut to nothing could not be saved: {error}", node.ino));
        }
        self.give_back_unused(node);
        let (artifact, scratch, drafted) = {
            let state = node.lock();
            (state.artifact, state.scratch, state.drafted)
        };
        if drafted {
            self.check_in_later(artifact, scratch);
        }
    }

    /// What was done to an artifact is done for now: in a mount that checks in by itself it is checked in after a delay,
    /// and where policy gives leases back at the close, its lease goes after the grace.
    pub(super) fn check_in_later(&self, artifact: Seq, scratch: Scratch) {
        self.give_back_later(artifact, scratch);
        if self.options.checkin_on_close && scratch == Scratch::No {
            self.pending.add_checkin(artifact, self.checkin_deadline());
        }
    }

    /// As [`Vfs::check_in_later`], for a name that is gone: the next step of a save may bring it back within the grace.
    pub(super) fn check_in_gone_later(&self, artifact: Seq, scratch: Scratch) {
        self.give_back_later(artifact, scratch);
        if self.options.checkin_on_close && scratch == Scratch::No {
            self.pending.add_checkin(artifact, self.checkin_deadline().max(self.grace_deadline()));
        }
    }

    /// Checks in what was closed, made, moved or removed long enough ago.
    pub(super) fn check_in_due(&self, now_ms: i64) {
        for artifact in take_due(&self.pending.checkins, now_ms) {
            if self.is_being_written(artifact) {
                self.pending.add_checkin(artifact, self.checkin_deadline());
            } else {
                self.check_in_closed(artifact);
            }
        }
    }

    pub(super) fn is_being_written(&self, artifact: Seq) -> bool {
        self.nodes.of_artifacts(&[artifact]).iter().any(|node| {
            let state = node.lock();
            state.writers > 0 && state.fate == Fate::Named
        })
    }

    fn check_in_closed(&self, artifact: Seq) {
        let path = match self.path_to_check_in(artifact) {
            Ok(Some(path)) => path,
            Ok(None) => return,
            Err(error) => return self.note_problem(format!("a check-in on close failed: {error}")),
        };
        let message = format!("save {path}");
        let request = CheckInRequest { paths: vec![path.clone()], message, ..CheckInRequest::default() };
        if let Err(error) = self.check_in(&request) {
            tracing::warn!(%path, %error, "a check-in on close failed");
            self.note_event(EventKind::CheckInFailed, artifact, &error.to_string());
        }
    }

    /// The path of an artifact that a check-in is due for; none where it came and went meanwhile, or went along with
    /// another check-in.
    fn path_to_check_in(&self, artifact: Seq) -> std::result::Result<Option<ArtifactPath>, CatalogError> {
        let catalog = self.workspace.catalog();
        if !catalog.is_changed(self.checkout, artifact)? {
            return Ok(None);
        }
        Ok(Some(catalog.any_path_of(self.checkout, artifact)?).filter(|path| !path.is_root()))
    }

    /// Waits until no check-in on close is still to come.
    pub(super) fn wait_for_checkins(&self) {
        loop {
            let next = self.pending.checkins.lock().values().copied().min();
            let Some(due_ms) = next else { return };
            let wait_ms = (due_ms - self.now().boot_ms).clamp(0, 1_000);
            self.workspace.clock().sleep(std::time::Duration::from_millis(wait_ms.unsigned_abs()));
            self.check_in_due(self.now().boot_ms);
        }
    }

    /// Asks applications' mappings for their pages, saves what nobody has open for writing, and lets the publisher
    /// finish. Returns the paths of files with unsaved bytes that somebody still has open.
    pub(super) fn settle_saves(&self) -> Result<Vec<ArtifactPath>> {
        self.collect_mapped_pages();
        let mut unsettled = Vec::new();
        let mut failed = None;
        for node in self.nodes.all() {
            match self.settle_node(&node) {
                Ok(path) => unsettled.extend(path),
                // One file that can't be saved must not keep the others from it.
                Err(error) => failed = Some(error),
            }
        }
        self.publisher.drain();
        failed.map_or(Ok(unsettled), Err)
    }

    /// Saves a node if it can; the path of one with unsaved bytes that has to wait.
    fn settle_node(&self, node: &Arc<Node>) -> Result<Option<ArtifactPath>> {
        let (artifact, waits, concerned) = {
            let state = node.lock_idle();
            (
                state.artifact,
                state.writers > 0 || state.is_emptied(),
                state.is_dirty() && state.fate == Fate::Named,
            )
        };
        if !concerned {
            return Ok(None);
        }
        if waits && !self.saved_in_place(node)? {
            return Ok(self.workspace.catalog().path_of(self.checkout, artifact)?);
        }
        self.save(node, Closing::Save).map(|()| None)
    }

    /// Waits until a cut to nothing has either become a save or is old enough to be one.
    pub(super) fn wait_for_emptied(&self) {
        while let Some(due_ms) = self.next_emptied() {
            let wait_ms = (due_ms - self.now().boot_ms).clamp(0, self.workspace.policy().grace_ms);
            self.workspace.clock().sleep(std::time::Duration::from_millis(wait_ms.unsigned_abs()));
            self.settle_due(self.now().boot_ms);
        }
    }

    /// When the next cut to nothing is due; one that bytes have followed waits for nothing any more.
    fn next_emptied(&self) -> Option<i64> {
        let waiting: Vec<(Ino, i64)> =
            self.pending.emptied.lock().iter().map(|(ino, due)| (*ino, *due)).collect();
        let is_emptied = |ino| self.nodes.get(ino).is_some_and(|node| node.lock().is_emptied());
        waiting.into_iter().filter(|(ino, _)| is_emptied(*ino)).map(|(_, due)| due).min()
    }

    /// A file that is written in place needs no closing: what it holds now is the draft.
    fn saved_in_place(&self, node: &Arc<Node>) -> Result<bool> {
        if !node.lock().is_direct() {
            return Ok(false);
        }
        self.save(node, Closing::Save)?;
        Ok(true)
    }

    /// Pages of shared mappings reach the daemon only when the kernel is asked to write them (syncfs(2)).
    fn collect_mapped_pages(&self) {
        let Some(mountpoint) = self.mountpoint.get() else { return };
        if let Err(error) = crate::sys::sync_own_filesystem(mountpoint) {
            tracing::debug!("can't ask for mapped pages: {error}");
        }
    }
}
