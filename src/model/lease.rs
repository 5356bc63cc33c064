use super::{Generation, Holder, ResourceKey, Timestamp};

/// Use renews a lease when this part of its time has passed since it last was renewed: not at each write.
pub const RENEW_FRACTION: i64 = 10;

/// The longest time to live, in milliseconds: a hundred years. A longer one is a mistake, and could overflow a clock.
pub const MAX_TTL_MS: i64 = 36_500 * 86_400_000;

/// A point in time, by the storage's clock and by the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Instant {
    /// Identifies the boot that `boot_ms` counts from (a hash of the kernel's boot id).
    pub boot: i64,
    /// Milliseconds since that boot, suspended time included (`CLOCK_BOOTTIME`).
    pub boot_ms: i64,
    /// The wall clock: for people, and for leases of an earlier boot.
    pub wall: Timestamp,
}

/// A permission to begin a write.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Lease {
    /// What it is on.
    pub key: ResourceKey,
    /// Who has it.
    pub holder: Holder,
    /// Its generation.
    pub generation: Generation,
    /// When it ends, by the boot's clock.
    pub expires_boot_ms: i64,
    /// The boot that `expires_boot_ms` counts from.
    pub boot: i64,
    /// When it ends, by the wall clock.
    pub expires: Timestamp,
    /// Whether it was ended by hand, broken or resolved: what was written under it is never published any more.
    pub fenced: bool,
}

impl Lease {
    /// The lease that a request is granted.
    pub fn granted(key: ResourceKey, request: &LeaseRequest, generation: Generation, now: Instant) -> Self {
        let ttl_ns = request.ttl_ms.saturating_mul(1_000_000);
        Self {
            key,
            holder: request.holder.clone(),
            generation,
            expires_boot_ms: now.boot_ms.saturating_add(request.ttl_ms),
            boot: now.boot,
            expires: Timestamp(now.wall.0.saturating_add(ttl_ns)),
            fenced: false,
        }
    }

    /// Whether the lease has not ended by `now`. One of an earlier boot is judged by the wall clock.
    pub fn is_live(&self, now: Instant) -> bool {
        let lasts =
            if self.boot == now.boot { self.expires_boot_ms > now.boot_ms } else { self.expires > now.wall };
        lasts && !self.fenced
    }

    /// Whether use renews it: enough of its time has passed, or it was granted in an earlier boot.
    pub fn is_due(&self, ttl_ms: i64, now: Instant) -> bool {
        let left_ms = self.expires_boot_ms.saturating_sub(now.boot_ms);
        self.boot != now.boot || left_ms <= ttl_ms - ttl_ms / RENEW_FRACTION
    }
}

/// Who wants a lease, and for how long from now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRequest {
    /// Who asks.
    pub holder: Holder,
    /// For how long, in milliseconds; positive, and at most [`MAX_TTL_MS`].
    pub ttl_ms: i64,
    /// Whether an ended lease is free though somebody still writes under it (policy `take`).
    pub take_from_writers: bool,
}

/// What is known of a resource when somebody wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing<'a> {
    /// The last lease that was granted on it, unless it was given back.
    pub lease: Option<&'a Lease>,
    /// Whether somebody has bytes under that lease's generation that are not published, and is not known to have died.
    pub has_writer: bool,
}

/// What a request for a lease comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The holder's own live lease is extended: its generation stays.
    Renew,
    /// Nobody has it: it is granted with a new generation.
    Grant,
    /// Somebody else has a live lease.
    Held,
    /// Somebody else's lease ended, and he is not known to have stopped writing.
    Quarantined,
    /// The ttl is not positive, or too long.
    BadTtl,
}

/// Decides a request against what is known of its resource, without changing anything.
pub fn decide(standing: Standing<'_>, request: &LeaseRequest, now: Instant) -> Decision {
    if !(1..=MAX_TTL_MS).contains(&request.ttl_ms) {
        return Decision::BadTtl;
    }
    match standing.lease {
        Some(lease) if lease.is_live(now) && lease.holder == request.holder => Decision::Renew,
        Some(lease) if lease.is_live(now) => Decision::Held,
        Some(lease) if standing.quarantines(lease, request) => Decision::Quarantined,
        _ => Decision::Grant,
    }
}

impl Standing<'_> {
    /// Whether an ended lease keeps a resource closed to who asks.
    fn quarantines(&self, lease: &Lease, request: &LeaseRequest) -> bool {
        self.has_writer && !lease.fenced && lease.holder != request.holder && !request.take_from_writers
    }

    /// Whether the resource is closed to everybody else, though no lease on it lives.
    pub fn is_quarantined(&self, now: Instant) -> bool {
        self.has_writer && self.lease.is_some_and(|lease| !lease.is_live(now) && !lease.fenced)
    }
}

/// What a generation is worth when bytes that were written under it are to be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// The lease lives: nobody else can have written.
    Holds,
    /// It ended, or another one came after it: only a new grant protects the bytes, if [`decide`] allows one.
    Lapsed,
    /// It was ended by hand.
    Fenced,
}

/// Tells what a holder's generation is worth. The clock decides liveness, the generation decides safety.
pub fn protection(
    present: Option<&Lease>,
    holder: &Holder,
    generation: Option<Generation>,
    now: Instant,
) -> Protection {
    match present.filter(|lease| lease.holder == *holder && Some(lease.generation) == generation) {
        Some(lease) if lease.fenced => Protection::Fenced,
        Some(lease) if lease.is_live(now) => Protection::Holds,
        _ => Protection::Lapsed,
    }
}
