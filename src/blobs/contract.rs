//! What every store promises, in sentences; applied to each implementation.

use std::io::{self, Cursor, Read};

use super::{BlobError, BlobStore, digest_of};
use crate::model::Digest;

/// Applies the whole contract to the stores that `make` makes.
pub(crate) fn holds<S: BlobStore>(make: impl Fn() -> S) {
    what_was_put_is_read_back(&make());
    the_address_is_the_sha256_of_the_bytes(&make());
    nothing_at_all_can_be_stored(&make());
    putting_twice_is_putting_once(&make());
    what_is_not_there_is_missing(&make());
    missing_digests_come_in_the_order_asked(&make());
    each_get_begins_anew(&make());
    a_source_that_fails_stores_nothing(&make());
    a_source_may_read_in_any_pieces(&make());
    many_threads_may_put_and_get_the_same_bytes(&make());
}

pub(super) fn read(store: &dyn BlobStore, digest: &Digest) -> Vec<u8> {
    let mut bytes = Vec::new();
    store.get(digest).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

fn what_was_put_is_read_back(store: &dyn BlobStore) {
    for size in [1, 4095, 4096, 300_000, 600_001] {
        let bytes: Vec<u8> = (0..size).map(|i: u32| (i % 251) as u8).collect();
        let (digest, stored) = store.put(&mut &bytes[..]).unwrap();
        assert_eq!((stored, read(store, &digest)), (u64::from(size), bytes));
        assert!(store.has(&digest).unwrap());
    }
}

fn the_address_is_the_sha256_of_the_bytes(store: &dyn BlobStore) {
    let (digest, _) = store.put(&mut &b"abc"[..]).unwrap();
    // FIPS 180-2, appendix B.1.
    assert_eq!(digest.to_hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_eq!(digest, digest_of(b"abc"));
}

fn nothing_at_all_can_be_stored(store: &dyn BlobStore) {
    let (digest, size) = store.put(&mut io::empty()).unwrap();
    assert_eq!((digest, size), (digest_of(b""), 0));
    assert!(store.has(&digest).unwrap());
    assert!(read(store, &digest).is_empty());
}

fn putting_twice_is_putting_once(store: &dyn BlobStore) {
    let first = store.put(&mut &b"same"[..]).unwrap();
    assert_eq!(store.put(&mut &b"same"[..]).unwrap(), first);
    assert_eq!(read(store, &first.0), b"same");
}

fn what_is_not_there_is_missing(store: &dyn BlobStore) {
    let digest = digest_of(b"never stored");
    assert!(!store.has(&digest).unwrap());
    assert!(
        matches!(store.get(&digest).err(), Some(BlobError::Missing { digest: named }) if named == digest)
    );
}

fn missing_digests_come_in_the_order_asked(store: &dyn BlobStore) {
    let (stored, _) = store.put(&mut &b"stored"[..]).unwrap();
    let (one, two) = (digest_of(b"1"), digest_of(b"2"));
    assert_eq!(store.find_missing(&[two, stored, one, two]).unwrap(), [two, one]);
    assert_eq!(store.find_missing(&[]).unwrap(), []);
}

fn each_get_begins_anew(store: &dyn BlobStore) {
    let (digest, _) = store.put(&mut &b"read twice"[..]).unwrap();
    let mut begun = store.get(&digest).unwrap();
    begun.read_exact(&mut [0; 4]).unwrap();
    assert_eq!(read(store, &digest), b"read twice");
    let mut rest = Vec::new();
    begun.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b" twice");
}

fn a_source_that_fails_stores_nothing(store: &dyn BlobStore) {
    let mut source = Cursor::new(b"half").chain(Broken);
    assert!(matches!(store.put(&mut source), Err(BlobError::Source { .. })));
    assert!(!store.has(&digest_of(b"half")).unwrap());
}

fn a_source_may_read_in_any_pieces(store: &dyn BlobStore) {
    let mut source = OneByOne { bytes: b"in pieces", interrupted: false };
    assert_eq!(store.put(&mut source).unwrap().0, digest_of(b"in pieces"));
}

fn many_threads_may_put_and_get_the_same_bytes(store: &dyn BlobStore) {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for text in ["a", "b", "c", "a"] {
                    let (digest, _) = store.put(&mut text.as_bytes()).unwrap();
                    assert_eq!(read(store, &digest), text.as_bytes());
                }
            });
        }
    });
}

/// Fails at once.
struct Broken;

impl Read for Broken {
    fn read(&mut self, _buffer: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the source broke"))
    }
}

/// Hands out single bytes, with an interruption before each.
struct OneByOne {
    bytes: &'static [u8],
    interrupted: bool,
}

impl Read for OneByOne {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.interrupted = !self.interrupted;
        if self.interrupted {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let count = buffer.len().min(1);
        self.bytes.read(&mut buffer[..count])
    }
}
