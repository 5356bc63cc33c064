use std::io;
use std::path::PathBuf;

use super::DurationError;
use crate::model::GlobError;

/// Why a `config.toml` can't be used; the sources say what is wrong in detail.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is there, but can't be opened or read, or is not UTF-8.
    #[error("{}: can't be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// Anybody may write the file, and so decide what happens to the workspace's documents.
    #[error("{}: everybody may change it; run `chmod o-w` on it and check what it says", path.display())]
    WorldWritable {
        /// The file.
        path: PathBuf,
    },
    /// Anybody may put another file in its place.
    #[error("{}: everybody may write in this directory, and so replace config.toml; run `chmod o-w` on it and check what config.toml says", path.display())]
    OpenDirectory {
        /// The directory.
        path: PathBuf,
    },
    /// The name is a symlink, whose target somebody else may change.
    #[error("{}: is a symlink; put the file itself there", path.display())]
    Symlink {
        /// The file.
        path: PathBuf,
    },
    /// A user whom the policy governs has put the file there.
    #[error("{}: belongs to user {owner}, but the workspace to user {workspace}; check what it says and `chown {workspace}` it", path.display())]
    ForeignOwner {
        /// The file.
        path: PathBuf,
        /// The file's owner.
        owner: u32,
        /// The directory's owner.
        workspace: u32,
    },
    /// The text is no TOML, has an unknown key, or a value is of the wrong type or not one of the choices.
    #[error("{}:{line}: {} not understood", path.display(), quoted(key.as_deref()))]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key at fault, where the text could be read as far as that.
        key: Option<String>,
        /// What the parser found.
        #[source]
        source: SyntaxFault,
    },
    /// A duration can't be used.
    #[error("{}:{line}: \"{key}\" has no usable duration", path.display())]
    Duration {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key.
        key: &'static str,
        /// What is wrong.
        #[source]
        source: DurationError,
    },
    /// The table `[remote]` can't be used; its values are never repeated.
    #[error("{}:{line}: [remote] can't be used: {problem}", path.display())]
    Remote {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong, in constant words.
        problem: &'static str,
    },
    /// A value can't be used, by itself or beside another.
    #[error("{}:{line}: \"{key}\" can't be used: {problem}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key.
        key: &'static str,
        /// What is wrong.
        problem: &'static str,
    },
    /// A list of globs can't be used.
    #[error("{}:{line}: \"{key}\" has no usable globs", path.display())]
    Globs {
        /// The file.
        path: PathBuf,
        /// The line on which the list begins, from 1.
        line: usize,
        /// The key.
        key: &'static str,
        /// What is wrong.
        #[source]
        source: GlobError,
    },
}

/// What the TOML parser found, on one line; its own message draws the place over several.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.message().replace('\n', ", "))]
pub struct SyntaxFault(pub Box<toml::de::Error>);

/// The key in quotes with its verb, or nothing where the key is not known.
fn quoted(key: Option<&str>) -> String {
    key.map_or_else(|| "the text is".to_owned(), |key| format!("{key:?} is"))
}
