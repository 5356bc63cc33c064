//! Versions never change: whatever descriptors, mappings and the disk do.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use libc::{O_CREAT, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY};

use super::{Mount, Workspace, eventually};
use crate::kernel::{self, EBUSY, EIO};

/// Runs `write` on a descriptor of version 1, and looks that version 1 and its blob are as they were.
fn assert_version_survives(write: impl FnOnce(&crate::agent::App, &Mount, i32)) {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let before = workspace.objects();
    let reader = ada.app();
    let fd = reader.open(&ada.path("doc.txt"), O_RDONLY).unwrap();
    assert_eq!(reader.read(fd, 0, 10).unwrap(), b"old");
    write(&reader, &ada, fd);
    let cat = ada.run(&["cat", "doc.txt@@1"]).ok();
    assert_eq!(cat, "old");
    let after = workspace.objects();
    assert!(before.iter().all(|object| after.contains(object)), "the blob's bytes");
    workspace.assert_store_is_sound();
}

/// A reader goes on with the version that it opened while a writer saves over it.
#[test]
fn a_reader_stays_while_a_writer_saves() {
    assert_version_survives(|reader, ada, fd| {
        let writer = ada.app();
        writer.save(&ada.path("doc.txt"), 0, b"new").unwrap();
        assert_eq!(reader.read_all(fd).unwrap(), b"old");
        assert_eq!(reader.read_file(&ada.path("doc.txt")).unwrap(), b"new");
    });
}

/// A descriptor that is opened again for writing through /proc reaches the draft, and never the blob.
#[test]
fn reopened_for_writing_through_proc() {
    assert_version_survives(|app, ada, fd| {
        for round in 0..2_u8 {
            let again = app.reopen(fd, O_WRONLY).unwrap();
            app.write_at(again, 0, &[b'1' + round]).unwrap();
            app.close(again).unwrap();
        }
        // The path shows it as soon as the kernel has been told, which has no name to look up here.
        eventually("the draft", || (ada.read("doc.txt") == b"2ld").then_some(()));
    });
}

/// One that could be mapped for writing doesn't reach the blob either: beside readers whose reads go straight to the
/// blob it is refused, since the kernel would map that file; elsewhere it is a handle on the draft.
#[test]
fn reopened_for_mapping_through_proc() {
    assert_version_survives(|app, ada, fd| {
        let again = app.reopen(fd, O_RDWR);
        if ada.status()["mount"]["reads"] == "passthrough" {
            assert_eq!(again, Err(EBUSY));
            return;
        }
        let again = again.unwrap();
        app.write_at(again, 0, b"n").unwrap();
        if let Ok(map) = app.map(again, 3, true) {
            app.write_map(map, 1, b"ew");
            app.unmap(map);
        }
        app.close(again).unwrap();
        eventually("the draft", || [&b"new"[..], b"nld"].contains(&&ada.read("doc.txt")[..]).then_some(()));
    });
}

