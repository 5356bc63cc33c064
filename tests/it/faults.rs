//! System calls of the daemon fail one by one, or are its last: what was acknowledged is there, what failed was told, and
//! the next try works.
//!
//! A round saves in every way and checks in, while the n-th call of some sort on a file of the workspace fails, as a bad
//! or a full disk makes it, or the daemon is killed before or after it; it is done for each n until a round makes no
//! more such calls. The calls are those of the store, of working files, and of SQLite below the catalog. A run looks at
//! [`SAMPLE`] numbers of each sort and way, evenly spread; with `LEASEHOLD_FAULTS=40` at forty, and with
//! `LEASEHOLD_FAULTS=all` at all of them, which takes an hour.

mod desk;
mod injector;
mod round;

use std::panic::{AssertUnwindSafe, catch_unwind};

use desk::Desk;
use injector::{Call, Fault, How, Injector};
use libc::{O_CREAT, O_EXCL, O_TRUNC, O_WRONLY};

use crate::kernel::EIO;
use crate::mounted::{Workspace, eventually};

/// How many calls of one sort fail in one way, if not all do.
const SAMPLE: u64 = 4;

const DISK_BROKEN: (How, i32) = (How::Once, libc::EIO);
const DISK_FULL: (How, i32) = (How::Since, libc::ENOSPC);
const QUOTA_REACHED: (How, i32) = (How::Once, libc::EDQUOT);
const NO_DESCRIPTORS: (How, i32) = (How::Once, libc::EMFILE);
const KILLED: [(How, i32); 2] = [(How::KillBefore, 0), (How::KillAfter, 0)];

/// The numbers to try of so many calls.
fn sampled(count: u64) -> Vec<u64> {
    let sample = match std::env::var("LEASEHOLD_FAULTS").as_deref() {
        Ok("all") => count,
        Ok(number) => number.parse().expect("LEASEHOLD_FAULTS is `all` or a number"),
        Err(_) => SAMPLE,
    };
    if count <= sample {
        return (0..count).collect();
    }
    (0..sample).map(|index| index * (count - 1) / (sample - 1).max(1)).collect()
}

/// Lets calls of one sort fail in some ways.
fn fail_each(call: Call, ways: &[(How, i32)]) {
    let Some(mut desk) = Desk::new() else { return };
    let counts = desk.count_calls();
    let count = counts.iter().find(|(counted, _)| *counted == call).unwrap().1;
    assert!(count > 0, "{call:?}: a round makes no such call");
    let (mut came, mut failures) = (0, Vec::new());
    for (how, errno) in ways {
        for number in sampled(count) {
            let fault = Fault { call, number, how: *how, errno: *errno };
            match catch_unwind(AssertUnwindSafe(|| desk.work_with(fault))) {
                Ok(reached) => came += u64::from(reached),
                Err(_) => {
                    failures.push(format!("{fault:?} on {}", desk.where_hit()));
                    eprintln!("FAILED {}", failures.last().unwrap());
                    desk = Desk::new().unwrap();
                }
            }
        }
    }
    desk.assert_store_is_sound();
    println!("{call:?}: {came} faults came, {} with a failure", failures.len());
    assert!(failures.is_empty(), "{} of them: {failures:#?}", failures.len());
    assert!(came > 0, "no fault came");
}

fn with_kills(ways: &[(How, i32)]) -> Vec<(How, i32)> {
    [ways, &KILLED[..]].concat()
}

#[test]
fn opening() {
    fail_each(Call::Open, &with_kills(&[DISK_BROKEN, DISK_FULL, NO_DESCRIPTORS]));
}

#[test]
fn reading() {
    fail_each(Call::Read, &[DISK_BROKEN]);
}

#[test]
fn writing() {
    fail_each(Call::Write, &with_kills(&[DISK_BROKEN, DISK_FULL, QUOTA_REACHED]));
}

#[test]
fn syncing() {
    fail_each(Call::Sync, &with_kills(&[DISK_BROKEN, DISK_FULL]));
}

#[test]
fn renaming() {
    fail_each(Call::Rename, &with_kills(&[DISK_BROKEN, DISK_FULL]));
}

#[test]
fn linking() {
    fail_each(Call::Link, &with_kills(&[DISK_BROKEN, DISK_FULL]));
}

#[test]
fn unlinking() {
    fail_each(Call::Unlink, &with_kills(&[DISK_BROKEN]));
}

#[test]
fn making_directories() {
    fail_each(Call::MakeDir, &with_kills(&[DISK_BROKEN, DISK_FULL]));
}

#[test]
fn copying() {
    fail_each(Call::Copy, &with_kills(&[DISK_BROKEN, DISK_FULL]));
}

#[test]
fn cutting() {
    fail_each(Call::Truncate, &with_kills(&[DISK_BROKEN, DISK_FULL]));
}

#[test]
fn setting_times() {
    fail_each(Call::SetTimes, &with_kills(&[DISK_BROKEN]));
}

/// A lapsed lease is taken again with the save, and only then synced. Where a sync fails close tells it, and the bytes are
/// either a save that has its file, or a recovery copy.
#[test]
fn a_save_whose_sync_failed_keeps_its_bytes() {
    for number in 0..3 {
        let Some(workspace) = Workspace::with_document() else { return };
        workspace.set_policy("ttl = \"1s\"\n");
        let injector = Injector::build(workspace.root().parent().unwrap());
        let environment = injector.environment(&workspace.root().join(".leasehold"));
        let mut ada = workspace.mount_in_foreground_with("ada", environment);
        let app = ada.app();
        let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
        app.write(fd, b"new").unwrap();
        let state = || ada.xattr("doc.txt", "user.lease.state");
        eventually("the lease's end", || (state().as_deref() != Some("mine")).then_some(()));
        injector.arm(Fault { call: Call::Sync, number, how: How::Since, errno: libc::EIO });
        let closed = app.close(fd);
        injector.disarm();
        drop(app);
        ada.crash();
        let ada = ada.mount_again();
        let copies: Vec<Vec<u8>> =
            workspace.recovered().iter().map(|copy| workspace.restore_recovered(copy)).collect();
        match ada.read("doc.txt").as_slice() {
            b"new" => assert_eq!(copies.len(), 0, "sync {number}"),
            b"old" => assert_eq!((closed, copies), (Err(EIO), vec![b"new".to_vec()]), "sync {number}"),
            other => panic!("sync {number}: {other:?}"),
        }
    }
}

/// A new file whose first save failed has nothing that could be cut, and can be saved again.
#[test]
fn a_new_file_can_be_saved_after_its_first_save_failed() {
    let Some(workspace) = Workspace::with_document() else { return };
    let injector = Injector::build(workspace.root().parent().unwrap());
    let environment = injector.environment(&workspace.root().join(".leasehold"));
    let ada = workspace.mount_in_foreground_with("ada", environment);
    let (app, path) = (ada.app(), ada.path("new.txt"));
    let fd = app.open(&path, O_WRONLY | O_CREAT | O_EXCL).unwrap();
    app.write(fd, b"refused").unwrap();
    injector.arm(Fault { call: Call::Write, number: 0, how: How::Since, errno: libc::EIO });
    assert_eq!(app.close(fd), Err(EIO));
    injector.disarm();
    app.overwrite(&path, b"saved").unwrap();
    assert_eq!(ada.read("new.txt"), b"saved");
    ada.check_in();
}
