use serde::Deserialize;

use super::{LeasePolicy, LeaseRule, Remote};
use crate::model::{ArtifactPath, NameGlobs, ScratchRules};

/// When a save that was acknowledged by close(2) or rename(2) survives a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CloseDurability {
    /// Within a second: saves that are close together share one sync.
    #[default]
    Grouped,
    /// Before the call returns.
    Durable,
}

/// Which of the virtual extended attributes listxattr(2) names; all of them always answer by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListXattrs {
    /// Holder and expiry, while a lease is held.
    #[default]
    Lease,
    /// Every one that has a value; `cp -a` then tries to copy them.
    All,
    /// None.
    None,
}

/// What happens when a lease has ended and its holder's mount still has unpublished writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnresolvedWriter {
    /// The resource stays closed to others until the writer has closed, is proven dead, or is resolved by hand.
    #[default]
    Quarantine,
    /// Another holder may take the lease; the writer's bytes become a recovery copy.
    Take,
}

/// The policy of a workspace: its `config.toml` as resolved, with the defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// On which terms artifacts are leased where no rule says otherwise.
    pub leasing: LeasePolicy,
    /// What is different for some paths; of several that match, the last one that has a key says it.
    pub rules: Vec<LeaseRule>,
    /// The gap inside one save over which a lease and a name's identity outlive the name, in milliseconds; positive.
    pub grace_ms: i64,
    /// How long after the last writer closed `--checkin close` checks in, in milliseconds; positive.
    pub checkin_delay_ms: i64,
    /// When an acknowledged close survives a power cut.
    pub close: CloseDurability,
    /// Which extended attributes are listed.
    pub list_xattrs: ListXattrs,
    /// How scratch names are told from documents.
    pub scratch: ScratchRules,
    /// Files that applications edit in place with a journal beside them: the draft is written directly.
    pub live: NameGlobs,
    /// After how long an ambiguous file that stays is a document, in milliseconds; positive.
    pub quiet_ms: i64,
    /// A shared store behind that of the workspace.
    pub remote: Option<Remote>,
}

impl Policy {
    /// On which terms the artifact at a path is leased.
    pub fn lease_at(&self, path: &ArtifactPath) -> LeasePolicy {
        let mut terms = self.leasing.clone();
        for rule in &self.rules {
            rule.apply(path, &mut terms);
        }
        terms.ttl_ms = terms.ttl_ms.min(terms.max_ttl_ms);
        terms
    }

    /// Whether some artifact may be leased on terms of which `is_meant` holds.
    ///
    /// Only for terms of one key; it spares those the work who look for what the policy never says.
    pub fn may_lease(&self, is_meant: impl Fn(&LeasePolicy) -> bool) -> bool {
        is_meant(&self.leasing) || self.rules.iter().any(|rule| is_meant(&rule.said_of(&self.leasing)))
    }
}

/// Files of SQLite and HDF5: both write in place and recover by themselves.
pub(super) const LIVE: [&str; 3] = ["*.sqlite", "*.db", "*.h5"];

impl Default for Policy {
    fn default() -> Self {
        Self {
            leasing: LeasePolicy::default(),
            rules: Vec::new(),
            grace_ms: 5_000,
            checkin_delay_ms: 5_000,
            close: CloseDurability::default(),
            list_xattrs: ListXattrs::default(),
            scratch: ScratchRules::default(),
            live: NameGlobs::new(&LIVE).expect("BUG: the default globs must compile"),
            quiet_ms: 30_000,
            remote: None,
        }
    }
}
