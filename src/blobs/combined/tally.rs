use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;

use parking_lot::Mutex;

use super::transfer::Dropped;
use crate::clock::Clock;
use crate::model::Digest;

/// Between two warnings of one operation.
const WARNING_PAUSE_MS: i64 = 60_000;

/// What a [`CombinedStore`](super::CombinedStore) has done since it was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemoteTally {
    /// Blobs that were stored here, those that were here already and those written back included.
    pub puts: u64,
    /// Blobs that were read from here.
    pub gets: u64,
    /// Uploads that were dropped: `remote_failures{put}`.
    pub put_failures: u64,
    /// Blobs that were read from the shared store and could not be kept: `remote_failures{write_back}`.
    pub write_back_failures: u64,
    /// Why the last upload was dropped.
    pub last_put_failure: Option<String>,
}

/// What can be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Dropping {
    Put,
    WriteBack,
}

impl Dropping {
    fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::WriteBack => "write_back",
        }
    }
}

/// Counts, and warns seldom. Locking: one mutex, for a look only.
pub(super) struct Tallies {
    clock: Arc<dyn Clock>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    tally: RemoteTally,
    /// When each operation was last warned of, by the boot's clock.
    warned_boot_ms: HashMap<Dropping, i64>,
}

impl Tallies {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, inner: Mutex::default() }
    }

    pub(super) fn read(&self) -> RemoteTally {
        self.inner.lock().tally.clone()
    }

    pub(super) fn count_put(&self) {
        self.inner.lock().tally.puts += 1;
    }

    pub(super) fn count_get(&self) {
        self.inner.lock().tally.gets += 1;
    }

    /// Counts a dropped transfer, and warns of it unless its operation was warned of in the last minute.
    pub(super) fn note_dropped(&self, what: Dropping, digest: &Digest, why: &Dropped) {
        if what == Dropping::Put {
            self.inner.lock().tally.last_put_failure = Some(why.to_string());
        }
        if self.is_to_warn(what) {
            let operation = what.name();
            tracing::warn!(operation, %digest, error = why as &dyn Error, "a transfer was dropped");
        }
    }

    fn is_to_warn(&self, what: Dropping) -> bool {
        let now_ms = self.clock.now().boot_ms;
        let mut inner = self.inner.lock();
        match what {
            Dropping::Put => inner.tally.put_failures += 1,
            Dropping::WriteBack => inner.tally.write_back_failures += 1,
        }
        let warned_ms = inner.warned_boot_ms.get(&what);
        let is_due = warned_ms.is_none_or(|warned_ms| now_ms - warned_ms >= WARNING_PAUSE_MS);
        if is_due {
            inner.warned_boot_ms.insert(what, now_ms);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blobs::digest_of;
    use crate::clock::ManualClock;

    /// Each is counted; one a minute and operation is told.
    #[test]
    fn a_store_that_is_down_is_warned_of_once_a_minute() {
        let clock = Arc::new(ManualClock::new());
        let tallies = Tallies::new(clock.clone());
        let warned = |what| tallies.is_to_warn(what);
        assert_eq!([Dropping::Put, Dropping::Put, Dropping::WriteBack].map(warned), [true, false, true]);
        clock.advance_ms(WARNING_PAUSE_MS - 1);
        assert!(!warned(Dropping::Put));
        clock.advance_ms(1);
        assert_eq!([Dropping::Put, Dropping::Put, Dropping::WriteBack].map(warned), [true, false, true]);
        tallies.note_dropped(Dropping::Put, &digest_of(b""), &Dropped::Late);
        let last_put_failure = Some("it took too long".to_owned());
        let expected = RemoteTally {
            put_failures: 6,
            write_back_failures: 2,
            last_put_failure,
            ..RemoteTally::default()
        };
        assert_eq!(tallies.read(), expected);
    }
}
