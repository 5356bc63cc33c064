use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use super::*;
use crate::sys::PathFacts;

/// The machine's disk, but for directories that are said to ignore case, and paths that can't be looked at.
#[derive(Default)]
struct TestDisk {
    folding: Vec<PathBuf>,
    failing: Option<(PathBuf, ErrorKind)>,
}

impl TestDisk {
    fn check(&self, path: &Path) -> io::Result<()> {
        match &self.failing {
            Some((failing, kind)) if failing == path => Err((*kind).into()),
            _ => Ok(()),
        }
    }
}

impl Disk for TestDisk {
    fn look(&self, path: &Path) -> io::Result<PathFacts> {
        self.check(path)?;
        SystemDisk.look(path)
    }

    fn folds_case(&self, dir: &Path) -> io::Result<bool> {
        self.check(dir)?;
        Ok(SystemDisk.folds_case(dir)? || self.folding.iter().any(|folding| folding == dir))
    }
}

/// A directory `root` that stands for a checkout, with something beside it.
struct Place {
    dir: PathBuf,
    disk: TestDisk,
    _dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let dir = temporary.path().canonicalize().unwrap();
        fs::create_dir_all(dir.join("root/a/b")).unwrap();
        fs::create_dir(dir.join("outside")).unwrap();
        fs::write(dir.join("root/a/b/x"), "").unwrap();
        fs::write(dir.join("outside/x"), "").unwrap();
        Self { dir, disk: TestDisk::default(), _dir: temporary }
    }

    fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    fn link(&self, name: &str, target: impl AsRef<Path>) {
        symlink(target, self.root().join(name)).unwrap();
    }

    fn resolve_bytes(&self, text: &[u8]) -> Result<String, PathError> {
        let mounts = MountTable::read().unwrap();
        let paths = AdmissionPaths::in_directory(&mounts, &self.disk, &self.root())?;
        paths.resolve(&self.root(), OsStr::from_bytes(text)).map(|pattern| pattern.to_string())
    }

    fn resolve(&self, text: impl AsRef<Path>) -> Result<String, PathError> {
        self.resolve_bytes(text.as_ref().as_os_str().as_bytes())
    }

    fn refused(&self, text: impl AsRef<Path>) -> String {
        self.resolve(text).unwrap_err().to_string()
    }
}

/// All ways to a file are one resource, be it there or not.
#[test]
fn aliases_come_to_one_path() {
    let place = Place::new();
    place.link("link", "a");
    place.link("far", place.root().join("a/b"));
    place.link("round", "../outside/back/a");
    place.link("file", "a/b/x");
    symlink(place.root(), place.dir.join("outside/back")).unwrap();
    let same = ["a/b/x", "./a//b/./x", "link/b/x", "far/x", "round/b/x", "file", "a/b/x/"];
    for text in same {
        assert_eq!(place.resolve(text).unwrap(), "a/b/x", "{text}");
    }
    assert_eq!(place.resolve(place.root().join("a/b/x")).unwrap(), "a/b/x");
    assert_eq!(place.resolve(place.dir.join("outside/back/link/b/x")).unwrap(), "a/b/x");
    for (text, expected) in [
        ("a/new", "a/new"),
        ("link/new/deep/er", "a/new/deep/er"),
        ("far/new", "a/b/new"),
        ("link/**", "a/**"),
        ("link/new/**", "a/new/**"),
        ("far/**/", "a/b/**"),
        ("**", "**"),
        ("./**", "**"),
        (".", "."),
        ("a/*", "a/*"),
        ("**/x", "**/x"),
        ("a/**/x", "a/**/x"),
        ("a/x**", "a/x**"),
    ] {
        assert_eq!(place.resolve(text).unwrap(), expected, "{text}");
    }
    assert_eq!(place.resolve(place.root()).unwrap(), ".");
    assert_eq!(place.resolve(place.root().join("**")).unwrap(), "**");
    assert_eq!(place.resolve_bytes(b"a/\xff\n").unwrap(), "a/\\xff\\x0a");
}

/// What may come to another file than it says is refused in one line that names the path and what to do.
#[test]
fn paths_that_are_not_what_they_say_are_refused() {
    let place = Place::new();
    place.link("out", "../outside");
    place.link("dangling", "a/none");
    place.link("into-file", "a/b/x/y");
    place.link("loop", "loop");
    place.link("ping", "pong/z");
    place.link("pong", "ping/z");
    let (dir, root) = (place.dir.display(), place.root());
    for (text, reason) in [
        ("..", "has a `..`; write it without"),
        ("a/../a/b/x", "has a `..`"),
        ("a/..", "has a `..`"),
        ("a/../**", "has a `..`"),
        ("out", &format!("{dir}/outside is not in the checkout {dir}/root")),
        ("out/x", &format!("{dir}/outside/x is not in the checkout {dir}/root")),
        ("out/new/er", &format!("{dir}/outside/new/er is not in the checkout {dir}/root")),
        ("out/**", &format!("{dir}/outside is not in the checkout")),
        ("/", "/ is not in the checkout"),
        ("/proc/version", "/proc/version is not in the checkout"),
        ("dangling", &format!("the symlink {dir}/root/dangling leads nowhere")),
        ("dangling/x", "leads nowhere"),
        ("dangling/**", "leads nowhere"),
        ("into-file", "leads nowhere"),
        ("loop", "its symlinks go round"),
        ("loop/x", "its symlinks go round"),
        ("ping/x", "its symlinks go round"),
        ("a/b/x/y", &format!("{dir}/root/a/b/x is no directory")),
        ("a/b/x/y/**", "is no directory"),
    ] {
        let line = place.refused(text);
        assert!(line.starts_with(&format!("{text}: ")) && line.contains(reason), "{text}: {line}");
    }
    for absolute in [place.dir.clone(), place.dir.join("rooted/x"), place.dir.join("outside/x")] {
        assert!(matches!(place.resolve(&absolute), Err(PathError::Outside { .. })), "{}", absolute.display());
    }
    assert!(place.refused(root.join("a/../a")).contains("has a `..`"));
}

