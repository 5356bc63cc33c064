//! Recovery copies: bytes that an application wrote and that no draft holds.
//!
//! A copy is a file of `recovered/`, named `<id>.<the name that it had>`, and a row of the catalog. A crash between the
//! two leaves a file without a row, which the next mount of its checkout lists.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::files::{file_error, remove_file, sync_dir};
use super::{EngineError, RecoveryCopy, Result, ScratchName, StagingName, StagingRole, Workspace};
use crate::blobs::BlobStore;
use crate::catalog::{EventKind, NewEvent, Place, StagedSave};
use crate::model::{
    ArtifactId, ArtifactPath, CheckoutId, Content, Digest, Holder, Scratch, Seq, Timestamp, VersionNumber,
};

/// What is known of bytes that are put aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryMeta {
    /// The artifact that they were written to.
    pub artifact: Option<ArtifactId>,
    /// Where it was.
    pub path: ArtifactPath,
    /// The version on which they were made.
    pub base: Option<VersionNumber>,
    /// Whose they are.
    pub holder: Holder,
    /// Why they are no draft.
    pub reason: String,
}

impl Workspace {
    /// Moves a file of `staging/` or `scratch/` to `recovered/`, durably, and lists it.
    pub fn put_aside(&self, file: &Path, meta: &RecoveryMeta) -> Result<RecoveryCopy> {
        let opened = File::open(file).map_err(file_error("open", file))?;
        opened.sync_all().map_err(file_error("sync", file))?;
        let size = opened.metadata().map_err(file_error("examine", file))?.len();
        let id = self.ids().token();
        let name = format!("{id}.{}", file.file_name().unwrap_or_default().to_string_lossy());
        let target = self.layout().recovered().join(&name);
        fs::rename(file, &target).map_err(file_error("put aside", file))?;
        sync_dir(&self.layout().recovered())?;
        file.parent().map_or(Ok(()), sync_dir)?;
        self.list_copy(id, &name, size, meta)
    }

    fn list_copy(&self, id: String, file: &str, size: u64, meta: &RecoveryMeta) -> Result<RecoveryCopy> {
        let RecoveryMeta { artifact, path, base, holder, reason } = meta.clone();
        let at = self.now().wall;
        let copy = RecoveryCopy { id, artifact, path, base, holder, at, size, reason };
        self.in_catalog(self.catalog().add_recovery(file, &copy))?;
        Ok(copy)
    }

    /// Every recovery copy of what may be seen, oldest first.
    pub fn recovered(&self) -> Result<Vec<RecoveryCopy>> {
        let access = self.access(CheckoutId(0))?;
        let mut copies = Vec::new();
        for copy in self.in_catalog(self.catalog().recoveries())? {
            if access.sees_copy(&copy)? {
                copies.push(copy);
            }
        }
        Ok(copies)
    }

    /// The file with the bytes of a recovery copy.
    pub fn recovered_file(&self, id: &str) -> Result<PathBuf> {
        let seen = self.recovered()?.iter().any(|copy| copy.id == id);
        let file = self.in_catalog(self.catalog().recovery_file(id))?;
        let file = file.filter(|_| seen).ok_or_else(|| {
            EngineError::Refused(format!("{id:?}: no such recovery copy; `leasehold recovered` lists them"))
        })?;
        Ok(self.layout().recovered().join(file))
    }

    /// Finds what the last mount of a checkout left when it died: to be called before the next one writes anything.
    ///
    /// Files that no draft names become recovery copies, unless they are empty or the same as their base. What can't
    /// be looked at stays where it is, and is logged.
    pub fn recover_checkout(&self, checkout: CheckoutId) -> Result<Vec<RecoveryCopy>> {
        let holder = self.in_catalog(self.catalog().checkout_holder(checkout))?;
        let holder = holder.ok_or_else(|| EngineError::NotFound(ArtifactPath::root()))?;
        let mut copies = self.take_back_lost_saves(checkout, &holder)?;
        self.finish_publishing(checkout, &holder)?;
        let files = self.in_catalog(self.catalog().draft_files(checkout))?;
        self.note_sizes_in_place(checkout, &files)?;
        self.drop_dangling(checkout, &holder, &files)?;
        let named: HashSet<String> = files.into_iter().filter_map(|(_, content)| file_of(content)).collect();
        let recovering = Recovering { workspace: self, checkout, holder, named };
        copies.extend(recovering.relist()?);
        copies.extend(recovering.salvage_staging()?);
        copies.extend(recovering.salvage_scratch()?);
        Ok(copies)
    }

    /// Completes saves whose file had left `staging/` when the process died, by the digest that was noted.
    fn finish_publishing(&self, checkout: CheckoutId, holder: &Holder) -> Result<()> {
        for save in self.in_catalog(self.catalog().staged_saves(checkout))? {
            if self.layout().staging().join(&save.file).exists() || self.take_unsealed(&save)? {
                continue;
            }
            let stored = match save.digest {
                Some(digest) => self.blobs().is_whole(&digest)?,
                None => false,
            };
            if stored {
                self.in_catalog(self.catalog().publish_noted(&[save.file]))?;
            } else {
                self.report_lost(save.artifact, holder, &format!("the save {} is gone", save.file))?;
            }
        }
        self.in_catalog(self.catalog().forget_stray_digests())
    }

