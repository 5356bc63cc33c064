use std::fs;
use std::io;

/// A process that can't be taken for another one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProcessKey {
    /// The process (thread group) number.
    pub pid: u32,
    /// Its start, in clock ticks since boot (proc(5), `stat`, field 22).
    pub start_ticks: u64,
}

/// The process that a thread belongs to; FUSE names threads (`/proc/TID/status`, `Tgid`).
///
/// Fails where the thread is gone or is hidden (another PID namespace).
pub fn process_of_thread(tid: u32) -> io::Result<ProcessKey> {
    let status = fs::read_to_string(format!("/proc/{tid}/status"))?;
    let tgid = status.lines().find_map(|line| line.strip_prefix("Tgid:")).and_then(|n| n.trim().parse().ok());
    process(tgid.ok_or_else(|| io::Error::other("no Tgid in /proc status"))?)
}

/// The process with this number, if it lives.
pub fn process(pid: u32) -> io::Result<ProcessKey> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The command in parentheses may hold spaces and parentheses: fields count from the last one.
    let (_, fields) = stat.rsplit_once(')').ok_or_else(|| io::Error::other("no command in /proc stat"))?;
    let start = fields.split_ascii_whitespace().nth(19).and_then(|n| n.parse().ok());
    Ok(ProcessKey { pid, start_ticks: start.ok_or_else(|| io::Error::other("no start time in /proc stat"))? })
}

/// The process that runs this code.
pub fn this_process() -> io::Result<ProcessKey> {
    process(std::process::id())
}

/// Whether that very process still runs.
pub fn is_alive(key: ProcessKey) -> bool {
    process(key.pid).is_ok_and(|present| present == key)
}

/// The effective user and group of this process.
pub fn effective_ids() -> (u32, u32) {
    // SAFETY: geteuid and getegid take nothing and can't fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}
