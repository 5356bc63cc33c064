//! What commands do to a mounted checkout: settle its saves, let the engine work on the catalog, and bring the nodes
//! and the kernel in line.

use super::{Result, Vfs, VfsError};
use crate::engine::{
    CheckInReport, CheckInRequest, CheckoutOps, Detached, EngineError, RevertReport, SettleReport,
    StatusReport,
};
use crate::model::{ArtifactPath, Lease, VersionNumber};

type OpsResult<T> = std::result::Result<T, EngineError>;

impl Vfs {
    fn detached(&self) -> OpsResult<Detached> {
        self.workspace.detached(&self.options.holder, self.options.ttl_ms)
    }

    /// Settles all saves; refuses to go on while an application still writes one of the files that are meant.
    fn settle_or_refuse(&self, paths: &[ArtifactPath]) -> OpsResult<()> {
        let unsettled = self.settle_saves().map_err(settling)?;
        let meant = |path: &&ArtifactPath| paths.is_empty() || paths.iter().any(|p| path.is_within(p));
        match unsettled.iter().find(meant) {
            Some(path) => Err(EngineError::Refused(format!(
                "{path}: an application has written part of it and still has it open: save or close it there first"
            ))),
            None => Ok(()),
        }
    }

    /// Brings nodes and kernel in line after the catalog was changed for this checkout.
    fn after_command<'a>(&self, paths: impl IntoIterator<Item = &'a ArtifactPath>) -> OpsResult<()> {
        super::in_catalog(self.resync_drafts())?;
        for path in paths {
            self.invalidate_path(path).map_err(settling)?;
        }
        self.workspace.wake();
        Ok(())
    }

    /// Saves everything at the end of a mount; says what could not be saved and where it is.
    pub fn drain(&self) -> Vec<String> {
        let left = match self.settle_saves() {
            Ok(unsettled) => unsettled,
            Err(error) => {
                self.note_problem(format!("not everything could be saved: {error}"));
                Vec::new()
            }
        };
        if let Err(error) = self.workspace.catalog().sync() {
            self.note_problem(format!("the catalog could not be synced: {error}"));
        }
        let open = left.iter().map(|path| {
            format!(
                "{path}: an application still has it open with unsaved bytes; they become a recovery copy"
            )
        });
        open.chain(self.problems.lock().iter().cloned()).collect()
    }

    /// Ends the checkout's service when no more requests can come: the kernel tells nobody of handles that were open
    /// at that time. Says what could not be saved.
    pub fn close(&self) -> Vec<String> {
        for handle in self.handles.all() {
            self.release(handle);
        }
        let left = self.drain();
        self.publisher.stop();
        left
    }
}

/// A failure of the vfs while it served a command.
fn settling(error: VfsError) -> EngineError {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    EngineError::Refused(format!("saves could not be settled: {text}"))
}

impl CheckoutOps for Vfs {
    fn status(&self, under: &ArtifactPath) -> OpsResult<StatusReport> {
        let mut report = self.detached()?.status(under)?;
        let dirty = self.dirty_paths().map_err(settling)?;
        for draft in &mut report.drafts {
            draft.dirty = dirty.contains(&draft.path);
        }
        if let Some(mount) = &mut report.mount {
            let passthrough = self.passthrough.load(std::sync::atomic::Ordering::Relaxed);
            mount.reads = Some(if passthrough { "passthrough" } else { "cached" }.to_owned());
        }
        report.problems.extend(self.problems.lock().iter().cloned());
        Ok(report)
    }

    fn checkout(&self, paths: &[ArtifactPath]) -> OpsResult<Vec<Lease>> {
        self.detached()?.checkout(paths)
    }

    fn check_in(&self, request: &CheckInRequest) -> OpsResult<CheckInReport> {
        self.settle_or_refuse(&request.paths)?;
        let report = self.detached()?.check_in(request)?;
        self.forget_leases(request.keep);
        self.after_command([])?;
        Ok(report)
    }

    fn revert(&self, paths: &[ArtifactPath]) -> OpsResult<RevertReport> {
        self.settle_saves().map_err(settling)?;
        let report = self.detached()?.revert(paths)?;
        self.forget_leases(false);
        self.after_command(&report.reverted)?;
        Ok(report)
    }

    fn save_as(&self, path: &ArtifactPath, new: &ArtifactPath) -> OpsResult<()> {
        self.settle_or_refuse(std::slice::from_ref(path))?;
        self.detached()?.save_as(path, new)?;
        self.after_command([path, new])
    }

    fn settle(&self, under: &ArtifactPath) -> OpsResult<SettleReport> {
        let unsettled = self.settle_saves().map_err(settling)?;
        self.wait_for_checkins();
        let unsettled = unsettled.into_iter().filter(|path| path.is_within(under)).collect();
        Ok(SettleReport { unsettled, problems: self.problems.lock().clone() })
    }

    fn add(&self, path: &ArtifactPath) -> OpsResult<()> {
        self.settle_or_refuse(std::slice::from_ref(path))?;
        self.detached()?.add(path)?;
        self.after_command([path])
    }

    fn restore(&self, path: &ArtifactPath, version: VersionNumber) -> OpsResult<()> {
        self.settle_or_refuse(std::slice::from_ref(path))?;
        self.detached()?.restore(path, version)?;
        self.after_command([path])
    }
}

impl Vfs {
    /// After a command released leases, the next write has to ask again.
    fn forget_leases(&self, kept: bool) {
        if kept {
            return;
        }
        for node in self.nodes.all() {
            node.lock().lease = None;
        }
    }

    fn dirty_paths(&self) -> Result<Vec<ArtifactPath>> {
        let mut paths = Vec::new();
        for node in self.nodes.all() {
            let (artifact, dirty) = {
                let state = node.lock();
                (state.artifact, state.is_dirty())
            };
            if dirty {
                paths.extend(self.workspace.catalog().path_of(self.checkout, artifact)?);
            }
        }
        Ok(paths)
    }
}
