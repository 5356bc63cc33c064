//! Collector, check, rescue and backup.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use super::support::*;
use crate::blobs::{BlobStore, digest_of};
use crate::engine::{
    CheckoutOps, CollectReport, CollectRequest, EngineError, Environment, LostUse, Workspace, rescue,
    restore_backup,
};
use crate::ids::SystemIds;
use crate::model::{Digest, Kind, Scratch};

const DAY_MS: i64 = 24 * 60 * 60 * 1000;

fn collect(desk: &Desk, grace_ms: i64) -> CollectReport {
    let request = CollectRequest { grace_ms, dry_run: false };
    desk.workspace.collect(&request, &|| Ok(Vec::new()), &|_, _| ()).unwrap()
}

fn put(desk: &Desk, text: &str) -> Digest {
    desk.workspace.blobs().put(&mut text.as_bytes()).unwrap().0
}

fn is_there(desk: &Desk, text: &str) -> bool {
    desk.workspace.blobs().has(&digest_of(text.as_bytes())).unwrap()
}

fn blob(desk: &Desk, text: &str) -> std::path::PathBuf {
    desk.workspace.blobs().path_of(&digest_of(text.as_bytes()))
}

/// A history with a bit of everything: new versions, a rename, a deletion, directories, a symlink's kin, two authors.
fn history(desk: &Desk) {
    desk.import(&["a", "dir/b", "dir/c", "gone"]);
    let ada = desk.person("ada@desk");
    ada.write("a", "a2");
    ada.unlink("gone");
    ada.ops.check_in(&everything("ada's")).unwrap();
    let bob = desk.person("bob@lab");
    bob.create("new", Kind::Directory, Scratch::No);
    bob.create("new/file", Kind::File, Scratch::No);
    bob.write("new/file", "fresh");
    bob.write("dir/b", "b2");
    bob.ops.check_in(&everything("bob's")).unwrap();
}

/// What the catalog says of all that was checked in.
fn told(workspace: &Workspace) -> String {
    let log = workspace.log(None, None).unwrap();
    let catalog = workspace.catalog();
    let heads: Vec<_> = ["a", "dir", "dir/b", "dir/c", "gone", "new", "new/file"]
        .iter()
        .map(|at| catalog.resolve(crate::model::CheckoutId(0), &path(at)).unwrap())
        .map(|entry| {
            entry.map(|e| (e.artifact, e.id, e.kind, e.ino, e.attrs.mode, e.size, e.content, e.head))
        })
        .collect();
    format!("{log:#?}{heads:#?}")
}

#[test]
fn the_collector_keeps_what_is_needed_and_removes_the_rest() {
    let desk = desk();
    history(&desk);
    let ada = desk.person("ada@desk");
    ada.write("dir/c", "a draft");
    desk.workspace.publish(&[]).unwrap();
    let saved = ada.write("a", "a draft on its way");
    put(&desk, "garbage");
    desk.let_pass_ms(30 * DAY_MS);
    let request = CollectRequest { grace_ms: DAY_MS, dry_run: true };
    let told_before = told(&desk.workspace);
    let dry = desk.workspace.collect(&request, &|| Ok(Vec::new()), &|_, _| ()).unwrap();
    assert!(is_there(&desk, "garbage"), "a dry run removes nothing");
    let report = collect(&desk, DAY_MS);
    assert_eq!((report, report.removed.blobs, report.removed.bytes), (dry, 1, 7));
    assert!(!is_there(&desk, "garbage"));
    for text in ["a", "dir/b", "dir/c", "gone", "a2", "b2", "fresh"] {
        assert!(is_there(&desk, text), "{text} is a version's");
    }
    assert!(saved.exists() && told(&desk.workspace) == told_before);
    assert_eq!(collect(&desk, DAY_MS).removed.blobs, 0, "there is nothing left to do");
}

#[test]
fn the_collector_removes_what_killed_imports_left_and_no_save() {
    let desk = desk();
    desk.import(&["a"]);
    let save = desk.person("ada@desk").write("a", "saved");
    let staging = desk.workspace.layout().staging();
    let left = staging.join(desk.env.ids.token());
    fs::write(&left, "half a file").unwrap();
    collect(&desk, DAY_MS);
    assert!(left.exists(), "it may be in use");
    desk.let_pass_ms(30 * DAY_MS);
    collect(&desk, DAY_MS);
    assert!(save.exists() && !left.exists());
}

