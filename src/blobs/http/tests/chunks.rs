//! Uploads in chunks, beside servers of every mind.

use std::sync::Arc;

use parking_lot::Mutex;

use super::stub::{Answer, Request, Stub, answer, with_headers};
use super::{fault, options, store_with};
use crate::blobs::http::HttpOptions;
use crate::blobs::{BlobError, BlobStore, TransportFault};
use crate::model::Digest;

const BLOB: &[u8] = b"0123456789";

/// What a server does with an upload.
#[derive(Default)]
struct Server {
    /// What it has at the beginning.
    kept: Vec<u8>,
    /// The status of the answer to the probe; 308 tells what is kept.
    probe: u16,
    /// The statuses of the answers to the chunks, in turn; 308 after that, and 201 to the last chunk.
    chunks: Vec<u16>,
    /// What `Range` says instead of the truth.
    range: Option<&'static str>,
    /// How many bytes of a chunk it keeps.
    takes: Option<usize>,
    /// Shows no length.
    shy: bool,
    /// Closes the connection instead of an answer to the chunk with this number.
    dies_at: Option<usize>,
}

struct State {
    kept: Vec<u8>,
    chunks_seen: usize,
    complete: bool,
}

impl Server {
    fn start(self) -> (Stub, Arc<Mutex<State>>) {
        let complete = self.kept == BLOB;
        let state = Arc::new(Mutex::new(State { kept: self.kept.clone(), chunks_seen: 0, complete }));
        let shared = Arc::clone(&state);
        (Stub::new(move |request| self.answer(&mut shared.lock(), request)), state)
    }

    fn answer(&self, state: &mut State, request: &Request) -> Answer {
        if request.method == "HEAD" {
            let length = format!("Content-Length: {}\r\n", state.kept.len());
            let status = if state.complete { 200 } else { 404 };
            return Answer::Send(with_headers(status, if self.shy { "" } else { &length }, b""));
        }
        match request.header("content-range") {
            None => {
                (state.kept, state.complete) = (request.body.clone(), true);
                Answer::Send(answer(201, b""))
            }
            Some("bytes */10") => self.say(state, self.probe),
            Some(range) => self.take_chunk(state, range, &request.body),
        }
    }

    fn take_chunk(&self, state: &mut State, range: &str, body: &[u8]) -> Answer {
        let number = state.chunks_seen;
        state.chunks_seen += 1;
        let (start, end) =
            range.strip_prefix("bytes ").unwrap().strip_suffix("/10").unwrap().split_once('-').unwrap();
        let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse().unwrap());
        assert_eq!(body, &BLOB[start..=end], "{range}");
        let taken = self.takes.unwrap_or(body.len()).min(body.len());
        if start <= state.kept.len() {
            state.kept.truncate(start);
            state.kept.extend(&body[..taken]);
        }
        state.complete |= state.kept == BLOB;
        if self.dies_at == Some(number) {
            return Answer::Close(Vec::new());
        }
        let usual = if state.complete { 201 } else { 308 };
        self.say(state, self.chunks.get(number).copied().unwrap_or(usual))
    }

    fn say(&self, state: &State, status: u16) -> Answer {
        let kept = state.kept.len().checked_sub(1).map(|last| format!("bytes=0-{last}"));
        let range = self
            .range
            .map(str::to_owned)
            .or(kept)
            .map_or_else(String::new, |range| format!("Range: {range}\r\n"));
        Answer::Send(with_headers(status, &format!("{range}Content-Length: 0\r\n"), b""))
    }
}

/// Uploads in chunks of 4 bytes; returns what was sent, in short.
fn upload(server: Server) -> (Result<Digest, BlobError>, Vec<String>, Vec<u8>) {
    let (stub, state) = server.start();
    let store = store_with(HttpOptions { chunk_bytes: Some(4), ..options(stub.endpoint()) });
    let result = store.put(&mut &BLOB[..]).map(|(digest, _)| digest);
    let told = |request: &Request| match request.header("content-range") {
        Some(range) => range.strip_prefix("bytes ").unwrap().to_owned(),
        None => request.method.clone(),
    };
    let sent = stub.requests().iter().map(told).collect();
    let kept = state.lock().kept.clone();
    (result, sent, kept)
}

