//! Time as an argument: the storage's clock and the wall clock behind one trait.

use std::time::Duration;

use crate::model::{Instant, Timestamp};
use crate::sys;

/// Tells the time; the only source of it below the command line.
pub trait Clock: Send + Sync {
    /// The present, by the boot's clock and the wall clock.
    fn now(&self) -> Instant;

    /// Lets `duration` pass.
    fn sleep(&self, duration: Duration);
}

/// The machine's own clocks: `CLOCK_BOOTTIME` with the kernel's boot id, and `CLOCK_REALTIME`.
#[derive(Debug, Clone)]
pub struct SystemClock {
    boot: i64,
}

impl SystemClock {
    /// Reads the boot id once.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self { boot: sys::boot_id()? })
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant { boot: self.boot, boot_ms: sys::boottime_ms(), wall: Timestamp(sys::realtime_ns()) }
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// A clock that stands still until it is moved, for tests.
#[derive(Debug)]
pub struct ManualClock {
    now: parking_lot::Mutex<Instant>,
}

impl ManualClock {
    /// Starts at a fixed point of 2026, in boot 1.
    pub fn new() -> Self {
        let wall = Timestamp(1_796_000_000_000_000_000);
        Self { now: parking_lot::Mutex::new(Instant { boot: 1, boot_ms: 1_000_000, wall }) }
    }

    /// Moves both clocks on.
    pub fn advance_ms(&self, ms: i64) {
        let mut now = self.now.lock();
        now.boot_ms += ms;
        now.wall.0 += ms * 1_000_000;
    }

    /// Sets the wall clock forward or back, and leaves the boot's clock alone.
    pub fn step_wall_ms(&self, ms: i64) {
        self.now.lock().wall.0 += ms * 1_000_000;
    }

    /// Starts another boot.
    pub fn reboot(&self) {
        let mut now = self.now.lock();
        now.boot += 1;
        now.boot_ms = 1_000;
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        *self.now.lock()
    }

    fn sleep(&self, duration: Duration) {
        self.advance_ms(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX));
    }
}
