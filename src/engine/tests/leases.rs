use super::support::*;
use crate::catalog::{Mounting, Unsaved};
use crate::engine::{
    Acquisition, Admission, BlockedBy, Conflict, LeaseError, LeaseFilter, LeaseResult, Resource,
};
use crate::model::{Holder, IntentPattern, ResourceKey};
use crate::sys::{self, ProcessKey};

fn holder(text: &str) -> Holder {
    text.parse().unwrap()
}

fn key(text: &str) -> Resource {
    Resource::Key(text.parse().unwrap())
}

fn file(text: &str) -> Resource {
    Resource::Path(path(text))
}

impl Desk {
    fn take(&self, who: &str, resources: Vec<Resource>) -> LeaseResult<Admission> {
        let ttl_ms = Some(1_000);
        self.workspace.acquire(&Acquisition { ttl_ms, ..Acquisition::of(&holder(who), resources) })
    }

    fn kinds_after(&self, after: i64) -> Vec<String> {
        self.workspace.events(after, 100).unwrap().into_iter().map(|named| named.event.kind).collect()
    }

    fn key_of(&self, at: &str) -> ResourceKey {
        self.workspace.key_of(&path(at), &holder("ada@home")).unwrap()
    }

    fn rows(&self) -> Vec<(String, String, i64)> {
        let leases = self.workspace.leases(&LeaseFilter::default()).unwrap();
        let row = |status: crate::engine::LeaseStatus| {
            let lease = status.lease;
            (lease.key.to_string(), lease.holder.to_string(), lease.generation.0)
        };
        leases.into_iter().map(row).collect()
    }
}

fn blockers(result: LeaseResult<Admission>) -> Vec<BlockedBy> {
    match result {
        Err(LeaseError::Busy { blockers }) => blockers,
        other => panic!("not busy: {other:?}"),
    }
}

/// One artifact: the three calls of the library, and their three refusals.
#[test]
fn an_artifact_is_leased_read_and_released() {
    let desk = desk();
    desk.import(&["a"]);
    let ResourceKey::Artifact(id) = desk.key_of("a") else { panic!("an artifact") };
    let (ada, bob) = (holder("ada@home"), holder("bob@home"));
    let workspace = &desk.workspace;
    assert_eq!(workspace.artifact_lease(id).unwrap(), None);
    let lease = workspace.lease_artifact(id, &ada, 1_000).unwrap();
    assert_eq!(workspace.artifact_lease(id).unwrap(), Some(lease.clone()));
    let refused = workspace.lease_artifact(id, &bob, 1_000);
    assert!(matches!(refused, Err(LeaseError::ArtifactBusy { lease: Some(by) }) if *by == lease));
    workspace.release_artifact(id, &bob).unwrap();
    assert!(workspace.artifact_lease(id).unwrap().is_some(), "not his to give back");
    for ttl_ms in [0, -1, i64::MIN, i64::MAX] {
        let refused = workspace.lease_artifact(id, &ada, ttl_ms);
        assert!(matches!(refused, Err(LeaseError::ValidationFailed(_))), "{ttl_ms}");
    }
    let unknown = crate::model::ArtifactId(uuid::Uuid::from_u128(7));
    assert!(matches!(workspace.lease_artifact(unknown, &ada, 1), Err(LeaseError::NotFound(_))));
    assert!(matches!(workspace.artifact_lease(unknown), Err(LeaseError::NotFound(_))));
    desk.clock.advance_ms(999);
    assert!(workspace.lease_artifact(id, &bob, 1_000).is_err(), "a millisecond before its end");
    desk.clock.advance_ms(1);
    assert_eq!(workspace.artifact_lease(id).unwrap(), None);
    let next = workspace.lease_artifact(id, &bob, 1_000).unwrap();
    assert!(next.generation > lease.generation);
}