    /// What is written in place may have grown or shrunk since its row was written: the file is right.
    fn note_sizes_in_place(&self, checkout: CheckoutId, files: &[(Seq, Content)]) -> Result<()> {
        let mut sizes = Vec::new();
        for (artifact, content) in files {
            let Content::Direct(file) = content else { continue };
            let Ok(found) = self.layout().scratch().join(file).metadata() else { continue };
            let mtime = Timestamp(found.mtime() * 1_000_000_000 + found.mtime_nsec());
            sizes.push((*artifact, file.clone(), found.len(), mtime));
        }
        self.in_catalog(self.catalog().note_direct_sizes(checkout, &sizes))
    }

    /// After a power cut the sealing rename may be undone: then the working name has the bytes.
    fn take_unsealed(&self, save: &StagedSave) -> Result<bool> {
        let Ok(name) = save.file.parse::<StagingName>() else { return Ok(false) };
        let working = StagingName { role: StagingRole::Working, ..name };
        let working = self.layout().staging().join(working.to_string());
        if !working.exists() {
            return Ok(false);
        }
        fs::rename(&working, self.layout().staging().join(&save.file))
            .map_err(file_error("rename", &working))?;
        Ok(true)
    }

    /// Forgets scratch names whose file is gone, which their applications had removed or renamed just before a power cut;
    /// says so of a `live` draft.
    fn drop_dangling(&self, checkout: CheckoutId, holder: &Holder, files: &[(Seq, Content)]) -> Result<()> {
        for (artifact, content) in files {
            let Content::Direct(file) = content else { continue };
            if self.layout().scratch().join(file).exists() {
                continue;
            }
            let entry = self.in_catalog(self.catalog().entry_of(checkout, *artifact))?;
            match entry.filter(|entry| entry.scratch != Scratch::No) {
                Some(entry) => {
                    let actor = self.actor(checkout, holder, None, (0, 0));
                    let place = Place { parent: entry.parent, name: entry.name };
                    self.in_catalog(self.catalog().unlink(&actor, &place))?;
                }
                None => self.report_lost(*artifact, holder, &format!("the file {file} is gone"))?,
            }
        }
        Ok(())
    }

    pub(super) fn report_lost(&self, artifact: Seq, holder: &Holder, detail: &str) -> Result<()> {
        tracing::error!(artifact = artifact.0, "{detail}");
        let (at, kind) = (self.now().wall, EventKind::PublishFailed);
        let (artifact, holder) = (Some(artifact), Some(holder));
        self.in_catalog(self.catalog().note(&NewEvent { at, kind, artifact, holder, detail }))
    }
}

fn file_of(content: Content) -> Option<String> {
    match content {
        Content::Staged(file) | Content::Direct(file) => Some(file),
        Content::None | Content::Blob(_) | Content::Target(_) => None,
    }
}

/// The recovery of one checkout.
struct Recovering<'a> {
    workspace: &'a Workspace,
    checkout: CheckoutId,
    holder: Holder,
    /// The files that drafts name.
    named: HashSet<String>,
}

