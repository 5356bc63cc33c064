use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::time::{Duration, UNIX_EPOCH};

use super::ground::Dir;
use super::*;
use crate::blobs::faults::tests::{after, before};
use crate::blobs::{Coordination, Faults, Step, digest_of};
use crate::clock::{Clock, ManualClock};
use crate::ids::SystemIds;

const EIO: i32 = 5;

/// A store whose waits for locks take no time.
struct Place {
    root: tempfile::TempDir,
    clock: Arc<ManualClock>,
    store: DiskStore,
}

impl Place {
    fn new(coordination: Coordination) -> Self {
        let (root, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new()));
        let parts = DiskParts {
            settings: DiskSettings { coordination, ..DiskSettings::default() },
            stamps: Arc::new(MemoryStamps::default()),
            ids: Arc::new(SystemIds),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
        };
        let store = DiskStore::create(&root.path().join("objects"), &root.path().join("staging"), &parts);
        Self { root, clock, store: store.unwrap() }
    }

    /// With one blob, and something that happens at a step.
    fn with_blob(faults: impl FnOnce(&Self, PathBuf) -> Arc<dyn Faults>) -> (Self, Digest) {
        let mut place = Self::new(Coordination::Required);
        let digest = place.put(b"blob");
        let faults = faults(&place, place.store.path_of(&digest));
        place.store = place.store.with_faults(faults);
        (place, digest)
    }

    fn put(&self, bytes: &[u8]) -> Digest {
        self.store.put(&mut &bytes[..]).unwrap().0
    }

    fn lock_path(&self, digest: &Digest) -> PathBuf {
        self.store.objects().join(".locks").join(format!("{digest}.lock"))
    }

    /// Lets somebody else have a lock, whose last beat is in the future: it never ends.
    fn hold(&self, digest: &Digest) {
        fs::create_dir_all(self.store.objects().join(".locks")).unwrap();
        fs::write(self.lock_path(digest), "foreign").unwrap();
        let time = UNIX_EPOCH + Duration::from_nanos(self.clock.now().wall.0.cast_unsigned());
        let beat = time + Duration::from_secs(3600);
        File::open(self.lock_path(digest)).unwrap().set_modified(beat).unwrap();
    }
}

fn set_mtime(path: &Path, since_1970: Duration) {
    File::open(path).unwrap().set_modified(UNIX_EPOCH + since_1970).unwrap();
}

/// An inventory lists blobs alone, with their times rounded down, and needs no directory.
#[test]
fn an_inventory_lists_blobs_and_nothing_else() {
    let place = Place::new(Coordination::Required);
    assert_eq!(place.store.inventory().unwrap(), []);
    let digests = [place.put(b"one"), place.put(b"two!")];
    let objects = place.store.objects().to_owned();
    let hex = digests[0].to_hex();
    let (fan_out, other) = (objects.join(&hex[..2]), digest_of(b"other").to_hex());
    set_mtime(&place.store.path_of(&digests[0]), Duration::new(7, 1_999_999));
    for name in [
        format!("{hex}.tmp-abc-0"),
        hex.to_uppercase(),
        hex[..63].to_owned(),
        // Of another fan-out directory.
        other.clone(),
    ] {
        fs::write(fan_out.join(name), b"no blob").unwrap();
    }
    fs::create_dir(fan_out.join(format!("{}{}", &hex[..2], "0".repeat(62)))).unwrap();
    symlink("/etc/hostname", fan_out.join(format!("{}{}", &hex[..2], "1".repeat(62)))).unwrap();
    fs::write(objects.join(&other), b"at the top").unwrap();
    for odd in ["zz", "AA", "abc", ".locks/aa"] {
        fs::create_dir_all(objects.join(odd)).unwrap();
        fs::write(objects.join(odd).join(&other), b"elsewhere").unwrap();
    }
    symlink(&fan_out, objects.join("00")).unwrap();
    let mut found = place.store.inventory().unwrap();
    found.sort_by_key(|stored| stored.size);
    let listed: Vec<_> = found.iter().map(|stored| (stored.digest, stored.size)).collect();
    assert_eq!(listed, [(digests[0], 3), (digests[1], 4)]);
    assert_eq!(found[0].mtime_ms, 7_001);
    fs::remove_dir_all(&objects).unwrap();
    assert_eq!(place.store.inventory().unwrap(), []);
}

