//! What two people's checkouts show after each step, said in the simplest way: names, files and bytes.
//!
//! The model knows nothing of nodes, leases' rows or the store. Of each step it says whether it must succeed, must be
//! refused, or may be either (where a lease has ended, or a draft is stale); what succeeds changes the trees as said
//! here, and what is refused changes nothing.

use std::collections::BTreeMap;

/// How long a lease lasts.
pub const TTL_MS: i64 = 60_000;

/// How long a lease lasts at least since the last step that needed it: it isn't renewed at each.
const SURE_MS: i64 = TTL_MS * 8 / 10;

/// The names that the steps use; the last is scratch.
pub const NAMES: [&str; 5] = ["a.txt", "b.txt", "c.txt", "d.txt", "e.txt~"];

pub fn is_scratch(name: &str) -> bool {
    name.ends_with('~')
}

/// What a step has to come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Must,
    May,
    MustNot,
}

/// A file of one checkout: its bytes, and those of its last save, if it has one.
#[derive(Debug, Clone, Default)]
struct File {
    current: Vec<u8>,
    saved: Option<Vec<u8>>,
}

/// What a checkout says of a name.
#[derive(Debug, Clone, Copy)]
struct Over {
    /// None: the name is gone.
    file: Option<usize>,
    /// The revision of the head's name on which that was made.
    base: Option<u64>,
    /// Until when nobody else can change the name.
    sure_until_ms: i64,
}

#[derive(Debug, Default)]
struct Checkout {
    over: BTreeMap<&'static str, Over>,
    files: Vec<File>,
    /// The file that an application has open for writing.
    open: Option<usize>,
    /// Leases that outlive what they were taken for, at most until these times.
    lingering: BTreeMap<&'static str, i64>,
}

/// The head tree and the two checkouts.
#[derive(Debug, Default)]
pub struct Reference {
    head: BTreeMap<&'static str, (u64, Vec<u8>)>,
    checkouts: [Checkout; 2],
    revision: u64,
    now_ms: i64,
}

