//! Processes that have one file open at the same time: what one of them does, the others see or not.

use libc::{
    F_RDLCK, F_UNLCK, F_WRLCK, LOCK_EX, LOCK_SH, LOCK_UN, O_APPEND, O_CREAT, O_RDONLY, O_RDWR, O_TRUNC,
    O_WRONLY,
};

use super::{Workspace, eventually};
use crate::kernel::EAGAIN;

/// Who has a draft open sees what others write to it at once and unsaved, by read and by mapping, from its first
/// byte on and over saves and a check-in.
#[test]
fn readers_of_a_draft_see_it_written() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let (doc, writer, reader) = (ada.path("doc.txt"), ada.app(), ada.app());
    let version = reader.open(&doc, O_RDONLY).unwrap();
    let fd = writer.open(&doc, O_RDWR).unwrap();
    // No byte of the draft is written yet.
    let draft = reader.open(&doc, O_RDONLY).unwrap();
    let map = reader.map(draft, 8, false).unwrap();
    let assert_seen = |expected: &[u8], what: &str| {
        assert_eq!(reader.read_all(draft).unwrap(), expected, "{what}");
        assert_eq!(reader.read_map(map, 0, expected.len()), expected, "{what}, mapped");
        assert_eq!(reader.path_of_fd(draft).metadata().unwrap().len(), expected.len() as u64, "{what}: size");
    };
    assert_seen(b"old", "before a write");
    writer.write_at(fd, 0, b"new").unwrap();
    assert_seen(b"new", "a write");
    writer.fsync(fd).unwrap();
    writer.write_at(fd, 1, b"_").unwrap();
    assert_seen(b"n_w", "a write after a save");
    writer.ftruncate(fd, 1).unwrap();
    assert_seen(b"n", "a cut");
    let second = ada.app();
    second.save(&doc, O_APPEND, b"ext").unwrap();
    assert_seen(b"next", "an append by a third process");
    writer.close(fd).unwrap();
    second.overwrite(&doc, b"over").unwrap();
    assert_seen(b"over", "a save after all had closed");
    let fd = writer.open(&doc, O_RDWR).unwrap();
    ada.check_in();
    writer.write_at(fd, 0, b"0").unwrap();
    assert_seen(b"0ver", "a write after a check-in under the writer");
    assert_eq!(reader.read_all(version).unwrap(), b"old", "the version stays what it was");
}

/// A draft that is replaced by a rename, or checked in with no writer, is from then on what its readers have open.
#[test]
fn readers_of_a_draft_that_ended_keep_it() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let (doc, temp, app, reader) = (ada.path("doc.txt"), ada.path("doc.txt.new1"), ada.app(), ada.app());
    app.overwrite(&doc, b"first").unwrap();
    let replaced = reader.open(&doc, O_RDONLY).unwrap();
    app.save(&temp, O_CREAT, b"second").unwrap();
    app.rename(&temp, &doc, 0).unwrap();
    let checked_in = reader.open(&doc, O_RDONLY).unwrap();
    ada.check_in();
    app.overwrite(&doc, b"third").unwrap();
    assert_eq!(reader.read_all(replaced).unwrap(), b"first");
    assert_eq!(reader.read_all(checked_in).unwrap(), b"second");
    assert_eq!(reader.read_file(&doc).unwrap(), b"third");
}

/// Two processes map one draft and store into it; each sees the other's stores, and both are saved.
#[test]
fn two_processes_share_a_mapping() {
    let Some(workspace) = Workspace::with(&[("doc.txt", &[b'.'; 9_000])]) else { return };
    let ada = workspace.mount("ada");
    let (doc, apps) = (ada.path("doc.txt"), [ada.app(), ada.app()]);
    let fds = [0, 1].map(|n| apps[n].open(&doc, O_RDWR).unwrap());
    let maps = [0, 1].map(|n| apps[n].map(fds[n], 9_000, true).unwrap());
    for (n, other) in [(0, 1), (1, 0)] {
        // In one page, over its edge, and in the last bytes.
        for at in [10, 4_095, 8_990] {
            apps[n].write_map(maps[n], at + 5 * n, b"store");
            assert_eq!(apps[other].read_map(maps[other], at + 5 * n, 5), b"store");
        }
    }
    apps[1].write_at(fds[1], 20, b"by write").unwrap();
    assert_eq!(apps[0].read_map(maps[0], 20, 8), b"by write");
    apps[0].write_map(maps[0], 20, b"by store");
    assert_eq!(apps[1].read(fds[1], 20, 8).unwrap(), b"by store");
    let expected = apps[1].read_map(maps[1], 0, 9_000);
    for n in [0, 1] {
        apps[n].close(fds[n]).unwrap();
        apps[n].unmap(maps[n]);
    }
    drop(apps);
    eventually("the save", || (ada.run(&["checkin", "-m", "both"]).status == 0).then_some(()));
    assert_eq!(ada.read("doc.txt"), expected);
    assert_eq!(workspace.mount("bob").read("doc.txt"), expected);
}

