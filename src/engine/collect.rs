//! The collector: removes blobs that nothing needs.
//!
//! Marked is what rows name, what is pinned, and what a live mount has open. The rest is removed if it is older than
//! the grace time, with one more look at the catalog under the blob's lock: whoever stores a blob notes its digest, or
//! that work goes on, before it looks at the address under the same lock. So no clock has to be right for that.
//! A crash at any point leaves garbage, which the next run finds.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::files::{file_error, remove_file};
use super::{EngineError, Result, StagingName, Workspace};
use crate::catalog::{CatalogError, WorkId};
use crate::model::{Digest, Instant};
use crate::sys;

/// How long a blob in the making may go without a write, as in a store that others share (docs/FORMAT.md, "Litter").
const IN_THE_MAKING_MS: i64 = 60 * 60 * 1000;

/// How often the collector tells its progress, in blobs.
const PROGRESS_STEP: u64 = 256;

/// How blobs are to be collected.
#[derive(Debug, Clone, Copy)]
pub struct CollectRequest {
    /// How old a blob must be that nothing needs, in milliseconds.
    pub grace_ms: i64,
    /// Whether nothing is to be removed, only counted.
    pub dry_run: bool,
}

/// What became of the blobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CollectReport {
    /// All blobs, and their bytes.
    pub seen: Tally,
    /// Those that nothing needs and that are too young, or that somebody needed after all.
    pub spared: Tally,
    /// Those that were removed, or would be.
    pub removed: Tally,
}

/// A number of blobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// How many.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Tally {
    pub(super) fn count(&mut self, bytes: u64) {
        self.blobs += 1;
        self.bytes += bytes;
    }
}

/// Says that this process stores blobs that no row names yet, for as long as it lives.
pub(super) struct WorkGuard<'a> {
    workspace: &'a Workspace,
    work: WorkId,
}

impl Drop for WorkGuard<'_> {
    fn drop(&mut self) {
        // A note that stays ends with the process.
        if let Err(error) = self.workspace.catalog().end_work(self.work) {
            tracing::warn!(%error, "can't note the end of work on the store");
        }
    }
}

impl Workspace {
    /// Keeps the collector from removing anything until the guard goes.
    pub(super) fn begin_work(&self) -> Result<WorkGuard<'_>> {
        let process = sys::this_process().map_err(file_error("read", Path::new("/proc/self/stat")))?;
        let work = self.in_catalog(self.catalog().begin_work(process, self.now()))?;
        Ok(WorkGuard { workspace: self, work })
    }

    /// Removes blobs that nothing needs; `open` tells the digests that live mounts have open.
    ///
    /// # Errors
    /// Before anything is removed: a digest in the catalog or in a pin that can't be understood, and what `open` says.
    pub fn collect(
        &self,
        request: &CollectRequest,
        open: &dyn Fn() -> Result<Vec<Digest>>,
        progress: &dyn Fn(u64, u64),
    ) -> Result<CollectReport> {
        let start = self.now();
        let marked = self.mark(open)?;
        // What was not marked may not come back by a power cut.
        self.in_catalog(self.catalog().sync())?;
        let blobs = self.blobs().inventory()?;
        let bound_ms = start.wall.0.div_euclid(1_000_000).saturating_sub(request.grace_ms);
        let mut collecting = Collecting { workspace: self, start, bound_ms, gone: Vec::new() };
        let mut report = CollectReport::default();
        for (number, blob) in (0..).zip(&blobs) {
            if number % PROGRESS_STEP == 0 {
                progress(number, blobs.len() as u64);
            }
            report.seen.count(blob.size);
            if marked.contains(&blob.digest) {
                continue;
            }
            let goes = blob.mtime_ms <= bound_ms && (request.dry_run || collecting.remove(&blob.digest)?);
            let tally = if goes { &mut report.removed } else { &mut report.spared };
            tally.count(blob.size);
        }
        self.in_catalog(self.catalog().forget_stamps(&collecting.gone))?;
        if !request.dry_run {
            self.remove_old_copies(bound_ms)?;
        }
        Ok(report)
    }

    /// Removes what a crash left of manifests and blobs in the making. Whatever the grace: who makes one now has written to
    /// it within [`IN_THE_MAKING_MS`].
    fn remove_old_copies(&self, bound_ms: i64) -> Result<()> {
        let bound_ms = bound_ms.min(self.now().wall.0.div_euclid(1_000_000).saturating_sub(IN_THE_MAKING_MS));
        let dir = self.layout().staging();
        for entry in fs::read_dir(&dir).map_err(file_error("list", &dir))? {
            let path = entry.map_err(file_error("list", &dir))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_old = |path: &Path| path.metadata().is_ok_and(|found| found.mtime() * 1000 <= bound_ms);
            if is_of_nobody(name) && is_old(&path) {
                remove_file(&path)?;
            }
        }
        Ok(())
    }

    /// What is needed: rows first, then what is open, since a row may go while its blob is open.
    fn mark(&self, open: &dyn Fn() -> Result<Vec<Digest>>) -> Result<HashSet<Digest>> {
        let mut marked = self.in_catalog(self.catalog().named_digests())?;
        marked.extend(self.pinned()?);
        marked.extend(open()?);
        Ok(marked)
    }

    /// The digests in the files of `pins/`: one a line; empty lines and those that begin with `#` say nothing.
    fn pinned(&self) -> Result<Vec<Digest>> {
        let dir = self.layout().pins();
        let entries = match fs::read_dir(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(file_error("list", &dir))?,
        };
        let mut pinned = Vec::new();
        for entry in entries {
            let path = entry.map_err(file_error("list", &dir))?.path();
            let text = fs::read(&path).map_err(file_error("read", &path))?;
            pinned.extend(parse_pins(&path, &String::from_utf8_lossy(&text))?);
        }
        Ok(pinned)
    }
}

/// Whether a file of `staging/` is no checkout's: a manifest's, or the store's own, which are named by a token alone.
fn is_of_nobody(name: &str) -> bool {
    let is_token = || !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.parse::<StagingName>().map_or_else(|_| is_token(), |name| name.is_of_nobody())
}

fn parse_pins(path: &Path, text: &str) -> Result<Vec<Digest>> {
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let pins = lines.map(|(number, line)| {
        line.parse().map_err(|error| {
            let at = path.display();
            EngineError::Refused(format!("{at}, line {number}: {error}: mend it; nothing was collected"))
        })
    });
    pins.collect()
}

struct Collecting<'a> {
    workspace: &'a Workspace,
    start: Instant,
    bound_ms: i64,
    gone: Vec<Digest>,
}

impl Collecting<'_> {
    /// Removes one blob, unless it was freshened or somebody needs it by now.
    fn remove(&mut self, digest: &Digest) -> Result<bool> {
        let catalog = self.workspace.catalog();
        let mut failed: Option<CatalogError> = None;
        let mut is_garbage = || match catalog.may_need(digest, self.start) {
            Ok(needed) => !needed,
            Err(error) => {
                failed = Some(error);
                false
            }
        };
        let removed = self.workspace.blobs().remove_if(digest, Some(self.bound_ms), &mut is_garbage)?;
        if let Some(source) = failed {
            return Err(EngineError::Catalog { file: catalog.path().to_owned(), source });
        }
        self.gone.extend(removed.then_some(*digest));
        Ok(removed)
    }
}
