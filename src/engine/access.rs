//! Who may see and change what, for those who ask by path or artifact.
//!
//! What a principal may not see is answered as what is not there: [`EngineError::NotFound`], and never a word more.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use super::checkin::selects;
use super::{EngineError, RecoveryCopy, Result, Workspace};
use crate::catalog::{AccessRecords, CatalogError, ChangeRecordItem, DraftInfo, Event};
use crate::model::{
    AccessGlob, ArtifactPath, CheckoutId, Entry, Grant, Holder, Identity, Principal, Rights, Role, Seq,
};
use crate::sys;

/// Grants that were taken away.
pub type Revoked = Vec<Grant>;

/// The rules that somebody may know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessReport {
    /// Who asked.
    pub principal: Principal,
    /// What he may do with the path that he asked about, or with the root directory.
    pub role: Role,
    /// The rules.
    pub records: AccessRecords,
}

/// What this process's principal sees of a checkout.
pub struct Access<'a> {
    workspace: &'a Workspace,
    checkout: CheckoutId,
    rights: Rights,
}

/// The principal that this process acts as: its user.
pub(super) fn identity_of_process(catalog: &std::path::Path) -> Result<Identity> {
    let uid = sys::effective_ids().0;
    let name = sys::user_name().unwrap_or_else(|| format!("uid{uid}"));
    let principal = parse_principal(&name)?;
    let owns_files = catalog.metadata().is_ok_and(|found| found.uid() == uid);
    Ok(Identity { principal, superuser: uid == 0, owns_files })
}

fn parse_principal(text: &str) -> Result<Principal> {
    text.parse().map_err(|error| EngineError::Refused(format!("{error}")))
}

impl Workspace {
    /// The same workspace for another principal. Only who owns everything may act as somebody else: nobody's rights grow
    /// by that.
    pub fn acting_as(self, name: &str) -> Result<Self> {
        let principal = parse_principal(name)?;
        if principal == self.identity().principal {
            return Ok(self);
        }
        if principal.is_everybody() || !self.rights()?.owns_all() {
            return Err(EngineError::Refused(format!(
                "{}: you ({}) can't act as {principal}: only root and owners of ** may act as another user",
                self.root().display(),
                self.identity().principal
            )));
        }
        let identity = Identity { principal, superuser: false, owns_files: false };
        Ok(self.with_identity(Arc::new(identity)))
    }

    /// What this process's principal may do, by the rules as they are now.
    pub fn rights(&self) -> Result<Rights> {
        let rules = self.in_catalog(self.catalog().access_records())?.rules();
        Ok(self.identity().rights(&rules))
    }

    /// What this process's principal sees of a checkout, by the rules as they are now.
    pub fn access(&self, checkout: CheckoutId) -> Result<Access<'_>> {
        Ok(Access { workspace: self, checkout, rights: self.rights()? })
    }

    /// The rules that the principal may know of: with a path, all that cover it; without one his own, everybody's, and
    /// those on what he owns.
    pub fn access_report(&self, holder: &Holder, path: Option<&ArtifactPath>) -> Result<AccessReport> {
        let checkout = self.checkout_or_head(holder)?;
        let mut records = self.in_catalog(self.catalog().access_records())?;
        let access = self.access(checkout)?;
        let principal = self.identity().principal.clone();
        let role = match path {
            Some(path) => {
                access.entry(path)?;
                records.grants.retain(|record| record.grant.glob.covers(path));
                records.restrictions.retain(|record| record.glob.covers(path));
                access.role_at(path)
            }
            None => {
                let is_his = |who: &Principal| *who == principal || who.is_everybody();
                let owns = |glob: &AccessGlob| access.rights.owns(glob);
                records.grants.retain(|r| is_his(&r.grant.principal) || owns(&r.grant.glob));
                records.restrictions.retain(|record| owns(&record.glob));
                access.role_at(&ArtifactPath::root())
            }
        };
        let role = role.ok_or_else(|| EngineError::NotFound(path.cloned().unwrap_or_default()))?;
        Ok(AccessReport { principal, role, records })
    }

    /// Gives a principal a role, in place of the one that he has on the same glob.
    pub fn grant_access(&self, grant: &Grant) -> Result<()> {
        let granted = self.catalog().grant_access(self.identity(), self.now().wall, grant);
        self.access_changed(granted)
    }

    /// Takes roles of a principal away, on one glob or on all that the actor owns.
    pub fn revoke_access(&self, principal: &Principal, glob: Option<&AccessGlob>) -> Result<Revoked> {
        match self.catalog().revoke_access(self.identity(), self.now().wall, principal, glob) {
            Err(CatalogError::NotFound) => {
                let object = glob.map_or_else(String::new, |glob| format!(" on {glob}"));
                Err(EngineError::Refused(format!(
                    "{principal}: has no grant{object} that you could revoke; `leasehold access list` shows them"
                )))
            }
            revoked => self.access_changed(revoked),
        }
    }

    /// Hides what a glob covers from all who have no grant there, or (`undo`) no more; tells whether that is new.
    pub fn restrict_access(&self, glob: &AccessGlob, undo: bool) -> Result<bool> {
        let (catalog, at) = (self.catalog(), self.now().wall);
        let changed = if undo {
            catalog.unrestrict_access(self.identity(), at, glob)
        } else {
            catalog.restrict_access(self.identity(), at, glob)
        };
        self.access_changed(changed)
    }

    fn access_changed<T>(&self, changed: crate::catalog::Result<T>) -> Result<T> {
        let changed = self.in_catalog(changed)?;
        self.wake();
        Ok(changed)
    }
}