#[test]
fn texts_that_no_path_can_be_are_refused() {
    let place = Place::new();
    let (longest, too_long) = ("n".repeat(255), "n".repeat(256));
    assert_eq!(place.resolve(&longest).unwrap(), longest);
    for text in [&b""[..], b"\0", b"a/\0b", too_long.as_bytes(), format!("{too_long}/**").as_bytes()] {
        let error = place.resolve_bytes(text).unwrap_err();
        assert!(matches!(error, PathError::BadName { .. }) && error.remedy().is_some(), "{error:?}");
    }
    let line = place.refused("n/".repeat(2048));
    assert!(line.len() < 200 && line.contains("longer than 4095 bytes"), "{line}");
    assert!(place.resolve("n/".repeat(1500)).is_ok());
}

/// A file with two names could be written by the one while the other is leased.
#[test]
fn hard_linked_files_are_refused() {
    let place = Place::new();
    let (x, second) = (place.root().join("a/b/x"), place.dir.join("outside/second"));
    fs::hard_link(&x, &second).unwrap();
    place.link("file", "a/b/x");
    for text in ["a/b/x", "file"] {
        let error = place.resolve(text).unwrap_err();
        assert!(matches!(error, PathError::HardLinked { links: 2, .. }), "{error:?}");
    }
    assert_eq!(place.resolve("a/b").unwrap(), "a/b", "a directory has as many names as directories in it");
    fs::remove_file(second).unwrap();
    assert_eq!(place.resolve("a/b/x").unwrap(), "a/b/x");
}

/// Spellings are one resource below a directory that is known to ignore case, and nowhere else.
#[test]
fn case_counts_unless_the_directory_is_known_to_ignore_it() {
    let mut place = Place::new();
    fs::create_dir(place.root().join("a/Fold")).unwrap();
    fs::write(place.root().join("a/Fold/Doc"), "").unwrap();
    place.disk.folding = vec![place.root().join("a/Fold")];
    for (text, expected) in [
        ("a/Fold", "a/Fold"),
        ("a/fold/Doc", "a/fold/Doc"),
        ("a/Fold/Doc", "a/Fold/doc"),
        ("a/Fold/NEW", "a/Fold/new"),
        ("a/Fold/New/Dir/**", "a/Fold/new/dir/**"),
        ("a/B/X", "a/B/X"),
        ("Ä", "Ä"),
    ] {
        assert_eq!(place.resolve(text).unwrap(), expected, "{text}");
    }
    // Which other spellings a letter has only the filesystem's own table tells: K may be U+212A, too.
    for text in ["a/Fold/Ä", "a/Fold/\u{212a}", "a/Fold/new/ä"] {
        let error = place.resolve(text).unwrap_err();
        assert!(matches!(error, PathError::Unfoldable { .. }), "{error:?}");
    }
}

/// What can't be looked at is not taken for what it seems to be.
#[test]
fn what_cannot_be_told_is_refused() {
    let mut place = Place::new();
    let root = place.root();
    for (failing, text) in [
        (root.clone(), "a/b/x"),
        (root.join("a/b/x"), "a/b/x"),
        (root.join("a"), "a/b/x"),
        (root.join("a/b"), "a/b/x"),
        (root.join("a/b"), "a/b/new"),
        (root.join("a/b/new"), "a/b/new/er"),
        (root.join("a/b"), "a/b/**"),
    ] {
        for kind in [ErrorKind::PermissionDenied, ErrorKind::Unsupported, ErrorKind::NotConnected] {
            place.disk.failing = Some((failing.clone(), kind));
            let error = place.resolve(text).unwrap_err();
            assert!(
                matches!(&error, PathError::Unverified { source, .. } if source.kind() == kind),
                "{error:?}"
            );
            assert!(error.to_string().ends_with("can't tell what it names") && error.remedy().is_some());
        }
        place.disk.failing = None;
        place.resolve(text).unwrap();
    }
    // A mount that isn't in the table that was read.
    let mounts = MountTable::default();
    let paths = AdmissionPaths::in_directory(&mounts, &place.disk, &root);
    assert!(matches!(paths.err(), Some(PathError::Changed(_))));
    let mounts = MountTable::read().unwrap();
    let file = root.join("a/b/x");
    for no_checkout in [file, root.join("none")] {
        assert!(AdmissionPaths::in_directory(&mounts, &place.disk, &no_checkout).is_err());
    }
}
