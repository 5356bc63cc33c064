//! On which terms artifacts are leased: the keys that may differ from path to path.

use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;

use super::{ConfigError, Source, UnresolvedWriter};
use crate::model::{ArtifactPath, PathGlobs};

/// How long a lease lasts by default, in milliseconds: a working day.
const TTL_MS: i64 = 8 * 3_600_000;
/// The longest time that a lease gets by default, in milliseconds: 30 days.
const MAX_TTL_MS: i64 = 30 * 86_400_000;
/// Stands for every user in a list of users.
const EVERYBODY: &str = "*";

/// Whether writing needs a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LeaseNeed {
    /// From the moment when a file is opened for writing.
    #[default]
    Required,
    /// From the first write on: opening alone takes none, and is refused for none.
    OnFirstWrite,
    /// Never: only the version that a save was made on guards it.
    None,
}

/// What comes of a use that somebody else's lease or intent stands against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// It is refused.
    #[default]
    Block,
    /// It goes on, and both are told.
    Warn,
}

/// What renews a lease beside those who ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Renew {
    /// Opening for writing, writing and saving.
    #[default]
    Activity,
    /// These, and time, as long as somebody has the file open for writing.
    Open,
    /// Nothing.
    Never,
}

/// What gives a lease back by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Release {
    /// The check-in or revert of the draft.
    #[default]
    Checkin,
    /// These, and the last writer's close, when the grace has passed.
    Close,
}

/// Who may break somebody else's lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breakers(Arc<[String]>);

impl Breakers {
    /// Everybody.
    pub fn everybody() -> Self {
        Self([EVERYBODY.to_owned()].into())
    }

    /// Whether a user is among them, by the name that the operating system has for him.
    pub fn admit(&self, user: &str) -> bool {
        self.0.iter().any(|name| name == EVERYBODY || name == user)
    }

    /// The names as they were written; `*` stands for everybody.
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

/// On which terms one artifact is leased, with every default filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasePolicy {
    /// Whether writing needs a lease.
    pub need: LeaseNeed,
    /// How long a lease lasts for whom asks for no other time, in milliseconds; positive, and at most `max_ttl_ms`.
    pub ttl_ms: i64,
    /// The longest time that anybody gets from a grant or renewal, in milliseconds; positive.
    pub max_ttl_ms: i64,
    /// What comes of a write to what somebody else holds.
    pub on_conflict: OnConflict,
    /// What comes of an intent that overlaps somebody else's.
    pub on_intent_overlap: OnConflict,
    /// What becomes of an ended lease whose writer is not known to have stopped.
    pub unresolved_writer: UnresolvedWriter,
    /// What renews a lease.
    pub renew: Renew,
    /// What gives it back.
    pub release: Release,
    /// Who may break it, with a reason.
    pub breakers: Breakers,
}

impl Default for LeasePolicy {
    fn default() -> Self {
        Self {
            need: LeaseNeed::default(),
            ttl_ms: TTL_MS,
            max_ttl_ms: MAX_TTL_MS,
            on_conflict: OnConflict::default(),
            on_intent_overlap: OnConflict::default(),
            unresolved_writer: UnresolvedWriter::default(),
            renew: Renew::default(),
            release: Release::default(),
            breakers: Breakers::everybody(),
        }
    }
}

impl LeasePolicy {
    /// Whether somebody else's lease refuses a write.
    pub fn is_held_by_leases(&self) -> bool {
        self.need != LeaseNeed::None && self.on_conflict == OnConflict::Block
    }

    /// The time that a lease gets for whom wants `asked_ms`, or nothing in particular: never more than the longest.
    pub fn ttl_for(&self, asked_ms: Option<i64>) -> i64 {
        asked_ms.unwrap_or(self.ttl_ms).min(self.max_ttl_ms)
    }
}

/// What one table says of the terms; `None` leaves what was before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Terms {
    pub need: Option<LeaseNeed>,
    pub ttl_ms: Option<i64>,
    pub max_ttl_ms: Option<i64>,
    pub on_conflict: Option<OnConflict>,
    pub on_intent_overlap: Option<OnConflict>,
    pub unresolved_writer: Option<UnresolvedWriter>,
    pub renew: Option<Renew>,
    pub release: Option<Release>,
    pub breakers: Option<Breakers>,
}

impl Terms {
    fn apply(&self, policy: &mut LeasePolicy) {
        fn set<T: Clone>(value: &mut T, said: &Option<T>) {
            if let Some(said) = said {
                value.clone_from(said);
            }
        }
        set(&mut policy.need, &self.need);
        set(&mut policy.ttl_ms, &self.ttl_ms);
        set(&mut policy.max_ttl_ms, &self.max_ttl_ms);
        set(&mut policy.on_conflict, &self.on_conflict);
        set(&mut policy.on_intent_overlap, &self.on_intent_overlap);
        set(&mut policy.unresolved_writer, &self.unresolved_writer);
        set(&mut policy.renew, &self.renew);
        set(&mut policy.release, &self.release);
        set(&mut policy.breakers, &self.breakers);
    }

