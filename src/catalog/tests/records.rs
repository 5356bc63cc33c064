use std::path::PathBuf;

use super::support::*;
use crate::catalog::{CatalogError, EventKind, Mounting, NewEvent, StampRow};
use crate::clock::Clock;
use crate::model::{ChangeNumber, Digest, RecoveryCopy, Timestamp, VersionNumber};
use crate::sys::{self, ProcessKey};

#[test]
fn a_log_follows_renames_and_shows_the_paths_of_its_time() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.mkdir("d");
    ada.write_new("d/a", "a1");
    ada.write_new("other", "o1");
    ada.commit();
    ada.mv("d", "e");
    ada.commit();
    ada.mv("e/a", "b");
    ada.write("b", "a2");
    ada.commit();
    let log = world.catalog.log(Some(&path("b")), None).unwrap();
    let seen: Vec<_> =
        log.iter().map(|r| (r.number.0, r.items[0].before.clone(), r.items[0].after.clone())).collect();
    assert_eq!(seen, [(3, Some(path("e/a")), Some(path("b"))), (1, None, Some(path("d/a")))]);
    assert_eq!(log[0].items[0].base, Some(VersionNumber(1)));
    let all = world.catalog.log(None, None).unwrap();
    assert_eq!(all.iter().map(|record| record.items.len()).collect::<Vec<_>>(), [1, 1, 3]);
    assert_eq!(world.catalog.log(None, Some(1)).unwrap(), all[..1]);
    let dir = world.catalog.log(Some(&path("e")), None).unwrap();
    assert_eq!(dir.iter().map(|record| record.number.0).collect::<Vec<_>>(), [3, 2, 1]);
}

#[test]
fn a_deleted_path_still_has_its_log_and_versions() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.mkdir("d");
    ada.write_new("d/a", "a1");
    ada.commit();
    ada.unlink("d/a");
    ada.rmdir("d");
    ada.commit();
    let known = world.catalog.artifact_at(&path("d/a"), false).unwrap().unwrap();
    assert_eq!((known.head, known.newest), (None, Some(VersionNumber(1))));
    let version = world.catalog.version(known.artifact, VersionNumber(1)).unwrap().unwrap();
    assert_eq!(version.content, blob("a1"));
    let log = world.catalog.log(Some(&path("d/a")), None).unwrap();
    assert_eq!(log.iter().map(|record| record.number.0).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(log[0].items[0].before, Some(path("d/a")));
    assert!(world.catalog.artifact_at(&path("never"), false).unwrap().is_none());
}

#[test]
fn followers_learn_places_inodes_and_versions() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.mkdir("d");
    let file = ada.write_new("d/a", "a1");
    ada.commit();
    let dir = world.head("d").unwrap();
    ada.mv("d/a", "b");
    ada.commit();
    let items = world.catalog.changes_since(ChangeNumber(1)).unwrap();
    assert_eq!(items.len(), 1);
    let item = &items[0];
    assert_eq!((item.artifact, item.ino_before), (file.artifact, Some(file.ino)));
    let before = item.before.as_ref().unwrap();
    assert_eq!((before.parent_ino, before.place.parent), (dir.ino, dir.artifact));
    assert_eq!(item.after.as_ref().unwrap().place.name.as_bytes(), b"b");
    assert_eq!(item.version, None);
    assert!(world.catalog.changes_since(ChangeNumber(2)).unwrap().is_empty());
}

#[test]
fn a_checkout_is_mounted_once_at_a_time() {
    let world = world();
    let ada = world.checkout("ada@home");
    let mounting =
        |process, at: &str| Mounting { process, mountpoint: PathBuf::from(at), now: world.clock.now() };
    let (me, other) = (sys::this_process().unwrap(), ProcessKey { pid: 1, start_ticks: 1 });
    world.catalog.begin_mount(ada.checkout, &mounting(me, "/mnt/a")).unwrap();
    ada.write_new("a", "a1");
    world.catalog.set_writers(ada.checkout, &[ada.writer("a")], world.clock.now()).unwrap();
    let refused = world.catalog.begin_mount(ada.checkout, &mounting(other, "/mnt/b"));
    assert!(matches!(&refused, Err(CatalogError::Mounted { pid, mountpoint })
        if *pid == me.pid && mountpoint == &PathBuf::from("/mnt/a")));
    world.clock.reboot();
    world.catalog.begin_mount(ada.checkout, &mounting(other, "/mnt/b")).unwrap();
    world.catalog.end_mount(ada.checkout, me).unwrap();
    let mount = world.catalog.mount_of(ada.checkout).unwrap().unwrap();
    assert_eq!(mount.mountpoint, PathBuf::from("/mnt/b"));
    assert!(!mount.is_alive(world.clock.now()));
    world.catalog.begin_mount(ada.checkout, &mounting(me, "/mnt/c")).unwrap();
    world.catalog.end_mount(ada.checkout, me).unwrap();
    assert_eq!(world.catalog.mount_of(ada.checkout).unwrap(), None);
}

