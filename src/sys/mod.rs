//! The kernel's calls that the standard library lacks: the only `libc` and `unsafe` of the crate.
#![allow(unsafe_code, reason = "this module exists to hold it")]

mod files;
mod filesystems;
mod host;
mod inotify;
mod mount;
mod names;
mod paths;
mod process;
mod records;
mod shared;
mod signals;
mod time;

pub use files::*;
pub use filesystems::*;
pub use host::*;
pub use inotify::*;
pub use mount::*;
pub use names::*;
pub use paths::*;
pub use process::*;
pub use records::*;
pub use shared::*;
pub use signals::*;
pub use time::*;

use std::io;

/// Turns the -1 of a system call into its `errno`.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
