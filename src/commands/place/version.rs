use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::model::VersionNumber;

/// Which version an argument asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionSpec {
    /// `@@head`: the newest.
    Head,
    /// `@@N`.
    Number(VersionNumber),
}

/// Splits `PATH@@N` or `PATH@@head` at the last `@@`; none where the text doesn't end like that.
pub fn split_version(argument: &Path) -> Option<(PathBuf, VersionSpec)> {
    let bytes = argument.as_os_str().as_bytes();
    let at = bytes.windows(2).rposition(|pair| pair == b"@@")?;
    let spec = parse_spec(&bytes[at + 2..])?;
    // `dir/@@3` names nothing before the mark.
    let path = &bytes[..at];
    let named = !path.is_empty() && !path.ends_with(b"/");
    named.then(|| (PathBuf::from(OsStr::from_bytes(path)), spec))
}

fn parse_spec(text: &[u8]) -> Option<VersionSpec> {
    if text == b"head" {
        return Some(VersionSpec::Head);
    }
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let number = digits.then(|| std::str::from_utf8(text).ok()).flatten()?.parse().ok()?;
    (number > 0).then_some(VersionSpec::Number(VersionNumber(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Option<(String, VersionSpec)> {
        split_version(Path::new(text)).map(|(path, spec)| (path.display().to_string(), spec))
    }

    #[test]
    fn the_last_mark_with_a_version_counts() {
        let number = |n| VersionSpec::Number(VersionNumber(n));
        assert_eq!(split("a/x@@3"), Some(("a/x".into(), number(3))));
        assert_eq!(split("x@@2@@13"), Some(("x@@2".into(), number(13))));
        assert_eq!(split("x@@head"), Some(("x".into(), VersionSpec::Head)));
        assert_eq!(split("x@@@4"), Some(("x@".into(), number(4))));
    }

    #[test]
    fn anything_else_is_a_name() {
        for name in
            ["x", "x@@", "x@@0", "x@@-1", "x@@3a", "@@3", "a/@@3", "x@@99999999999999999999", "x@3", "x@@3/y"]
        {
            assert_eq!(split(name), None, "{name}");
        }
    }
}
