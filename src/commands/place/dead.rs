//! Mounts that nobody serves any more.

use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use super::{Context, Mount};
use crate::sys;

/// How long a mount may take to answer before its daemon is looked at.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether nobody serves a mount any more.
///
/// One whose daemon was killed while the kernel waited for it and it for the kernel answers nobody, and keeps all who
/// ask it waiting: it is ended here. One whose daemon is only stopped is not dead.
pub fn is_dead(context: &Context, mount: &Mount) -> bool {
    ask(&mount.mountpoint).unwrap_or_else(|| {
        let abandoned = is_abandoned(context, mount);
        if abandoned {
            end(mount);
        }
        abandoned
    })
}

/// Whether a mount answers that its daemon is gone; none if it answers nothing. Its attributes may be in the kernel's
/// cache; opening it asks the daemon.
fn ask(mountpoint: &Path) -> Option<bool> {
    let (answer, answered) = channel();
    let mountpoint = mountpoint.to_owned();
    thread::spawn(move || {
        let dead = std::fs::read_dir(mountpoint).is_err_and(|error| sys::is_dead_mount(&error));
        // Nobody listens any more if it took too long.
        let _ = answer.send(dead);
    });
    answered.recv_timeout(PATIENCE).ok()
}

/// A workspace that can't be opened knows of nobody.
fn is_abandoned(context: &Context, mount: &Mount) -> bool {
    let workspace = context.open(&mount.source);
    workspace.is_ok_and(|workspace| workspace.is_abandoned(&mount.mountpoint).unwrap_or(false))
}

/// Where that is not permitted, the mount can be taken out of the tree nonetheless.
fn end(mount: &Mount) {
    if let Err(error) = sys::abort_fuse(&mount.mountpoint, &mount.device) {
        tracing::warn!(%error, mountpoint = %mount.mountpoint.display(), "can't end the mount of a killed daemon");
    }
}