#[test]
fn a_checkout_is_found_again_by_its_holder() {
    let world = world();
    let ada = world.checkout("ada@home");
    assert_eq!(world.checkout("ada@home").checkout, ada.checkout);
    assert_eq!(world.catalog.checkout_holder(ada.checkout).unwrap(), Some(ada.holder.clone()));
    assert_eq!(world.catalog.existing_checkout(&"bob@home".parse().unwrap()).unwrap(), None);
}

#[test]
fn recovery_copies_stamps_and_events_are_read_as_written() {
    let world = world();
    let copy = RecoveryCopy {
        id: "0a".into(),
        artifact: Some(crate::ids::Ids::artifact(&world.ids, Timestamp(1))),
        path: path("d/x"),
        base: Some(VersionNumber(3)),
        holder: "ada@home".parse().unwrap(),
        at: Timestamp(9),
        size: 4,
        reason: "lost".into(),
    };
    world.catalog.add_recovery("0a.w", &copy).unwrap();
    world.catalog.add_recovery("0a.w", &copy).unwrap();
    assert_eq!(world.catalog.recoveries().unwrap(), std::slice::from_ref(&copy));
    assert_eq!(world.catalog.recovery_file("0a").unwrap().as_deref(), Some("0a.w"));
    assert_eq!(world.catalog.recovery_file("0b").unwrap(), None);
    assert_eq!(world.catalog.recovery_files().unwrap(), ["0a.w"]);
    let stamp = StampRow { inode: u64::MAX, size: 4, mtime_ns: -1, ctime_ns: 2 };
    let digest = Digest::from_bytes([7; 32]);
    world.catalog.record_stamps(&[(digest, stamp)]).unwrap();
    assert_eq!(world.catalog.stamp(&digest).unwrap(), Some(stamp));
    let holder = "ada@home".parse().unwrap();
    let (at, kind) = (Timestamp(10), EventKind::CheckInFailed);
    let event = NewEvent { at, kind, artifact: None, holder: Some(&holder), detail: "held" };
    world.catalog.note(&event).unwrap();
    let kinds: Vec<String> = world.catalog.events(0, 9).unwrap().into_iter().map(|e| e.kind).collect();
    assert_eq!(kinds, ["recovered", "checkin-failed"]);
    assert_eq!(world.catalog.problems(&holder).unwrap().len(), 1);
}

#[test]
fn leases_are_listed_by_path() {
    let world = world();
    let ada = world.checkout("ada@home");
    ada.write_new("a", "a1");
    ada.commit();
    ada.write("a", "a2");
    ada.write_new("new", "n1");
    let listed = world.catalog.leases(&crate::catalog::LeaseFilter::default(), world.clock.now()).unwrap();
    let paths: Vec<_> = listed.into_iter().map(|listed| listed.path.unwrap().to_string()).collect();
    assert_eq!(paths, ["a", "new"]);
}

#[test]
fn old_events_are_forgotten() {
    let world = world();
    let (at, kind) = (Timestamp(10), EventKind::StaleSave);
    let note = || {
        let event = NewEvent { at, kind, artifact: None, holder: None, detail: "" };
        world.catalog.note(&event).unwrap();
    };
    note();
    world
        .catalog
        .write(crate::catalog::Durability::Full, |tx| {
            let sql = "INSERT INTO event (seq, at, kind, detail) VALUES (100999, 10, 'settled', '')";
            tx.execute(sql, []).map(drop).map_err(super::super::error::doing("skip numbers"))
        })
        .unwrap();
    note();
    let numbers: Vec<i64> = world.catalog.events(0, 9).unwrap().iter().map(|event| event.seq).collect();
    assert_eq!(numbers, [100_999, 101_000]);
}

/// Who looks at a catalog need not wait for a writer, who may be stopped, or killed and not yet gone.
#[test]
fn a_catalog_is_opened_while_another_process_writes() {
    let world = world();
    world.checkout("ada@home").write_new("a", "a");
    let writer = rusqlite::Connection::open(world.catalog.path()).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let catalog = crate::catalog::Catalog::open(world.catalog.path()).unwrap();
    assert_eq!(catalog.checkouts().unwrap().len(), 1);
}
