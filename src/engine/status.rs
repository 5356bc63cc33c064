use super::{Action, DraftStatus, RecoveryCopy, Result, StatusReport, Workspace};
use crate::catalog::DraftInfo;
use crate::model::{ArtifactPath, CheckoutId, Holder};

impl Workspace {
    /// What a checkout changed under a path and what it holds, as far as the catalog knows.
    ///
    /// Refuses a path that names nothing: no file, no draft, and no lease, which may be on somebody else's new file.
    pub fn status_of(
        &self,
        checkout: CheckoutId,
        holder: &Holder,
        under: &ArtifactPath,
    ) -> Result<StatusReport> {
        let drafts = self.in_catalog(self.catalog().drafts(checkout))?;
        let leases = self.leases_under(under)?;
        if leases.is_empty() {
            self.check_paths(checkout, &drafts, std::slice::from_ref(under))?;
        }
        let change = self.in_catalog(self.catalog().head_change())?;
        let problems = self.in_catalog(self.catalog().problems(holder))?;
        Ok(StatusReport {
            holder: Some(holder.clone()),
            mount: self.live_mount(holder)?,
            head: Some(change).filter(|change| change.0 > 0),
            drafts: drafts.iter().filter(|draft| shows(draft, under)).filter_map(draft_status).collect(),
            leases,
            provisional: self.provisional(checkout, std::slice::from_ref(under))?,
            scratch: self.in_catalog(self.catalog().scratch_count(checkout))?,
            recovered: self.recovered_of(holder)?,
            problems: problems.into_iter().map(|e| format!("{}: {}", e.kind, e.detail)).collect(),
        })
    }

    fn leases_under(&self, under: &ArtifactPath) -> Result<Vec<super::LeaseStatus>> {
        let mut leases = self.leases()?;
        leases.retain(|lease| match &lease.path {
            Some(path) => path.is_within(under),
            None => under.is_root(),
        });
        Ok(leases)
    }

    fn recovered_of(&self, holder: &Holder) -> Result<Vec<RecoveryCopy>> {
        let mut copies = self.recovered()?;
        copies.retain(|copy| copy.holder == *holder);
        Ok(copies)
    }
}

fn shows(draft: &DraftInfo, under: &ArtifactPath) -> bool {
    [Some(&draft.path), draft.before.as_ref()].into_iter().flatten().any(|path| path.is_within(under))
}

/// What a check-in would do with a draft; none where it would do nothing.
pub(super) fn draft_status(draft: &DraftInfo) -> Option<DraftStatus> {
    let (action, from) = match (&draft.before, &draft.after) {
        (None, _) => (Action::Added, None),
        (Some(_), None) => (Action::Deleted, None),
        (Some(before), Some(_)) if draft.moved => (Action::Renamed, Some(before.clone())),
        _ if draft.modified => (Action::Modified, None),
        _ => return None,
    };
    Some(DraftStatus {
        path: draft.path.clone(),
        from,
        action,
        kind: draft.kind,
        dirty: false,
        stale: draft.is_stale(),
        base: draft.base,
        size: draft.size,
    })
}
