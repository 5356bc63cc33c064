mod chunks;
mod nginx;
mod secrets;
mod stub;

use std::collections::HashSet;
use std::io::{self, Read};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use parking_lot::Mutex;

use self::nginx::Nginx;
use self::stub::{Answer, Cache, Request, Stub, answer, with_headers};
use super::{HttpOptions, HttpStore};
use crate::blobs::{BlobError, BlobStore, TransportFault, contract, digest_of};
use crate::clock::SystemClock;
use crate::model::Digest;

/// Shorter than any test, longer than a few exchanges on loopback take on a busy machine.
const SHORT: Duration = Duration::from_millis(400);

fn options(endpoint: String) -> HttpOptions {
    HttpOptions::new(endpoint, std::env::temp_dir())
}

fn store_with(options: HttpOptions) -> HttpStore {
    HttpStore::new(options, Arc::new(SystemClock::new().unwrap())).unwrap()
}

fn store(endpoint: String) -> HttpStore {
    store_with(options(endpoint))
}

fn read(store: &HttpStore, bytes: &[u8]) -> Result<Vec<u8>, BlobError> {
    let mut found = Vec::new();
    store.get(&digest_of(bytes))?.read_to_end(&mut found).unwrap();
    Ok(found)
}

fn put(store: &HttpStore, bytes: &[u8]) -> Result<Digest, BlobError> {
    store.put(&mut &bytes[..]).map(|(digest, _)| digest)
}

fn put_known(store: &HttpStore, digest: Digest, size: u64, source: Vec<u8>) -> Result<(), BlobError> {
    store.put_known(&digest, size, Box::new(io::Cursor::new(source)))
}

/// Takes a transport failure for granted.
fn fault<T>(result: Result<T, BlobError>) -> TransportFault {
    let error = result.err().expect("BUG: it went well");
    assert_eq!(error.code(), "transport_failed", "{error}");
    let BlobError::Transport { fault, .. } = error else { panic!("BUG: {error:?}") };
    fault
}

/// Each thing that the store can be asked for, by its method.
const VERBS: [&str; 4] = ["GET", "HEAD", "PUT", "POST"];

fn ask(store: &HttpStore, verb: &str) -> Result<(), BlobError> {
    let digest = digest_of(b"x");
    match verb {
        "GET" => store.get(&digest).map(drop),
        "HEAD" => store.has(&digest).map(drop),
        "PUT" => put(store, b"x").map(drop),
        _ => store.find_missing(&[digest]).map(drop),
    }
}

#[test]
fn a_store_elsewhere_keeps_the_contract_with_and_without_find_missing() {
    for without_find_missing in [false, true] {
        let servers = Mutex::new(Vec::new());
        contract::holds(|| {
            let server = Arc::new(Cache { without_find_missing, ..Cache::default() }).serve();
            let store = store(server.endpoint());
            servers.lock().push(server);
            store
        });
    }
}

#[test]
fn nginx_as_a_plain_cache_keeps_the_contract() {
    let servers = Mutex::new(Vec::new());
    let Some(_) = Nginx::start() else { return };
    contract::holds(|| {
        let server = Nginx::start().unwrap();
        let store = store(server.endpoint());
        servers.lock().push(server);
        store
    });
}

#[test]
fn a_truncated_file_of_nginx_is_corrupt_and_a_put_heals_it() {
    let Some(server) = Nginx::start() else { return };
    let store = store(server.endpoint());
    let digest = put(&store, b"whole").unwrap();
    std::fs::write(server.file(&digest.to_hex()), b"who").unwrap();
    assert!(store.has(&digest).unwrap(), "there, whatever it is");
    assert!(
        matches!(read(&store, b"whole"), Err(BlobError::Corrupt { found, .. }) if found == digest_of(b"who"))
    );
    put(&store, b"whole").unwrap();
    assert_eq!(read(&store, b"whole").unwrap(), b"whole");
}

#[test]
fn tls_needs_a_certificate_that_is_trusted() {
    let Some(server) = Nginx::start_with_tls() else { return };
    assert_eq!(fault(put(&store(server.endpoint()), b"secret")), TransportFault::Tls);
    let trusting =
        HttpOptions { root_certificates: Some(server.certificate()), ..options(server.endpoint()) };
    let store = store_with(trusting);
    put(&store, b"secret").unwrap();
    assert_eq!(read(&store, b"secret").unwrap(), b"secret");
}

