//! Every state that two holders of two resources can come to within a few steps: leases, writers, saves, check-ins,
//! breaks, killed mounts, another boot, and clocks that are stepped.

use leasehold::model::{Generation, Instant, Lease, Timestamp};
use stateright::{Checker, Model, Property};

use super::table::{HOLDERS, RESOURCES, TTL_MS, Table, holder};

/// How far states are explored.
#[derive(Clone, Copy)]
struct Bounds {
    resources: usize,
    /// How far the clock goes at a time.
    tick_ms: i64,
    ticks: i64,
    /// Whether the wall clock is stepped, and the machine boots again.
    boots: bool,
    generations: i64,
    versions: u8,
    /// A rule that is wrong on purpose: the checks must find it.
    careless: bool,
}

/// A draft: the version that it was made on, and the generation that protects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Draft {
    base: u8,
    generation: Generation,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    table: Table,
    /// What each holder was told that he has.
    told: [[Option<Lease>; RESOURCES]; HOLDERS.len()],
    /// The version that unsaved bytes are made on.
    bases: [[u8; RESOURCES]; HOLDERS.len()],
    drafts: [[Option<Draft>; RESOURCES]; HOLDERS.len()],
    heads: [u8; RESOURCES],
    /// What must never happen, and did.
    violation: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    /// Takes one resource, or both.
    Acquire {
        who: usize,
        set: &'static [usize],
    },
    Release {
        who: usize,
        resource: usize,
    },
    Write {
        who: usize,
        resource: usize,
    },
    Save {
        who: usize,
        resource: usize,
    },
    CheckIn {
        who: usize,
        resource: usize,
    },
    Break {
        resource: usize,
    },
    Resolve {
        resource: usize,
    },
    Tick {
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

impl Model for Bounds {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        let now = Instant { boot: 1, boot_ms: 0, wall: Timestamp(0) };
        let table = Table { take_from_writers: self.careless, ..Table::new(now) };
        vec![World {
            table,
            told: Default::default(),
            bases: Default::default(),
            drafts: Default::default(),
            heads: [0; RESOURCES],
            violation: None,
        }]
    }

    fn actions(&self, _world: &World, steps: &mut Vec<Step>) {
        for who in 0..HOLDERS.len() {
            if self.resources == RESOURCES {
                steps.push(Step::Acquire { who, set: &[0, 1] });
            }
            steps.push(Step::Kill { who });
            for resource in 0..self.resources {
                steps.push(Step::Acquire { who, set: if resource == 0 { &[0] } else { &[1] } });
                steps.push(Step::Release { who, resource });
                steps.push(Step::Write { who, resource });
                steps.push(Step::Save { who, resource });
                steps.push(Step::CheckIn { who, resource });
            }
        }
        for resource in 0..self.resources {
            steps.extend([Step::Break { resource }, Step::Resolve { resource }]);
        }
        steps.push(Step::Tick { ms: self.tick_ms });
        if self.boots {
            steps.extend([Step::SetWall { ms: -self.tick_ms }, Step::Reboot]);
        }
    }

    fn next_state(&self, before: &World, step: Step) -> Option<World> {
        let mut world = before.clone();
        world.run(step);
        (world != *before).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing that must never happen", |_, world: &World| world.violation.is_none()),
            Property::always("one holder at most", |_, world: &World| world.has_one_holder_each()),
        ]
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.table.now.boot_ms <= self.ticks * self.tick_ms
            && world.table.now.boot <= 2
            && world.table.now.wall.0.abs() <= self.ticks * self.tick_ms * 1_000_000
            && world.table.next_generation <= self.generations + 1
            && world.heads.iter().all(|head| *head <= self.versions)
    }
}

