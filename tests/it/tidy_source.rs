//! The sources as the tidiness tests see them: without comments, text and tests.

use std::fs;
use std::path::{Path, PathBuf};

/// One file of `src/`.
pub struct SourceFile {
    /// Relative to the package.
    pub path: PathBuf,
    /// As it is on disk.
    pub text: String,
    /// With comments and the contents of literals blanked: every line and column stays where it was.
    pub code: String,
    /// With comments blanked.
    pub uncommented: String,
    /// How many lines come before the tests; 0 for a file of tests.
    pub lines_before_tests: usize,
}

impl SourceFile {
    fn read(root: &Path, path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let path = path.strip_prefix(root).unwrap().to_owned();
        let lines_before_tests = lines_before_tests(&text);
        let (code, uncommented) = (blank(&text, true), blank(&text, false));
        Self { path, text, code, uncommented, lines_before_tests }
    }

    /// The modules that the file declares for tests alone, in files of their own.
    fn modules_of_tests(&self) -> Vec<Vec<String>> {
        let lines: Vec<&str> = self.code.lines().map(str::trim).collect();
        let declared = lines.windows(2).filter(|pair| pair[0] == "#[cfg(test)]").filter_map(|pair| {
            let name = pair[1].strip_suffix(';')?.rsplit_once("mod ")?.1;
            Some([self.module(), vec![name.to_owned()]].concat())
        });
        declared.collect()
    }

    /// The lines before the tests, numbered from 1, of one of the texts.
    pub fn before_tests<'a>(&self, text: &'a str) -> impl Iterator<Item = (usize, &'a str)> + use<'a> {
        text.lines().enumerate().map(|(at, line)| (at + 1, line)).take(self.lines_before_tests)
    }

    /// The names of the module that the file is, from the crate's root; empty for `lib.rs` and `main.rs`.
    pub fn module(&self) -> Vec<String> {
        let parts = self.path.strip_prefix("src").unwrap().with_extension("");
        let mut names: Vec<String> = parts.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        if matches!(names.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            names.pop();
        }
        names
    }

    /// `src/x.rs:12`.
    pub fn at(&self, line: usize) -> String {
        format!("{}:{line}", self.path.display())
    }
}

/// Every file of `src/`, by path.
pub fn all() -> Vec<SourceFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    find(&root.join("src"), &mut paths);
    paths.sort();
    let mut files: Vec<SourceFile> = paths.iter().map(|path| SourceFile::read(root, path)).collect();
    let tests: Vec<Vec<String>> = files.iter().flat_map(SourceFile::modules_of_tests).collect();
    for file in &mut files {
        if tests.iter().any(|test| file.module().starts_with(test)) {
            file.lines_before_tests = 0;
        }
    }
    files
}

fn find(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// A `#[cfg(test)]` whose item has a body begins the tests; one before `mod tests;` is a line like any other.
fn lines_before_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |at: &usize| {
        lines[*at] == "#[cfg(test)]" && lines.get(at + 1).is_some_and(|next| next.ends_with('{'))
    };
    (0..lines.len()).find(begins).unwrap_or(lines.len())
}

/// Blanks comments and, if asked, what is between the quotes of literals.
fn blank(text: &str, literals: bool) -> String {
    let mut out = Blanked { out: String::with_capacity(text.len()), literals };
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '/' if rest.starts_with("//") => out.hide(rest.find('\n').map_or(rest, |end| &rest[..end])),
            '/' if rest.starts_with("/*") => out.hide(&rest[..block_comment(rest)]),
            '"' => out.literal(&rest[..1 + string_end(&rest[1..])], 1),
            'r' | 'b' if raw_string(rest).is_some() && !out.in_word() => {
                let (open, length) = raw_string(rest).unwrap();
                out.literal(&rest[..length], open)
            }
            '\'' if char_literal(rest).is_some() => out.literal(&rest[..char_literal(rest).unwrap()], 1),
            _ => out.show(&rest[..c.len_utf8()]),
        };
        rest = &rest[length..];
    }
    out.out
}

struct Blanked {
    out: String,
    literals: bool,
}

impl Blanked {
    fn show(&mut self, text: &str) -> usize {
        self.out.push_str(text);
        text.len()
    }

    fn hide(&mut self, text: &str) -> usize {
        self.out.extend(text.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        text.len()
    }

    fn literal(&mut self, text: &str, quote: usize) -> usize {
        if !self.literals || text.len() < 2 * quote {
            return self.show(text);
        }
        self.show(&text[..quote]);
        self.hide(&text[quote..text.len() - quote]);
        self.show(&text[text.len() - quote..]);
        text.len()
    }

    fn in_word(&self) -> bool {
        self.out.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_')
    }
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    loop {
        match &text[at..] {
            rest if rest.starts_with("/*") => (depth, at) = (depth + 1, at + 2),
            rest if rest.starts_with("*/") => (depth, at) = (depth - 1, at + 2),
            "" => return at,
            rest => at += rest.chars().next().map_or(0, char::len_utf8),
        }
        if depth == 0 {
            return at;
        }
    }
}

/// How long the rest of a string is after its first quote, with the last one.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The lengths of the opening and of the whole of `r"…"`, `r#"…"#`, `br"…"` or `b"…"`.
fn raw_string(text: &str) -> Option<(usize, usize)> {
    let prefix = ["br", "r", "b"].into_iter().find(|prefix| text.starts_with(prefix))?;
    let after = &text[prefix.len()..];
    if prefix == "b" {
        return after.strip_prefix('"').map(|rest| (2, 2 + string_end(rest)));
    }
    let hashes = after.len() - after.trim_start_matches('#').len();
    after[hashes..].strip_prefix('"')?;
    let open = prefix.len() + hashes + 1;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = text[open..].find(&close).map_or(text.len(), |at| open + at + close.len());
    Some((open, end))
}

/// The length of a character literal; none for a lifetime.
fn char_literal(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    let (_, first) = chars.next()?;
    if first == '\\' {
        return text[2..].char_indices().skip(1).find(|(_, c)| *c == '\'').map(|(at, _)| at + 3);
    }
    chars.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1)
}

#[test]
fn comments_and_literals_are_told_from_code() {
    let text = "let a = \"x // y\"; // unsafe\nlet b = 'u'; /* a /* b */ c */ fn f<'a>() {}\nr#\"libc \"#;";
    let code = blank(text, true);
    assert_eq!(code.len(), text.len());
    assert!(
        !code.contains("unsafe")
            && !code.contains("libc")
            && !code.contains('u')
            && code.contains("fn f<'a>() {}")
    );
    assert!(blank(text, false).contains("x // y") && !blank(text, false).contains("unsafe"));
}
