//! Applications: processes of their own that make system calls on a mount at a test's word.
//!
//! A test must not hold files of a mount open itself: a child that another test starts has copies of all descriptors
//! until it executes, and the close of a copy is a flush to the daemon. And the mount tells processes apart.
//! An application is this very program, which runs the one test [`serve`].

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::kernel::{self, Errno, Mapping, Sys};

/// Before each answer, since the test runner prints too.
const MARK: &str = "agent: ";

#[derive(Debug, Serialize, Deserialize)]
enum Call {
    Open {
        path: Vec<u8>,
        flags: i32,
    },
    Reopen {
        fd: i32,
        flags: i32,
    },
    Close {
        fd: i32,
    },
    Dup {
        fd: i32,
    },
    Read {
        fd: i32,
        offset: i64,
        length: usize,
    },
    Write {
        fd: i32,
        offset: Option<i64>,
        bytes: Vec<u8>,
    },
    Fsync {
        fd: i32,
    },
    Truncate {
        path: Vec<u8>,
        length: i64,
    },
    Ftruncate {
        fd: i32,
        length: i64,
    },
    Rename {
        from: Vec<u8>,
        to: Vec<u8>,
        flags: u32,
    },
    Unlink {
        path: Vec<u8>,
    },
    Chmod {
        path: Vec<u8>,
        mode: u32,
    },
    Fchmod {
        fd: i32,
        mode: u32,
    },
    Access {
        path: Vec<u8>,
        mode: i32,
    },
    Flock {
        fd: i32,
        operation: i32,
    },
    LockRange {
        fd: i32,
        kind: i32,
        start: i64,
        length: i64,
    },
    Map {
        fd: i32,
        length: usize,
        writable: bool,
    },
    ReadMap {
        map: i32,
        offset: usize,
        length: usize,
    },
    WriteMap {
        map: i32,
        offset: usize,
        bytes: Vec<u8>,
    },
    Unmap {
        map: i32,
    },
    /// Lets a child inherit a descriptor, write to it and end.
    Inherit {
        fd: i32,
        bytes: Vec<u8>,
    },
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Answer {
    number: i32,
    bytes: Vec<u8>,
}

/// Something that an application does with a file by its path.
pub type OnPath = fn(&App, &Path);

/// An application.
pub struct App {
    child: Child,
    calls: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
}

impl App {
    pub fn start() -> Self {
        let program = std::env::current_exe().unwrap();
        let mut child = Command::new(program)
            .args(["agent::serve", "--exact", "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .current_dir("/")
            .spawn()
            .unwrap();
        let calls = Mutex::new((child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap())));
        Self { child, calls }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// stat(2) of a descriptor.
    pub fn metadata(&self, fd: i32) -> std::fs::Metadata {
        std::fs::metadata(format!("/proc/{}/fd/{fd}", self.pid())).unwrap()
    }

    fn call(&self, call: &Call) -> Sys<Answer> {
        let mut calls = self.calls.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (input, output) = &mut *calls;
        writeln!(input, "{}", serde_json::to_string(call).unwrap()).unwrap();
        loop {
            let mut line = String::new();
            assert!(output.read_line(&mut line).unwrap() > 0, "the application ended at {call:?}");
            if let Some(at) = line.find(MARK) {
                return serde_json::from_str(&line[at + MARK.len()..]).unwrap();
            }
        }
    }

    pub fn open(&self, path: &Path, flags: i32) -> Sys<i32> {
        self.call(&Call::Open { path: bytes(path), flags }).map(|answer| answer.number)
    }

    /// Opens a descriptor again by way of `/proc/self/fd`.
    pub fn reopen(&self, fd: i32, flags: i32) -> Sys<i32> {
        self.call(&Call::Reopen { fd, flags }).map(|answer| answer.number)
    }

    pub fn close(&self, fd: i32) -> Sys<()> {
        self.call(&Call::Close { fd }).map(drop)
    }

    pub fn dup(&self, fd: i32) -> Sys<i32> {
        self.call(&Call::Dup { fd }).map(|answer| answer.number)
    }

    pub fn read(&self, fd: i32, offset: i64, length: usize) -> Sys<Vec<u8>> {
        self.call(&Call::Read { fd, offset, length }).map(|answer| answer.bytes)
    }

    pub fn write(&self, fd: i32, data: &[u8]) -> Sys<()> {
        self.call(&Call::Write { fd, offset: None, bytes: data.to_vec() }).map(drop)
    }

    pub fn write_at(&self, fd: i32, offset: i64, data: &[u8]) -> Sys<()> {
        self.call(&Call::Write { fd, offset: Some(offset), bytes: data.to_vec() }).map(drop)
    }

    pub fn fsync(&self, fd: i32) -> Sys<()> {
        self.call(&Call::Fsync { fd }).map(drop)
    }

    pub fn truncate(&self, path: &Path, length: i64) -> Sys<()> {
        self.call(&Call::Truncate { path: bytes(path), length }).map(drop)
    }

    pub fn ftruncate(&self, fd: i32, length: i64) -> Sys<()> {
        self.call(&Call::Ftruncate { fd, length }).map(drop)
    }

    pub fn rename(&self, from: &Path, to: &Path, flags: u32) -> Sys<()> {
        self.call(&Call::Rename { from: bytes(from), to: bytes(to), flags }).map(drop)
    }

    pub fn unlink(&self, path: &Path) -> Sys<()> {
        self.call(&Call::Unlink { path: bytes(path) }).map(drop)
    }

    pub fn chmod(&self, path: &Path, mode: u32) -> Sys<()> {
        self.call(&Call::Chmod { path: bytes(path), mode }).map(drop)
    }

    pub fn fchmod(&self, fd: i32, mode: u32) -> Sys<()> {
        self.call(&Call::Fchmod { fd, mode }).map(drop)
    }

    pub fn access(&self, path: &Path, mode: i32) -> Sys<()> {
        self.call(&Call::Access { path: bytes(path), mode }).map(drop)
    }

    pub fn flock(&self, fd: i32, operation: i32) -> Sys<()> {
        self.call(&Call::Flock { fd, operation }).map(drop)
    }

    pub fn lock_range(&self, fd: i32, kind: i32, start: i64, length: i64) -> Sys<()> {
        self.call(&Call::LockRange { fd, kind, start, length }).map(drop)
    }

    /// The path by which a test reaches what the application has open.
    pub fn path_of_fd(&self, fd: i32) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{fd}", self.pid()))
    }

    pub fn map(&self, fd: i32, length: usize, writable: bool) -> Sys<i32> {
        self.call(&Call::Map { fd, length, writable }).map(|answer| answer.number)
    }

    pub fn read_map(&self, map: i32, offset: usize, length: usize) -> Vec<u8> {
        self.call(&Call::ReadMap { map, offset, length }).unwrap().bytes
    }

    pub fn write_map(&self, map: i32, offset: usize, data: &[u8]) {
        self.call(&Call::WriteMap { map, offset, bytes: data.to_vec() }).unwrap();
    }

    pub fn unmap(&self, map: i32) {
        self.call(&Call::Unmap { map }).unwrap();
    }

    /// Lets a child that has inherited a descriptor write to it and end.
    pub fn child_writes(&self, fd: i32, data: &[u8]) -> Sys<()> {
        self.call(&Call::Inherit { fd, bytes: data.to_vec() }).map(drop)
    }

    /// Reads a file from beginning to end, in one open.
    pub fn read_file(&self, path: &Path) -> Sys<Vec<u8>> {
        let fd = self.open(path, libc::O_RDONLY)?;
        let bytes = self.read_all(fd);
        self.close(fd)?;
        bytes
    }

    pub fn read_all(&self, fd: i32) -> Sys<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let part = self.read(fd, all.len() as i64, 1 << 16)?;
            if part.is_empty() {
                return Ok(all);
            }
            all.extend(part);
        }
    }

