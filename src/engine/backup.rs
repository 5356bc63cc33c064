//! Backups: a frozen copy of the catalog with all the bytes that it names, and the way back.
//!
//! A backup is a directory of its own format, near a workspace's (docs/FORMAT.md): `catalog.db` appears last, by
//! rename, so that it always names bytes that are there. What is there already isn't copied again.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{check_filesystem, file_error, make_private_dir, sync_dir};
use super::publish::copy_file;
use super::{EngineError, Environment, Layout, Result, Workspace, init};
use crate::blobs::{BlobError, BlobStore, DiskSettings, DiskStore, MemoryStamps};
use crate::catalog::{Catalog, CatalogError};
use crate::model::{Content, Digest};
use crate::sys;

/// How often a catalog may move on between its copy and that of the files it names.
const ATTEMPTS: u32 = 8;

/// How far a backup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CopyProgress {
    /// Blobs that are copied.
    pub blobs: u64,
    /// Those that are to be copied.
    pub total: u64,
}

/// What a backup, or a restore, did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CopyReport {
    /// How many blobs are named.
    pub named: u64,
    /// How many of them were copied.
    pub copied: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blobs that could not be read, with the reason: nobody can get them from this copy.
    pub lost: Vec<(Digest, String)>,
}

/// The directory of a backup.
struct Archive {
    dir: PathBuf,
    /// Excludes other backups to this place; the kernel gives it back.
    _lock: File,
}

impl Archive {
    fn open(dir: &Path) -> Result<Self> {
        let lock = dir.join("lock");
        // Who can open it can lock it: nobody else may.
        let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(&lock);
        let file = file.map_err(file_error("open", &lock))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { dir: dir.to_owned(), _lock: file }),
            Err(fs::TryLockError::WouldBlock) => Err(EngineError::Refused(format!(
                "{}: another backup or restore is using it: wait for it",
                dir.display()
            ))),
            Err(fs::TryLockError::Error(error)) => Err(file_error("lock", &lock)(error)),
        }
    }

    fn part(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn catalog(&self) -> PathBuf {
        self.part("catalog.db")
    }

    fn store(&self, env: &Environment) -> Result<DiskStore> {
        let parts = env.store_parts(DiskSettings::default(), Arc::new(MemoryStamps::default()));
        Ok(DiskStore::create(&self.part("objects"), &self.part("incoming"), &parts)?)
    }
}

impl Workspace {
    /// Brings the backup in `dest` up to date, or makes one there; `verify` reads again what it has already.
    ///
    /// A crash leaves the backup before, whole, and what was copied is not copied again. No sweep removes anything
    /// meanwhile.
    ///
    /// # Errors
    /// `dest` holds something else, or another workspace's backup; the backup lease was lost: then the backup before
    /// is still there, whole.
    pub fn backup(
        &self,
        dest: &Path,
        verify: bool,
        env: &Environment,
        progress: &dyn Fn(CopyProgress),
    ) -> Result<CopyReport> {
        prepare(dest, self)?;
        let archive = Archive::open(dest)?;
        let lease = self.blobs().begin_backup()?;
        self.store_manifests();
        let store = archive.store(env)?;
        let new = archive.part(&format!("catalog.db.new-{}", env.ids.token()));
        let copied = self.copy_all(&archive, &store, (&new, verify), progress);
        let finished = copied.and_then(|report| {
            let synced = File::open(&new).and_then(|file| file.sync_all());
            synced.map_err(file_error("sync", &new))?;
            lease.confirm()?;
            fs::rename(&new, archive.catalog()).map_err(file_error("rename", &new))?;
            sync_dir(&archive.dir)?;
            Ok(report)
        });
        if finished.is_err() {
            // What failed is the news.
            let _ = fs::remove_file(&new);
        }
        lease.finish()?;
        finished
    }

    fn copy_all(
        &self,
        archive: &Archive,
        store: &DiskStore,
        (new, verify): (&Path, bool),
        progress: &dyn Fn(CopyProgress),
    ) -> Result<CopyReport> {
        let frozen = self.freeze(archive, new)?;
        let named = frozen.named_digests().map_err(in_catalog(new))?;
        drop(frozen);
        let report = copy_blobs(self.blobs(), store, &named, verify, progress)?;
        copy_small(&self.layout().config(), &archive.part("config.toml"))?;
        sync_dir(&archive.dir)?;
        Ok(report)
    }

