use std::io::{self, Write};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use super::super::error::{CommandError, Result, one_line};
use super::super::program::{as_shells_tell, failed};
use super::Asked;
use super::acquire::acquire_waiting;
use super::target::Targets;
use crate::cli::{LeaseRunArgs, OnLoss};
use crate::engine::{LeaseError, Workspace};
use crate::model::{Holder, ResourceKey};
use crate::sys::{self, EndSignal, ProcessHandle};

/// A lease is renewed when this part of its time has passed: two renewals may fail before it ends.
const RENEW_PART: i64 = 3;

/// How long a command that was told to end gets before it is killed.
const TERM_GRACE: Duration = Duration::from_secs(10);

/// Holds leases while a command runs, and ends as it does.
pub(super) fn run(asked: &Asked<'_>, args: &LeaseRunArgs) -> Result<()> {
    let targets = Targets::find_to_take(asked, &args.targets.targets, &args.targets.who)?;
    let acquisition = targets.acquisition(args.ttl.ttl_ms, None)?;
    let [program, arguments @ ..] = &args.command[..] else { unreachable!("BUG: the command is required") };
    // The leases are given back when the command has ended, whichever way that is.
    sys::hold_ending_signals().map_err(|source| failed(program, source))?;
    let had = owned(&targets)?;
    acquire_waiting(&targets.workspace, &acquisition, args.wait.wait_ms)?;
    let keys = targets.keys()?;
    let held = Held {
        workspace: &targets.workspace,
        holder: &targets.holder,
        keys: &keys,
        ttl_ms: args.ttl.ttl_ms.unwrap_or(targets.workspace.policy().leasing.ttl_ms),
    };
    let ran = held.run(Command::new(program).args(arguments), args.on_loss);
    // What was held before goes on being held: only what came with this run goes with it.
    let fresh: Vec<ResourceKey> = keys.iter().filter(|key| !had.contains(key)).cloned().collect();
    let released = targets.workspace.release(&fresh, &targets.holder);
    let status = ran.map_err(|source| failed(program, source))?;
    released?;
    if status == 0 { Ok(()) } else { Err(CommandError::Ended(status)) }
}

/// The resources that the holder has already.
fn owned(targets: &Targets) -> Result<Vec<ResourceKey>> {
    let mut owned = targets.keys()?;
    let mut kept = Vec::new();
    for key in owned.drain(..) {
        let mine = targets.workspace.lease(&key)?;
        if mine.is_some_and(|status| status.live && status.lease.holder == targets.holder) {
            kept.push(key);
        }
    }
    Ok(kept)
}

struct Held<'a> {
    workspace: &'a Workspace,
    holder: &'a Holder,
    keys: &'a [ResourceKey],
    ttl_ms: i64,
}

impl Held<'_> {
    fn run(&self, command: &mut Command, on_loss: OnLoss) -> io::Result<u8> {
        let mut child = sys::let_signals_end(command).spawn()?;
        let handle = ProcessHandle::of_child(&child)?;
        let (ended, end) = channel::<()>();
        std::thread::scope(|scope| {
            let (this, handle) = (self, &handle);
            scope.spawn(move || this.keep(&end, on_loss, handle));
            let status = sys::wait_handing_on(&mut child);
            drop(ended);
            status.map(as_shells_tell)
        })
    }

    /// Renews until the command has ended; a lease that is lost is told once, and is not asked for again.
    fn keep(&self, end: &Receiver<()>, on_loss: OnLoss, child: &ProcessHandle) {
        let pause = Duration::from_millis(u64::try_from(self.ttl_ms / RENEW_PART).unwrap_or(1).max(1));
        let mut valid_until_ms = self.workspace.now().boot_ms.saturating_add(self.ttl_ms);
        while end.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
            let began_ms = self.workspace.now().boot_ms;
            match self.workspace.renew(self.keys, self.holder, Some(self.ttl_ms)) {
                Ok(_) => valid_until_ms = began_ms.saturating_add(self.ttl_ms),
                // The catalog may be busy or full: it counts only when the time is over.
                Err(LeaseError::Engine(_)) if self.workspace.now().boot_ms < valid_until_ms => {}
                Err(error) => return self.lost(&error, end, on_loss, child),
            }
        }
    }

    fn lost(&self, error: &LeaseError, end: &Receiver<()>, on_loss: OnLoss, child: &ProcessHandle) {
        // Nobody is there to be told that standard error is closed.
        let _ = writeln!(io::stderr(), "leasehold: lost: {}", one_line(&error.to_string()));
        if on_loss == OnLoss::Kill {
            // One that has ended by itself is no longer there to be told.
            let _ = child.send(EndSignal::Terminate);
            if end.recv_timeout(TERM_GRACE) == Err(RecvTimeoutError::Timeout) {
                let _ = child.send(EndSignal::Kill);
            }
        }
    }
}
