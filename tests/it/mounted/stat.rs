//! What stat(2) shows is stable: tools that compare inode and times don't read everything again.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use libc::{O_CREAT, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY};

use super::{Mount, Workspace, eventually};
use crate::kernel;

fn stat(mount: &Mount, name: &str) -> (u64, i64, i64, u64, u32) {
    let stat = fs::symlink_metadata(mount.path(name)).unwrap();
    (stat.ino(), stat.mtime(), stat.mtime_nsec(), stat.size(), stat.mode())
}

fn links(mount: &Mount, name: &str) -> u64 {
    fs::symlink_metadata(mount.path(name)).unwrap().nlink()
}

/// A directory has two links and one for each directory in it, as this checkout sees it; everything else has one.
#[test]
fn links_are_counted_as_the_checkout_sees_them() {
    let Some(workspace) = Workspace::with(&[("dir/a/x", b"x"), ("dir/b/x", b"x"), ("dir/doc", b"x")]) else {
        return;
    };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let app = ada.app();
    assert_eq!(["dir", "dir/a", "dir/doc", ""].map(|name| links(&ada, name)), [4, 2, 1, 3]);
    kernel::mkdir(&ada.path("dir/new")).unwrap();
    kernel::mkdir(&ada.path("dir/doc.txt.d")).unwrap();
    app.save(&ada.path("dir/new.txt"), O_CREAT, b"new").unwrap();
    std::os::unix::fs::symlink("a", ada.path("dir/link")).unwrap();
    assert_eq!(["dir", "dir/new", "dir/new.txt", "dir/link"].map(|name| links(&ada, name)), [6, 2, 1, 1]);
    app.rename(&ada.path("dir/a"), &ada.path("moved"), 0).unwrap();
    app.unlink(&ada.path("dir/b/x")).unwrap();
    kernel::rmdir(&ada.path("dir/b")).unwrap();
    kernel::rmdir(&ada.path("dir/doc.txt.d")).unwrap();
    assert_eq!((links(&ada, "dir"), links(&ada, "")), (3, 4));
    assert_eq!((links(&bob, "dir"), links(&bob, "")), (4, 3), "the head tree's");
    ada.check_in();
    assert_eq!((links(&ada, "dir"), links(&ada, "")), (3, 4));
    eventually("the change", || (links(&bob, "dir") == 3 && links(&bob, "") == 4).then_some(()));
}

/// An open file that has no name any more has no link, whoever took the name: this mount or another's check-in.
#[test]
fn files_without_a_name_have_no_link() {
    let Some(workspace) = Workspace::with(&[
        ("unlinked", b"x"),
        ("replaced", b"x"),
        ("elsewhere-deleted", b"x"),
        ("elsewhere-replaced", b"x"),
    ]) else {
        return;
    };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let (app, other) = (ada.app(), bob.app());
    let open = |name: &str| app.open(&ada.path(name), O_RDONLY).unwrap();
    let unlinked = open("unlinked");
    app.unlink(&ada.path("unlinked")).unwrap();
    let replaced = open("replaced");
    app.save(&ada.path("temporary"), O_CREAT, b"new").unwrap();
    let draft = app.open(&ada.path("temporary"), O_RDWR).unwrap();
    app.rename(&ada.path("temporary"), &ada.path("replaced"), 0).unwrap();
    assert_eq!([unlinked, replaced, draft].map(|fd| app.metadata(fd).nlink()), [0, 0, 1]);
    app.unlink(&ada.path("replaced")).unwrap();
    assert_eq!(app.metadata(draft).nlink(), 0);
    let far = [open("elsewhere-deleted"), open("elsewhere-replaced")];
    assert_eq!(far.map(|fd| app.metadata(fd).nlink()), [1, 1]);
    other.unlink(&bob.path("elsewhere-deleted")).unwrap();
    other.overwrite(&bob.path("elsewhere-replaced"), b"bob's").unwrap();
    bob.check_in();
    eventually("the change", || (ada.read("elsewhere-replaced") == b"bob's").then_some(()));
    eventually("no link", || (far.map(|fd| app.metadata(fd).nlink()) == [0, 0]).then_some(()));
    assert_eq!(links(&ada, "elsewhere-replaced"), 1);
}

/// The number of blocks follows from the size, for versions, drafts and scratch, with holes or without.
#[test]
fn blocks_follow_from_the_size() {
    let Some(workspace) = Workspace::with(&[("doc.txt", &[b'x'; 1025])]) else { return };
    let ada = workspace.mount("ada");
    let app = ada.app();
    let blocks = |name: &str| fs::metadata(ada.path(name)).unwrap().blocks();
    assert_eq!(blocks("doc.txt"), 3);
    for (name, size) in [("doc.txt", 0), ("doc.txt", 512), ("doc.txt~", 1 << 20), ("doc.txt", (1 << 24) + 1)]
    {
        app.save(&ada.path(name), O_CREAT, b"").unwrap();
        app.truncate(&ada.path(name), size).unwrap();
        assert_eq!(blocks(name), size.unsigned_abs().div_ceil(512), "{name} of {size} bytes");
    }
    ada.check_in();
    assert_eq!(blocks("doc.txt"), (1 << 15) + 1);
}

