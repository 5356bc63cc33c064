use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Form, FormError};
use crate::model::{ArtifactPath, Timestamp};

/// An artifact's path: `path`, and `path_hex` with its bytes where they are not UTF-8.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathForm {
    /// The path, exactly if it is UTF-8, else a printable form of it; the root is `.`.
    pub path: String,
    /// The bytes, hexadecimal; only where they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_hex: Option<String>,
}

impl Form for PathForm {
    type Value = ArtifactPath;

    fn of(path: &ArtifactPath) -> Self {
        if path.is_root() {
            return Self { path: ".".into(), path_hex: None };
        }
        let buffer = path.to_path_buf();
        match buffer.to_str() {
            Some(text) => Self { path: text.to_owned(), path_hex: None },
            None => Self { path: path.to_string(), path_hex: Some(to_hex(buffer.as_os_str())) },
        }
    }

    fn read(self) -> Result<ArtifactPath, FormError> {
        const ERROR: FormError = FormError { field: "path", expected: "path of an artifact" };
        let bytes = bytes_of(self.path, self.path_hex).ok_or(ERROR)?;
        ArtifactPath::parse(Path::new(&bytes)).map_err(|_| ERROR)
    }
}

/// A path of the machine, in the same form as an artifact's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPathForm {
    /// The path, exactly if it is UTF-8.
    pub path: String,
    /// The bytes, hexadecimal; only where they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_hex: Option<String>,
}

impl HostPathForm {
    /// Writes a path.
    pub fn of(path: &Path) -> Self {
        let path_hex = path.to_str().is_none().then(|| to_hex(path.as_os_str()));
        Self { path: path.display().to_string(), path_hex }
    }

    /// Reads the path.
    pub fn read(self) -> Result<PathBuf, FormError> {
        let bytes = bytes_of(self.path, self.path_hex);
        bytes.map(PathBuf::from).ok_or(FormError { field: "path", expected: "path" })
    }
}

fn bytes_of(text: String, hex: Option<String>) -> Option<OsString> {
    match hex {
        Some(hex) => from_hex(&hex),
        None => Some(text.into()),
    }
}

fn to_hex(text: &OsStr) -> String {
    let mut hex = String::with_capacity(text.len() * 2);
    for byte in text.as_bytes() {
        // Writing to a string can't fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

fn from_hex(hex: &str) -> Option<OsString> {
    if !hex.len().is_multiple_of(2) || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = (0..hex.len()).step_by(2);
    let bytes = pairs.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).ok());
    bytes.collect::<Option<Vec<u8>>>().map(OsString::from_vec)
}

/// Reads a time as [`Timestamp::to_rfc3339`] writes it.
pub(super) fn read_time(text: &str, field: &'static str) -> Result<Timestamp, FormError> {
    let time: Option<jiff::Timestamp> = text.parse().ok();
    let nanos = time.and_then(|time| i64::try_from(time.as_nanosecond()).ok());
    nanos.map(Timestamp).ok_or(FormError { field, expected: "RFC 3339 time" })
}

/// Reads a value from its text.
pub(super) fn read_text<T: FromStr>(
    text: &str,
    field: &'static str,
    expected: &'static str,
) -> Result<T, FormError> {
    text.parse().map_err(|_| FormError { field, expected })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_keep_every_byte() {
        for bytes in [&b"a/b c"[..], b"a\n\x1b/\xc3\xa9", b"bad\xff/\xfe", b"x@@3", b""] {
            let path = ArtifactPath::parse(Path::new(OsStr::from_bytes(bytes))).unwrap();
            let form = PathForm::of(&path);
            let json = serde_json::to_string(&form).unwrap();
            assert!(json.is_ascii() || std::str::from_utf8(bytes).is_ok());
            assert_eq!(serde_json::from_str::<PathForm>(&json).unwrap().read(), Ok(path));
            let host = Path::new(OsStr::from_bytes(bytes));
            assert_eq!(HostPathForm::of(host).read().unwrap(), host);
        }
        let odd = ArtifactPath::parse(Path::new(OsStr::from_bytes(b"a\xff"))).unwrap();
        assert_eq!(
            serde_json::to_string(&PathForm::of(&odd)).unwrap(),
            r#"{"path":"a\\xff","path_hex":"61ff"}"#
        );
    }

    #[test]
    fn hostile_paths_are_refused() {
        for (path, hex) in
            [("../x", None), ("/etc", None), ("a", Some("2e2e")), ("a", Some("6")), ("a", Some("zz"))]
        {
            let form = PathForm { path: path.into(), path_hex: hex.map(str::to_owned) };
            assert!(form.read().is_err(), "{path} {hex:?}");
        }
        assert!(PathForm { path: "a\0b".into(), path_hex: None }.read().is_err());
        assert!(PathForm { path: "a".into(), path_hex: Some("é0".into()) }.read().is_err());
    }
}
