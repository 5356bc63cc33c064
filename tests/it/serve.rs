//! `leasehold serve` as a process: where it listens, what it serves, whom it refuses, and how it ends.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::kernel;
use crate::mounted::{PATIENCE, program, run, sha256};

/// A server, ended when it is dropped.
pub struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    fn start(dir: &Path, args: &[&OsStr]) -> Self {
        Self::start_at("127.0.0.1:0", dir, args)
    }

    /// Starts a server that listens at an address.
    pub fn start_at(listen: &str, dir: &Path, args: &[&OsStr]) -> Self {
        let mut child = Command::new(program())
            .args(["serve", "--listen", listen])
            .args(args)
            .current_dir(dir)
            .env_remove("LEASEHOLD_WORKSPACE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("listening on http://").expect(&line).to_owned();
        Self { child, address }
    }

    /// Where it listens: address and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends one request, and returns its answer's status and body.
    fn ask(&self, line: &str, headers: &str, body: &[u8]) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let length = body.len();
        let head = format!(
            "{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
        );
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let status = String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap().to_owned();
        (status, answer.split_off(end + 4))
    }

    /// Sends a signal, and returns the exit status.
    pub fn end_by(&mut self, signal: i32) -> Option<i32> {
        let pid = i32::try_from(self.child.id()).unwrap();
        kernel::kill(pid, signal);
        self.child.wait().unwrap().code()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn token_file(dir: &Path, mode: u32) -> std::path::PathBuf {
    let path = dir.join("token");
    fs::write(&path, "sesame\n").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path
}

/// What a change names by its digest is fetched from the workspace, and what is put there is a blob of its store.
#[test]
fn the_blobs_of_a_workspace_are_served_and_a_signal_ends_it_well() {
    let dir = tempfile::tempdir().unwrap();
    let (from, root) = (dir.path().join("from"), dir.path().join("ws"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("doc"), b"a document").unwrap();
    run(dir.path(), &[OsStr::new("init"), root.as_ref(), "--from".as_ref(), from.as_ref()]).ok();
    let log = run(&root, &["log", "--json"]).json();
    let digest = log[0]["items"][0]["digest"].as_str().unwrap();
    let digest = digest.strip_prefix("sha256:").unwrap_or(digest).to_owned();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut serving = Serving::start(&root, &[]);
        let get = serving.ask(&format!("GET /cas/{digest}"), "", b"");
        assert_eq!(get, ("200".to_owned(), b"a document".to_vec()));
        let new = sha256(&signal.to_le_bytes());
        assert_eq!(serving.ask(&format!("PUT /cas/{new}"), "", &signal.to_le_bytes()).0, "201");
        let blob = root.join(".leasehold/objects").join(&new[..2]).join(&new);
        assert_eq!(fs::read(blob).unwrap(), signal.to_le_bytes());
        assert_eq!(serving.end_by(signal), Some(0));
        assert!(TcpStream::connect(&serving.address).is_err());
    }
    assert_eq!(fs::read_dir(root.join(".leasehold/staging")).unwrap().count(), 0);
}

/// A directory is served as it is, and what is below it has the store's names and nothing else.
#[test]
fn a_bare_directory_is_served_with_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let token = token_file(dir.path(), 0o600);
    let objects = dir.path().join("objects");
    let serving = Serving::start(
        dir.path(),
        &["--objects".as_ref(), objects.as_ref(), "--token-file".as_ref(), token.as_ref()],
    );
    let digest = sha256(b"blob");
    let put = |headers: &str| serving.ask(&format!("PUT /cas/{digest}"), headers, b"blob").0;
    assert_eq!([put(""), put("Authorization: Bearer sesame\r\n")], ["401", "201"]);
    assert_eq!(fs::read(objects.join(&digest[..2]).join(&digest)).unwrap(), b"blob");
    let names: Vec<_> = fs::read_dir(&objects).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let known = [".staging", ".locks", &digest[..2]];
    assert!(names.iter().all(|name| known.iter().any(|known| name == known)), "{names:?}");
}

/// What would be open to others doesn't start, and says why in one line without the token.
#[test]
fn what_would_be_open_to_others_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |args: &[&str], status: i32| {
        let args = [&["serve", "--objects", "o"], args].concat();
        run(dir.path(), &args).refused(status)
    };
    assert!(refused(&["--listen", "0.0.0.0:0"], 2).contains("--token-file"));
    for mode in [0o644, 0o640, 0o604] {
        token_file(dir.path(), mode);
        for option in ["--token-file", "--read-only-token-file"] {
            let line = refused(&["--listen", "0.0.0.0:0", option, "token"], 1);
            assert!(line.contains("token") && !line.contains("sesame"), "{line}");
        }
    }
    refused(&["--token-file", "absent"], 1);
    let line = run(dir.path(), &["serve", "--listen", "127.0.0.1:0"]).refused(2);
    assert!(line.contains("no workspace here"), "{line}");
    assert!(!dir.path().join("o").exists(), "nothing is made");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert!(refused(&["--listen", &address], 1).contains("can't listen"));
}
