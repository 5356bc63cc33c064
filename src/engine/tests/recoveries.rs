use std::fs;

use super::support::*;
use crate::engine::StagingRole;
use crate::model::{Content, VersionNumber};

#[test]
fn unsaved_bytes_become_recovery_copies_at_the_next_mount() {
    let desk = desk();
    desk.import(&["d/a"]);
    let (ada, bob) = (desk.person("ada@home"), desk.person("bob@home"));
    ada.stage(StagingRole::Working, "d/a", "unsaved");
    let others = bob.stage(StagingRole::Working, "d/a", "bob's");
    let saved = ada.write("d/a", "saved");
    let foreign = desk.workspace.layout().staging().join("put-1");
    fs::write(&foreign, "x").unwrap();
    let copies = desk.workspace.recover_checkout(ada.checkout).unwrap();
    assert_eq!(copies.len(), 1);
    let copy = &copies[0];
    assert_eq!((&copy.path, copy.base, copy.size), (&path("d/a"), Some(VersionNumber(1)), 7));
    assert_eq!((&copy.holder, copy.artifact), (&ada.holder, Some(ada.get("d/a").unwrap().id)));
    assert_eq!(desk.recovered_texts(), ["unsaved"]);
    assert!(saved.exists() && others.exists() && foreign.exists());
    assert!(desk.workspace.recover_checkout(ada.checkout).unwrap().is_empty());
}

#[test]
fn leftovers_without_news_are_removed() {
    let desk = desk();
    desk.import(&["a"]);
    let ada = desk.person("ada@home");
    ada.write("a", "draft");
    desk.workspace.check_in(&ada.actor(), &Default::default()).unwrap();
    ada.stage(StagingRole::Working, "a", "");
    ada.stage(StagingRole::Working, "a", "draft");
    ada.stage(StagingRole::Copy, "a", "a part of a copy");
    assert!(desk.workspace.recover_checkout(ada.checkout).unwrap().is_empty());
    assert!(names_in(&desk.workspace.layout().staging()).is_empty());
    let other = ada.stage(StagingRole::Working, "a", "drafs");
    assert_eq!(desk.workspace.recover_checkout(ada.checkout).unwrap().len(), 1, "same size, other bytes");
    assert!(!other.exists());
}

#[test]
fn a_copy_whose_row_a_crash_took_is_listed_again() {
    let desk = desk();
    desk.import(&["a"]);
    let ada = desk.person("ada@home");
    let file = ada.stage(StagingRole::Working, "a", "unsaved");
    let name = format!("0af.{}", file.file_name().unwrap().to_str().unwrap());
    fs::rename(&file, desk.workspace.layout().recovered().join(name)).unwrap();
    let copies = desk.workspace.recover_checkout(ada.checkout).unwrap();
    assert_eq!((copies.len(), copies[0].id.as_str()), (1, "0af"));
    assert_eq!(desk.recovered_texts(), ["unsaved"]);
}

#[test]
fn a_save_whose_file_became_a_blob_before_the_crash_is_found_by_its_digest() {
    let desk = desk();
    desk.import(&["a"]);
    let ada = desk.person("ada@home");
    let file = ada.write("a", "saved");
    let save = desk.workspace.catalog().staged_saves(ada.checkout).unwrap().remove(0);
    let note = |digests: &[(std::path::PathBuf, crate::model::Digest)]| {
        desk.workspace.catalog().note_digests(&[(save.file.clone(), digests[0].1)]).unwrap();
        Ok(())
    };
    desk.workspace.blobs().adopt_noting(std::slice::from_ref(&file), &mut { note })[0].as_ref().unwrap();
    assert!(!file.exists() && matches!(ada.get("a").unwrap().content, Content::Staged(_)));
    assert!(desk.workspace.recover_checkout(ada.checkout).unwrap().is_empty());
    assert!(matches!(ada.get("a").unwrap().content, Content::Blob(_)));
    desk.workspace.check_in(&ada.actor(), &Default::default()).unwrap();
    assert_eq!(desk.read("a", None), "saved");
}

#[test]
fn a_seal_that_a_power_cut_took_back_is_done_again() {
    let desk = desk();
    desk.import(&["a"]);
    let ada = desk.person("ada@home");
    let sealed = ada.write("a", "saved");
    let working = sealed.with_file_name(sealed.file_name().unwrap().to_str().unwrap().replacen('s', "w", 1));
    fs::rename(&sealed, &working).unwrap();
    assert!(desk.workspace.recover_checkout(ada.checkout).unwrap().is_empty());
    assert!(sealed.exists() && !working.exists());
}

#[test]
fn a_save_whose_bytes_are_gone_is_reported() {
    let desk = desk();
    desk.import(&["a"]);
    let ada = desk.person("ada@home");
    fs::remove_file(ada.write("a", "saved")).unwrap();
    desk.workspace.recover_checkout(ada.checkout).unwrap();
    let problems = desk.workspace.catalog().problems(&ada.holder).unwrap();
    assert_eq!(problems[0].kind, "publish-failed");
    desk.workspace.revert(&ada.actor(), &[], "reverted").unwrap();
    assert!(desk.workspace.catalog().drafts(ada.checkout).unwrap().is_empty());
}

#[test]
fn scratch_files_that_nothing_names_go_and_what_a_document_lost_stays() {
    let desk = desk();
    desk.import(&["data.db"]);
    let ada = desk.person("ada@home");
    let live = ada.write_direct("data.db", "rows");
    let lost = live.with_file_name(format!("{}.{}.0af", ada.checkout, ada.get("data.db").unwrap().artifact));
    let litter = live.with_file_name(format!("{}.999.0af", ada.checkout));
    fs::write(&lost, "lost rows").unwrap();
    fs::write(&litter, "litter").unwrap();
    assert_eq!(desk.workspace.recover_checkout(ada.checkout).unwrap().len(), 1);
    assert!(live.exists() && !lost.exists() && !litter.exists());
    assert_eq!(desk.recovered_texts(), ["lost rows"]);
}

#[test]
fn a_crash_between_the_note_and_the_rename_leaves_the_save_in_staging() {
    let desk = desk();
    desk.import(&["a"]);
    let ada = desk.person("ada@home");
    let file = ada.write("a", "saved");
    let save = desk.workspace.catalog().staged_saves(ada.checkout).unwrap().remove(0);
    let digest = crate::blobs::digest_of(b"saved");
    desk.workspace.catalog().note_digests(&[(save.file, digest)]).unwrap();
    assert!(desk.workspace.recover_checkout(ada.checkout).unwrap().is_empty());
    assert!(file.exists());
    desk.workspace.check_in(&ada.actor(), &Default::default()).unwrap();
    assert_eq!(desk.read("a", None), "saved");
}
