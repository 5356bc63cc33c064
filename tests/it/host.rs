//! Leases on what the machine has once, among processes and users.
//!
//! A peer is this very program, which runs the one test [`serve`] and does what its standard input says.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use leasehold::clock::SystemClock;
use leasehold::host::{HostError, HostLeases, Places};
use leasehold::ids::SystemIds;
use leasehold::model::{Holder, HostKey, LeaseRequest};
use leasehold::sys;

use crate::kernel;
use crate::mounted::eventually;
use crate::peer::{Peer, answer};
use crate::privileged::Filesystem;

/// Tells a peer where the shared directory's parent is, whose it is, and how long to wait for the lock.
const PLACE: &str = "LEASEHOLD_TEST_HOST";
const OWNER: &str = "LEASEHOLD_TEST_HOST_OWNER";
const WAIT: &str = "LEASEHOLD_TEST_HOST_WAIT";

/// Users of nobody's on the machine.
const ADA: u32 = 54_321;
const BOB: u32 = 54_322;

/// A directory that stands for `/run`, with the leases in `leasehold`.
struct Run(tempfile::TempDir);

impl Run {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        Self(dir)
    }

    fn leases(&self) -> HostLeases {
        leases(self.0.path(), sys::effective_ids().0, 20_000)
    }

    fn shared(&self) -> PathBuf {
        self.0.path().join("leasehold")
    }

    /// A copy of this program that every user can run.
    ///
    /// Another process writes it: a fork of ours that had it open for writing would keep it from being run (execve(2),
    /// `ETXTBSY`).
    fn program(&self) -> PathBuf {
        let path = self.0.path().join("program");
        if !path.exists() {
            let mut install = Command::new("install");
            install.args(["-m", "755"]).arg(std::env::current_exe().unwrap()).arg(&path);
            assert!(install.status().unwrap().success());
        }
        path
    }

    fn peer(&self, wait_ms: i64) -> Peer {
        let (owner, wait) = (sys::effective_ids().0.to_string(), wait_ms.to_string());
        Peer::start("host::serve", &self.variables(owner.as_ref(), wait.as_ref()))
    }

    fn peer_as(&self, uid: u32) -> Peer {
        Peer::start_as(uid, &self.program(), "host::serve", &self.variables("0".as_ref(), "20000".as_ref()))
    }

    fn variables<'a>(&'a self, owner: &'a OsStr, wait: &'a OsStr) -> [(&'static str, &'a OsStr); 3] {
        [(PLACE, self.0.path().as_os_str()), (OWNER, owner), (WAIT, wait)]
    }
}

fn leases(run: &Path, owner: u32, wait_ms: i64) -> HostLeases {
    let private = Some(run.join(format!("user.{}", sys::effective_ids().0)));
    let places = Places { shared: run.join("leasehold"), owner, private };
    HostLeases::new(places, Arc::new(SystemClock::new().unwrap()), Arc::new(SystemIds)).waiting(wait_ms)
}

fn keys(names: &[&str]) -> Vec<HostKey> {
    names.iter().map(|name| format!("host:{name}").parse().unwrap()).collect()
}

fn request(holder: &str) -> LeaseRequest {
    LeaseRequest { holder: holder.parse().unwrap(), ttl_ms: 600_000, take_from_writers: false }
}

/// A peer's side: `acquire|begin HOLDER KEY…`, `release HOLDER KEY…`, `rounds COUNT`, `remove|overwrite FILE`; after
/// `begin`, which says `pending`, `commit` or `drop`.
#[test]
#[ignore = "other tests run it in a process of its own"]
fn serve() {
    let number = |name| std::env::var(name).unwrap().parse::<i64>().unwrap();
    let run = PathBuf::from(std::env::var_os(PLACE).unwrap());
    let leases = leases(&run, u32::try_from(number(OWNER)).unwrap(), number(WAIT));
    let mut line = String::new();
    while io::stdin().read_line(&mut line).unwrap() > 0 {
        let words: Vec<&str> = line.split_whitespace().collect();
        answer(&match words[..] {
            ["acquire", holder, ref names @ ..] => told(leases.acquire_set(&keys(names), &request(holder))),
            ["begin", holder, ref names @ ..] => told(begin(&leases, &keys(names), holder)),
            ["release", holder, ref names @ ..] => {
                told(leases.release(&keys(names), &holder.parse().unwrap()))
            }
            ["rounds", count] => {
                rounds(&leases, &run, count.parse().unwrap());
                "done".to_owned()
            }
            ["remove", file] => format!("{:?}", fs::remove_file(run.join(file)).map_err(|e| e.kind())),
            ["overwrite", file] => {
                let mine = run.join(file).with_file_name("mine");
                fs::write(&mine, "{}").unwrap();
                let done = fs::rename(&mine, run.join(file)).map_err(|e| e.kind());
                let _ = fs::remove_file(&mine);
                format!("{done:?}")
            }
            _ => panic!("{line}"),
        });
        line.clear();
    }
}