#[test]
fn endpoints_are_checked_and_never_repeated() {
    let refused = [
        "",
        "secret",
        "secret.example/x",
        "//secret.example",
        "http://",
        "https://",
        "http://secret.example",
        "http://10.0.0.1",
        "http://127.0.0.2",
        "http://a.localhost",
        "http://localhost.",
        "http://localhost.secret.example",
        "http://[::2]",
        "ftp://127.0.0.1",
        "file:///secret",
        "unix:/secret",
        "https://user@secret.example",
        "https://:secret@secret.example",
        "http://user:secret@127.0.0.1",
        "https://secret.example?",
        "https://secret.example/x?secret",
        "https://secret.example/#",
        "https://secret.example/x#secret",
        "https://secret.example:99999",
    ];
    for endpoint in refused {
        let error = HttpStore::new(options(endpoint.into()), Arc::new(SystemClock::new().unwrap()));
        let error = error.expect_err(endpoint);
        assert_eq!(error.code(), "invalid_configuration", "{endpoint}");
        assert!(!format!("{error} {error:?}").contains("secret"), "{endpoint}: {error:?}");
    }
    let kept = [
        ("https://cache.example", "https://cache.example/cas/"),
        ("https://cache.example:8443/x/y///", "https://cache.example:8443/x/y/cas/"),
        ("http://localhost:1", "http://localhost:1/cas/"),
        ("http://127.0.0.1:1/", "http://127.0.0.1:1/cas/"),
        ("http://[::1]:1/a%20b", "http://[::1]:1/a%20b/cas/"),
    ];
    for (endpoint, base) in kept {
        assert_eq!(store(endpoint.into()).base, base);
    }
}

#[test]
fn localhost_is_this_machine_whatever_name_servers_say() {
    let server = Arc::new(Cache::default()).serve();
    let endpoint = server.endpoint().replace("127.0.0.1", "localhost");
    assert!(put(&store(endpoint), b"x").is_ok());
}

#[test]
fn headers_and_bounds_are_checked_and_never_repeated() {
    let long = "s".repeat(16_385);
    let headers =
        [("a b", "secret"), ("", "secret"), ("é", "secret"), ("a:", "secret"), ("secret\r\nx", "y")];
    let values = ["secret\r\nx: y", "secret\n", "\tsecret", "secret\0", "secret\u{7f}", long.as_str()];
    let headers = headers.into_iter().chain(values.map(|value| ("x-token", value)));
    let good = || options("http://127.0.0.1:1".into());
    let with_header =
        |(name, value): (&str, &str)| HttpOptions { headers: vec![(name.into(), value.into())], ..good() };
    let mut refused: Vec<HttpOptions> = headers.map(with_header).collect();
    for deadline in [Duration::ZERO, Duration::MAX] {
        refused.push(HttpOptions { download_deadline: deadline, ..good() });
        refused.push(HttpOptions { upload_deadline: deadline, ..good() });
        refused.push(HttpOptions { probe_deadline: deadline, ..good() });
    }
    refused.push(HttpOptions { max_download_bytes: 0, ..good() });
    refused.push(HttpOptions { chunk_bytes: Some(0), ..good() });
    refused.push(HttpOptions {
        root_certificates: Some(b"-----BEGIN CERTIFICATE-----\nsecret".into()),
        ..good()
    });
    for (number, options) in refused.into_iter().enumerate() {
        let error = HttpStore::new(options, Arc::new(SystemClock::new().unwrap()));
        let error = error.map(|_| ()).expect_err(&format!("number {number}"));
        assert_eq!(error.code(), "invalid_configuration", "number {number}");
        assert!(!format!("{error} {error:?}").contains("secret"), "number {number}: {error}");
    }
    store_with(with_header(("x-token", &"v".repeat(16_384))));
}

#[test]
fn configured_headers_go_along_and_never_describe_a_body() {
    let server = Arc::new(Cache::default()).serve();
    let hostile = [
        ("Authorization", "Bearer secret"),
        ("Content-Length", "1"),
        ("content-type", "text/html"),
        ("CONTENT-RANGE", "bytes 0-0/1"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "close"),
    ];
    let headers = hostile.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let store = store_with(HttpOptions { headers, ..options(server.endpoint()) });
    let large = vec![7; 3 << 20];
    for bytes in [&b""[..], b"body", &large] {
        let digest = put(&store, bytes).unwrap();
        assert_eq!(read(&store, bytes).unwrap(), bytes);
        assert!(store.has(&digest).unwrap());
    }
    store.find_missing(&[digest_of(b"x")]).unwrap();
    for request in server.requests() {
        let line = request.line();
        assert_eq!(request.header("authorization"), Some("Bearer secret"), "{line}");
        for absent in ["content-range", "transfer-encoding", "connection", "referer", "accept-encoding"] {
            assert_eq!(request.header(absent), None, "{line}");
        }
        let described = match request.method.as_str() {
            "PUT" => (Some("application/octet-stream"), true),
            "POST" => (Some("application/json"), true),
            _ => (None, false),
        };
        assert_eq!((request.header("content-type"), request.header("content-length").is_some()), described);
        assert_eq!(request.body_length_matches(), described.1, "{line}");
    }
}