/// ftruncate and fchmod on a writer's descriptor act on the draft, after a rename as well.
#[test]
fn changed_through_old_descriptors() {
    assert_version_survives(|_, ada, _| {
        let (app, doc) = (ada.app(), ada.path("doc.txt"));
        let fd = app.open(&doc, O_RDWR).unwrap();
        app.rename(&doc, &ada.path("doc.txt~"), 0).unwrap();
        app.ftruncate(fd, 1).unwrap();
        app.fchmod(fd, 0o600).unwrap();
        app.close(fd).unwrap();
        assert_eq!(ada.read("doc.txt~"), b"o");
        let mode = fs::metadata(ada.path("doc.txt~")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        app.rename(&ada.path("doc.txt~"), &doc, 0).unwrap();
    });
}

/// fchmod on a reader's descriptor takes the lease and makes a draft of the mode alone.
#[test]
fn a_readers_fchmod_is_a_draft() {
    assert_version_survives(|app, ada, fd| {
        app.fchmod(fd, 0o600).unwrap();
        let mode = || fs::metadata(ada.path("doc.txt")).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        assert_eq!(app.read_all(fd).unwrap(), b"old");
        let report = ada.check_in();
        assert_eq!(report["items"].as_array().unwrap().len(), 1, "{report}");
        assert_eq!((mode(), ada.read("doc.txt")), (0o600, b"old".to_vec()));
    });
}

/// A mapping of a version shows that version for as long as it lives.
#[test]
fn a_mapping_stays_on_its_version() {
    assert_version_survives(|reader, ada, fd| {
        let map = reader.map(fd, 3, false).unwrap();
        assert_eq!(reader.read_map(map, 0, 3), b"old");
        let writer = ada.app();
        writer.save(&ada.path("doc.txt"), 0, b"new").unwrap();
        writer.save(&ada.path("doc.txt"), O_TRUNC, b"").unwrap();
        ada.check_in();
        assert_eq!(reader.read_map(map, 0, 3), b"old");
        reader.unmap(map);
    });
}

/// Saves of one open after another never change the save before: each is checked in as it was.
#[test]
fn each_check_in_keeps_its_bytes() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let app = ada.app();
    let fd = app.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    for round in 0..4_u8 {
        app.write(fd, &[b'0' + round]).unwrap();
        app.fsync(fd).unwrap();
        ada.run(&["checkin", "-m", "while it is open", "--keep"]).ok();
    }
    app.close(fd).unwrap();
    for (version, bytes) in ["old", "0", "01", "012", "0123"].iter().enumerate() {
        let spec = format!("doc.txt@@{}", version + 1);
        assert_eq!(ada.run(&["cat", &spec]).ok(), *bytes, "{spec}");
    }
    workspace.assert_store_is_sound();
}

/// Check-ins while an application writes and syncs all the time: no call of its fails, and no version is torn.
#[test]
fn a_check_in_and_a_writer_do_not_cross() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let (app, doc) = (ada.app(), ada.path("doc.txt"));
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let fd = app.open(&doc, O_RDWR).unwrap();
            for round in 0..u64::MAX {
                if done.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
                app.write_at(fd, 0, format!("{round:08}").as_bytes()).unwrap();
                app.fsync(fd).unwrap();
            }
            app.close(fd).unwrap();
        });
        // One that comes between a write and its sync is refused, and changes nothing.
        for _ in 0..12 {
            assert!([0, 1].contains(&ada.run(&["checkin", "-m", "while it is written"]).status));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    ada.check_in();
    assert_eq!(ada.read("doc.txt").len(), 8);
    assert!(workspace.recovered().is_empty());
    workspace.assert_store_is_sound();
}

/// A temporary that was renamed over the document and checked in: bytes that its program writes after that are a draft.
#[test]
fn late_bytes_of_a_temporary_are_a_draft() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let (app, temp) = (ada.app(), ada.path("doc.txt.Ab12Cd"));
    let fd = app.open(&temp, O_RDWR | O_CREAT).unwrap();
    app.write(fd, b"new").unwrap();
    app.fsync(fd).unwrap();
    app.rename(&temp, &ada.path("doc.txt"), 0).unwrap();
    ada.run(&["checkin", "-m", "while it is open", "--keep"]).ok();
    app.write_at(fd, 0, b"late").unwrap();
    assert_eq!(ada.run(&["cat", "doc.txt@@2"]).ok(), "new");
    workspace.assert_store_is_sound();
    app.close(fd).unwrap();
    assert_eq!(ada.read("doc.txt"), b"late");
    assert_eq!(ada.drafts(), ["doc.txt"]);
}

/// The path of a blob in the store.
fn blob(workspace: &Workspace, bytes: &[u8]) -> PathBuf {
    let digest = super::sha256(bytes);
    workspace.dot("objects").join(&digest[..2]).join(&digest)
}

/// Puts other bytes into a file that is kept read-only.
fn rewrite(path: &Path, bytes: &[u8]) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(path, bytes).unwrap();
}

