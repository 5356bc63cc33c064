use std::path::{Path, PathBuf};

/// Where the parts of a workspace are.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
    dot: PathBuf,
}

impl Layout {
    /// The name of the directory that makes a directory a workspace.
    pub const DOT: &'static str = ".leasehold";

    /// The layout of the workspace in a directory.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), dot: root.join(Self::DOT) }
    }

    /// The layout of a workspace that is being made: everything is below `name` until that is renamed.
    pub(super) fn unfinished(root: &Path, name: &str) -> Self {
        Self { root: root.to_owned(), dot: root.join(name) }
    }

    /// The workspace's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `.leasehold`: everything else is below it.
    pub fn dot(&self) -> PathBuf {
        self.dot.clone()
    }

    /// `config.toml`: the policy.
    pub fn config(&self) -> PathBuf {
        self.dot().join("config.toml")
    }

    /// `catalog.db`: the durable state but the bytes.
    pub fn catalog(&self) -> PathBuf {
        self.dot().join("catalog.db")
    }

    /// `objects/`: the store.
    pub fn objects(&self) -> PathBuf {
        self.dot().join("objects")
    }

    /// `staging/`: working files and sealed saves, on the filesystem of the store.
    pub fn staging(&self) -> PathBuf {
        self.dot().join("staging")
    }

    /// `scratch/`: the bytes of scratch files and of `live` drafts.
    pub fn scratch(&self) -> PathBuf {
        self.dot().join("scratch")
    }

    /// `recovered/`: bytes that an application wrote and that no draft holds.
    pub fn recovered(&self) -> PathBuf {
        self.dot().join("recovered")
    }

    /// `pins/`: files that list digests, one a line, which the collector keeps. Made by whoever wants one.
    pub fn pins(&self) -> PathBuf {
        self.dot().join("pins")
    }

    /// `run/`: control sockets and the file that committers touch.
    pub fn run(&self) -> PathBuf {
        self.dot().join("run")
    }

    /// `run/wake`: touched after a commit that other mounts want to see.
    pub fn wake(&self) -> PathBuf {
        self.run().join("wake")
    }

    /// `log/`: the daemons' logs.
    pub fn log(&self) -> PathBuf {
        self.dot().join("log")
    }
}
