use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::found::{Generation, look, note_signer};
use super::heart::Beating;
use super::*;
use crate::blobs::faults::tests::{after, before};
use crate::blobs::{Fault, FaultPlan, Step, digest_of};
use crate::clock::{ManualClock, SystemClock};
use crate::ids::SystemIds;
use crate::model::Instant;
use crate::sys;

const EACCES: i32 = 13;
const SECOND_NS: i64 = 1_000_000_000;
/// Of a process that never was, in the boot of manual clocks.
const OURS_DEAD: &str = "lh-00000001-4194304-1-00-0";

/// A directory of blobs, and what happens while somebody waits there.
struct Yard {
    root: tempfile::TempDir,
    clock: Arc<Watch>,
}

/// A manual clock; a wait is a moment for others to do something.
#[derive(Default)]
struct Watch {
    clock: ManualClock,
    meanwhile: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl Clock for Watch {
    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn sleep(&self, duration: Duration) {
        self.clock.sleep(duration);
        if let Some(meanwhile) = &*self.meanwhile.lock() {
            meanwhile();
        }
    }
}

impl Yard {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("objects/.locks")).unwrap();
        Self { root, clock: Arc::default() }
    }

    fn objects(&self) -> PathBuf {
        self.root.path().join("objects")
    }

    fn locks(&self) -> Arc<Locks> {
        self.locks_of(Coordination::Required)
    }

    fn locks_of(&self, coordination: Coordination) -> Arc<Locks> {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        Arc::new(Locks::new(&self.objects(), coordination, 120_000, clock, Arc::new(SystemIds)).unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.objects().join(".locks").join(name)
    }

    /// Puts a file where a lock is, touched so long ago.
    fn plant(&self, name: &str, token: &str, age_ns: i64) {
        fs::write(self.path(name), token).unwrap();
        self.age(name, age_ns);
    }

    fn age(&self, name: &str, age_ns: i64) {
        let time = self.clock.now().wall.0 - age_ns;
        let time = UNIX_EPOCH + Duration::from_nanos(time.cast_unsigned());
        File::open(self.path(name)).unwrap().set_modified(time).unwrap();
    }

    fn age_of(&self, name: &str) -> i64 {
        let metadata = fs::metadata(self.path(name)).unwrap();
        self.clock.now().wall.0 - metadata.mtime() * SECOND_NS - metadata.mtime_nsec()
    }

    fn inode(&self, name: &str) -> u64 {
        fs::metadata(self.path(name)).unwrap().ino()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The names of what locks anything.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.objects().join(".locks")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| !name.starts_with("spare-"));
        names.sort();
        names
    }

    /// Lets something happen in each wait.
    fn meanwhile(&self, action: impl Fn() + Send + 'static) {
        *self.clock.meanwhile.lock() = Some(Box::new(action));
    }

    /// How long it took, by the clock.
    fn waited_ms(&self, action: impl FnOnce()) -> i64 {
        let begun = self.clock.now().boot_ms;
        action();
        self.clock.now().boot_ms - begun
    }
}

fn digest() -> Digest {
    digest_of(b"locked")
}

fn name() -> String {
    format!("{}.lock", digest())
}

fn is_lost<T>(result: Result<T, BlobError>) -> bool {
    matches!(result, Err(BlobError::LockLost { .. }))
}

/// While it is held, a lock is a file as the peer makes it; released or dropped, it is gone.
#[test]
fn a_lock_is_a_file_with_a_token_as_long_as_it_is_held() {
    let yard = Yard::new();
    fs::remove_dir(yard.objects().join(".locks")).unwrap();
    let locks = yard.locks();
    for is_released in [true, false] {
        let lock = locks.lock(&digest()).unwrap();
        assert_eq!(yard.names(), [name()]);
        let token = yard.read(&name());
        assert!(token.starts_with("lh-") && token.len() <= 96, "{token}");
        assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'), "{token}");
        let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!((mode(yard.path(&name())), mode(yard.path(""))), (0o600, 0o700));
        assert_eq!(yard.age_of(&name()), 0, "the time is the clock's, to the nanosecond");
        lock.confirm().unwrap();
        if is_released {
            lock.release().unwrap()
        } else {
            drop(lock)
        }
        assert!(yard.names().is_empty());
    }
}

