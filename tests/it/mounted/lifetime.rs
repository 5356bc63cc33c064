//! The life of a mount: beginning, check-in on close, and ends that lose nothing.

use std::ffi::OsStr;
use std::process::Command;

use libc::{O_CREAT, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY, SIGINT, SIGTERM};

use super::{Mount, Workspace, eventually, is_mounted, run};
use crate::kernel;

fn try_unmount(workspace: &Workspace, mount: &Mount, options: &[&str]) -> super::Ran {
    let mut args = vec![OsStr::new("umount"), mount.at().as_os_str()];
    args.extend(options.iter().map(OsStr::new));
    run(&workspace.root(), &args)
}

/// `mount` returns when the mount is usable, and leaves a log.
#[test]
fn a_mount_is_usable_at_once() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    assert!(is_mounted(ada.at()));
    assert_eq!(ada.read("doc.txt"), b"old");
    let status = ada.status();
    assert_eq!(status["holder"], "ada@desk");
    assert!(["passthrough", "cached"].contains(&status["mount"]["reads"].as_str().unwrap()), "{status}");
    assert!(std::fs::read_dir(workspace.dot("log")).unwrap().count() > 0);
}

/// Unmounting is refused while an application has a file open, with the process's number.
#[test]
fn a_busy_mount_is_not_unmounted() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_RDONLY).unwrap();
    let line = try_unmount(&workspace, &ada, &[]).refused(1);
    assert!(line.contains(&app.pid().to_string()), "{line}");
    assert_eq!(app.read(fd, 0, 10).unwrap(), b"old", "the mount goes on");
    app.close(fd).unwrap();
    ada.unmount();
}

/// A mapping keeps a mount busy as well.
#[test]
fn a_mapped_file_keeps_the_mount_busy() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_RDONLY).unwrap();
    let map = app.map(fd, 3, false).unwrap();
    app.close(fd).unwrap();
    let line = try_unmount(&workspace, &ada, &[]).refused(1);
    assert!(line.contains(&app.pid().to_string()), "{line}");
    app.unmap(map);
    drop(app);
    ada.unmount();
}

/// Unmounting reports what is still checked out, and drops no draft.
#[test]
fn unmounting_reports_drafts_and_keeps_them() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    ada.app().overwrite(&ada.path("doc.txt"), b"new").unwrap();
    let said = try_unmount(&workspace, &ada, &[]).ok();
    assert!(said.contains("doc.txt"), "{said}");
    assert!(!is_mounted(ada.at()));
    drop(ada);
    let leases = workspace.run(&["leases", "--json"]).json();
    assert_eq!(leases[0]["holder"], "ada@desk", "{leases}");
    let ada = workspace.mount("ada");
    assert_eq!(ada.read("doc.txt"), b"new");
    assert_eq!(ada.drafts(), ["doc.txt"]);
}

/// Unmounting can check in.
#[test]
fn unmounting_with_a_check_in() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    ada.app().overwrite(&ada.path("doc.txt"), b"new").unwrap();
    try_unmount(&workspace, &ada, &["--checkin", "-m", "the end"]).ok();
    drop(ada);
    assert_eq!(workspace.run(&["cat", "doc.txt@@2"]).ok(), "new");
    assert_eq!(workspace.log("doc.txt")[0]["message"], "the end");
    assert_eq!(workspace.run(&["leases", "--json"]).json(), serde_json::json!([]));
}

/// SIGTERM and SIGINT flush, unmount, and leave drafts and leases as they are.
#[test]
fn signals_end_a_mount_and_lose_nothing() {
    let Some(workspace) = Workspace::with_document() else { return };
    for signal in [SIGTERM, SIGINT] {
        let mut ada = workspace.mount_in_foreground("ada");
        let content = format!("before signal {signal}");
        ada.app().overwrite(&ada.path("doc.txt"), content.as_bytes()).unwrap();
        ada.signal(signal);
        assert!(!is_mounted(ada.at()));
        let ada = ada.mount_again();
        assert_eq!(ada.read("doc.txt"), content.as_bytes());
        assert_eq!(ada.xattr("doc.txt", "user.lease.state").as_deref(), Some("mine"));
        ada.unmount();
    }
    assert_eq!(workspace.recovered(), [serde_json::Value::Null; 0]);
}

