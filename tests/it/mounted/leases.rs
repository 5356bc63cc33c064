//! Who writes first has the lease, and everybody else is told at once, whichever way he writes.

use std::path::Path;

use libc::{O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY, R_OK, RENAME_EXCHANGE, W_OK};

use super::{Mount, Workspace, eventually};
use crate::kernel::{self, EACCES, EBUSY};

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
    for flags in [O_WRONLY, O_RDWR, O_WRONLY | O_TRUNC, O_RDWR | O_CREAT, O_WRONLY | libc::O_APPEND] {
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

/// Who has unsaved bytes keeps others out though the lease has ended; what he saves then is his draft.
#[test]
fn unsaved_bytes_keep_a_lapsed_lease_closed() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount_with("ada", &["--ttl", "2s"]), workspace.mount("bob"));
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    app.write(fd, b"unsaved").unwrap();
    eventually("the lease to end", || {
        (ada.xattr("doc.txt", "user.lease.state").as_deref() == Some("free")).then_some(())
    });
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
        (ada.xattr("new.txt", "user.lease.state").as_deref() == Some("free")).then_some(())
    });
    assert_eq!(bob.app().open(&bob.path("new.txt"), O_WRONLY | O_CREAT), Err(EBUSY));
    app.close(fd).unwrap();
    assert_eq!(ada.read("new.txt"), b"unsaved");
    eventually("the reservation to end", || bob.app().save(&bob.path("new.txt"), O_CREAT, b"bob's").ok());
}
