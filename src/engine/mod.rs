//! What the product does: workspaces, check-in, recovery, import, history.
//!
//! It joins the catalog with the store: bytes reach the store before the catalog names them, and what a crash leaves
//! between the two is found again by the names of files in `staging/` ([`StagingName`]).

mod access;
mod backup;
mod checkin;
mod collect;
mod detached;
mod error;
mod events;
mod files;
mod fsck;
mod history;
mod import;
mod init;
mod layout;
mod leases;
mod manifest;
mod mounts;
mod objects;
mod ops;
mod paths;
mod policy_file;
mod powercut;
mod publish;
mod recovery;
mod remote;
mod rescue;
mod sharing;
mod staging;
mod stamps;
mod status;
mod watch;
mod workspace;

#[cfg(test)]
mod tests;

pub use access::{Access, AccessReport, Revoked};
pub use backup::{CopyProgress, CopyReport, restore_backup};
pub use collect::{CollectReport, CollectRequest, Tally};
pub use detached::Detached;
pub use error::EngineError;
pub use events::NamedEvent;
pub use fsck::{FsckProgress, FsckReport, Lost, LostUse};
pub use import::{ImportProgress, ImportReport, ImportRequest};
pub use layout::Layout;
pub use leases::{Acquisition, BlockedBy, LeaseError, LeaseResult, Resource};
pub use mounts::MountGuard;
pub use objects::*;
pub use ops::*;
pub use paths::*;
pub use policy_file::{PolicyChange, PolicyLook};
pub use publish::Sealed;
pub use recovery::RecoveryMeta;
pub use rescue::{RescueReport, rescue};
pub use sharing::{ShareReport, SharingStatus};
pub use staging::{ScratchName, StagingName, StagingRole};
pub use watch::Watch;
pub use workspace::{Environment, Workspace};

pub use crate::catalog::{
    AccessRecords, Admission, Ask, Conflict, Event, EventLease, GrantRecord, Granted, Intent, LeaseFilter,
    RestrictionRecord, Unsaved, Unshared,
};
pub use crate::model::RecoveryCopy;
