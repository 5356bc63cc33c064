use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::model::Holder;

/// A longer name is cut and hashed: a socket's address has 108 bytes (unix(7)), of which `/proc/self/fd/N/` takes some.
const MAX_STEM_BYTES: usize = 60;

/// A name for a holder's files in `run/` and `log/`: no `/`, no leading dot, not too long, and no two holders' alike.
pub fn file_name(holder: &Holder, extension: &str) -> String {
    let stem = escape(holder.as_str());
    if stem.len() <= MAX_STEM_BYTES {
        return format!("{stem}.{extension}");
    }
    let hash = fnv1a(holder.as_str().as_bytes());
    format!("{}%{hash:016x}.{extension}", &stem[..MAX_STEM_BYTES - 17])
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for (index, byte) in text.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric() || b"_-@".contains(&byte) || (byte == b'.' && index > 0);
        if plain {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02x}"));
        }
    }
    escaped
}

/// The 64-bit FNV-1a hash, which stays the same from release to release.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// A short address of a socket in a directory, however long the directory's own path is; good while the file is open.
pub fn address(directory: &Path, name: &str) -> io::Result<(File, PathBuf)> {
    let directory = File::open(directory)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", directory.as_raw_fd()));
    Ok((directory, path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    fn name(holder: &str) -> String {
        file_name(&holder.parse().unwrap(), "sock")
    }

    #[test]
    fn holders_have_safe_and_different_names() {
        assert_eq!(name("ada@desk"), "ada@desk.sock");
        assert_eq!(name("../a b"), "%2e.%2fa%20b.sock");
        let (long, longer) = ("é".repeat(127), "é".repeat(126));
        assert_ne!(name(&long), name(&longer));
        assert!(name(&long).len() <= MAX_STEM_BYTES + 5);
        assert_ne!(name("a%b"), name("a%25b"));
    }

    #[test]
    fn a_socket_may_lie_deep() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(200));
        std::fs::create_dir(&deep).unwrap();
        let (_directory, path) = address(&deep, &name(&"h".repeat(255))).unwrap();
        let _listener = UnixListener::bind(&path).unwrap();
        UnixStream::connect(&path).unwrap();
    }
}
