//! Collector, check, backup and rescue of a workspace that is in use.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use libc::{O_RDONLY, O_RDWR};
use serde_json::Value;

use super::{Workspace, eventually, program, run, sha256};

/// Collects with no grace worth speaking of; tells how many blobs went.
fn collect(workspace: &Workspace) -> u64 {
    let report = workspace.run(&["gc", "--grace", "1ms", "--json"]).json();
    report["removed"]["blobs"].as_u64().unwrap()
}

fn blob_of(workspace: &Workspace, bytes: &[u8]) -> std::path::PathBuf {
    let hex = sha256(bytes);
    workspace.dot("objects").join(&hex[..2]).join(hex)
}

fn assert_clean(workspace: &Workspace) {
    let report = workspace.run(&["fsck", "--json"]).json();
    assert_eq!(report["lost"], Value::Array(Vec::new()));
}

/// Each save replaces the one before; what was never a version goes, and nothing else.
#[test]
fn saves_that_were_replaced_are_collected() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let app = ada.app();
    for text in [&b"first"[..], b"second", b"third"] {
        app.overwrite(&ada.path("doc.txt"), text).unwrap();
        ada.run(&["settle"]).ok();
    }
    assert!(blob_of(&workspace, b"first").exists());
    // The clock that blobs are dated by moves in steps of some milliseconds.
    eventually("the collection", || {
        collect(&workspace);
        (!blob_of(&workspace, b"first").exists() && !blob_of(&workspace, b"second").exists()).then_some(())
    });
    assert_eq!(ada.read("doc.txt"), b"third");
    ada.check_in();
    collect(&workspace);
    for (version, text) in [("doc.txt@@1", "old"), ("doc.txt@@2", "third")] {
        assert_eq!(workspace.run(&["cat", version]).ok(), text);
    }
    assert_clean(&workspace);
}

/// A file that has no name any more, and that somebody has open, is no garbage.
#[test]
fn what_is_open_is_not_collected() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let app = ada.app();
    app.overwrite(&ada.path("new.txt"), b"open, and nowhere else").unwrap();
    ada.run(&["settle"]).ok();
    let fd = app.open(&ada.path("new.txt"), O_RDWR).unwrap();
    app.unlink(&ada.path("new.txt")).unwrap();
    collect(&workspace);
    app.write_at(fd, 0, b"O").unwrap();
    assert_eq!(app.read(fd, 0, 100).unwrap(), b"Open, and nowhere else");
    app.close(fd).unwrap();
    eventually("the collection", || {
        collect(&workspace);
        (!blob_of(&workspace, b"open, and nowhere else").exists()).then_some(())
    });
}

/// While two people save and check in, a collector sweeps all the time: nothing that anybody needs goes.
#[test]
fn a_collector_that_never_rests_takes_nothing() {
    let Some(workspace) = Workspace::with(&[("a.txt", b"a"), ("b.txt", b"b"), ("c.txt", b"c")]) else {
        return;
    };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sweeping = scope.spawn(|| {
            let mut rounds = 0;
            while !done.load(Ordering::Relaxed) || rounds < 3 {
                collect(&workspace);
                rounds += 1;
            }
        });
        let working = [(&ada, "a.txt"), (&bob, "b.txt")].map(|(mount, name)| {
            scope.spawn(move || {
                let app = mount.app();
                for round in 0..12 {
                    // The same bytes come again and again: blobs that just became garbage are wanted again.
                    let text = format!("text {}", round % 4);
                    app.overwrite(&mount.path(name), text.as_bytes()).unwrap();
                    if round % 3 == 2 {
                        mount.check_in();
                    }
                }
            })
        });
        let worked = working.map(std::thread::ScopedJoinHandle::join);
        done.store(true, Ordering::Relaxed);
        sweeping.join().unwrap();
        worked.into_iter().for_each(|worked| worked.unwrap());
    });
    assert_clean(&workspace);
    for name in ["a.txt", "b.txt"] {
        assert_eq!(ada.read(name), b"text 3");
        for version in 2..=5 {
            let text = workspace.run(&["cat", &format!("{name}@@{version}")]).ok();
            assert!(text.starts_with("text "), "{name}@@{version}: {text}");
        }
    }
    assert_eq!(ada.read("c.txt"), b"c");
}

/// What is lost is named by path and version, and the exit status says so.
#[test]
fn a_check_tells_what_is_lost() {
    let Some(workspace) = Workspace::with(&[("dir/doc.txt", b"old"), ("other.txt", b"fine")]) else { return };
    assert_clean(&workspace);
    fs::write(blob_of(&workspace, b"old"), b"bad").unwrap();
    let ran = workspace.run(&["fsck"]);
    assert!(ran.stdout.contains("dir/doc.txt@@1") && ran.stdout.contains(&sha256(b"bad")), "{}", ran.stdout);
    ran.refused(1);
}

