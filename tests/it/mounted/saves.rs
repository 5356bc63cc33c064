//! Every way in which applications save ends as one new version of the same artifact, and leaves no litter.

use std::path::Path;

use libc::{O_APPEND, O_CREAT, O_EXCL, O_RDWR, O_TRUNC, O_WRONLY, RENAME_EXCHANGE};

use super::{Mount, Workspace};
use crate::agent::App;

/// Saves `doc.txt` by some pattern, checks in, and looks that nothing came of it but version 2 with `expected`.
fn assert_one_version(expected: &[u8], save: impl FnOnce(&App, &Mount, &Path)) {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let before = ada.xattr("doc.txt", "user.artifact.id");
    let app = ada.app();
    save(&app, &ada, &ada.path("doc.txt"));
    drop(app);
    assert_eq!(ada.read("doc.txt"), expected, "the draft");
    let report = ada.check_in();
    assert_eq!(ada.xattr("doc.txt", "user.artifact.id"), before, "the identity");
    assert_eq!(ada.xattr("doc.txt", "user.artifact.version").as_deref(), Some("2"), "{report}");
    assert_eq!(report["items"].as_array().unwrap().len(), 1, "the change is the save alone: {report}");
    assert_eq!(
        (&report["items"][0]["action"], &report["items"][0]["path"]),
        (&"modified".into(), &"doc.txt".into())
    );
    assert_eq!(workspace.log("doc.txt").len(), 2);
    assert_eq!(ada.drafts(), [""; 0], "nothing is left to check in");
    let bob = workspace.mount("bob");
    assert_eq!(bob.list(""), ["doc.txt"], "what others see");
    assert_eq!(bob.read("doc.txt"), expected, "what others read");
    workspace.assert_store_is_sound();
}

/// Writing into a document is a save when it is closed.
#[test]
fn in_place() {
    assert_one_version(b"new", |app, _, doc| {
        let fd = app.open(doc, O_RDWR).unwrap();
        assert_eq!(app.read(fd, 0, 10).unwrap(), b"old");
        app.write_at(fd, 0, b"new").unwrap();
        app.close(fd).unwrap();
    });
}

/// A part that is not written keeps the version's bytes.
#[test]
fn in_place_in_the_middle() {
    assert_one_version(b"o_d and more", |app, _, doc| {
        let fd = app.open(doc, O_WRONLY).unwrap();
        app.write_at(fd, 1, b"_").unwrap();
        app.write_at(fd, 3, b" and more").unwrap();
        app.close(fd).unwrap();
    });
}

/// Shells and many editors cut the document to nothing first.
#[test]
fn truncate_and_write() {
    assert_one_version(b"new and longer", |app, _, doc| app.overwrite(doc, b"new and longer").unwrap());
}

/// Office suites cut, close, and open again to write: the empty state between is no save.
#[test]
fn truncate_close_and_write() {
    assert_one_version(b"new", |app, _, doc| {
        let fd = app.open(doc, O_WRONLY | O_TRUNC).unwrap();
        app.close(fd).unwrap();
        app.save(doc, 0, b"new").unwrap();
    });
}

/// truncate(2) alone is a save.
#[test]
fn truncate_only() {
    assert_one_version(b"ol", |app, _, doc| app.truncate(doc, 2).unwrap());
}

/// Appending goes behind what is there.
#[test]
fn append() {
    assert_one_version(b"old, new, newer", |app, _, doc| {
        app.save(doc, O_APPEND, b", new").unwrap();
        app.save(doc, O_APPEND, b", newer").unwrap();
    });
}

/// A temporary file with a program's random name, renamed over the document.
#[test]
fn temporary_renamed_over() {
    assert_one_version(b"new", |app, ada, doc| {
        let temp = ada.path(".doc.txt.Ab12Cd");
        app.save(&temp, O_CREAT | O_EXCL, b"new").unwrap();
        app.rename(&temp, doc, 0).unwrap();
    });
}