impl Request {
    /// Whether a length was declared and so many bytes came.
    fn body_length_matches(&self) -> bool {
        self.header("content-length").is_some_and(|length| length == self.body.len().to_string())
    }
}

#[test]
fn other_statuses_than_success_and_absence_fail_and_nothing_is_tried_twice() {
    let elsewhere = Stub::always(|| Answer::Send(answer(200, b"")));
    for status in [300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 409, 410, 429, 500, 503] {
        let location = format!("Location: {}/cas/x\r\nContent-Length: 0\r\n", elsewhere.endpoint());
        let server = Stub::always(move || Answer::Send(with_headers(status, &location, b"")));
        let store = store(server.endpoint());
        for verb in VERBS {
            let result = ask(&store, verb);
            let mut expected = 1;
            match (verb, status) {
                ("GET", 404) => assert!(matches!(result, Err(BlobError::Missing { .. }))),
                ("HEAD", 404) => assert!(result.is_ok()),
                // By a probe of its own, since this server can't be asked for many.
                ("POST", 404) => expected = 2,
                _ => {
                    let error = result.unwrap_err();
                    assert!(error.to_string().contains(&status.to_string()), "{error}");
                    assert_eq!(fault(Err::<(), _>(error)), TransportFault::Status(status), "{verb}");
                }
            }
            assert_eq!(server.take_lines().len(), expected, "{verb} {status}");
        }
    }
    assert_eq!(elsewhere.requests().len(), 0, "credentials stay here");
}

#[test]
fn wrong_bytes_are_never_handed_out() {
    let html = b"<html>Please log in</html>";
    for wrong in [&b""[..], b"wrong", b"righ", b"right\n", html] {
        let server = Stub::always(|| Answer::Send(answer(200, wrong)));
        let result = store(server.endpoint()).get(&digest_of(b"right")).map(drop);
        let error = result.unwrap_err();
        assert_eq!(error.code(), "artifact_corruption");
        assert!(matches!(error, BlobError::Corrupt { found, .. } if found == digest_of(wrong)));
    }
}

#[test]
fn an_empty_body_is_the_empty_blob_and_no_other() {
    for headers in ["Content-Length: 0\r\n", "Transfer-Encoding: chunked\r\n"] {
        let body: &[u8] = if headers.starts_with('T') { b"0\r\n\r\n" } else { b"" };
        let server = Stub::always(move || Answer::Send(with_headers(200, headers, body)));
        let store = store(server.endpoint());
        assert_eq!(read(&store, b"").unwrap(), b"");
        assert!(matches!(read(&store, b"x"), Err(BlobError::Corrupt { .. })));
    }
    let server = Stub::always(|| Answer::Send(with_headers(204, "", b"")));
    assert_eq!(read(&store(server.endpoint()), b"").unwrap(), b"");
}

#[test]
fn a_broken_answer_is_a_transport_failure() {
    let heads = [
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1.5\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 999999999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 9007199254740992\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nx",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nx",
        "HTTP/1.1 200 OK\r\n",
        "no HTTP at all\r\n\r\n",
        "",
    ];
    for head in heads {
        let server = Stub::always(|| Answer::Close(head.into()));
        fault(store(server.endpoint()).get(&digest_of(b"x")).map(drop));
    }
}

#[test]
fn a_download_is_dropped_at_its_bound() {
    let bounded =
        |server: &Stub| store_with(HttpOptions { max_download_bytes: 1024, ..options(server.endpoint()) });
    // Says that there is more, and sends nothing of it: who waited for it would wait for ever.
    let declared = Stub::always(|| Answer::Stall(with_headers(200, "Content-Length: 1048576\r\n", b"")));
    assert_eq!(fault(ask(&bounded(&declared), "GET")), TransportFault::TooLarge);
    let endless = Stub::always(|| {
        let head = with_headers(200, "Transfer-Encoding: chunked\r\n", b"");
        Answer::Endless(head, b"400\r\n".iter().copied().chain([0; 0x400]).chain(*b"\r\n").collect())
    });
    assert_eq!(fault(ask(&bounded(&endless), "GET")), TransportFault::TooLarge);
    let exactly = vec![1; 1024];
    let body = exactly.clone();
    let server = Stub::always(move || Answer::Send(answer(200, &body)));
    assert_eq!(read(&bounded(&server), &exactly).unwrap(), exactly);
}

