//! Each step of each operation that writes fails once: what the next process finds is the old state or the new one,
//! whole, and the operation works when it is tried again on the same connection.
//!
//! SQLite offers three ways to make it fail, which together reach every statement: its progress handler is called at
//! each jump of its virtual machine and at the end of each statement, and interrupts that one; the commit hook makes a
//! rollback of a commit; a bound on the number of pages refuses to allocate one more, as a full disk does. That calls on
//! its files fail, and that the process dies at one, is tried on the real program in `tests/it/faults.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::Connection;
use rusqlite::types::Value;

use super::support::*;
use crate::catalog::view::many;
use crate::catalog::{
    AttrChange, Catalog, CheckIn, Durability, ImportItem, Importing, NewEntry, RenameMode, RenameRequest,
    Result, Save,
};
use crate::clock::Clock;
use crate::ids::{CountingIds, Ids};
use crate::model::{Content, Digest, Kind, RecoveryCopy, Scratch, Timestamp};

/// Where new identities begin that an operation takes: none that its world has made already.
const FRESH_IDS: usize = 1_000;

/// More places than any operation has where a fault can come.
const MANY: usize = 20_000;

/// An operation, with all that it is called with: calling it again asks for the very same.
type Operation = Box<dyn Fn(&Catalog) -> Result<()>>;

/// What is made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The virtual machine, at the jump of this number.
    Jump(usize),
    /// The commit of this number.
    Commit(usize),
    /// The allocation of a page, after this many.
    Page(usize),
}

impl Fault {
    /// Makes the writing connection fail; the counter tells how often the place was passed where it may.
    fn arm(self, catalog: &Catalog) -> Arc<AtomicUsize> {
        let passed = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&passed);
        let mut writer = catalog.writer.lock();
        match self {
            Self::Jump(at) => {
                let hook = move || counter.fetch_add(1, Ordering::Relaxed) == at;
                writer.conn.progress_handler(1, Some(hook)).unwrap();
            }
            Self::Commit(at) => {
                let hook = move || counter.fetch_add(1, Ordering::Relaxed) == at;
                writer.conn.commit_hook(Some(hook)).unwrap();
            }
            Self::Page(at) => bound_pages(&writer.conn, at),
        }
        passed
    }
}

/// Lets the database grow by some pages and no further.
fn bound_pages(conn: &Connection, pages: usize) {
    let present: i64 = conn.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    let bound = present + i64::try_from(pages).unwrap();
    conn.pragma_update_and_check(None, "max_page_count", bound, |_| Ok(())).unwrap();
}

fn disarm(catalog: &Catalog) {
    let mut writer = catalog.writer.lock();
    writer.conn.progress_handler(0, None::<fn() -> bool>).unwrap();
    writer.conn.commit_hook(None::<fn() -> bool>).unwrap();
    writer.conn.pragma_update_and_check(None, "max_page_count", i64::from(u32::MAX), |_| Ok(())).unwrap();
}

/// Every row of every table, as another connection reads them, but for the counter that only makes a sync happen.
fn rows_of(catalog: &Catalog) -> Vec<String> {
    let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
    catalog
        .read(|conn| {
            let tables = many(conn, "list tables", sql, [], |row| row.get::<_, String>(0))?;
            Ok(tables.iter().flat_map(|table| rows_of_table(conn, table)).collect())
        })
        .unwrap()
}

fn rows_of_table(conn: &Connection, table: &str) -> Vec<String> {
    let but = if table == "meta" { " WHERE key <> 'sync'" } else { "" };
    let mut statement = conn.prepare_cached(&format!("SELECT * FROM {table}{but}")).unwrap();
    let columns = statement.column_count();
    let mut rows = statement.query([]).unwrap();
    let mut found = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        let values: Vec<Value> = (0..columns).map(|column| row.get(column).unwrap()).collect();
        found.push(format!("{table} {values:?}"));
    }
    found
}

/// An operation about to be tried, and what it leads from and to.
struct Trial {
    world: Arc<World>,
    operation: Operation,
    /// Every row before.
    old: Vec<String>,
    /// The numbers that the operation takes, each time it is called.
    numbers: std::ops::Range<i64>,
}

impl Trial {
    fn begin(prepare: fn(&Person) -> Operation) -> Self {
        let world = world();
        let operation = prepare(&world.checkout("ada@home"));
        // A block of numbers is taken in a transaction of its own.
        world.next();
        let (old, numbers) = (rows_of(&world.catalog), world.catalog.numbers.lock().clone());
        Self { world, operation, old, numbers }
    }

    /// Tries with a fault.
    fn run(&self, fault: Fault) -> Tried {
        let catalog = &self.world.catalog;
        *catalog.numbers.lock() = self.numbers.clone();
        let before = commits_seen(catalog);
        let passed = fault.arm(catalog);
        let result = (self.operation)(catalog);
        disarm(catalog);
        let committed = commits_seen(catalog) != before;
        Tried { result, passed: passed.load(Ordering::Relaxed), committed }
    }