/// Old is more than sixty seconds, in whole milliseconds of both times; the future is never old.
#[test]
fn a_lock_is_stale_after_a_minute() {
    let yard = Yard::new();
    let locks = yard.locks();
    let places = locks.places().unwrap();
    let dir = places.locks.as_ref().unwrap();
    for (age_ns, is_free) in [
        (0, false),
        (59_900_000_000, false),
        (60_000_000_000, false),
        // What the peer sets as a whole millisecond reads back up to 1 µs low, so as the one before.
        (60_000_000_001, true),
        (60_001_000_000, true),
        (-90_000_000_000, false),
    ] {
        yard.plant(&name(), "foreign", age_ns);
        let found = look(&locks.env, dir, &Subject::Address(digest()).file_name()).unwrap().unwrap();
        assert_eq!(found.is_free, is_free, "{age_ns}");
        assert_eq!(found.generation, Generation::Token(b"foreign".into()));
    }
}

/// A foreign holder that beats is waited for until the deadline, and is left alone.
#[test]
fn a_lock_that_somebody_holds_is_waited_for_two_minutes() {
    let yard = Yard::new();
    let (locks, path, clock) = (yard.locks(), yard.path(&name()), Arc::clone(&yard.clock));
    yard.plant(&name(), "foreign", 0);
    yard.meanwhile(move || {
        let time = UNIX_EPOCH + Duration::from_nanos(clock.now().wall.0.cast_unsigned());
        File::open(&path).unwrap().set_modified(time).unwrap();
    });
    let waited = yard.waited_ms(|| {
        let refused = locks.lock(&digest()).err();
        assert!(
            matches!(refused, Some(BlobError::Locked { waited_ms: 120_000, ref path })
            if path.ends_with(name())),
            "{refused:?}"
        );
    });
    assert_eq!((waited, yard.read(&name()).as_str()), (120_000, "foreign"));
    assert_eq!(yard.names(), [name()]);
}

/// A lock that is given back while it is waited for is taken at the next look, 25 ms later at most.
#[test]
fn a_lock_that_is_given_back_is_taken_soon() {
    let yard = Yard::new();
    let (locks, path) = (yard.locks(), yard.path(&name()));
    yard.plant(&name(), "foreign", 0);
    let looks = AtomicUsize::new(0);
    yard.meanwhile(move || {
        if looks.fetch_add(1, Ordering::Relaxed) == 3 {
            fs::remove_file(&path).unwrap();
        }
    });
    assert_eq!(yard.waited_ms(|| locks.lock(&digest()).unwrap().release().unwrap()), 100);
}

/// Threads take turns before they look at files, whatever the store's path is called, and the wait counts.
#[test]
fn threads_take_turns_by_the_directory_not_its_path() {
    for coordination in [Coordination::Required, Coordination::Process] {
        let (yard, other) = (Yard::new(), Yard::new());
        let alias = yard.root.path().join("alias");
        symlink(yard.root.path(), &alias).unwrap();
        let of = |objects: PathBuf, wait_ms| {
            let clock = Arc::clone(&yard.clock) as Arc<dyn Clock>;
            Locks::new(&objects, coordination, wait_ms, clock, Arc::new(SystemIds)).unwrap()
        };
        let held = of(yard.objects(), 0).lock(&digest()).map(|lock| lock.release());
        held.unwrap().unwrap();
        let locks = of(yard.objects(), 0);
        let lock = locks.lock(&digest()).unwrap();
        thread::scope(|scope| {
            let twin = scope.spawn(|| of(alias.join("objects"), 10).lock(&digest()).is_ok());
            assert!(!twin.join().unwrap(), "the same directory");
            let elsewhere = scope.spawn(|| other.locks_of(coordination).lock(&digest()).is_ok());
            assert!(elsewhere.join().unwrap(), "another directory");
            let another = scope.spawn(|| of(yard.objects(), 0).lock(&digest_of(b"other")).is_ok());
            assert!(another.join().unwrap(), "another address");
            let waiter = scope.spawn(|| of(alias.join("objects"), 60_000).lock(&digest()).is_ok());
            lock.release().unwrap();
            assert!(waiter.join().unwrap(), "woken when it ended");
        });
    }
}

/// One wrong order in some rare case would stop two processes for two minutes: so any is found at once.
#[test]
#[cfg(debug_assertions)]
fn an_address_is_never_locked_under_the_gate_nor_under_another() {
    let yard = Yard::new();
    let locks = yard.locks();
    for first in [Subject::Gate, Subject::Address(digest())] {
        let held = locks.acquire(first, i64::MAX).unwrap();
        let attempt = std::panic::AssertUnwindSafe(|| drop(locks.lock(&digest_of(b"second"))));
        assert!(std::panic::catch_unwind(attempt).is_err(), "{first:?}");
        drop(held);
    }
    let address = locks.lock(&digest()).unwrap();
    locks.gate().unwrap().release().unwrap();
    address.release().unwrap();
}

