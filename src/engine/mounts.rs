use std::path::Path;
use std::sync::Arc;

use super::files::file_error;
use super::{EngineError, MountStatus, Result, Workspace};
use crate::catalog::{Catalog, Mounting};
use crate::model::{ArtifactPath, CheckoutId, Holder};
use crate::sys::{self, ProcessKey};

/// Says that this process shows a checkout, for as long as it lives.
pub struct MountGuard {
    catalog: Arc<Catalog>,
    checkout: CheckoutId,
    process: ProcessKey,
    ended: bool,
}

impl MountGuard {
    /// The checkout that is shown.
    pub fn checkout(&self) -> CheckoutId {
        self.checkout
    }

    /// Notes that the mount has ended.
    pub fn end(mut self) -> Result<()> {
        self.ended = true;
        let ended = self.catalog.end_mount(self.checkout, self.process);
        ended.map_err(|source| EngineError::Catalog { file: self.catalog.path().to_owned(), source })
    }
}

impl Drop for MountGuard {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        if let Err(error) = self.catalog.end_mount(self.checkout, self.process) {
            tracing::warn!(%error, "can't note the end of the mount");
        }
    }
}

impl Workspace {
    /// The live mount of a holder's checkout, if there is one.
    pub fn live_mount(&self, holder: &Holder) -> Result<Option<MountStatus>> {
        let mount = match self.in_catalog(self.catalog().existing_checkout(holder))? {
            Some(checkout) => self.in_catalog(self.catalog().mount_of(checkout))?,
            None => None,
        };
        let alive = mount.filter(|mount| mount.is_alive(self.now()));
        Ok(alive.map(|m| MountStatus { mountpoint: m.mountpoint, pid: m.process.pid, reads: None }))
    }

    /// Every holder whose checkout a live process shows.
    pub fn live_mounts(&self) -> Result<Vec<(Holder, MountStatus)>> {
        let mut live = Vec::new();
        for (_, holder) in self.in_catalog(self.catalog().checkouts())? {
            live.extend(self.live_mount(&holder)?.map(|mount| (holder, mount)));
        }
        Ok(live)
    }

    /// Whether the catalog knows who showed a checkout at a mountpoint, and that nobody does any more: each such process
    /// has ended, or was killed and only waits for the kernel.
    pub fn is_abandoned(&self, mountpoint: &Path) -> Result<bool> {
        let mut known = false;
        for (checkout, _) in self.in_catalog(self.catalog().checkouts())? {
            match self.in_catalog(self.catalog().mount_of(checkout))? {
                Some(mount) if mount.mountpoint == mountpoint => {
                    if mount.is_alive(self.now()) && !sys::is_killed(mount.process.pid) {
                        return Ok(false);
                    }
                    known = true;
                }
                _ => {}
            }
        }
        Ok(known)
    }

    /// Notes that this process mounts a holder's checkout; refuses if another live one does.
    pub fn begin_mount(&self, holder: &Holder, mountpoint: &Path) -> Result<MountGuard> {
        let process = sys::this_process().map_err(file_error("read", Path::new("/proc/self/stat")))?;
        let checkout = self.in_catalog(self.catalog().checkout(holder))?;
        let mounting = Mounting { process, mountpoint: mountpoint.to_owned(), now: self.now() };
        self.in_catalog(self.catalog().begin_mount(checkout, &mounting))?;
        Ok(MountGuard { catalog: self.shared_catalog(), checkout, process, ended: false })
    }

    /// Names the workspace as the object of a failure of the catalog.
    pub fn in_catalog<T>(&self, result: crate::catalog::Result<T>) -> Result<T> {
        result.map_err(|error| self.refusal(None, &ArtifactPath::root(), error))
    }
}
