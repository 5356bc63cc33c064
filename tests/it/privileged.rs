//! What only root can arrange: filesystems that are full or read-only below the workspace, other users on a mount, and
//! a watch on a whole mount.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use libc::{O_CREAT, O_TRUNC, O_WRONLY};

use crate::agent::App;
use crate::kernel::{self, EBUSY, ENOSPC, EROFS, MountWatch, Sys};
use crate::mounted::{Mount, Workspace, eventually, is_mounted};

/// How large the filesystem below the workspace is, in bytes.
const SMALL_BYTES: usize = 24 << 20;

/// A filesystem of its own below a workspace, taken away when it is dropped.
pub struct Filesystem {
    at: PathBuf,
}

impl Filesystem {
    pub fn tmpfs(at: &Path, bytes: usize) -> Self {
        let size = format!("size={bytes}");
        run(
            "mount",
            &[
                "-t".as_ref(),
                "tmpfs".as_ref(),
                "-o".as_ref(),
                size.as_ref(),
                "tmpfs".as_ref(),
                at.as_os_str(),
            ],
        );
        Self { at: at.to_owned() }
    }

    /// Shows a directory at another one, too.
    pub fn bind(from: &Path, at: &Path) -> Self {
        run("mount", &["--bind".as_ref(), from.as_os_str(), at.as_os_str()]);
        Self { at: at.to_owned() }
    }

    /// A filesystem in a file, of which the machine may know too little: then the error.
    pub fn image(image: &Path, at: &Path) -> Result<Self, String> {
        let output = Command::new("mount")
            .args(["-o", "loop"])
            .args([image, at])
            .output()
            .map_err(|e| e.to_string())?;
        if output.status.success() {
            return Ok(Self { at: at.to_owned() });
        }
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }

    /// Lets nobody write below a directory.
    fn read_only(at: &Path) -> Self {
        let view = Self::bind(at, at);
        run("mount", &["-o".as_ref(), "remount,bind,ro".as_ref(), at.as_os_str()]);
        view
    }

    fn grow(&self, bytes: usize) {
        let option = format!("remount,size={bytes}");
        run("mount", &["-o".as_ref(), option.as_ref(), self.at.as_os_str()]);
    }
}

impl Drop for Filesystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

fn run(program: &str, args: &[&std::ffi::OsStr]) {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
}

/// A backup is restored from where nobody can write.
#[test]
fn a_backup_is_restored_from_a_read_only_filesystem() {
    if !kernel::is_root_for("read-only filesystems", "make a filesystem read-only") {
        return;
    }
    let Some(workspace) = Workspace::with_document() else { return };
    let (dest, restored) = (workspace.beside("backup"), workspace.beside("restored"));
    workspace.run(&["backup".as_ref(), dest.as_os_str()]).ok();
    let _view = Filesystem::read_only(&dest);
    workspace.run(&["restore-backup".as_ref(), dest.as_os_str(), restored.as_os_str()]).ok();
    assert_eq!(crate::mounted::run(&restored, &["cat", "doc.txt"]).ok(), "old");
}

/// A backup for which there is no space says so, calls nothing lost, and leaves the one before; so does a restore.
#[test]
fn a_backup_without_space_leaves_the_one_before() {
    if !kernel::is_root_for("full disks", "mount a small filesystem") {
        return;
    }
    let Some(workspace) = Workspace::with_document() else { return };
    let (small, source) = (workspace.beside("small"), workspace.beside("large"));
    fs::create_dir(&small).unwrap();
    let _filesystem = Filesystem::tmpfs(&small, 1 << 20);
    let dest = small.join("backup");
    let back_up = || workspace.run(&["backup".as_ref(), dest.as_os_str()]);
    let restore = |to: &Path| workspace.run(&["restore-backup".as_ref(), dest.as_os_str(), to.as_os_str()]);
    back_up().ok();
    fs::create_dir(&source).unwrap();
    fs::write(source.join("large.bin"), vec![7; SMALL_BYTES]).unwrap();
    workspace.run(&["import".as_ref(), source.as_os_str(), "-m".as_ref(), "large".as_ref()]).ok();
    let refused = back_up().refused(1);
    assert!(refused.contains("No space left"), "{refused}");
    let restored = workspace.beside("restored");
    restore(&restored).ok();
    crate::mounted::run(&restored, &["fsck"]).ok();
    fs::write(small.join("filler"), vec![0; 1 << 20]).unwrap_err();
    restore(&small.join("restored")).refused(1);
    assert!(!small.join("restored/.leasehold").exists());
}

