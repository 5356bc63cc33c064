//! Where a command works: which workspace, whose checkout, and which artifacts its paths name.

mod dead;
mod paths;
mod site;
mod version;

pub use dead::is_dead;
pub use paths::{locate, locate_mountpoint};
pub use site::{Context, Site, holder_of_mount, versioned_site};
pub use version::{VersionSpec, split_version};

pub use crate::engine::{Mount, MountTable};
