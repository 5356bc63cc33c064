//! Processes that share one store: who may change an address when others die, stop, and come back.
//!
//! A peer is this very program, which runs the one test [`serve`] and does what its standard input says.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;

use leasehold::blobs::{
    BlobError, BlobStore, DiskParts, DiskSettings, DiskStore, Faults, MemoryStamps, Step, digest_of,
};
use leasehold::clock::SystemClock;
use leasehold::ids::SystemIds;
use leasehold::model::Digest;

use crate::kernel::NameEvents;
use crate::peer::{Peer, answer};

/// Tells a peer where the store is.
const PLACE: &str = "LEASEHOLD_TEST_STORE";
/// How long these stores wait for a lock: a third of what a dead holder that isn't ours would cost.
const WAIT_MS: i64 = 20_000;

fn store(root: &Path) -> DiskStore {
    let parts = DiskParts {
        settings: DiskSettings { lock_wait_ms: WAIT_MS, ..DiskSettings::default() },
        stamps: Arc::new(MemoryStamps::default()),
        ids: Arc::new(SystemIds),
        clock: Arc::new(SystemClock::new().unwrap()),
    };
    DiskStore::create(&root.join("objects"), &root.join("staging"), &parts).unwrap()
}

fn put(store: &DiskStore, text: &str) -> Result<Digest, BlobError> {
    store.put(&mut text.as_bytes()).map(|(digest, _)| digest)
}

/// A directory for a store, whose locks can be looked at.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(place.locks()).unwrap();
        place
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn locks(&self) -> PathBuf {
        self.root().join("objects/.locks")
    }

    /// The names of what locks anything.
    fn locked(&self) -> Vec<String> {
        let entries = fs::read_dir(self.locks()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| !name.starts_with("spare-")).collect()
    }

    /// Lets all locks be as old as if nobody had touched them for long.
    fn let_locks_end(&self) {
        for name in self.locked() {
            File::open(self.locks().join(name)).unwrap().set_modified(UNIX_EPOCH).unwrap();
        }
    }
}

fn start(place: &Place) -> Peer {
    Peer::start("sharing::serve", &[(PLACE, place.root().as_os_str())])
}

/// Starts something that stops when it has taken so many locks.
fn begin(peer: &mut Peer, what: &str, locks: usize) {
    peer.say(&format!("{what} {locks}"));
    assert_eq!(peer.hear(), "paused");
}

/// Stops in the middle of a change, with a lock in hand, until a line comes.
struct PauseAt {
    locks: AtomicUsize,
}

impl Faults for PauseAt {
    fn before(&self, _step: Step) -> io::Result<()> {
        Ok(())
    }

    fn after(&self, step: Step) -> io::Result<()> {
        if step == Step::NameLock && self.locks.fetch_sub(1, Ordering::SeqCst) == 1 {
            answer("paused");
            io::stdin().read_line(&mut String::new())?;
        }
        Ok(())
    }
}

/// A peer's side: `put TEXT LOCKS`, `remove TEXT LOCKS`, `backup LOCKS`, `rounds COUNT`.
#[test]
#[ignore = "other tests run it in a process of its own"]
fn serve() {
    let root = PathBuf::from(std::env::var_os(PLACE).unwrap());
    let mut line = String::new();
    while io::stdin().read_line(&mut line).unwrap() > 0 {
        let words: Vec<&str> = line.split_whitespace().collect();
        let locks = AtomicUsize::new(words.last().unwrap().parse().unwrap());
        let done = match words[..] {
            ["rounds", count] => rounds(&store(&root), count.parse().unwrap()),
            ["put", text, _] => put(&paused(&root, locks), text).map(|_| true),
            ["remove", text, _] => paused(&root, locks).remove(&digest_of(text.as_bytes()), None),
            ["backup", _] => {
                paused(&root, locks).begin_backup().and_then(|lease| lease.finish()).map(|()| true)
            }
            _ => panic!("{line}"),
        };
        answer(&match done {
            Ok(done) => done.to_string(),
            Err(BlobError::LockLost { .. }) => "lost".to_owned(),
            Err(error) => format!("{error:?}"),
        });
        line.clear();
    }
}

