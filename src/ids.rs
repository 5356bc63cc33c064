//! Randomness as an argument: new identities behind one trait.

use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

use crate::model::{ArtifactId, Timestamp};

/// Makes identities that no one else makes.
pub trait Ids: Send + Sync {
    /// A new artifact's identity, ordered by time.
    fn artifact(&self, now: Timestamp) -> ArtifactId;

    /// A text that is unique in the workspace, for names of files: hexadecimal digits.
    fn token(&self) -> String;
}

/// The operating system's randomness.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemIds;

impl Ids for SystemIds {
    fn artifact(&self, now: Timestamp) -> ArtifactId {
        let seconds = u64::try_from(now.0.div_euclid(1_000_000_000)).unwrap_or(0);
        let nanos = u32::try_from(now.0.rem_euclid(1_000_000_000)).unwrap_or(0);
        ArtifactId(Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, seconds, nanos)))
    }

    #[allow(clippy::disallowed_methods, reason = "this is the one source of randomness")]
    fn token(&self) -> String {
        Uuid::new_v4().simple().to_string()
    }
}

/// Counts, for tests that must repeat.
#[derive(Debug, Default)]
pub struct CountingIds(AtomicU64);

impl Ids for CountingIds {
    fn artifact(&self, _now: Timestamp) -> ArtifactId {
        ArtifactId(Uuid::from_u128(u128::from(self.0.fetch_add(1, Ordering::Relaxed))))
    }

    fn token(&self) -> String {
        format!("{:032x}", self.0.fetch_add(1, Ordering::Relaxed))
    }
}
