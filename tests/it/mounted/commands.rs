//! What commands say: each failure in one line with its exit status, and nothing left out in silence.

use libc::O_CREAT;

use super::Workspace;
use crate::kernel;

/// A path that names nothing is an error, in a mount and without one; one that is removed, or that somebody else has
/// reserved, is no such path.
#[test]
fn paths_that_name_nothing_are_refused() {
    let Some(workspace) = Workspace::with(&[("doc.txt", b"old"), ("gone.txt", b"old")]) else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let app = ada.app();
    app.unlink(&ada.path("gone.txt")).unwrap();
    app.save(&ada.path("new.txt"), O_CREAT, b"ada's").unwrap();
    for command in ["status", "settle"] {
        for ran in [ada.run(&[command, "typo.txt"]), workspace.run(&[command, "typo.txt"])] {
            assert!(ran.refused(1).contains("typo.txt: no such file"), "{command}");
        }
        for path in ["doc.txt", "gone.txt", "new.txt", "."] {
            ada.run(&[command, path]).ok();
        }
    }
    let shown = bob.run(&["status", "new.txt"]).ok();
    assert!(shown.contains("ada@desk"), "who has reserved it: {shown}");
}

/// A log of the newest changes only.
#[test]
fn a_log_can_be_short() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    for bytes in [b"second", b"third!"] {
        ada.app().overwrite(&ada.path("doc.txt"), bytes).unwrap();
        ada.check_in();
    }
    let numbers = |args: &[&str]| -> Vec<i64> {
        let log = ada.run(&[&["log", "--json"], args].concat()).json();
        log.as_array().unwrap().iter().map(|entry| entry["change"].as_i64().unwrap()).collect()
    };
    assert_eq!(numbers(&["-n", "1"]), [3]);
    assert_eq!(numbers(&["-n2", "doc.txt"]), [3, 2]);
    assert_eq!(numbers(&["--max-count", "9"]), [3, 2, 1]);
}

/// `lease show` and the attributes of a file tell of a lease on a directory above it, to its holder and to others.
#[test]
fn a_lease_on_a_directory_above_shows() {
    let Some(workspace) = Workspace::with(&[("dir/sub/doc.txt", b"old"), ("free.txt", b"old")]) else {
        return;
    };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    ada.run(&["checkout", "dir"]).ok();
    ada.app().save(&ada.path("dir/sub/new.txt"), O_CREAT, b"ada's").unwrap();
    for mount in [&ada, &bob] {
        let shown = mount.run(&["lease", "show", "dir/sub/doc.txt", "--json"]).json();
        let shown = &shown[0];
        assert_eq!(shown["lease"]["holder"], "ada@desk", "{shown}");
        assert_eq!(shown["lease"]["path"], "dir", "{shown}");
        assert_ne!(shown["lease"]["key"], shown["key"], "{shown}");
        let human = mount.run(&["lease", "show", "dir/sub/doc.txt"]).ok();
        assert!(human.starts_with("dir  ada@desk  "), "{human}");
    }
    assert_eq!(ada.xattr("dir/sub/doc.txt", "user.lease.state").as_deref(), Some("mine"));
    assert_eq!(bob.xattr("dir/sub/doc.txt", "user.lease.state").as_deref(), Some("held"));
    let own = ada.run(&["lease", "show", "dir/sub/new.txt", "--json"]).json();
    assert_eq!(own[0]["lease"]["path"], "dir/sub/new.txt", "its own comes first: {own}");
    assert_eq!(bob.run(&["lease", "show", "free.txt"]).ok(), "free.txt  free\n");
}

/// A name that no holder can have is wrong usage, told in one line that quotes it, wherever it was given.
#[test]
fn names_of_holders_are_checked() {
    let Some(workspace) = Workspace::with_document() else { return };
    let long = "x".repeat(128);
    for name in ["a@b", "", "a/b", "a\nb", &long] {
        for option in ["--as", "--checkout"] {
            let ran = workspace.run(&["status", option, name]);
            assert!(ran.refused(2).contains(&format!("choose another with {option}")), "{option} {name:?}");
        }
        let refused = workspace.try_mount(name, &[]).err().expect("no such holder mounts");
        assert!(refused.refused(2).contains("the name of a user"), "{name:?}");
    }
    assert!(workspace.run(&["lease", "show", "doc.txt", "--as", "a\tb"]).refused(2).contains("a holder"));
    workspace.run(&["lease", "show", "doc.txt", "--as", "ada@desk"]).ok();
}

