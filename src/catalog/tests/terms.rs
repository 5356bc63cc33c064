//! What policy makes of leases where more than one name is at stake.

use super::support::*;
use crate::catalog::{CatalogError, RenameMode};

fn is_held<T>(result: Result<T, CatalogError>) -> bool {
    matches!(result, Err(CatalogError::Held { .. }))
}

/// A directory goes by the terms for its own path, whatever those below it are: with `warn` it moves though somebody
/// else holds something below, takes no lease that would stand for that, and both are told.
#[test]
fn a_directory_goes_by_the_terms_for_its_own_path() {
    let cases = [
        ("", true, 0),
        ("[[rule]]\npaths = ['d/**']\non_conflict = 'warn'", true, 0),
        ("[[rule]]\npaths = ['d']\non_conflict = 'warn'", false, 2),
        ("[[rule]]\npaths = ['d']\nlease = 'none'", false, 0),
    ];
    for (policy, refused, told) in cases {
        let world = world();
        let (ada, bob) = (world.checkout("ada@home"), world.checkout("bob@home"));
        ada.mkdir("d");
        ada.write_new("d/a", "a1");
        ada.commit();
        bob.write("d/a", "bob's");
        world.set_policy(policy);
        assert_eq!(is_held(ada.try_rename("d", "e", RenameMode::Replace)), refused, "{policy}");
        assert!(bob.holds("d/a") && !ada.holds("d/a"), "{policy}");
        assert_eq!(world.count_leases(), 1, "{policy}");
        let events = world.catalog.events(0, 100).unwrap();
        assert_eq!(events.iter().filter(|event| event.kind == "lease-conflict").count(), told, "{policy}");
    }
}

/// A new name is reserved on the terms for it; where they want none, or only warn, somebody else may take it too, and the
/// first check-in has it.
#[test]
fn a_name_is_reserved_on_the_terms_for_it() {
    for (policy, refused, leases) in [
        ("[[rule]]\npaths = ['other']\nlease = 'none'", true, 1),
        ("[[rule]]\npaths = ['new']\nlease = 'none'", false, 0),
        ("[[rule]]\npaths = ['new']\non_conflict = 'warn'", false, 2),
    ] {
        let world = world();
        let (ada, bob) = (world.checkout("ada@home"), world.checkout("bob@home"));
        world.set_policy(policy);
        ada.write_new("new", "ada's");
        assert_eq!(is_held(bob.try_write_new("new", "bob's")), refused, "{policy}");
        assert_eq!(world.count_leases(), leases, "{policy}");
        assert_eq!(ada.commit(), ["+new v1"], "{policy}");
        if !refused {
            assert!(matches!(bob.check_in(&[]), Err(CatalogError::Stale { .. })), "{policy}");
        }
    }
}

/// Scratch that becomes a document, and a document that moves to a name under other terms, take what those say.
#[test]
fn what_comes_to_a_name_goes_by_its_terms() {
    let world = world();
    let ada = world.checkout("ada@home");
    world.set_policy("[[rule]]\npaths = ['free', 'x?']\nlease = 'none'");
    let scratch = ada.write_new("x?", "scratch");
    world.catalog.promote(&ada.actor(), scratch.artifact).unwrap();
    assert_eq!(world.count_leases(), 0);
    ada.write_new("a", "a1");
    ada.commit();
    ada.mv("a", "free");
    ada.write("free", "a2");
    assert!(ada.holds("free"), "until it is checked in it is governed where everybody has it");
    ada.commit();
    ada.write("free", "a3");
    assert!(!ada.holds("free"));
    assert_eq!(ada.commit(), ["*free v3"]);
}
