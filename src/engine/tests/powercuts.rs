//! Rows that came to the disk before their bytes: after a power cut the draft is the save before, whole.
//!
//! A power cut is another boot here, and what the disk made of a file that was never synced.

use std::fs;
use std::path::Path;

use super::support::*;
use crate::engine::{CheckoutOps, Sealed};
use crate::model::{Content, Kind, Scratch};

/// What a disk may have of a file that was never synced.
const DAMAGES: [Option<&str>; 5] =
    [None, Some(""), Some("ne"), Some("\0\0\0\0\0\0\0\0\0\0"), Some("newer save")];

fn damage(file: &Path, left: Option<&str>) {
    match left {
        Some(left) => fs::write(file, left).unwrap(),
        None => fs::remove_file(file).unwrap(),
    }
}

#[test]
fn a_save_that_a_power_cut_damaged_gives_way_to_the_save_before() {
    // Aim: whatever is left of the new bytes, the draft is the save before, and the rest is a recovery copy.
    for left in DAMAGES {
        let desk = desk();
        desk.import(&["a"]);
        let ada = desk.person("ada@home");
        let before = ada.write("a", "the save before");
        damage(&ada.write_unsynced("a", "newer ones"), left);
        desk.clock.reboot();
        let copies = desk.workspace.recover_checkout(ada.checkout).unwrap();
        assert_eq!(ada.text("a"), "the save before", "{left:?}");
        assert!(before.exists());
        let remains = left.filter(|left| !left.is_empty());
        assert_eq!(desk.recovered_texts(), remains.as_slice(), "{copies:?}");
        assert_eq!(names_in(&desk.workspace.layout().staging()).len(), 1, "{left:?}");
        let problems = desk.workspace.catalog().problems(&ada.holder).unwrap();
        assert_eq!(problems[0].kind, "publish-failed", "{left:?}");
        ada.ops.check_in(&everything("m")).unwrap();
        assert_eq!(desk.read("a", None), "the save before", "{left:?}");
    }
}

#[test]
fn without_a_save_before_the_draft_is_the_version() {
    // Aim: the first save after a version falls back to that version, and makes no version of its own.
    let desk = desk();
    desk.import(&["a"]);
    let ada = desk.person("ada@home");
    fs::write(ada.write_unsynced("a", "first save"), [0; 10]).unwrap();
    desk.clock.reboot();
    desk.workspace.recover_checkout(ada.checkout).unwrap();
    assert_eq!(ada.text("a"), "a");
    assert!(ada.ops.check_in(&everything("m")).unwrap().items.is_empty());
}

#[test]
fn of_many_unsynced_saves_none_is_taken_for_whole() {
    // Aim: the save before is the last one that was on the disk, not the last but one.
    let desk = desk();
    desk.import(&["a"]);
    let ada = desk.person("ada@home");
    ada.write("a", "synced");
    fs::write(ada.write_unsynced("a", "second"), "sec").unwrap();
    fs::write(ada.write_unsynced("a", "third"), "thi").unwrap();
    desk.clock.reboot();
    desk.workspace.recover_checkout(ada.checkout).unwrap();
    assert_eq!(ada.text("a"), "synced");
}

#[test]
fn a_killed_daemon_loses_no_save_that_was_not_synced() {
    // Aim: without a power cut, the bytes are there: the draft is the last save.
    let desk = desk();
    desk.import(&["a"]);
    let ada = desk.person("ada@home");
    ada.write("a", "before");
    ada.write_unsynced("a", "after");
    assert!(desk.workspace.recover_checkout(ada.checkout).unwrap().is_empty());
    assert_eq!(ada.text("a"), "after");
}

#[test]
fn a_save_that_was_synced_later_stays() {
    // Aim: fsync(2) after close(2) makes the save the one that stays.
    let desk = desk();
    desk.import(&["a"]);
    let ada = desk.person("ada@home");
    let file = ada.write_unsynced("a", "synced later");
    desk.workspace.catalog().note_synced(&file_name(&file)).unwrap();
    desk.clock.reboot();
    assert!(desk.workspace.recover_checkout(ada.checkout).unwrap().is_empty());
    assert_eq!(ada.text("a"), "synced later");
}

