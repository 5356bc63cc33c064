use super::{ArtifactId, Attrs, Digest, Generation, Ino, Kind, Name, Seq, VersionNumber};

/// Where the bytes of a file, or the target of a symlink, are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A directory, FIFO or socket has no bytes.
    None,
    /// An immutable blob of the store.
    Blob(Digest),
    /// A sealed file of `staging/`, by its name there: a save that waits to become a blob. Never written again.
    Staged(String),
    /// A file of `scratch/`, by its name there: written in place (scratch and `live` files).
    Direct(String),
    /// A symlink's target.
    Target(Vec<u8>),
}

/// Whether a name of a checkout is scratch: kept in the checkout, never versioned, never leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scratch {
    /// A versioned artifact, or a draft that will be one.
    No,
    /// An ambiguous temporary name: scratch until it has been left alone for a quiet time.
    Provisional,
    /// Scratch for as long as it has this name.
    Yes,
}

/// Which layer of a checkout's view an entry comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// The head tree: nobody changed it in this checkout.
    Head,
    /// This checkout's draft, made on version `base` (none: added here), saved under lease `generation`.
    Draft {
        /// The version on which the draft was made.
        base: Option<VersionNumber>,
        /// The generation of the lease under which it was last saved.
        generation: Option<Generation>,
    },
}

/// What one name of a checkout's view stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The artifact's row.
    pub artifact: Seq,
    /// The artifact's identity.
    pub id: ArtifactId,
    /// The directory that holds the name.
    pub parent: Seq,
    /// The name; the root's is never looked at.
    pub name: Name,
    /// What sort of thing it is.
    pub kind: Kind,
    /// The inode number of this content state.
    pub ino: Ino,
    /// Mode, owner and times.
    pub attrs: Attrs,
    /// The size of the last save, in bytes.
    pub size: u64,
    /// Where the bytes of the last save are.
    pub content: Content,
    /// Head or draft.
    pub layer: Layer,
    /// Whether the name is scratch.
    pub scratch: Scratch,
    /// The artifact's newest version, if it has any and is in the head tree.
    pub head: Option<VersionNumber>,
    /// The inode number of that version: a draft with the same one has its bytes.
    pub head_ino: Option<Ino>,
}

impl Entry {
    /// Whether it is changed in its checkout.
    pub fn is_drafted(&self) -> bool {
        matches!(self.layer, Layer::Draft { .. })
    }

    /// The version that it is, or that its draft was made on.
    pub fn base(&self) -> Option<VersionNumber> {
        match self.layer {
            Layer::Draft { base, .. } => base,
            Layer::Head => self.head,
        }
    }

    /// The generation of the lease under which its draft was last saved.
    pub fn generation(&self) -> Option<Generation> {
        match self.layer {
            Layer::Draft { generation, .. } => generation,
            Layer::Head => None,
        }
    }
}

/// One immutable version of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionInfo {
    /// The artifact's row.
    pub artifact: Seq,
    /// The number of the version.
    pub number: VersionNumber,
    /// The inode number of the content state.
    pub ino: Ino,
    /// What sort of thing it is.
    pub kind: Kind,
    /// Mode and times; the owner is not versioned.
    pub attrs: Attrs,
    /// The size in bytes.
    pub size: u64,
    /// `Blob`, `Target` or `None`.
    pub content: Content,
}