/// A batch goes from address to address with one file, which beats under each name.
#[test]
fn a_batch_takes_its_lock_along() {
    let yard = Yard::new();
    let locks = yard.locks();
    let digests: Vec<Digest> = (0..4_u8).map(|i| digest_of(&[i])).collect();
    let name = |i: usize| format!("{}.lock", digests[i]);
    let lock = locks.lock_next(None, &digests[0]).unwrap();
    let (inode, first) = (yard.inode(&name(0)), Arc::clone(&lock.held.as_ref().unwrap().own));
    yard.clock.clock.advance_ms(15_000);
    let lock = locks.lock_next(Some(lock), &digests[1]).unwrap();
    assert_eq!((yard.names(), yard.inode(&name(1))), (vec![name(1)], inode));
    assert_eq!(yard.age_of(&name(1)), 0, "young under its new name");
    assert!(!first.beat(), "a beat that was under way ends");
    yard.clock.clock.advance_ms(30_000);
    locks.heart.beat_all();
    yard.clock.clock.advance_ms(30_000);
    lock.confirm().unwrap();

    // Another thread has the next address, then another process; the one in hand is free meanwhile.
    let lock = thread::scope(|scope| {
        let (taken, is_taken) = std::sync::mpsc::channel();
        let (yard, locks, digests, last) = (&yard, &locks, &digests, name(1));
        scope.spawn(move || {
            let other = locks.lock(&digests[2]).unwrap();
            taken.send(()).unwrap();
            until(|| !yard.path(&last).exists());
            other.release().unwrap();
        });
        is_taken.recv().unwrap();
        locks.lock_next(Some(lock), &digests[2]).unwrap()
    });
    assert_eq!(yard.names(), [name(2)]);
    yard.plant(&name(3), "foreign", 0);
    let (looked, free) = (yard.path(&name(2)), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&free);
    yard.meanwhile(move || {
        count.fetch_add(usize::from(!looked.exists()), Ordering::Relaxed);
    });
    let begun = yard.clock.now().boot_ms;
    let lock = locks.lock_next(Some(lock), &digests[3]).unwrap();
    let waited = yard.clock.now().boot_ms - begun;
    assert!(waited > 60_000 && free.load(Ordering::Relaxed) > 2_000, "{waited}");

    // A lock that was lost is not taken along.
    yard.plant(&name(3), "foreign", 0);
    let lock = locks.lock_next(Some(lock), &digests[0]).unwrap();
    lock.confirm().unwrap();
    lock.release().unwrap();
    assert_eq!((yard.names(), yard.read(&name(3)).as_str()), (vec![name(3)], "foreign"));
}

/// Eight threads that find the same dead holder at once: one after the other gets the lock, and nothing is left.
#[test]
fn many_contenders_reclaim_one_lock() {
    let yard = Yard::new();
    // Without taking turns before, as if they were processes.
    for round in 0..20 {
        yard.plant(&name(), &format!("foreign-{round}"), 0);
        File::open(yard.path(&name())).unwrap().set_modified(UNIX_EPOCH).unwrap();
        let holders = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let clock = Arc::new(SystemClock::new().unwrap());
                    let (objects, ids) = (yard.objects(), Arc::new(SystemIds));
                    let locks = Locks::new(&objects, Coordination::Required, 0, clock, ids).unwrap();
                    let places = locks.places().unwrap();
                    let dir = places.locks.as_ref().unwrap();
                    let file_name = Subject::Address(digest()).file_name();
                    let held = locks.acquire_file(dir, &file_name, i64::MAX).unwrap().unwrap();
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                    held.own.confirm().unwrap();
                    holders.fetch_sub(1, Ordering::SeqCst);
                    held.release().unwrap();
                });
            }
        });
        assert!(yard.names().is_empty(), "{:?}", yard.names());
    }
}

/// What is found at a lock's name, and whether a contender gets it: at once, after a minute, or not at all.
#[test]
fn who_is_dead_is_told_by_the_flock_or_by_the_minute() {
    let parent = sys::process(std::os::unix::process::parent_id()).unwrap();
    let alive = format!("lh-00000001-{}-{}-00-0", parent.pid, parent.start_ticks);
    let rebooted = format!("lh-00000002-{}-{}-00-0", parent.pid, parent.start_ticks);
    for (token, signer, is_locked, waits_a_minute) in [
        ("foreign", "", false, true),
        ("foreign", OURS_DEAD, false, true),
        ("", "", false, true),
        (OURS_DEAD, "", false, false),
        (OURS_DEAD, "", true, true),
        (&alive, "", false, true),
        (&rebooted, "", false, false),
        // After a power cut.
        ("", &rebooted, false, false),
        ("\0\0\0", OURS_DEAD, false, false),
        ("", OURS_DEAD, true, true),
        ("", &alive, false, true),
    ] {
        let yard = Yard::new();
        yard.plant(&name(), token, 0);
        let holder = File::open(yard.path(&name())).unwrap();
        if !signer.is_empty() {
            note_signer(&holder, signer);
        }
        if is_locked {
            holder.lock().unwrap();
        }
        let locks = yard.locks();
        let waited = yard.waited_ms(|| locks.lock(&digest()).unwrap().release().unwrap());
        assert_eq!(waited > 60_000, waits_a_minute, "{token}, {signer}, {is_locked}: {waited}");
        assert!(waited <= 60_050, "{token}: {waited}");
        assert!(yard.names().is_empty());
    }
}