#[test]
fn a_deadline_is_one_for_the_whole_and_not_for_each_read() {
    let hasty = |server: &Stub| {
        let (download_deadline, upload_deadline, probe_deadline) = (SHORT, SHORT, SHORT);
        let options = options(server.endpoint());
        store_with(HttpOptions { download_deadline, upload_deadline, probe_deadline, ..options })
    };
    let silent = Stub::always(|| Answer::Stall(Vec::new()));
    for verb in VERBS {
        assert_eq!(fault(ask(&hasty(&silent), verb)), TransportFault::Deadline, "{verb}");
    }
    let stalled = Stub::always(|| Answer::Stall(with_headers(200, "Content-Length: 9\r\n", b"x")));
    for verb in ["GET", "POST"] {
        assert_eq!(fault(ask(&hasty(&stalled), verb)), TransportFault::Deadline, "{verb}");
    }
    // Always a byte in time: only the whole is late.
    let dripping = Stub::always(|| {
        let head = with_headers(200, "Transfer-Encoding: chunked\r\n", b"");
        Answer::Endless(head, b"1\r\nx\r\n".into())
    });
    assert_eq!(fault(ask(&hasty(&dripping), "GET")), TransportFault::Deadline);
    // Takes nothing of a body that is larger than what the kernel takes for it.
    let deaf = Stub::hasty(|_| Answer::Stall(Vec::new()));
    assert_eq!(fault(put(&hasty(&deaf), &vec![0; 16 << 20])), TransportFault::Deadline);
}

#[test]
fn a_connection_that_fails_is_told_with_its_number() {
    let endpoint = Stub::always(|| Answer::Close(Vec::new())).endpoint();
    let refused = TransportFault::Connect(Some(111));
    for verb in VERBS {
        assert_eq!(fault(ask(&store(endpoint.clone()), verb)), refused, "{verb}");
    }
    let closing = Stub::always(|| Answer::Close(Vec::new()));
    for verb in VERBS {
        assert!(matches!(fault(ask(&store(closing.endpoint()), verb)), TransportFault::Broken(_)), "{verb}");
    }
    let deaf = Stub::hasty(|_| Answer::Close(Vec::new()));
    let large = vec![0; 16 << 20];
    assert!(matches!(fault(put(&store(deaf.endpoint()), &large)), TransportFault::Unsent(_)));
}

fn numbered(count: u32) -> Vec<Digest> {
    (0..count).map(|number| digest_of(&number.to_le_bytes())).collect()
}

#[test]
fn find_missing_asks_in_batches_and_once_for_each() {
    let cache = Arc::new(Cache::default());
    let server = cache.serve();
    let store = store(server.endpoint());
    assert_eq!(store.find_missing(&[]).unwrap(), []);
    assert_eq!(server.requests().len(), 0, "nothing asked, nothing sent");
    let digests = numbered(1001);
    cache.blobs.lock().insert(digests[5].to_hex(), Vec::new());
    let mut asked = digests.clone();
    asked.extend(&digests[..7]);
    let mut expected = digests.clone();
    expected.remove(5);
    assert_eq!(store.find_missing(&asked).unwrap(), expected);
    let sizes: Vec<_> = server
        .requests()
        .iter()
        .map(|request| {
            assert_eq!(request.line(), "POST /cas/findMissing");
            assert!(request.body.len() <= 256 << 10);
            let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
            assert_eq!(body.as_object().unwrap().len(), 1, "no other keys");
            body["digests"].as_array().unwrap().len()
        })
        .collect();
    assert_eq!(sizes, [1000, 1]);
}

