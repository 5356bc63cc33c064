//! Two stores as one: the one here is asked first and keeps everything, the shared one is a second source and gets a copy.
//!
//! Nothing that is here waits for the shared store, and no failure of it makes a put fail: what it didn't take in its
//! time is *dropped*, counted, and warned of now and then. Whoever needs it to be there asks, uploads and asks again
//! ([`CombinedStore::upload_missing`]). Of one blob there is one upload and one download at a time; who wants it meanwhile
//! waits for that.
//!
//! | the answer here | then | kept here: all, toplevel, minimal |
//! |---|---|---|
//! | bytes | they are returned; the shared store isn't asked | – |
//! | missing | the shared store is asked | yes, yes, no |
//! | corrupt | the shared store is asked | yes, yes, yes |
//! | any other error | it is returned; the shared store isn't asked | – |

mod tally;
mod transfer;

#[cfg(test)]
mod tests;

pub use tally::RemoteTally;

use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use self::tally::{Dropping, Tallies};
use self::transfer::{Dropped, Limit, Transfers};
use super::{Blob, BlobError, BlobStore};
use crate::clock::Clock;
use crate::model::{Digest, DownloadPolicy};

/// How long a transfer may take by default.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The longest time that can be asked for: longer ones are mistakes.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// What a [`CombinedStore`] keeps, and for how long it is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CombinedSettings {
    /// What is kept here of what the shared store sends.
    pub policy: DownloadPolicy,
    /// How long a put waits for its upload.
    pub upload_timeout: Duration,
    /// How long a get waits for a download, its own or one that has begun.
    pub download_timeout: Duration,
    /// How long a get waits for the bytes to be stored here.
    pub write_back_timeout: Duration,
}

impl Default for CombinedSettings {
    fn default() -> Self {
        Self {
            policy: DownloadPolicy::default(),
            upload_timeout: TIMEOUT,
            download_timeout: TIMEOUT,
            write_back_timeout: TIMEOUT,
        }
    }
}

impl CombinedSettings {
    fn check(&self) -> Result<(), BlobError> {
        let usable = |timeout: Duration| !timeout.is_zero() && timeout <= LONGEST_TIMEOUT;
        if [self.upload_timeout, self.download_timeout, self.write_back_timeout].into_iter().all(usable) {
            return Ok(());
        }
        Err(BlobError::Configuration { problem: "a timeout must be more than nothing and at most a day" })
    }
}

/// What [`CombinedStore::upload_missing`] came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uploaded {
    /// How many blobs were sent.
    pub sent: u64,
    /// Those that the shared store still lacks, in the order asked.
    pub missing: Vec<Digest>,
}

/// A store here, and one that is shared behind it.
pub struct CombinedStore {
    local: Arc<dyn BlobStore>,
    shared: Arc<dyn BlobStore>,
    settings: CombinedSettings,
    uploads: Arc<Transfers<()>>,
    downloads: Arc<Transfers<Fetched>>,
    tallies: Arc<Tallies>,
}

/// What a download came to.
#[derive(Clone)]
struct Fetched {
    blob: Blob,
    /// Whether it was stored here.
    is_kept: bool,
}

