use serde::Serialize;

use super::super::forms::{Form, LeaseForm, LeaseStatusForm, PathForm, all};
use crate::engine::{Admission, BlockedBy, Conflict, Intent, LeaseStatus};
use crate::model::Lease;

/// What somebody else holds or means to work on of the same.
#[derive(Serialize)]
pub(super) struct ConflictForm {
    /// What was asked for.
    key: String,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    path: Option<PathForm>,
    /// `held`, `quarantined`, `intent-here` or `intent-elsewhere`.
    conflict: &'static str,
    lease: Option<LeaseForm>,
}

impl ConflictForm {
    pub fn of(blocked: &BlockedBy) -> Self {
        Self {
            key: blocked.key.to_string(),
            path: blocked.path.as_ref().map(PathForm::of),
            conflict: match blocked.conflict {
                Conflict::Held => "held",
                Conflict::Quarantined => "quarantined",
                Conflict::IntentHere => "intent-here",
                Conflict::IntentElsewhere => "intent-elsewhere",
            },
            lease: blocked.lease.as_ref().map(LeaseForm::of),
        }
    }
}

/// What a request was granted.
#[derive(Serialize)]
pub(super) struct AdmissionForm {
    /// Whether this is the answer to an earlier request of the same id.
    replayed: bool,
    leases: Vec<LeaseStatusForm>,
    warnings: Vec<ConflictForm>,
}

impl AdmissionForm {
    pub fn of(admission: &Admission, leases: &[LeaseStatus], warnings: &[BlockedBy]) -> Self {
        Self {
            replayed: admission.replayed,
            leases: all(leases),
            warnings: warnings.iter().map(ConflictForm::of).collect(),
        }
    }
}

/// How a resource stands.
#[derive(Serialize)]
pub(super) struct StandingForm {
    pub key: String,
    /// `free`, `mine`, `held` or `quarantined`.
    pub state: &'static str,
    pub lease: Option<LeaseStatusForm>,
}

/// Whether a resource was given back.
#[derive(Serialize)]
pub(super) struct ReleaseForm {
    pub key: String,
    pub released: bool,
}

/// A declared intent.
#[derive(Serialize)]
pub(super) struct IntentForm {
    pattern: String,
    /// The task that it belongs to.
    task: Option<String>,
    #[serde(flatten)]
    lease: LeaseForm,
}

impl IntentForm {
    pub fn of(intent: &Intent) -> Self {
        Self {
            pattern: intent.pattern.to_string(),
            task: intent.task.as_ref().map(ToString::to_string),
            lease: LeaseForm::of(&intent.lease),
        }
    }
}

/// Everything that is held or meant.
#[derive(Serialize)]
pub(super) struct ListForm {
    pub leases: Vec<LeaseStatusForm>,
    pub intents: Vec<IntentForm>,
}

/// Leases that somebody ended or asked for.
#[derive(Serialize)]
pub(super) struct LeasesForm {
    leases: Vec<LeaseForm>,
}

impl LeasesForm {
    pub fn of(leases: &[Lease]) -> Self {
        Self { leases: all(leases) }
    }
}
