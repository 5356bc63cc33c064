use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::{Condvar, Mutex};

use super::*;
use crate::blobs::{MemoryStore, TransportFault, contract, digest_of};
use crate::clock::ManualClock;

/// Short enough to be waited for. What is late here stays so until the test lets it go.
const SHORT: Duration = Duration::from_millis(20);

/// How a store answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// As the store in memory.
    Well,
    /// As if each blob were damaged.
    Corrupt,
    /// With an error.
    Failing,
    /// Takes what is put, and forgets it.
    Forgetful,
    /// Sends other bytes.
    Lying,
    /// Panics in a put.
    Dying,
}

/// A store in memory that fails as it is told to, and notes what it is asked.
struct Double {
    name: &'static str,
    blobs: MemoryStore,
    mode: Mutex<Mode>,
    /// Whether puts, and gets from the shared store, stand still.
    stalled: Mutex<bool>,
    released: Condvar,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Double {
    fn note(&self, call: &str) -> Mode {
        self.calls.lock().push(format!("{}.{call}", self.name));
        *self.mode.lock()
    }

    fn hold(&self) {
        *self.stalled.lock() = true;
    }

    fn stand_still(&self) {
        let mut stalled = self.stalled.lock();
        self.released.wait_while(&mut stalled, |stalled| *stalled);
    }

    fn let_go(&self) {
        *self.stalled.lock() = false;
        self.released.notify_all();
    }

    fn failure() -> BlobError {
        BlobError::Transport { operation: "do it", fault: TransportFault::Deadline }
    }
}

impl BlobStore for Double {
    fn put(&self, source: &mut dyn Read) -> Result<(Digest, u64), BlobError> {
        let mode = self.note("put");
        self.stand_still();
        match mode {
            Mode::Failing => Err(Self::failure()),
            Mode::Dying => panic!("BUG: provoked by the test"),
            Mode::Forgetful => MemoryStore::default().put(source),
            Mode::Well | Mode::Corrupt | Mode::Lying => self.blobs.put(source),
        }
    }

    fn open(&self, digest: &Digest) -> Result<Blob, BlobError> {
        let mode = self.note("get");
        if self.name == "shared" {
            self.stand_still();
        }
        match mode {
            Mode::Failing => Err(Self::failure()),
            Mode::Corrupt => Err(BlobError::Corrupt { digest: *digest, found: digest_of(b"other") }),
            Mode::Lying => Ok(Blob::of_memory(b"other".as_slice().into())),
            Mode::Well | Mode::Forgetful | Mode::Dying => self.blobs.open(digest),
        }
    }

    fn has(&self, digest: &Digest) -> Result<bool, BlobError> {
        match self.note("has") {
            Mode::Failing => Err(Self::failure()),
            _ => self.blobs.has(digest),
        }
    }

    fn find_missing(&self, digests: &[Digest]) -> Result<Vec<Digest>, BlobError> {
        match self.note(&format!("missing {}", digests.len())) {
            Mode::Failing => Err(Self::failure()),
            _ => self.blobs.find_missing(digests),
        }
    }
}

struct Pair {
    local: Arc<Double>,
    shared: Arc<Double>,
    calls: Arc<Mutex<Vec<String>>>,
    store: Arc<CombinedStore>,
}

fn pair_with(settings: CombinedSettings) -> Pair {
    let calls = Arc::<Mutex<Vec<String>>>::default();
    let [local, shared] = ["local", "shared"].map(|name| {
        Arc::new(Double {
            name,
            blobs: MemoryStore::default(),
            mode: Mutex::new(Mode::Well),
            stalled: Mutex::default(),
            released: Condvar::new(),
            calls: Arc::clone(&calls),
        })
    });
    let clock = Arc::new(ManualClock::new());
    let store = CombinedStore::new(local.clone(), shared.clone(), settings, clock).unwrap();
    Pair { local, shared, calls, store: Arc::new(store) }
}

fn pair(policy: DownloadPolicy) -> Pair {
    pair_with(CombinedSettings { policy, ..CombinedSettings::default() })
}

fn short() -> Pair {
    pair_with(CombinedSettings { upload_timeout: SHORT, write_back_timeout: SHORT, ..Default::default() })
}

impl Pair {
    fn set(&self, local: Mode, shared: Mode) {
        *self.local.mode.lock() = local;
        *self.shared.mode.lock() = shared;
    }

    fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock())
    }

    /// The bytes of a blob, or the error's code.
    fn get(&self, bytes: &[u8]) -> Result<Vec<u8>, &'static str> {
        let mut found = Vec::new();
        let mut reader = self.store.get(&digest_of(bytes)).map_err(|error| error.code())?;
        reader.read_to_end(&mut found).unwrap();
        Ok(found)
    }
}

fn put(store: &dyn BlobStore, bytes: &[u8]) -> Result<Digest, BlobError> {
    store.put(&mut &bytes[..]).map(|(digest, _)| digest)
}

#[test]
fn two_stores_together_keep_the_contract() {
    let combined = |policy: DownloadPolicy, shared: Mode| {
        move || {
            let pair = pair(policy);
            pair.set(Mode::Well, shared);
            Arc::into_inner(pair.store).unwrap()
        }
    };
    for (policy, _) in DownloadPolicy::NAMES {
        contract::holds(combined(policy, Mode::Well));
        contract::holds(combined(policy, Mode::Forgetful));
    }
}

/// The table at the top of the module, each cell with the calls that it makes and what is here afterwards.
#[test]
fn what_is_asked_of_the_shared_store_and_kept_depends_on_the_answer_here_and_the_policy() {
    use DownloadPolicy::{All, Minimal, Toplevel};
    let bytes = b"the bytes";
    let fetched = ["local.get", "shared.get"].as_slice();
    let kept = ["local.get", "shared.get", "local.put", "local.get"].as_slice();
    let here = ["local.get"].as_slice();
    for policy in [All, Toplevel, Minimal] {
        let rows = [
            (Mode::Well, true, here, Ok(bytes.to_vec())),
            (Mode::Well, false, if policy == Minimal { fetched } else { kept }, Ok(bytes.to_vec())),
            (Mode::Corrupt, true, kept, Ok(bytes.to_vec())),
            (Mode::Failing, true, here, Err("transport_failed")),
        ];
        for (mode, is_here, calls, answer) in rows {
            let pair = pair(policy);
            put(&pair.shared.blobs, bytes).unwrap();
            if is_here {
                put(&pair.local.blobs, bytes).unwrap();
            }
            pair.set(mode, Mode::Well);
            let case = format!("{policy:?}, {mode:?}, here: {is_here}");
            assert_eq!(pair.get(bytes), answer, "{case}");
            assert_eq!(pair.take_calls(), calls, "{case}");
            let is_kept = pair.local.blobs.has(&digest_of(bytes)).unwrap();
            assert_eq!(is_kept, is_here || calls == kept, "{case}");
        }
    }
}

/// What the shared store says where nothing is here is the answer; what is damaged here is not "missing".
#[test]
fn a_shared_store_that_has_nothing_or_fails_is_the_answer() {
    let rows = [
        (Mode::Well, Mode::Well, "artifact_missing"),
        (Mode::Well, Mode::Failing, "transport_failed"),
        (Mode::Well, Mode::Corrupt, "artifact_corruption"),
        (Mode::Corrupt, Mode::Well, "artifact_corruption"),
        (Mode::Corrupt, Mode::Failing, "transport_failed"),
        (Mode::Well, Mode::Lying, "artifact_corruption"),
    ];
    for (local, shared, code) in rows {
        let pair = pair(DownloadPolicy::All);
        pair.set(local, shared);
        assert_eq!(pair.get(b"never stored"), Err(code), "{local:?} {shared:?}");
        assert!(!pair.local.blobs.has(&digest_of(b"never stored")).unwrap());
    }
}

