//! Random steps on the catalog and on the model of its lease table: both answer alike, and show the same after each.

use std::sync::Arc;

use leasehold::catalog::Mounting;
use leasehold::clock::{Clock, ManualClock};
use leasehold::engine::{Acquisition, Environment, ImportRequest, LeaseError, Resource, Unsaved, Workspace};
use leasehold::ids::CountingIds;
use leasehold::model::{ArtifactPath, CheckoutId, Generation, ResourceKey, Seq};
use leasehold::sys::{self, ProcessKey};
use proptest::prelude::*;

use super::table::{HOLDERS, RESOURCES, TTL_MS, Table, holder};

#[derive(Debug, Clone, Copy)]
enum Step {
    Acquire {
        who: usize,
        resource: usize,
    },
    AcquireAll {
        who: usize,
    },
    Renew {
        who: usize,
        resource: usize,
    },
    Release {
        who: usize,
        resource: usize,
    },
    /// A mount notes unsaved bytes under the lease that it has.
    Write {
        who: usize,
        resource: usize,
    },
    /// They are saved, or closed.
    Close {
        who: usize,
    },
    Break {
        resource: usize,
    },
    Resolve {
        resource: usize,
    },
    Advance {
        ms: i64,
    },
    SetWall {
        ms: i64,
    },
    Kill {
        who: usize,
    },
    Reboot,
}

fn step() -> impl Strategy<Value = Step> {
    let (who, resource) = (|| 0..HOLDERS.len(), || 0..RESOURCES);
    prop_oneof![
        5 => (who(), resource()).prop_map(|(who, resource)| Step::Acquire { who, resource }),
        2 => who().prop_map(|who| Step::AcquireAll { who }),
        2 => (who(), resource()).prop_map(|(who, resource)| Step::Renew { who, resource }),
        2 => (who(), resource()).prop_map(|(who, resource)| Step::Release { who, resource }),
        4 => (who(), resource()).prop_map(|(who, resource)| Step::Write { who, resource }),
        2 => who().prop_map(|who| Step::Close { who }),
        1 => resource().prop_map(|resource| Step::Break { resource }),
        2 => resource().prop_map(|resource| Step::Resolve { resource }),
        4 => (1..TTL_MS + 500).prop_map(|ms| Step::Advance { ms }),
        1 => (-9_000..9_000_i64).prop_map(|ms| Step::SetWall { ms }),
        2 => who().prop_map(|who| Step::Kill { who }),
        1 => Just(Step::Reboot),
    ]
}

struct Beside {
    workspace: Workspace,
    clock: Arc<ManualClock>,
    keys: [ResourceKey; RESOURCES],
    artifacts: [Seq; RESOURCES],
    checkouts: [CheckoutId; HOLDERS.len()],
    model: Table,
    _dir: tempfile::TempDir,
}

