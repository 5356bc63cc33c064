//! Laws that hold whatever two people do to one tree, found out by random histories.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::support::*;
use crate::catalog::{CatalogError, RenameMode, Result};
use crate::model::{CheckoutId, Kind, Seq};

/// A path, by what the checkout has when the step is run: an entry of its tree, or a name in one of its directories.
#[derive(Debug, Clone)]
enum At {
    Entry(usize),
    Name(usize, &'static str),
}

impl At {
    fn path(&self, person: &Person) -> String {
        let tree = person.tree();
        match self {
            Self::Entry(number) if !tree.is_empty() => tree[number % tree.len()].clone(),
            Self::Entry(_) => "a".to_owned(),
            Self::Name(number, name) => {
                let is_dir = |at: &&String| person.get(at).unwrap().kind == Kind::Directory;
                let dirs: Vec<&String> = tree.iter().filter(is_dir).collect();
                match number % (dirs.len() + 1) {
                    0 => (*name).to_owned(),
                    number => format!("{}/{name}", dirs[number - 1]),
                }
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Create(At),
    MakeDir(At),
    Write(At),
    Unlink(At),
    RemoveDir(At),
    Rename(At, At, bool),
    CheckIn(Option<At>),
    Revert(Option<At>),
    LetLeasesEnd,
}

fn name() -> impl Strategy<Value = At> {
    // Few names, so that steps meet; one is scratch.
    let names = prop_oneof![3 => Just("a"), 3 => Just("b"), 2 => Just("c"), 1 => Just("t~")];
    (0..100_usize, names).prop_map(|(number, name)| At::Name(number, name))
}

fn entry() -> impl Strategy<Value = At> {
    (0..100_usize).prop_map(At::Entry)
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => name().prop_map(Step::Create),
        3 => name().prop_map(Step::MakeDir),
        2 => entry().prop_map(Step::Write),
        3 => entry().prop_map(Step::Unlink),
        2 => entry().prop_map(Step::RemoveDir),
        4 => (entry(), name(), any::<bool>()).prop_map(|(from, to, swap)| Step::Rename(from, to, swap)),
        2 => (entry(), entry(), any::<bool>()).prop_map(|(from, to, swap)| Step::Rename(from, to, swap)),
        3 => proptest::option::of(entry()).prop_map(Step::CheckIn),
        1 => proptest::option::of(entry()).prop_map(Step::Revert),
        2 => Just(Step::LetLeasesEnd),
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

fn rename(person: &Person, from: &str, to: &str, swap: bool) -> std::result::Result<(), TestCaseError> {
    // The kernel refuses to move a directory into itself (renameat2(2), EINVAL).
    let (old, new) = (path(from), path(to));
    if new.is_within(&old) || old.is_within(&new) {
        return Ok(());
    }
    let mode = if swap { RenameMode::Exchange } else { RenameMode::Replace };
    allowed(person.try_rename(from, to, mode)).map(drop)
}

fn run(person: &Person, step: &Step) -> std::result::Result<(), TestCaseError> {
    let (catalog, actor) = (&person.world.catalog, person.actor());
    match step {
        Step::Create(at) => allowed(person.try_write_new(&at.path(person), "new")).map(drop),
        Step::MakeDir(at) => allowed(person.try_mkdir(&at.path(person))).map(drop),
        Step::Write(at) => write(person, &at.path(person)),
        Step::Unlink(at) => allowed(catalog.unlink(&actor, &person.place(&at.path(person)))).map(drop),
        Step::RemoveDir(at) => allowed(catalog.rmdir(&actor, &person.place(&at.path(person)))).map(drop),
        Step::Rename(from, to, swap) => rename(person, &from.path(person), &to.path(person), *swap),
        Step::CheckIn(None) => {
            if allowed(person.check_in(&[]))?.is_some() {
                prop_assert_eq!(person.drafts(), 0);
                prop_assert_eq!(documents(person), person.world.tree());
            }
            Ok(())
        }
        Step::CheckIn(Some(at)) => allowed(person.check_in(&[&at.path(person)])).map(drop),
        Step::Revert(None) => {
            let reverted = allowed(catalog.revert(&actor, &[]))?;
            prop_assert!(reverted.is_some(), "everything can be reverted");
            prop_assert_eq!(documents(person), person.world.tree());
            Ok(())
        }
        Step::Revert(Some(at)) => allowed(catalog.revert(&actor, &[path(&at.path(person))])).map(drop),
        Step::LetLeasesEnd => {
            person.sleep();
            Ok(())
        }
    }
}

fn write(person: &Person, at: &str) -> std::result::Result<(), TestCaseError> {
    match person.get(at) {
        Some(entry) if entry.kind == Kind::File => {
            allowed(person.try_write(at, blob(&person.world.next().to_string()))).map(drop)
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