/// A full disk, a store that stands still, a thread that dies: the reader has its bytes.
#[test]
fn bytes_that_cannot_be_kept_are_read_all_the_same() {
    for mode in [Mode::Failing, Mode::Dying] {
        let pair = pair(DownloadPolicy::All);
        let digest = put(&pair.shared.blobs, b"bytes").unwrap();
        pair.set(mode, Mode::Well);
        let missing = BlobError::Missing { digest };
        assert_eq!(pair.store.fetch(&digest, missing, DownloadPolicy::All).unwrap().size(), 5, "{mode:?}");
        assert_eq!(pair.store.tally().write_back_failures, 1);
    }
    let pair = short();
    put(&pair.shared.blobs, b"bytes").unwrap();
    pair.local.hold();
    assert_eq!(pair.get(b"bytes"), Ok(b"bytes".to_vec()));
    assert_eq!(pair.store.tally().write_back_failures, 1, "it stands still");
    pair.local.let_go();
}

/// Once nobody waits, the source of a transfer ends, so that a store which goes on keeps nothing half.
#[test]
fn a_transfer_that_is_late_gets_no_more_bytes() {
    let pair = short();
    put(&pair.shared.blobs, b"bytes").unwrap();
    let (seen, noted) = std::sync::mpsc::channel();
    let gate = Arc::new(AtomicBool::new(false));
    let (open, late) = (Arc::clone(&gate), pair.shared.open(&digest_of(b"bytes")).unwrap());
    let outcome = transfer::alone(SHORT, move |limit| {
        let mut reader = limit.reader(late.reader());
        while !open.load(Ordering::Acquire) {
            thread::yield_now();
        }
        seen.send(reader.read(&mut [0; 8]).map_err(|error| error.kind())).unwrap();
        Ok(())
    });
    assert!(matches!(outcome, Err(Dropped::Late)));
    gate.store(true, Ordering::Release);
    assert_eq!(noted.recv().unwrap(), Err(std::io::ErrorKind::TimedOut));
}

/// What is stored here is stored, whatever the shared store does; what fails here isn't uploaded.
#[test]
fn a_put_depends_on_the_store_here_alone() {
    for (mode, failures) in [(Mode::Well, 0), (Mode::Failing, 1), (Mode::Dying, 1), (Mode::Forgetful, 0)] {
        let pair = pair(DownloadPolicy::All);
        pair.set(Mode::Well, mode);
        assert_eq!(put(&*pair.store, b"new").unwrap(), digest_of(b"new"));
        assert_eq!(pair.take_calls(), ["local.put", "local.get", "shared.put"], "{mode:?}");
        assert_eq!(pair.store.tally().put_failures, failures, "{mode:?}");
    }
    let pair = short();
    pair.shared.hold();
    assert_eq!(put(&*pair.store, b"new").unwrap(), digest_of(b"new"));
    assert_eq!(pair.store.tally().put_failures, 1, "it stands still");
    pair.shared.let_go();
    pair.set(Mode::Failing, Mode::Well);
    pair.take_calls();
    assert!(put(&*pair.store, b"other").is_err());
    assert_eq!(pair.take_calls(), ["local.put"]);
}

/// Ends when the calls that were noted are as many as wanted.
fn wait_for_calls(pair: &Pair, call: &str, count: usize) {
    while pair.calls.lock().iter().filter(|noted| *noted == call).count() < count {
        thread::yield_now();
    }
}

