use super::support::*;
use crate::catalog::{AttrChange, CatalogError, RenameMode};
use crate::model::{Content, Seq, VersionNumber};

#[test]
fn what_is_added_modified_moved_and_deleted_becomes_one_change() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.mkdir("d");
    ada.write_new("d/a", "a1");
    ada.write_new("b", "b1");
    ada.write_new("c", "c1");
    assert_eq!(ada.commit(), ["+b v1", "+c v1", "+d v1", "+d/a v1"]);
    assert_eq!(world.count_leases(), 0);
    let moved = ada.get("b").unwrap();
    ada.write("d/a", "a2");
    ada.mv("b", "d/b");
    ada.unlink("c");
    assert_eq!(world.tree(), ["b", "c", "d", "d/a"]);
    let report = ada.check_in(&[]).unwrap();
    assert_eq!(describe(&report), ["-c", "*d/a v2", "b>d/b"]);
    assert_eq!(world.tree(), ["d", "d/a", "d/b"]);
    assert_eq!(ada.tree(), world.tree());
    assert_eq!(world.head("d/b").unwrap().id, moved.id);
    assert_eq!((ada.drafts(), world.count_leases()), (0, 0));
    assert_eq!(report.settled.len(), 3);
}

#[test]
fn a_version_keeps_the_drafts_inode_and_times() {
    let world = world();
    let ada = world.checkout("ada@home");
    let draft = ada.write_new("a", "a1");
    ada.commit();
    let head = world.head("a").unwrap();
    assert_eq!((head.ino, head.attrs.mtime), (draft.ino, draft.attrs.mtime));
    let shown = ada.world.catalog.dir_time(ada.checkout, Seq::ROOT).unwrap();
    assert_eq!(shown, None);
    assert_eq!(world.head(".").unwrap().attrs.mtime, ada.actor().now.wall);
}

#[test]
fn drafts_that_are_the_same_as_the_head_make_no_change() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.write_new("a", "a1");
    ada.commit();
    ada.write("a", "a1");
    let report = ada.check_in(&[]).unwrap();
    assert_eq!((report.change, report.items.len(), ada.drafts()), (None, 0, 0));
    assert_eq!(report.settled[0].1.as_ref().unwrap().number, VersionNumber(1));
    assert_eq!(world.count_leases(), 0);
    assert_eq!(ada.check_in(&[]).unwrap().change, None);
    assert_eq!(world.catalog.head_change().unwrap().0, 1);
}

#[test]
fn a_mode_alone_is_a_version_also_of_the_root() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.write_new("a", "a1");
    ada.commit();
    let mode = |mode| AttrChange { mode: Some(mode), ..AttrChange::default() };
    let file = ada.get("a").unwrap().artifact;
    world.catalog.set_attrs(&ada.actor(), file, mode(0o600)).unwrap();
    world.catalog.set_attrs(&ada.actor(), Seq::ROOT, mode(0o700)).unwrap();
    assert_eq!(ada.commit(), ["*. v1", "*a v2"]);
    assert_eq!(world.head("a").unwrap().attrs.mode, 0o600);
    assert_eq!(world.head(".").unwrap().attrs.mode, 0o700);
    assert_eq!(world.catalog.log(None, None).unwrap()[0].items[0].after, Some(path(".")));
}

#[test]
fn a_selection_takes_the_new_directories_above_it_and_nothing_else() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.mkdir("d");
    ada.mkdir("d/e");
    ada.write_new("d/e/a", "a1");
    ada.write_new("d/b", "b1");
    assert_eq!(describe(&ada.check_in(&["d/e/a"]).unwrap()), ["+d v1", "+d/e v1", "+d/e/a v1"]);
    assert_eq!(ada.tree(), ["d", "d/b", "d/e", "d/e/a"]);
    assert!(ada.holds("d/b"));
    assert_eq!(ada.commit(), ["+d/b v1"]);
}

#[test]
fn a_deleted_directory_takes_what_was_removed_from_it() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.mkdir("d");
    ada.write_new("d/a", "a1");
    ada.write_new("d/b", "b1");
    ada.write_new("z", "z1");
    ada.commit();
    ada.write("z", "z2");
    ada.unlink("d/a");
    ada.mv("d/b", "b");
    ada.rmdir("d");
    assert_eq!(describe(&ada.check_in(&["d"]).unwrap()), ["d/b>b", "-d", "-d/a"]);
    assert_eq!(world.tree(), ["b", "z"]);
    assert_eq!(ada.drafts(), 1);
}