/// A set of which one resource is busy grants nothing, tells nothing, and names every blocker.
#[test]
fn a_refused_set_changes_nothing() {
    let desk = desk();
    desk.import(&["a", "d/b"]);
    desk.take("bob@home", vec![key("thread:1"), file("d/b")]).unwrap();
    let (rows, events) = (desk.rows(), desk.workspace.newest_event().unwrap());
    let set = vec![key("task:x"), file("a"), key("thread:1"), file("d")];
    let refused = blockers(desk.take("ada@home", set));
    let named: Vec<_> = refused.iter().map(|b| (b.object(), b.conflict, b.lease.as_ref().unwrap())).collect();
    assert_eq!(named.len(), 2, "{named:?}");
    for (at, object) in [(0, "thread:1"), (1, "d/b")] {
        let (named, conflict, lease) = &named[at];
        assert_eq!((named.as_str(), *conflict, lease.holder.as_str()), (object, Conflict::Held, "bob@home"));
    }
    assert_eq!((desk.rows(), desk.workspace.newest_event().unwrap()), (rows, events));
    let taken = desk.take("ada@home", vec![key("task:x"), file("a")]).unwrap();
    assert_eq!(desk.kinds_after(events), ["granted", "granted"]);
    let generations: Vec<_> = taken.granted.iter().map(|granted| granted.lease.generation).collect();
    assert!(generations.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(matches!(desk.take("ada@home", vec![]), Err(LeaseError::ValidationFailed(_))));
    let twice = desk.take("ada@home", vec![file("a"), file("a")]);
    assert!(matches!(twice, Err(LeaseError::ValidationFailed(_))));
    assert!(matches!(desk.take("ada@home", vec![file("none")]), Err(LeaseError::NotFound(_))));
}

/// A repeated request is evidence, not permission: it extends nothing, and tells how its leases stand.
#[test]
fn a_repeated_request_gets_its_answer_again() {
    let desk = desk();
    desk.import(&["a"]);
    let request = Acquisition {
        id: Some("r-1".parse().unwrap()),
        ttl_ms: Some(1_000),
        ..Acquisition::of(&holder("ada@home"), vec![key("thread:1"), file("a"), key("intent:src/**")])
    };
    let first = desk.workspace.acquire(&request).unwrap();
    desk.clock.advance_ms(500);
    let events = desk.workspace.newest_event().unwrap();
    let again = desk.workspace.acquire(&request).unwrap();
    assert!(again.replayed && !first.replayed);
    assert_eq!(again.granted, first.granted, "extends nothing");
    let elsewhere = Acquisition { resources: vec![key("thread:2")], ..request.clone() };
    assert!(matches!(desk.workspace.acquire(&elsewhere), Err(LeaseError::RequestReused(_))));
    let another = Acquisition { holder: holder("bob@home"), ..request.clone() };
    assert!(matches!(desk.workspace.acquire(&another), Err(LeaseError::RequestReused(_))));
    desk.clock.advance_ms(600);
    desk.take("bob@home", vec![key("thread:1")]).unwrap();
    let late = desk.workspace.acquire(&request).unwrap();
    assert!(late.replayed && late.granted.iter().all(|granted| !granted.live));
    assert_eq!(late.granted[0].lease.holder, holder("ada@home"), "his own, as it was");
    assert_eq!(desk.kinds_after(events), ["granted"], "bob's alone");
    // A refused request leaves nothing behind, so that it can be made again.
    let busy = Acquisition { id: Some("r-2".parse().unwrap()), ..another };
    assert!(desk.workspace.acquire(&busy).is_ok());
    let busy = Acquisition { id: Some("r-3".parse().unwrap()), ..request };
    assert_eq!(blockers(desk.workspace.acquire(&busy)).len(), 3);
    desk.clock.advance_ms(2_000);
    assert!(!desk.workspace.acquire(&busy).unwrap().replayed);
}

/// Renewal extends what lives, keeps its generation, and takes nothing that ended again.
#[test]
fn only_live_leases_are_renewed() {
    let desk = desk();
    let (ada, keys) = (holder("ada@home"), ["thread:1", "intent:a/**"].map(|k| k.parse().unwrap()));
    let taken = desk.take("ada@home", vec![key("thread:1"), key("intent:a/**")]).unwrap();
    let renewed = desk.workspace.renew(&keys, &ada, Some(5_000)).unwrap();
    for (before, after) in taken.granted.iter().zip(&renewed) {
        assert_eq!(before.lease.generation, after.generation);
        assert_eq!(after.expires_boot_ms, before.lease.expires_boot_ms + 4_000);
    }
    let shorter = desk.workspace.renew(&keys, &ada, Some(10)).unwrap();
    assert!(shorter[0].expires_boot_ms < renewed[0].expires_boot_ms, "a renewal may shorten");
    desk.clock.advance_ms(10);
    let events = desk.workspace.newest_event().unwrap();
    let lost = desk.workspace.renew(&keys, &ada, Some(10)).unwrap_err();
    assert!(matches!(&lost, LeaseError::NotHeld { keys } if keys.len() == 2), "{lost}");
    assert!(desk.kinds_after(events).is_empty());
    desk.take("bob@home", vec![key("thread:1")]).unwrap();
    let LeaseError::NotHeld { keys } = desk.workspace.renew(&keys[..1], &ada, None).unwrap_err() else {
        panic!("not his")
    };
    assert_eq!(keys[0].1.as_ref().unwrap().holder, holder("bob@home"));
}

/// Intents of two in one checkout refuse each other; those of two checkouts warn; leases below an intent warn.
#[test]
fn intents_warn_elsewhere_and_refuse_here() {
    let desk = desk();
    desk.import(&["src/auth/x", "src/authz/x"]);
    let intent = |who: &str, checkout_of: &str, patterns: &[&str]| {
        let resources = patterns.iter().map(|pattern| key(&format!("intent:{pattern}"))).collect();
        let request = Acquisition {
            checkout_of: holder(checkout_of),
            ttl_ms: Some(1_000),
            ..Acquisition::of(&holder(who), resources)
        };
        desk.workspace.acquire(&request)
    };
    intent("agent-1", "ada@home", &["src/auth/**"]).unwrap();
    let here = blockers(intent("agent-2", "ada@home", &["src/auth/x"]));
    assert_eq!((here[0].conflict, here.len()), (Conflict::IntentHere, 1));
    let beside = intent("agent-2", "ada@home", &["src/authz/**"]).unwrap();
    assert!(beside.warnings.is_empty(), "by components, not by prefix");
    let elsewhere = intent("bob@home", "bob@home", &["src/**"]).unwrap();
    let warned: Vec<_> = elsewhere.warnings.iter().map(|w| w.conflict).collect();
    assert_eq!(warned, [Conflict::IntentElsewhere; 2]);
    let file = desk.take("carl@home", vec![file("src/auth/x")]).unwrap();
    assert_eq!(file.warnings.len(), 2, "{:?}", file.warnings);
    let over_leased = intent("dora@home", "dora@home", &["src/auth/**"]).unwrap();
    assert!(over_leased.warnings.iter().any(|w| w.conflict == Conflict::Held));
    assert_eq!(desk.workspace.intents().unwrap().len(), 4);
    desk.clock.advance_ms(1_000);
    assert!(desk.workspace.intents().unwrap().is_empty());
    assert!(intent("agent-2", "ada@home", &["src/auth/x"]).unwrap().warnings.is_empty(), "ended ones");
}

#[test]
fn a_task_is_one_holders_and_takes_its_intents_along() {
    let desk = desk();
    let begin = |who: &str, paths: &[&str]| {
        let intents = paths.iter().map(|pattern| key(&format!("intent:{pattern}"))).collect();
        let request = Acquisition {
            task: Some("task:T-14".parse().unwrap()),
            checkout_of: holder("ada@home"),
            ..Acquisition::of(&holder(who), intents)
        };
        desk.workspace.acquire(&request)
    };
    begin("agent-1", &["src/auth/**", "doc/x"]).unwrap();
    let refused = blockers(begin("agent-2", &["other/**"]));
    assert_eq!(refused.iter().map(BlockedBy::object).collect::<Vec<_>>(), ["task:T-14"]);
    assert!(desk.workspace.intents().unwrap().iter().all(|intent| intent.pattern.to_string() != "other/**"));
    let task = "task:T-14".parse().unwrap();
    assert!(desk.workspace.end_task(&task, &holder("agent-2")).unwrap().is_empty());
    assert_eq!(desk.workspace.end_task(&task, &holder("agent-1")).unwrap().len(), 3);
    assert!(desk.workspace.intents().unwrap().is_empty());
    begin("agent-2", &["other/**"]).unwrap();
}

/// The mount of a holder, with a file that it is writing.
fn writing<'a>(desk: &'a Desk, process: ProcessKey) -> Person<'a> {
    let ada = desk.person("ada@home");
    ada.write("a", "ada");
    let mounting = Mounting { process, mountpoint: "/mnt".into(), now: desk.workspace.now() };
    desk.workspace.catalog().begin_mount(ada.checkout, &mounting).unwrap();
    let entry = ada.get("a").unwrap();
    let writer = (entry.artifact, entry.generation().unwrap());
    desk.workspace.catalog().set_writers(ada.checkout, &[writer], desk.workspace.now()).unwrap();
    desk.clock.advance_ms(60_001);
    ada
}

