//! Who writes first has the lease, and everybody else is told at once, whichever way he writes.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use libc::{O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY, R_OK, RENAME_EXCHANGE, W_OK};

use super::{Mount, Workspace, eventually};
use crate::agent::App;
use crate::kernel::{self, EACCES, EBUSY};

/// Something that an application does with an open file.
type OnDescriptor = fn(&App, i32) -> kernel::Sys<()>;

/// Two mounts of a workspace in which ada has a draft of `doc.txt`.
fn ada_has_saved() -> Option<(Workspace, Mount, Mount)> {
    let workspace = Workspace::with(&[("doc.txt", b"old"), ("dir/inner.txt", b"inner")])?;
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    ada.app().overwrite(&ada.path("doc.txt"), b"ada's").unwrap();
    Some((workspace, ada, bob))
}

/// Every call that would change a document which somebody else holds is refused at once, and changes nothing.
#[test]
fn every_way_of_writing_is_refused() {
    let Some((_workspace, _ada, bob)) = ada_has_saved() else { return };
    let (app, doc, mine) = (bob.app(), bob.path("doc.txt"), bob.path("mine.txt"));
    app.save(&mine, O_CREAT | O_EXCL, b"mine").unwrap();
    let cuts = [O_RDONLY | O_TRUNC, O_WRONLY | O_TRUNC, O_RDWR | O_TRUNC];
    for flags in [O_WRONLY, O_RDWR, O_RDWR | O_CREAT, O_WRONLY | libc::O_APPEND].into_iter().chain(cuts) {
        assert_eq!(app.open(&doc, flags), Err(EBUSY), "open with {flags:#o}");
    }
    assert_eq!(app.truncate(&doc, 0), Err(EBUSY), "truncate");
    assert_eq!(app.rename(&mine, &doc, 0), Err(EBUSY), "rename over");
    assert_eq!(app.rename(&doc, &bob.path("elsewhere.txt"), 0), Err(EBUSY), "rename away");
    assert_eq!(app.rename(&doc, &bob.path("doc.txt~"), 0), Err(EBUSY), "rename away to a scratch name");
    assert_eq!(app.rename(&mine, &doc, RENAME_EXCHANGE), Err(EBUSY), "exchange");
    assert_eq!(app.unlink(&doc), Err(EBUSY), "unlink");
    assert_eq!(app.chmod(&doc, 0o600), Err(EBUSY), "chmod");
    assert_eq!((bob.read("doc.txt"), bob.read("mine.txt")), (b"old".to_vec(), b"mine".to_vec()));
    assert_eq!(bob.list(""), ["dir", "doc.txt", "mine.txt"]);
    assert_eq!(bob.drafts(), ["mine.txt"]);
}

/// Owner, group, mode and times of what somebody else holds are refused as well, by path and by a reader's descriptor,
/// of files and links, held by themselves or with a directory above; those that change nothing are too.
#[test]
fn attributes_of_what_is_held_are_refused() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    kernel::mkdir(&ada.path("dir")).unwrap();
    std::os::unix::fs::symlink("../doc.txt", ada.path("dir/link")).unwrap();
    ada.app().save(&ada.path("dir/doc.txt"), O_CREAT, b"old").unwrap();
    ada.check_in();
    eventually("the files", || bob.path("dir/link").exists().then_some(()));
    ada.run(&["checkout", "doc.txt", "dir"]).ok();
    let app = bob.app();
    for name in ["doc.txt", "dir/doc.txt"] {
        let (path, before) = (bob.path(name), attributes(&bob, name));
        let fd = app.open(&path, O_RDONLY).unwrap();
        for path in [path, app.path_of_fd(fd)] {
            let (uid, gid) = (before.0, before.1);
            for (uid, gid) in [(uid, gid), (uid, u32::MAX), (u32::MAX, gid)] {
                assert_eq!(kernel::chown(&path, uid, gid), Err(EBUSY), "{path:?}: chown {uid} {gid}");
            }
            for times in [None, Some((1, 1)), Some((before.3, before.3))] {
                assert_eq!(kernel::set_times(&path, times, 0), Err(EBUSY), "{path:?}: times {times:?}");
            }
            for mode in [0o600, before.2 & 0o777] {
                assert_eq!(kernel::chmod(&path, mode), Err(EBUSY), "{path:?}: mode {mode:o}");
            }
        }
        assert_eq!(attributes(&bob, name), before, "{name}");
    }
    let link = bob.path("dir/link");
    assert_eq!(kernel::lchown(&link, attributes(&bob, "dir/link").0, u32::MAX), Err(EBUSY));
    assert_eq!(kernel::set_times(&link, None, libc::AT_SYMLINK_NOFOLLOW), Err(EBUSY));
    assert_eq!(bob.drafts(), [""; 0]);
    for name in ["doc.txt", "dir"] {
        ada.run(&["lease", "release", name]).ok();
    }
    kernel::set_times(&link, Some((1, 1)), libc::AT_SYMLINK_NOFOLLOW).unwrap();
    kernel::set_times(&bob.path("doc.txt"), Some((1, 1)), 0).unwrap();
    assert_eq!(bob.drafts(), ["dir/link", "doc.txt"]);
}