/// A signal while an application has unsaved bytes: they are in the draft or a recovery copy.
#[test]
fn a_signal_with_unsaved_bytes_loses_nothing() {
    let Some(workspace) = Workspace::with_document() else { return };
    let mut ada = workspace.mount_in_foreground("ada");
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    app.write(fd, b"unsaved").unwrap();
    ada.signal(SIGTERM);
    drop(app);
    let ada = ada.mount_again();
    if ada.read("doc.txt") != b"unsaved" {
        assert_eq!(ada.read("doc.txt"), b"old");
        assert_eq!(workspace.restore_recovered(&workspace.recovered()[0]), b"unsaved");
    }
}

/// A checkout that a living process has mounted can't be mounted again, here or elsewhere.
#[test]
fn a_mounted_checkout_is_not_mounted_twice() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let elsewhere = workspace.beside("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    for at in [elsewhere.as_path(), ada.at()] {
        let root = workspace.root();
        let args = [OsStr::new("mount"), root.as_os_str(), at.as_os_str()];
        let args: Vec<&OsStr> =
            args.into_iter().chain(["--as", "ada", "--checkout", "desk"].map(OsStr::new)).collect();
        let line = run(&workspace.root(), &args).refused(1);
        assert!(line.contains(&ada.daemon().pid.to_string()), "{line}");
    }
    assert!(!is_mounted(&elsewhere));
    assert_eq!(ada.read("doc.txt"), b"old");
}

/// With `--checkin close` a save is checked in and its lease released soon after the last writer closed.
#[test]
fn checked_in_on_close() {
    let Some(workspace) = Workspace::with_document() else { return };
    workspace.set_policy("checkin_delay = \"200ms\"\n");
    let (ada, bob) = (workspace.mount_with("ada", &["--checkin", "close"]), workspace.mount("bob"));
    let app = ada.app();
    app.overwrite(&ada.path("doc.txt"), b"new").unwrap();
    ada.run(&["settle"]).ok();
    assert_eq!(ada.xattr("doc.txt", "user.artifact.version").as_deref(), Some("2"), "settle waits for it");
    assert_eq!(ada.xattr("doc.txt", "user.lease.state").as_deref(), Some("free"));
    eventually("the version", || (bob.read("doc.txt") == b"new").then_some(()));
    let temp = ada.path("doc.txt.Ab12Cd");
    app.save(&temp, O_CREAT, b"by rename").unwrap();
    app.rename(&temp, &ada.path("doc.txt"), 0).unwrap();
    app.save(&ada.path("new.txt"), O_CREAT, b"a new one").unwrap();
    ada.run(&["settle"]).ok();
    eventually("both", || {
        (bob.list("") == ["doc.txt", "new.txt"] && bob.read("doc.txt") == b"by rename").then_some(())
    });
    assert_eq!(ada.drafts(), [""; 0]);
}

/// Nothing is checked in while a writer has the document open, or inside the gap of a rename.
#[test]
fn not_checked_in_inside_of_a_save() {
    let Some(workspace) = Workspace::with_document() else { return };
    workspace.set_policy("checkin_delay = \"50ms\"\n");
    let ada = workspace.mount_with("ada", &["--checkin", "close"]);
    let (app, doc) = (ada.app(), ada.path("doc.txt"));
    let fd = app.open(&doc, O_WRONLY | O_TRUNC).unwrap();
    app.write(fd, b"half").unwrap();
    app.fsync(fd).unwrap();
    app.save(&ada.path("other.txt"), O_CREAT, b"done").unwrap();
    eventually("the other document", || (workspace.log("other.txt").len() == 1).then_some(()));
    assert_eq!(workspace.log("doc.txt").len(), 1, "the writer has it open");
    app.write(fd, b" and half").unwrap();
    app.close(fd).unwrap();
    eventually("the document", || (workspace.log("doc.txt").len() == 2).then_some(()));
    app.rename(&doc, &ada.path("doc.txt~"), 0).unwrap();
    app.save(&ada.path("third.txt"), O_CREAT, b"done").unwrap();
    eventually("the third document", || (workspace.log("third.txt").len() == 1).then_some(()));
    assert_eq!(workspace.log("doc.txt").len(), 2, "a name that is gone for a moment is no deletion");
    app.save(&doc, O_CREAT, b"whole").unwrap();
    eventually("the next version", || (workspace.log("doc.txt").len() == 3).then_some(()));
    assert_eq!(ada.run(&["cat", "doc.txt@@3"]).ok(), "whole");
}

