//! What people do by hand to leases of others: break them, end a quarantine, ask for them.

use rusqlite::{Row, Transaction};

use super::super::events::{EventKind, append_of_lease};
use super::super::rows::{bad, holder_at};
use super::super::view::{execute, many, one};
use super::super::{Catalog, CatalogError, Durability, Result};
use super::{intents, row_on};
use crate::model::{Generation, Holder, Instant, Lease, ResourceKey, Seq, Timestamp};

/// Why somebody ends a lease that is not his.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByHand {
    /// He breaks it: the holder learns it at his next write.
    Break,
    /// Its time is over, its writer is not known to have stopped, and he says that it has, or need not be waited for.
    Resolve(Unsaved),
}

/// What becomes of bytes that were written under a lease and that no save holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unsaved {
    /// They become a recovery copy.
    #[default]
    Keep,
    /// They are dropped.
    Discard,
}

/// What somebody asked a holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// What he wants to have.
    pub key: ResourceKey,
    /// The artifact, where the key is one.
    pub artifact: Option<Seq>,
    /// Who asks.
    pub asker: Holder,
    /// When.
    pub at: Timestamp,
    /// In his words.
    pub message: String,
}

impl Catalog {
    /// Ends the lease on a key and fences its generation off, so that nothing that was written under it is published;
    /// the resource is free then. Tells which leases were ended: several where the key is an intent.
    ///
    /// Fails with [`CatalogError::NotFound`] where there is nothing to end: to break, a live lease or one whose writer may
    /// still write; to resolve, only the latter.
    pub fn end_by_hand(
        &self,
        key: &ResourceKey,
        how: ByHand,
        by: &Holder,
        reason: &str,
        now: Instant,
    ) -> Result<Vec<Lease>> {
        self.write(Durability::Full, |tx| {
            let ended = match key {
                ResourceKey::Intent(_) => break_intents(tx, key, by, reason, now)?,
                key => fence(tx, key, how, by, reason, now)?.into_iter().collect(),
            };
            if ended.is_empty() { Err(CatalogError::NotFound) } else { Ok(ended) }
        })
    }

    /// Leaves a request for the holder of a live lease, who is returned; a second one of the same asker replaces the first.
    ///
    /// Fails with [`CatalogError::NotFound`] where nobody has it.
    pub fn ask(&self, key: &ResourceKey, asker: &Holder, message: &str, now: Instant) -> Result<Lease> {
        self.write(Durability::Full, |tx| {
            let (artifact, lease) = row_on(tx, key)?.ok_or(CatalogError::NotFound)?;
            if !lease.is_live(now) && !is_quarantined(tx, artifact, &lease, now)? {
                return Err(CatalogError::NotFound);
            }
            forget_answered(tx)?;
            let sql = "INSERT OR REPLACE INTO ask (key, asker, generation, at, message) VALUES (?1, ?2, ?3, ?4, ?5)";
            let params = (key.to_string(), asker.as_str(), lease.generation.0, now.wall.0, message);
            execute(tx, "leave a request", sql, params)?;
            let detail = format!("{asker}: {message}");
            append_of_lease(tx, EventKind::Asked, artifact, &lease, now, &detail)?;
            Ok(lease)
        })
    }

    /// Whether somebody said that what was written under a generation and never saved is to be dropped.
    pub fn is_discarded(&self, generation: Generation) -> Result<bool> {
        let sql = "SELECT 1 FROM discarded WHERE generation = ?1";
        self.read(
            |conn| Ok(one(conn, "look for what is dropped", sql, [generation.0], |_| Ok(()))?.is_some()),
        )
    }

    /// What a holder was asked for and still has, oldest first.
    pub fn asks(&self, holder: &Holder) -> Result<Vec<Ask>> {
        let sql = "SELECT a.key, l.artifact, a.asker, a.at, a.message FROM ask a
            JOIN lease l ON l.key = a.key AND l.generation = a.generation
            WHERE l.holder = ?1 AND l.fenced = 0 ORDER BY a.at";
        self.read(|conn| many(conn, "list requests", sql, [holder.as_str()], ask_row))
    }
}

fn ask_row(row: &Row<'_>) -> rusqlite::Result<Ask> {
    Ok(Ask {
        key: row.get_ref(0)?.as_str()?.parse().map_err(|_| bad(0, "resource key"))?,
        artifact: row.get::<_, Option<i64>>(1)?.map(Seq),
        asker: holder_at(row, 2)?,
        at: Timestamp(row.get(3)?),
        message: row.get(4)?,
    })
}

/// Forgets what was asked under leases that are gone.
fn forget_answered(tx: &Transaction<'_>) -> Result<()> {
    let sql = "DELETE FROM ask WHERE NOT EXISTS
        (SELECT 1 FROM lease l WHERE l.key = ask.key AND l.generation = ask.generation)";
    execute(tx, "forget answered requests", sql, ()).map(drop)
}

fn is_quarantined(tx: &Transaction<'_>, artifact: Option<Seq>, lease: &Lease, now: Instant) -> Result<bool> {
    super::standing(tx, artifact, Some(lease), now).map(|standing| standing.is_quarantined(now))
}

fn fence(
    tx: &Transaction<'_>,
    key: &ResourceKey,
    how: ByHand,
    by: &Holder,
    reason: &str,
    now: Instant,
) -> Result<Option<Lease>> {
    let Some((artifact, lease)) = row_on(tx, key)? else { return Ok(None) };
    let quarantined = is_quarantined(tx, artifact, &lease, now)?;
    let (may, kind) = match how {
        ByHand::Break => (quarantined || lease.is_live(now), EventKind::Broken),
        ByHand::Resolve(_) => (quarantined, EventKind::Resolved),
    };
    if !may {
        return Ok(None);
    }
    let ended = Lease { fenced: true, ..lease };
    execute(tx, "end a lease", "UPDATE lease SET fenced = 1 WHERE key = ?1", [key.to_string()])?;
    if how == ByHand::Resolve(Unsaved::Discard) {
        let sql = "INSERT OR IGNORE INTO discarded (generation, at) VALUES (?1, ?2)";
        execute(tx, "note what is dropped", sql, (ended.generation.0, now.wall.0))?;
    }
    append_of_lease(tx, kind, artifact, &ended, now, &format!("by {by}: {reason}"))?;
    Ok(Some(ended))
}

fn break_intents(
    tx: &Transaction<'_>,
    key: &ResourceKey,
    by: &Holder,
    reason: &str,
    now: Instant,
) -> Result<Vec<Lease>> {
    let all = intents::all(tx)?;
    let broken: Vec<Lease> =
        all.into_iter().map(|intent| intent.lease).filter(|lease| lease.key == *key).collect();
    for lease in &broken {
        let ResourceKey::Intent(pattern) = &lease.key else { continue };
        let sql = "DELETE FROM intent WHERE pattern = ?1 AND holder = ?2";
        execute(tx, "break an intent", sql, (pattern.to_text(), lease.holder.as_str()))?;
        append_of_lease(tx, EventKind::Broken, None, lease, now, &format!("by {by}: {reason}"))?;
    }
    Ok(broken)
}
