//! Values and pure rules: what Leasehold talks about, without I/O, clock, lock or log.

mod access;
mod attrs;
mod content;
mod digest;
mod download;
mod globs;
mod host;
mod ident;
mod intent;
mod lease;
mod name;
mod recovery;
mod scratch;
mod text;

pub use access::{
    AccessGlob, AccessRules, Grant, Identity, ParsePrincipalError, ParseRoleError, Principal, Rights, Role,
};
pub use attrs::{Attrs, Kind, Timestamp};
pub use content::{Content, Entry, Layer, Scratch, VersionInfo};
pub use digest::{Digest, ParseDigestError};
pub use download::DownloadPolicy;
pub use globs::{GlobError, NameGlobs, PathGlobs};
pub use host::{HostKey, ParseHostKeyError};
pub use ident::{
    ArtifactId, ChangeNumber, CheckoutId, Generation, Holder, HolderPart, HolderPartError, Ino,
    ParseHolderError, ParseKeyError, RequestId, ResourceKey, Seq, VersionNumber,
};
pub use intent::{IntentPattern, ParseIntentError};
pub use lease::{
    Decision, Instant, Lease, LeaseRequest, MAX_TTL_MS, Protection, RENEW_FRACTION, Standing, decide,
    protection,
};
pub use name::{ArtifactPath, Name, NameError};
pub use recovery::RecoveryCopy;
pub use scratch::{AMBIGUOUS, DOCUMENTS, KnownGlob, NameClass, SCRATCH, ScratchRules};
pub use text::with_sources;
