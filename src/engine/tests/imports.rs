use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::sync::Mutex;

use super::support::*;
use crate::engine::{EngineError, ImportRequest};
use crate::model::{ArtifactPath, CheckoutId, Content, Kind};

fn request(sources: Vec<std::path::PathBuf>, contents_only: bool) -> ImportRequest {
    ImportRequest {
        sources,
        into: ArtifactPath::root(),
        message: "m".into(),
        author: "imp@home".parse().unwrap(),
        contents_only,
    }
}

#[test]
fn an_import_takes_names_modes_links_and_empty_directories_as_they_are() {
    let desk = desk();
    let from = desk.dir.path().join("from");
    fs::create_dir_all(from.join("empty")).unwrap();
    let strange = OsStr::from_bytes(b"\xff new\nline ");
    fs::write(from.join(strange), "odd").unwrap();
    fs::write(from.join("run.sh"), "#!").unwrap();
    fs::set_permissions(from.join("run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    symlink("no/where", from.join("link")).unwrap();
    let seen = Mutex::new(Vec::new());
    let progress = |p: crate::engine::ImportProgress| seen.lock().unwrap().push((p.files, p.total_files));
    let report = desk.workspace.import(&request(vec![from.clone()], true), &progress).unwrap();
    assert_eq!((report.files, report.bytes, report.skipped.len()), (3, 3 + 2 + 8, 0));
    assert_eq!(seen.lock().unwrap().last(), Some(&(2, 2)));
    let get = |at: &ArtifactPath| desk.workspace.catalog().resolve(CheckoutId(0), at).unwrap().unwrap();
    assert_eq!(get(&ArtifactPath::parse(strange).unwrap()).size, 3);
    assert_eq!(get(&path("run.sh")).attrs.mode, 0o750);
    assert_eq!(get(&path("link")).content, Content::Target(b"no/where".to_vec()));
    assert_eq!(get(&path("empty")).kind, Kind::Directory);
    let again = desk.workspace.import(&request(vec![from], true), &|_| ()).unwrap();
    assert_eq!(again.change, None);
}

#[test]
fn an_import_says_what_it_skips() {
    let desk = desk();
    let from = desk.dir.path().join("from");
    fs::create_dir_all(from.join("w/.leasehold")).unwrap();
    for name in [".~lock.a.odt#", "~$a.docx", "a.odt~", "a.odt"] {
        fs::write(from.join(name), name).unwrap();
    }
    let _socket = UnixListener::bind(from.join("socket")).unwrap();
    let report = desk.workspace.import(&request(vec![from], false), &|_| ()).unwrap();
    let mut skipped: Vec<_> = report
        .skipped
        .iter()
        .map(|(path, why)| format!("{}: {why}", path.file_name().unwrap().display()))
        .collect();
    skipped.sort();
    let expected = [
        ".leasehold: a workspace's own directory",
        ".~lock.a.odt#: a lock file",
        "socket: a socket",
        "~$a.docx: a lock file",
    ];
    assert_eq!(skipped, expected);
    assert_eq!(desk.read("from/a.odt~", None), "a.odt~");
}

#[test]
fn sources_that_are_missing_or_collide_are_refused() {
    let desk = desk();
    for dir in ["x", "y"] {
        fs::create_dir(desk.dir.path().join(dir)).unwrap();
        fs::write(desk.dir.path().join(dir).join("same"), dir).unwrap();
    }
    let both = ["x/same", "y/same"].map(|p| desk.dir.path().join(p)).to_vec();
    let collide = desk.workspace.import(&request(both, false), &|_| ());
    assert!(matches!(collide, Err(EngineError::Refused(why)) if why.contains("would both become same")));
    let missing = desk.workspace.import(&request(vec![desk.dir.path().join("none")], false), &|_| ());
    assert!(matches!(missing, Err(EngineError::File { .. })));
    assert_eq!(desk.workspace.catalog().head_change().unwrap().0, 0);
}