/// A daemon that was killed while the kernel holds its end of the mount open: nobody answers, and nobody gets an error.
/// Mounting again and unmounting end that.
#[test]
fn one_that_answers_nobody_is_ended() {
    if !kernel::is_root_for("the end of mounts by force", "keep another process's descriptors") {
        return;
    }
    let Some(workspace) = Workspace::with_document() else { return };
    let killed = |mut ada: Mount| {
        let held = kernel::copies_of_open(ada.daemon().pid, Path::new("/dev/fuse"));
        assert!(!held.is_empty());
        ada.app().overwrite(&ada.path("doc.txt"), b"saved").unwrap();
        ada.crash();
        (ada, held)
    };
    let (ada, held) = killed(workspace.mount("ada"));
    let ada = ada.mount_again();
    assert_eq!(ada.read("doc.txt"), b"saved");
    drop(held);
    let (ada, _held) = killed(ada);
    workspace.run(&["umount".as_ref(), ada.at().as_os_str()]).ok();
    assert!(!is_mounted(ada.at()));
}

/// A workspace on a small filesystem, and a mount of it, which go in the opposite order; none, with a word why, for an ordinary user.
fn on_small_disk() -> Option<(Workspace, Filesystem, Mount)> {
    if !kernel::is_root_for("full disks", "mount a small filesystem") {
        return None;
    }
    let workspace = Workspace::empty_directory()?;
    let disk = Filesystem::tmpfs(&workspace.root(), SMALL_BYTES);
    workspace.init_with(&[("doc.txt", b"old"), ("other.txt", b"other")]);
    let ada = workspace.mount("ada");
    Some((workspace, disk, ada))
}

/// Writes until the disk is full; returns the error, which came from a write or from the close.
fn fill(app: &App, path: &Path, flags: i32) -> Sys<()> {
    let fd = app.open(path, O_WRONLY | flags)?;
    let block = vec![b'x'; 256 << 10];
    let written = (0..2 * SMALL_BYTES / block.len()).try_for_each(|_| app.write(fd, &block));
    let closed = app.close(fd);
    written.and(closed)
}

/// fanotify(7), which only root may use on a whole mount, tells what happens through it, of versions and drafts, and
/// nothing of what another mount checks in.
#[test]
fn fanotify_tells_what_happens_through_the_mount() {
    if !kernel::is_root() {
        eprintln!("SKIPPED: only root can watch a whole mount");
        return;
    }
    let Some(workspace) = Workspace::with(&[("doc.txt", b"old"), ("dir/other.txt", b"other")]) else {
        return;
    };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let changes = libc::FAN_MODIFY | libc::FAN_CLOSE_WRITE;
    let watch = MountWatch::new(ada.at(), changes);
    let told = |path: &Path| {
        watch.events().iter().fold(0, |all, (mask, of)| if of == path { all | mask } else { all })
    };
    let (app, doc) = (ada.app(), ada.path("doc.txt"));
    for what in ["a version", "a draft"] {
        app.overwrite(&doc, what.as_bytes()).unwrap();
        assert_eq!(told(&doc), changes, "{what}");
    }
    bob.app().overwrite(&bob.path("dir/other.txt"), b"bob's").unwrap();
    bob.check_in();
    eventually("the version", || (ada.read("dir/other.txt") == b"bob's").then_some(()));
    assert_eq!(watch.events(), []);
}

