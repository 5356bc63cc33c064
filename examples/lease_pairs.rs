//! Measures pairs of lease acquire and release beside one-row commits of raw SQLite with the same pragmas.
//!
//! `lease_pairs DIR COUNT` makes two databases in DIR and prints two numbers of seconds: for COUNT pairs, and for COUNT
//! commits. `scripts/bench.sh leases` calls it.

#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold::catalog::Catalog;
use leasehold::clock::{Clock, SystemClock};
use leasehold::ids::{Ids, SystemIds};
use leasehold::model::{Attrs, Holder, LeaseRequest, ResourceKey};
use rusqlite::{Connection, TransactionBehavior};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How many resources take turns, as people work on more than one document.
const RESOURCES: usize = 100;

/// The length of each lease: long enough that none ends within a run.
const TTL_MS: i64 = 8 * 3_600_000;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().ok_or("usage: lease_pairs DIR COUNT")?);
    let count: usize = args.next().ok_or("usage: lease_pairs DIR COUNT")?.parse()?;
    let leases = Leases::create(&dir.join("catalog.db"))?;
    let mut raw = create_raw(&dir.join("raw.db"))?;
    let (mut pairs, mut commits) = (Duration::ZERO, Duration::ZERO);
    // Round by round, so that a slow moment of the disk hits both alike.
    for _ in 0..count.div_ceil(RESOURCES) {
        pairs += leases.one_pair_each()?;
        commits += commit_rows(&mut raw, RESOURCES)?;
    }
    println!("{:.6} {:.6}", pairs.as_secs_f64(), commits.as_secs_f64());
    Ok(())
}

/// A new catalog, and resources to hold.
struct Leases {
    catalog: Catalog,
    clock: SystemClock,
    keys: Vec<ResourceKey>,
    request: LeaseRequest,
}

impl Leases {
    fn create(path: &Path) -> Result<Self> {
        let clock = SystemClock::new()?;
        let now = clock.now();
        let root = Attrs { mode: 0o755, uid: 0, gid: 0, atime: now.wall, mtime: now.wall, ctime: now.wall };
        let catalog = Catalog::create(path, root, SystemIds.artifact(now.wall))?;
        let keys = (0..RESOURCES).map(|n| Ok(format!("thread:{n}").parse()?)).collect::<Result<_>>()?;
        let request = LeaseRequest { holder: Holder::of("bench", "bench")?, ttl_ms: TTL_MS };
        Ok(Self { catalog, clock, keys, request })
    }

    /// Takes and gives back each resource once, each step durable.
    fn one_pair_each(&self) -> Result<Duration> {
        let start = Instant::now();
        for key in &self.keys {
            self.catalog.acquire_key(key, &self.request, self.clock.now())?;
            self.catalog.release(key, &self.request.holder)?;
        }
        Ok(start.elapsed())
    }
}

fn create_raw(path: &Path) -> Result<Connection> {
    let conn = Connection::open(path)?;
    conn.pragma_update(None, "journal_mode", "WAL")?;
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "foreign_keys", "ON")?;
    conn.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, value TEXT NOT NULL)", [])?;
    Ok(conn)
}

/// Commits one row at a time.
fn commit_rows(conn: &mut Connection, count: usize) -> Result<Duration> {
    let start = Instant::now();
    for _ in 0..count {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.prepare_cached("INSERT INTO t (value) VALUES ('one row')")?.execute([])?;
        tx.commit()?;
    }
    Ok(start.elapsed())
}
