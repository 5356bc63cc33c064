//! What the product does: workspaces, check-in, recovery, import, history.
//!
//! It joins the catalog with the store: bytes reach the store before the catalog names them, and what a crash leaves
//! between the two is found again by the names of files in `staging/` ([`StagingName`]).

mod checkin;
mod detached;
mod error;
mod files;
mod history;
mod import;
mod init;
mod layout;
mod leases;
mod mounts;
mod objects;
mod ops;
mod publish;
mod recovery;
mod staging;
mod stamps;
mod status;
mod workspace;

#[cfg(test)]
mod tests;

pub use detached::Detached;
pub use error::EngineError;
pub use import::{ImportProgress, ImportReport, ImportRequest};
pub use layout::Layout;
pub use mounts::MountGuard;
pub use objects::*;
pub use ops::*;
pub use publish::Sealed;
pub use recovery::RecoveryMeta;
pub use staging::{ScratchName, StagingName, StagingRole};
pub use workspace::{Environment, Workspace};