/// There is no time of last access: reading moves none, and one that is set is not kept in a version. Nor is there one of
/// birth.
#[test]
fn there_is_no_time_of_access_or_birth() {
    let Some(workspace) = Workspace::with(&[("doc.txt", b"old"), ("dir/x", b"x")]) else { return };
    let ada = workspace.mount("ada");
    let app = ada.app();
    app.save(&ada.path("doc.txt~"), O_CREAT, b"scratch").unwrap();
    app.save(&ada.path("draft.txt"), O_CREAT, b"draft").unwrap();
    let times = |name: &str| {
        let stat = fs::metadata(ada.path(name)).unwrap();
        ((stat.atime(), stat.atime_nsec()), (stat.mtime(), stat.mtime_nsec()))
    };
    let names = ["doc.txt", "draft.txt", "doc.txt~", "dir"];
    let before = names.map(times);
    assert_eq!(before[0].0, before[0].1, "a version's is the mtime");
    for name in ["doc.txt", "draft.txt", "doc.txt~"] {
        app.read_file(&ada.path(name)).unwrap();
    }
    assert_eq!(ada.list("dir"), ["x"]);
    assert_eq!(names.map(times), before, "reading moves nothing");
    for name in names {
        let birth = fs::metadata(ada.path(name)).unwrap().created();
        assert!(birth.is_err(), "{name} was born at {birth:?}");
    }
    let set =
        Command::new("touch").args(["-a", "-d", "2001-02-03 04:05:06"]).arg(ada.path("draft.txt")).status();
    assert!(set.unwrap().success());
    assert_ne!(times("draft.txt").0, before[1].0);
    assert_eq!(times("draft.txt").1, before[1].1);
    ada.check_in();
    assert_eq!(times("draft.txt"), (before[1].1, before[1].1));
}

/// statfs(2) shows the filesystem that the workspace is on, at every file and directory.
#[test]
fn the_filesystem_is_the_workspaces() {
    let Some(workspace) = Workspace::with(&[("dir/doc.txt", b"x")]) else { return };
    let ada = workspace.mount("ada");
    let below = sizes_of_filesystem(&workspace.root());
    for name in ["", "dir", "dir/doc.txt"] {
        assert_eq!(sizes_of_filesystem(&ada.path(name)), below, "{name}");
    }
}

