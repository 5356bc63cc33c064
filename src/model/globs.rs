use std::fmt;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

use super::{ArtifactPath, Name};

/// Why some texts are no globs for names or paths.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GlobError {
    /// The text breaks the glob syntax.
    #[error("{glob:?} is not a valid glob")]
    Syntax {
        /// The text.
        glob: String,
        /// What is wrong in it.
        #[source]
        source: globset::Error,
    },
    /// No name or path can match the text: it is empty, or a `/` stands where none can be.
    #[error("{glob:?} can never match: it is empty, or has a `/` where a name has none")]
    NeverMatches {
        /// The text.
        glob: String,
    },
    /// Each glob is valid, but together they compile to more than the matcher's limit.
    #[error("the globs are too large to be compiled together")]
    TooLarge(#[source] globset::Error),
}

/// Globs that are compared with a single name, byte by byte.
///
/// `*` stands for any bytes, `?` and `[a-z]` for one byte, `{a,b}` for either; `\` takes the next character as it
/// is. A glob that begins with `(?i)` matches ASCII letters in any case.
#[derive(Clone)]
pub struct NameGlobs {
    texts: Vec<String>,
    set: GlobSet,
}

impl NameGlobs {
    /// Compiles the globs.
    pub fn new<S: AsRef<str>>(globs: &[S]) -> Result<Self, GlobError> {
        let texts: Vec<String> = globs.iter().map(|glob| glob.as_ref().to_owned()).collect();
        match texts.iter().find(|text| body_of(text).is_empty() || text.contains('/')) {
            Some(glob) => Err(GlobError::NeverMatches { glob: glob.clone() }),
            None => Ok(Self { set: compile(texts.iter().map(String::as_str))?, texts }),
        }
    }

    /// Whether one of the globs matches the whole name.
    pub fn is_match(&self, name: &Name) -> bool {
        self.set.is_match(name.as_os_str())
    }

    /// The globs as they were written.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }
}

/// Globs that are compared with paths in the tree.
///
/// One without a `/` is compared with the last name, wherever it stands; one with a `/` with the whole path from the
/// root, where `**` stands for any number of directories. The rest is as in [`NameGlobs`].
#[derive(Clone)]
pub struct PathGlobs {
    texts: Vec<String>,
    names: GlobSet,
    paths: GlobSet,
}

impl PathGlobs {
    /// Whether there is no glob at all.
    pub fn is_empty(&self) -> bool {
        self.texts().is_empty()
    }

    /// Compiles the globs.
    pub fn new<S: AsRef<str>>(globs: &[S]) -> Result<Self, GlobError> {
        let texts: Vec<String> = globs.iter().map(|glob| glob.as_ref().to_owned()).collect();
        if let Some(glob) = texts.iter().find(|text| body_of(text).is_empty() || text.ends_with('/')) {
            return Err(GlobError::NeverMatches { glob: glob.clone() });
        }
        let (paths, names): (Vec<&str>, Vec<&str>) =
            texts.iter().map(String::as_str).partition(|t| t.contains('/'));
        Ok(Self { names: compile(names)?, paths: compile(paths)?, texts })
    }

    /// Whether one of the globs matches; none matches the root.
    pub fn is_match(&self, path: &ArtifactPath) -> bool {
        let Some(name) = path.file_name() else { return false };
        self.names.is_match(name.as_os_str())
            || (!self.paths.is_empty() && self.paths.is_match(path.to_path_buf()))
    }

    /// The globs as they were written.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }
}

/// Compares and shows a set by the globs as they were written; compiled ones can't be compared.
macro_rules! equal_by_texts {
    ($type:ident) => {
        impl PartialEq for $type {
            fn eq(&self, other: &Self) -> bool {
                self.texts == other.texts
            }
        }

        impl Eq for $type {}

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple(stringify!($type)).field(&self.texts).finish()
            }
        }
    };
}

equal_by_texts!(NameGlobs);
equal_by_texts!(PathGlobs);