/// Disk full: the write or the close fails with ENOSPC, the old content stays, and the mount goes on.
#[test]
fn a_full_disk_fails_the_write_and_keeps_the_document() {
    let Some((_workspace, _disk, ada)) = on_small_disk() else { return };
    let app = ada.app();
    assert_eq!(fill(&app, &ada.path("doc.txt"), O_TRUNC), Err(ENOSPC));
    assert_eq!(ada.read("doc.txt"), b"old", "not empty, and not half of it");
    assert_eq!(ada.read("other.txt"), b"other", "the mount goes on");
    assert_eq!(ada.xattr("doc.txt", "user.artifact.draft").as_deref(), Some("none"));
}

/// Saving works again once there is space.
#[test]
fn saving_works_again_when_there_is_space() {
    let Some((_workspace, disk, ada)) = on_small_disk() else { return };
    let app = ada.app();
    assert_eq!(fill(&app, &ada.path("doc.txt"), O_TRUNC), Err(ENOSPC));
    disk.grow(4 * SMALL_BYTES);
    app.overwrite(&ada.path("doc.txt"), b"new").unwrap();
    ada.check_in();
    assert_eq!(ada.read("doc.txt"), b"new");
}

/// Removing a file makes room on a full disk, though its bytes stay until no power cut brings its name back.
#[test]
fn removing_a_live_draft_makes_room() {
    let Some((_workspace, _disk, ada)) = on_small_disk() else { return };
    let (app, large) = (ada.app(), ada.path("large.db"));
    assert_eq!(fill(&app, &large, O_CREAT), Err(ENOSPC));
    app.unlink(&large).unwrap();
    let block = vec![b'x'; SMALL_BYTES / 2];
    eventually("room for half of the disk", || app.overwrite(&ada.path("doc.txt"), &block).ok());
    ada.check_in();
    assert_eq!(ada.read("doc.txt"), block);
}

/// A temporary file that could not be written whole never replaces the document, though the program tries.
#[test]
fn a_failed_temporary_never_replaces_the_document() {
    let Some((_workspace, _disk, ada)) = on_small_disk() else { return };
    let (app, temp) = (ada.app(), ada.path("doc.txt.Ab12Cd"));
    assert_eq!(fill(&app, &temp, O_CREAT), Err(ENOSPC));
    assert!(app.rename(&temp, &ada.path("doc.txt"), 0).is_err());
    assert_eq!(ada.read("doc.txt"), b"old");
}

/// Where nothing can be written, the first write fails, the old content stays, and the mount goes on.
#[test]
fn a_read_only_disk_fails_the_write_and_keeps_the_document() {
    let Some((workspace, _disk, ada)) = on_small_disk() else { return };
    let (app, read_only) = (ada.app(), Filesystem::read_only(&workspace.dot("staging")));
    assert_eq!(app.overwrite(&ada.path("doc.txt"), b"new"), Err(EROFS));
    assert_eq!((ada.read("doc.txt"), ada.read("other.txt")), (b"old".to_vec(), b"other".to_vec()));
    drop(read_only);
    app.overwrite(&ada.path("doc.txt"), b"new").unwrap();
    assert_eq!(ada.read("doc.txt"), b"new");
}

/// Where the store alone is read-only, what was saved stays a draft, the failure is told, and a check-in is refused.
#[test]
fn a_read_only_store_keeps_the_save() {
    let Some((workspace, _disk, ada)) = on_small_disk() else { return };
    // Before the mount, which may have directories of the store open for as long as it lives.
    ada.unmount();
    let read_only = Filesystem::read_only(&workspace.dot("objects"));
    let ada = workspace.mount("ada");
    ada.app().overwrite(&ada.path("doc.txt"), b"new").unwrap();
    assert_ne!(ada.run(&["checkin", "-m", "refused"]).status, 0);
    let status = ada.status();
    assert!(!status["problems"].as_array().unwrap().is_empty(), "{status}");
    assert_eq!(ada.read("doc.txt"), b"new");
    ada.unmount();
    drop(read_only);
    let ada = workspace.mount("ada");
    assert_eq!(ada.read("doc.txt"), b"new");
    ada.check_in();
    workspace.assert_store_is_sound();
}

