use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::{Patience, ServeError, ServeOptions, Server, Source, Tokens};
use crate::blobs::{
    BlobError, BlobStore, DiskParts, DiskSettings, DiskStore, HttpOptions, HttpStore, MemoryStamps,
    TransportFault, contract, digest_of,
};
use crate::clock::SystemClock;
use crate::ids::SystemIds;
use crate::model::Digest;

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);
/// Shorter than a test, longer than an exchange on loopback takes on a busy machine.
const SHORT: Duration = Duration::from_millis(300);

/// A server of a directory of its own, until it is dropped.
struct Running {
    dir: TempDir,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

fn options() -> ServeOptions {
    ServeOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        tokens: Tokens::default(),
        max_body_bytes: 8 << 20,
        max_requests: 16,
        patience: Patience { head: LONG, silence: LONG, stop: LONG, linger: SHORT },
    }
}

impl Running {
    fn new() -> Self {
        Self::with(options())
    }

    fn with(options: ServeOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = store_in(dir.path());
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let source = Source::Objects(Box::new(store));
                let clock = Arc::new(SystemClock::new().unwrap());
                let server = Server::bind(options, source, clock).await.unwrap();
                tell.send(server.address()).unwrap();
                server.run(async { drop(stopped.await) }).await;
            });
            runtime.shutdown_timeout(Duration::from_secs(2));
        });
        Self { address: told.recv().unwrap(), dir, stop: Some(stop), thread: Some(thread) }
    }

    /// With a token for all, `all`, and one for reading, `look`.
    fn with_tokens() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| -> PathBuf {
            let path = dir.path().join(name);
            fs::write(&path, name).unwrap();
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            path
        };
        let tokens = Tokens::from_files(Some(&file("all")), Some(&file("look"))).unwrap();
        Self::with(ServeOptions { tokens, ..options() })
    }

    fn store(&self) -> HttpStore {
        let options = HttpOptions::new(format!("http://{}", self.address), std::env::temp_dir());
        HttpStore::new(options, Arc::new(SystemClock::new().unwrap())).unwrap()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream
    }

    /// Sends one request as it stands, and returns the whole answer.
    fn ask(&self, request: &[u8]) -> Answer {
        let mut stream = self.connect();
        stream.write_all(request).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        Answer::read(&mut stream)
    }

    fn request(&self, line: &str, headers: &str, body: &[u8]) -> Answer {
        self.ask(&request(line, headers, body))
    }

    /// Ends the server, and waits until it has ended.
    fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    /// What the server has stored or is storing.
    fn files(&self) -> Vec<PathBuf> {
        let mut dirs = vec![self.dir.path().to_owned()];
        let mut files = Vec::new();
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_dir() { &mut dirs } else { &mut files }.push(entry.path());
            }
        }
        files.retain(|file: &PathBuf| !file.to_string_lossy().contains("/.locks/spare-"));
        files
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Looks at something until it is so.
fn eventually(is_so: impl Fn() -> bool) {
    for _ in 0..6000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("BUG: not within half a minute");
}

fn store_in(dir: &Path) -> DiskStore {
    let stamps = Arc::new(MemoryStamps::default());
    let parts = DiskParts {
        settings: DiskSettings::default(),
        stamps,
        ids: Arc::new(SystemIds),
        clock: Arc::new(SystemClock::new().unwrap()),
    };
    DiskStore::bare(&dir.join("objects"), &parts).unwrap()
}

fn request(line: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{line} HTTP/1.1\r\nHost: test\r\n{headers}\r\n").into_bytes();
    bytes.extend(body);
    bytes
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    /// Reads up to the end of the connection; the tests' requests are the last on theirs.
    fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        // A reset comes after the answer, if at all.
        let _ = stream.read_to_end(&mut bytes);
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("BUG: no answer");
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head, body: bytes[end + 4..].to_vec() }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

fn length(bytes: &[u8]) -> String {
    format!("Content-Length: {}\r\n", bytes.len())
}

fn put_line(bytes: &[u8]) -> String {
    format!("PUT /cas/{}", digest_of(bytes))
}

