use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use super::checkin::{check_paths, sealed_save, selects};
use super::files::file_error;
use super::publish::copy_open_file;
use super::{
    CheckInReport, CheckInRequest, CheckoutOps, EngineError, RecoveryCopy, RecoveryMeta, Result,
    RevertReport, Sealed, SettleReport, StatusReport, Workspace,
};
use crate::catalog::{Actor, DraftInfo, NewEntry, Place, Save};
use crate::model::{
    ArtifactPath, Attrs, CheckoutId, Content, Digest, Entry, Generation, Holder, Kind, Lease, Scratch, Seq,
    VersionInfo, VersionNumber,
};
use crate::sys;

/// A checkout that nobody has mounted: commands work on its drafts in the catalog.
#[derive(Debug)]
pub struct Detached {
    workspace: Arc<Workspace>,
    checkout: CheckoutId,
    holder: Holder,
    ttl_ms: Option<i64>,
}

impl Workspace {
    /// The checkout of a holder, made if there is none, in which leases are taken for `ttl_ms`, or as policy has it; the caller has seen that no live process has it mounted.
    pub fn detached(self: &Arc<Self>, holder: &Holder, ttl_ms: Option<i64>) -> Result<Detached> {
        let checkout = self.in_catalog(self.catalog().checkout(holder))?;
        self.take_back_lost_saves(checkout, holder)?;
        Ok(Detached { workspace: self.clone(), checkout, holder: holder.clone(), ttl_ms })
    }
}

impl CheckoutOps for Detached {
    fn status(&self, under: &ArtifactPath) -> Result<StatusReport> {
        self.workspace.status_of(self.checkout, &self.holder, under)
    }

    fn checkout(&self, paths: &[ArtifactPath]) -> Result<Vec<Lease>> {
        let access = self.workspace.access(self.checkout)?;
        let entries: Vec<Seq> =
            paths.iter().map(|path| Ok(access.entry_to_change(path)?.artifact)).collect::<Result<_>>()?;
        let actor = self.workspace.asking(self.actor(), self.ttl_ms);
        self.workspace.refuse_unleased(&actor, &entries)?;
        let taken = self.workspace.catalog().acquire_whole(&actor, &entries);
        let leases = taken.map_err(|error| self.refusal(first(paths), error))?;
        self.workspace.wake();
        Ok(leases)
    }

    fn check_in(&self, request: &CheckInRequest) -> Result<CheckInReport> {
        let (report, _) = self.workspace.check_in(&self.actor(), request)?;
        self.workspace.share_shortly();
        Ok(report)
    }

    fn revert(&self, paths: &[ArtifactPath]) -> Result<RevertReport> {
        self.workspace.revert(&self.actor(), paths, "reverted")
    }

    fn save_as(&self, path: &ArtifactPath, new: &ArtifactPath) -> Result<()> {
        self.workspace.save_as(&self.actor(), path, new)
    }

    fn open_blobs(&self) -> Result<Vec<Digest>> {
        Ok(Vec::new())
    }

    fn settle(&self, under: &ArtifactPath) -> Result<SettleReport> {
        self.workspace.settle_drafts(&self.actor(), under)
    }

    fn add(&self, path: &ArtifactPath) -> Result<()> {
        let entry = self.workspace.access(self.checkout)?.entry_to_change(path)?;
        if !entry.kind.is_versioned() {
            return Err(EngineError::Refused(format!(
                "{path}: a FIFO or socket has no versions; it stays scratch"
            )));
        }
        let promoted = self.workspace.catalog().promote(&self.actor(), entry.artifact);
        promoted.map(drop).map_err(|error| self.refusal(path, error))
    }

    fn restore(&self, path: &ArtifactPath, version: VersionNumber) -> Result<()> {
        self.workspace.restore(&self.actor(), path, version)
    }
}

impl Detached {
    fn actor(&self) -> Actor {
        self.workspace.actor(self.checkout, &self.holder, self.ttl_ms, sys::effective_ids())
    }

    fn refusal(&self, path: &ArtifactPath, error: crate::catalog::CatalogError) -> EngineError {
        self.workspace.refusal(Some(self.checkout), path, error)
    }
}

/// Opens the file of a draft; none, with an error in the log, if it is gone.
fn open_draft(path: &Path) -> Result<Option<File>> {
    match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            tracing::error!(path = %path.display(), "the bytes of a draft are gone");
            Ok(None)
        }
        opened => opened.map(Some).map_err(file_error("open", path)),
    }
}

fn first(paths: &[ArtifactPath]) -> &ArtifactPath {
    const ROOT: &ArtifactPath = &ArtifactPath::root();
    paths.first().unwrap_or(ROOT)
}

