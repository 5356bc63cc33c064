//! Faults of system calls in a daemon: `injector.c`, preloaded, and the memory that it shares with the tests.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("injector.c");
const WHERE_BYTES: usize = libc::PATH_MAX as usize;

/// A sort of system calls, whatever their forms; the order is that of the C source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Open,
    Read,
    Write,
    Sync,
    Rename,
    Link,
    Unlink,
    MakeDir,
    Copy,
    Truncate,
    SetTimes,
}

impl Call {
    pub const ALL: [Self; 11] = [
        Self::Open,
        Self::Read,
        Self::Write,
        Self::Sync,
        Self::Rename,
        Self::Link,
        Self::Unlink,
        Self::MakeDir,
        Self::Copy,
        Self::Truncate,
        Self::SetTimes,
    ];
}

/// What happens at a call; the order is that of the C source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Nothing: calls are only counted.
    Count,
    /// It fails, and the later ones don't.
    Once,
    /// It fails, and so does every later one of its sort.
    Since,
    /// The daemon is killed in its place.
    KillBefore,
    /// The daemon is killed when it is done.
    KillAfter,
}

/// One fault.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    pub call: Call,
    /// Which of those calls, from 0.
    pub number: u64,
    pub how: How,
    /// With which errno it fails.
    pub errno: i32,
}

impl Fault {
    pub const NONE: Self = Self { call: Call::Open, number: 0, how: How::Count, errno: 0 };

    pub fn kills(self) -> bool {
        matches!(self.how, How::KillBefore | How::KillAfter)
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {:?}", self.call, self.number, self.how)?;
        if self.kills() { Ok(()) } else { write!(f, " {:?}", std::io::Error::from_raw_os_error(self.errno)) }
    }
}

/// `struct control` of the C source.
#[repr(C)]
struct Control {
    how: u64,
    call: u64,
    number: u64,
    error: u64,
    hit: u64,
    seen: [u64; Call::ALL.len()],
    armed: u64,
    at: [u8; WHERE_BYTES],
}

/// The library, built for this test, and the shared memory.
pub struct Injector {
    library: PathBuf,
    control: PathBuf,
    shared: File,
}

impl Injector {
    /// Builds the library in a directory with the C compiler, which building the program needs as well.
    pub fn build(dir: &Path) -> Self {
        let (source, library, control) =
            (dir.join("injector.c"), dir.join("injector.so"), dir.join("control"));
        fs::write(&source, SOURCE).unwrap();
        let built = Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC", "-o"])
            .args([&library, &source])
            .output()
            .expect("no C compiler: install gcc");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let shared = File::options().read(true).write(true).create_new(true).open(&control).unwrap();
        shared.set_len(size_of::<Control>() as u64).unwrap();
        Self { library, control, shared }
    }

    /// What a daemon is started with; only calls on files below `below` count.
    pub fn environment(&self, below: &Path) -> Vec<(&'static str, OsString)> {
        vec![
            ("LD_PRELOAD", self.library.clone().into()),
            ("INJECT_CONTROL", self.control.clone().into()),
            ("INJECT_BELOW", below.into()),
        ]
    }

    /// Starts to count anew, with this fault.
    pub fn arm(&self, fault: Fault) {
        self.put(offset_of!(Control, armed), 0);
        self.put(offset_of!(Control, how), fault.how as u64);
        self.put(offset_of!(Control, call), fault.call as u64);
        self.put(offset_of!(Control, number), fault.number);
        self.put(offset_of!(Control, error), fault.errno.unsigned_abs().into());
        self.put(offset_of!(Control, hit), 0);
        for call in Call::ALL {
            self.put(Self::seen_at(call), 0);
        }
        self.put(offset_of!(Control, armed), 1);
    }

    pub fn disarm(&self) {
        self.put(offset_of!(Control, armed), 0);
    }

    /// How many calls of a sort there were since the last arming.
    pub fn seen(&self, call: Call) -> u64 {
        self.get(Self::seen_at(call))
    }

    /// The file on which the fault came, if it did.
    pub fn hit(&self) -> Option<String> {
        if self.get(offset_of!(Control, hit)) == 0 {
            return None;
        }
        let mut path = [0; WHERE_BYTES];
        self.shared.read_exact_at(&mut path, offset_of!(Control, at) as u64).unwrap();
        let end = path.iter().position(|byte| *byte == 0).unwrap();
        Some(String::from_utf8_lossy(&path[..end]).into_owned())
    }

    fn seen_at(call: Call) -> usize {
        offset_of!(Control, seen) + call as usize * size_of::<u64>()
    }

    fn put(&self, offset: usize, value: u64) {
        self.shared.write_all_at(&value.to_ne_bytes(), offset as u64).unwrap();
    }

    fn get(&self, offset: usize) -> u64 {
        let mut bytes = [0; 8];
        self.shared.read_exact_at(&mut bytes, offset as u64).unwrap();
        u64::from_ne_bytes(bytes)
    }
}