/// An ended lease with an open writer is nobody's until the writer is resolved; its old holder may go on.
#[test]
fn an_unresolved_writer_quarantines() {
    let desk = desk();
    desk.import(&["a"]);
    let ada = writing(&desk, sys::this_process().unwrap());
    let refused = blockers(desk.take("bob@home", vec![file("a")]));
    assert_eq!(refused[0].conflict, Conflict::Quarantined);
    let status = desk.workspace.lease(&desk.key_of("a")).unwrap().unwrap();
    assert!(status.quarantined && !status.live);
    let (bob, key) = (holder("bob@home"), desk.key_of("a"));
    desk.workspace.resolve_writer(&key, &bob, Unsaved::Keep).unwrap();
    assert!(matches!(desk.workspace.resolve_writer(&key, &bob, Unsaved::Keep), Err(LeaseError::NotFound(_))));
    let taken = desk.take("bob@home", vec![file("a")]).unwrap();
    assert!(ada.try_write("a", "late").is_err(), "its generation is fenced off");
    desk.workspace.renew(std::slice::from_ref(&key), &bob, None).unwrap();
    desk.workspace.release(std::slice::from_ref(&key), &bob).unwrap();
    let resolved = desk.workspace.events(0, 100).unwrap();
    let resolved = resolved.iter().find(|named| named.event.kind == "resolved").unwrap();
    assert_eq!(resolved.event.holder, Some(ada.holder.clone()));
    assert!(resolved.event.detail.starts_with("by bob@home"), "{}", resolved.event.detail);
    assert!(resolved.event.lease.as_ref().unwrap().generation < taken.granted[0].lease.generation);
}

