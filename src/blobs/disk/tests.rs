use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::blobs::contract::{self, read};
use crate::blobs::{Coordination, Fault, FaultPlan, Step, digest_of};
use crate::clock::SystemClock;
use crate::ids::SystemIds;

const EIO: i32 = 5;
const EACCES: i32 = 13;
const ENOSPC: i32 = 28;

/// A store in a directory that goes with it.
pub(super) struct Place {
    pub(super) root: tempfile::TempDir,
    stamps: Arc<MemoryStamps>,
    /// Whether the store has the directory of blobs alone.
    bare: bool,
}

impl Place {
    pub(super) fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap(), stamps: Arc::default(), bare: false }
    }

    /// The same in memory, where a sync costs nothing: for tests that repeat a put hundreds of times.
    fn in_memory(self) -> Self {
        match tempfile::tempdir_in("/dev/shm") {
            Ok(root) => Self { root, ..self },
            Err(_) => self,
        }
    }

    pub(super) fn bare() -> Self {
        Self { bare: true, ..Self::new() }
    }

    pub(super) fn objects(&self) -> PathBuf {
        self.root.path().join("objects")
    }

    fn staging(&self) -> PathBuf {
        if self.bare { self.objects().join(".staging") } else { self.root.path().join("staging") }
    }

    pub(super) fn store(&self) -> DiskStore {
        if self.bare {
            return DiskStore::bare(&self.objects(), &parts(self.stamps.clone())).unwrap();
        }
        DiskStore::create(&self.objects(), &self.staging(), &parts(self.stamps.clone())).unwrap()
    }

    /// The store as another process finds it: nothing is known of it.
    pub(super) fn reopened(&self) -> DiskStore {
        if self.bare {
            return DiskStore::bare(&self.objects(), &parts(Arc::default())).unwrap();
        }
        DiskStore::open(&self.objects(), &self.staging(), &parts(Arc::default())).unwrap()
    }

    fn stage(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.staging().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    pub(super) fn staged(&self) -> Vec<Vec<u8>> {
        let Ok(entries) = fs::read_dir(self.staging()) else { return Vec::new() };
        let mut files: Vec<_> =
            entries.map(|entry| fs::read(entry.unwrap().path()).unwrap_or_default()).collect();
        files.sort();
        files
    }

    pub(super) fn blobs(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.objects()) else { return Vec::new() };
        let fan_outs = entries.map(|entry| entry.unwrap());
        let fan_outs = fan_outs.filter(|entry| entry.file_name().len() == 2).map(|entry| entry.path());
        let blobs = fan_outs.flat_map(|dir| fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()));
        let mut blobs: Vec<_> = blobs.collect();
        blobs.sort();
        blobs
    }

    /// Lets all locks be as old as if nobody had touched them for long.
    fn let_locks_end(&self) {
        for lock in fs::read_dir(self.objects().join(".locks")).into_iter().flatten() {
            File::open(lock.unwrap().path()).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
        }
    }

    /// Whatever has an address has the right bytes.
    pub(super) fn assert_whole(&self) {
        let store = self.reopened();
        for path in self.blobs() {
            let digest = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
            store.open_verified(&digest).unwrap();
        }
    }
}

pub(super) fn parts(stamps: Arc<MemoryStamps>) -> DiskParts {
    let clock = Arc::new(SystemClock::new().unwrap());
    DiskParts { settings: DiskSettings::default(), stamps, ids: Arc::new(SystemIds), clock }
}

pub(super) fn put(store: &DiskStore, bytes: &[u8]) -> Digest {
    store.put(&mut &bytes[..]).unwrap().0
}

/// Changes a blob behind the store's back, through its own inode.
pub(super) fn scribble(store: &DiskStore, digest: &Digest, bytes: &[u8]) {
    File::options().write(true).open(store.path_of(digest)).unwrap().write_all_at(bytes, 0).unwrap();
}

