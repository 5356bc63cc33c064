//! Faults for tests: each call that a store makes on its files can fail, or be the last one before a crash.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

/// One kind of call that a store makes on its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Opens what is at an address.
    Open,
    /// Reads a blob.
    Read,
    /// Looks whether something is at an address.
    Probe,
    /// Creates a temporary file in staging.
    Create,
    /// Writes bytes to a temporary file.
    Write,
    /// Sets the mode of a staging file to that of blobs.
    SetMode,
    /// Syncs a file.
    SyncFile,
    /// Syncs the whole filesystem.
    SyncFilesystem,
    /// Makes a directory of the store.
    MakeDir,
    /// Freshens the mtime of a blob that was put again.
    Touch,
    /// Renames a staging file to its address.
    Rename,
    /// Syncs a directory.
    SyncDir,
    /// Gives a blob its staging name back after a failed sync.
    Link,
    /// Removes a staging file.
    Remove,
    /// Makes the file of a lock, a claim or the backup marker, without a name.
    CreateLock,
    /// Writes its owner's token into it.
    WriteLock,
    /// Sets its times, at the start and at each heartbeat.
    TouchLock,
    /// Gives it its name: from here on it is held.
    NameLock,
    /// Removes one of them.
    RemoveLock,
    /// Moves the lock of a dead holder away.
    MoveLock,
    /// Gives a lock that was moved away by mistake its name back.
    HandBackLock,
    /// Removes a blob that is swept.
    Sweep,
}

/// Decides before and after each step whether it goes on.
pub trait Faults: Send + Sync {
    /// An error here takes the step's place.
    fn before(&self, step: Step) -> io::Result<()>;

    /// An error here is told although the step was done.
    fn after(&self, step: Step) -> io::Result<()>;

    /// Asked in the middle of each write: with an error, half of the bytes are written before it.
    fn cut(&self) -> Option<io::Error> {
        None
    }
}

/// Runs one step as the faults, if there are any, let it.
pub(super) fn run_step<T>(
    faults: Option<&Arc<dyn Faults>>,
    step: Step,
    action: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let Some(faults) = faults else { return action() };
    faults.before(step)?;
    let done = action()?;
    faults.after(step)?;
    Ok(done)
}

/// What happens at the step of a [`FaultPlan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// This step fails with this `errno`, and the later ones go on.
    Error(i32),
    /// If this step writes, it fails with this `errno` after half of its bytes; the later ones go on.
    ShortWrite(i32),
    /// The program stops before the step: nothing more reaches the disk.
    CrashBefore,
    /// The program stops after the step: nothing more reaches the disk.
    CrashAfter,
}

/// Counts steps and makes one of them fail.
#[derive(Debug, Default)]
pub struct FaultPlan(Mutex<Plan>);

#[derive(Debug, Default)]
struct Plan {
    seen: Vec<Step>,
    fault: Option<(usize, Fault)>,
    crashed: bool,
}

impl FaultPlan {
    /// A plan without a fault: it only counts.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts to count anew, with a fault at the step of this number (from 0).
    pub fn arm(&self, number: usize, fault: Fault) {
        *self.0.lock() = Plan { fault: Some((number, fault)), ..Plan::default() };
    }

    /// The steps that were begun since the plan was made or armed.
    pub fn seen(&self) -> Vec<Step> {
        self.0.lock().seen.clone()
    }
}

impl Faults for FaultPlan {
    fn before(&self, step: Step) -> io::Result<()> {
        let mut plan = self.0.lock();
        if plan.crashed {
            return Err(crash());
        }
        let number = plan.seen.len();
        plan.seen.push(step);
        match plan.fault {
            Some((at, Fault::Error(errno))) if at == number => Err(io::Error::from_raw_os_error(errno)),
            Some((at, Fault::CrashBefore)) if at == number => {
                plan.crashed = true;
                Err(crash())
            }
            _ => Ok(()),
        }
    }

    fn cut(&self) -> Option<io::Error> {
        let plan = self.0.lock();
        match plan.fault {
            Some((at, Fault::ShortWrite(errno))) if at + 1 == plan.seen.len() => {
                Some(io::Error::from_raw_os_error(errno))
            }
            _ => None,
        }
    }

    fn after(&self, _step: Step) -> io::Result<()> {
        let mut plan = self.0.lock();
        // Steps may run side by side: the first one to end at or after that number is the last.
        if let Some((at, Fault::CrashAfter)) = plan.fault {
            plan.crashed |= plan.seen.len() > at;
        }
        if plan.crashed { Err(crash()) } else { Ok(()) }
    }
}

fn crash() -> io::Error {
    io::Error::other("the program has stopped (a test's fault)")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Does something, once, before or after the first step of a kind.
    struct At<F> {
        step: Step,
        is_after: bool,
        action: Mutex<Option<F>>,
    }

    pub fn before<F: FnOnce() -> io::Result<()> + Send + 'static>(step: Step, action: F) -> Arc<dyn Faults> {
        Arc::new(At { step, is_after: false, action: Mutex::new(Some(action)) })
    }

    pub fn after<F: FnOnce() -> io::Result<()> + Send + 'static>(step: Step, action: F) -> Arc<dyn Faults> {
        Arc::new(At { step, is_after: true, action: Mutex::new(Some(action)) })
    }

    impl<F: FnOnce() -> io::Result<()> + Send> At<F> {
        fn run(&self, is_after: bool, step: Step) -> io::Result<()> {
            if (step, is_after) != (self.step, self.is_after) {
                return Ok(());
            }
            let action = self.action.lock().take();
            action.map_or(Ok(()), |action| action())
        }
    }

    impl<F: FnOnce() -> io::Result<()> + Send> Faults for At<F> {
        fn before(&self, step: Step) -> io::Result<()> {
            self.run(false, step)
        }

        fn after(&self, step: Step) -> io::Result<()> {
            self.run(true, step)
        }
    }
}