/// Owner, group, mode and mtime.
fn attributes(mount: &Mount, name: &str) -> (u32, u32, u32, i64) {
    let stat = mount.path(name).symlink_metadata().unwrap();
    (stat.uid(), stat.gid(), stat.mode(), stat.mtime())
}

/// Giving a file away is for root: the owner shows until the next check-in. Anybody else hears EPERM as on a local
/// filesystem, whoever holds the file, and takes no lease by it.
#[test]
fn only_root_gives_files_away() {
    let Some((workspace, ada, bob)) = ada_has_saved() else { return };
    let local = workspace.beside("local.txt");
    std::fs::write(&local, "local").unwrap();
    let stranger = 54_321;
    for (uid, gid) in [(stranger, u32::MAX), (u32::MAX, stranger), (stranger, stranger)] {
        let as_locally = kernel::chown(&local, uid, gid);
        assert_eq!(as_locally.is_ok(), kernel::is_root());
        for (mount, name) in [(&bob, "dir/inner.txt"), (&ada, "doc.txt")] {
            assert_eq!(kernel::chown(&mount.path(name), uid, gid), as_locally, "{name} to {uid} {gid}");
        }
        let held = if kernel::is_root() { Err(EBUSY) } else { as_locally };
        assert_eq!(kernel::chown(&bob.path("doc.txt"), uid, gid), held, "held, to {uid} {gid}");
    }
    let owner = |name| (attributes(&bob, name).0, attributes(&bob, name).1);
    let (before, state) =
        if kernel::is_root() { ((stranger, stranger), "mine") } else { (owner("doc.txt"), "free") };
    assert_eq!(owner("dir/inner.txt"), before);
    assert_eq!(bob.xattr("dir/inner.txt", "user.lease.state").as_deref(), Some(state));
    assert_eq!(bob.drafts(), [""; 0], "an owner is no part of a version");
    bob.check_in();
    assert_eq!(owner("dir/inner.txt"), owner("doc.txt"));
    assert_eq!(bob.xattr("dir/inner.txt", "user.lease.state").as_deref(), Some("free"));
}

/// Editors that ask first learn that they can't write; reading goes on as ever, and the mode stays.
#[test]
fn access_follows_the_lease_and_reading_works() {
    let Some((_workspace, ada, bob)) = ada_has_saved() else { return };
    let (app, doc) = (bob.app(), bob.path("doc.txt"));
    assert_eq!(app.access(&doc, W_OK), Err(EACCES));
    assert_eq!(app.access(&doc, R_OK), Ok(()));
    assert_eq!(app.read_file(&doc).unwrap(), b"old");
    assert_eq!(ada.app().access(&ada.path("doc.txt"), W_OK), Ok(()));
    ada.check_in();
    eventually("the lease to be free", || app.access(&doc, W_OK).ok());
}

/// A document that is open for writing is held before its first save.
#[test]
fn opening_for_write_takes_the_lease() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_RDWR).unwrap();
    assert_eq!(bob.app().open(&bob.path("doc.txt"), O_RDWR), Err(EBUSY));
    app.close(fd).unwrap();
}

/// A handle that never wrote gives the lease back, and leaves no draft.
#[test]
fn a_handle_that_never_wrote_leaves_nothing() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_RDWR).unwrap();
    assert_eq!(app.read(fd, 0, 3).unwrap(), b"old");
    assert_eq!(ada.xattr("doc.txt", "user.lease.state").as_deref(), Some("mine"));
    app.close(fd).unwrap();
    eventually("the lease to be free", || {
        (ada.xattr("doc.txt", "user.lease.state").as_deref() == Some("free")).then_some(())
    });
    assert_eq!(ada.drafts(), [""; 0]);
    assert_eq!(ada.xattr("doc.txt", "user.artifact.draft").as_deref(), Some("none"));
    bob.app().overwrite(&bob.path("doc.txt"), b"bob's").unwrap();
}

/// Two mounts of a workspace whose `lazy.doc` and `dir/lazy.txt` opening doesn't lease; `doc.txt` it does.
fn lazily_leased() -> Option<(Workspace, Mount, Mount)> {
    let files: [(&str, &[u8]); 4] =
        [("lazy.doc", b"old"), ("dir/lazy.txt", b"old"), ("doc.txt", b"old"), ("lazy.txt", b"old")];
    let workspace = Workspace::with(&files)?;
    workspace.set_policy("on_first_write = [\"*.doc\", \"dir/*.txt\"]\n");
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    Some((workspace, ada, bob))
}

fn is_free(mount: &Mount, name: &str) -> bool {
    mount.xattr(name, "user.lease.state").as_deref() == Some("free")
}