pub(super) fn modes(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn the_store_on_disk_keeps_the_contract() {
    let places = parking_lot::Mutex::new(Vec::new());
    for make in [Place::new, Place::bare] {
        contract::holds(|| {
            let place = make();
            let store = place.store();
            places.lock().push(place);
            store
        });
    }
    for place in places.into_inner() {
        assert!(place.staged().is_empty(), "nothing may be left in staging");
        place.assert_whole();
    }
}

#[test]
fn names_and_modes_are_those_of_the_peer() {
    let place = Place::new();
    let digest = put(&place.store(), b"abc");
    let hex = digest.to_hex();
    assert_eq!(place.blobs(), [place.objects().join(&hex[..2]).join(&hex)]);
    assert_eq!(modes(&place.blobs()[0]), 0o600);
    for dir in [place.objects(), place.staging(), place.objects().join(&hex[..2])] {
        assert_eq!(modes(&dir), 0o700, "{}", dir.display());
    }
}

#[test]
fn an_adopted_file_becomes_the_blob_itself() {
    let place = Place::new();
    let store = place.store();
    let path = place.stage("save", b"document");
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    File::open(&path).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    let inode = fs::metadata(&path).unwrap().ino();
    let results = store.adopt(&[path]);
    assert_eq!(results[0].as_ref().unwrap(), &(digest_of(b"document"), 8));
    let blob = fs::metadata(store.path_of(&digest_of(b"document"))).unwrap();
    assert_eq!((blob.ino(), blob.mode() & 0o7777), (inode, 0o600), "no second copy is made");
    assert!(place.staged().is_empty());
    assert!(
        !store.needs_hashing(&digest_of(b"document")).unwrap(),
        "the stamp is of the file after its rename"
    );
}

#[test]
fn a_batch_is_answered_in_order_whatever_is_in_it() {
    // Few and many files, of which one is missing, two are the same, and one is there already.
    for count in [3_usize, 40] {
        let place = Place::new();
        let store = place.store();
        put(&store, b"1");
        let mut staged: Vec<_> =
            (0..count).map(|i| place.stage(&format!("s{i}"), i.to_string().as_bytes())).collect();
        staged.push(place.stage("twin", b"0"));
        staged.insert(1, place.staging().join("absent"));
        let mut results = store.adopt(&staged);
        assert!(matches!(results.remove(1), Err(BlobError::Io { path, .. }) if path.ends_with("absent")));
        let twin = results.pop().unwrap().unwrap();
        assert_eq!(twin.0, digest_of(b"0"));
        for (i, result) in results.into_iter().enumerate() {
            assert_eq!(result.unwrap().0, digest_of(i.to_string().as_bytes()));
        }
        assert!(place.staged().is_empty());
        assert_eq!(place.blobs().len(), count);
        place.assert_whole();
    }
}

#[test]
fn only_regular_files_directly_in_staging_are_adopted() {
    let place = Place::new();
    let store = place.store();
    let outside = place.root.path().join("outside");
    fs::write(&outside, b"outside").unwrap();
    symlink(&outside, place.staging().join("link")).unwrap();
    fs::create_dir(place.staging().join("dir")).unwrap();
    let results = store.adopt(&[outside, place.staging().join("link"), place.staging().join("dir")]);
    assert!(matches!(results[0], Err(BlobError::NotStaged { .. })));
    assert!(matches!(results[1], Err(BlobError::Io { .. })));
    assert!(matches!(results[2], Err(BlobError::NotStaged { .. })));
    assert!(place.blobs().is_empty());
}

#[test]
fn digests_are_noted_before_a_file_leaves_staging_or_it_stays() {
    let place = Place::new();
    let store = place.store();
    let path = place.stage("save", b"noted");
    let results = store
        .adopt_noting(std::slice::from_ref(&path), &mut |_| Err(Arc::from(Box::from("the catalog is full"))));
    assert!(matches!(&results[0], Err(BlobError::NotNoted { .. })));
    assert_eq!((place.staged(), place.blobs().len()), (vec![b"noted".to_vec()], 0));

    let mut noted = Vec::new();
    let results = store.adopt_noting(std::slice::from_ref(&path), &mut |digests| {
        assert!(path.exists());
        noted.extend_from_slice(digests);
        Ok(())
    });
    assert!(results[0].is_ok());
    assert_eq!(noted, [(path, digest_of(b"noted"))]);
}

#[test]
fn a_blob_is_hashed_once_and_then_trusted_until_it_changes() {
    let place = Place::new();
    let digest = put(&place.store(), b"bytes");
    let store = place.reopened();
    assert!(store.needs_hashing(&digest).unwrap(), "another process knows nothing of it");
    store.open_verified(&digest).unwrap();
    assert!(!store.needs_hashing(&digest).unwrap());

    File::open(store.path_of(&digest)).unwrap().set_modified(std::time::UNIX_EPOCH).unwrap();
    assert!(store.needs_hashing(&digest).unwrap(), "another mtime");
    store.open_verified(&digest).unwrap();
    fs::set_permissions(store.path_of(&digest), Permissions::from_mode(0o644)).unwrap();
    assert!(store.needs_hashing(&digest).unwrap(), "another ctime");
    assert!(matches!(store.needs_hashing(&digest_of(b"absent")), Err(BlobError::Missing { .. })));
}

#[test]
fn a_put_blob_is_trusted_at_once_and_again_after_it_was_put_again() {
    let place = Place::new();
    let store = place.store();
    let digest = put(&store, b"bytes");
    assert!(!store.needs_hashing(&digest).unwrap());
    let before = fs::metadata(store.path_of(&digest)).unwrap();
    put(&store, b"bytes");
    let after = fs::metadata(store.path_of(&digest)).unwrap();
    assert_eq!(before.ino(), after.ino(), "a blob that is whole is not replaced");
    assert!(after.modified().unwrap() > before.modified().unwrap(), "a sweep goes by mtime");
    assert!(!store.needs_hashing(&digest).unwrap());
}

#[test]
fn corrupt_bytes_are_never_handed_out() {
    let place = Place::new();
    let store = place.store();
    let scribbled = put(&store, b"right");
    scribble(&store, &scribbled, b"wrong");
    let error = store.get(&scribbled).err();
    assert!(matches!(error, Some(BlobError::Corrupt { digest, found })
        if digest == scribbled && found == digest_of(b"wrong")));
    assert!(store.has(&scribbled).unwrap() && !store.is_whole(&scribbled).unwrap());

    for size in [0, 3] {
        let digest = put(&store, b"a longer one");
        File::options().write(true).open(store.path_of(&digest)).unwrap().set_len(size).unwrap();
        assert!(matches!(store.get(&digest).err(), Some(BlobError::Corrupt { .. })), "cut to {size}");
        assert!(!store.is_whole(&digest).unwrap());
    }
}

#[test]
fn a_put_heals_what_is_not_whole_and_spares_open_readers() {
    let place = Place::new();
    let store = place.store();
    let digest = put(&store, b"right");
    let address = store.path_of(&digest);
    let mut reader = store.get(&digest).unwrap();

    scribble(&store, &digest, b"wrong");
    let rubbish = fs::metadata(&address).unwrap().ino();
    put(&store, b"right");
    assert_ne!(fs::metadata(&address).unwrap().ino(), rubbish, "never through the old inode");
    assert_eq!(read(&store, &digest), b"right");
    let mut old = Vec::new();
    reader.read_to_end(&mut old).unwrap();
    assert_eq!(old, b"wrong", "an open file is what somebody made of it, not a mixture");

    fs::remove_file(&address).unwrap();
    assert!(store.adopt(&[place.stage("heal", b"right")])[0].is_ok());
    assert_eq!(read(&store, &digest), b"right");
}

#[test]
fn symlinks_in_place_of_directories_are_refused() {
    let place = Place::new();
    let store = place.store();
    let digest = put(&store, b"abc");
    let elsewhere = place.root.path().join("elsewhere");
    let fan_out = store.path_of(&digest).parent().unwrap().to_owned();
    fs::rename(&fan_out, &elsewhere).unwrap();
    symlink(&elsewhere, &fan_out).unwrap();
    assert!(matches!(store.get(&digest).err(), Some(BlobError::NotADirectory { path }) if path == fan_out));
    assert!(matches!(store.put(&mut &b"abc"[..]), Err(BlobError::NotADirectory { .. })));
    assert!(matches!(store.has(&digest), Err(BlobError::NotADirectory { .. })), "unknown is not missing");

    let real = place.root.path().join("real");
    fs::rename(place.objects(), &real).unwrap();
    symlink(&real, place.objects()).unwrap();
    let opened = DiskStore::open(&place.objects(), &place.staging(), &parts(place.stamps.clone()));
    assert!(matches!(opened.err(), Some(BlobError::NotADirectory { .. })));
    let created = DiskStore::create(&place.objects(), &place.staging(), &parts(place.stamps.clone()));
    assert!(matches!(created.err(), Some(BlobError::NotADirectory { .. })));
}

#[test]
fn two_filesystems_are_refused() {
    let place = Place::new();
    let other = Path::new("/dev/shm");
    let same = fs::metadata(other).unwrap().dev() == fs::metadata(place.root.path()).unwrap().dev();
    let opened = DiskStore::create(&place.objects(), other, &parts(place.stamps.clone()));
    assert_eq!(matches!(opened.err(), Some(BlobError::TwoFilesystems { .. })), !same);
}

#[test]
fn a_file_that_is_written_to_while_it_is_stored_stays_in_staging() {
    let place = Place::new();
    let store = place.store();
    let path = place.stage("save", b"before");
    let store = store.with_faults(Arc::new(WriteAtSync(path.clone())));
    assert!(matches!(store.adopt(&[path])[0], Err(BlobError::NotSealed { .. })));
    assert_eq!((place.staged().len(), place.blobs().len()), (1, 0));
}

/// An application that goes on writing to a file that was said to be sealed.
struct WriteAtSync(PathBuf);

impl Faults for WriteAtSync {
    fn before(&self, step: Step) -> io::Result<()> {
        if step == Step::SyncFile {
            File::options().append(true).open(&self.0)?.write_all(b" after")?;
        }
        Ok(())
    }

    fn after(&self, _step: Step) -> io::Result<()> {
        Ok(())
    }
}

/// What is done to the store while one of its steps fails.
#[derive(Debug, Clone, Copy)]
enum Work {
    Put,
    PutAgain,
    Heal,
    Adopt,
    AdoptMany,
    AdoptAgain,
    Import,
    BarePut,
    BarePutAgain,
    BareHeal,
    BareImport,
}

const WORK: [Work; 11] = [
    Work::Put,
    Work::PutAgain,
    Work::Heal,
    Work::Adopt,
    Work::AdoptMany,
    Work::AdoptAgain,
    Work::Import,
    Work::BarePut,
    Work::BarePutAgain,
    Work::BareHeal,
    Work::BareImport,
];

impl Work {
    fn contents(self) -> Vec<Vec<u8>> {
        let many = matches!(self, Self::AdoptMany | Self::Import | Self::BareImport);
        let count = if many { 9 } else { 1 };
        (0..count).map(|i| format!("content {i}").into_bytes()).collect()
    }

    fn place(self) -> Place {
        match self {
            Self::BarePut | Self::BarePutAgain | Self::BareHeal | Self::BareImport => Place::bare(),
            _ => Place::new(),
        }
    }

    fn heals(self) -> bool {
        matches!(self, Self::Heal | Self::BareHeal)
    }

    /// Brings the store to where the work begins.
    fn prepare(self, place: &Place) -> Vec<PathBuf> {
        let store = place.store();
        put(&store, b"bystander");
        if self.heals() || matches!(self, Self::PutAgain | Self::BarePutAgain | Self::AdoptAgain) {
            let digest = put(&store, b"content 0");
            if self.heals() {
                scribble(&store, &digest, b"rubbish");
            }
        }
        let contents = self.contents();
        let adopts = matches!(self, Self::Adopt | Self::AdoptMany | Self::AdoptAgain);
        let staged = contents.iter().enumerate().filter(|_| adopts);
        staged.map(|(i, bytes)| place.stage(&format!("s{i}"), bytes)).collect()
    }

    fn run(self, store: &DiskStore, staged: &[PathBuf]) -> Vec<Result<(Digest, u64), BlobError>> {
        match self {
            Self::Adopt | Self::AdoptMany | Self::AdoptAgain => store.adopt(staged),
            Self::Import | Self::BareImport => import(store, &self.contents()),
            _ => vec![store.put(&mut &self.contents()[0][..])],
        }
    }

    fn keeps_its_staging_files(self) -> bool {
        matches!(self, Self::Adopt | Self::AdoptMany | Self::AdoptAgain)
    }
}

fn import(store: &DiskStore, contents: &[Vec<u8>]) -> Vec<Result<(Digest, u64), BlobError>> {
    let mut results = Vec::new();
    let mut sources = contents.iter().map(|bytes| Ok(Box::new(&bytes[..]) as Box<dyn Read>));
    let stored = store.put_batch(&mut sources, &mut |number, result| {
        assert_eq!(number, results.len(), "told in order");
        results.push(result);
    });
    stored.unwrap();
    results
}

/// Runs `check` for each kind of work with `fault` at each of its steps in turn.
fn at_each_step(fault: Fault, check: impl Fn(Work, &str, &Place, Vec<Result<(Digest, u64), BlobError>>)) {
    for work in WORK {
        let mut number = 0;
        loop {
            let place = work.place().in_memory();
            let staged = work.prepare(&place);
            let plan = Arc::new(FaultPlan::new());
            let store = place.store().with_faults(plan.clone());
            plan.arm(number, fault);
            let results = work.run(&store, &staged);
            let seen = plan.seen();
            let Some(step) = seen.get(number) else {
                assert!(number >= 4, "BUG: {work:?} has no steps to fail");
                break;
            };
            assert_eq!(results.len(), work.contents().len());
            check(work, &format!("{work:?}, {fault:?} at step {number}, {step:?}"), &place, results);
            number += 1;
        }
    }
}

#[test]
fn a_step_that_fails_fails_the_file_and_loses_nothing() {
    for fault in [Fault::Error(EIO), Fault::Error(ENOSPC), Fault::Error(EACCES), Fault::ShortWrite(ENOSPC)] {
        let (Fault::Error(errno) | Fault::ShortWrite(errno)) = fault else { unreachable!("BUG: no crash") };
        at_each_step(fault, |work, case, place, results| {
            place.assert_or_healing(work, case);
            for (result, bytes) in results.iter().zip(work.contents()) {
                let stored = place.reopened().is_whole(&digest_of(&bytes)).unwrap();
                let staged = place.staged().contains(&bytes);
                match result {
                    Ok((digest, _)) => assert!(*digest == digest_of(&bytes) && stored, "{case}"),
                    Err(error) => {
                        assert_eq!(error.io_error().and_then(io::Error::raw_os_error), Some(errno), "{case}");
                        assert_eq!(staged, work.keeps_its_staging_files(), "{case}");
                    }
                }
            }
        });
    }
}

#[test]
fn after_a_crash_each_file_is_in_staging_or_in_the_store_whole() {
    for fault in [Fault::CrashBefore, Fault::CrashAfter] {
        at_each_step(fault, |work, case, place, results| {
            place.assert_or_healing(work, case);
            place.let_locks_end();
            let store = place.reopened();
            for (result, bytes) in results.iter().zip(work.contents()) {
                let stored = store.is_whole(&digest_of(&bytes)).unwrap();
                assert!(stored || result.is_err(), "{case}: acknowledged and not there");
                let kept = stored || !work.keeps_its_staging_files() || place.staged().contains(&bytes);
                assert!(kept, "{case}: lost");
            }
            let again = results.len();
            assert_eq!(
                import(&store, &work.contents()).iter().filter(|r| r.is_ok()).count(),
                again,
                "{case}"
            );
            place.assert_whole();
        });
    }
}

impl Place {
    /// As `assert_whole`; where the work is to heal a blob, that one may still be ill.
    fn assert_or_healing(&self, work: Work, case: &str) {
        let ill: Vec<_> =
            self.blobs().into_iter().filter(|path| fs::read(path).unwrap().starts_with(b"rubbish")).collect();
        assert!(ill.is_empty() || work.heals(), "{case}");
        assert!(self.reopened().is_whole(&digest_of(b"bystander")).unwrap(), "{case}");
        if ill.is_empty() {
            self.assert_whole();
        }
    }
}

#[test]
fn a_failed_sync_is_never_retried_into_success() {
    for count in [1, 9] {
        let place = Place::new();
        let plan = Arc::new(FailedSyncs(&[Step::SyncFile, Step::SyncFilesystem]));
        let staged: Vec<_> = {
            place.store();
            (0..count).map(|i| place.stage(&format!("s{i}"), &[i])).collect()
        };
        let store = place.store().with_faults(plan);
        let results = store.adopt(&staged);
        assert!(results.iter().all(|r| matches!(r, Err(BlobError::Sync { .. }))), "{count}");
        let store = store.with_faults(Arc::new(FaultPlan::new()));
        let again = store.adopt(&staged);
        assert!(again.iter().all(|r| matches!(r, Err(BlobError::Tainted { .. }))), "{count}");
        assert_eq!((place.staged().len(), place.blobs().len()), (usize::from(count), 0));
    }
}

/// A disk that can't sync.
struct FailedSyncs(&'static [Step]);

impl Faults for FailedSyncs {
    fn before(&self, step: Step) -> io::Result<()> {
        if self.0.contains(&step) { Err(io::Error::from_raw_os_error(EIO)) } else { Ok(()) }
    }

    fn after(&self, _step: Step) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_rename_that_was_not_made_durable_gives_the_staging_name_back() {
    for count in [1, 9] {
        let place = Place::new();
        let store = place.store();
        let mut staged: Vec<_> = (0..count).map(|i| place.stage(&format!("s{i}"), &[i])).collect();
        staged.push(place.stage("twin", &[0]));
        let store = store.with_faults(Arc::new(FailedSyncs(&[Step::SyncDir, Step::SyncFilesystem])));
        let results = store.adopt(&staged);
        assert!(results.iter().all(|result| matches!(result, Err(BlobError::Sync { .. }))));
        assert!(staged.iter().all(|path| path.exists()));
        // The sync of the files themselves was good: this is no taint, and the second attempt heals nothing.
        let store = store.with_faults(Arc::new(FaultPlan::new()));
        assert!(store.adopt(&staged).iter().all(Result::is_ok));
        assert!(place.staged().is_empty());
        assert!(!store.needs_hashing(&digest_of(&[0])).unwrap(), "stamped after the second name went");
        place.assert_whole();
    }
}

#[test]
fn an_import_tells_each_result_in_order_and_leaves_no_temporary_file() {
    let place = Place::new();
    let store = place.store();
    let mut results = Vec::new();
    let mut sources = (0..5000_u32).map(|i| {
        let bytes = (i % 4000).to_le_bytes();
        if i == 77 {
            Err(io::ErrorKind::PermissionDenied.into())
        } else {
            Ok(Box::new(io::Cursor::new(bytes)) as Box<dyn Read>)
        }
    });
    store.put_batch(&mut sources, &mut |number, result| results.push((number, result))).unwrap();
    assert_eq!(results.len(), 5000);
    for (i, (number, result)) in results.into_iter().enumerate() {
        assert_eq!(i, number);
        match result {
            Ok((digest, size)) => {
                assert_eq!((digest, size), (digest_of(&(i as u32 % 4000).to_le_bytes()), 4))
            }
            Err(error) => assert!(i == 77 && matches!(error, BlobError::Source { .. })),
        }
    }
    assert!(place.staged().is_empty());
    assert_eq!(place.blobs().len(), 4000);
}

/// The steps that change something.
pub(super) fn changes(plan: &FaultPlan) -> Vec<Step> {
    let looks = |step: &Step| matches!(step, Step::Open | Step::Read | Step::Probe);
    plan.seen().into_iter().filter(|step| !looks(step)).collect()
}

#[test]
fn bytes_are_synced_before_the_rename_and_directories_after_it() {
    use Step::{Create, MakeDir, Remove, Rename, SyncDir, SyncFile, SyncFilesystem, Touch, Write};
    let place = Place::new();
    let plan = Arc::new(FaultPlan::new());
    let mut parts = parts(place.stamps.clone());
    // Without the steps of locks, which have tests of their own.
    parts.settings.coordination = Coordination::Process;
    let store = DiskStore::create(&place.objects(), &place.staging(), &parts).unwrap();
    let store = store.with_faults(plan.clone());
    let taken = |plan: &FaultPlan| {
        let seen = changes(plan);
        plan.arm(usize::MAX, Fault::Error(EIO));
        seen
    };
    // The fan-out, objects/, and each directory above it.
    let chain = |above: usize| std::iter::repeat_n(SyncDir, 2 + above);
    let above = place.objects().ancestors().count() - 1;

    put(&store, b"first");
    let first: Vec<_> = [Create, Write, SyncFile, MakeDir, Rename].into_iter().chain(chain(above)).collect();
    assert_eq!(taken(&plan), first, "each name on the way is synced");
    put(&store, b"first");
    assert_eq!(taken(&plan), [Touch, SyncFile, SyncDir], "and not written again");

    let [one, two] = ["one", "two"].map(|name| place.stage(name, b"adopted"));
    fs::set_permissions(&one, Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(&two, Permissions::from_mode(0o600)).unwrap();
    assert!(store.adopt(&[one])[0].is_ok());
    assert_eq!(taken(&plan), [Touch, SyncFile, MakeDir, Rename, SyncDir, SyncDir], "those above are known");
    assert!(store.adopt(&[two])[0].is_ok());
    assert_eq!(
        taken(&plan),
        [Touch, SyncFile, Touch, SyncFile, SyncDir, Remove],
        "removed when all is durable"
    );

    import(&store, &(0..9_u8).map(|i| vec![i]).collect::<Vec<_>>());
    let seen = taken(&plan);
    let barriers: Vec<_> = (0..seen.len()).filter(|i| seen[*i] == SyncFilesystem).collect();
    let renames: Vec<_> = (0..seen.len()).filter(|i| seen[*i] == Rename).collect();
    assert_eq!((barriers.len(), renames.len()), (2, 9), "two barriers for all");
    assert!(renames.iter().all(|rename| (barriers[0]..barriers[1]).contains(rename)));
    assert!(seen[..barriers[0]].iter().all(|step| matches!(step, Create | Write)));
}

#[test]
fn a_source_longer_than_all_buffers_is_stored_whole() {
    let place = Place::new();
    let store = place.store();
    let bytes: Vec<u8> = (0..9_000_001_u32).map(|i| (i / 7 % 256) as u8).collect();
    assert_eq!(store.put(&mut &bytes[..]).unwrap(), (digest_of(&bytes), bytes.len() as u64));
    assert!(read(&store, &digest_of(&bytes)) == bytes);
}

#[test]
fn many_threads_may_adopt_the_same_bytes() {
    let place = Place::new();
    let store = place.store();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (place, store) = (&place, &store);
            scope.spawn(move || {
                let stage = |i: u8| place.stage(&format!("{thread}-{i}"), &[i % 7]);
                let results = store.adopt(&(0..20).map(stage).collect::<Vec<_>>());
                assert!(results.iter().all(Result::is_ok), "{results:?}");
            });
        }
    });
    assert_eq!((place.staged().len(), place.blobs().len()), (0, 7));
    place.assert_whole();
}