/// The first write to a version needs the space of a copy: where there is none it is refused, and nothing has changed.
#[test]
fn a_first_write_needs_the_space_of_a_copy() {
    let Some((_workspace, disk, ada)) = on_small_disk() else { return };
    let (app, large) = (ada.app(), ada.path("large.txt"));
    let content = vec![b'x'; SMALL_BYTES * 2 / 3];
    app.save(&large, O_CREAT, &content).unwrap();
    ada.check_in();
    let fd = app.open(&large, O_WRONLY).unwrap();
    assert_eq!(app.write(fd, b"y"), Err(ENOSPC));
    let _ = app.close(fd);
    assert!(ada.read("large.txt") == content);
    assert_eq!(ada.drafts(), [""; 0]);
    disk.grow(2 * SMALL_BYTES);
    app.save(&large, 0, b"y").unwrap();
    assert_eq!(ada.read("large.txt")[..2], *b"yx");
}

/// An ordinary user who is neither the mount's nor root.
const STRANGER: &str = "65534";

/// A mount of root's, which strangers can come near, with options of `mount`; none, with a word why, for an ordinary user.
fn mount_beside_strangers(options: &[&str]) -> Option<(Workspace, Mount)> {
    if !kernel::is_root_for("other users", "be two users") {
        return None;
    }
    let workspace =
        Workspace::with(&[("doc.txt", b"old"), ("private.txt", b"secret"), ("open.txt", b"old")])?;
    let around = workspace.root();
    fs::set_permissions(around.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
    let ada = workspace.mount_with("ada", options);
    let app = ada.app();
    app.chmod(&ada.path("private.txt"), 0o600).unwrap();
    app.chmod(&ada.path("open.txt"), 0o666).unwrap();
    ada.check_in();
    Some((workspace, ada))
}

/// Runs a shell command as the stranger; what it printed, or what it said against it.
fn as_stranger(command: &str) -> Result<String, String> {
    let user = [format!("--reuid={STRANGER}"), format!("--regid={STRANGER}"), "--clear-groups".to_owned()];
    let output =
        Command::new("setpriv").args(user).args(["sh", "-c", command]).current_dir("/").output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Runs a shell command in a mount, which its shell enters as the stranger.
fn stranger_runs(mount: &Mount, command: &str) -> Result<String, String> {
    as_stranger(&format!("cd {:?} && {command}", mount.at()))
}

/// A mount of one user lets nobody else in, not even to look at it.
#[test]
fn others_are_kept_out() {
    let Some((workspace, ada)) = mount_beside_strangers(&[]) else { return };
    assert!(stranger_runs(&ada, "true").is_err(), "enter");
    for command in ["ls", "stat", "cat"] {
        let seen = as_stranger(&format!("{command} {:?}", ada.path("doc.txt")));
        assert!(seen.unwrap_err().contains("Permission denied"), "{command}");
    }
    let beside = format!("cat {:?}", workspace.beside("from/doc.txt"));
    assert_eq!(as_stranger(&beside).unwrap(), "old", "it is the mount that keeps him out");
    assert_eq!(ada.drafts(), [""; 0]);
}

/// With `--allow-other` the kernel checks the modes for everybody, and what strangers write is under the mount's lease.
#[test]
fn others_have_the_rights_of_the_mode() {
    let Some((workspace, ada)) = mount_beside_strangers(&["--allow-other"]) else { return };
    assert_eq!(stranger_runs(&ada, "cat doc.txt").unwrap(), "old");
    let refused =
        ["cat private.txt", "echo x >doc.txt", "rm doc.txt", "mv doc.txt x", "chmod 666 doc.txt", "mkdir x"];
    for command in refused {
        let error = stranger_runs(&ada, command).unwrap_err();
        let words = ["Permission denied", "Operation not permitted"];
        assert!(words.iter().any(|words| error.contains(words)), "{command}: {error}");
    }
    assert_eq!(ada.drafts(), [""; 0]);
    stranger_runs(&ada, "echo stranger >open.txt").unwrap();
    assert_eq!(ada.xattr("open.txt", "user.lease.holder").as_deref(), Some("ada@desk"));
    assert_eq!(ada.read("open.txt"), b"stranger\n");
    let bob = workspace.mount_with("bob", &["--allow-other"]);
    assert_eq!(bob.app().open(&bob.path("open.txt"), O_WRONLY), Err(EBUSY));
    assert_eq!(stranger_runs(&ada, "cat doc.txt >>open.txt"), Ok(String::new()), "two users, one holder");
}

/// Set-id bits are kept as bits and have no effect, and a device that is in a workspace can't be made in a mount.
#[test]
fn set_ids_have_no_effect() {
    let Some((_workspace, ada)) = mount_beside_strangers(&["--allow-other"]) else { return };
    fs::copy("/usr/bin/id", ada.path("id")).unwrap();
    ada.app().chmod(&ada.path("id"), 0o6755).unwrap();
    assert_eq!(ada.path("id").metadata().unwrap().permissions().mode() & 0o7777, 0o6755);
    for checked_in in [false, true] {
        assert_eq!(stranger_runs(&ada, "./id -u").unwrap(), STRANGER, "checked in: {checked_in}");
        assert_eq!(stranger_runs(&ada, "./id -g").unwrap(), STRANGER, "checked in: {checked_in}");
        ada.check_in();
    }
    assert_eq!(kernel::mknod(&ada.path("null"), libc::S_IFCHR), Err(kernel::EPERM));
}

/// With `--allow-other` the kernel answers access(2) by the mode, whoever holds the lease; the open tells.
#[test]
fn access_knows_no_leases_where_others_are_allowed() {
    let Some((workspace, ada)) = mount_beside_strangers(&["--allow-other"]) else { return };
    let bob = workspace.mount("bob");
    bob.app().overwrite(&bob.path("doc.txt"), b"bob's").unwrap();
    let app = ada.app();
    assert_eq!(app.access(&ada.path("doc.txt"), libc::W_OK), Ok(()));
    assert_eq!(app.open(&ada.path("doc.txt"), O_WRONLY), Err(EBUSY));
    assert!(stranger_runs(&ada, "test -w doc.txt").is_err(), "the mode counts");
}

/// A workspace on a read-only filesystem can be read, and what would change it says in one line what to do.
#[test]
fn an_archived_workspace_can_be_read() {
    let Some((workspace, _disk, ada)) = on_small_disk() else { return };
    ada.app().overwrite(&ada.path("doc.txt"), b"new").unwrap();
    ada.check_in();
    ada.unmount();
    let archive = Filesystem::read_only(&workspace.root());
    assert_eq!(workspace.log("doc.txt").len(), 2);
    assert_eq!(workspace.run(&["cat", "doc.txt"]).ok(), "new");
    assert_eq!(workspace.run(&["cat", "doc.txt@@1"]).ok(), "old");
    assert_eq!(workspace.run(&["leases", "--json"]).json(), serde_json::json!([]));
    assert_eq!(workspace.run(&["lease", "show", "doc.txt"]).ok(), "doc.txt  free\n");
    assert!(workspace.recovered().is_empty());
    for args in [&["checkin", "-m", "m"][..], &["checkout", "doc.txt"], &["lease", "acquire", "thread:1"]] {
        let line = workspace.run(args).refused(1);
        assert!(line.contains("read-only") && line.contains("copy the workspace"), "{line}");
    }
    let line = workspace.try_mount("ada", &["--read-only"]).err().expect("it can't be mounted").refused(1);
    assert!(line.contains("read-only filesystem") && line.contains("copy it elsewhere"), "{line}");
    drop(archive);
    workspace.run(&["lease", "acquire", "thread:1"]).ok();
}

/// A workspace that was archived while in use may lack what its log has: it is refused rather than shown as it was.
#[test]
fn a_workspace_that_was_not_closed_is_no_archive() {
    let Some((workspace, _disk, mut ada)) = on_small_disk() else { return };
    ada.app().overwrite(&ada.path("doc.txt"), b"new").unwrap();
    ada.check_in();
    ada.crash();
    let archive = Filesystem::read_only(&workspace.root());
    let line = workspace.run(&["log"]).refused(1);
    assert!(line.contains("not closed") && line.contains("once where it can be written"), "{line}");
    drop(archive);
    assert_eq!(workspace.log("doc.txt").len(), 2);
}