/// Opening what matches `on_first_write` takes no lease and is refused to nobody; opening what doesn't match takes it.
#[test]
fn opening_alone_takes_no_lease_where_policy_says_so() {
    let Some((_workspace, ada, bob)) = lazily_leased() else { return };
    let (app, other) = (ada.app(), bob.app());
    for (name, lazy) in [("lazy.doc", true), ("dir/lazy.txt", true), ("doc.txt", false), ("lazy.txt", false)]
    {
        for flags in [O_WRONLY, O_RDWR] {
            let fd = app.open(&ada.path(name), flags).unwrap();
            assert_eq!(is_free(&ada, name), lazy, "{name}");
            let theirs = other.open(&bob.path(name), flags);
            assert_eq!(theirs.is_ok(), lazy, "{name}: {theirs:?}");
            theirs.into_iter().for_each(|fd| other.close(fd).unwrap());
            app.close(fd).unwrap();
            eventually("the lease to be free", || is_free(&ada, name).then_some(()));
        }
    }
    assert_eq!((ada.drafts(), bob.drafts()), (vec![], vec![]));
}

/// Who only shows such a file goes on while somebody else holds it and checks in, and nobody speaks of a lost lease.
#[test]
fn a_viewer_goes_on_without_a_lease() {
    let Some((_workspace, ada, bob)) = lazily_leased() else { return };
    let (app, viewer) = (ada.app(), bob.app());
    let before = viewer.open(&bob.path("lazy.doc"), O_RDWR).unwrap();
    app.overwrite(&ada.path("lazy.doc"), b"ada's").unwrap();
    let held = viewer.open(&bob.path("lazy.doc"), O_RDWR).unwrap();
    ada.check_in();
    eventually("the version", || (bob.read("lazy.doc") == b"ada's").then_some(()));
    for fd in [before, held] {
        assert_eq!(viewer.read_all(fd).unwrap(), b"old");
        viewer.close(fd).unwrap();
    }
    let status = bob.status();
    assert_eq!((&status["problems"], &status["drafts"]), (&serde_json::json!([]), &serde_json::json!([])));
}

/// The first write takes the lease, whichever call it is; the same call of somebody else is refused and changes nothing.
#[test]
fn the_first_write_takes_the_lease_or_is_refused() {
    let writes: [(&str, OnDescriptor); 5] = [
        ("write", |app, fd| app.write_at(fd, 0, b"new")),
        ("write behind the end", |app, fd| app.write_at(fd, 100, b"new")),
        ("cut", |app, fd| app.ftruncate(fd, 1)),
        ("cut to nothing", |app, fd| app.ftruncate(fd, 0)),
        ("lengthen", |app, fd| app.ftruncate(fd, 10)),
    ];
    let Some((workspace, ada, bob)) = lazily_leased() else { return };
    let (app, other) = (ada.app(), bob.app());
    for (what, write) in writes {
        let fd = app.open(&ada.path("lazy.doc"), O_RDWR).unwrap();
        let theirs = other.open(&bob.path("lazy.doc"), O_RDWR).unwrap();
        write(&app, fd).unwrap();
        assert!(!is_free(&ada, "lazy.doc"), "{what}");
        for _ in 0..2 {
            assert_eq!(write(&other, theirs), Err(EBUSY), "{what}");
        }
        assert_eq!(other.read_all(theirs).unwrap(), b"old", "{what}");
        other.close(theirs).unwrap();
        app.close(fd).unwrap();
        assert_eq!((bob.read("lazy.doc"), bob.drafts()), (b"old".to_vec(), vec![]), "{what}");
        // Calls that are a write by themselves wait for no first one.
        assert_eq!(other.open(&bob.path("lazy.doc"), O_RDWR | O_TRUNC), Err(EBUSY), "{what}");
        assert_eq!(other.truncate(&bob.path("lazy.doc"), 0), Err(EBUSY), "{what}");
        ada.run(&["revert", "lazy.doc"]).ok();
    }
    assert_eq!(workspace.recovered().iter().filter(|copy| copy["holder"] == "bob@desk").count(), 0);
}

/// Stores into a mapping are refused when the kernel brings them: who syncs hears of it, and the mount shows the version.
#[test]
fn stores_into_a_mapping_may_be_refused_late() {
    let Some((_workspace, ada, bob)) = lazily_leased() else { return };
    ada.app().overwrite(&ada.path("lazy.doc"), b"ada's").unwrap();
    let app = bob.app();
    let fd = app.open(&bob.path("lazy.doc"), O_RDWR).unwrap();
    let map = app.map(fd, 3, true).unwrap();
    app.write_map(map, 0, b"new");
    assert!(app.fsync(fd).is_err());
    app.unmap(map);
    let _ = app.close(fd);
    eventually("the version", || (bob.read("lazy.doc") == b"old").then_some(()));
    assert_eq!(bob.drafts(), [""; 0]);
    ada.check_in();
    eventually("ada's version", || (bob.read("lazy.doc") == b"ada's").then_some(()));
}

/// A new document's path is its maker's until it is checked in, and nobody else sees it.
#[test]
fn a_new_path_is_reserved() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    ada.app().save(&ada.path("new.txt"), O_CREAT | O_EXCL, b"ada's").unwrap();
    let app = bob.app();
    assert_eq!(bob.list(""), ["doc.txt"]);
    assert_eq!(app.open(&bob.path("new.txt"), O_WRONLY | O_CREAT), Err(EBUSY), "create");
    assert_eq!(kernel::mkdir(&bob.path("new.txt")), Err(EBUSY), "mkdir");
    app.save(&bob.path("other.txt"), O_CREAT, b"bob's").unwrap();
    assert_eq!(app.rename(&bob.path("other.txt"), &bob.path("new.txt"), 0), Err(EBUSY), "rename to it");
    assert_eq!(
        app.rename(&bob.path("doc.txt"), &bob.path("new.txt"), 0),
        Err(EBUSY),
        "rename a version to it"
    );
    ada.check_in();
    eventually("the new document", || (bob.list("") == ["doc.txt", "new.txt", "other.txt"]).then_some(()));
    assert_eq!(bob.read("new.txt"), b"ada's");
}