/// Wrong usage is one line, and help is what it was.
#[test]
fn wrong_usage_is_one_line() {
    let Some(workspace) = Workspace::with_document() else { return };
    for args in
        [&["statu"][..], &["cat"], &["log", "-n", "0"], &["status", "a\nb", "c\x1bd"], &["lease"], &[]]
    {
        let line = workspace.run(args).refused(2);
        assert!(line.starts_with("leasehold") && line.contains("--help`"), "{line}");
        assert!(!line.contains('\x1b'), "{line}");
    }
    assert!(workspace.run(&["log", "--help"]).ok().lines().count() > 5);
}

/// A directory with files becomes a workspace without them, and says so; `--from` itself leaves nothing to say.
#[test]
fn files_that_init_leaves_are_told() {
    let Some(workspace) = Workspace::with_document() else { return };
    let fill = |name: &str| {
        let dir = workspace.beside(name);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("one.txt"), "1").unwrap();
        std::fs::write(dir.join("two.txt"), "2").unwrap();
        dir
    };
    let here = fill("full");
    let said = super::run(here.parent().unwrap(), &["init", "full"]).ok();
    assert_eq!(said.lines().count(), 1, "{said}");
    for part in ["full: holds 2 ", "not imported", "leasehold import -w full", "--from"] {
        assert!(said.contains(part), "{part} in: {said}");
    }
    fill("whole");
    let form = super::run(here.parent().unwrap(), &["init", "whole", "--from", "whole", "--json"]).json();
    assert_eq!((&form["not_imported"], &form["import"]["files"]), (&0.into(), &2.into()), "{form}");
    assert_eq!(super::run(here.parent().unwrap(), &["init", "new"]).ok(), "");
}

/// A refusal says what is wrong in the user's words and what to do, mounted or not.
#[test]
fn refusals_say_what_to_do() {
    let Some(workspace) = Workspace::with(&[("doc.txt", b"old"), ("dir/inner.txt", b"old")]) else { return };
    let ada = workspace.mount("ada");
    let app = ada.app();
    app.overwrite(&ada.path("doc.txt"), b"new").unwrap();
    kernel::mkdir(&ada.path("fresh")).unwrap();
    app.save(&ada.path("fresh/x.txt"), O_CREAT, b"x").unwrap();
    app.unlink(&ada.path("dir/inner.txt")).unwrap();
    kernel::rmdir(&ada.path("dir")).unwrap();
    let cases: [(&[&str], &str); 7] = [
        (&["save-as", "doc.txt", "fresh"], "fresh: is there already; choose another name"),
        (&["save-as", "doc.txt", "fresh/x.txt/y"], "fresh/x.txt: not a directory; name one that is there"),
        (&["save-as", "fresh", "other"], "fresh: is a directory; save its files one by one"),
        (&["restore", "doc.txt@@7"], "doc.txt: has no version 7; the newest is 1"),
        (&["cat", "never.txt"], "never.txt: no such file in this checkout; check its spelling"),
        (
            &["recovered", "restore", "x", "y"],
            "\"x\": no such recovery copy; `leasehold recovered` lists them",
        ),
        (&["lease", "show", "artifact:x"], "artifact:x: no such file in this checkout; check its spelling"),
    ];
    for (args, expected) in cases {
        assert_eq!(ada.run(args).refused(1), format!("leasehold: {expected}\n"), "{args:?}");
    }
    ada.unmount();
    let as_ada = |args: &[&str]| workspace.run(&[args, &["--as", "ada", "--checkout", "desk"]].concat());
    for (args, expected) in &cases[..5] {
        assert_eq!(as_ada(args).refused(1), format!("leasehold: {expected}\n"), "{args:?}");
    }
}

/// A catalog that can't be used is named, with what helps.
#[test]
fn a_broken_catalog_is_named() {
    let Some(workspace) = Workspace::with_document() else { return };
    for (bytes, remedy) in
        [(&b"no database, but long enough to be taken for one"[..], "backup"), (b"", "backup")]
    {
        for file in ["catalog.db", "catalog.db-wal", "catalog.db-shm"] {
            let _ = std::fs::remove_file(workspace.dot(file));
        }
        std::fs::write(workspace.dot("catalog.db"), bytes.repeat(100)).unwrap();
        let line = workspace.run(&["log"]).refused(1);
        assert!(line.contains("catalog.db: the catalog can't be used") && line.contains(remedy), "{line}");
    }
}
