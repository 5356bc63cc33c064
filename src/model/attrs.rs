/// A point in time as nanoseconds since 1970-01-01 00:00 UTC; negative before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The time as RFC 3339 in UTC, to the second: `2026-11-30T14:05:00Z`.
    pub fn to_rfc3339(self) -> String {
        let seconds = jiff::Timestamp::from_second(self.0.div_euclid(1_000_000_000));
        seconds.map_or_else(|_| "1970-01-01T00:00:00Z".into(), |t| t.to_string())
    }
}

/// What sort of thing a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
    /// A directory.
    Directory,
    /// A named pipe: scratch only.
    Fifo,
    /// A socket: scratch only.
    Socket,
}

impl Kind {
    /// Whether a check-in can hold it: FIFOs and sockets stay in the checkout.
    pub fn is_versioned(self) -> bool {
        matches!(self, Self::File | Self::Symlink | Self::Directory)
    }
}

/// The attributes of a file that its content does not determine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attrs {
    /// The permission bits, `0o7777` at most.
    pub mode: u32,
    /// The owner; on versions the mount's own user.
    pub uid: u32,
    /// The group; on versions the mount's own group.
    pub gid: u32,
    /// Last read, as far as anybody set it.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of content or attributes.
    pub ctime: Timestamp,
}
