use std::sync::Arc;

use crate::blobs::DiskStore;
use crate::engine::Workspace;

/// Whose blobs are served.
pub enum Source {
    /// Those of a workspace, with the stamps in its catalog.
    Workspace(Arc<Workspace>),
    /// Those of a directory.
    Objects(Box<DiskStore>),
}

impl Source {
    pub(super) fn store(&self) -> &DiskStore {
        match self {
            Self::Workspace(workspace) => workspace.blobs(),
            Self::Objects(store) => store,
        }
    }
}