/// A bound compares whole milliseconds; what was put later stays.
#[test]
fn what_was_put_after_the_bound_stays() {
    let place = Place::new(Coordination::Required);
    for (mtime, is_removed) in [
        (Duration::new(9, 999_999_000), true),
        (Duration::new(10, 0), true),
        (Duration::new(10, 400_000), true),
        (Duration::new(10, 600_000), true),
        (Duration::new(10, 1_000_000), false),
    ] {
        let digest = place.put(b"blob");
        set_mtime(&place.store.path_of(&digest), mtime);
        assert_eq!(place.store.remove(&digest, Some(10_000)).unwrap(), is_removed, "{mtime:?}");
        assert_eq!(place.store.has(&digest).unwrap(), !is_removed);
    }
    let digest = place.put(b"blob");
    assert!(!place.store.remove(&digest, Some(10_000)).unwrap(), "a put freshens");
    assert!(place.store.remove(&digest, None).unwrap(), "no bound, no mercy");
    assert!(!place.store.remove(&digest, None).unwrap(), "gone already");
    assert!(place.store.path_of(&digest).parent().unwrap().exists(), "fan-out directories stay");
    assert!(!place.store.remove(&digest_of(b"never"), None).unwrap());
    assert_eq!(fs::read_dir(place.store.objects().join(".locks")).unwrap().count(), 1, "the spare file");
}

/// Nothing is removed while somebody makes a backup; puts go on.
#[test]
fn nothing_is_removed_during_a_backup() {
    let place = Place::new(Coordination::Required);
    let digest = place.put(b"blob");
    let lease = place.store.begin_backup().unwrap();
    assert!(!place.store.remove(&digest, None).unwrap());
    place.put(b"blob");
    place.put(b"another");
    lease.finish().unwrap();
    assert!(place.store.remove(&digest, None).unwrap());
}

/// A removal stays in the directories that it judged, and replaces no error by a guess.
#[test]
fn a_removal_reaches_nothing_outside() {
    let place = Place::new(Coordination::Required);
    let digest = place.put(b"blob");
    let (path, outside) = (place.store.path_of(&digest), place.root.path().join("outside"));
    let fan_out = path.parent().unwrap().to_owned();
    let open = |path: &Path| Dir::new(sys::open_dir(path).unwrap(), path.to_owned()).unwrap();
    let (objects, judged) = (open(place.store.objects()), open(&fan_out));
    judged.check_in(&objects).unwrap();
    fs::rename(&fan_out, &outside).unwrap();
    let refused = || judged.check_in(&objects).unwrap_err();
    assert!(matches!(refused(), BlobError::Swapped { path } if path == fan_out), "gone");
    symlink(&outside, &fan_out).unwrap();
    assert!(matches!(refused(), BlobError::Swapped { path } if path == fan_out), "a link");
    assert!(matches!(place.store.remove(&digest, None), Err(BlobError::NotADirectory { .. })));
    fs::remove_file(&fan_out).unwrap();
    fs::create_dir(&fan_out).unwrap();
    assert!(matches!(refused(), BlobError::Swapped { .. }), "another directory");
    symlink(outside.join(digest.to_hex()), &path).unwrap();
    assert!(matches!(place.store.remove(&digest, None), Err(BlobError::NotAFile { .. })));
    assert_eq!(fs::read(outside.join(digest.to_hex())).unwrap(), b"blob");
}

/// An unlink that fails is an error if the blob is still there, or if that can't be told; not if it is gone.
#[test]
fn a_failed_removal_is_told_unless_the_blob_is_gone() {
    let refused = || Err(io::Error::from_raw_os_error(EIO));
    let (place, digest) = Place::with_blob(|_, _| before(Step::Sweep, refused));
    let error = place.store.remove(&digest, None).unwrap_err();
    assert_eq!((error.code(), error.io_error().unwrap().raw_os_error()), ("unavailable", Some(EIO)));
    assert!(place.store.has(&digest).unwrap());

    let gone = |path: PathBuf| move || fs::remove_file(path).and_then(|()| refused());
    let (place, digest) = Place::with_blob(|_, path| before(Step::Sweep, gone(path)));
    assert!(!place.store.remove(&digest, None).unwrap());

    let (place, digest) = Place::with_blob(|_, path| {
        before(Step::Sweep, move || {
            fs::remove_file(&path)?;
            fs::create_dir(path)?;
            refused()
        })
    });
    let error = place.store.remove(&digest, None).unwrap_err().io_error().unwrap().to_string();
    assert!(error.contains("Input/output error") && error.contains("not a regular file"), "{error}");
}

