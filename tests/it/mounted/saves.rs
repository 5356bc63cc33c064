//! Every way in which applications save ends as one new version of the same artifact, and leaves no litter.

use std::path::Path;

use libc::{O_APPEND, O_CREAT, O_EXCL, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY, RENAME_EXCHANGE};

use super::{Mount, Workspace, eventually};
use crate::agent::{App, OnPath};
use crate::kernel::{EBUSY, EFBIG, EIO};

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
    eventually("the check-in", || (ada.run(&["checkin", "-m", "mapped"]).status == 0).then_some(()));
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

/// A mount of `doc.txt` with this `grace`.
fn with_grace(grace: &str) -> Option<(Workspace, Mount)> {
    let workspace = Workspace::with_document()?;
    workspace.set_policy(&format!("grace = \"{grace}\"\n"));
    let ada = workspace.mount("ada");
    Some((workspace, ada))
}

/// Each way to cut a document to nothing without writing to it.
const CUTS: [(&str, OnPath); 5] = [
    ("truncate", |app, doc| app.truncate(doc, 0).unwrap()),
    ("O_WRONLY", |app, doc| app.save(doc, O_TRUNC, b"").unwrap()),
    ("O_RDONLY", |app, doc| app.open(doc, O_TRUNC).and_then(|fd| app.close(fd)).unwrap()),
    ("ftruncate", |app, doc| {
        let fd = app.open(doc, O_RDWR).unwrap();
        app.ftruncate(fd, 0).unwrap();
        app.close(fd).unwrap();
    }),
    ("written before", |app, doc| {
        let fd = app.open(doc, O_RDWR).unwrap();
        app.write(fd, b"unsaved").unwrap();
        app.ftruncate(fd, 0).unwrap();
        app.close(fd).unwrap();
    }),
];

/// However long nothing follows, a cut to nothing is no save within the grace time; bytes that follow are the save.
#[test]
fn a_cut_is_no_save_within_the_grace() {
    let Some((workspace, ada)) = with_grace("1h") else { return };
    let (app, doc) = (ada.app(), ada.path("doc.txt"));
    for (number, (what, cut)) in CUTS.into_iter().enumerate() {
        cut(&app, &doc);
        assert_eq!(ada.read("doc.txt"), b"", "{what}");
        assert_eq!(ada.drafts(), [""; 0], "{what}");
        // Opening for writing without a write changes nothing of that.
        let fd = app.open(&doc, O_RDWR).unwrap();
        app.close(fd).unwrap();
        assert_eq!(
            (ada.drafts().len(), ada.xattr("doc.txt", "user.artifact.draft").as_deref()),
            (0, Some("dirty"))
        );
        app.save(&doc, 0, what.as_bytes()).unwrap();
        assert_eq!(ada.drafts(), ["doc.txt"], "{what}");
        ada.check_in();
        assert_eq!(ada.read("doc.txt"), what.as_bytes());
        assert_eq!(workspace.log("doc.txt").len(), number + 2, "{what}: one version");
    }
}

/// It is one when the grace time is over, at fsync, and when a command settles the checkout.
#[test]
fn a_cut_that_nothing_follows_is_a_save() {
    let Some((workspace, ada)) = with_grace("300ms") else { return };
    let (app, doc) = (ada.app(), ada.path("doc.txt"));
    for (what, cut) in CUTS {
        app.overwrite(&doc, b"full").unwrap();
        ada.check_in();
        cut(&app, &doc);
        eventually("the grace time", || (ada.drafts() == ["doc.txt"]).then_some(()));
        assert_eq!(ada.read("doc.txt"), b"", "{what}");
        app.overwrite(&doc, b"full").unwrap();
        ada.check_in();
        cut(&app, &doc);
        let report = ada.check_in();
        assert_eq!(
            report["items"].as_array().unwrap().len(),
            1,
            "{what}: the check-in waits for it: {report}"
        );
        assert_eq!(ada.read("doc.txt"), b"", "{what}");
    }
    drop((app, ada, workspace));
    let Some((_workspace, ada)) = with_grace("1h") else { return };
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_RDWR | O_TRUNC).unwrap();
    app.fsync(fd).unwrap();
    assert_eq!(ada.drafts(), ["doc.txt"], "at fsync");
    app.close(fd).unwrap();
}

/// A place in a file that no filesystem below can write: its largest size is smaller.
const TOO_FAR: i64 = i64::MAX - 4096;

/// A file of which a write failed: every save of it answers EIO, it replaces no document, and what was written is kept.
#[test]
fn a_failed_write_taints_the_file() {
    for (name, flags) in
        [("doc.txt", O_RDWR), ("doc.txt.new1", O_RDWR | O_CREAT), ("new.txt", O_RDWR | O_CREAT)]
    {
        let Some(workspace) = Workspace::with_document() else { return };
        let ada = workspace.mount("ada");
        let (app, doc, path) = (ada.app(), ada.path("doc.txt"), ada.path(name));
        let fd = app.open(&path, flags).unwrap();
        app.write_at(fd, 0, b"half").unwrap();
        assert_eq!(app.write_at(fd, TOO_FAR, b"x"), Err(EFBIG), "{name}");
        app.write_at(fd, 4, b" and more").unwrap();
        assert_eq!(app.fsync(fd), Err(EIO), "{name}: fsync");
        let copy = app.dup(fd).unwrap();
        assert_eq!(app.close(copy), Err(EIO), "{name}: close");
        assert_eq!(app.rename(&path, &ada.path("other.txt"), 0), Err(EIO), "{name}: to a document's name");
        if name != "doc.txt" {
            assert_eq!(app.rename(&path, &doc, 0), Err(EIO), "{name}: over the document");
            assert_eq!(app.rename(&path, &doc, RENAME_EXCHANGE), Err(EIO), "{name}: exchange");
            assert_eq!(ada.read("doc.txt"), b"old", "{name}");
        }
        assert_eq!(app.close(fd), Err(EIO), "{name}: the last close");
        if name == "doc.txt.new1" {
            assert_eq!(app.rename(&path, &doc, 0), Err(EIO), "{name}: after the last close");
        } else {
            let copies = eventually("the recovery copy", || {
                Some(workspace.recovered()).filter(|copies| !copies.is_empty())
            });
            assert_eq!(workspace.restore_recovered(&copies[0]), b"half and more", "{name}");
            assert_eq!(ada.read(name), if name == "doc.txt" { &b"old"[..] } else { b"" });
        }
        assert_eq!(ada.read("doc.txt"), b"old", "{name}");
        assert!(!ada.path("other.txt").exists(), "{name}");
    }
}