impl CombinedStore {
    /// Joins two stores.
    ///
    /// # Errors
    /// `Configuration`, if a timeout is nothing or more than a day.
    pub fn new(
        local: Arc<dyn BlobStore>,
        shared: Arc<dyn BlobStore>,
        settings: CombinedSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, BlobError> {
        settings.check()?;
        let (uploads, downloads) = (Arc::default(), Arc::default());
        Ok(Self { local, shared, settings, uploads, downloads, tallies: Arc::new(Tallies::new(clock)) })
    }

    /// The shared store alone.
    pub fn shared(&self) -> &dyn BlobStore {
        &*self.shared
    }

    /// What was stored, read and dropped since the start.
    pub fn tally(&self) -> RemoteTally {
        self.tallies.read()
    }

    /// Brings blobs to the shared store, for whoever will rely on their being there: asks what it lacks, uploads that,
    /// and asks again, since a store may take a blob and forget it.
    ///
    /// Goes on after a blob that is dropped, and stops when `goes_on` says no.
    ///
    /// # Errors
    /// Those of the shared store when it is asked.
    pub fn upload_missing(
        &self,
        digests: &[Digest],
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Uploaded, BlobError> {
        let lacking = self.shared.find_missing(digests)?;
        if lacking.is_empty() {
            return Ok(Uploaded::default());
        }
        let sent = lacking.iter().take_while(|_| goes_on()).filter(|digest| self.upload(digest)).count();
        Ok(Uploaded { sent: sent as u64, missing: self.shared.find_missing(&lacking)? })
    }

    /// Uploads a blob that is here, together with whoever uploads it already; tells whether it arrived.
    fn upload(&self, digest: &Digest) -> bool {
        let (local, shared, digest) = (Arc::clone(&self.local), Arc::clone(&self.shared), *digest);
        let arrived = self.uploads.join(digest, self.settings.upload_timeout, move |limit| {
            let blob = local.open(&digest)?;
            shared.put_known(&digest, blob.size(), limit.reader(blob.reader()))
        });
        arrived.inspect_err(|dropped| self.tallies.note_dropped(Dropping::Put, &digest, dropped)).is_ok()
    }

    /// Opens a blob as [`open`](BlobStore::open) does under another policy.
    pub fn open_under(&self, digest: &Digest, policy: DownloadPolicy) -> Result<Blob, BlobError> {
        match self.local.open(digest) {
            Ok(blob) => {
                self.tallies.count_get();
                Ok(blob)
            }
            Err(error @ (BlobError::Missing { .. } | BlobError::Corrupt { .. })) => {
                self.fetch(digest, error, policy)
            }
            Err(error) => Err(error),
        }
    }

    /// Gets a blob from the shared store that is not whole here; all who want it at a time wait for one download.
    fn fetch(&self, digest: &Digest, here: BlobError, policy: DownloadPolicy) -> Result<Blob, BlobError> {
        let is_repair = matches!(here, BlobError::Corrupt { .. });
        let keeps = is_repair || policy != DownloadPolicy::Minimal;
        let timeout = self.settings.download_timeout + self.settings.write_back_timeout;
        match self.downloads.join(*digest, timeout, self.download(*digest, keeps)) {
            // Its file rather than a second copy, for as long as somebody has it open.
            Ok(Fetched { blob, is_kept: true }) => Ok(self.local.open(digest).unwrap_or(blob)),
            Ok(Fetched { blob, .. }) => Ok(blob),
            // What is damaged is not gone.
            Err(Dropped::Failed(error)) if is_repair && matches!(*error, BlobError::Missing { .. }) => {
                Err(here)
            }
            Err(dropped) => Err(dropped.into_error("send a blob")),
        }
    }

    /// The work of one download: gets the bytes, and stores them here if they are to be kept.
    fn download(
        &self,
        digest: Digest,
        keeps: bool,
    ) -> impl FnOnce(&Limit) -> Result<Fetched, BlobError> + Send + use<> {
        let (local, shared) = (Arc::clone(&self.local), Arc::clone(&self.shared));
        let (timeout, tallies) = (self.settings.write_back_timeout, Arc::clone(&self.tallies));
        move |_| {
            let blob = shared.open(&digest)?;
            if !keeps {
                return Ok(Fetched { blob, is_kept: false });
            }
            match write_back(local, &digest, &blob, timeout, &tallies) {
                Err(Dropped::Failed(error)) if matches!(*error, BlobError::Corrupt { .. }) => {
                    Err(error.again())
                }
                stored => Ok(Fetched { blob, is_kept: stored.is_ok() }),
            }
        }
    }
}

/// Stores bytes here that the shared store sent.
fn write_back(
    local: Arc<dyn BlobStore>,
    digest: &Digest,
    blob: &Blob,
    timeout: Duration,
    tallies: &Tallies,
) -> Result<(), Dropped> {
    let (bytes, known) = (blob.clone(), *digest);
    let stored = transfer::alone(timeout, move |limit| {
        local.put_known(&known, bytes.size(), limit.reader(bytes.reader()))
    });
    match &stored {
        Ok(()) => tallies.count_put(),
        Err(dropped) => tallies.note_dropped(Dropping::WriteBack, digest, dropped),
    }
    stored
}

impl BlobStore for CombinedStore {
    fn put(&self, source: &mut dyn Read) -> Result<(Digest, u64), BlobError> {
        let (digest, size) = self.local.put(source)?;
        self.tallies.count_put();
        self.upload(&digest);
        Ok((digest, size))
    }

    fn put_known(&self, digest: &Digest, size: u64, source: Box<dyn Read + Send>) -> Result<(), BlobError> {
        self.local.put_known(digest, size, source)?;
        self.tallies.count_put();
        self.upload(digest);
        Ok(())
    }

    fn open(&self, digest: &Digest) -> Result<Blob, BlobError> {
        self.open_under(digest, self.settings.policy)
    }

    fn has(&self, digest: &Digest) -> Result<bool, BlobError> {
        Ok(self.local.has(digest)? || self.shared.has(digest)?)
    }

    fn find_missing(&self, digests: &[Digest]) -> Result<Vec<Digest>, BlobError> {
        let lacking = self.local.find_missing(digests)?;
        if lacking.is_empty() { Ok(lacking) } else { self.shared.find_missing(&lacking) }
    }
}

impl fmt::Debug for CombinedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CombinedStore").field("settings", &self.settings).finish_non_exhaustive()
    }
}