    /// The terms where no rule says otherwise. A `ttl` that is longer than the default of `max_ttl` raises that.
    pub fn defaults(&self) -> LeasePolicy {
        let mut policy = LeasePolicy::default();
        self.apply(&mut policy);
        if self.max_ttl_ms.is_none() {
            policy.max_ttl_ms = policy.max_ttl_ms.max(policy.ttl_ms);
        }
        policy.ttl_ms = policy.ttl_ms.min(policy.max_ttl_ms);
        policy
    }
}

/// A rule: some paths, and what is different there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRule {
    pub(super) paths: PathGlobs,
    pub(super) terms: Terms,
}

impl LeaseRule {
    /// A rule that lets some paths wait for their first write, as the old key `on_first_write` has it.
    pub(super) fn on_first_write(paths: PathGlobs) -> Self {
        Self { paths, terms: Terms { need: Some(LeaseNeed::OnFirstWrite), ..Terms::default() } }
    }

    /// What the rule alone makes of some terms.
    pub(super) fn said_of(&self, policy: &LeasePolicy) -> LeasePolicy {
        let mut policy = policy.clone();
        self.terms.apply(&mut policy);
        policy
    }

    /// Makes of some terms what they are at a path, if the rule is about it.
    pub(super) fn apply(&self, path: &ArtifactPath, policy: &mut LeasePolicy) {
        if self.paths.is_match(path) {
            self.terms.apply(policy);
        }
    }
}

/// The keys of a table of terms as they were written.
#[derive(Debug, Default)]
pub(super) struct TermsConfig {
    pub lease: Option<LeaseNeed>,
    pub ttl: Option<Spanned<String>>,
    pub max_ttl: Option<Spanned<String>>,
    pub on_conflict: Option<OnConflict>,
    pub on_intent_overlap: Option<OnConflict>,
    pub on_unresolved_writer: Option<UnresolvedWriter>,
    pub renew: Option<Renew>,
    pub release: Option<Release>,
    pub breakers: Option<Spanned<Vec<String>>>,
}

/// How errors name the keys of a table.
pub(super) struct TermsKeys {
    pub ttl: &'static str,
    pub max_ttl: &'static str,
    pub breakers: &'static str,
}

/// The keys at the top level.
pub(super) const TOP_KEYS: TermsKeys = TermsKeys { ttl: "ttl", max_ttl: "max_ttl", breakers: "break" };
/// The keys of a rule.
const RULE_KEYS: TermsKeys = TermsKeys { ttl: "rule.ttl", max_ttl: "rule.max_ttl", breakers: "rule.break" };

impl TermsConfig {
    pub fn resolve(self, source: &Source<'_>, keys: &TermsKeys) -> Result<Terms, ConfigError> {
        let at = self.ttl.as_ref().map_or(0, |ttl| ttl.span().start);
        let duration = |key, value: Option<_>| value.map(|value| source.duration(key, &value)).transpose();
        let ttl_ms = duration(keys.ttl, self.ttl)?;
        let max_ttl_ms = duration(keys.max_ttl, self.max_ttl)?;
        if ttl_ms.zip(max_ttl_ms).is_some_and(|(ttl_ms, max_ttl_ms)| ttl_ms > max_ttl_ms) {
            let problem = "longer than \"max_ttl\" beside it";
            return Err(source.bad_value(keys.ttl, at, problem));
        }
        Ok(Terms {
            need: self.lease,
            ttl_ms,
            max_ttl_ms,
            on_conflict: self.on_conflict,
            on_intent_overlap: self.on_intent_overlap,
            unresolved_writer: self.on_unresolved_writer,
            renew: self.renew,
            release: self.release,
            breakers: self.breakers.map(|names| breakers(source, keys.breakers, names)).transpose()?,
        })
    }
}

fn breakers(
    source: &Source<'_>,
    key: &'static str,
    names: Spanned<Vec<String>>,
) -> Result<Breakers, ConfigError> {
    let at = names.span().start;
    let names = names.into_inner();
    let is_name = |name: &String| !name.is_empty() && !name.chars().any(|c| c.is_control() || c == '@');
    if names.iter().all(is_name) {
        Ok(Breakers(names.into()))
    } else {
        Err(source.bad_value(key, at, "a list of users' names, or \"*\" for everybody, is wanted"))
    }
}

/// The table `[[rule]]` as it was written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleConfig {
    paths: Spanned<Vec<String>>,
    lease: Option<LeaseNeed>,
    ttl: Option<Spanned<String>>,
    max_ttl: Option<Spanned<String>>,
    on_conflict: Option<OnConflict>,
    on_intent_overlap: Option<OnConflict>,
    on_unresolved_writer: Option<UnresolvedWriter>,
    renew: Option<Renew>,
    release: Option<Release>,
    r#break: Option<Spanned<Vec<String>>>,
}

impl RuleConfig {
    pub fn resolve(self, source: &Source<'_>) -> Result<LeaseRule, ConfigError> {
        let paths = source.path_globs("rule.paths", self.paths)?;
        let terms = TermsConfig {
            lease: self.lease,
            ttl: self.ttl,
            max_ttl: self.max_ttl,
            on_conflict: self.on_conflict,
            on_intent_overlap: self.on_intent_overlap,
            on_unresolved_writer: self.on_unresolved_writer,
            renew: self.renew,
            release: self.release,
            breakers: self.r#break,
        };
        Ok(LeaseRule { paths, terms: terms.resolve(source, &RULE_KEYS)? })
    }
}