#[test]
fn chunks_go_in_order_resume_and_end_with_a_look() {
    let all = ["HEAD", "*/10", "0-3/10", "4-7/10", "8-9/10", "HEAD"];
    let server = || Server { probe: 308, ..Server::default() };
    let cases: [(&str, Server, &[&str]); 8] = [
        ("from the beginning", server(), &all),
        ("unknown to the probe", Server { probe: 404, ..server() }, &all),
        ("the last chunk answered as the others", Server { chunks: vec![308, 308, 308], ..server() }, &all),
        ("there already", Server { kept: BLOB.into(), ..server() }, &["HEAD"]),
        ("begun before", Server { kept: b"012345".into(), ..server() }, &["HEAD", "*/10", "6-9/10", "HEAD"]),
        (
            "takes less than it is sent",
            Server { takes: Some(3), ..server() },
            &["HEAD", "*/10", "0-3/10", "3-6/10", "6-9/10", "9-9/10", "HEAD"],
        ),
        ("says nothing of what it keeps", Server { range: Some("x"), ..server() }, &all),
        (
            "says that it keeps less than before",
            Server { range: Some("bytes=0-0"), ..server() },
            &["HEAD", "*/10", "1-4/10", "5-8/10", "9-9/10", "HEAD", "PUT"],
        ),
    ];
    for (case, server, expected) in cases {
        let (result, sent, kept) = upload(server);
        assert!(result.is_ok(), "{case}: {result:?}");
        assert_eq!(
            (sent, kept.as_slice()),
            (expected.iter().map(|&s| s.to_owned()).collect(), BLOB),
            "{case}"
        );
    }
}

#[test]
fn a_server_that_knows_no_chunks_gets_the_whole() {
    let server = || Server { probe: 308, ..Server::default() };
    let cases = [
        ("success to the probe", Server { probe: 200, ..server() }, 3),
        ("400 to the probe", Server { probe: 400, ..server() }, 3),
        ("411 to the probe", Server { probe: 411, ..server() }, 3),
        ("416 to the probe", Server { probe: 416, ..server() }, 3),
        ("success before the last chunk", Server { chunks: vec![200], ..server() }, 4),
        ("400 to a chunk", Server { chunks: vec![308, 400], ..server() }, 5),
        ("416 to the last chunk", Server { chunks: vec![308, 308, 416], ..server() }, 6),
        ("no length at the end", Server { shy: true, ..server() }, 7),
        (
            "another length at the end",
            Server {
                chunks: vec![308, 308, 200],
                takes: Some(4),
                kept: b"x".into(),
                range: Some("bytes=1-2"),
                ..server()
            },
            0,
        ),
    ];
    for (case, server, requests) in cases {
        let (result, sent, kept) = upload(server);
        assert!(result.is_ok(), "{case}: {result:?}");
        assert_eq!(kept, BLOB, "{case}");
        if requests > 0 {
            assert_eq!(
                (sent.len(), sent.last().map(String::as_str)),
                (requests, Some("PUT")),
                "{case}: {sent:?}"
            );
        }
    }
}

#[test]
fn hostile_ranges_come_to_an_end() {
    for range in [
        "bytes=1-5",
        "bytes=0--1",
        "bytes=0-x",
        "bytes=0-9007199254740992",
        "bytes=0-99999999999999999999",
        "bytes=0-10",
        "0-3",
        "",
    ] {
        let (result, sent, kept) = upload(Server { probe: 308, range: Some(range), ..Server::default() });
        assert!(result.is_ok(), "{range}");
        assert_eq!((sent.len(), kept.as_slice()), (6, BLOB), "{range}: {sent:?}");
    }
}

#[test]
fn another_status_fails_the_upload() {
    for server in [
        Server { probe: 503, ..Server::default() },
        Server { probe: 308, chunks: vec![503], ..Server::default() },
        Server { probe: 308, chunks: vec![308, 308, 503], ..Server::default() },
        Server { probe: 308, chunks: vec![302], ..Server::default() },
    ] {
        let (result, sent, _) = upload(server);
        assert!(matches!(fault(result), TransportFault::Status(302 | 503)));
        assert!(!sent.contains(&"PUT".to_owned()), "{sent:?}");
    }
}

#[test]
fn after_a_broken_connection_the_next_upload_goes_on_where_it_was() {
    let (stub, _) = Server { probe: 308, dies_at: Some(1), ..Server::default() }.start();
    let store = store_with(HttpOptions { chunk_bytes: Some(4), ..options(stub.endpoint()) });
    assert!(matches!(fault(store.put(&mut &BLOB[..])), TransportFault::Broken(_)));
    store.put(&mut &BLOB[..]).unwrap();
    let ranges = stub.requests();
    let first = ranges.iter().filter(|request| request.header("content-range") == Some("bytes 0-3/10"));
    assert_eq!(first.count(), 1, "the first chunk went over once");
}

#[test]
fn only_what_is_larger_than_a_chunk_goes_in_chunks() {
    let (stub, _) = Server { probe: 308, ..Server::default() }.start();
    let store = store_with(HttpOptions { chunk_bytes: Some(10), ..options(stub.endpoint()) });
    store.put(&mut &BLOB[..]).unwrap();
    assert_eq!(stub.take_lines().len(), 1);
}
