//! A mounted checkout without a kernel: what applications do, as the calls of the vfs that the kernel makes of it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use leasehold::catalog::Mounting;
use leasehold::engine::{
    CheckInRequest, CheckoutOps, EngineError, Environment, LeaseFilter, PolicyLook, Workspace,
};
use leasehold::model::{ArtifactPath, Holder, Ino, Lease};
use leasehold::vfs::{Caller, Handle, OpenRequest, RenameMode, Result, SetAttr, Vfs, VfsError, VfsOptions};

/// One holder's mount.
pub struct Desk {
    vfs: Arc<Vfs>,
    holder: Holder,
    caller: Caller,
    ttl_ms: Option<i64>,
}

/// A file that is open for writing, with the node that the kernel knows it by.
#[derive(Debug, Clone, Copy)]
pub struct Open {
    handle: Handle,
    ino: Ino,
}

impl Desk {
    pub fn mount(root: &Path, env: &Environment, holder: &str, ttl_ms: Option<i64>) -> Self {
        Self::mount_on(Workspace::open(root, env).unwrap(), env, holder, ttl_ms)
    }

    pub fn mount_on(workspace: Workspace, env: &Environment, holder: &str, ttl_ms: Option<i64>) -> Self {
        let workspace = Arc::new(workspace);
        let holder: Holder = holder.parse().unwrap();
        let options = VfsOptions {
            holder: holder.clone(),
            ttl_ms,
            checkin_on_close: false,
            read_only: false,
            allow_other: false,
            uid: 0,
            gid: 0,
        };
        begin_mount(&workspace, &holder, env);
        let caller = Caller { uid: 0, gid: 0, pid: std::process::id() };
        Self { vfs: Vfs::new(workspace, options).unwrap(), holder, caller, ttl_ms }
    }

    /// Ends the mount as a crash would, and mounts again: nothing is flushed, released or drained.
    pub fn crash_and_mount(self, root: &Path, env: &Environment) -> Self {
        let (holder, ttl_ms, left) = (self.holder, self.ttl_ms, Arc::downgrade(&self.vfs));
        drop(self.vfs);
        while left.strong_count() > 0 {
            // The publisher is busy with its last batch.
            std::thread::yield_now();
        }
        Self::mount(root, env, holder.as_str(), ttl_ms)
    }

    pub fn tick(&self) {
        self.vfs.tick();
    }

    /// What the thread that renews leases does from time to time.
    pub fn renew(&self) {
        self.vfs.renew_open();
    }

    /// What is done when somebody has written the policy's file.
    pub fn policy_written(&self) {
        self.vfs.look_at_policy(PolicyLook::Written);
    }

    /// How many events of a kind there are, whoever they are for.
    pub fn count_events(&self, kind: &str) -> usize {
        let events = self.vfs.workspace().catalog().events(0, 1_000).unwrap();
        events.iter().filter(|event| event.kind == kind).count()
    }

    /// What is wrong for this holder, a line each.
    pub fn problems(&self) -> Vec<String> {
        self.ops().status(&ArtifactPath::root()).unwrap().problems
    }

    fn lookup(&self, name: &str) -> Result<Ino> {
        self.vfs.lookup(&self.caller, Ino::ROOT, OsStr::new(name)).map(|attr| attr.ino)
    }

    /// Opens as the kernel does: a name that means another node by now is looked up once more.
    fn open(&self, name: &str, request: OpenRequest) -> Result<Open> {
        let ino = match self.lookup(name) {
            Err(VfsError::NotFound) if request.write => return self.create(name, request),
            found => found?,
        };
        match self.vfs.open(&self.caller, ino, &request) {
            Err(VfsError::Reopen) => self.vfs.forget(ino, 1),
            opened => return self.opened(ino, opened.map(|opened| opened.handle)),
        }
        let ino = self.lookup(name)?;
        let opened = self.vfs.open(&self.caller, ino, &request);
        self.opened(ino, opened.map(|opened| opened.handle))
    }

    fn opened(&self, ino: Ino, handle: Result<Handle>) -> Result<Open> {
        match handle {
            Ok(handle) => Ok(Open { handle, ino }),
            Err(error) => {
                self.vfs.forget(ino, 1);
                Err(error)
            }
        }
    }

    fn create(&self, name: &str, request: OpenRequest) -> Result<Open> {
        let (attr, opened) = self.vfs.create(&self.caller, Ino::ROOT, OsStr::new(name), 0o644, &request)?;
        Ok(Open { handle: opened.handle, ino: attr.ino })
    }

    /// Opens a file for writing, cut to nothing, and writes its first bytes.
    pub fn begin(&self, name: &str, bytes: &[u8]) -> Result<Open> {
        let request = OpenRequest { write: true, truncate: true, ..OpenRequest::default() };
        let open = self.open(name, request)?;
        // As the kernel's adapter does it: first the handle is sure, then the file is cut.
        let cut = self.vfs.cut_opened(&self.caller, open.handle);
        match cut.and_then(|()| self.write(open, 0, bytes)) {
            Ok(()) => Ok(open),
            Err(error) => {
                self.abandon(open);
                Err(error)
            }
        }
    }

