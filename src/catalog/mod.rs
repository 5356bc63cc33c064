//! The durable state: tree, drafts, leases, history. One function per domain operation, each one transaction.
//!
//! Locking: one connection writes, behind a mutex of its own; readers have connections of their own and never wait
//! for it (WAL). Other processes share the file; they take turns in the order in which they came (`turns`), and `BEGIN
//! IMMEDIATE` waits up to [`BUSY_TIMEOUT`] for who takes none.
//!
//! Performance: a [`Durability::Grouped`] commit survives the death of the process and costs no sync; what a power
//! cut may take of it is bounded by calling [`Catalog::sync`] each second. A [`Durability::Full`] commit syncs.

mod access;
mod archive;
mod checkin;
mod checkouts;
mod deltas;
mod error;
mod events;
mod head;
mod history;
mod import;
mod leases;
mod manifests;
mod names;
mod promote;
mod publish;
mod recovery;
mod revert;
mod roots;
mod rows;
mod saves;
mod schema;
mod shared;
mod stamps;
mod terms;
mod turns;
mod unsynced;
mod view;

#[cfg(test)]
mod tests;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

pub use access::{AccessRecords, GrantRecord, RestrictionRecord};
pub use archive::{ArchivedCatalog, ArchivedFile};
pub use checkin::{CheckIn, CheckedIn, CheckedItem};
pub use checkouts::{MountRow, Mounting};
pub use deltas::DraftInfo;
pub use error::CatalogError;
pub use events::{Event, EventKind, EventLease, NewEvent};
pub use history::{ChangeItem, ChangeRecord, ChangeRecordItem, KnownArtifact, NodePlace};
pub use import::{ImportItem, Importing};
pub use leases::{
    Admission, AdmissionRequest, Ask, Blocker, ByHand, Conflict, Granted, Intent, LeaseFilter, ListedLease,
    Unsaved, Want,
};
pub use manifests::{ChangeFacts, ItemFacts};
pub use names::{NewEntry, RenameMode, RenameRequest, Renamed};
pub use publish::StagedSave;
pub use revert::RevertedItem;
pub use roots::{Reference, WorkId};
pub use saves::{AttrChange, Save, Saved};
pub use shared::Unshared;
pub use stamps::StampRow;
pub use terms::LeaseTerms;
pub use unsynced::UnsyncedSave;

use crate::model::{
    ArtifactId, Attrs, CheckoutId, Entry, Holder, Identity, Ino, Instant, Kind, Layer, Name, Seq,
};
use crate::sys;
use error::doing;
use turns::Turns;

/// How long a transaction waits for another process's.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a copy waits before it tries a locked database again.
const COPY_PAUSE: Duration = Duration::from_millis(50);

/// The database's page size: a commit writes and checksums whole pages, one for each table and index that it touches,
/// and most commits change a few short rows in many of them.
const PAGE_BYTES: u32 = 1_024;

/// How many numbers a process takes at a time; those that it doesn't use are never used.
const NUMBER_BLOCK: i64 = 65_536;

/// A result of the catalog.
pub type Result<T> = std::result::Result<T, CatalogError>;

/// What a commit survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The death of every process; a power cut only after the next [`Catalog::sync`].
    Grouped,
    /// A power cut, at once.
    Full,
}

/// Who does something in which checkout, when, and on which terms he takes leases.
#[derive(Debug, Clone)]
pub struct Actor {
    /// The checkout.
    pub checkout: CheckoutId,
    /// The holder of the checkout's leases.
    pub holder: Holder,
    /// On which terms he takes leases.
    pub terms: LeaseTerms,
    /// The present.
    pub now: Instant,
    /// The user and group that files of the head tree belong to in this checkout.
    pub owner: (u32, u32),
    /// Who is judged by the access rules.
    pub identity: Arc<Identity>,
    /// Whether a lease on an artifact of the head tree was granted since: it has to survive a power cut.
    pub(crate) granted: std::cell::Cell<bool>,
}

impl Actor {
    /// The attributes of an entry as this checkout shows them: versions have no owner of their own.
    fn attrs_of(&self, entry: &Entry) -> Attrs {
        match entry.layer {
            Layer::Draft { .. } => entry.attrs,
            Layer::Head => Attrs { uid: self.owner.0, gid: self.owner.1, ..entry.attrs },
        }
    }
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The directory.
    pub parent: Seq,
    /// The name.
    pub name: Name,
}