#[test]
fn a_published_save_stays_and_is_what_the_next_falls_back_to() {
    // Aim: publishing syncs; the save before may be on its way into the store when the next one comes.
    let desk = desk();
    desk.import(&["a"]);
    let ada = desk.person("ada@home");
    let first = ada.write("a", "first");
    let second = ada.write_unsynced("a", "second");
    let artifact = ada.get("a").unwrap().artifact;
    let sealed = |file: &Path| Sealed { checkout: ada.checkout, artifact, file: file_name(file) };
    desk.workspace.publish(&[sealed(&first)]).unwrap()[0].as_ref().unwrap();
    fs::remove_file(second).unwrap();
    desk.clock.reboot();
    desk.workspace.recover_checkout(ada.checkout).unwrap();
    assert!(matches!(ada.get("a").unwrap().content, Content::Blob(_)));
    assert_eq!(ada.text("a"), "first");
    let third = ada.write_unsynced("a", "third");
    desk.workspace.publish(&[sealed(&third)]).unwrap()[0].as_ref().unwrap();
    desk.clock.reboot();
    desk.workspace.recover_checkout(ada.checkout).unwrap();
    assert_eq!(ada.text("a"), "third");
}

#[test]
fn a_rename_over_a_draft_falls_back_to_that_draft() {
    // Aim: the bytes of the temporary file are lost, so the document is what the rename had replaced.
    let desk = desk();
    desk.import(&["a"]);
    let ada = desk.person("ada@home");
    ada.write("a", "replaced");
    ada.create("a.new", Kind::File, Scratch::No);
    let file = ada.write_unsynced("a.new", "the temporary's");
    ada.rename("a.new", "a");
    assert_eq!(ada.text("a"), "the temporary's");
    fs::write(file, "").unwrap();
    desk.clock.reboot();
    desk.workspace.recover_checkout(ada.checkout).unwrap();
    assert_eq!(ada.text("a"), "replaced");
    assert!(ada.get("a.new").is_none());
}

#[test]
fn a_synced_file_stays_synced_when_it_is_renamed() {
    // Aim: write, fsync, rename: what arrives is no less durable than what left.
    let desk = desk();
    desk.import(&["a"]);
    let ada = desk.person("ada@home");
    ada.create("a.new", Kind::File, Scratch::No);
    ada.write("a.new", "synced");
    ada.rename("a.new", "a");
    desk.clock.reboot();
    assert!(desk.workspace.recover_checkout(ada.checkout).unwrap().is_empty());
    assert_eq!(ada.text("a"), "synced");
}

#[test]
fn new_attributes_do_not_make_a_save_durable() {
    // Aim: a chmod between the save and the cut changes nothing about where the bytes are.
    let desk = desk();
    desk.import(&["a"]);
    let ada = desk.person("ada@home");
    let file = ada.write_unsynced("a", "unsynced");
    let change = crate::catalog::AttrChange { mode: Some(0o600), ..Default::default() };
    desk.workspace.catalog().set_attrs(&ada.actor(), ada.get("a").unwrap().artifact, change).unwrap();
    fs::write(file, "").unwrap();
    desk.clock.reboot();
    desk.workspace.recover_checkout(ada.checkout).unwrap();
    assert_eq!(ada.text("a"), "a");
    assert_eq!(ada.get("a").unwrap().attrs.mode & 0o777, 0o600);
}

#[test]
fn a_command_without_a_mount_takes_damaged_saves_back_first() {
    // Aim: after a power cut nobody checks in what may be damaged, mounted or not.
    let desk = desk();
    desk.import(&["a"]);
    let ada = desk.person("ada@home");
    fs::write(ada.write_unsynced("a", "unsynced"), [0; 8]).unwrap();
    desk.clock.reboot();
    let again = desk.person("ada@home");
    again.ops.check_in(&everything("m")).unwrap();
    assert_eq!(desk.read("a", None), "a");
    assert_eq!(desk.recovered_texts(), ["\0".repeat(8)]);
}

#[test]
fn a_scratch_name_whose_file_a_power_cut_took_is_forgotten() {
    // Aim: the file of a temporary that was renamed away may go before the name does; nothing trips over the name.
    let desk = desk();
    let ada = desk.person("ada@home");
    ada.create("a.tmp", Kind::File, Scratch::Provisional);
    fs::remove_file(ada.write_direct("a.tmp", "temporary")).unwrap();
    desk.workspace.recover_checkout(ada.checkout).unwrap();
    assert!(ada.get("a.tmp").is_none());
}
