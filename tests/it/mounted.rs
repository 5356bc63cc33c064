//! The program on real mounts: one test for each promise, through applications that are processes of their own.
//!
//! This file is the harness. What it mounts it unmounts, whichever way a test ends, and it ends only daemons that it
//! started, by their number and start time.

mod access;
mod commands;
mod crash;
mod directories;
mod following;
mod leases;
mod lifetime;
mod names;
mod policy;
mod remote;
mod renames;
mod saves;
mod scratch;
mod sharing;
mod stale;
mod stat;
mod table;
mod upkeep;
mod versions;
mod watching;
mod xattrs;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::sys::{self, ProcessKey};
use serde_json::Value;
use tempfile::TempDir;

use crate::agent::App;
use crate::kernel;

/// How long something may take that takes no time on an idle machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(2);

/// The program under test.
pub fn program() -> OsString {
    std::env::var_os("LEASEHOLD_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_leasehold").into())
}

/// What a run of the program came to.
#[derive(Debug)]
pub struct Ran {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// Takes success for granted, and returns what was printed.
    pub fn ok(self) -> String {
        assert_eq!(self.status, 0, "{}", self.stderr);
        self.stdout
    }

    pub fn json(self) -> Value {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// Takes a failure with this exit status and one line on standard error for granted, and returns the line.
    pub fn refused(self, status: i32) -> String {
        assert_eq!(self.status, status, "stdout: {}stderr: {}", self.stdout, self.stderr);
        assert_eq!(self.stderr.trim_end().lines().count(), 1, "one line: {}", self.stderr);
        self.stderr
    }
}

/// Runs the program; one that hangs is ended and counts as failed.
pub fn run(dir: &Path, args: &[impl AsRef<OsStr>]) -> Ran {
    run_as(dir, None, args)
}

/// As [`run`], judged by the access rules as somebody else, if one is named.
pub fn run_as(dir: &Path, principal: Option<&str>, args: &[impl AsRef<OsStr>]) -> Ran {
    let output = Command::new("timeout")
        .args(["-k", "5", "60"])
        .arg(program())
        .args(args)
        .current_dir(dir)
        .env_remove("LEASEHOLD_WORKSPACE")
        .env_remove("LEASEHOLD_CHECKOUT")
        .env_remove("LEASEHOLD_PRINCIPAL")
        .envs(principal.map(|principal| ("LEASEHOLD_PRINCIPAL", principal)))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Ran {
        status: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Looks at something until it is there.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(POLL);
    }
}

/// Why there can be no mounts on this machine.
fn why_no_mounts() -> Option<&'static str> {
    if fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_err() {
        return Some("/dev/fuse can't be opened");
    }
    let helper = Command::new("fusermount3").arg("-V").output();
    if !kernel::is_root() && helper.is_err() {
        return Some("fusermount3 is not installed");
    }
    None
}

/// A workspace of its own for one test, gone with the last mount of it.
#[derive(Clone)]
pub struct Workspace {
    dir: Arc<TempDir>,
}

impl Workspace {
    /// The directory for a workspace; none, with a word why, where nothing can be mounted.
    ///
    /// On a machine that runs the tests of record (`CI` is set) that is a failure.
    pub fn empty_directory() -> Option<Self> {
        if let Some(why) = why_no_mounts() {
            assert!(std::env::var_os("CI").is_none(), "no mounts here, and CI wants them tested: {why}");
            eprintln!("SKIPPED: no mounts here: {why}");
            return None;
        }
        let parent = std::env::var_os("TMPDIR").unwrap_or_else(|| "/var/tmp".into());
        let dir = tempfile::Builder::new().prefix("leasehold-it.").tempdir_in(parent).unwrap();
        let workspace = Self { dir: Arc::new(dir) };
        fs::create_dir(workspace.root()).unwrap();
        Some(workspace)
    }

    /// A workspace whose change 1 has some files.
    pub fn with(files: &[(&str, &[u8])]) -> Option<Self> {
        let workspace = Self::empty_directory()?;
        workspace.init_with(files);
        Some(workspace)
    }

