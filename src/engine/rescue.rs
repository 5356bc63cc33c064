//! Rescue: a new catalog from the manifests that check-ins left in the store.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::access::identity_of_process;
use super::files::{check_filesystem, file_error, sync_dir};
use super::init::root_attrs;
use super::manifest::{Manifest, is_manifest, read_manifest};
use super::recovery::{files_in, owner_of};
use super::{EngineError, Environment, Layout, RecoveryCopy, Result, StagingName, StagingRole};
use crate::blobs::{BlobError, BlobStore, DiskSettings, DiskStore, MemoryStamps};
use crate::catalog::Catalog;
use crate::model::{ArtifactId, ChangeNumber, CheckoutId, Digest, Holder};
use crate::sys;

/// By how much generations go on: leases that were granted after the newest manifest are not known.
const GENERATIONS_UNKNOWN: i64 = 1 << 32;

/// By how much artifact and inode numbers go on, for the same reason.
const NUMBERS_UNKNOWN: i64 = 1 << 32;

/// What a rescue came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RescueReport {
    /// How many changes the new catalog has.
    pub changes: u64,
    /// The newest of them.
    pub head: Option<ChangeNumber>,
    /// Changes before it of which no manifest was found.
    pub missing: Vec<ChangeNumber>,
    /// Manifests that could not be read, with the reason.
    pub unreadable: Vec<(Digest, String)>,
    /// Where the old catalog's files are now.
    pub set_aside: Vec<PathBuf>,
    /// How many files outside the store are recovery copies now: drafts, unsaved bytes, scratch, and the copies before.
    pub kept: u64,
}

/// The manifests of one workspace, by change.
type Changes = BTreeMap<ChangeNumber, (Digest, Manifest)>;

/// Makes a new catalog for a workspace whose own is lost or damaged; the old one's files are set aside.
///
/// Drafts and leases are not in manifests: what is in `staging/` and `scratch/` becomes recovery copies. Refuses a
/// workspace whose catalog is whole, and knows all changes of which the store has manifests.
pub fn rescue(root: &Path, env: &Environment) -> Result<RescueReport> {
    let root = fs::canonicalize(root).map_err(file_error("find", root))?;
    let layout = Layout::new(&root);
    let dot = sys::open_dir(&layout.dot()).map_err(file_error("open", &layout.dot()))?;
    check_filesystem(&dot, &root)?;
    let parts = env.store_parts(DiskSettings::default(), Arc::new(MemoryStamps::default()));
    let blobs = DiskStore::open(&layout.objects(), &layout.staging(), &parts)?;
    let mut report = RescueReport::default();
    let found = find_manifests(&blobs, &root, &mut report);
    let newest = found.as_ref().ok().and_then(|(_, changes)| changes.keys().next_back().copied());
    refuse_whole(&layout, newest)?;
    let (workspace, changes) = found?;
    let unfinished = layout.dot().join(format!("catalog.db.new-{}", env.ids.token()));
    let built = build(&unfinished, workspace, &changes, env);
    match built.and_then(|()| keep_files(&layout, &unfinished, env)) {
        Ok(kept) => report.kept = kept,
        Err(error) => {
            // What failed is the news.
            let _ = fs::remove_file(&unfinished);
            return Err(error);
        }
    }
    report.set_aside = replace(&layout, &unfinished, env)?;
    report.changes = changes.len() as u64;
    report.head = changes.keys().next_back().copied();
    let newest = report.head.map_or(0, |head| head.0);
    report.missing = (1..newest).map(ChangeNumber).filter(|number| !changes.contains_key(number)).collect();
    Ok(report)
}

/// A catalog whose log was lost is whole, and older than the store.
fn refuse_whole(layout: &Layout, newest: Option<ChangeNumber>) -> Result<()> {
    if !layout.catalog().exists() {
        return Ok(());
    }
    let look = |catalog: Catalog| Ok((catalog.check_integrity()?, catalog.head_change()?));
    match Catalog::open(&layout.catalog()).and_then(look) {
        Ok((wrong, head)) if wrong.is_empty() && newest.is_none_or(|newest| newest <= head) => {
            Err(EngineError::Refused(format!(
                "{}: the catalog is whole: nothing to rescue",
                layout.root().display()
            )))
        }
        _ => Ok(()),
    }
}

/// Every manifest of the store that can be read, if they are of one workspace.
fn find_manifests(
    blobs: &DiskStore,
    root: &Path,
    report: &mut RescueReport,
) -> Result<(ArtifactId, Changes)> {
    let mut found: BTreeMap<ArtifactId, Changes> = BTreeMap::new();
    for blob in blobs.inventory()? {
        let looks = File::open(blobs.path_of(&blob.digest)).is_ok_and(is_manifest);
        if !looks {
            continue;
        }
        match read(blobs, &blob.digest) {
            Ok(manifest) => {
                let changes = found.entry(manifest.change.workspace).or_default();
                keep_newer(changes, blob.digest, manifest);
            }
            Err(reason) => report.unreadable.push((blob.digest, reason)),
        }
    }
    let refuse = |what: &str| Err(EngineError::Refused(format!("{}: {what}", root.display())));
    match found.len() {
        0 => refuse("no manifest is in the store: nothing can be rescued; restore a backup"),
        1 => Ok(found.pop_first().expect("BUG: there is one")),
        _ => refuse("the store has manifests of several workspaces: move the blobs of the others away"),
    }
}