/// What a crash of ours left at any step holds nobody up.
#[test]
fn what_our_own_crash_left_is_taken_at_once() {
    for number in 0.. {
        let yard = Yard::new();
        let plan = Arc::new(FaultPlan::new());
        let crashing = yard.locks().with_faults(plan.clone());
        yard.plant(&name(), "foreign", 61 * SECOND_NS);
        plan.arm(number, Fault::CrashAfter);
        let crashed = crashing.lock(&digest()).and_then(Lock::release).is_err();
        let seen = plan.seen();
        if seen.len() <= number {
            assert!(!crashed && number > 10, "BUG: {number} steps");
            return;
        }
        let waited = yard.waited_ms(|| yard.locks().lock(&digest()).unwrap().release().unwrap());
        assert!(waited < 10_000, "{:?}: {waited}", seen[number]);
        // Claims and tombstones of a generation that is over are nobody's, and go with the litter of an hour.
        assert!(!yard.names().contains(&name()), "{:?}", seen[number]);
    }
}

/// Where files can't be made without a name, a lock is made under its own, and goes again if it can't be signed.
#[test]
fn a_filesystem_without_unnamed_files_has_locks() {
    const EOPNOTSUPP: i32 = 95;
    let yard = Yard::new();
    let unnamed = || before(Step::CreateLock, || Err(io::Error::from_raw_os_error(EOPNOTSUPP)));
    let lock = yard.locks().with_faults(unnamed());
    let lock = lock.lock(&digest()).unwrap();
    assert!(yard.read(&name()).starts_with("lh-"));
    lock.confirm().unwrap();
    lock.release().unwrap();
    for step in [Step::WriteLock, Step::TouchLock] {
        let refused = before(step, || Err(io::Error::from_raw_os_error(EACCES)));
        let locks = yard.locks().with_faults(Arc::new(Both(unnamed(), refused)));
        assert!(locks.lock(&digest()).is_err());
        assert!(yard.names().is_empty(), "{step:?}");
    }
}

/// A claim gives one contender the right to one generation: a fresh one keeps others away, an old one is cleared.
#[test]
fn a_claim_is_respected_for_a_minute() {
    for (claim, age_ns, at_least_ms) in
        [("rival", 0, 60_000), ("rival", 61 * SECOND_NS, 0), (OURS_DEAD, 0, 0)]
    {
        let yard = Yard::new();
        yard.plant(&name(), "rust:token/2 é", 61 * SECOND_NS);
        yard.plant(&format!("{}.reclaim-rust_token_2__", name()), claim, age_ns);
        let locks = yard.locks();
        let waited = yard.waited_ms(|| locks.lock(&digest()).unwrap().release().unwrap());
        assert!((at_least_ms..at_least_ms + 200).contains(&waited), "{claim}: {waited}");
        assert!(yard.names().is_empty(), "{:?}", yard.names());
    }
}

/// A contender that judged an old holder, and is slow, moves nobody else's lock: not one that was taken since (by a
/// sweep, which may be between its judgement and its deletion), nor one that was touched since.
#[test]
fn a_claim_is_void_when_the_lock_changed_since() {
    for (token, age_ns) in [(Some("sweep"), 0), (Some("sweep"), 61 * SECOND_NS), (Some("dead"), 0), (None, 0)]
    {
        let yard = Arc::new(Yard::new());
        yard.plant(&name(), "dead", 61 * SECOND_NS);
        let (changed, moved) = (Arc::clone(&yard), Arc::new(AtomicUsize::new(0)));
        // The first lock that gets its name is the claim: that of the address is taken.
        let change = move || {
            fs::remove_file(changed.path(&name()))?;
            if let Some(token) = token {
                changed.plant(&name(), token, age_ns);
            }
            Ok(())
        };
        let locks = yard.locks().with_faults(after(Step::NameLock, change));
        let (looked, count) = (Arc::clone(&yard), Arc::clone(&moved));
        yard.meanwhile(move || {
            let names = looked.names();
            count.fetch_add(usize::from(names != [name()]), Ordering::Relaxed);
        });
        let waited = yard.waited_ms(|| locks.lock(&digest()).unwrap().release().unwrap());
        let is_waited_for = token.is_some() && age_ns == 0;
        assert_eq!(waited > 60_000, is_waited_for, "{token:?}: {waited}");
        assert_eq!(moved.load(Ordering::Relaxed), 0, "the claim was dropped, and the lock stayed");
        assert!(yard.names().is_empty());
    }
}

