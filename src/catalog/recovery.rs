//! The list of recovery copies; their bytes are files of `recovered/`.

use rusqlite::Row;

use super::events::{self, EventKind, NewEvent};
use super::rows::{holder_at, size_at, size_code};
use super::view::{execute, many, one};
use super::{Catalog, Durability, Result};
use crate::model::{ArtifactId, ArtifactPath, Holder, Timestamp, VersionNumber};

/// Bytes that were put aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveryRow {
    /// Names the copy.
    pub id: String,
    /// Its file in `recovered/`.
    pub file: String,
    /// The artifact that the bytes were written to.
    pub artifact: Option<ArtifactId>,
    /// Where it was.
    pub path: ArtifactPath,
    /// The version on which the bytes were made.
    pub base: Option<VersionNumber>,
    /// Whose they are.
    pub holder: Holder,
    /// When they were put aside.
    pub at: Timestamp,
    /// How many bytes.
    pub size: u64,
    /// Why they are no draft.
    pub reason: String,
}

const COLUMNS: &str = "id, file, artifact, path, base, holder, at, size, reason";

impl Catalog {
    /// Lists a recovery copy whose file is in place; listing the same one again changes nothing.
    pub fn add_recovery(&self, copy: &RecoveryRow) -> Result<()> {
        let sql =
            format!("INSERT OR IGNORE INTO recovery ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)");
        let path = path_bytes(&copy.path);
        let params = (
            &copy.id,
            &copy.file,
            copy.artifact.map(|id| id.0),
            path,
            copy.base.map(|base| base.0),
            copy.holder.as_str(),
            copy.at.0,
            size_code(copy.size),
            &copy.reason,
        );
        self.write(Durability::Full, |tx| {
            if execute(tx, "list a recovery copy", &sql, params)? == 0 {
                return Ok(());
            }
            let detail = format!("{}: {}", copy.path, copy.reason);
            let holder = Some(&copy.holder);
            let event =
                NewEvent { at: copy.at, kind: EventKind::Recovered, artifact: None, holder, detail: &detail };
            events::append(tx, &event)
        })
    }

    /// Every recovery copy, oldest first.
    pub fn recoveries(&self) -> Result<Vec<RecoveryRow>> {
        let sql = format!("SELECT {COLUMNS} FROM recovery ORDER BY at, id");
        self.read(|conn| many(conn, "list recovery copies", &sql, [], recovery_row))
    }

    /// The recovery copy with this id.
    pub fn recovery(&self, id: &str) -> Result<Option<RecoveryRow>> {
        let sql = format!("SELECT {COLUMNS} FROM recovery WHERE id = ?1");
        self.read(|conn| one(conn, "read a recovery copy", &sql, [id], recovery_row))
    }
}

fn path_bytes(path: &ArtifactPath) -> Vec<u8> {
    path.names().iter().map(|name| name.as_bytes()).collect::<Vec<_>>().join(&b'/')
}

fn recovery_row(row: &Row<'_>) -> rusqlite::Result<RecoveryRow> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::OsStr::from_bytes(row.get_ref(3)?.as_blob()?);
    Ok(RecoveryRow {
        id: row.get(0)?,
        file: row.get(1)?,
        artifact: row.get::<_, Option<uuid::Uuid>>(2)?.map(ArtifactId),
        path: ArtifactPath::parse(path).map_err(|_| super::rows::bad(3, "path"))?,
        base: row.get::<_, Option<i64>>(4)?.map(VersionNumber),
        holder: holder_at(row, 5)?,
        at: Timestamp(row.get(6)?),
        size: size_at(row, 7)?,
        reason: row.get(8)?,
    })
}
