//! What commands do to a mounted checkout: settle its saves, let the engine work on the catalog, and bring the nodes
//! and the kernel in line.

use std::sync::Arc;

use super::node::{Claim, Fate, Node};
use super::{Result, Vfs, VfsError};
use crate::engine::{
    CheckInReport, CheckInRequest, CheckoutOps, Detached, EngineError, RevertReport, SettleReport,
    StatusReport,
};
use crate::model::{
    ArtifactId, ArtifactPath, Content, Digest, Generation, Ino, Lease, Scratch, Seq, VersionInfo,
    VersionNumber,
};

type OpsResult<T> = std::result::Result<T, EngineError>;

impl Vfs {
    fn detached(&self) -> OpsResult<Detached> {
        self.workspace.detached(&self.options.holder, self.options.ttl_ms)
    }

    /// A mount that is for reading changes nothing, whoever asks.
    fn refuse_if_for_reading(&self) -> OpsResult<()> {
        match self.refuse_if_read_only() {
            Ok(()) => Ok(()),
            Err(_) => Err(EngineError::Refused(format!(
                "{}: the checkout is mounted read-only; mount it without --read-only to change it",
                self.options.holder
            ))),
        }
    }

    /// Settles all saves; refuses to go on while an application still writes one of the files that are meant.
    fn settle_or_refuse(&self, paths: &[ArtifactPath]) -> OpsResult<()> {
        self.wait_for_emptied();
        let unsettled = self.settle_saves().map_err(settling)?;
        let meant = |path: &&ArtifactPath| paths.is_empty() || paths.iter().any(|p| path.is_within(p));
        match unsettled.iter().find(meant) {
            Some(path) => Err(EngineError::Refused(format!(
                "{path}: an application has written part of it and still has it open; save or close it there first"
            ))),
            None => Ok(()),
        }
    }

    /// Lets the catalog know who writes now: it keeps the leases of writers, and those of a moment ago have closed.
    fn note_present_writers(&self) -> OpsResult<()> {
        self.workspace.in_catalog(self.note_writers())
    }

    /// Brings nodes and kernel in line after the catalog was changed for this checkout. What the command did is done:
    /// where the catalog can't be read now, the timer tries again.
    fn after_command<'a>(&self, paths: impl IntoIterator<Item = &'a ArtifactPath>) {
        self.epochs.names_changed();
        if let Err(error) = self.bring_in_line(paths.into_iter().cloned().collect()) {
            self.note_problem(format!("what a command did can't be shown yet: {error}"));
        }
        self.workspace.wake();
        // Whoever gave the command may look at once.
        if let Some(invalidate) = self.invalidate.get() {
            invalidate.settle();
        }
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
        if let Err(error) = self.sync_saves() {
            self.note_problem(format!("the catalog could not be synced: {error}"));
        }
        let open = left.iter().map(|path| {
            format!(
                "{path}: an application still has it open with unsaved bytes; they become a recovery copy"
            )
        });
        open.chain(self.present_problems()).collect()
    }

    /// Ends the checkout's service when no more requests can come: the kernel tells nobody of handles that were open
    /// at that time. Says what could not be saved.
    pub fn close(&self) -> Vec<String> {
        for handle in self.handles.all() {
            self.release(handle);
        }
        let left = self.drain();
        // Everything is closed now, and no timer will come any more.
        self.give_back_due(i64::MAX);
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
        report.problems.extend(self.workspace.policy_problems());
        report.problems.extend(self.present_problems());
        Ok(report)
    }

    fn checkout(&self, paths: &[ArtifactPath]) -> OpsResult<Vec<Lease>> {
        self.refuse_if_for_reading()?;
        self.detached()?.checkout(paths)
    }

    fn check_in(&self, request: &CheckInRequest) -> OpsResult<CheckInReport> {
        self.refuse_if_for_reading()?;
        self.settle_or_refuse(&request.paths)?;
        self.note_present_writers()?;
        let pause = self.publisher.pause();
        // Nobody saves between the check-in and the moment when his node knows of it.
        let claims = self.claim_drafts();
        let request = CheckInRequest { busy: self.busy_inos(), ..request.clone() };
        let (report, checked_in) = self.workspace.check_in(&self.actor(), &request)?;
        self.note_checked_in(&checked_in.settled);
        for claim in &claims {
            // All are done again below.
            if let Err(error) = self.resync_claimed(claim) {
                tracing::warn!(%error, "inode {}: its new version can't be read", claim.node.ino);
            }
        }
        drop((claims, pause));
        self.after_command([]);
        Ok(report)
    }

    fn revert(&self, paths: &[ArtifactPath]) -> OpsResult<RevertReport> {
        self.refuse_if_for_reading()?;
        self.settle_saves().map_err(settling)?;
        let leases = self.detach_below(paths)?;
        self.note_present_writers()?;
        let report = self.detached()?.revert(paths)?;
        self.give_back(&leases)?;
        self.after_command(&report.reverted);
        Ok(report)
    }

    fn save_as(&self, path: &ArtifactPath, new: &ArtifactPath) -> OpsResult<()> {
        self.refuse_if_for_reading()?;
        self.settle_or_refuse(std::slice::from_ref(path))?;
        self.detached()?.save_as(path, new)?;
        self.after_command([path, new]);
        Ok(())
    }

    fn settle(&self, under: &ArtifactPath) -> OpsResult<SettleReport> {
        self.workspace.refuse_unknown(self.checkout, under)?;
        self.wait_for_emptied();
        let unsettled = self.settle_saves().map_err(settling)?;
        self.wait_for_checkins();
        let unsettled = unsettled.into_iter().filter(|path| path.is_within(under)).collect();
        Ok(SettleReport { unsettled, problems: self.present_problems() })
    }

    fn add(&self, path: &ArtifactPath) -> OpsResult<()> {
        self.refuse_if_for_reading()?;
        self.settle_or_refuse(std::slice::from_ref(path))?;
        self.detached()?.add(path)?;
        self.after_command([path]);
        Ok(())
    }

    fn restore(&self, path: &ArtifactPath, version: VersionNumber) -> OpsResult<()> {
        self.refuse_if_for_reading()?;
        self.settle_or_refuse(std::slice::from_ref(path))?;
        self.detached()?.restore(path, version)?;
        self.after_command([path]);
        Ok(())
    }

    fn open_blobs(&self) -> OpsResult<Vec<Digest>> {
        let open = self.nodes.all().into_iter().filter_map(|node| {
            let state = node.lock();
            match state.content {
                Content::Blob(digest) if state.handles > 0 => Some(digest),
                _ => None,
            }
        });
        Ok(open.collect())
    }
}