    fn rows(&self) -> Vec<String> {
        rows_of(&self.world.catalog)
    }
}

/// What became of one try.
struct Tried {
    result: Result<()>,
    /// How often a place was passed where the fault may come.
    passed: usize,
    /// Whether others find anything else than before.
    committed: bool,
}

/// SQLite's number that changes when another connection, here the writing one, has committed.
fn commits_seen(catalog: &Catalog) -> i64 {
    let sql = "PRAGMA data_version";
    catalog.read(|conn| Ok(conn.query_row(sql, [], |row| row.get(0)).unwrap())).unwrap()
}

/// Lets one kind of fault come at each place in turn, until there is none left; returns how often it did.
fn fail_each(prepare: fn(&Person) -> Operation, fault: fn(usize) -> Fault) -> usize {
    let clean = Trial::begin(prepare);
    (clean.operation)(&clean.world.catalog).unwrap();
    let new = clean.rows();
    assert_ne!(clean.old, new, "BUG: the operation changes nothing");
    let mut trial = Trial::begin(prepare);
    for number in 0..MANY {
        let fault = fault(number);
        let tried = trial.run(fault);
        match tried.result {
            Ok(()) => {
                assert_eq!(trial.rows(), new, "{fault:?}");
                if tried.passed <= number {
                    return number;
                }
                // It came while something was taken back on purpose.
                trial = Trial::begin(prepare);
            }
            Err(error) if tried.passed <= number && !matches!(fault, Fault::Page(_)) => {
                panic!("{fault:?} did not come, and yet: {error:?}")
            }
            // It was done and told as failed, as after a sync that fails.
            Err(_) if tried.committed => {
                assert_eq!(trial.rows(), new, "{fault:?}: neither the old state nor the new");
                trial = Trial::begin(prepare);
            }
            // All was rolled back: the next turn tries again.
            Err(_) => {}
        }
    }
    panic!("it never works again")
}

/// Lets every kind of fault come at each place of an operation; returns how many pages it needed one by one.
fn fail_everywhere(prepare: fn(&Person) -> Operation) -> usize {
    assert!(fail_each(prepare, Fault::Jump) > 5, "BUG: the progress handler is hardly called");
    assert!(fail_each(prepare, Fault::Commit) >= 1, "BUG: there is a commit");
    fail_each(prepare, Fault::Page)
}

/// A text that needs pages of its own.
fn long_text() -> String {
    "why ".repeat(1_500)
}

fn staged(file: &str) -> Content {
    Content::Staged(file.into())
}

/// A save of `at` under the lease that the person holds by then.
fn save_of(ada: &Person, at: &str, content: Content) -> Save {
    let entry = ada.get(at).unwrap();
    let lease = ada.world.catalog.acquire(&ada.actor(), &[(entry.artifact, None)]).unwrap().remove(0);
    Save {
        artifact: entry.artifact,
        ino: ada.world.catalog.next_ino().unwrap(),
        content,
        size: 7,
        attrs: entry.attrs,
        base: entry.head,
        generation: Some(lease.generation),
    }
}

/// A head tree of a few documents and a directory.
fn publish_some(ada: &Person) {
    ada.mkdir("d");
    for at in ["a", "b", "d/c"] {
        ada.write_new(at, "v1");
    }
    ada.commit();
}

#[test]
fn a_save() {
    fail_everywhere(|ada| {
        publish_some(ada);
        let (actor, save) = (ada.actor(), save_of(ada, "a", staged("w")));
        Box::new(move |catalog| catalog.save(&actor, &save, Durability::Full).map(drop))
    });
}

/// The lease has ended, so that the save takes it again: the transaction is run twice.
#[test]
fn a_save_that_takes_its_lease_again() {
    fail_everywhere(|ada| {
        publish_some(ada);
        let save = save_of(ada, "a", staged("w"));
        ada.sleep();
        let actor = ada.actor();
        Box::new(move |catalog| catalog.save(&actor, &save, Durability::Grouped).map(drop))
    });
}

#[test]
fn attributes() {
    fail_everywhere(|ada| {
        publish_some(ada);
        let (actor, artifact) = (ada.actor(), ada.get("a").unwrap().artifact);
        let change = AttrChange { mode: Some(0o600), ..AttrChange::default() };
        Box::new(move |catalog| catalog.set_attrs(&actor, artifact, change).map(drop))
    });
}

/// What the saves of `a` and `b` are on their way into the store.
fn two_saves(ada: &Person) -> Vec<(String, Digest)> {
    publish_some(ada);
    for at in ["a", "b"] {
        let save = save_of(ada, at, staged(at));
        ada.world.catalog.save(&ada.actor(), &save, Durability::Grouped).unwrap();
    }
    ["a", "b"].map(|at| (at.to_owned(), Digest::from_bytes([at.as_bytes()[0]; 32]))).into()
}

#[test]
fn noting_digests() {
    fail_everywhere(|ada| {
        let noted = two_saves(ada);
        Box::new(move |catalog| catalog.note_digests(&noted))
    });
}

