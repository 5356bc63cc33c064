use std::ffi::OsStr;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::error::{AppError, Result};
use crate::clock::Clock;
use crate::engine::Layout;
use crate::sys::NameWatch;

/// How often saves are published and grouped syncs done.
const TICK: Duration = Duration::from_millis(200);
/// How long the watch waits before it looks whether it shall end.
const WATCH: Duration = Duration::from_millis(250);

/// Makes a watch on a name in a directory.
type MakeWatch = fn(&Path, &OsStr) -> io::Result<NameWatch>;

/// What the timers drive.
pub(super) trait Driven: Send + Sync + 'static {
    /// Does what is due.
    fn tick(&self);
    /// Follows what another process has committed.
    fn wake(&self);
    /// Renews what time renews; it may hang, and keeps nothing else waiting.
    fn renew(&self);
    /// Follows the policy, whose file somebody has just written.
    fn policy_written(&self);
}

/// The threads that drive a mount when no request does.
pub(super) struct Timers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Timers {
    /// Starts the threads that tick, renew, and watch for other processes' commits and for another policy.
    pub(super) fn start<D: Driven>(driven: &Arc<D>, layout: &Layout, clock: Arc<dyn Clock>) -> Result<Self> {
        let mut timers = Self { stop: Arc::default(), threads: Vec::new() };
        timers.repeat("tick", driven, D::tick, Arc::clone(&clock))?;
        timers.repeat("renew", driven, D::renew, clock)?;
        timers.watch("wake", driven, D::wake, (&layout.wake(), NameWatch::new))?;
        timers.watch("policy", driven, D::policy_written, (&layout.config(), NameWatch::of_whole))?;
        Ok(timers)
    }

    /// Does something each [`TICK`].
    fn repeat<D: Driven>(
        &mut self,
        name: &'static str,
        driven: &Arc<D>,
        body: fn(&D),
        clock: Arc<dyn Clock>,
    ) -> Result<()> {
        let (driven, stop) = (Arc::clone(driven), Arc::clone(&self.stop));
        self.spawn(name, move || {
            while !stop.load(Ordering::Relaxed) {
                guarded(name, || body(&driven));
                clock.sleep(TICK);
            }
        })
    }

    /// Does something whenever a file is touched; where it can't be watched, what each tick looks for has to do.
    fn watch<D: Driven>(
        &mut self,
        name: &'static str,
        driven: &Arc<D>,
        body: fn(&D),
        (file, watch): (&Path, MakeWatch),
    ) -> Result<()> {
        let (Some(dir), Some(file_name)) = (file.parent(), file.file_name()) else { return Ok(()) };
        match watch(dir, file_name) {
            Ok(watch) => {
                let (driven, stop) = (Arc::clone(driven), Arc::clone(&self.stop));
                self.spawn(name, move || watch_until(&stop, name, || body(&driven), &watch))
            }
            Err(error) => {
                tracing::warn!(%error, "can't watch {}: every tick looks at it", file.display());
                Ok(())
            }
        }
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

fn watch_until(stop: &AtomicBool, name: &str, body: impl Fn(), watch: &NameWatch) {
    while !stop.load(Ordering::Relaxed) {
        match watch.wait(WATCH) {
            Ok(true) => guarded(name, &body),
            Ok(false) => {}
            Err(error) => {
                return tracing::warn!(%error, name, "a watch failed: every tick looks instead");
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

        fn renew(&self) {
            let _ = self.0.send("renew");
        }

        fn policy_written(&self) {
            let _ = self.0.send("policy");
        }
    }

    #[test]
    fn what_is_touched_wakes_and_a_panic_stops_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        std::fs::create_dir_all(layout.run()).unwrap();
        let (sender, events) = mpsc::channel();
        let clock = Arc::new(SystemClock::new().unwrap());
        let timers = Timers::start(&Arc::new(Counter(sender)), &layout, clock).unwrap();
        std::fs::write(layout.wake(), "").unwrap();
        std::fs::write(layout.config(), "").unwrap();
        let mut awaited = vec!["tick", "tick", "renew", "renew", "wake", "policy"];
        while !awaited.is_empty() {
            let event = events.recv_timeout(Duration::from_secs(10)).expect("BUG: the timers stopped");
            if let Some(position) = awaited.iter().position(|awaited| *awaited == event) {
                awaited.remove(position);
            }
        }
        drop(timers);
        assert!(events.into_iter().count() < 20, "the threads have ended, or the channel would stay open");
    }
}