/// A process that begins to share a mapped draft later has the same pages, and its end loses nothing of the other's.
#[test]
fn a_mapping_outlives_the_process_that_shared_it() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let (doc, app) = (ada.path("doc.txt"), ada.app());
    let fd = app.open(&doc, O_RDWR).unwrap();
    let map = app.map(fd, 3, true).unwrap();
    app.write_map(map, 0, b"n");
    let other = ada.app();
    let shared = other.open(&doc, O_RDWR).unwrap();
    let their_map = other.map(shared, 3, true).unwrap();
    assert_eq!(other.read_map(their_map, 0, 3), b"nld");
    other.write_map(their_map, 1, b"e");
    drop(other);
    app.write_map(map, 2, b"w");
    app.close(fd).unwrap();
    app.unmap(map);
    eventually("the save", || (ada.run(&["checkin", "-m", "both"]).status == 0).then_some(()));
    assert_eq!(ada.run(&["cat", "doc.txt@@2"]).ok(), "new");
}

/// Locks of both kinds keep out other processes of the mount that have the same draft, or the same version, open.
#[test]
fn locks_work_within_a_mount() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let (doc, first, second) = (ada.path("doc.txt"), ada.app(), ada.app());
    for draft in [false, true] {
        if draft {
            first.overwrite(&doc, b"draft").unwrap();
        }
        let flags = if draft { O_RDWR } else { O_RDONLY };
        let (a, b) = (first.open(&doc, flags).unwrap(), second.open(&doc, flags).unwrap());
        first.flock(a, LOCK_EX).unwrap();
        assert_eq!(second.flock(b, LOCK_SH), Err(EAGAIN), "draft: {draft}");
        first.flock(a, LOCK_SH).unwrap();
        second.flock(b, LOCK_SH).unwrap();
        assert_eq!(first.flock(a, LOCK_EX), Err(EAGAIN), "draft: {draft}");
        second.flock(b, LOCK_UN).unwrap();
        first.flock(a, LOCK_EX).unwrap();
        let (kind, other) = if draft { (F_WRLCK, F_RDLCK) } else { (F_RDLCK, F_RDLCK) };
        first.lock_range(a, kind, 0, 2).unwrap();
        assert_eq!(second.lock_range(b, other, 1, 2).is_err(), draft, "bytes in common");
        second.lock_range(b, other, 2, 1).unwrap();
        first.lock_range(a, F_UNLCK, 0, 0).unwrap();
        second.lock_range(b, other, 0, 2).unwrap();
        // A process's end gives its locks back.
        first.close(a).unwrap();
        second.flock(b, LOCK_EX).unwrap();
        second.close(b).unwrap();
    }
}

/// Locks reach neither another mount nor, from a writer, who has the version before open; the lease does.
#[test]
fn locks_reach_no_further() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let (writer, reader, elsewhere) = (ada.app(), ada.app(), bob.app());
    let version = reader.open(&ada.path("doc.txt"), O_RDONLY).unwrap();
    let theirs = elsewhere.open(&bob.path("doc.txt"), O_RDONLY).unwrap();
    let draft = writer.open(&ada.path("doc.txt"), O_WRONLY | O_TRUNC).unwrap();
    writer.flock(draft, LOCK_EX).unwrap();
    writer.lock_range(draft, F_WRLCK, 0, 0).unwrap();
    for (app, fd) in [(&reader, version), (&elsewhere, theirs)] {
        app.flock(fd, LOCK_EX).unwrap();
        app.lock_range(fd, F_RDLCK, 0, 0).unwrap();
    }
    assert_eq!(elsewhere.open(&bob.path("doc.txt"), O_RDWR), Err(crate::kernel::EBUSY));
    let late = reader.open(&ada.path("doc.txt"), O_RDONLY).unwrap();
    assert_eq!(reader.flock(late, LOCK_SH), Err(EAGAIN), "who opens the draft meets its writer");
}
