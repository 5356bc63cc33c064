//! Who is at work on which lock in this process: threads take turns here before they contend with other processes.

use std::cell::Cell;
use std::collections::HashSet;
use std::marker::PhantomData;
use std::sync::LazyLock;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Subject;
use super::dir::FileId;

/// A lock of one directory of objects, by whatever path each store knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) objects: FileId,
    pub(super) subject: Subject,
}

/// All turns of the process. Held to change the set, never across anything else.
static TAKEN: LazyLock<Mutex<HashSet<Key>>> = LazyLock::new(Mutex::default);
/// A turn has ended.
static ENDED: Condvar = Condvar::new();

thread_local! {
    /// Whether this thread has an address, and whether it has the gate.
    static HELD: Cell<(bool, bool)> = const { Cell::new((false, false)) };
}

/// A thread's turn; it ends with this value, on the same thread.
pub(super) struct Turn {
    key: Key,
    _of_this_thread: PhantomData<*const ()>,
}

/// Waits until nobody else of this process has the lock; none, if that takes longer than `wait`.
pub(super) fn take(key: Key, wait: Duration) -> Option<Turn> {
    debug_assert!(is_in_order(key.subject), "BUG: an address comes before the gate, and one at a time");
    let mut taken = TAKEN.lock();
    if ENDED.wait_while_for(&mut taken, |taken| taken.contains(&key), wait).timed_out()
        && taken.contains(&key)
    {
        return None;
    }
    taken.insert(key);
    drop(taken);
    note_held(key.subject, true);
    Some(Turn { key, _of_this_thread: PhantomData })
}

impl Drop for Turn {
    fn drop(&mut self) {
        TAKEN.lock().remove(&self.key);
        ENDED.notify_all();
        note_held(self.key.subject, false);
    }
}

fn is_in_order(subject: Subject) -> bool {
    let (address, gate) = HELD.get();
    !gate && (subject == Subject::Gate || !address)
}

fn note_held(subject: Subject, is_held: bool) {
    let (address, gate) = HELD.get();
    HELD.set(if subject == Subject::Gate { (address, is_held) } else { (is_held, gate) });
}
