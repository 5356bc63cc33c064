use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{Metadata, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use super::error::{HostError, Result};
use super::form::{self, Contents};
use super::lease::{Blocker, HostLease};
use super::place::{Dir, Ground};
use crate::ids::Ids;
use crate::model::{HostKey, Instant};
use crate::sys;

/// The most leases of one user on one machine.
pub const MAX_LEASES: usize = 1024;

/// The largest file that is read: [`MAX_LEASES`] of the longest keys and holders fit, escapes included.
const MAX_BYTES: u64 = 2 << 20;

/// The most files of one user that are read: he has one, and another one for a moment while leases move.
const MAX_FILES: usize = 4;

/// Everybody reads the files, and each user writes his own.
const FILE_MODE: u32 = 0o644;

/// A file that was left out, since nothing in it can be taken for a lease.
///
/// Leases are written whole or not at all, so only its owner or root can have made it so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OddFile {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: String,
}

/// The leases of all users, without those that have ended.
#[derive(Default)]
pub(super) struct Table {
    /// The present user's.
    pub(super) own: Vec<HostLease>,
    /// The other users'.
    pub(super) others: Vec<HostLease>,
    /// Keys of other users' records that can't be read otherwise.
    pub(super) unclear: Vec<Blocker>,
    pub(super) odd: Vec<OddFile>,
    /// The present user's files: the directory's index, and the name.
    files: Vec<(usize, OsString)>,
}

impl Table {
    /// Reads the files of all users.
    pub(super) fn read(ground: &Ground, me: u32, now: Instant) -> Result<Self> {
        let mut table = Self::default();
        for (index, dir) in ground.dirs.iter().enumerate() {
            table.read_dir(index, dir, me)?;
        }
        table.own.retain(|lease| lease.is_live(now));
        table.others.retain(|lease| lease.is_live(now));
        table.merge_own();
        Ok(table)
    }

    fn read_dir(&mut self, index: usize, dir: &Dir, me: u32) -> Result<()> {
        let mut names = sys::names_in(&dir.file).map_err(file_error("list", dir.path.clone()))?;
        names.sort_unstable();
        let mut files: BTreeMap<u32, usize> = BTreeMap::new();
        for name in names {
            let Some(uid) = user_of(&name) else { continue };
            let count = files.entry(uid).or_default();
            let found = read_file(dir, &name, uid, *count)?;
            *count += usize::from(matches!(found, Found::Contents(_) | Found::Broken(_)));
            match found {
                Found::Nothing => {}
                Found::Contents(contents) if uid == me => self.add_own(index, dir, name, contents)?,
                Found::Contents(contents) => self.add_others(dir, &name, contents),
                Found::Broken(fault) if uid == me => {
                    return Err(HostError::Damaged { path: dir.path_of(&name), fault });
                }
                Found::Broken(fault) | Found::Foreign(fault) => {
                    self.odd.push(OddFile { path: dir.path_of(&name), fault });
                }
            }
        }
        Ok(())
    }

    fn add_own(&mut self, index: usize, dir: &Dir, name: OsString, contents: Contents) -> Result<()> {
        if !contents.unclear.is_empty() || contents.faults > 0 {
            let fault = "it has records that can't be read, perhaps a newer version's".to_owned();
            return Err(HostError::Damaged { path: dir.path_of(&name), fault });
        }
        self.own.extend(contents.leases);
        self.files.push((index, name));
        Ok(())
    }

    fn add_others(&mut self, dir: &Dir, name: &OsStr, contents: Contents) {
        let path = dir.path_of(name);
        self.others.extend(contents.leases);
        let blockers = contents.unclear.into_iter().map(|key| Blocker::Unclear { key, path: path.clone() });
        self.unclear.extend(blockers);
        if contents.faults > 0 {
            let fault = format!("{} records without a key", contents.faults);
            self.odd.push(OddFile { path, fault });
        }
    }

    /// Keeps one lease for each key: a file whose leases were moved to another one may be left by a crash.
    fn merge_own(&mut self) {
        self.own.sort_by(|a, b| {
            let age = |lease: &HostLease| (lease.generation, lease.expires_boot_ms);
            a.key.cmp(&b.key).then_with(|| age(b).cmp(&age(a)))
        });
        self.own.dedup_by(|later, kept| later.key == kept.key);
    }

