/// What a workspace keeps of what a shared store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DownloadPolicy {
    /// Everything that the head tree names, fetched ahead; and whatever else is read.
    #[default]
    All,
    /// What is read.
    Toplevel,
    /// Nothing but what takes the place of a corrupt blob: what is read is fetched each time.
    Minimal,
}

impl DownloadPolicy {
    /// Each policy with its name.
    pub const NAMES: [(Self, &'static str); 3] =
        [(Self::All, "all"), (Self::Toplevel, "toplevel"), (Self::Minimal, "minimal")];

    /// The policy of a name; none for any other text.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(_, known)| *known == name).map(|(policy, _)| *policy)
    }
}