    /// Opens with `flags`, writes and closes; the first error counts.
    pub fn save(&self, path: &Path, flags: i32, data: &[u8]) -> Sys<()> {
        let fd = self.open(path, libc::O_WRONLY | flags)?;
        let written = self.write(fd, data);
        let closed = self.close(fd);
        written.and(closed)
    }

    /// Saves as a shell's `>` does.
    pub fn overwrite(&self, path: &Path, data: &[u8]) -> Sys<()> {
        self.save(path, libc::O_CREAT | libc::O_TRUNC, data)
    }
}

impl Drop for App {
    fn drop(&mut self) {
        // Its end closes all that it has open; it may hang in a call on a dead mount otherwise.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

fn path(bytes: Vec<u8>) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(&bytes))
}

#[derive(Default)]
struct Server {
    maps: HashMap<i32, Mapping>,
}

impl Server {
    fn answer(&mut self, call: Call) -> Sys<Answer> {
        let number = |number: i32| Answer { number, ..Answer::default() };
        let nothing = |()| Answer::default();
        let data = |bytes: Vec<u8>| Answer { bytes, ..Answer::default() };
        match call {
            Call::Open { path: at, flags } => kernel::open(&path(at), flags).map(number),
            Call::Reopen { fd, flags } => kernel::open(&kernel::path_of_fd(fd), flags).map(number),
            Call::Close { fd } => kernel::close(fd).map(nothing),
            Call::Dup { fd } => kernel::dup(fd).map(number),
            Call::Read { fd, offset, length } => kernel::read_at(fd, offset, length).map(data),
            Call::Write { fd, offset, bytes } => kernel::write(fd, offset, &bytes).map(nothing),
            Call::Fsync { fd } => kernel::fsync(fd).map(nothing),
            Call::Truncate { path: at, length } => kernel::truncate(&path(at), length).map(nothing),
            Call::Ftruncate { fd, length } => kernel::ftruncate(fd, length).map(nothing),
            Call::Rename { from, to, flags } => kernel::rename(&path(from), &path(to), flags).map(nothing),
            Call::Unlink { path: at } => kernel::unlink(&path(at)).map(nothing),
            Call::Chmod { path: at, mode } => kernel::chmod(&path(at), mode).map(nothing),
            Call::Fchmod { fd, mode } => kernel::fchmod(fd, mode).map(nothing),
            Call::Access { path: at, mode } => kernel::access(&path(at), mode).map(nothing),
            Call::Flock { fd, operation } => kernel::flock(fd, operation).map(nothing),
            Call::LockRange { fd, kind, start, length } => {
                kernel::lock_range(fd, kind, start, length).map(nothing)
            }
            Call::Map { fd, length, writable } => self.map(fd, length, writable).map(number),
            Call::ReadMap { map, offset, length } => Ok(data(self.maps[&map].read(offset, length))),
            Call::WriteMap { map, offset, bytes } => {
                self.maps.get_mut(&map).unwrap().write(offset, &bytes);
                Ok(Answer::default())
            }
            Call::Unmap { map } => {
                self.maps.remove(&map);
                Ok(Answer::default())
            }
            Call::Inherit { fd, bytes } => child_writes(fd, &bytes).map(nothing),
        }
    }