/// If what was moved away turns out to be another's, it goes back as the very file it was, unless the name is taken.
#[test]
fn a_lock_that_was_moved_by_mistake_goes_back() {
    for is_taken in [false, true] {
        let yard = Arc::new(Yard::new());
        yard.plant(&name(), "dead", 61 * SECOND_NS);
        let swapped = Arc::clone(&yard);
        let swap = move || {
            fs::remove_file(swapped.path(&name()))?;
            swapped.plant(&name(), "living", 5 * SECOND_NS);
            Ok(())
        };
        let taken = Arc::clone(&yard);
        let take = move || {
            if is_taken {
                taken.plant(&name(), "third", 0);
            }
            Ok(())
        };
        let both = Both(before(Step::MoveLock, swap), before(Step::HandBackLock, take));
        let locks = yard.locks().with_faults(Arc::new(both));
        let (seen, looked) = (Arc::new(Mutex::new(None)), Arc::clone(&yard));
        let first = Arc::clone(&seen);
        yard.meanwhile(move || {
            first.lock().get_or_insert_with(|| (looked.names(), looked.read(&name())));
        });
        let waited = yard.waited_ms(|| locks.lock(&digest()).unwrap().release().unwrap());
        let holder = if is_taken { "third" } else { "living" };
        assert_eq!(seen.lock().clone().unwrap(), (vec![name()], holder.to_owned()));
        let rest_ms = if is_taken { 60_000 } else { 55_000 };
        assert!((rest_ms..rest_ms + 100).contains(&waited), "with the time of its last beat: {waited}");
        assert!(yard.names().is_empty());
    }
}

struct Both(Arc<dyn Faults>, Arc<dyn Faults>);

impl Faults for Both {
    fn before(&self, step: Step) -> io::Result<()> {
        self.0.before(step).and_then(|()| self.1.before(step))
    }

    fn after(&self, step: Step) -> io::Result<()> {
        self.0.after(step).and_then(|()| self.1.after(step))
    }
}

/// A directory at a lock's name is an early kind of lock, without an owner: it is waited for, and reclaimed like others.
#[test]
fn a_directory_is_a_lock_without_an_owner() {
    let yard = Yard::new();
    let outside = yard.root.path().join("outside");
    fs::write(&outside, b"kept").unwrap();
    fs::create_dir_all(yard.path(&name()).join("sub")).unwrap();
    symlink(&outside, yard.path(&name()).join("sub/link")).unwrap();
    yard.age(&name(), 0);
    let locks = yard.locks();
    let waited = yard.waited_ms(|| locks.lock(&digest()).unwrap().release().unwrap());
    assert!((60_000..60_100).contains(&waited), "{waited}");
    assert!(yard.names().is_empty());
    assert_eq!(fs::read(outside).unwrap(), b"kept");
}

/// Each beat touches only a file that is ours, and a lock that was lost is never touched again.
#[test]
fn a_beat_touches_only_our_own_file() {
    type Change = fn(&Yard);
    let foreign = |yard: &Yard| {
        fs::remove_file(yard.path(&name())).unwrap();
        yard.plant(&name(), "foreign", 10 * SECOND_NS);
    };
    let rewritten = |yard: &Yard| yard.plant(&name(), "foreign", 10 * SECOND_NS);
    let gone = |yard: &Yard| fs::remove_file(yard.path(&name())).unwrap();
    // Who took it for an older one writes it back: another file, and ours.
    let handed_back = |yard: &Yard| {
        let token = yard.read(&name());
        fs::remove_file(yard.path(&name())).unwrap();
        yard.plant(&name(), &token, 10 * SECOND_NS);
    };
    let unreadable = |yard: &Yard| {
        fs::rename(yard.path(&name()), yard.path("aside")).unwrap();
        symlink("aside", yard.path(&name())).unwrap();
    };
    let cases: [(Change, bool, bool); 6] = [
        (|_| (), true, true),
        (foreign, false, false),
        (rewritten, false, false),
        (gone, false, false),
        (handed_back, true, true),
        (unreadable, false, true),
    ];
    for (number, (change, is_touched, goes_on)) in cases.into_iter().enumerate() {
        let yard = Yard::new();
        let locks = yard.locks();
        let lock = locks.lock(&digest()).unwrap();
        let own = Arc::clone(&lock.held.as_ref().unwrap().own);
        yard.clock.clock.advance_ms(10_000);
        change(&yard);
        locks.heart.beat_all();
        if yard.path(&name()).exists() {
            assert_eq!(yard.age_of(&name()) == 0, is_touched, "case {number}");
        }
        assert_eq!(own.beat(), goes_on, "case {number}");
        assert_eq!(lock.confirm().is_ok(), is_touched, "case {number}");
        if number == 4 {
            let other = File::open(yard.path(&name())).unwrap();
            assert!(other.try_lock().is_err(), "what was written back is locked again");
        }
    }
}