/// Block size, blocks, and the longest name; what is free changes all the time.
fn sizes_of_filesystem(path: &Path) -> String {
    let output = Command::new("stat").args(["-f", "-c", "%S %b %l"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
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

/// atime, mtime and ctime in nanoseconds.
fn times(mount: &Mount, name: &str) -> [i64; 3] {
    let stat = fs::symlink_metadata(mount.path(name)).unwrap();
    let nanos = |seconds, nanos| seconds * 1_000_000_000 + nanos;
    [
        nanos(stat.atime(), stat.atime_nsec()),
        nanos(stat.mtime(), stat.mtime_nsec()),
        nanos(stat.ctime(), stat.ctime_nsec()),
    ]
}

/// Reading in any way moves no time of versions, drafts, scratch, links or directories, neither at once nor after a
/// remount.
#[test]
fn reading_changes_no_times() {
    let names = ["doc.txt", "draft.txt", "doc.txt~", "link", "dir", "dir/x", ""];
    let Some(workspace) = Workspace::with(&[("doc.txt", b"old"), ("draft.txt", b"old"), ("dir/x", b"x")])
    else {
        return;
    };
    let ada = workspace.mount("ada");
    let app = ada.app();
    std::os::unix::fs::symlink("doc.txt", ada.path("link")).unwrap();
    app.overwrite(&ada.path("draft.txt"), b"draft").unwrap();
    app.save(&ada.path("doc.txt~"), O_CREAT, b"scratch").unwrap();
    // An old atime, which `relatime` would move.
    for name in ["draft.txt", "doc.txt~", "dir"] {
        kernel::set_times(&ada.path(name), Some((1_000, 2_000)), 0).unwrap();
    }
    let before = names.map(|name| times(&ada, name));
    let read_all = |mount: &Mount| {
        let reader = mount.app();
        for name in ["doc.txt", "draft.txt", "doc.txt~", "link", "dir/x"] {
            let fd = reader.open(&mount.path(name), O_RDONLY).unwrap();
            reader.read_all(fd).unwrap();
            let map = reader.map(fd, 1, false).unwrap();
            reader.read_map(map, 0, 1);
            reader.unmap(map);
            reader.close(fd).unwrap();
            // Opened for writing, and nothing written.
            let fd = reader.open(&mount.path(name), O_RDWR).unwrap();
            reader.read_all(fd).unwrap();
            reader.close(fd).unwrap();
        }
        fs::read_link(mount.path("link")).unwrap();
        mount.list("dir");
        mount.list("");
    };
    read_all(&ada);
    assert_eq!(names.map(|name| times(&ada, name)), before);
    assert_eq!(ada.drafts(), ["draft.txt", "link"]);
    ada.unmount();
    let ada = workspace.mount("ada");
    read_all(&ada);
    let after = names.map(|name| times(&ada, name));
    for (name, (before, after)) in names.iter().zip(before.into_iter().zip(after)) {
        // The atime of a directory is no draft (S29), and lasts as long as the mount.
        let (from, directory) = (usize::from(["dir", ""].contains(name)), ["dir", ""].contains(name));
        assert_eq!(before[from..2], after[from..2], "{name}");
        assert!(directory || before[2] == after[2], "{name}: ctime");
    }
}

/// The atime of a draft is what was set; that of a version is its mtime.
#[test]
fn the_atime_is_what_was_set() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let [atime, mtime, _] = times(&ada, "doc.txt");
    assert_eq!(atime, mtime, "of a version");
    kernel::set_times(&ada.path("doc.txt"), Some((1_000, mtime / 1_000_000_000)), 0).unwrap();
    ada.app().overwrite(&ada.path("doc.txt"), b"new").unwrap();
    ada.read("doc.txt");
    let [atime, mtime, _] = times(&ada, "doc.txt");
    assert_eq!(atime, 1_000_000_000_000, "a save doesn't move it");
    ada.check_in();
    let after = times(&ada, "doc.txt");
    assert_eq!((after[0], after[1]), (mtime, mtime), "of the version");
}

/// Check-ins under a writer: each version has a number of its own, which means its bytes in every mount; the writer's
/// descriptor keeps the number that it had, and what it writes next is a draft of that number.
#[test]
fn each_version_has_its_number_under_a_writer() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let (app, doc) = (ada.app(), ada.path("doc.txt"));
    let number = |mount: &Mount| stat(mount, "doc.txt").0;
    let mut versions = HashMap::from([(number(&ada), b"old".to_vec())]);
    let fd = app.open(&doc, O_RDWR | O_TRUNC).unwrap();
    app.write(fd, b"first").unwrap();
    app.fsync(fd).unwrap();
    let own = number(&ada);
    for round in 0..4_u8 {
        app.write_at(fd, 0, &[b'0' + round]).unwrap();
        app.fsync(fd).unwrap();
        assert_eq!((number(&ada), app.path_of_fd(fd).metadata().unwrap().ino()), (own, own), "the draft's");
        ada.run(&["checkin", "-m", "under the writer", "--keep"]).ok();
        let bytes = ada.read("doc.txt");
        eventually("the version", || (bob.read("doc.txt") == bytes).then_some(()));
        assert_eq!(number(&ada), number(&bob), "the same in every mount");
        assert_eq!(
            app.path_of_fd(fd).metadata().unwrap().ino(),
            number(&ada),
            "the descriptor's until the next save"
        );
        assert_ne!(number(&ada), own, "another than the draft's");
        assert_eq!(versions.insert(number(&ada), bytes), None, "a number means its bytes");
    }
    app.close(fd).unwrap();
    let last = number(&ada);
    assert_eq!(number(&bob), last, "closed without another write");
    ada.unmount();
    assert_eq!(number(&workspace.mount("ada")), last, "over a remount");
}

/// As long as nothing is written after a check-in, the writer's descriptor and the name show the version's number;
/// the first write after it shows the draft's, and the version made of that keeps it.
#[test]
fn the_draft_after_a_check_in_has_the_writers_number() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let app = ada.app();
    for name in ["doc.txt", "new.txt"] {
        let fd = app.open(&ada.path(name), O_WRONLY | O_CREAT | O_TRUNC).unwrap();
        app.write(fd, b"first").unwrap();
        app.fsync(fd).unwrap();
        let own = stat(&ada, name).0;
        ada.run(&["checkin", "-m", "under the writer", "--keep"]).ok();
        let version = stat(&ada, name).0;
        app.write(fd, b" second").unwrap();
        app.close(fd).unwrap();
        assert_eq!(stat(&ada, name).0, own, "{name}: the next draft's");
        ada.check_in();
        assert_eq!(stat(&ada, name).0, own, "{name}: the version made of it");
        assert_ne!(version, own, "{name}");
        // Files that are made later get none of these numbers.
        app.save(&ada.path(format!("{name} copy")), O_CREAT, b"x").unwrap();
        assert!(![version, own].contains(&stat(&ada, &format!("{name} copy")).0));
    }
}
