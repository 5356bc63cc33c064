use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::sync::Arc;

use super::*;
use crate::clock::ManualClock;
use crate::ids::CountingIds;
use crate::model::{MAX_TTL_MS, Timestamp};

/// A user of nobody's on the machine.
const OTHER: u32 = 54_321;

/// A shared directory of the present user's, a private one beside it, and a clock that the test moves.
struct Machine {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    leases: HostLeases,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new());
        let places = Places { shared: dir.path().join("shared"), owner: user(), private: None };
        let leases = HostLeases::new(places, clock.clone(), Arc::new(CountingIds::default()));
        Self { dir, clock, leases }
    }

    /// As an ordinary user sees it: root owns the shared directory, and has not made it yet.
    fn without_shared() -> Self {
        let mut machine = Self::new();
        machine.leases.places.owner = user() + 1;
        machine.leases.places.private = Some(machine.dir.path().join("private"));
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.leases.places.shared.join(name)
    }

    fn own_file(&self) -> PathBuf {
        self.path(&format!("{}.json", user()))
    }

    fn acquire(&self, holder: &str, names: &[&str]) -> Result<Vec<HostLease>> {
        self.leases.acquire_set(&keys(names), &request(holder, 60_000))
    }

    fn listed(&self) -> Vec<String> {
        let listing = self.leases.list().unwrap();
        listing.leases.iter().map(|lease| format!("{} {}", lease.key.name(), lease.holder)).collect()
    }

    /// A file as another user would have written it.
    fn write_as(&self, name: &str, text: &str, uid: u32) {
        fs::write(self.path(name), text).unwrap();
        chown(self.path(name), Some(uid), None).unwrap();
    }
}

fn keys(names: &[&str]) -> Vec<HostKey> {
    names.iter().map(|name| format!("host:{name}").parse().unwrap()).collect()
}

fn request(holder: &str, ttl_ms: i64) -> LeaseRequest {
    LeaseRequest { holder: holder.parse().unwrap(), ttl_ms, take_from_writers: false }
}