#[test]
fn a_served_store_keeps_the_contract_of_stores() {
    let servers = Mutex::new(Vec::new());
    contract::holds(|| {
        let server = Running::new();
        let store = server.store();
        servers.lock().push(server);
        store
    });
}

#[test]
fn blobs_go_both_ways_whatever_their_size() {
    let server = Running::new();
    let store = server.store();
    for size in [0, 1, 1 << 20, (1 << 20) + 1, 5 << 20] {
        let bytes: Vec<u8> = (0..size).map(|i: u32| (i / 3 % 251) as u8).collect();
        let put = |headers: &str| server.request(&put_line(&bytes), headers, &bytes).status;
        assert_eq!([put(&length(&bytes)), put(&length(&bytes))], [201, 200], "{size}");
        let line = |method| format!("{method} /cas/{}", digest_of(&bytes));
        let got = server.request(&line("GET"), "Connection: close\r\n", b"");
        assert_eq!((got.status, got.header("content-type")), (200, Some("application/octet-stream")));
        assert!(got.body == bytes, "{size}");
        let told = server.request(&line("HEAD"), "Connection: close\r\n", b"");
        assert_eq!((told.status, told.body.len()), (200, 0), "{size}");
        let size = size.to_string();
        assert_eq!(
            [got, told].map(|answer| answer.header("content-length").map(str::to_owned)),
            [Some(size.clone()), Some(size)]
        );
        store
            .put_known(&digest_of(&bytes), bytes.len() as u64, Box::new(std::io::Cursor::new(bytes)))
            .unwrap();
    }
    assert_eq!(server.files().len(), 5, "and nothing is left in staging");
}