/// With `--checkin close` names that come, move and go are checked in by themselves, one that is gone not before `grace`.
#[test]
fn names_are_checked_in_on_close() {
    let Some(workspace) = Workspace::with(&[("doc.txt", b"old"), ("gone.txt", b"gone"), ("dir/x", b"x")])
    else {
        return;
    };
    workspace.set_policy("checkin_delay = \"20ms\"\ngrace = \"300ms\"\n");
    let (ada, bob) = (workspace.mount_with("ada", &["--checkin", "close"]), workspace.mount("bob"));
    let app = ada.app();
    let id = ada.xattr("doc.txt", "user.artifact.id");
    app.rename(&ada.path("doc.txt"), &ada.path("moved.txt"), 0).unwrap();
    app.unlink(&ada.path("gone.txt")).unwrap();
    kernel::mkdir(&ada.path("made")).unwrap();
    std::os::unix::fs::symlink("moved.txt", ada.path("link")).unwrap();
    app.rename(&ada.path("dir"), &ada.path("made/dir"), 0).unwrap();
    eventually("all of it", || (bob.list("") == ["link", "made", "moved.txt"]).then_some(()));
    eventually("what is below", || (bob.list("made/dir") == ["x"]).then_some(()));
    assert_eq!(bob.xattr("moved.txt", "user.artifact.id"), id, "a rename keeps the identity");
    ada.run(&["settle"]).ok();
    assert_eq!(
        (ada.drafts(), workspace.run(&["leases", "--json"]).json()),
        (Vec::new(), serde_json::json!([]))
    );
    app.unlink(&ada.path("made/dir/x")).unwrap();
    kernel::rmdir(&ada.path("made/dir")).unwrap();
    kernel::rmdir(&ada.path("made")).unwrap();
    eventually("the removal", || (bob.list("") == ["link", "moved.txt"]).then_some(()));
    ada.run(&["settle"]).ok();
    assert_eq!((ada.drafts(), ada.status()["problems"].clone()), (Vec::new(), serde_json::json!([])));
}

/// With `--checkin close` a mode or a time that was changed alone is checked in too, one under a writer with his bytes.
#[test]
fn attributes_are_checked_in_on_close() {
    let Some(workspace) = Workspace::with(&[("doc.txt", b"old"), ("written.txt", b"old")]) else { return };
    workspace.set_policy("checkin_delay = \"20ms\"\n");
    let ada = workspace.mount_with("ada", &["--checkin", "close"]);
    let app = ada.app();
    let fd = app.open(&ada.path("written.txt"), O_WRONLY).unwrap();
    for name in ["doc.txt", "written.txt"] {
        app.chmod(&ada.path(name), 0o600).unwrap();
    }
    eventually("the mode", || (workspace.log("doc.txt").len() == 2).then_some(()));
    assert_eq!(workspace.log("written.txt").len(), 1, "the writer has it open");
    app.write(fd, b"new").unwrap();
    app.close(fd).unwrap();
    ada.run(&["settle"]).ok();
    assert_eq!((workspace.log("written.txt").len(), ada.drafts()), (2, Vec::new()));
}

