//! A shared store behind a workspace: what is only there is read, and no failure of it is a wrong byte or a hang.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::{Mount, Workspace, eventually, sha256};
use crate::kernel;
use crate::serve::Serving;

fn blob_of(workspace: &Workspace, bytes: &[u8]) -> PathBuf {
    let hex = sha256(bytes);
    workspace.dot("objects").join(&hex[..2]).join(hex)
}

/// A server of a bare directory beside the workspace.
fn server(workspace: &Workspace, listen: &str) -> Serving {
    let objects = workspace.beside("shared");
    Serving::start_at(listen, &workspace.root(), &["--objects".as_ref(), objects.as_ref()])
}

fn set_remote(workspace: &Workspace, address: &str, more: &str) {
    workspace.set_policy(&format!("[remote]\nurl = 'http://{address}'\n{more}"));
}

/// A workspace with two documents whose bytes the server has, too.
fn shared_workspace(policy: &str) -> Option<(Workspace, Serving)> {
    let workspace = Workspace::with(&[("gone.txt", b"elsewhere"), ("here.txt", b"here")])?;
    let serving = server(&workspace, "127.0.0.1:0");
    set_remote(&workspace, serving.address(), &format!("policy = '{policy}'"));
    workspace.run(&["share"]).ok();
    Some((workspace, serving))
}

/// The errno of a read that fails.
fn read_error(mount: &Mount, name: &str) -> Option<i32> {
    fs::read(mount.path(name)).expect_err("BUG: the bytes are nowhere").raw_os_error()
}

/// What the status says is not shared: changes, and whether a failure is told.
fn unshared(status: &Value) -> (u64, bool) {
    (status["sharing"]["changes"].as_u64().unwrap(), status["sharing"]["failure"].is_string())
}

/// Missing or damaged here: the bytes come from the shared store, and stay as the policy says.
#[test]
fn what_is_not_whole_here_is_read_from_the_shared_store() {
    for (policy, damaged, is_kept) in [
        ("toplevel", false, true),
        ("toplevel", true, true),
        ("minimal", false, false),
        ("minimal", true, true),
    ] {
        let Some((workspace, serving)) = shared_workspace(policy) else { return };
        let blob = blob_of(&workspace, b"elsewhere");
        fs::remove_file(&blob).unwrap();
        if damaged {
            fs::write(&blob, b"elsewherf").unwrap();
        }
        let ada = workspace.mount("ada");
        let case = format!("{policy}, damaged: {damaged}");
        assert_eq!(ada.read("gone.txt"), b"elsewhere", "{case}");
        assert_eq!(fs::read(&blob).ok(), is_kept.then(|| b"elsewhere".to_vec()), "{case}");
        assert_eq!(workspace.run(&["cat", "gone.txt"]).ok(), "elsewhere");
        let staged = fs::read_dir(workspace.dot("staging")).unwrap().count();
        assert_eq!(staged, 0, "{case}: nothing is left of a download");
        ada.app().overwrite(&ada.path("gone.txt"), b"new").unwrap();
        ada.check_in();
        drop(serving);
        assert_eq!((ada.read("gone.txt"), ada.read("here.txt")), (b"new".to_vec(), b"here".to_vec()));
        workspace.assert_store_is_sound();
    }
}

/// With the policy `all` a mount fetches ahead.
#[test]
fn what_the_head_names_is_fetched_before_anybody_reads_it() {
    let Some((workspace, _serving)) = shared_workspace("all") else { return };
    let blob = blob_of(&workspace, b"elsewhere");
    fs::remove_file(&blob).unwrap();
    let _ada = workspace.mount("ada");
    eventually("the blob", || fs::read(&blob).ok().filter(|bytes| bytes == b"elsewhere"));
}

/// How a server misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nobody listens.
    Dead,
    /// Takes the request and says nothing.
    Stalled,
    /// Sends other bytes of the right length.
    Lying,
    /// Sends the client to somebody who has the bytes.
    Redirecting,
    /// Sends half of what it has declared.
    Cut,
    /// Sends a page, as a portal for guests does.
    Portal,
}