/// The temporary's name may look like a document's, and the program may have it open while it renames.
#[test]
fn document_renamed_over_while_open() {
    assert_one_version(b"new", |app, ada, doc| {
        let temp = ada.path("draft of mine.txt");
        let fd = app.open(&temp, O_RDWR | O_CREAT | O_EXCL).unwrap();
        app.write(fd, b"new").unwrap();
        app.fsync(fd).unwrap();
        app.rename(&temp, doc, 0).unwrap();
        app.close(fd).unwrap();
    });
}

/// Bytes that are written before a rename and not flushed are part of the save.
#[test]
fn temporary_renamed_over_before_its_close() {
    assert_one_version(b"new", |app, ada, doc| {
        let temp = ada.path("doc.txt.new1");
        let fd = app.open(&temp, O_WRONLY | O_CREAT | O_EXCL).unwrap();
        app.write(fd, b"ne").unwrap();
        app.rename(&temp, doc, 0).unwrap();
        app.write(fd, b"w").unwrap();
        app.close(fd).unwrap();
    });
}

/// vim's default: the old file becomes a backup, a new one takes the name, the backup goes.
#[test]
fn renamed_away_created_and_unlinked() {
    assert_one_version(b"new", |app, ada, doc| {
        let backup = ada.path("doc.txt~");
        app.rename(doc, &backup, 0).unwrap();
        app.save(doc, O_CREAT | O_EXCL, b"new").unwrap();
        assert_eq!(app.read_file(&backup).unwrap(), b"old");
        app.unlink(&backup).unwrap();
    });
}

/// The same dance with a backup that is called like a document, twice over.
#[test]
fn renamed_away_to_a_documents_name() {
    assert_one_version(b"newer", |app, ada, doc| {
        for bytes in [&b"new"[..], b"newer"] {
            let backup = ada.path("previous doc.txt");
            app.rename(doc, &backup, 0).unwrap();
            app.save(doc, O_CREAT, bytes).unwrap();
            app.unlink(&backup).unwrap();
        }
    });
}

/// Word's dance: the new file beside, the old one away, the new one in its place, the old one gone.
#[test]
fn three_renames() {
    assert_one_version(b"new", |app, ada, doc| {
        let (new, old) = (ada.path("~WRD0001.tmp"), ada.path("~WRL0002.tmp"));
        app.save(&new, O_CREAT | O_EXCL, b"new").unwrap();
        app.rename(doc, &old, 0).unwrap();
        app.rename(&new, doc, 0).unwrap();
        app.unlink(&old).unwrap();
    });
}

/// Two files change places at once, and the old one goes.
#[test]
fn exchange() {
    assert_one_version(b"new", |app, ada, doc| {
        let temp = ada.path("doc.txt.new1");
        app.save(&temp, O_CREAT | O_EXCL, b"new").unwrap();
        app.rename(&temp, doc, RENAME_EXCHANGE).unwrap();
        assert_eq!(app.read_file(&temp).unwrap(), b"old");
        app.unlink(&temp).unwrap();
    });
}

/// A program that unlinks first has the name for its exclusive creation.
#[test]
fn unlinked_and_created_exclusively() {
    assert_one_version(b"new", |app, _, doc| {
        app.unlink(doc).unwrap();
        app.save(doc, O_CREAT | O_EXCL, b"new").unwrap();
    });
}

/// A flush is not the end of a save: later bytes of the same open amend it.
#[test]
fn written_on_after_a_flush() {
    assert_one_version(b"first second", |app, _, doc| {
        let fd = app.open(doc, O_WRONLY | O_TRUNC).unwrap();
        app.write(fd, b"first").unwrap();
        let copy = app.dup(fd).unwrap();
        app.close(copy).unwrap();
        app.write(fd, b" second").unwrap();
        app.close(fd).unwrap();
    });
}

