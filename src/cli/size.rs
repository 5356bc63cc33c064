/// The text is no size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a size such as 512M or 16G, more than nothing")]
pub struct SizeError;

/// Reads a size such as `65536`, `512M` or `16G` (K, M, G, T: powers of 1024) as bytes.
pub fn parse_size_bytes(text: &str) -> Result<u64, SizeError> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        Some(b'T') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = digits.parse().ok().filter(|_| is_plain).ok_or(SizeError)?;
    number.checked_mul(1 << unit).filter(|bytes| *bytes > 0).ok_or(SizeError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("1", 1),
            ("65536", 65536),
            ("64K", 65536),
            ("512M", 512 << 20),
            ("16G", 16 << 30),
            ("1T", 1 << 40),
        ] {
            assert_eq!(parse_size_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "0", "0G", "K", "-1", "+1", "1.5G", "16 G", "16g", "16GiB", "99999999999T", "é"] {
            assert_eq!(parse_size_bytes(text), Err(SizeError), "{text}");
        }
    }
}
