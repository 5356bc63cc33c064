//! The names on the way to a blob: which directories this store knows to be durably named, and how they become so.
//!
//! A blob survives a power cut if its own name does, that of its fan-out directory, and that of each directory above.
//! The name of the blob is synced each time. The others are synced once for each directory that the store meets: an
//! unsynced entry can only belong to a directory that has not been proven yet.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::DiskStore;
use super::ground::{Dir, DirId};

/// The directories whose names are known to be durable.
#[derive(Debug, Default)]
pub(super) struct Proven {
    /// The directory of blobs; all names above it are durable, too.
    objects: Option<DirId>,
    /// The fan-out directories, with the directory of blobs that each was seen in.
    fan_outs: HashMap<u8, (DirId, DirId)>,
}

impl DiskStore {
    /// Makes the names of fan-out directories durable, and all above them, unless they are known to be.
    ///
    /// `synced`: the filesystem was synced as a whole since the directories were opened. A barrier that failed is not
    /// remembered, whatever the settings say of it.
    pub(super) fn sync_names(
        &self,
        objects: &Dir,
        fan_outs: &HashMap<u8, Dir>,
        synced: bool,
    ) -> io::Result<()> {
        let (known_above, all_known) = {
            let proven = self.proven.lock();
            let known =
                |(number, dir): (&u8, &Dir)| proven.fan_outs.get(number) == Some(&(objects.id, dir.id));
            (proven.objects == Some(objects.id), fan_outs.iter().all(known))
        };
        if all_known && known_above {
            return Ok(());
        }
        let own = if synced { Ok(()) } else { self.steps.sync_dir(&objects.file) };
        let above = if known_above { Ok(()) } else { self.sync_above(objects) };
        own.and(above)?;
        let mut proven = self.proven.lock();
        proven.objects = Some(objects.id);
        proven.fan_outs.extend(fan_outs.iter().map(|(number, dir)| (*number, (objects.id, dir.id))));
        Ok(())
    }

    /// Syncs each directory above that of the blobs, up to `/`, or `.` for a relative path.
    fn sync_above(&self, objects: &Dir) -> io::Result<()> {
        let mut below = None;
        let mut result = Ok(());
        for path in above(&objects.path) {
            match File::open(&path) {
                Ok(dir) => {
                    result = result.and(self.sync_ancestor(&dir));
                    below = Some(dir);
                }
                // Who may pass through a directory may not always open it. The entry in it that matters is that of the
                // directory below: on one filesystem both are synced together, and a mount point's is older than we.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    let reachable = below.as_ref().unwrap_or(&objects.file);
                    result = result.and(self.steps.sync_filesystem(reachable));
                }
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    fn sync_ancestor(&self, dir: &File) -> io::Result<()> {
        match self.steps.sync_dir(dir) {
            // fsync(2): "does not support synchronization", as an automounter's directory: nothing of it is on a disk.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            result => result,
        }
    }
}

/// The directories above one, nearest first; the empty path before a relative one's first name is `.`.
fn above(path: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for ancestor in path.ancestors().skip(1) {
        let ancestor = if ancestor.as_os_str().is_empty() { Path::new(".") } else { ancestor };
        if found.last().is_none_or(|last| last != ancestor) {
            found.push(ancestor.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directories_above_end_at_the_root_or_here() {
        let of =
            |path: &str| above(Path::new(path)).iter().map(|p| p.display().to_string()).collect::<Vec<_>>();
        assert_eq!(of("/a/b/objects"), ["/a/b", "/a", "/"]);
        assert_eq!(of("objects"), ["."]);
        assert_eq!(of("./objects"), ["."]);
        assert_eq!(of("a/objects"), ["a", "."]);
        assert_eq!(of("../a/objects"), ["../a", "..", "."]);
    }
}
