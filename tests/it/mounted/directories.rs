//! Directories: their mode and times, and listings while names come and go.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libc::O_CREAT;

use super::{Mount, Workspace, eventually};
use crate::kernel::{self, EBUSY};

fn mode(mount: &Mount, name: &str) -> u32 {
    fs::symlink_metadata(mount.path(name)).unwrap().mode() & 0o7777
}

fn mtime(mount: &Mount, name: &str) -> SystemTime {
    fs::symlink_metadata(mount.path(name)).unwrap().modified().unwrap()
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Two mounts of a workspace with documents in a directory and in one below it.
fn two_mounts() -> Option<(Workspace, Mount, Mount)> {
    let workspace = Workspace::with(&[("dir/doc.txt", b"old"), ("dir/sub/inner.txt", b"inner")])?;
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    Some((workspace, ada, bob))
}

/// A directory's mode takes no lease, whatever lies below is held by whom, is a draft, and a version after check-in.
#[test]
fn a_mode_is_a_draft_without_a_lease() {
    let Some((workspace, ada, bob)) = two_mounts() else { return };
    bob.app().overwrite(&bob.path("dir/doc.txt"), b"bob's").unwrap();
    bob.app().save(&bob.path("dir/new.txt"), O_CREAT, b"bob's").unwrap();
    ada.app().chmod(&ada.path("dir"), 0o750).unwrap();
    assert_eq!((mode(&ada, "dir"), ada.drafts()), (0o750, vec!["dir".to_owned()]));
    assert_ne!(mode(&bob, "dir"), 0o750);
    assert_eq!(ada.xattr("dir", "user.lease.state").as_deref(), Some("free"));
    bob.app().overwrite(&bob.path("dir/sub/inner.txt"), b"bob's").unwrap();
    ada.check_in();
    assert_eq!(ada.xattr("dir", "user.artifact.version").as_deref(), Some("2"));
    eventually("the mode", || (mode(&bob, "dir") == 0o750).then_some(()));
    bob.check_in();
    assert_eq!((mode(&bob, "dir"), bob.read("dir/new.txt")), (0o750, b"bob's".to_vec()));
    assert_eq!(workspace.log("dir").last().unwrap()["items"].as_array().unwrap().len(), 4, "the import");
}

/// It is refused, and so is an owner, while somebody else holds the directory or one above it.
#[test]
fn a_mode_is_refused_below_a_held_directory() {
    let Some((_workspace, ada, bob)) = two_mounts() else { return };
    bob.run(&["checkout", "dir"]).ok();
    let app = ada.app();
    let owner = fs::metadata(ada.path("dir")).unwrap().uid();
    for name in ["dir", "dir/sub"] {
        let before = mode(&ada, name);
        assert_eq!(app.chmod(&ada.path(name), 0o700), Err(EBUSY), "{name}");
        assert_eq!(kernel::chown(&ada.path(name), owner, u32::MAX), Err(EBUSY), "{name}");
        assert_eq!(mode(&ada, name), before);
    }
    assert_eq!(ada.drafts(), [""; 0]);
    bob.app().chmod(&bob.path("dir/sub"), 0o700).unwrap();
    bob.check_in();
    eventually("the lease to be free", || app.chmod(&ada.path("dir"), 0o711).ok());
}

/// Who changes a mode that somebody else has checked in another of since is stale, and changes nothing.
#[test]
fn a_mode_is_compared_with_the_head() {
    let Some((_workspace, ada, bob)) = two_mounts() else { return };
    ada.app().chmod(&ada.path("dir"), 0o750).unwrap();
    bob.app().chmod(&bob.path("dir"), 0o711).unwrap();
    ada.check_in();
    let line = bob.run(&["checkin", "-m", "another mode"]).refused(4);
    assert!(line.contains("dir"), "{line}");
    assert_eq!((mode(&ada, "dir"), mode(&bob, "dir")), (0o750, 0o711));
    bob.run(&["revert", "dir"]).ok();
    assert_eq!(mode(&bob, "dir"), 0o750);
    bob.app().chmod(&bob.path("dir"), 0o711).unwrap();
    bob.app().chmod(&bob.path("dir"), 0o750).unwrap();
    assert_eq!(bob.check_in()["change"], serde_json::Value::Null, "put back as it was");
}

/// The times of a directory are the checkout's own: no lease, no draft, though somebody else holds it; nobody else
/// sees them, a check-in of nothing but them makes no change, and a remount keeps the mtime.
#[test]
fn times_are_the_checkouts_own() {
    let Some((_workspace, ada, bob)) = two_mounts() else { return };
    let before = mtime(&bob, "dir");
    bob.run(&["checkout", "dir"]).ok();
    for name in ["dir", "dir/sub", ""] {
        kernel::set_times(&ada.path(name), Some((1_000, 2_000)), 0).unwrap();
        assert_eq!(mtime(&ada, name), at(2_000), "{name}");
    }
    assert_eq!(ada.drafts(), [""; 0]);
    assert_eq!(ada.check_in()["change"], serde_json::Value::Null);
    assert_eq!((mtime(&ada, "dir"), mtime(&bob, "dir")), (at(2_000), before));
    ada.unmount();
    let ada = _workspace.mount("ada");
    assert_eq!((mtime(&ada, "dir"), mtime(&bob, "dir")), (at(2_000), before));
}

/// A directory's mtime moves with its names, in the checkout where they change, and check-in makes it the head's;
/// what is only written in it moves nothing.
#[test]
fn times_follow_names_over_a_check_in() {
    let Some((_workspace, ada, bob)) = two_mounts() else { return };
    let app = ada.app();
    let before = ["dir", "dir/sub", ""].map(|name| mtime(&bob, name));
    app.overwrite(&ada.path("dir/doc.txt"), b"new").unwrap();
    assert_eq!(["dir", "dir/sub", ""].map(|name| mtime(&ada, name)), before, "bytes alone");
    ada.check_in();
    assert_eq!(["dir", "dir/sub", ""].map(|name| mtime(&ada, name)), before, "bytes alone, checked in");
    let steps: [(&str, &dyn Fn()); 4] = [
        ("create", &|| app.save(&ada.path("dir/new.txt"), O_CREAT, b"new").unwrap()),
        ("rename", &|| app.rename(&ada.path("dir/new.txt"), &ada.path("dir/other.txt"), 0).unwrap()),
        ("unlink", &|| app.unlink(&ada.path("dir/doc.txt")).unwrap()),
        ("mkdir", &|| kernel::mkdir(&ada.path("dir/more")).unwrap()),
    ];
    for (what, step) in steps {
        let present = mtime(&ada, "dir");
        step();
        assert!(mtime(&ada, "dir") > present, "{what}");
        assert_eq!(mtime(&bob, "dir"), before[0], "{what} is ada's own");
    }
    let moved = mtime(&ada, "dir");
    ada.check_in();
    assert_eq!(mtime(&ada, "dir"), moved, "a check-in moves no time");
    eventually("the time", || (mtime(&bob, "dir") == moved).then_some(()));
    assert_eq!(["dir/sub", ""].map(|name| mtime(&bob, name)), [before[1], before[2]], "no other directory's");
    app.save(&ada.path("dir/sub/new.txt"), O_CREAT, b"new").unwrap();
    kernel::set_times(&ada.path("dir/sub"), Some((1_000, 2_000)), 0).unwrap();
    ada.check_in();
    eventually("the time that was set", || (mtime(&bob, "dir/sub") == at(2_000)).then_some(()));
}

/// How many names a listing takes several requests for.
const MANY: usize = 1_500;

fn many(number: usize) -> String {
    format!("{number:04} {}", "n".repeat(100))
}

fn many_names() -> Option<Workspace> {
    let names: Vec<String> = (0..MANY).map(|number| format!("dir/{}", many(number))).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"x"[..])).collect();
    Workspace::with(&files)
}