#[test]
fn a_directory_in_which_others_checked_something_in_cannot_be_deleted() {
    let world = world();
    let (ada, bob) = (world.checkout("ada@home"), world.checkout("bob@home"));
    ada.mkdir("d");
    ada.commit();
    ada.rmdir("d");
    ada.sleep();
    bob.write_new("d/new", "n1");
    bob.commit();
    let refused = ada.check_in(&[]);
    assert!(matches!(&refused, Err(CatalogError::Incomplete(why)) if why.contains("d/new")), "{refused:?}");
    assert_eq!(world.tree(), ["d", "d/new"]);
}

#[test]
fn a_renamed_directory_keeps_what_is_below_it() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.mkdir("d");
    let file = ada.write_new("d/a", "a1");
    ada.commit();
    ada.mv("d", "e");
    ada.write("e/a", "a2");
    ada.write_new("e/b", "b1");
    assert_eq!(ada.commit(), ["d>e", "*e/a v2", "+e/b v1"].map(|s| s.replace("*e/a", "d/a>e/a")));
    assert_eq!(world.head("e/a").unwrap().id, file.id);
    assert_eq!(world.tree(), ["e", "e/a", "e/b"]);
}

#[test]
fn a_draft_of_an_old_version_is_stale_unless_it_goes_onto_the_newest() {
    let world = world();
    let (ada, bob) = (world.checkout("ada@home"), world.checkout("bob@home"));
    ada.write_new("a", "a1");
    ada.commit();
    ada.write("a", "ada");
    ada.sleep();
    bob.write("a", "bob");
    assert!(is_held(ada.check_in(&[])));
    bob.commit();
    let refused = ada.check_in(&[]);
    let (base, head) = (VersionNumber(1), VersionNumber(2));
    assert!(matches!(refused, Err(CatalogError::Stale { base: b, head: h, .. }) if (b, h) == (base, head)));
    assert!(is_stale(ada.check_in_with(&[], false, Some(1))));
    assert_eq!(describe(&ada.check_in_with(&[], false, Some(2)).unwrap()), ["*a v3"]);
    let events = world.catalog.events(0, 100).unwrap();
    assert_eq!(events.last().unwrap().kind, "overwrote-unseen");
}

#[test]
fn a_lapsed_lease_is_enough_while_the_head_stayed() {
    let world = world();
    let (ada, bob) = (world.checkout("ada@home"), world.checkout("bob@home"));
    ada.write_new("a", "a1");
    ada.commit();
    ada.write("a", "a2");
    ada.sleep();
    bob.write("a", "a1");
    assert!(is_held(ada.check_in(&[])));
    assert_eq!(bob.check_in(&[]).unwrap().change, None);
    assert_eq!(ada.commit(), ["*a v2"]);
}

#[test]
fn kept_leases_stay_and_so_do_those_of_open_writers() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.write_new("a", "a1");
    ada.check_in_with(&[], true, None).unwrap();
    assert!(ada.holds("a"));
    ada.write("a", "a2");
    world.catalog.set_writers(ada.checkout, &[ada.writer("a")], ada.actor().now).unwrap();
    ada.commit();
    assert!(ada.holds("a"));
    world.catalog.set_writers(ada.checkout, &[], ada.actor().now).unwrap();
    ada.check_in(&["a"]).unwrap();
    assert!(!ada.holds("a"), "a lease without a draft is released with its path");
}

#[test]
fn bytes_that_are_not_in_the_store_are_refused() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.write_new("a", "a1");
    ada.commit();
    ada.try_write("a", Content::Staged("s.1.2.1.t".into())).unwrap();
    assert!(matches!(ada.check_in(&[]), Err(CatalogError::Unpublished { .. })));
    assert_eq!(world.head_number("a"), 1);
}

#[test]
fn scratch_is_never_checked_in_until_it_is_promoted() {
    let world = world();
    let (ada, bob) = (world.checkout("ada@home"), world.checkout("bob@home"));
    let scratch = ada.write_new("a.tmp", "t");
    assert_eq!(ada.check_in(&[]).unwrap().change, None);
    assert_eq!(world.catalog.scratch_count(ada.checkout).unwrap(), 1);
    world.catalog.promote(&ada.actor(), scratch.artifact).unwrap();
    assert!(ada.holds("a.tmp"));
    let spare = bob.write_new("a.tmp", "other");
    assert!(is_held(world.catalog.promote(&bob.actor(), spare.artifact)));
    assert_eq!(ada.commit(), ["+a.tmp v1"]);
}

