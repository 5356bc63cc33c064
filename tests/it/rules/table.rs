//! A model of the lease table: the product's own rules (`leasehold::model`) on plain values, without a database.

use leasehold::model::{
    Decision, Generation, Holder, Instant, Lease, LeaseRequest, Protection, ResourceKey, Standing, Timestamp,
    decide, protection,
};

/// How long a lease lasts.
pub const TTL_MS: i64 = 2_000;

/// Who there is, and what there is to be had.
pub const HOLDERS: [&str; 2] = ["ada@desk", "bob@desk"];
pub const RESOURCES: usize = 2;

/// What is known of leases, of who writes, and of the time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Table {
    pub leases: [Option<Lease>; RESOURCES],
    /// The generation under which a holder has unsaved bytes.
    pub writers: [[Option<Generation>; RESOURCES]; HOLDERS.len()],
    /// Whether a holder's mount lives.
    pub mounted: [bool; HOLDERS.len()],
    pub next_generation: i64,
    pub now: Instant,
    /// Whether ended leases are free though somebody still writes (policy `take`).
    pub take_from_writers: bool,
}

/// What a grant came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub lease: Lease,
    /// Whether it has a new generation.
    pub is_new: bool,
}

pub fn holder(who: usize) -> Holder {
    HOLDERS[who].parse().unwrap()
}

impl Table {
    pub fn new(now: Instant) -> Self {
        Self {
            leases: Default::default(),
            writers: Default::default(),
            mounted: [true; HOLDERS.len()],
            next_generation: 1,
            now,
            take_from_writers: false,
        }
    }

    pub fn standing(&self, resource: usize) -> Standing<'_> {
        let lease = self.leases[resource].as_ref();
        let writes = |who: usize| {
            self.mounted[who]
                && lease.is_some_and(|lease| self.writers[who][resource] == Some(lease.generation))
        };
        Standing { lease, has_writer: (0..HOLDERS.len()).any(writes) }
    }

    fn request(&self, who: usize) -> LeaseRequest {
        LeaseRequest { holder: holder(who), ttl_ms: TTL_MS, take_from_writers: self.take_from_writers }
    }

    pub fn decision(&self, who: usize, resource: usize) -> Decision {
        decide(self.standing(resource), &self.request(who), self.now)
    }

    /// Takes or renews a set, all or none; else tells which of it are not to be had.
    pub fn acquire(&mut self, who: usize, set: &[usize]) -> Result<Vec<Grant>, Vec<usize>> {
        let refused = |resource: &usize| {
            matches!(self.decision(who, *resource), Decision::Held | Decision::Quarantined | Decision::BadTtl)
        };
        let blockers: Vec<usize> = set.iter().copied().filter(refused).collect();
        if !blockers.is_empty() {
            return Err(blockers);
        }
        Ok(set.iter().map(|resource| self.grant(who, *resource)).collect())
    }

    fn grant(&mut self, who: usize, resource: usize) -> Grant {
        let is_new = self.decision(who, resource) == Decision::Grant;
        let generation = match &self.leases[resource] {
            Some(lease) if !is_new => lease.generation,
            _ => {
                self.next_generation += 1;
                Generation(self.next_generation - 1)
            }
        };
        let key = ResourceKey::Free(format!("resource:{resource}"));
        let lease = Lease::granted(key, &self.request(who), generation, self.now);
        self.leases[resource] = Some(lease.clone());
        Grant { lease, is_new }
    }

    /// Protects bytes that were written under a generation: by the lease that lives, or by a new grant.
    pub fn protect(&mut self, who: usize, resource: usize, generation: Generation) -> Option<Grant> {
        let present = self.leases[resource].as_ref();
        match protection(present, &holder(who), Some(generation), self.now) {
            Protection::Fenced => None,
            Protection::Holds => present.cloned().map(|lease| Grant { lease, is_new: false }),
            Protection::Lapsed => self.acquire(who, &[resource]).ok()?.pop(),
        }
    }

    pub fn release(&mut self, who: usize, resource: usize) -> bool {
        let mine = self.leases[resource].as_ref().is_some_and(|lease| lease.holder == holder(who));
        if mine {
            self.leases[resource] = None;
        }
        mine
    }

    /// Ends a lease by hand; a resolution only where somebody is waited for.
    pub fn end_by_hand(&mut self, resource: usize, resolves: bool) -> bool {
        let now = self.now;
        let quarantined = self.standing(resource).is_quarantined(now);
        match &mut self.leases[resource] {
            Some(lease) if quarantined || !resolves && lease.is_live(now) => {
                lease.fenced = true;
                true
            }
            _ => false,
        }
    }

    pub fn advance(&mut self, ms: i64) {
        self.now.boot_ms += ms;
        self.now.wall = Timestamp(self.now.wall.0 + ms * 1_000_000);
    }

    pub fn kill(&mut self, who: usize) {
        self.mounted[who] = false;
        self.writers[who] = Default::default();
    }
}
