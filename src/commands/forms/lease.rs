use serde::{Deserialize, Serialize};

use super::text::{read_text, read_time};
use super::{Form, FormError, PathForm};
use crate::engine::LeaseStatus;
use crate::model::{Generation, Lease};

/// A lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseForm {
    /// What it is on.
    pub key: String,
    /// Who has it.
    pub holder: String,
    /// Its generation.
    pub generation: i64,
    /// When it ends, by the wall clock.
    pub expires: String,
    /// When it ends, in milliseconds of `CLOCK_BOOTTIME`.
    pub expires_boot_ms: i64,
    /// The boot that `expires_boot_ms` counts from.
    pub boot: i64,
    /// Whether it was ended by hand.
    pub fenced: bool,
}

impl Form for LeaseForm {
    type Value = Lease;

    fn of(lease: &Lease) -> Self {
        Self {
            key: lease.key.to_string(),
            holder: lease.holder.to_string(),
            generation: lease.generation.0,
            expires: lease.expires.to_rfc3339(),
            expires_boot_ms: lease.expires_boot_ms,
            boot: lease.boot,
            fenced: lease.fenced,
        }
    }

    fn read(self) -> Result<Lease, FormError> {
        Ok(Lease {
            key: read_text(&self.key, "key", "key of a resource")?,
            holder: read_text(&self.holder, "holder", "holder")?,
            generation: Generation(self.generation),
            expires_boot_ms: self.expires_boot_ms,
            boot: self.boot,
            expires: read_time(&self.expires, "expires")?,
            fenced: self.fenced,
        })
    }
}

/// A lease with its artifact's path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseStatusForm {
    /// Where the artifact is; absent for other resources.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathForm>,
    /// The lease.
    #[serde(flatten)]
    pub lease: LeaseForm,
    /// Whether it has not ended.
    pub live: bool,
    /// Whether it ended, but its writer is not known to have stopped, so that nobody else may have it.
    pub quarantined: bool,
}

impl Form for LeaseStatusForm {
    type Value = LeaseStatus;

    fn of(status: &LeaseStatus) -> Self {
        Self {
            path: status.path.as_ref().map(PathForm::of),
            lease: LeaseForm::of(&status.lease),
            live: status.live,
            quarantined: status.quarantined,
        }
    }

    fn read(self) -> Result<LeaseStatus, FormError> {
        Ok(LeaseStatus {
            path: self.path.map(Form::read).transpose()?,
            lease: self.lease.read()?,
            live: self.live,
            quarantined: self.quarantined,
        })
    }
}