fn paused(root: &Path, locks: AtomicUsize) -> DiskStore {
    store(root).with_faults(Arc::new(PauseAt { locks }))
}

/// Puts and removes one address again and again; between that, batches of the same addresses, whose order is another one
/// in each process.
fn rounds(store: &DiskStore, count: usize) -> Result<bool, BlobError> {
    for round in 0..count {
        put_rotated(store, std::process::id() as usize + round)?;
        let digest = put(store, "contended")?;
        store.remove(&digest, None)?;
    }
    Ok(true)
}

fn put_rotated(store: &DiskStore, by: usize) -> Result<(), BlobError> {
    let texts = (0..20).map(|i| ((i * 7 + by) % 20).to_string().into_bytes());
    let mut sources = texts.map(|text| Ok(Box::new(io::Cursor::new(text)) as Box<dyn io::Read>));
    let mut done = Ok(());
    store.put_batch(&mut sources, &mut |_, result| {
        if let Err(error) = result {
            done = Err(error);
        }
    })?;
    done
}

/// Eight processes at one address, which a dead one had locked: none fails, and nothing is left.
#[test]
fn processes_contend_for_one_address() {
    let place = Place::new();
    let digest = digest_of(b"contended");
    let lock = place.locks().join(format!("{digest}.lock"));
    fs::write(&lock, "rust:token/2").unwrap();
    place.let_locks_end();
    let mut peers: Vec<Peer> = (0..8).map(|_| start(&place)).collect();
    peers.iter_mut().for_each(|peer| peer.say("rounds 6"));
    for peer in &mut peers {
        assert_eq!(peer.hear(), "true");
    }
    assert_eq!(place.locked(), Vec::<String>::new());
    let store = store(place.root());
    assert!(!store.has(&digest).unwrap());
    put(&store, "contended").unwrap();
    assert!(store.is_whole(&digest).unwrap());
}

/// The events of a directory of locks as a peer takes them, which looks at names: one that came from a spare file was
/// created, and one that became a spare file was deleted.
fn as_seen_by_a_peer(events: Vec<String>) -> Vec<String> {
    let spare = |event: &str| event.contains(" spare-");
    let mut seen = Vec::new();
    let mut events = events.into_iter().peekable();
    while let Some(event) = events.next() {
        match (event.split_once(' '), events.peek()) {
            (Some(("MOVED_FROM", name)), Some(next)) if spare(next) && !spare(&event) => {
                seen.push(format!("DELETE {name}"));
            }
            (Some(("MOVED_FROM", _)), Some(next)) if spare(&event) => {
                seen.push(next.replace("MOVED_TO", "CREATE"));
                events.next();
            }
            _ if spare(&event) => {}
            _ => seen.push(event),
        }
    }
    seen
}

/// What one reclaim and the change after it do to `.locks`, in order: as a live peer expects it.
#[test]
fn a_reclaim_is_the_peers_dance() {
    let place = Place::new();
    let lock = format!("{}.lock", digest_of(b"text"));
    fs::write(place.locks().join(&lock), "rust:token/2 é").unwrap();
    place.let_locks_end();
    let mut events = NameEvents::watch(&place.locks());
    put(&store(place.root()), "text").unwrap();
    let seen = as_seen_by_a_peer(events.take());
    let token = seen.iter().find_map(|event| event.strip_prefix(&format!("MOVED_TO {lock}.stale-")));
    let token = token.unwrap_or_else(|| panic!("{seen:?}"));
    assert!(token.starts_with("lh-"), "{token}");
    let expected = [
        format!("CREATE {lock}.reclaim-rust_token_2__"),
        format!("MOVED_FROM {lock}"),
        format!("MOVED_TO {lock}.stale-{token}"),
        format!("DELETE {lock}.stale-{token}"),
        format!("DELETE {lock}.reclaim-rust_token_2__"),
        format!("CREATE {lock}"),
        format!("DELETE {lock}"),
    ];
    assert_eq!(seen, expected);
}