/// A descriptor of the replaced file writes to that file, and not to what took its name.
#[test]
fn late_write_on_the_old_descriptor() {
    assert_one_version(b"new", |app, ada, doc| {
        let old = app.open(doc, O_RDWR).unwrap();
        app.write_at(old, 0, b"mine").unwrap();
        let temp = ada.path("doc.txt.new1");
        app.save(&temp, O_CREAT | O_EXCL, b"new").unwrap();
        app.rename(&temp, doc, 0).unwrap();
        app.write_at(old, 0, b"late").unwrap();
        assert_eq!(app.read(old, 0, 10).unwrap(), b"late");
        app.close(old).unwrap();
    });
}

/// A child may write to what its parent opened.
#[test]
fn written_by_a_child() {
    assert_one_version(b"from the child", |app, _, doc| {
        let fd = app.open(doc, O_WRONLY | O_TRUNC).unwrap();
        app.child_writes(fd, b"from the child").unwrap();
        app.close(fd).unwrap();
    });
}

/// Stores into a shared mapping are saved though the descriptor was closed before them.
#[test]
fn mapped_after_close() {
    assert_one_version(b"new", |app, _, doc| {
        let fd = app.open(doc, O_RDWR).unwrap();
        let map = app.map(fd, 3, true).unwrap();
        app.close(fd).unwrap();
        app.write_map(map, 0, b"new");
        app.unmap(map);
    });
}

/// A check-in asks for the pages of a mapping that is still there.
#[test]
fn checked_in_while_mapped() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_RDWR).unwrap();
    let map = app.map(fd, 3, true).unwrap();
    app.write_map(map, 0, b"new");
    app.close(fd).unwrap();
    super::eventually("the check-in", || (ada.run(&["checkin", "-m", "mapped"]).status == 0).then_some(()));
    let bob = workspace.mount("bob");
    assert_eq!(bob.read("doc.txt"), b"new");
    app.unmap(map);
}

/// A document that is put back as it was, its time included, is no version; one with another time is.
#[test]
fn only_a_changed_document_is_a_version() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let doc = ada.path("doc.txt");
    let before = std::fs::metadata(&doc).unwrap().modified().unwrap();
    ada.app().overwrite(&doc, b"old").unwrap();
    let file = std::fs::File::options().write(true).open(&doc).unwrap();
    file.set_modified(before).unwrap();
    drop(file);
    let report = ada.check_in();
    assert_eq!(report["change"], serde_json::Value::Null, "{report}");
    assert_eq!(ada.xattr("doc.txt", "user.artifact.version").as_deref(), Some("1"));
    assert_eq!(ada.xattr("doc.txt", "user.lease.state").as_deref(), Some("free"));
    let file = std::fs::File::open(&doc).unwrap();
    file.set_modified(before - std::time::Duration::from_secs(60)).unwrap();
    drop(file);
    ada.check_in();
    assert_eq!(
        ada.xattr("doc.txt", "user.artifact.version").as_deref(),
        Some("2"),
        "a time is part of a version"
    );
}

/// A rename is a rename: the artifact keeps its identity and its versions.
#[test]
fn a_rename_keeps_the_identity() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let id = ada.xattr("doc.txt", "user.artifact.id");
    let app = ada.app();
    app.rename(&ada.path("doc.txt"), &ada.path("report.txt"), 0).unwrap();
    app.save(&ada.path("report.txt"), O_APPEND, b" and new").unwrap();
    let report = ada.check_in();
    assert_eq!(report["items"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(
        (&report["items"][0]["action"], &report["items"][0]["from"]),
        (&"renamed".into(), &"doc.txt".into())
    );
    assert_eq!(ada.xattr("report.txt", "user.artifact.id"), id);
    assert_eq!(ada.xattr("report.txt", "user.artifact.version").as_deref(), Some("2"));
    let bob = workspace.mount("bob");
    assert_eq!((bob.list(""), bob.read("report.txt")), (vec!["report.txt".into()], b"old and new".to_vec()));
}
