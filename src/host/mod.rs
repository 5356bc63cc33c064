//! Leases on what a machine has once, such as a port: one holder for all workspaces and all users.
//!
//! They are kept in a directory for as long as the machine runs: `/run/leasehold`, which root makes at the first use,
//! or a user's own below `XDG_RUNTIME_DIR` where there is none. FORMAT.md has its files.
//!
//! **Locking.** Each operation locks the directory (flock(2)), the shared one before the private one, and waits for it no
//! longer than a bound. [`Pending`] keeps the lock.
//!
//! **Trust.** Users need not trust each other with more than their patience. A user's leases are in a file of his own; who
//! may not act as him can neither forge nor remove them, since the directory belongs to root and has the sticky bit, and a
//! file counts only if its owner is the user in its name. What he writes there by himself can keep others from a key, as
//! a lease can; it takes nothing away from a holder, whose own file is what counts for him. Any user can hold the lock, so
//! that the others fail after their wait, with the process's number.
//!
//! **What can't be read.** A user's file is replaced as a whole, so one that is broken, too large or no regular file was
//! made so by its owner or root: nothing in it is a lease, and [`Listing::odd`] tells it. A record that has a key and
//! can't be read otherwise (a newer version's, say) keeps that key from all other users. Of one's own file nothing is
//! guessed: [`HostError::Damaged`] says what to remove.
//!
//! **Not seen.** Users without a shared directory don't see each other's leases. All processes of a machine are taken to
//! share one `CLOCK_BOOTTIME` (time_namespaces(7) may shift it).

mod error;
mod form;
mod lease;
mod place;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

pub use error::{HostError, Result};
pub use lease::{Blocker, HostLease};
pub use place::Places;
pub use table::{MAX_LEASES, OddFile};

use crate::clock::Clock;
use crate::ids::Ids;
use crate::model::{Decision, Generation, Holder, HostKey, Instant, LeaseRequest, Standing, decide};
use crate::sys::{self, ProcessKey};
use place::{Ground, Opener, Purpose};
use table::{Prepared, Table};

/// How long the lock is waited for: as long as another process may wait for a catalog while it has it.
pub const WAIT_MS: i64 = 10_000;

/// Each millisecond of a boot has so many generations: far more than one change can grant.
const GENERATIONS_PER_MS_BITS: u32 = 20;

/// The leases of this machine.
pub struct HostLeases {
    places: Places,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn Ids>,
    wait_ms: i64,
}

/// All leases of a machine that a user can see.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The live ones, by key.
    pub leases: Vec<HostLease>,
    /// Keys that may be held, though it can't be told by whom.
    pub unclear: Vec<Blocker>,
    /// Files that were left out.
    pub odd: Vec<OddFile>,
}

impl HostLeases {
    /// The leases in these places, with the machine's default wait.
    pub fn new(places: Places, clock: Arc<dyn Clock>, ids: Arc<dyn Ids>) -> Self {
        Self { places, clock, ids, wait_ms: WAIT_MS }
    }

    /// The same, waiting so long for the lock.
    #[must_use]
    pub fn waiting(self, wait_ms: i64) -> Self {
        Self { wait_ms, ..self }
    }

    /// Takes a whole set of keys or none, and returns their leases in the order of the keys.
    ///
    /// A live lease of the same user and holder is renewed and keeps its generation; anybody else's refuses, with each
    /// lease in the way ([`HostError::Held`]). Another user is another holder, whatever text he has.
    pub fn acquire_set(&self, keys: &[HostKey], request: &LeaseRequest) -> Result<Vec<HostLease>> {
        self.begin(keys, request)?.commit()
    }

    /// Takes a set as [`HostLeases::acquire_set`] does, but for the commit: for a set of which another part is elsewhere.
    ///
    /// Until [`Pending::commit`] nothing is changed, even if the process dies, and nobody else can change anything.
    pub fn begin(&self, keys: &[HostKey], request: &LeaseRequest) -> Result<Pending> {
        let (ground, mut table, now) = self.enter(Purpose::Write)?;
        if keys.len() > MAX_LEASES {
            return Err(HostError::TooMany { path: ground.writable().path.clone(), most: MAX_LEASES });
        }
        let granting = Granting { now, me: user(), request, taken_by: this_process()? };
        let mut blockers = Vec::new();
        let (mut leases, mut fresh) = (Vec::new(), Vec::new());
        for key in keys {
            match granting.judge(&table, key)? {
                Verdict::Refused(reasons) => blockers.extend(reasons),
                Verdict::Renewed(lease) => leases.push(lease),
                Verdict::Granted => {
                    let lease = granting.grant(key.clone(), fresh.len());
                    fresh.push(key.clone());
                    leases.push(lease);
                }
            }
            if let Some(lease) = leases.last() {
                table.put_own(lease.clone());
            }
        }
        if !blockers.is_empty() {
            return Err(HostError::Held { blockers });
        }
        if !fresh.is_empty() {
            self.outlast(now);
        }
        let prepared = table.prepare(ground, user(), &*self.ids)?;
        Ok(Pending { prepared, leases, fresh })
    }

    /// Renews the holder's live leases on all of these keys, or none of them.
    ///
    /// Fails with [`HostError::NotHeld`], or [`HostError::Held`] if another has one of them now.
    pub fn renew(&self, keys: &[HostKey], request: &LeaseRequest) -> Result<Vec<HostLease>> {
        let (ground, mut table, now) = self.enter(Purpose::Write)?;
        let granting = Granting { now, me: user(), request, taken_by: this_process()? };
        let mut renewed = Vec::new();
        for key in keys {
            match granting.judge(&table, key)? {
                Verdict::Renewed(lease) => renewed.push(lease),
                Verdict::Granted => return Err(HostError::NotHeld { key: key.clone() }),
                Verdict::Refused(blockers) => return Err(HostError::Held { blockers }),
            }
        }
        renewed.iter().for_each(|lease| table.put_own(lease.clone()));
        table.prepare(ground, user(), &*self.ids)?.publish()?;
        Ok(renewed)
    }

