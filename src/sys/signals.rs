use std::io;
use std::process::Child;
use std::process::ExitStatus;

use super::check;

/// How often a child is looked at although no signal came, in seconds: against one that was lost.
const LOOK_AGAIN_SECONDS: libc::time_t = 1;

/// The signals that end a program by default and that come from outside.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Keeps signals that would end this process away from the calling thread and those that it starts, for good; a program
/// that is run later begins without this (std resets the mask).
pub fn hold_ending_signals() -> io::Result<()> {
    let set = signals();
    // SAFETY: the set is initialised, and nobody asks for the old one.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Waits for a child after [`hold_ending_signals`], and hands on to it what was sent to this process alone. (A terminal
/// sends to both.)
pub fn wait_handing_on(child: &mut Child) -> io::Result<ExitStatus> {
    let set = signals();
    let timeout = libc::timespec { tv_sec: LOOK_AGAIN_SECONDS, tv_nsec: 0 };
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        // SAFETY: an all-zero siginfo is valid, and the kernel fills it.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set, the siginfo and the timeout are valid for the call.
        let signal = unsafe { libc::sigtimedwait(&set, &mut info, &timeout) };
        if ENDING.contains(&signal) && info.si_code <= 0 {
            // SAFETY: the child was not waited for yet, so the number is its own.
            check(unsafe { libc::kill(pid, signal) })?;
        }
    }
}

fn signals() -> libc::sigset_t {
    // SAFETY: an all-zero sigset is valid memory for sigemptyset, which initialises it.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is valid for writing.
    unsafe { libc::sigemptyset(&mut set) };
    for signal in ENDING.into_iter().chain([libc::SIGCHLD]) {
        // SAFETY: the set is initialised, and the signal is one.
        unsafe { libc::sigaddset(&mut set, signal) };
    }
    set
}
