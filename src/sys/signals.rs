use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::ExitStatus;
use std::process::{Child, Command};

use super::check;

/// How often a child is looked at although no signal came, in seconds: against one that was lost.
const LOOK_AGAIN_SECONDS: libc::time_t = 1;

/// The signals that end a program by default and that come from outside.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Keeps signals that would end this process away from the calling thread and those that it starts, for good. A program
/// that is run later would begin so as well: see [`let_signals_end`].
pub fn hold_ending_signals() -> io::Result<()> {
    let set = signals();
    // SAFETY: the set is initialised, and nobody asks for the old one.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

/// Lets a program that is to be run begin with no signal kept away, whatever this process holds.
pub fn let_signals_end(command: &mut Command) -> &mut Command {
    let unblock = || {
        // SAFETY: an all-zero sigset is valid memory for sigemptyset, which initialises it.
        let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is valid for writing.
        unsafe { libc::sigemptyset(&mut none) };
        // SAFETY: the set is initialised, and nobody asks for the old one.
        match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()) } {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    };
    // SAFETY: between fork and exec only async-signal-safe calls are made (signal-safety(7)), and nothing is allocated.
    unsafe { command.pre_exec(unblock) }
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

/// A signal that ends a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndSignal {
    /// `SIGTERM`: it may clean up.
    Terminate,
    /// `SIGKILL`: at once.
    Kill,
}

/// A process that can't be taken for another one with the same number (pidfd_open(2)).
#[derive(Debug)]
pub struct ProcessHandle(OwnedFd);

impl ProcessHandle {
    /// The handle of a child that nobody has waited for yet.
    pub fn of_child(child: &Child) -> io::Result<Self> {
        // SAFETY: the call takes numbers only; the child was not waited for, so the number is its own.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
        let fd = check(libc::c_int::try_from(fd).map_err(io::Error::other)?)?;
        // SAFETY: the descriptor is new and nobody else's.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sends a signal (pidfd_send_signal(2)); fails where the process has ended.
    pub fn send(&self, signal: EndSignal) -> io::Result<()> {
        let number = match signal {
            EndSignal::Terminate => libc::SIGTERM,
            EndSignal::Kill => libc::SIGKILL,
        };
        let no_info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open, and the kernel takes a null pointer for no information.
        let sent =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), number, no_info, 0) };
        check(libc::c_int::try_from(sent).map_err(io::Error::other)?).map(drop)
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