#[test]
fn a_body_of_unknown_length_is_taken_and_one_too_long_is_not() {
    let server = Running::new();
    let chunked = "Transfer-Encoding: chunked\r\n";
    assert_eq!(server.request(&put_line(b"abc"), chunked, b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n").status, 201);
    assert_eq!(server.request(&put_line(b"other"), chunked, b"1\r\na\r\n2\r\nbc\r\n0\r\n\r\n").status, 400);
    assert_eq!(server.request(&put_line(b"abd"), chunked, b"3\r\nabd\r\n").status, 400, "no end");
    let large = vec![1; (8 << 20) + 1];
    assert_eq!(
        server.request(&put_line(&large), &length(&large), b"").status,
        413,
        "before any of it is read"
    );
    let mut body = format!("{:x}\r\n", large.len()).into_bytes();
    body.extend(&large);
    body.extend(b"\r\n0\r\n\r\n");
    let mut stream = server.connect();
    let _ = stream.write_all(&request(&put_line(&large), chunked, &body));
    assert_eq!(Answer::read(&mut stream).status, 413);
    assert_eq!(server.files().len(), 1);
}

/// Whatever is wrong, it is told, and nothing of it stays.
#[test]
fn refusals() {
    let server = Running::new();
    let hex = digest_of(b"x").to_hex();
    let blob = |method: &str| format!("{method} /cas/{hex}");
    let json = "Content-Type: application/json\r\n";
    let ask = |body: &str| {
        server
            .request("POST /cas/findMissing", &format!("{json}{}", length(body.as_bytes())), body.as_bytes())
            .status
    };
    for address in [
        "".to_owned(),
        hex[1..].to_owned(),
        format!("{hex}0"),
        hex.to_uppercase(),
        format!("%20{hex}"),
        format!("%{:x}{}", hex.as_bytes()[0], &hex[1..]),
        format!("{hex}%0a"),
        "findmissing".to_owned(),
        format!("{}/{}", &hex[..2], &hex[2..]),
        "..%2f..%2fetc%2fpasswd".to_owned(),
        "x".repeat(60_000),
    ] {
        for method in ["GET", "HEAD", "PUT"] {
            let answer = server.request(&format!("{method} /cas/{address}"), "Content-Length: 0\r\n", b"");
            assert_eq!(answer.status, 400, "{method} {address:.100}");
            let echoed = address.len() > 8 && String::from_utf8_lossy(&answer.body).contains(&address);
            assert!(!echoed, "{method} {address:.100}");
        }
    }
    assert_eq!(server.request(&blob("GET"), "", b"").status, 404);
    assert_eq!(server.request(&blob("HEAD"), "", b"").status, 404);
    assert_eq!(server.request("GET /ac/x", "", b"").status, 404);
    for (line, allowed) in [
        (blob("DELETE"), "get,head,put"),
        (blob("POST"), "get,head,put"),
        ("GET /cas/findMissing".to_owned(), "post"),
        ("POST /metrics".to_owned(), "get,head"),
    ] {
        let answer = server.request(&line, "", b"");
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allowed)), "{line}");
    }
    let put = |headers: &str, body: &[u8]| server.request(&blob("PUT"), headers, body).status;
    assert_eq!(put("Content-Length: 1\r\n", b"y"), 400, "other bytes");
    assert_eq!(put("Content-Length: 2\r\n", b"x"), 400, "fewer than declared");
    assert_eq!(put("Content-Length: x\r\n", b"x"), 400);
    assert_eq!(put("Content-Length: 0\r\nContent-Range: bytes */1\r\n", b""), 400);
    assert_eq!(put("Content-Length: 1\r\nContent-Range: bytes 0-0/1\r\n", b"x"), 400);
    assert_eq!(put("Content-Length: 1\r\nContent-Type: text/html\r\n", b"x"), 415);
    assert_eq!(server.request("POST /cas/findMissing", &length(b"{}"), b"{}").status, 415);
    assert_eq!(
        server
            .request("POST /cas/findMissing", &format!("{json}Content-Length: 262145\r\n"), &[b' '; 262_145])
            .status,
        413
    );
    let many = |count: usize| serde_json::json!({ "digests": vec![&hex; count] }).to_string();
    assert_eq!([ask(&many(1000)), ask(&many(1001))], [200, 413]);
    for body in [
        "",
        "{",
        "[]",
        "null",
        "{}",
        r#"{"digests":"x"}"#,
        r#"{"digests":[1]}"#,
        r#"{"digests":["x"]}"#,
        r#"{"digests":[],"more":1}"#,
    ] {
        assert_eq!(ask(body), 400, "{body}");
    }
    let broken = [json.as_bytes(), b"Content-Length: 17\r\n"].concat();
    let broken = server.request(
        "POST /cas/findMissing",
        std::str::from_utf8(&broken).unwrap(),
        b"{\"digests\":[\"\xff\"]}",
    );
    assert_eq!(broken.status, 400, "bytes that are no UTF-8");
    assert_eq!(server.files(), Vec::<PathBuf>::new());
}

#[test]
fn find_missing_answers_in_the_order_asked() {
    let server = Running::new();
    let store = server.store();
    store.put(&mut &b"there"[..]).unwrap();
    let [there, one, two] = [digest_of(b"there"), digest_of(b"1"), digest_of(b"2")];
    assert_eq!(store.find_missing(&[two, there, one, two]).unwrap(), [two, one]);
    let many: Vec<Digest> = (0..1001_u32).map(|number| digest_of(&number.to_le_bytes())).collect();
    assert_eq!(store.find_missing(&many).unwrap(), many);
}

#[test]
fn corrupt_bytes_are_never_sent_and_a_put_heals_them() {
    let server = Running::new();
    let store = server.store();
    let (digest, _) = store.put(&mut &b"whole"[..]).unwrap();
    let path = store_in(server.dir.path()).path_of(&digest);
    fs::write(&path, b"wrong").unwrap();
    let answer = server.request(&format!("GET /cas/{digest}"), "Connection: close\r\n", b"");
    assert_eq!(answer.status, 500);
    assert!(!answer.body.windows(5).any(|five| five == b"wrong"));
    assert_eq!(server.request(&put_line(b"whole"), &length(b"whole"), b"whole").status, 200);
    assert_eq!(fs::read(&path).unwrap(), b"whole");
}