    /// Copies the catalog, and the files that it names; again, if it has moved on in between.
    fn freeze(&self, archive: &Archive, new: &Path) -> Result<Catalog> {
        for _ in 0..ATTEMPTS {
            // SQLite would make it by the umask alone.
            sys::create_private(new).map_err(file_error("create", new))?;
            self.in_catalog(self.catalog().copy_to(new))?;
            let frozen = Catalog::open(new).map_err(in_catalog(new))?;
            if self.copy_files(archive, &frozen)? {
                return Ok(frozen);
            }
            drop(frozen);
            fs::remove_file(new).map_err(file_error("remove", new))?;
        }
        Err(EngineError::Refused("the drafts change too fast for a backup: try again later".into()))
    }

    /// Copies what drafts and recovery copies have outside the store; false if a draft's file has become a blob.
    fn copy_files(&self, archive: &Archive, frozen: &Catalog) -> Result<bool> {
        let mut wanted: Vec<(PathBuf, &str, String)> = Vec::new();
        for (checkout, _) in frozen.checkouts().map_err(in_catalog(frozen.path()))? {
            for (_, content) in frozen.draft_files(checkout).map_err(in_catalog(frozen.path()))? {
                match content {
                    Content::Staged(file) => wanted.push((self.layout().staging(), "staging", file)),
                    Content::Direct(file) => wanted.push((self.layout().scratch(), "scratch", file)),
                    _ => {}
                }
            }
        }
        for file in frozen.recovery_files().map_err(in_catalog(frozen.path()))? {
            wanted.push((self.layout().recovered(), "recovered", file));
        }
        for part in ["staging", "scratch", "recovered"] {
            keep_only(&archive.part(part), wanted.iter().filter(|w| w.1 == part).map(|w| w.2.as_str()))?;
        }
        for (from, part, name) in &wanted {
            // What is written in place may have changed since the last backup; the others never do.
            let (source, target) = (from.join(name), archive.part(part).join(name));
            if *part != "scratch" && same_size(&source, &target) {
                continue;
            }
            match copy_small(&source, &target) {
                // Recovery copies may be removed by hand.
                Err(EngineError::File { .. }) if *part == "recovered" && !source.exists() => {}
                Err(EngineError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    return Ok(false);
                }
                copied => copied?,
            }
        }
        Ok(true)
    }
}

/// Makes a workspace of a backup; every byte is verified on the way.
///
/// Mounts and writers of the time of the backup are forgotten; leases last until they expire.
pub fn restore_backup(
    source: &Path,
    root: &Path,
    env: &Environment,
    progress: &dyn Fn(CopyProgress),
) -> Result<CopyReport> {
    let catalog = source.join("catalog.db");
    if !catalog.is_file() {
        return Err(EngineError::Refused(format!("{}: holds no finished backup", source.display())));
    }
    let archive = Archive::open(source)?;
    let store = archive.store(env)?;
    init::make(root, None, env, |layout| {
        let target = layout.catalog();
        copy_small(&archive.catalog(), &target)?;
        let catalog = Catalog::open(&target).map_err(in_catalog(&target))?;
        catalog.forget_processes().map_err(in_catalog(&target))?;
        let parts = env.store_parts(DiskSettings::default(), Arc::new(MemoryStamps::default()));
        let blobs = DiskStore::create(&layout.objects(), &layout.staging(), &parts)?;
        for (part, into) in
            [("staging", layout.staging()), ("scratch", layout.scratch()), ("recovered", layout.recovered())]
        {
            copy_dir(&archive.part(part), &into)?;
        }
        copy_small(&archive.part("config.toml"), &layout.config())?;
        let named = catalog.named_digests().map_err(in_catalog(&target))?;
        copy_blobs(&store, &blobs, &named, false, progress)
    })
}

/// Copies the blobs that the target lacks; one that can't be read is reported, and the others are copied.
fn copy_blobs(
    from: &DiskStore,
    to: &DiskStore,
    named: &HashSet<Digest>,
    verify: bool,
    progress: &dyn Fn(CopyProgress),
) -> Result<CopyReport> {
    let mut wanted: Vec<Digest> = named.iter().copied().collect();
    wanted.sort_unstable();
    let missing = if verify {
        wanted.retain(|digest| to.check(digest).is_err());
        wanted
    } else {
        to.find_missing(&wanted)?
    };
    let mut report = CopyReport { named: named.len() as u64, ..CopyReport::default() };
    let mut done = CopyProgress { total: missing.len() as u64, ..CopyProgress::default() };
    let open = |digest| from.get(digest).map(|bytes| bytes as Box<dyn Read>).map_err(io::Error::other);
    let mut sources = missing.iter().map(open);
    let mut number = 0;
    to.put_batch(&mut sources, &mut |_, outcome| {
        match outcome {
            Ok((_, size)) => {
                report.copied += 1;
                report.bytes += size;
            }
            Err(error) => report.lost.push((missing[number], reason(&error))),
        }
        number += 1;
        done.blobs += 1;
        progress(done);
    })?;
    Ok(report)
}

