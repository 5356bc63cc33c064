//! One holder who works while a fault comes: saves in every way, checks in, and looks afterwards what is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::Value;

use super::injector::{Call, Fault, Injector};
use super::round::{DOCUMENTS, Round, length_of, text};
use crate::agent::App;
use crate::kernel;
use crate::mounted::{Mount, Ran, Workspace, eventually};

/// What the numbers of rounds become where everything is tried again: by the same daemon, and by the next one.
const AGAIN: usize = 100_000;
const AT_LAST: usize = 200_000;

/// A workspace whose documents are all checked in between two rounds.
pub struct Desk {
    workspace: Workspace,
    injector: Injector,
    mount: Option<Mount>,
    /// What each document has, in the head tree too.
    documents: BTreeMap<String, Vec<u8>>,
    round: usize,
    changes: usize,
    /// Recovery copies of earlier rounds.
    known_copies: BTreeSet<String>,
}

impl Desk {
    /// None where nothing can be mounted.
    pub fn new() -> Option<Self> {
        let documents: BTreeMap<String, Vec<u8>> =
            DOCUMENTS.iter().map(|name| ((*name).to_owned(), text(0, name, length_of(name)))).collect();
        let files: Vec<(&str, &[u8])> =
            documents.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        let workspace = Workspace::with(&files)?;
        let injector = Injector::build(workspace.root().parent().unwrap());
        let (round, changes, known_copies) = (0, 1, BTreeSet::new());
        let mut desk = Self { workspace, injector, mount: None, documents, round, changes, known_copies };
        desk.mount_again();
        Some(desk)
    }

    fn mount_again(&mut self) {
        // A dead mount goes first.
        self.mount = None;
        let environment = self.injector.environment(&self.workspace.root().join(".leasehold"));
        self.mount = Some(self.workspace.mount_in_foreground_with("ada", environment));
    }

    fn mount(&self) -> &Mount {
        self.mount.as_ref().unwrap()
    }

    pub fn app(&self) -> App {
        self.mount().app()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.mount().path(name)
    }

    pub fn check_in(&self) -> Ran {
        self.command(&["checkin", "-m", "a test's change", "--json"])
    }

    /// A command that works with a dead daemon, too.
    fn command(&self, args: &[&str]) -> Ran {
        let holder = ["--as", "ada", "--checkout", "desk"];
        self.workspace.run(&[args, &holder[..]].concat())
    }

    fn count_changes(&self) -> usize {
        self.workspace.run(&["log", "--json"]).json().as_array().unwrap().len()
    }

    /// How many calls of each sort a round makes.
    pub fn count_calls(&mut self) -> Vec<(Call, u64)> {
        assert!(!self.work_with(Fault::NONE));
        Call::ALL.map(|call| (call, self.injector.seen(call))).to_vec()
    }

    /// Works while a fault comes, and looks whether all is kept that was acknowledged; whether the fault came.
    ///
    /// Half of the rounds goes on with the daemon that met the fault; in the others it dies at once.
    pub fn work_with(&mut self, fault: Fault) -> bool {
        self.round += 1;
        self.injector.arm(fault);
        let mut round = Round::work(self, self.round, &self.documents);
        self.injector.disarm();
        let hit = self.injector.hit();
        if hit.is_some() && fault.kills() {
            eventually("the daemon's death", || (!self.is_alive()).then_some(()));
        } else {
            assert!(self.is_alive(), "the daemon ended by itself; refused: {:?}", round.refused);
            self.look_while_alive(&mut round, fault.number.is_multiple_of(2));
        }
        if hit.is_none() {
            assert_eq!(round.refused, [""; 0], "without a fault everything works");
        }
        self.mount.as_mut().unwrap().crash();
        self.mount_again();
        drop(round.take_app());
        self.look_after(&round);
        self.save_all_and_check_in(self.round + AT_LAST);
        hit.is_some()
    }

    fn is_alive(&self) -> bool {
        leasehold::sys::is_alive(self.mount().daemon())
    }

    /// The daemon that met an error shows what it acknowledged, and if it is to go on, everything works again.
    fn look_while_alive(&mut self, round: &mut Round, goes_on: bool) {
        if goes_on {
            round.close_open();
        }
        // What is open shows what no save holds.
        for (name, may_be) in round.may_be.iter().filter(|(name, _)| !round.is_open(name)) {
            let found = self.read(name);
            assert!(
                may_be.contains(&found),
                "{name} with the same daemon: {}",
                self.describe(&found, may_be)
            );
        }
        if goes_on {
            self.look_at_versions(round);
            round.written.retain(|(name, bytes)| self.read(name).as_ref() != Some(bytes));
            self.save_all_and_check_in(self.round + AGAIN);
            round.replaced_by(&self.documents);
        }
    }

