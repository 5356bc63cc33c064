use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// One component of a path: 1 to 255 bytes, any but `/` and NUL, and neither `.` nor `..`; never normalised.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<[u8]>);

/// Why some bytes are no name or path of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name has no bytes.
    #[error("a name can't be empty")]
    Empty,
    /// The name has more than 255 bytes (`NAME_MAX`).
    #[error("a name is longer than 255 bytes")]
    TooLong,
    /// The name holds a `/` or a NUL byte, or is `.` or `..`.
    #[error("{0:?} can't be a name")]
    Forbidden(String),
}

impl Name {
    /// The longest name, in bytes (Linux's `NAME_MAX`).
    pub const MAX_BYTES: usize = 255;

    /// Checks the bytes of one component.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, NameError> {
        let bytes = bytes.as_ref();
        match bytes {
            [] => Err(NameError::Empty),
            _ if bytes.len() > Self::MAX_BYTES => Err(NameError::TooLong),
            b"." | b".." => Err(NameError::Forbidden(lossy(bytes))),
            _ if bytes.iter().any(|b| matches!(b, b'/' | 0)) => Err(NameError::Forbidden(lossy(bytes))),
            _ => Ok(Self(bytes.into())),
        }
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The name as the platform's string.
    pub fn as_os_str(&self) -> &std::ffi::OsStr {
        std::ffi::OsStr::from_bytes(&self.0)
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&printable(&self.0), f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", lossy(&self.0))
    }
}

/// Makes bytes safe to print on a terminal: control characters and invalid UTF-8 show as `\xNN`.
fn printable(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() {
                let mut buffer = [0; 4];
                c.encode_utf8(&mut buffer).bytes().for_each(|b| out.push_str(&format!("\\x{b:02x}")));
            } else {
                out.push(c);
            }
        }
        chunk.invalid().iter().for_each(|b| out.push_str(&format!("\\x{b:02x}")));
    }
    out
}

/// Where an artifact is in the tree: the names from the root down; the root itself has none.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArtifactPath(Vec<Name>);

impl ArtifactPath {
    /// The path of the root directory.
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// The path with these names.
    pub fn from_names(names: Vec<Name>) -> Self {
        Self(names)
    }

    /// Reads a relative path: `.` components are dropped, and `..` is refused, since a symlink may stand before it.
    pub fn parse(path: impl AsRef<Path>) -> Result<Self, NameError> {
        let mut names = Vec::new();
        for component in path.as_ref().components() {
            match component {
                Component::CurDir => {}
                Component::Normal(name) => names.push(Name::new(name.as_bytes())?),
                other => return Err(NameError::Forbidden(lossy(other.as_os_str().as_bytes()))),
            }
        }
        Ok(Self(names))
    }

    /// The names from the root down.
    pub fn names(&self) -> &[Name] {
        &self.0
    }

    /// Whether this is the root directory.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The last name; none for the root.
    pub fn file_name(&self) -> Option<&Name> {
        self.0.last()
    }

    /// The path of the directory that holds this one; none for the root.
    pub fn parent(&self) -> Option<Self> {
        let (_, parents) = self.0.split_last()?;
        Some(Self(parents.to_vec()))
    }

    /// The path of a name below this one.
    pub fn join(&self, name: Name) -> Self {
        let mut names = self.0.clone();
        names.push(name);
        Self(names)
    }

    /// Whether this path is `other` or lies below it, by whole components.
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    /// The path for the host's calls, relative to a mount's root.
    pub fn to_path_buf(&self) -> PathBuf {
        self.0.iter().map(Name::as_os_str).collect()
    }
}

impl fmt::Display for ArtifactPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(".");
        }
        let joined = self.0.iter().map(|n| n.as_bytes()).collect::<Vec<_>>().join(&b'/');
        fmt::Display::fmt(&printable(&joined), f)
    }
}

impl fmt::Debug for ArtifactPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_take_any_bytes_but_the_forbidden_ones() {
        for good in [&b"a"[..], b" trailing ", b"x\ny", b"\xff\xfe", b"a=b:c%d@@3", &[b'n'; 255]] {
            assert_eq!(Name::new(good).map(|n| n.as_bytes().to_vec()), Ok(good.to_vec()));
        }
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0b", &[b'n'; 256]] {
            assert!(Name::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn paths_compare_by_components_and_print_without_control_characters() {
        let path = |p: &str| ArtifactPath::parse(p).unwrap();
        assert!(path("src/auth/x").is_within(&path("src/auth")));
        assert!(!path("src/authority").is_within(&path("src/auth")));
        assert!(path("a").is_within(&ArtifactPath::root()));
        assert_eq!(path("./a/./b"), path("a/b"));
        assert!(ArtifactPath::parse("a/../b").is_err());
        assert!(ArtifactPath::parse("/a").is_err());
        assert_eq!(path("a/\u{1b}[31m\n").to_string(), "a/\\x1b[31m\\x0a");
    }
}
