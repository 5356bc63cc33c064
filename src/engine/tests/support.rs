//! A workspace in a temporary directory, and somebody who saves files in a checkout of it.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::blobs::{BlobStore, Faults};
use crate::catalog::{Actor, CatalogError, Durability, NewEntry, Place, RenameMode, RenameRequest, Save};
use crate::clock::ManualClock;
use crate::engine::{
    CheckInRequest, CheckoutOps, Detached, Environment, ImportRequest, ScratchName, StagingName, StagingRole,
    StatusReport, Workspace,
};
use crate::ids::CountingIds;
use crate::model::{
    ArtifactPath, Attrs, CheckoutId, Content, Entry, Generation, Holder, Kind, Scratch, Timestamp,
    VersionNumber,
};

pub(super) struct Desk {
    pub workspace: Arc<Workspace>,
    pub clock: Arc<ManualClock>,
    pub env: Environment,
    pub dir: tempfile::TempDir,
}

pub(super) fn environment() -> (Environment, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new());
    (Environment { clock: clock.clone(), ids: Arc::new(CountingIds::default()) }, clock)
}

pub(super) fn desk() -> Desk {
    let dir = tempfile::tempdir().unwrap();
    let (env, clock) = environment();
    let workspace = Arc::new(Workspace::init(&dir.path().join("ws"), &env).unwrap());
    Desk { workspace, clock, env, dir }
}

pub(super) fn path(text: &str) -> ArtifactPath {
    ArtifactPath::parse(text).unwrap()
}

pub(super) fn attrs() -> Attrs {
    let time = Timestamp(1);
    Attrs { mode: 0o644, uid: 0, gid: 0, atime: time, mtime: time, ctime: time }
}

impl Desk {
    /// The same workspace as a new process opens it; `faults` are its store's.
    pub(super) fn reopened(self, faults: Option<Arc<dyn Faults>>) -> Self {
        let root = self.workspace.root().to_owned();
        let locks = self.workspace.layout().objects().join(".locks");
        drop(self.workspace);
        // This process lives on: what a crash of it would have left is nobody's only after a minute.
        for lock in std::fs::read_dir(locks).into_iter().flatten() {
            let lock = std::fs::File::open(lock.unwrap().path()).unwrap();
            lock.set_modified(std::time::UNIX_EPOCH).unwrap();
        }
        let workspace = Workspace::open(&root, &self.env).unwrap();
        let workspace = match faults {
            Some(faults) => workspace.with_store_faults(faults),
            None => workspace,
        };
        Self { workspace: Arc::new(workspace), ..self }
    }

    /// Writes files of the host and imports them; the names are their texts.
    pub(super) fn import(&self, names: &[&str]) {
        let from = self.dir.path().join("from");
        for name in names {
            let file = from.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, name).unwrap();
        }
        let request = ImportRequest {
            sources: vec![from.clone()],
            into: ArtifactPath::root(),
            message: "import".into(),
            author: "imp@home".parse().unwrap(),
            contents_only: true,
        };
        self.workspace.import(&request, &|_| ()).unwrap();
        std::fs::remove_dir_all(from).unwrap();
    }

    pub(super) fn read(&self, at: &str, version: Option<i64>) -> String {
        let mut text = String::new();
        let number = version.map(VersionNumber);
        self.workspace.read_version(&path(at), number).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    pub(super) fn person(&self, holder: &str) -> Person<'_> {
        let holder: Holder = holder.parse().unwrap();
        let checkout = self.workspace.catalog().checkout(&holder).unwrap();
        let ops = self.workspace.detached(&holder, Some(60_000)).unwrap();
        Person { desk: self, holder, checkout, ops }
    }

    /// Lets time pass on the test's clock, by which all files of the store and of staging are dated first: the kernel
    /// dates them by its own.
    pub(super) fn let_pass_ms(&self, ms: i64) {
        let now = std::time::UNIX_EPOCH
            + std::time::Duration::from_nanos(self.workspace.now().wall.0.unsigned_abs());
        let mut dirs = vec![self.workspace.layout().objects(), self.workspace.layout().staging()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    dirs.push(entry.path());
                } else {
                    let file = std::fs::File::options().write(true).open(entry.path()).unwrap();
                    file.set_modified(now).unwrap();
                }
            }
        }
        self.clock.advance_ms(ms);
    }

    pub(super) fn recovered_texts(&self) -> Vec<String> {
        let copies = self.workspace.recovered().unwrap();
        let file = |id: &str| self.workspace.recovered_file(id).unwrap();
        copies.iter().map(|copy| std::fs::read_to_string(file(&copy.id)).unwrap()).collect()
    }
}

pub(super) struct Person<'a> {
    pub desk: &'a Desk,
    pub holder: Holder,
    pub checkout: CheckoutId,
    pub ops: Detached,
}

