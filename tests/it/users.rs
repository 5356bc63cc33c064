//! Several users of the system who share a workspace by a group: what one makes the other may use, whatever their
//! umasks. Needs root, which makes the users and acts as them.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::kernel;
use crate::mounted::{eventually, is_mounted, program};

/// The first is the one as whom other tests run (`scripts/lib.sh`, `need_test_user`); a test makes those that are missing.
const USERS: [&str; 2] = ["leasehold-test", "leasehold-other"];

/// Belongs to neither the users nor the group.
const STRANGER: &str = "65534";

/// A group without a name, of which both are members as far as the tests' processes go.
const GROUP: u32 = 40_771;

/// A workspace that two users share.
struct Team {
    dir: TempDir,
    umasks: [&'static str; 2],
}

impl Team {
    /// None, with a word why, where nobody can act as other users.
    fn new(umasks: [&'static str; 2]) -> Option<Self> {
        if !kernel::is_root() {
            eprintln!("SKIPPED: only root can act as other users");
            return None;
        }
        USERS.iter().for_each(|user| need_user(user));
        let parent = std::env::var_os("TMPDIR").unwrap_or_else(|| "/var/tmp".into());
        let dir = tempfile::Builder::new().prefix("leasehold-users.").tempdir_in(parent).unwrap();
        fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).unwrap();
        // Users may not be let in where the program was built.
        fs::copy(program(), dir.path().join("leasehold")).unwrap();
        let team = Self { dir, umasks };
        for (user, name) in USERS.iter().zip(["0", "1"]) {
            fs::create_dir(team.path(name)).unwrap();
            own(&team.path(name), user);
        }
        fs::create_dir(team.path("top")).unwrap();
        own(&team.path("top"), USERS[0]);
        fs::create_dir(team.path("from")).unwrap();
        fs::write(team.path("from/doc.txt"), "one").unwrap();
        team.leasehold(0, &["init", "top/ws", "--shared", &GROUP.to_string(), "--from", "from"]).unwrap();
        Some(team)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a command as one of the users; its output, or what it said of its failure.
    fn run(&self, who: usize, environment: &[(&str, &str)], command: &[&str]) -> Result<String, String> {
        self.run_in(&["env"], who, environment, command)
    }

    fn run_in(
        &self,
        around: &[&str],
        who: usize,
        environment: &[(&str, &str)],
        command: &[&str],
    ) -> Result<String, String> {
        let output = Command::new(around[0])
            .args(&around[1..])
            .arg("setpriv")
            .args([format!("--reuid={}", USERS[who]), format!("--regid={}", USERS[who])])
            .arg(format!("--groups={GROUP}"))
            .args(["timeout", "60", "sh", "-c", &format!("umask {}; exec \"$@\"", self.umasks[who]), "sh"])
            .args(command)
            .current_dir(self.dir.path())
            .env("HOME", self.dir.path())
            .env("LEASEHOLD_CHECKOUT", "desk")
            .env_remove("LEASEHOLD_WORKSPACE")
            .env_remove("LEASEHOLD_PRINCIPAL")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(told(&output.stdout)) } else { Err(told(&output.stderr)) }
    }

    /// As [`Self::run`], where `/proc` shows nobody the processes of other users (proc(5), `hidepid`).
    fn run_hidden(&self, who: usize, command: &[&str]) -> Result<String, String> {
        let hide = "mount -t proc -o hidepid=2 proc /proc && exec \"$@\"";
        self.run_in(&["unshare", "--mount", "sh", "-c", hide, "sh"], who, &[], command)
    }

    fn leasehold(&self, who: usize, args: &[&str]) -> Result<String, String> {
        self.run(who, &[], &[&["./leasehold"], args].concat())
    }

    fn shell(&self, who: usize, script: &str) -> Result<String, String> {
        self.run(who, &[], &["sh", "-c", script])
    }

    fn mount(&self, who: usize) {
        self.leasehold(who, &["mount", "top/ws", &who.to_string()]).unwrap();
        assert!(is_mounted(&self.path(&who.to_string())));
    }

    fn unmount(&self, who: usize) {
        self.leasehold(who, &["umount", &who.to_string()]).unwrap();
    }

