//! Making a workspace: it is built beside its place and renamed there, so that it is whole or not there.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use super::access::identity_of_process;
use super::files::{check_filesystem, file_error, make_inner_dir, make_private_dir, sync_dir};
use super::{EngineError, Environment, Layout, Result};
use crate::blobs::{DiskSettings, DiskStore, MemoryStamps};
use crate::catalog::Catalog;
use crate::config::DEFAULT_CONFIG_TOML;
use crate::model::{Attrs, Instant};
use crate::sys;

/// What an unfinished workspace is called, with a token after it.
const UNFINISHED: &str = ".leasehold.tmp-";

/// The mode of the root directory as mounts show it.
const ROOT_MODE: u32 = 0o755;

pub(super) fn init(root: &Path, group: Option<u32>, env: &Environment) -> Result<()> {
    make(root, group, env, |layout| {
        write_new(&layout.config(), DEFAULT_CONFIG_TOML.as_bytes())?;
        let parts = env.store_parts(DiskSettings::default(), Arc::new(MemoryStamps::default()));
        DiskStore::create(&layout.objects(), &layout.staging(), &parts)?;
        make_catalog(&layout.catalog(), env)
    })
}

/// Makes a workspace whose configuration, store and catalog are made by `fill`; it is there whole, or not at all.
///
/// With a group, all its files are shared with that.
pub(super) fn make<T>(
    root: &Path,
    group: Option<u32>,
    env: &Environment,
    fill: impl FnOnce(&Layout) -> Result<T>,
) -> Result<T> {
    let is_new = !root.exists();
    fs::create_dir_all(root).map_err(file_error("create", root))?;
    if let Some(gid) = group {
        let_group_in(root, gid, is_new)?;
    }
    let dir = File::open(root).map_err(file_error("open", root))?;
    check_filesystem(&dir, root)?;
    // Held until `dir` is closed: two at once would each take the other's half for a leftover.
    dir.lock().map_err(file_error("lock", root))?;
    let dot = Layout::new(root).dot();
    if dot.symlink_metadata().is_ok() {
        return Err(EngineError::WorkspaceExists(root.to_owned()));
    }
    remove_unfinished(root)?;
    let unfinished = Layout::unfinished(root, &format!("{UNFINISHED}{}", env.ids.token()));
    let built = build(&unfinished, group, fill).and_then(|value| {
        fs::rename(unfinished.dot(), &dot).map_err(file_error("rename", &unfinished.dot()))?;
        sync_dir(root)?;
        Ok(value)
    });
    if built.is_err() {
        // What failed is the news; leftovers go at the next attempt.
        let _ = fs::remove_dir_all(unfinished.dot());
    }
    built
}

/// Lets a group into the workspace's directory if it is new; of one that was there, its owner has to say who may enter.
fn let_group_in(root: &Path, gid: u32, is_new: bool) -> Result<()> {
    if is_new {
        return sys::share_dir_with(root, gid).map_err(|error| {
            // What failed is the news.
            let _ = fs::remove_dir(root);
            file_error("give the group", root)(error)
        });
    }
    let found = root.metadata().map_err(file_error("examine", root))?;
    let may_enter = if found.gid() == gid { found.mode() & 0o010 != 0 } else { found.mode() & 0o001 != 0 };
    if may_enter {
        return Ok(());
    }
    let at = root.display();
    Err(EngineError::Refused(format!(
        "{at}: the group may not enter it; `chgrp {gid} {at} && chmod g+rx {at}` lets it in, or name a new directory"
    )))
}

/// Removes what earlier attempts left.
fn remove_unfinished(root: &Path) -> Result<()> {
    for entry in fs::read_dir(root).map_err(file_error("list", root))? {
        let entry = entry.map_err(file_error("list", root))?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            fs::remove_dir_all(entry.path()).map_err(file_error("remove", &entry.path()))?;
        }
    }
    Ok(())
}

fn build<T>(layout: &Layout, group: Option<u32>, fill: impl FnOnce(&Layout) -> Result<T>) -> Result<T> {
    make_private_dir(&layout.dot())?;
    if let Some(gid) = group {
        // What is made in it is shared because it is.
        sys::share_dir_with(&layout.dot(), gid).map_err(file_error("give the group", &layout.dot()))?;
    }
    for dir in [layout.scratch(), layout.recovered(), layout.run(), layout.log()] {
        make_inner_dir(&dir)?;
    }
    write_new(&layout.wake(), b"\n")?;
    let value = fill(layout)?;
    sync_dir(&layout.dot())?;
    Ok(value)
}

/// The catalog is closed again: its log would not find it under another name.
fn make_catalog(path: &Path, env: &Environment) -> Result<()> {
    let now = env.clock.now();
    let created = Catalog::create(path, root_attrs(now), env.ids.artifact(now.wall));
    let owner = identity_of_process(path)?.principal;
    let created = created.and_then(|catalog| catalog.begin_access(&owner, now.wall, false));
    created.map_err(|source| EngineError::Catalog { file: path.to_owned(), source })
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || -> io::Result<()> {
        let mut file = sys::create_private(path)?;
        io::Write::write_all(&mut file, bytes)?;
        file.sync_all()
    };
    write().map_err(file_error("write", path))
}

/// The root directory of a new catalog: the maker's own.
pub(super) fn root_attrs(now: Instant) -> Attrs {
    let (uid, gid) = sys::effective_ids();
    let time = now.wall;
    Attrs { mode: ROOT_MODE, uid, gid, atime: time, mtime: time, ctime: time }
}