#[test]
fn a_name_that_another_checkout_took_meanwhile_is_refused() {
    let world = world();
    let (ada, bob) = (world.checkout("ada@home"), world.checkout("bob@home"));
    ada.write_new("a", "ada");
    assert!(is_held(bob.try_write_new("a", "bob")));
    ada.sleep();
    bob.write_new("a", "bob");
    assert!(is_held(ada.check_in(&[])), "bob has the name reserved");
    let mine = ada.get("a").unwrap().artifact;
    let acquired = || world.catalog.acquire(&ada.actor(), &[(mine, None)]);
    assert!(is_held(acquired()), "and so has ada's next write");
    bob.commit();
    assert!(is_stale(acquired()));
    assert!(is_stale(ada.check_in(&[])));
    assert_eq!(world.head("a").unwrap().content, blob("bob"));
    assert_eq!(ada.get("a").unwrap().content, blob("ada"), "the draft stays");
}

#[test]
fn moves_of_two_checkouts_never_make_a_cycle() {
    let world = world();
    let (ada, bob) = (world.checkout("ada@home"), world.checkout("bob@home"));
    ada.mkdir("a");
    ada.mkdir("b");
    ada.commit();
    ada.mv("a", "b/a");
    ada.sleep();
    bob.mv("b", "a/b");
    bob.commit();
    assert!(matches!(ada.check_in(&[]), Err(CatalogError::Cycle { .. })));
    assert_eq!(world.tree(), ["a", "a/b"]);
}

#[test]
fn an_exchange_of_a_file_and_a_directory_goes_together() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.mkdir("d");
    ada.write_new("d/x", "x1");
    ada.write_new("f", "f1");
    ada.commit();
    ada.exchange("d", "f");
    assert_eq!(describe(&ada.check_in(&["f"]).unwrap()), ["f>d", "d>f"]);
    assert_eq!(world.tree(), ["d", "f", "f/x"]);
    assert_eq!(ada.drafts(), 0);
}

#[test]
fn a_file_that_becomes_a_directory_replaces_the_artifact() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.write_new("x", "x1");
    ada.commit();
    ada.unlink("x");
    ada.mkdir("x");
    ada.write_new("x/y", "y1");
    let mut done = describe(&ada.check_in(&["x/y"]).unwrap());
    done.sort();
    assert_eq!(done, ["+x v1", "+x/y v1", "-x"]);
    assert_eq!(world.tree(), ["x", "x/y"]);
}

#[test]
fn a_removal_says_nothing_about_what_others_put_there_later() {
    let world = world();
    let (ada, bob) = (world.checkout("ada@home"), world.checkout("bob@home"));
    ada.write_new("a", "old");
    ada.commit();
    ada.unlink("a");
    ada.sleep();
    bob.unlink("a");
    bob.commit();
    bob.write_new("a", "new");
    bob.commit();
    assert_eq!(ada.check_in(&[]).unwrap().change, None);
    assert_eq!(ada.get("a").unwrap().content, blob("new"));
    assert_eq!(world.tree(), ["a"]);
}

#[test]
fn a_replacement_says_nothing_about_what_others_put_there_later() {
    let world = world();
    let (ada, bob) = (world.checkout("ada@home"), world.checkout("bob@home"));
    ada.write_new("a", "old");
    ada.commit();
    ada.unlink("a");
    ada.mkdir("a");
    ada.sleep();
    bob.unlink("a");
    bob.commit();
    bob.write_new("a", "new");
    bob.commit();
    assert!(is_stale(ada.check_in(&[])));
    assert_eq!(world.head("a").unwrap().content, blob("new"));
}

#[test]
fn a_draft_stays_in_its_checkout_when_others_delete_its_file() {
    let world = world();
    let (ada, bob) = (world.checkout("ada@home"), world.checkout("bob@home"));
    ada.write_new("a", "a1");
    ada.commit();
    ada.write("a", "a2");
    ada.sleep();
    bob.unlink("a");
    bob.commit();
    assert_eq!(ada.get("a").unwrap().content, blob("a2"));
    assert!(is_stale(ada.check_in(&[])));
    let draft = world.catalog.drafts(ada.checkout).unwrap().remove(0);
    assert!(draft.is_stale() && draft.path == path("a"), "{draft:?}");
    ada.unlink("a");
    assert_eq!((ada.drafts(), world.tree().len()), (0, 0));
}

