//! The JSON forms of what commands print, which are the control socket's as well.
//!
//! Field names are a contract (`docs/COMMANDS.md`): fields may be added, none renamed or removed. Times are RFC 3339
//! in UTC, to the second.

mod lease;
mod report;
mod text;

pub use lease::{LeaseForm, LeaseStatusForm};
pub use report::{
    CheckInForm, DraftForm, ItemForm, LogForm, LoggedForm, MountForm, RecoveryForm, RevertForm, SettleForm,
    StatusForm,
};
pub use text::{HostPathForm, PathForm};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A value's JSON form, from which the value can be read again.
pub trait Form: Serialize + DeserializeOwned {
    /// The value.
    type Value;

    /// Writes the value.
    fn of(value: &Self::Value) -> Self;

    /// Reads the value.
    fn read(self) -> Result<Self::Value, FormError>;
}

/// A JSON form holds no such value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("field `{field}` holds no {expected}")]
pub struct FormError {
    /// The field.
    pub field: &'static str,
    /// What was expected.
    pub expected: &'static str,
}

/// Writes each value.
pub fn all<F: Form>(values: &[F::Value]) -> Vec<F> {
    values.iter().map(F::of).collect()
}

/// Reads each form.
pub fn read_all<F: Form>(forms: Vec<F>) -> Result<Vec<F::Value>, FormError> {
    forms.into_iter().map(F::read).collect()
}
