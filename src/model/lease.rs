use super::{Generation, Holder, ResourceKey, Timestamp};

/// Use renews a lease when this part of its time has passed since it last was renewed: not at each write.
pub const RENEW_FRACTION: i64 = 10;

/// A point in time, by the storage's clock and by the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instant {
    /// Identifies the boot that `boot_ms` counts from (a hash of the kernel's boot id).
    pub boot: i64,
    /// Milliseconds since that boot, suspended time included (`CLOCK_BOOTTIME`).
    pub boot_ms: i64,
    /// The wall clock: for people, and for leases of an earlier boot.
    pub wall: Timestamp,
}

/// A permission to begin a write.
#[derive(Debug, Clone, PartialEq, Eq)]
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
}

impl Lease {
    /// Whether the lease has not ended by `now`. One of an earlier boot is judged by the wall clock.
    pub fn is_live(&self, now: Instant) -> bool {
        if self.boot == now.boot { self.expires_boot_ms > now.boot_ms } else { self.expires > now.wall }
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
    /// For how long, in milliseconds; positive.
    pub ttl_ms: i64,
}

/// What a request for a lease comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The holder's own live lease is extended: its generation stays.
    Renew,
    /// Nobody has a live lease: it is granted with a new generation.
    Grant,
    /// Somebody else has a live lease.
    Refuse,
    /// The ttl is not positive.
    BadTtl,
}

/// Decides a request against the present row of its resource, without changing anything.
pub fn decide(present: Option<&Lease>, request: &LeaseRequest, now: Instant) -> Decision {
    match present {
        _ if request.ttl_ms <= 0 => Decision::BadTtl,
        Some(lease) if lease.is_live(now) && lease.holder == request.holder => Decision::Renew,
        Some(lease) if lease.is_live(now) => Decision::Refuse,
        _ => Decision::Grant,
    }
}