fn begin(
    leases: &HostLeases,
    keys: &[HostKey],
    holder: &str,
) -> Result<Vec<leasehold::host::HostLease>, HostError> {
    let pending = leases.begin(keys, &request(holder))?;
    answer("pending");
    let mut line = String::new();
    io::stdin().read_line(&mut line).unwrap();
    if line.trim() == "commit" { pending.commit() } else { Ok(Vec::new()) }
}

fn told(result: Result<Vec<leasehold::host::HostLease>, HostError>) -> String {
    match result {
        Ok(leases) => leases.iter().map(|lease| lease.key.name()).collect::<Vec<_>>().join(" "),
        Err(error @ HostError::Locked { .. }) => format!("locked: {error}"),
        Err(error) => error.to_string(),
    }
}

/// Has two of three keys for so many rounds, and proves each time by files that nobody else has them.
fn rounds(leases: &HostLeases, run: &Path, count: usize) {
    let holder: Holder = format!("peer@{}", std::process::id()).parse().unwrap();
    let asked = LeaseRequest { holder: holder.clone(), ttl_ms: 600_000, take_from_writers: false };
    for round in 0..count {
        let names = [["a", "b"], ["b", "c"], ["c", "a"]][(round + std::process::id() as usize) % 3];
        let taken = eventually("a turn", || match leases.acquire_set(&keys(&names), &asked) {
            Ok(taken) => Some(taken),
            Err(HostError::Held { .. }) => None,
            Err(error) => panic!("{error}"),
        });
        assert_eq!(taken.len(), 2);
        let proofs = names.map(|name| run.join(format!("{name}.held")));
        proofs.iter().for_each(|proof| drop(File::create_new(proof).expect("BUG: two holders")));
        proofs.iter().for_each(|proof| fs::remove_file(proof).unwrap());
        assert_eq!(leases.release(&keys(&names), &holder).unwrap().len(), 2);
    }
}

/// Eight processes take overlapping sets: never two holders of one key, no error but a refusal, and each gets its turns.
#[test]
fn processes_contend_for_sets() {
    let run = Run::new();
    let mut peers: Vec<Peer> = (0..8).map(|_| run.peer(60_000)).collect();
    peers.iter_mut().for_each(|peer| peer.say("rounds 25"));
    peers.iter_mut().for_each(|peer| assert_eq!(peer.hear(), "done"));
    let listing = run.leases().list().unwrap();
    assert!(listing.leases.is_empty() && listing.odd.is_empty(), "{listing:?}");
}

/// A process that is killed with a set all but taken, and the lock, leaves nothing and holds nobody up.
#[test]
fn a_process_killed_before_its_commit_leaves_nothing() {
    let run = Run::new();
    run.leases().acquire_set(&keys(&["a"]), &request("ada@desk")).unwrap();
    let mut peer = run.peer(1_000);
    assert_eq!(peer.ask("begin ada@desk a b"), "pending");
    assert_eq!(fs::read_dir(run.shared()).unwrap().count(), 2, "a file that has not yet its name");
    peer.kill();
    // Without any wait.
    let leases = run.leases().waiting(0);
    assert_eq!(leases.list().unwrap().leases.len(), 1);
    leases.acquire_set(&keys(&["b"]), &request("bob@desk")).unwrap();
    assert_eq!(fs::read_dir(run.shared()).unwrap().count(), 1);
}

/// A killed process keeps what it had committed: a lease ends by its time, not with who took it.
#[test]
fn a_killed_process_keeps_what_it_had() {
    let run = Run::new();
    let mut peer = run.peer(1_000);
    assert_eq!(peer.ask("acquire ada@desk a b"), "a b");
    peer.kill();
    let refused = run.leases().acquire_set(&keys(&["b"]), &request("bob@desk"));
    assert!(matches!(refused, Err(HostError::Held { blockers }) if blockers.len() == 1));
}

/// A process that is stopped with the lock is named after a bounded wait, and goes on when it is continued.
#[test]
fn a_stopped_process_is_named() {
    let run = Run::new();
    let mut peer = run.peer(1_000);
    assert_eq!(peer.ask("begin ada@desk a"), "pending");
    peer.signal(libc::SIGSTOP);
    let leases = run.leases().waiting(100);
    let refused = [
        leases.acquire_set(&keys(&["b"]), &request("bob@desk")).map(drop),
        leases.release(&keys(&["b"]), &"bob@desk".parse().unwrap()).map(drop),
        leases.list().map(drop),
    ];
    for error in refused.map(Result::unwrap_err) {
        let HostError::Locked { path, pid, waited_ms } = &error else { panic!("{error:?}") };
        assert_eq!((path, *pid), (&run.shared(), Some(peer.id())));
        assert!(*waited_ms >= 100);
    }
    peer.signal(libc::SIGCONT);
    assert_eq!(peer.ask("commit"), "a");
    let refused = run.leases().acquire_set(&keys(&["a", "b"]), &request("bob@desk"));
    assert!(matches!(refused, Err(HostError::Held { blockers }) if blockers.len() == 1));
}

/// Says where there can be only one user.
fn is_root() -> bool {
    kernel::is_root_for("several users", "act as two users")
}

