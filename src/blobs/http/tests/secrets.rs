//! What needs a process of its own: the whole log, the environment, and the memory of one.
//!
//! Each test runs this program again for the one test below it that is otherwise left out.

use std::process::{Command, Output};
use std::sync::Arc;

use super::stub::{Answer, Cache, Request, Stub, answer, with_headers};
use super::{VERBS, ask, options, put, store_with};
use crate::blobs::http::HttpOptions;
use crate::blobs::{BlobStore, digest_of};

fn in_a_process_of_its_own(test: &str, environment: &[(&str, String)]) -> Output {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("blobs::http::tests::secrets::{test}"), "--ignored", "--nocapture"])
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("1 passed"), "{told}");
    output
}

#[test]
fn no_log_and_no_error_has_a_header_or_a_path() {
    let output = in_a_process_of_its_own("everything_is_logged", &[]);
    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    assert!(told.contains("hyper") && told.contains("asked:"), "the log is there: {told}");
    for secret in ["secret-value", "secret-path", "secret-text"] {
        assert!(!told.contains(secret), "{secret}: {told}");
    }
}

#[test]
#[ignore = "run by the test above"]
fn everything_is_logged() {
    tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(std::io::stderr).init();
    let cache = Cache::default();
    let good = Stub::new(move |request| {
        let path = request.path.replace("/secret-path", "");
        Answer::Send(cache.answer(&Request { path, ..request.clone() }))
    });
    let ill = Stub::always(|| Answer::Send(answer(500, b"secret-text")));
    let moving = Stub::always(|| {
        Answer::Send(with_headers(302, "Location: /secret-path\r\nContent-Length: 0\r\n", b""))
    });
    let odd = Stub::always(|| Answer::Close(b"HTTP/1.1 secret-text\r\n\r\n".into()));
    let endpoints =
        [good.endpoint(), ill.endpoint(), moving.endpoint(), odd.endpoint(), "http://[::1]:1".into()];
    for endpoint in endpoints {
        let headers = vec![("X-Token".into(), "secret-value".into())];
        let options = HttpOptions { headers, ..options(format!("{endpoint}/secret-path")) };
        eprintln!("{options:?}");
        let store = store_with(options);
        eprintln!("{store:?}");
        for verb in VERBS {
            let result = ask(&store, verb);
            eprintln!("asked: {verb}: {result:?}");
            if let Err(error) = result {
                eprintln!("{error}");
            }
        }
    }
}

#[test]
fn the_systems_proxy_is_asked_only_if_that_is_wanted() {
    let proxy = Stub::always(|| Answer::Send(answer(200, b"")));
    let environment = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"];
    let environment: Vec<_> = environment.into_iter().map(|name| (name, proxy.endpoint())).collect();
    in_a_process_of_its_own("a_proxy_is_in_the_environment", &environment);
    let seen = proxy.take_lines();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(seen[0].contains("/wanted/cas/"), "{seen:?}");
}

#[test]
#[ignore = "run by the test above"]
fn a_proxy_is_in_the_environment() {
    let server = Arc::new(Cache::default()).serve();
    assert!(put(&store_with(options(server.endpoint())), b"x").is_ok());
    let wanted = HttpOptions { system_proxy: true, ..options(format!("{}/wanted", server.endpoint())) };
    assert!(put(&store_with(wanted), b"x").is_ok());
}

#[test]
fn memory_stays_small_however_large_a_blob_is() {
    in_a_process_of_its_own("large_blobs_go_both_ways", &[]);
}

/// The most memory that this process ever had, in bytes (proc_pid_status(5), `VmHWM`).
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

#[test]
#[ignore = "run by the test above"]
fn large_blobs_go_both_ways() {
    const SIZE: u64 = 160 << 20;
    let bytes = || std::io::Read::take(std::io::repeat(7), SIZE);
    // The server's own memory would count, too: it sends pieces, and reads nothing of what it is sent.
    let sending = Stub::always(|| {
        Answer::Endless(with_headers(200, &format!("Content-Length: {SIZE}\r\n"), b""), vec![7; 1 << 20])
    });
    let discarding = Stub::discarding(|| answer(201, b""));
    let before = peak_bytes();
    let store = store_with(options(discarding.endpoint()));
    let (digest, size) = store.put(&mut bytes()).unwrap();
    assert_eq!(size, SIZE);
    store.put_known(&digest, size, Box::new(bytes())).unwrap();
    let mut reader = store_with(options(sending.endpoint())).get(&digest).unwrap();
    assert_eq!(std::io::copy(&mut reader, &mut std::io::sink()).unwrap(), SIZE);
    assert_ne!(digest, digest_of(b""));
    let more = peak_bytes() - before;
    assert!(more < 64 << 20, "{} MiB", more >> 20);
}
