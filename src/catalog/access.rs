//! Access rules, and where an artifact stands when it is judged by them.
//!
//! An artifact is judged by its place in the head tree and by its place in the viewer's checkout: what a checkout moved
//! is not uncovered by that, and what it moved into a restricted place is not open there.

use rusqlite::{Connection, Row, Transaction};

use super::deltas::{any_path_of, head_place};
use super::events::{self, EventKind, NewEvent};
use super::history::last_place;
use super::rows::bad;
use super::view::{self, execute, many, one};
use super::{Actor, Catalog, CatalogError, Durability, Result};
use crate::model::{
    AccessGlob, AccessRules, ArtifactPath, CheckoutId, Grant, Holder, Identity, Principal, Rights, Role, Seq,
    Timestamp,
};

/// A grant, with who made it when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRecord {
    /// The grant.
    pub grant: Grant,
    /// Who made it.
    pub by: String,
    /// When.
    pub at: Timestamp,
}

/// A restriction, with who made it when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestrictionRecord {
    /// What it covers.
    pub glob: AccessGlob,
    /// Who made it.
    pub by: String,
    /// When.
    pub at: Timestamp,
}

/// All access rules, by glob.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessRecords {
    /// Who may do more than everybody.
    pub grants: Vec<GrantRecord>,
    /// What not everybody may see.
    pub restrictions: Vec<RestrictionRecord>,
}

impl AccessRecords {
    /// The rules alone.
    pub fn rules(self) -> AccessRules {
        AccessRules {
            grants: self.grants.into_iter().map(|record| record.grant).collect(),
            restrictions: self.restrictions.into_iter().map(|record| record.glob).collect(),
        }
    }
}

impl Catalog {
    /// Makes a principal the owner of everything in a catalog that was just made; where the rules are lost it also hides
    /// everything from all others, until he says otherwise.
    pub fn begin_access(&self, owner: &Principal, at: Timestamp, rules_are_lost: bool) -> Result<()> {
        self.write(Durability::Full, |tx| {
            insert_owner(tx, owner, at)?;
            if rules_are_lost { insert_restriction_of_all(tx, owner, at) } else { Ok(()) }
        })
    }

    /// The access rules.
    pub fn access_records(&self) -> Result<AccessRecords> {
        self.read(records)
    }

    /// A counter that moves whenever the access rules change, and never back.
    pub fn access_counter(&self) -> Result<i64> {
        let sql = "SELECT value FROM meta WHERE key = 'access'";
        Ok(self.read(|conn| one(conn, "read a counter", sql, [], |row| row.get(0)))?.unwrap_or(0))
    }

    /// Gives a principal a role, in place of the one that he has on the same glob. One full commit, as all of these are.
    ///
    /// Refuses with [`CatalogError::NotOwner`], and with [`CatalogError::LastOwner`] where a role is lowered.
    pub fn grant_access(&self, by: &Identity, at: Timestamp, grant: &Grant) -> Result<()> {
        self.change_access(by, at, &grant.glob, |tx| {
            let sql = "INSERT OR REPLACE INTO access_grant (principal, glob, role, granted_by, at)
                VALUES (?1, ?2, ?3, ?4, ?5)";
            let (principal, glob) = (grant.principal.as_str(), grant.glob.as_str());
            let params = (principal, glob, grant.role.as_str(), by.principal.as_str(), at.0);
            execute(tx, "grant a role", sql, params)?;
            let detail = format!("{} to {principal} on {glob}", grant.role);
            Ok(Some((EventKind::AccessGranted, detail)))
        })
        .map(drop)
    }

    /// Takes the roles of a principal away, on one glob or (none) on all that the actor owns; returns them.
    ///
    /// Refuses with `NotOwner`, `LastOwner`, and `NotFound` where there is nothing to take.
    pub fn revoke_access(
        &self,
        by: &Identity,
        at: Timestamp,
        principal: &Principal,
        glob: Option<&AccessGlob>,
    ) -> Result<Vec<Grant>> {
        self.write(Durability::Full, |tx| {
            let rules = rules_in(tx)?;
            let rights = by.rights(&rules);
            if let Some(glob) = glob {
                check_owner(&rights, glob)?;
            }
            let meant = |grant: &&Grant| {
                let is_named = glob.is_none_or(|glob| glob.as_str() == grant.glob.as_str());
                grant.principal == *principal && is_named && rights.owns(&grant.glob)
            };
            let revoked: Vec<Grant> = rules.grants.iter().filter(meant).cloned().collect();
            if revoked.is_empty() {
                return Err(CatalogError::NotFound);
            }
            for grant in &revoked {
                let sql = "DELETE FROM access_grant WHERE principal = ?1 AND glob = ?2";
                execute(tx, "revoke a role", sql, (principal.as_str(), grant.glob.as_str()))?;
                let detail = format!("{} from {principal} on {}", grant.role, grant.glob);
                note(tx, by, at, EventKind::AccessRevoked, &detail)?;
            }
            finish(tx, &rules)?;
            Ok(revoked)
        })
    }