    /// The user's own lease on a key.
    pub(super) fn own(&self, key: &HostKey) -> Option<&HostLease> {
        self.own.iter().find(|lease| lease.key == *key)
    }

    /// Puts a lease in the place of the user's own on that key.
    pub(super) fn put_own(&mut self, lease: HostLease) {
        self.own.retain(|old| old.key != lease.key);
        self.own.push(lease);
    }

    /// What of other users stands in the way.
    pub(super) fn foreign(&self, key: &HostKey) -> Vec<Blocker> {
        let leases = self.others.iter().filter(|lease| lease.key == *key).cloned().map(Blocker::Lease);
        leases.chain(self.unclear.iter().filter(|blocker| blocker.key() == key).cloned()).collect()
    }

    /// Writes the user's leases to a file that has not yet its name.
    pub(super) fn prepare(self, ground: Ground, me: u32, ids: &dyn Ids) -> Result<Prepared> {
        let dir = ground.writable();
        remove_litter(dir, me)?;
        let name = match self.files.iter().find(|(index, _)| *index == 0) {
            Some((_, name)) => name.clone(),
            None => free_name(dir, me, ids)?,
        };
        if self.own.len() > MAX_LEASES {
            return Err(HostError::TooMany { path: dir.path_of(&name), most: MAX_LEASES });
        }
        let bytes = form::encode(&name.to_string_lossy(), &self.own);
        let target = (0, name.clone());
        let replaced = self.files.into_iter().filter(|file| *file != target).collect();
        let temporary = Some(temporary_name(me, ids));
        let prepared = Prepared { ground, temporary, name, replaced };
        prepared.write(&bytes)?;
        Ok(prepared)
    }
}

/// A user's new file, before it has its name: dropped, it is removed. The gates stay locked as long.
pub(super) struct Prepared {
    ground: Ground,
    temporary: Option<OsString>,
    name: OsString,
    replaced: Vec<(usize, OsString)>,
}

impl Prepared {
    fn write(&self, bytes: &[u8]) -> Result<()> {
        let (dir, Some(temporary)) = (self.ground.writable(), &self.temporary) else { return Ok(()) };
        let written = sys::create_file_at(&dir.file, temporary, FILE_MODE).and_then(|mut file| {
            // The umask may have taken what others need for reading.
            file.set_permissions(Permissions::from_mode(FILE_MODE))?;
            file.write_all(bytes)
        });
        written.map_err(file_error("write", dir.path_of(temporary)))
    }

    /// Gives the file its name. No sync: a power cut ends the boot, and that all leases.
    pub(super) fn publish(mut self) -> Result<()> {
        let dir = self.ground.writable();
        if let Some(temporary) = &self.temporary {
            sys::rename_at(&dir.file, temporary, &dir.file, &self.name)
                .map_err(file_error("write", dir.path_of(&self.name)))?;
        }
        self.temporary = None;
        for (index, name) in &self.replaced {
            // What is left is merged by the next reader.
            let _ = sys::unlink_at(&self.ground.dirs[*index].file, name);
        }
        Ok(())
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // What is left goes with the user's next change.
            let _ = sys::unlink_at(&self.ground.writable().file, temporary);
        }
    }
}

/// What has the name of a user's file.
enum Found {
    /// It is gone.
    Nothing,
    /// Its name is another user's doing.
    Foreign(String),
    /// It is his, and can't be read.
    Broken(String),
    Contents(Contents),
}

