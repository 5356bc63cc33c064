//! What only root can arrange: filesystems that are full or read-only below the workspace.

use std::path::{Path, PathBuf};
use std::process::Command;

use libc::{O_CREAT, O_TRUNC, O_WRONLY};

use crate::agent::App;
use crate::kernel::{self, ENOSPC, EROFS, Sys};
use crate::mounted::{Mount, Workspace, eventually};

/// How large the filesystem below the workspace is, in bytes.
const SMALL_BYTES: usize = 24 << 20;

/// A filesystem of its own below a workspace, taken away when it is dropped.
struct Filesystem {
    at: PathBuf,
}

impl Filesystem {
    fn tmpfs(at: &Path, bytes: usize) -> Self {
        let size = format!("size={bytes}");
        run(
            "mount",
            &[
                "-t".as_ref(),
                "tmpfs".as_ref(),
                "-o".as_ref(),
                size.as_ref(),
                "tmpfs".as_ref(),
                at.as_os_str(),
            ],
        );
        Self { at: at.to_owned() }
    }

    /// Lets nobody write below a directory.
    fn read_only(at: &Path) -> Self {
        run("mount", &["--bind".as_ref(), at.as_os_str(), at.as_os_str()]);
        let view = Self { at: at.to_owned() };
        run("mount", &["-o".as_ref(), "remount,bind,ro".as_ref(), at.as_os_str()]);
        view
    }

    fn grow(&self, bytes: usize) {
        let option = format!("remount,size={bytes}");
        run("mount", &["-o".as_ref(), option.as_ref(), self.at.as_os_str()]);
    }
}

impl Drop for Filesystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

fn run(program: &str, args: &[&std::ffi::OsStr]) {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
}

/// A workspace on a small filesystem, and a mount of it, which go in the opposite order; none, with a word why, for an ordinary user.
fn on_small_disk() -> Option<(Workspace, Filesystem, Mount)> {
    if !kernel::is_root() {
        assert!(std::env::var_os("CI").is_none(), "not root, and CI wants full disks tested");
        eprintln!("SKIPPED: only root can mount a small filesystem");
        return None;
    }
    let workspace = Workspace::empty_directory()?;
    let disk = Filesystem::tmpfs(&workspace.root(), SMALL_BYTES);
    workspace.init_with(&[("doc.txt", b"old"), ("other.txt", b"other")]);
    let ada = workspace.mount("ada");
    Some((workspace, disk, ada))
}

/// Writes until the disk is full; returns the error, which came from a write or from the close.
fn fill(app: &App, path: &Path, flags: i32) -> Sys<()> {
    let fd = app.open(path, O_WRONLY | flags)?;
    let block = vec![b'x'; 256 << 10];
    let written = (0..2 * SMALL_BYTES / block.len()).try_for_each(|_| app.write(fd, &block));
    let closed = app.close(fd);
    written.and(closed)
}

/// Disk full: the write or the close fails with ENOSPC, the old content stays, and the mount goes on.
#[test]
fn a_full_disk_fails_the_write_and_keeps_the_document() {
    let Some((_workspace, _disk, ada)) = on_small_disk() else { return };
    let app = ada.app();
    assert_eq!(fill(&app, &ada.path("doc.txt"), O_TRUNC), Err(ENOSPC));
    assert_eq!(ada.read("doc.txt"), b"old", "not empty, and not half of it");
    assert_eq!(ada.read("other.txt"), b"other", "the mount goes on");
    assert_eq!(ada.xattr("doc.txt", "user.artifact.draft").as_deref(), Some("none"));
}

/// Saving works again once there is space.
#[test]
fn saving_works_again_when_there_is_space() {
    let Some((_workspace, disk, ada)) = on_small_disk() else { return };
    let app = ada.app();
    assert_eq!(fill(&app, &ada.path("doc.txt"), O_TRUNC), Err(ENOSPC));
    disk.grow(4 * SMALL_BYTES);
    app.overwrite(&ada.path("doc.txt"), b"new").unwrap();
    ada.check_in();
    assert_eq!(ada.read("doc.txt"), b"new");
}

/// Removing a file makes room on a full disk, though its bytes stay until no power cut brings its name back.
#[test]
fn removing_a_live_draft_makes_room() {
    let Some((_workspace, _disk, ada)) = on_small_disk() else { return };
    let (app, large) = (ada.app(), ada.path("large.db"));
    assert_eq!(fill(&app, &large, O_CREAT), Err(ENOSPC));
    app.unlink(&large).unwrap();
    let block = vec![b'x'; SMALL_BYTES / 2];
    eventually("room for half of the disk", || app.overwrite(&ada.path("doc.txt"), &block).ok());
    ada.check_in();
    assert_eq!(ada.read("doc.txt"), block);
}

/// A temporary file that could not be written whole never replaces the document, though the program tries.
#[test]
fn a_failed_temporary_never_replaces_the_document() {
    let Some((_workspace, _disk, ada)) = on_small_disk() else { return };
    let (app, temp) = (ada.app(), ada.path("doc.txt.Ab12Cd"));
    assert_eq!(fill(&app, &temp, O_CREAT), Err(ENOSPC));
    assert!(app.rename(&temp, &ada.path("doc.txt"), 0).is_err());
    assert_eq!(ada.read("doc.txt"), b"old");
}

/// Where nothing can be written, the first write fails, the old content stays, and the mount goes on.
#[test]
fn a_read_only_disk_fails_the_write_and_keeps_the_document() {
    let Some((workspace, _disk, ada)) = on_small_disk() else { return };
    let (app, read_only) = (ada.app(), Filesystem::read_only(&workspace.dot("staging")));
    assert_eq!(app.overwrite(&ada.path("doc.txt"), b"new"), Err(EROFS));
    assert_eq!((ada.read("doc.txt"), ada.read("other.txt")), (b"old".to_vec(), b"other".to_vec()));
    drop(read_only);
    app.overwrite(&ada.path("doc.txt"), b"new").unwrap();
    assert_eq!(ada.read("doc.txt"), b"new");
}

/// Where the store alone is read-only, what was saved stays a draft, the failure is told, and a check-in is refused.
#[test]
fn a_read_only_store_keeps_the_save() {
    let Some((workspace, _disk, ada)) = on_small_disk() else { return };
    // Before the mount, which may have directories of the store open for as long as it lives.
    ada.unmount();
    let read_only = Filesystem::read_only(&workspace.dot("objects"));
    let ada = workspace.mount("ada");
    ada.app().overwrite(&ada.path("doc.txt"), b"new").unwrap();
    assert_ne!(ada.run(&["checkin", "-m", "refused"]).status, 0);
    let status = ada.status();
    assert!(!status["problems"].as_array().unwrap().is_empty(), "{status}");
    assert_eq!(ada.read("doc.txt"), b"new");
    ada.unmount();
    drop(read_only);
    let ada = workspace.mount("ada");
    assert_eq!(ada.read("doc.txt"), b"new");
    ada.check_in();
    workspace.assert_store_is_sound();
}