/// Where no lock files are taken, others can't know of a sweep: so there is none.
#[test]
fn a_store_of_one_process_is_not_swept() {
    let place = Place::new(Coordination::Process);
    let digest = place.put(b"blob");
    for refused in [place.store.remove(&digest, None).map(drop), place.store.begin_backup().map(drop)] {
        assert_eq!(refused.unwrap_err().code(), "invalid_configuration");
    }
    assert!(place.store.has(&digest).unwrap());
    assert_eq!(place.store.inventory().unwrap().len(), 1);
}

/// While somebody else has its lock, an address is read and not changed; who gives up waiting leaves nothing behind.
#[test]
fn a_locked_address_is_read_and_not_changed() {
    let place = Place::new(Coordination::Required);
    let (there, absent) = (place.put(b"there"), digest_of(b"absent"));
    let before = fs::metadata(place.store.path_of(&there)).unwrap().modified().unwrap();
    place.hold(&there);
    place.hold(&absent);
    let staged = place.store.staging().join("save");
    fs::write(&staged, b"absent").unwrap();
    for refused in [
        place.store.put(&mut &b"there"[..]).map(drop),
        place.store.put(&mut &b"absent"[..]).map(drop),
        place.store.adopt(std::slice::from_ref(&staged)).remove(0).map(drop),
        place.store.remove(&there, None).map(drop),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, BlobError::Locked { waited_ms: 120_000, .. }), "{error:?}");
        assert_eq!(error.code(), "unavailable");
    }
    let begun = place.clock.now();
    place.store.get(&there).unwrap();
    assert!(place.store.has(&there).unwrap() && !place.store.has(&absent).unwrap());
    place.put(b"another address");
    assert_eq!(place.clock.now(), begun, "none of these waits");
    assert_eq!(fs::metadata(place.store.path_of(&there)).unwrap().modified().unwrap(), before);
    let left: Vec<_> =
        fs::read_dir(place.store.staging()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [staged]);
}

/// A put that lost its lock renames nothing, and trusts no freshening that a sweep may not have seen.
#[test]
fn a_put_without_its_lock_places_nothing() {
    let lose = |lock: PathBuf| move || fs::write(lock, "foreign");
    let new = digest_of(b"new");
    let (place, _) = Place::with_blob(|place, _| after(Step::NameLock, lose(place.lock_path(&new))));
    let staged = place.store.staging().join("save");
    fs::write(&staged, b"new").unwrap();
    let lost = place.store.adopt(std::slice::from_ref(&staged)).remove(0);
    assert!(matches!(lost, Err(BlobError::LockLost { path }) if path == place.lock_path(&new)));
    assert!(staged.exists() && !place.store.has(&new).unwrap());

    let blob = digest_of(b"blob");
    let (place, _) = Place::with_blob(|place, _| before(Step::Touch, lose(place.lock_path(&blob))));
    assert!(matches!(place.store.put(&mut &b"blob"[..]), Err(BlobError::LockLost { .. })));

    let (place, digest) = Place::with_blob(|place, _| after(Step::NameLock, lose(place.lock_path(&blob))));
    assert!(matches!(place.store.remove(&digest, None), Err(BlobError::LockLost { .. })));
    assert!(place.store.is_whole(&digest).unwrap());
}

/// A put whose lock can't be given back says so, and a save stays a save.
#[test]
fn a_lock_that_stays_is_told() {
    let refused = || Err(io::Error::from_raw_os_error(EIO));
    let (place, _) = Place::with_blob(|_, _| before(Step::RemoveLock, refused));
    let staged = place.store.staging().join("save");
    fs::write(&staged, b"new").unwrap();
    let error = place.store.adopt(std::slice::from_ref(&staged)).remove(0).unwrap_err();
    assert_eq!(error.io_error().unwrap().raw_os_error(), Some(EIO));
    assert!(staged.exists() && place.lock_path(&digest_of(b"new")).exists());
    place.put(b"new");
    assert!(!place.lock_path(&digest_of(b"new")).exists(), "its owner is known to be dead");
}