/// A writer is proven dead by its process number and start time, or by another boot.
#[test]
fn a_dead_writer_holds_nothing_closed() {
    let me = sys::this_process().unwrap();
    let reused = ProcessKey { start_ticks: me.start_ticks + 1, ..me };
    let gone = ProcessKey { pid: u32::MAX / 2, start_ticks: 1 };
    for (process, reboots, free) in
        [(me, false, false), (reused, false, true), (gone, false, true), (me, true, true)]
    {
        let desk = desk();
        desk.import(&["a"]);
        writing(&desk, process);
        if reboots {
            desk.clock.reboot();
        }
        assert_eq!(desk.take("bob@home", vec![file("a")]).is_ok(), free, "{process:?}, rebooted: {reboots}");
    }
}

/// Breaking ends a live lease and its writer; the holder's next save is refused, though nobody else came.
#[test]
fn a_broken_lease_fences_its_holder() {
    let desk = desk();
    desk.import(&["a"]);
    let (ada, bob, key) = (desk.person("ada@home"), holder("bob@home"), desk.key_of("a"));
    assert!(matches!(desk.workspace.break_lease(&key, &bob, "x"), Err(LeaseError::NotFound(_))));
    ada.write("a", "ada");
    let broken = desk.workspace.break_lease(&key, &bob, "she is on holiday").unwrap();
    assert_eq!(broken[0].holder, ada.holder);
    assert!(!desk.workspace.lease(&key).unwrap().unwrap().live);
    assert!(ada.try_write("a", "late").is_err(), "her next save");
    let problems = ada.ops_status().problems;
    assert!(problems.iter().any(|line| line.contains("she is on holiday")), "{problems:?}");
    desk.take("bob@home", vec![file("a")]).unwrap();
    let intent: ResourceKey = ResourceKey::Intent(IntentPattern::subtree(path("d")));
    desk.take("ada@home", vec![Resource::Key(intent.clone())]).unwrap();
    assert_eq!(desk.workspace.break_lease(&intent, &bob, "x").unwrap().len(), 1);
}