#[test]
fn publishing_what_was_noted() {
    fail_everywhere(|ada| {
        let noted = two_saves(ada);
        ada.world.catalog.note_digests(&noted).unwrap();
        let files: Vec<String> = noted.into_iter().map(|(file, _)| file).collect();
        Box::new(move |catalog| catalog.publish_noted(&files).map(drop))
    });
}

#[test]
fn taking_leases() {
    fail_everywhere(|ada| {
        publish_some(ada);
        let actor = ada.actor();
        let wanted = ["a", "b", "d/c"].map(|at| (ada.get(at).unwrap().artifact, None));
        Box::new(move |catalog| catalog.acquire(&actor, &wanted).map(drop))
    });
}

/// Drafts of every sort: new bytes, a new file in a new directory, a move, a deletion, a mode.
fn work(ada: &Person) {
    publish_some(ada);
    ada.write("a", "v2");
    ada.mkdir("new");
    ada.write_new("new/f", "v1");
    ada.mv("b", "new/b");
    ada.unlink("d/c");
    let change = AttrChange { mode: Some(0o700), ..AttrChange::default() };
    ada.world.catalog.set_attrs(&ada.actor(), ada.get("d").unwrap().artifact, change).unwrap();
}

#[test]
fn a_check_in() {
    let pages = fail_everywhere(|ada| {
        work(ada);
        let (actor, request) = (ada.actor(), CheckIn { message: long_text(), ..CheckIn::default() });
        Box::new(move |catalog| catalog.check_in(&actor, &request).map(drop))
    });
    assert!(pages > 1, "a long text takes pages, not {pages}");
}

#[test]
fn a_revert() {
    fail_everywhere(|ada| {
        work(ada);
        let actor = ada.actor();
        Box::new(move |catalog| catalog.revert(&actor, &[]).map(drop))
    });
}

fn rename(ada: &Person, from: &str, to: &str, mode: RenameMode) -> Operation {
    let request = RenameRequest {
        from: ada.place(from),
        to: ada.place(to),
        mode,
        classes: (class(from), class(to)),
        spare: ada.world.ids.artifact(ada.world.clock.now().wall),
    };
    let actor = ada.actor();
    Box::new(move |catalog| catalog.rename(&actor, &request).map(drop))
}

#[test]
fn a_rename_of_a_temporary_over_a_document() {
    fail_everywhere(|ada| {
        publish_some(ada);
        ada.write_new("a.tmp", "v2");
        rename(ada, "a.tmp", "a", RenameMode::Replace)
    });
}

#[test]
fn a_rename_of_a_document() {
    fail_everywhere(|ada| {
        publish_some(ada);
        rename(ada, "a", "d/moved", RenameMode::Replace)
    });
}

#[test]
fn an_exchange() {
    fail_everywhere(|ada| {
        publish_some(ada);
        ada.write("a", "v2");
        rename(ada, "a", "d/c", RenameMode::Exchange)
    });
}

#[test]
fn a_new_file() {
    fail_everywhere(|ada| {
        publish_some(ada);
        let new = NewEntry {
            id: ada.world.ids.artifact(ada.world.clock.now().wall),
            kind: Kind::File,
            ino: ada.world.catalog.next_ino().unwrap(),
            attrs: attrs(0o644),
            content: blob("v1"),
            size: 1,
            scratch: Scratch::No,
        };
        let (actor, place) = (ada.actor(), ada.place("d/new"));
        Box::new(move |catalog| catalog.create_entry(&actor, &place, &new).map(drop))
    });
}

#[test]
fn a_removal() {
    fail_everywhere(|ada| {
        publish_some(ada);
        let (actor, place) = (ada.actor(), ada.place("a"));
        Box::new(move |catalog| catalog.unlink(&actor, &place).map(drop))
    });
}

#[test]
fn an_import() {
    let pages = fail_everywhere(|ada| {
        publish_some(ada);
        let (author, now) = (ada.holder.clone(), ada.world.clock.now());
        let item = |at: &str, text: &str| ImportItem {
            path: path(at),
            kind: Kind::File,
            mode: 0o640,
            mtime: Timestamp(7),
            content: blob(text),
            size: 3,
        };
        let items = [item("a", "v2"), item("deep/er/x", "v1"), item("d/y", "v1")];
        Box::new(move |catalog| {
            let ids = CountingIds::default();
            (0..FRESH_IDS).for_each(|_| drop(ids.token()));
            let importing = Importing { author: &author, message: &long_text(), now };
            catalog.import(&importing, &items, &ids).map(drop)
        })
    });
    assert!(pages > 1, "a long text takes pages, not {pages}");
}

#[test]
fn listing_a_recovery_copy() {
    let pages = fail_everywhere(|ada| {
        let copy = RecoveryCopy {
            id: "1".into(),
            artifact: None,
            path: path("a"),
            base: None,
            holder: ada.holder.clone(),
            at: Timestamp(1),
            size: 1,
            reason: long_text(),
        };
        Box::new(move |catalog| catalog.add_recovery("1.w", &copy))
    });
    assert!(pages > 1, "a long text takes pages, not {pages}");
}
