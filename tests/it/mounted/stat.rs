//! What stat(2) shows is stable: tools that compare inode and times don't read everything again.

use std::fs;
use std::os::unix::fs::MetadataExt;

use libc::O_CREAT;

use super::{Mount, Workspace};

fn stat(mount: &Mount, name: &str) -> (u64, i64, i64, u64, u32) {
    let stat = fs::symlink_metadata(mount.path(name)).unwrap();
    (stat.ino(), stat.mtime(), stat.mtime_nsec(), stat.size(), stat.mode())
}

/// Versions keep inode, times and mode over a remount.
#[test]
fn stable_over_a_remount() {
    let Some(workspace) = Workspace::with(&[("doc.txt", b"old"), ("dir/x", b"x")]) else { return };
    let ada = workspace.mount("ada");
    let names = ["doc.txt", "dir", "dir/x", ""];
    let before = names.map(|name| stat(&ada, name));
    ada.unmount();
    let ada = workspace.mount("ada");
    assert_eq!(names.map(|name| stat(&ada, name)), before);
}

/// A draft keeps them over its check-in, and over a remount after it.
#[test]
fn stable_over_a_check_in() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let version = stat(&ada, "doc.txt");
    let app = ada.app();
    app.overwrite(&ada.path("doc.txt"), b"new").unwrap();
    app.save(&ada.path("new.txt"), O_CREAT, b"new").unwrap();
    let drafts = [stat(&ada, "doc.txt"), stat(&ada, "new.txt")];
    assert_ne!(drafts[0].0, version.0, "other bytes, another inode");
    ada.check_in();
    assert_eq!([stat(&ada, "doc.txt"), stat(&ada, "new.txt")], drafts, "over the check-in");
    ada.unmount();
    let ada = workspace.mount("ada");
    assert_eq!([stat(&ada, "doc.txt"), stat(&ada, "new.txt")], drafts, "over the remount");
}

/// A draft keeps them over a remount.
#[test]
fn a_draft_is_stable_over_a_remount() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    ada.app().overwrite(&ada.path("doc.txt"), b"new").unwrap();
    let before = stat(&ada, "doc.txt");
    ada.unmount();
    assert_eq!(stat(&workspace.mount("ada"), "doc.txt"), before);
}

/// An import keeps the times of what it took.
#[test]
fn imports_keep_the_time() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let outside = fs::metadata(workspace.beside("from/doc.txt")).unwrap();
    let inside = fs::metadata(ada.path("doc.txt")).unwrap();
    assert_eq!((inside.mtime(), inside.mtime_nsec()), (outside.mtime(), outside.mtime_nsec()));
    assert_eq!(inside.mode() & 0o777, outside.mode() & 0o777);
}

/// All mounts show the same inode of a version: names, not processes, have numbers.
#[test]
fn the_same_in_every_mount() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    assert_eq!(stat(&ada, "doc.txt"), stat(&bob, "doc.txt"));
}

/// An editor that compares a file before and after it opens it finds the same one (vim, `backupcopy=yes`).
#[test]
fn the_same_number_before_and_after_opening() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let before = stat(&ada, "doc.txt");
    let file = fs::File::options().write(true).open(ada.path("doc.txt")).unwrap();
    assert_eq!(file.metadata().unwrap().ino(), before.0, "the descriptor's");
    assert_eq!(stat(&ada, "doc.txt"), before, "the name's");
    drop(file);
    assert_eq!(stat(&ada, "doc.txt"), before, "closed without a write");
}
