//! rename(2) with its flags and on directories: whole or not done.

use std::ffi::OsString;
use std::path::Path;

use libc::{O_CREAT, RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT};

use super::{Mount, Workspace, eventually};
use crate::kernel::{self, EBUSY, EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY};

const FILES: [(&str, &[u8]); 5] =
    [("a.txt", b"a"), ("b.txt", b"b"), ("full/x", b"x"), ("other/y", b"y"), ("emptied/z", b"z")];

/// A mount with documents, directories of the head tree, one of them emptied, a new directory and a scratch file.
fn arranged() -> Option<(Workspace, Mount)> {
    let workspace = Workspace::with(&FILES)?;
    let ada = workspace.mount("ada");
    kernel::unlink(&ada.path("emptied/z")).unwrap();
    kernel::mkdir(&ada.path("made")).unwrap();
    ada.app().save(&ada.path("a.txt~"), O_CREAT, b"scratch").unwrap();
    Some((workspace, ada))
}

/// A name with its artifact and, of a file, the bytes.
type Named = (OsString, Option<String>, Option<Vec<u8>>);

/// All names below the mount.
fn tree(mount: &Mount) -> Vec<Named> {
    fn walk(mount: &Mount, dir: &Path, all: &mut Vec<Named>) {
        for name in mount.list(dir.to_str().unwrap()) {
            let path = dir.join(name);
            let (name, at) = (path.to_str().unwrap(), mount.path(&path));
            all.push((name.into(), mount.xattr(name, "user.artifact.id"), std::fs::read(&at).ok()));
            if at.is_dir() {
                walk(mount, &path, all);
            }
        }
    }
    let mut all = Vec::new();
    walk(mount, Path::new(""), &mut all);
    all
}

/// Every rename that can't be says why, and leaves each name and each artifact as it was.
#[test]
fn what_cant_be_renamed_stays() {
    let Some((_workspace, ada)) = arranged() else { return };
    let (app, before) = (ada.app(), tree(&ada));
    let cases = [
        ("a.txt", "b.txt", RENAME_NOREPLACE, EEXIST),
        ("a.txt", "a.txt", RENAME_NOREPLACE, EEXIST),
        ("a.txt", "a.txt~", RENAME_NOREPLACE, EEXIST),
        ("a.txt~", "a.txt", RENAME_NOREPLACE, EEXIST),
        ("full", "emptied", RENAME_NOREPLACE, EEXIST),
        ("made", "a.txt", RENAME_NOREPLACE, EEXIST),
        ("a.txt", "absent", RENAME_EXCHANGE, ENOENT),
        ("absent", "a.txt", RENAME_EXCHANGE, ENOENT),
        ("absent", "a.txt", 0, ENOENT),
        ("emptied/z", "a.txt", 0, ENOENT),
        ("a.txt", "b.txt", RENAME_WHITEOUT, EINVAL),
        ("a.txt", "new.txt", RENAME_WHITEOUT, EINVAL),
        ("a.txt", "new.txt", RENAME_WHITEOUT | RENAME_NOREPLACE, EINVAL),
        ("a.txt", "b.txt", RENAME_EXCHANGE | RENAME_NOREPLACE, EINVAL),
        ("other", "full", 0, ENOTEMPTY),
        ("made", "full", 0, ENOTEMPTY),
        ("full", "full/below", 0, EINVAL),
        ("full", "full/x", RENAME_EXCHANGE, EINVAL),
        ("a.txt", "emptied", 0, EISDIR),
        ("a.txt", "made", 0, EISDIR),
        ("a.txt~", "full", 0, EISDIR),
        ("full", "a.txt", 0, ENOTDIR),
        ("made", "a.txt~", 0, ENOTDIR),
    ];
    for (from, to, flags, errno) in cases {
        assert_eq!(
            app.rename(&ada.path(from), &ada.path(to), flags),
            Err(errno),
            "{from} to {to}, {flags:#x}"
        );
        assert_eq!(tree(&ada), before, "{from} to {to}, {flags:#x}");
    }
}

