//! A catalog with checkouts, addressed by paths as an application would.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::catalog::{
    Actor, Catalog, CatalogError, CheckIn, CheckedIn, Durability, LeaseFilter, LeaseTerms, NewEntry, Place,
    RenameMode, RenameRequest, Renamed, Result, Save,
};
use crate::clock::{Clock, ManualClock};
use crate::config::{Config, Policy};
use crate::ids::{CountingIds, Ids};
use crate::model::{
    ArtifactPath, Attrs, Content, Digest, Entry, Generation, Holder, Kind, Scratch, Seq, Timestamp,
    VersionNumber,
};

pub(super) const TTL_MS: i64 = 60_000;

pub(super) struct World {
    pub catalog: Catalog,
    pub clock: ManualClock,
    pub ids: CountingIds,
    policy: Mutex<Arc<Policy>>,
    _dir: tempfile::TempDir,
}

pub(super) fn world() -> Arc<World> {
    let dir = tempfile::tempdir().unwrap();
    let (clock, ids) = (ManualClock::new(), CountingIds::default());
    let catalog =
        Catalog::create(&dir.path().join("catalog.db"), attrs(0o755), ids.artifact(clock.now().wall))
            .unwrap();
    Arc::new(World { catalog, clock, ids, policy: Mutex::default(), _dir: dir })
}

pub(super) fn attrs(mode: u32) -> Attrs {
    let time = Timestamp(5);
    Attrs { mode, uid: 1, gid: 1, atime: time, mtime: time, ctime: time }
}

pub(super) fn path(text: &str) -> ArtifactPath {
    ArtifactPath::parse(text).unwrap()
}

pub(super) fn blob(text: &str) -> Content {
    let mut bytes = [0; 32];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    Content::Blob(Digest::from_bytes(bytes))
}

/// Names of backups and temporaries, as a policy would tell them.
pub(super) fn class(name: &str) -> Scratch {
    let scratch = name.ends_with('~') || name.ends_with(".tmp") || name.ends_with('@');
    if scratch {
        Scratch::Yes
    } else if name.ends_with('?') {
        Scratch::Provisional
    } else {
        Scratch::No
    }
}

impl World {
    /// Another policy for whoever acts from now on.
    pub(super) fn set_policy(&self, toml: &str) {
        let policy = Config::parse(std::path::Path::new("config.toml"), toml).unwrap();
        *self.policy.lock() = Arc::new(policy);
    }

    fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.lock())
    }

    pub(super) fn checkout(self: &Arc<Self>, holder: &str) -> Person {
        let holder: Holder = holder.parse().unwrap();
        let checkout = self.catalog.checkout(&holder).unwrap();
        Person { world: self.clone(), holder, checkout }
    }

    /// The head tree's entry of a path.
    pub(super) fn head(&self, at: &str) -> Option<Entry> {
        self.catalog.resolve(crate::model::CheckoutId(0), &path(at)).unwrap()
    }

    pub(super) fn head_number(&self, at: &str) -> i64 {
        self.head(at).unwrap().head.unwrap().0
    }

    /// Every path of the head tree.
    pub(super) fn tree(&self) -> Vec<String> {
        tree_of(&self.catalog, crate::model::CheckoutId(0))
    }

    /// A number that no other call returned.
    pub(super) fn next(&self) -> u64 {
        self.catalog.next_ino().unwrap().0
    }

    pub(super) fn count_leases(&self) -> usize {
        self.catalog.leases(&LeaseFilter::default(), self.clock.now()).unwrap().len()
    }
}

fn tree_of(catalog: &Catalog, checkout: crate::model::CheckoutId) -> Vec<String> {
    let mut found = Vec::new();
    let mut dirs = vec![(Seq::ROOT, ArtifactPath::root())];
    while let Some((dir, at)) = dirs.pop() {
        for entry in catalog.children(checkout, dir, Seq(0), 1_000).unwrap() {
            let here = at.join(entry.name.clone());
            found.push(here.to_string());
            if entry.kind == Kind::Directory {
                dirs.push((entry.artifact, here));
            }
        }
    }
    found.sort();
    found
}

/// Somebody who works in a checkout.
pub(super) struct Person {
    pub world: Arc<World>,
    pub holder: Holder,
    pub checkout: crate::model::CheckoutId,
}

impl Person {
    pub(super) fn actor(&self) -> Actor {
        Actor {
            checkout: self.checkout,
            holder: self.holder.clone(),
            terms: LeaseTerms::of_use(self.world.policy(), Some(TTL_MS)),
            now: self.world.clock.now(),
            owner: (1, 1),
            identity: Arc::new(crate::model::Identity::root()),
            granted: std::cell::Cell::default(),
        }
    }

    fn catalog(&self) -> &Catalog {
        &self.world.catalog
    }

    pub(super) fn place(&self, at: &str) -> Place {
        let at = path(at);
        let dir = self.catalog().resolve(self.checkout, &at.parent().unwrap()).unwrap().unwrap();
        Place { parent: dir.artifact, name: at.file_name().unwrap().clone() }
    }

    pub(super) fn get(&self, at: &str) -> Option<Entry> {
        self.catalog().resolve(self.checkout, &path(at)).unwrap()
    }