fn read(blobs: &DiskStore, digest: &Digest) -> std::result::Result<Manifest, String> {
    let bytes = blobs.get(digest).map_err(|error: BlobError| error.to_string())?;
    read_manifest(bytes).map_err(|error| error.to_string())
}

/// A manifest that was made again knows at least as much.
fn keep_newer(changes: &mut Changes, digest: Digest, manifest: Manifest) {
    let number = manifest.change.number;
    let known = changes.get(&number).map(|(_, known)| known.change.next_number);
    if known.is_none_or(|known| known < manifest.change.next_number) {
        changes.insert(number, (digest, manifest));
    }
}

/// Makes the new catalog; closed again, so that it is one file.
fn build(path: &Path, workspace: ArtifactId, changes: &Changes, env: &Environment) -> Result<()> {
    let in_catalog = |source| EngineError::Catalog { file: path.to_owned(), source };
    let now = env.clock.now();
    let catalog = Catalog::create(path, root_attrs(now), workspace).map_err(in_catalog)?;
    // The access rules are not in manifests. Where others share the files, all is hidden from them until somebody says
    // what they may see.
    let owner = identity_of_process(path)?.principal;
    let is_shared = path.parent().is_some_and(sys::is_shared_dir);
    catalog.begin_access(&owner, now.wall, is_shared).map_err(in_catalog)?;
    for (digest, manifest) in changes.values() {
        let mut change = manifest.change.clone();
        change.next_number += NUMBERS_UNKNOWN;
        change.next_generation += GENERATIONS_UNKNOWN;
        catalog.replay(&change, digest, &manifest.items).map_err(in_catalog)?;
    }
    Ok(())
}

/// Makes recovery copies of all files outside the store that hold bytes of applications, and lists those that were there;
/// a crash in between leaves files in `recovered/`, which the next rescue lists.
fn keep_files(layout: &Layout, catalog: &Path, env: &Environment) -> Result<u64> {
    let failed = |source| EngineError::Catalog { file: catalog.to_owned(), source };
    let recovered = layout.recovered();
    for dir in [layout.staging(), layout.scratch()] {
        for (name, file) in files_in(&dir)? {
            let size = file.metadata().map_err(file_error("examine", &file))?.len();
            if size > 0 && is_of_application(&name) {
                let target = recovered.join(format!("{}.{name}", env.ids.token()));
                fs::rename(&file, target).map_err(file_error("put aside", &file))?;
            }
        }
        sync_dir(&dir)?;
    }
    sync_dir(&recovered)?;
    let catalog = Catalog::open_alone(catalog).map_err(failed)?;
    let mut kept = 0;
    for (name, file) in files_in(&recovered)? {
        if let Some(copy) = copy_of(&catalog, &name, &file, env)? {
            catalog.add_recovery(&name, &copy).map_err(failed)?;
            kept += 1;
        }
    }
    Ok(kept)
}

fn is_of_application(name: &str) -> bool {
    name.parse::<StagingName>()
        .map_or_else(|_| owner_of(name).is_some(), |name| name.role != StagingRole::Copy)
}

/// What a file of `recovered/` tells by its name; whose checkout it was is not known any more.
fn copy_of(catalog: &Catalog, name: &str, file: &Path, env: &Environment) -> Result<Option<RecoveryCopy>> {
    let Some((id, (_, artifact, base))) =
        name.split_once('.').and_then(|(id, rest)| Some((id, owner_of(rest)?)))
    else {
        return Ok(None);
    };
    let failed = |source| EngineError::Catalog { file: catalog.path().to_owned(), source };
    Ok(Some(RecoveryCopy {
        id: id.to_owned(),
        artifact: catalog.artifact_id(artifact).map_err(failed)?,
        path: catalog.any_path_of(CheckoutId(0), artifact).map_err(failed)?,
        base,
        holder: Holder::of("unknown", "rescue").expect("BUG: it is a holder"),
        at: env.clock.now().wall,
        size: file.metadata().map_err(file_error("examine", file))?.len(),
        reason: "there when the catalog was lost".to_owned(),
    }))
}

/// Puts the new catalog in the old one's place, whose files stay beside it under other names.
fn replace(layout: &Layout, new: &Path, env: &Environment) -> Result<Vec<PathBuf>> {
    let (dot, catalog) = (layout.dot(), layout.catalog());
    // With a token, so that two rescues of one second don't take each other's.
    let stamp = format!("{}-{}", env.clock.now().wall.0 / 1_000_000_000, env.ids.token());
    let mut set_aside = Vec::new();
    // The log first: it must not be taken for the new catalog's.
    for suffix in ["-wal", "-shm", ""] {
        let old = dot.join(format!("catalog.db{suffix}"));
        let aside = dot.join(format!("catalog.db.lost-{stamp}{suffix}"));
        match fs::rename(&old, &aside) {
            Ok(()) => set_aside.push(aside),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(file_error("set aside", &old)(error)),
        }
    }
    sync_dir(&dot)?;
    fs::rename(new, &catalog).map_err(file_error("rename", new))?;
    sync_dir(&dot)?;
    Ok(set_aside)
}