/// The gate is held around each change of the marker and each removal, and never longer.
#[test]
fn the_gate_is_there_for_moments() {
    let place = Place::new();
    let store = store(place.root());
    let digest = put(&store, "text").unwrap();
    let gate = [".backup-lease-gate.lock"; 2].map(str::to_owned);
    let gate = [format!("CREATE {}", gate[0]), format!("DELETE {}", gate[1])];
    let mut events = NameEvents::watch(&place.locks());
    let mut objects = NameEvents::watch(&place.root().join("objects"));
    let lease = store.begin_backup().unwrap();
    assert_eq!(
        (as_seen_by_a_peer(events.take()), objects.take()),
        (gate.to_vec(), vec!["CREATE .backup-lease".to_owned()])
    );
    assert!(!store.remove(&digest, None).unwrap());
    let lock = format!("{digest}.lock");
    let removal = [vec![format!("CREATE {lock}")], gate.to_vec(), vec![format!("DELETE {lock}")]].concat();
    assert_eq!(as_seen_by_a_peer(events.take()), removal);
    lease.finish().unwrap();
    assert_eq!(
        (as_seen_by_a_peer(events.take()), objects.take()),
        (gate.to_vec(), vec!["DELETE .backup-lease".to_owned()])
    );
    assert!(store.remove(&digest, None).unwrap());
    assert_eq!(as_seen_by_a_peer(events.take()), removal);
}

/// A process that is killed with a lock, the gate or a marker in hand holds nobody up: not even for the 20 s that these
/// stores would wait.
#[test]
fn what_a_killed_process_held_is_free_at_once() {
    let place = Place::new();
    let store = store(place.root());
    put(&store, "text").unwrap();
    for (what, locks) in
        [("put text", 1), ("remove text", 1), ("remove text", 2), ("backup", 1), ("backup", 2)]
    {
        let mut peer = start(&place);
        begin(&mut peer, what, locks);
        assert!(!place.locked().is_empty() || what == "backup", "{what}");
        peer.kill();
        let digest = put(&store, "text").unwrap();
        assert!(store.remove(&digest, None).unwrap(), "{what} {locks}");
        put(&store, "text").unwrap();
        assert_eq!(place.locked(), Vec::<String>::new(), "{what} {locks}");
    }
}

/// A process that is stopped, and wakes when its lock is another's, changes nothing.
#[test]
fn a_holder_that_wakes_too_late_changes_nothing() {
    let place = Place::new();
    let store = store(place.root());
    let digest = digest_of(b"text");
    // A put that would bring back what was removed meanwhile; it has its lock and has not yet renamed.
    let mut peer = start(&place);
    begin(&mut peer, "put text", 1);
    peer.signal(libc::SIGSTOP);
    place.let_locks_end();
    assert!(!store.remove(&digest, None).unwrap(), "nothing is there yet");
    peer.signal(libc::SIGCONT);
    peer.say("");
    assert_eq!(peer.hear(), "lost");
    assert!(!store.has(&digest).unwrap());

    // A removal that would take away what was put again meanwhile; it has both of its locks.
    put(&store, "text").unwrap();
    begin(&mut peer, "remove text", 2);
    peer.signal(libc::SIGSTOP);
    place.let_locks_end();
    put(&store, "text").unwrap();
    peer.signal(libc::SIGCONT);
    peer.say("");
    assert_eq!(peer.hear(), "lost");
    assert!(store.is_whole(&digest).unwrap());

    // A backup during which a blob was removed.
    begin(&mut peer, "backup", 2);
    peer.signal(libc::SIGSTOP);
    File::open(place.root().join("objects/.backup-lease")).unwrap().set_modified(UNIX_EPOCH).unwrap();
    place.let_locks_end();
    assert!(store.remove(&digest, None).unwrap());
    peer.signal(libc::SIGCONT);
    peer.say("");
    assert_eq!(peer.hear(), "lost");
    assert_eq!(place.locked(), Vec::<String>::new());
}
