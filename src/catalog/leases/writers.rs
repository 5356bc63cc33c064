//! Open writers: who has bytes under which generation that no save holds yet.

use rusqlite::Connection;

use super::super::view::{execute, many, one};
use super::super::{Catalog, Durability, Result};
use crate::model::{CheckoutId, Generation, Instant, Seq};
use crate::sys::{self, ProcessKey};

impl Catalog {
    /// Says which drafts have bytes that no save holds yet, and under which generation they are written: while their
    /// mount lives, the end of that lease frees nothing.
    pub fn set_writers(
        &self,
        checkout: CheckoutId,
        writers: &[(Seq, Generation)],
        now: Instant,
    ) -> Result<()> {
        self.write(Durability::Grouped, |tx| {
            execute(tx, "clear writers", "DELETE FROM writer WHERE checkout = ?1", [checkout.0])?;
            for (artifact, generation) in writers {
                let sql = "INSERT OR REPLACE INTO writer (artifact, checkout, since, generation) VALUES (?1, ?2, ?3, ?4)";
                execute(tx, "note a writer", sql, (artifact.0, checkout.0, now.wall.0, generation.0))?;
            }
            Ok(())
        })
    }
}

/// Whether a checkout's mount has bytes of an artifact that no save holds.
pub(super) fn is_writing(conn: &Connection, artifact: Seq, checkout: CheckoutId) -> Result<bool> {
    let sql = "SELECT 1 FROM writer WHERE artifact = ?1 AND checkout = ?2";
    Ok(one(conn, "look for a writer", sql, (artifact.0, checkout.0), |_| Ok(()))?.is_some())
}

/// Whether a mount has unpublished bytes under a generation of an artifact's lease, and its daemon is not proven dead: by
/// another boot, or by its process number and start time.
pub(super) fn has_living_writer(
    conn: &Connection,
    artifact: Seq,
    generation: Generation,
    now: Instant,
) -> Result<bool> {
    let sql = "SELECT m.boot, m.pid, m.start_ticks FROM writer w JOIN mount m ON m.checkout = w.checkout
        WHERE w.artifact = ?1 AND w.generation = ?2";
    let read = |row: &rusqlite::Row<'_>| {
        let start_ticks = row.get::<_, i64>(2)?.cast_unsigned();
        Ok((row.get::<_, i64>(0)?, ProcessKey { pid: row.get(1)?, start_ticks }))
    };
    let daemons = many(conn, "look for writers", sql, (artifact.0, generation.0), read)?;
    Ok(daemons.into_iter().any(|(boot, daemon)| boot == now.boot && sys::is_alive(daemon)))
}