/// The catalog of one workspace.
pub struct Catalog {
    path: PathBuf,
    writer: Mutex<Writer>,
    readers: Mutex<Vec<Connection>>,
    /// The queue of the processes that write.
    turns: Turns,
    /// On a read-only filesystem: nobody writes, and SQLite neither locks nor looks for a log.
    archived: bool,
    numbers: Mutex<std::ops::Range<i64>>,
    /// Tells this life of the catalog's filesystem from others of the same boot.
    life: i64,
}

struct Writer {
    conn: Connection,
    durability: Durability,
    /// Whether a grouped commit came after the last full one.
    unsynced: bool,
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Catalog {
    /// Makes a catalog that holds an empty root directory of this identity; fails where the file is there already.
    pub fn create(path: &Path, root: Attrs, id: ArtifactId) -> Result<Self> {
        // SQLite gives the log and the shared memory the database's mode (os_unix.c, `findCreateFileMode`).
        let made = sys::create_private(path);
        made.map_err(|source| CatalogError::File { doing: "create", path: path.to_owned(), source })?;
        let mut conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        conn.pragma_update(None, "page_size", PAGE_BYTES).map_err(doing("set the page size"))?;
        conn.pragma_update(None, "journal_mode", "WAL").map_err(doing("switch to WAL"))?;
        schema::migrate(&mut conn)?;
        drop(conn);
        let catalog = Self::open_alone(path)?;
        catalog.write(Durability::Full, |tx| insert_root(tx, id, &root))?;
        Ok(catalog)
    }

    /// Opens a catalog and brings it to the present schema.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self { turns: Turns::of(path), ..Self::open_alone(path)? })
    }

    /// The same for one that nobody else knows of, as a copy that is being made: without the file of the queue beside it.
    pub fn open_alone(path: &Path) -> Result<Self> {
        let mut conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        if !schema::is_catalog(&conn)? {
            return Err(CatalogError::NotACatalog);
        }
        schema::migrate(&mut conn)?;
        conn.pragma_update(None, "synchronous", "FULL").map_err(doing("set synchronous"))?;
        // A mapped page is looked for in the log at each use; the writer's own cache is never stale.
        conn.pragma_update(None, "mmap_size", 0).map_err(doing("unmap the writer"))?;
        Ok(Self::of(path, conn, false, unsynced::life_of(path)?))
    }

    /// Opens a catalog on a read-only filesystem, where SQLite can't make its log and shared memory; all that writes
    /// fails with [`CatalogError::Archived`].
    ///
    /// Fails with [`CatalogError::NotClosed`] where a log shows that the file alone may not be the whole.
    pub fn open_archived(path: &Path) -> Result<Self> {
        let mut log = path.as_os_str().to_owned();
        log.push("-wal");
        if Path::new(&log).symlink_metadata().is_ok() {
            return Err(CatalogError::NotClosed);
        }
        let conn = connect_archived(path)?;
        schema::check(&conn)?;
        Ok(Self::of(path, conn, true, unsynced::life_of(path)?))
    }

    fn of(path: &Path, conn: Connection, archived: bool, life: i64) -> Self {
        let writer = Writer { conn, durability: Durability::Full, unsynced: false };
        Self {
            path: path.to_owned(),
            writer: Mutex::new(writer),
            readers: Mutex::default(),
            turns: Turns::none(),
            archived,
            numbers: Mutex::new(0..0),
            life,
        }
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes every grouped commit so far survive a power cut.
    pub fn sync(&self) -> Result<()> {
        if !self.writer.lock().unsynced {
            return Ok(());
        }
        self.write(Durability::Full, |tx| {
            let sql = "UPDATE meta SET value = value + 1 WHERE key = 'sync'";
            tx.prepare_cached(sql).and_then(|mut s| s.execute([])).map(drop).map_err(doing("sync"))
        })
    }

    /// Stops checkpoints within commits: the caller promises to call [`Catalog::checkpoint`] now and then.
    pub fn checkpoint_by_hand(&self) -> Result<()> {
        let writer = self.writer.lock();
        writer.conn.pragma_update(None, "wal_autocheckpoint", 0).map_err(doing("stop automatic checkpoints"))
    }

    /// Moves what is committed from the log into the database file, as far as no reader is in the way.
    pub fn checkpoint(&self) -> Result<()> {
        self.read(|conn| {
            conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).map_err(doing("checkpoint"))
        })
    }