#[test]
fn the_collector_spares_what_is_young() {
    let desk = desk();
    put(&desk, "garbage");
    desk.let_pass_ms(10 * DAY_MS);
    let report = collect(&desk, 20 * DAY_MS);
    assert_eq!((report.spared.blobs, report.removed.blobs), (1, 0));
    desk.clock.advance_ms(11 * DAY_MS);
    assert_eq!(collect(&desk, 20 * DAY_MS).removed.blobs, 1);
}

#[test]
fn the_collector_keeps_what_is_pinned_or_open_and_stops_at_what_it_does_not_understand() {
    let desk = desk();
    let (pinned, open) = (put(&desk, "pinned"), put(&desk, "open"));
    desk.let_pass_ms(30 * DAY_MS);
    let pins = desk.workspace.layout().pins();
    fs::create_dir(&pins).unwrap();
    fs::write(pins.join("release"), format!("# why\n\n{pinned}\n")).unwrap();
    let request = CollectRequest { grace_ms: DAY_MS, dry_run: false };
    desk.workspace.collect(&request, &|| Ok(vec![open]), &|_, _| ()).unwrap();
    assert!(is_there(&desk, "pinned") && is_there(&desk, "open"));

    fs::write(pins.join("odd"), format!("{pinned}\nsha512:00\n")).unwrap();
    let error = desk.workspace.collect(&request, &|| Ok(Vec::new()), &|_, _| ()).unwrap_err();
    assert!(error.to_string().contains("odd, line 2"), "{error}");
    fs::remove_file(pins.join("odd")).unwrap();
    let silent = || Err(EngineError::Refused("a mount is silent".into()));
    assert!(desk.workspace.collect(&request, &silent, &|_, _| ()).is_err());
    assert!(is_there(&desk, "open"), "nothing goes where something isn't understood");
}

#[test]
fn the_collector_removes_nothing_while_an_import_runs() {
    let desk = desk();
    put(&desk, "not named yet");
    desk.let_pass_ms(30 * DAY_MS);
    let work = desk.workspace.begin_work().unwrap();
    assert_eq!(collect(&desk, DAY_MS).removed.blobs, 0);
    drop(work);
    assert_eq!(collect(&desk, DAY_MS).removed.blobs, 1);
}

#[test]
fn a_check_names_what_is_lost_by_path_and_version() {
    let desk = desk();
    history(&desk);
    assert!(desk.workspace.fsck(false, &|_| ()).unwrap().is_clean());
    fs::remove_file(blob(&desk, "a")).unwrap();
    fs::write(blob(&desk, "fresh"), "rotten").unwrap();
    let report = desk.workspace.fsck(false, &|_| ()).unwrap();
    let mut lost: Vec<_> = report.lost.iter().map(|lost| (lost.users.clone(), lost.reason.clone())).collect();
    lost.sort_by_key(|(_, reason)| reason.len());
    let version =
        |at: &str| vec![LostUse::Version { path: path(at), version: crate::model::VersionNumber(1) }];
    assert_eq!(lost[0], (version("a"), "missing".into()));
    assert_eq!(lost[1].0, version("new/file"));
    assert!(lost[1].1.starts_with("corrupt") && lost.len() == 2, "{lost:?}");
}

#[test]
fn a_check_names_drafts_whose_file_is_gone_and_no_recovery_copies_which_people_may_remove() {
    let desk = desk();
    desk.import(&["a", "b"]);
    let ada = desk.person("ada@desk");
    let draft = ada.write("a", "draft");
    ada.write("b", "reverted");
    ada.ops.revert(&[path("b")]).unwrap();
    let copy = desk.workspace.recovered().unwrap().remove(0);
    fs::remove_file(desk.workspace.recovered_file(&copy.id).unwrap()).unwrap();
    assert!(desk.workspace.fsck(false, &|_| ()).unwrap().is_clean());
    back_up(&desk, &desk.dir.path().join("backup"));
    fs::remove_file(draft).unwrap();
    let problems = desk.workspace.fsck(false, &|_| ()).unwrap().problems;
    assert!(
        problems[0].starts_with("a: the draft of ada@desk is lost") && problems.len() == 1,
        "{problems:?}"
    );
}

#[test]
fn a_lost_manifest_is_made_again() {
    let desk = desk();
    history(&desk);
    let (_, manifest) = desk.workspace.catalog().manifests().unwrap().remove(0);
    fs::remove_file(desk.workspace.blobs().path_of(&manifest)).unwrap();
    assert!(!desk.workspace.fsck(false, &|_| ()).unwrap().is_clean());
    assert!(desk.workspace.fsck(true, &|_| ()).unwrap().is_clean());
}

fn lose_catalog(desk: &Desk) {
    let catalog = desk.workspace.layout().catalog();
    fs::write(&catalog, "not a database any more, but long enough to be looked at".repeat(100)).unwrap();
}