/// A backup is made while people work; what it restores is whole, with their drafts.
#[test]
fn a_backup_of_a_workspace_in_use_comes_back() {
    let Some(workspace) = Workspace::with(&[("a.txt", b"a"), ("b.txt", b"b")]) else { return };
    let ada = workspace.mount("ada");
    let app = ada.app();
    let reader = app.open(&ada.path("b.txt"), O_RDONLY).unwrap();
    let dest = workspace.beside("backup");
    let back_up = || workspace.run(&["backup".as_ref(), dest.as_os_str()]).ok();
    std::thread::scope(|scope| {
        let saving = scope.spawn(|| {
            for round in 0..20 {
                ada.app().overwrite(&ada.path("a.txt"), format!("save {round}").as_bytes()).unwrap();
            }
        });
        for _ in 0..3 {
            back_up();
        }
        saving.join().unwrap();
    });
    ada.check_in();
    app.overwrite(&ada.path("a.txt"), b"a draft").unwrap();
    back_up();
    app.close(reader).unwrap();
    let restored = workspace.beside("restored");
    let (from, to) = (dest.as_os_str(), restored.as_os_str());
    workspace.run(&["restore-backup".as_ref(), from, to]).ok();
    let other = |args: &[&str]| run(&restored, args);
    assert_eq!(other(&["cat", "a.txt@@2"]).ok(), "save 19");
    other(&["fsck"]).ok();
    let status = other(&["status", "--as", "ada", "--checkout", "desk", "--json"]).json();
    assert_eq!(status["drafts"][0]["path"], "a.txt");
    assert_eq!(status["mount"], Value::Null, "the mount is the original's");
    other(&["checkin", "--as", "ada", "--checkout", "desk", "-m", "restored"]).ok();
    assert_eq!(other(&["cat", "a.txt"]).ok(), "a draft");
}

/// A backup that is killed at any moment leaves the one before: what comes back is one of the saves, whole.
#[test]
fn a_backup_that_is_killed_leaves_the_one_before() {
    let Some(workspace) = Workspace::with(&[("a.txt", b"save 0"), ("b.txt", b"b")]) else { return };
    let dest = workspace.beside("backup");
    for round in 1..=12_u64 {
        let mut ada = workspace.mount("ada");
        ada.app().overwrite(&ada.path("a.txt"), format!("save {round}").as_bytes()).unwrap();
        // The save stays a file of staging, unless it was published already.
        ada.crash();
        ada.is_replaced();
        if round == 1 {
            workspace.run(&["backup".as_ref(), dest.as_os_str()]).ok();
        }
        let mut killed = Command::new(program())
            .args(["backup".as_ref(), "-w".as_ref(), workspace.root().as_os_str(), dest.as_os_str()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(round * 4));
        killed.kill().unwrap();
        killed.wait().unwrap();
        let restored = workspace.beside(&format!("restored-{round}"));
        workspace.run(&["restore-backup".as_ref(), dest.as_os_str(), restored.as_os_str()]).ok();
        run(&restored, &["fsck"]).ok();
        run(&restored, &["checkin", "--as", "ada", "--checkout", "desk", "-m", "restored"]).ok();
        let text = run(&restored, &["cat", "a.txt"]).ok();
        let saved = text.strip_prefix("save ").and_then(|number| number.parse::<u64>().ok());
        assert!(saved.is_some_and(|saved| saved <= round), "{text:?} in round {round}");
    }
    workspace.mount("ada").unmount();
    workspace.run(&["backup".as_ref(), dest.as_os_str()]).ok();
}

/// The catalog is lost: history, names and bytes come back from the store, and the workspace is used on.
#[test]
fn a_lost_catalog_is_rescued() {
    let Some(workspace) = Workspace::with(&[("dir/doc.txt", b"old")]) else { return };
    let ada = workspace.mount("ada");
    ada.app().overwrite(&ada.path("dir/doc.txt"), b"new").unwrap();
    ada.check_in();
    ada.unmount();
    let log = workspace.log("dir/doc.txt");
    workspace.run(&["rescue".as_ref(), workspace.root().as_os_str()]).refused(1);
    fs::write(workspace.dot("catalog.db"), b"overwritten by something else").unwrap();
    workspace.run(&["log"]).refused(1);
    workspace.run(&["rescue".as_ref(), workspace.root().as_os_str()]).ok();
    assert_eq!(workspace.log("dir/doc.txt"), log);
    let ada = workspace.mount("ada");
    assert_eq!(ada.read("dir/doc.txt"), b"new");
    ada.app().overwrite(&ada.path("dir/doc.txt"), b"newer").unwrap();
    ada.check_in();
    assert_eq!(workspace.run(&["cat", "dir/doc.txt@@3"]).ok(), "newer");
    assert_clean(&workspace);
}