/// What lies above a held document can't be moved or removed by others.
#[test]
fn directories_above_are_held() {
    let Some(workspace) = Workspace::with(&[("dir/inner.txt", b"inner"), ("empty/x.txt", b"x")]) else {
        return;
    };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let (ada_app, app) = (ada.app(), bob.app());
    app.unlink(&bob.path("empty/x.txt")).unwrap();
    bob.check_in();
    eventually("the empty directory", || ada.list("empty").is_empty().then_some(()));
    ada_app.overwrite(&ada.path("dir/inner.txt"), b"ada's").unwrap();
    ada_app.save(&ada.path("empty/new.txt"), O_CREAT, b"ada's").unwrap();
    assert_eq!(
        app.rename(&bob.path("dir"), &bob.path("moved"), 0),
        Err(EBUSY),
        "rename above a held document"
    );
    assert_eq!(
        app.rename(&bob.path("empty"), &bob.path("moved"), 0),
        Err(EBUSY),
        "rename above a reserved path"
    );
    assert_eq!(kernel::rmdir(&bob.path("empty")), Err(EBUSY), "rmdir above a reserved path");
}

/// A renamed directory is held with all that lies below it.
#[test]
fn a_renamed_directory_is_held_as_a_whole() {
    let Some(workspace) = Workspace::with(&[("dir/inner.txt", b"inner")]) else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let (ada_app, app) = (ada.app(), bob.app());
    ada_app.rename(&ada.path("dir"), &ada.path("moved"), 0).unwrap();
    assert_eq!(app.open(&bob.path("dir/inner.txt"), O_RDWR), Err(EBUSY));
    assert_eq!(app.open(&bob.path("dir/new.txt"), O_RDWR | O_CREAT), Err(EBUSY));
    assert_eq!(ada.read("moved/inner.txt"), b"inner");
    ada.check_in();
    eventually("the moved directory", || (bob.list("") == ["moved"]).then_some(()));
    app.overwrite(&bob.path("moved/inner.txt"), b"bob's").unwrap();
}

/// Commands say with exit status 3 and one line who holds what, until when, and what to do.
#[test]
fn commands_name_the_holder() {
    let Some((workspace, ada, bob)) = ada_has_saved() else { return };
    let expires = ada.xattr("doc.txt", "user.lease.expires").unwrap();
    let outside = ["checkout", "doc.txt", "--as", "bob", "--checkout", "desk"];
    for ran in [
        bob.run(&["checkout", "doc.txt"]),
        workspace.run(&["lease", "acquire", "doc.txt", "--as", "bob@desk"]),
    ] {
        let line = ran.refused(3);
        for part in ["doc.txt", "ada@desk", &expires] {
            assert!(line.contains(part), "{part} in: {line}");
        }
    }
    bob.unmount();
    assert!(workspace.run(&outside).refused(3).contains("ada@desk"));
}

/// A lease can be taken before the first key, and several of them all or none.
#[test]
fn checkout_takes_all_or_none() {
    let Some((_workspace, ada, bob)) = ada_has_saved() else { return };
    bob.run(&["checkout", "dir/inner.txt", "doc.txt"]).refused(3);
    assert_eq!(bob.xattr("dir/inner.txt", "user.lease.state").as_deref(), Some("free"));
    bob.run(&["checkout", "dir/inner.txt"]).ok();
    assert_eq!(ada.app().open(&ada.path("dir/inner.txt"), O_RDWR), Err(EBUSY));
    assert_eq!(bob.drafts(), [""; 0], "a lease is no draft");
}

/// A check-in releases the lease, unless it is told to keep it.
#[test]
fn a_check_in_releases() {
    let Some((_workspace, ada, bob)) = ada_has_saved() else { return };
    ada.run(&["checkin", "-m", "keep", "--keep"]).ok();
    let app = bob.app();
    assert_eq!(app.open(&bob.path("doc.txt"), O_RDWR), Err(EBUSY));
    ada.app().overwrite(&ada.path("doc.txt"), b"ada's second").unwrap();
    ada.check_in();
    assert_eq!(ada.xattr("doc.txt", "user.lease.state").as_deref(), Some("free"));
    eventually("the new version", || {
        (app.read_file(&bob.path("doc.txt")).unwrap() == b"ada's second").then_some(())
    });
    app.overwrite(&bob.path("doc.txt"), b"bob's").unwrap();
    assert_eq!(bob.xattr("doc.txt", "user.lease.state").as_deref(), Some("mine"));
}

