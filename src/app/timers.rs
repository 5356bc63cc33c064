use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::error::{AppError, Result};
use crate::clock::Clock;
use crate::sys::NameWatch;

/// How often saves are published and grouped syncs done.
const TICK: Duration = Duration::from_millis(200);
/// How long the watch waits before it looks whether it shall end.
const WATCH: Duration = Duration::from_millis(250);
/// The file in `run/` that every committer touches.
const WAKE: &str = "wake";

/// What the timers drive.
pub(super) trait Driven: Send + Sync + 'static {
    /// Does what is due.
    fn tick(&self);
    /// Follows what another process has committed.
    fn wake(&self);
}

/// The threads that drive a mount when no request does.
pub(super) struct Timers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Timers {
    /// Starts a thread that ticks, and one that watches for other processes' commits.
    pub(super) fn start<D: Driven>(driven: &Arc<D>, run: &Path, clock: Arc<dyn Clock>) -> Result<Self> {
        let mut timers = Self { stop: Arc::default(), threads: Vec::new() };
        let (ticked, stop) = (Arc::clone(driven), Arc::clone(&timers.stop));
        timers.spawn("tick", move || tick_until(&stop, &*ticked, &*clock))?;
        match NameWatch::new(run, WAKE) {
            Ok(watch) => {
                let (woken, stop) = (Arc::clone(driven), Arc::clone(&timers.stop));
                timers.spawn("wake", move || watch_until(&stop, &*woken, &watch))?;
            }
            Err(error) => tracing::warn!(%error, "can't watch for commits: every tick looks for them"),
        }
        Ok(timers)
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = thread::Builder::new().name(name.into()).spawn(body);
        self.threads.push(thread.map_err(|source| AppError::Setup { doing: "start a thread", source })?);
        Ok(())
    }
}

impl Drop for Timers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic in it is logged where it happened.
            let _ = thread.join();
        }
    }
}

fn tick_until(stop: &AtomicBool, driven: &dyn Driven, clock: &dyn Clock) {
    while !stop.load(Ordering::Relaxed) {
        guarded("tick", || driven.tick());
        clock.sleep(TICK);
    }
}

fn watch_until(stop: &AtomicBool, driven: &dyn Driven, watch: &NameWatch) {
    while !stop.load(Ordering::Relaxed) {
        match watch.wait(WATCH) {
            Ok(true) => guarded("wake", || driven.wake()),
            Ok(false) => {}
            Err(error) => {
                return tracing::warn!(%error, "the watch for commits failed: every tick looks for them");
            }
        }
    }
}

/// Keeps a panic from ending the thread, and with it all publishing.
fn guarded(name: &str, body: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        tracing::error!(name, "BUG: a timer panicked; it goes on");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::clock::SystemClock;

    struct Counter(mpsc::Sender<&'static str>);

    impl Driven for Counter {
        fn tick(&self) {
            let _ = self.0.send("tick");
            panic!("on purpose");
        }

        fn wake(&self) {
            let _ = self.0.send("wake");
        }
    }

    #[test]
    fn a_commit_wakes_and_a_panic_stops_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (sender, events) = mpsc::channel();
        let clock = Arc::new(SystemClock::new().unwrap());
        let timers = Timers::start(&Arc::new(Counter(sender)), dir.path(), clock).unwrap();
        std::fs::write(dir.path().join(WAKE), "").unwrap();
        let mut seen = (0, 0);
        while seen.0 < 2 || seen.1 < 1 {
            match events.recv_timeout(Duration::from_secs(10)).expect("BUG: the timers stopped") {
                "tick" => seen.0 += 1,
                _ => seen.1 += 1,
            }
        }
        drop(timers);
        assert!(events.into_iter().count() < 10, "the threads have ended, or the channel would stay open");
    }
}