impl Reference {
    pub fn new(head: &[(&'static str, &[u8])]) -> Self {
        let head = head.iter().map(|(name, bytes)| (*name, (0, bytes.to_vec()))).collect();
        Self { head, ..Self::default() }
    }

    pub fn set_now(&mut self, now_ms: i64) {
        self.now_ms = now_ms;
    }

    /// What a checkout shows.
    pub fn tree(&self, who: usize) -> BTreeMap<String, Vec<u8>> {
        NAMES.iter().filter_map(|name| Some(((*name).to_owned(), self.bytes(who, name)?))).collect()
    }

    fn bytes(&self, who: usize, name: &str) -> Option<Vec<u8>> {
        match self.checkouts[who].over.get(name) {
            Some(over) => over.file.map(|file| self.checkouts[who].files[file].current.clone()),
            None => self.head.get(name).map(|(_, bytes)| bytes.clone()),
        }
    }

    /// The names that a checkout shows.
    pub fn present(&self, who: usize) -> Vec<&'static str> {
        NAMES.into_iter().filter(|name| self.bytes(who, name).is_some()).collect()
    }

    fn revision_of(&self, name: &str) -> Option<u64> {
        self.head.get(name).map(|(revision, _)| *revision)
    }

    /// Whether a change of a name is allowed.
    pub fn verdict(&self, who: usize, name: &str) -> Verdict {
        if is_scratch(name) {
            return Verdict::Must;
        }
        let theirs = self.checkouts[1 - who].over.get(name);
        let is_stale =
            self.checkouts[who].over.get(name).is_some_and(|over| over.base != self.revision_of(name));
        match theirs {
            // Two new documents of one name, the first of which lost its reservation: each is its own, until a check-in.
            Some(over) if over.base.is_none() && self.checkouts[who].over.contains_key(name) => Verdict::May,
            Some(over) if over.sure_until_ms > self.now_ms => Verdict::MustNot,
            Some(_) => Verdict::May,
            None if self.lingers(1 - who, name) => Verdict::May,
            None if is_stale => Verdict::May,
            None => Verdict::Must,
        }
    }

    fn lingers(&self, who: usize, name: &str) -> bool {
        self.checkouts[who].lingering.get(name).is_some_and(|until_ms| *until_ms > self.now_ms)
    }

    pub fn both(a: Verdict, b: Verdict) -> Verdict {
        match (a, b) {
            (Verdict::MustNot, _) | (_, Verdict::MustNot) => Verdict::MustNot,
            (Verdict::May, _) | (_, Verdict::May) => Verdict::May,
            (Verdict::Must, Verdict::Must) => Verdict::Must,
        }
    }

    /// Whether the other one says anything of a name.
    pub fn is_contested(&self, who: usize, name: &str) -> bool {
        !is_scratch(name) && self.checkouts[1 - who].over.contains_key(name)
    }

    /// Whether a check-in of everything is allowed.
    pub fn verdict_of_check_in(&self, who: usize) -> Verdict {
        let documents = self.checkouts[who].over.keys().filter(|name| !is_scratch(name));
        let contested = |name: &&str| self.verdict(who, name) != Verdict::Must;
        if documents.copied().any(|name| contested(&name)) { Verdict::May } else { Verdict::Must }
    }

    fn set(&mut self, who: usize, name: &'static str, file: Option<usize>) {
        let base =
            self.checkouts[who].over.get(name).map_or_else(|| self.revision_of(name), |over| over.base);
        if file.is_none() && base.is_none() && !self.head.contains_key(name) {
            self.checkouts[who].over.remove(name);
            return;
        }
        let over = Over { file, base, sure_until_ms: self.now_ms + SURE_MS };
        self.checkouts[who].over.insert(name, over);
    }

    fn add(&mut self, who: usize, file: File) -> usize {
        self.checkouts[who].files.push(file);
        self.checkouts[who].files.len() - 1
    }

    /// The file of a name, made of the head's bytes if the checkout has none of its own yet.
    fn own(&mut self, who: usize, name: &'static str) -> Option<usize> {
        match self.checkouts[who].over.get(name) {
            Some(over) => over.file,
            None => {
                let (_, bytes) = self.head.get(name)?.clone();
                Some(self.add(who, File { current: bytes.clone(), saved: Some(bytes) }))
            }
        }
    }

    fn file_in_place(&mut self, who: usize, name: &'static str) -> usize {
        match self.checkouts[who].over.get(name).and_then(|over| over.file) {
            Some(file) => file,
            None => {
                // Before its first save a new name is empty, and a version's is the version's.
                let saved = self.revision_of(name).is_none().then(Vec::new);
                let gone = self.checkouts[who].over.contains_key(name);
                self.add(
                    who,
                    File { current: Vec::new(), saved: if gone { Some(Vec::new()) } else { saved } },
                )
            }
        }
    }

    /// A save in place.
    pub fn save(&mut self, who: usize, name: &'static str, bytes: &[u8]) {
        let file = self.file_in_place(who, name);
        self.checkouts[who].files[file] = File { current: bytes.to_vec(), saved: Some(bytes.to_vec()) };
        self.set(who, name, Some(file));
    }

    /// A save by another file that takes the name.
    pub fn replace(&mut self, who: usize, name: &'static str, bytes: &[u8]) {
        let file = self.add(who, File { current: bytes.to_vec(), saved: Some(bytes.to_vec()) });
        self.set(who, name, Some(file));
    }

    /// A file is cut to nothing, written, and stays open.
    pub fn begin(&mut self, who: usize, name: &'static str, bytes: &[u8]) {
        let file = self.file_in_place(who, name);
        self.checkouts[who].files[file].current = bytes.to_vec();
        if is_scratch(name) {
            self.checkouts[who].files[file].saved = Some(bytes.to_vec());
        }
        self.set(who, name, Some(file));
        self.checkouts[who].open = Some(file);
    }

    /// The name of the file that is open; none if nothing is, or if its name is gone.
    pub fn open_name(&self, who: usize) -> Option<&'static str> {
        let checkout = &self.checkouts[who];
        let open = checkout.open?;
        checkout.over.iter().find(|(_, over)| over.file == Some(open)).map(|(name, _)| *name)
    }

    pub fn open_size(&self, who: usize) -> usize {
        self.checkouts[who].open.map_or(0, |file| self.checkouts[who].files[file].current.len())
    }

    /// More bytes at the end of the open file.
    pub fn write(&mut self, who: usize, bytes: &[u8]) {
        let (Some(open), name) = (self.checkouts[who].open, self.open_name(who)) else { return };
        let file = &mut self.checkouts[who].files[open];
        file.current.extend_from_slice(bytes);
        if let Some(name) = name {
            if is_scratch(name) {
                file.saved = Some(file.current.clone());
            }
            self.set(who, name, Some(open));
        }
    }

    /// The open file is closed, which saves it.
    pub fn close(&mut self, who: usize) {
        let name = self.open_name(who);
        let Some(open) = self.checkouts[who].open.take() else { return };
        let file = &mut self.checkouts[who].files[open];
        file.saved = Some(file.current.clone());
        if let Some(name) = name {
            self.set(who, name, Some(open));
        }
    }

