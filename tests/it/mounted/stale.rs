//! Who read an old version doesn't overwrite a newer one without a word.

use std::sync::Arc;

use leasehold::clock::SystemClock;
use leasehold::engine::{self, Environment};
use libc::{O_CREAT, O_EXCL, O_RDWR, O_TRUNC};

use super::{Mount, Workspace, eventually};
use crate::agent::{App, OnPath};
use crate::kernel::EBUSY;

/// An application of bob's that has read version 1 of `doc.txt`, of which ada has checked in version 2 since.
fn bob_has_read_version_1() -> Option<(Workspace, Mount, Mount, App)> {
    let workspace = Workspace::with_document()?;
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let app = bob.app();
    assert_eq!(app.read_file(&bob.path("doc.txt")).unwrap(), b"old");
    ada.app().overwrite(&ada.path("doc.txt"), b"ada's").unwrap();
    ada.check_in();
    eventually("version 2", || (bob.read("doc.txt") == b"ada's").then_some(()));
    Some((workspace, ada, bob, app))
}

/// Its save is refused, whichever way it saves, and the newer version stays.
#[test]
fn a_stale_save_is_refused() {
    let Some((_workspace, _ada, bob, app)) = bob_has_read_version_1() else { return };
    let (doc, temp) = (bob.path("doc.txt"), bob.path("doc.txt.Ab12Cd"));
    assert_eq!(app.open(&doc, O_RDWR), Err(EBUSY));
    assert_eq!(app.overwrite(&doc, b"bob's"), Err(EBUSY));
    app.save(&temp, O_CREAT, b"bob's").unwrap();
    assert_eq!(app.rename(&temp, &doc, 0), Err(EBUSY));
    assert_eq!(bob.read("doc.txt"), b"ada's");
    assert_eq!(app.read_file(&temp).unwrap(), b"bob's", "its bytes are where it put them");
}

/// A save that removes or renames the document first is refused at that step, where nothing is lost yet.
#[test]
fn a_stale_save_that_removes_first_is_refused() {
    let Some((_workspace, _ada, bob, app)) = bob_has_read_version_1() else { return };
    let doc = bob.path("doc.txt");
    assert_eq!(app.unlink(&doc), Err(EBUSY), "unlink");
    assert_eq!(app.rename(&doc, &bob.path("doc.txt~"), 0), Err(EBUSY), "backup");
    app.save(&bob.path("doc.txt.Ab12Cd"), O_CREAT, b"bob's").unwrap();
    let exchanged = app.rename(&bob.path("doc.txt.Ab12Cd"), &doc, libc::RENAME_EXCHANGE);
    assert_eq!(exchanged, Err(EBUSY), "exchange");
    assert_eq!((bob.read("doc.txt"), bob.drafts()), (b"ada's".to_vec(), Vec::new()));
    assert_eq!(bob.xattr("doc.txt", "user.lease.state").as_deref(), Some("free"));
    app.rename(&doc, &bob.path("moved.txt"), 0).expect("a rename takes its bytes along");
    assert_eq!(app.save(&doc, O_CREAT | O_EXCL, b"bob's"), Err(EBUSY), "another one under its name");
    app.rename(&bob.path("moved.txt"), &doc, 0).expect("and brings them back");
    bob.run(&["revert", "."]).ok();
    assert_eq!(bob.read("doc.txt"), b"ada's");
}

/// Reading again leads out: the application has seen the newer version now.
#[test]
fn reading_again_leads_out() {
    let Some((_workspace, _ada, bob, app)) = bob_has_read_version_1() else { return };
    assert_eq!(app.open(&bob.path("doc.txt"), O_RDWR), Err(EBUSY));
    assert_eq!(app.read_file(&bob.path("doc.txt")).unwrap(), b"ada's");
    app.overwrite(&bob.path("doc.txt"), b"bob's").unwrap();
    bob.check_in();
    assert_eq!(bob.read("doc.txt"), b"bob's");
}