/// A file whose writing failed is whole again once it is cut to nothing and written anew.
#[test]
fn a_cut_to_nothing_heals() {
    assert_one_version(b"whole", |app, ada, doc| {
        let temp = ada.path("doc.txt.new1");
        for (path, flags) in [(&temp, O_RDWR | O_CREAT), (&doc.to_path_buf(), O_RDWR)] {
            let fd = app.open(path, flags).unwrap();
            app.write_at(fd, 0, b"half of what was there").unwrap();
            assert_eq!(app.write_at(fd, TOO_FAR, b"x"), Err(EFBIG));
            app.ftruncate(fd, 5).unwrap();
            assert_eq!(app.fsync(fd), Err(EIO), "a shorter one is not whole");
            app.ftruncate(fd, 0).unwrap();
            app.write_at(fd, 0, b"whole").unwrap();
            app.close(fd).unwrap();
        }
        app.rename(&temp, doc, 0).unwrap();
    });
}

/// An open with `O_TRUNC` whose cut fails leaves nothing open, nothing cut and no lease behind, by path and by
/// `/proc`, of a version and of a draft.
#[test]
fn a_cut_that_fails_leaves_nothing() {
    let Some(workspace) = Workspace::with(&[("doc.txt", b"old"), ("draft.txt", b"old")]) else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let app = ada.app();
    app.overwrite(&ada.path("draft.txt"), b"draft").unwrap();
    ada.run(&["settle"]).ok();
    let (staging, away) = (workspace.dot("staging"), workspace.beside("staging"));
    let open = || {
        let fds = std::fs::read_dir(format!("/proc/{}/fd", app.pid())).unwrap();
        let targets = fds.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
        targets.filter(|target| target.starts_with(ada.at())).count()
    };
    for (name, bytes, state) in [("doc.txt", &b"old"[..], "free"), ("draft.txt", b"draft", "mine")] {
        let path = ada.path(name);
        let reader = app.open(&path, O_RDONLY).unwrap();
        assert_eq!(app.read(reader, 0, 1).unwrap(), bytes[..1]);
        // No working file can be made.
        std::fs::rename(&staging, &away).unwrap();
        for flags in [O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_CREAT] {
            assert!(app.open(&path, flags | O_TRUNC).is_err(), "{name}: {flags:#o}");
            assert!(app.reopen(reader, flags | O_TRUNC).is_err(), "{name}: {flags:#o}, by /proc");
        }
        std::fs::rename(&away, &staging).unwrap();
        assert_eq!(open(), 1, "{name}: the reader alone");
        assert_eq!(app.read_all(reader).unwrap(), bytes, "{name}");
        app.close(reader).unwrap();
        assert_eq!(ada.read(name), bytes, "{name}");
        eventually("the lease", || {
            (ada.xattr(name, "user.lease.state").as_deref() == Some(state)).then_some(())
        });
    }
    assert_eq!(ada.drafts(), ["draft.txt"]);
    bob.app().overwrite(&bob.path("doc.txt"), b"bob's").unwrap();
    app.overwrite(&ada.path("draft.txt"), b"goes on").unwrap();
    assert!(workspace.recovered().is_empty());
}

/// One that is refused, since somebody else holds the lease or the process has read an older version, cuts nothing either.
#[test]
fn a_refused_cut_leaves_nothing() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let (app, doc) = (bob.app(), bob.path("doc.txt"));
    let reader = app.open(&doc, O_RDONLY).unwrap();
    assert_eq!(app.read_all(reader).unwrap(), b"old");
    ada.app().overwrite(&ada.path("doc.txt"), b"ada's").unwrap();
    let refused = || {
        for flags in [O_RDONLY, O_WRONLY, O_RDWR] {
            assert_eq!(app.open(&doc, flags | O_TRUNC), Err(EBUSY), "{flags:#o}");
            assert!(app.reopen(reader, flags | O_TRUNC).is_err(), "{flags:#o}, by /proc");
        }
        assert_eq!(app.read_all(reader).unwrap(), b"old");
    };
    refused();
    assert_eq!(bob.read("doc.txt"), b"old");
    ada.check_in();
    eventually("the version", || (bob.read("doc.txt") == b"ada's").then_some(()));
    refused();
    assert_eq!((bob.read("doc.txt"), bob.drafts()), (b"ada's".to_vec(), vec![]));
    assert_eq!(bob.xattr("doc.txt", "user.lease.state").as_deref(), Some("free"));
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