impl Access<'_> {
    /// Whether nothing need be looked at, since all may be seen and changed.
    pub fn is_free(&self) -> bool {
        self.rights.is_free()
    }

    /// Whether the principal owns everything.
    pub fn owns_all(&self) -> bool {
        self.rights.owns_all()
    }

    /// The role at a path, whatever is there.
    pub fn role_at(&self, path: &ArtifactPath) -> Option<Role> {
        self.rights.role(path)
    }

    /// The role with an artifact, at its places in the checkout and in the head tree.
    pub fn role_of(&self, artifact: Seq) -> Result<Option<Role>> {
        if self.owns_all() {
            return Ok(Some(Role::Owner));
        }
        let places = self.workspace.catalog().places_of(self.checkout, artifact);
        Ok(self.rights.role_at(&self.workspace.in_catalog(places)?))
    }

    /// Whether an artifact may be seen.
    pub fn sees(&self, artifact: Seq) -> Result<bool> {
        Ok(self.is_free() || self.role_of(artifact)?.is_some())
    }

    /// Whether an artifact may be changed.
    pub fn edits(&self, artifact: Seq) -> Result<bool> {
        Ok(self.is_free() || self.role_of(artifact)? >= Some(Role::Editor))
    }

    /// Whether a path may be seen, whatever is there.
    pub fn sees_path(&self, path: &ArtifactPath) -> bool {
        self.rights.role(path).is_some()
    }

    /// Whether what a change did to an artifact may be seen: where it was and is, and where it stands now.
    pub(super) fn sees_item(&self, item: &ChangeRecordItem) -> Result<bool> {
        let mut paths = item.before.iter().chain(&item.after);
        Ok(self.is_free() || paths.all(|path| self.sees_path(path)) && self.sees(item.artifact)?)
    }

    /// Whether a recovery copy may be seen: by the path that it had, and by its artifact.
    pub(super) fn sees_copy(&self, copy: &RecoveryCopy) -> Result<bool> {
        let artifact = match copy.artifact.filter(|_| !self.is_free()) {
            Some(id) => self.workspace.in_catalog(self.workspace.catalog().artifact_by_id(id))?,
            None => None,
        };
        Ok(self.sees_path(&copy.path) && artifact.map_or(Ok(true), |artifact| self.sees(artifact))?)
    }

    /// The drafts that may be seen.
    pub(super) fn drafts(&self) -> Result<Vec<DraftInfo>> {
        let mut drafts = self.workspace.in_catalog(self.workspace.catalog().drafts(self.checkout))?;
        let mut seen = Vec::with_capacity(drafts.len());
        for draft in &drafts {
            seen.push(self.sees(draft.artifact)?);
        }
        let mut seen = seen.into_iter();
        drafts.retain(|_| seen.next().unwrap_or_default());
        Ok(drafts)
    }

    /// What a request for the drafts at and below some paths (none: all) means, as paths that leave out what may not be
    /// seen; none where nothing is left.
    pub(super) fn narrowed(
        &self,
        drafts: &[DraftInfo],
        paths: &[ArtifactPath],
    ) -> Result<Option<Vec<ArtifactPath>>> {
        let all = self.workspace.in_catalog(self.workspace.catalog().drafts(self.checkout))?;
        let selected = |drafts: &[DraftInfo]| -> Vec<ArtifactPath> {
            drafts.iter().filter(|draft| selects(paths, draft)).map(|draft| draft.path.clone()).collect()
        };
        let seen = selected(drafts);
        if selected(&all).len() == seen.len() {
            return Ok(Some(paths.to_vec()));
        }
        Ok(Some(seen).filter(|seen| !seen.is_empty()))
    }

    /// Whether an event may be seen: one of an artifact as that is, one of access rules by who owns everything.
    pub fn sees_event(&self, event: &Event) -> Result<bool> {
        match event.artifact {
            Some(artifact) => self.sees(artifact),
            None => Ok(self.owns_all() || !event.kind.starts_with("access-")),
        }
    }

    /// What a path names in the checkout, if the principal may see it: else `NotFound`, as for what isn't there.
    pub fn entry(&self, path: &ArtifactPath) -> Result<Entry> {
        let found = self.workspace.in_catalog(self.workspace.catalog().resolve(self.checkout, path))?;
        // Looked at in both cases: the answer must not be faster for what isn't there.
        let seen = self.sees_path(path);
        let not_found = || EngineError::NotFound(path.clone());
        let entry = found.filter(|_| seen).ok_or_else(not_found)?;
        if self.sees(entry.artifact)? { Ok(entry) } else { Err(not_found()) }
    }

    /// As [`Self::entry`], for what is to be changed: `Denied` where it may only be read.
    pub fn entry_to_change(&self, path: &ArtifactPath) -> Result<Entry> {
        let entry = self.entry(path)?;
        if self.edits(entry.artifact)? { Ok(entry) } else { Err(self.denied(path)) }
    }

    /// Refuses a path at which the principal may make nothing. It tells nothing of what is there.
    pub fn check_new(&self, path: &ArtifactPath) -> Result<()> {
        if self.role_at(path) >= Some(Role::Editor) { Ok(()) } else { Err(self.denied(path)) }
    }

    pub(super) fn denied(&self, path: &ArtifactPath) -> EngineError {
        EngineError::Denied { path: path.clone(), principal: self.workspace.identity().principal.clone() }
    }
}