impl Vfs {
    /// Keeps applications from writing and saving while a check-in takes what they have saved.
    fn claim_drafts(&self) -> Vec<Claim> {
        let mut nodes = self.nodes.all();
        nodes.retain(|node| {
            let state = node.lock();
            let concerned = state.drafted || state.writers > 0;
            concerned && state.scratch == Scratch::No && state.fate == Fate::Named
        });
        // In the order of their numbers, as a rename claims two.
        nodes.sort_by_key(|node| node.ino);
        nodes.iter().map(|node| node.claim()).collect()
    }

    fn busy_inos(&self) -> Vec<Ino> {
        let busy = |node: &Arc<Node>| {
            let state = node.lock();
            (state.writers > 0 && state.fate == Fate::Named).then_some(node.ino)
        };
        self.nodes.all().iter().filter_map(busy).collect()
    }

    /// Lets nodes and processes know which versions their drafts became.
    fn note_checked_in(&self, settled: &[(Seq, Option<VersionInfo>)]) {
        for (artifact, version) in settled {
            let number = version.as_ref().map(|version| version.number);
            for node in self.nodes.of_artifacts(&[*artifact]) {
                node.lock().checked_in = number;
            }
            if let Some(number) = number {
                self.seen.checked_in(*artifact, number);
            }
        }
    }

    /// Takes the handles away from the drafts that a revert gives up: what they write becomes a recovery copy. Returns
    /// the leases of the files.
    fn detach_below(&self, paths: &[ArtifactPath]) -> OpsResult<Vec<(ArtifactId, Generation)>> {
        let mut leases = Vec::new();
        for node in self.nodes.all() {
            let (artifact, writes, lease) = {
                let state = node.lock();
                let writes = state.fate == Fate::Named && state.scratch == Scratch::No && !state.immutable;
                let lease = state.lease.map(|lease| (state.id, lease.generation));
                (state.artifact, writes && (state.writers > 0 || state.is_dirty()), lease)
            };
            if !writes {
                continue;
            }
            let path =
                self.workspace.in_catalog(self.workspace.catalog().path_of(self.checkout, artifact))?;
            if path.is_some_and(|path| paths.is_empty() || paths.iter().any(|p| path.is_within(p))) {
                self.detach(&node, "the draft was reverted while the file was open");
                leases.extend(lease);
            }
        }
        Ok(leases)
    }

    /// Gives back leases of files that a revert took from their writers: of those without a save the catalog has no
    /// draft, whose lease would go with it.
    fn give_back(&self, leases: &[(ArtifactId, Generation)]) -> OpsResult<()> {
        let (catalog, now) = (self.workspace.catalog(), self.now());
        let release = |(id, generation): &_| catalog.release_generation(*id, *generation, now).map(drop);
        self.workspace.in_catalog(leases.iter().try_for_each(release))
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
