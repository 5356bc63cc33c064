//! kill -9 of the daemon at any moment, then mount again: each file is its last save or its last version, whole, and
//! unsaved bytes are recovery copies.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use libc::{O_CREAT, O_EXCL, O_RDWR, O_TRUNC, O_WRONLY};
use serde_json::Value;

use super::{Mount, Workspace, eventually, is_mounted};
use crate::agent::App;

/// How many rounds of killing at random points, unless `LEASEHOLD_KILL_ROUNDS` says more.
const KILL_ROUNDS: u32 = 10;

fn copies_of(workspace: &Workspace, path: &str) -> Vec<Value> {
    workspace.recovered().into_iter().filter(|copy| copy["path"] == path).collect()
}

/// What close(2) acknowledged is the draft, with its lease.
#[test]
fn a_saved_draft_survives() {
    let Some(workspace) = Workspace::with_document() else { return };
    let mut ada = workspace.mount("ada");
    ada.app().overwrite(&ada.path("doc.txt"), b"saved").unwrap();
    let id = ada.xattr("doc.txt", "user.artifact.id");
    ada.crash();
    let ada = ada.mount_again();
    assert_eq!(ada.read("doc.txt"), b"saved");
    assert_eq!(ada.xattr("doc.txt", "user.lease.state").as_deref(), Some("mine"));
    assert_eq!(workspace.recovered(), [Value::Null; 0]);
    ada.check_in();
    assert_eq!(ada.xattr("doc.txt", "user.artifact.id"), id);
    assert_eq!(ada.xattr("doc.txt", "user.artifact.version").as_deref(), Some("2"));
}

/// What write(2) acknowledged is a recovery copy that names its artifact and base; the draft is the last save.
#[test]
fn unsaved_bytes_are_recovered() {
    let Some(workspace) = Workspace::with_document() else { return };
    let mut ada = workspace.mount("ada");
    let id = ada.xattr("doc.txt", "user.artifact.id");
    ada.app().overwrite(&ada.path("doc.txt"), b"saved").unwrap();
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_RDWR).unwrap();
    app.write_at(fd, 5, b", unsaved").unwrap();
    ada.crash();
    drop(app);
    let ada = ada.mount_again();
    assert_eq!(ada.read("doc.txt"), b"saved");
    let copies = copies_of(&workspace, "doc.txt");
    assert_eq!(copies.len(), 1, "{copies:?}");
    assert_eq!((copies[0]["artifact"].as_str(), &copies[0]["base"]), (id.as_deref(), &1.into()));
    assert_eq!(copies[0]["holder"], "ada@desk");
    assert_eq!(workspace.restore_recovered(&copies[0]), b"saved, unsaved");
    assert_eq!(ada.status()["recovered"].as_array().unwrap().len(), 1);
}

/// Unsaved bytes over a version: the version shows again, whole.
#[test]
fn a_version_shows_again() {
    let Some(workspace) = Workspace::with_document() else { return };
    let mut ada = workspace.mount("ada");
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    app.write(fd, b"unsaved").unwrap();
    ada.crash();
    drop(app);
    let ada = ada.mount_again();
    assert_eq!(ada.read("doc.txt"), b"old");
    assert_eq!(workspace.restore_recovered(&copies_of(&workspace, "doc.txt")[0]), b"unsaved");
    ada.app().overwrite(&ada.path("doc.txt"), b"goes on").unwrap();
}

/// A new file that was never saved.
#[test]
fn a_new_files_bytes_are_recovered() {
    let Some(workspace) = Workspace::with_document() else { return };
    let mut ada = workspace.mount("ada");
    let app = ada.app();
    let fd = app.open(&ada.path("new.txt"), O_WRONLY | O_CREAT | O_EXCL).unwrap();
    app.write(fd, b"unsaved").unwrap();
    ada.crash();
    drop(app);
    let ada = ada.mount_again();
    let copies = copies_of(&workspace, "new.txt");
    assert_eq!(workspace.restore_recovered(&copies[0]), b"unsaved");
    // As on a local disk: the name was created, and nothing was saved into it.
    assert_eq!(ada.read("new.txt"), b"");
}

