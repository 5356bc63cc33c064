use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use super::{HostKey, IntentPattern};

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

/// Why a text is no holder, or can't be a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseHolderError {
    /// It has no bytes.
    #[error("it is empty")]
    Empty,
    /// It has too many bytes.
    #[error("it is longer than {0} bytes")]
    TooLong(usize),
    /// It has a control character, which would break the line that names the holder.
    #[error("it has a control character")]
    Control,
    /// It has a character that parts of a holder can't have.
    #[error("it has a {0:?}")]
    Forbidden(char),
    /// It is no text.
    #[error("it is not UTF-8")]
    NotText,
}

/// Which part of `user@checkout` is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HolderPart {
    /// Before the `@`.
    User,
    /// After it.
    Checkout,
}

/// A text can't be a part of a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no name of a {}", match part { HolderPart::User => "user", HolderPart::Checkout => "checkout" })]
pub struct HolderPartError {
    /// Which part it was meant to be.
    pub part: HolderPart,
    /// Why it can't be.
    pub source: ParseHolderError,
}

impl Holder {
    /// The longest holder, in bytes.
    const MAX_BYTES: usize = 255;
    /// The longest user or checkout, in bytes: two and an `@` are a holder.
    const MAX_PART_BYTES: usize = (Self::MAX_BYTES - 1) / 2;

    /// The holder of a user's checkout; neither name may have an `@`, so that it can be told what is what, or a `/`.
    pub fn of(user: &str, checkout: &str) -> Result<Self, HolderPartError> {
        for (part, text) in [(HolderPart::User, user), (HolderPart::Checkout, checkout)] {
            let forbidden = text.chars().find(|c| matches!(c, '@' | '/')).map(ParseHolderError::Forbidden);
            let checked = forbidden.map_or_else(|| check_text(text, Self::MAX_PART_BYTES), Err);
            checked.map_err(|source| HolderPartError { part, source })?;
        }
        Ok(Self(format!("{user}@{checkout}")))
    }

    /// The text of the holder.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Holder {
    type Err = ParseHolderError;

    fn from_str(text: &str) -> Result<Self, ParseHolderError> {
        check_text(text, Self::MAX_BYTES).map(|()| Self(text.to_owned()))
    }
}

fn check_text(text: &str, max_bytes: usize) -> Result<(), ParseHolderError> {
    match text.len() {
        0 => Err(ParseHolderError::Empty),
        length if length > max_bytes => Err(ParseHolderError::TooLong(max_bytes)),
        _ if text.chars().any(char::is_control) => Err(ParseHolderError::Control),
        _ => Ok(()),
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a request that may be repeated: 1 to 128 bytes without control characters, chosen by who asks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestId(String);

impl RequestId {
    /// The longest id, in bytes.
    const MAX_BYTES: usize = 128;

    /// The text of the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RequestId {
    type Err = ParseHolderError;

    fn from_str(text: &str) -> Result<Self, ParseHolderError> {
        check_text(text, Self::MAX_BYTES).map(|()| Self(text.to_owned()))
    }
}

/// What a lease is on: `artifact:<id>` or another `<kind>:<id>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceKey {
    /// One artifact of this workspace; a directory stands for all that lies below it.
    Artifact(ArtifactId),
    /// What somebody means to work on, `intent:<pattern>`; others may mean the same.
    Intent(IntentPattern),
    /// Something of which the machine has one, `host:<name>`, such as `host:port:3000`, whatever the workspace.
    Host(HostKey),
    /// A key that only its users give a meaning, such as `thread:42`.
    Free(String),
}

/// The text is no `<kind>:<id>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a key: expected KIND:ID")]
pub struct ParseKeyError;

impl fmt::Display for ResourceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Artifact(id) => write!(f, "artifact:{id}"),
            Self::Intent(pattern) => write!(f, "intent:{}", pattern.to_text()),
            Self::Host(key) => key.fmt(f),
            Self::Free(key) => f.write_str(key),
        }
    }
}

impl FromStr for ResourceKey {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        if let Some(id) = text.strip_prefix("artifact:") {
            return Uuid::try_parse(id).map(|id| Self::Artifact(ArtifactId(id))).map_err(|_| ParseKeyError);
        }
        if let Some(pattern) = text.strip_prefix("intent:") {
            return IntentPattern::from_text(pattern).map(Self::Intent).map_err(|_| ParseKeyError);
        }
        let (kind, id) = text.split_once(':').ok_or(ParseKeyError)?;
        let is_kind = !kind.is_empty() && kind.bytes().all(|b| b.is_ascii_lowercase() || b == b'-');
        let is_id = !id.is_empty() && text.len() <= 255 && !text.chars().any(char::is_control);
        match kind {
            _ if !is_kind || !is_id => Err(ParseKeyError),
            "host" => text.parse().map(Self::Host).map_err(|_| ParseKeyError),
            _ => Ok(Self::Free(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_two_names_of_which_neither_can_be_mistaken() {
        let longest = "é".repeat(63);
        assert_eq!(Holder::of("ada", &longest).unwrap().as_str(), format!("ada@{longest}"));
        assert!(Holder::of(&longest, &longest).unwrap().to_string().parse::<Holder>().is_ok());
        let faults = [
            ("", ParseHolderError::Empty),
            ("a@b", ParseHolderError::Forbidden('@')),
            ("a/b", ParseHolderError::Forbidden('/')),
            ("a\nb", ParseHolderError::Control),
            ("\u{85}", ParseHolderError::Control),
            (&"x".repeat(128), ParseHolderError::TooLong(127)),
        ];
        for (text, source) in faults {
            assert_eq!(
                Holder::of(text, "desk"),
                Err(HolderPartError { part: HolderPart::User, source }),
                "{text:?}"
            );
            assert_eq!(
                Holder::of("ada", text),
                Err(HolderPartError { part: HolderPart::Checkout, source }),
                "{text:?}"
            );
        }
    }
}
