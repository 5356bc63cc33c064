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
    /// How many addresses this thread has, and how many gates.
    static HELD: Cell<(u8, u8)> = const { Cell::new((0, 0)) };
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
    Some(Turn::begin(key))
}

impl Turn {
    fn begin(key: Key) -> Self {
        note_held(key.subject, u8::wrapping_add);
        Self { key, _of_this_thread: PhantomData }
    }

    /// Takes another address of the same directory, to go on there; none, if that would be a wait.
    pub(super) fn beside(&self, subject: Subject) -> Option<Self> {
        let key = Key { subject, ..self.key };
        TAKEN.lock().insert(key).then(|| Self::begin(key))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TAKEN.lock().remove(&self.key);
        ENDED.notify_all();
        note_held(self.key.subject, u8::wrapping_sub);
    }
}

fn is_in_order(subject: Subject) -> bool {
    let (addresses, gates) = HELD.get();
    gates == 0 && (subject == Subject::Gate || addresses == 0)
}

fn note_held(subject: Subject, change: fn(u8, u8) -> u8) {
    let (addresses, gates) = HELD.get();
    HELD.set(match subject {
        Subject::Gate => (addresses, change(gates, 1)),
        Subject::Address(_) => (change(addresses, 1), gates),
    });
}