impl Person<'_> {
    pub(super) fn actor(&self) -> Actor {
        self.desk.workspace.actor(self.checkout, &self.holder, Some(60_000), (0, 0))
    }

    pub(super) fn get(&self, at: &str) -> Option<Entry> {
        self.desk.workspace.catalog().resolve(self.checkout, &path(at)).unwrap()
    }

    /// A name in staging as a mount would give it.
    pub(super) fn staging_name(&self, role: StagingRole, entry: &Entry) -> StagingName {
        let token = self.desk.env.ids.token();
        StagingName { role, checkout: self.checkout, artifact: entry.artifact, base: entry.head, token }
    }

    /// Writes a file of staging that no draft names.
    pub(super) fn stage(&self, role: StagingRole, at: &str, text: &str) -> PathBuf {
        let name = self.staging_name(role, &self.get(at).unwrap());
        let file = self.desk.workspace.layout().staging().join(name.to_string());
        std::fs::write(&file, text).unwrap();
        file
    }

    fn save(&self, at: &str, content: Content, size: u64, durability: Durability) {
        let artifact = self.get(at).unwrap().artifact;
        let leases = self.desk.workspace.catalog().acquire(&self.actor(), &[(artifact, None)]);
        let generation = leases.unwrap()[0].generation;
        self.save_under(generation, at, content, size, durability).unwrap();
    }

    fn save_under(
        &self,
        generation: Generation,
        at: &str,
        content: Content,
        size: u64,
        durability: Durability,
    ) -> Result<(), CatalogError> {
        let entry = self.get(at).unwrap();
        let catalog = self.desk.workspace.catalog();
        let save = Save {
            artifact: entry.artifact,
            ino: catalog.next_ino().unwrap(),
            content,
            size,
            attrs: Attrs { ctime: self.actor().now.wall, ..entry.attrs },
            base: entry.head,
            generation: Some(generation),
        };
        catalog.save(&self.actor(), &save, durability).map(drop)
    }

    /// Saves once more under the generation of the draft, as who never noticed that it ended.
    pub(super) fn try_write(&self, at: &str, text: &str) -> Result<(), CatalogError> {
        let generation = self.get(at).unwrap().generation().unwrap();
        let file = self.stage(StagingRole::Sealed, at, text);
        self.save_under(
            generation,
            at,
            Content::Staged(file_name(&file)),
            text.len() as u64,
            Durability::Full,
        )
    }

    /// What `status` tells.
    pub(super) fn ops_status(&self) -> StatusReport {
        self.ops.status(&ArtifactPath::root()).unwrap()
    }

    /// Saves a file that is there: a sealed file of staging becomes its draft. Returns that file.
    pub(super) fn write(&self, at: &str, text: &str) -> PathBuf {
        let file = self.stage(StagingRole::Sealed, at, text);
        self.save(at, Content::Staged(file_name(&file)), text.len() as u64, Durability::Full);
        file
    }

    /// As [`Person::write`], but the bytes are not on the disk: a power cut takes them. Returns the file.
    pub(super) fn write_unsynced(&self, at: &str, text: &str) -> PathBuf {
        let file = self.stage(StagingRole::Working, at, text);
        self.save(at, Content::Staged(file_name(&file)), text.len() as u64, Durability::Grouped);
        file
    }

    pub(super) fn rename(&self, from: &str, to: &str) {
        let place = |at: &str| {
            let at = path(at);
            let dir = self.desk.workspace.catalog().resolve(self.checkout, &at.parent().unwrap());
            Place { parent: dir.unwrap().unwrap().artifact, name: at.file_name().unwrap().clone() }
        };
        let request = RenameRequest {
            from: place(from),
            to: place(to),
            mode: RenameMode::Replace,
            classes: (Scratch::No, Scratch::No),
            spare: self.desk.env.ids.artifact(Timestamp(1)),
        };
        self.desk.workspace.catalog().rename(&self.actor(), &request).unwrap();
    }

    /// What the checkout shows of a file, whichever way the bytes are kept.
    pub(super) fn text(&self, at: &str) -> String {
        let (entry, layout) = (self.get(at).unwrap(), self.desk.workspace.layout());
        let text = match entry.content {
            Content::Blob(digest) => {
                let mut text = String::new();
                self.desk.workspace.blobs().get(&digest).unwrap().read_to_string(&mut text).unwrap();
                text
            }
            Content::Staged(file) => std::fs::read_to_string(layout.staging().join(file)).unwrap(),
            Content::Direct(file) => std::fs::read_to_string(layout.scratch().join(file)).unwrap(),
            Content::None | Content::Target(_) => String::new(),
        };
        assert_eq!(text.len() as u64, entry.size, "the size of {at}");
        text
    }

    /// Writes a `live` file in place. Returns the file of scratch.
    pub(super) fn write_direct(&self, at: &str, text: &str) -> PathBuf {
        let (checkout, artifact) = (self.checkout, self.get(at).unwrap().artifact);
        let name = ScratchName { checkout, artifact, token: self.desk.env.ids.token() }.to_string();
        let file = self.desk.workspace.layout().scratch().join(&name);
        std::fs::write(&file, text).unwrap();
        self.save(at, Content::Direct(name), text.len() as u64, Durability::Full);
        file
    }

    pub(super) fn create(&self, at: &str, kind: Kind, scratch: Scratch) -> Entry {
        let catalog = self.desk.workspace.catalog();
        let at = path(at);
        let dir = catalog.resolve(self.checkout, &at.parent().unwrap()).unwrap().unwrap();
        let place = Place { parent: dir.artifact, name: at.file_name().unwrap().clone() };
        let new = NewEntry {
            id: self.desk.env.ids.artifact(Timestamp(1)),
            kind,
            ino: catalog.next_ino().unwrap(),
            attrs: attrs(),
            content: Content::None,
            size: 0,
            scratch,
        };
        catalog.create_entry(&self.actor(), &place, &new).unwrap()
    }

    pub(super) fn unlink(&self, at: &str) {
        let entry = self.get(at).unwrap();
        let place = Place { parent: entry.parent, name: entry.name };
        self.desk.workspace.catalog().unlink(&self.actor(), &place).unwrap();
    }
}

pub(super) fn file_name(file: &Path) -> String {
    file.file_name().unwrap().to_str().unwrap().to_owned()
}

pub(super) fn everything(message: &str) -> CheckInRequest {
    CheckInRequest { message: message.into(), ..CheckInRequest::default() }
}

/// The names in a directory, sorted.
pub(super) fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
