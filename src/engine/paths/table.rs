use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The filesystem type of our mounts (`fuse` and the subtype, as proc(5) shows it).
const FS_TYPE: &[u8] = b"fuse.leasehold";

/// One line of the mount table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its number, as statx(2) tells it (`stx_mnt_id`).
    pub id: u64,
    /// Where it shows.
    pub mountpoint: PathBuf,
    /// The directory of the filesystem that shows there: `/`, or another one for a bind mount.
    pub root: PathBuf,
    /// The filesystem's device, as `MAJOR:MINOR`; bind mounts of one filesystem share it.
    pub device: String,
    /// Whether it is a mount of ours.
    pub is_leasehold: bool,
    /// The workspace, for a mount of ours.
    pub source: PathBuf,
}

/// The mounts of this process's namespace (proc(5), `mountinfo`).
#[derive(Debug, Clone, Default)]
pub struct MountTable(Vec<Mount>);

impl MountTable {
    /// Reads `/proc/self/mountinfo`.
    pub fn read() -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read("/proc/self/mountinfo")?))
    }

    /// Reads the text of a mountinfo file; lines that can't be read are left out.
    pub fn parse(text: &[u8]) -> Self {
        Self(text.split(|b| *b == b'\n').filter_map(parse_line).collect())
    }

    /// The mount that a path, which has no symlinks in it, is on.
    pub fn containing(&self, path: &Path) -> Option<&Mount> {
        // Of several mounts on one mountpoint the last one covers the others.
        self.0
            .iter()
            .filter(|mount| path.starts_with(&mount.mountpoint))
            .max_by_key(|m| m.mountpoint.components().count())
    }

    /// The mount with this number.
    pub fn with_id(&self, id: u64) -> Option<&Mount> {
        self.0.iter().find(|mount| mount.id == id)
    }

    /// The mount of ours that a path is on.
    pub fn leasehold_at(&self, path: &Path) -> Option<&Mount> {
        self.containing(path).filter(|mount| mount.is_leasehold)
    }

    /// The mount of ours that shows exactly at a mountpoint, on top of others.
    pub fn on(&self, mountpoint: &Path) -> Option<&Mount> {
        self.leasehold_at(mountpoint).filter(|mount| mount.mountpoint == mountpoint)
    }

    /// The mount of a whole filesystem, of which `mount` may be a bind mount.
    pub fn original<'a>(&'a self, mount: &'a Mount) -> &'a Mount {
        let whole = |m: &&Mount| m.device == mount.device && m.root == Path::new("/");
        if whole(&mount) { mount } else { self.0.iter().find(whole).unwrap_or(mount) }
    }

    /// Where a filesystem shows, by its device.
    pub fn mountpoints_of(&self, device: &str) -> Vec<&Path> {
        self.0.iter().filter(|m| m.device == device).map(|m| m.mountpoint.as_path()).collect()
    }
}

/// `36 35 98:0 /root /mountpoint options optional... - type source super-options`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let separator = fields.iter().position(|field| *field == b"-")?;
    Some(Mount {
        id: std::str::from_utf8(fields[0]).ok()?.parse().ok()?,
        mountpoint: decode(fields.get(4)?),
        root: decode(fields.get(3)?),
        device: String::from_utf8(fields.get(2)?.to_vec()).ok()?,
        is_leasehold: *fields.get(separator + 1)? == FS_TYPE,
        source: decode(fields.get(separator + 2)?),
    })
}

/// Undoes the kernel's octal escapes (`\040` for a space; seq_path(), `mangle_path`).
fn decode(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let escaped = (byte == b'\\').then(|| tail.get(..3).and_then(octal)).flatten();
        bytes.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &tail[3..] } else { tail };
    }
    OsString::from_vec(bytes).into()
}

fn octal(digits: &[u8]) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok()?;
    u8::from_str_radix(text, 8).ok()
}

/// Where a path is in its mount's filesystem, from the root of that: the root of a bind mount, and what follows its
/// mountpoint. A file has one such place, however many mounts show it.
pub fn inner_path(mount: &Mount, path: &Path) -> PathBuf {
    let root = mount.root.as_os_str().as_bytes();
    let root = Path::new(std::ffi::OsStr::from_bytes(root.strip_prefix(b"/").unwrap_or(root)));
    let rest = path.strip_prefix(&mount.mountpoint).unwrap_or(Path::new(""));
    root.join(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
        60 21 0:50 / /mnt/my\\040docs rw,nosuid shared:9 master:2 - fuse.leasehold /srv/w\\134s\\0111 rw\n\
        61 21 0:50 /a/b /alias rw - fuse.leasehold /srv/w\\134s\\0111 rw\n\
        62 60 0:51 / /mnt/my\\040docs/tmp rw - tmpfs tmpfs rw\n\
        63 21 0:52 / /twice rw - fuse.leasehold /ws rw\n\
        64 63 0:53 / /twice rw - tmpfs none rw\n\
        cut line\n";

    #[test]
    fn escapes_are_decoded_and_bytes_kept() {
        assert_eq!(decode(b"a\\040b\\011c\\012d\\134e\\043"), Path::new("a b\tc\nd\\e#"));
        assert_eq!(decode(b"odd\\9\\"), Path::new("odd\\9\\"));
        assert_eq!(decode(b"\xff\\777").as_os_str().as_bytes(), b"\xff\\777");
    }

    #[test]
    fn the_innermost_mount_decides() {
        let table = MountTable::parse(TABLE);
        let mount = table.leasehold_at(Path::new("/mnt/my docs/a/x")).unwrap();
        assert_eq!((mount.source.as_path(), mount.device.as_str()), (Path::new("/srv/w\\s\t1"), "0:50"));
        assert_eq!(table.leasehold_at(Path::new("/mnt/my docs/tmp/x")), None, "another filesystem covers it");
        assert_eq!(table.leasehold_at(Path::new("/mnt/my docs 2/x")), None, "whole components only");
        assert_eq!(table.leasehold_at(Path::new("/twice/x")), None, "the later mount is on top");
        assert_eq!(table.with_id(62).map(|mount| mount.device.as_str()), Some("0:51"));
        assert_eq!(table.with_id(20), None);
        assert!(table.on(Path::new("/alias")).is_some());
        assert!(table.on(Path::new("/alias/x")).is_none());
    }

    #[test]
    fn a_bind_mount_names_the_same_artifacts() {
        let table = MountTable::parse(TABLE);
        let alias = table.leasehold_at(Path::new("/alias/x")).unwrap();
        assert_eq!(inner_path(alias, Path::new("/alias/x")), Path::new("a/b/x"));
        assert_eq!(table.original(alias).mountpoint, Path::new("/mnt/my docs"));
        assert_eq!(table.mountpoints_of("0:50"), [Path::new("/mnt/my docs"), Path::new("/alias")]);
    }
}