#[test]
fn a_lost_catalog_comes_back_from_the_manifests() {
    let desk = desk();
    history(&desk);
    let before = told(&desk.workspace);
    let root = desk.workspace.root().to_owned();
    assert!(rescue(&root, &desk.env).is_err(), "a whole one is left alone");
    let ada = desk.person("ada@desk");
    ada.write("a", "a draft");
    lose_catalog(&desk);
    let env = desk.env.clone();
    let report = rescue(&root, &env).unwrap();
    assert_eq!((report.changes, report.missing.len(), report.unreadable.len()), (3, 0, 0));
    assert!(!report.set_aside.is_empty());
    let desk = desk.reopened(None);
    assert_eq!(told(&desk.workspace), before);
    assert!(desk.workspace.fsck(false, &|_| ()).unwrap().is_clean());
    let ada = desk.person("ada@desk");
    desk.workspace.recover_checkout(ada.checkout).unwrap();
    assert_eq!(desk.recovered_texts(), ["a draft"], "what was no version is a recovery copy");
    ada.write("a", "goes on");
    ada.ops.check_in(&everything("after")).unwrap();
    assert_eq!(desk.read("a", None), "goes on");
}

#[test]
fn a_rescue_gets_what_is_left() {
    let desk = desk();
    history(&desk);
    let (_, first) = desk.workspace.catalog().manifests().unwrap().remove(0);
    fs::remove_file(desk.workspace.blobs().path_of(&first)).unwrap();
    lose_catalog(&desk);
    let report = rescue(desk.workspace.root(), &desk.env).unwrap();
    assert_eq!((report.changes, report.missing.len()), (2, 1));
    let desk = desk.reopened(None);
    assert_eq!((desk.read("a", None), desk.read("new/file", None)), ("a2".into(), "fresh".into()));
    let lost_directory = desk.workspace.log(None, None).unwrap()[0]
        .items
        .iter()
        .any(|item| item.item.path.to_string().ends_with("/b"));
    assert!(lost_directory, "a file of a directory that is lost is there all the same");
}

/// A blob in the making is nobody's garbage while somebody writes to it, however short the grace is.
#[test]
fn blobs_in_the_making_are_left_alone_for_an_hour() {
    let desk = desk();
    let making = ["0123456789abcdef0123456789abcdef", "c.0.1.0.0123456789abcdef0123456789abcdef"];
    let making = making.map(|name| desk.workspace.layout().staging().join(name));
    making.iter().for_each(|file| fs::write(file, "half").unwrap());
    desk.let_pass_ms(59 * 60 * 1000);
    collect(&desk, 1);
    assert!(making.iter().all(|file| file.exists()));
    desk.clock.advance_ms(2 * 60 * 1000);
    collect(&desk, 1);
    assert!(making.iter().all(|file| !file.exists()));
}

/// Files outside the store have no name without the catalog: they are kept as recovery copies, scratch included, and those
/// that were recovery copies are listed again.
#[test]
fn a_rescue_keeps_what_was_not_in_the_store() {
    let desk = desk();
    history(&desk);
    let ada = desk.person("ada@desk");
    ada.write("a", "a draft");
    ada.write("dir/b", "reverted");
    ada.ops.revert(&[path("dir/b")]).unwrap();
    let scratch = crate::engine::ScratchName {
        checkout: ada.checkout,
        artifact: crate::model::Seq(99),
        token: "0123456789abcdef0123456789abcdef".into(),
    };
    fs::write(desk.workspace.layout().scratch().join(scratch.to_string()), "live").unwrap();
    lose_catalog(&desk);
    assert_eq!(rescue(desk.workspace.root(), &desk.env).unwrap().kept, 3);
    let desk = desk.reopened(None);
    let mut texts = desk.recovered_texts();
    texts.sort();
    assert_eq!(texts, ["a draft", "live", "reverted"]);
    let copies = desk.workspace.recovered().unwrap();
    assert!(copies.iter().any(|copy| copy.path == path("a")), "{copies:?}");
}

