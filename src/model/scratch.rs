use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};

use super::Name;

/// What a name looks like, by its spelling alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameClass {
    /// A document's name.
    Document,
    /// Always scratch: a lock, temporary, backup or journal name (classes S, L, B and J).
    Scratch,
    /// Scratch only while it is young or stands beside its document (class A).
    Ambiguous,
}

/// The globs by which names are told apart; they match the base name.
#[derive(Debug, Clone)]
pub struct ScratchRules {
    scratch: GlobSet,
    ambiguous: GlobSet,
}

impl ScratchRules {
    /// Compiles the globs; an office suite's lock names match in any case, since SMB clients may change it.
    pub fn new(scratch: &[String], ambiguous: &[String]) -> Result<Self, globset::Error> {
        Ok(Self { scratch: compile(scratch)?, ambiguous: compile(ambiguous)? })
    }

    /// Tells what a base name looks like.
    pub fn classify(&self, name: &Name) -> NameClass {
        if self.scratch.is_match(name.as_os_str()) {
            NameClass::Scratch
        } else if self.ambiguous.is_match(name.as_os_str()) {
            NameClass::Ambiguous
        } else {
            NameClass::Document
        }
    }
}

fn compile(globs: &[String]) -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        set.add(glob_of(glob)?);
    }
    set.build()
}

fn glob_of(text: &str) -> Result<Glob, globset::Error> {
    GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build()
}