    /// Copies the catalog as it is now to a new file, which the caller syncs (SQLite's online backup); writers go on.
    pub fn copy_to(&self, path: &Path) -> Result<()> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut copy = connect(path, flags)?;
        self.read(|conn| {
            let backup = rusqlite::backup::Backup::new(conn, &mut copy).map_err(doing("begin a copy"))?;
            // As many pages as there can be in one step: the copy is one state, whatever others commit.
            backup.run_to_completion(i32::MAX, COPY_PAUSE, None).map_err(doing("copy"))
        })?;
        copy.close().map_err(|(_, source)| doing("end a copy")(source))
    }

    /// The identity of the root directory, which stands for the workspace's.
    pub fn workspace_id(&self) -> Result<ArtifactId> {
        self.read(|conn| view::id_of(conn, Seq::ROOT))
    }

    /// Forgets what a copy of a catalog says of the processes and the disk that the original was used by: mounts,
    /// writers, work, and which files were not synced, since the copies of all of them are.
    pub fn forget_processes(&self) -> Result<()> {
        let synced =
            "UPDATE draft SET unsynced = NULL, unsynced_since = NULL, old_digest = NULL, old_staged = NULL,
            old_target = NULL, old_size = NULL, old_mtime = NULL";
        self.write(Durability::Full, |tx| {
            for sql in ["DELETE FROM mount", "DELETE FROM writer", "DELETE FROM work", synced] {
                view::execute(tx, "forget processes", sql, ())?;
            }
            Ok(())
        })
    }

    /// SQLite's counter that changes when another connection commits; one connection compares it with itself.
    pub fn data_version(&self) -> Result<i64> {
        let writer = self.writer.lock();
        writer.conn.query_row("PRAGMA data_version", [], |row| row.get(0)).map_err(doing("read data_version"))
    }

    /// A number that no inode and no artifact of the workspace ever had.
    pub fn next_ino(&self) -> Result<Ino> {
        self.next_number().map(|n| Ino(n.unsigned_abs()))
    }

    fn next_number(&self) -> Result<i64> {
        if let Some(number) = self.numbers.lock().next() {
            return Ok(number);
        }
        let block = self.write(Durability::Full, |tx| {
            let sql = "UPDATE meta SET value = value + ?1 WHERE key = 'next_number' RETURNING value - ?1";
            let start: i64 =
                tx.query_row(sql, [NUMBER_BLOCK], |row| row.get(0)).map_err(doing("take numbers"))?;
            Ok(start..start + NUMBER_BLOCK)
        })?;
        let mut numbers = self.numbers.lock();
        if numbers.is_empty() {
            *numbers = block;
        }
        numbers.next().ok_or(CatalogError::NotFound)
    }

    /// Runs one transaction that writes.
    fn write<T>(
        &self,
        durability: Durability,
        body: impl FnOnce(&Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        let done = self.write_unless(durability, body, || false)?;
        Ok(done.expect("BUG: nothing speaks against the commit"))
    }

    /// Runs one transaction that changes drafts. A lease that it grants survives a power cut, whatever the drafts do: it
    /// is run again for a full commit then, since a sync of its own could fail after the draft is changed.
    fn write_draft<T>(
        &self,
        actor: &Actor,
        durability: Durability,
        body: impl Fn(&Transaction<'_>) -> Result<T>,
    ) -> Result<T> {
        actor.granted.set(false);
        let grants = || durability == Durability::Grouped && actor.granted.get();
        match self.write_unless(durability, &body, grants)? {
            Some(value) => Ok(value),
            None => self.write(Durability::Full, body),
        }
    }

    /// Runs one transaction that writes, and takes it back, with no value, if something speaks against it then.
    fn write_unless<T>(
        &self,
        durability: Durability,
        body: impl FnOnce(&Transaction<'_>) -> Result<T>,
        speaks_against: impl FnOnce() -> bool,
    ) -> Result<Option<T>> {
        if self.archived {
            return Err(CatalogError::Archived);
        }
        let mut writer = self.writer.lock();
        writer.leave_transaction()?;
        writer.set_durability(durability)?;
        let _turn = self.turns.take();
        let tx =
            writer.conn.transaction_with_behavior(TransactionBehavior::Immediate).map_err(doing("begin"))?;
        let before = tx.total_changes();
        let value = body(&tx)?;
        if speaks_against() {
            return Ok(None);
        }
        let changed = tx.total_changes() != before;
        tx.commit().map_err(doing("commit"))?;
        // A commit without a change writes nothing, and syncs nothing.
        if changed {
            writer.unsynced = durability == Durability::Grouped;
        }
        Ok(Some(value))
    }

    /// Runs one transaction and takes it back: tells what would refuse it.
    fn rehearse(&self, body: impl FnOnce(&Transaction<'_>) -> Result<()>) -> Result<()> {
        self.write_unless(Durability::Grouped, body, || true).map(drop)
    }

    /// Runs reads that see one state.
    fn read<T>(&self, body: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let pooled = self.readers.lock().pop();
        let conn = match pooled {
            Some(conn) => conn,
            None if self.archived => connect_archived(&self.path)?,
            None => connect(&self.path, OpenFlags::SQLITE_OPEN_READ_WRITE)?,
        };
        conn.prepare_cached("BEGIN").and_then(|mut s| s.execute([])).map_err(doing("begin a read"))?;
        let value = body(&conn);
        let ended =
            conn.prepare_cached("COMMIT").and_then(|mut s| s.execute([])).map_err(doing("end a read"));
        // A connection that could not end its read would see that old state for ever: it is dropped.
        if ended.is_ok() {
            self.readers.lock().push(conn);
        }
        ended.and(value)
    }
}

impl Writer {
    /// Ends a transaction that failed and could not be ended then; else no other one could begin, ever.
    fn leave_transaction(&self) -> Result<()> {
        if self.conn.is_autocommit() {
            return Ok(());
        }
        self.conn.execute_batch("ROLLBACK").map_err(doing("leave a transaction"))
    }

    fn set_durability(&mut self, durability: Durability) -> Result<()> {
        if self.durability != durability {
            let sql = match durability {
                Durability::Full => "PRAGMA synchronous = FULL",
                Durability::Grouped => "PRAGMA synchronous = NORMAL",
            };
            self.conn
                .prepare_cached(sql)
                .and_then(|mut s| s.execute([]))
                .map_err(doing("set synchronous"))?;
            self.durability = durability;
        }
        Ok(())
    }
}

/// Connects to a file that nobody changes (<https://sqlite.org/uri.html>, `immutable`).
fn connect_archived(path: &Path) -> Result<Connection> {
    let mut uri = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                uri.push(char::from(*byte))
            }
            _ => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri.push_str("?immutable=1");
    connect(Path::new(&uri), OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI)
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection> {
    let open = |source| CatalogError::Open { source };
    let conn = Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(open)?;
    conn.busy_timeout(BUSY_TIMEOUT).map_err(open)?;
    conn.pragma_update(None, "foreign_keys", true).map_err(open)?;
    conn.pragma_update(None, "mmap_size", 256 << 20).map_err(open)?;
    conn.pragma_update(None, "cache_size", -8_192).map_err(open)?;
    conn.set_prepared_statement_cache_capacity(128);
    Ok(conn)
}

fn insert_root(tx: &Transaction<'_>, id: ArtifactId, attrs: &Attrs) -> Result<()> {
    let kind = rows::kind_code(Kind::Directory);
    let (mode, mtime, ctime) = (attrs.mode, attrs.mtime.0, attrs.ctime.0);
    tx.execute("INSERT INTO artifact VALUES (1, ?1, ?2)", (id.0, kind)).map_err(doing("insert the root"))?;
    let sql = "INSERT INTO head (parent, artifact, id, name, version, ino, kind, mode, size, mtime, ctime)
        VALUES (0, 1, ?1, x'', 0, 1, ?2, ?3, 0, ?4, ?5)";
    tx.execute(sql, (id.0, kind, mode, mtime, ctime)).map(drop).map_err(doing("insert the root"))
}