/// Reads what is a regular file of the user whose number is in its name, who has `others` more.
fn read_file(dir: &Dir, name: &OsStr, uid: u32, others: usize) -> Result<Found> {
    let failed = || file_error("read", dir.path_of(name));
    let present = match sys::facts_at(&dir.file, name) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        other => other.map_err(failed())?,
    };
    if present.uid != uid {
        return Ok(foreign(present.uid));
    }
    if !present.is_file() {
        return Ok(Found::Broken("not a regular file".to_owned()));
    }
    if others >= MAX_FILES {
        return Ok(Found::Broken(format!("one of more than {MAX_FILES} files of that user")));
    }
    let file = match sys::open_file_at(&dir.file, name) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Ok(Found::Broken("its mode keeps readers out".to_owned()));
        }
        other => other.map_err(failed())?,
    };
    // It may have been replaced since.
    let metadata = file.metadata().map_err(failed())?;
    if let Some(found) = refuse(&metadata, uid) {
        return Ok(found);
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed())?;
    if bytes.len() as u64 > MAX_BYTES {
        return Ok(Found::Broken(too_large()));
    }
    Ok(match form::decode(&bytes, &name.to_string_lossy(), uid) {
        Ok(Some(contents)) => Found::Contents(contents),
        // Where fs.protected_hardlinks is off, others can give his file more names, and keep a former one (proc_sys_fs(5)).
        Ok(None) => Found::Foreign("a file that was written under another name".to_owned()),
        Err(fault) => Found::Broken(fault),
    })
}

fn refuse(metadata: &Metadata, uid: u32) -> Option<Found> {
    if metadata.uid() != uid {
        Some(foreign(metadata.uid()))
    } else if !metadata.is_file() {
        Some(Found::Broken("not a regular file".to_owned()))
    } else if metadata.len() > MAX_BYTES {
        Some(Found::Broken(too_large()))
    } else {
        None
    }
}

fn foreign(uid: u32) -> Found {
    Found::Foreign(format!("belongs to user {uid}, not to the one in its name"))
}

fn too_large() -> String {
    format!("larger than {MAX_BYTES} bytes")
}

/// The user in the name of a file: `<uid>.json`, or `<uid>.<token>.json` where another user had taken that name.
fn user_of(name: &OsStr) -> Option<u32> {
    let stem = name.to_str()?.strip_suffix(".json")?;
    let (number, token) = stem.split_once('.').unwrap_or((stem, "0"));
    let uid: u32 = number.parse().ok()?;
    let fits = !token.is_empty() && token.bytes().all(|b| b.is_ascii_hexdigit());
    (fits && uid.to_string() == number).then_some(uid)
}

fn free_name(dir: &Dir, me: u32, ids: &dyn Ids) -> Result<OsString> {
    let name = OsString::from(format!("{me}.json"));
    match sys::facts_at(&dir.file, &name) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(name),
        // Nobody else's file can be replaced in a directory with the sticky bit.
        Ok(_) => Ok(format!("{me}.{}.json", ids.token()).into()),
        Err(error) => Err(file_error("read", dir.path_of(&name))(error)),
    }
}

fn temporary_name(me: u32, ids: &dyn Ids) -> OsString {
    format!(".{me}.{}", ids.token()).into()
}

/// Removes what this user's processes left that were killed; all of it, since the gate is ours.
fn remove_litter(dir: &Dir, me: u32) -> Result<()> {
    let names = sys::names_in(&dir.file).map_err(file_error("list", dir.path.clone()))?;
    let prefix = format!(".{me}.");
    for name in names.iter().filter(|name| name.to_str().is_some_and(|name| name.starts_with(&prefix))) {
        // Another user may have made it: then it stays.
        let _ = sys::unlink_at(&dir.file, name);
    }
    Ok(())
}

fn file_error(doing: &'static str, path: PathBuf) -> impl FnOnce(io::Error) -> HostError {
    move |source| HostError::File { doing, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_user_in_one_spelling() {
        for (name, uid) in [
            ("0.json", Some(0)),
            ("1000.json", Some(1000)),
            ("1000.0a9f.json", Some(1000)),
            ("4294967295.json", Some(u32::MAX)),
            ("4294967296.json", None),
            ("01000.json", None),
            ("+1000.json", None),
            ("1000..json", None),
            ("1000.x.json", None),
            ("1000.a.b.json", None),
            (".1000.a", None),
            ("1000.json.bak", None),
            ("json", None),
        ] {
            assert_eq!(user_of(OsStr::new(name)), uid, "{name}");
        }
    }
}
