//! Who watches files by inotify(7) is told what happens through this mount, and nothing of what others check in.

use std::collections::BTreeMap;
use std::ffi::OsString;

use libc::{
    IN_ATTRIB, IN_CLOSE_WRITE, IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_ISDIR, IN_MODIFY, IN_MOVE_SELF,
    IN_MOVED_FROM, IN_MOVED_TO, IN_OPEN, O_CREAT, O_RDONLY, O_WRONLY,
};

use super::{Workspace, eventually};
use crate::kernel::{self, Watch};

/// Every change of a name, bytes or attributes.
const CHANGES: u32 = IN_ATTRIB
    | IN_CLOSE_WRITE
    | IN_CREATE
    | IN_DELETE
    | IN_DELETE_SELF
    | IN_MODIFY
    | IN_MOVED_FROM
    | IN_MOVED_TO
    | IN_MOVE_SELF;

/// What was told of each name since the last look.
fn told(watch: &Watch) -> BTreeMap<OsString, u32> {
    let mut told = BTreeMap::new();
    for (events, name) in watch.events() {
        *told.entry(name).or_insert(0) |= events & !IN_ISDIR;
    }
    told
}

fn of<const N: usize>(expected: [(&str, u32); N]) -> BTreeMap<OsString, u32> {
    expected.into_iter().map(|(name, events)| (name.into(), events)).collect()
}

/// Who watches a directory is told each change that is made through the mount, as on a local filesystem, of versions
/// and drafts alike.
#[test]
fn changes_through_the_mount_are_told() {
    let files: [(&str, &[u8]); 3] = [("dir/a.txt", b"a"), ("dir/b.txt", b"b"), ("dir/sub/x", b"x")];
    let Some(workspace) = Workspace::with(&files) else { return };
    let ada = workspace.mount("ada");
    let (app, dir, at) =
        (ada.app(), Watch::new(&ada.path("dir"), CHANGES), |name: &str| ada.path("dir").join(name));
    for what in ["a version", "a draft"] {
        app.overwrite(&at("a.txt"), b"new").unwrap();
        assert_eq!(told(&dir), of([("a.txt", IN_MODIFY | IN_CLOSE_WRITE)]), "{what} is written");
        app.chmod(&at("b.txt"), 0o600).unwrap();
        kernel::set_times(&at("b.txt"), Some((1, 1)), 0).unwrap();
        assert_eq!(told(&dir), of([("b.txt", IN_ATTRIB)]), "{what} gets another mode and time");
    }
    app.save(&at("new.txt"), O_CREAT, b"new").unwrap();
    assert_eq!(told(&dir), of([("new.txt", IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE)]));
    app.rename(&at("new.txt"), &at("a.txt"), 0).unwrap();
    assert_eq!(told(&dir), of([("new.txt", IN_MOVED_FROM), ("a.txt", IN_MOVED_TO)]), "a save by rename");
    app.unlink(&at("b.txt")).unwrap();
    kernel::mkdir(&at("more")).unwrap();
    app.rename(&at("sub"), &ada.path("sub"), 0).unwrap();
    let expected = of([("b.txt", IN_DELETE), ("more", IN_CREATE), ("sub", IN_MOVED_FROM)]);
    assert_eq!(told(&dir), expected);
    ada.check_in();
    app.overwrite(&at("a.txt"), b"newer").unwrap();
    assert_eq!(told(&dir), of([("a.txt", IN_MODIFY | IN_CLOSE_WRITE)]), "a version that was a draft");
}

/// A watch on a file is one on what the name is then: on a version it isn't told of the draft, which is another file;
/// on a draft it is told of each write.
#[test]
fn a_watch_on_a_file_is_on_that_version_or_draft() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let (app, doc) = (ada.app(), ada.path("doc.txt"));
    let version = Watch::new(&doc, CHANGES | IN_OPEN);
    app.read_file(&doc).unwrap();
    assert_eq!(told(&version), of([("", IN_OPEN)]));
    app.overwrite(&doc, b"draft").unwrap();
    assert_eq!(told(&version), of([]));
    let draft = Watch::new(&doc, CHANGES | IN_OPEN);
    app.save(&doc, 0, b"again").unwrap();
    assert_eq!(told(&draft), of([("", IN_OPEN | IN_MODIFY | IN_CLOSE_WRITE)]));
}

/// Nothing is told of what another mount checks in: bytes, a mode, names that come, go and move, and come back.
#[test]
fn check_ins_from_elsewhere_are_not_told() {
    let names = ["dir/bytes", "dir/mode", "dir/gone", "dir/moved", "dir/sub/x"];
    let files = names.map(|name| (name, &b"old"[..]));
    let Some(workspace) = Workspace::with(&files) else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let watched = ["dir", "dir/sub", "dir/bytes", "dir/mode", "dir/gone", "dir/moved"];
    for name in names {
        bob.read(name);
    }
    let watches = watched.map(|name| (name, Watch::new(&bob.path(name), CHANGES)));
    let reader = bob.app();
    let open = reader.open(&bob.path("dir/gone"), O_RDONLY).unwrap();
    let app = ada.app();
    app.overwrite(&ada.path("dir/bytes"), b"new").unwrap();
    app.chmod(&ada.path("dir/mode"), 0o600).unwrap();
    app.chmod(&ada.path("dir"), 0o700).unwrap();
    app.unlink(&ada.path("dir/gone")).unwrap();
    app.rename(&ada.path("dir/moved"), &ada.path("dir/sub/moved"), 0).unwrap();
    app.save(&ada.path("dir/new"), O_CREAT | O_WRONLY, b"new").unwrap();
    ada.check_in();
    eventually("the check-in", || {
        (bob.list("dir") == ["bytes", "mode", "new", "sub"] && bob.list("dir/sub") == ["moved", "x"])
            .then_some(())
    });
    assert_eq!((bob.read("dir/bytes"), bob.read("dir/new")), (b"new".to_vec(), b"new".to_vec()));
    reader.close(open).unwrap();
    app.save(&ada.path("dir/gone"), O_CREAT, b"back").unwrap();
    ada.check_in();
    eventually("the name that is back", || bob.path("dir/gone").exists().then_some(()));
    for (name, watch) in watches {
        assert_eq!(told(&watch), of([]), "{name}");
    }
}
