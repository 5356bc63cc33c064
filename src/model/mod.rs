//! Values and pure rules: what Leasehold talks about, without I/O, clock, lock or log.

mod access;
mod attrs;
mod content;
mod digest;
mod download;
mod globs;
mod ident;
mod lease;
mod name;
mod recovery;
mod scratch;

pub use access::{
    AccessGlob, AccessRules, Grant, Identity, ParsePrincipalError, ParseRoleError, Principal, Rights, Role,
};
pub use attrs::{Attrs, Kind, Timestamp};
pub use content::{Content, Entry, Layer, Scratch, VersionInfo};
pub use digest::{Digest, ParseDigestError};
pub use download::DownloadPolicy;
pub use globs::{GlobError, NameGlobs, PathGlobs};
pub use ident::{
    ArtifactId, ChangeNumber, CheckoutId, Generation, Holder, HolderPart, HolderPartError, Ino,
    ParseHolderError, ParseKeyError, ResourceKey, Seq, VersionNumber,
};
pub use lease::{Decision, Instant, Lease, LeaseRequest, RENEW_FRACTION, decide};
pub use name::{ArtifactPath, Name, NameError};
pub use recovery::RecoveryCopy;
pub use scratch::{AMBIGUOUS, DOCUMENTS, KnownGlob, NameClass, SCRATCH, ScratchRules};
