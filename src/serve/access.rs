//! Who may come in: bearer tokens (RFC 6750), compared without telling by the time how much of one was right.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use subtle::ConstantTimeEq;

use super::ServeError;
use crate::blobs::digest_of;
use crate::model::Digest;

/// How long a token may be.
const TOKEN_BYTES: u64 = 4096;

/// What a request is allowed to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// The tokens that let in. Where there is none, everybody may read and write; where there is only one for reading,
/// nobody may write.
#[derive(Clone, Default)]
pub struct Tokens {
    write: Option<Token>,
    read: Option<Token>,
}

/// A token's digest: digests are all of one length, so that comparing them tells nothing of the token's.
#[derive(Clone, Copy)]
struct Token(Digest);

impl Tokens {
    /// Reads the token for all, and the one for reading only, from files that nobody but their owner may read.
    pub fn from_files(write: Option<&Path>, read: Option<&Path>) -> Result<Self, ServeError> {
        let token = |path: Option<&Path>| path.map(Token::from_file).transpose();
        Ok(Self { write: token(write)?, read: token(read)? })
    }

    /// Whether there is no token.
    pub fn are_none(&self) -> bool {
        self.write.is_none() && self.read.is_none()
    }

    /// What a request may do by its headers; none if it may not come in.
    pub(super) fn access(&self, headers: &HeaderMap) -> Option<Access> {
        if self.are_none() {
            return Some(Access::Write);
        }
        let given = Token(digest_of(bearer(headers)?));
        // Both are compared, whatever the first one says.
        let (writes, reads) = (given.is(self.write), given.is(self.read));
        match (writes, reads) {
            (true, _) => Some(Access::Write),
            (false, true) => Some(Access::Read),
            (false, false) => None,
        }
    }
}

impl Token {
    fn from_file(path: &Path) -> Result<Self, ServeError> {
        let failed = |source: io::Error| ServeError::TokenFile { path: path.to_owned(), source };
        let wrong = |problem| ServeError::Token { path: path.to_owned(), problem };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(wrong("not a regular file"));
        }
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err(wrong("open to others than its owner; chmod 600 it"));
        }
        let mut bytes = Vec::new();
        file.take(TOKEN_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        let token = bytes.trim_ascii();
        if token.is_empty() || bytes.len() as u64 > TOKEN_BYTES {
            return Err(wrong("a token has 1 to 4096 bytes"));
        }
        if !token.iter().all(u8::is_ascii_graphic) {
            return Err(wrong("a token has letters, digits and signs of ASCII only, and no spaces"));
        }
        Ok(Self(digest_of(token)))
    }

    fn is(self, expected: Option<Self>) -> bool {
        expected.is_some_and(|expected| self.0.as_bytes().ct_eq(expected.0.as_bytes()).into())
    }
}

/// The token of the one `Authorization` header, if there is one of that scheme.
fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?.as_bytes();
    let (scheme, token) = value.split_at(value.iter().position(|byte| *byte == b' ')?);
    scheme.eq_ignore_ascii_case(b"bearer").then(|| token.trim_ascii())
}

/// Without the tokens.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    fn file(dir: &Path, text: &[u8], mode: u32) -> std::path::PathBuf {
        let path = dir.join("token");
        let _ = fs::remove_file(&path);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION, value.parse().unwrap())).collect()
    }

    #[test]
    fn the_scheme_has_no_case_and_the_token_has() {
        let dir = tempfile::tempdir().unwrap();
        let write = Tokens::from_files(Some(&file(dir.path(), b"all\n", 0o600)), None).unwrap();
        let read = Tokens::from_files(None, Some(&file(dir.path(), b"look", 0o400))).unwrap();
        let both = Tokens { write: write.write, read: read.read };
        let cases: [(&[&str], [Option<Access>; 3]); 10] = [
            (&["Bearer all"], [Some(Access::Write), None, Some(Access::Write)]),
            (&["bEARER  all "], [Some(Access::Write), None, Some(Access::Write)]),
            (&["Bearer look"], [None, Some(Access::Read), Some(Access::Read)]),
            (&["Bearer All"], [None; 3]),
            (&["Bearer al"], [None; 3]),
            (&["Bearer"], [None; 3]),
            (&["Basic all"], [None; 3]),
            (&["all"], [None; 3]),
            (&[], [None; 3]),
            (&["Bearer all", "Bearer all"], [None; 3]),
        ];
        for (given, expected) in cases {
            let found = [&write, &read, &both].map(|tokens| tokens.access(&headers(given)));
            assert_eq!(found, expected, "{given:?}");
            assert_eq!(Tokens::default().access(&headers(given)), Some(Access::Write));
        }
    }

    #[test]
    fn a_token_file_is_private_and_holds_one_word() {
        let dir = tempfile::tempdir().unwrap();
        let long = [b'x'; 4097];
        for (text, mode) in [
            (&b"secret"[..], 0o640),
            (b"secret", 0o604),
            (b"secret", 0o601),
            (b"", 0o600),
            (b" \n", 0o600),
            (b"secret secret", 0o600),
            (b"secret\0", 0o600),
            (b"secret\xff", 0o600),
            (&long, 0o600),
        ] {
            let path = file(dir.path(), text, mode);
            let error = Tokens::from_files(Some(&path), None).unwrap_err();
            assert!(matches!(error, ServeError::Token { .. }), "{text:?} {mode:o}");
            assert!(!format!("{error} {error:?}").contains("secret"));
        }
        assert!(matches!(Tokens::from_files(None, Some(dir.path())), Err(ServeError::Token { .. })));
        let absent = dir.path().join("absent");
        assert!(matches!(Tokens::from_files(Some(&absent), None), Err(ServeError::TokenFile { .. })));
        assert_eq!(
            format!("{:?}", Tokens::from_files(Some(&file(dir.path(), b"x", 0o600)), None).unwrap()),
            "Tokens { .. }"
        );
    }
}