/// Each way in which a process makes a draft without a close of what it wrote.
const UNCLOSED: [(&str, OnPath); 4] = [
    ("a cut", |app, doc| app.truncate(doc, 2).unwrap()),
    ("a cut to nothing", |app, doc| app.truncate(doc, 0).unwrap()),
    ("an open that cuts to nothing", |app, doc| app.save(doc, O_TRUNC, b"").unwrap()),
    ("a mapping", |app, doc| {
        let fd = app.open(doc, O_RDWR).unwrap();
        let map = app.map(fd, 3, true).unwrap();
        app.close(fd).unwrap();
        app.write_map(map, 0, b"map");
        app.unmap(map);
    }),
];

/// Whichever way a process makes a draft, it knows the version that becomes of it, and may save again.
#[test]
fn every_author_may_save_again() {
    for (what, change) in UNCLOSED {
        let Some(workspace) = Workspace::with_document() else { return };
        workspace.set_policy("grace = \"200ms\"\n");
        let ada = workspace.mount("ada");
        let (app, doc) = (ada.app(), ada.path("doc.txt"));
        assert_eq!(app.read_file(&doc).unwrap(), b"old");
        change(&app, &doc);
        eventually("the draft", || (ada.drafts() == ["doc.txt"]).then_some(()));
        ada.check_in();
        let saved = app.overwrite(&doc, b"again");
        assert_eq!(saved, Ok(()), "{what}");
    }
}

/// Another application that has not read the old version is on the newest.
#[test]
fn processes_are_told_apart() {
    let Some((_workspace, _ada, bob, _app)) = bob_has_read_version_1() else { return };
    bob.app().overwrite(&bob.path("doc.txt"), b"bob's").unwrap();
}

/// How often versions were made by processes that had not read the one before.
fn overwrites(workspace: &Workspace) -> usize {
    let env = Environment {
        clock: Arc::new(SystemClock::new().unwrap()),
        ids: Arc::new(leasehold::ids::SystemIds),
    };
    let workspace = engine::Workspace::open(&workspace.root(), &env).unwrap();
    let events = workspace.catalog().events(0, 1_000).unwrap();
    events.iter().filter(|event| event.kind == "overwrote-unseen").count()
}

/// A save by a process that has not read the newest version is noted, whichever way it saves; one by a process that has
/// is not, nor are its later ones.
#[test]
fn saves_by_those_who_have_not_read_are_noted() {
    type Save = fn(&App, &Mount, &[u8]);
    let ways: [(&str, Save); 5] = [
        ("overwrite", |app, at, bytes| app.overwrite(&at.path("doc.txt"), bytes).unwrap()),
        ("write", |app, at, bytes| app.save(&at.path("doc.txt"), 0, bytes).unwrap()),
        ("rename over", |app, at, bytes| {
            app.save(&at.path("doc.txt.Ab12Cd"), O_CREAT | O_EXCL, bytes).unwrap();
            app.rename(&at.path("doc.txt.Ab12Cd"), &at.path("doc.txt"), 0).unwrap();
        }),
        ("unlink and create", |app, at, bytes| {
            app.unlink(&at.path("doc.txt")).unwrap();
            app.save(&at.path("doc.txt"), O_CREAT | O_EXCL, bytes).unwrap();
        }),
        ("backup and create", |app, at, bytes| {
            app.rename(&at.path("doc.txt"), &at.path("doc.txt~"), 0).unwrap();
            app.save(&at.path("doc.txt"), O_CREAT | O_EXCL, bytes).unwrap();
        }),
    ];
    for (way, save) in ways {
        let Some(workspace) = Workspace::with_document() else { return };
        let ada = workspace.mount("ada");
        let (reader, stranger) = (ada.app(), ada.app());
        reader.read_file(&ada.path("doc.txt")).unwrap();
        save(&reader, &ada, b"by its reader");
        save(&reader, &ada, b"by its author");
        ada.check_in();
        assert_eq!(overwrites(&workspace), 0, "{way}, by who has read it");
        save(&stranger, &ada, b"by a stranger");
        ada.check_in();
        assert_eq!(overwrites(&workspace), 1, "{way}, by who has not");
        save(&stranger, &ada, b"by its author");
        assert_eq!(overwrites(&workspace), 1, "{way}, by its author");
    }
}

