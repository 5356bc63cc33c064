//! Many processes that put, get, remove and back up the same few blobs, some of which are killed: what each saw must be
//! explained by what the others did.
//!
//! A peer is this very program, which runs the one test [`serve`] and notes in a log of its own when each call began and
//! what came of it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::blobs::{BlobError, BlobStore, DiskParts, DiskSettings, DiskStore, MemoryStamps, digest_of};
use leasehold::clock::{Clock, SystemClock};
use leasehold::ids::{Ids, SystemIds};

/// How long it lasts unless `LEASEHOLD_STORM_SECONDS` says otherwise.
const SECONDS: u64 = 3;
const PEERS: usize = 8;
const BLOBS: u64 = 32;
/// Tells a peer where it works, and where its log is.
const PLACE: &str = "LEASEHOLD_TEST_STORM";
const LOG: &str = "LEASEHOLD_TEST_STORM_LOG";
/// Files are dated by a clock that moves in steps of up to this.
const CLOCK_STEP_MS: i64 = 10;

/// Bytes of some size, of which none are those of another number.
fn bytes_of(number: u64) -> Vec<u8> {
    let size = usize::try_from(number * 997 % 40_000 + 8).unwrap();
    number.to_le_bytes().into_iter().cycle().take(size).collect()
}

fn store(root: &Path) -> DiskStore {
    let parts = DiskParts {
        settings: DiskSettings { lock_wait_ms: 20_000, ..DiskSettings::default() },
        stamps: Arc::new(MemoryStamps::default()),
        ids: Arc::new(SystemIds),
        clock: Arc::new(SystemClock::new().unwrap()),
    };
    DiskStore::create(&root.join("objects"), &root.join("staging"), &parts).unwrap()
}

/// A peer's side. It goes on until it is told nothing more.
struct Stormer {
    store: DiskStore,
    clock: SystemClock,
    log: File,
}

impl Stormer {
    fn now(&self) -> (i64, i64) {
        let now = self.clock.now();
        (now.boot_ms, now.wall.0 / 1_000_000)
    }

    fn note(&mut self, line: &str) {
        // One write each, which a kill leaves whole.
        self.log.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Notes when a call began, makes it, and notes when it ended with what.
    fn call(&mut self, what: &str, number: u64, bound_ms: i64, call: impl FnOnce(&DiskStore) -> String) {
        let (boot_ms, wall_ms) = self.now();
        self.note(&format!("{what} {number} {bound_ms} {boot_ms} {wall_ms}"));
        let outcome = call(&self.store);
        let (boot_ms, _) = self.now();
        self.note(&format!("= {boot_ms} {outcome}"));
    }

    fn step(&mut self, choice: u64) {
        let (number, choice) = (choice % BLOBS, choice / BLOBS % 100);
        let digest = digest_of(&bytes_of(number));
        let bound_ms = self.now().1 - i64::try_from(choice % 7 * 5).unwrap();
        match choice {
            0..40 => {
                self.call("put", number, 0, |store| told(store.put(&mut &bytes_of(number)[..]), |_| true))
            }
            40..65 => self.call("get", number, 0, |store| read(store, number)),
            65..70 => self.call("get", number, 0, |store| told(store.has(&digest), |there| *there)),
            70..97 => self.call("remove", number, bound_ms, |store| {
                told(store.remove(&digest, Some(bound_ms)), |removed| *removed)
            }),
            _ => self.back_up(),
        }
    }

    fn back_up(&mut self) {
        let lease = self.store.begin_backup().unwrap();
        self.call("backup", 0, 0, |_| {
            std::thread::sleep(Duration::from_millis(5));
            "true".into()
        });
        lease.finish().unwrap();
    }
}

fn told<T>(result: Result<T, BlobError>, done: impl FnOnce(&T) -> bool) -> String {
    match result {
        Ok(value) => done(&value).to_string(),
        Err(error) => format!("{error:?}").replace('\n', " "),
    }
}

fn read(store: &DiskStore, number: u64) -> String {
    let mut found = Vec::new();
    match store.get(&digest_of(&bytes_of(number))) {
        Ok(mut bytes) => match bytes.read_to_end(&mut found) {
            Ok(_) if found == bytes_of(number) => "true".into(),
            Ok(_) => "wrong bytes".into(),
            Err(error) => format!("{error:?}"),
        },
        Err(BlobError::Missing { .. }) => "false".into(),
        Err(error) => format!("{error:?}"),
    }
}

/// Where a peer works, and its log.
pub fn place() -> (PathBuf, File) {
    let log = File::options().create(true).append(true).open(std::env::var_os(LOG).unwrap()).unwrap();
    (PathBuf::from(std::env::var_os(PLACE).unwrap()), log)
}

#[test]
#[ignore = "another test runs it in processes of its own"]
fn serve() {
    let (root, log) = place();
    let mut stormer = Stormer { store: store(&root), clock: SystemClock::new().unwrap(), log };
    let until = root.join("end");
    while !until.exists() {
        for part in SystemIds.token().as_bytes().chunks(8) {
            let hex = std::str::from_utf8(part).unwrap();
            stormer.step(u64::from_str_radix(hex, 16).unwrap());
        }
    }
}

/// A call as its log has it; of one whose caller was killed nobody knows when it ended, and with what.
#[derive(Debug, Clone)]
struct Call {
    what: String,
    number: u64,
    bound_ms: i64,
    begin_ms: i64,
    begin_wall_ms: i64,
    end: Option<(i64, String)>,
}

impl Call {
    fn is(&self, what: &str, outcome: &str) -> bool {
        self.what == what && self.end.as_ref().is_some_and(|end| end.1 == outcome)
    }