/// A revert gives the lease back, shows the version again, and keeps the dropped bytes.
#[test]
fn a_revert_releases_and_keeps_the_bytes() {
    let Some((workspace, ada, bob)) = ada_has_saved() else { return };
    ada.run(&["revert", "doc.txt"]).ok();
    assert_eq!(ada.read("doc.txt"), b"old");
    let copies = workspace.recovered();
    assert_eq!(copies.len(), 1, "{copies:?}");
    assert_eq!((&copies[0]["path"], &copies[0]["holder"]), (&"doc.txt".into(), &"ada@desk".into()));
    assert_eq!(workspace.restore_recovered(&copies[0]), b"ada's");
    bob.app().overwrite(&bob.path("doc.txt"), b"bob's").unwrap();
}

/// Whether a recovery copy has these bytes; `known` saves looking at one again.
fn is_kept(workspace: &Workspace, known: &mut HashMap<String, Vec<u8>>, bytes: &[u8]) -> bool {
    for copy in workspace.recovered() {
        let id = copy["id"].as_str().unwrap().to_owned();
        known.entry(id).or_insert_with(|| workspace.restore_recovered(&copy));
    }
    known.values().any(|kept| kept == bytes)
}

/// A revert under a writer: whatever it goes on with is refused, all it wrote is kept, and the name is the version
/// again, free for everybody. Saved or not, of a version, a live file or a new document.
#[test]
fn a_revert_under_a_writer_refuses_it_and_keeps_its_bytes() {
    let late: [(&str, OnDescriptor); 4] = [
        ("write", |app, fd| app.write(fd, b" late")),
        ("cut", |app, fd| app.ftruncate(fd, 0)),
        ("sync", |app, fd| app.fsync(fd)),
        ("close", |app, fd| app.close(app.dup(fd)?)),
    ];
    let files: [(&str, &[u8]); 2] = [("doc.txt", b"old"), ("data.sqlite", b"old")];
    let Some(workspace) = Workspace::with(&files) else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let (app, other, mut known) = (ada.app(), bob.app(), HashMap::new());
    for (name, saved) in
        [("doc.txt", false), ("doc.txt", true), ("data.sqlite", true), ("new.txt", false), ("new.txt", true)]
    {
        for (call_name, call) in late {
            let what = format!("{name}, saved: {saved}, {call_name}");
            let fd = app.open(&ada.path(name), O_RDWR | O_CREAT | O_TRUNC).unwrap();
            app.write(fd, what.as_bytes()).unwrap();
            if saved {
                app.fsync(fd).unwrap();
            }
            ada.run(&["revert", "."]).ok();
            let shown = ada.path(name).exists().then(|| ada.read(name));
            assert_eq!(shown, (name != "new.txt").then(|| b"old".to_vec()), "{what}");
            assert_eq!(ada.drafts(), [""; 0], "{what}");
            // What was saved and not changed since is no loss at a sync or close.
            let result = call(&app, fd);
            let may_pass = saved && ["sync", "close"].contains(&call_name);
            assert!(result == Err(EBUSY) || may_pass && result.is_ok(), "{what}: {result:?}");
            let _ = app.close(fd);
            let written = if call_name == "write" { format!("{what} late") } else { what.clone() };
            eventually(&what, || is_kept(&workspace, &mut known, written.as_bytes()).then_some(()));
            other.overwrite(&bob.path(name), b"bob's").unwrap_or_else(|errno| panic!("{what}: {errno:?}"));
            bob.run(&["revert", "."]).ok();
        }
    }
}

/// A revert of a name that is only held, by an open that has not written or a cut that waits for its bytes, frees it.
#[test]
fn a_revert_frees_what_was_never_saved() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let (app, doc) = (ada.app(), ada.path("doc.txt"));
    for (flags, stays_open) in [(O_RDWR, true), (O_RDWR | O_TRUNC, true), (O_RDWR | O_TRUNC, false)] {
        let fd = app.open(&doc, flags).unwrap();
        if !stays_open {
            app.close(fd).unwrap();
        }
        ada.run(&["revert", "doc.txt"]).ok();
        assert_eq!(ada.read("doc.txt"), b"old", "{flags:#o}");
        let theirs = bob.app().open(&bob.path("doc.txt"), O_RDWR);
        assert!(theirs.is_ok(), "{flags:#o}, open: {stays_open}: {theirs:?}");
        eventually("bob's end", || is_free(&ada, "doc.txt").then_some(()));
        if stays_open {
            assert_eq!(app.write(fd, b"late"), Err(EBUSY), "{flags:#o}");
            let _ = app.close(fd);
        }
    }
    app.overwrite(&doc, b"ada goes on").unwrap();
    ada.check_in();
    assert_eq!(ada.read("doc.txt"), b"ada goes on");
}

