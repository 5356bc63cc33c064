//! Whose turn it is to write: processes queue in the order in which they came.
//!
//! SQLite's own lock is what keeps transactions apart, but who waits for it only looks again after some time, and may
//! find it taken each time by others who came later. So who wants to write takes a number, a locked byte of a file beside
//! the database, and waits until the byte of the one before is unlocked, which the kernel does when its process dies. The
//! queue only orders: where it can't be had, or stands still since somebody in it does, one goes on to SQLite's lock.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use crate::sys;

/// How long one waits for the one before. A stopped process holds everybody up that long, once.
const PATIENCE: Duration = Duration::from_millis(500);

/// The byte that is locked for the moment in which a number is taken; numbers never come so far.
const DESK: i64 = 1 << 62;
/// How often one looks for that moment, and how long between.
const DESK_LOOKS: u32 = 40;
const DESK_PAUSE: Duration = Duration::from_micros(50);

/// The queue of one catalog.
#[derive(Debug)]
pub(super) struct Turns(Option<Arc<File>>);

/// A place in the queue, which ends with this value.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    file: &'a File,
    number: i64,
}

impl Turns {
    /// The queue beside a database, whose mode its file gets: who may write the one may queue for it.
    pub(super) fn of(database: &Path) -> Self {
        Self(open(database).ok().map(Arc::new))
    }

    /// No queue.
    pub(super) const fn none() -> Self {
        Self(None)
    }

    /// Waits for a turn; none where there is no queue, or where it stands still.
    pub(super) fn take(&self) -> Option<Turn<'_>> {
        let file = self.0.as_ref()?;
        let turn = take_number(file).ok()??;
        let before = turn.number - 1;
        match sys::try_lock_byte(file, before) {
            Ok(true) => drop(sys::unlock_byte(file, before)),
            Ok(false) => wait_for(file, before),
            Err(_) => {}
        }
        Some(turn)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Closing the file unlocks it as well.
        let _ = sys::unlock_byte(self.file, self.number);
    }
}

fn open(database: &Path) -> io::Result<File> {
    let mut path = database.as_os_str().to_owned();
    path.push("-turns");
    let mode = database.metadata()?.mode() & 0o777;
    let opened = OpenOptions::new().read(true).write(true).open(&path);
    match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => create(&PathBuf::from(path), mode),
        opened => opened,
    }
}

fn create(path: &Path, mode: u32) -> io::Result<File> {
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(mode).open(path)?;
    // Whatever the umask: whoever may write the database may queue.
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    Ok(file)
}

/// Takes the next number; none, if somebody who takes his own doesn't come to an end.
fn take_number(file: &File) -> io::Result<Option<Turn<'_>>> {
    let mut looks = 0;
    while !sys::try_lock_byte(file, DESK)? {
        looks += 1;
        if looks > DESK_LOOKS {
            return Ok(None);
        }
        thread::sleep(DESK_PAUSE);
    }
    let taken = next_number(file).and_then(|number| {
        // Numbers that are lost with a file that somebody cut are taken twice: that costs fairness alone.
        sys::try_lock_byte(file, number)?;
        file.write_all_at(&(number + 1).to_le_bytes(), 0)?;
        Ok(Turn { file, number })
    });
    sys::unlock_byte(file, DESK)?;
    taken.map(Some)
}

fn next_number(file: &File) -> io::Result<i64> {
    let mut bytes = [0; 8];
    match file.read_exact_at(&mut bytes, 0) {
        Ok(()) => Ok(i64::from_le_bytes(bytes).clamp(1, DESK - 1)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(1),
        Err(error) => Err(error),
    }
}

/// Waits until a byte is unlocked, but not longer than [`PATIENCE`]. No call waits for a lock up to a time, so that a
/// thread waits, and goes on waiting where this gives up.
fn wait_for(file: &Arc<File>, byte: i64) {
    let (file, (came, comes)) = (Arc::clone(file), sync_channel(1));
    let waiting = thread::Builder::new().name("turn".into()).spawn(move || {
        if sys::lock_byte(&file, byte).is_ok() {
            let _ = sys::unlock_byte(&file, byte);
        }
        let _ = came.send(());
    });
    if waiting.is_ok() {
        let _ = comes.recv_timeout(PATIENCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> (tempfile::TempDir, Turns, Turns) {
        let dir = tempfile::tempdir().unwrap();
        let database = dir.path().join("catalog.db");
        std::fs::write(&database, "").unwrap();
        let (one, other) = (Turns::of(&database), Turns::of(&database));
        (dir, one, other)
    }

    /// Who came later waits for who came before, and goes on when that one is done, or dead.
    #[test]
    fn turns_come_in_order() {
        let (_dir, one, other) = two();
        let first = one.take().unwrap();
        assert_eq!(first.number, 1);
        thread::scope(|scope| {
            let second = scope.spawn(|| other.take().unwrap().number);
            drop(first);
            assert_eq!(second.join().unwrap(), 2);
        });
        let left = one.take().unwrap();
        std::mem::forget(left);
        drop(one);
        assert_eq!(other.take().unwrap().number, 4, "the file was closed");
    }

    /// Who stands still in the queue holds nobody up for ever, and a spoilt file costs the order alone.
    #[test]
    fn nobody_waits_for_ever() {
        let (dir, one, other) = two();
        let _stopped = one.take().unwrap();
        assert_eq!(other.take().unwrap().number, 2);
        std::fs::write(dir.path().join("catalog.db-turns"), "").unwrap();
        assert!(other.take().is_some());
        std::fs::write(dir.path().join("catalog.db-turns"), [0xff; 9]).unwrap();
        assert_eq!(other.take().unwrap().number, 1);
        let desk = File::options().write(true).open(dir.path().join("catalog.db-turns")).unwrap();
        assert!(sys::try_lock_byte(&desk, DESK).unwrap());
        assert!(other.take().is_none());
        assert!(Turns::none().take().is_none());
    }
}