#[test]
fn a_rename_that_others_overtook_gives_way() {
    let world = world();
    let (ada, bob) = (world.checkout("ada@home"), world.checkout("bob@home"));
    ada.write_new("a", "a1");
    ada.commit();
    ada.mv("a", "ada");
    ada.sleep();
    bob.mv("a", "bob");
    bob.commit();
    assert_eq!(ada.tree(), ["bob"]);
    assert_eq!(ada.check_in(&[]).unwrap().change, None);
}

#[test]
fn a_partial_check_in_leaves_the_rest_as_it_was() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.write_new("a", "a1");
    ada.write_new("b", "b1");
    ada.commit();
    ada.unlink("a");
    ada.mv("b", "c");
    ada.write_new("a", "a2");
    assert_eq!(ada.get("a").unwrap().id, world.head("a").unwrap().id);
    assert_eq!(describe(&ada.check_in(&["a"]).unwrap()), ["*a v2"]);
    assert_eq!(world.tree(), ["a", "b"]);
    assert_eq!(ada.tree(), ["a", "c"]);
    assert_eq!(describe(&ada.check_in(&["c"]).unwrap()), ["b>c"]);
}

#[test]
fn revert_gives_everything_back() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.mkdir("d");
    ada.write_new("d/a", "a1");
    ada.write_new("b", "b1");
    ada.commit();
    let before = ada.tree();
    ada.write("b", "b2");
    ada.mv("d", "e");
    ada.unlink("e/a");
    ada.mkdir("n");
    ada.write_new("n/x", "x1");
    ada.write_new("n/y~", "scratch");
    ada.mv("b", "n/b");
    world.catalog.revert(&ada.actor(), &[]).unwrap();
    assert_eq!(ada.tree(), before);
    assert_eq!((ada.drafts(), world.count_leases()), (0, 0));
    assert_eq!(world.catalog.scratch_count(ada.checkout).unwrap(), 0);
}

#[test]
fn revert_of_one_path_takes_what_stands_in_its_way() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.write_new("a", "a1");
    ada.write_new("z", "z1");
    ada.commit();
    ada.write("z", "z2");
    ada.unlink("a");
    ada.mkdir("a");
    ada.write_new("a/x", "x1");
    world.catalog.revert(&ada.actor(), &[path("a")]).unwrap();
    assert_eq!(ada.tree(), ["a", "z"]);
    assert_eq!(ada.get("a").unwrap().content, blob("a1"));
    assert_eq!(ada.drafts(), 1);
}

#[test]
fn refused_checks_change_nothing() {
    let world = world();
    let (ada, bob) = (world.checkout("ada@home"), world.checkout("bob@home"));
    ada.write_new("a", "a1");
    ada.write_new("b", "b1");
    ada.commit();
    ada.write("a", "a2");
    ada.write("b", "b2");
    ada.sleep();
    bob.write("b", "bob");
    assert!(is_held(ada.check_in(&[])));
    assert_eq!((world.head_number("a"), ada.drafts()), (1, 2));
    assert_eq!(world.catalog.head_change().unwrap().0, 1);
    assert!(is_held(ada.try_rename("b", "c", RenameMode::Replace)));
}

#[test]
fn an_ambiguous_file_in_a_scratch_directory_stays_scratch() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.mkdir("d.tmp");
    let inside = ada.write_new("d.tmp/4913?", "x");
    let outside = ada.write_new("4913?", "x");
    let found = world.catalog.settled_provisional(ada.checkout, ada.actor().now.wall).unwrap();
    assert_eq!(found, [outside.artifact]);
    assert_ne!(inside.artifact, outside.artifact);
}

#[test]
fn a_name_that_gives_way_goes_on_hiding_what_it_hid() {
    let world = world();
    let (ada, bob) = (world.checkout("ada@home"), world.checkout("bob@home"));
    ada.mkdir("a");
    ada.mkdir("a/b");
    ada.mkdir("c");
    ada.commit();
    ada.exchange("a/b", "c");
    ada.sleep();
    bob.mv("c", "d");
    bob.commit();
    assert_eq!(ada.tree(), ["a", "c", "d"]);
    ada.world.catalog.revert(&ada.actor(), &[path("c")]).unwrap();
    assert_eq!(ada.tree(), world.tree());
}