    /// Hides what a glob covers from all who have no grant there; tells whether it was not restricted before.
    pub fn restrict_access(&self, by: &Identity, at: Timestamp, glob: &AccessGlob) -> Result<bool> {
        self.change_access(by, at, glob, |tx| {
            let sql =
                "INSERT OR IGNORE INTO access_restriction (glob, restricted_by, at) VALUES (?1, ?2, ?3)";
            let params = (glob.as_str(), by.principal.as_str(), at.0);
            let is_new = execute(tx, "restrict a glob", sql, params)? > 0;
            Ok(is_new.then(|| (EventKind::AccessRestricted, glob.to_string())))
        })
    }

    /// Takes a restriction back; tells whether there was one.
    pub fn unrestrict_access(&self, by: &Identity, at: Timestamp, glob: &AccessGlob) -> Result<bool> {
        self.change_access(by, at, glob, |tx| {
            let sql = "DELETE FROM access_restriction WHERE glob = ?1";
            let was_there = execute(tx, "lift a restriction", sql, [glob.as_str()])? > 0;
            Ok(was_there.then(|| (EventKind::AccessUnrestricted, glob.to_string())))
        })
    }

    /// Changes a rule on a glob that the actor must own; tells whether anything was changed.
    fn change_access(
        &self,
        by: &Identity,
        at: Timestamp,
        glob: &AccessGlob,
        change: impl FnOnce(&Transaction<'_>) -> Result<Option<(EventKind, String)>>,
    ) -> Result<bool> {
        self.write(Durability::Full, |tx| {
            let before = rules_in(tx)?;
            check_owner(&by.rights(&before), glob)?;
            let Some((kind, detail)) = change(tx)? else { return Ok(false) };
            note(tx, by, at, kind, &detail)?;
            finish(tx, &before)?;
            Ok(true)
        })
    }

    /// Where an artifact stands in a checkout, or stood last, and where in the head tree: it is judged by both.
    pub fn places_of(&self, checkout: CheckoutId, artifact: Seq) -> Result<[ArtifactPath; 2]> {
        self.read(|conn| places_of(conn, checkout, artifact))
    }

    /// The artifacts that a checkout has put into a directory, or renamed in it.
    pub fn named_in(&self, checkout: CheckoutId, dir: Seq) -> Result<Vec<Seq>> {
        let sql = "SELECT artifact FROM name WHERE checkout = ?1 AND parent = ?2 AND artifact IS NOT NULL";
        self.read(|conn| many(conn, "list names", sql, (checkout.0, dir.0), |row| row.get(0).map(Seq)))
    }

    /// Everything below a directory, in the head tree or in a checkout.
    pub fn all_below(&self, checkout: CheckoutId, dir: Seq) -> Result<Vec<Seq>> {
        self.read(|conn| all_below(conn, checkout, dir))
    }
}

fn check_owner(rights: &Rights, glob: &AccessGlob) -> Result<()> {
    if rights.owns(glob) { Ok(()) } else { Err(CatalogError::NotOwner { glob: glob.to_string() }) }
}

fn note(tx: &Transaction<'_>, by: &Identity, at: Timestamp, kind: EventKind, detail: &str) -> Result<()> {
    // Each name of a principal is a valid text of a holder.
    let holder: Option<Holder> = by.principal.as_str().parse().ok();
    events::append(tx, &NewEvent { at, kind, artifact: None, holder: holder.as_ref(), detail })
}

/// Refuses to lock the last owner out, and lets mounts know that the rules are others now.
fn finish(tx: &Transaction<'_>, before: &AccessRules) -> Result<()> {
    if before.has_owner() && !rules_in(tx)?.has_owner() {
        return Err(CatalogError::LastOwner);
    }
    let sql = "UPDATE meta SET value = value + 1 WHERE key = 'access'";
    execute(tx, "count a change of access", sql, []).map(drop)
}

fn insert_owner(tx: &Transaction<'_>, owner: &Principal, at: Timestamp) -> Result<()> {
    let sql = "INSERT INTO access_grant (principal, glob, role, granted_by, at) VALUES (?1, ?2, ?3, ?1, ?4)";
    let params = (owner.as_str(), AccessGlob::ALL, Role::Owner.as_str(), at.0);
    execute(tx, "grant a role", sql, params).map(drop)
}

fn insert_restriction_of_all(tx: &Transaction<'_>, by: &Principal, at: Timestamp) -> Result<()> {
    let sql = "INSERT INTO access_restriction (glob, restricted_by, at) VALUES (?1, ?2, ?3)";
    execute(tx, "restrict a glob", sql, (AccessGlob::ALL, by.as_str(), at.0)).map(drop)
}

fn rules_in(conn: &Connection) -> Result<AccessRules> {
    records(conn).map(AccessRecords::rules)
}

fn records(conn: &Connection) -> Result<AccessRecords> {
    let sql = "SELECT principal, glob, role, granted_by, at FROM access_grant ORDER BY glob, principal";
    let grants = many(conn, "read grants", sql, [], |row| {
        let grant = Grant { principal: parsed(row, 0)?, role: parsed(row, 2)?, glob: glob_at(row, 1)? };
        Ok(GrantRecord { grant, by: row.get(3)?, at: Timestamp(row.get(4)?) })
    })?;
    let sql = "SELECT glob, restricted_by, at FROM access_restriction ORDER BY glob";
    let restrictions = many(conn, "read restrictions", sql, [], |row| {
        Ok(RestrictionRecord { glob: glob_at(row, 0)?, by: row.get(1)?, at: Timestamp(row.get(2)?) })
    })?;
    Ok(AccessRecords { grants, restrictions })
}

fn glob_at(row: &Row<'_>, column: usize) -> rusqlite::Result<AccessGlob> {
    AccessGlob::new(row.get_ref(column)?.as_str()?).map_err(|_| bad(column, "glob"))
}

fn parsed<T: std::str::FromStr>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    row.get_ref(column)?.as_str()?.parse().map_err(|_| bad(column, "access rule"))
}