impl Recovering<'_> {
    /// Lists files of `recovered/` that have no row.
    fn relist(&self) -> Result<Vec<RecoveryCopy>> {
        let listed = self.workspace.in_catalog(self.workspace.catalog().recovery_files())?;
        let listed: HashSet<String> = listed.into_iter().collect();
        let mut copies = Vec::new();
        for (file, path) in files_in(&self.workspace.layout().recovered())? {
            let Some((id, rest)) = file.split_once('.').filter(|_| !listed.contains(&file)) else { continue };
            let Some((checkout, artifact, base)) = owner_of(rest) else { continue };
            if checkout == self.checkout {
                let size = path.metadata().map_err(file_error("examine", &path))?.len();
                let meta = self.meta(artifact, base)?;
                copies.push(self.workspace.list_copy(id.to_owned(), &file, size, &meta)?);
            }
        }
        Ok(copies)
    }

    fn salvage_staging(&self) -> Result<Vec<RecoveryCopy>> {
        let mut copies = Vec::new();
        for (file, path) in files_in(&self.workspace.layout().staging())? {
            let Ok(name) = file.parse::<StagingName>() else { continue };
            if name.checkout != self.checkout || self.named.contains(&file) {
                continue;
            }
            let worthless = name.role == StagingRole::Copy;
            let salvaged = self.salvage(&path, name.artifact, name.base, worthless);
            copies.extend(logged(&path, salvaged).flatten());
        }
        Ok(copies)
    }

    /// Scratch that no row names was removed by its application; only what an artifact of the tree lost is kept.
    fn salvage_scratch(&self) -> Result<Vec<RecoveryCopy>> {
        let mut copies = Vec::new();
        for (file, path) in files_in(&self.workspace.layout().scratch())? {
            let Ok(name) = file.parse::<ScratchName>() else { continue };
            if name.checkout != self.checkout || self.named.contains(&file) {
                continue;
            }
            let entry = self.workspace.catalog().entry_of(self.checkout, name.artifact);
            let head = self.workspace.in_catalog(entry)?.and_then(|entry| entry.head);
            let salvaged = self.salvage(&path, name.artifact, head, head.is_none());
            copies.extend(logged(&path, salvaged).flatten());
        }
        Ok(copies)
    }

    fn salvage(
        &self,
        path: &Path,
        artifact: Seq,
        base: Option<VersionNumber>,
        worthless: bool,
    ) -> Result<Option<RecoveryCopy>> {
        if worthless || self.is_known(path, artifact, base)? {
            return remove_file(path).map(|()| None);
        }
        self.workspace.put_aside(path, &self.meta(artifact, base)?).map(Some)
    }

    /// Whether a file's bytes are nothing new: none at all, its base's, or its draft's.
    fn is_known(&self, path: &Path, artifact: Seq, base: Option<VersionNumber>) -> Result<bool> {
        let size = path.metadata().map_err(file_error("examine", path))?.len();
        if size == 0 {
            return Ok(true);
        }
        for (digest, known_size) in self.known_contents(artifact, base)? {
            if known_size == size && self.workspace.has_bytes_of(path, &digest)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn known_contents(&self, artifact: Seq, base: Option<VersionNumber>) -> Result<Vec<(Digest, u64)>> {
        let catalog = self.workspace.catalog();
        let mut known = Vec::new();
        if let Some(base) = base {
            let version = self.workspace.in_catalog(catalog.version(artifact, base))?;
            known.extend(version.map(|version| (version.content, version.size)));
        }
        let entry = self.workspace.in_catalog(catalog.entry_of(self.checkout, artifact))?;
        known.extend(entry.map(|entry| (entry.content, entry.size)));
        let blob = |(content, size)| match content {
            Content::Blob(digest) => Some((digest, size)),
            _ => None,
        };
        Ok(known.into_iter().filter_map(blob).collect())
    }

    fn meta(&self, artifact: Seq, base: Option<VersionNumber>) -> Result<RecoveryMeta> {
        let catalog = self.workspace.catalog();
        Ok(RecoveryMeta {
            artifact: self.workspace.in_catalog(catalog.artifact_id(artifact))?,
            path: self.workspace.in_catalog(catalog.any_path_of(self.checkout, artifact))?,
            base,
            holder: self.holder.clone(),
            reason: "not saved when the mount ended".to_owned(),
        })
    }
}

impl Workspace {
    /// Whether a file holds exactly the bytes of a blob. A blob that can't be read is no proof that it does.
    fn has_bytes_of(&self, path: &Path, digest: &Digest) -> Result<bool> {
        let Ok(blob) = self.blobs().get(digest) else { return Ok(false) };
        let file = File::open(path).map_err(file_error("open", path))?;
        same_bytes(file, blob).map_err(file_error("read", path))
    }
}

fn same_bytes(a: impl Read, b: impl Read) -> std::io::Result<bool> {
    let mut a = std::io::BufReader::with_capacity(256 << 10, a);
    let mut b = std::io::BufReader::with_capacity(256 << 10, b);
    loop {
        use std::io::BufRead;
        let (left, right) = (a.fill_buf()?, b.fill_buf()?);
        let count = left.len().min(right.len());
        if left[..count] != right[..count] || (count == 0 && left.len() != right.len()) {
            return Ok(false);
        }
        if count == 0 {
            return Ok(true);
        }
        a.consume(count);
        b.consume(count);
    }
}

/// Whose bytes a file of `recovered/` holds, by the name that it had before.
pub(super) fn owner_of(name: &str) -> Option<(CheckoutId, Seq, Option<VersionNumber>)> {
    if let Ok(name) = name.parse::<StagingName>() {
        return Some((name.checkout, name.artifact, name.base));
    }
    let name = name.parse::<ScratchName>().ok()?;
    Some((name.checkout, name.artifact, None))
}

/// The files of a directory; names that aren't UTF-8 are not ours.
pub(super) fn files_in(dir: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(file_error("list", dir))? {
        let entry = entry.map_err(file_error("list", dir))?;
        if let Ok(name) = std::str::from_utf8(entry.file_name().as_bytes()) {
            files.push((name.to_owned(), entry.path()));
        }
    }
    files.sort();
    Ok(files)
}

/// One file that can't be recovered must not keep the others from it, nor the mount from starting.
fn logged<T>(path: &Path, result: Result<T>) -> Option<T> {
    result.inspect_err(|error| tracing::error!(path = %path.display(), %error, "can't recover a file")).ok()
}
