use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// An artifact's row number in the catalog, the same for all checkouts; the root directory's is 1.
    Seq
}
number! {
    /// The number of a version of one artifact, from 1.
    VersionNumber
}
number! {
    /// The number of a change (a check-in) of the workspace, from 1.
    ChangeNumber
}
number! {
    /// A checkout's row number in the catalog.
    CheckoutId
}
number! {
    /// A lease's generation: it never decreases and is never reused in a workspace.
    Generation
}

impl Seq {
    /// The root directory.
    pub const ROOT: Self = Self(1);
}

/// An inode number: `st_ino` and the kernel's node id; 1 is the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

impl Ino {
    /// The root directory (FUSE's `FUSE_ROOT_ID`).
    pub const ROOT: Self = Self(1);
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An artifact's identity, which neither a rename nor a save changes (a UUID, version 7: RFC 9562).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArtifactId(pub Uuid);

impl fmt::Display for ArtifactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

/// Who holds a lease: an opaque text of 1 to 255 bytes without control characters, by default `user@checkout`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder(String);

/// The text is empty, longer than 255 bytes, or holds a control character.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a holder: expected 1 to 255 bytes without control characters")]
pub struct ParseHolderError;

impl Holder {
    /// The holder that a user's checkout is by default.
    pub fn of(user: &str, checkout: &str) -> Result<Self, ParseHolderError> {
        format!("{user}@{checkout}").parse()
    }

    /// The text of the holder.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Holder {
    type Err = ParseHolderError;

    fn from_str(text: &str) -> Result<Self, ParseHolderError> {
        let fits = (1..=255).contains(&text.len()) && !text.chars().any(char::is_control);
        if fits { Ok(Self(text.to_owned())) } else { Err(ParseHolderError) }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a lease is on: `artifact:<id>` or another `<kind>:<id>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKey {
    /// One artifact of this workspace; a directory stands for all that lies below it.
    Artifact(ArtifactId),
    /// A key that only its users give a meaning, such as `thread:42`.
    Free(String),
}

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Artifact(id) => write!(f, "artifact:{id}"),
            Self::Free(key) => f.write_str(key),
        }
    }
}

impl FromStr for ResourceKey {
    type Err = ParseHolderError;

    fn from_str(text: &str) -> Result<Self, ParseHolderError> {
        if let Some(id) = text.strip_prefix("artifact:") {
            return Uuid::try_parse(id)
                .map(|id| Self::Artifact(ArtifactId(id)))
                .map_err(|_| ParseHolderError);
        }
        let (kind, id) = text.split_once(':').ok_or(ParseHolderError)?;
        let fits = !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
        if fits && !id.is_empty() && text.len() <= 255 && !text.chars().any(char::is_control) {
            Ok(Self::Free(text.to_owned()))
        } else {
            Err(ParseHolderError)
        }
    }
}