impl World {
    fn has_one_holder_each(&self) -> bool {
        let holds = |who: usize, resource: usize| {
            self.told[who][resource].as_ref().is_some_and(|lease| lease.is_live(self.table.now))
        };
        (0..RESOURCES).all(|resource| (0..HOLDERS.len()).filter(|who| holds(*who, resource)).count() <= 1)
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Acquire { who, set } => drop(self.acquire(who, set)),
            Step::Release { who, resource } => {
                if self.table.release(who, resource) {
                    self.told[who][resource] = None;
                }
            }
            Step::Write { who, resource } => self.write(who, resource),
            Step::Save { who, resource } => self.save(who, resource),
            Step::CheckIn { who, resource } => self.check_in(who, resource),
            Step::Break { resource } => self.end_by_hand(resource, false),
            Step::Resolve { resource } => self.end_by_hand(resource, true),
            Step::Tick { ms } => self.table.advance(ms),
            Step::SetWall { ms } => self.table.now.wall.0 += ms * 1_000_000,
            Step::Kill { who } => self.kill(who),
            Step::Reboot => {
                (0..HOLDERS.len()).for_each(|who| self.kill(who));
                // What one was told in another boot is judged by the wall clock, which may be stepped: one asks again.
                self.told = Default::default();
                self.table.now.boot += 1;
                self.table.now.boot_ms = 0;
            }
        }
    }

    fn acquire(&mut self, who: usize, set: &[usize]) -> bool {
        let before = self.clone();
        let Ok(grants) = self.table.acquire(who, set) else {
            self.expect(*self == before, "a refused set changed something");
            return false;
        };
        for (resource, grant) in set.iter().zip(grants) {
            if grant.is_new {
                self.check_grant(&before.table, who, *resource, grant.lease.generation);
            }
            self.told[who][*resource] = Some(grant.lease);
        }
        true
    }

    /// A new generation is larger than all before it, and nobody else has it or may be writing.
    fn check_grant(&mut self, before: &Table, who: usize, resource: usize, generation: Generation) {
        let others = before.leases[resource].as_ref().filter(|lease| lease.holder != holder(who));
        let quarantined = before.standing(resource).is_quarantined(before.now);
        self.expect(!(others.is_some() && quarantined), "a quarantined resource was granted");
        self.expect(!others.is_some_and(|lease| lease.is_live(before.now)), "a held resource was granted");
        let older = before.leases.iter().flatten().all(|lease| lease.generation < generation);
        self.expect(older, "a generation came back");
    }

    fn expect(&mut self, is_so: bool, otherwise: &'static str) {
        if !is_so {
            self.violation = Some(otherwise);
        }
    }

    /// An application writes: that takes the lease, and is refused for who made its draft on an older version.
    fn write(&mut self, who: usize, resource: usize) {
        self.table.mounted[who] = true;
        let base = self.drafts[who][resource].map_or(self.heads[resource], |draft| draft.base);
        if base != self.heads[resource] || !self.acquire(who, &[resource]) {
            return;
        }
        let lease = self.table.leases[resource].as_ref();
        self.table.writers[who][resource] = lease.map(|lease| lease.generation);
        self.bases[who][resource] = base;
    }

    /// Unsaved bytes become the draft, or a recovery copy.
    fn save(&mut self, who: usize, resource: usize) {
        let Some(generation) = self.table.writers[who][resource].take() else { return };
        let base = self.bases[who][resource];
        if base != self.heads[resource] {
            return;
        }
        if let Some(generation) = self.protected(who, resource, generation) {
            self.drafts[who][resource] = Some(Draft { base, generation });
        }
    }

    /// The generation that protects bytes of an earlier one, if any does.
    fn protected(&mut self, who: usize, resource: usize, generation: Generation) -> Option<Generation> {
        let before = self.table.clone();
        let grant = self.table.protect(who, resource, generation)?;
        if grant.is_new {
            self.check_grant(&before, who, resource, grant.lease.generation);
        }
        let protected = grant.lease.generation;
        self.told[who][resource] = Some(grant.lease);
        Some(protected)
    }

    fn check_in(&mut self, who: usize, resource: usize) {
        let Some(draft) = self.drafts[who][resource] else { return };
        if draft.base != self.heads[resource] {
            return;
        }
        let Some(generation) = self.protected(who, resource, draft.generation) else { return };
        let newest = self.table.leases[resource].as_ref().map(|lease| lease.generation);
        self.expect(newest == Some(generation), "an old generation was published");
        let fenced = self.table.leases[resource].as_ref().is_some_and(|lease| lease.fenced);
        self.expect(!fenced, "a fenced generation was published");
        self.expect(draft.base == self.heads[resource], "a published version was lost");
        self.heads[resource] += 1;
        self.drafts[who][resource] = None;
        if self.table.writers[who][resource].is_none() {
            self.table.release(who, resource);
            self.told[who][resource] = None;
        }
    }

    /// Who is told that his lease ended by hand has none any more.
    fn end_by_hand(&mut self, resource: usize, resolves: bool) {
        if self.table.end_by_hand(resource, resolves) {
            self.told.iter_mut().for_each(|told| told[resource] = None);
        }
    }

    fn kill(&mut self, who: usize) {
        self.table.kill(who);
    }
}

/// One resource, with half a lease's time at a step, clocks that are stepped, and another boot.
const ONE: Bounds = Bounds {
    resources: 1,
    tick_ms: TTL_MS / 2,
    ticks: 2,
    boots: true,
    generations: 2,
    versions: 1,
    careless: false,
};

/// Two resources that are taken together.
const TWO: Bounds = Bounds {
    resources: 2,
    tick_ms: TTL_MS,
    ticks: 1,
    boots: false,
    generations: 2,
    versions: 1,
    careless: false,
};

/// Each state within the bounds keeps the rules.
#[test]
fn no_reachable_state_breaks_a_rule() {
    for (bounds, states) in [(ONE, 1_000), (TWO, 1_000)] {
        let checker = bounds.checker().threads(2).spawn_bfs().join();
        println!("{} states", checker.unique_state_count());
        assert!(checker.unique_state_count() > states);
        checker.assert_properties();
    }
}

/// The exploration finds a rule that is wrong: one that gives away what somebody still writes.
#[test]
fn a_wrong_rule_is_found() {
    let checker = Bounds { careless: true, ..ONE }.checker().threads(2).spawn_bfs().join();
    assert!(checker.discovery("nothing that must never happen").is_some());
}
