//! The policy of a workspace: `config.toml` as parsed ([`Config`]) and as resolved ([`Policy`]).

mod duration;
mod error;
mod policy;
mod remote;
mod template;

pub use duration::{DurationError, MAX_DURATION_MS, duration_text, parse_duration_ms};
pub use error::{ConfigError, SyntaxFault};
pub use policy::{CloseDurability, ListXattrs, Policy, UnresolvedWriter};
pub use remote::Remote;
pub use template::DEFAULT_CONFIG_TOML;

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use toml::de::DeTable;

use crate::model::{AMBIGUOUS, DOCUMENTS, GlobError, KnownGlob, NameGlobs, PathGlobs, SCRATCH, ScratchRules};

/// The keys of `config.toml` as they were written; `None` stands for the default.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    ttl: Option<Spanned<String>>,
    grace: Option<Spanned<String>>,
    checkin_delay: Option<Spanned<String>>,
    quiet: Option<Spanned<String>>,
    close: Option<CloseDurability>,
    list_xattrs: Option<ListXattrs>,
    on_unresolved_writer: Option<UnresolvedWriter>,
    scratch: Option<Spanned<Vec<String>>>,
    ambiguous: Option<Spanned<Vec<String>>>,
    documents: Option<Spanned<Vec<String>>>,
    live: Option<Spanned<Vec<String>>>,
    on_first_write: Option<Spanned<Vec<String>>>,
    remote: Option<remote::RemoteConfig>,
}

impl Config {
    /// Reads the policy from a file; one that is missing leaves all defaults.
    ///
    /// A file that everybody may write is refused: it decides what is kept of other people's work.
    pub fn load(path: &Path) -> Result<Policy, ConfigError> {
        match read(path)? {
            Some(text) => Self::parse(path, &text),
            None => Ok(Policy::default()),
        }
    }

    /// Reads the policy from a text; `path` is for the messages.
    pub fn parse(path: &Path, text: &str) -> Result<Policy, ConfigError> {
        let source = Source { path, text };
        let config: Self = toml::from_str(text).map_err(|error| source.syntax(error))?;
        config.resolve(&source)
    }

    fn resolve(self, source: &Source<'_>) -> Result<Policy, ConfigError> {
        let default = Policy::default();
        Ok(Policy {
            scratch: self.scratch_rules(source)?,
            ttl_ms: source.duration_ms("ttl", self.ttl, default.ttl_ms)?,
            grace_ms: source.duration_ms("grace", self.grace, default.grace_ms)?,
            checkin_delay_ms: source.duration_ms(
                "checkin_delay",
                self.checkin_delay,
                default.checkin_delay_ms,
            )?,
            quiet_ms: source.duration_ms("quiet", self.quiet, default.quiet_ms)?,
            close: self.close.unwrap_or_default(),
            list_xattrs: self.list_xattrs.unwrap_or_default(),
            unresolved_writer: self.on_unresolved_writer.unwrap_or_default(),
            live: source.globs("live", self.live, default.live, |globs| NameGlobs::new(&globs))?,
            on_first_write: source.globs(
                "on_first_write",
                self.on_first_write,
                default.on_first_write,
                |globs| PathGlobs::new(&globs),
            )?,
            remote: self.remote.map(|remote| remote.resolve(source)).transpose()?,
        })
    }

    /// Compiles the three lists one by one, so that an error has its line, and then together.
    fn scratch_rules(&self, source: &Source<'_>) -> Result<ScratchRules, ConfigError> {
        let at = |key, list: &Option<Spanned<Vec<String>>>| {
            let span = list.as_ref().map_or(0..0, Spanned::span);
            move |error| source.bad_globs(key, span, error)
        };
        let scratch = list_or(&self.scratch, SCRATCH);
        let ambiguous = list_or(&self.ambiguous, AMBIGUOUS);
        let documents = list_or(&self.documents, DOCUMENTS);
        ScratchRules::new(&scratch, &[]).map_err(at("scratch", &self.scratch))?;
        ScratchRules::new(&scratch, &ambiguous)
            .map_err(at("ambiguous", &self.ambiguous))?
            .with_documents(&documents)
            .map_err(at("documents", &self.documents))
    }
}