/// Whoever saved a draft, or read it, knows the version that a check-in here makes of it, and may save again; whoever
/// read only what was before may not.
#[test]
fn authors_know_their_version() {
    type Know = fn(&App, &Mount);
    let ways: [(&str, bool, Know); 5] = [
        ("close", true, |app, at| app.overwrite(&at.path("doc.txt"), b"draft").unwrap()),
        ("fsync", true, |app, at| {
            let fd = app.open(&at.path("doc.txt"), O_RDWR).unwrap();
            app.write(fd, b"draft").unwrap();
            app.fsync(fd).unwrap();
        }),
        ("rename", true, |app, at| {
            app.save(&at.path("doc.txt.Ab12Cd"), O_CREAT | O_EXCL, b"draft").unwrap();
            app.rename(&at.path("doc.txt.Ab12Cd"), &at.path("doc.txt"), 0).unwrap();
        }),
        ("read the draft", true, |app, at| {
            at.app().overwrite(&at.path("doc.txt"), b"draft").unwrap();
            app.read_file(&at.path("doc.txt")).unwrap();
        }),
        ("nothing", false, |_, at| at.app().overwrite(&at.path("doc.txt"), b"draft").unwrap()),
    ];
    for (way, may, know) in ways {
        let Some(workspace) = Workspace::with_document() else { return };
        let ada = workspace.mount("ada");
        let app = ada.app();
        app.read_file(&ada.path("doc.txt")).unwrap();
        know(&app, &ada);
        ada.check_in();
        let saved = app.save(&ada.path("doc.txt"), O_TRUNC, b"again");
        assert_eq!(saved, if may { Ok(()) } else { Err(EBUSY) }, "{way}");
    }
}

/// A draft of version 1 whose lease lapsed while ada checked in version 2.
fn bob_has_a_stale_draft() -> Option<(Workspace, Mount, Mount)> {
    let workspace = Workspace::with_document()?;
    let (ada, bob) = (workspace.mount("ada"), workspace.mount_with("bob", &["--ttl", "1s"]));
    bob.app().overwrite(&bob.path("doc.txt"), b"bob's").unwrap();
    let app = ada.app();
    eventually("the lease to end", || app.overwrite(&ada.path("doc.txt"), b"ada's").ok());
    ada.check_in();
    Some((workspace, ada, bob))
}

/// A stale draft keeps its bytes, is told by `status`, and is not checked in: exit status 4.
#[test]
fn a_stale_draft_is_told_and_kept() {
    let Some((_workspace, _ada, bob)) = bob_has_a_stale_draft() else { return };
    assert_eq!(bob.read("doc.txt"), b"bob's");
    let status = bob.status();
    assert_eq!(
        (&status["drafts"][0]["stale"], &status["drafts"][0]["base"]),
        (&true.into(), &1.into()),
        "{status}"
    );
    let line = bob.run(&["checkin", "-m", "mine"]).refused(4);
    assert!(line.contains("doc.txt") && line.contains("save-as") && line.contains("--onto 2"), "{line}");
    assert_eq!(bob.read("doc.txt"), b"bob's");
}

/// `save-as` keeps the draft as another document, and gives the name back to the head.
#[test]
fn save_as_leads_out() {
    let Some((_workspace, ada, bob)) = bob_has_a_stale_draft() else { return };
    bob.run(&["save-as", "doc.txt", "doc of bob.txt"]).ok();
    assert_eq!((bob.read("doc.txt"), bob.read("doc of bob.txt")), (b"ada's".to_vec(), b"bob's".to_vec()));
    bob.check_in();
    eventually("bob's document", || ada.path("doc of bob.txt").exists().then_some(()));
    assert_eq!(ada.read("doc of bob.txt"), b"bob's");
    assert_ne!(ada.xattr("doc of bob.txt", "user.artifact.id"), ada.xattr("doc.txt", "user.artifact.id"));
}

/// `checkin --onto N` puts the draft over the version that its author has seen, and only over that one.
#[test]
fn onto_leads_out() {
    let Some((workspace, ada, bob)) = bob_has_a_stale_draft() else { return };
    bob.run(&["checkin", "-m", "over it", "--onto", "1"]).refused(4);
    bob.run(&["checkin", "-m", "over it", "--onto", "2"]).ok();
    eventually("version 3", || (ada.read("doc.txt") == b"bob's").then_some(()));
    let log = workspace.log("doc.txt");
    assert_eq!(
        (&log[0]["items"][0]["version"], &log[0]["items"][0]["base"]),
        (&3.into(), &1.into()),
        "{log:?}"
    );
}
