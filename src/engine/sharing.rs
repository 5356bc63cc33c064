//! Bringing what was checked in to the shared store.
//!
//! A change is *shared* when the shared store, asked after the upload, has the bytes of its versions and its manifest.
//! Nothing waits for that but who asks for it; what could not be uploaded is tried again after the next check-in, each
//! ten seconds while a mount lives, and by `leasehold share`.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::{Result, Workspace};
use crate::blobs::{BlobError, BlobStore};
use crate::catalog::Unshared;
use crate::model::{ChangeNumber, Digest, DownloadPolicy, Timestamp};

/// After how long what could not be uploaded is tried again; longer than a store that can't be reached is left alone.
const RETRY: Duration = Duration::from_secs(10);
/// How many blobs are asked for, uploaded and asked for again at a time.
const BLOBS_AT_ONCE: usize = 1_000;

/// What bringing the shared store up to date came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShareReport {
    /// Changes that are shared by now.
    pub shared: u64,
    /// Blobs that were uploaded.
    pub uploaded: u64,
    /// Why not everything is, in one line.
    pub failure: Option<String>,
}

/// What is not shared yet.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SharingStatus {
    /// How much it is.
    pub unshared: Unshared,
    /// Since when and why the shared store can't be brought up to date, in one line; none if it could at last.
    pub failure: Option<(Timestamp, String)>,
}

impl Workspace {
    /// What the shared store is not known to have; none where no shared store is configured.
    pub fn sharing_status(&self) -> Result<Option<SharingStatus>> {
        if self.remote().is_none() {
            return Ok(None);
        }
        let unshared = self.in_catalog(self.catalog().unshared())?;
        Ok(Some(SharingStatus { unshared, failure: self.in_catalog(self.catalog().share_failure())? }))
    }

    /// Uploads what the shared store lacks of the changes that it isn't known to have; none where none is configured.
    ///
    /// Stops, with what was done so far, when `goes_on` says no.
    pub fn share(&self, goes_on: &dyn Fn() -> bool) -> Result<Option<ShareReport>> {
        if self.remote().is_none() {
            return Ok(None);
        }
        self.store_manifests();
        let mut report = ShareReport::default();
        for change in self.in_catalog(self.catalog().unshared_changes())? {
            if !goes_on() {
                report.failure.get_or_insert("there was no time for everything".into());
                break;
            }
            match self.share_change(change, goes_on, &mut report.uploaded)? {
                Ok(()) => report.shared += 1,
                Err(Unshareable::Blobs(reason)) => report.failure = Some(reason),
                Err(Unshareable::Store(error)) => {
                    report.failure = Some(error.to_string());
                    break;
                }
            }
        }
        let failure = report.failure.as_deref().map(|text| (self.now().wall, text));
        self.in_catalog(self.catalog().set_share_failure(failure))?;
        Ok(Some(report))
    }

    /// Uploads what one change needs, and notes that it is shared once the store shows all of it.
    fn share_change(
        &self,
        change: ChangeNumber,
        goes_on: &dyn Fn() -> bool,
        uploaded: &mut u64,
    ) -> Result<std::result::Result<(), Unshareable>> {
        let Some(remote) = self.remote() else { return Ok(Ok(())) };
        let blobs = self.in_catalog(self.catalog().blobs_of_change(change))?;
        let mut missing = 0;
        for some in blobs.chunks(BLOBS_AT_ONCE) {
            match remote.store().upload_missing(some, goes_on) {
                Ok(done) => {
                    *uploaded += done.sent;
                    missing += done.missing.len();
                }
                Err(error) => return Ok(Err(Unshareable::Store(error))),
            }
        }
        if missing > 0 {
            let reason = remote.store().tally().last_put_failure;
            let reason = reason.unwrap_or_else(|| "the shared store doesn't show what it took".into());
            let text = format!("change {change}: {missing} blobs could not be uploaded: {reason}");
            return Ok(Err(Unshareable::Blobs(text)));
        }
        self.in_catalog(self.catalog().set_shared(change))?;
        Ok(Ok(()))
    }