/// A server that misbehaves until it is dropped.
struct Stub {
    address: String,
    ended: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Stub {
    fn start(fault: Fault, elsewhere: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let ended = Arc::<AtomicBool>::default();
        if fault == Fault::Dead {
            return Self { address, ended, thread: None };
        }
        let (until, elsewhere) = (Arc::clone(&ended), elsewhere.to_owned());
        let thread = thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming() {
                if until.load(Ordering::Relaxed) {
                    return;
                }
                let mut stream = stream.unwrap();
                let answer = match fault {
                    Fault::Dead | Fault::Stalled => {
                        held.push(stream);
                        continue;
                    }
                    Fault::Lying => "200 OK\r\nContent-Length: 9\r\n\r\nelsewherf".to_owned(),
                    Fault::Cut => "200 OK\r\nContent-Length: 9\r\n\r\nelse".to_owned(),
                    Fault::Portal => {
                        "200 OK\r\nContent-Type: text/html\r\n\r\n<html>log in</html>".to_owned()
                    }
                    Fault::Redirecting => {
                        format!(
                            "307 Temporary Redirect\r\nLocation: http://{elsewhere}/cas/{}\r\n\r\n",
                            sha256(b"elsewhere")
                        )
                    }
                };
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(format!("HTTP/1.1 {answer}").as_bytes());
            }
        });
        Self { address, ended, thread: Some(thread) }
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(&self.address);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Answers each request for a blob with `bytes`, when something is said to `go`; tells of each before. Others get 404.
fn answer_late(bytes: &'static [u8]) -> (String, Receiver<()>, Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let ((asked, hear), (go, wait)) = (channel(), channel());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut request) = (stream.unwrap(), [0; 4096]);
            let count = stream.read(&mut request).unwrap_or(0);
            let mut answer =
                b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec();
            if request[..count].starts_with(b"GET") {
                // The test may have ended.
                let _ = asked.send(());
                let _ = wait.recv();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    bytes.len()
                );
                answer = [head.as_bytes(), bytes].concat();
            }
            let _ = stream.write_all(&answer);
        }
    });
    (address, hear, go)
}

/// A file is replaced while somebody who opens it waits for its old bytes: nobody sees those under the new size.
#[test]
fn a_save_overtakes_a_download() {
    let Some((workspace, _serving)) = shared_workspace("minimal") else { return };
    fs::remove_file(blob_of(&workspace, b"elsewhere")).unwrap();
    let (address, asked, go) = answer_late(b"elsewhere");
    set_remote(&workspace, &address, "policy = 'minimal'\ndownload_timeout = '20s'");
    let ada = workspace.mount("ada");
    let (late, early) = (ada.app(), ada.app());
    thread::scope(|scope| {
        let opening = scope.spawn(|| late.open(&ada.path("gone.txt"), libc::O_RDWR).unwrap());
        asked.recv_timeout(Duration::from_secs(10)).unwrap();
        early.overwrite(&ada.path("gone.txt"), b"saved").unwrap();
        go.send(()).unwrap();
        let opened = opening.join().unwrap();
        assert_eq!(late.read(opened, 0, 100).unwrap(), b"saved");
        assert_eq!(ada.read("gone.txt"), b"saved");
        late.close(opened).unwrap();
    });
    assert_eq!(ada.read("gone.txt"), b"saved");
}

/// However the shared store fails: an error in bounded time for what is only there, and nothing for anything else.
#[test]
fn a_shared_store_that_fails_is_an_error_for_what_it_alone_has() {
    use Fault::{Cut, Dead, Lying, Portal, Redirecting, Stalled};
    for fault in [Dead, Stalled, Lying, Redirecting, Cut, Portal] {
        let Some((workspace, serving)) = shared_workspace("toplevel") else { return };
        fs::remove_file(blob_of(&workspace, b"elsewhere")).unwrap();
        let stub = Stub::start(fault, serving.address());
        set_remote(
            &workspace,
            &stub.address,
            "policy = 'toplevel'\ndownload_timeout = '1s'\nupload_timeout = '2s'",
        );
        let ada = workspace.mount("ada");
        thread::scope(|scope| {
            // More than there are threads for it.
            let waiting: Vec<_> = (0..20).map(|_| scope.spawn(|| read_error(&ada, "gone.txt"))).collect();
            assert_eq!(ada.read("here.txt"), b"here", "{fault:?}");
            for reading in waiting {
                assert_eq!(reading.join().unwrap(), Some(libc::EIO), "{fault:?}");
            }
        });
        assert_eq!(kernel::truncate(&ada.path("gone.txt"), 1), Err(kernel::EIO), "{fault:?}");
        ada.app().overwrite(&ada.path("here.txt"), b"goes on").unwrap();
        ada.check_in();
        assert_eq!(workspace.run(&["cat", "here.txt"]).ok(), "goes on", "{fault:?}");
        workspace.run(&["cat", "gone.txt"]).refused(1);
        workspace.assert_store_is_sound();
        let status =
            eventually("a failure in the status", || Some(ada.status()).filter(|status| unshared(status).1));
        assert_eq!(unshared(&status).0, 1, "{fault:?}: {status}");
        // What replaces all old bytes needs none of them.
        ada.app().overwrite(&ada.path("gone.txt"), b"written anew").unwrap();
        assert_eq!(ada.read("gone.txt"), b"written anew");
        ada.unmount();
    }
}