/// Puts of one digest at a time make one upload, one after the other makes another; a leader that dies fails all.
#[test]
fn uploads_of_one_digest_join() {
    for (mode, failures) in [(Mode::Well, 0), (Mode::Dying, 2)] {
        let pair = pair(DownloadPolicy::All);
        pair.set(Mode::Well, mode);
        pair.shared.hold();
        thread::scope(|scope| {
            let putting = || put(&*pair.store, b"one").unwrap();
            scope.spawn(putting);
            wait_for_calls(&pair, "shared.put", 1);
            scope.spawn(putting);
            wait_for_calls(&pair, "local.put", 2);
            // Whoever waits holds the transfer: the map, the thread, and each of the two.
            let waiters = || pair.store.uploads.holders(&digest_of(b"one"));
            while waiters() < 4 {
                thread::yield_now();
            }
            pair.shared.let_go();
        });
        let uploads = |calls: Vec<String>| calls.iter().filter(|call| *call == "shared.put").count();
        assert_eq!((uploads(pair.take_calls()), pair.store.tally().put_failures), (1, failures), "{mode:?}");
        put(&*pair.store, b"one").unwrap();
        assert_eq!(uploads(pair.take_calls()), 1, "the next one begins anew");
    }
}

/// All who want a blob at a time wait for one download, whatever comes of it, and each reads from the start; whoever
/// wants it later begins anew.
#[test]
fn downloads_of_one_digest_join() {
    let cases = [(Mode::Well, Ok(b"one".to_vec())), (Mode::Failing, Err("transport_failed"))];
    for (policy, (mode, answer)) in [DownloadPolicy::All, DownloadPolicy::Minimal]
        .into_iter()
        .flat_map(|policy| cases.clone().map(|case| (policy, case)))
    {
        let pair = pair(policy);
        put(&pair.shared.blobs, b"one").unwrap();
        pair.set(Mode::Well, mode);
        pair.shared.hold();
        thread::scope(|scope| {
            let get = || assert_eq!(pair.get(b"one"), answer, "{policy:?}");
            scope.spawn(get);
            wait_for_calls(&pair, "shared.get", 1);
            scope.spawn(get);
            scope.spawn(get);
            // The map, the thread (its place twice), and each of the three.
            while pair.store.downloads.holders(&digest_of(b"one")) < 5 {
                thread::yield_now();
            }
            pair.shared.let_go();
        });
        let downloads = |calls: Vec<String>| calls.iter().filter(|call| *call == "shared.get").count();
        assert_eq!(downloads(pair.take_calls()), 1, "{policy:?} {mode:?}");
        let is_here = mode == Mode::Well && policy == DownloadPolicy::All;
        assert_eq!((pair.get(b"one"), downloads(pair.take_calls())), (answer, usize::from(!is_here)));
    }
}

/// Who waits for a download that stands still waits no longer than for one of his own.
#[test]
fn a_download_that_stands_still_is_given_up() {
    let pair = pair_with(CombinedSettings {
        download_timeout: SHORT,
        write_back_timeout: SHORT,
        ..CombinedSettings::default()
    });
    put(&pair.shared.blobs, b"one").unwrap();
    pair.shared.hold();
    let missing = BlobError::Missing { digest: digest_of(b"one") };
    let late = pair.store.fetch(&digest_of(b"one"), missing, DownloadPolicy::All).unwrap_err();
    assert!(matches!(late, BlobError::Transport { fault: TransportFault::Deadline, .. }), "{late}");
    pair.shared.let_go();
    assert_eq!(pair.get(b"one"), Ok(b"one".to_vec()));
}

/// The shared store is asked only for what is not here.
#[test]
fn presence_is_asked_here_first() {
    let pair = pair(DownloadPolicy::All);
    let here = put(&pair.local.blobs, b"here").unwrap();
    let there = put(&pair.shared.blobs, b"there").unwrap();
    let nowhere = digest_of(b"nowhere");
    let has = |digest| (pair.store.has(&digest).unwrap(), pair.take_calls().len());
    assert_eq!([here, there, nowhere].map(has), [(true, 1), (true, 2), (false, 2)]);
    assert_eq!(pair.store.find_missing(&[nowhere, here, there]).unwrap(), [nowhere]);
    assert_eq!(pair.take_calls(), ["local.missing 3", "shared.missing 2"]);
    assert_eq!(pair.store.find_missing(&[here, here]).unwrap(), []);
    assert_eq!(pair.take_calls(), ["local.missing 2"]);
    pair.set(Mode::Failing, Mode::Well);
    assert!(pair.store.has(&here).is_err() && pair.store.find_missing(&[here]).is_err());
}

