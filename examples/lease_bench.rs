//! Measures the lease table beside raw SQLite that writes the same rows with the same pragmas, in turn.
//!
//! `lease_bench alone DIR COUNT` prints the seconds of COUNT acquires of ours and of raw ones; `lease_bench set DIR COUNT`
//! those of one set of COUNT resources; `lease_bench list DIR COUNT` those of listing COUNT leases; `lease_bench contend DIR
//! SECONDS` has eight processes take and give back 64 keys, then the same with raw SQLite, and prints the acquires a
//! second of both and the longest wait of ours in seconds. `scripts/bench.sh leases` calls it.

#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::clock::{Clock, SystemClock};
use leasehold::engine::{Acquisition, Environment, LeaseError, LeaseFilter, Resource, Workspace};
use leasehold::ids::SystemIds;
use leasehold::model::{Holder, ResourceKey};
use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: lease_bench alone|set|list|contend DIR COUNT";

/// The length of each lease: long enough that none ends within a run.
const TTL_MS: i64 = 8 * 3_600_000;

/// How many resources take turns where one process works alone.
const RESOURCES: usize = 100;

/// Who contends for how many keys.
const PROCESSES: usize = 8;
const KEYS: u64 = 64;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [what, dir, count, rest @ ..] = &args[..] else { return Err(USAGE.into()) };
    let (dir, count) = (PathBuf::from(dir), count.parse::<u64>()?);
    match (what.as_str(), rest) {
        ("alone", []) => alone(&dir, count),
        ("set", []) => set(&dir, count),
        ("list", []) => list(&dir, count),
        ("contend", []) => contend(&dir, count),
        ("one-of-ours", [number]) => one_of_many(&mut Ours::open(&dir, number)?, number, count),
        ("one-of-raw", [number]) => one_of_many(&mut Raw::open(&dir.join("raw.db"), number)?, number, count),
        _ => Err(USAGE.into()),
    }
}

/// Takes and gives back leases.
trait Table {
    /// Takes a key; false if somebody else has it.
    fn acquire(&mut self, key: &str) -> Result<bool>;
    fn release(&mut self, key: &str) -> Result<()>;
}

struct Ours {
    workspace: Workspace,
    holder: Holder,
}

impl Ours {
    fn open(dir: &Path, name: &str) -> Result<Self> {
        let env = Environment { clock: Arc::new(SystemClock::new()?), ids: Arc::new(SystemIds) };
        let root = dir.join("ws");
        let open = if root.exists() { Workspace::open } else { Workspace::init };
        Ok(Self { workspace: open(&root, &env)?, holder: Holder::of("bench", name)? })
    }

    fn request(&self, keys: impl Iterator<Item = String>) -> Result<Acquisition> {
        let key = |key: String| Ok(Resource::Key(key.parse::<ResourceKey>()?));
        let resources = keys.map(key).collect::<Result<Vec<_>>>()?;
        Ok(Acquisition { ttl_ms: Some(TTL_MS), ..Acquisition::of(&self.holder, resources) })
    }
}