    /// Gives back those of the keys that the holder has, and returns their leases; the others are left alone.
    pub fn release(&self, keys: &[HostKey], holder: &Holder) -> Result<Vec<HostLease>> {
        let (ground, mut table, _) = self.enter(Purpose::Write)?;
        let is_released = |lease: &HostLease| lease.holder == *holder && keys.contains(&lease.key);
        let (released, kept) = std::mem::take(&mut table.own).into_iter().partition(is_released);
        table.own = kept;
        let released: Vec<HostLease> = released;
        if !released.is_empty() {
            table.prepare(ground, user(), &*self.ids)?.publish()?;
        }
        Ok(released)
    }

    /// All leases of this machine that can be seen.
    pub fn list(&self) -> Result<Listing> {
        let (_ground, table, _) = self.enter(Purpose::Read)?;
        let mut leases = [table.own, table.others].concat();
        leases.sort_by(|a, b| (&a.key, a.uid).cmp(&(&b.key, b.uid)));
        Ok(Listing { leases, unclear: table.unclear, odd: table.odd })
    }

    /// Who has a key: the lease of this user's own, or what of another's would refuse him.
    pub fn show(&self, key: &HostKey) -> Result<Option<Blocker>> {
        let (_ground, table, _) = self.enter(Purpose::Read)?;
        let own = table.own(key).cloned().map(Blocker::Lease);
        Ok(own.or_else(|| table.foreign(key).into_iter().next()))
    }

    /// Locks the places, and reads them.
    fn enter(&self, purpose: Purpose) -> Result<(Ground, Table, Instant)> {
        let opener =
            Opener { places: &self.places, clock: &*self.clock, ids: &*self.ids, wait_ms: self.wait_ms };
        let ground = opener.open(purpose)?;
        // Read under the lock: what ended while it was waited for has ended.
        let now = self.clock.now();
        let table = Table::read(&ground, user(), now)?;
        Ok((ground, table, now))
    }

    /// Waits until the millisecond is over that generations are made of: so that whoever has the lock next makes larger ones,
    /// even if no file is left to tell these.
    fn outlast(&self, now: Instant) {
        while self.clock.now().boot_ms <= now.boot_ms {
            self.clock.sleep(Duration::from_millis(1));
        }
    }
}

fn user() -> u32 {
    sys::effective_ids().0
}

fn this_process() -> Result<ProcessKey> {
    sys::this_process().map_err(|source| HostError::File {
        doing: "read",
        path: "/proc/self/stat".into(),
        source,
    })
}

/// What a key comes to.
enum Verdict {
    Renewed(HostLease),
    Granted,
    Refused(Vec<Blocker>),
}

/// Who asks, for what, and when.
struct Granting<'a> {
    now: Instant,
    me: u32,
    request: &'a LeaseRequest,
    taken_by: ProcessKey,
}

impl Granting<'_> {
    fn judge(&self, table: &Table, key: &HostKey) -> Result<Verdict> {
        let own = table.own(key);
        let lease = own.map(HostLease::to_lease);
        let standing = Standing { lease: lease.as_ref(), has_writer: false };
        let decision = decide(standing, self.request, self.now);
        match (decision, own) {
            (Decision::BadTtl, _) => Err(HostError::BadTtl(self.request.ttl_ms)),
            (Decision::Renew, Some(own)) => Ok(Verdict::Renewed(own.clone().renewed(self.request, self.now))),
            (Decision::Held | Decision::Quarantined, Some(own)) => {
                Ok(Verdict::Refused(vec![Blocker::Lease(own.clone())]))
            }
            _ => {
                let foreign = table.foreign(key);
                Ok(if foreign.is_empty() { Verdict::Granted } else { Verdict::Refused(foreign) })
            }
        }
    }

    /// A lease of its own generation: the boot's clock tells it, since a counter would go with the file that it is in.
    fn grant(&self, key: HostKey, index: usize) -> HostLease {
        let index = i64::try_from(index).unwrap_or(i64::MAX);
        let generation = (self.now.boot_ms << GENERATIONS_PER_MS_BITS).saturating_add(index);
        let lease = HostLease {
            key,
            holder: self.request.holder.clone(),
            uid: self.me,
            generation: Generation(generation),
            boot: self.now.boot,
            expires_boot_ms: 0,
            expires: self.now.wall,
            taken_by: self.taken_by,
        };
        lease.renewed(self.request, self.now)
    }
}

/// A set that is all but taken, and the lock: dropped, it is as if nobody had asked.
pub struct Pending {
    prepared: Prepared,
    leases: Vec<HostLease>,
    fresh: Vec<HostKey>,
}

impl Pending {
    /// The leases as they will be, in the order of the keys.
    pub fn leases(&self) -> &[HostLease] {
        &self.leases
    }

    /// The keys that the holder did not have: what to release if the rest of the set fails after the commit.
    pub fn fresh(&self) -> &[HostKey] {
        &self.fresh
    }

    /// Takes the set: one rename(2).
    pub fn commit(self) -> Result<Vec<HostLease>> {
        self.prepared.publish()?;
        Ok(self.leases)
    }
}
