//! What keeps a power cut from taking more than it may: when saves go to the disk, and when old files may go.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use super::node::Node;
use super::{Result, Vfs};
use crate::catalog::CatalogError;
use crate::config::CloseDurability;
use crate::model::Content;

/// How often grouped commits are made to survive a power cut, in milliseconds. With what publishing takes it stays below
/// the second that is promised.
const SYNC_INTERVAL_MS: i64 = 500;

/// How long saves of one file may follow each other so fast that none of them is published, in milliseconds.
const LONGEST_UNSYNCED_MS: i64 = 600;

/// Files that no draft has any more. Locking: each mutex for a look only, never both.
#[derive(Debug, Default)]
pub(super) struct Trash {
    /// Some draft has them again if a power cut takes back what was not synced.
    files: Mutex<Vec<Content>>,
    /// Nobody ever has them again; the next tick deletes them, since a save needn't wait for that.
    worthless: Mutex<Vec<Content>>,
}

impl Vfs {
    /// Whether a save of a node has to be on the disk before it is acknowledged.
    pub(super) fn is_due_on_disk(&self, node: &Node) -> bool {
        if self.workspace.policy().close == CloseDurability::Durable {
            return true;
        }
        let since_ms = node.lock().unsynced_since_ms;
        since_ms.is_some_and(|since_ms| self.now().boot_ms - since_ms >= LONGEST_UNSYNCED_MS)
    }

    pub(super) fn sync_now_and_then(&self, now_ms: i64) {
        if now_ms - self.synced_boot_ms.load(Ordering::Relaxed) < SYNC_INTERVAL_MS {
            return;
        }
        self.synced_boot_ms.store(now_ms, Ordering::Relaxed);
        let noted = self.note_writers();
        let done = noted.and_then(|()| self.sync_saves());
        if let Err(error) = done.and_then(|()| self.workspace.catalog().checkpoint()) {
            self.note_problem(format!("the catalog could not be synced: {error}"));
        }
    }

    /// Makes all that was saved and named so far survive a power cut.
    pub(super) fn sync_saves(&self) -> std::result::Result<(), CatalogError> {
        self.delete_worthless();
        let trash = std::mem::take(&mut *self.trash.files.lock());
        // The bytes first: rows that come to the disk before them are no good.
        self.publisher.drain();
        let synced = self.workspace.catalog().sync();
        for content in trash {
            match &synced {
                Ok(()) if !self.is_named(&content) => self.delete_files(&content),
                _ => self.delete_later(content),
            }
        }
        synced
    }

    /// Whether a draft whose last save could not be stored may fall back to a file.
    fn is_named(&self, content: &Content) -> bool {
        match content {
            Content::Staged(file) => self.workspace.catalog().is_staged(file).unwrap_or(true),
            _ => false,
        }
    }

    /// Deletes the file of a content that no draft has any more, as soon as no power cut brings it back.
    pub(super) fn delete_later(&self, content: Content) {
        if matches!(content, Content::Staged(_) | Content::Direct(_)) {
            self.trash.files.lock().push(content);
        }
    }

    /// Deletes the file of a content that no draft has any more, nor has again after a power cut, when there is time.
    pub(super) fn delete_soon(&self, content: Content) {
        self.trash.worthless.lock().push(content);
    }

    pub(super) fn delete_worthless(&self) {
        let files = std::mem::take(&mut *self.trash.worthless.lock());
        files.iter().for_each(|content| self.delete_files(content));
    }

    /// Makes what is written in place survive a power cut, with its name.
    pub(super) fn sync_in_place(&self, file: &Arc<std::fs::File>) -> Result<()> {
        let names = || match self.names_synced_with_files {
            true => Ok(()),
            false => std::fs::File::open(self.workspace.layout().scratch())?.sync_all(),
        };
        file.sync_all()
            .and_then(|()| names())
            .map_err(super::error::io("sync a file that is written in place"))
    }
}