    /// Looks that everything below the workspace is the group's to read and write.
    fn assert_shared(&self, when: &str) {
        let mut left = vec![self.path("top/ws")];
        while let Some(path) = left.pop() {
            // What a daemon had for a moment may be gone.
            let Ok(found) = path.symlink_metadata() else { continue };
            let (mode, expected) = (found.mode() & 0o7777, if found.is_dir() { 0o2770 } else { 0o660 });
            assert_eq!((mode, found.gid()), (expected, GROUP), "{when}: {}", path.display());
            if found.is_dir() {
                left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
    }

    fn owner_of(&self, name: &str) -> u32 {
        self.path(name).metadata().unwrap().uid()
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        for name in ["0", "1"] {
            if is_mounted(&self.path(name)) {
                let _ = Command::new("umount").arg("-l").arg(self.path(name)).status();
            }
        }
    }
}

/// Makes a user of the system, if there is none of that name. Another process may be doing so at the same time.
fn need_user(name: &str) {
    let is_there = || Command::new("id").arg(name).output().unwrap().status.success();
    eventually("a user of the system", || {
        let made = || Command::new("useradd").args(["--shell", "/bin/sh", name]).output().is_ok();
        (is_there() || made() && is_there()).then_some(())
    });
}

fn own(path: &Path, user: &str) {
    let changed = Command::new("chown").arg(format!("{user}:")).arg(path).status().unwrap();
    assert!(changed.success());
}

/// Both mount, see each other's leases and check-ins, keep house, and leave nothing that the other can't use.
fn work_together(umasks: [&'static str; 2]) {
    let Some(team) = Team::new(umasks) else { return };
    team.assert_shared("new");
    team.mount(0);
    team.mount(1);
    team.shell(0, "echo two >0/doc.txt").unwrap();
    let refused = team.shell(1, "echo mine >1/doc.txt").unwrap_err();
    assert!(refused.contains("busy"), "{refused}");
    let leases = team.leasehold(1, &["leases", "-w", "top/ws"]).unwrap();
    assert!(leases.starts_with("doc.txt  leasehold-test@desk"), "{leases}");
    team.leasehold(0, &["checkin", "0", "-m", "two"]).unwrap();
    eventually("the other's version", || team.shell(1, "grep -q two 1/doc.txt").ok());
    // Scratch, files in place, directories, and bytes that are there already, which the other one put.
    let script =
        "mkdir 1/dir; echo two >1/dir/same.txt; echo x >1/x.bak; echo db >1/t.sqlite; echo draft >1/doc.txt";
    team.shell(1, script).unwrap();
    team.leasehold(1, &["settle", "1"]).unwrap();
    team.assert_shared("with drafts");
    team.leasehold(1, &["checkin", "1/dir", "1/t.sqlite", "-m", "three"]).unwrap();
    eventually("the other's directory", || team.shell(0, "grep -q two 0/dir/same.txt").ok());
    for who in [0, 1] {
        team.leasehold(who, &["gc", "-w", "top/ws", "--grace", "1ms"]).unwrap();
        team.leasehold(who, &["fsck", "-w", "top/ws"]).unwrap();
    }
    assert_eq!(team.shell(1, "cat 1/doc.txt").unwrap(), "draft\n");
    team.assert_shared("in use");
    assert_ne!(team.owner_of("top/ws/.leasehold/log/leasehold-other@desk.log"), team.owner_of("top/ws"));
    team.leasehold(1, &["revert", "1/doc.txt"]).unwrap();
    team.unmount(0);
    // The last one to close the catalog made its log.
    team.shell(1, "echo again >1/doc.txt").unwrap();
    team.leasehold(1, &["checkin", "1", "-m", "four"]).unwrap();
    team.unmount(1);
    team.mount(0);
    assert_eq!(team.shell(0, "cat 0/doc.txt").unwrap(), "again\n");
    team.assert_shared("after all");
}

#[test]
fn two_users_work_together_though_one_keeps_his_files_to_himself() {
    work_together(["077", "022"]);
}

#[test]
fn two_users_work_together_though_the_other_keeps_his_files_to_himself() {
    work_together(["022", "077"]);
}

/// A mount obeys its user alone; it counts as alive for others; rules are those of each process's own user.
#[test]
fn each_user_is_himself() {
    let Some(team) = Team::new(["077", "077"]) else { return };
    team.mount(0);
    team.mount(1);
    for args in [
        &["status", "-w", "top/ws", "--as", USERS[0]][..],
        &["checkin", "-w", "top/ws", "--as", USERS[0], "-m", "x"],
    ] {
        let refused = team.leasehold(1, args).unwrap_err();
        assert!(refused.contains("the mount is another user's"), "{refused}");
    }
    let alive = team.leasehold(1, &["mount", "top/ws", "1", "--as", USERS[0]]).unwrap_err();
    assert!(alive.contains("by process"), "{alive}");
    let hidden = team.run_hidden(1, &["./leasehold", "mount", "top/ws", "1", "--as", USERS[0]]).unwrap_err();
    assert!(hidden.contains("by process"), "alive, though /proc doesn't show it: {hidden}");
    let socket = team.path("top/ws/.leasehold/run/leasehold-test@desk.sock");
    assert!(socket.symlink_metadata().unwrap().file_type().is_socket());
    let refused = team.leasehold(1, &["access", "restrict", "-w", "top/ws", "doc.txt"]).unwrap_err();
    assert!(refused.contains("only its owners"), "{refused}");
    team.leasehold(0, &["access", "restrict", "-w", "top/ws", "doc.txt"]).unwrap();
    eventually("the restriction", || team.shell(1, "test ! -e 1/doc.txt").ok());
    assert_eq!(team.shell(0, "cat 0/doc.txt").unwrap(), "one");
    let raise = [("LEASEHOLD_PRINCIPAL", USERS[0])];
    let refused = team.run(1, &raise, &["./leasehold", "cat", "-w", "top/ws", "doc.txt"]).unwrap_err();
    assert!(refused.contains("can't act as leasehold-test"), "{refused}");
    let lowered = [("LEASEHOLD_PRINCIPAL", USERS[1])];
    let hidden = team.run(0, &lowered, &["./leasehold", "cat", "-w", "top/ws", "doc.txt"]).unwrap_err();
    assert!(hidden.contains("no such file"), "{hidden}");
}

/// Who is no member of the group sees nothing of the workspace, and a group that may not enter is told beforehand.
#[test]
fn the_group_is_the_border() {
    let Some(team) = Team::new(["022", "022"]) else { return };
    let stranger = Command::new("setpriv")
        .args([format!("--reuid={STRANGER}"), format!("--regid={STRANGER}"), "--clear-groups".to_owned()])
        .args(["ls", "top/ws"])
        .current_dir(team.dir.path())
        .output()
        .unwrap();
    assert!(!stranger.status.success());
    // In a directory that is a group's a workspace is its maker's alone, if he doesn't say otherwise; so is a backup.
    team.shell(0, &format!("umask 002; mkdir top/team; chgrp {GROUP} top/team; chmod 2775 top/team"))
        .unwrap();
    team.shell(0, "umask 002; mkdir top/team/ws; ./leasehold init top/team/ws --from from").unwrap();
    team.leasehold(0, &["backup", "-w", "top/team/ws", "top/team/backup"]).unwrap();
    for dir in ["top/team/ws/.leasehold", "top/team/backup"] {
        assert_eq!(team.path(dir).metadata().unwrap().mode() & 0o077, 0, "{dir}");
    }
    let catalog = team.path("top/team/ws/.leasehold/catalog.db").metadata().unwrap();
    assert_eq!(catalog.mode() & 0o077, 0);
    let none = team.leasehold(0, &["init", "top/other", "--shared", "no-such-group"]).unwrap_err();
    assert!(none.contains("no such group") && !team.path("top/other").exists(), "{none}");
    team.shell(0, "mkdir -m 700 top/closed").unwrap();
    let closed = team.leasehold(0, &["init", "top/closed", "--shared", &GROUP.to_string()]).unwrap_err();
    assert!(closed.contains("the group may not enter it"), "{closed}");
    let foreign = team.leasehold(0, &["init", "top/foreign", "--shared", "1"]).unwrap_err();
    assert!(foreign.contains("give the group") && !team.path("top/foreign").exists(), "{foreign}");
}
