//! Backups: a frozen copy of the catalog with all the bytes that it names, and the way back.
//!
//! A backup is a directory of its own format (docs/FORMAT.md): blobs, and `catalog.db`, which appears last, by rename, so
//! that it always names bytes that are there. What a workspace has outside its store is a blob here, and the catalog
//! says under which name. What is there already isn't copied again.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{check_filesystem, file_error, make_private_dir, remove_file, sync_dir};
use super::publish::copy_file;
use super::{EngineError, Environment, Layout, Result, Workspace, init};
use crate::blobs::{BlobStore, DiskParts, DiskSettings, DiskStore, MemoryStamps};
use crate::catalog::{ArchivedCatalog, ArchivedFile, Catalog, CatalogError};
use crate::model::{Content, Digest, with_sources};
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
    /// The same of files outside the store, by their names in `.leasehold/`.
    pub lost_files: Vec<(String, String)>,
}

/// The directory of a backup.
struct Archive {
    dir: PathBuf,
    /// Excludes other backups to this place; the kernel gives it back. None where nobody can write.
    _lock: Option<File>,
}

impl Archive {
    fn open(dir: PathBuf) -> Result<Self> {
        let lock = dir.join("lock");
        // Who can open it can lock it: nobody else may.
        let file = match File::options().create(true).truncate(false).write(true).mode(0o600).open(&lock) {
            Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                return Ok(Self { dir, _lock: None });
            }
            opened => opened.map_err(file_error("open", &lock))?,
        };
        match file.try_lock() {
            Ok(()) => Ok(Self { dir, _lock: Some(file) }),
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

    fn parts(env: &Environment) -> DiskParts {
        env.store_parts(DiskSettings::default(), Arc::new(MemoryStamps::default()))
    }

    fn store(&self, env: &Environment) -> Result<DiskStore> {
        Ok(DiskStore::create(&self.part("objects"), &self.part("incoming"), &Self::parts(env))?)
    }

    fn store_to_read(&self, env: &Environment) -> Result<DiskStore> {
        Ok(DiskStore::open(&self.part("objects"), &self.part("incoming"), &Self::parts(env))?)
    }

    /// What the backup before, if there is one, keeps.
    fn kept_before(&self) -> Result<Vec<ArchivedFile>> {
        let catalog = self.catalog();
        if !catalog.exists() {
            return Ok(Vec::new());
        }
        ArchivedCatalog::read(&catalog).map(|archived| archived.files).map_err(in_catalog(&catalog))
    }

    /// Removes the unfinished catalogs of backups that were cut short, with SQLite's files beside them.
    fn remove_unfinished(&self) -> Result<()> {
        for entry in fs::read_dir(&self.dir).map_err(file_error("list", &self.dir))? {
            let entry = entry.map_err(file_error("list", &self.dir))?;
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                remove_file(&entry.path())?;
            }
        }
        Ok(())
    }
}

/// What an unfinished catalog is called, with a token after it.
const UNFINISHED: &str = "catalog.db.new-";

/// What a first backup that was cut short may have left.
const BEGUN: [&str; 3] = ["lock", "objects", "incoming"];

/// The directories of a workspace whose files a backup keeps as blobs, and its own for `config.toml`.
const KEPT: [&str; 4] = ["staging", "scratch", "recovered", "."];

/// What became of a workspace's files outside its store.
#[derive(Default)]
struct Kept {
    files: Vec<ArchivedFile>,
    /// Those that are gone, though a draft names them.
    gone: HashSet<(&'static str, String)>,
    lost: Vec<(String, String)>,
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
        let archive = Archive::open(prepare(dest, self)?)?;
        archive.remove_unfinished()?;
        let lease = self.blobs().begin_backup()?;
        self.store_manifests();
        let store = archive.store(env)?;
        let new = archive.part(&format!("{UNFINISHED}{}", env.ids.token()));
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
            let _ = archive.remove_unfinished();
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
        let before = if verify { Vec::new() } else { archive.kept_before()? };
        let (frozen, lost_files) = self.freeze(store, new, &before)?;
        let named = frozen.named_digests().map_err(in_catalog(new))?;
        drop(frozen);
        let report = copy_blobs(self.blobs(), store, &named, verify, progress)?;
        sync_dir(&archive.dir)?;
        Ok(CopyReport { lost_files, ..report })
    }

    /// Copies the catalog, and the files that it names; again, if it has moved on in between. Returns what is lost, too.
    fn freeze(
        &self,
        store: &DiskStore,
        new: &Path,
        before: &[ArchivedFile],
    ) -> Result<(Catalog, Vec<(String, String)>)> {
        let mut gone_before = HashSet::new();
        for _ in 0..ATTEMPTS {
            // SQLite would make it by the umask alone.
            sys::create_private(new).map_err(file_error("create", new))?;
            self.in_catalog(self.catalog().copy_to(new))?;
            let frozen = Catalog::open_alone(new).map_err(in_catalog(new))?;
            let mut kept = self.keep_files(store, &frozen, before)?;
            // What is still named, and was gone the last time, too, has not become a blob in between.
            if kept.gone.is_subset(&gone_before) {
                frozen.add_archived_files(&kept.files).map_err(in_catalog(new))?;
                let gone =
                    kept.gone.into_iter().map(|(part, name)| (format!("{part}/{name}"), "gone".into()));
                kept.lost.extend(gone);
                return Ok((frozen, kept.lost));
            }
            gone_before = kept.gone;
            drop(frozen);
            remove_file(new)?;
        }
        Err(EngineError::Refused("the drafts change too fast for a backup: try again later".into()))
    }

