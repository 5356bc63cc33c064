//! The list of recovery copies; their bytes are files of `recovered/`.

use rusqlite::Row;

use super::events::{self, EventKind, NewEvent};
use super::rows::{holder_at, size_at, size_code};
use super::view::{execute, many, one};
use super::{Catalog, Durability, Result};
use crate::model::{ArtifactId, ArtifactPath, RecoveryCopy, Timestamp, VersionNumber};

const COLUMNS: &str = "id, artifact, path, base, holder, at, size, reason";

impl Catalog {
    /// Lists a recovery copy whose file is in `recovered/`; listing the same one again changes nothing.
    pub fn add_recovery(&self, file: &str, copy: &RecoveryCopy) -> Result<()> {
        let sql = format!(
            "INSERT OR IGNORE INTO recovery (file, {COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
        );
        let path = path_bytes(&copy.path);
        let params = (
            file,
            &copy.id,
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
    pub fn recoveries(&self) -> Result<Vec<RecoveryCopy>> {
        let sql = format!("SELECT {COLUMNS} FROM recovery ORDER BY at, id");
        self.read(|conn| many(conn, "list recovery copies", &sql, [], recovery_row))
    }

    /// The file in `recovered/` of each copy that is listed.
    pub fn recovery_files(&self) -> Result<Vec<String>> {
        let sql = "SELECT file FROM recovery";
        self.read(|conn| many(conn, "list recovery copies", sql, [], |row| row.get(0)))
    }

    /// The file in `recovered/` of the copy with this id.
    pub fn recovery_file(&self, id: &str) -> Result<Option<String>> {
        let sql = "SELECT file FROM recovery WHERE id = ?1";
        self.read(|conn| one(conn, "read a recovery copy", sql, [id], |row| row.get(0)))
    }
}

fn path_bytes(path: &ArtifactPath) -> Vec<u8> {
    path.names().iter().map(|name| name.as_bytes()).collect::<Vec<_>>().join(&b'/')
}

fn recovery_row(row: &Row<'_>) -> rusqlite::Result<RecoveryCopy> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::OsStr::from_bytes(row.get_ref(2)?.as_blob()?);
    Ok(RecoveryCopy {
        id: row.get(0)?,
        artifact: row.get::<_, Option<uuid::Uuid>>(1)?.map(ArtifactId),
        path: ArtifactPath::parse(path).map_err(|_| super::rows::bad(2, "path"))?,
        base: row.get::<_, Option<i64>>(3)?.map(VersionNumber),
        holder: holder_at(row, 4)?,
        at: Timestamp(row.get(5)?),
        size: size_at(row, 6)?,
        reason: row.get(7)?,
    })
}
