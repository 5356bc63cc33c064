use std::sync::Arc;
use std::time::Duration;

use super::Workspace;
use crate::clock::Clock;
use crate::sys::NameWatch;

/// Waits for what others commit.
pub struct Watch {
    /// None where the system gives none: then time alone tells.
    watch: Option<NameWatch>,
    clock: Arc<dyn Clock>,
}

impl Watch {
    /// Waits at most `timeout_ms` milliseconds for a commit of which somebody is to know at once. Some commits are told to
    /// nobody, so that whoever waits looks again after some time all the same.
    pub fn wait(&self, timeout_ms: i64) {
        let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        let watched = self.watch.as_ref().map(|watch| watch.wait(timeout));
        if !matches!(watched, Some(Ok(_))) {
            self.clock.sleep(timeout);
        }
    }
}

impl Workspace {
    /// Begins to watch for commits: none after this is missed.
    pub fn watch(&self) -> Watch {
        let wake = self.layout().wake();
        let watch = match (wake.parent(), wake.file_name()) {
            (Some(run), Some(name)) => NameWatch::new(run, name).ok(),
            _ => None,
        };
        Watch { watch, clock: self.shared_clock() }
    }
}
