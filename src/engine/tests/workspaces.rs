use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::support::*;
use crate::engine::{EngineError, Workspace};

#[test]
fn a_new_workspace_is_private_empty_and_opens_again() {
    let desk = desk();
    let dot = desk.workspace.layout().dot();
    assert_eq!(fs::metadata(&dot).unwrap().permissions().mode() & 0o777, 0o700);
    let expected = ["catalog.db", "config.toml", "log", "objects", "recovered", "run", "scratch", "staging"];
    let mut names = names_in(&dot);
    names.retain(|name| !name.starts_with("catalog.db-"));
    assert_eq!(names, expected);
    assert_eq!(desk.workspace.catalog().head_change().unwrap().0, 0);
    assert_eq!(*desk.workspace.policy(), crate::config::Policy::default());
    let again = Workspace::open(desk.workspace.root(), &desk.env).unwrap();
    assert_eq!(again.root(), desk.workspace.root());
    let twice = Workspace::init(desk.workspace.root(), &desk.env);
    assert!(matches!(twice, Err(EngineError::WorkspaceExists(_))));
    let nothing = Workspace::open(desk.dir.path(), &desk.env);
    assert!(matches!(nothing, Err(EngineError::NotAWorkspace(_))));
}

/// Whatever an init that was killed left is no workspace, and the next init makes one and clears it away.
#[test]
fn an_init_that_was_killed_at_any_step_can_be_repeated() {
    let desk = desk();
    let whole = desk.workspace.layout().dot();
    let steps = ["scratch", "recovered", "run", "log", "config.toml", "objects", "staging", "catalog.db"];
    for done in 0..=steps.len() {
        let root = desk.dir.path().join(format!("killed-{done}"));
        let unfinished = root.join(".leasehold.tmp-0af");
        fs::create_dir_all(&unfinished).unwrap();
        for step in &steps[..done] {
            copy(&whole.join(step), &unfinished.join(step));
        }
        let opened = Workspace::open(&root, &desk.env);
        assert!(matches!(opened, Err(EngineError::NotAWorkspace(_))), "{done}");
        Workspace::init(&root, &desk.env).unwrap();
        assert_eq!(names_in(&root), [".leasehold"], "{done}");
    }
}

fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir(to).unwrap();
    } else {
        fs::copy(from, to).unwrap();
    }
}

#[test]
fn waking_changes_the_file_that_followers_watch() {
    let desk = desk();
    let wake = desk.workspace.layout().wake();
    fs::remove_file(&wake).unwrap();
    desk.workspace.wake();
    assert_eq!(fs::read(&wake).unwrap(), b"\n");
}

#[test]
fn a_mount_is_known_until_its_guard_goes() {
    let desk = desk();
    let ada = "ada@home".parse().unwrap();
    assert_eq!(desk.workspace.live_mount(&ada).unwrap(), None);
    let guard = desk.workspace.begin_mount(&ada, Path::new("/mnt/a")).unwrap();
    let mount = desk.workspace.live_mount(&ada).unwrap().unwrap();
    assert_eq!((mount.mountpoint.as_path(), mount.pid), (Path::new("/mnt/a"), std::process::id()));
    guard.end().unwrap();
    assert_eq!(desk.workspace.live_mount(&ada).unwrap(), None);
    drop(desk.workspace.begin_mount(&ada, Path::new("/mnt/b")).unwrap());
    assert_eq!(desk.workspace.live_mount(&ada).unwrap(), None);
}
