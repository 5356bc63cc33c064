//! The store's commands, as programs call them.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const ABSENT: &str = "0000000000000000000000000000000000000000000000000000000000000000";
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// A directory of blobs that goes with the test.
struct Store {
    dir: tempfile::TempDir,
}

impl Store {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn objects(&self) -> PathBuf {
        self.dir.path().join("objects")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        let (action, rest) = args.split_first().unwrap();
        command.args(["store", action, "--objects"]).arg(self.objects()).args(rest);
        command.current_dir(self.dir.path()).env_remove("LEASEHOLD_WORKSPACE");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.run_with(args, b"")
    }

    fn run_with(&self, args: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Who refuses its arguments reads nothing.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    fn put(&self, bytes: &[u8]) -> String {
        let put = self.run_with(&["put", "-"], bytes);
        assert!(put.status.success(), "{put:?}");
        String::from_utf8(put.stdout).unwrap().trim_end().to_owned()
    }

    fn path_of(&self, digest: &str) -> PathBuf {
        self.objects().join(&digest[..2]).join(digest)
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn json(bytes: &[u8]) -> serde_json::Value {
    serde_json::from_slice(bytes).unwrap()
}

/// Asserts the exit status and the one line of an error, which begins with its code.
fn assert_refused(output: &Output, status: i32, code: &str) {
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{line}");
    assert!(line.starts_with(&format!("leasehold: {code}: ")) && line.matches('\n').count() == 1, "{line}");
    assert!(output.stdout.is_empty());
}

#[test]
fn bytes_go_in_and_come_out_by_their_digest() {
    let store = Store::new();
    fs::write(store.dir.path().join("file"), b"abc").unwrap();
    let put = store.run(&["put", "file", "--json"]);
    let digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(json(&put.stdout), serde_json::json!({ "digest": digest, "size": 3 }));
    assert_eq!((store.put(b"abc"), store.put(b"")), (digest.to_owned(), EMPTY.to_owned()));
    assert_eq!(store.run(&["get", digest]).stdout, b"abc");
    assert_eq!(store.run(&["get", EMPTY]).stdout, b"");

    let got = store.run(&["get", digest, "-o", "out", "--json"]);
    assert_eq!(json(&got.stdout)["size"], 3);
    assert_eq!(fs::read(store.dir.path().join("out")).unwrap(), b"abc");
    let status = |digest| store.run(&["has", digest]).status.code();
    assert_eq!((status(digest), status(ABSENT)), (Some(0), Some(1)));
    assert_eq!(json(&store.run(&["has", ABSENT, "--json"]).stdout)["present"], false);

    let missing = store.run(&["missing", ABSENT, digest, ABSENT]);
    assert_eq!(text(&missing.stdout), format!("{ABSENT}\n"));
    let missing = store.run_with(&["missing", "-", "--json"], format!("{digest}\n{ABSENT}\n").as_bytes());
    assert_eq!(json(&missing.stdout), serde_json::json!([ABSENT]));

    let inventory = json(&store.run(&["inventory", "--json"]).stdout);
    assert_eq!((inventory[0]["digest"].as_str(), inventory[0]["size"].as_u64()), (Some(digest), Some(3)));
    let stats = json(&store.run(&["stats", "--json"]).stdout);
    let counters = serde_json::json!({ "puts": 0, "gets": 0 });
    assert_eq!(stats, serde_json::json!({ "blobs": 2, "bytes": 3, "counters": counters }));
}

#[test]
fn what_is_no_digest_is_refused_before_anything_is_touched_and_never_repeated() {
    let store = Store::new();
    let bad =
        ["", "0", "..", "ab/cd", &"A".repeat(64), &format!(" {EMPTY}"), &format!("{EMPTY}\n"), "é", "%2f"];
    for bad in bad {
        for args in [
            vec!["get", bad],
            vec!["has", bad],
            vec!["missing", EMPTY, bad],
            vec!["remove", bad, "--if-unmodified-since", "0"],
        ] {
            let refused = store.run(&args);
            assert_refused(&refused, 2, "invalid_digest");
            assert!(bad.len() < 3 || !text(&refused.stderr).contains(bad.trim()), "{refused:?}");
        }
    }
    let long = "x".repeat(1 << 20);
    let refused = store.run_with(&["missing", "-"], format!("{EMPTY}\n{long}\n").as_bytes());
    assert_refused(&refused, 2, "invalid_digest");
    let refused = store.run(&["get", "secret", "--json"]);
    assert_eq!((refused.status.code(), &json(&refused.stderr)["code"]), (Some(2), &"invalid_digest".into()));
    assert!(!store.objects().exists(), "nothing was made");
}

#[test]
fn not_a_byte_of_a_corrupt_or_missing_blob_comes_out() {
    let store = Store::new();
    assert_refused(&store.run(&["get", ABSENT]), 1, "artifact_missing");
    let digest = store.put(b"right");
    fs::write(store.path_of(&digest), b"wrong").unwrap();
    assert_refused(&store.run(&["get", &digest]), 1, "artifact_corruption");
    assert_eq!(store.run(&["has", &digest]).status.code(), Some(0), "it is there");
    fs::write(store.dir.path().join("out"), b"before").unwrap();
    for digest in [&*digest, ABSENT] {
        assert!(!store.run(&["get", digest, "-o", "out"]).status.success());
    }
    assert_eq!(fs::read(store.dir.path().join("out")).unwrap(), b"before");
    let names = |dir: &Path| fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>();
    assert_eq!(names(store.dir.path()).len(), 2, "objects and out: {:?}", names(store.dir.path()));
    assert_eq!(store.put(b"right"), digest);
    assert_eq!(store.run(&["get", &digest]).stdout, b"right", "a put heals");
}

#[test]
fn has_says_unknown_where_it_can_not_find_out() {
    let store = Store::new();
    fs::write(store.objects(), b"no directory").unwrap();
    assert_refused(&store.run(&["has", EMPTY]), 5, "unavailable");
    assert_refused(&store.run_with(&["put", "-"], b"x"), 1, "unavailable");
    assert_refused(&store.run(&["put", "none"]), 1, "unavailable");
}

#[test]
fn a_blob_is_removed_only_if_nobody_put_it_since_and_nobody_makes_a_backup() {
    let store = Store::new();
    let digest = store.put(b"bytes");
    let late = "9999999999999";
    let remove =
        |bound| text(&store.run(&["remove", &digest, "--if-unmodified-since", bound]).stdout).to_owned();
    assert_eq!(store.run(&["remove", &digest]).status.code(), Some(2), "the bound is required");
    assert_eq!(remove("0"), "not removed\n");
    let program = env!("CARGO_BIN_EXE_leasehold");
    let script = format!(
        "ls -A {0} | grep -qx .backup-lease && {program} store remove {digest} --objects {0} --if-unmodified-since {late}; exit 7",
        store.objects().display()
    );
    let held = store.run(&["hold-backup-lease", "--", "sh", "-c", &script]);
    assert_eq!((held.status.code(), text(&held.stdout)), (Some(7), "not removed\n"), "{held:?}");
    assert!(!store.objects().join(".backup-lease").exists());
    assert_eq!(remove(late), "removed\n");
    assert_eq!(remove(late), "not removed\n");
    let uncoordinated =
        store.run(&["remove", &digest, "--if-unmodified-since", "0", "--coordination", "process"]);
    assert_refused(&uncoordinated, 1, "invalid_configuration");
}

#[test]
fn a_backup_whose_marker_was_lost_has_failed() {
    let store = Store::new();
    let marker = store.objects().join(".backup-lease");
    let script = format!("rm {}", marker.display());
    let held = store.run(&["hold-backup-lease", "--", "sh", "-c", &script]);
    assert_refused(&held, 1, "unavailable");
    let absent = store.run(&["hold-backup-lease", "--", "/no/such/program"]);
    assert_refused(&absent, 1, "unavailable");
    assert!(!marker.exists());
}

#[test]
fn modes_obey_the_umask() {
    let store = Store::new();
    let (program, objects) = (env!("CARGO_BIN_EXE_leasehold"), store.objects());
    let line = format!("umask 0277; printf x | {program} store put - --objects {}", objects.display());
    // The shell sets the umask, which a process has once and its threads share.
    let ran = Command::new("sh").arg("-c").arg(&line).current_dir(store.dir.path()).output().unwrap();
    assert!(ran.status.success() || !is_root(), "{ran:?}");
    if is_root() {
        let digest = text(&ran.stdout).trim_end();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&store.path_of(digest)), mode(&store.objects())), (0o400, 0o500));
    }
}

fn is_root() -> bool {
    text(&Command::new("id").arg("-u").output().unwrap().stdout).trim_end() == "0"
}

#[test]
fn a_workspace_and_a_bare_directory_are_one_format() {
    let store = Store::new();
    let program = env!("CARGO_BIN_EXE_leasehold");
    let workspace = store.dir.path().join("ws");
    let init = Command::new(program).arg("init").arg(&workspace).output().unwrap();
    assert!(init.status.success(), "{init:?}");
    let run = |args: &[&str], input: &[u8]| {
        let mut command = Command::new(program);
        command.arg("store").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap()
    };
    let ws = workspace.to_str().unwrap();
    let put = run(&["put", "-", "-w", ws], b"shared");
    let digest = text(&put.stdout).trim_end().to_owned();
    let objects = workspace.join(".leasehold/objects");
    let bare = run(&["get", &digest, "--objects", objects.to_str().unwrap()], b"");
    assert_eq!(bare.stdout, b"shared");
    assert_eq!(run(&["get", &digest, "-w", ws], b"").stdout, b"shared");
    assert!(!objects.join(".staging").exists(), "a workspace has a staging of its own");
}