    /// What a name shows; none where it is absent.
    fn read(&self, name: &str) -> Option<Vec<u8>> {
        match std::fs::read(self.path(name)) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => panic!("{name} can't be read: {error}"),
        }
    }

    fn describe(&self, found: &Option<Vec<u8>>, may_be: &[Option<Vec<u8>>]) -> String {
        let short = |content: &Option<Vec<u8>>| {
            let Some(bytes) = content else { return "absent".to_owned() };
            let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
            format!("{:?} ({} bytes)", String::from_utf8_lossy(line), bytes.len())
        };
        let wanted: Vec<String> = may_be.iter().map(short).collect();
        format!("{} and not one of {wanted:?}", short(found))
    }

    /// The next daemon shows each document as its last save or a later one, and bytes that are in none as copies.
    fn look_after(&mut self, round: &Round) {
        for (name, may_be) in &round.may_be {
            let found = self.read(name);
            assert!(
                may_be.contains(&found),
                "{name}: {}; refused: {:?}",
                self.describe(&found, may_be),
                round.refused
            );
        }
        self.look_at_versions(round);
        let copies = self.new_copies();
        for (name, bytes) in &round.written {
            let is_kept = self.read(name).as_ref() == Some(bytes) || copies.iter().any(|copy| copy == bytes);
            assert!(
                is_kept,
                "{name}: what was written is neither the draft nor a recovery copy; refused: {:?}",
                round.refused
            );
        }
    }

    /// The bytes of the recovery copies that came in this round.
    fn new_copies(&mut self) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        for copy in self.workspace.recovered() {
            if self.known_copies.insert(copy["id"].as_str().unwrap().to_owned()) {
                found.push(self.workspace.restore_recovered(&copy));
            }
        }
        found
    }

    /// A check-in that was acknowledged is there, whole; one that failed is there whole, or not at all.
    fn look_at_versions(&mut self, round: &Round) {
        let made = self.count_changes() - self.changes;
        let wanted = if round.checked_in { 1..=1 } else { 0..=1 };
        assert!(wanted.contains(&made), "{made} changes; check-in acknowledged: {}", round.checked_in);
        let drafts = self.drafts();
        for (name, before) in &self.documents {
            let head = if drafts.contains(name) { self.head(name) } else { self.read(name) };
            let (old, new) = ([Some(before.clone())], &round.at_check_in[name]);
            let may_be = if made == 1 { new.as_slice() } else { old.as_slice() };
            assert!(may_be.contains(&head), "version of {name}: {}", self.describe(&head, may_be));
        }
        self.changes += made;
    }

    fn drafts(&self) -> BTreeSet<String> {
        let status: Value = self.command(&["status", "--json"]).json();
        let drafts = status["drafts"].as_array().unwrap().iter();
        drafts.map(|draft| draft["path"].as_str().unwrap().to_owned()).collect()
    }

    /// The newest version's bytes; none where the head tree has no such name.
    fn head(&self, name: &str) -> Option<Vec<u8>> {
        let ran = self.workspace.run(&["cat", name]);
        (ran.status == 0).then(|| ran.stdout.into_bytes())
    }

    /// Saves every document anew, as its user would try again; what it has then.
    fn save_all(&self, round: usize) -> BTreeMap<String, Vec<u8>> {
        let app = self.app();
        let save = |name: &&str| {
            let bytes = text(round, &format!("{name} again"), length_of(name));
            let saved = app.overwrite(&self.path(name), &bytes);
            assert_eq!(saved, Ok(()), "{name} can't be saved when the fault is over");
            ((*name).to_owned(), bytes)
        };
        DOCUMENTS.iter().map(save).collect()
    }

    /// Takes away what rounds made new.
    fn remove_new_directories(&self) {
        let app = self.app();
        for name in self.mount().list("").iter().filter(|name| name.as_encoded_bytes().starts_with(b"dir ")) {
            let dir = self.mount().path(name);
            for file in std::fs::read_dir(&dir).unwrap() {
                assert_eq!(app.unlink(&file.unwrap().path()), Ok(()));
            }
            assert_eq!(kernel::rmdir(&dir), Ok(()));
        }
    }

    /// Tries everything again, now that the fault is over.
    fn save_all_and_check_in(&mut self, round: usize) {
        self.documents = self.save_all(round);
        self.remove_new_directories();
        self.check_in().ok();
        let drafts = self.drafts();
        assert!(drafts.is_empty(), "not checked in: {drafts:?}");
        for (name, bytes) in &self.documents {
            assert_eq!(self.read(name).as_ref(), Some(bytes), "{name} after its check-in");
        }
        self.changes = self.count_changes();
    }

    /// Looks at every stored byte.
    pub fn assert_store_is_sound(&self) {
        self.workspace.assert_store_is_sound();
    }

    pub fn where_hit(&self) -> String {
        self.injector.hit().unwrap_or_default()
    }
}