/// Who reads a draft that is reverted, or a file whose rename is, goes on reading what was opened.
#[test]
fn a_revert_under_a_reader() {
    let Some((_workspace, ada, _bob)) = ada_has_saved() else { return };
    let (app, reader) = (ada.app(), ada.app());
    app.rename(&ada.path("dir/inner.txt"), &ada.path("moved.txt"), 0).unwrap();
    app.save(&ada.path("new.txt"), O_CREAT, b"new").unwrap();
    let opened =
        [("doc.txt", &b"ada's"[..]), ("moved.txt", b"inner"), ("new.txt", b"new")].map(|(name, bytes)| {
            let fd = reader.open(&ada.path(name), O_RDONLY).unwrap();
            assert_eq!(reader.read(fd, 0, 1).unwrap(), bytes[..1]);
            (name, fd, bytes)
        });
    ada.run(&["revert", "."]).ok();
    assert_eq!(ada.list(""), ["dir", "doc.txt"]);
    assert_eq!((ada.read("doc.txt"), ada.read("dir/inner.txt")), (b"old".to_vec(), b"inner".to_vec()));
    for (name, fd, bytes) in opened {
        assert_eq!(reader.read_all(fd).unwrap(), bytes, "{name}");
    }
}

/// Waits until ada's lease has ended and bob has the document.
fn bob_takes_over(bob: &Mount, bytes: &[u8]) {
    let app = bob.app();
    eventually("the lease to end", || match app.overwrite(&bob.path("doc.txt"), bytes) {
        Ok(()) => Some(()),
        Err(errno) => {
            assert_eq!(errno, EBUSY);
            None
        }
    });
}

/// A lease that ended and was taken: the old holder's next write is refused, and its bytes become a recovery copy.
#[test]
fn a_lapsed_lease_that_was_taken_refuses_the_old_holder() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount_with("ada", &["--ttl", "1s"]), workspace.mount("bob"));
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    app.write(fd, b"first").unwrap();
    app.fsync(fd).unwrap();
    bob_takes_over(&bob, b"bob's");
    assert_eq!(app.write(fd, b" second"), Err(EBUSY));
    let _ = app.close(fd);
    let copies =
        eventually("the recovery copy", || Some(workspace.recovered()).filter(|copies| !copies.is_empty()));
    let copy = copies.iter().find(|copy| copy["holder"] == "ada@desk").unwrap();
    assert_eq!((&copy["path"], &copy["base"]), (&"doc.txt".into(), &1.into()));
    assert_eq!(copy["artifact"].as_str().map(str::to_owned), bob.xattr("doc.txt", "user.artifact.id"));
    assert_eq!(workspace.restore_recovered(copy), b"first second");
    bob.check_in();
    assert_eq!(bob.read("doc.txt"), b"bob's");
}

/// Waits until the lease of a mount on `doc.txt` has ended.
fn lease_ends(mount: &Mount) {
    eventually("the lease to end", || {
        (mount.xattr("doc.txt", "user.lease.state").as_deref() != Some("mine")).then_some(())
    });
}

/// The kinds of problems that `status` tells of.
fn problems(mount: &Mount) -> Vec<String> {
    let status = mount.status();
    let problems = status["problems"].as_array().unwrap().iter();
    problems.map(|problem| problem.as_str().unwrap().split(':').next().unwrap().to_owned()).collect()
}

/// A lost lease is told by whichever call comes next, and by `status` until the next check-in or revert, whatever
/// either of them has to do, and over a remount.
#[test]
fn a_loss_is_told_until_the_next_check_in_or_revert() {
    use crate::agent::App;
    type Next = fn(&App, i32) -> kernel::Sys<()>;
    let ways: [(&str, Next, &[&str]); 3] = [
        ("write", |app, fd| app.write(fd, b" more"), &["checkin", "-m", "nothing to do"]),
        ("fsync", App::fsync, &["revert", "doc.txt"]),
        ("close", App::close, &["revert", "."]),
    ];
    for (call, next, settled_by) in ways {
        let Some(workspace) = Workspace::with_document() else { return };
        workspace.set_policy("on_unresolved_writer = \"take\"\n");
        let (ada, bob) = (workspace.mount_with("ada", &["--ttl", "1s"]), workspace.mount("bob"));
        let app = ada.app();
        let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
        app.write(fd, b"ada's").unwrap();
        lease_ends(&ada);
        bob_takes_over(&bob, b"bob's");
        assert_eq!(problems(&ada), [""; 0], "nobody has noticed");
        assert_eq!(next(&app, fd), Err(EBUSY), "{call}");
        drop(app);
        assert_eq!(problems(&ada), ["lease-lost"], "{call}");
        ada.unmount();
        let copies = workspace.recovered();
        assert!(copies.iter().any(|copy| workspace.restore_recovered(copy) == b"ada's"), "{call}");
        let ada = workspace.mount("ada");
        assert_eq!(problems(&ada), ["lease-lost"], "{call}, mounted again");
        ada.run(settled_by).ok();
        assert_eq!(problems(&ada), [""; 0], "after {settled_by:?}");
        assert_eq!(workspace.recovered(), copies, "they stay");
    }
}

/// A loss under bytes that are saved already harms nobody: the close succeeds, and the draft stays, stale or not.
#[test]
fn a_loss_after_the_save_is_none() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount_with("ada", &["--ttl", "1s"]), workspace.mount("bob"));
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    app.write(fd, b"ada's").unwrap();
    app.fsync(fd).unwrap();
    bob_takes_over(&bob, b"bob's");
    app.close(fd).unwrap();
    assert_eq!((ada.read("doc.txt"), problems(&ada)), (b"ada's".to_vec(), Vec::new()));
    assert_eq!(workspace.recovered(), [serde_json::Value::Null; 0]);
}