/// A catalog that lost its log is whole, and older than the store: a check tells, and a rescue brings the rest back.
#[test]
fn a_catalog_older_than_the_store_is_told_and_rescued() {
    let desk = desk();
    desk.import(&["a"]);
    let (catalog, old) = (desk.workspace.layout().catalog(), desk.dir.path().join("old.db"));
    desk.workspace.catalog().copy_to(&old).unwrap();
    let ada = desk.person("ada@desk");
    ada.write("a", "a2");
    ada.ops.check_in(&everything("lost")).unwrap();
    drop(ada);
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(catalog.with_file_name(format!("catalog.db{suffix}"))).unwrap();
    }
    fs::copy(&old, &catalog).unwrap();
    let desk = desk.reopened(None);
    let problems = desk.workspace.fsck(false, &|_| ()).unwrap().problems;
    assert!(problems.len() == 1 && problems[0].starts_with("change 2 is in the store"), "{problems:?}");
    assert_eq!(rescue(desk.workspace.root(), &desk.env).unwrap().changes, 2);
    let desk = desk.reopened(None);
    assert_eq!(desk.read("a", None), "a2");
    assert!(desk.workspace.fsck(false, &|_| ()).unwrap().is_clean());
    assert!(rescue(desk.workspace.root(), &desk.env).is_err(), "it is whole");
}

fn back_up(desk: &Desk, dest: &Path) -> crate::engine::CopyReport {
    desk.workspace.backup(dest, false, &desk.env, &|_| ()).unwrap()
}

#[test]
fn a_backup_is_incremental_and_comes_back_whole() {
    let desk = desk();
    history(&desk);
    let ada = desk.person("ada@desk");
    ada.write("a", "a draft");
    let dest = desk.dir.path().join("backup");
    let first = back_up(&desk, &dest);
    assert_eq!((first.copied, first.lost.len()), (first.named, 0));
    assert_eq!(back_up(&desk, &dest).copied, 0, "nothing is copied twice");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&dest), mode(&dest.join("catalog.db")), mode(&dest.join("lock"))),
        (0o700, 0o600, 0o600)
    );
    ada.ops.check_in(&everything("more")).unwrap();
    ada.write("dir/c", "another draft");
    assert_eq!(back_up(&desk, &dest).copied, 1, "the manifest, since the version came along as a draft");

    let root = desk.dir.path().join("restored");
    restore_backup(&dest, &root, &desk.env, &|_| ()).unwrap();
    let restored = Workspace::open(&root, &desk.env).unwrap();
    assert_eq!(told(&restored), told(&desk.workspace));
    assert!(restored.fsck(false, &|_| ()).unwrap().is_clean());
    let checkout = restored.catalog().checkout(&ada.holder).unwrap();
    let entry = restored.catalog().resolve(checkout, &path("dir/c")).unwrap().unwrap();
    assert_eq!(entry.size, "another draft".len() as u64, "drafts come along");
    let again = restore_backup(&dest, &root, &desk.env, &|_| ());
    assert!(matches!(again, Err(EngineError::WorkspaceExists(_))));
}

#[test]
fn a_backup_tells_what_it_can_not_copy_and_copies_the_rest() {
    let desk = desk();
    history(&desk);
    fs::write(blob(&desk, "a2"), "rotten").unwrap();
    let report = back_up(&desk, &desk.dir.path().join("backup"));
    assert_eq!(report.lost.len(), 1);
    assert_eq!(report.copied, report.named - 1);
}

#[test]
fn a_backup_verifies_what_it_has_when_asked() {
    let desk = desk();
    history(&desk);
    let dest = desk.dir.path().join("backup");
    back_up(&desk, &dest);
    let hex = digest_of(b"a2").to_hex();
    fs::write(dest.join("objects").join(&hex[..2]).join(&hex), "rotten").unwrap();
    assert_eq!(desk.workspace.backup(&dest, true, &desk.env, &|_| ()).unwrap().copied, 1);
    restore_backup(&dest, &desk.dir.path().join("restored"), &desk.env, &|_| ()).unwrap();
}

#[test]
fn a_backup_goes_nowhere_else() {
    let desk = desk();
    let env = Environment { ids: Arc::new(SystemIds), ..desk.env.clone() };
    let other = Workspace::init(&desk.dir.path().join("other"), &env).unwrap();
    let dest = desk.dir.path().join("backup");
    other.backup(&dest, false, &env, &|_| ()).unwrap();
    let full = desk.dir.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("mine"), "x").unwrap();
    let link = desk.dir.path().join("link");
    std::os::unix::fs::symlink(desk.workspace.root(), &link).unwrap();
    let inside = desk.workspace.layout().dot();
    let of_other = other.layout().dot();
    let new = [inside.join("new"), desk.workspace.root().join("new/deep"), link.join("new")];
    let there = [dest, full.clone(), inside.clone(), of_other, desk.workspace.root().to_owned()];
    for place in new.iter().chain(&there) {
        let refused = desk.workspace.backup(place, false, &desk.env, &|_| ());
        assert!(matches!(refused, Err(EngineError::Refused(_))), "{}: {refused:?}", place.display());
    }
    assert!(new.iter().all(|place| !place.exists()) && !desk.workspace.root().join("new").exists());
    for source in [full, inside] {
        let refused = restore_backup(&source, &desk.dir.path().join("r"), &desk.env, &|_| ());
        assert!(matches!(refused, Err(EngineError::Refused(_))), "{}: {refused:?}", source.display());
    }
}

