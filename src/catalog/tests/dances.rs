//! What applications do to save a document: each must end as one new version of one artifact, and no other trace.

use super::support::*;
use crate::catalog::RenameMode;
use crate::model::Kind;

/// A checkout whose head tree has `doc`, version 1; the id that must stay.
fn with_doc() -> (std::sync::Arc<World>, Person, crate::model::ArtifactId) {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.write_new("doc", "old");
    ada.commit();
    let id = ada.get("doc").unwrap().id;
    (world, ada, id)
}

fn assert_one_save(world: &World, ada: &Person, id: crate::model::ArtifactId) {
    assert_eq!(ada.get("doc").unwrap().id, id);
    assert_eq!(world.count_leases(), 1, "one lease, on the document");
    assert!(ada.holds("doc"));
    assert_eq!(ada.commit(), ["*doc v2"]);
    assert_eq!(world.tree(), ["doc"]);
    assert_eq!(world.head("doc").unwrap().content, blob("new"));
    assert_eq!(world.count_leases(), 0);
}

#[test]
fn vim_moves_the_document_to_a_backup_and_writes_it_anew() {
    let (world, ada, id) = with_doc();
    ada.mv("doc", "doc~");
    assert_eq!(ada.get("doc~").unwrap().content, blob("old"));
    assert_ne!(ada.get("doc~").unwrap().id, id);
    ada.write_new("doc", "new");
    ada.unlink("doc~");
    assert_one_save(&world, &ada, id);
}

#[test]
fn vim_puts_the_backup_back_when_writing_failed() {
    let (world, ada, id) = with_doc();
    ada.mv("doc", "doc~");
    ada.write_new("doc", "part");
    ada.unlink("doc");
    ada.mv("doc~", "doc");
    assert_eq!(ada.get("doc").unwrap().id, id);
    assert_eq!(ada.check_in(&[]).unwrap().change, None);
    assert_eq!((world.head_number("doc"), world.count_leases()), (1, 0));
}

#[test]
fn a_kept_backup_stays_in_the_checkout() {
    let (world, ada, id) = with_doc();
    ada.mv("doc", "doc~");
    ada.write_new("doc", "new");
    assert_one_save(&world, &ada, id);
    assert_eq!(ada.get("doc~").unwrap().content, blob("old"));
}

#[test]
fn word_moves_the_old_away_and_the_new_in() {
    let (world, ada, id) = with_doc();
    ada.write_new("~WRD.tmp", "new");
    ada.mv("doc", "~WRL.tmp");
    ada.mv("~WRD.tmp", "doc");
    ada.unlink("~WRL.tmp");
    assert_one_save(&world, &ada, id);
}

#[test]
fn libreoffice_renames_its_temporary_over_the_document() {
    let (world, ada, id) = with_doc();
    ada.write_new("lu1.tmp", "new");
    ada.mv("lu1.tmp", "doc");
    assert_one_save(&world, &ada, id);
}

#[test]
fn a_temporary_with_a_documents_name_is_a_save_as_well() {
    let (world, ada, id) = with_doc();
    ada.write_new("doc.x1Y2z3", "new");
    ada.mv("doc.x1Y2z3", "doc");
    assert_one_save(&world, &ada, id);
}

#[test]
fn blender_keeps_a_numbered_backup() {
    let (world, ada, id) = with_doc();
    ada.write_new("doc@", "new");
    ada.mv("doc", "doc1~");
    ada.mv("doc@", "doc");
    assert_one_save(&world, &ada, id);
    assert_eq!(ada.get("doc1~").unwrap().content, blob("old"));
}

#[test]
fn unlink_and_create_is_a_save() {
    let (world, ada, id) = with_doc();
    ada.unlink("doc");
    assert!(ada.get("doc").is_none() && ada.holds("doc"));
    ada.write_new("doc", "new");
    assert_one_save(&world, &ada, id);
}

#[test]
fn macos_exchanges_the_temporary_with_the_document() {
    let (world, ada, id) = with_doc();
    ada.write_new("doc.tmp", "new");
    ada.exchange("doc.tmp", "doc");
    assert_eq!(ada.get("doc.tmp").unwrap().content, blob("old"));
    ada.unlink("doc.tmp");
    assert_one_save(&world, &ada, id);
}

#[test]
fn two_saves_before_a_check_in_are_one_version() {
    let (world, ada, id) = with_doc();
    for text in ["mid", "new"] {
        ada.write_new("~WRD.tmp", text);
        ada.mv("doc", "~WRL.tmp");
        ada.mv("~WRD.tmp", "doc");
        ada.unlink("~WRL.tmp");
    }
    assert_one_save(&world, &ada, id);
}