/// What may happen to a file of the store, which has these bytes.
type Damage = fn(&Path, &[u8]);

/// Each way in which stored bytes can be gone or wrong.
const DAMAGES: [(&str, Damage); 7] = [
    ("gone", |path, _| fs::remove_file(path).unwrap()),
    ("empty", |path, _| rewrite(path, b"")),
    ("cut", |path, bytes| rewrite(path, &bytes[..2])),
    ("longer", |path, bytes| rewrite(path, &[bytes, b" and more"].concat())),
    ("other bytes of the same length", |path, bytes| rewrite(path, &bytes.to_ascii_uppercase())),
    ("a directory", |path, _| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    }),
    ("a link to the right bytes elsewhere", |path, _| {
        let elsewhere = path.with_extension("elsewhere");
        fs::rename(path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(elsewhere, path).unwrap();
    }),
];

/// A blob that is gone or wrong answers EIO and none of its bytes, whether or not this mount has read the version
/// before, and in a new mount; the rest goes on, and a save that needs none of its bytes leads out.
#[test]
fn a_corrupt_blob_is_never_shown() {
    let ways =
        || DAMAGES.into_iter().flat_map(|(what, damage)| [false, true].map(|read| (what, damage, read)));
    let names: Vec<String> =
        ways().map(|(what, _, read)| format!("{what}, read before {read}.txt")).collect();
    let mut files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), name.as_bytes())).collect();
    files.push(("other.txt", b"fine"));
    let Some(workspace) = Workspace::with(&files) else { return };
    let ada = workspace.mount("ada");
    for (name, (_, damage, read)) in names.iter().zip(ways()) {
        if read {
            assert_eq!(ada.read(name), name.as_bytes());
        }
        damage(&blob(&workspace, name.as_bytes()), name.as_bytes());
    }
    let bob = workspace.mount("bob");
    let (app, other) = (ada.app(), bob.app());
    for name in &names {
        let doc = ada.path(name);
        assert_eq!(app.open(&doc, O_RDONLY), Err(EIO), "{name}");
        assert_eq!(app.open(&doc, O_RDWR), Err(EIO), "{name}, for writing");
        assert_eq!(app.truncate(&doc, 2), Err(EIO), "{name}, truncate");
        assert_ne!(ada.run(&["cat", &format!("{name}@@1")]).status, 0, "{name}");
        assert_eq!(other.open(&bob.path(name), O_RDONLY), Err(EIO), "{name}, a new mount");
    }
    assert_eq!(ada.read("other.txt"), b"fine", "the rest goes on");
    assert_eq!(ada.drafts(), [""; 0]);
    for name in &names {
        app.overwrite(&ada.path(name), b"saved again").unwrap();
    }
    ada.check_in();
    for name in &names {
        let seen = || fs::read(bob.path(name)).is_ok_and(|bytes| bytes == b"saved again");
        eventually("the new version", || seen().then_some(()));
    }
}

/// Who has a version open reads on though its blob goes: the open file is the one that was checked.
#[test]
fn an_open_version_outlives_its_blob() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let reader = ada.app();
    let fd = reader.open(&ada.path("doc.txt"), O_RDONLY).unwrap();
    fs::remove_file(blob(&workspace, b"old")).unwrap();
    assert_eq!(reader.read_all(fd).unwrap(), b"old");
    reader.close(fd).unwrap();
    assert_eq!(reader.read_file(&ada.path("doc.txt")), Err(EIO), "and no longer");
}