/// A rename that must not replace takes a free name: one that never was, one that is gone here, and none that
/// somebody else has reserved.
#[test]
fn without_replacing() {
    let Some((workspace, ada)) = arranged() else { return };
    let (bob, app) = (workspace.mount("bob"), ada.app());
    bob.app().save(&bob.path("theirs.txt"), O_CREAT, b"bob's").unwrap();
    let id = |name: &str| ada.xattr(name, "user.artifact.id");
    let before = [id("a.txt"), id("b.txt")];
    assert_eq!(app.rename(&ada.path("a.txt"), &ada.path("theirs.txt"), RENAME_NOREPLACE), Err(EBUSY));
    app.rename(&ada.path("a.txt"), &ada.path("new.txt"), RENAME_NOREPLACE).unwrap();
    assert_eq!(id("new.txt"), before[0], "a rename in the history");
    app.unlink(&ada.path("b.txt")).unwrap();
    app.rename(&ada.path("a.txt~"), &ada.path("b.txt"), RENAME_NOREPLACE).unwrap();
    assert_eq!((id("b.txt"), ada.read("b.txt")), (before[1].clone(), b"scratch".to_vec()), "a save");
    app.rename(&ada.path("full"), &ada.path("made/full"), RENAME_NOREPLACE).unwrap();
    ada.check_in();
    eventually("the check-in", || {
        (bob.list("") == ["b.txt", "emptied", "made", "new.txt", "other", "theirs.txt"]).then_some(())
    });
    assert_eq!((bob.read("made/full/x"), bob.read("new.txt")), (b"x".to_vec(), b"a".to_vec()));
}

/// An exchange swaps what two names hold, of whatever kinds; files keep their artifacts, directories move with theirs.
#[test]
fn exchanged() {
    let Some((workspace, ada)) = arranged() else { return };
    let app = ada.app();
    let id = |name: &str| ada.xattr(name, "user.artifact.id");
    let swap = |a: &str, b: &str| app.rename(&ada.path(a), &ada.path(b), RENAME_EXCHANGE);
    let before = tree(&ada);
    let files = [id("a.txt"), id("b.txt")];
    for (a, b) in
        [("a.txt", "b.txt"), ("full", "other"), ("a.txt", "made"), ("full", "b.txt"), ("a.txt~", "b.txt")]
    {
        swap(a, b).unwrap();
        assert_ne!(tree(&ada), before, "{a} and {b}");
        swap(a, b).unwrap();
        assert_eq!(tree(&ada), before, "{a} and {b}, and back");
    }
    swap("a.txt", "b.txt").unwrap();
    swap("full", "other").unwrap();
    assert_eq!((ada.read("a.txt"), ada.read("b.txt")), (b"b".to_vec(), b"a".to_vec()));
    assert_eq!([id("a.txt"), id("b.txt")], files, "each name keeps its artifact");
    assert_eq!((ada.list("full"), ada.list("other")), (vec!["y".into()], vec!["x".into()]));
    ada.check_in();
    let bob = workspace.mount("bob");
    assert_eq!(
        (bob.read("a.txt"), bob.read("full/y"), bob.read("other/x")),
        (b"b".to_vec(), b"y".to_vec(), b"x".to_vec())
    );
    assert_eq!(workspace.log("a.txt").len(), 2);
}

/// A directory takes the place of an empty one, of the head tree or new, unless somebody has a name below that.
#[test]
fn over_an_empty_directory() {
    let Some((workspace, ada)) = arranged() else { return };
    let app = ada.app();
    app.rename(&ada.path("full"), &ada.path("made"), 0).unwrap();
    app.rename(&ada.path("other"), &ada.path("emptied"), 0).unwrap();
    assert_eq!((ada.read("made/x"), ada.read("emptied/y")), (b"x".to_vec(), b"y".to_vec()));
    assert_eq!(ada.list(""), ["a.txt", "a.txt~", "b.txt", "emptied", "made"]);
    ada.check_in();
    let bob = workspace.mount("bob");
    assert_eq!(bob.list(""), ["a.txt", "b.txt", "emptied", "made"]);
    assert_eq!((bob.read("made/x"), bob.read("emptied/y")), (b"x".to_vec(), b"y".to_vec()));
    app.unlink(&ada.path("emptied/y")).unwrap();
    ada.check_in();
    eventually("the empty directory", || bob.list("emptied").is_empty().then_some(()));
    bob.app().save(&bob.path("emptied/new"), O_CREAT, b"bob's").unwrap();
    let before = tree(&ada);
    assert_eq!(app.rename(&ada.path("made"), &ada.path("emptied"), 0), Err(EBUSY));
    assert_eq!(tree(&ada), before);
}