/// A check-in of what an application has written in part is refused as a whole; the rest can be checked in by its name.
#[test]
fn a_check_in_waits_for_unsaved_bytes() {
    let Some(workspace) = Workspace::with(&[("dir/doc.txt", b"old"), ("other.txt", b"old")]) else { return };
    let ada = workspace.mount("ada");
    let (app, doc) = (ada.app(), ada.path("dir/doc.txt"));
    app.overwrite(&ada.path("other.txt"), b"saved").unwrap();
    let fd = app.open(&doc, O_RDWR).unwrap();
    app.write(fd, b"new").unwrap();
    for paths in [&[][..], &["dir"], &["dir/doc.txt"], &["other.txt", "dir"]] {
        let line = ada.run(&[&["checkin", "-m", "refused"], paths].concat()).refused(1);
        assert!(line.contains("dir/doc.txt") && line.contains("save or close"), "{line}");
    }
    assert_eq!(
        (workspace.log(".").len(), ada.drafts()),
        (1, vec!["other.txt".to_owned()]),
        "nothing has changed"
    );
    assert_eq!(ada.xattr("other.txt", "user.lease.state").as_deref(), Some("mine"));
    ada.run(&["checkin", "-m", "the other", "other.txt"]).ok();
    app.fsync(fd).unwrap();
    ada.run(&["checkin", "-m", "saved and open"]).ok();
    app.write_at(fd, 0, b"NEW").unwrap();
    ada.run(&["checkin", "-m", "refused"]).refused(1);
    assert_eq!(ada.xattr("dir/doc.txt", "user.lease.state").as_deref(), Some("mine"), "the writer goes on");
    app.close(fd).unwrap();
    ada.check_in();
    let versions = ["old", "new", "NEW"];
    for (number, bytes) in versions.iter().enumerate() {
        assert_eq!(ada.run(&["cat", &format!("dir/doc.txt@@{}", number + 1)]).ok(), *bytes);
    }
    assert_eq!(workspace.recovered(), [serde_json::Value::Null; 0]);
}

/// What goes along with a selected file may be half written: its last save goes, and its writer goes on.
#[test]
fn what_goes_along_may_be_unsaved() {
    let Some(workspace) = Workspace::with(&[("a.txt", b"a"), ("b.txt", b"b")]) else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let app = ada.app();
    app.rename(&ada.path("b.txt"), &ada.path("c.txt"), 0).unwrap();
    app.rename(&ada.path("a.txt"), &ada.path("b.txt"), 0).unwrap();
    let fd = app.open(&ada.path("a.txt"), O_RDWR | O_CREAT).unwrap();
    app.write(fd, b"half").unwrap();
    let other = app.open(&ada.path("c.txt"), O_RDWR).unwrap();
    app.write(other, b"half").unwrap();
    let ran = ada.run(&["checkin", "-m", "b.txt alone", "b.txt"]);
    assert!([0, 1].contains(&ran.status), "{}", ran.stderr);
    for fd in [fd, other] {
        app.write(fd, b" and half").unwrap();
        app.close(fd).unwrap();
    }
    for name in ["a.txt", "c.txt"] {
        assert_eq!(ada.read(name), b"half and half", "{name}");
    }
    ada.check_in();
    eventually("all", || (bob.list("") == ["a.txt", "b.txt", "c.txt"]).then_some(()));
    eventually("both", || (bob.read("c.txt") == b"half and half").then_some(()));
    assert_eq!(workspace.recovered(), [serde_json::Value::Null; 0]);
}

/// Who has unsaved bytes keeps others out though the lease has ended; what he saves then is his draft.
#[test]
fn unsaved_bytes_keep_a_lapsed_lease_closed() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount_with("ada", &["--ttl", "2s"]), workspace.mount("bob"));
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    app.write(fd, b"unsaved").unwrap();
    eventually("the lease to end", || {
        (bob.xattr("doc.txt", "user.lease.state").as_deref() == Some("quarantined")).then_some(())
    });
    assert_eq!(bob.xattr("doc.txt", "user.lease.holder").as_deref(), Some("ada@desk"));
    assert_eq!(bob.app().open(&bob.path("doc.txt"), O_RDWR), Err(EBUSY));
    app.close(fd).unwrap();
    assert_eq!(ada.read("doc.txt"), b"unsaved");
    bob_takes_over(&bob, b"bob's");
}

/// Where policy says `take`, unsaved bytes don't keep a lapsed lease closed: they become a recovery copy.
#[test]
fn policy_may_let_others_take_a_lapsed_lease() {
    let Some(workspace) = Workspace::with_document() else { return };
    workspace.set_policy("on_unresolved_writer = \"take\"\n");
    let (ada, bob) = (workspace.mount_with("ada", &["--ttl", "1s"]), workspace.mount("bob"));
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    app.write(fd, b"unsaved").unwrap();
    bob_takes_over(&bob, b"bob's");
    assert_eq!(app.fsync(fd), Err(EBUSY));
    let _ = app.close(fd);
    let copies =
        eventually("the recovery copy", || Some(workspace.recovered()).filter(|copies| !copies.is_empty()));
    assert_eq!(workspace.restore_recovered(&copies[0]), b"unsaved");
}

