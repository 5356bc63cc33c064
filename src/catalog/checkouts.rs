//! Checkouts, and the mounts that show them.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use rusqlite::{Connection, Row, Transaction};

use super::rows::holder_at;
use super::view::{execute, many, one};
use super::{Catalog, CatalogError, Durability, Result};
use crate::model::{CheckoutId, Holder, Instant, Timestamp};
use crate::sys::{self, ProcessKey};

/// A mount that begins.
#[derive(Debug, Clone)]
pub struct Mounting {
    /// The daemon.
    pub process: ProcessKey,
    /// Where.
    pub mountpoint: PathBuf,
    /// The present.
    pub now: Instant,
}

/// A mount that began and that nobody has ended; its daemon may be dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountRow {
    /// The boot in which it began.
    pub boot: i64,
    /// The daemon.
    pub process: ProcessKey,
    /// Where.
    pub mountpoint: PathBuf,
    /// When.
    pub started: Timestamp,
}

impl MountRow {
    /// Whether its daemon still runs.
    pub fn is_alive(&self, now: Instant) -> bool {
        self.boot == now.boot && sys::is_alive(self.process)
    }
}

impl Catalog {
    /// The checkout of a holder, made if there is none.
    pub fn checkout(&self, holder: &Holder) -> Result<CheckoutId> {
        if let Some(checkout) = self.existing_checkout(holder)? {
            return Ok(checkout);
        }
        self.write(Durability::Full, |tx| {
            let sql = "INSERT OR IGNORE INTO checkout (holder) VALUES (?1)";
            execute(tx, "make a checkout", sql, [holder.as_str()])?;
            checkout_of(tx, holder)?.ok_or(CatalogError::NotFound)
        })
    }

    /// The checkout of a holder, if there is one.
    pub fn existing_checkout(&self, holder: &Holder) -> Result<Option<CheckoutId>> {
        self.read(|conn| checkout_of(conn, holder))
    }

    /// Whose a checkout is.
    pub fn checkout_holder(&self, checkout: CheckoutId) -> Result<Option<Holder>> {
        let sql = "SELECT holder FROM checkout WHERE id = ?1";
        self.read(|conn| one(conn, "read a checkout", sql, [checkout.0], |row| holder_at(row, 0)))
    }

    /// Every checkout, oldest first.
    pub fn checkouts(&self) -> Result<Vec<(CheckoutId, Holder)>> {
        let read = |row: &Row<'_>| Ok((CheckoutId(row.get(0)?), holder_at(row, 1)?));
        self.read(|conn| {
            many(conn, "list checkouts", "SELECT id, holder FROM checkout ORDER BY id", [], read)
        })
    }

    /// Notes that a daemon shows a checkout, and that no writers are left from the one before.
    ///
    /// Fails with [`CatalogError::Mounted`] where another live process has it mounted.
    pub fn begin_mount(&self, checkout: CheckoutId, mounting: &Mounting) -> Result<()> {
        self.write(Durability::Full, |tx| {
            let present = mount_row_of(tx, checkout)?;
            if let Some(mount) = present.filter(|m| m.process != mounting.process && m.is_alive(mounting.now))
            {
                return Err(CatalogError::Mounted { pid: mount.process.pid, mountpoint: mount.mountpoint });
            }
            clear_writers(tx, checkout)?;
            put_mount(tx, checkout, mounting)
        })
    }

    /// Notes that a daemon no longer shows a checkout; does nothing if another one does by now.
    pub fn end_mount(&self, checkout: CheckoutId, process: ProcessKey) -> Result<()> {
        self.write(Durability::Full, |tx| {
            let sql = "DELETE FROM mount WHERE checkout = ?1 AND pid = ?2 AND start_ticks = ?3";
            let params = (checkout.0, process.pid, process.start_ticks.cast_signed());
            if execute(tx, "end a mount", sql, params)? > 0 {
                clear_writers(tx, checkout)?;
            }
            Ok(())
        })
    }

    /// The mount that shows a checkout, or that died while it did.
    pub fn mount_of(&self, checkout: CheckoutId) -> Result<Option<MountRow>> {
        self.read(|conn| mount_row_of(conn, checkout))
    }
}

fn checkout_of(conn: &Connection, holder: &Holder) -> Result<Option<CheckoutId>> {
    let sql = "SELECT id FROM checkout WHERE holder = ?1";
    one(conn, "read a checkout", sql, [holder.as_str()], |row| row.get(0).map(CheckoutId))
}

pub(super) fn mount_row_of(conn: &Connection, checkout: CheckoutId) -> Result<Option<MountRow>> {
    let sql = "SELECT boot, pid, start_ticks, mountpoint, started FROM mount WHERE checkout = ?1";
    one(conn, "read a mount", sql, [checkout.0], |row| {
        let start_ticks = row.get::<_, i64>(2)?.cast_unsigned();
        Ok(MountRow {
            boot: row.get(0)?,
            process: ProcessKey { pid: row.get(1)?, start_ticks },
            mountpoint: PathBuf::from(std::ffi::OsString::from_vec(row.get(3)?)),
            started: Timestamp(row.get(4)?),
        })
    })
}

fn clear_writers(tx: &Transaction<'_>, checkout: CheckoutId) -> Result<()> {
    execute(tx, "clear writers", "DELETE FROM writer WHERE checkout = ?1", [checkout.0]).map(drop)
}

fn put_mount(tx: &Transaction<'_>, checkout: CheckoutId, mounting: &Mounting) -> Result<()> {
    let sql = "INSERT OR REPLACE INTO mount (checkout, boot, pid, start_ticks, mountpoint, started)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let params = (
        checkout.0,
        mounting.now.boot,
        mounting.process.pid,
        mounting.process.start_ticks.cast_signed(),
        mounting.mountpoint.as_os_str().as_bytes(),
        mounting.now.wall.0,
    );
    execute(tx, "begin a mount", sql, params).map(drop)
}
