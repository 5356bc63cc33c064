use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;

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

/// The process with this number, if it lives; one that has ended and waits for its parent (a zombie) doesn't.
pub fn process(pid: u32) -> io::Result<ProcessKey> {
    let stat = fs::read(format!("/proc/{pid}/stat"))?;
    parse_stat(pid, &String::from_utf8_lossy(&stat))
}

fn parse_stat(pid: u32, stat: &str) -> io::Result<ProcessKey> {
    // The command in parentheses may hold spaces and parentheses: fields count from the last one.
    let (_, fields) = stat.rsplit_once(')').ok_or_else(|| io::Error::other("no command in /proc stat"))?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    if has_ended(&fields) {
        return Err(io::Error::from(io::ErrorKind::NotFound));
    }
    let start = fields.get(19).and_then(|n| n.parse().ok());
    Ok(ProcessKey { pid, start_ticks: start.ok_or_else(|| io::Error::other("no start time in /proc stat"))? })
}

/// Whether the state is Z or X, and no other thread of the process is left: those may still write (proc(5), fields 3, 20).
fn has_ended(fields: &[&str]) -> bool {
    let threads = fields.get(17).and_then(|n| n.parse().ok()).unwrap_or(1_u32);
    matches!(fields.first(), Some(&("Z" | "X"))) && threads <= 1
}

/// The process that runs this code.
pub fn this_process() -> io::Result<ProcessKey> {
    process(std::process::id())
}

/// Whether that very process still runs.
///
/// `/proc` may be mounted so that it hides other users' processes (proc(5), `hidepid`): one that is there, and of which
/// nothing else can be known, counts as alive.
pub fn is_alive(key: ProcessKey) -> bool {
    match fs::read(format!("/proc/{}/stat", key.pid)) {
        Ok(stat) => parse_stat(key.pid, &String::from_utf8_lossy(&stat)).is_ok_and(|present| present == key),
        Err(_) => is_another_users(key.pid),
    }
}

/// Whether a process is there and can't be signalled, since it is another user's (kill(2), `EPERM`).
fn is_another_users(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    // SAFETY: signal 0 sends nothing; it only checks.
    let result = unsafe { libc::kill(pid, 0) };
    result == -1 && io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// How often the table of locks is read: locks that come and go meanwhile can hide one that stays, since it is read in
/// pieces, each from a line's number on (fs/locks.c, `locks_start`).
const LOCKS_READS: usize = 8;

/// The process that has a file locked (flock(2)), as `/proc/locks` tells; none where it doesn't, as of processes in
/// another PID namespace (proc_locks(5)).
pub fn flock_holder(file: &File) -> Option<u32> {
    let metadata = file.metadata().ok()?;
    let (device, inode) = (metadata.dev(), metadata.ino());
    let of_file = format!("{:02x}:{:02x}:{inode}", libc::major(device), libc::minor(device));
    (0..LOCKS_READS).find_map(|_| {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        locks.lines().find_map(|line| parse_lock(line, &of_file))
    })
}

/// `1: FLOCK  ADVISORY  WRITE 1234 00:1a:5678 0 EOF`; a waiter's line has `->` after the number.
fn parse_lock(line: &str, of_file: &str) -> Option<u32> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    match fields[..] {
        [_, "FLOCK", _, _, pid, of, ..] if of == of_file => pid.parse().ok().filter(|pid| *pid != 0),
        _ => None,
    }
}

/// Whether a process was killed, and at most waits for the kernel still: it runs no code of its own any more.
///
/// That is so if its first thread has ended, or if SIGKILL is pending for it or for all (`/proc/PID/status` of proc(5);
/// a process that dies of another signal gets SIGKILL for each thread, `zap_other_threads` in the kernel).
pub fn is_killed(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| tells_of_kill(&status))
}

fn tells_of_kill(status: &str) -> bool {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("").trim();
    let has_kill =
        |set: &str| u64::from_str_radix(set, 16).is_ok_and(|set| set & (1 << (libc::SIGKILL - 1)) != 0);
    field("State:").starts_with(['Z', 'X']) || has_kill(field("SigPnd:")) || has_kill(field("ShdPnd:"))
}

/// The effective user and group of this process.
pub fn effective_ids() -> (u32, u32) {
    // SAFETY: geteuid and getegid take nothing and can't fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn fields_count_from_the_last_parenthesis() {
        let stat = |state: &str, threads: u32| {
            let middle = "1 ".repeat(14);
            format!("7 (a) b) Z 1) {state} {middle}20 0 {threads} 0 4242 0")
        };
        let key = |state, threads| parse_stat(7, &stat(state, threads)).ok().map(|key| key.start_ticks);
        assert_eq!(key("S", 1), Some(4242));
        assert_eq!(key("Z", 1), None);
        assert_eq!(key("Z", 3), Some(4242), "its other threads still run");
    }

    #[test]
    fn the_holder_of_a_lock_is_told() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(flock_holder(&file), None);
        file.lock().unwrap();
        assert_eq!(flock_holder(&file), Some(std::process::id()));
        file.unlock().unwrap();
        assert_eq!(flock_holder(&file), None);
    }

    #[test]
    fn a_killed_process_is_told_from_others() {
        let status = |state: &str, own: u64, shared: u64| {
            format!("Name:\tState: Z\nState:\t{state}\nSigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\n")
        };
        let (kill, term) = (1 << 8, 1 << 14);
        let tells = |state, own, shared| tells_of_kill(&status(state, own, shared));
        assert!(
            tells("Z (zombie)", 0, 0) && tells("D (disk sleep)", kill, 0) && tells("D (disk sleep)", 0, kill)
        );
        assert!(!tells("S (sleeping)", 0, 0) && !tells("T (stopped)", term, term) && !tells_of_kill(""));
    }

    /// A daemon that was killed must not block the next mount until its parent, if it ever does, waits for it.
    #[test]
    fn a_zombie_is_not_alive() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let key = process(child.id()).unwrap();
        assert!(is_alive(key));
        child.kill().unwrap();
        for _ in 0..500 {
            if !is_alive(key) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(!is_alive(key));
        child.wait().unwrap();
    }
}