#[test]
fn an_answer_to_find_missing_is_taken_for_what_it_is() {
    let [a, b, other] = [digest_of(b"a"), digest_of(b"b"), digest_of(b"c")];
    let asked = |body: Vec<u8>| {
        let server = Stub::always(move || Answer::Send(answer(200, &body)));
        store(server.endpoint()).find_missing(&[a, b])
    };
    let listed = |digests: &[&str]| serde_json::json!({ "missing": digests }).to_string().into_bytes();
    let [a_hex, b_hex, other_hex] = [a, b, other].map(|digest| digest.to_hex());
    assert_eq!(asked(listed(&[&b_hex, &other_hex, "no digest", &b_hex, &a_hex])).unwrap(), [a, b]);
    assert_eq!(asked(listed(&[])).unwrap(), []);
    assert_eq!(asked(br#"{"missing":[],"more":1}"#.into()).unwrap(), []);
    let malformed: [&[u8]; 9] = [
        b"",
        b"null",
        b"[]",
        b"{}",
        br#"{"missing":"x"}"#,
        br#"{"missing":[1]}"#,
        br#"{"missing":[]"#,
        b"{\"missing\":[\"\xff\"]}",
        b"<html></html>",
    ];
    for body in malformed {
        assert_eq!(fault(asked(body.into())), TransportFault::BadAnswer, "{body:?}");
    }
    let long = format!("{{\"missing\":[]{}}}", " ".repeat(256 << 10));
    assert_eq!(fault(asked(long.into_bytes())), TransportFault::TooLarge);
}

/// Forty probes: sixteen of them wait for each other, which they could not if fewer ran, and none sees more.
#[test]
fn without_find_missing_probes_run_sixteen_at_a_time_in_any_order_and_the_result_is_in_ours() {
    let digests = numbered(40);
    let present: HashSet<String> = digests.iter().step_by(3).map(Digest::to_hex).collect();
    let (meeting, running, peak) = (Barrier::new(16), AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let (seen, kept) = (Arc::clone(&peak), present.clone());
    let arrived = AtomicUsize::new(0);
    let server = Stub::new(move |request| {
        if request.method == "POST" {
            return Answer::Send(answer(501, b""));
        }
        seen.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        if arrived.fetch_add(1, Ordering::SeqCst) < 16 {
            meeting.wait();
        }
        running.fetch_sub(1, Ordering::SeqCst);
        let key = request.path.rsplit('/').next().unwrap();
        Answer::Send(with_headers(if kept.contains(key) { 200 } else { 404 }, "", b""))
    });
    let missing = store(server.endpoint()).find_missing(&digests).unwrap();
    let expected: Vec<_> = digests.iter().copied().filter(|d| !present.contains(&d.to_hex())).collect();
    assert_eq!((missing, peak.load(Ordering::SeqCst)), (expected, 16));
}

#[test]
fn one_probe_that_fails_fails_all() {
    let digests = numbered(40);
    let ill = digests[17].to_hex();
    let server = Stub::new(move |request| {
        let status = if request.method == "POST" {
            405
        } else if request.path.ends_with(&ill) {
            503
        } else {
            404
        };
        Answer::Send(with_headers(status, "Content-Length: 0\r\n", b""))
    });
    assert_eq!(fault(store(server.endpoint()).find_missing(&digests)), TransportFault::Status(503));
}

#[test]
fn known_bytes_are_streamed_and_others_never_arrive_whole() {
    for size in [0, 10, 3 << 20] {
        let cache = Arc::new(Cache::default());
        let server = cache.serve();
        let store = store(server.endpoint());
        let bytes = vec![9; size];
        let digest = digest_of(&bytes);
        let (size, mut wrong, mut long) = (size as u64, bytes.clone(), bytes.clone());
        long.push(1);
        if let Some(last) = wrong.last_mut() {
            *last = 1;
            let short = bytes[1..].to_vec();
            for source in [wrong, short] {
                let error = put_known(&store, digest, size, source).unwrap_err();
                assert_eq!(error.code(), "artifact_corruption", "{size}: {error:?}");
            }
        }
        assert!(put_known(&store, digest, size, long).is_err(), "{size}");
        let half: Box<dyn Read + Send> =
            Box::new(io::Cursor::new(bytes.clone()).chain(Broken).take(size + 1));
        assert!(matches!(store.put_known(&digest, size, half), Err(BlobError::Source { .. })), "{size}");
        assert!(cache.blobs.lock().is_empty(), "{size}");
        put_known(&store, digest, size, bytes.clone()).unwrap();
        assert_eq!(cache.blobs.lock()[&digest.to_hex()], bytes);
    }
}

struct Broken;

impl Read for Broken {
    fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(5))
    }
}

#[test]
fn a_spool_that_is_full_or_gone_is_told_as_what_it_is() {
    let server = Arc::new(Cache::default()).serve();
    let dir = tempfile::tempdir().unwrap();
    let spool = dir.path().to_owned();
    let store = store_with(HttpOptions { spool, ..options(server.endpoint()) });
    put(&store, b"x").unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "temporary files have no names");
    drop(dir);
    for result in [put(&store, b"x").map(drop), store.get(&digest_of(b"x")).map(drop)] {
        let error = result.unwrap_err();
        assert_eq!(
            (error.code(), error.io_error().and_then(io::Error::raw_os_error)),
            ("unavailable", Some(2))
        );
    }
}