    /// Puts what drafts and recovery copies have outside the store into the backup's.
    fn keep_files(&self, store: &DiskStore, frozen: &Catalog, before: &[ArchivedFile]) -> Result<Kept> {
        let mut kept = Kept::default();
        let mut wanted = Vec::new();
        for (part, name) in self.files_of(frozen)? {
            match before.iter().find(|file| file.part == part && file.name == name) {
                // What is written in place may have changed; the others never do.
                Some(file) if !matches!(part, "scratch" | ".") && store.has(&file.digest)? => {
                    kept.files.push(file.clone());
                }
                _ => wanted.push((part, name)),
            }
        }
        let path_of = |(part, name): &(&str, String)| self.layout().dot().join(part).join(name);
        let open = |file| File::open(path_of(file)).map(|file| Box::new(file) as Box<dyn Read>);
        let is_readable = |file| {
            File::open(path_of(file)).and_then(|mut file| io::copy(&mut file, &mut io::sink())).is_ok()
        };
        let mut failed = None;
        store.put_batch(&mut wanted.iter().map(open), &mut |number, stored| {
            let (part, name) = wanted[number].clone();
            match stored {
                Ok((digest, _)) => kept.files.push(ArchivedFile { part: part.into(), name, digest }),
                Err(_) if is_gone(&path_of(&wanted[number])) => {
                    kept.gone.insert((part, name));
                }
                Err(error) if is_readable(&wanted[number]) => failed = failed.take().or(Some(error)),
                Err(error) => kept.lost.push((format!("{part}/{name}"), with_sources(&error))),
            }
        })?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        // Both may be removed by hand.
        kept.gone.retain(|(part, _)| !matches!(*part, "recovered" | "."));
        Ok(kept)
    }

    /// The files that a catalog names, and `config.toml`: but for saves that have left `staging/` as blobs, which their noted
    /// digests name.
    fn files_of(&self, frozen: &Catalog) -> Result<Vec<(&'static str, String)>> {
        let failed = || in_catalog(frozen.path());
        let mut files = vec![(".", "config.toml".to_owned())];
        for (checkout, _) in frozen.checkouts().map_err(failed())? {
            for (_, content) in frozen.draft_files(checkout).map_err(failed())? {
                match content {
                    Content::Staged(file) if self.has_become_blob(frozen, &file)? => {}
                    Content::Staged(file) => files.push(("staging", file)),
                    Content::Direct(file) => files.push(("scratch", file)),
                    _ => {}
                }
            }
        }
        files.extend(frozen.recovery_files().map_err(failed())?.into_iter().map(|file| ("recovered", file)));
        Ok(files)
    }

    /// Whether a save has left `staging/` on its way into the store, which a draft's row may not say yet.
    pub(super) fn has_become_blob(&self, catalog: &Catalog, file: &str) -> Result<bool> {
        if !is_gone(&self.layout().staging().join(file)) {
            return Ok(false);
        }
        let noted = catalog.noted_digest(file).map_err(in_catalog(catalog.path()))?;
        noted.map_or(Ok(false), |digest| Ok(self.blobs().has(&digest)?))
    }
}

pub(super) fn is_gone(file: &Path) -> bool {
    matches!(file.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound)
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
    let refuse = |what: &str| Err(EngineError::Refused(format!("{}: {what}", source.display())));
    if !source.join("catalog.db").is_file() {
        return refuse("holds no finished backup");
    }
    if is_inside_of_workspace(source) {
        return refuse("is a workspace's own directory, and no backup");
    }
    let archive = Archive::open(fs::canonicalize(source).map_err(file_error("find", source))?)?;
    let store = archive.store_to_read(env)?;
    init::make(root, None, env, |layout| {
        let catalog = restore_catalog(&archive, layout)?;
        let blobs = DiskStore::create(&layout.objects(), &layout.staging(), &Archive::parts(env))?;
        let files = catalog.take_archived_files().map_err(in_catalog(&archive.catalog()))?;
        let lost_files = restore_files(&store, layout, &files)?;
        let named = catalog.named_digests().map_err(in_catalog(&archive.catalog()))?;
        let report = copy_blobs(&store, &blobs, &named, false, progress)?;
        Ok(CopyReport { lost_files, ..report })
    })
}

