//! What a store promises whose directory others share, of its own kind and of others.

use std::fs::{self, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use parking_lot::Mutex;

use super::tests::{Place, changes, modes, parts, put, scribble};
use super::*;
use crate::blobs::contract::read;
use crate::blobs::{Fault, FaultPlan, Step, digest_of};
use crate::clock::{Clock, ManualClock};
use crate::ids::Ids;
use crate::model::{ArtifactId, Timestamp};

const EIO: i32 = 5;
const EACCES: i32 = 13;

/// Kinds of steps, and how each is refused.
type Refused = &'static [(Step, i32)];

const BYTES: &[u8] = b"bytes";

/// Where BYTES belong.
fn digest() -> Digest {
    digest_of(BYTES)
}

/// Does something at the first step of a kind, before or after it.
struct Hook {
    step: Step,
    after: bool,
    action: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Hook {
    fn before(step: Step, action: impl FnOnce() + Send + 'static) -> Arc<Self> {
        Arc::new(Self { step, after: false, action: Mutex::new(Some(Box::new(action))) })
    }

    fn after(step: Step, action: impl FnOnce() + Send + 'static) -> Arc<Self> {
        Arc::new(Self { step, after: true, action: Mutex::new(Some(Box::new(action))) })
    }

    fn run(&self, step: Step) {
        let action = if step == self.step { self.action.lock().take() } else { None };
        if let Some(action) = action {
            action();
        }
    }
}

impl Faults for Hook {
    fn before(&self, step: Step) -> io::Result<()> {
        if !self.after {
            self.run(step);
        }
        Ok(())
    }

    fn after(&self, step: Step) -> io::Result<()> {
        if self.after {
            self.run(step);
        }
        Ok(())
    }
}

/// Refuses each step of some kinds, and counts all.
struct Refusing {
    steps: Refused,
    seen: Mutex<Vec<Step>>,
}

impl Refusing {
    fn these(steps: Refused) -> Arc<Self> {
        Arc::new(Self { steps, seen: Mutex::default() })
    }
}

impl Faults for Refusing {
    fn before(&self, step: Step) -> io::Result<()> {
        self.seen.lock().push(step);
        match self.steps.iter().find(|(refused, _)| *refused == step) {
            Some((_, errno)) => Err(io::Error::from_raw_os_error(*errno)),
            None => Ok(()),
        }
    }

    fn after(&self, _step: Step) -> io::Result<()> {
        Ok(())
    }
}

/// Everything below a directory: paths, kinds, sizes and times.
fn snapshot(root: &Path) -> Vec<(PathBuf, u32, u64, i64)> {
    let mut found = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(path) = waiting.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found.push((path, metadata.mode(), metadata.size(), metadata.mtime()));
    }
    found.sort();
    found
}

/// A second store of the same directory, with other settings.
fn with_settings(place: &Place, settings: DiskSettings) -> DiskStore {
    DiskStore::bare(&place.objects(), &DiskParts { settings, ..parts(Arc::default()) }).unwrap()
}

#[test]
fn looking_makes_nothing_and_finds_nothing() {
    let place = Place::bare();
    let store = place.store();
    assert!(!store.has(&digest()).unwrap());
    assert!(matches!(store.get(&digest()).err(), Some(BlobError::Missing { .. })));
    assert_eq!(store.find_missing(&[digest()]).unwrap(), [digest()]);
    assert!(!place.objects().exists());
    assert_eq!(store.counts(), DiskCounts::default());
}

#[test]
fn modes_are_as_set_but_for_the_umask_and_files_that_are_there_keep_theirs() {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:")).unwrap();
    let umask = u32::from_str_radix(umask.trim(), 8).unwrap();
    for (blob_mode, dir_mode) in [(0o600, 0o700), (0o640, 0o750)] {
        let place = Place::bare();
        let settings = DiskSettings { blob_mode, dir_mode, ..DiskSettings::default() };
        let store = with_settings(&place, settings);
        put(&store, BYTES);
        let blob = store.path_of(&digest());
        assert_eq!(modes(&blob), blob_mode & !umask);
        for dir in [&*place.objects(), blob.parent().unwrap()] {
            assert_eq!(modes(dir), dir_mode & !umask, "{}", dir.display());
        }
        fs::set_permissions(&blob, Permissions::from_mode(0o444)).unwrap();
        put(&store, BYTES);
        assert_eq!(modes(&blob), 0o444);
    }
}

#[test]
fn a_slash_at_the_end_and_blobs_in_the_wrong_place_dont_count() {
    let place = Place::bare();
    put(&place.store(), BYTES);
    let slashed = DiskStore::bare(&place.objects().join(""), &parts(Arc::default())).unwrap();
    assert_eq!(slashed.objects().as_os_str(), place.objects().as_os_str());
    assert!(slashed.has(&digest()).unwrap());
    let flat = digest_of(b"flat");
    fs::write(place.objects().join(flat.to_hex()), b"flat").unwrap();
    assert!(!slashed.has(&flat).unwrap());
}

#[test]
fn a_put_is_counted_each_time_and_only_what_was_handed_out_is_a_get() {
    let place = Place::bare();
    let store = place.store();
    put(&store, BYTES);
    let first = fs::metadata(store.path_of(&digest())).unwrap().ino();
    put(&store, BYTES);
    assert_eq!(fs::metadata(store.path_of(&digest())).unwrap().ino(), first, "one file");
    read(&store, &digest());
    store.get(&digest_of(b"absent")).err().unwrap();
    scribble(&store, &digest(), b"wrong");
    store.get(&digest()).err().unwrap();
    assert_eq!(store.counts(), DiskCounts { puts: 2, gets: 1 });
}

/// What may stand where the store has something else.
const IMPOSTORS: [&str; 5] = ["link to a directory", "link to a file", "dangling link", "other kind", "fifo"];

/// Puts an impostor at a path, with its target in `outside`.
fn plant(impostor: &str, at: &Path, outside: &Path, wants_dir: bool) {
    match impostor {
        "link to a directory" => symlink(outside, at).unwrap(),
        "link to a file" => symlink(outside.join("file"), at).unwrap(),
        "dangling link" => symlink(outside.join("none"), at).unwrap(),
        "other kind" if wants_dir => fs::write(at, b"a file").unwrap(),
        "other kind" => fs::create_dir(at).unwrap(),
        _ => assert!(Command::new("mkfifo").arg(at).status().unwrap().success()),
    }
}

#[test]
fn nothing_is_followed_or_replaced_that_the_store_would_not_have_put_there() {
    for position in ["objects", "staging", "fan-out", "blob"] {
        for impostor in IMPOSTORS {
            let case = format!("{impostor} at {position}");
            let place = Place::bare();
            let outside = place.root.path().join("outside");
            fs::create_dir(&outside).unwrap();
            fs::write(outside.join("file"), BYTES).unwrap();
            let blob = place.store().path_of(&digest());
            let fan_out = blob.parent().unwrap();
            let at = match position {
                "objects" => place.objects(),
                "staging" => place.objects().join(".staging"),
                "fan-out" => fan_out.to_owned(),
                _ => blob.clone(),
            };
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            plant(impostor, &at, &outside, position != "blob");
            let before = (snapshot(&outside), fs::symlink_metadata(&at).unwrap().ino());
            let store = place.store();
            let error = store.put(&mut &BYTES[..]).expect_err(&case);
            assert_eq!(error.code(), "unavailable", "{case}");
            assert_eq!((snapshot(&outside), fs::symlink_metadata(&at).unwrap().ino()), before, "{case}");
            assert!(place.staged().is_empty() || position != "blob", "{case}: nothing is left");
            match position {
                "blob" => {
                    assert!(!store.has(&digest()).unwrap(), "{case}: only a regular file is a blob");
                    assert_eq!(store.get(&digest()).err().expect(&case).code(), "unavailable", "{case}");
                }
                "staging" => assert!(!store.has(&digest()).unwrap()),
                _ => {
                    assert_eq!(store.has(&digest()).expect_err(&case).code(), "unavailable", "{case}");
                    assert_eq!(store.find_missing(&[digest()]).expect_err(&case).code(), "unavailable");
                }
            }
        }
    }
}

/// What becomes of a directory or a file while a put is under way.
fn swap(how: &str, path: &Path, outside: &Path) {
    fs::rename(path, path.with_extension("away")).unwrap();
    match how {
        "link" => symlink(outside, path).unwrap(),
        "directory" => fs::create_dir(path).unwrap(),
        "file" => fs::write(path, b"foreign").unwrap(),
        _ => {}
    }
}

#[test]
fn a_directory_or_file_that_is_swapped_before_the_rename_fails_the_put() {
    for position in ["objects", "fan-out", "temporary"] {
        for how in ["link", "directory", "file", "gone"] {
            let case = format!("{position} becomes {how}");
            let place = Place::bare();
            let outside = place.root.path().join("outside");
            fs::create_dir(&outside).unwrap();
            let store = place.store();
            put(&store, b"the directories are there");
            let blob = store.path_of(&digest());
            let (objects, target) = (place.objects(), outside.clone());
            // The address is looked at when the bytes are synced and the directories are open.
            let store = store.with_faults(Hook::before(Step::Open, move || {
                let path = match position {
                    "objects" => objects.clone(),
                    "fan-out" => blob.parent().unwrap().to_owned(),
                    _ => fs::read_dir(objects.join(".staging")).unwrap().next().unwrap().unwrap().path(),
                };
                swap(how, &path, &target);
            }));
            let error = store.put(&mut &BYTES[..]).expect_err(&case);
            assert_eq!(error.code(), "unavailable", "{case}: {error}");
            let published = snapshot(place.root.path());
            let name = digest().to_hex();
            assert!(!published.iter().any(|(path, ..)| path.ends_with(&name)), "{case}: {published:?}");
            let foreign = place.staged().contains(&b"foreign".to_vec());
            assert_eq!(foreign, position == "temporary" && how == "file", "{case}: what isn't ours stays");
        }
    }
}

/// Hands out names of a list, the last one for ever.
struct Names(Mutex<Vec<String>>);

impl Ids for Names {
    fn artifact(&self, _now: Timestamp) -> ArtifactId {
        unreachable!("BUG: the store makes no artifacts")
    }

    fn token(&self) -> String {
        let mut names = self.0.lock();
        if names.len() > 1 { names.remove(0) } else { names[0].clone() }
    }
}

#[test]
fn a_name_that_is_taken_is_left_alone_and_another_is_tried_up_to_sixteen_times() {
    let place = Place::bare();
    put(&place.store(), b"the directories are there");
    let staging = place.objects().join(".staging");
    let outside = place.root.path().join("outside");
    fs::write(&outside, b"outside").unwrap();
    symlink(&outside, staging.join("t0")).unwrap();
    fs::write(staging.join("t1"), b"foreign").unwrap();
    fs::create_dir(staging.join("t2")).unwrap();
    let store_naming = |names: Vec<String>| {
        let ids = Arc::new(Names(Mutex::new(names)));
        DiskStore::bare(&place.objects(), &DiskParts { ids, ..parts(Arc::default()) }).unwrap()
    };
    let before = snapshot(&staging);
    let plan = Arc::new(FaultPlan::new());
    let store = store_naming((0..17).map(|n| format!("t{n}", n = n % 3)).collect()).with_faults(plan.clone());
    let error = store.put(&mut &BYTES[..]).unwrap_err();
    assert!(matches!(error, BlobError::NamesTaken { .. }) && error.code() == "unavailable");
    assert_eq!(plan.seen().iter().filter(|step| **step == Step::Create).count(), 16);
    put(&store_naming((0..4).map(|n| format!("t{n}")).collect()), BYTES);
    assert_eq!(
        snapshot(&staging).iter().skip(1).collect::<Vec<_>>(),
        before.iter().skip(1).collect::<Vec<_>>()
    );
    assert_eq!(fs::read(&outside).unwrap(), b"outside");
    assert_eq!(read(&place.store(), &digest()), BYTES);
}

#[test]
fn a_temporary_file_goes_with_whatever_fails() {
    for step in [Step::Write, Step::SyncFile, Step::Rename, Step::MakeDir] {
        let place = Place::bare();
        put(&place.store(), b"the directories are there");
        let refused: Refused = Box::leak(Box::new([(step, EIO)]));
        let store = place.store().with_faults(Refusing::these(refused));
        assert_eq!(store.put(&mut &BYTES[..]).expect_err("refused").code(), "unavailable", "{step:?}");
        assert!(place.staged().is_empty(), "{step:?}");
    }
}

#[test]
fn each_put_reads_what_is_there_and_heals_it() {
    let place = Place::bare();
    let plan = Arc::new(FaultPlan::new());
    let store = place.store().with_faults(plan.clone());
    let blob = store.path_of(&digest());
    for _ in 0..3 {
        plan.arm(usize::MAX, Fault::Error(EIO));
        put(&store, BYTES);
    }
    assert_eq!(plan.seen().iter().filter(|step| **step == Step::Read).count(), 1, "no proof is remembered");
    for damage in ["bits", "cut", "unreadable"] {
        let inode = fs::metadata(&blob).unwrap().ino();
        let store = match damage {
            "bits" => {
                scribble(&store, &digest(), b"wrong");
                place.store()
            }
            "cut" => {
                File::options().write(true).open(&blob).unwrap().set_len(2).unwrap();
                place.store()
            }
            _ => place.store().with_faults(Refusing::these(&[(Step::Open, EACCES)])),
        };
        assert_eq!(store.put(&mut &BYTES[..]).map(|put| put.0).ok(), Some(digest()), "{damage}");
        assert_ne!(fs::metadata(&blob).unwrap().ino(), inode, "{damage}: never in place");
        assert_eq!(read(&place.store(), &digest()), BYTES, "{damage}");
    }
}

#[test]
fn a_blob_that_goes_while_it_is_put_again_is_written_again() {
    // What happens to the freshening; what happens to the blob at that moment; whether it is another file then.
    let cases: [(Refused, bool, bool); 4] = [
        (&[], true, true),
        (&[(Step::Touch, EACCES)], false, false),
        (&[(Step::Touch, EACCES)], true, true),
        (&[(Step::Touch, EACCES), (Step::Probe, EIO)], false, false),
    ];
    for (number, (refused, unlinked, replaced)) in cases.into_iter().enumerate() {
        let place = Place::bare();
        let store = place.store();
        put(&store, BYTES);
        let blob = store.path_of(&digest());
        let inode = fs::metadata(&blob).unwrap().ino();
        let kept = File::open(&blob).unwrap();
        let path = blob.clone();
        let hook = Hook::after(Step::Read, move || {
            if unlinked {
                fs::remove_file(path).unwrap();
            }
        });
        // A source longer than the buffer isn't looked for before it is written: the probe is that after the freshening.
        let store = place.store().with_faults(Arc::new(Both(hook, Refusing::these(refused))));
        let ground = store.ground().unwrap();
        let candidate = super::publish::Candidate {
            body: super::publish::Body::Known(BYTES.into()),
            digest: digest(),
            size: BYTES.len() as u64,
        };
        let results = store.publish(&ground, &[candidate]);
        assert!(results[0].is_ok(), "case {number}: {results:?}");
        assert_eq!(fs::metadata(&blob).unwrap().ino() != inode, replaced, "case {number}");
        assert_eq!(read(&place.store(), &digest()), BYTES);
        assert!(place.staged().is_empty());
        drop(kept);
    }
}

/// Two kinds of faults at once.
struct Both(Arc<Hook>, Arc<Refusing>);

impl Faults for Both {
    fn before(&self, step: Step) -> io::Result<()> {
        self.0.before(step)?;
        self.1.before(step)
    }

    fn after(&self, step: Step) -> io::Result<()> {
        self.0.after(step)
    }
}

#[test]
fn only_a_put_freshens() {
    let place = Place::bare();
    let store = place.store();
    put(&store, BYTES);
    let blob = store.path_of(&digest());
    let long_ago = UNIX_EPOCH + Duration::from_secs(1_000_000);
    let times = fs::FileTimes::new().set_accessed(long_ago).set_modified(long_ago);
    File::open(&blob).unwrap().set_times(times).unwrap();
    let store = place.store();
    read(&store, &digest());
    assert!(store.has(&digest()).unwrap());
    assert_eq!(fs::metadata(&blob).unwrap().modified().unwrap(), long_ago);
    let before = fs::metadata(place.root.path()).unwrap().modified().unwrap();
    put(&store, BYTES);
    let after = fs::metadata(&blob).unwrap();
    assert!(after.modified().unwrap() >= before && after.accessed().unwrap() >= before);
}

#[test]
fn a_refused_read_is_missing_only_if_the_blob_is_gone() {
    for step in [Step::Open, Step::Read] {
        let place = Place::bare();
        put(&place.store(), BYTES);
        let refused: Refused = Box::leak(Box::new([(step, EIO)]));
        let there = place.reopened().with_faults(Refusing::these(refused)).get(&digest()).err().unwrap();
        assert!(matches!(there, BlobError::Io { .. }), "{step:?}: {there}");

        let both: Refused = Box::leak(Box::new([(step, EIO), (Step::Probe, EACCES)]));
        let unknown = place.reopened().with_faults(Refusing::these(both)).get(&digest()).err().unwrap();
        let BlobError::Unknown { source, probe, .. } = &unknown else { panic!("{step:?}: {unknown}") };
        assert_eq!(source.io_error().unwrap().raw_os_error(), Some(EIO));
        assert_eq!(probe.raw_os_error(), Some(EACCES));
        assert_eq!(unknown.code(), "unavailable");

        let blob = place.store().path_of(&digest());
        let hook = Hook::before(step, move || fs::remove_file(blob).unwrap());
        let store = place.reopened().with_faults(Arc::new(Both(hook, Refusing::these(refused))));
        assert!(matches!(store.get(&digest()).err(), Some(BlobError::Missing { .. })), "{step:?}");
    }
}

#[test]
fn one_probe_that_fails_fails_the_look_up() {
    let place = Place::bare();
    let store = place.store();
    let digests: Vec<_> = (0..40_u8).map(|n| digest_of(&[n])).collect();
    for n in (0..40_u8).step_by(2) {
        put(&store, &[n]);
    }
    let missing: Vec<_> = digests.iter().copied().skip(1).step_by(2).collect();
    let doubled: Vec<_> = digests.iter().chain(&digests).copied().collect();
    assert_eq!(store.find_missing(&doubled).unwrap(), missing);
    let plan = Arc::new(FaultPlan::new());
    let store = store.with_faults(plan.clone());
    plan.arm(17, Fault::Error(EIO));
    assert_eq!(store.find_missing(&digests).unwrap_err().code(), "unavailable");
}

const ALL_SYNCS: &[(Step, i32)] = &[(Step::SyncFile, EIO), (Step::SyncDir, EIO), (Step::SyncFilesystem, EIO)];

#[test]
fn best_effort_asks_for_every_sync_and_bears_every_refusal() {
    let syncs = |refused, durability| {
        let place = Place::bare();
        let faults = Refusing::these(refused);
        let settings = DiskSettings { durability, ..DiskSettings::default() };
        let store = with_settings(&place, settings).with_faults(faults.clone());
        let put = store.put(&mut &BYTES[..]).map(|put| put.0);
        let seen = faults.seen.lock();
        let count = seen.iter().filter(|step| matches!(step, Step::SyncFile | Step::SyncDir)).count();
        (put.ok(), count, place.blobs().len())
    };
    let (stored, wanted, _) = syncs(&[], Durability::Required);
    assert_eq!(stored, Some(digest()));
    assert_eq!(syncs(&[], Durability::BestEffort), (Some(digest()), wanted, 1));
    assert_eq!(syncs(ALL_SYNCS, Durability::BestEffort), (Some(digest()), wanted, 1));
    assert_eq!(syncs(ALL_SYNCS, Durability::Required).0, None);
    // Symlinks are refused all the same.
    let place = Place::bare();
    symlink(place.root.path(), place.objects()).unwrap();
    let settings = DiskSettings { durability: Durability::BestEffort, ..DiskSettings::default() };
    assert!(with_settings(&place, settings).put(&mut &BYTES[..]).is_err());
}

#[test]
fn a_barrier_that_failed_is_asked_for_again_by_the_next_put() {
    let probe = Place::bare();
    let plan = Arc::new(FaultPlan::new());
    put(&probe.store().with_faults(plan.clone()), BYTES);
    let wanted = changes(&plan).iter().filter(|step| **step == Step::SyncDir).count();
    assert!(wanted >= 3, "the fan-out, the objects and what is above");
    let barriers: Vec<usize> =
        (0..plan.seen().len()).filter(|at| plan.seen()[*at] == Step::SyncDir).collect();
    for &at in &barriers {
        for same_store in [true, false] {
            let place = Place::bare();
            let plan = Arc::new(FaultPlan::new());
            plan.arm(at, Fault::Error(EIO));
            let store = place.store().with_faults(plan.clone());
            assert_eq!(store.put(&mut &BYTES[..]).expect_err("not durable").code(), "unavailable");
            let store = if same_store { store } else { place.store().with_faults(plan.clone()) };
            plan.arm(usize::MAX, Fault::Error(EIO));
            put(&store, BYTES);
            let synced = changes(&plan).iter().filter(|step| **step == Step::SyncDir).count();
            // The first barrier is the fan-out's own, which is no knowledge of the names above it.
            let known = same_store && at == barriers[0];
            assert_eq!(synced, if known { 1 } else { wanted }, "barrier {at}, same store: {same_store}");
            plan.arm(usize::MAX, Fault::Error(EIO));
            put(&store, BYTES);
            let synced = changes(&plan).iter().filter(|step| **step == Step::SyncDir).count();
            assert_eq!(synced, 1, "once it succeeded it is known");
        }
    }
}

#[test]
fn a_directory_of_blobs_that_was_made_anew_is_proven_anew() {
    let place = Place::bare();
    let plan = Arc::new(FaultPlan::new());
    let store = place.store().with_faults(plan.clone());
    put(&store, BYTES);
    let wanted = changes(&plan);
    fs::remove_dir_all(place.objects()).unwrap();
    plan.arm(usize::MAX, Fault::Error(EIO));
    put(&store, BYTES);
    assert_eq!(changes(&plan), wanted);
}

#[test]
fn litter_of_an_hour_goes_before_the_first_blob_that_is_written() {
    let place = Place::bare();
    put(&place.store(), BYTES);
    let objects = place.objects();
    let clock = Arc::new(ManualClock::new());
    let age = |path: &Path, ms: u64| {
        let now = UNIX_EPOCH + Duration::from_nanos(clock.now().wall.0.cast_unsigned());
        File::open(path).unwrap().set_modified(now - Duration::from_millis(ms)).unwrap();
    };
    let blob = place.store().path_of(&digest());
    let fan_out = blob.parent().unwrap().to_owned();
    for dir in [".locks", ".locks/dir", "zz", "ab", "ab/nested.tmp-x"] {
        fs::create_dir_all(objects.join(dir)).unwrap();
    }
    let hex = digest().to_hex();
    let hour = 3_600_000;
    // Where it is, how old it is, and whether it goes.
    let files = [
        (fan_out.join(format!("{hex}.tmp-abc-0")), hour, true),
        (fan_out.join(format!("{hex}.tmp-abc-1")), hour - 1, false),
        (objects.join("ab/odd.tmp-"), 10 * hour, true),
        (objects.join("ab/other"), 10 * hour, false),
        (objects.join("ab/nested.tmp-x/x.tmp-1"), 10 * hour, false),
        (objects.join("zz/x.tmp-1"), 10 * hour, false),
        (objects.join("x.tmp-1"), 10 * hour, false),
        (objects.join(".backup-lease"), 10 * hour, false),
        (objects.join(".locks/x.lock"), hour, true),
        (objects.join(".locks/y.lock"), hour - 1, false),
        (objects.join(".locks/dir/z.lock"), 10 * hour, false),
        (objects.join(".staging/old"), hour, true),
        (objects.join(".staging/young"), hour - 1, false),
        (blob.clone(), 10 * hour, false),
    ];
    for (path, ms, _) in &files {
        if *path != blob {
            fs::write(path, b"litter").unwrap();
        }
        age(path, *ms);
    }
    let outside = place.root.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("x.tmp-1"), b"").unwrap();
    age(&outside.join("x.tmp-1"), 10 * hour);
    symlink(&outside, objects.join("cd")).unwrap();
    symlink(outside.join("x.tmp-1"), objects.join(".locks/link")).unwrap();

    let store =
        DiskStore::bare(&objects, &DiskParts { clock: clock.clone(), ..parts(Arc::default()) }).unwrap();
    put(&store, BYTES);
    assert!(files.iter().all(|(path, ..)| path.exists()), "a put that finds its bytes removes nothing");
    age(&blob, 10 * hour);
    put(&store, b"fresh");
    for (path, ms, goes) in &files {
        assert_eq!(path.exists(), !goes, "{} of {ms} ms", path.display());
    }
    assert!(outside.join("x.tmp-1").exists() && objects.join(".locks/link").is_symlink());
    fs::write(objects.join(".locks/late.lock"), b"").unwrap();
    age(&objects.join(".locks/late.lock"), 10 * hour);
    put(&store, b"another");
    assert!(objects.join(".locks/late.lock").exists(), "once in the life of a store");
}

