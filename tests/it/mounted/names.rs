//! Names are bytes: newlines, invalid UTF-8 and what looks like syntax go through mounts, check-ins and JSON.

use std::ffi::{OsStr, OsString};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::Command;

use libc::{O_CREAT, O_RDWR, O_TMPFILE};

use super::{Workspace, eventually};
use crate::kernel::{self, ENOENT, ENOTTY, EOPNOTSUPP, Errno};

fn strange_names() -> Vec<OsString> {
    let mut names: Vec<Vec<u8>> =
        [&b"new\nline"[..], b"not \xff\xfe UTF-8", b"a=b", b"x@@3", b"trailing space "]
            .iter()
            .chain(&[
                &b" leading"[..],
                b"-m",
                b"tab\there",
                b"quote\"'",
                b"back\\slash",
                "e\u{301}".as_bytes(),
                "\u{e9}".as_bytes(),
            ])
            .map(|name| name.to_vec())
            .collect();
    names.push(vec![b'l'; 255]);
    names.push(b"%41:*?<>|".to_vec());
    let mut names: Vec<OsString> = names.into_iter().map(OsString::from_vec).collect();
    names.sort();
    names
}

/// Each name can be created, saved, checked in, seen by others, renamed and deleted, as it is.
#[test]
fn strange_names_are_kept_as_they_are() {
    let Some(workspace) = Workspace::with_document() else { return };
    let (ada, bob) = (workspace.mount("ada"), workspace.mount("bob"));
    let app = ada.app();
    kernel::mkdir(&ada.path("dir")).unwrap();
    for name in strange_names() {
        app.save(&ada.path("dir").join(&name), O_CREAT, name.as_bytes()).unwrap();
    }
    assert_eq!(ada.list("dir"), strange_names());
    let status = ada.status();
    assert_eq!(status["drafts"].as_array().unwrap().len(), strange_names().len() + 1, "{status}");
    ada.check_in();
    eventually("the names", || {
        (bob.path("dir").exists() && bob.list("dir") == strange_names()).then_some(())
    });
    for name in strange_names() {
        assert_eq!(std::fs::read(bob.path("dir").join(&name)).unwrap(), name.as_bytes());
        app.rename(&ada.path("dir").join(&name), &ada.path(&name), 0).unwrap();
    }
    ada.check_in();
    assert_eq!(ada.list("dir"), [""; 0]);
    ada.run(&["log"]).ok();
}

/// JSON of paths that are no UTF-8 is valid, and has the bytes.
#[test]
fn json_has_every_byte() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let name = OsStr::from_bytes(b"bad \xff\n");
    ada.app().save(&ada.path(name), O_CREAT, b"x").unwrap();
    let status = ada.status();
    assert_eq!(status["drafts"][0]["path_hex"], "62616420ff0a", "{status}");
    ada.check_in();
    let log = ada.run(&["log", "--json"]).json();
    let item = &log[0]["items"][0];
    assert_eq!((&item["path_hex"], &item["action"]), (&"62616420ff0a".into(), &"added".into()), "{log}");
    let human = ada.run(&["log"]).ok();
    assert!(!human.contains('\u{7}') && human.contains("\\x"), "{human}");
}

/// A name that reads like a version of another file is that file.
#[test]
fn a_name_with_a_version_mark() {
    let Some(workspace) = Workspace::with(&[("x", b"of x"), ("x@@3", b"of x@@3")]) else { return };
    let ada = workspace.mount("ada");
    assert_eq!(ada.run(&["cat", "x@@3"]).ok(), "of x@@3");
    assert_eq!(ada.run(&["cat", "x@@1"]).ok(), "of x");
    assert_eq!(ada.run(&["cat", "x@@3@@1"]).ok(), "of x@@3");
}

/// 255 bytes are a name, one more is none.
#[test]
fn long_names() {
    let Some(workspace) = Workspace::with_document() else { return };
    let ada = workspace.mount("ada");
    let app = ada.app();
    let long = |length| ada.path(OsString::from_vec(vec![b'n'; length]));
    app.save(&long(255), O_CREAT, b"fits").unwrap();
    assert_eq!(app.save(&long(256), O_CREAT, b"does not"), Err(Errno(libc::ENAMETOOLONG)));
    assert_eq!(app.read_file(&long(254)), Err(ENOENT));
}

/// Every spelling of a path means the same artifact.
#[test]
fn paths_in_all_their_spellings() {
    let Some(workspace) = Workspace::with(&[("dir/doc.txt", b"old"), ("other/x", b"x")]) else { return };
    let ada = workspace.mount("ada");
    std::os::unix::fs::symlink(ada.path("dir"), workspace.beside("alias")).unwrap();
    let absolute = ada.path("dir/doc.txt");
    let aliased = workspace.beside("alias").join("doc.txt");
    ada.run(&["checkout", "./other/../dir//doc.txt"]).ok();
    for spelling in
        [OsStr::new("dir/doc.txt"), OsStr::new("dir/./doc.txt"), absolute.as_os_str(), aliased.as_os_str()]
    {
        let shown =
            ada.run(&[OsStr::new("lease"), OsStr::new("show"), OsStr::new("--json"), spelling]).json();
        assert_eq!(shown[0]["lease"]["holder"], "ada@desk", "{spelling:?}: {shown}");
    }
    ada.run(&[OsStr::new("lease"), OsStr::new("release"), aliased.as_os_str()]).ok();
    assert_eq!(ada.xattr("dir/doc.txt", "user.lease.state").as_deref(), Some("free"));
}

/// What the mount doesn't have is refused in the words that programs know, and they get on without it.
#[test]
fn what_there_is_not_is_refused_as_programs_expect() {
    let Some(workspace) = Workspace::with(&[("doc.txt", b"old"), ("other.txt", b"other")]) else { return };
    let ada = workspace.mount("ada");
    let app = ada.app();
    kernel::mkdir(&ada.path("new")).unwrap();
    for dir in ["", "new"] {
        assert_eq!(app.open(&ada.path(dir), O_TMPFILE | O_RDWR), Err(EOPNOTSUPP), "O_TMPFILE in {dir:?}");
    }
    kernel::rmdir(&ada.path("new")).unwrap();
    app.save(&ada.path("draft.txt"), O_CREAT, b"draft").unwrap();
    for name in ["doc.txt", "draft.txt", ""] {
        let file = std::fs::File::open(ada.path(name)).unwrap();
        for request in [libc::FS_IOC_GETFLAGS, libc::TCGETS] {
            assert_eq!(kernel::ioctl(file.as_raw_fd(), request, 0), Err(ENOTTY), "{request:#x} of {name:?}");
        }
    }
    let copy = |how: &str, from: PathBuf, to: PathBuf| {
        Command::new("cp").arg(how).args([from, to]).output().unwrap().status.success()
    };
    for from in [ada.path("other.txt"), ada.path("draft.txt"), workspace.beside("from/doc.txt")] {
        assert!(!copy("--reflink=always", from.clone(), ada.path("copy.txt")), "{from:?}");
        assert!(copy("--reflink=auto", from.clone(), ada.path("copy.txt")), "{from:?}");
        assert_eq!(ada.read("copy.txt"), std::fs::read(&from).unwrap());
    }
    assert_eq!(ada.drafts(), ["copy.txt", "draft.txt"]);
}
