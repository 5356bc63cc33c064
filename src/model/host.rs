use std::fmt;
use std::str::FromStr;

/// Something that a machine has once, such as `host:port:3000`: written with `host:` before its name.
///
/// The name is an opaque text without control characters; its users give it a meaning.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostKey(String);

/// The text is no `host:<name>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a key of a host: expected host:NAME of 6 to 255 bytes, without control characters")]
pub struct ParseHostKeyError;

impl HostKey {
    /// What the text of each key begins with.
    pub const PREFIX: &str = "host:";
    /// The longest key, in bytes, with its prefix.
    pub const MAX_BYTES: usize = 255;

    /// The name, without `host:`.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostKey {
    type Err = ParseHostKeyError;

    fn from_str(text: &str) -> Result<Self, ParseHostKeyError> {
        let name = text.strip_prefix(Self::PREFIX).filter(|name| !name.is_empty());
        let fits = |name: &&str| text.len() <= Self::MAX_BYTES && !name.chars().any(char::is_control);
        name.filter(fits).map(|name| Self(name.to_owned())).ok_or(ParseHostKeyError)
    }
}

impl fmt::Display for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Self::PREFIX, self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_with_its_prefix() {
        let longest = format!("host:{}", "n".repeat(250));
        for good in ["host:port:3000", "host:x", "host: a b", "host:é", &longest] {
            assert_eq!(good.parse::<HostKey>().map(|key| key.to_string()).as_deref(), Ok(good));
        }
        for bad in ["", "host:", "port:3000", "Host:x", "host:a\nb", "host:\u{85}", &format!("{longest}n")] {
            assert_eq!(bad.parse::<HostKey>(), Err(ParseHostKeyError), "{bad:?}");
        }
    }
}
