//! Access rules as rows: who may change them, what is noted, and what they refuse in other transactions.

use std::sync::Arc;

use super::support::*;
use crate::catalog::{Actor, CatalogError, CheckIn};
use crate::model::{AccessGlob, Grant, Identity, Principal, Role, Seq, Timestamp};

fn glob(text: &str) -> AccessGlob {
    AccessGlob::new(text).unwrap()
}

fn principal(name: &str) -> Principal {
    name.parse().unwrap()
}

fn user(name: &str) -> Identity {
    Identity { principal: principal(name), superuser: false, owns_files: false }
}

fn grant(name: &str, role: Role, on: &str) -> Grant {
    Grant { principal: principal(name), role, glob: glob(on) }
}

const AT: Timestamp = Timestamp(7);

/// Each change is a row, an event, and a step of the counter that mounts look at; what changes nothing is none.
#[test]
fn each_change_is_counted_and_told() {
    let world = world();
    let catalog = &world.catalog;
    catalog.begin_access(&principal("ada"), AT, false).unwrap();
    let ada = user("ada");
    assert!(catalog.restrict_access(&ada, AT, &glob("hr/**")).unwrap());
    assert!(!catalog.restrict_access(&ada, AT, &glob("hr/**")).unwrap(), "it is already");
    catalog.grant_access(&ada, AT, &grant("bob", Role::Viewer, "hr/**")).unwrap();
    catalog.grant_access(&ada, AT, &grant("bob", Role::Editor, "hr/**")).unwrap();
    let rules = catalog.access_records().unwrap();
    assert_eq!(rules.grants.len(), 2, "a role replaces the one on the same glob");
    assert_eq!((rules.grants[1].by.as_str(), rules.grants[1].at), ("ada", AT));
    let revoked = catalog.revoke_access(&ada, AT, &principal("bob"), None).unwrap();
    assert_eq!(revoked, [grant("bob", Role::Editor, "hr/**")]);
    assert!(catalog.unrestrict_access(&ada, AT, &glob("hr/**")).unwrap());
    assert!(!catalog.unrestrict_access(&ada, AT, &glob("hr/**")).unwrap());
    let events = catalog.events(0, 100).unwrap();
    let told: Vec<_> = events.iter().map(|event| (event.kind.as_str(), event.detail.as_str())).collect();
    assert_eq!(
        told,
        [
            ("access-restricted", "hr/**"),
            ("access-granted", "viewer to bob on hr/**"),
            ("access-granted", "editor to bob on hr/**"),
            ("access-revoked", "editor from bob on hr/**"),
            ("access-unrestricted", "hr/**"),
        ]
    );
    assert!(events.iter().all(|event| event.holder.as_ref().is_some_and(|by| by.as_str() == "ada")));
    assert_eq!(catalog.access_counter().unwrap(), 5);
}

/// Only owners change rules, and nothing takes the last owner of everything away: not a revocation, not a lower role.
#[test]
fn the_last_owner_stays() {
    let world = world();
    let catalog = &world.catalog;
    catalog.begin_access(&principal("ada"), AT, false).unwrap();
    let (ada, bob, root) = (user("ada"), user("bob"), Identity::root());
    for by in [&ada, &root] {
        let lowered = catalog.grant_access(by, AT, &grant("ada", Role::Viewer, "**"));
        assert!(matches!(lowered, Err(CatalogError::LastOwner)));
        let revoked = catalog.revoke_access(by, AT, &principal("ada"), None);
        assert!(matches!(revoked, Err(CatalogError::LastOwner)));
    }
    let by_bob = catalog.grant_access(&bob, AT, &grant("bob", Role::Owner, "x/**"));
    assert!(matches!(by_bob, Err(CatalogError::NotOwner { glob }) if glob == "x/**"));
    let by_bob = catalog.revoke_access(&bob, AT, &principal("ada"), Some(&glob("**")));
    assert!(matches!(by_bob, Err(CatalogError::NotOwner { .. })));
    assert!(matches!(catalog.restrict_access(&bob, AT, &glob("x")), Err(CatalogError::NotOwner { .. })));
    let nobodys = catalog.revoke_access(&ada, AT, &principal("eve"), Some(&glob("x")));
    assert!(matches!(nobodys, Err(CatalogError::NotFound)));
    assert_eq!((catalog.events(0, 100).unwrap().len(), catalog.access_counter().unwrap()), (0, 0));
    catalog.grant_access(&ada, AT, &grant("bob", Role::Owner, "**")).unwrap();
    catalog.revoke_access(&bob, AT, &principal("ada"), None).unwrap();
}

