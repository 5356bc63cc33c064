//! A server of a few lines that does what a test says, down to single bytes.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;

/// One request, as it came over the wire.
#[derive(Debug, Clone, Default)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// The values of a header, in lower case and in the order they came.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(known, _)| known == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} came twice");
        value
    }

    fn body_length(&self) -> usize {
        self.header("content-length").map_or(0, |length| length.parse().unwrap())
    }

    /// What is asked for, in short.
    pub(super) fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// What the server does after a request.
pub(super) enum Answer {
    /// Sends these bytes, and waits for the next request.
    Send(Vec<u8>),
    /// Sends these bytes, and nothing more, but stays.
    Stall(Vec<u8>),
    /// Sends these bytes, and closes the connection.
    Close(Vec<u8>),
    /// Sends the first bytes once, and the others again and again.
    Endless(Vec<u8>, Vec<u8>),
}

type Handler = dyn Fn(&Request) -> Answer + Send + Sync;

/// What a server does with the body of a request before it answers.
#[derive(Clone, Copy, PartialEq)]
enum Bodies {
    Kept,
    Discarded,
    Unread,
}

struct Shared {
    handler: Box<Handler>,
    bodies: Bodies,
    requests: Mutex<Vec<Request>>,
    /// Connections on which nothing happens any more.
    stalled: Mutex<Vec<TcpStream>>,
    stopped: AtomicBool,
}

/// A server on loopback, until it is dropped.
pub(super) struct Stub {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

impl Stub {
    pub(super) fn new(handler: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        Self::start(Box::new(handler), Bodies::Kept)
    }

    /// Answers before any body is read, and reads none.
    pub(super) fn hasty(handler: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        Self::start(Box::new(handler), Bodies::Unread)
    }

    /// Reads bodies without keeping them, and answers each request alike.
    pub(super) fn discarding(answer: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::start(Box::new(move |_| Answer::Send(answer())), Bodies::Discarded)
    }

    /// Answers each request alike.
    pub(super) fn always(answer: impl Fn() -> Answer + Send + Sync + 'static) -> Self {
        Self::new(move |_| answer())
    }

    fn start(handler: Box<Handler>, bodies: Bodies) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, stalled) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { handler, bodies, requests, stalled, stopped: AtomicBool::new(false) });
        let serving = Arc::clone(&shared);
        let accepting = thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let serving = Arc::clone(&serving);
                // It ends when the client does.
                thread::spawn(move || serving.serve(stream.unwrap()));
            }
        });
        Self { address, shared, accepting: Some(accepting) }
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().clone()
    }

    /// What was asked for so far, in short; forgets it.
    pub(super) fn take_lines(&self) -> Vec<String> {
        self.shared.requests.lock().drain(..).map(|request| request.line()).collect()
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes it.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            accepting.join().unwrap();
        }
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        while let Some(mut request) = read_head(&mut reader) {
            if !self.read_body(&mut request, &mut reader) {
                return;
            }
            self.requests.lock().push(request.clone());
            if !self.act((self.handler)(&request), &stream) || self.bodies == Bodies::Unread {
                return;
            }
        }
    }

    /// Returns whether the connection goes on.
    fn act(&self, answer: Answer, mut stream: &TcpStream) -> bool {
        match answer {
            Answer::Send(bytes) => stream.write_all(&bytes).is_ok(),
            Answer::Stall(bytes) => {
                let _ = stream.write_all(&bytes);
                self.stalled.lock().push(stream.try_clone().unwrap());
                false
            }
            Answer::Close(bytes) => {
                let _ = stream.write_all(&bytes);
                false
            }
            Answer::Endless(first, rest) => {
                let mut sent = stream.write_all(&first);
                while sent.is_ok() {
                    sent = stream.write_all(&rest);
                }
                false
            }
        }
    }

    /// Returns whether it came whole.
    fn read_body(&self, request: &mut Request, reader: &mut impl Read) -> bool {
        let length = request.body_length() as u64;
        match self.bodies {
            Bodies::Kept => {
                reader.take(length).read_to_end(&mut request.body).is_ok_and(|read| read as u64 == length)
            }
            Bodies::Discarded => {
                io::copy(&mut reader.take(length), &mut io::sink()).is_ok_and(|read| read == length)
            }
            Bodies::Unread => true,
        }
    }
}

fn read_head(reader: &mut impl BufRead) -> Option<Request> {
    let mut lines = reader.lines().map_while(Result::ok);
    let first = lines.next()?;
    let mut words = first.split(' ');
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let headers = lines.take_while(|line| !line.is_empty()).filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    });
    Some(Request { method, path, headers: headers.collect(), body: Vec::new() })
}

/// An answer of a status and a body.
pub(super) fn answer(status: u16, body: &[u8]) -> Vec<u8> {
    with_headers(status, &format!("Content-Length: {}\r\n", body.len()), body)
}

/// An answer whose headers are given, each with its line's end.
pub(super) fn with_headers(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {status} Said\r\n{headers}\r\n").into_bytes();
    bytes.extend(body);
    bytes
}

/// A cache as simple as they come, with or without `findMissing`.
#[derive(Default)]
pub(super) struct Cache {
    pub(super) blobs: Mutex<HashMap<String, Vec<u8>>>,
    pub(super) without_find_missing: bool,
}

impl Cache {
    pub(super) fn serve(self: &Arc<Self>) -> Stub {
        let cache = Arc::clone(self);
        Stub::new(move |request| Answer::Send(cache.answer(request)))
    }

    pub(super) fn answer(&self, request: &Request) -> Vec<u8> {
        let mut blobs = self.blobs.lock();
        match (request.method.as_str(), request.path.strip_prefix("/cas/").unwrap()) {
            ("POST", "findMissing") if self.without_find_missing => answer(405, b""),
            ("POST", "findMissing") => {
                let asked: HashMap<String, Vec<String>> = serde_json::from_slice(&request.body).unwrap();
                let missing: Vec<_> =
                    asked["digests"].iter().filter(|key| !blobs.contains_key(*key)).collect();
                answer(200, serde_json::json!({ "missing": missing }).to_string().as_bytes())
            }
            ("PUT", key) => {
                blobs.insert(key.to_owned(), request.body.clone());
                answer(201, b"")
            }
            ("GET", key) => blobs.get(key).map_or_else(|| answer(404, b"none"), |bytes| answer(200, bytes)),
            ("HEAD", key) => {
                let length = blobs.get(key).map(|bytes| format!("Content-Length: {}\r\n", bytes.len()));
                length.map_or_else(|| answer(404, b""), |length| with_headers(200, &length, b""))
            }
            _ => answer(405, b""),
        }
    }
}
