//! What one mount checks in, the other shows soon, whole, and without touching what is open there.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::sys::NameWatch;
use libc::{O_CREAT, O_RDONLY};

use super::{Mount, Workspace, eventually};

/// How soon a check-in shows elsewhere.
const PROMISE: Duration = Duration::from_millis(500);

/// How many check-ins are timed; the median counts, since the machine may be busy with something else for a moment.
const TIMED: usize = 7;

/// Times from the check-in's end until `bob` shows what `seen` looks for.
fn median_delay(ada: &Mount, mut change: impl FnMut(usize), mut seen: impl FnMut(usize) -> bool) -> Duration {
    let mut delays: Vec<Duration> = (0..TIMED)
        .map(|round| {
            change(round);
            ada.check_in();
            let checked_in = Instant::now();
            eventually("the check-in to show", || seen(round).then_some(()));
            checked_in.elapsed()
        })
        .collect();
    delays.sort();
    delays[TIMED / 2]
}

/// New bytes and attributes of a document that the other mount has read before.
#[test]
fn bytes_and_attributes_show_within_half_a_second() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let (app, doc) = (ada.app(), ada.path("doc.txt"));
    assert_eq!(bob.read("doc.txt"), b"old");
    let content = |round: usize| format!("round {round}, {}", "x".repeat(round)).into_bytes();
    let delay = median_delay(
        &ada,
        |round| app.overwrite(&doc, &content(round)).unwrap(),
        |round| {
            let size = std::fs::metadata(bob.path("doc.txt")).unwrap().len();
            bob.read("doc.txt") == content(round) && size == content(round).len() as u64
        },
    );
    assert!(delay <= PROMISE, "{delay:?}");
    let version = format!("{}", TIMED + 1);
    assert_eq!(bob.xattr("doc.txt", "user.artifact.version"), Some(version));
}

/// Names that come, go and move, in directories that the other mount has listed before.
#[test]
fn names_show_within_half_a_second() {
    let Some(workspace) = Workspace::with(&[("dir/name 0", b"x")]) else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let app = ada.app();
    assert_eq!(bob.list("dir"), ["name 0"]);
    let name = |round: usize| format!("dir/name {round}");
    let delay = median_delay(
        &ada,
        |round| app.rename(&ada.path(name(round)), &ada.path(name(round + 1)), 0).unwrap(),
        |round| {
            let listed = bob.list("dir") == [OsString::from(format!("name {}", round + 1))];
            let looked_up = |round| bob.path(name(round)).symlink_metadata().is_ok();
            listed && looked_up(round + 1) && !looked_up(round)
        },
    );
    assert!(delay <= PROMISE, "{delay:?}");
}

/// A name that was looked up in vain shows once it is checked in.
#[test]
fn a_name_that_was_absent_shows() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    assert!(!bob.path("new.txt").exists());
    ada.app().save(&ada.path("new.txt"), O_CREAT, b"new").unwrap();
    ada.check_in();
    eventually("the new name", || bob.path("new.txt").exists().then_some(()));
}

/// An open file goes on showing the version that was opened; the next open shows the newest.
#[test]
fn an_open_file_stays_on_its_version() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let reader = bob.app();
    let fd = reader.open(&bob.path("doc.txt"), O_RDONLY).unwrap();
    assert_eq!(reader.read(fd, 0, 1).unwrap(), b"o");
    ada.app().overwrite(&ada.path("doc.txt"), b"new and longer").unwrap();
    ada.check_in();
    eventually("the new version", || (bob.read("doc.txt") == b"new and longer").then_some(()));
    assert_eq!(reader.read_all(fd).unwrap(), b"old");
    reader.close(fd).unwrap();
    assert_eq!(reader.read_file(&bob.path("doc.txt")).unwrap(), b"new and longer");
}

/// A document that is deleted elsewhere goes on for who has it open.
#[test]
fn an_open_file_outlives_its_deletion() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let reader = bob.app();
    let fd = reader.open(&bob.path("doc.txt"), O_RDONLY).unwrap();
    ada.app().unlink(&ada.path("doc.txt")).unwrap();
    ada.check_in();
    eventually("the deletion", || bob.list("").is_empty().then_some(()));
    assert_eq!(reader.read_all(fd).unwrap(), b"old");
}

/// The content of a version whose length and bytes tell its number.
fn version_content(number: usize) -> Vec<u8> {
    let length = 1 + number * 7_919 % 50_000;
    vec![b'a' + u8::try_from(number % 26).unwrap(); length]
}

fn is_one_version(bytes: &[u8], numbers: std::ops::Range<usize>) -> bool {
    numbers.into_iter().any(|number| bytes == version_content(number))
}

/// No reader ever sees parts of two versions, or the size of one with the bytes of another.
#[test]
fn reads_are_never_torn() {
    let rounds = 30;
    let first = version_content(0);
    let Some(workspace) = Workspace::with(&[("doc.txt", &first)]) else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let bytes = bob.read("doc.txt");
                    assert!(
                        is_one_version(&bytes, 0..rounds),
                        "{} bytes of {:?}",
                        bytes.len(),
                        bytes.first()
                    );
                }
            });
        }
        let app = ada.app();
        for number in 1..rounds {
            app.overwrite(&ada.path("doc.txt"), &version_content(number)).unwrap();
            ada.check_in();
        }
        done.store(true, Ordering::Relaxed);
    });
    eventually("the last version", || (bob.read("doc.txt") == version_content(rounds - 1)).then_some(()));
}

/// Changes that commands make without a daemon show in mounts as well.
#[test]
fn an_import_shows() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    assert_eq!(ada.list(""), ["doc.txt"]);
    let more = workspace.beside("more.txt");
    std::fs::write(&more, "more").unwrap();
    let args = ["import", more.to_str().unwrap(), "-m", "more", "--as", "bob", "--checkout", "desk"];
    workspace.run(&args).ok();
    eventually("the imported file", || (ada.list("") == ["doc.txt", "more.txt"]).then_some(()));
    assert_eq!(ada.read("more.txt"), b"more");
}

/// Watchers hear of what happens through their own mount alone, and locks are met there alone.
#[test]
fn watchers_and_locks_end_at_the_mount() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let watch = NameWatch::new(ada.at(), std::ffi::OsStr::new("doc.txt")).unwrap();
    let (app, other) = (ada.app(), bob.app());
    other.overwrite(&bob.path("doc.txt"), b"bob's").unwrap();
    bob.check_in();
    eventually("the change", || (ada.read("doc.txt") == b"bob's").then_some(()));
    assert!(!watch.wait(Duration::ZERO).unwrap(), "nobody tells of another mount's change");
    app.overwrite(&ada.path("doc.txt"), b"ada's").unwrap();
    eventually("an event", || watch.wait(Duration::ZERO).unwrap().then_some(()));
    ada.check_in();
    let (here, there) = (ada.path("doc.txt"), bob.path("doc.txt"));
    eventually("the change", || (bob.read("doc.txt") == b"ada's").then_some(()));
    // One process has the lock, and starts another one that asks for it.
    let both = |second: &Path| {
        let locks =
            Command::new("flock").arg("-n").arg(&here).args(["flock", "-n"]).arg(second).arg("true").status();
        locks.unwrap().success()
    };
    assert!(!both(&here), "in the same mount it is met");
    assert!(both(&there), "in another one it is not");
}
