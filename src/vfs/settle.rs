//! What waits for a quiet moment: cuts to nothing that may be the first half of a save, and check-ins on close.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::node::{Fate, Node};
use super::saving::Closing;
use super::{Result, Vfs};
use crate::engine::{CheckInRequest, CheckoutOps};
use crate::model::{ArtifactPath, Ino, Seq};

/// Nodes that wait, with the time of the boot's clock at which they are due. Locking: one mutex, for a look only.
#[derive(Debug, Default)]
pub(super) struct Pending {
    emptied: Mutex<HashMap<Ino, i64>>,
    checkins: Mutex<HashMap<Ino, i64>>,
}

impl Pending {
    pub fn add_emptied(&self, node: &Node, due_boot_ms: i64) {
        self.emptied.lock().insert(node.ino, due_boot_ms);
    }

    pub fn add_checkin(&self, node: &Node, due_boot_ms: i64) {
        self.checkins.lock().insert(node.ino, due_boot_ms);
    }
}

fn take_due(waiting: &Mutex<HashMap<Ino, i64>>, now_ms: i64) -> Vec<Ino> {
    let mut waiting = waiting.lock();
    let due: Vec<Ino> = waiting.iter().filter(|(_, due)| **due <= now_ms).map(|(ino, _)| *ino).collect();
    for ino in &due {
        waiting.remove(ino);
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

    /// Does what is due by `now_ms`: everything, if that is the end of time.
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
    }

    /// Checks in what was closed long enough ago.
    pub(super) fn check_in_due(&self, now_ms: i64) {
        for ino in take_due(&self.pending.checkins, now_ms) {
            let Some(node) = self.nodes.get(ino) else { continue };
            let (artifact, ready) = {
                let state = node.lock();
                (state.artifact, state.drafted && state.writers == 0 && state.fate == Fate::Named)
            };
            if ready {
                self.check_in_closed(artifact);
            }
        }
    }

    fn check_in_closed(&self, artifact: Seq) {
        let path = match self.workspace.catalog().path_of(self.checkout, artifact) {
            Ok(Some(path)) => path,
            Ok(None) => return,
            Err(error) => return self.note_problem(format!("a check-in on close failed: {error}")),
        };
        let message = format!("save {path}");
        let request = CheckInRequest { paths: vec![path.clone()], message, ..CheckInRequest::default() };
        if let Err(error) = self.check_in(&request) {
            self.note_problem(format!("{path}: check-in on close failed: {error}"));
        }
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
        self.settle_due(i64::MAX);
        let mut unsettled = Vec::new();
        for node in self.nodes.all() {
            let (artifact, dirty, open, tainted, fate) = {
                let state = node.lock_idle();
                (state.artifact, state.is_dirty(), state.writers > 0, state.is_tainted(), state.fate)
            };
            if !dirty || fate != Fate::Named {
                continue;
            }
            if open && !self.saved_in_place(&node)? || tainted {
                unsettled.extend(self.workspace.catalog().path_of(self.checkout, artifact)?);
            } else if !open {
                self.save(&node, Closing::Save)?;
            }
        }
        self.publisher.drain();
        Ok(unsettled)
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
        let synced = std::fs::File::open(mountpoint).and_then(|root| crate::sys::syncfs(&root));
        if let Err(error) = synced {
            tracing::debug!("can't ask for mapped pages: {error}");
        }
    }
}
