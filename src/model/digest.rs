use std::fmt;
use std::str::FromStr;

/// The SHA-256 of a blob's bytes: its address in the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// The text isn't 64 lower-case hexadecimal digits; the text itself is never repeated in the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a SHA-256 digest: expected 64 lower-case hexadecimal digits")]
pub struct ParseDigestError;

impl Digest {
    /// The digest with these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes of the digest.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The digest as 64 lower-case hexadecimal digits.
    pub fn to_hex(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.0
            .iter()
            .flat_map(|b| [DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]])
            .map(char::from)
            .collect()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({})", self.to_hex())
    }
}

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Self, ParseDigestError> {
        let text = text.as_bytes();
        if text.len() != 64 {
            return Err(ParseDigestError);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

fn nibble(digit: u8) -> Result<u8, ParseDigestError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(ParseDigestError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_round_trip_and_bad_text_is_refused() {
        let digest = Digest::from_bytes(std::array::from_fn(|i| (i * 9) as u8));
        assert_eq!(digest.to_hex().parse(), Ok(digest));
        let (digits, hex) = (|n| "0".repeat(n), digest.to_hex());
        let decorated = [
            format!("sha256:{hex}"),
            format!(" {hex}"),
            format!("{hex}\n"),
            format!("{hex}?x"),
            format!("{}/{}", digits(31), digits(32)),
            format!("{}%2f{}", digits(31), digits(30)),
        ];
        let malformed = ["".into(), digits(63), digits(65), digits(1 << 20), "g".repeat(64), "A".repeat(64)];
        for bad in malformed.into_iter().chain(decorated).chain(["é".repeat(32), "..".into()]) {
            assert_eq!(bad.parse::<Digest>(), Err(ParseDigestError), "{bad}");
        }
        assert!(ParseDigestError.to_string().len() < 100);
    }
}
