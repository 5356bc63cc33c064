use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::files::file_error;
use super::{EngineError, Layout, Result, Workspace};
use crate::blobs::{BlobError, Stamp};
use crate::catalog::{ImportItem, Importing};
use crate::model::{
    ArtifactPath, ChangeNumber, CheckoutId, Content, Digest, Holder, Kind, Name, NameGlobs, Timestamp,
};

/// Lock files: they say who edits a document now, and nothing to anybody later.
const LOCK_FILES: [&str; 9] = [
    ".~lock.*#",
    ".#*",
    "(?i)~$*",
    "(?i)*.laccdb",
    "(?i)*[!0-9].ldb",
    "(?i)*.dwl",
    "(?i)*.dwl2",
    "~*.lck",
    ".*.lck",
];

/// What is to be imported.
#[derive(Debug, Clone)]
pub struct ImportRequest {
    /// Files, symlinks and directories of the host.
    pub sources: Vec<PathBuf>,
    /// The directory of the head tree to which they go; it is made if it is missing.
    pub into: ArtifactPath,
    /// Why, in the author's words.
    pub message: String,
    /// Who.
    pub author: Holder,
    /// Whether a source that is a directory stands for what it holds, not for itself.
    pub contents_only: bool,
}

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ImportProgress {
    /// Files that are in the store.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// All files.
    pub total_files: u64,
}

/// What an import did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImportReport {
    /// The new change; none where the head tree had it all.
    pub change: Option<ChangeNumber>,
    /// The number of files and symlinks that were read.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What was left out, and why.
    pub skipped: Vec<(PathBuf, String)>,
}

impl Workspace {
    /// Copies files of the host into the store, and makes them one change.
    ///
    /// Lock files, special files, workspaces, and files that can't be read or change while they are read are skipped
    /// and reported. Nothing is in the head tree unless all the rest is.
    pub fn import(&self, request: &ImportRequest, progress: &dyn Fn(ImportProgress)) -> Result<ImportReport> {
        let mut walk = Walk::new();
        for source in &request.sources {
            walk.source(source, request)?;
        }
        let Walk { found, mut skipped, .. } = walk;
        self.check_import(&request.into, found.keys())?;
        let _work = self.begin_work()?;
        let stored = self.store_files(&found, progress)?;
        let mut report = ImportReport::default();
        let mut items = Vec::with_capacity(found.len());
        for (found, stored) in found.into_values().zip(stored) {
            match stored {
                Stored::Item(item) => {
                    report.files += u64::from(item.kind != Kind::Directory);
                    report.bytes += item.size;
                    items.push(item);
                }
                Stored::Skipped(reason) => skipped.push((found.host, reason)),
            }
        }
        report.skipped = skipped;
        report.change = self.commit_import(request, &items)?;
        Ok(report)
    }

    /// Refuses paths where the principal may make nothing, or may not change what is there.
    fn check_import<'a>(
        &self,
        into: &'a ArtifactPath,
        paths: impl Iterator<Item = &'a ArtifactPath>,
    ) -> Result<()> {
        let access = self.access(CheckoutId(0))?;
        if access.is_free() {
            return Ok(());
        }
        std::iter::once(into).filter(|into| !into.is_root()).chain(paths).try_for_each(|path| {
            access.check_new(path)?;
            match self.in_catalog(self.catalog().resolve(CheckoutId(0), path))? {
                Some(entry) if !access.edits(entry.artifact)? => Err(access.denied(path)),
                _ => Ok(()),
            }
        })
    }

    fn commit_import(&self, request: &ImportRequest, items: &[ImportItem]) -> Result<Option<ChangeNumber>> {
        let importing = Importing { author: &request.author, message: &request.message, now: self.now() };
        let imported = self.catalog().import(&importing, items, self.ids());
        let change = imported.map_err(|error| self.refusal(None, &request.into, error))?;
        if change.is_some() {
            self.wake();
            self.store_manifests();
        }
        Ok(change)
    }

    /// Stores the bytes of what was found; one outcome for each, in order.
    fn store_files(
        &self,
        found: &BTreeMap<ArtifactPath, Found>,
        progress: &dyn Fn(ImportProgress),
    ) -> Result<Vec<Stored>> {
        let files: Vec<&Found> = found.values().filter(|found| found.kind == Kind::File).collect();
        let mut done = ImportProgress { total_files: files.len() as u64, ..ImportProgress::default() };
        progress(done);
        let mut outcomes = Vec::with_capacity(files.len());
        let mut sources = files.iter().map(|found| Source::open(found));
        self.blobs().put_batch(&mut sources, &mut |_, outcome| {
            done.files += 1;
            done.bytes += outcome.as_ref().map_or(0, |(_, size)| *size);
            outcomes.push(outcome);
            progress(done);
        })?;
        let mut outcomes = outcomes.into_iter();
        let stored = |found: &Found| match found.kind {
            Kind::File => stored_file(found, outcomes.next().expect("BUG: each file has an outcome")),
            _ => Ok(Stored::Item(found.item(found.content.clone(), found.size))),
        };
        found.values().map(stored).collect()
    }
}

