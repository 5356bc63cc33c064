use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Workspace;
use crate::blobs::{
    BlobError, BlobStore, CombinedSettings, CombinedStore, DiskStore, HttpOptions, HttpStore, PausingStore,
};
use crate::clock::Clock;
use crate::config::Remote;
use crate::model::Digest;

/// How many bytes a download may have: as many as `leasehold serve` takes.
const MAX_DOWNLOAD_BYTES: u64 = 16 << 30;
/// How long one probe or one batch of probes may take at most.
const LONGEST_PROBE: Duration = Duration::from_secs(60);

/// The shared store behind a workspace, and whether it is to be brought up to date.
pub(super) struct RemoteStore {
    store: CombinedStore,
    upload_timeout: Duration,
    due: Mutex<Due>,
    changed: Condvar,
}

/// Locking: one mutex, for a look only.
#[derive(Debug, Clone, Copy, Default)]
struct Due {
    now: bool,
    ended: bool,
}

impl RemoteStore {
    /// Joins the store of a workspace with the configured one; asks nothing of either.
    pub(super) fn open(
        remote: &Remote,
        local: &Arc<DiskStore>,
        spool: PathBuf,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, BlobError> {
        let after = |ms: i64| Duration::from_millis(ms.unsigned_abs());
        let upload_timeout = after(remote.upload_timeout_ms);
        let authorization =
            remote.token.iter().map(|token| ("Authorization".into(), format!("Bearer {token}")));
        let options = HttpOptions {
            headers: authorization.collect(),
            upload_deadline: upload_timeout,
            download_deadline: after(remote.download_timeout_ms),
            probe_deadline: upload_timeout.min(LONGEST_PROBE),
            max_download_bytes: MAX_DOWNLOAD_BYTES,
            ..HttpOptions::new(remote.url.clone(), spool)
        };
        let settings = CombinedSettings {
            policy: remote.policy,
            upload_timeout,
            download_timeout: after(remote.download_timeout_ms),
            write_back_timeout: after(remote.write_back_timeout_ms),
        };
        let http = Arc::new(HttpStore::new(options, Arc::clone(clock))?);
        let shared = Arc::new(PausingStore::new(http, Arc::clone(clock)));
        let store = CombinedStore::new(Arc::clone(local) as _, shared, settings, Arc::clone(clock))?;
        Ok(Self { store, upload_timeout, due: Mutex::default(), changed: Condvar::new() })
    }

    pub(super) fn store(&self) -> &CombinedStore {
        &self.store
    }

    pub(super) fn upload_timeout(&self) -> Duration {
        self.upload_timeout
    }

    pub(super) fn note_due(&self) {
        self.due.lock().now = true;
        self.changed.notify_all();
    }

    pub(super) fn end(&self) {
        self.due.lock().ended = true;
        self.changed.notify_all();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.due.lock().ended
    }

    /// Waits until sharing is asked for, or the time is over; false once it has ended.
    pub(super) fn wait_until_due(&self, timeout: Duration) -> bool {
        let mut due = self.due.lock();
        self.changed.wait_while_for(&mut due, |due| !due.now && !due.ended, timeout);
        due.now = false;
        !due.ended
    }
}

impl Workspace {
    /// Opens the verified bytes of a blob, to be read by offset or from the start.
    ///
    /// What is missing or corrupt here comes from the shared store, if there is one; where nothing of it is kept, the
    /// file has no name.
    ///
    /// # Errors
    /// `Missing` and `Corrupt`; `Transport`, within the configured time, if the shared store is needed and fails.
    pub fn open_blob(&self, digest: &Digest) -> Result<File, BlobError> {
        let Some(remote) = self.remote() else { return self.blobs().open_verified(digest) };
        let dir = self.layout().staging();
        let opened = remote.store.open(digest)?.into_file(&dir);
        opened.map_err(|source| BlobError::Io { action: "open a blob in", path: dir, source })
    }

    /// Whether opening a blob has to ask the shared store, as far as a look at its address tells.
    pub fn is_blob_elsewhere(&self, digest: &Digest) -> bool {
        self.remote().is_some() && !self.blobs().has(digest).unwrap_or(false)
    }
}