/// Two users see each other's leases, and neither can take the other's away, by our calls or by the kernel's.
#[test]
fn users_are_safe_from_each_other() {
    if !is_root() {
        return;
    }
    let run = Run::new();
    run.leases().acquire_set(&keys(&["root"]), &request("root@desk")).unwrap();
    let (mut ada, mut bob) = (run.peer_as(ADA), run.peer_as(BOB));
    assert_eq!(ada.ask("acquire same@desk a b"), "a b");
    let refused = bob.ask("acquire same@desk b c root");
    assert!(refused.contains(&format!("host:b: held by same@desk (user {ADA})")), "{refused}");
    assert!(refused.contains("host:root: held by root@desk (user 0)"), "{refused}");
    assert_eq!(bob.ask("release same@desk a b"), "");
    let denied = "Err(PermissionDenied)";
    for file in [format!("leasehold/{ADA}.json"), "leasehold/0.json".into(), "leasehold".into()] {
        assert_eq!(bob.ask(&format!("remove {file}")), denied, "{file}");
    }
    assert_eq!(bob.ask(&format!("overwrite leasehold/{ADA}.json")), denied);
    assert_eq!(bob.ask("acquire same@desk c"), "c");
    assert_eq!(run.leases().list().unwrap().leases.len(), 4);

    // Who takes another's name first gains nothing, and keeps nobody out.
    assert_eq!(ada.ask("release same@desk a b"), "a b");
    assert_eq!(ada.ask(&format!("remove leasehold/{ADA}.json")), "Ok(())");
    assert_eq!(bob.ask(&format!("overwrite leasehold/{ADA}.json")), "Ok(())");
    assert_eq!(ada.ask("acquire ada@desk a"), "a");
    assert!(bob.ask("acquire bob@desk a").contains("held by ada@desk"));
    let listing = run.leases().list().unwrap();
    assert_eq!((listing.leases.len(), listing.odd.len()), (3, 1));
    assert!(listing.odd[0].path.ends_with(format!("{ADA}.json")));
}

/// Users without a shared directory have their own, which others can't see into, until root makes the shared one.
#[test]
fn users_without_a_shared_directory_have_their_own() {
    if !is_root() {
        return;
    }
    let run = Run::new();
    run.program();
    fs::set_permissions(run.0.path(), Permissions::from_mode(0o1777)).unwrap();
    let (mut ada, mut bob) = (run.peer_as(ADA), run.peer_as(BOB));
    assert_eq!(ada.ask("acquire ada@desk a"), "a");
    assert_eq!(bob.ask("acquire bob@desk a"), "a", "what nobody can see");
    let mode = fs::metadata(run.0.path().join(format!("user.{ADA}"))).unwrap();
    assert_eq!((mode.uid(), mode.mode() & 0o7777), (ADA, 0o700));
    run.leases().acquire_set(&keys(&["r"]), &request("root@desk")).unwrap();
    assert!(ada.ask("acquire ada@lab a r").contains("held by ada@desk"), "his own counts on");
    assert_eq!(ada.ask("acquire ada@desk a b"), "a b");
    assert!(run.leases().acquire_set(&keys(&["a"]), &request("root@desk")).is_err(), "now all see it");
}

/// Eight processes of several users at once: as safe as those of one.
#[test]
fn users_contend_for_sets() {
    if !is_root() {
        return;
    }
    let run = Run::new();
    run.leases().acquire_set(&keys(&["r"]), &request("root@desk")).unwrap();
    run.program();
    fs::set_permissions(run.0.path(), Permissions::from_mode(0o1777)).unwrap();
    let mut peers: Vec<Peer> = (0..8).map(|i| run.peer_as(ADA + i % 3)).collect();
    peers.iter_mut().for_each(|peer| peer.say("rounds 10"));
    peers.iter_mut().for_each(|peer| assert_eq!(peer.hear(), "done"));
}

/// A full filesystem refuses the set, and keeps what was.
#[test]
fn a_full_filesystem_refuses_and_keeps_what_was() {
    if !is_root() {
        return;
    }
    let run = Run::new();
    let _disk = Filesystem::tmpfs(run.0.path(), 64 << 10);
    let leases = run.leases();
    let held = leases.acquire_set(&keys(&["a"]), &request("ada@desk")).unwrap();
    let mut filler =
        OpenOptions::new().write(true).create_new(true).open(run.0.path().join("filler")).unwrap();
    while io::Write::write_all(&mut filler, &[b'x'; 4096]).is_ok() {}
    let error = leases.acquire_set(&keys(&["b"]), &request("ada@desk")).unwrap_err();
    assert!(matches!(&error, HostError::File { doing: "write", .. }), "{error:?}");
    assert_eq!(error.remedy().as_deref(), Some("make space on its filesystem"));
    assert_eq!(leases.list().unwrap().leases, held);
    assert_eq!(fs::read_dir(run.shared()).unwrap().count(), 1);
    filler.set_len(0).unwrap();
    leases.acquire_set(&keys(&["b"]), &request("ada@desk")).unwrap();
}
