//! Tables and their migrations.
//!
//! Compatibility: migrations are appended, never edited; `user_version` counts those that were applied, and a
//! catalog with more than this program knows is refused.

use rusqlite::Connection;

use super::error::{CatalogError, doing};

/// The migrations, oldest first.
const MIGRATIONS: &[&str] = &[FIRST, UNSYNCED_SAVES, COLLECTOR, SHARING, ADMISSION, ACCESS];

const FIRST: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES ('next_number', 2), ('next_generation', 1), ('sync', 0);

CREATE TABLE artifact (
  seq  INTEGER PRIMARY KEY,
  id   BLOB NOT NULL UNIQUE,
  kind INTEGER NOT NULL
) STRICT;

CREATE TABLE change (
  number  INTEGER PRIMARY KEY,
  at      INTEGER NOT NULL,
  author  TEXT NOT NULL,
  message TEXT NOT NULL
) STRICT;

CREATE TABLE version (
  artifact INTEGER NOT NULL REFERENCES artifact (seq),
  number   INTEGER NOT NULL,
  change   INTEGER NOT NULL REFERENCES change (number),
  ino      INTEGER NOT NULL,
  kind     INTEGER NOT NULL,
  mode     INTEGER NOT NULL,
  size     INTEGER NOT NULL,
  digest   BLOB,
  target   BLOB,
  mtime    INTEGER NOT NULL,
  ctime    INTEGER NOT NULL,
  base     INTEGER,
  author   TEXT NOT NULL,
  PRIMARY KEY (artifact, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX version_digest ON version (digest) WHERE digest IS NOT NULL;

-- What each change did, for logs and for the mounts that follow.
CREATE TABLE change_item (
  change        INTEGER NOT NULL REFERENCES change (number),
  artifact      INTEGER NOT NULL REFERENCES artifact (seq),
  version       INTEGER,
  parent_before INTEGER,
  name_before   BLOB,
  parent_after  INTEGER,
  name_after    BLOB,
  PRIMARY KEY (change, artifact)
) STRICT, WITHOUT ROWID;
CREATE INDEX change_item_artifact ON change_item (artifact, change);

-- The head tree, with a copy of each newest version's attributes: listing a directory reads one range.
CREATE TABLE head (
  parent   INTEGER NOT NULL,
  artifact INTEGER NOT NULL UNIQUE REFERENCES artifact (seq),
  id       BLOB NOT NULL,
  name     BLOB NOT NULL,
  version  INTEGER NOT NULL,
  ino      INTEGER NOT NULL,
  kind     INTEGER NOT NULL,
  mode     INTEGER NOT NULL,
  size     INTEGER NOT NULL,
  digest   BLOB,
  target   BLOB,
  mtime    INTEGER NOT NULL,
  ctime    INTEGER NOT NULL,
  PRIMARY KEY (parent, artifact),
  UNIQUE (parent, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX head_directories ON head (parent) WHERE kind = 3;

CREATE TABLE checkout (
  id     INTEGER PRIMARY KEY,
  holder TEXT NOT NULL UNIQUE
) STRICT;

-- Drafts and names come and go often; a foreign key to `artifact` would cost a search of them for each that goes.

-- Names of a checkout that differ from the head tree; without an artifact: the head's name is gone here,
-- and `base` is the version that it had then.
CREATE TABLE name (
  parent   INTEGER NOT NULL,
  name     BLOB NOT NULL,
  checkout INTEGER NOT NULL REFERENCES checkout (id),
  artifact INTEGER,
  base     INTEGER,
  gone_at  INTEGER,
  is_dir   INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (parent, name, checkout)
) STRICT, WITHOUT ROWID;
CREATE INDEX name_directories ON name (checkout, parent) WHERE is_dir = 1;
CREATE INDEX name_children ON name (checkout, parent, artifact);
CREATE INDEX name_artifact ON name (artifact, checkout);

-- Content and attributes that a checkout changed and has not checked in.
CREATE TABLE draft (
  checkout   INTEGER NOT NULL REFERENCES checkout (id),
  artifact   INTEGER NOT NULL,
  ino        INTEGER NOT NULL,
  kind       INTEGER NOT NULL,
  mode       INTEGER NOT NULL,
  uid        INTEGER NOT NULL,
  gid        INTEGER NOT NULL,
  size       INTEGER NOT NULL,
  digest     BLOB,
  staged     TEXT,
  direct     TEXT,
  target     BLOB,
  atime      INTEGER NOT NULL,
  mtime      INTEGER NOT NULL,
  ctime      INTEGER NOT NULL,
  base       INTEGER,
  generation INTEGER,
  scratch    INTEGER NOT NULL,
  PRIMARY KEY (checkout, artifact)
) STRICT, WITHOUT ROWID;
CREATE INDEX draft_staged ON draft (staged) WHERE staged IS NOT NULL;

-- The digest of a file of `staging/` that is on its way into the store, by its name: whatever row names the file.
CREATE TABLE sealed (
  file   TEXT PRIMARY KEY,
  digest BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Times of directories as one checkout sees them: its own creations and deletions move them at once.
CREATE TABLE dir_time (
  checkout INTEGER NOT NULL REFERENCES checkout (id),
  dir      INTEGER NOT NULL,
  mtime    INTEGER NOT NULL,
  PRIMARY KEY (checkout, dir)
) STRICT, WITHOUT ROWID;

CREATE TABLE lease (
  key             TEXT PRIMARY KEY,
  artifact        INTEGER,
  holder          TEXT NOT NULL,
  generation      INTEGER NOT NULL,
  boot            INTEGER NOT NULL,
  expires_boot_ms INTEGER NOT NULL,
  expires         INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX lease_artifact ON lease (artifact) WHERE artifact IS NOT NULL;

-- Write handles with bytes that are not yet published, by the mount that has them.
CREATE TABLE writer (
  artifact INTEGER NOT NULL,
  checkout INTEGER NOT NULL REFERENCES checkout (id),
  since    INTEGER NOT NULL,
  PRIMARY KEY (artifact, checkout)
) STRICT, WITHOUT ROWID;

CREATE TABLE mount (
  checkout    INTEGER PRIMARY KEY REFERENCES checkout (id),
  boot        INTEGER NOT NULL,
  pid         INTEGER NOT NULL,
  start_ticks INTEGER NOT NULL,
  mountpoint  BLOB NOT NULL,
  started     INTEGER NOT NULL
) STRICT;

CREATE TABLE event (
  seq      INTEGER PRIMARY KEY AUTOINCREMENT,
  at       INTEGER NOT NULL,
  kind     TEXT NOT NULL,
  artifact INTEGER,
  holder   TEXT,
  detail   TEXT NOT NULL
) STRICT;

CREATE TABLE recovery (
  id       TEXT PRIMARY KEY,
  file     TEXT NOT NULL,
  artifact BLOB,
  path     BLOB NOT NULL,
  base     INTEGER,
  holder   TEXT NOT NULL,
  at       INTEGER NOT NULL,
  size     INTEGER NOT NULL,
  reason   TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE stamp (
  digest BLOB PRIMARY KEY,
  inode  INTEGER NOT NULL,
  size   INTEGER NOT NULL,
  mtime  INTEGER NOT NULL,
  ctime  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// A save whose file may not be on the disk: in which life of the filesystem it was written, since when (by that boot's
/// clock) the draft has had no content that is, and the last one that it had.
const UNSYNCED_SAVES: &str = "
ALTER TABLE draft ADD COLUMN unsynced INTEGER;
ALTER TABLE draft ADD COLUMN unsynced_since INTEGER;
ALTER TABLE draft ADD COLUMN old_digest BLOB;
ALTER TABLE draft ADD COLUMN old_staged TEXT;
ALTER TABLE draft ADD COLUMN old_target BLOB;
ALTER TABLE draft ADD COLUMN old_size INTEGER;
ALTER TABLE draft ADD COLUMN old_mtime INTEGER;
CREATE INDEX draft_old_staged ON draft (old_staged) WHERE old_staged IS NOT NULL;
";

/// What the collector and a rescue need.
const COLLECTOR: &str = "
-- The blob that tells the same as the change's rows, for whoever has lost the catalog.
ALTER TABLE change ADD COLUMN manifest BLOB;
CREATE INDEX change_manifest ON change (manifest) WHERE manifest IS NOT NULL;
CREATE INDEX draft_digest ON draft (digest) WHERE digest IS NOT NULL;
CREATE INDEX draft_old_digest ON draft (old_digest) WHERE old_digest IS NOT NULL;

-- Processes that store blobs which no row names yet.
CREATE TABLE work (
  id          INTEGER PRIMARY KEY,
  boot        INTEGER NOT NULL,
  pid         INTEGER NOT NULL,
  start_ticks INTEGER NOT NULL,
  started     INTEGER NOT NULL
) STRICT;
";

/// What a shared store is known to have, and why it could not be brought up to date at last.
const SHARING: &str = "
ALTER TABLE change ADD COLUMN shared INTEGER NOT NULL DEFAULT 0;
CREATE INDEX change_unshared ON change (number) WHERE shared = 0;

CREATE TABLE share_failure (
  id   INTEGER PRIMARY KEY CHECK (id = 1),
  at   INTEGER NOT NULL,
  text TEXT NOT NULL
) STRICT;
";

/// What leases need beyond the mount's own: generations of writers, intents, requests that may be repeated, and events
/// that tell each grant. The newest event is never deleted, so that plain row numbers are never used twice.
const ADMISSION: &str = "
ALTER TABLE lease ADD COLUMN fenced INTEGER NOT NULL DEFAULT 0;

-- The generation under which the bytes are written; of none before this.
ALTER TABLE writer ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;

-- What somebody means to work on: others may mean the same, so that a pattern alone is no key.
CREATE TABLE intent (
  pattern         TEXT NOT NULL,
  holder          TEXT NOT NULL,
  checkout        INTEGER NOT NULL REFERENCES checkout (id),
  task            TEXT,
  generation      INTEGER NOT NULL,
  boot            INTEGER NOT NULL,
  expires_boot_ms INTEGER NOT NULL,
  expires         INTEGER NOT NULL,
  PRIMARY KEY (pattern, holder)
) STRICT, WITHOUT ROWID;
CREATE INDEX intent_task ON intent (task) WHERE task IS NOT NULL;

-- Requests that were granted, with a digest of what they asked for: a repeated one gets the same answer.
CREATE TABLE request (
  number   INTEGER PRIMARY KEY,
  id       TEXT NOT NULL UNIQUE,
  contents BLOB NOT NULL,
  at       INTEGER NOT NULL
) STRICT;
CREATE TABLE request_grant (
  request         INTEGER NOT NULL,
  position        INTEGER NOT NULL,
  key             TEXT NOT NULL,
  generation      INTEGER NOT NULL,
  boot            INTEGER NOT NULL,
  expires_boot_ms INTEGER NOT NULL,
  expires         INTEGER NOT NULL,
  PRIMARY KEY (request, position)
) STRICT, WITHOUT ROWID;

-- Generations under which nothing that was not saved is to be kept.
CREATE TABLE discarded (
  generation INTEGER PRIMARY KEY,
  at         INTEGER NOT NULL
) STRICT;

-- What holders were asked, under which generation.
CREATE TABLE ask (
  key        TEXT NOT NULL,
  asker      TEXT NOT NULL,
  generation INTEGER NOT NULL,
  at         INTEGER NOT NULL,
  message    TEXT NOT NULL,
  PRIMARY KEY (key, asker)
) STRICT, WITHOUT ROWID;

CREATE TABLE event_2 (
  seq             INTEGER PRIMARY KEY,
  at              INTEGER NOT NULL,
  kind            TEXT NOT NULL,
  artifact        INTEGER,
  holder          TEXT,
  detail          TEXT NOT NULL,
  key             TEXT,
  generation      INTEGER,
  boot            INTEGER,
  boot_ms         INTEGER,
  expires_boot_ms INTEGER,
  expires         INTEGER
) STRICT;
INSERT INTO event_2 (seq, at, kind, artifact, holder, detail) SELECT seq, at, kind, artifact, holder, detail FROM event;
DROP TABLE event;
ALTER TABLE event_2 RENAME TO event;
";

/// Who may see and change what. `access` counts the changes of these tables: mounts compare it.
const ACCESS: &str = "
CREATE TABLE access_grant (
  principal  TEXT NOT NULL,
  glob       TEXT NOT NULL,
  role       TEXT NOT NULL,
  granted_by TEXT NOT NULL,
  at         INTEGER NOT NULL,
  PRIMARY KEY (principal, glob)
) STRICT, WITHOUT ROWID;

CREATE TABLE access_restriction (
  glob          TEXT PRIMARY KEY,
  restricted_by TEXT NOT NULL,
  at            INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO meta VALUES ('access', 0);
";

/// Whether a database was ever made a catalog.
pub(super) fn is_catalog(conn: &Connection) -> Result<bool, CatalogError> {
    Ok(applied(conn)? > 0)
}

/// Refuses a catalog that has not the present schema.
pub(super) fn check(conn: &Connection) -> Result<(), CatalogError> {
    let applied = applied(conn)?;
    match (applied, MIGRATIONS.len() as i64) {
        (0, _) => Err(CatalogError::NotACatalog),
        (found, known) if found > known => Err(CatalogError::NewerSchema { found, known }),
        (found, known) if found < known => Err(CatalogError::NotClosed),
        _ => Ok(()),
    }
}

/// How many migrations a database has had.
fn applied(conn: &Connection) -> Result<i64, CatalogError> {
    conn.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(doing("read user_version"))
}

/// Brings a catalog to the present schema; refuses one that a newer program made.
pub(super) fn migrate(conn: &mut Connection) -> Result<(), CatalogError> {
    // Who only reads waits for no writer, who may be stopped, or killed and not yet gone.
    if applied(conn)? == MIGRATIONS.len() as i64 {
        return Ok(());
    }
    let tx =
        conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(doing("begin"))?;
    let applied = applied(&tx)?;
    let known = MIGRATIONS.len() as i64;
    if applied > known {
        return Err(CatalogError::NewerSchema { found: applied, known });
    }
    for (number, sql) in (1_i64..).zip(MIGRATIONS).skip(usize::try_from(applied).unwrap_or(0)) {
        tx.execute_batch(sql).map_err(doing("migrate"))?;
        tx.pragma_update(None, "user_version", number).map_err(doing("set user_version"))?;
    }
    tx.commit().map_err(doing("commit the migration"))
}