/// fsync(2) is a save: the draft has what came before it, and the bytes after it are recovered.
#[test]
fn a_synced_handle_is_the_draft() {
    let Some(workspace) = Workspace::with_document() else { return };
    let mut ada = workspace.mount("ada");
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    app.write(fd, b"synced").unwrap();
    app.fsync(fd).unwrap();
    app.write(fd, b" and not").unwrap();
    ada.crash();
    drop(app);
    let ada = ada.mount_again();
    assert_eq!(ada.read("doc.txt"), b"synced");
    assert_eq!(workspace.restore_recovered(&copies_of(&workspace, "doc.txt")[0]), b"synced and not");
}

/// A document that was only cut to nothing keeps its bytes: the cut is the first half of a save.
#[test]
fn an_emptied_document_keeps_its_bytes() {
    let Some(workspace) = Workspace::with_document() else { return };
    let mut ada = workspace.mount("ada");
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    app.close(fd).unwrap();
    ada.crash();
    drop(app);
    assert_eq!(ada.mount_again().read("doc.txt"), b"old");
}

/// A rename over the document is a save once it is acknowledged.
#[test]
fn a_rename_over_survives() {
    let Some(workspace) = Workspace::with_document() else { return };
    let mut ada = workspace.mount("ada");
    let (app, temp) = (ada.app(), ada.path("doc.txt.new1"));
    app.save(&temp, O_CREAT | O_EXCL, b"new").unwrap();
    app.rename(&temp, &ada.path("doc.txt"), 0).unwrap();
    ada.crash();
    let ada = ada.mount_again();
    assert_eq!((ada.read("doc.txt"), ada.list("")), (b"new".to_vec(), vec!["doc.txt".into()]));
}

/// Names that were made, moved and removed stay so.
#[test]
fn names_survive() {
    let Some(workspace) = Workspace::with(&[("a.txt", b"a"), ("b.txt", b"b"), ("dir/c.txt", b"c")]) else {
        return;
    };
    let mut ada = workspace.mount("ada");
    let app = ada.app();
    app.unlink(&ada.path("a.txt")).unwrap();
    app.rename(&ada.path("b.txt"), &ada.path("dir/moved.txt"), 0).unwrap();
    crate::kernel::mkdir(&ada.path("new dir")).unwrap();
    std::os::unix::fs::symlink("dir/c.txt", ada.path("new dir/link")).unwrap();
    ada.crash();
    let ada = ada.mount_again();
    assert_eq!(ada.list(""), ["dir", "new dir"]);
    assert_eq!(ada.list("dir"), ["c.txt", "moved.txt"]);
    assert_eq!(std::fs::read_link(ada.path("new dir/link")).unwrap(), std::path::Path::new("dir/c.txt"));
    assert_eq!(ada.read("dir/moved.txt"), b"b");
}

/// Others may go on where the dead daemon's holder saved nothing, once the lease has ended.
#[test]
fn a_dead_writer_blocks_nobody_for_ever() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (mut ada, bob) = (workspace.mount_with("ada", &["--ttl", "1s"]), workspace.mount("bob"));
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    app.write(fd, b"unsaved").unwrap();
    ada.crash();
    drop(app);
    let writer = bob.app();
    eventually("the lease to end", || writer.overwrite(&bob.path("doc.txt"), b"bob's").ok());
    bob.check_in();
    let ada = ada.mount_again();
    assert_eq!(ada.read("doc.txt"), b"bob's");
    assert_eq!(workspace.restore_recovered(&copies_of(&workspace, "doc.txt")[0]), b"unsaved");
}

/// A file that applications edit in place with a journal is its own draft, with a local disk's semantics.
#[test]
fn a_live_file_is_written_in_place() {
    let Some(workspace) = Workspace::with(&[("data.sqlite", b"old")]) else { return };
    let mut ada = workspace.mount("ada");
    let app = ada.app();
    let fd = app.open(&ada.path("data.sqlite"), O_RDWR).unwrap();
    app.write_at(fd, 0, b"new").unwrap();
    app.write_at(fd, 3, b"er").unwrap();
    ada.crash();
    drop(app);
    let ada = ada.mount_again();
    assert_eq!(ada.read("data.sqlite"), b"newer");
    assert_eq!(copies_of(&workspace, "data.sqlite"), [Value::Null; 0]);
}

/// The content of a save in the loop: its size and bytes tell its number.
fn save_number(number: usize) -> Vec<u8> {
    let line = format!("save {number}\n");
    line.repeat(1 + number * 997 % 4_000).into_bytes()
}

fn is_whole_save(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let number = text
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("save "))
        .and_then(|number| number.parse().ok());
    number.is_some_and(|number| save_number(number) == bytes)
}