    /// A file and its draft's generation, as a mount notes that it is being written.
    pub(super) fn writer(&self, at: &str) -> (Seq, Generation) {
        let entry = self.get(at).unwrap();
        (entry.artifact, entry.generation().expect("a draft has one"))
    }

    pub(super) fn tree(&self) -> Vec<String> {
        tree_of(self.catalog(), self.checkout)
    }

    fn create(&self, at: &str, kind: Kind, content: Content) -> Result<Entry> {
        let new = NewEntry {
            id: self.world.ids.artifact(self.world.clock.now().wall),
            kind,
            ino: self.catalog().next_ino().unwrap(),
            attrs: attrs(if kind == Kind::Directory { 0o755 } else { 0o644 }),
            content,
            size: 1,
            scratch: class(at),
        };
        self.catalog().create_entry(&self.actor(), &self.place(at), &new)
    }

    pub(super) fn try_write_new(&self, at: &str, text: &str) -> Result<Entry> {
        self.create(at, Kind::File, blob(text))
    }

    pub(super) fn write_new(&self, at: &str, text: &str) -> Entry {
        self.try_write_new(at, text).unwrap()
    }

    pub(super) fn try_mkdir(&self, at: &str) -> Result<Entry> {
        self.create(at, Kind::Directory, Content::None)
    }

    pub(super) fn mkdir(&self, at: &str) -> Entry {
        self.try_mkdir(at).unwrap()
    }

    /// Saves new bytes of a file that is there, as an application that opens and writes it.
    pub(super) fn try_write(&self, at: &str, content: Content) -> Result<()> {
        let entry = self.get(at).unwrap();
        let taken = self.catalog().acquire(&self.actor(), &[(entry.artifact, None)])?;
        let save = Save {
            artifact: entry.artifact,
            ino: self.catalog().next_ino().unwrap(),
            content,
            size: 1,
            attrs: entry.attrs,
            base: entry.head,
            generation: taken.first().map(|lease| lease.generation),
        };
        self.catalog().save(&self.actor(), &save, Durability::Grouped).map(drop)
    }

    pub(super) fn write(&self, at: &str, text: &str) {
        self.try_write(at, blob(text)).unwrap();
    }

    pub(super) fn unlink(&self, at: &str) {
        self.catalog().unlink(&self.actor(), &self.place(at)).unwrap();
    }

    pub(super) fn rmdir(&self, at: &str) {
        self.catalog().rmdir(&self.actor(), &self.place(at)).unwrap();
    }

    pub(super) fn try_rename(&self, from: &str, to: &str, mode: RenameMode) -> Result<Renamed> {
        let spare = self.world.ids.artifact(self.world.clock.now().wall);
        let request = RenameRequest {
            from: self.place(from),
            to: self.place(to),
            mode,
            classes: (class(from), class(to)),
            spare,
        };
        self.catalog().rename(&self.actor(), &request)
    }

    pub(super) fn mv(&self, from: &str, to: &str) {
        self.try_rename(from, to, RenameMode::Replace).unwrap();
    }

    pub(super) fn exchange(&self, from: &str, to: &str) {
        self.try_rename(from, to, RenameMode::Exchange).unwrap();
    }

    pub(super) fn check_in(&self, paths: &[&str]) -> Result<CheckedIn> {
        self.check_in_with(paths, false, None)
    }

    pub(super) fn check_in_with(&self, paths: &[&str], keep: bool, onto: Option<i64>) -> Result<CheckedIn> {
        let paths = paths.iter().map(|p| path(p)).collect();
        let request =
            CheckIn { paths, message: "m".into(), keep, onto: onto.map(VersionNumber), busy: Vec::new() };
        self.catalog().check_in(&self.actor(), &request)
    }

    /// Checks everything in and says what was done: `+path`, `-path`, `from>to`, `*path`, with the version.
    pub(super) fn commit(&self) -> Vec<String> {
        describe(&self.check_in(&[]).unwrap())
    }

    pub(super) fn holds(&self, at: &str) -> bool {
        let entry = self.get(at).or_else(|| self.world.head(at)).unwrap();
        let lease = self.catalog().lease(&crate::model::ResourceKey::Artifact(entry.id)).unwrap();
        lease.is_some_and(|l| l.holder == self.holder && l.is_live(self.world.clock.now()))
    }

    pub(super) fn drafts(&self) -> usize {
        self.catalog().drafts(self.checkout).unwrap().len()
    }

    /// Lets every lease end.
    pub(super) fn sleep(&self) {
        self.world.clock.advance_ms(TTL_MS + 1);
    }
}

pub(super) fn describe(report: &CheckedIn) -> Vec<String> {
    let item = |item: &crate::catalog::CheckedItem| {
        let version = item.version.map_or(String::new(), |v| format!(" v{v}"));
        match (&item.before, &item.after) {
            (None, Some(after)) => format!("+{after}{version}"),
            (Some(before), None) => format!("-{before}{version}"),
            (Some(before), Some(after)) if before == after => format!("*{after}{version}"),
            (Some(before), Some(after)) => format!("{before}>{after}{version}"),
            (None, None) => "nothing".into(),
        }
    };
    report.items.iter().map(item).collect()
}

pub(super) fn is_stale<T>(result: Result<T>) -> bool {
    matches!(result, Err(CatalogError::Stale { .. }))
}

pub(super) fn is_held<T>(result: Result<T>) -> bool {
    matches!(result, Err(CatalogError::Held { .. }))
}
