//! What crashes left: temporary files and locks that nobody has touched for an hour.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

use super::DiskStore;
use super::ground::{Ground, Staging, is_fan_out};
use crate::sys;

/// How old litter is at least; the peer's own rule.
const LITTER_AGE_MS: i64 = 3_600_000;

/// The directory of locks.
const LOCKS: &str = ".locks";

/// What a temporary file of the peer has in its name, in a fan-out directory.
const TEMPORARY: &[u8] = b".tmp-";

impl DiskStore {
    /// Removes litter, once in the life of this store: before it writes its first blob.
    ///
    /// Only regular files: in fan-out directories those with `.tmp-` in their names, in `.locks` all, and in
    /// `.staging`, which is ours, all. Staging beside the blobs is left alone, for its files may be saves. Best effort:
    /// what can't be listed, looked at or removed stays.
    pub(super) fn remove_litter_once(&self, ground: &Ground) {
        if self.litter_removed.swap(true, Ordering::Relaxed) {
            return;
        }
        let objects = &ground.objects.file;
        for name in names(objects).iter().filter(|name| is_fan_out(name)) {
            self.remove_old(sys::open_dir_at(objects, name).ok(), |name| {
                name.as_bytes().windows(TEMPORARY.len()).any(|part| part == TEMPORARY)
            });
        }
        self.remove_old(sys::open_dir_at(objects, OsStr::new(LOCKS)).ok(), |_| true);
        if matches!(self.staging, Staging::Within(_)) {
            self.remove_old(ground.staging.file.try_clone().ok(), |_| true);
        }
    }

    /// Removes the old regular files in a directory whose names are chosen.
    fn remove_old(&self, dir: Option<File>, chosen: impl Fn(&OsStr) -> bool) {
        let Some(dir) = dir else { return };
        for name in names(&dir).iter().filter(|name| chosen(name)) {
            let old =
                sys::facts_at(&dir, name).is_ok_and(|found| found.is_file() && self.is_old(found.mtime_ns));
            if old && let Err(error) = self.steps.remove(&dir, name) {
                tracing::debug!(?name, %error, "litter stays");
            }
        }
    }

    fn is_old(&self, mtime_ns: i64) -> bool {
        let now_ms = self.parts.clock.now().wall.0.div_euclid(1_000_000);
        now_ms.saturating_sub(mtime_ns.div_euclid(1_000_000)) >= LITTER_AGE_MS
    }
}

fn names(dir: &File) -> Vec<OsString> {
    sys::names_in(dir).unwrap_or_default()
}