    /// Lets the mount's thread know that there is something to share.
    pub(super) fn note_share_due(&self) {
        if let Some(remote) = self.remote() {
            remote.note_due();
        }
    }

    /// Shares what can be shared within the time of one upload, for a command that ends then.
    ///
    /// A failure is noted for `status`, and nothing else: the change is complete without.
    pub fn share_shortly(self: &Arc<Self>) {
        let Some(remote) = self.remote() else { return };
        let (workspace, done) = (Arc::clone(self), Arc::<(Mutex<bool>, Condvar)>::default());
        let (end_ms, ended) = (deadline_ms(self, remote.upload_timeout()), Arc::clone(&done));
        let body = move || {
            workspace.share_or_failure(&|| workspace.now().boot_ms < end_ms);
            // The last one to drop it closes the catalog.
            drop(workspace);
            *ended.0.lock() = true;
            ended.1.notify_all();
        };
        match thread::Builder::new().name("share".into()).spawn(body) {
            Ok(_) => {
                let mut is_done = done.0.lock();
                done.1.wait_while_for(&mut is_done, |is_done| !*is_done, remote.upload_timeout());
            }
            Err(error) => tracing::warn!(%error, "can't start a thread to share a change"),
        }
    }

    /// Shares, and tells why not everything is.
    fn share_or_failure(&self, goes_on: &dyn Fn() -> bool) -> Option<String> {
        match self.share(goes_on) {
            Ok(report) => report?.failure,
            Err(error) => Some(error.to_string()),
        }
    }

    /// Keeps the shared store up to date, and under the policy `all` this one, until [`end_sharing`](Self::end_sharing);
    /// for a thread of a mount.
    pub fn keep_shared(&self) {
        let Some(remote) = self.remote().filter(|_| !self.is_archived()) else { return };
        let goes_on = || !remote.has_ended();
        let (mut has_fetched, mut known) = (false, None);
        loop {
            let failure = self.share_or_failure(&goes_on);
            // Once, not every ten seconds.
            if let Some(reason) = failure.as_ref().filter(|_| failure != known) {
                tracing::warn!(reason, "not everything is shared");
            }
            known = failure;
            has_fetched = has_fetched || self.prefetch(&goes_on);
            if !remote.wait_until_due(RETRY) {
                return;
            }
        }
    }

    /// Lets [`keep_shared`](Self::keep_shared) return after the blob that it is at.
    pub fn end_sharing(&self) {
        if let Some(remote) = self.remote() {
            remote.end();
        }
    }

    /// Fetches what the head tree names and is not here, if the policy says so; false if it has to be done again.
    ///
    /// Stops at the first failure of the shared store: whoever reads a file will ask for it again.
    fn prefetch(&self, goes_on: &dyn Fn() -> bool) -> bool {
        let is_wanted =
            self.policy().remote.as_ref().is_some_and(|remote| remote.policy == DownloadPolicy::All);
        if !is_wanted {
            return true;
        }
        let missing = match self.missing_of_head() {
            Ok(missing) => missing,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "can't tell what to fetch");
                return false;
            }
        };
        for digest in missing.iter().take_while(|_| goes_on()) {
            match self.open_blob(digest) {
                Ok(_) | Err(BlobError::Missing { .. } | BlobError::Corrupt { .. }) => {}
                Err(error) => {
                    tracing::info!(%digest, %error, "stopped fetching ahead");
                    return false;
                }
            }
        }
        true
    }

    fn missing_of_head(&self) -> Result<Vec<Digest>> {
        let named = self.in_catalog(self.catalog().head_blobs())?;
        Ok(self.blobs().find_missing(&named)?)
    }
}

/// Why a change is not shared.
enum Unshareable {
    /// Some of its blobs were dropped; the next change may fare better.
    Blobs(String),
    /// The shared store can't be asked.
    Store(BlobError),
}

/// When a time is over, by the boot's clock.
fn deadline_ms(workspace: &Workspace, time: Duration) -> i64 {
    workspace.now().boot_ms.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}
