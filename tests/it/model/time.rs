//! How long a lease lasts, by which clock, and what renews it.

use std::sync::Arc;

use leasehold::blobs::{Fault, FaultPlan};
use leasehold::clock::Clock;
use leasehold::engine::{CheckInRequest, Workspace};
use leasehold::model::ArtifactPath;
use leasehold::vfs::VfsError;

use super::World;
use super::desk::{Desk, Open};
use super::reference::TTL_MS;

const NAME: &str = "a.txt";
const EIO: i32 = 5;

impl World {
    fn expiry_ms(&self) -> i64 {
        self.desks[0].lease(NAME).unwrap().expires_boot_ms - self.clock.now().boot_ms
    }

    fn is_refused_for_bob(&self) -> bool {
        match self.desks[1].open_for_write(NAME) {
            Ok(open) => self.desks[1].close(open).is_err(),
            Err(error) => matches!(error, VfsError::Held { .. }),
        }
    }

    /// Lets nearly all of a lease's time pass, and then the rest: somebody else gets it not before.
    fn assert_ends_after(&self, left_ms: i64) {
        self.clock.advance_ms(left_ms - 1);
        assert!(self.is_refused_for_bob(), "a moment before the end");
        self.clock.advance_ms(1);
        assert!(!self.is_refused_for_bob(), "at the end");
    }

    /// Another boot of the machine: every daemon is gone, and comes again.
    fn reboot(&mut self) {
        self.clock.reboot();
        (0..self.desks.len()).for_each(|who| self.crash(who));
    }
}

/// A lease lasts its time from the grant; one that ended can be taken by anybody.
#[test]
fn a_lease_lasts_its_time() {
    let world = World::new();
    world.desks[0].save(NAME, b"ada's").unwrap();
    assert_eq!(world.expiry_ms(), TTL_MS);
    world.assert_ends_after(TTL_MS);
}

/// Every write intent, write and save renews it to its whole time, and keeps its generation.
#[test]
fn using_a_file_renews_its_lease() {
    type Use = fn(&Desk, Open);
    let uses: [(&str, Use); 7] = [
        ("open for writing", |desk, _| assert!(desk.open_for_write(NAME).is_ok())),
        ("open and cut", |desk, _| assert!(desk.begin(NAME, b"").is_ok())),
        ("write", |desk, open| desk.write(open, 0, b"more").unwrap()),
        ("fsync", |desk, open| desk.fsync(open).unwrap()),
        ("close", |desk, open| desk.close(open).unwrap()),
        ("chmod", |desk, _| desk.chmod(NAME, 0o600).unwrap()),
        ("checkout", |desk, _| drop(desk.ops().checkout(&[ArtifactPath::parse(NAME).unwrap()]).unwrap())),
    ];
    for (what, used) in uses {
        let world = World::new();
        let ada = &world.desks[0];
        let open = ada.begin(NAME, b"unsaved").unwrap();
        let generation = ada.lease(NAME).unwrap().generation;
        world.clock.advance_ms(TTL_MS / 2);
        used(ada, open);
        assert_eq!(world.expiry_ms(), TTL_MS, "{what}");
        assert_eq!(ada.lease(NAME).unwrap().generation, generation, "{what}");
    }
}

/// Opens, writes and saves renew it at most once in a tenth of its time: the row is written no more often.
#[test]
fn renewals_are_rare() {
    let world = World::new();
    let ada = &world.desks[0];
    let open = ada.begin(NAME, b"first").unwrap();
    for _ in 0..2 {
        world.clock.advance_ms(TTL_MS / 10 - 1);
        let left_ms = world.expiry_ms();
        ada.write(open, 5, b"more").unwrap();
        ada.fsync(open).unwrap();
        ada.close(ada.open_for_write(NAME).unwrap()).unwrap();
        assert_eq!(world.expiry_ms(), left_ms, "too early");
        world.clock.advance_ms(1);
        ada.write(open, 5, b"more").unwrap();
        assert_eq!(world.expiry_ms(), TTL_MS, "a tenth has passed");
    }
}