/// A backup may be named by a symlink, and its policy may be the default.
#[test]
fn a_backup_goes_where_a_symlink_leads() {
    let desk = desk();
    history(&desk);
    let (dest, link) = (desk.dir.path().join("backup"), desk.dir.path().join("link"));
    back_up(&desk, &dest);
    std::os::unix::fs::symlink(&dest, &link).unwrap();
    fs::remove_file(desk.workspace.layout().config()).unwrap();
    assert_eq!(back_up(&desk, &link).copied, 0);
    let root = desk.dir.path().join("restored");
    restore_backup(&link, &root, &desk.env, &|_| ()).unwrap();
    assert_eq!(told(&Workspace::open(&root, &desk.env).unwrap()), told(&desk.workspace));
}

/// What a backup leaves that was cut short goes with the next one, and harms none.
#[test]
fn a_backup_removes_what_others_left_unfinished() {
    let desk = desk();
    history(&desk);
    let dest = desk.dir.path().join("backup");
    back_up(&desk, &dest);
    let left = ["", "-wal", "-shm"].map(|suffix| dest.join(format!("catalog.db.new-0123{suffix}")));
    left.iter().for_each(|file| fs::write(file, "half").unwrap());
    back_up(&desk, &dest);
    assert!(left.iter().all(|file| !file.exists()));
    let mut names: Vec<_> = fs::read_dir(&dest).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["catalog.db", "incoming", "lock", "objects"]);
}

/// The files that drafts have outside the store are verified like all else: what is damaged is told, and the rest comes
/// back.
#[test]
fn a_restore_tells_of_damaged_drafts() {
    let desk = desk();
    history(&desk);
    let ada = desk.person("ada@desk");
    let (damaged, whole) = (ada.write("a", "a draft"), ada.write("dir/b", "another draft"));
    let dest = desk.dir.path().join("backup");
    back_up(&desk, &dest);
    let hex = digest_of(b"a draft").to_hex();
    fs::write(dest.join("objects").join(&hex[..2]).join(&hex), "a drafT").unwrap();
    let root = desk.dir.path().join("restored");
    let report = restore_backup(&dest, &root, &desk.env, &|_| ()).unwrap();
    let name = |file: &Path| format!("staging/{}", file.file_name().unwrap().to_str().unwrap());
    assert_eq!(report.lost_files.iter().map(|lost| lost.0.clone()).collect::<Vec<_>>(), [name(&damaged)]);
    let dot = root.join(".leasehold");
    assert!(!dot.join(name(&damaged)).exists());
    assert_eq!(fs::read(dot.join(name(&whole))).unwrap(), b"another draft");
}

/// A draft whose file is gone for good is told, and keeps nothing else from being copied.
#[test]
fn a_backup_tells_of_lost_drafts() {
    let desk = desk();
    history(&desk);
    let ada = desk.person("ada@desk");
    fs::remove_file(ada.write("a", "a draft")).unwrap();
    let report = back_up(&desk, &desk.dir.path().join("backup"));
    assert_eq!((report.lost_files.len(), report.copied), (1, report.named));
}

/// A process may be killed between the moment when a save's file becomes a blob and the commit that says so, be it the
/// draft's last save or the one to which it may fall back: nothing is missing.
#[test]
fn a_save_that_became_a_blob_is_not_missing() {
    let desk = desk();
    history(&desk);
    let ada = desk.person("ada@desk");
    let behind = ada.write("a", "the save before");
    ada.write_unsynced("a", "the last save");
    let last = ada.write("dir/b", "another");
    for (file, text) in [(behind, "the save before"), (last, "another")] {
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        desk.workspace.catalog().note_digests(&[(name, digest_of(text.as_bytes()))]).unwrap();
        desk.workspace.blobs().adopt(&[file]).pop().unwrap().unwrap();
    }
    let report = desk.workspace.fsck(false, &|_| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    let dest = desk.dir.path().join("backup");
    assert_eq!(back_up(&desk, &dest).lost_files, []);
    let root = desk.dir.path().join("restored");
    assert_eq!(restore_backup(&dest, &root, &desk.env, &|_| ()).unwrap().lost_files, []);
    let restored = Workspace::open(&root, &desk.env).unwrap();
    restored.recover_checkout(restored.catalog().checkout(&ada.holder).unwrap()).unwrap();
    let report = restored.fsck(false, &|_| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}