impl Workspace {
    /// Where a path would be; its directory must be there, and something may be made in it.
    fn place_for(&self, checkout: CheckoutId, path: &ArtifactPath) -> Result<Place> {
        let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(EngineError::Refused(format!(
                "{path}: the root directory can't be replaced; name something in it"
            )));
        };
        let access = self.access(checkout)?;
        let dir = access.entry(&above)?;
        if dir.kind != Kind::Directory {
            return Err(EngineError::Refused(format!("{above}: not a directory; name one that is there")));
        }
        access.check_new(path)?;
        Ok(Place { parent: dir.artifact, name: name.clone() })
    }

    /// Drops the drafts at and below some paths (none: all), after keeping their bytes as recovery copies, and releases
    /// the leases. Nobody may be writing to them.
    pub fn revert(&self, actor: &Actor, paths: &[ArtifactPath], reason: &str) -> Result<RevertReport> {
        let access = self.access(actor.checkout)?;
        let drafts = access.drafts()?;
        check_paths(&access, &drafts, paths)?;
        let Some(paths) = access.narrowed(&drafts, paths)? else { return Ok(RevertReport::default()) };
        let paths = paths.as_slice();
        let contents = self.in_catalog(self.catalog().revertible(actor, paths))?;
        let mut recovered = Vec::new();
        for (artifact, content) in &contents {
            let draft = drafts.iter().find(|draft| draft.artifact == *artifact);
            if draft.is_none_or(|draft| draft.modified) {
                recovered.extend(self.keep_bytes(actor, *artifact, draft, content, reason)?);
            }
        }
        let reverted = self.catalog().revert(actor, paths);
        let reverted = reverted.map_err(|error| self.refusal(Some(actor.checkout), first(paths), error))?;
        for (_, content) in &contents {
            self.remove_draft_file(content);
        }
        self.wake();
        Ok(RevertReport { reverted: reverted.into_iter().map(|item| item.path).collect(), recovered })
    }

    /// Makes a recovery copy of a draft's content, if it has any bytes. The draft still has its own.
    fn keep_bytes(
        &self,
        actor: &Actor,
        artifact: Seq,
        draft: Option<&DraftInfo>,
        content: &Content,
        reason: &str,
    ) -> Result<Option<RecoveryCopy>> {
        let base = draft.and_then(|draft| draft.base);
        let name = self.copy_name(actor.checkout, artifact, base);
        let copy = self.layout().staging().join(name.to_string());
        let source = match content {
            Content::None | Content::Target(_) => return Ok(None),
            Content::Staged(file) => open_draft(&self.layout().staging().join(file))?,
            Content::Direct(file) => open_draft(&self.layout().scratch().join(file))?,
            // Verified: a corrupt blob must not become a recovery copy in silence.
            Content::Blob(digest) => Some(self.open_blob(digest)?),
        };
        let Some(source) = source else { return Ok(None) };
        copy_open_file(&source, &copy)?;
        if copy.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            return super::files::remove_file(&copy).map(|()| None);
        }
        let meta = RecoveryMeta {
            artifact: self.in_catalog(self.catalog().artifact_id(artifact))?,
            path: self.in_catalog(self.catalog().any_path_of(actor.checkout, artifact))?,
            base,
            holder: actor.holder.clone(),
            reason: reason.to_owned(),
        };
        self.put_aside(&copy, &meta).map(Some)
    }

    /// Removes the file of a draft that is no more. One that stays is found when the checkout is mounted next.
    fn remove_draft_file(&self, content: &Content) {
        let path = match content {
            Content::Staged(file) => self.layout().staging().join(file),
            Content::Direct(file) => self.layout().scratch().join(file),
            Content::None | Content::Blob(_) | Content::Target(_) => return,
        };
        if let Err(error) = super::files::remove_file(&path) {
            tracing::warn!(%error, "can't remove the file of a reverted draft");
        }
    }

    /// Keeps the draft of a path under another name, as a new artifact; the path shows the head tree again.
    pub fn save_as(&self, actor: &Actor, path: &ArtifactPath, new: &ArtifactPath) -> Result<()> {
        let drafts = self.access(actor.checkout)?.drafts()?;
        let draft = drafts.iter().find(|draft| draft.path == *path && draft.drafted);
        let draft = draft.ok_or_else(|| {
            EngineError::Refused(format!("{path}: has no draft to save; to copy a version use cp"))
        })?;
        if draft.kind == Kind::Directory {
            return Err(EngineError::Refused(format!("{path}: is a directory; save its files one by one")));
        }
        if let Content::Staged(file) = &draft.content {
            // Another name is no reason to forget what comes back if the bytes are lost: so they are brought to safety.
            for published in self.publish(&[sealed_save(actor, draft, file)])? {
                published?;
            }
        }
        let place = self.place_for(actor.checkout, new)?;
        let entry = self.new_entry(draft.kind, draft.attrs, Content::None, 0)?;
        let saved = self.catalog().save_as(actor, draft.artifact, &place, &entry);
        saved.map_err(|error| self.refusal(Some(actor.checkout), new, error))?;
        self.wake();
        Ok(())
    }

    fn new_entry(&self, kind: Kind, attrs: Attrs, content: Content, size: u64) -> Result<NewEntry> {
        let id = self.ids().artifact(self.now().wall);
        let ino = self.in_catalog(self.catalog().next_ino())?;
        Ok(NewEntry { id, kind, ino, attrs, content, size, scratch: Scratch::No })
    }

    /// Brings the saves under a path into the store.
    fn settle_drafts(&self, actor: &Actor, under: &ArtifactPath) -> Result<SettleReport> {
        let under = std::slice::from_ref(under);
        let access = self.access(actor.checkout)?;
        let drafts = access.drafts()?;
        check_paths(&access, &drafts, under)?;
        let sealed = drafts.iter().filter(|draft| selects(under, draft)).filter_map(|draft| {
            let Content::Staged(file) = &draft.content else { return None };
            Some((draft, sealed_save(actor, draft, file)))
        });
        let (drafts, sealed): (Vec<&DraftInfo>, Vec<Sealed>) = sealed.unzip();
        let mut report = SettleReport::default();
        for (draft, published) in drafts.iter().zip(self.publish(&sealed)?) {
            report.problems.extend(published.err().map(|error| format!("{}: {error}", draft.path)));
        }
        Ok(report)
    }

    /// Makes an old version the draft of its path, which may be gone; a draft's own bytes become a recovery copy.
    pub fn restore(&self, actor: &Actor, path: &ArtifactPath, number: VersionNumber) -> Result<()> {
        let version = self.version_at(path, Some(number))?;
        if version.kind == Kind::Directory {
            return Err(EngineError::Refused(format!(
                "{path}: is a directory; restore its files one by one"
            )));
        }
        match self.in_catalog(self.catalog().resolve(actor.checkout, path))? {
            Some(_) => {
                let entry = self.access(actor.checkout)?.entry_to_change(path)?;
                self.restore_onto(actor, path, &entry, &version)
            }
            None => self.restore_gone(actor, path, &version),
        }?;
        self.wake();
        Ok(())
    }

    fn restore_onto(
        &self,
        actor: &Actor,
        path: &ArtifactPath,
        entry: &Entry,
        version: &VersionInfo,
    ) -> Result<()> {
        if entry.kind != version.kind {
            return Err(EngineError::Refused(format!(
                "{path}: version {} is of another kind than what is there; move that away first",
                version.number
            )));
        }
        let refused = |error| self.refusal(Some(actor.checkout), path, error);
        let leases = self.catalog().acquire(actor, &[(entry.artifact, None)]).map_err(refused)?;
        let drafts = self.in_catalog(self.catalog().drafts(actor.checkout))?;
        if let Some(draft) = drafts.iter().find(|draft| draft.artifact == entry.artifact && draft.modified) {
            self.keep_bytes(actor, draft.artifact, Some(draft), &draft.content, "replaced by restore")?;
        }
        let save = Save {
            artifact: entry.artifact,
            ino: self.in_catalog(self.catalog().next_ino())?,
            content: version.content.clone(),
            size: version.size,
            attrs: self.restored_attrs(actor, version),
            base: entry.head,
            generation: leases.first().map(|lease: &Lease| -> Generation { lease.generation }),
        };
        let saved = self.catalog().save(actor, &save, crate::catalog::Durability::Full);
        let saved = saved.map_err(refused)?;
        self.remove_draft_file(&saved.before);
        Ok(())
    }

    fn restore_gone(&self, actor: &Actor, path: &ArtifactPath, version: &VersionInfo) -> Result<()> {
        let place = self.place_for(actor.checkout, path)?;
        let attrs = self.restored_attrs(actor, version);
        let entry = self.new_entry(version.kind, attrs, version.content.clone(), version.size)?;
        let created = self.catalog().create_entry(actor, &place, &entry);
        created.map(drop).map_err(|error| self.refusal(Some(actor.checkout), path, error))
    }

    /// A restored file is as old as its restoring, so that tools that compare times notice it.
    fn restored_attrs(&self, actor: &Actor, version: &VersionInfo) -> Attrs {
        let (uid, gid) = actor.owner;
        let now = actor.now.wall;
        Attrs { mode: version.attrs.mode, uid, gid, atime: now, mtime: now, ctime: now }
    }
}