/// A check-in in the background that is refused is told by `status`, keeps the draft, and is forgotten with it.
#[test]
fn a_failed_check_in_on_close_is_told() {
    let Some(workspace) = Workspace::with_document() else { return };
    workspace.set_policy("checkin_delay = \"20ms\"\n");
    let (ada, bob) =
        (workspace.mount("ada"), workspace.mount_with("bob", &["--checkin", "close", "--ttl", "1s"]));
    let (app, other) = (ada.app(), bob.app());
    let fd = other.open(&bob.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    other.write(fd, b"bob's").unwrap();
    other.fsync(fd).unwrap();
    eventually("the lease to end", || app.overwrite(&ada.path("doc.txt"), b"ada's").ok());
    ada.check_in();
    other.close(fd).unwrap();
    let problem = eventually("the failure", || bob.status()["problems"][0].as_str().map(str::to_owned));
    assert!(problem.starts_with("checkin-failed") && problem.contains("doc.txt"), "{problem}");
    assert_eq!((bob.read("doc.txt"), bob.drafts()), (b"bob's".to_vec(), vec!["doc.txt".to_owned()]));
    bob.run(&["checkin", "-m", "over it", "--onto", "2"]).ok();
    assert_eq!(bob.status()["problems"], serde_json::json!([]));
}

/// `umount --lazy` takes a busy mount away at once: what is open goes on, and is saved when it is closed.
#[test]
fn a_lazy_unmount_lets_open_files_go_on() {
    let Some(workspace) = Workspace::with(&[("doc.txt", b"old"), ("cut.txt", b"old"), ("map.txt", b"old")])
    else {
        return;
    };
    let mut ada = workspace.mount("ada");
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    app.write(fd, b"before").unwrap();
    let cut = app.open(&ada.path("cut.txt"), O_WRONLY | O_TRUNC).unwrap();
    let mapped = app.open(&ada.path("map.txt"), O_RDWR).unwrap();
    let map = app.map(mapped, 3, true).unwrap();
    try_unmount(&workspace, &ada, &["--lazy"]).ok();
    assert!(!is_mounted(ada.at()));
    assert!(leasehold::sys::is_alive(ada.daemon()), "it serves what is open");
    app.write(fd, b" and after").unwrap();
    app.close(fd).unwrap();
    app.close(cut).unwrap();
    app.write_map(map, 0, b"new");
    app.close(mapped).unwrap();
    app.unmap(map);
    ada.wait_for_end();
    let ada = ada.mount_again();
    assert_eq!(ada.read("doc.txt"), b"before and after");
    assert_eq!((ada.read("cut.txt"), ada.read("map.txt")), (b"old".to_vec(), b"new".to_vec()));
    assert_eq!(workspace.recovered(), [serde_json::Value::Null; 0]);
}

/// `mount` waits for the process of a mount that is gone and about to end, but not for ever.
#[test]
fn a_mount_waits_for_the_one_before_to_end() {
    let Some(workspace) = Workspace::with_document() else { return };
    let mut ada = workspace.mount("ada");
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    app.write(fd, b"new").unwrap();
    try_unmount(&workspace, &ada, &["--lazy"]).ok();
    let pid = ada.daemon().pid.to_string();
    let line = workspace.try_mount("ada", &[]).err().unwrap().refused(1);
    assert!(line.contains("ada@desk") && line.contains(&pid), "{line}");
    let again = std::thread::scope(|scope| {
        let again = scope.spawn(|| workspace.mount("ada"));
        app.close(fd).unwrap();
        ada.wait_for_end();
        again.join().unwrap()
    });
    ada.is_replaced();
    assert_eq!(again.read("doc.txt"), b"new");
}

/// A mount has no devices and no set-id programs, and one of one user holds its files' modes against him, unless he is root.
#[test]
fn a_mount_trusts_nobody_and_checks_modes() {
    let Some(workspace) = Workspace::with(&[("doc.txt", b"old"), ("dir/x", b"x")]) else { return };
    let ada = workspace.mount("ada");
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let own = mounts.lines().find(|line| line.contains(ada.at().to_str().unwrap())).unwrap();
    let options: Vec<&str> = own.split(' ').nth(5).unwrap().split(',').collect();
    assert!(options.contains(&"nosuid") && options.contains(&"nodev"), "{own}");
    let app = ada.app();
    let judged = |done| if kernel::is_root() { Ok(()) } else { done };
    let denied = judged(Err(kernel::EACCES));
    app.chmod(&ada.path("doc.txt"), 0o400).unwrap();
    assert_eq!(app.open(&ada.path("doc.txt"), O_WRONLY).map(drop), denied, "write a read-only file");
    assert_eq!(app.truncate(&ada.path("doc.txt"), 1), denied, "cut a read-only file");
    assert_eq!(app.access(&ada.path("doc.txt"), libc::W_OK), denied, "access");
    app.chmod(&ada.path("doc.txt"), 0o200).unwrap();
    assert_eq!(app.open(&ada.path("doc.txt"), O_RDONLY).map(drop), denied, "read a write-only file");
    app.chmod(&ada.path("dir"), 0o500).unwrap();
    assert_eq!(app.save(&ada.path("dir/new"), O_CREAT, b"new"), denied, "create in a read-only directory");
    assert_eq!(
        app.rename(&ada.path("dir/x"), &ada.path("dir/y"), 0),
        denied,
        "rename in a read-only directory"
    );
    app.chmod(&ada.path("dir"), 0o300).unwrap();
    assert_eq!(
        std::fs::read_dir(ada.path("dir")).is_ok(),
        kernel::is_root(),
        "list a directory without the right"
    );
    app.chmod(&ada.path("dir"), 0o700).unwrap();
    app.unlink(&ada.path(if kernel::is_root() { "dir/y" } else { "dir/x" })).unwrap();
}

/// While the catalog is held by another process, calls that need it wait in bounded time, answer with an error, and
/// can't be interrupted; reading goes on, and so does all else when the catalog is free again.
#[test]
fn waits_are_bounded_and_not_interrupted() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let (app, killed) = (ada.app(), ada.app());
    let process = leasehold::sys::process_of_thread(killed.pid()).unwrap();
    let other = rusqlite::Connection::open(workspace.dot("catalog.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| app.open(&ada.path("doc.txt"), O_WRONLY));
        // It dies with its call, and can't tell the result.
        scope.spawn(|| {
            let call = std::panic::AssertUnwindSafe(|| killed.open(&ada.path("doc.txt"), O_WRONLY));
            assert!(std::panic::catch_unwind(call).is_err(), "it was killed");
        });
        eventually("its call", || stays_waiting(killed.pid()).then_some(()));
        kernel::kill(i32::try_from(killed.pid()).unwrap(), libc::SIGKILL);
        assert_eq!(ada.read("doc.txt"), b"old", "reading goes on");
        assert!(leasehold::sys::is_alive(process), "the call is not interrupted");
        assert_eq!(
            waiting.join().unwrap(),
            Err(kernel::EIO),
            "an answer, though nobody gave the catalog back"
        );
    });
    eventually("its end", || (!leasehold::sys::is_alive(process)).then_some(()));
    other.execute_batch("ROLLBACK").unwrap();
    app.overwrite(&ada.path("doc.txt"), b"new").unwrap();
    ada.check_in();
    assert_eq!(ada.read("doc.txt"), b"new");
}

