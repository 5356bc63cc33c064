use super::{ArtifactId, ArtifactPath, Holder, Timestamp, VersionNumber};

/// Bytes that an application wrote and that no draft holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryCopy {
    /// Names the copy.
    pub id: String,
    /// The artifact that the bytes were written to.
    pub artifact: Option<ArtifactId>,
    /// Where it was.
    pub path: ArtifactPath,
    /// The version on which the bytes were made.
    pub base: Option<VersionNumber>,
    /// Whose they are.
    pub holder: Holder,
    /// When they were put aside.
    pub at: Timestamp,
    /// How many bytes.
    pub size: u64,
    /// Why they are no draft.
    pub reason: String,
}
