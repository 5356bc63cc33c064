use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{ArtifactPath, NameError};

/// The last component that makes a pattern stand for a whole subtree.
const SUBTREE: &str = "**";

/// Where somebody intends to write: one literal path, or with `/**` at its end a path and all that lies below it.
///
/// Nothing else is a wildcard: `src/auth/*` and `**/x` are literal names. A literal path stands for itself alone, even
/// where it is a directory's. Patterns are compared by whole components: `src/auth/**` has nothing to do with
/// `src/authz`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IntentPattern {
    path: ArtifactPath,
    is_subtree: bool,
}

impl IntentPattern {
    /// Reads a path relative to the checkout's root, as [`ArtifactPath::parse`] does; `**` alone is the whole tree.
    pub fn parse(text: impl AsRef<Path>) -> Result<Self, NameError> {
        let text = text.as_ref();
        if text.as_os_str().is_empty() {
            return Err(NameError::Empty);
        }
        let path = ArtifactPath::parse(text)?;
        match path.parent() {
            Some(parent) if ends_in_stars(&path) => Ok(Self::subtree(parent)),
            _ => Ok(Self { path, is_subtree: false }),
        }
    }

    /// The pattern of one path; one whose last name is `**` is refused, since it would read as a subtree.
    pub fn literal(path: ArtifactPath) -> Result<Self, NameError> {
        if ends_in_stars(&path) {
            return Err(NameError::Forbidden(SUBTREE.to_owned()));
        }
        Ok(Self { path, is_subtree: false })
    }

    /// The pattern of a path and all that lies below it.
    pub fn subtree(path: ArtifactPath) -> Self {
        Self { path, is_subtree: true }
    }

    /// The path, without the mark of a subtree.
    pub fn path(&self) -> &ArtifactPath {
        &self.path
    }

    /// Whether it stands for all below the path, too.
    pub fn is_subtree(&self) -> bool {
        self.is_subtree
    }

    /// Whether a write to `path` is meant.
    pub fn covers(&self, path: &ArtifactPath) -> bool {
        if self.is_subtree { path.is_within(&self.path) } else { *path == self.path }
    }

    /// Whether some path is meant by both.
    pub fn overlaps(&self, other: &Self) -> bool {
        // Two subtrees are apart or one within the other: what they share begins at the root of one of them.
        self.covers(&other.path) || other.covers(&self.path)
    }

    /// The bytes that [`IntentPattern::parse`] reads as this pattern; those of the root are `.` or `**`.
    pub fn to_path_buf(&self) -> PathBuf {
        let mut text = self.path.to_path_buf();
        if self.is_subtree {
            text.push(SUBTREE);
        } else if self.path.is_root() {
            text.push(".");
        }
        text
    }
}

fn ends_in_stars(path: &ArtifactPath) -> bool {
    path.file_name().is_some_and(|name| name.as_os_str().as_bytes() == SUBTREE.as_bytes())
}

/// Shows it as it was written, safe for a terminal as [`ArtifactPath`] is.
impl fmt::Display for IntentPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_subtree, self.path.is_root()) {
            (false, _) => self.path.fmt(f),
            (true, true) => f.write_str(SUBTREE),
            (true, false) => write!(f, "{}/{SUBTREE}", self.path),
        }
    }
}

