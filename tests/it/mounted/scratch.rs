//! Lock, backup and temporary files stay in the checkout that made them.

use std::os::unix::fs::FileTypeExt;

use libc::{O_CREAT, O_EXCL, O_RDWR, S_IFCHR, S_IFIFO, S_IFREG, S_IFSOCK};

use super::{Workspace, eventually};
use crate::kernel::{self, EPERM};

/// Names that programs make beside documents: locks, backups, temporaries, journals.
const NAMES: [&str; 6] =
    [".~lock.doc.txt#", "~$doc.docx", "doc.txt~", "doc.txt.bak", ".doc.txt.swp", "lu1234abcd.tmp"];

/// Scratch is never checked in, others never see it, and `status` counts it.
#[test]
fn scratch_stays_local() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let app = ada.app();
    for name in NAMES {
        app.save(&ada.path(name), O_CREAT | O_EXCL, name.as_bytes()).unwrap();
    }
    assert_eq!(ada.status()["scratch"], NAMES.len());
    assert_eq!(ada.drafts(), [""; 0]);
    app.overwrite(&ada.path("doc.txt"), b"new").unwrap();
    let report = ada.check_in();
    assert_eq!(report["items"].as_array().unwrap().len(), 1, "{report}");
    eventually("the version", || (bob.read("doc.txt") == b"new").then_some(()));
    assert_eq!(bob.list(""), ["doc.txt"]);
    for name in NAMES {
        assert_eq!(ada.read(name), name.as_bytes());
    }
}

/// Each checkout has its own file of the same scratch name: an office suite's lock tells about its own machine.
#[test]
fn each_checkout_has_its_own() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    ada.app().overwrite(&ada.path("doc.txt"), b"ada's").unwrap();
    let lock = ".~lock.doc.txt#";
    ada.app().save(&ada.path(lock), O_CREAT | O_EXCL, b"ada").unwrap();
    bob.app().save(&bob.path(lock), O_CREAT | O_EXCL, b"bob").unwrap();
    assert_eq!((ada.read(lock), bob.read(lock)), (b"ada".to_vec(), b"bob".to_vec()));
    kernel::unlink(&bob.path(lock)).unwrap();
    assert_eq!(ada.read(lock), b"ada");
}

/// Scratch outlives the mount.
#[test]
fn scratch_survives_a_remount() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    ada.app().save(&ada.path("doc.txt.bak"), O_CREAT, b"backup").unwrap();
    ada.unmount();
    assert_eq!(workspace.mount("ada").read("doc.txt.bak"), b"backup");
}

/// From a document to a scratch name is a backup: the document stays itself, and its lease is kept for the next file.
#[test]
fn a_backup_is_no_rename() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let id = ada.xattr("doc.txt", "user.artifact.id");
    let app = ada.app();
    app.rename(&ada.path("doc.txt"), &ada.path("doc.txt.bak"), 0).unwrap();
    assert_eq!(ada.read("doc.txt.bak"), b"old");
    assert_eq!(bob.app().open(&bob.path("doc.txt"), O_RDWR), Err(kernel::EBUSY), "the name is kept for ada");
    app.save(&ada.path("doc.txt"), O_CREAT | O_EXCL, b"new").unwrap();
    assert_eq!(ada.xattr("doc.txt", "user.artifact.id"), id);
    ada.check_in();
    assert_eq!(ada.xattr("doc.txt", "user.artifact.version").as_deref(), Some("2"));
    assert_eq!(ada.read("doc.txt.bak"), b"old", "the backup stays");
    eventually("the version", || (bob.read("doc.txt") == b"new").then_some(()));
    assert_eq!(bob.list(""), ["doc.txt"]);
}

/// A person makes an artifact of a scratch file on purpose.
#[test]
fn scratch_can_be_added() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    ada.app().save(&ada.path("notes.bak"), O_CREAT, b"kept").unwrap();
    ada.run(&["add", "notes.bak"]).ok();
    assert_eq!(ada.drafts(), ["notes.bak"]);
    ada.check_in();
    assert_eq!(workspace.mount("bob").read("notes.bak"), b"kept");
}