#[test]
fn an_exchange_of_documents_swaps_their_contents() {
    let (world, ada, id) = with_doc();
    ada.write_new("other", "b");
    ada.commit();
    let other = ada.get("other").unwrap().id;
    ada.exchange("doc", "other");
    assert_eq!((ada.get("doc").unwrap().id, ada.get("other").unwrap().id), (id, other));
    assert_eq!(ada.commit(), ["*doc v2", "*other v2"]);
    assert_eq!(world.head("other").unwrap().content, blob("old"));
}

#[test]
fn an_exchange_of_directories_moves_both() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.mkdir("a");
    ada.write_new("a/x", "x1");
    ada.mkdir("b");
    ada.commit();
    let (a, b) = (ada.get("a").unwrap().id, ada.get("b").unwrap().id);
    ada.exchange("a", "b");
    assert_eq!(world.count_leases(), 2);
    assert_eq!(ada.commit(), ["b>a", "a>b"]);
    assert_eq!((world.head("a").unwrap().id, world.head("b").unwrap().id), (b, a));
    assert_eq!(world.tree(), ["a", "b", "b/x"]);
}

#[test]
fn an_artifact_moved_over_another_is_its_new_version_and_a_deletion() {
    let (world, ada, id) = with_doc();
    ada.write_new("draft", "new");
    ada.commit();
    ada.mv("draft", "doc");
    assert_eq!(world.count_leases(), 2);
    assert_eq!(ada.commit(), ["*doc v2", "-draft"]);
    assert_eq!(world.head("doc").unwrap().id, id);
    assert_eq!(world.tree(), ["doc"]);
}

#[test]
fn a_file_moved_into_a_new_directory_keeps_its_identity() {
    let (world, ada, id) = with_doc();
    ada.mkdir("d");
    ada.mv("doc", "d/doc");
    assert_eq!(ada.commit(), ["+d v1", "doc>d/doc"]);
    assert_eq!(world.head("d/doc").unwrap().id, id);
    assert_eq!(world.head_number("d/doc"), 1);
}

#[test]
fn a_rename_there_and_back_is_nothing() {
    let (world, ada, id) = with_doc();
    ada.mv("doc", "other");
    ada.mv("other", "doc");
    assert_eq!(ada.get("doc").unwrap().id, id);
    assert_eq!(ada.check_in(&[]).unwrap().change, None);
    assert_eq!((ada.drafts(), world.count_leases()), (0, 0));
}

#[test]
fn a_document_written_anew_after_it_was_renamed_keeps_the_name() {
    let (world, ada, id) = with_doc();
    ada.mv("doc", "doc.v1");
    ada.write_new("doc", "new");
    assert_eq!(ada.get("doc").unwrap().id, id);
    assert_ne!(ada.get("doc.v1").unwrap().id, id);
    assert_eq!(ada.commit(), ["*doc v2", "+doc.v1 v1"]);
    assert_eq!(world.head("doc.v1").unwrap().content, blob("old"));
}

#[test]
fn every_step_of_a_dance_is_refused_while_somebody_else_holds_the_document() {
    let (_world, ada, _) = with_doc();
    let bob = ada.world.checkout("bob@home");
    bob.write("doc", "bob");
    ada.write_new("new.tmp", "new");
    assert!(is_held(ada.try_rename("doc", "doc~", RenameMode::Replace)));
    assert!(is_held(ada.try_rename("new.tmp", "doc", RenameMode::Replace)));
    assert!(is_held(ada.try_rename("new.tmp", "doc", RenameMode::Exchange)));
    assert_eq!(ada.get("doc").unwrap().content, blob("old"));
    assert_eq!(ada.get("new.tmp").unwrap().kind, Kind::File);
    assert_eq!(ada.drafts(), 0);
}

#[test]
fn a_removal_and_its_version_are_remembered_through_a_directory_of_that_name() {
    let (world, ada, _) = with_doc();
    let bob = world.checkout("bob@home");
    ada.unlink("doc");
    ada.mkdir("doc");
    ada.rmdir("doc");
    ada.sleep();
    bob.write("doc", "bob");
    bob.commit();
    assert!(is_stale(ada.check_in(&[])), "the removal was of version 1");
    assert_eq!(world.head("doc").unwrap().content, blob("bob"));
}