    /// Opens a file for writing as it is.
    pub fn open_for_write(&self, name: &str) -> Result<Open> {
        self.open(name, OpenRequest { write: true, ..OpenRequest::default() })
    }

    pub fn fsync(&self, open: Open) -> Result<()> {
        self.vfs.fsync(open.handle, false)
    }

    pub fn chmod(&self, name: &str, mode: u32) -> Result<()> {
        let ino = self.lookup(name)?;
        let change = SetAttr { mode: Some(mode), ..SetAttr::default() };
        let changed = self.vfs.setattr(&self.caller, ino, &change, None);
        self.vfs.forget(ino, 1);
        changed.map(drop)
    }

    /// The row of the lease on a name, whoever has it and ended or not.
    pub fn lease(&self, name: &str) -> Option<Lease> {
        let path = ArtifactPath::parse(name).unwrap();
        let leases = self.vfs.workspace().leases(&LeaseFilter::default()).unwrap();
        leases.into_iter().find(|status| status.path.as_ref() == Some(&path)).map(|status| status.lease)
    }

    /// The operations that commands ask for.
    pub fn ops(&self) -> &dyn CheckoutOps {
        &*self.vfs
    }

    pub fn write(&self, open: Open, offset: usize, bytes: &[u8]) -> Result<()> {
        self.vfs.write(&self.caller, open.handle, offset as u64, bytes, false).map(drop)
    }

    /// close(2) of the only descriptor.
    pub fn close(&self, open: Open) -> Result<()> {
        let flushed = self.vfs.flush(&self.caller, open.handle);
        self.abandon(open);
        flushed
    }

    fn abandon(&self, open: Open) {
        self.vfs.release(open.handle);
        self.vfs.forget(open.ino, 1);
    }

    pub fn save(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let open = self.begin(name, bytes)?;
        self.close(open)
    }

    /// Saves by a temporary file that takes the document's name.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let temp = format!("{name}.Ab12Cd");
        let request = OpenRequest { write: true, exclusive: true, ..OpenRequest::default() };
        let open = self.create(&temp, request)?;
        self.write(open, 0, bytes)?;
        self.close(open)?;
        let renamed = self.rename(&temp, name, RenameMode::Replace);
        if renamed.is_err() {
            self.unlink(&temp)?;
        }
        renamed
    }

    pub fn rename(&self, from: &str, to: &str, mode: RenameMode) -> Result<()> {
        let (from, to) = ((Ino::ROOT, OsStr::new(from)), (Ino::ROOT, OsStr::new(to)));
        self.vfs.rename(&self.caller, from, to, mode)
    }

    pub fn unlink(&self, name: &str) -> Result<()> {
        self.vfs.unlink(&self.caller, Ino::ROOT, OsStr::new(name))
    }

    pub fn check_in(&self) -> std::result::Result<(), EngineError> {
        let request = CheckInRequest { message: "a step".into(), ..CheckInRequest::default() };
        self.vfs.check_in(&request).map(drop)
    }

    pub fn revert(&self) -> std::result::Result<(), EngineError> {
        self.vfs.revert(&[ArtifactPath::root()]).map(drop)
    }

    /// Every name with its bytes, as an application reads them; sizes must agree with the bytes.
    pub fn tree(&self) -> BTreeMap<String, Vec<u8>> {
        let mut names = Vec::new();
        let mut add = |entry: leasehold::vfs::DirEntry<'_>| {
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            false
        };
        self.vfs.readdir(Ino::ROOT, 0, &mut add).unwrap();
        names.retain(|name| name != "." && name != "..");
        names.into_iter().map(|name| (name.clone(), self.read(&name))).collect()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        let open = self.open(name, OpenRequest { read: true, ..OpenRequest::default() }).unwrap();
        let size = self.vfs.getattr(open.ino, None).unwrap().size;
        let bytes = self.vfs.read(open.handle, 0, 1 << 20).unwrap();
        assert_eq!(bytes.len() as u64, size, "the size of {name}");
        self.abandon(open);
        bytes
    }

    /// The bytes of this holder's recovery copies.
    pub fn recovered(&self) -> Vec<Vec<u8>> {
        let workspace = self.vfs.workspace();
        let mine = workspace.recovered().unwrap().into_iter().filter(|copy| copy.holder == self.holder);
        mine.map(|copy| std::fs::read(workspace.recovered_file(&copy.id).unwrap()).unwrap()).collect()
    }
}

/// Notes the mount, as the daemon does: no writers are left from the one before.
fn begin_mount(workspace: &Workspace, holder: &Holder, env: &Environment) {
    let checkout = workspace.catalog().checkout(holder).unwrap();
    let process = leasehold::sys::this_process().unwrap();
    let mounting = Mounting { process, mountpoint: "/nowhere".into(), now: env.clock.now() };
    workspace.catalog().begin_mount(checkout, &mounting).unwrap();
}
