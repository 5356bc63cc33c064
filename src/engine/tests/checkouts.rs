use super::support::*;
use crate::engine::{Action, CheckInRequest, CheckoutOps, EngineError};
use crate::model::{ArtifactPath, Content, Kind, ResourceKey, Scratch, VersionNumber};

#[test]
fn saves_are_published_and_checked_in() {
    let desk = desk();
    desk.import(&["a", "d/b"]);
    let ada = desk.person("ada@home");
    let staged = ada.write("a", "new text");
    ada.write("d/b", "not asked for");
    let request = CheckInRequest { paths: vec![path("a")], ..everything("why") };
    let report = ada.ops.check_in(&request).unwrap();
    assert_eq!(report.items.len(), 1);
    assert_eq!((report.items[0].action, report.items[0].version), (Action::Modified, Some(VersionNumber(2))));
    assert!(!staged.exists());
    assert_eq!((desk.read("a", None), desk.read("a", Some(1))), ("new text".into(), "a".into()));
    assert_eq!(desk.read("d/b", None), "d/b");
    let log = desk.workspace.log(Some(&path("a")), None).unwrap();
    assert_eq!(
        (log.len(), log[0].message.as_str(), log[0].items[0].base),
        (2, "why", Some(VersionNumber(1)))
    );
    let missing = ada.ops.check_in(&CheckInRequest { paths: vec![path("none")], ..everything("m") });
    assert!(matches!(missing, Err(EngineError::NotFound(p)) if p == path("none")));
}

#[test]
fn a_live_file_is_checked_in_as_a_snapshot() {
    let desk = desk();
    desk.import(&["data.db"]);
    let ada = desk.person("ada@home");
    let live = ada.write_direct("data.db", "rows");
    ada.ops.check_in(&everything("m")).unwrap();
    assert_eq!(desk.read("data.db", None), "rows");
    assert!(!live.exists());
    assert!(names_in(&desk.workspace.layout().staging()).is_empty());
}

#[test]
fn refusals_name_the_path_and_the_holder() {
    let desk = desk();
    desk.import(&["d/a"]);
    let (ada, bob) = (desk.person("ada@home"), desk.person("bob@home"));
    ada.ops.checkout(&[path("d")]).unwrap();
    let held = bob.ops.checkout(&[path("d/a")]).unwrap_err();
    assert!(held.to_string().starts_with("d/a: held by ada@home until 20"), "{held}");
    assert_eq!(bob.ops.checkout(&[path("x")]).unwrap_err().to_string(), "x: no such file in this checkout");
    ada.write("d/a", "ada");
    desk.clock.advance_ms(60_001);
    bob.write("d/a", "bob");
    bob.ops.check_in(&everything("m")).unwrap();
    let stale = ada.ops.check_in(&everything("m")).unwrap_err();
    assert!(matches!(&stale, EngineError::Stale { path: p, .. } if *p == path("d/a")), "{stale}");
    let status = ada.ops.status(&ArtifactPath::root()).unwrap();
    assert!(status.drafts[0].stale);
    let onto = CheckInRequest { onto: Some(VersionNumber(2)), ..everything("m") };
    ada.ops.check_in(&onto).unwrap();
    assert_eq!(desk.read("d/a", None), "ada");
}

#[test]
fn a_draft_whose_file_others_deleted_says_so() {
    let desk = desk();
    desk.import(&["a"]);
    let (ada, bob) = (desk.person("ada@home"), desk.person("bob@home"));
    ada.write("a", "ada");
    desk.clock.advance_ms(60_001);
    bob.unlink("a");
    bob.ops.check_in(&everything("m")).unwrap();
    let refused = ada.ops.check_in(&everything("m"));
    assert!(matches!(refused, Err(EngineError::DeletedMeanwhile { .. })), "{refused:?}");
    ada.ops.save_as(&path("a"), &path("mine")).unwrap();
    ada.ops.check_in(&everything("m")).unwrap();
    assert_eq!(desk.read("mine", None), "ada");
}

#[test]
fn revert_keeps_the_bytes_as_recovery_copies() {
    let desk = desk();
    desk.import(&["a", "b", "c.db"]);
    let ada = desk.person("ada@home");
    let staged = ada.write("a", "staged");
    ada.write("b", "published");
    ada.ops.settle(&path("b")).unwrap();
    assert!(matches!(ada.get("b").unwrap().content, Content::Blob(_)));
    ada.write_direct("c.db", "direct");
    let report = ada.ops.revert(&[]).unwrap();
    assert_eq!(report.reverted.len(), 3);
    let mut texts = desk.recovered_texts();
    texts.sort();
    assert_eq!(texts, ["direct", "published", "staged"]);
    assert!(!staged.exists());
    assert!(names_in(&desk.workspace.layout().scratch()).is_empty());
    assert_eq!(ada.get("a").unwrap().size, 1);
    assert!(desk.workspace.leases().unwrap().is_empty());
    let copy = report.recovered.iter().find(|copy| copy.path == path("a")).unwrap();
    assert_eq!((copy.base, copy.size, copy.reason.as_str()), (Some(VersionNumber(1)), 6, "reverted"));
}