/// What became of something that was found.
enum Stored {
    Item(ImportItem),
    Skipped(String),
}

/// A file that can't be read is skipped; a store that can't be written to ends the import.
fn stored_file(found: &Found, outcome: std::result::Result<(Digest, u64), BlobError>) -> Result<Stored> {
    match outcome {
        Ok((digest, size)) => Ok(Stored::Item(found.item(Content::Blob(digest), size))),
        Err(BlobError::Source { source }) => Ok(Stored::Skipped(format!("can't be read: {source}"))),
        Err(error) => Err(error.into()),
    }
}

/// Something of the host that is to be imported.
struct Found {
    host: PathBuf,
    path: ArtifactPath,
    kind: Kind,
    mode: u32,
    /// What it was when it was found.
    stamp: Stamp,
    /// The target of a symlink; files have none yet.
    content: Content,
    size: u64,
}

impl Found {
    fn item(&self, content: Content, size: u64) -> ImportItem {
        let Self { ref path, kind, mode, stamp, .. } = *self;
        let mtime = Timestamp(stamp.mtime_ns);
        ImportItem { path: path.clone(), kind, mode, mtime, content, size }
    }
}

/// Collects what there is to import, in the order of the paths.
struct Walk {
    locks: NameGlobs,
    found: BTreeMap<ArtifactPath, Found>,
    skipped: Vec<(PathBuf, String)>,
}

impl Walk {
    fn new() -> Self {
        let locks = NameGlobs::new(&LOCK_FILES).expect("BUG: the globs of lock files must compile");
        Self { locks, found: BTreeMap::new(), skipped: Vec::new() }
    }

    /// Takes one source. What it is named on the command line must be there.
    fn source(&mut self, source: &Path, request: &ImportRequest) -> Result<()> {
        let metadata = fs::symlink_metadata(source).map_err(file_error("read", source))?;
        let follows = request.contents_only && fs::metadata(source).is_ok_and(|target| target.is_dir());
        if follows || (metadata.is_dir() && request.contents_only) {
            return self.directory(source, &request.into);
        }
        let whole = fs::canonicalize(source).map_err(file_error("find", source));
        let name = match source.file_name() {
            Some(name) => name.to_owned(),
            // `.` and `..` have no name of their own.
            None => whole?.file_name().unwrap_or_default().to_owned(),
        };
        let name = Name::new(name.as_bytes())
            .map_err(|error| EngineError::Refused(format!("{}: {error}", source.display())))?;
        self.entry(source.to_owned(), &request.into.join(name))
    }