impl Table for Ours {
    fn acquire(&mut self, key: &str) -> Result<bool> {
        match self.workspace.acquire(&self.request(std::iter::once(key.to_owned()))?) {
            Ok(_) => Ok(true),
            Err(LeaseError::Busy { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn release(&mut self, key: &str) -> Result<()> {
        self.workspace.release(&[key.parse()?], &self.holder)?;
        Ok(())
    }
}

/// The statements of an acquire and a release, and nothing else.
struct Raw {
    conn: Connection,
    holder: String,
    clock: SystemClock,
}

impl Raw {
    /// Copies the catalog of a workspace, so that tables and pragmas are the same.
    fn create(ours: &Ours, path: &Path) -> Result<()> {
        Ok(ours.workspace.catalog().copy_to(path)?)
    }

    fn open(path: &Path, name: &str) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(path, flags)?;
        conn.busy_timeout(Duration::from_secs(60))?;
        for (name, value) in [("journal_mode", "WAL"), ("synchronous", "FULL"), ("foreign_keys", "ON")] {
            conn.pragma_update(None, name, value)?;
        }
        conn.pragma_update(None, "mmap_size", 0)?;
        conn.pragma_update(None, "cache_size", -8_192)?;
        Ok(Self { conn, holder: format!("bench@{name}"), clock: SystemClock::new()? })
    }
}

const EVENT: &str =
    "INSERT INTO event (at, kind, holder, detail, key, generation, boot, boot_ms, expires_boot_ms, expires)
     VALUES (?1, ?2, ?3, '', ?4, ?5, ?6, ?7, ?8, ?9)";

impl Table for Raw {
    fn acquire(&mut self, key: &str) -> Result<bool> {
        let now = self.clock.now();
        let ends = (now.boot_ms + TTL_MS, now.wall.0 + TTL_MS * 1_000_000);
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let sql = "SELECT holder FROM lease WHERE key = ?1";
        let holder: Option<String> = tx.prepare_cached(sql)?.query_row([key], |row| row.get(0)).optional()?;
        if holder.is_some_and(|holder| holder != self.holder) {
            return Ok(false);
        }
        let sql = "UPDATE meta SET value = value + 1 WHERE key = 'next_generation' RETURNING value";
        let generation: i64 = tx.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        let sql = "INSERT OR REPLACE INTO lease
            (key, holder, generation, boot, expires_boot_ms, expires, fenced) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0)";
        tx.prepare_cached(sql)?.execute((key, &self.holder, generation, now.boot, ends.0, ends.1))?;
        let event =
            (now.wall.0, "granted", &self.holder, key, generation, now.boot, now.boot_ms, ends.0, ends.1);
        tx.prepare_cached(EVENT)?.execute(event)?;
        tx.commit()?;
        Ok(true)
    }

    fn release(&mut self, key: &str) -> Result<()> {
        let now = self.clock.now();
        let tx = self.conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.prepare_cached("DELETE FROM lease WHERE key = ?1")?.execute([key])?;
        let event = (now.wall.0, "released", &self.holder, key, 0, now.boot, now.boot_ms, 0, 0);
        tx.prepare_cached(EVENT)?.execute(event)?;
        tx.commit()?;
        Ok(())
    }
}

/// The seconds of `count` acquires of ours, and of raw ones; what is given back between them doesn't count.
fn alone(dir: &Path, count: u64) -> Result<()> {
    let mut ours = Ours::open(dir, "alone")?;
    Raw::create(&ours, &dir.join("raw.db"))?;
    let mut raw = Raw::open(&dir.join("raw.db"), "alone")?;
    let mut seconds = [Duration::ZERO; 2];
    // Round by round, so that a slow moment of the disk hits both alike.
    for _ in 0..usize::try_from(count)?.div_ceil(RESOURCES) {
        seconds[0] += one_each(&mut ours)?;
        seconds[1] += one_each(&mut raw)?;
    }
    println!("{:.6} {:.6}", seconds[0].as_secs_f64(), seconds[1].as_secs_f64());
    Ok(())
}

fn one_each(table: &mut impl Table) -> Result<Duration> {
    let start = Instant::now();
    for number in 0..RESOURCES {
        table.acquire(&format!("thread:{number}"))?;
    }
    let taken = start.elapsed();
    for number in 0..RESOURCES {
        table.release(&format!("thread:{number}"))?;
    }
    Ok(taken)
}

/// The seconds of one set.
fn set(dir: &Path, count: u64) -> Result<()> {
    let ours = Ours::open(dir, "set")?;
    let request = ours.request((0..count).map(|number| format!("thread:set-{number}")))?;
    let start = Instant::now();
    ours.workspace.acquire(&request)?;
    println!("{:.6}", start.elapsed().as_secs_f64());
    Ok(())
}

/// The seconds of listing so many leases.
fn list(dir: &Path, count: u64) -> Result<()> {
    let ours = Ours::open(dir, "list")?;
    for start in (0..count).step_by(1_000) {
        let keys = (start..(start + 1_000).min(count)).map(|number| format!("thread:list-{number}"));
        ours.workspace.acquire(&ours.request(keys)?)?;
    }
    let start = Instant::now();
    let leases = ours.workspace.leases(&LeaseFilter::default())?;
    println!("{:.6}", start.elapsed().as_secs_f64());
    if leases.len() < usize::try_from(count)? {
        return Err("leases are lacking".into());
    }
    Ok(())
}

/// Acquires a second of eight processes, of ours and of raw ones, and the longest that one of ours took.
fn contend(dir: &Path, seconds: u64) -> Result<()> {
    Raw::create(&Ours::open(dir, "contend")?, &dir.join("raw.db"))?;
    let ours = run_many(dir, seconds, "one-of-ours")?;
    let raw = run_many(dir, seconds, "one-of-raw")?;
    println!("{:.1} {:.1} {:.3} {:.3}", ours.0, raw.0, ours.1, raw.1);
    Ok(())
}

fn run_many(dir: &Path, seconds: u64, what: &str) -> Result<(f64, f64)> {
    let program = std::env::current_exe()?;
    let start = |number: usize| {
        let args = [what.to_owned(), dir.display().to_string(), seconds.to_string(), number.to_string()];
        Command::new(&program).args(args).stdout(Stdio::piped()).spawn()
    };
    let children = (0..PROCESSES).map(start).collect::<std::io::Result<Vec<_>>>()?;
    let (mut taken, mut longest) = (0.0, 0.0_f64);
    for child in children {
        let output = child.wait_with_output()?;
        let text = String::from_utf8(output.stdout)?;
        let (count, wait) = text.trim().split_once(' ').ok_or("a process failed")?;
        taken += count.parse::<f64>()?;
        longest = longest.max(wait.parse()?);
    }
    Ok((taken / f64::from(u32::try_from(seconds)?), longest))
}

/// Takes and gives back keys for some seconds; prints how many it took, and the longest call.
fn one_of_many(table: &mut impl Table, number: &str, seconds: u64) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut taken, mut longest) = (0_u64, Duration::ZERO);
    let mut key = number.parse::<u64>()? * 7;
    while Instant::now() < end {
        key = (key * 5 + 3) % KEYS;
        let name = format!("thread:{key}");
        let start = Instant::now();
        let got = table.acquire(&name)?;
        longest = longest.max(start.elapsed());
        if got {
            taken += 1;
            table.release(&name)?;
        }
    }
    println!("{taken} {:.6}", longest.as_secs_f64());
    Ok(())
}