fn blockers(result: Result<Vec<HostLease>>) -> Vec<String> {
    match result {
        Err(HostError::Held { blockers }) => blockers.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

/// Whether this process may give files away; said where not.
fn is_root() -> bool {
    if user() != 0 {
        assert!(std::env::var_os("CI").is_none(), "not root, and CI wants other users tested");
        eprintln!("SKIPPED: only root can make files of other users");
    }
    user() == 0
}

/// A set is taken as a whole, and its refusal names all that is in the way.
#[test]
fn a_set_is_taken_whole_or_not_at_all() {
    let machine = Machine::new();
    let taken = machine.acquire("ada@desk", &["port:1", "port:2"]).unwrap();
    assert_eq!(taken.iter().map(|lease| lease.key.name()).collect::<Vec<_>>(), ["port:1", "port:2"]);
    let before = fs::read(machine.own_file()).unwrap();
    let refused = blockers(machine.acquire("bob@desk", &["port:0", "port:1", "port:2"]));
    let until = taken[0].expires.to_rfc3339();
    let line = |key| format!("host:port:{key}: held by ada@desk (user {}) until {until}", user());
    assert_eq!(refused, [line(1), line(2)]);
    assert_eq!(fs::read(machine.own_file()).unwrap(), before, "nothing was granted");
    assert_eq!(machine.listed(), ["port:1 ada@desk", "port:2 ada@desk"]);
    let shown = machine.leases.show(&keys(&["port:2"])[0]).unwrap();
    assert_eq!(shown, Some(Blocker::Lease(taken[1].clone())));
    assert_eq!(machine.leases.show(&keys(&["port:0"])[0]).unwrap(), None);
}

/// Asking again renews, from now and for what is asked, which may be shorter; the generation stays.
#[test]
fn the_holder_renews_and_nobody_else() {
    let machine = Machine::new();
    let first = machine.acquire("ada@desk", &["x"]).unwrap().remove(0);
    machine.clock.advance_ms(10_000);
    let now_ms = machine.clock.now().boot_ms;
    let again = machine.leases.acquire_set(&keys(&["x", "y", "x"]), &request("ada@desk", 5_000)).unwrap();
    assert_eq!((again[0].generation, again[0].expires_boot_ms), (first.generation, now_ms + 5_000));
    assert!(again[0].expires_boot_ms < first.expires_boot_ms);
    assert_eq!(again[0], again[2], "a key that is named twice is one");
    assert!(again[1].generation > first.generation);
    let renewed = machine.leases.renew(&keys(&["x", "y"]), &request("ada@desk", 9_000)).unwrap();
    assert_eq!(renewed[1].generation, again[1].generation);
    assert!(matches!(
        machine.leases.renew(&keys(&["x"]), &request("bob@desk", 9_000)),
        Err(HostError::Held { .. })
    ));
    let not_held = machine.leases.renew(&keys(&["x", "z"]), &request("ada@desk", 90_000));
    assert!(matches!(not_held, Err(HostError::NotHeld { key }) if key.name() == "z"));
    assert_eq!(machine.leases.list().unwrap().leases, renewed, "the refused renewal changed nothing");
    assert_eq!(machine.leases.release(&keys(&["x", "y"]), &"bob@desk".parse().unwrap()).unwrap(), []);
    let released = machine.leases.release(&keys(&["x", "q"]), &"ada@desk".parse().unwrap()).unwrap();
    assert_eq!(released, [renewed[0].clone()]);
    assert_eq!(machine.listed(), ["y ada@desk"]);
    for ttl_ms in [0, -1, i64::MIN, MAX_TTL_MS + 1, i64::MAX] {
        let refused = machine.leases.acquire_set(&keys(&["z"]), &request("ada@desk", ttl_ms));
        assert!(matches!(refused, Err(HostError::BadTtl(told)) if told == ttl_ms));
    }
    let now_ms = machine.clock.now().boot_ms;
    let longest = machine.leases.acquire_set(&keys(&["z"]), &request("ada@desk", MAX_TTL_MS)).unwrap();
    assert_eq!(longest[0].expires_boot_ms, now_ms + MAX_TTL_MS);
}

/// The boot's clock decides to the millisecond, whatever the wall clock is set to, and another boot ends all.
#[test]
fn a_lease_ends_by_the_boots_clock_or_with_the_boot() {
    let machine = Machine::new();
    let lease = machine.acquire("ada@desk", &["x"]).unwrap().remove(0);
    machine.clock.step_wall_ms(86_400_000);
    assert_eq!(machine.listed().len(), 1, "the wall clock was set forward");
    machine.clock.step_wall_ms(-2 * 86_400_000);
    let left_ms = lease.expires_boot_ms - machine.clock.now().boot_ms;
    machine.clock.advance_ms(left_ms - 1);
    blockers(machine.acquire("bob@desk", &["x"]));
    machine.clock.advance_ms(1);
    assert_eq!(machine.listed(), Vec::<String>::new());
    let taken = machine.acquire("bob@desk", &["x"]).unwrap().remove(0);
    assert!(taken.generation > lease.generation);
    assert!(taken.expires < lease.expires, "the wall clock was set back: that is for people only");
    machine.clock.reboot();
    machine.acquire("ada@desk", &["x"]).unwrap();
    assert_eq!(machine.listed(), ["x ada@desk"]);
}

/// A lease that lapsed is a new one with a new generation, for its old holder too.
#[test]
fn a_lapsed_lease_gets_another_generation() {
    let machine = Machine::new();
    let first = machine.acquire("ada@desk", &["x"]).unwrap().remove(0);
    machine.clock.advance_ms(60_000);
    let second = machine.acquire("ada@desk", &["x"]).unwrap().remove(0);
    assert!(second.generation > first.generation);
}

/// Generations grow in the order of the grants, and when the files that tell them are gone.
#[test]
fn no_generation_comes_twice() {
    let machine = Machine::new();
    let names: Vec<String> = (0..500).map(|i| format!("k{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut last = Generation(-1);
    for _ in 0..3 {
        for lease in machine.acquire("ada@desk", &names).unwrap() {
            assert!(lease.generation > last, "{lease:?}");
            last = lease.generation;
        }
        fs::remove_file(machine.own_file()).unwrap();
    }
}

/// A set that is only begun is nobody's and keeps others out; dropped, it leaves nothing.
#[test]
fn a_pending_set_is_taken_by_its_commit() {
    let machine = Machine::new();
    machine.acquire("ada@desk", &["x"]).unwrap();
    let before = fs::read(machine.own_file()).unwrap();
    let pending = machine.leases.begin(&keys(&["x", "y"]), &request("ada@desk", 90_000)).unwrap();
    assert_eq!((pending.leases().len(), pending.fresh()), (2, &*keys(&["y"])));
    let error = machine.acquire("bob@desk", &["z"]).unwrap_err();
    assert!(matches!(error, HostError::Locked { pid, .. } if pid == Some(std::process::id())), "{error:?}");
    assert_eq!(fs::read(machine.own_file()).unwrap(), before);
    drop(pending);
    assert_eq!(fs::read(machine.own_file()).unwrap(), before);
    assert_eq!(fs::read_dir(&machine.leases.places.shared).unwrap().count(), 1, "no other file is left");
    let leases = machine.leases.begin(&keys(&["y"]), &request("ada@desk", 90_000)).unwrap().commit().unwrap();
    assert_eq!(leases[0].key.name(), "y");
    assert_eq!(machine.listed(), ["x ada@desk", "y ada@desk"]);
}

/// Who has the lock is waited for only so long, and is named.
#[test]
fn the_lock_is_waited_for_to_a_bound() {
    let machine = Machine::new();
    machine.acquire("ada@desk", &["x"]).unwrap();
    let shared = machine.leases.places.shared.clone();
    let lock = File::open(&shared).unwrap();
    lock.lock().unwrap();
    let began_ms = machine.clock.now().boot_ms;
    for error in [machine.acquire("ada@desk", &["x"]).unwrap_err(), machine.leases.list().unwrap_err()] {
        let HostError::Locked { path, waited_ms, pid } = &error else { panic!("{error:?}") };
        assert_eq!((path, *pid), (&shared, Some(std::process::id())));
        assert!((WAIT_MS..WAIT_MS + 100).contains(waited_ms));
        assert!(error.remedy().unwrap().contains("continue or end it"));
    }
    assert!(machine.clock.now().boot_ms < began_ms + 2 * WAIT_MS + 200);
    // Readers don't keep each other out.
    lock.lock_shared().unwrap();
    assert_eq!(machine.listed(), ["x ada@desk"]);
}

/// Another user's leases count by who owns the file; what he says of himself is no more than that.
#[test]
fn another_user_is_another_holder() {
    if !is_root() {
        return;
    }
    let machine = Machine::new();
    let mine = machine.acquire("ada@desk", &["x"]).unwrap().remove(0);
    let text = fs::read_to_string(machine.own_file()).unwrap();
    fs::remove_file(machine.own_file()).unwrap();
    let theirs = text.replace("\"file\":\"0.json\"", &format!("\"file\":\"{OTHER}.json\""));
    machine.write_as(&format!("{OTHER}.json"), &theirs, OTHER);
    let refused = machine.acquire("ada@desk", &["x"]);
    assert!(blockers(refused)[0].contains(&format!("held by ada@desk (user {OTHER})")));
    assert_eq!(machine.leases.release(&keys(&["x"]), &mine.holder).unwrap(), []);
    // A forged record takes nothing from a holder: his own file counts for him.
    fs::write(machine.own_file(), &text).unwrap();
    let renewed = machine.acquire("ada@desk", &["x"]).unwrap().remove(0);
    assert_eq!((renewed.uid, renewed.generation), (0, mine.generation));
    assert_eq!(machine.listed().len(), 2);
}

/// What is odd in the directory stops nobody but, where a key can be read, who asks for that key.
#[test]
fn odd_files_of_others_stop_nobody() {
    if !is_root() {
        return;
    }
    let machine = Machine::new();
    machine.acquire("ada@desk", &["x"]).unwrap();
    let theirs = format!("{OTHER}.json");
    let form = |file: &str, leases: &str| format!(r#"{{"format":1,"file":"{file}","leases":[{leases}]}}"#);
    let record = r#"{"key":"host:y","holder":"eve","generation":1,"boot":1,"expires_boot_ms":9000000000,"expires_ns":0,"pid":1,"start_ticks":1}"#;
    let whole = form(&theirs, record);
    let cases: [(&str, String, u32, Option<&str>); 9] = [
        (&theirs, whole.clone(), OTHER + 1, Some("not to the one in its name")),
        (&theirs, whole[..40].to_owned(), OTHER, Some("damaged")),
        (&theirs, String::new(), OTHER, Some("damaged")),
        (&theirs, " ".repeat(3 << 20), OTHER, Some("larger than")),
        (&theirs, form("1.json", record), OTHER, Some("another name")),
        (&theirs, form(&theirs, r#"{"holder":"eve"}"#), OTHER, Some("1 records without a key")),
        (&theirs, whole.replace("9000000000", "1"), OTHER, None),
        (&theirs, whole.replace("\"boot\":1", "\"boot\":7"), OTHER, None),
        ("54321.json.bak", whole.clone(), OTHER, None),
    ];
    for (name, text, uid, fault) in cases {
        machine.write_as(name, &text, uid);
        let odd = machine.leases.list().unwrap().odd;
        assert_eq!(odd.len(), usize::from(fault.is_some()), "{odd:?}");
        assert!(odd.iter().all(|odd| odd.fault.contains(fault.unwrap())), "{odd:?} {fault:?}");
        let taken = machine.acquire("ada@desk", &["x", "y"]);
        assert!(taken.is_ok(), "{name} {text:.60}: {taken:?}");
        machine.leases.release(&keys(&["y"]), &"ada@desk".parse().unwrap()).unwrap();
        fs::remove_file(machine.path(name)).unwrap();
    }
    // His own file under more names, as others can give it where links to others' files are allowed.
    for name in ["0.00.json", "0.01.json", "0.02.json", "0.03.json"] {
        fs::hard_link(machine.own_file(), machine.path(name)).unwrap();
    }
    assert_eq!(machine.listed(), ["x ada@desk"]);
    machine.acquire("ada@desk", &["x"]).unwrap();
    assert_eq!(machine.leases.list().unwrap().odd.len(), 4);
    (0..4).for_each(|i| fs::remove_file(machine.path(&format!("0.0{i}.json"))).unwrap());
    // No more of one user's files are read than he can have: the first by name, and his alone count.
    for token in 10..20 {
        let name = format!("{OTHER}.{token}.json");
        machine.write_as(&name, &form(&name, record), if token < 13 { OTHER + 1 } else { OTHER });
    }
    let odd = machine.leases.list().unwrap().odd;
    assert_eq!(odd.iter().filter(|odd| odd.fault == "one of more than 4 files of that user").count(), 3);
    assert_eq!(machine.leases.list().unwrap().leases.len(), 1 + 4);
    (10..20).for_each(|token| fs::remove_file(machine.path(&format!("{OTHER}.{token}.json"))).unwrap());
    machine.write_as(&theirs, &whole.replace("\"format\":1", "\"format\":9"), OTHER);
    assert_eq!(
        blockers(machine.acquire("ada@desk", &["x", "y"])),
        [format!(
            "host:y: may be held: {} has a record of it that can't be read",
            machine.path(&theirs).display()
        )]
    );
    machine.acquire("ada@desk", &["x"]).unwrap();
}

/// Names that are no regular files are looked at and not opened: a FIFO would block, a symlink lead elsewhere.
#[test]
fn names_of_other_kinds_are_left_out() {
    if !is_root() {
        return;
    }
    let machine = Machine::new();
    machine.acquire("ada@desk", &["x"]).unwrap();
    let make = |name: &str, make: &dyn Fn(&std::path::Path)| {
        make(&machine.path(name));
        std::os::unix::fs::lchown(machine.path(name), Some(name[..5].parse().unwrap()), None).unwrap();
    };
    make("50001.json", &|path| symlink(machine.own_file(), path).unwrap());
    make("50002.json", &|path| fs::create_dir(path).unwrap());
    make("50003.json", &|path| drop(std::os::unix::net::UnixListener::bind(path).unwrap()));
    make("50004.json", &|path| {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    });
    let odd = machine.leases.list().unwrap().odd;
    assert_eq!(odd.iter().filter(|odd| odd.fault == "not a regular file").count(), 4, "{odd:?}");
    machine.acquire("ada@desk", &["y"]).unwrap();
}

/// A name that somebody else took first doesn't keep its user out.
#[test]
fn a_squatted_name_is_gone_round() {
    if !is_root() {
        return;
    }
    let machine = Machine::new();
    machine.acquire("ada@desk", &["x"]).unwrap();
    machine.write_as("0.json", "{}", OTHER);
    machine.acquire("ada@desk", &["y"]).unwrap();
    assert_eq!(machine.listed(), ["y ada@desk"], "root's former file is gone");
    machine.acquire("ada@desk", &["z"]).unwrap();
    let names = fs::read_dir(&machine.leases.places.shared).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(machine.listed(), ["y ada@desk", "z ada@desk"]);
    assert_eq!(fs::metadata(machine.path("0.json")).unwrap().uid(), OTHER);
}

/// Of one's own broken file nothing is guessed.
#[test]
fn a_broken_file_of_ones_own_is_told() {
    let machine = Machine::new();
    machine.acquire("ada@desk", &["x"]).unwrap();
    let good = fs::read_to_string(machine.own_file()).unwrap();
    for text in [
        "",
        "{",
        &good.replace("\"format\":1", "\"format\":2"),
        &good.replace("host:x", "x"),
        &" ".repeat(3 << 20),
    ] {
        fs::write(machine.own_file(), text).unwrap();
        for result in [machine.acquire("ada@desk", &["y"]).map(drop), machine.leases.list().map(drop)] {
            let error = result.unwrap_err();
            assert!(matches!(&error, HostError::Damaged { path, .. } if *path == machine.own_file()));
            assert_eq!(error.remedy().unwrap(), "remove it, which ends your leases on this machine");
        }
    }
    fs::remove_file(machine.own_file()).unwrap();
    machine.acquire("ada@desk", &["y"]).unwrap();
}

#[test]
fn a_user_has_no_more_leases_than_are_read() {
    let machine = Machine::new();
    let longest = |i: usize| format!("{i:04}{}", "\"".repeat(246));
    let names: Vec<String> = (0..=MAX_LEASES).map(longest).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let holder = "\\".repeat(255);
    let most = machine.acquire(&holder, &names[..MAX_LEASES]).unwrap();
    assert_eq!(machine.leases.list().unwrap().leases.len(), most.len(), "the largest file can be read");
    let error = machine.acquire(&holder, &names[MAX_LEASES..]).unwrap_err();
    assert!(matches!(error, HostError::TooMany { most: MAX_LEASES, .. }), "{error:?}");
    let error = machine.acquire(&holder, &names).unwrap_err();
    assert!(matches!(error, HostError::TooMany { .. }), "{error:?}");
    machine.clock.advance_ms(60_000);
    machine.acquire(&holder, &names[MAX_LEASES..]).unwrap();
}

/// The shared directory is made with its mode, and one that others could change is not used.
#[test]
fn only_a_safe_directory_is_used() {
    let machine = Machine::new();
    let shared = machine.leases.places.shared.clone();
    assert_eq!(machine.leases.list().unwrap(), Listing::default());
    assert!(!shared.exists(), "reading makes nothing");
    machine.acquire("ada@desk", &["x"]).unwrap();
    assert_eq!(fs::metadata(&shared).unwrap().mode() & 0o7777, 0o1777);
    assert_eq!(fs::metadata(machine.own_file()).unwrap().mode() & 0o7777, 0o644);
    assert_eq!(fs::read_dir(machine.dir.path()).unwrap().count(), 1, "nothing is left beside it");
    let refused = |fault: &str| {
        for result in [machine.acquire("ada@desk", &["x"]).map(drop), machine.leases.list().map(drop)] {
            match result.unwrap_err() {
                HostError::UnsafePlace { path, fault: told, .. } => {
                    assert_eq!((&path, told), (&shared, fault))
                }
                other => panic!("{other:?}"),
            }
        }
    };
    fs::set_permissions(&shared, Permissions::from_mode(0o777)).unwrap();
    refused("has no sticky bit");
    fs::rename(&shared, machine.dir.path().join("elsewhere")).unwrap();
    symlink("elsewhere", &shared).unwrap();
    refused("is a file or a symlink");
    fs::remove_file(&shared).unwrap();
    File::create(&shared).unwrap();
    refused("is a file or a symlink");
    if is_root() {
        fs::remove_file(&shared).unwrap();
        fs::create_dir(&shared).unwrap();
        chown(&shared, Some(OTHER), None).unwrap();
        fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
        refused("belongs to an ordinary user");
    }
}

/// Without a shared directory a user has his own, whose leases count on when there is one.
#[test]
fn a_users_own_directory_serves_until_there_is_a_shared_one() {
    let mut machine = Machine::without_shared();
    let private = machine.dir.path().join("private");
    machine.acquire("ada@desk", &["x", "w"]).unwrap();
    assert_eq!(fs::metadata(&private).unwrap().mode() & 0o7777, 0o700);

    fs::create_dir(&machine.leases.places.shared).unwrap();
    fs::set_permissions(&machine.leases.places.shared, Permissions::from_mode(0o1777)).unwrap();
    // Now the shared directory is as if root had made it, and the user is still an ordinary one.
    let owner = fs::metadata(&machine.leases.places.shared).unwrap().uid();
    let error = machine.acquire("ada@desk", &["x"]).unwrap_err();
    assert!(matches!(error, HostError::UnsafePlace { .. }), "an unsafe one is not passed over: {error:?}");
    if !is_root() {
        return;
    }
    chown(&machine.leases.places.shared, Some(owner + 1), None).unwrap();
    machine.leases.places.owner = owner + 1;
    assert_eq!(machine.listed(), ["w ada@desk", "x ada@desk"]);
    blockers(machine.acquire("bob@desk", &["x"]));
    machine.acquire("bob@desk", &["y"]).unwrap();
    assert_eq!(machine.listed(), ["w ada@desk", "x ada@desk", "y bob@desk"]);
    assert_eq!(fs::read_dir(&private).unwrap().count(), 0, "the leases moved to where others see them");
    assert!(machine.own_file().exists());
    fs::set_permissions(&private, Permissions::from_mode(0o755)).unwrap();
    let error = machine.leases.list().unwrap_err();
    assert!(matches!(error, HostError::UnsafePlace { fault: "lets others in", .. }), "{error:?}");
}

#[test]
fn no_place_is_told_with_its_remedy() {
    let mut machine = Machine::without_shared();
    let shared = machine.leases.places.shared.clone();
    for private in [None, Some(machine.dir.path().join("absent/leasehold"))] {
        machine.leases.places.private = private;
        assert_eq!(machine.leases.list().unwrap(), Listing::default());
        let error = machine.acquire("ada@desk", &["x"]).unwrap_err();
        assert_eq!(
            error.remedy(),
            Some(format!("root makes it with `install -d -m 1777 {}`", shared.display()))
        );
    }
    let places = Places::of_machine(Some("/run/user/7".as_ref()));
    assert_eq!((places.owner, places.private), (0, Some("/run/user/7/leasehold".into())));
    assert_eq!(Places::of_machine(Some("relative".as_ref())).private, None);
}

/// Two files of one user, as a crash between writing the one and removing the other leaves them, are one.
#[test]
fn a_file_that_was_replaced_and_left_is_merged() {
    let machine = Machine::new();
    machine.acquire("ada@desk", &["x"]).unwrap();
    let old = fs::read_to_string(machine.own_file()).unwrap();
    machine.leases.acquire_set(&keys(&["x"]), &request("ada@desk", 90_000)).unwrap();
    let name = format!("{}.0f.json", user());
    fs::write(machine.path(&name), old.replace(&format!("\"{}.json\"", user()), &format!("{name:?}")))
        .unwrap();
    let listed = machine.leases.list().unwrap().leases;
    let ends: Vec<Timestamp> = listed.iter().map(|lease| lease.expires).collect();
    assert_eq!(ends.len(), 1);
    assert!(ends[0].0 >= machine.clock.now().wall.0 + 89_000 * 1_000_000);
    machine.acquire("ada@desk", &["y"]).unwrap();
    assert_eq!(fs::read_dir(&machine.leases.places.shared).unwrap().count(), 1);
    assert_eq!(machine.listed(), ["x ada@desk", "y ada@desk"]);
}

/// What a process left that was killed before it gave its file a name goes with the next change.
#[test]
fn what_a_killed_process_left_is_removed() {
    let machine = Machine::new();
    machine.acquire("ada@desk", &["x"]).unwrap();
    let litter = machine.path(&format!(".{}.00ff", user()));
    fs::write(&litter, "half").unwrap();
    assert_eq!(machine.listed(), ["x ada@desk"]);
    assert!(litter.exists());
    machine.acquire("ada@desk", &["x"]).unwrap();
    assert!(!litter.exists());
}