impl Beside {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new());
        let env = Environment { clock: clock.clone(), ids: Arc::new(CountingIds::default()) };
        let workspace = Workspace::init(&dir.path().join("ws"), &env).unwrap();
        let from = dir.path().join("from");
        std::fs::create_dir(&from).unwrap();
        for resource in 0..RESOURCES {
            std::fs::write(from.join(resource.to_string()), "text").unwrap();
        }
        let request = ImportRequest {
            sources: vec![from],
            into: ArtifactPath::root(),
            message: "m".into(),
            author: holder(0),
            contents_only: true,
        };
        workspace.import(&request, &|_| ()).unwrap();
        let key = |resource: usize| {
            workspace.key_of(&ArtifactPath::parse(resource.to_string()).unwrap(), &holder(0)).unwrap()
        };
        let keys: [ResourceKey; RESOURCES] = std::array::from_fn(key);
        let artifacts = std::array::from_fn(|resource| match &keys[resource] {
            ResourceKey::Artifact(id) => workspace.catalog().artifact_by_id(*id).unwrap().unwrap(),
            other => panic!("{other}"),
        });
        let checkouts = std::array::from_fn(|who| workspace.catalog().checkout(&holder(who)).unwrap());
        let beside =
            Self { model: Table::new(clock.now()), workspace, clock, keys, artifacts, checkouts, _dir: dir };
        (0..HOLDERS.len()).for_each(|who| beside.mount(who, sys::this_process().unwrap()));
        beside
    }

    fn mount(&self, who: usize, process: ProcessKey) {
        let mounting = Mounting { process, mountpoint: "/mnt".into(), now: self.clock.now() };
        self.workspace.catalog().begin_mount(self.checkouts[who], &mounting).unwrap();
    }

    fn acquire(&mut self, who: usize, set: &[usize]) {
        let resources = set.iter().map(|resource| Resource::Key(self.keys[*resource].clone())).collect();
        let acquisition = Acquisition { ttl_ms: Some(TTL_MS), ..Acquisition::of(&holder(who), resources) };
        let blocked = match self.workspace.acquire(&acquisition) {
            Ok(_) => Vec::new(),
            Err(LeaseError::Busy { blockers }) => blockers.into_iter().map(|blocker| blocker.key).collect(),
            Err(error) => panic!("{error}"),
        };
        let expected = self.model.acquire(who, set).err().unwrap_or_default();
        let expected: Vec<_> = expected.into_iter().map(|resource| self.keys[resource].clone()).collect();
        assert_eq!(blocked, expected);
    }

    fn renew(&mut self, who: usize, resource: usize) {
        let is_mine = |table: &Table| {
            let lease = table.leases[resource].as_ref();
            lease.is_some_and(|lease| lease.holder == holder(who) && lease.is_live(table.now))
        };
        let keys = std::slice::from_ref(&self.keys[resource]);
        let renewed = self.workspace.renew(keys, &holder(who), Some(TTL_MS)).is_ok();
        assert_eq!(renewed, is_mine(&self.model));
        if renewed {
            self.model.acquire(who, &[resource]).unwrap();
        }
    }

    fn note_writers(&self, who: usize) {
        let writers = self.artifacts.iter().zip(&self.model.writers[who]);
        // The catalog's generations begin elsewhere.
        let generation = |artifact: Seq| {
            let resource = self.artifacts.iter().position(|known| *known == artifact).unwrap();
            self.workspace.catalog().lease(&self.keys[resource]).unwrap().map(|lease| lease.generation)
        };
        let noted: Vec<(Seq, Generation)> = writers
            .filter(|(_, writes)| writes.is_some())
            .filter_map(|(artifact, _)| Some((*artifact, generation(*artifact)?)))
            .collect();
        self.workspace.catalog().set_writers(self.checkouts[who], &noted, self.clock.now()).unwrap();
    }

    /// Only who has the lease writes, as a mount does; who wrote under an older one has lost that by now.
    fn write(&mut self, who: usize, resource: usize) {
        let Some(lease) = &self.model.leases[resource] else { return };
        if !self.model.mounted[who] || lease.holder != holder(who) || !lease.is_live(self.model.now) {
            return;
        }
        let generation = lease.generation;
        self.model.writers[who] = Default::default();
        self.model.writers[who][resource] = Some(generation);
        self.note_writers(who);
    }

    fn end_by_hand(&mut self, resource: usize, resolves: bool) {
        let (key, by) = (&self.keys[resource], "carl@desk".parse().unwrap());
        let ended = match resolves {
            true => self.workspace.resolve_writer(key, &by, Unsaved::Keep).is_ok(),
            false => self.workspace.break_lease(key, &by, "reason").is_ok(),
        };
        assert_eq!(ended, self.model.end_by_hand(resource, resolves));
    }

    fn kill(&mut self, who: usize) {
        let gone = ProcessKey { pid: u32::MAX / 2, start_ticks: 1 };
        let mount = self.workspace.catalog().mount_of(self.checkouts[who]).unwrap();
        if let Some(mount) = mount {
            // As if the process had died: its row and its writers stay, and another one is not there yet.
            self.workspace.catalog().end_mount(self.checkouts[who], mount.process).unwrap();
            self.mount(who, gone);
        }
        self.model.kill(who);
    }

    fn run(&mut self, step: Step) {
        self.model.now = self.clock.now();
        match step {
            Step::Acquire { who, resource } => self.acquire(who, &[resource]),
            Step::AcquireAll { who } => self.acquire(who, &[0, 1]),
            Step::Renew { who, resource } => self.renew(who, resource),
            Step::Release { who, resource } => {
                let keys = std::slice::from_ref(&self.keys[resource]);
                let released = self.workspace.release(keys, &holder(who)).unwrap();
                assert_eq!(released, [self.model.release(who, resource)]);
            }
            Step::Write { who, resource } => self.write(who, resource),
            Step::Close { who } => {
                self.model.writers[who] = Default::default();
                self.note_writers(who);
            }
            Step::Break { resource } => self.end_by_hand(resource, false),
            Step::Resolve { resource } => self.end_by_hand(resource, true),
            Step::Advance { ms } => self.clock.advance_ms(ms),
            Step::SetWall { ms } => self.clock.step_wall_ms(ms),
            Step::Kill { who } => self.kill(who),
            Step::Reboot => {
                self.clock.reboot();
                (0..HOLDERS.len()).for_each(|who| self.kill(who));
            }
        }
        self.model.now = self.clock.now();
        self.compare();
    }

    fn compare(&self) {
        for (resource, key) in self.keys.iter().enumerate() {
            let found = self.workspace.lease(key).unwrap();
            let expected = self.model.leases[resource].as_ref();
            let shown = found.as_ref().map(|status| {
                let lease = &status.lease;
                (
                    lease.holder.clone(),
                    lease.expires_boot_ms,
                    lease.expires,
                    lease.boot,
                    lease.fenced,
                    status.live,
                )
            });
            let wanted = expected.map(|lease| {
                let live = lease.is_live(self.model.now);
                (lease.holder.clone(), lease.expires_boot_ms, lease.expires, lease.boot, lease.fenced, live)
            });
            assert_eq!(shown, wanted, "{key}");
            let quarantined = found.is_some_and(|status| status.quarantined);
            assert_eq!(quarantined, self.model.standing(resource).is_quarantined(self.model.now), "{key}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// The catalog does what the model does.
    #[test]
    fn the_catalog_keeps_the_table(steps in prop::collection::vec(step(), 1..40)) {
        let mut beside = Beside::new();
        for step in steps {
            beside.run(step);
        }
    }
}
