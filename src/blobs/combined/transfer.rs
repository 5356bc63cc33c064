//! Transfers on threads of their own, so that nobody waits longer for one than is due.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::blobs::{BlobError, TransportFault};
use crate::model::Digest;

/// Why a transfer was dropped.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum Dropped {
    /// A store refused or failed.
    #[error("{0}")]
    Failed(#[source] Arc<BlobError>),
    /// It wasn't done in its time.
    #[error("it took too long")]
    Late,
    /// Its thread ended without a result, or could not be started.
    #[error("it was interrupted")]
    Died,
}

impl Dropped {
    /// What it is to someone who needs the result.
    pub(super) fn into_error(self, operation: &'static str) -> BlobError {
        let fault = match self {
            Self::Failed(error) => return Arc::try_unwrap(error).unwrap_or_else(|shared| shared.again()),
            Self::Late => TransportFault::Deadline,
            Self::Died => TransportFault::Broken(None),
        };
        BlobError::Transport { operation, fault }
    }
}

type Outcome<T> = Result<T, Dropped>;

/// What a transfer may still do: once nobody waits for it, its source fails.
#[derive(Clone, Default)]
pub(super) struct Limit(Arc<AtomicBool>);

impl Limit {
    /// The source as the transfer may read it.
    pub(super) fn reader(&self, source: impl Read + Send + 'static) -> Box<dyn Read + Send> {
        Box::new(Limited { limit: self.clone(), source })
    }

    fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Limited<R> {
    limit: Limit,
    source: R,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.limit.0.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.source.read(buffer)
    }
}

/// A transfer that several may wait for. Locking: one mutex, for a look only.
struct Transfer<T> {
    outcome: Mutex<Option<Outcome<T>>>,
    changed: Condvar,
    limit: Limit,
}

impl<T> Default for Transfer<T> {
    fn default() -> Self {
        Self { outcome: Mutex::new(None), changed: Condvar::new(), limit: Limit::default() }
    }
}

impl<T: Clone> Transfer<T> {
    /// Sets the outcome, if there is none yet.
    fn settle(&self, outcome: Outcome<T>) {
        self.limit.end();
        self.outcome.lock().get_or_insert(outcome);
        self.changed.notify_all();
    }

    /// Waits for the outcome; none after the timeout.
    fn wait(&self, timeout: Duration) -> Option<Outcome<T>> {
        let mut outcome = self.outcome.lock();
        if outcome.is_none() {
            self.changed.wait_while_for(&mut outcome, |outcome| outcome.is_none(), timeout);
        }
        outcome.clone()
    }
}

/// The transfers in one direction that are going on. Locking: one mutex, for a look only.
pub(super) struct Transfers<T>(Mutex<HashMap<Digest, Arc<Transfer<T>>>>);

impl<T> Default for Transfers<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone + Send + 'static> Transfers<T> {
    /// Waits for the transfer of a digest, and begins it if nobody has.
    ///
    /// A transfer that is late is dropped for all who wait for it, and the next one begins anew.
    pub(super) fn join(
        self: &Arc<Self>,
        digest: Digest,
        timeout: Duration,
        work: impl FnOnce(&Limit) -> Result<T, BlobError> + Send + 'static,
    ) -> Outcome<T> {
        let mut is_leader = false;
        let transfer = Arc::clone(self.0.lock().entry(digest).or_insert_with(|| {
            is_leader = true;
            Arc::default()
        }));
        let place = Place { transfers: Some((Arc::clone(self), digest)), transfer };
        if is_leader {
            begin(place.clone(), work);
        }
        wait(&place, timeout)
    }
}

#[cfg(test)]
impl<T> Transfers<T> {
    /// How many hold the transfer of a digest, this table included.
    pub(super) fn holders(&self, digest: &Digest) -> usize {
        self.0.lock().get(digest).map_or(0, Arc::strong_count)
    }
}

/// Does a transfer that nobody can join.
pub(super) fn alone(
    timeout: Duration,
    work: impl FnOnce(&Limit) -> Result<(), BlobError> + Send + 'static,
) -> Outcome<()> {
    let place = Place { transfers: None, transfer: Arc::default() };
    begin(place.clone(), work);
    wait(&place, timeout)
}

/// A transfer and where others find it.
#[derive(Clone)]
struct Place<T: Clone> {
    transfers: Option<(Arc<Transfers<T>>, Digest)>,
    transfer: Arc<Transfer<T>>,
}

impl<T: Clone> Place<T> {
    /// Sets the outcome; nobody finds the transfer by then, so that who comes later begins another.
    fn settle(&self, outcome: Outcome<T>) {
        if let Some((transfers, digest)) = &self.transfers {
            let mut places = transfers.0.lock();
            if places.get(digest).is_some_and(|found| Arc::ptr_eq(found, &self.transfer)) {
                places.remove(digest);
            }
        }
        self.transfer.settle(outcome);
    }
}

/// Settles a transfer in any case: whoever waits must not wait for a thread that is gone.
struct Working<T: Clone>(Place<T>);

impl<T: Clone> Drop for Working<T> {
    fn drop(&mut self) {
        self.0.settle(Err(Dropped::Died));
    }
}

fn begin<T: Clone + Send + 'static>(
    place: Place<T>,
    work: impl FnOnce(&Limit) -> Result<T, BlobError> + Send + 'static,
) {
    let working = Working(place);
    let body = move || {
        let done = work(&working.0.transfer.limit);
        working.0.settle(done.map_err(|error| Dropped::Failed(Arc::new(error))));
    };
    if let Err(error) = thread::Builder::new().name("transfer".into()).spawn(body) {
        tracing::warn!(%error, "can't start a thread for a transfer");
    }
}

fn wait<T: Clone>(place: &Place<T>, timeout: Duration) -> Outcome<T> {
    place.transfer.wait(timeout).unwrap_or_else(|| {
        place.settle(Err(Dropped::Late));
        // It may have been done at the last moment.
        place.transfer.outcome.lock().clone().unwrap_or(Err(Dropped::Late))
    })
}
