//! Open handles by number.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use super::node::Node;
use super::{Caller, Handle, Result, VfsError};

/// An open file.
#[derive(Debug)]
pub(super) struct OpenFile {
    /// The node that it was opened on.
    pub node: Arc<Node>,
    /// The bytes of a version, which stay whatever becomes of its name.
    pub version: Option<Arc<File>>,
    pub write: bool,
    /// Who opened it, and so whose saves they are.
    pub opener: Caller,
    /// Writes go to the end of the draft, which a direct handle's kernel doesn't know.
    pub append: bool,
    /// It was opened on the old version's node, whose pages are other bytes.
    pub direct: bool,
}

/// The table of open handles. Locking: one lock, held for a look only.
#[derive(Debug, Default)]
pub(super) struct Handles {
    next: AtomicU64,
    open: RwLock<HashMap<Handle, Arc<OpenFile>>>,
}

impl Handles {
    pub fn insert(&self, file: OpenFile) -> Handle {
        let handle = Handle(self.next.fetch_add(1, Ordering::Relaxed) + 1);
        self.open.write().insert(handle, Arc::new(file));
        handle
    }

    pub fn get(&self, handle: Handle) -> Result<Arc<OpenFile>> {
        self.open.read().get(&handle).cloned().ok_or(VfsError::BadHandle)
    }

    pub fn remove(&self, handle: Handle) -> Option<Arc<OpenFile>> {
        self.open.write().remove(&handle)
    }

    /// Every open handle.
    pub fn all(&self) -> Vec<Handle> {
        self.open.read().keys().copied().collect()
    }
}