/// Reading, looking, holding open, time that passes and a check-in that keeps the lease don't renew it.
#[test]
fn nothing_else_renews_it() {
    let world = World::new();
    let ada = &world.desks[0];
    ada.save(NAME, b"ada's").unwrap();
    let open = ada.open_for_write(NAME).unwrap();
    let all = ArtifactPath::root();
    let looks: [(&str, &dyn Fn()); 5] = [
        ("read and list", &|| drop(ada.tree())),
        ("tick", &|| ada.tick()),
        ("status", &|| drop(ada.ops().status(&all).unwrap())),
        ("settle", &|| drop(ada.ops().settle(&all).unwrap())),
        ("check-in", &|| {
            let request = CheckInRequest { message: "kept".into(), keep: true, ..CheckInRequest::default() };
            drop(ada.ops().check_in(&request).unwrap());
        }),
    ];
    for (what, look) in looks {
        world.clock.advance_ms(TTL_MS / 6);
        let left_ms = world.expiry_ms();
        look();
        assert_eq!(world.expiry_ms(), left_ms, "{what}");
    }
    ada.close(open).unwrap();
    world.assert_ends_after(TTL_MS / 6);
}

/// A wall clock that is set, forward or back and however far, changes nothing for holder or others.
#[test]
fn a_stepped_wall_clock_changes_nothing() {
    const YEAR_MS: i64 = 365 * 86_400_000;
    for step_ms in [10 * YEAR_MS, -10 * YEAR_MS, TTL_MS, -TTL_MS] {
        let world = World::new();
        let ada = &world.desks[0];
        let open = ada.begin(NAME, b"first").unwrap();
        let generation = ada.lease(NAME).unwrap().generation;
        world.clock.step_wall_ms(step_ms);
        assert!(world.is_refused_for_bob(), "after a step of {step_ms} ms");
        ada.write(open, 5, b"second").unwrap();
        ada.close(open).unwrap();
        assert_eq!(ada.lease(NAME).unwrap().generation, generation, "the holder keeps it");
        world.assert_ends_after(TTL_MS);
    }
}

/// After a reboot the wall clock says how much of the time is left, whatever the boot's clock reads.
#[test]
fn after_a_reboot_the_wall_clock_counts() {
    let mut world = World::new();
    world.desks[0].save(NAME, b"ada's").unwrap();
    world.clock.advance_ms(TTL_MS / 2);
    world.reboot();
    world.assert_ends_after(TTL_MS / 2);

    let mut world = World::new();
    world.desks[0].save(NAME, b"ada's").unwrap();
    world.reboot();
    // This boot has lasted longer than the earlier one, and the wall clock was set back meanwhile.
    world.clock.advance_ms(100 * TTL_MS);
    world.clock.step_wall_ms(-100 * TTL_MS);
    world.assert_ends_after(TTL_MS);
}

/// A use after the reboot renews the lease by the new boot's clock, and a step of the wall clock changes nothing again.
#[test]
fn a_use_after_a_reboot_counts_from_the_new_boot() {
    let mut world = World::new();
    world.desks[0].save(NAME, b"ada's").unwrap();
    let generation = world.desks[0].lease(NAME).unwrap().generation;
    world.reboot();
    world.desks[0].save(NAME, b"ada's second").unwrap();
    assert_eq!(world.desks[0].lease(NAME).unwrap().generation, generation);
    world.clock.step_wall_ms(10 * TTL_MS);
    world.assert_ends_after(TTL_MS);
}

/// A save that the store refused is told with its path, tried again after a while, and no longer told then.
#[test]
fn a_save_that_could_not_be_stored_is_tried_again() {
    let world = World::new();
    let plan = Arc::new(FaultPlan::new());
    let workspace = Workspace::open(world.dir.path(), &world.env).unwrap().with_store_faults(plan.clone());
    let carl = Desk::mount_on(workspace, &world.env, "carl@desk", Some(TTL_MS));
    let root = ArtifactPath::root();
    plan.arm(0, Fault::Error(EIO));
    carl.save("new.txt", b"carl's").unwrap();
    let told = carl.ops().settle(&root).unwrap().problems;
    assert!(told.len() == 1 && told[0].starts_with("new.txt: its last save could not be stored"), "{told:?}");
    carl.tick();
    assert_eq!(carl.ops().settle(&root).unwrap().problems, told, "not at once");
    world.clock.advance_ms(10_000);
    carl.tick();
    assert_eq!(carl.ops().settle(&root).unwrap().problems, Vec::<String>::new());
    carl.ops().check_in(&CheckInRequest { message: "m".into(), ..CheckInRequest::default() }).unwrap();
}