    fn directory(&mut self, dir: &Path, into: &ArtifactPath) -> Result<()> {
        let entries = match fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) => return self.skip(dir, format!("can't be read: {error}")),
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return self.skip(dir, format!("can't be read to its end: {error}")),
            };
            match Name::new(entry.file_name().as_bytes()) {
                Ok(name) => self.entry(entry.path(), &into.join(name))?,
                Err(error) => self.skip(&entry.path(), error.to_string())?,
            }
        }
        Ok(())
    }

    fn entry(&mut self, host: PathBuf, path: &ArtifactPath) -> Result<()> {
        let metadata = match fs::symlink_metadata(&host) {
            Ok(metadata) => metadata,
            Err(error) => return self.skip(&host, format!("can't be read: {error}")),
        };
        if let Some(reason) = self.reason_to_skip(&host, path, &metadata) {
            return self.skip(&host, reason.to_owned());
        }
        if let Some(other) = self.found.get(path).filter(|other| other.kind != Kind::Directory) {
            let (one, two) = (other.host.display(), host.display());
            return Err(EngineError::Refused(format!(
                "{one} and {two} would both become {path}; import one of them --into another directory"
            )));
        }
        let found = match found(host.clone(), path, &metadata) {
            Ok(found) => found,
            Err(error) => return self.skip(&host, format!("can't be read: {error}")),
        };
        self.found.insert(path.clone(), found);
        if metadata.is_dir() { self.directory(&host, path) } else { Ok(()) }
    }

    fn reason_to_skip(&self, host: &Path, path: &ArtifactPath, metadata: &Metadata) -> Option<&'static str> {
        let kind = metadata.file_type();
        if kind.is_dir() {
            return host
                .file_name()
                .is_some_and(|n| n == Layout::DOT)
                .then_some("a workspace's own directory");
        }
        if path.file_name().is_some_and(|name| self.locks.is_match(name)) {
            return Some("a lock file");
        }
        [
            (kind.is_fifo(), "a FIFO"),
            (kind.is_socket(), "a socket"),
            (kind.is_block_device() || kind.is_char_device(), "a device"),
        ]
        .into_iter()
        .find_map(|(is, reason)| is.then_some(reason))
    }

    fn skip(&mut self, host: &Path, reason: String) -> Result<()> {
        self.skipped.push((host.to_owned(), reason));
        Ok(())
    }
}

fn found(host: PathBuf, path: &ArtifactPath, metadata: &Metadata) -> io::Result<Found> {
    let (kind, content, size) = if metadata.is_dir() {
        (Kind::Directory, Content::None, 0)
    } else if metadata.is_symlink() {
        let target = fs::read_link(&host)?.into_os_string();
        let size = target.len() as u64;
        (Kind::Symlink, Content::Target(target.as_bytes().to_vec()), size)
    } else {
        (Kind::File, Content::None, metadata.len())
    };
    Ok(Found {
        host,
        path: path.clone(),
        kind,
        mode: metadata.mode() & 0o7777,
        stamp: Stamp::of(metadata),
        content,
        size,
    })
}

/// A file of the host that is being read; what changes meanwhile is no version of anything.
struct Source {
    file: File,
    before: Stamp,
}

impl Source {
    fn open<'s>(found: &Found) -> io::Result<Box<dyn Read + 's>> {
        let file = crate::sys::open_regular(&found.host)?;
        if Stamp::of(&file.metadata()?) != found.stamp {
            return Err(changed());
        }
        Ok(Box::new(Self { file, before: found.stamp }))
    }
}

fn changed() -> io::Error {
    io::Error::other("it changed while it was read")
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        if count == 0 && !buffer.is_empty() && Stamp::of(&self.file.metadata()?) != self.before {
            return Err(changed());
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_at(host: &Path) -> Found {
        found(host.to_owned(), &ArtifactPath::root(), &fs::symlink_metadata(host).unwrap()).unwrap()
    }

    #[test]
    fn a_file_that_changes_or_goes_while_it_is_read_is_no_version() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        fs::write(&file, "before").unwrap();
        let walked = found_at(&file);
        fs::write(&file, "changed since the walk").unwrap();
        assert!(Source::open(&walked).is_err());
        let mut source = Source::open(&found_at(&file)).unwrap();
        io::Write::write_all(&mut fs::OpenOptions::new().append(true).open(&file).unwrap(), b"+").unwrap();
        assert!(source.read_to_end(&mut Vec::new()).is_err());
        let walked = found_at(&file);
        fs::remove_file(&file).unwrap();
        assert!(Source::open(&walked).is_err());
        let whole = stored_file(&walked, Err(BlobError::Source { source: changed() }));
        assert!(
            matches!(whole, Ok(Stored::Skipped(why)) if why == "can't be read: it changed while it was read")
        );
    }
}