#[test]
fn tokens_say_who_may_read_and_who_may_write() {
    let server = Running::with_tokens();
    let status = |line: &str, token: &str| {
        let headers = format!("Authorization: {token}\r\nContent-Length: 1\r\n");
        server.request(line, &headers, b"x")
    };
    let (put, get) = (put_line(b"x"), format!("GET /cas/{}", digest_of(b"x")));
    for (line, token, expected) in [
        (&put, "Bearer look", 403),
        (&put, "Bearer wrong", 401),
        (&get, "Bearer wrong", 401),
        (&get, "Basic all", 401),
        (&"GET /metrics".to_owned(), "", 401),
        (&"GET /elsewhere".to_owned(), "", 401),
        (&put, "bearer all", 201),
        (&get, "BEARER look", 200),
        (&get, "Bearer all", 200),
        (&"GET /metrics".to_owned(), "Bearer look", 200),
        (&"GET /healthz".to_owned(), "", 200),
    ] {
        let answer = status(line, token);
        assert_eq!(answer.status, expected, "{line} {token}");
        assert_eq!(
            answer.header("www-authenticate"),
            (expected == 401).then_some("bearer"),
            "{line} {token}"
        );
    }
    let headers = vec![("Authorization".to_owned(), "Bearer look".to_owned())];
    let endpoint = format!("http://{}", server.address);
    let options = HttpOptions { headers, ..HttpOptions::new(endpoint, std::env::temp_dir()) };
    let reader = HttpStore::new(options, Arc::new(SystemClock::new().unwrap())).unwrap();
    assert!(reader.has(&digest_of(b"x")).unwrap());
    let refused = reader.put(&mut &b"y"[..]).unwrap_err();
    assert!(matches!(refused, BlobError::Transport { fault: TransportFault::Status(403), .. }));
}

/// A sender that is refused and never stops gets its answer, and holds nobody's place.
#[test]
fn a_refused_body_is_not_read() {
    let server = Running::with_tokens();
    let endless = |token: &str| {
        let mut stream = server.connect();
        let headers = format!("Authorization: Bearer {token}\r\nContent-Length: 1000000000000\r\n");
        stream.write_all(&request(&put_line(b"x"), &headers, b"")).unwrap();
        let mut reading = stream.try_clone().unwrap();
        let sender = std::thread::spawn(move || while stream.write_all(&[0; 1 << 16]).is_ok() {});
        let answer = Answer::read(&mut reading);
        sender.join().unwrap();
        answer
    };
    for (token, status) in [("look", 403), ("wrong", 401), ("all", 413)] {
        let answer = endless(token);
        assert_eq!((answer.status, answer.header("connection")), (status, Some("close")));
    }
    let metrics = server.request("GET /metrics", "Authorization: Bearer all\r\nConnection: close\r\n", b"");
    let text = String::from_utf8(metrics.body).unwrap();
    assert!(text.contains("leasehold_http_requests_in_progress 0\n"), "{text}");
    assert!(text.contains("leasehold_http_received_bytes_total 0\n"), "{text}");
}

#[test]
fn one_request_too_many_is_told_to_come_back_and_the_next_has_a_place() {
    let server = Running::with(ServeOptions { max_requests: 1, ..options() });
    let mut first = server.connect();
    first
        .write_all(&request(&put_line(b"abc"), "Expect: 100-continue\r\nContent-Length: 3\r\n", b""))
        .unwrap();
    let mut told = [0; 25];
    first.read_exact(&mut told).unwrap();
    assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n", "it has a place");
    let get = format!("GET /cas/{}", digest_of(b"abc"));
    let ask = |line: &str| server.request(line, "Connection: close\r\n", b"");
    let refused = ask(&get);
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!([ask("GET /healthz").status, ask("GET /metrics").status], [200, 200], "always");
    first.write_all(b"abc").unwrap();
    first.shutdown(Shutdown::Write).unwrap();
    assert_eq!(Answer::read(&mut first).status, 201);
    assert_eq!(ask(&get).status, 200);
}