/// The log has both digests of a blob that the disk has corrupted: the one that was wanted and the one that is there.
#[test]
fn the_log_tells_what_is_wrong() {
    let Some(workspace) = Workspace::with_document() else { return };
    let file = fs::File::options().write(true).open(blob(&workspace, b"old")).unwrap();
    file.write_all_at(b"L", 1).unwrap();
    drop(file);
    let ada = workspace.mount("ada");
    assert_eq!(ada.app().read_file(&ada.path("doc.txt")), Err(EIO));
    let logs = fs::read_dir(workspace.dot("log")).unwrap();
    let log: String = logs.map(|log| fs::read_to_string(log.unwrap().path()).unwrap()).collect();
    assert!(
        log.contains(&super::sha256(b"old")) && log.contains(&super::sha256(b"oLd")),
        "both digests in: {log}"
    );
}

/// An old version comes back as a draft.
#[test]
fn an_old_version_can_be_restored() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    ada.app().overwrite(&ada.path("doc.txt"), b"new").unwrap();
    ada.check_in();
    ada.run(&["restore", "doc.txt@@1"]).ok();
    assert_eq!(ada.read("doc.txt"), b"old");
    ada.check_in();
    assert_eq!(ada.xattr("doc.txt", "user.artifact.version").as_deref(), Some("3"));
}

/// How many bytes a daemon has read from files so far, passed through or not: `rchar` of proc_pid_io(5).
fn bytes_read_by(mount: &Mount) -> u64 {
    let io = fs::read_to_string(format!("/proc/{}/io", mount.daemon().pid)).unwrap();
    io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

/// Where `status` says passthrough, a version's bytes come from the file below, and the daemon reads none of them;
/// elsewhere, and of drafts always, it reads each byte. What is read is the same.
#[test]
fn reads_pass_as_status_says() {
    const SIZE: usize = 1 << 20;
    let content: Vec<u8> = (0..SIZE).map(|at| (at / 4096 % 251) as u8).collect();
    let Some(workspace) = Workspace::with(&[("doc.txt", &content), ("draft.txt", b"old")]) else { return };
    let ada = workspace.mount("ada");
    let app = ada.app();
    app.overwrite(&ada.path("draft.txt"), &content).unwrap();
    ada.run(&["settle"]).ok();
    let passes = ada.status()["mount"]["reads"] == "passthrough";
    for (name, passes) in [("doc.txt", passes), ("draft.txt", false)] {
        let fd = app.open(&ada.path(name), O_RDONLY).unwrap();
        // A draft's are those that its writer left.
        kernel::drop_pages(&ada.path(name));
        let before = bytes_read_by(&ada);
        for offset in [0, 3, 1, 2].map(|quarter| quarter * SIZE / 4) {
            let part = app.read(fd, offset as i64, SIZE / 4).unwrap();
            assert!(part == content[offset..offset + SIZE / 4], "{name} at {offset}");
        }
        let read = bytes_read_by(&ada) - before;
        assert_eq!(read < SIZE as u64 / 2, passes, "the daemon read {read} bytes of {name}");
        app.close(fd).unwrap();
    }
}

/// Opening copies nothing; the first byte that is written copies the version, whose blob stays as it is.
#[test]
fn the_first_write_copies() {
    const SIZE: u64 = 4 << 20;
    let content = vec![b'x'; SIZE as usize];
    let Some(workspace) = Workspace::with(&[("doc.txt", &content)]) else { return };
    let ada = workspace.mount("ada");
    let (app, before) = (ada.app(), workspace.objects());
    let working = || -> Vec<u64> {
        let files = fs::read_dir(workspace.dot("staging")).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().blocks() * 512).collect()
    };
    let fd = app.open(&ada.path("doc.txt"), O_RDWR).unwrap();
    app.read(fd, 0, 4096).unwrap();
    assert_eq!(working(), [0; 0], "opening and reading copy nothing");
    app.write_at(fd, SIZE as i64 / 2, b"y").unwrap();
    let taken = working();
    assert!(taken.len() == 1 && taken[0] >= SIZE, "the whole of it: {taken:?}");
    app.write_at(fd, 0, b"y").unwrap();
    assert_eq!(working().len(), 1, "the second write copies nothing");
    assert_eq!(workspace.objects(), before);
    app.close(fd).unwrap();
}
