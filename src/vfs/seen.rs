//! Which version each process last read of each artifact.
//!
//! A process that read version 7 and saves after version 8 was checked in would undo 8 without a word. Processes are
//! told apart by number and start time, since numbers are used again.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::Caller;
use crate::model::{Instant, Seq, VersionNumber};
use crate::sys::{self, ProcessKey};

/// How many readings are remembered. What is forgotten counts as never read: a save is then made on the head.
const CAPACITY: usize = 65_536;

/// How long a thread is taken for one of the same process without another look at `/proc`, in milliseconds. The kernel
/// gives a number to another process only when it has gone through all others.
const THREAD_TRUST_MS: i64 = 500;

/// What a process knows of an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// It has read this version.
    Version(VersionNumber),
    /// It has written the checkout's draft, and knows what that becomes.
    Draft,
}

/// What processes have read. Locking: two mutexes, each held for a look only, never both.
#[derive(Debug, Default)]
pub(super) struct SeenVersions {
    seen: Mutex<HashMap<(ProcessKey, Seq), Known>>,
    threads: Mutex<HashMap<u32, (ProcessKey, i64)>>,
}

impl SeenVersions {
    /// Notes that the caller's process reads a version now.
    pub fn note(&self, caller: &Caller, artifact: Seq, version: Option<VersionNumber>, now: Instant) {
        if let Some(version) = version {
            self.insert(caller, artifact, Known::Version(version), now);
        }
    }

    /// Notes that the caller's process has written the checkout's draft.
    pub fn note_author(&self, caller: &Caller, artifact: Seq, now: Instant) {
        self.insert(caller, artifact, Known::Draft, now);
    }

    /// The draft of an artifact became a version: its authors know it.
    pub fn checked_in(&self, artifact: Seq, version: VersionNumber) {
        for ((_, of), known) in self.seen.lock().iter_mut() {
            if *of == artifact && *known == Known::Draft {
                *known = Known::Version(version);
            }
        }
    }

    fn insert(&self, caller: &Caller, artifact: Seq, known: Known, now: Instant) {
        let Some(process) = self.process(caller, now) else { return };
        let mut seen = self.seen.lock();
        if seen.len() >= CAPACITY {
            seen.clear();
        }
        seen.insert((process, artifact), known);
    }

    /// The version that the caller's process last read.
    pub fn by(&self, caller: &Caller, artifact: Seq, now: Instant) -> Option<VersionNumber> {
        match self.known(caller, artifact, now)? {
            Known::Version(version) => Some(version),
            Known::Draft => None,
        }
    }

    /// Whether the caller's process knows the checkout's draft.
    pub fn is_author(&self, caller: &Caller, artifact: Seq, now: Instant) -> bool {
        self.known(caller, artifact, now) == Some(Known::Draft)
    }

    fn known(&self, caller: &Caller, artifact: Seq, now: Instant) -> Option<Known> {
        if self.seen.lock().is_empty() {
            return None;
        }
        let process = self.process(caller, now)?;
        self.seen.lock().get(&(process, artifact)).copied()
    }

    fn process(&self, caller: &Caller, now: Instant) -> Option<ProcessKey> {
        let known = self.threads.lock().get(&caller.pid).copied();
        if let Some((process, at_ms)) = known
            && now.boot_ms - at_ms < THREAD_TRUST_MS
        {
            return Some(process);
        }
        let process = sys::process_of_thread(caller.pid).ok()?;
        let mut threads = self.threads.lock();
        if threads.len() >= CAPACITY {
            threads.clear();
        }
        threads.insert(caller.pid, (process, now.boot_ms));
        Some(process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, ManualClock};

    fn this_process() -> Caller {
        Caller { uid: 0, gid: 0, pid: std::process::id() }
    }

    /// A reading is remembered while there is room, and forgotten then: the memory doesn't grow.
    #[test]
    fn readings_are_forgotten_when_there_are_too_many() {
        let (seen, now) = (SeenVersions::default(), ManualClock::new().now());
        let (caller, version) = (this_process(), Some(VersionNumber(1)));
        (0..65_000).for_each(|artifact| seen.note(&caller, Seq(artifact), version, now));
        assert_eq!(seen.by(&caller, Seq(0), now), version);
        (65_000..65_600).for_each(|artifact| seen.note(&caller, Seq(artifact), version, now));
        assert_eq!((seen.by(&caller, Seq(0), now), seen.by(&caller, Seq(65_599), now)), (None, version));
        assert!(seen.seen.lock().len() <= CAPACITY);
    }

    /// Authors know what their draft becomes; who has read something else since, or nothing, doesn't.
    #[test]
    fn authors_learn_their_version() {
        let (seen, now) = (SeenVersions::default(), ManualClock::new().now());
        let caller = this_process();
        seen.note(&caller, Seq(1), Some(VersionNumber(1)), now);
        seen.note_author(&caller, Seq(1), now);
        assert!(seen.is_author(&caller, Seq(1), now) && !seen.is_author(&caller, Seq(2), now));
        seen.note(&caller, Seq(2), Some(VersionNumber(1)), now);
        seen.checked_in(Seq(1), VersionNumber(2));
        seen.checked_in(Seq(2), VersionNumber(2));
        let known = [1, 2, 3].map(|artifact| seen.by(&caller, Seq(artifact), now));
        assert_eq!(known, [Some(VersionNumber(2)), Some(VersionNumber(1)), None]);
    }
}