/// A holder trusts its lock for forty seconds after the last beat, and not at all once it was another's.
#[test]
fn a_holder_that_slept_changes_nothing_more() {
    let yard = Yard::new();
    let locks = yard.locks();
    let lock = locks.lock(&digest()).unwrap();
    yard.clock.clock.advance_ms(39_999);
    lock.confirm().unwrap();
    yard.clock.clock.advance_ms(1);
    assert!(is_lost(lock.confirm()));
    locks.heart.beat_all();
    lock.confirm().unwrap();

    let token = yard.read(&name());
    yard.plant(&name(), "foreign", 0);
    locks.heart.beat_all();
    yard.plant(&name(), &token, 0);
    assert!(is_lost(lock.confirm()), "somebody else may have done anything meanwhile");
}

/// Our own lock goes, a missing one is no loss, another's stays, and what can't be told is an error.
#[test]
fn a_release_removes_only_our_own_file() {
    type Change = fn(&Yard);
    let cases: [(Change, bool, &[&str]); 4] = [
        (|_| (), true, &[]),
        (|yard| fs::remove_file(yard.path(&name())).unwrap(), true, &[]),
        (|yard| yard.plant(&name(), "foreign", 0), true, &["foreign"]),
        (
            |yard| {
                fs::remove_file(yard.path(&name())).unwrap();
                symlink("/nowhere", yard.path(&name())).unwrap();
            },
            false,
            &[],
        ),
    ];
    for (number, (change, is_ok, left)) in cases.into_iter().enumerate() {
        let yard = Yard::new();
        let locks = yard.locks();
        let lock = locks.lock(&digest()).unwrap();
        change(&yard);
        assert_eq!(lock.release().is_ok(), is_ok, "case {number}");
        let texts: Vec<String> = fs::read_to_string(yard.path(&name())).into_iter().collect();
        assert_eq!(texts, left, "case {number}");
    }
    let yard = Yard::new();
    let refused = || Err(io::Error::from_raw_os_error(EACCES));
    let locks = yard.locks().with_faults(before(Step::RemoveLock, refused));
    let error = locks.lock(&digest()).unwrap().release().unwrap_err();
    assert_eq!((error.code(), error.io_error().unwrap().raw_os_error()), ("unavailable", Some(EACCES)));
}

/// The file of a lock that ended serves the next one, signed anew; a sweep may have it, and nothing of it outlives the
/// store.
#[test]
fn a_lock_is_made_of_the_file_of_the_last_one() {
    let yard = Yard::new();
    let spares = || {
        let entries = fs::read_dir(yard.objects().join(".locks")).unwrap();
        entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_none())
            .collect::<Vec<_>>()
    };
    let locks = yard.locks();
    let first = locks.lock(&digest()).unwrap();
    let (inode, token) = (yard.inode(&name()), yard.read(&name()));
    first.release().unwrap();
    assert_eq!((yard.names().len(), spares().len()), (0, 1));
    yard.clock.clock.advance_ms(7_200_000);
    let second = locks.lock(&digest()).unwrap();
    assert_eq!((yard.inode(&name()), spares().len()), (inode, 0));
    assert_ne!(yard.read(&name()), token);
    assert_eq!(yard.age_of(&name()), 0);
    let other = locks.gate().unwrap();
    second.release().unwrap();
    other.release().unwrap();
    assert_eq!(spares().len(), 1, "one is enough");
    fs::remove_file(&spares()[0]).unwrap();
    locks.lock(&digest()).unwrap().release().unwrap();
    assert_eq!(spares().len(), 1, "another one was made");
    yard.plant(&name(), "foreign", 0);
    let taken = yard.path(&name());
    yard.meanwhile(move || drop(fs::remove_file(&taken)));
    locks.lock(&digest()).unwrap().release().unwrap();
    assert_eq!(spares().len(), 1, "it waited for the other one's end");
    drop(locks);
    assert!(spares().is_empty());
}