/// Lists a directory; `meanwhile` runs when the first names and again when half of them are there.
fn list_with(mount: &Mount, mut meanwhile: impl FnMut(usize)) -> BTreeMap<OsString, usize> {
    let mut shown = BTreeMap::new();
    for (count, entry) in fs::read_dir(mount.path("dir")).unwrap().enumerate() {
        if let Some(round) = [1, MANY / 2].iter().position(|at| *at == count) {
            meanwhile(round);
        }
        *shown.entry(entry.unwrap().file_name()).or_insert(0) += 1;
    }
    shown
}

/// Looks that a name that stays shows once, and one of those in `changing` once or not.
fn assert_listed(shown: &BTreeMap<OsString, usize>, changing: &[String], what: &str) {
    let twice: Vec<_> = shown.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{what}: {twice:?}");
    for number in 0..MANY {
        let name = many(number);
        let stays = !changing.contains(&name);
        assert!(!stays || shown.contains_key(&OsString::from(&name)), "{what}: {name} is left out");
    }
}

/// Names that come, go, move and are saved over while a listing runs: each that stays shows once. The next listing
/// shows what is there, whichever listing the kernel kept.
#[test]
fn names_that_come_and_go_during_a_listing() {
    let Some(workspace) = many_names() else { return };
    let ada = workspace.mount("ada");
    let app = ada.app();
    let at = |name: &str| ada.path("dir").join(name);
    // At the beginning, in the middle and at the end: shown already, and not yet.
    let [gone, moved, saved] = [[3, 700, 1_490], [5, 710, 1_492], [7, 720, 1_494]];
    let changing: Vec<String> = gone.iter().chain(&moved).map(|number| many(*number)).collect();
    for warm in [false, true] {
        let shown = list_with(&ada, |round| {
            let number = gone[round];
            app.unlink(&at(&many(number))).unwrap();
            app.rename(&at(&many(moved[round])), &at(&format!("moved {warm} {round}")), 0).unwrap();
            app.save(&at(&format!("new {warm} {round}")), O_CREAT, b"new").unwrap();
            app.save(&at("save.tmp"), O_CREAT, b"save").unwrap();
            app.rename(&at("save.tmp"), &at(&many(saved[round])), 0).unwrap();
        });
        assert_listed(&shown, &changing, &format!("in the kernel's cache: {warm}"));
        let mut present: Vec<OsString> =
            (0..MANY).map(many).filter(|name| at(name).exists()).map(Into::into).collect();
        let others = ada.list("dir");
        present.extend(others.iter().filter(|name| !name.to_string_lossy().ends_with('n')).cloned());
        present.sort();
        assert_eq!(others, present, "the next listing");
        for round in [0, 1] {
            app.save(&at(&many(gone[round])), O_CREAT, b"back").unwrap();
            app.rename(&at(&format!("moved {warm} {round}")), &at(&many(moved[round])), 0).unwrap();
        }
        ada.list("dir");
    }
}