    fn map(&mut self, fd: i32, length: usize, writable: bool) -> Sys<i32> {
        let map = i32::try_from(self.maps.len()).unwrap();
        self.maps.insert(map, Mapping::new(fd, length, writable)?);
        Ok(map)
    }
}

/// The child's standard output is the descriptor: `cat` copies to it what it reads.
fn child_writes(fd: i32, data: &[u8]) -> Sys<()> {
    let output = kernel::owned(kernel::dup(fd)?);
    let child = Command::new("cat").stdin(Stdio::piped()).stdout(output).spawn();
    let mut child = child.map_err(|error| Errno::of(&error))?;
    child.stdin.take().unwrap().write_all(data).unwrap();
    let status = child.wait().map_err(|error| Errno::of(&error))?;
    if status.success() { Ok(()) } else { Err(kernel::EIO) }
}

/// An application's side: answers calls until its test closes the pipe.
#[test]
#[ignore = "other tests run it in a process of its own"]
fn serve() {
    let mut server = Server::default();
    for line in std::io::stdin().lines() {
        let answer = server.answer(serde_json::from_str(&line.unwrap()).unwrap());
        let mut out = std::io::stdout().lock();
        writeln!(out, "{MARK}{}", serde_json::to_string(&answer).unwrap()).unwrap();
        out.flush().unwrap();
    }
}