fn list_or(list: &Option<Spanned<Vec<String>>>, default: &[KnownGlob]) -> Vec<String> {
    match list {
        Some(list) => list.get_ref().clone(),
        None => default.iter().map(|(glob, _)| (*glob).to_owned()).collect(),
    }
}

/// Reads the file, unless it is missing; asks the open file for its mode, so that both are of one file.
fn read(path: &Path) -> Result<Option<String>, ConfigError> {
    const WRITABLE_BY_OTHERS: u32 = 0o002;
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    if file.metadata().map_err(failed)?.permissions().mode() & WRITABLE_BY_OTHERS != 0 {
        return Err(ConfigError::WorldWritable { path: path.to_owned() });
    }
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    Ok(Some(text))
}

/// The text of a configuration and where it is from: what an error needs to name its place.
struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn duration_ms(
        &self,
        key: &'static str,
        value: Option<Spanned<String>>,
        default_ms: i64,
    ) -> Result<i64, ConfigError> {
        let Some(value) = value else { return Ok(default_ms) };
        parse_duration_ms(value.get_ref()).map_err(|source| ConfigError::Duration {
            path: self.path.to_owned(),
            line: self.line(value.span().start),
            key,
            source,
        })
    }

    fn globs<T>(
        &self,
        key: &'static str,
        list: Option<Spanned<Vec<String>>>,
        default: T,
        compile: impl FnOnce(Vec<String>) -> Result<T, GlobError>,
    ) -> Result<T, ConfigError> {
        let Some(list) = list else { return Ok(default) };
        let span = list.span();
        compile(list.into_inner()).map_err(|error| self.bad_globs(key, span, error))
    }

    fn bad_globs(&self, key: &'static str, span: Range<usize>, source: GlobError) -> ConfigError {
        ConfigError::Globs { path: self.path.to_owned(), line: self.line(span.start), key, source }
    }

    fn syntax(&self, error: toml::de::Error) -> ConfigError {
        let at = error.span().map_or(0, |span| span.start);
        if self.is_in_remote(at) {
            // The parser's own words may repeat a value.
            return self.remote(at, "it takes \"url\", a text, and the keys that FORMAT.md names");
        }
        let (path, line, key) = (self.path.to_owned(), self.line(at), self.key(at));
        ConfigError::Syntax { path, line, key, source: SyntaxFault(Box::new(error)) }
    }

    fn remote(&self, at: usize, problem: &'static str) -> ConfigError {
        ConfigError::Remote { path: self.path.to_owned(), line: self.line(at), problem }
    }

    /// Whether a byte offset lies in the table `[remote]`, or in what stands in its place.
    fn is_in_remote(&self, offset: usize) -> bool {
        let (table, _) = DeTable::parse_recoverable(self.text);
        let begun = table.get_ref().iter().filter(|(key, _)| key.span().start <= offset);
        let last = begun.max_by_key(|(key, _)| key.span().start);
        last.is_some_and(|(key, _)| key.get_ref() == "remote")
    }

    /// The line of a byte offset, from 1.
    fn line(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
    }

    /// The key of the setting that holds a byte offset, or else the one with which its line begins.
    fn key(&self, offset: usize) -> Option<String> {
        let (table, _) = DeTable::parse_recoverable(self.text);
        let holds = |span: Range<usize>| span.contains(&offset);
        let found = table.get_ref().iter().find(|(key, value)| holds(key.span()) || holds(value.span()));
        found.map(|(key, _)| key.get_ref().to_string()).or_else(|| self.first_key_of_line(offset))
    }

    fn first_key_of_line(&self, offset: usize) -> Option<String> {
        let (key, _) = self.text.lines().nth(self.line(offset) - 1)?.split_once('=')?;
        let is_bare =
            |key: &str| !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        Some(key.trim()).filter(|key| is_bare(key)).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests;