/// In a workspace that nobody owns, as those of before, whose files it is owns it.
#[test]
fn the_files_owner_owns_what_nobody_owns() {
    let world = world();
    let catalog = &world.catalog;
    let ada = Identity { owns_files: true, ..user("ada") };
    assert!(matches!(
        catalog.restrict_access(&user("bob"), AT, &glob("x")),
        Err(CatalogError::NotOwner { .. })
    ));
    assert!(catalog.restrict_access(&ada, AT, &glob("x")).unwrap());
    catalog.grant_access(&ada, AT, &grant("bob", Role::Owner, "**")).unwrap();
    assert!(matches!(catalog.restrict_access(&ada, AT, &glob("y")), Err(CatalogError::NotOwner { .. })));
}

/// Where the rules are lost, all is hidden from everybody but the owner until he says otherwise.
#[test]
fn lost_rules_hide_everything() {
    let world = world();
    world.catalog.begin_access(&principal("ada"), AT, true).unwrap();
    let rules = world.catalog.access_records().unwrap().rules();
    let role = |who: &str| user(who).rights(&rules).role(&path("x"));
    assert_eq!((role("ada"), role("bob")), (Some(Role::Owner), None));
}

/// An artifact is judged by both of its places; what was never checked in stands where its directory does.
#[test]
fn places_are_those_of_checkout_and_head() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.mkdir("d");
    let old = ada.write_new("d/old", "1");
    ada.commit();
    ada.mv("d", "e");
    let new = ada.write_new("e/new", "2");
    let places = |artifact: Seq| world.catalog.places_of(ada.checkout, artifact).unwrap();
    assert_eq!(places(old.artifact), [path("e/old"), path("d/old")]);
    assert_eq!(places(new.artifact), [path("e/new"), path("d/new")]);
    assert_eq!(places(Seq::ROOT), [path("."), path(".")]);
    let mut below = world.catalog.all_below(ada.checkout, ada.get("e").unwrap().artifact).unwrap();
    below.sort_unstable();
    assert_eq!(below, [old.artifact, new.artifact]);
}

/// Check-ins and leases compare the rules in their own transactions: what was allowed before counts no more.
#[test]
fn rules_are_compared_where_they_count() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.mkdir("d");
    let doc = ada.write_new("d/doc", "1");
    ada.commit();
    let catalog = &world.catalog;
    let actor = Actor { identity: Arc::new(user("ada")), ..ada.actor() };
    catalog.acquire(&actor, &[(doc.artifact, None)]).unwrap();
    ada.write("d/doc", "2");
    ada.mv("d", "e");
    catalog.restrict_access(&Identity::root(), AT, &glob("d/doc")).unwrap();
    let everything = CheckIn { message: "x".into(), ..CheckIn::default() };
    let denied = |refused: crate::catalog::Result<()>| matches!(refused, Err(CatalogError::Denied { .. }));
    assert!(denied(catalog.check_in(&actor, &everything).map(drop)));
    assert!(denied(catalog.acquire(&actor, &[(doc.artifact, None)]).map(drop)));
    assert!(denied(catalog.acquire_whole(&actor, &[doc.artifact]).map(drop)));
    // The directory alone would take the document along.
    let dir = CheckIn { paths: vec![path("e")], message: "x".into(), ..CheckIn::default() };
    assert!(denied(catalog.check_in(&actor, &dir).map(drop)));
    catalog.grant_access(&Identity::root(), AT, &grant("ada", Role::Editor, "d/doc")).unwrap();
    assert_eq!(catalog.check_in(&actor, &everything).unwrap().items.len(), 2);
}

/// A refusal doesn't name what its reader may not see.
#[test]
fn refusals_name_nothing_hidden() {
    let world = world();
    let (ada, bob) = (world.checkout("ada@home"), world.checkout("bob@home"));
    ada.mkdir("d");
    ada.commit();
    ada.rmdir("d");
    ada.sleep();
    bob.write_new("d/pay", "1");
    bob.commit();
    world.catalog.restrict_access(&Identity::root(), AT, &glob("pay")).unwrap();
    let told = |who: Identity| {
        let actor = Actor { identity: Arc::new(who), ..ada.actor() };
        let everything = CheckIn { message: "x".into(), ..CheckIn::default() };
        world.catalog.check_in(&actor, &everything).unwrap_err().to_string()
    };
    assert!(told(Identity::root()).contains("d/pay is still there"));
    let hidden = told(user("ada"));
    assert!(hidden.contains("something is still there") && !hidden.contains("pay"), "{hidden}");
}
