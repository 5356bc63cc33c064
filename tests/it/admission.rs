//! Paths as admission takes them: one resource for each file, on real mounts, and a refusal for what can't be told.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use leasehold::engine::{AdmissionPaths, MountTable, PathError, SystemDisk};

use crate::folding;
use crate::kernel;
use crate::mounted::{Mount, Workspace};
use crate::privileged::Filesystem;

/// Resolves a path against the checkout of a mount, with the mounts of this moment.
fn in_mount(mount: &Mount, path: impl AsRef<Path>) -> Result<String, PathError> {
    let table = MountTable::read().unwrap();
    let shown = table.on(mount.at()).expect("BUG: it is mounted");
    let paths = AdmissionPaths::in_mount(&table, &SystemDisk, shown);
    paths.resolve(mount.at(), path.as_ref().as_os_str()).map(|pattern| pattern.to_string())
}

fn in_directory(root: &Path, path: impl AsRef<Path>) -> Result<String, PathError> {
    let table = MountTable::read().unwrap();
    let paths = AdmissionPaths::in_directory(&table, &SystemDisk, root)?;
    paths.resolve(root, path.as_ref().as_os_str()).map(|pattern| pattern.to_string())
}

fn is_root() -> bool {
    kernel::is_root_for("bind mounts", "mount a directory elsewhere")
}

/// On a mount symlinks come to what they lead to, and those that leave it or lead nowhere are refused.
#[test]
fn links_on_a_mount_are_followed_or_refused() {
    let Some(workspace) = Workspace::with(&[("a/b/x", b"old")]) else { return };
    let ada = workspace.mount("ada");
    let bob = workspace.mount("bob");
    for (name, target) in [
        ("link", Path::new("a")),
        ("file", Path::new("a/b/x")),
        ("home", ada.at()),
        ("out", bob.at()),
        ("dangling", Path::new("a/none")),
        ("loop", Path::new("loop")),
    ] {
        symlink(target, ada.path(name)).unwrap();
    }
    for same in ["a/b/x", "link/b/x", "file", "home/link/b/x", "./a//b/x"] {
        assert_eq!(in_mount(&ada, same).unwrap(), "a/b/x", "{same}");
    }
    assert_eq!(in_mount(&ada, ada.path("home/link/b/x")).unwrap(), "a/b/x");
    assert_eq!(in_mount(&ada, "link/b/new/**").unwrap(), "a/b/new/**");
    assert_eq!(in_mount(&ada, ada.path("**")).unwrap(), "**");
    assert_eq!(in_mount(&ada, "A/b/x").unwrap(), "A/b/x", "a mount never ignores case");
    assert!(matches!(in_mount(&ada, "out/a/b/x"), Err(PathError::Outside { .. })));
    assert!(matches!(in_mount(&ada, bob.path("a/b/x")), Err(PathError::Outside { .. })), "another checkout");
    assert!(matches!(in_mount(&ada, workspace.root().join("a")), Err(PathError::Outside { .. })));
    assert!(matches!(in_mount(&ada, "dangling"), Err(PathError::Dangling { .. })));
    assert!(matches!(in_mount(&ada, "loop/x"), Err(PathError::Looping(_))));
    assert!(matches!(in_mount(&ada, "a/../a/b/x"), Err(PathError::Dots(_))));
    assert!(matches!(in_mount(&ada, "a/b/x/y"), Err(PathError::BelowFile { .. })));
}

/// A mount whose daemon is dead answers for no path, existing or not.
#[test]
fn a_dead_mount_vouches_for_nothing() {
    let Some(workspace) = Workspace::with(&[("a/x", b"old")]) else { return };
    let mut ada = workspace.mount("ada");
    ada.crash();
    for path in ["a/x", "new", ".", "**"] {
        let error = in_mount(&ada, path).unwrap_err();
        assert!(matches!(&error, PathError::Unverified { .. }), "{error:?}");
        assert_eq!(error.remedy(), Some("its mount is dead: mount it again"));
    }
}

/// A directory of a mount that shows elsewhere, too, holds the same resources; what covers one of its directories holds none.
#[test]
fn a_second_view_of_a_checkout_is_an_alias() {
    let Some(workspace) = Workspace::with(&[("a/b/x", b"old"), ("covered/x", b"old")]) else { return };
    if !is_root() {
        return;
    }
    let ada = workspace.mount("ada");
    let elsewhere = tempfile::tempdir().unwrap();
    let alias = Filesystem::bind(&ada.path("a"), elsewhere.path());
    assert_eq!(in_mount(&ada, elsewhere.path().join("b/x")).unwrap(), "a/b/x");
    assert_eq!(in_mount(&ada, elsewhere.path().join("b/new/**")).unwrap(), "a/b/new/**");
    assert_eq!(in_mount(&ada, elsewhere.path()).unwrap(), "a");
    symlink(elsewhere.path(), ada.path("there-and-back")).unwrap();
    assert_eq!(in_mount(&ada, "there-and-back/b/x").unwrap(), "a/b/x");
    drop(alias);
    assert!(matches!(in_mount(&ada, "there-and-back/b/x"), Err(PathError::Outside { .. })));
    let _cover = Filesystem::tmpfs(&ada.path("covered"), 64 << 10);
    assert!(matches!(in_mount(&ada, "covered/x"), Err(PathError::Outside { .. })));
}

