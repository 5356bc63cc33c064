use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::time::interval;

use super::error::{AppError, Result};

/// How often is looked whether somebody else has unmounted.
const LOOK: Duration = Duration::from_millis(250);

/// A client's wish that the mount end.
#[derive(Debug)]
pub(super) struct StopRequest {
    /// At once, though files be open.
    pub(super) lazy: bool,
    /// Takes what could not be settled, or why the mount goes on.
    pub(super) reply: oneshot::Sender<std::result::Result<Vec<String>, String>>,
}

/// Why a mount ends.
#[derive(Debug)]
pub(super) enum Cause {
    /// A signal, by its name.
    Signal(&'static str),
    /// A client asks.
    Request(StopRequest),
    /// The mount is gone: umount(8), or fusermount3.
    Gone,
}

/// The signals that end a process of ours.
///
/// They are caught from the beginning of the process to its end, so that a second one breaks nothing off.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Catches the signals; needs a tokio runtime.
    pub(super) fn catch() -> Result<Self> {
        let catch = |kind| signal(kind).map_err(|source| AppError::Setup { doing: "catch signals", source });
        Ok(Self {
            terminate: catch(SignalKind::terminate())?,
            interrupt: catch(SignalKind::interrupt())?,
            hangup: catch(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one, and tells its name.
    pub(super) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}

/// All that can end a mount.
pub(super) struct Causes {
    signals: Signals,
    requests: mpsc::Receiver<StopRequest>,
}

impl Causes {
    /// Catches the signals; needs a tokio runtime.
    pub(super) fn new(requests: mpsc::Receiver<StopRequest>) -> Result<Self> {
        Ok(Self { signals: Signals::catch()?, requests })
    }

    /// Waits for the next cause.
    ///
    /// `ended` tells whether the mount is gone.
    pub(super) async fn next(&mut self, ended: impl Fn() -> bool) -> Cause {
        tokio::select! {
            name = self.signals.next() => Cause::Signal(name),
            Some(request) = self.requests.recv() => Cause::Request(request),
            () = gone(ended) => Cause::Gone,
        }
    }

    /// Tells clients, now and later, that the mount is ending.
    pub(super) fn refuse_requests(&mut self) {
        self.requests.close();
        // A request that is dropped is refused.
        while self.requests.try_recv().is_ok() {}
    }

    /// Waits for a signal alone.
    pub(super) async fn next_signal(&mut self) -> &'static str {
        self.signals.next().await
    }
}

async fn gone(ended: impl Fn() -> bool) {
    let mut looks = interval(LOOK);
    while !ended() {
        looks.tick().await;
    }
}