/// Whether a call of a process has reached the daemon and waits there: the kernel drops a request of a killed caller
/// that nobody has read yet (`fuse_dev_do_read`), and shows both as the same wait.
fn stays_waiting(pid: u32) -> bool {
    (0..50).all(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        is_waiting(pid)
    })
}

/// Whether a thread of a process waits for the answer of a filesystem in user space (proc_pid_wchan(5)).
fn is_waiting(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("wchan")).ok())
        .any(|at| at.contains("request_wait_answer"))
}

/// Answers fstatfs(2) with another filesystem's number: there is no network filesystem to test on.
const ANOTHER_FILESYSTEM: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>
int fstatfs(int fd, struct statfs *to) {
    int done = syscall(SYS_fstatfs, fd, to);
    to->f_type = strtoul(getenv("MAGIC"), NULL, 0);
    return done;
}
int fstatfs64(int fd, struct statfs64 *to) { return fstatfs(fd, (struct statfs *) to); }
"#;

/// A workspace is neither made nor mounted on a network filesystem, and the refusal names it.
#[test]
fn a_workspace_is_on_a_local_filesystem() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (source, library) = (workspace.beside("fs.c"), workspace.beside("fs.so"));
    std::fs::write(&source, ANOTHER_FILESYSTEM).unwrap();
    let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(built.unwrap().success());
    let (new, at) = (workspace.beside("new"), workspace.beside("at"));
    std::fs::create_dir(&at).unwrap();
    // `linux/magic.h`, and `fs/smb/client/cifsglob.h` for CIFS.
    for (magic, name) in [("0x6969", "NFS"), ("0xff534d42", "CIFS"), ("0x01021997", "9P"), ("0xef53", "")] {
        let run = |args: &[&OsStr]| {
            let mut command = Command::new(super::program());
            command.args(args).env("LD_PRELOAD", &library).env("MAGIC", magic).output().unwrap()
        };
        let init = run(&[OsStr::new("init"), new.as_os_str()]);
        let line = String::from_utf8_lossy(&init.stderr).into_owned();
        assert_eq!((init.status.success(), line.contains(name)), (name.is_empty(), true), "{magic}: {line}");
        assert_eq!(new.join(".leasehold").exists(), name.is_empty(), "{magic}");
        if !name.is_empty() {
            let mount = run(&[OsStr::new("mount"), workspace.root().as_os_str(), at.as_os_str()]);
            let line = String::from_utf8_lossy(&mount.stderr).into_owned();
            assert!(!mount.status.success() && line.contains(name), "{magic}: {line}");
        }
    }
    assert!(!is_mounted(&at));
}

/// The workspace is found from the mount, an argument, the environment's directory or a parent; else that is said.
#[test]
fn the_workspace_is_found() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let root = workspace.root();
    std::fs::create_dir(root.join("below")).unwrap();
    assert_eq!(run(&root.join("below"), &["log", "--json"]).json().as_array().unwrap().len(), 1);
    let by_option = [OsStr::new("log"), OsStr::new("-w"), root.as_os_str(), OsStr::new("--json")];
    assert_eq!(run(std::path::Path::new("/"), &by_option).json().as_array().unwrap().len(), 1);
    let by_path =
        [OsStr::new("log"), ada.path("doc.txt").as_os_str(), OsStr::new("--json")].map(OsStr::to_owned);
    assert_eq!(run(std::path::Path::new("/"), &by_path).json().as_array().unwrap().len(), 1);
    run(std::path::Path::new("/"), &["log"]).refused(2);
}
