use std::io::Read;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Blob, BlobError, BlobStore, TransportFault};
use crate::clock::Clock;
use crate::model::Digest;

/// For how long a store that could not be reached isn't asked again.
const PAUSE_MS: i64 = 5_000;

/// A store elsewhere that isn't asked again for some seconds after it could not be reached.
///
/// Whoever asks meanwhile gets the same failure at once, so that a dead server doesn't cost each caller its deadline.
pub struct PausingStore {
    store: Arc<dyn BlobStore>,
    clock: Arc<dyn Clock>,
    /// Until when (by the boot's clock) nothing is asked, and why. Locked for a look only.
    pause: Mutex<Option<(i64, TransportFault)>>,
}

impl PausingStore {
    /// The same store, with pauses.
    pub fn new(store: Arc<dyn BlobStore>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, pause: Mutex::default() }
    }

    fn ask<T>(
        &self,
        operation: &'static str,
        question: impl FnOnce(&dyn BlobStore) -> Result<T, BlobError>,
    ) -> Result<T, BlobError> {
        if let Some((until_ms, fault)) = *self.pause.lock()
            && self.clock.now().boot_ms < until_ms
        {
            return Err(BlobError::Transport { operation, fault });
        }
        let answer = question(&*self.store);
        let fault = answer.as_ref().err().and_then(is_unreachable);
        *self.pause.lock() = fault.map(|fault| (self.clock.now().boot_ms.saturating_add(PAUSE_MS), fault));
        answer
    }
}

/// Whether an error is one that the next request would have to wait for, too. An answer, even a refusal, is none; nor is
/// a body that was broken off, which may be a refusal of that body.
fn is_unreachable(error: &BlobError) -> Option<TransportFault> {
    match error {
        BlobError::Transport { fault, .. } => match fault {
            TransportFault::Deadline
            | TransportFault::Connect(_)
            | TransportFault::Tls
            | TransportFault::Broken(_) => Some(*fault),
            TransportFault::Status(_)
            | TransportFault::Unsent(_)
            | TransportFault::TooLarge
            | TransportFault::BadAnswer => None,
        },
        _ => None,
    }
}

impl BlobStore for PausingStore {
    fn put(&self, source: &mut dyn Read) -> Result<(Digest, u64), BlobError> {
        self.ask("take a blob", |store| store.put(source))
    }

    fn put_known(&self, digest: &Digest, size: u64, source: Box<dyn Read + Send>) -> Result<(), BlobError> {
        self.ask("take a blob", |store| store.put_known(digest, size, source))
    }

    fn open(&self, digest: &Digest) -> Result<Blob, BlobError> {
        self.ask("send a blob", |store| store.open(digest))
    }

    fn has(&self, digest: &Digest) -> Result<bool, BlobError> {
        self.ask("look for a blob", |store| store.has(digest))
    }

    fn find_missing(&self, digests: &[Digest]) -> Result<Vec<Digest>, BlobError> {
        if digests.is_empty() {
            return Ok(Vec::new());
        }
        self.ask("look for blobs", |store| store.find_missing(digests))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::blobs::{MemoryStore, contract, digest_of};
    use crate::clock::ManualClock;

    /// Fails each request with one fault.
    struct Failing(TransportFault, AtomicUsize);

    impl Failing {
        fn fail<T>(&self) -> Result<T, BlobError> {
            self.1.fetch_add(1, Ordering::Relaxed);
            Err(BlobError::Transport { operation: "do it", fault: self.0 })
        }
    }

    impl BlobStore for Failing {
        fn put(&self, _source: &mut dyn Read) -> Result<(Digest, u64), BlobError> {
            self.fail()
        }

        fn open(&self, _digest: &Digest) -> Result<Blob, BlobError> {
            self.fail()
        }

        fn has(&self, _digest: &Digest) -> Result<bool, BlobError> {
            self.fail()
        }
    }

    #[test]
    fn a_store_with_pauses_keeps_the_contract() {
        contract::holds(|| PausingStore::new(Arc::new(MemoryStore::default()), Arc::new(ManualClock::new())));
    }

    /// Who can't be reached is left alone for some seconds; who answers, whatever it is, is asked again.
    #[test]
    fn only_a_store_that_cannot_be_reached_is_left_alone() {
        use TransportFault::*;
        let cases = [
            (Deadline, true),
            (Connect(None), true),
            (Tls, true),
            (Broken(None), true),
            (Status(503), false),
            (Unsent(None), false),
            (TooLarge, false),
            (BadAnswer, false),
        ];
        for (fault, pauses) in cases {
            let clock = Arc::new(ManualClock::new());
            let failing = Arc::new(Failing(fault, AtomicUsize::new(0)));
            let store = PausingStore::new(failing.clone(), clock.clone());
            let ask = || store.open(&digest_of(b"")).unwrap_err();
            let asked = || failing.1.load(Ordering::Relaxed);
            for _ in 0..3 {
                assert!(matches!(ask(), BlobError::Transport { fault: told, .. } if told == fault));
            }
            assert_eq!(asked(), if pauses { 1 } else { 3 }, "{fault:?}");
            clock.advance_ms(PAUSE_MS);
            let before = asked();
            ask();
            assert_eq!(asked(), before + 1, "{fault:?}");
        }
    }
}