/// A holder that overslept makes its lock young before it removes it: nobody else is at it then.
#[test]
fn a_late_release_beats_first() {
    let yard = Arc::new(Yard::new());
    let (ages, looked) = (Arc::new(Mutex::new(Vec::new())), Arc::clone(&yard));
    let seen = Arc::clone(&ages);
    let note = move || {
        seen.lock().push(looked.age_of(&name()));
        Ok(())
    };
    let locks = yard.locks().with_faults(before(Step::RemoveLock, note));
    let lock = locks.lock(&digest()).unwrap();
    yard.clock.clock.advance_ms(61_000);
    lock.release().unwrap();
    assert_eq!((*ages.lock()).as_slice(), [0]);
}

/// No call leaves `.locks` by a symlink, neither one that was there nor one that came while a lock was held.
#[test]
fn the_directory_of_locks_is_never_a_symlink_nor_another_one() {
    let yard = Yard::new();
    let (dir, elsewhere) = (yard.objects().join(".locks"), yard.root.path().join("elsewhere"));
    let locks = yard.locks();
    let lock = locks.lock(&digest()).unwrap();
    fs::rename(&dir, &elsewhere).unwrap();
    symlink(&elsewhere, &dir).unwrap();
    assert!(matches!(lock.confirm(), Err(BlobError::Swapped { path }) if path == dir));
    let before = fs::metadata(elsewhere.join(name())).unwrap().modified().unwrap();
    yard.clock.clock.advance_ms(10_000);
    locks.heart.beat_all();
    assert_eq!(fs::metadata(elsewhere.join(name())).unwrap().modified().unwrap(), before);
    assert!(matches!(lock.release(), Err(BlobError::Swapped { .. })));
    assert!(elsewhere.join(name()).exists());

    for locks in [locks, yard.locks()] {
        let refused = locks.lock(&digest()).err();
        assert!(matches!(&refused, Some(BlobError::NotADirectory { path }) if *path == dir), "{refused:?}");
    }
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);

    // Somebody may make it anew; who comes later uses the new one.
    fs::remove_file(&dir).unwrap();
    let locks = yard.locks();
    for _ in 0..2 {
        locks.lock(&digest()).unwrap().release().unwrap();
        fs::remove_dir_all(&dir).unwrap();
    }
}

/// Whatever call fails, the error is told, and what is left holds nobody up once it is a minute old.
#[test]
fn each_failed_call_is_told_and_leaves_no_lasting_lock() {
    let mut number = 0;
    loop {
        let yard = Yard::new();
        yard.plant(&name(), "dead", 61 * SECOND_NS);
        let plan = Arc::new(FaultPlan::new());
        let locks = yard.locks().with_faults(plan.clone());
        plan.arm(number, Fault::Error(EACCES));
        let result = locks.lock(&digest()).and_then(Lock::release);
        let seen = plan.seen();
        let Some(step) = seen.get(number) else {
            assert!(number > 10 && result.is_ok(), "BUG: {number} steps");
            return;
        };
        let error = result.unwrap_err();
        assert_eq!(error.code(), "unavailable", "{step:?}");
        assert_eq!(error.io_error().and_then(io::Error::raw_os_error), Some(EACCES), "{step:?}");
        for left in yard.names() {
            yard.age(&left, 61 * SECOND_NS);
        }
        let waited = yard.waited_ms(|| yard.locks().lock(&digest()).unwrap().release().unwrap());
        assert!(waited < 200, "{step:?}: {waited}");
        number += 1;
    }
}

/// For one process alone no file is made, and what others must know of is refused.
#[test]
fn locks_of_one_process_take_no_files_and_fence_nobody() {
    let yard = Yard::new();
    fs::remove_dir(yard.objects().join(".locks")).unwrap();
    let locks = yard.locks_of(Coordination::Process);
    let lock = locks.lock(&digest()).unwrap();
    lock.confirm().unwrap();
    assert_eq!(fs::read_dir(yard.objects()).unwrap().count(), 0);
    lock.release().unwrap();
    let refused = locks.begin_backup().err().unwrap();
    assert!(matches!(refused, BlobError::Uncoordinated { .. }));
    assert_eq!(refused.code(), "invalid_configuration");
    assert_eq!(fs::read_dir(yard.objects()).unwrap().count(), 0);
}

/// The thread of a heart comes with the first thing to beat for, and goes when there is none.
#[test]
fn a_heart_beats_only_while_something_is_held() {
    #[derive(Default)]
    struct Counter(AtomicUsize);
    impl Beating for Counter {
        fn beat(&self) -> bool {
            self.0.fetch_add(1, Ordering::SeqCst) < 3
        }
    }
    let heart = Heart::new("test-heartbeat", Duration::from_millis(1));
    for _ in 0..2 {
        assert!(!heart.is_running());
        let counter = Arc::new(Counter::default());
        let number = heart.add(Arc::clone(&counter) as _).unwrap();
        assert!(heart.is_running());
        until(|| !heart.is_running());
        assert_eq!(counter.0.load(Ordering::SeqCst), 4, "no beat after the one that was the last");
        heart.remove(number);
    }
}

