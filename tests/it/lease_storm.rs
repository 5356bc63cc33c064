//! Many processes that take, renew and give back the same few keys, some of which are killed or stopped: the event log must
//! tell all of it, without two holders at a time, and come to what the table says.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::SystemClock;
use leasehold::engine::{
    Acquisition, Environment, Event, EventLease, LeaseError, LeaseFilter, Resource, Workspace,
};
use leasehold::ids::SystemIds;
use leasehold::model::{Holder, Lease, ResourceKey};
use libc::{SIGCONT, SIGSTOP};

use crate::kernel;
use crate::storm::{log_of, place, storm};

/// How long a lease lasts: shorter than a holder is stopped.
const TTL_MS: i64 = 250;
const STOPPED: Duration = Duration::from_millis(400);
/// Where a peer finds how many keys there are.
const KEYS: &str = "keys";

fn environment() -> Environment {
    Environment { clock: Arc::new(SystemClock::new().unwrap()), ids: Arc::new(SystemIds) }
}

/// A peer: it takes sets of keys, and keeps, renews or gives back what it got.
#[test]
#[ignore = "another test runs it in processes of its own"]
fn serve() {
    let (root, mut log) = place();
    let workspace = Workspace::open(&root.join("ws"), &environment()).unwrap();
    let holder = Holder::of("peer", &std::process::id().to_string()).unwrap();
    let count: u64 = fs::read_to_string(root.join(KEYS)).unwrap().parse().unwrap();
    let mut number = u64::from(std::process::id());
    while !root.join("end").exists() {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let first = (number >> 33) % count;
        let keys: BTreeSet<_> = (0..=number >> 62).map(|more| key((first + more * 3) % count)).collect();
        let keys: Vec<ResourceKey> = keys.into_iter().collect();
        let resources = keys.iter().cloned().map(Resource::Key).collect();
        let asked = Acquisition { ttl_ms: Some(TTL_MS), ..Acquisition::of(&holder, resources) };
        match workspace.acquire(&asked) {
            Ok(_) => {}
            Err(LeaseError::Busy { .. }) => continue,
            Err(error) => panic!("{error:?}"),
        }
        // One write, which a kill leaves whole.
        let named: Vec<String> = keys.iter().map(ToString::to_string).collect();
        log.write_all(format!("{holder} {}\n", named.join(" ")).as_bytes()).unwrap();
        if number >> 40 & 1 == 1 {
            match workspace.renew(&keys, &holder, Some(TTL_MS)) {
                Ok(_) | Err(LeaseError::NotHeld { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        if number >> 41 & 3 != 0 {
            workspace.release(&keys, &holder).unwrap();
        }
    }
}

fn key(number: u64) -> ResourceKey {
    format!("thread:{number}").parse().unwrap()
}

/// What the events have come to so far.
#[derive(Default)]
struct Replay {
    table: HashMap<ResourceKey, (Holder, EventLease)>,
    /// How often each holder was granted each key.
    granted: HashMap<(Holder, ResourceKey), usize>,
}

impl Replay {
    /// Nobody is granted what somebody else has; nobody renews or gives back what he has not.
    fn take(&mut self, event: Event) {
        let told = format!("{event:?}");
        let (Some(holder), Some(lease)) = (event.holder, event.lease) else { return };
        let before = self.table.remove(&lease.key);
        let is_holders = before.as_ref().is_some_and(|(had, _)| *had == holder);
        match event.kind.as_str() {
            "granted" => {
                if let Some((_, before)) = &before {
                    assert!(lease.generation > before.generation, "{told} after {before:?}");
                    let free = is_holders || before.expires_boot_ms <= lease.boot_ms;
                    assert!(free, "{told} while {before:?}");
                }
                *self.granted.entry((holder.clone(), lease.key.clone())).or_default() += 1;
            }
            "renewed" => {
                let same = before.as_ref().is_some_and(|(_, before)| before.generation == lease.generation);
                assert!(is_holders && same, "{told} after {before:?}");
                // To ask again for what one has renews it.
                *self.granted.entry((holder.clone(), lease.key.clone())).or_default() += 1;
            }
            "released" => {
                assert!(is_holders, "{told} after {before:?}");
                return;
            }
            _ => panic!("{told}"),
        }
        self.table.insert(lease.key.clone(), (holder, lease));
    }

    /// What the table is to say, as far as it has not ended.
    fn live(&self, leases: &[Lease]) -> Vec<ResourceKey> {
        let mut live: Vec<_> = leases.iter().map(|lease| lease.key.clone()).collect();
        for lease in leases {
            let (holder, told) = &self.table[&lease.key];
            assert_eq!((holder, told.generation), (&lease.holder, lease.generation), "{told:?}");
            assert_eq!(told.expires_boot_ms, lease.expires_boot_ms, "{told:?}");
        }
        live.sort();
        live
    }
}

/// All events, which have no gaps and no number twice.
fn replay(workspace: &Workspace) -> Replay {
    let (mut replay, mut last) = (Replay::default(), 0);
    loop {
        let events = workspace.events(last, 1_000).unwrap();
        if events.is_empty() {
            return replay;
        }
        for named in events {
            assert!(last == 0 || named.event.seq == last + 1, "{} after {last}", named.event.seq);
            last = named.event.seq;
            replay.take(named.event);
        }
    }
}

/// What the peers were told that they got.
fn acknowledged(root: &Path, logs: usize) -> HashMap<(Holder, ResourceKey), usize> {
    let mut got = HashMap::new();
    for number in 0..logs {
        for line in fs::read_to_string(log_of(root, number)).unwrap_or_default().lines() {
            let (holder, keys) = line.split_once(' ').unwrap();
            for key in keys.split(' ') {
                *got.entry((holder.parse().unwrap(), key.parse().unwrap())).or_default() += 1;
            }
        }
    }
    got
}

/// Stops a peer for longer than its leases last.
fn stop(peer: &Child) {
    let process = i32::try_from(peer.id()).unwrap();
    kernel::kill(process, SIGSTOP);
    std::thread::sleep(STOPPED);
    kernel::kill(process, SIGCONT);
}

fn contend(keys: u64) {
    let root = tempfile::tempdir().unwrap();
    let workspace = Workspace::init(&root.path().join("ws"), &environment()).unwrap();
    fs::write(root.path().join(KEYS), keys.to_string()).unwrap();
    let logs = storm("lease_storm::serve", root.path(), stop);
    let replay = replay(&workspace);
    let got = acknowledged(root.path(), logs);
    println!("{keys} keys: {} grants acknowledged", got.values().sum::<usize>());
    assert!(got.len() > 1, "too little was done");
    for (what, times) in &got {
        let told = replay.granted.get(what).copied().unwrap_or(0);
        assert!(told >= *times, "{what:?}: acknowledged {times} times, and the log has {told}");
    }
    let table: Vec<Lease> =
        workspace.leases(&LeaseFilter::default()).unwrap().into_iter().map(|status| status.lease).collect();
    let mut told: Vec<_> = replay.table.keys().cloned().collect();
    told.sort();
    assert_eq!(replay.live(&table), told, "the table and the log");
    // Whatever killed peers had ends by itself.
    std::thread::sleep(Duration::from_millis(TTL_MS.unsigned_abs()));
    let holder = Holder::of("last", "one").unwrap();
    let all = (0..keys).map(|number| Resource::Key(key(number))).collect();
    workspace.acquire(&Acquisition::of(&holder, all)).unwrap();
}

/// Eight processes for the time, on one key, on as many keys as processes, and on many.
#[test]
fn no_two_hold_a_key_in_a_storm() {
    for keys in [1, 8, 64] {
        contend(keys);
    }
}