fn restore_catalog(archive: &Archive, layout: &Layout) -> Result<Catalog> {
    let (source, target) = (archive.catalog(), layout.catalog());
    copy_file(&source, &target)?;
    let catalog = Catalog::open(&target).map_err(in_catalog(&source))?;
    if let Some(wrong) = catalog.check_integrity().map_err(in_catalog(&source))?.first() {
        return Err(EngineError::Refused(format!("{}: it is damaged: {wrong}", source.display())));
    }
    catalog.forget_processes().map_err(in_catalog(&source))?;
    Ok(catalog)
}

/// Writes the files that a backup keeps beside its catalog; returns those that can't be had, with the reason.
fn restore_files(
    store: &DiskStore,
    layout: &Layout,
    files: &[ArchivedFile],
) -> Result<Vec<(String, String)>> {
    let mut lost = Vec::new();
    for file in files {
        let place = (KEPT.contains(&file.part.as_str()) && !file.name.contains('/') && file.name != "..")
            .then(|| layout.dot().join(&file.part).join(&file.name));
        let told = |reason| (format!("{}/{}", file.part, file.name), reason);
        match (place, store.get(&file.digest)) {
            (None, _) => lost.push(told("no name of a workspace's file".into())),
            (_, Err(error)) => lost.push(told(with_sources(&error))),
            (Some(place), Ok(bytes)) => write_file(&place, bytes)?,
        }
    }
    KEPT.iter().try_for_each(|part| sync_dir(&layout.dot().join(part)))?;
    Ok(lost)
}

fn write_file(place: &Path, mut bytes: impl Read) -> Result<()> {
    let written = sys::create_private(place).and_then(|mut file| {
        io::copy(&mut bytes, &mut file)?;
        file.sync_all()
    });
    written.map_err(file_error("write", place))
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
    let (mut number, mut failed) = (0, None);
    to.put_batch(&mut sources, &mut |_, outcome| {
        match outcome {
            Ok((_, size)) => {
                report.copied += 1;
                report.bytes += size;
            }
            // What can be read is not lost: it is the target that can't take it.
            Err(error) if from.check(&missing[number]).is_ok() => failed = failed.take().or(Some(error)),
            Err(error) => report.lost.push((missing[number], with_sources(&error))),
        }
        number += 1;
        done.blobs += 1;
        progress(done);
    })?;
    failed.map_or(Ok(report), |error| Err(error.into()))
}

/// Makes the directory of a new backup, or checks that an old one is this workspace's; returns it without symlinks.
fn prepare(dest: &Path, workspace: &Workspace) -> Result<PathBuf> {
    let refuse = |what: &str| Err(EngineError::Refused(format!("{}: {what}", dest.display())));
    let whole = without_symlinks(dest).map_err(file_error("find", dest))?;
    if whole.starts_with(workspace.root().join(Layout::DOT)) || is_inside_of_workspace(&whole) {
        return refuse("is a workspace's own directory: name another one for the backup");
    }
    if whole.join(Layout::DOT).exists() {
        return refuse("is a workspace: name another directory for the backup");
    }
    if whole.starts_with(workspace.root()) {
        return refuse("is in the workspace itself: name another directory for the backup");
    }
    for (_, mount) in workspace.live_mounts()? {
        if whole.starts_with(&mount.mountpoint) {
            return refuse("is in a mount of the workspace: name another directory for the backup");
        }
    }
    let above = whole.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(above).map_err(file_error("create", above))?;
    if !whole.is_dir() {
        make_private_dir(&whole)?;
    }
    let dir = sys::open_dir(&whole).map_err(file_error("open", dest))?;
    check_filesystem(&dir, dest)?;
    let catalog = whole.join("catalog.db");
    if catalog.exists() {
        let theirs = ArchivedCatalog::read(&catalog).map_err(in_catalog(&catalog))?.workspace;
        let ours = workspace.in_catalog(workspace.catalog().workspace_id())?;
        return if ours == theirs { Ok(whole) } else { refuse("is the backup of another workspace") };
    }
    let mut entries = fs::read_dir(&whole).map_err(file_error("list", dest))?;
    let is_ours = |name: &std::ffi::OsStr| {
        name.to_str().is_some_and(|name| BEGUN.contains(&name) || name.starts_with(UNFINISHED))
    };
    match entries.find(|entry| entry.as_ref().map_or(true, |entry| !is_ours(&entry.file_name()))) {
        Some(_) => refuse("is not empty, and no backup: name another directory"),
        None => Ok(whole),
    }
}

/// Where a path leads, of which the last names need not be there yet.
fn without_symlinks(path: &Path) -> io::Result<PathBuf> {
    match fs::canonicalize(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => match (path.parent(), path.file_name()) {
            (Some(above), Some(name)) => Ok(without_symlinks(above)?.join(name)),
            _ => Err(error),
        },
        found => found,
    }
}

fn is_inside_of_workspace(dir: &Path) -> bool {
    dir.join("run/wake").exists()
}

/// For `map_err`: names the catalog that failed.
fn in_catalog(file: &Path) -> impl FnOnce(CatalogError) -> EngineError {
    move |source| EngineError::Catalog { file: file.to_owned(), source }
}