/// Scratch that is renamed to a new document name makes a new document, whatever kind of scratch it was, open or not;
/// where the name is somebody else's it is refused and stays.
#[test]
fn scratch_renamed_to_a_new_name_is_a_document() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let app = ada.app();
    let scratch = ["notes.bak", "lu1234abcd.tmp", "doc.txt.Ab12Cd", ".doc.txt.swp"];
    for (number, name) in scratch.into_iter().enumerate() {
        app.save(&ada.path(name), O_CREAT | O_EXCL, name.as_bytes()).unwrap();
        app.rename(&ada.path(name), &ada.path(format!("new {number}.txt")), 0).unwrap();
    }
    let fd = app.open(&ada.path("open.bak"), O_RDWR | O_CREAT).unwrap();
    app.write(fd, b"before").unwrap();
    app.rename(&ada.path("open.bak"), &ada.path("open.txt"), 0).unwrap();
    app.write(fd, b" and after").unwrap();
    app.close(fd).unwrap();
    let names = ["new 0.txt", "new 1.txt", "new 2.txt", "new 3.txt", "open.txt"];
    assert_eq!(ada.drafts(), names);
    assert_eq!(ada.status()["scratch"], 0);
    bob.app().save(&bob.path("bob's.txt"), O_CREAT, b"bob's").unwrap();
    app.save(&ada.path("more.bak"), O_CREAT, b"more").unwrap();
    assert_eq!(app.rename(&ada.path("more.bak"), &ada.path("bob's.txt"), 0), Err(kernel::EBUSY));
    assert_eq!(ada.read("more.bak"), b"more");
    ada.check_in();
    eventually("the documents", || bob.path("open.txt").exists().then_some(()));
    for (number, name) in scratch.into_iter().enumerate() {
        assert_eq!(bob.read(&format!("new {number}.txt")), name.as_bytes());
    }
    assert_eq!(bob.read("open.txt"), b"before and after");
    workspace.assert_store_is_sound();
}

/// FIFOs and sockets are scratch; links and devices are refused.
#[test]
fn special_files() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    kernel::mknod(&ada.path("pipe"), S_IFIFO).unwrap();
    kernel::mknod(&ada.path("socket"), S_IFSOCK).unwrap();
    kernel::mknod(&ada.path("file.txt"), S_IFREG).unwrap();
    assert!(ada.path("pipe").metadata().unwrap().file_type().is_fifo());
    assert!(ada.path("socket").metadata().unwrap().file_type().is_socket());
    assert_eq!(kernel::mknod(&ada.path("null"), S_IFCHR), Err(EPERM));
    assert_eq!(kernel::link(&ada.path("doc.txt"), &ada.path("link.txt")), Err(EPERM));
    assert_eq!(ada.drafts(), ["file.txt"]);
    let listener = std::os::unix::net::UnixListener::bind(ada.path("listening")).unwrap();
    drop(std::os::unix::net::UnixStream::connect(ada.path("listening")).unwrap());
    drop(listener);
}

/// An ambiguous name beside its document is scratch; one that stands alone and was not created exclusively is not.
#[test]
fn ambiguous_names() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let app = ada.app();
    app.save(&ada.path("doc.txt.Ab12Cd"), O_CREAT | O_EXCL, b"temporary").unwrap();
    app.save(&ada.path("film.part"), O_CREAT, b"a person's").unwrap();
    assert_eq!(ada.drafts(), ["film.part"]);
}

/// A new file that looks temporary is left out of a check-in, but never in silence; `add` takes it at once.
#[test]
fn a_check_in_names_what_it_leaves_out() {
    let Some(workspace) = Workspace::with(&[("doc.txt", b"old"), ("dir/doc.txt", b"old")]) else { return };
    let ada = workspace.mount("ada");
    let app = ada.app();
    app.save(&ada.path("film.part"), O_CREAT | O_EXCL, b"a person's").unwrap();
    app.save(&ada.path("doc.txt.bak"), O_CREAT | O_EXCL, b"scratch").unwrap();
    let waiting = serde_json::json!([{"path": "film.part"}]);
    assert_eq!(ada.status()["provisional"], waiting);
    assert!(ada.run(&["status"]).ok().contains("film.part"));
    app.overwrite(&ada.path("doc.txt"), b"new").unwrap();
    let report = ada.check_in();
    assert_eq!((&report["left_out"], report["items"].as_array().unwrap().len()), (&waiting, 1), "{report}");
    let said = ada.run(&["checkin", "-m", "again"]).ok();
    for part in ["nothing to check in", "film.part", "30s", "leasehold add"] {
        assert!(said.contains(part), "{part} in: {said}");
    }
    let elsewhere = ada.run(&["checkin", "dir", "-m", "dir", "--json"]).json();
    assert_eq!(elsewhere["left_out"], serde_json::json!([]), "not asked for");
    ada.run(&["add", "film.part"]).ok();
    let report = ada.check_in();
    assert_eq!(
        (&report["left_out"], &report["items"][0]["path"]),
        (&serde_json::json!([]), &"film.part".into())
    );
}