#[test]
fn who_is_slow_is_dropped_and_leaves_nothing() {
    let patience = Patience { head: SHORT, silence: SHORT, ..options().patience };
    let server = Running::with(ServeOptions { patience, max_requests: 1, ..options() });
    let silent = |begin: &[u8]| {
        let mut stream = server.connect();
        stream.write_all(begin).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).split(' ').nth(1).map(str::to_owned)
    };
    assert_eq!(silent(b""), None, "says nothing at all");
    assert!(silent(b"GET /cas/").is_none_or(|status| status == "408"), "stops within the head");
    assert_eq!(silent(&request(&put_line(b"abc"), "Content-Length: 3\r\n", b"a")), Some("408".to_owned()));
    let json = "Content-Type: application/json\r\nContent-Length: 9\r\n";
    assert_eq!(silent(&request("POST /cas/findMissing", json, b"{")), Some("408".to_owned()));
    // Asks for more than the kernel takes for it, and reads nothing.
    let large = vec![3; 8 << 20];
    assert_eq!(server.request(&put_line(&large), &length(&large), &large).status, 201);
    let mut deaf = server.connect();
    let get = request(&format!("GET /cas/{}", digest_of(&large)), "", b"");
    for _ in 0..4 {
        deaf.write_all(&get).unwrap();
    }
    // The one place is free again when it is given up.
    eventually(|| server.request("GET /cas/none", "Connection: close\r\n", b"").status == 400);
    assert_eq!(server.files().len(), 1);
}

#[test]
fn a_sender_that_goes_away_leaves_nothing() {
    let mut server = Running::new();
    let large = vec![5; 4 << 20];
    let mut stream = server.connect();
    stream.write_all(&request(&put_line(&large), &length(&large), &large[..3 << 20])).unwrap();
    drop(stream);
    server.stop();
    assert_eq!(server.files(), Vec::<PathBuf>::new());
}

#[test]
fn a_stop_lets_requests_end_and_takes_no_more() {
    let mut server = Running::new();
    let mut last = server.connect();
    last.write_all(&request(&put_line(b"abc"), "Expect: 100-continue\r\nContent-Length: 3\r\n", b""))
        .unwrap();
    last.read_exact(&mut [0; 25]).unwrap();
    drop(server.stop.take());
    eventually(|| TcpStream::connect(server.address).is_err());
    last.write_all(b"abc").unwrap();
    assert_eq!(Answer::read(&mut last).status, 201);
    server.stop();
    assert_eq!(server.files().len(), 1);
}

#[test]
fn metrics_count_what_was_done() {
    let server = Running::new();
    let store = server.store();
    for bytes in [&b"a"[..], b"a", b"bb"] {
        store.put(&mut &bytes[..]).unwrap();
    }
    store.get(&digest_of(b"bb")).unwrap();
    assert!(store.get(&digest_of(b"missing")).is_err());
    assert!(store.has(&digest_of(b"a")).unwrap());
    let text = String::from_utf8(server.request("GET /metrics", "Connection: close\r\n", b"").body).unwrap();
    for line in [
        "# TYPE flows_artifact_puts counter",
        "flows_artifact_puts 3",
        "flows_artifact_gets 1",
        "flows_artifact_remote_failures 0",
        "flows_artifact_remote_failures{operation=\"put\"} 0",
        "flows_artifact_remote_failures{operation=\"write_back\"} 0",
        "leasehold_http_requests_total{method=\"PUT\",status=\"201\"} 2",
        "leasehold_http_requests_total{method=\"PUT\",status=\"200\"} 1",
        "leasehold_http_requests_total{method=\"GET\",status=\"404\"} 1",
        "leasehold_http_received_bytes_total 4",
        "leasehold_http_sent_bytes_total 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
}

#[test]
fn others_are_let_in_only_with_a_token() {
    for listen in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let open = ServeOptions { listen: listen.parse().unwrap(), ..options() };
        assert!(matches!(open.check(), Err(ServeError::OpenToAll(_))), "{listen}");
    }
    for listen in ["127.0.0.1:0", "127.9.9.9:0", "[::1]:0"] {
        assert!(ServeOptions { listen: listen.parse().unwrap(), ..options() }.check().is_ok(), "{listen}");
    }
}