#[test]
fn save_as_keeps_a_stale_draft_under_another_name() {
    let desk = desk();
    desk.import(&["a"]);
    let (ada, bob) = (desk.person("ada@home"), desk.person("bob@home"));
    ada.write("a", "ada");
    desk.clock.advance_ms(60_001);
    bob.write("a", "bob");
    bob.ops.check_in(&everything("m")).unwrap();
    ada.ops.save_as(&path("a"), &path("a2")).unwrap();
    let report = ada.ops.check_in(&everything("m")).unwrap();
    assert_eq!((report.items.len(), report.items[0].action), (1, Action::Added));
    assert_eq!((desk.read("a", None), desk.read("a2", None)), ("bob".into(), "ada".into()));
    assert!(matches!(ada.ops.save_as(&path("a"), &path("x")), Err(EngineError::Refused(_))));
}

#[test]
fn old_versions_are_restored_as_drafts_also_of_deleted_paths() {
    let desk = desk();
    desk.import(&["a", "gone"]);
    let ada = desk.person("ada@home");
    ada.write("a", "second");
    ada.unlink("gone");
    ada.ops.check_in(&everything("m")).unwrap();
    ada.write("a", "third, unsaved");
    ada.ops.restore(&path("a"), VersionNumber(1)).unwrap();
    ada.ops.restore(&path("gone"), VersionNumber(1)).unwrap();
    assert_eq!(desk.recovered_texts(), ["third, unsaved"]);
    ada.ops.check_in(&everything("m")).unwrap();
    assert_eq!((desk.read("a", Some(3)), desk.read("gone", None)), ("a".into(), "gone".into()));
    let none = ada.ops.restore(&path("a"), VersionNumber(9)).unwrap_err();
    assert_eq!(none.to_string(), "a: has no version 9; the newest is 3");
}

#[test]
fn scratch_becomes_an_artifact_by_add_or_by_being_left_alone() {
    let desk = desk();
    let ada = desk.person("ada@home");
    ada.create("x.tmp", Kind::File, Scratch::Yes);
    ada.create("4913", Kind::File, Scratch::Provisional);
    ada.write_direct("x.tmp", "kept");
    ada.write_direct("4913", "left alone");
    assert_eq!(ada.ops.check_in(&everything("m")).unwrap().change, None);
    assert_eq!(ada.ops.status(&ArtifactPath::root()).unwrap().scratch, 2);
    ada.ops.add(&path("x.tmp")).unwrap();
    desk.clock.advance_ms(30_001);
    ada.ops.check_in(&everything("m")).unwrap();
    assert_eq!((desk.read("x.tmp", None), desk.read("4913", None)), ("kept".into(), "left alone".into()));
}

#[test]
fn keys_are_leased_by_name() {
    let desk = desk();
    desk.import(&["a"]);
    let (ada, bob) = ("ada@home".parse().unwrap(), "bob@home".parse().unwrap());
    let key = desk.workspace.key_of(&path("a"), &ada).unwrap();
    desk.workspace.acquire(&key, &ada, Some(1_000)).unwrap();
    let held = desk.workspace.acquire(&key, &bob, Some(1_000));
    assert!(matches!(held, Err(EngineError::Held { path: p, .. }) if p == path("a")));
    let free: ResourceKey = "thread:42".parse().unwrap();
    desk.workspace.acquire(&free, &ada, Some(1_000)).unwrap();
    let held = desk.workspace.acquire(&free, &bob, Some(1_000)).unwrap_err();
    assert!(held.to_string().starts_with("thread:42: held by ada@home until "), "{held}");
    let paths: Vec<_> = desk.workspace.leases().unwrap().into_iter().map(|l| l.path).collect();
    assert_eq!(paths, [None, Some(path("a"))]);
    assert!(desk.workspace.lease(&free).unwrap().unwrap().live);
    assert!(desk.workspace.release(&free, &ada).unwrap());
    assert!(!desk.workspace.release(&free, &ada).unwrap());
}

#[test]
fn a_new_file_whose_directory_others_deleted_is_still_to_be_had() {
    let desk = desk();
    desk.import(&["keep"]);
    let (ada, bob) = (desk.person("ada@home"), desk.person("bob@home"));
    bob.create("d", Kind::Directory, Scratch::No);
    bob.ops.check_in(&everything("m")).unwrap();
    ada.create("d/new", Kind::File, Scratch::No);
    ada.write("d/new", "ada");
    desk.clock.advance_ms(60_001);
    let dir = bob.get("d").unwrap();
    let place = crate::catalog::Place { parent: dir.parent, name: dir.name };
    desk.workspace.catalog().rmdir(&bob.actor(), &place).unwrap();
    bob.ops.check_in(&everything("m")).unwrap();
    let refused = ada.ops.check_in(&everything("m")).unwrap_err();
    let why = refused.to_string();
    assert!(why.contains("the directory d is not in the head tree"), "{why}");
    assert_eq!(ada.ops.status(&ArtifactPath::root()).unwrap().drafts[0].path, path("d/new"));
    ada.ops.save_as(&path("d/new"), &path("new")).unwrap();
    ada.ops.check_in(&everything("m")).unwrap();
    assert_eq!(desk.read("new", None), "ada");
}
