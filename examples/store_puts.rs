//! Measures the store on disk beside the system's own calls, in turns, so that a slow moment of the disk hits both alike.
//!
//! `store_puts DIR COUNT MIB` works in DIR and prints seven numbers of seconds:
//!
//! - for COUNT fresh files of 4 KiB, one at a time: write, fsync, rename and fsync of the directory; a put of the store;
//!   all in one batch of the store;
//! - for one file of MIB MiB: write and fsync; a put;
//! - for a hundred times COUNT digests, of which the store has COUNT: which are missing;
//! - for the file of MIB MiB in the page cache, by a store that has no stamp of it: a verified read.

#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold::blobs::{BlobStore, DiskParts, DiskSettings, DiskStore, MemoryStamps};
use leasehold::clock::SystemClock;
use leasehold::ids::SystemIds;
use leasehold::model::Digest;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SMALL: usize = 4096;
const PIECE: usize = 1 << 20;
/// How many puts take turns with as many native writes.
const TURN: usize = 50;

fn main() -> Result<()> {
    let usage = "usage: store_puts DIR COUNT MIB";
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().ok_or(usage)?);
    let count: usize = args.next().ok_or(usage)?.parse()?;
    let mib: usize = args.next().ok_or(usage)?.parse()?;
    let store = open(&dir.join("objects"))?;
    // The directories are there and proven, as in any store but a new one.
    fill_fan_outs(&store)?;
    let (native, put) = one_at_a_time(&dir, &store, count)?;
    let batch = in_one_batch(&store, count)?;
    let (native_large, put_large, large) = one_large(&dir, &store, mib)?;
    let missing = look_up(&store, count)?;
    let read = read_verified(&dir.join("objects"), &large)?;
    let all = [native, put, batch, native_large, put_large, missing, read];
    println!("{}", all.map(|took| format!("{:.6}", took.as_secs_f64())).join(" "));
    Ok(())
}

fn open(objects: &Path) -> Result<DiskStore> {
    let (stamps, ids) = (Arc::<MemoryStamps>::default(), Arc::new(SystemIds));
    let parts =
        DiskParts { settings: DiskSettings::default(), stamps, ids, clock: Arc::new(SystemClock::new()?) };
    Ok(DiskStore::bare(objects, &parts)?)
}

/// Bytes that no other number makes.
fn content(seed: u64, size: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        // xorshift64*, as in fsload.c.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

fn fill_fan_outs(store: &DiskStore) -> Result<()> {
    put_all(store, (0..4_096).map(|n: u64| n.to_le_bytes().to_vec()))
}

fn put_all(store: &DiskStore, contents: impl Iterator<Item = Vec<u8>>) -> Result<()> {
    let mut failed = None;
    let mut sources = contents.map(|bytes| Ok(Box::new(Cursor::new(bytes)) as Box<dyn Read>));
    store.put_batch(&mut sources, &mut |_, result| failed = failed.take().or(result.err()))?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}

fn one_at_a_time(dir: &Path, store: &DiskStore, count: usize) -> Result<(Duration, Duration)> {
    let target = dir.join("native");
    fs::create_dir(&target)?;
    let names = File::open(&target)?;
    let contents: Vec<_> = (0..count).map(|n| content(1 << 32 | n as u64, SMALL)).collect();
    let (mut native, mut put) = (Duration::ZERO, Duration::ZERO);
    for (turn, part) in contents.chunks(TURN).enumerate() {
        let start = Instant::now();
        for (n, bytes) in part.iter().enumerate() {
            write_native(&target, &names, turn * TURN + n, bytes)?;
        }
        native += start.elapsed();
        let start = Instant::now();
        for bytes in part {
            store.put(&mut &bytes[..])?;
        }
        put += start.elapsed();
    }
    Ok((native, put))
}

fn write_native(dir: &Path, names: &File, number: usize, bytes: &[u8]) -> io::Result<()> {
    let temporary = dir.join(format!("{number}.tmp"));
    let mut file = File::create_new(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, dir.join(number.to_string()))?;
    names.sync_all()
}

fn in_one_batch(store: &DiskStore, count: usize) -> Result<Duration> {
    let contents: Vec<_> = (0..count).map(|n| content(2 << 32 | n as u64, SMALL)).collect();
    let start = Instant::now();
    put_all(store, contents.into_iter())?;
    Ok(start.elapsed())
}

fn one_large(dir: &Path, store: &DiskStore, mib: usize) -> Result<(Duration, Duration, Digest)> {
    let bytes = content(3 << 32, mib * PIECE);
    let start = Instant::now();
    let mut file = File::create_new(dir.join("large"))?;
    for piece in bytes.chunks(PIECE) {
        file.write_all(piece)?;
    }
    file.sync_all()?;
    let native = start.elapsed();
    let start = Instant::now();
    let (digest, _) = store.put(&mut &bytes[..])?;
    Ok((native, start.elapsed(), digest))
}

fn look_up(store: &DiskStore, count: usize) -> Result<Duration> {
    let there: Vec<Digest> = store.inventory()?.iter().map(|blob| blob.digest).collect();
    let absent = (0..count as u64 * 100).map(|n| {
        let bytes = content(n, 32);
        Digest::from_bytes(bytes.try_into().unwrap_or([0; 32]))
    });
    let asked: Vec<Digest> = there.into_iter().chain(absent).take(count * 100).collect();
    let start = Instant::now();
    store.find_missing(&asked)?;
    Ok(start.elapsed())
}

fn read_verified(objects: &Path, digest: &Digest) -> Result<Duration> {
    let store = open(objects)?;
    let mut buffer = vec![0; 128 << 10];
    let start = Instant::now();
    let mut blob = store.get(digest)?;
    while blob.read(&mut buffer)? > 0 {}
    Ok(start.elapsed())
}
