use std::io;
use std::path::PathBuf;

use crate::model::NameError;
use crate::sys;

/// Why a path can't be admitted: each names the path as it was written.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// The text is no path of an artifact.
    #[error("{}: no path of an artifact", path.display())]
    BadName {
        /// The text.
        path: PathBuf,
        /// What is wrong with it.
        source: NameError,
    },
    /// The path has a `..`.
    #[error("{}: has a `..`; write it without", .0.display())]
    Dots(PathBuf),
    /// The path is longer than the kernel takes.
    #[error("{}…: longer than {most} bytes; name it from a directory below", start.display())]
    TooLong {
        /// Its beginning.
        start: PathBuf,
        /// How long it may be.
        most: usize,
    },
    /// A symlink on the way leads to nothing.
    #[error("{}: the symlink {} leads nowhere; name what it is to be", path.display(), link.display())]
    Dangling {
        /// The path.
        path: PathBuf,
        /// The symlink.
        link: PathBuf,
    },
    /// Symlinks on the way go round.
    #[error("{}: its symlinks go round in a circle; name what they are to be", .0.display())]
    Looping(PathBuf),
    /// The path goes on below something that is no directory.
    #[error("{}: {} is no directory; name that, or remove it first", path.display(), file.display())]
    BelowFile {
        /// The path.
        path: PathBuf,
        /// What is no directory.
        file: PathBuf,
    },
    /// The path leads out of the checkout.
    #[error("{}: {} is not in the checkout {}; name a path in it", path.display(), real.display(), checkout.display())]
    Outside {
        /// The path.
        path: PathBuf,
        /// What it leads to.
        real: PathBuf,
        /// Where the checkout is.
        checkout: PathBuf,
    },
    /// The file has other names, which a lease on this one says nothing of.
    #[error("{}: has {links} names (hard links); copy it, so that it has one", path.display())]
    HardLinked {
        /// The path.
        path: PathBuf,
        /// How many names there are.
        links: u32,
    },
    /// The name's spellings can't be told.
    #[error(
        "{}: {} ignores the case of names, and not all letters here are ASCII; name that directory with `/**`",
        path.display(),
        dir.display()
    )]
    Unfoldable {
        /// The path.
        path: PathBuf,
        /// The directory.
        dir: PathBuf,
    },
    /// A name or a mount on its way came or went while it was looked at, or the mount is one of another namespace.
    #[error("{}: changed while it was looked at; try again", .0.display())]
    Changed(PathBuf),
    /// What the path names can't be looked at.
    #[error("{}: can't tell what it names", path.display())]
    Unverified {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl PathError {
    /// What to do about it, where the text of the error doesn't say so itself.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::BadName { .. } => Some("write a path below the checkout"),
            Self::Unverified { source, .. } if sys::is_dead_mount(source) => {
                Some("its mount is dead: mount it again")
            }
            Self::Unverified { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some("act as a user who may look there")
            }
            Self::Unverified { .. } => Some("look at its directory, then try again"),
            _ => None,
        }
    }
}