/// The same in a directory of the host's: by the place in the filesystem, not by the name.
#[test]
fn a_second_view_of_a_directory_is_an_alias() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap().join("root");
    for name in ["a/b", "bound", "foreign", "../outside", "../alias"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    fs::write(root.join("a/b/x"), "").unwrap();
    let alias = root.with_file_name("alias");
    let _inner = Filesystem::bind(&root.join("a/b"), &root.join("bound"));
    let _outer = Filesystem::bind(&root, &alias);
    let _foreign = Filesystem::bind(&root.with_file_name("outside"), &root.join("foreign"));
    for same in [root.join("bound/x"), root.join("a/b/x"), alias.join("a/b/x")] {
        assert_eq!(in_directory(&root, &same).unwrap(), "a/b/x", "{}", same.display());
        assert_eq!(in_directory(&alias, &same).unwrap(), "a/b/x", "{}", same.display());
    }
    assert_eq!(in_directory(&root, "bound/new/**").unwrap(), "a/b/new/**");
    assert!(matches!(in_directory(&root, "foreign/x"), Err(PathError::Outside { .. })));
    assert!(matches!(in_directory(&root.join("a"), root.join("foreign")), Err(PathError::Outside { .. })));
    assert_eq!(in_directory(&root.join("a"), root.join("bound/x")).unwrap(), "b/x");
}

/// A filesystem that says of a directory that it ignores case is believed, for that directory.
#[test]
fn who_says_that_he_ignores_case_is_believed() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let _session = folding::mount(&root);
    for same in ["Fold/Doc", "Fold/doc", "Fold/DOC"] {
        assert!(root.join(same).exists(), "{same}");
        assert_eq!(in_directory(&root, same).unwrap(), "Fold/doc", "{same}");
    }
    assert_eq!(in_directory(&root, "Fold/New/**").unwrap(), "Fold/new/**");
    assert_eq!(in_directory(&root, "FOLD/Doc").unwrap(), "FOLD/Doc", "the root doesn't");
    assert!(matches!(in_directory(&root, "Fold/Ä"), Err(PathError::Unfoldable { .. })));
}

/// On ext4 with a directory that ignores case, all spellings are one resource, and beside it they are not.
#[test]
fn a_directory_that_ignores_case_has_one_name_for_all_spellings() {
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, root) = (dir.path().join("image"), dir.path().join("root"));
    fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
    fs::create_dir(&root).unwrap();
    let made =
        Command::new("mkfs.ext4").args(["-q", "-O", "casefold", "-E", "encoding=utf8"]).arg(&image).status();
    let mounted = match made {
        Ok(status) if status.success() => Filesystem::image(&image, &root),
        other => Err(format!("mkfs.ext4: {other:?}")),
    };
    let _disk = match mounted {
        Ok(disk) => disk,
        // A kernel without Unicode tables lists no such feature of ext4, and can't mount it.
        Err(why) => {
            assert!(!Path::new("/sys/fs/ext4/features/casefold").exists(), "{why}");
            eprintln!("SKIPPED: this kernel's ext4 can't ignore case: {why}");
            return;
        }
    };
    fs::create_dir(root.join("Fold")).unwrap();
    assert!(Command::new("chattr").arg("+F").arg(root.join("Fold")).status().unwrap().success());
    fs::create_dir(root.join("Fold/Sub")).unwrap();
    fs::write(root.join("Fold/Sub/Doc"), "").unwrap();
    for same in ["Fold/Sub/Doc", "Fold/sub/doc", "Fold/SUB/DOC"] {
        assert!(root.join(same).exists());
        assert_eq!(in_directory(&root, same).unwrap(), "Fold/sub/doc", "{same}");
    }
    assert_eq!(in_directory(&root, "Fold/SUB/New").unwrap(), "Fold/sub/new");
    assert_eq!(in_directory(&root, "fold/x").unwrap(), "fold/x", "the root doesn't ignore case");
    assert!(matches!(in_directory(&root, "Fold/Ä"), Err(PathError::Unfoldable { .. })));
}