#[test]
fn staging_beside_the_blobs_is_never_swept_for_it_holds_saves() {
    let place = Place::new();
    let store = place.store();
    let save = store.staging().join("w.1.2.3.token");
    fs::write(&save, b"somebody's work").unwrap();
    File::open(&save).unwrap().set_modified(UNIX_EPOCH).unwrap();
    put(&store, BYTES);
    assert!(save.exists());
}

#[test]
fn a_corrupt_blob_is_copied_nowhere_and_stays_for_a_put_to_heal() {
    let place = Place::bare();
    put(&place.store(), BYTES);
    let store = place.reopened();
    let copy = |store: &DiskStore, name: &str| {
        let path = place.root.path().join(name);
        let copied = store.copy_to(&digest(), &File::create(&path).unwrap(), &path);
        copied.map(|count| (count, fs::read(&path).unwrap()))
    };
    for name in ["hashed on its way", "by its stamp"] {
        assert_eq!(copy(&store, name).unwrap(), (BYTES.len() as u64, BYTES.to_vec()), "{name}");
    }
    scribble(&store, &digest(), b"wrong");
    let inode = fs::metadata(store.path_of(&digest())).unwrap().ino();
    assert!(matches!(copy(&store, "corrupt").unwrap_err(), BlobError::Corrupt { .. }));
    assert_eq!(fs::metadata(store.path_of(&digest())).unwrap().ino(), inode);
    assert_eq!(store.counts().gets, 2);
    let full = File::options().write(true).open("/dev/full").unwrap();
    put(&store, BYTES);
    let refused = place.reopened().copy_to(&digest(), &full, Path::new("/dev/full"));
    assert!(matches!(refused, Err(BlobError::Io { path, .. }) if path == Path::new("/dev/full")));
}

#[test]
fn a_source_is_streamed_in_bounded_pieces() {
    /// Never ends before its size, and notes how much was asked for at once.
    struct Long(u64, Arc<Mutex<usize>>);
    impl Read for Long {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = &mut *self.1.lock();
            *most = (*most).max(buffer.len());
            let count = buffer.len().min(usize::try_from(self.0).unwrap());
            self.0 -= count as u64;
            Ok(count)
        }
    }
    let most = Arc::new(Mutex::new(0));
    let size = 64 << 20;
    let place = Place::bare();
    let (digest, stored) = place.store().put(&mut Long(size, most.clone())).unwrap();
    assert_eq!((stored, place.reopened().is_whole(&digest).unwrap()), (size, true));
    assert!(*most.lock() <= 1 << 20);
}
