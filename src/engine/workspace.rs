use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use super::access::identity_of_process;
use super::files::{check_filesystem, file_error};
use super::policy_file::{PolicyChange, PolicyFile, PolicyLook};
use super::remote::RemoteStore;
use super::stamps::CatalogStamps;
use super::{EngineError, Layout, Result, init};
use crate::blobs::{BlobError, DiskParts, DiskSettings, DiskStore, Faults, Stamps};
use crate::catalog::{Actor, Catalog, CatalogError, LeaseTerms};
use crate::clock::Clock;
use crate::config::Policy;
use crate::ids::Ids;
use crate::model::{ArtifactPath, CheckoutId, Holder, Identity, Instant, Seq, VersionNumber};
use crate::sys;

/// How long a change of the store in a mount may wait for other processes: an application may be waiting for it.
const MOUNT_LOCK_WAIT_MS: i64 = 5_000;

/// Time and randomness, as arguments.
#[derive(Clone)]
pub struct Environment {
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Makes identities.
    pub ids: Arc<dyn Ids>,
}

impl Environment {
    /// What a store is made with.
    pub fn store_parts(&self, settings: DiskSettings, stamps: Arc<dyn Stamps>) -> DiskParts {
        DiskParts { settings, stamps, ids: self.ids.clone(), clock: self.clock.clone() }
    }
}

/// An open workspace: its catalog, its store and its policy.
pub struct Workspace {
    layout: Layout,
    policy: PolicyFile,
    catalog: Arc<Catalog>,
    blobs: Arc<DiskStore>,
    remote: Option<RemoteStore>,
    archived: bool,
    identity: Arc<Identity>,
    env: Environment,
}

impl std::fmt::Debug for Workspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workspace").field("root", &self.layout.root()).finish_non_exhaustive()
    }
}

impl Workspace {
    /// Makes a directory a workspace, and the directory itself if it is missing; opens it.
    ///
    /// One that was killed leaves no workspace, and can be repeated. Fails with `WorkspaceExists`, and with `Refused`
    /// on a network filesystem.
    pub fn init(root: &Path, env: &Environment) -> Result<Self> {
        init::init(root, None, env)?;
        Self::open(root, env)
    }

    /// As [`Self::init`], for a workspace that the members of a group share: whatever any of them makes in it, under
    /// whatever umask, the others may use.
    pub fn init_shared(root: &Path, group: &str, env: &Environment) -> Result<Self> {
        let gid = sys::group_id(group).map_err(file_error("look for the group of", root))?;
        let gid = gid.ok_or_else(|| {
            EngineError::Refused(format!(
                "{group:?}: no such group; `getent group` lists those that there are"
            ))
        })?;
        init::init(root, Some(gid), env)?;
        Self::open(root, env)
    }

    /// Opens the workspace in a directory. On a read-only filesystem it can be read, and whatever changes it fails.
    pub fn open(root: &Path, env: &Environment) -> Result<Self> {
        Self::open_with(root, env, DiskSettings::default(), false)
    }

    /// As [`open`](Self::open), for those who only look: a policy that can't be used is no reason not to. The defaults hold
    /// then, and [`policy_fault`](Self::policy_fault) says so. Nothing may be written by way of it.
    pub fn open_to_look(root: &Path, env: &Environment) -> Result<Self> {
        Self::open_with(root, env, DiskSettings::default(), true)
    }

    /// As [`open`](Self::open), for a mount: changes of the store don't wait long for other processes.
    pub fn open_in_mount(root: &Path, env: &Environment) -> Result<Self> {
        let settings = DiskSettings { lock_wait_ms: MOUNT_LOCK_WAIT_MS, ..DiskSettings::default() };
        Self::open_with(root, env, settings, false)
    }