fn places_of(conn: &Connection, checkout: CheckoutId, artifact: Seq) -> Result<[ArtifactPath; 2]> {
    let here = any_path_of(conn, checkout, artifact)?;
    // What was never checked in stands where its directory does.
    let home = view::climb(artifact, |at| match head_place(conn, at)? {
        Some(place) => Ok(Some(place)),
        None => match view::place_of(conn, checkout, at)? {
            Some(place) => Ok(Some(place)),
            None => last_place(conn, at),
        },
    })?;
    Ok([here, home.unwrap_or_default()])
}

fn all_below(conn: &Connection, checkout: CheckoutId, dir: Seq) -> Result<Vec<Seq>> {
    let sql = "WITH RECURSIVE below (artifact) AS (
          SELECT ?1
          UNION SELECT h.artifact FROM head h JOIN below ON h.parent = below.artifact
          UNION SELECT n.artifact FROM name n JOIN below ON n.parent = below.artifact
            WHERE n.checkout = ?2 AND n.artifact IS NOT NULL)
        SELECT artifact FROM below WHERE artifact <> ?1";
    many(conn, "list a tree", sql, (dir.0, checkout.0), |row| row.get(0).map(Seq))
}

/// What an actor may change, by the rules that are committed when a transaction begins.
pub(super) struct Editing<'a> {
    conn: &'a Connection,
    checkout: CheckoutId,
    rights: Rights,
}

impl<'a> Editing<'a> {
    pub(super) fn new(conn: &'a Connection, actor: &Actor) -> Result<Self> {
        // Who is limited by nothing, and where nothing is restricted, costs no look at the grants.
        let sql = "SELECT EXISTS (SELECT 1 FROM access_restriction)";
        let is_limited = !actor.identity.superuser
            && one(conn, "look for restrictions", sql, [], |row| row.get(0))?.unwrap_or(true);
        let rights = if is_limited { actor.identity.rights(&rules_in(conn)?) } else { Rights::unlimited() };
        Ok(Self { conn, checkout: actor.checkout, rights })
    }

    pub(super) fn check(&self, artifact: Seq) -> Result<()> {
        let may = self.role(artifact)? >= Some(Role::Editor);
        if may { Ok(()) } else { Err(CatalogError::Denied { artifact }) }
    }

    /// Whether the actor may see an artifact, so that a refusal may name it.
    pub(super) fn sees(&self, artifact: Seq) -> Result<bool> {
        Ok(self.role(artifact)?.is_some())
    }

    /// The role with an artifact; an editor's where nobody has to be asked.
    fn role(&self, artifact: Seq) -> Result<Option<Role>> {
        if self.rights.is_free() {
            return Ok(Some(Role::Editor));
        }
        Ok(self.rights.role_at(&places_of(self.conn, self.checkout, artifact)?))
    }

    /// As [`Self::check`], for a directory that stands for all that lies below it.
    pub(super) fn check_with_all_below(&self, dir: Seq) -> Result<()> {
        self.check(dir)?;
        if self.rights.is_free() {
            return Ok(());
        }
        all_below(self.conn, self.checkout, dir)?.into_iter().try_for_each(|artifact| self.check(artifact))
    }
}