    /// The open file lost its lease: its name shows the last save again. Returns the bytes that were not saved.
    pub fn lose(&mut self, who: usize) -> Option<Vec<u8>> {
        let open = self.checkouts[who].open.take()?;
        self.back_to_save(who, open)
    }

    fn back_to_save(&mut self, who: usize, file: usize) -> Option<Vec<u8>> {
        let checkout = &mut self.checkouts[who];
        let File { current, saved } = checkout.files[file].clone();
        match &saved {
            Some(saved) => checkout.files[file].current.clone_from(saved),
            None => {
                let until_ms = self.now_ms + TTL_MS;
                let names =
                    checkout.over.iter().filter(|(_, over)| over.file == Some(file)).map(|(name, _)| *name);
                checkout.lingering.extend(names.map(|name| (name, until_ms)));
                checkout.over.retain(|_, over| over.file != Some(file));
            }
        }
        (saved.as_ref() != Some(&current)).then_some(current)
    }

    pub fn unlink(&mut self, who: usize, name: &'static str) {
        self.set(who, name, None);
    }

    pub fn rename(&mut self, who: usize, from: &'static str, to: &'static str) {
        let file = self.own(who, from);
        self.saved_by_rename(who, file);
        self.set(who, to, file);
        self.set(who, from, None);
    }

    pub fn exchange(&mut self, who: usize, a: &'static str, b: &'static str) {
        let (file_a, file_b) = (self.own(who, a), self.own(who, b));
        self.saved_by_rename(who, file_a);
        self.saved_by_rename(who, file_b);
        self.set(who, a, file_b);
        self.set(who, b, file_a);
    }

    /// What a name holds becomes its last save.
    pub fn saved_as_it_is(&mut self, who: usize, name: &str) {
        let file = self.checkouts[who].over.get(name).and_then(|over| over.file);
        self.saved_by_rename(who, file);
    }

    fn saved_by_rename(&mut self, who: usize, file: Option<usize>) {
        if let Some(file) = file {
            let file = &mut self.checkouts[who].files[file];
            file.saved = Some(file.current.clone());
        }
    }

    /// All documents of the checkout become the head's.
    pub fn check_in(&mut self, who: usize) {
        let documents: Vec<&'static str> =
            self.checkouts[who].over.keys().copied().filter(|name| !is_scratch(name)).collect();
        for name in documents {
            let bytes = self.bytes(who, name);
            self.checkouts[who].over.remove(name);
            self.revision += 1;
            match bytes {
                Some(bytes) => drop(self.head.insert(name, (self.revision, bytes))),
                None => drop(self.head.remove(name)),
            }
        }
    }

    /// The documents of the checkout show the head again.
    pub fn revert(&mut self, who: usize) {
        self.checkouts[who].over.retain(|name, _| is_scratch(name));
    }

    /// The daemon dies: each file is its last save. Returns the bytes that were not saved.
    pub fn crash(&mut self, who: usize) -> Option<Vec<u8>> {
        let named = self.open_name(who);
        let unsaved = self.lose(who);
        named.and(unsaved)
    }

    /// Takes over what a checkout shows where identities decide that the model doesn't know; no draft may be lost.
    pub fn adopt(&mut self, who: usize, tree: &BTreeMap<String, Vec<u8>>) {
        for name in NAMES.into_iter().filter(|name| !is_scratch(name)) {
            if let Some(drafted) =
                self.bytes(who, name).filter(|_| self.checkouts[who].over.contains_key(name))
            {
                assert!(
                    tree.values().any(|bytes| *bytes == drafted),
                    "the draft of {name} is gone: {tree:?}"
                );
            }
        }
        // A draft that is the same as the head still holds its lease.
        let until_ms = self.now_ms + TTL_MS;
        let drafted: Vec<&'static str> = self.checkouts[who].over.keys().copied().collect();
        self.checkouts[who].lingering.extend(drafted.into_iter().map(|name| (name, until_ms)));
        self.checkouts[who].over.retain(|name, _| is_scratch(name));
        for name in NAMES.into_iter().filter(|name| !is_scratch(name)) {
            let (shown, head) = (tree.get(name), self.head.get(name).map(|(_, bytes)| bytes));
            if shown != head {
                let file = shown
                    .map(|bytes| self.add(who, File { current: bytes.clone(), saved: Some(bytes.clone()) }));
                self.checkouts[who].over.insert(name, Over { file, base: None, sure_until_ms: self.now_ms });
            }
        }
    }
}
