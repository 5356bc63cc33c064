//! Which version each process last read of each artifact.
//!
//! A process that read version 7 and saves after version 8 was checked in would undo 8 without a word. Processes are
//! told apart by number and start time, since numbers are used again.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::Caller;
use crate::model::{Seq, VersionNumber};
use crate::sys::{self, ProcessKey};

/// How many readings are remembered. What is forgotten counts as never read: a save is then made on the head.
const CAPACITY: usize = 65_536;

/// What processes have read. Locking: one mutex, held for a look only.
#[derive(Debug, Default)]
pub(super) struct SeenVersions {
    seen: Mutex<HashMap<(ProcessKey, Seq), VersionNumber>>,
}

impl SeenVersions {
    /// Notes that the caller's process reads a version now.
    pub fn note(&self, caller: &Caller, artifact: Seq, version: Option<VersionNumber>) {
        let (Some(version), Ok(process)) = (version, sys::process_of_thread(caller.pid)) else { return };
        let mut seen = self.seen.lock();
        if seen.len() >= CAPACITY {
            seen.clear();
        }
        seen.insert((process, artifact), version);
    }

    /// The version that the caller's process last read.
    pub fn by(&self, caller: &Caller, artifact: Seq) -> Option<VersionNumber> {
        if self.seen.lock().is_empty() {
            return None;
        }
        let process = sys::process_of_thread(caller.pid).ok()?;
        self.seen.lock().get(&(process, artifact)).copied()
    }
}