/// Waits for another thread.
fn until(condition: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if condition() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("BUG: it never came");
}

/// A marker is there from the beginning of a backup to its end, and touched by beats that never keep the gate.
#[test]
fn a_backup_has_a_marker_until_it_ends() {
    let yard = Yard::new();
    let locks = yard.locks();
    let marker = yard.objects().join(".backup-lease");
    for is_finished in [true, false] {
        let lease = locks.begin_backup().unwrap();
        assert_eq!(fs::metadata(&marker).unwrap().mode() & 0o7777, 0o600);
        assert!(fs::read_to_string(&marker).unwrap().starts_with("lh-"));
        assert!(yard.names().is_empty(), "the gate is held for moments only");
        for _ in 0..8 {
            yard.clock.clock.advance_ms(10_000);
            locks.backup_heart.beat_all();
            lease.confirm().unwrap();
        }
        let gate = locks.gate().unwrap();
        assert!(locks.backup_is_live(&gate).unwrap());
        drop(gate);
        if is_finished {
            lease.finish().unwrap()
        } else {
            drop(lease)
        }
        assert!(!marker.exists() && yard.names().is_empty());
    }
}

/// A backup whose marker somebody took away failed, and leaves another's marker alone.
#[test]
fn a_backup_that_lost_its_marker_fails() {
    for rival in [None, Some("rival")] {
        let yard = Yard::new();
        let locks = yard.locks();
        let marker = yard.objects().join(".backup-lease");
        let lease = locks.begin_backup().unwrap();
        fs::remove_file(&marker).unwrap();
        if let Some(rival) = rival {
            fs::write(&marker, rival).unwrap();
        }
        assert!(is_lost(lease.confirm()));
        locks.backup_heart.beat_all();
        assert!(is_lost(lease.finish()));
        assert_eq!(fs::read_to_string(&marker).ok().as_deref(), rival);
    }
    let yard = Yard::new();
    let locks = yard.locks();
    let lease = locks.begin_backup().unwrap();
    yard.clock.clock.advance_ms(40_000);
    assert!(is_lost(lease.finish()), "it slept, and could have lost it");
    assert!(!yard.objects().join(".backup-lease").exists());
}

/// Another's marker counts for sixty seconds after its last beat, a dead process of ours for none; a second backup
/// waits for the first.
#[test]
fn a_marker_is_live_for_a_minute() {
    let cases =
        [("foreign", 60 * SECOND_NS, true), ("foreign", 60_001_000_000, false), (OURS_DEAD, 0, false)];
    for (token, age_ns, is_live) in cases {
        let yard = Yard::new();
        let locks = yard.locks();
        let marker = yard.objects().join(".backup-lease");
        yard.plant("../.backup-lease", token, age_ns);
        let gate = locks.gate().unwrap();
        assert_eq!(locks.backup_is_live(&gate).unwrap(), is_live, "{token}");
        assert_eq!(marker.exists(), is_live, "who looks removes what is dead");
        drop(gate);
    }
    let yard = Yard::new();
    let locks = yard.locks();
    let first = locks.begin_backup().unwrap();
    let (again, beating) = (yard.locks(), Arc::clone(&locks));
    yard.meanwhile(move || beating.backup_heart.beat_all());
    let waited = yard.waited_ms(|| {
        assert!(matches!(again.begin_backup().err(), Some(BlobError::Locked { .. })));
    });
    assert!((120_000..120_100).contains(&waited), "{waited}");
    first.finish().unwrap();
    *yard.clock.meanwhile.lock() = None;
    again.begin_backup().unwrap().finish().unwrap();
}

/// Whatever fails after the marker was made takes the marker along.
#[test]
fn a_backup_that_can_not_begin_leaves_no_marker() {
    let refused = || Err(io::Error::from_raw_os_error(EACCES));
    // The first lock that is removed is the gate's, right after the marker was made.
    for fault in [before(Step::RemoveLock, refused), after(Step::RemoveLock, refused)] {
        let yard = Yard::new();
        let locks = Arc::new(yard.locks().with_faults(fault));
        assert_eq!(locks.begin_backup().err().unwrap().code(), "unavailable");
        assert!(!yard.objects().join(".backup-lease").exists());
    }
}

/// A time before 1970, as a broken clock may leave it, is old like any other.
#[test]
fn times_before_1970_are_times() {
    let yard = Yard::new();
    yard.plant(&name(), "foreign", 0);
    File::open(yard.path(&name()))
        .unwrap()
        .set_modified(SystemTime::UNIX_EPOCH - Duration::from_secs(9))
        .unwrap();
    yard.locks().lock(&digest()).unwrap().release().unwrap();
}
