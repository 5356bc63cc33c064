//! From the vfs's facts to error numbers.

use std::io;

use fuser::Errno;

use crate::vfs::VfsError;

/// The error number that applications see; the only place where a fact becomes a number.
///
/// A refused lease is EBUSY, and EIO is a real fault of ours or the disk's. ESTALE makes the kernel look the
/// name up once more and open what it finds (fs/namei.c, `do_filp_open`). No answer is ever ENOSYS: the kernel
/// would not ask again for as long as the mount lives.
pub(super) fn of(error: &VfsError) -> Errno {
    match error {
        VfsError::Held { .. } | VfsError::Stale { .. } | VfsError::LeaseLost | VfsError::InUse => {
            Errno::EBUSY
        }
        VfsError::Tainted => Errno::EIO,
        VfsError::Store { source } => source.io_error().map_or(Errno::EIO, of_io),
        VfsError::Catalog { source } if source.is_disk_full() => Errno::ENOSPC,
        VfsError::Catalog { source } if source.is_read_only() => Errno::EROFS,
        VfsError::Catalog { .. } => Errno::EIO,
        VfsError::Reopen => Errno::ESTALE,
        VfsError::NotFound => Errno::ENOENT,
        VfsError::Exists => Errno::EEXIST,
        VfsError::NotEmpty => Errno::ENOTEMPTY,
        VfsError::IsDirectory => Errno::EISDIR,
        VfsError::NotDirectory => Errno::ENOTDIR,
        VfsError::NotPermitted => Errno::EPERM,
        VfsError::Denied => Errno::EACCES,
        VfsError::ReadOnly => Errno::EROFS,
        VfsError::NoAttribute => Errno::ENODATA,
        VfsError::AttributeRefused => Errno::ENOTSUP,
        VfsError::BadHandle => Errno::EBADF,
        VfsError::Invalid => Errno::EINVAL,
        VfsError::NameTooLong => Errno::ENAMETOOLONG,
        VfsError::Io { source, .. } => of_io(source),
    }
}

/// The system's own number, but for the two that the kernel would take for a message of ours.
fn of_io(source: &io::Error) -> Errno {
    let errno = source.raw_os_error().map_or(Errno::EIO, Errno::from_i32);
    match errno {
        Errno::ENOSYS => Errno::EOPNOTSUPP,
        Errno::ESTALE => Errno::EIO,
        errno => errno,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::CatalogError;
    use crate::model::VersionNumber;

    fn io(errno: Errno) -> VfsError {
        VfsError::Io { doing: "test", source: io::Error::from_raw_os_error(errno.code()) }
    }

    /// Every variant has its number; a new one fails to compile in `of`.
    #[test]
    fn each_fact_has_its_number() {
        let table = [
            (VfsError::Held { lease: None }, Errno::EBUSY),
            (VfsError::Stale { base: VersionNumber(1), head: VersionNumber(2) }, Errno::EBUSY),
            (VfsError::LeaseLost, Errno::EBUSY),
            (VfsError::Tainted, Errno::EIO),
            (VfsError::InUse, Errno::EBUSY),
            (VfsError::Catalog { source: CatalogError::BadTtl }, Errno::EIO),
            (VfsError::Reopen, Errno::ESTALE),
            (VfsError::NotFound, Errno::ENOENT),
            (VfsError::Exists, Errno::EEXIST),
            (VfsError::NotEmpty, Errno::ENOTEMPTY),
            (VfsError::IsDirectory, Errno::EISDIR),
            (VfsError::NotDirectory, Errno::ENOTDIR),
            (VfsError::NotPermitted, Errno::EPERM),
            (VfsError::Denied, Errno::EACCES),
            (VfsError::ReadOnly, Errno::EROFS),
            (VfsError::NoAttribute, Errno::ENODATA),
            (VfsError::AttributeRefused, Errno::ENOTSUP),
            (VfsError::BadHandle, Errno::EBADF),
            (VfsError::Invalid, Errno::EINVAL),
            (VfsError::NameTooLong, Errno::ENAMETOOLONG),
            (io(Errno::ENOSPC), Errno::ENOSPC),
            (io(Errno::EDQUOT), Errno::EDQUOT),
            (io(Errno::ENXIO), Errno::ENXIO),
            (io(Errno::ENOSYS), Errno::EOPNOTSUPP),
            (io(Errno::ESTALE), Errno::EIO),
            (VfsError::Io { doing: "test", source: io::Error::other("no number") }, Errno::EIO),
        ];
        for (error, expected) in table {
            assert_eq!(of(&error), expected, "{error:?}");
        }
    }
}
