use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use super::check;

/// Locks one byte of a file for this open file description, there or not (fcntl_locking(2), `F_OFD_SETLK`); false if
/// another description has it. Closing the file, and so the death of the process, unlocks it.
pub fn try_lock_byte(file: &File, offset: i64) -> io::Result<bool> {
    match lock(file, libc::F_OFD_SETLK, libc::F_WRLCK, offset) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// As [`try_lock_byte`], but waits as long as another description has it (`F_OFD_SETLKW`).
pub fn lock_byte(file: &File, offset: i64) -> io::Result<()> {
    loop {
        match lock(file, libc::F_OFD_SETLKW, libc::F_WRLCK, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Unlocks one byte that this open file description had locked, or not.
pub fn unlock_byte(file: &File, offset: i64) -> io::Result<()> {
    lock(file, libc::F_OFD_SETLK, libc::F_UNLCK, offset)
}

fn lock(file: &File, command: libc::c_int, kind: libc::c_int, offset: i64) -> io::Result<()> {
    // SAFETY: an all-zero flock is valid; its l_pid has to be 0 for these commands.
    let mut record: libc::flock = unsafe { std::mem::zeroed() };
    record.l_type = kind as libc::c_short;
    record.l_whence = libc::SEEK_SET as libc::c_short;
    record.l_start = offset;
    record.l_len = 1;
    // SAFETY: the descriptor is open, and the record is valid for the call.
    check(unsafe { libc::fcntl(file.as_raw_fd(), command, &record) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_one_descriptions() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("records");
        let open =
            || File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let (one, other) = (open(), open());
        assert!(try_lock_byte(&one, 7).unwrap() && try_lock_byte(&one, 7).unwrap());
        assert!(!try_lock_byte(&other, 7).unwrap());
        assert!(try_lock_byte(&other, 8).unwrap());
        unlock_byte(&one, 7).unwrap();
        lock_byte(&other, 7).unwrap();
        drop(other);
        assert!(try_lock_byte(&one, 8).unwrap(), "closing unlocks");
    }
}