impl fmt::Debug for IntentPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> IntentPattern {
        IntentPattern::parse(text).unwrap()
    }

    fn path(text: &str) -> ArtifactPath {
        ArtifactPath::parse(text).unwrap()
    }

    /// Whose ways cross: by components, with the trailing `/**` as the only wildcard.
    #[test]
    fn overlap_is_judged_by_components() {
        for (one, other, expected) in [
            ("src/auth", "src/auth", true),
            ("src/auth", "src/auth/**", true),
            ("src/auth/**", "src/auth/**", true),
            ("src/auth/x", "src/auth/**", true),
            ("src/auth/x/y/z", "src/auth/**", true),
            ("src/auth/x/**", "src/auth/**", true),
            ("src/authz/x", "src/auth/**", false),
            ("src/authz/x", "src/auth", false),
            ("src/authz/**", "src/auth/**", false),
            ("src/au", "src/auth/**", false),
            ("src", "src/auth/**", false),
            ("src", "src/auth", false),
            ("src/**", "src/auth", true),
            ("src/auth", "lib/auth", false),
            ("**", "src/auth", true),
            ("**", "src/auth/**", true),
            ("**", ".", true),
            ("**", "**", true),
            (".", "src", false),
            ("src/auth/*", "src/auth/x", false),
            ("src/auth/*", "src/auth/*", true),
            ("src/auth/*", "src/auth/**", true),
            ("**/x", "a/x", false),
            ("**/x", "**", true),
            ("a/**/x", "a/b/x", false),
            ("./src//auth/", "src/auth", true),
            ("./src//auth/**/", "src/auth/x", true),
        ] {
            assert_eq!(pattern(one).overlaps(&pattern(other)), expected, "{one} with {other}");
            assert_eq!(pattern(other).overlaps(&pattern(one)), expected, "{other} with {one}");
        }
    }

    #[test]
    fn what_is_covered_is_the_path_or_what_lies_below() {
        for (text, covered, not) in [
            ("src/auth", &["src/auth"][..], &["src/auth/x", "src", "src/authz", "."][..]),
            (
                "src/auth/**",
                &["src/auth", "src/auth/x", "src/auth/x/y"],
                &["src", "src/authz", "src/authz/x"],
            ),
            ("**", &[".", "a", "a/b/c"], &[]),
            ("src/*", &["src/*"], &["src/a"]),
        ] {
            covered.iter().for_each(|p| assert!(pattern(text).covers(&path(p)), "{text} {p}"));
            not.iter().for_each(|p| assert!(!pattern(text).covers(&path(p)), "{text} {p}"));
        }
    }

    /// What is stored can be read again, whatever bytes are in it, and what is shown breaks no line.
    #[test]
    fn patterns_are_written_as_they_are_read() {
        for (text, shown) in [
            ("src/auth", "src/auth"),
            ("./src//auth/**", "src/auth/**"),
            ("**", "**"),
            (".", "."),
            ("**/x", "**/x"),
            ("a\n/**", "a\\x0a/**"),
        ] {
            assert_eq!(pattern(text).to_string(), shown);
            assert_eq!(IntentPattern::parse(pattern(text).to_path_buf()).unwrap(), pattern(text));
        }
        let bytes = IntentPattern::parse(OsStr::from_bytes(b"a/\xff/**")).unwrap();
        assert_eq!(IntentPattern::parse(bytes.to_path_buf()).unwrap(), bytes);
        assert_eq!(bytes.to_string(), "a/\\xff/**");
    }

    #[test]
    fn what_is_no_relative_path_is_no_pattern() {
        let long = "n".repeat(256);
        for bad in ["", "/", "/a", "..", "a/../b", "a/..", "a\0b", &long, &format!("a/{long}/**")] {
            assert!(IntentPattern::parse(bad).is_err(), "{bad:?}");
        }
        assert!(IntentPattern::literal(path("a/**")).is_err(), "it would read as a subtree");
        assert_eq!(IntentPattern::literal(path("**/a")), Ok(pattern("**/a")));
        assert_eq!(IntentPattern::subtree(path("a")), pattern("a/**"));
    }

    const NAMES: [&str; 4] = ["a", "ab", "*", "b"];

    /// All paths of up to three names.
    fn small_paths() -> Vec<String> {
        let mut paths = vec![String::new()];
        for from in 0..21 {
            let below = NAMES.map(|name| format!("{}/{name}", paths[from]));
            paths.extend(below);
        }
        paths
    }

    /// Covering, told by text: each path and prefix ends in a `/`.
    fn covers_by_text(text: &str, path: &str) -> bool {
        match text.strip_suffix("/**") {
            Some(prefix) => format!("{path}/").starts_with(&format!("{prefix}/")),
            None => path == text,
        }
    }

    fn text() -> impl Strategy<Value = String> {
        let paths = small_paths().into_iter().filter(|path| path.matches('/').count() <= 2);
        (proptest::sample::select(paths.collect::<Vec<_>>()), any::<bool>())
            .prop_map(|(path, below)| if below { format!("{path}/**") } else { path })
    }

    proptest! {
        #[test]
        fn patterns_overlap_where_both_cover_a_path(one in text(), other in text()) {
            let parse = |text: &str| pattern(&format!(".{text}"));
            let both = |path: &String| covers_by_text(&one, path) && covers_by_text(&other, path);
            prop_assert_eq!(parse(&one).overlaps(&parse(&other)), small_paths().iter().any(both));
            prop_assert_eq!(parse(&one).overlaps(&parse(&other)), parse(&other).overlaps(&parse(&one)));
            for path in small_paths() {
                let covers = parse(&one).covers(&ArtifactPath::parse(format!(".{path}")).unwrap());
                prop_assert_eq!(covers, covers_by_text(&one, &path));
            }
        }
    }
}