/// A check-in is complete without the shared store; when that is back, it gets what it missed.
#[test]
fn a_check_in_waits_for_no_shared_store_and_is_shared_later() {
    let Some((workspace, mut serving)) = shared_workspace("all") else { return };
    let address = serving.address().to_owned();
    serving.end_by(libc::SIGTERM);
    let ada = workspace.mount("ada");
    assert_eq!(unshared(&ada.status()), (0, false));
    ada.app().overwrite(&ada.path("here.txt"), b"second").unwrap();
    ada.check_in();
    let status =
        eventually("the failure", || Some(ada.status()).filter(|status| unshared(status) == (1, true)));
    assert_eq!((&status["sharing"]["blobs"], &status["sharing"]["bytes"]), (&2.into(), &6.into()));
    let text = ada.run(&["status"]).ok();
    assert!(text.contains("not shared yet: 1 changes, 2 blobs, 6 B"), "{text}");
    let line = workspace.run(&["share"]).refused(1);
    assert!(line.contains("not everything is shared") && !line.contains(&address), "{line}");
    let serving = server(&workspace, &address);
    workspace.run(&["share"]).ok();
    assert_eq!(unshared(&ada.status()), (0, false));
    let shared = |bytes: &[u8]| {
        let hex = sha256(bytes);
        workspace.beside("shared").join(&hex[..2]).join(hex)
    };
    assert_eq!(fs::read(shared(b"second")).unwrap(), b"second");
    // By the mount itself, and by a command where nothing is mounted.
    ada.app().overwrite(&ada.path("here.txt"), b"third").unwrap();
    ada.check_in();
    eventually("the upload", || (unshared(&ada.status()) == (0, false)).then_some(()));
    assert_eq!(fs::read(shared(b"third")).unwrap(), b"third");
    ada.app().overwrite(&ada.path("here.txt"), b"fourth").unwrap();
    ada.run(&["settle"]).ok();
    ada.unmount();
    workspace.run(&["checkin", "--as", "ada", "--checkout", "desk", "-m", "unmounted"]).ok();
    assert_eq!(fs::read(shared(b"fourth")).unwrap(), b"fourth");
    drop(serving);
}

/// A check-in and an unmount don't wait for a store that stands still, however long an upload may take.
#[test]
fn a_shared_store_that_stands_still_holds_up_neither_check_in_nor_unmount() {
    let Some(workspace) = Workspace::with_document() else { return };
    let stub = Stub::start(Fault::Stalled, "");
    set_remote(&workspace, &stub.address, "upload_timeout = '1h'");
    let ada = workspace.mount("ada");
    ada.app().overwrite(&ada.path("doc.txt"), b"new").unwrap();
    ada.check_in();
    assert_eq!(unshared(&ada.status()).0, 2);
    ada.unmount();
    assert_eq!(workspace.run(&["cat", "doc.txt"]).ok(), "new");
}

/// What is lost here and is there comes back, history included.
#[test]
fn a_check_heals_from_the_shared_store() {
    let Some((workspace, serving)) = shared_workspace("all") else { return };
    fs::remove_file(blob_of(&workspace, b"elsewhere")).unwrap();
    fs::remove_file(blob_of(&workspace, b"here")).unwrap();
    fs::write(blob_of(&workspace, b"here"), b"damaged").unwrap();
    workspace.run(&["fsck"]).refused(1);
    let report = workspace.run(&["fsck", "--repair", "--json"]).json();
    assert_eq!(report["lost"], Value::Array(Vec::new()));
    drop(serving);
    workspace.run(&["fsck"]).ok();
    assert_eq!(workspace.run(&["cat", "here.txt"]).ok(), "here");
}

/// Without a shared store there is nothing to share, and the status has no word of it.
#[test]
fn a_workspace_without_a_shared_store_shares_nothing() {
    let Some(workspace) = Workspace::with_document() else { return };
    assert!(workspace.run(&["share"]).refused(1).contains("no shared store is configured"));
    let status = workspace.run(&["status", "--json"]).json();
    assert_eq!(status["sharing"], Value::Null);
    set_remote(&workspace, "cache.example/sesame", "");
    let line = workspace.run(&["gc"]).refused(1);
    assert!(!line.contains("sesame") && line.contains("config.toml: [remote]: "), "{line}");
    let looked = workspace.run(&["status"]);
    assert!(looked.status == 0 && looked.stderr.contains("config.toml: [remote]: "), "{}", looked.stderr);
    assert!(!looked.stderr.contains("sesame"), "{}", looked.stderr);
}
