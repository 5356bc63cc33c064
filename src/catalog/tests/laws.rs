//! Laws that hold whatever two people do to one tree, found out by random histories.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::support::*;
use crate::catalog::{CatalogError, RenameMode, Result};
use crate::model::{CheckoutId, Kind, Seq};

/// One step; names are drawn from few, so that steps meet.
#[derive(Debug, Clone)]
enum Step {
    Create(String),
    MakeDir(String),
    Write(String),
    Unlink(String),
    RemoveDir(String),
    Rename(String, String, bool),
    CheckIn(Option<String>),
    Revert(Option<String>),
    LetLeasesEnd,
}

fn any_path() -> impl Strategy<Value = String> {
    let name = prop_oneof![Just("a"), Just("b"), Just("c"), Just("t~")];
    proptest::collection::vec(name, 1..=3).prop_map(|names| names.join("/"))
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => any_path().prop_map(Step::Create),
        3 => any_path().prop_map(Step::MakeDir),
        2 => any_path().prop_map(Step::Write),
        2 => any_path().prop_map(Step::Unlink),
        2 => any_path().prop_map(Step::RemoveDir),
        5 => (any_path(), any_path(), any::<bool>()).prop_map(|(from, to, swap)| Step::Rename(from, to, swap)),
        3 => proptest::option::of(any_path()).prop_map(Step::CheckIn),
        1 => proptest::option::of(any_path()).prop_map(Step::Revert),
        1 => Just(Step::LetLeasesEnd),
    ]
}

/// What a call refused is fine; what failed inside is not.
fn allowed<T>(result: Result<T>) -> std::result::Result<Option<T>, TestCaseError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error @ (CatalogError::Sqlite { .. } | CatalogError::Open { .. } | CatalogError::BadTtl)) => {
            Err(TestCaseError::fail(format!("{error:?}")))
        }
        Err(_) => Ok(None),
    }
}

/// Whether a call that names this path would reach the catalog at all: the kernel has walked to its directory.
fn has_dir(person: &Person, at: &str) -> bool {
    let dir = person.get(&path(at).parent().unwrap().to_path_buf().display().to_string());
    dir.is_some_and(|dir| dir.kind == Kind::Directory)
}

fn rename(person: &Person, from: &str, to: &str, swap: bool) -> std::result::Result<(), TestCaseError> {
    // The kernel refuses to move a directory into itself (renameat2(2), EINVAL).
    if !has_dir(person, from) || !has_dir(person, to) || to.starts_with(from) || from.starts_with(to) {
        return Ok(());
    }
    let mode = if swap { RenameMode::Exchange } else { RenameMode::Replace };
    allowed(person.try_rename(from, to, mode)).map(drop)
}

fn run(person: &Person, step: &Step) -> std::result::Result<(), TestCaseError> {
    let (catalog, actor) = (&person.world.catalog, person.actor());
    match step {
        Step::Create(at) if has_dir(person, at) => allowed(person.try_write_new(at, "new")).map(drop),
        Step::MakeDir(at) if has_dir(person, at) => allowed(person.try_mkdir(at)).map(drop),
        Step::Write(at) if person.get(at).is_some_and(|entry| entry.kind == Kind::File) => {
            allowed(person.try_write(at, blob(&format!("{}", person.world.next())))).map(drop)
        }
        Step::Unlink(at) if has_dir(person, at) => {
            allowed(catalog.unlink(&actor, &person.place(at))).map(drop)
        }
        Step::RemoveDir(at) if has_dir(person, at) => {
            allowed(catalog.rmdir(&actor, &person.place(at))).map(drop)
        }
        Step::Rename(from, to, swap) => rename(person, from, to, *swap),
        Step::CheckIn(None) => {
            if allowed(person.check_in(&[]))?.is_some() {
                prop_assert_eq!(person.drafts(), 0);
                prop_assert_eq!(documents(person), person.world.tree());
            }
            Ok(())
        }
        Step::CheckIn(Some(at)) => allowed(person.check_in(&[at])).map(drop),
        Step::Revert(None) => {
            let reverted = allowed(catalog.revert(&actor, &[]))?;
            prop_assert!(reverted.is_some(), "everything can be reverted");
            prop_assert_eq!(documents(person), person.world.tree());
            Ok(())
        }
        Step::Revert(Some(at)) => allowed(catalog.revert(&actor, &[path(at)])).map(drop),
        Step::LetLeasesEnd => {
            person.sleep();
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The tree of a checkout without its scratch.
fn documents(person: &Person) -> Vec<String> {
    let mut tree = person.tree();
    tree.retain(|at| {
        let mut above = path(at);
        loop {
            let entry = person.world.catalog.resolve(person.checkout, &above).unwrap().unwrap();
            if entry.scratch != crate::model::Scratch::No {
                return false;
            }
            match above.parent() {
                Some(parent) if !parent.is_root() => above = parent,
                _ => return true,
            }
        }
    });
    tree
}

/// Every artifact of a view has one name, and all ways to ask for it agree.
fn assert_is_a_tree(world: &World, checkout: CheckoutId) -> std::result::Result<(), TestCaseError> {
    let mut seen = BTreeMap::new();
    let mut dirs = vec![(Seq::ROOT, path("."))];
    while let Some((dir, at)) = dirs.pop() {
        for entry in world.catalog.children(checkout, dir, Seq(0), 1_000).unwrap() {
            let here = at.join(entry.name.clone());
            let before = seen.insert(entry.artifact, here.clone());
            prop_assert!(before.is_none(), "{here} and {before:?} are one artifact");
            let found = world.catalog.resolve(checkout, &here).unwrap();
            prop_assert_eq!(found.as_ref(), Some(&entry), "{} by its path", here);
            let again = world.catalog.entry_of(checkout, entry.artifact).unwrap();
            prop_assert_eq!(again.as_ref(), Some(&entry), "{} by its artifact", here);
            prop_assert_eq!(world.catalog.path_of(checkout, entry.artifact).unwrap(), Some(here.clone()));
            if entry.kind == Kind::Directory {
                dirs.push((entry.artifact, here));
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_view_is_a_tree_and_check_in_and_revert_leave_nothing_behind(
        steps in proptest::collection::vec((any::<bool>(), any_step()), 1..60),
    ) {
        let world = world();
        let people = [world.checkout("ada@home"), world.checkout("bob@home")];
        for (who, step) in steps {
            run(&people[usize::from(who)], &step)?;
            for person in &people {
                assert_is_a_tree(&world, person.checkout)?;
            }
            assert_is_a_tree(&world, CheckoutId(0))?;
        }
        for person in &people {
            run(person, &Step::Revert(None))?;
        }
    }
}
