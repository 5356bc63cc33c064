use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Something that shows now and then that its holder lives.
pub(super) trait Beating: Send + Sync {
    /// Shows it once; false, if that is over.
    fn beat(&self) -> bool;
}

/// Beats for all that is held, with one thread, which ends when it finds nothing to beat for.
///
/// The thread waits by the machine's time; what a beat means is decided by the holder's clock.
pub(super) struct Heart {
    name: &'static str,
    every: Duration,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Held to change a field, never across a beat.
    state: Mutex<State>,
    /// The heart was dropped.
    stopped: Condvar,
}

#[derive(Default)]
struct State {
    beating: HashMap<u64, Arc<dyn Beating>>,
    next: u64,
    is_running: bool,
    is_stopped: bool,
}

impl Heart {
    /// A heart whose thread will have this name, and beat as often.
    pub(super) fn new(name: &'static str, every: Duration) -> Self {
        Self { name, every, shared: Arc::default() }
    }

    /// Beats from now on; returns what [`remove`](Self::remove) takes. Fails if no thread can be started.
    pub(super) fn add(&self, beating: Arc<dyn Beating>) -> io::Result<u64> {
        let mut state = self.shared.state.lock();
        if !state.is_running {
            let (shared, every) = (Arc::clone(&self.shared), self.every);
            thread::Builder::new().name(self.name.into()).spawn(move || shared.run(every))?;
            state.is_running = true;
        }
        let number = state.next;
        state.next += 1;
        state.beating.insert(number, beating);
        Ok(number)
    }

    /// Beats for another one instead.
    pub(super) fn replace(&self, number: u64, beating: Arc<dyn Beating>) {
        // Dropped after the mutex, as below.
        let _replaced = self.shared.state.lock().beating.insert(number, beating);
    }

    /// Ends the beats of one; one that is under way may still end after this.
    pub(super) fn remove(&self, number: u64) {
        // Dropped after the mutex: it may be the last reference.
        let _removed = self.shared.state.lock().beating.remove(&number);
    }

    /// What the thread does each time.
    #[cfg(test)]
    pub(super) fn beat_all(&self) {
        self.shared.beat_all();
    }

    #[cfg(test)]
    pub(super) fn is_running(&self) -> bool {
        self.shared.state.lock().is_running
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.shared.state.lock().is_stopped = true;
        self.shared.stopped.notify_all();
    }
}

impl Shared {
    fn run(&self, every: Duration) {
        loop {
            let mut state = self.state.lock();
            if !state.is_stopped {
                self.stopped.wait_for(&mut state, every);
            }
            if state.is_stopped || state.beating.is_empty() {
                state.is_running = false;
                return;
            }
            drop(state);
            self.beat_all();
        }
    }

    fn beat_all(&self) {
        let beating: Vec<_> =
            self.state.lock().beating.iter().map(|(number, one)| (*number, Arc::clone(one))).collect();
        for (number, one) in beating {
            if !one.beat() {
                let _removed = self.state.lock().beating.remove(&number);
            }
        }
    }
}