    /// Makes the directory a workspace whose change 1 has some files.
    pub fn init_with(&self, files: &[(&str, &[u8])]) {
        let from = self.beside("from");
        fs::create_dir(&from).unwrap();
        for (name, bytes) in files {
            let path = from.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, bytes).unwrap();
        }
        let root = self.root();
        run(self.dir.path(), &["init".as_ref(), root.as_os_str(), OsStr::new("--from"), from.as_os_str()])
            .ok();
    }

    /// A workspace with one document, `doc.txt`, which says `old`.
    pub fn with_document() -> Option<Self> {
        Self::with(&[("doc.txt", b"old")])
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("ws")
    }

    /// `.leasehold` or what lies below it.
    pub fn dot(&self, name: &str) -> PathBuf {
        self.root().join(".leasehold").join(name)
    }

    /// A path beside the workspace.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Sets the policy; mounts take it over as soon as it is written.
    pub fn set_policy(&self, toml: &str) {
        let path = self.dot("config.toml");
        fs::write(&path, toml).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    }

    /// Runs the program on the workspace, outside of any mount.
    pub fn run(&self, args: &[impl AsRef<OsStr>]) -> Ran {
        run(&self.root(), args)
    }

    /// Mounts the checkout `USER@desk`.
    pub fn mount(&self, user: &str) -> Mount {
        self.mount_with(user, &[])
    }

    pub fn mount_with(&self, user: &str, options: &[&str]) -> Mount {
        self.try_mount(user, options).unwrap_or_else(|ran| panic!("{user} can't mount: {}", ran.stderr))
    }

    pub fn try_mount(&self, user: &str, options: &[&str]) -> Result<Mount, Ran> {
        self.try_mount_as(user, None, options)
    }

    /// Mounts the checkout `USER@desk` for USER, whom the access rules judge.
    pub fn mount_judged(&self, user: &str) -> Mount {
        self.try_mount_as(user, Some(user), &[])
            .unwrap_or_else(|ran| panic!("{user} can't mount: {}", ran.stderr))
    }

    fn try_mount_as(&self, user: &str, principal: Option<&str>, options: &[&str]) -> Result<Mount, Ran> {
        let at = self.mountpoint(user);
        let mut args = vec!["mount".into(), self.root().into_os_string(), at.clone().into_os_string()];
        args.extend(
            ["--as", user, "--checkout", "desk"]
                .into_iter()
                .chain(options.iter().copied())
                .map(OsString::from),
        );
        let ran = run_as(self.dir.path(), principal, &args);
        if ran.status != 0 {
            return Err(ran);
        }
        Ok(Mount::of(self.clone(), at, user, None))
    }

    /// Mounts with `--foreground`: the daemon is a child of this process.
    pub fn mount_in_foreground(&self, user: &str) -> Mount {
        self.mount_in_foreground_with(user, Vec::new())
    }

    /// As [`mount_in_foreground`](Self::mount_in_foreground), with some variables in the daemon's environment.
    pub fn mount_in_foreground_with(&self, user: &str, environment: Vec<(&str, OsString)>) -> Mount {
        let at = self.mountpoint(user);
        let log = fs::File::create(self.beside(&format!("{user}.log"))).unwrap();
        let child = Command::new(program())
            .arg("mount")
            .args([self.root(), at.clone()])
            .args(["--as", user, "--checkout", "desk", "--foreground"])
            .current_dir(self.dir.path())
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        eventually("the mount", || is_mounted(&at).then_some(()));
        Mount::of(self.clone(), at, user, Some(child))
    }

    fn mountpoint(&self, user: &str) -> PathBuf {
        let at = self.beside(user);
        // One whose daemon has died is there, and can't be asked.
        if !is_mounted(&at) {
            fs::create_dir_all(&at).unwrap();
        }
        at
    }

    /// Every file of the store with its bytes.
    pub fn objects(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut objects = Vec::new();
        for fan in fs::read_dir(self.dot("objects")).unwrap() {
            let fan = fan.unwrap();
            // Locks and the like are no blobs.
            if fan.file_name().len() != 2 {
                continue;
            }
            for file in fs::read_dir(fan.path()).unwrap() {
                let path = file.unwrap().path();
                let bytes = fs::read(&path).unwrap();
                objects.push((path, bytes));
            }
        }
        objects.sort();
        objects
    }

    /// Looks that each file of the store has the bytes that its name promises.
    pub fn assert_store_is_sound(&self) {
        for (path, bytes) in self.objects() {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert_eq!(sha256(&bytes), name, "{} was changed", path.display());
        }
    }

    /// The changes that touched a path, the newest first; none where the head tree has no such path.
    pub fn log(&self, path: &str) -> Vec<Value> {
        let ran = self.run(&["log", path, "--json"]);
        if ran.status == 1 && ran.stderr.contains("no such file") {
            return Vec::new();
        }
        ran.json().as_array().unwrap().clone()
    }

    /// The recovery copies.
    pub fn recovered(&self) -> Vec<Value> {
        self.run(&["recovered", "--json"]).json().as_array().unwrap().clone()
    }

    /// The bytes of a recovery copy, as a person gets them back.
    pub fn restore_recovered(&self, copy: &Value) -> Vec<u8> {
        let id = copy["id"].as_str().unwrap();
        let dest = self.beside(&format!("restored-{id}"));
        self.run(&["recovered".as_ref(), "restore".as_ref(), OsStr::new(id), dest.as_os_str()]).ok();
        let bytes = fs::read(&dest).unwrap();
        fs::remove_file(dest).unwrap();
        bytes
    }
}

/// The SHA-256 of some bytes in hexadecimal, by another program than ours.
pub fn sha256(bytes: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    let output = Command::new("sha256sum").arg(file.path()).output().unwrap();
    String::from_utf8_lossy(&output.stdout)[..64].to_owned()
}

/// Whether something is mounted on a directory; asks the kernel's list, since a dead mount can't be asked.
pub fn is_mounted(at: &Path) -> bool {
    let at = at.to_str().unwrap();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(4) == Some(at))
}