/// The glob without the mark of "any case".
fn body_of(text: &str) -> &str {
    let body = text.strip_prefix("(?i)").unwrap_or(text);
    body.strip_prefix('/').unwrap_or(body)
}

fn compile<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<GlobSet, GlobError> {
    let mut set = GlobSetBuilder::new();
    for text in texts {
        set.add(glob_of(text)?);
    }
    set.build().map_err(GlobError::TooLarge)
}

fn glob_of(text: &str) -> Result<Glob, GlobError> {
    GlobBuilder::new(body_of(text))
        .literal_separator(true)
        .backslash_escape(true)
        .case_insensitive(text.starts_with("(?i)"))
        .build()
        .map_err(|source| GlobError::Syntax { glob: text.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(bytes: impl AsRef<[u8]>) -> Name {
        Name::new(bytes).unwrap()
    }

    #[test]
    fn stars_and_question_marks_match_any_bytes() {
        let globs = NameGlobs::new(&["a*z", "?.x", "(?i)Desk*.ini", r"\*", "{p,q}[0-9]"]).unwrap();
        for good in [&b"az"[..], b"a\xff\xfe\nz", b"a.b.z", b"\xff.x", b"\n.x", b"DESKtop.INI", b"*", b"q7"] {
            assert!(globs.is_match(&name(good)), "{good:?}");
        }
        for bad in [&b"xaz"[..], b"az ", b".x", b"\xc3\xa9.x", b"A z", b"x", b"r7"] {
            assert!(!globs.is_match(&name(bad)), "{bad:?}");
        }
        assert!(!NameGlobs::new::<String>(&[]).unwrap().is_match(&name("a")));
    }

    #[test]
    fn path_globs_look_at_the_name_or_at_the_path_from_the_root() {
        let globs = PathGlobs::new(&["*.psd", "media/**", "/top.txt", "a/*.bin"]).unwrap();
        let matches = |path: &str| globs.is_match(&ArtifactPath::parse(path).unwrap());
        for good in ["x.psd", "deep/er/x.psd", "media/a", "media/a/b", "top.txt", "a/x.bin"] {
            assert!(matches(good), "{good}");
        }
        for bad in ["x.psd/y", "old/media/a", "b/top.txt", "a/b/x.bin", "."] {
            assert!(!matches(bad), "{bad}");
        }
    }

    #[test]
    fn globs_that_are_wrong_or_could_never_match_are_refused() {
        assert!(matches!(NameGlobs::new(&["ok", "[a"]), Err(GlobError::Syntax { glob, .. }) if glob == "[a"));
        for bad in ["", "(?i)", "a/b", "/a"] {
            assert_eq!(NameGlobs::new(&[bad]), Err(GlobError::NeverMatches { glob: bad.into() }));
        }
        for bad in ["", "/", "dir/"] {
            assert_eq!(PathGlobs::new(&[bad]), Err(GlobError::NeverMatches { glob: bad.into() }));
        }
    }

    proptest! {
        #[test]
        fn no_glob_and_no_name_panics(glob in any::<String>(), bytes in proptest::collection::vec(any::<u8>(), 1..40)) {
            let Ok(name) = Name::new(&bytes) else { return Ok(()) };
            if let Ok(globs) = NameGlobs::new(&[&glob]) {
                globs.is_match(&name);
            }
            if let Ok(globs) = PathGlobs::new(&[&glob]) {
                globs.is_match(&ArtifactPath::from_names(vec![name.clone(), name]));
            }
        }

        #[test]
        fn an_escaped_name_matches_itself_alone(text in "[^/\0]{1,20}", other in "[^/\0]{1,20}") {
            prop_assume!(![".", ".."].contains(&&*text) && ![".", ".."].contains(&&*other));
            let escaped: String = text.chars().flat_map(|c| ['\\', c]).collect();
            let globs = NameGlobs::new(&[escaped]).unwrap();
            prop_assert!(globs.is_match(&name(&text)));
            prop_assert_eq!(globs.is_match(&name(&other)), text == other);
        }
    }
}