fn reason(error: &BlobError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// Makes the directories of a new backup, or checks that an old one is this workspace's.
fn prepare(dest: &Path, workspace: &Workspace) -> Result<()> {
    let refuse = |what: &str| Err(EngineError::Refused(format!("{}: {what}", dest.display())));
    if dest.join(Layout::DOT).exists() {
        return refuse("is a workspace: name another directory for the backup");
    }
    let above = dest.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(above).map_err(file_error("create", above))?;
    if !dest.is_dir() {
        make_private_dir(dest)?;
    }
    let whole = fs::canonicalize(dest).map_err(file_error("find", dest))?;
    if whole.starts_with(workspace.root()) {
        return refuse("is in the workspace itself: name another directory for the backup");
    }
    for (_, mount) in workspace.live_mounts()? {
        if whole.starts_with(&mount.mountpoint) {
            return refuse("is in a mount of the workspace: name another directory for the backup");
        }
    }
    let dir = sys::open_dir(dest).map_err(file_error("open", dest))?;
    check_filesystem(&dir, dest)?;
    let catalog = dest.join("catalog.db");
    if catalog.exists() {
        let theirs = Catalog::open(&catalog)
            .and_then(|catalog| catalog.workspace_id())
            .map_err(in_catalog(&catalog))?;
        let ours = workspace.in_catalog(workspace.catalog().workspace_id())?;
        return if ours == theirs { Ok(()) } else { refuse("is the backup of another workspace") };
    }
    let mut entries = fs::read_dir(dest).map_err(file_error("list", dest))?;
    let is_ours = |name: &std::ffi::OsStr| {
        name.to_str().is_some_and(|name| PARTS.contains(&name) || name.starts_with("catalog.db.new-"))
    };
    match entries.find(|entry| entry.as_ref().map_or(true, |entry| !is_ours(&entry.file_name()))) {
        Some(_) => refuse("is not empty, and no backup: name another directory"),
        None => ["staging", "scratch", "recovered"].iter().try_for_each(|part| {
            let dir = dest.join(part);
            if dir.is_dir() { Ok(()) } else { make_private_dir(&dir) }
        }),
    }
}

/// What an unfinished first backup may have left.
const PARTS: [&str; 7] = ["lock", "objects", "incoming", "staging", "scratch", "recovered", "config.toml"];

/// Removes the files of a directory that aren't named any more.
fn keep_only<'n>(dir: &Path, names: impl Iterator<Item = &'n str>) -> Result<()> {
    let names: HashSet<&str> = names.collect();
    for entry in fs::read_dir(dir).map_err(file_error("list", dir))? {
        let entry = entry.map_err(file_error("list", dir))?;
        if !entry.file_name().to_str().is_some_and(|name| names.contains(name)) {
            super::files::remove_file(&entry.path())?;
        }
    }
    Ok(())
}

fn same_size(a: &Path, b: &Path) -> bool {
    matches!((a.metadata(), b.metadata()), (Ok(a), Ok(b)) if a.len() == b.len())
}

/// Copies a file under a name of its own first, durably, so that the target is a whole one, old or new.
fn copy_small(from: &Path, to: &Path) -> Result<()> {
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let unfinished = to.with_file_name(name);
    super::files::remove_file(&unfinished)?;
    copy_file(from, &unfinished)?;
    let synced = File::open(&unfinished).and_then(|file| file.sync_all());
    synced.map_err(file_error("sync", &unfinished))?;
    fs::rename(&unfinished, to).map_err(file_error("rename", &unfinished))?;
    to.parent().map_or(Ok(()), sync_dir)
}

fn copy_dir(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).map_err(file_error("list", from))? {
        let entry = entry.map_err(file_error("list", from))?;
        copy_small(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

/// For `map_err`: names the catalog that failed.
fn in_catalog(file: &Path) -> impl FnOnce(CatalogError) -> EngineError {
    move |source| EngineError::Catalog { file: file.to_owned(), source }
}