    fn end_ms(&self) -> i64 {
        self.end.as_ref().map_or(i64::MAX, |end| end.0)
    }

    /// Whether it is a removal that may have taken away what a put had stored before `seen_ms`.
    fn explains(&self, put: &Self, seen_ms: i64) -> bool {
        self.what == "remove"
            && self.end.as_ref().is_none_or(|end| end.1 == "true")
            && self.end_ms() >= put.begin_ms
            && self.begin_ms <= seen_ms
            && self.bound_ms + CLOCK_STEP_MS >= put.begin_wall_ms
    }
}

fn calls_of(log: &Path) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    for line in fs::read_to_string(log).unwrap_or_default().lines() {
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        if words[0] == "=" {
            let (_, outcome) = line[2..].split_once(' ').unwrap();
            calls.last_mut().unwrap().end = Some((words[1].parse().unwrap(), outcome.to_owned()));
            continue;
        }
        let number = |at: usize| words[at].parse::<i64>().unwrap();
        calls.push(Call {
            what: words[0].to_owned(),
            number: words[1].parse().unwrap(),
            bound_ms: number(2),
            begin_ms: number(3),
            begin_wall_ms: number(4),
            end: None,
        });
    }
    calls
}

/// Starts a peer, which runs a test, with a log of its own.
fn start(test: &str, root: &Path, number: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env(PLACE, root)
        .env(LOG, log_of(root, number))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// The log of a peer, which there is if it came so far.
pub fn log_of(root: &Path, number: usize) -> PathBuf {
    root.join(format!("log-{number}"))
}

/// How long a storm is to last.
pub fn duration() -> Duration {
    let seconds = std::env::var("LEASEHOLD_STORM_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(SECONDS))
}

/// Lets peers work, each of which runs a test, hinders one and kills another now and then, and lets them end. Returns their
/// number.
pub fn storm(test: &str, root: &Path, hinder: impl Fn(&Child)) -> usize {
    let begun = Instant::now();
    let mut peers: Vec<Child> = (0..PEERS).map(|number| start(test, root, number)).collect();
    let mut started = PEERS;
    while begun.elapsed() < duration() {
        std::thread::sleep(Duration::from_millis(200));
        hinder(&peers[(started + PEERS / 2) % PEERS]);
        let victim = started % PEERS;
        assert_eq!(peers[victim].try_wait().unwrap(), None, "a peer ended by itself");
        peers[victim].kill().unwrap();
        peers[victim].wait().unwrap();
        peers[victim] = start(test, root, started);
        started += 1;
    }
    fs::write(root.join("end"), "").unwrap();
    for mut peer in peers {
        assert!(peer.wait().unwrap().success());
    }
    started
}

/// No call failed; what was stored was there until a removal that might take it; none took anything during a backup.
fn check(calls: &[Call]) {
    for call in calls {
        if let Some((_, outcome)) = &call.end {
            assert!(outcome == "true" || outcome == "false", "{call:?}");
        }
    }
    let mut by_number: HashMap<u64, Vec<&Call>> = HashMap::new();
    for call in calls {
        by_number.entry(call.number).or_default().push(call);
    }
    for calls in by_number.values() {
        for missing in calls.iter().filter(|call| call.is("get", "false")) {
            let puts = calls.iter().filter(|put| put.is("put", "true") && put.end_ms() <= missing.begin_ms);
            let Some(put) = puts.max_by_key(|put| put.begin_ms) else { continue };
            let explained = calls.iter().any(|call| call.explains(put, missing.end_ms()));
            assert!(explained, "{put:?} was lost before {missing:?}");
        }
    }
    for backup in calls.iter().filter(|call| call.is("backup", "true")) {
        let inside = |call: &&Call| call.begin_ms > backup.begin_ms && call.end_ms() < backup.end_ms();
        let taken = calls.iter().filter(|call| call.is("remove", "true")).find(inside);
        assert!(taken.is_none(), "{taken:?} during {backup:?}");
    }
}

/// Eight processes, and 32 blobs.
#[test]
fn nothing_is_lost_torn_or_taken_in_a_storm() {
    let root = tempfile::tempdir().unwrap();
    let logs = storm("storm::serve", root.path(), |_| ());
    let calls: Vec<Call> = (0..logs).flat_map(|number| calls_of(&log_of(root.path(), number))).collect();
    let count = |what: &str| calls.iter().filter(|call| call.is(what, "true")).count();
    println!(
        "{} puts, {} gets, {} removals, {} backups",
        count("put"),
        count("get"),
        count("remove"),
        count("backup")
    );
    assert!(["put", "get", "remove"].iter().all(|what| count(what) > 20), "too little was done");
    check(&calls);
    let store = store(root.path());
    for blob in store.inventory().unwrap() {
        assert!(store.is_whole(&blob.digest).unwrap(), "{}", blob.digest);
    }
    // Whatever a killed peer held is free.
    for number in 0..BLOBS {
        store.put(&mut &bytes_of(number)[..]).unwrap();
    }
    store.begin_backup().unwrap().finish().unwrap();
    let mut locks =
        fs::read_dir(root.path().join("objects/.locks")).unwrap().map(|lock| lock.unwrap().file_name());
    let kept = locks.find(|lock| lock.to_str().is_some_and(|lock| lock.ends_with(".lock")));
    assert_eq!(kept, None, "locks of those who ended or were killed");
}
