//! What blobs looked like when they were last written or verified; a lost stamp costs a verification, nothing else.

use rusqlite::Row;

use super::view::{execute, one};
use super::{Catalog, Durability, Result};
use crate::model::Digest;

/// The identity of a blob's file: inode, size, and times in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StampRow {
    /// The inode number.
    pub inode: u64,
    /// The size in bytes.
    pub size: u64,
    /// The time of the last write.
    pub mtime_ns: i64,
    /// The time of the last change of bytes or attributes.
    pub ctime_ns: i64,
}

impl Catalog {
    /// The last stamp that was recorded of a blob.
    pub fn stamp(&self, digest: &Digest) -> Result<Option<StampRow>> {
        let sql = "SELECT inode, size, mtime, ctime FROM stamp WHERE digest = ?1";
        self.read(|conn| one(conn, "read a stamp", sql, [digest.as_bytes()], |row| stamp_at(row, 0)))
    }

    /// Records stamps, replacing older ones of the same blobs.
    pub fn record_stamps(&self, stamps: &[(Digest, StampRow)]) -> Result<()> {
        let sql =
            "INSERT OR REPLACE INTO stamp (digest, inode, size, mtime, ctime) VALUES (?1, ?2, ?3, ?4, ?5)";
        self.write(Durability::Grouped, |tx| {
            for (digest, stamp) in stamps {
                let (inode, size) = (stamp.inode.cast_signed(), stamp.size.cast_signed());
                let params = (digest.as_bytes(), inode, size, stamp.mtime_ns, stamp.ctime_ns);
                execute(tx, "record a stamp", sql, params)?;
            }
            Ok(())
        })
    }
}

fn stamp_at(row: &Row<'_>, first: usize) -> rusqlite::Result<StampRow> {
    Ok(StampRow {
        inode: row.get::<_, i64>(first)?.cast_unsigned(),
        size: row.get::<_, i64>(first + 1)?.cast_unsigned(),
        mtime_ns: row.get(first + 2)?,
        ctime_ns: row.get(first + 3)?,
    })
}