/// A lease that merely ended is taken again by the next write.
#[test]
fn a_lapsed_lease_that_nobody_took_is_taken_again() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount_with("ada", &["--ttl", "1s"]);
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    app.write(fd, b"first").unwrap();
    app.fsync(fd).unwrap();
    let generation = ada.xattr("doc.txt", "user.lease.generation");
    eventually("the lease to end", || {
        (ada.xattr("doc.txt", "user.lease.state").as_deref() == Some("free")).then_some(())
    });
    app.write(fd, b" second").unwrap();
    app.close(fd).unwrap();
    assert_eq!(ada.xattr("doc.txt", "user.lease.state").as_deref(), Some("mine"));
    assert_ne!(ada.xattr("doc.txt", "user.lease.generation"), generation, "a new grant is a new generation");
    assert_eq!(ada.read("doc.txt"), b"first second");
}

/// One person's two checkouts are two holders.
#[test]
fn one_persons_checkouts_are_two_holders() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    ada.app().overwrite(&ada.path("doc.txt"), b"at the desk").unwrap();
    let at_home = ["checkout", "doc.txt", "--as", "ada", "--checkout", "home"];
    assert!(workspace.run(&at_home).refused(3).contains("ada@desk"));
}

/// A read-only mount refuses with EROFS whoever holds what.
#[test]
fn a_read_only_mount_says_so() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount_with("ada", &["--read-only"]);
    let app = ada.app();
    assert_eq!(app.open(&ada.path("doc.txt"), O_RDWR), Err(kernel::EROFS));
    assert_eq!(app.unlink(&ada.path("doc.txt")), Err(kernel::EROFS));
    assert_eq!(app.open(&ada.path("new.txt"), O_WRONLY | O_CREAT), Err(kernel::EROFS));
    let fd = app.open(Path::new(&ada.path("doc.txt")), O_RDONLY).unwrap();
    assert_eq!(app.read(fd, 0, 10).unwrap(), b"old");
    assert!(ada.run(&["checkout", "doc.txt"]).refused(1).contains("read-only"));
    assert!(ada.run(&["restore", "doc.txt@@1"]).refused(1).contains("read-only"));
}

/// A reservation that ended and was taken: the first holder's next write is refused like a document's, before and after
/// the other one has checked in, and its bytes become a recovery copy.
#[test]
fn a_lapsed_reservation_that_was_taken_refuses_the_old_holder() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount_with("ada", &["--ttl", "1s"]), workspace.mount("bob"));
    let app = ada.app();
    let open = |name: &str| {
        let fd = app.open(&ada.path(name), O_WRONLY | O_CREAT).unwrap();
        app.write(fd, b"first").unwrap();
        app.fsync(fd).unwrap();
        fd
    };
    let fds = ["reserved.txt", "published.txt"].map(open);
    for name in ["reserved.txt", "published.txt"] {
        eventually("the reservation to end", || bob.app().save(&bob.path(name), O_CREAT, b"bob's").ok());
    }
    bob.run(&["checkin", "published.txt", "-m", "bob's"]).ok();
    for fd in fds {
        assert_eq!(app.write(fd, b" second"), Err(EBUSY));
        let _ = app.close(fd);
    }
    let copies = eventually("the recovery copies", || Some(workspace.recovered()).filter(|c| c.len() == 2));
    for copy in &copies {
        assert_eq!(copy["holder"], "ada@desk", "{copy}");
        assert_eq!(workspace.restore_recovered(copy), b"first second", "{copy}");
    }
    assert_eq!(app.open(&ada.path("reserved.txt"), O_RDWR), Err(EBUSY), "the next open as well");
    assert_eq!(ada.read("reserved.txt"), b"first", "the draft stays");
    let problems = ada.status()["problems"].to_string();
    assert!(problems.contains("lease-lost"), "{problems}");
    app.rename(&ada.path("reserved.txt"), &ada.path("elsewhere.txt"), 0).unwrap();
    app.overwrite(&ada.path("elsewhere.txt"), b"ada's").unwrap();
    assert_eq!(bob.read("reserved.txt"), b"bob's");
}

/// Who has unsaved bytes of a new document keeps its name though the reservation has ended.
#[test]
fn unsaved_bytes_keep_a_lapsed_reservation_closed() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount_with("ada", &["--ttl", "2s"]), workspace.mount("bob"));
    let app = ada.app();
    let fd = app.open(&ada.path("new.txt"), O_WRONLY | O_CREAT).unwrap();
    app.write(fd, b"unsaved").unwrap();
    eventually("the lease to end", || {
        (ada.xattr("new.txt", "user.lease.state").as_deref() == Some("quarantined")).then_some(())
    });
    assert_eq!(bob.app().open(&bob.path("new.txt"), O_WRONLY | O_CREAT), Err(EBUSY));
    app.close(fd).unwrap();
    assert_eq!(ada.read("new.txt"), b"unsaved");
    eventually("the reservation to end", || bob.app().save(&bob.path("new.txt"), O_CREAT, b"bob's").ok());
}