/// Saves in four ways, one after another, until the daemon is gone.
fn save_until_killed(app: &App, mount: &std::path::Path, first: usize) {
    for number in first.. {
        let (doc, bytes) = (mount.join(format!("doc {}.txt", number % 4)), save_number(number));
        let temp = mount.join(format!("doc {}.txt.Ab12Cd", number % 4));
        let saved = match number % 4 {
            0 => app.overwrite(&doc, &bytes),
            1 => app.save(&temp, O_CREAT | O_TRUNC, &bytes).and_then(|()| app.rename(&temp, &doc, 0)),
            2 => in_place_with_sync(app, &doc, &bytes),
            _ => app.unlink(&doc).and_then(|()| app.save(&doc, O_CREAT, &bytes)),
        };
        if saved.is_err() {
            return;
        }
    }
}

fn in_place_with_sync(app: &App, doc: &std::path::Path, bytes: &[u8]) -> crate::kernel::Sys<()> {
    let fd = app.open(doc, O_WRONLY | O_TRUNC)?;
    app.write(fd, bytes)?;
    app.fsync(fd)?;
    app.close(fd)
}

/// Under load, killed at random points: each document is some whole save, and the store is sound.
#[test]
fn killed_at_random_points_each_file_is_a_whole_save() {
    let files: Vec<(String, Vec<u8>)> = (0..4).map(|n| (format!("doc {n}.txt"), save_number(n))).collect();
    let files: Vec<(&str, &[u8])> =
        files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
    let Some(workspace) = Workspace::with(&files) else { return };
    let rounds = std::env::var("LEASEHOLD_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let mut ada = workspace.mount("ada");
    for round in 0..rounds.unwrap_or(KILL_ROUNDS) {
        let app = ada.app();
        let at = ada.at().to_owned();
        std::thread::scope(|scope| {
            scope.spawn(|| save_until_killed(&app, &at, 4 * (round as usize * 1_000 + 1)));
            std::thread::sleep(random_delay());
            ada.crash();
        });
        drop(app);
        ada = ada.mount_again();
        assert_documents_are_whole(&ada, round);
    }
    ada.check_in();
    workspace.assert_store_is_sound();
}

/// Between 1 and 400 ms; the standard library's hasher is seeded anew each time.
fn random_delay() -> Duration {
    use std::hash::{BuildHasher, RandomState};
    Duration::from_millis(1 + RandomState::new().hash_one(0) % 400)
}

fn assert_documents_are_whole(mount: &Mount, round: u32) {
    for number in 0..4 {
        let name = format!("doc {number}.txt");
        // The one that is unlinked first may be gone, or new and not saved yet, when the daemon dies between.
        match std::fs::read(mount.path(&name)) {
            Ok(bytes) if bytes.is_empty() => assert_eq!(number, 3, "round {round}: {name} is empty"),
            Ok(bytes) => {
                assert!(is_whole_save(&bytes), "round {round}: {name} is torn: {} bytes", bytes.len())
            }
            Err(error) => {
                assert_eq!((number, error.kind()), (3, std::io::ErrorKind::NotFound), "round {round}: {name}")
            }
        }
    }
    if !mount.path("doc 3.txt").exists() {
        mount.app().save(&mount.path("doc 3.txt"), O_CREAT, &save_number(3)).unwrap();
    }
}

/// A dead mount answers ENOTCONN; `umount` takes it away, and `mount` replaces it by itself.
#[test]
fn a_dead_mount_can_be_unmounted() {
    let Some(workspace) = Workspace::with_document() else { return };
    let mut ada = workspace.mount("ada");
    ada.crash();
    let error = std::fs::read(ada.path("doc.txt")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
    super::run(&workspace.root(), &["umount".as_ref(), ada.at().as_os_str()]).ok();
    assert!(!is_mounted(ada.at()));
    assert_eq!(ada.mount_again().read("doc.txt"), b"old");
}

/// The daemon of the tests is killed by a signal that nobody can catch: what these tests stand on.
#[test]
fn a_killed_foreground_mount_ends_by_the_signal() {
    let Some(workspace) = Workspace::with_document() else { return };
    let mut ada = workspace.mount_in_foreground("ada");
    let pid = ada.daemon().pid;
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    assert_eq!((killed.code(), killed.signal()), (Some(0), None));
    ada.forget_daemon();
    assert_eq!(ada.mount_again().read("doc.txt"), b"old");
}
