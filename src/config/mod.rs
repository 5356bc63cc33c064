//! The policy of a workspace: `config.toml` as parsed ([`Config`]) and as resolved ([`Policy`]).

mod duration;
mod error;
mod file;
mod leasing;
mod policy;
mod remote;
mod template;

pub use duration::{DurationError, MAX_DURATION_MS, duration_text, parse_duration_ms};
pub use error::{ConfigError, SyntaxFault};
pub use file::FileIdentity;
pub use leasing::{Breakers, LeaseNeed, LeasePolicy, LeaseRule, OnConflict, Release, Renew};
pub use policy::{CloseDurability, ListXattrs, Policy, UnresolvedWriter};
pub use remote::Remote;
pub use template::DEFAULT_CONFIG_TOML;

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use leasing::{RuleConfig, TOP_KEYS, TermsConfig};

use crate::model::{AMBIGUOUS, DOCUMENTS, GlobError, KnownGlob, NameGlobs, PathGlobs, SCRATCH, ScratchRules};

/// The keys of `config.toml` as they were written; `None` stands for the default.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    lease: Option<LeaseNeed>,
    ttl: Option<Spanned<String>>,
    max_ttl: Option<Spanned<String>>,
    on_conflict: Option<OnConflict>,
    on_intent_overlap: Option<OnConflict>,
    on_unresolved_writer: Option<UnresolvedWriter>,
    renew: Option<Renew>,
    release: Option<Release>,
    r#break: Option<Spanned<Vec<String>>>,
    grace: Option<Spanned<String>>,
    checkin_delay: Option<Spanned<String>>,
    quiet: Option<Spanned<String>>,
    close: Option<CloseDurability>,
    list_xattrs: Option<ListXattrs>,
    scratch: Option<Spanned<Vec<String>>>,
    ambiguous: Option<Spanned<Vec<String>>>,
    documents: Option<Spanned<Vec<String>>>,
    live: Option<Spanned<Vec<String>>>,
    on_first_write: Option<Spanned<Vec<String>>>,
    rule: Option<Vec<RuleConfig>>,
    remote: Option<remote::RemoteConfig>,
}

impl Config {
    /// Reads the policy from a file; one that is missing leaves all defaults.
    ///
    /// It decides what is kept of other people's work. So it is refused where those whom it governs could have written it:
    /// where everybody may write it or its directory, where it is no regular file of its own, and where it belongs to
    /// another user than its directory and root.
    pub fn load(path: &Path) -> Result<Policy, ConfigError> {
        match file::read(path)? {
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

    fn resolve(mut self, source: &Source<'_>) -> Result<Policy, ConfigError> {
        let default = Policy::default();
        Ok(Policy {
            scratch: self.scratch_rules(source)?,
            leasing: self.take_terms().resolve(source, &TOP_KEYS)?.defaults(),
            rules: self.take_rules(source)?,
            grace_ms: source.duration_ms("grace", self.grace, default.grace_ms)?,
            checkin_delay_ms: source.duration_ms(
                "checkin_delay",
                self.checkin_delay,
                default.checkin_delay_ms,
            )?,
            quiet_ms: source.duration_ms("quiet", self.quiet, default.quiet_ms)?,
            close: self.close.unwrap_or_default(),
            list_xattrs: self.list_xattrs.unwrap_or_default(),
            live: source.globs("live", self.live, default.live, |globs| NameGlobs::new(&globs))?,
            remote: self.remote.map(|remote| remote.resolve(source)).transpose()?,
        })
    }

    fn take_terms(&mut self) -> TermsConfig {
        TermsConfig {
            lease: self.lease.take(),
            ttl: self.ttl.take(),
            max_ttl: self.max_ttl.take(),
            on_conflict: self.on_conflict.take(),
            on_intent_overlap: self.on_intent_overlap.take(),
            on_unresolved_writer: self.on_unresolved_writer.take(),
            renew: self.renew.take(),
            release: self.release.take(),
            breakers: self.r#break.take(),
        }
    }

    /// The rules in their order; the old key stands before them all.
    fn take_rules(&mut self, source: &Source<'_>) -> Result<Vec<LeaseRule>, ConfigError> {
        let mut rules = Vec::new();
        if let Some(globs) = self.on_first_write.take() {
            let paths = source.path_globs("on_first_write", globs)?;
            rules.extend((!paths.is_empty()).then(|| LeaseRule::on_first_write(paths)));
        }
        for rule in self.rule.take().unwrap_or_default() {
            rules.push(rule.resolve(source)?);
        }
        Ok(rules)
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
        value.map_or(Ok(default_ms), |value| self.duration(key, &value))
    }

    fn duration(&self, key: &'static str, value: &Spanned<String>) -> Result<i64, ConfigError> {
        parse_duration_ms(value.get_ref()).map_err(|source| ConfigError::Duration {
            path: self.path.to_owned(),
            line: self.line(value.span().start),
            key,
            source,
        })
    }

    fn path_globs(&self, key: &'static str, list: Spanned<Vec<String>>) -> Result<PathGlobs, ConfigError> {
        PathGlobs::new(list.get_ref()).map_err(|error| self.bad_globs(key, list.span(), error))
    }

    fn bad_value(&self, key: &'static str, at: usize, problem: &'static str) -> ConfigError {
        ConfigError::Value { path: self.path.to_owned(), line: self.line(at), key, problem }
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
        // A table that stands in a list of tables begins with a heading of its own.
        let begins = table.get_ref().iter().flat_map(|(key, value)| {
            let rules = elements(value.get_ref()).map(|rule| rule.span().start);
            rules.chain([key.span().start]).map(move |start| (start, key.get_ref()))
        });
        let last = begins.filter(|(start, _)| *start <= offset).max_by_key(|(start, _)| *start);
        last.is_some_and(|(_, key)| key == "remote")
    }

    /// The line of a byte offset, from 1.
    fn line(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|&byte| byte == b'\n').count()
    }

    /// The key of the setting that holds a byte offset, or else the one with which its line begins.
    fn key(&self, offset: usize) -> Option<String> {
        let (table, _) = DeTable::parse_recoverable(self.text);
        let rules = table.get_ref().iter().filter(|(key, _)| key.get_ref() == "rule");
        let rule = rules
            .flat_map(|(_, value)| elements(value.get_ref()))
            .filter_map(|rule| key_at(rule.get_ref().as_table()?, offset))
            .map(|key| format!("rule.{key}"))
            .next();
        rule.or_else(|| key_at(table.get_ref(), offset)).or_else(|| self.first_key_of_line(offset))
    }

    fn first_key_of_line(&self, offset: usize) -> Option<String> {
        let (key, _) = self.text.lines().nth(self.line(offset) - 1)?.split_once('=')?;
        let is_bare =
            |key: &str| !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        Some(key.trim()).filter(|key| is_bare(key)).map(str::to_owned)
    }
}

/// The key of the setting of a table that holds a byte offset.
fn key_at(table: &DeTable<'_>, offset: usize) -> Option<String> {
    let holds = |span: Range<usize>| span.contains(&offset);
    let found = table.iter().find(|(key, value)| holds(key.span()) || holds(value.span()));
    found.map(|(key, _)| key.get_ref().to_string())
}

/// The elements of a list; none of anything else.
fn elements<'a, 'b>(value: &'a DeValue<'b>) -> impl Iterator<Item = &'a Spanned<DeValue<'b>>> {
    value.as_array().into_iter().flat_map(|array| array.iter())
}

#[cfg(test)]
mod tests;