#[test]
fn a_holder_is_asked_until_he_gives_it_back() {
    let desk = desk();
    let (ada, bob) = (holder("ada@home"), holder("bob@home"));
    let thread: ResourceKey = "thread:1".parse().unwrap();
    assert!(matches!(desk.workspace.ask(&thread, &bob, "please"), Err(LeaseError::NotFound(_))));
    desk.take("ada@home", vec![key("thread:1")]).unwrap();
    desk.workspace.ask(&thread, &bob, "please").unwrap();
    desk.workspace.ask(&thread, &bob, "please!").unwrap();
    let asks = desk.workspace.asks(&ada).unwrap();
    assert_eq!((asks.len(), asks[0].message.as_str(), &asks[0].asker), (1, "please!", &bob));
    desk.workspace.release(std::slice::from_ref(&thread), &ada).unwrap();
    assert!(desk.workspace.asks(&ada).unwrap().is_empty());
    desk.take("ada@home", vec![key("thread:1")]).unwrap();
    assert!(desk.workspace.asks(&ada).unwrap().is_empty(), "that was another lease");
}

/// The events of leases, replayed, are the table.
#[test]
fn events_replay_to_the_table() {
    let desk = desk();
    desk.import(&["a"]);
    let ada = desk.person("ada@home");
    desk.take("bob@home", vec![key("thread:1"), key("thread:2")]).unwrap();
    ada.write("a", "ada");
    desk.workspace.release(&["thread:1".parse().unwrap()], &holder("bob@home")).unwrap();
    desk.clock.advance_ms(2_000);
    desk.take("ada@home", vec![key("thread:2")]).unwrap();
    desk.workspace.renew(&["thread:2".parse().unwrap()], &ada.holder, Some(9_000)).unwrap();
    ada.create("new", crate::model::Kind::File, crate::model::Scratch::No);
    let mut table = std::collections::BTreeMap::new();
    let events = desk.workspace.events(0, 100).unwrap();
    assert!(events.windows(2).all(|pair| pair[0].event.seq + 1 == pair[1].event.seq));
    for named in events {
        let Some(lease) = named.event.lease else { continue };
        let holder = named.event.holder.unwrap();
        match named.event.kind.as_str() {
            "granted" | "renewed" => {
                drop(table.insert(lease.key, (holder, lease.generation, lease.expires_boot_ms)))
            }
            _ => drop(table.remove(&lease.key)),
        }
    }
    let leases = desk.workspace.leases(&LeaseFilter::default()).unwrap();
    let present = leases.into_iter().map(|status| {
        (status.lease.key, (status.lease.holder, status.lease.generation, status.lease.expires_boot_ms))
    });
    assert_eq!(table, present.collect());
}