#[test]
fn settings_are_checked_before_anything_is_asked() {
    let day = Duration::from_secs(86_400);
    for (timeout, is_usable) in
        [(Duration::ZERO, false), (Duration::MAX, false), (day * 2, false), (day, true), (SHORT, true)]
    {
        let default = CombinedSettings::default();
        for settings in [
            CombinedSettings { upload_timeout: timeout, ..default },
            CombinedSettings { download_timeout: timeout, ..default },
            CombinedSettings { write_back_timeout: timeout, ..default },
        ] {
            let memory = || Arc::new(MemoryStore::default());
            let made = CombinedStore::new(memory(), memory(), settings, Arc::new(ManualClock::new()));
            assert_eq!(made.map(drop).map_err(|error| error.code()).is_ok(), is_usable, "{settings:?}");
        }
    }
    let named = ["all", "toplevel", "minimal", "everything", "All", ""].map(DownloadPolicy::from_name);
    assert_eq!(named.map(|policy| policy.is_some()), [true, true, true, false, false, false]);
}

/// A reference to blobs may go out only when the shared store shows them; one that takes and forgets doesn't.
#[test]
fn what_is_relied_on_is_asked_for_again() {
    let pair = pair(DownloadPolicy::All);
    let (one, two) = (put(&pair.local.blobs, b"1").unwrap(), put(&pair.local.blobs, b"2").unwrap());
    put(&pair.shared.blobs, b"1").unwrap();
    let upload = |mode| {
        pair.set(Mode::Well, mode);
        pair.store.upload_missing(&[one, two], &|| true).map_err(|error| error.code())
    };
    let left = |sent, missing: &[Digest]| Ok(Uploaded { sent, missing: missing.to_vec() });
    assert_eq!(upload(Mode::Forgetful), left(1, &[two]));
    assert_eq!(upload(Mode::Dying), left(0, &[two]));
    assert_eq!(upload(Mode::Failing), Err("transport_failed"));
    pair.set(Mode::Well, Mode::Well);
    assert_eq!(
        pair.store.upload_missing(&[one, two], &|| false).unwrap().missing,
        [two],
        "it was told to stop"
    );
    assert_eq!(upload(Mode::Well), left(1, &[]));
    pair.take_calls();
    assert_eq!(upload(Mode::Well), left(0, &[]));
    assert_eq!(pair.take_calls(), ["shared.missing 2"]);
}

/// What counts is what was stored here and read from here, however it came; failures of the shared store have names.
#[test]
fn stored_read_and_dropped_are_counted() {
    let pair = pair(DownloadPolicy::All);
    put(&*pair.store, b"1").unwrap();
    put(&*pair.store, b"1").unwrap();
    put(&pair.shared.blobs, b"there").unwrap();
    // Written back, then read from here; never there; damaged here.
    for bytes in [&b"there"[..], b"there", b"nowhere"] {
        let _ = pair.get(bytes);
    }
    pair.set(Mode::Corrupt, Mode::Failing);
    assert!(pair.get(b"1").is_err());
    pair.set(Mode::Well, Mode::Failing);
    put(&*pair.store, b"2").unwrap();
    let last_put_failure = Some(Double::failure().to_string());
    let expected =
        RemoteTally { puts: 4, gets: 1, put_failures: 1, write_back_failures: 0, last_put_failure };
    assert_eq!(pair.store.tally(), expected);
}