    fn open_with(root: &Path, env: &Environment, settings: DiskSettings, only_looks: bool) -> Result<Self> {
        let root = fs::canonicalize(root).map_err(file_error("find", root))?;
        let layout = Layout::new(&root);
        let dot = match sys::open_dir(&layout.dot()) {
            Ok(dot) => dot,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(EngineError::NotAWorkspace(root));
            }
            Err(error) => return Err(file_error("open", &layout.dot())(error)),
        };
        check_filesystem(&dot, &root)?;
        let policy = if only_looks {
            PolicyFile::open_to_look(&layout.config())
        } else {
            PolicyFile::open(&layout.config())?
        };
        let archived = sys::is_read_only_filesystem(&dot).map_err(file_error("examine", &layout.dot()))?;
        let open = if archived { Catalog::open_archived } else { Catalog::open };
        let catalog = open(&layout.catalog())
            .map_err(|source| EngineError::Catalog { file: layout.catalog(), source })?;
        let catalog = Arc::new(catalog);
        let stamps = Arc::new(CatalogStamps(catalog.clone()));
        let parts = env.store_parts(settings, stamps);
        let blobs = Arc::new(DiskStore::open(&layout.objects(), &layout.staging(), &parts)?);
        // Nothing can be made on an archive, nor is anything kept there.
        let spool = if archived { std::env::temp_dir() } else { layout.staging() };
        let wanted = policy.present().remote.clone();
        let opened = wanted.map(|remote| {
            RemoteStore::open(&remote, &blobs, spool, &env.clock).map_err(|error| bad_remote(&layout, error))
        });
        let remote = match opened.transpose() {
            Err(error) if only_looks => {
                policy.note_fault(error.to_string());
                None
            }
            opened => opened?,
        };
        let identity = Arc::new(identity_of_process(&layout.catalog())?);
        Ok(Self { layout, policy, catalog, blobs, remote, archived, identity, env: env.clone() })
    }

    /// The same workspace, whose store fails as `faults` says; for tests.
    pub fn with_store_faults(self, faults: Arc<dyn Faults>) -> Self {
        let blobs = Arc::into_inner(self.blobs).expect("BUG: faults are for a store that nobody else has");
        Self { blobs: Arc::new(blobs.with_faults(faults)), ..self }
    }

    pub(super) fn with_identity(self, identity: Arc<Identity>) -> Self {
        Self { identity, ..self }
    }

    /// Who is judged by the access rules.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The workspace's directory, absolute and without symlinks.
    pub fn root(&self) -> &Path {
        self.layout.root()
    }

    /// Whether it is on a read-only filesystem.
    pub fn is_archived(&self) -> bool {
        self.archived
    }

    /// Where its parts are.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// What `config.toml` says, as it was last looked at.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.present()
    }

    /// Takes over what `config.toml` says, if it is another one or could not be used before; what can't be used leaves what
    /// held before, and `[remote]` stays what it was when the workspace was opened.
    pub fn look_at_policy(&self, look: PolicyLook) -> PolicyChange {
        self.policy.look(&self.layout.config(), look)
    }

    /// Why the present `config.toml` can't be used, if it can't.
    pub fn policy_fault(&self) -> Option<String> {
        self.policy.fault()
    }

    /// What keeps the present `config.toml` from being what holds, a line each.
    pub fn policy_problems(&self) -> Vec<String> {
        self.policy.problems(&self.layout.config())
    }

    /// The durable state.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    pub(super) fn shared_catalog(&self) -> Arc<Catalog> {
        self.catalog.clone()
    }

    /// The bytes.
    pub fn blobs(&self) -> &DiskStore {
        &self.blobs
    }

    /// The store once more, with other settings and the same stamps.
    pub(super) fn another_store(&self, settings: DiskSettings) -> Result<DiskStore> {
        let parts = self.env.store_parts(settings, Arc::new(CatalogStamps(self.catalog.clone())));
        Ok(DiskStore::open(&self.layout.objects(), &self.layout.staging(), &parts)?)
    }

    /// The shared store behind the bytes, if one is configured.
    pub(super) fn remote(&self) -> Option<&RemoteStore> {
        self.remote.as_ref()
    }

    /// The clock.
    pub fn clock(&self) -> &dyn Clock {
        &*self.env.clock
    }

    pub(super) fn shared_clock(&self) -> Arc<dyn Clock> {
        self.env.clock.clone()
    }

    pub(super) fn shared_ids(&self) -> Arc<dyn Ids> {
        self.env.ids.clone()
    }

    /// The source of identities.
    pub fn ids(&self) -> &dyn Ids {
        &*self.env.ids
    }

    /// The present.
    pub fn now(&self) -> Instant {
        self.env.clock.now()
    }

    /// Who acts in a checkout now, and takes leases for `ttl_ms` where policy permits it, or for as long as it says; `owner`
    /// is the user and group that files of the head tree belong to there.
    pub fn actor(
        &self,
        checkout: CheckoutId,
        holder: &Holder,
        ttl_ms: Option<i64>,
        owner: (u32, u32),
    ) -> Actor {
        Actor {
            checkout,
            holder: holder.clone(),
            terms: LeaseTerms::of_use(self.policy(), ttl_ms),
            now: self.now(),
            owner,
            identity: self.identity.clone(),
            granted: std::cell::Cell::default(),
        }
    }

    /// Tells other mounts of the workspace that something was committed. They would find out later without it, so a
    /// failure is only logged.
    pub fn wake(&self) {
        let path = self.layout.wake();
        if let Err(error) = sys::open_to_write(&path).and_then(|mut file| file.write_all(b"\n")) {
            tracing::warn!(path = %path.display(), %error, "can't wake other mounts");
        }
    }

    /// Names the object that the catalog refused: the artifact's path in the checkout, or `path`.
    pub(super) fn refusal(
        &self,
        checkout: Option<CheckoutId>,
        path: &ArtifactPath,
        error: CatalogError,
    ) -> EngineError {
        let of = |artifact| self.name_of(checkout, artifact, path);
        let refused = |path: &ArtifactPath, text: &str| EngineError::Refused(format!("{path}: {text}"));
        match error {
            CatalogError::Held { artifact, lease } | CatalogError::LeaseLost { artifact, lease } => {
                // Of what may not be seen, such as something below a directory, neither name nor holder is told.
                let seen = self.access(checkout.unwrap_or(CheckoutId(0)));
                match seen.and_then(|access| access.sees(artifact)) {
                    Ok(true) => EngineError::Held { path: of(artifact), lease },
                    _ => EngineError::Held { path: path.clone(), lease: None },
                }
            }
            CatalogError::Quarantined { artifact, lease } => {
                EngineError::Quarantined { path: of(artifact), lease }
            }
            CatalogError::Fenced { artifact, .. } => EngineError::Fenced { path: of(artifact) },
            CatalogError::Stale { artifact, base, head } => stale(of(artifact), base, head),
            CatalogError::NotFound => EngineError::NotFound(path.clone()),
            CatalogError::Exists => refused(path, "is there already; choose another name"),
            CatalogError::NotEmpty => refused(path, "the directory is not empty; empty it first"),
            CatalogError::IsDirectory => refused(path, "is a directory where a file is needed; name a file"),
            CatalogError::NotDirectory => {
                refused(path, "is, or lies in, a file where a directory is needed; name a directory")
            }
            CatalogError::Denied { artifact } => {
                EngineError::Denied { path: of(artifact), principal: self.identity.principal.clone() }
            }
            CatalogError::NotOwner { glob } => EngineError::Refused(format!(
                "{glob}: only its owners may change its access rules; you ({}) are none",
                self.identity.principal
            )),
            CatalogError::LastOwner => EngineError::Refused(format!(
                "{}: nobody would own everything any more; grant somebody else the role owner on ** first",
                self.root().display()
            )),
            CatalogError::Unpublished { artifact } => {
                refused(&of(artifact), "its last save is not in the store yet; try again")
            }
            CatalogError::Cycle { artifact } => refused(
                &of(artifact),
                "would lie within itself, since its new directory was moved by another check-in; \
                 move it elsewhere, or `leasehold revert` it",
            ),
            CatalogError::Incomplete(lack) => refused(path, &format!("can't be checked in: {lack}")),
            CatalogError::Mounted { pid, mountpoint } => EngineError::Refused(format!(
                "{}: mounted by process {pid}; unmount it first, or mount another --checkout",
                mountpoint.display()
            )),
            source @ (CatalogError::Sqlite { .. }
            | CatalogError::Open { .. }
            | CatalogError::File { .. }
            | CatalogError::NotACatalog
            | CatalogError::Archived
            | CatalogError::NotClosed
            | CatalogError::NewerSchema { .. }
            | CatalogError::BadTtl
            | CatalogError::Blocked(_)
            | CatalogError::RequestReused) => EngineError::Catalog { file: self.layout.catalog(), source },
        }
    }

    fn name_of(&self, checkout: Option<CheckoutId>, artifact: Seq, path: &ArtifactPath) -> ArtifactPath {
        // No row has the number 0: without a checkout the path is the head tree's.
        let checkout = checkout.unwrap_or(CheckoutId(0));
        let found = self.catalog.any_path_of(checkout, artifact);
        found.ok().filter(|found| !found.is_root()).unwrap_or_else(|| path.clone())
    }
}

/// Names the place of the configuration that a shared store can't be used with.
fn bad_remote(layout: &Layout, error: BlobError) -> EngineError {
    match error {
        BlobError::Configuration { problem } => EngineError::Refused(format!(
            "{}: [remote]: {problem}: mend it, or comment the table out",
            layout.config().display()
        )),
        error => error.into(),
    }
}

fn stale(path: ArtifactPath, base: VersionNumber, head: VersionNumber) -> EngineError {
    if head == VersionNumber(0) {
        return EngineError::DeletedMeanwhile { path, base };
    }
    EngineError::Stale { path, base, head }
}