/// A mount, taken away when it is dropped.
pub struct Mount {
    workspace: Workspace,
    at: PathBuf,
    holder: String,
    daemon: Option<ProcessKey>,
    child: Option<Child>,
    /// Another mount is in its place by now.
    replaced: bool,
}

impl Mount {
    fn of(workspace: Workspace, at: PathBuf, user: &str, child: Option<Child>) -> Self {
        let mut mount =
            Self { workspace, at, holder: format!("{user}@desk"), daemon: None, child, replaced: false };
        // A foreground mount is in the tree before its control socket is there.
        let pid = eventually("the daemon's answer", || {
            let status = mount.run(&["status", "--json"]);
            let status: Value = serde_json::from_str(&status.stdout).ok()?;
            status["mount"]["reads"].as_str()?;
            status["mount"]["pid"].as_u64()
        });
        let pid = u32::try_from(pid).unwrap();
        mount.daemon = sys::process_of_thread(pid).ok();
        mount
    }

    pub fn at(&self) -> &Path {
        &self.at
    }

    /// The path of a name in the mount.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.at.join(name)
    }

    pub fn holder(&self) -> &str {
        &self.holder
    }

    pub fn daemon(&self) -> ProcessKey {
        self.daemon.unwrap()
    }

    /// An application, which can use every mount.
    pub fn app(&self) -> App {
        App::start()
    }

    /// Runs the program in the mount.
    pub fn run(&self, args: &[impl AsRef<OsStr>]) -> Ran {
        run(&self.at, args)
    }

    /// Checks all drafts in; returns what was done.
    pub fn check_in(&self) -> Value {
        self.run(&["checkin", "-m", "a test's change", "--json"]).json()
    }

    pub fn status(&self) -> Value {
        self.run(&["status", "--json"]).json()
    }

    /// The paths of the drafts.
    pub fn drafts(&self) -> Vec<String> {
        let status = self.status();
        let drafts = status["drafts"].as_array().unwrap().iter();
        drafts.map(|draft| draft["path"].as_str().unwrap().to_owned()).collect()
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// An extended attribute; none where it is absent.
    pub fn xattr(&self, name: &str, attribute: &str) -> Option<String> {
        match kernel::getxattr(&self.path(name), attribute) {
            Ok(value) => Some(String::from_utf8(value).unwrap()),
            Err(kernel::ENODATA) => None,
            Err(errno) => panic!("{attribute} of {name}: {errno:?}"),
        }
    }

    /// The names in a directory, sorted.
    pub fn list(&self, dir: &str) -> Vec<OsString> {
        let mut names: Vec<OsString> =
            fs::read_dir(self.path(dir)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    /// Unmounts as people do, and waits for the daemon's end.
    pub fn unmount(mut self) {
        run(self.workspace.dir.path(), &[OsStr::new("umount"), self.at.as_os_str()]).ok();
        assert!(!is_mounted(&self.at));
        self.forget_daemon();
    }

    /// Ends the daemon by a signal, and waits for its end.
    pub fn signal(&mut self, signal: i32) {
        kernel::kill(i32::try_from(self.daemon().pid).unwrap(), signal);
        self.forget_daemon();
    }

    /// Waits for the end of a daemon whose mount is gone.
    pub fn wait_for_end(&mut self) {
        self.forget_daemon();
    }

    /// Kills the daemon as a crash would; the dead mount stays where it is.
    pub fn crash(&mut self) {
        self.signal(libc::SIGKILL);
    }

    /// Mounts the checkout again where it was, over a dead mount if there is one.
    pub fn mount_again(mut self) -> Self {
        assert!(self.daemon.is_none(), "BUG: the daemon lives");
        let (user, _) = self.holder.split_once('@').unwrap();
        let again = self.workspace.mount(user);
        self.is_replaced();
        again
    }

    /// Another mount has come to its place: this one has nothing to take away.
    pub fn is_replaced(&mut self) {
        self.replaced = true;
    }

    fn forget_daemon(&mut self) {
        let daemon = self.daemon.take().unwrap();
        if let Some(mut child) = self.child.take() {
            child.wait().unwrap();
        }
        eventually("the daemon's end", || (!sys::is_alive(daemon)).then_some(()));
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.replaced {
            return;
        }
        take_away(&self.at);
        if let Some(daemon) = self.daemon.take() {
            end(daemon);
        }
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }
}

/// Unmounts a directory: politely, then by detaching it.
fn take_away(at: &Path) {
    let ways: [&[&str]; 4] =
        [&["umount"], &["fusermount3", "-u"], &["umount", "-l"], &["fusermount3", "-uz"]];
    for way in ways {
        if !is_mounted(at) {
            return;
        }
        let _ = Command::new(way[0]).args(&way[1..]).arg(at).stderr(Stdio::null()).status();
    }
    if is_mounted(at) {
        eprintln!("{} is still mounted", at.display());
    }
}

/// Waits for a daemon that has lost its mount, and kills one that stays.
fn end(daemon: ProcessKey) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while sys::is_alive(daemon) && Instant::now() < deadline {
        std::thread::sleep(POLL);
    }
    if sys::is_alive(daemon) {
        kernel::kill(i32::try_from(daemon.pid).unwrap(), libc::SIGKILL);
    }
}