/// The same with names that another mount checks in while the listing runs.
#[test]
fn names_checked_in_during_a_listing() {
    let Some(workspace) = many_names() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let app = ada.app();
    let at = |name: &str| ada.path("dir").join(name);
    let [gone, moved, saved] = [[3, 1_490], [5, 1_492], [7, 1_494]];
    let changing: Vec<String> = gone.iter().chain(&moved).map(|number| many(*number)).collect();
    let shown = list_with(&bob, |round| {
        app.unlink(&at(&many(gone[round]))).unwrap();
        app.rename(&at(&many(moved[round])), &at(&format!("moved {round}")), 0).unwrap();
        app.save(&at(&format!("new {round}")), O_CREAT, b"new").unwrap();
        app.overwrite(&at(&many(saved[round])), b"saved").unwrap();
        ada.check_in();
        eventually("the check-in", || bob.path("dir").join(format!("new {round}")).exists().then_some(()));
    });
    assert_listed(&shown, &changing, "another mount's");
    assert_eq!(bob.list("dir"), ada.list("dir"), "the next listing");
}

/// A name that stays though another artifact comes to stand on it (an exchange of a file and a directory, a moved
/// document whose old name another file takes) may show twice or not; every other shows once, and the next listing is
/// right.
#[test]
fn names_whose_artifact_changes_during_a_listing() {
    let Some(workspace) = many_names() else { return };
    let ada = workspace.mount("ada");
    let app = ada.app();
    let at = |name: &str| ada.path("dir").join(name);
    kernel::mkdir(&at("a directory")).unwrap();
    app.rename(&at(&many(2)), &at("moved"), 0).unwrap();
    let mut shown = list_with(&ada, |round| {
        if round == 1 {
            app.rename(&at(&many(4)), &at("a directory"), libc::RENAME_EXCHANGE).unwrap();
            app.save(&at(&many(2)), O_CREAT, b"another").unwrap();
        }
    });
    let changing = [many(2), many(4), "a directory".to_owned(), "moved".to_owned()];
    shown.retain(|name, _| !changing.iter().any(|changing| name == changing.as_str()));
    assert_listed(&shown, &changing, "exchanged");
    let mut expected: Vec<OsString> = (0..MANY).map(many).map(Into::into).collect();
    expected.extend(["a directory".into(), "moved".into()]);
    assert_eq!(ada.list("dir"), expected, "the next listing");
}
