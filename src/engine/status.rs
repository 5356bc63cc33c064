use super::checkin::check_paths;
use super::{Action, DraftStatus, RecoveryCopy, Result, StatusReport, Workspace};
use crate::catalog::{Ask, DraftInfo, Event, LeaseFilter};
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
        let access = self.access(checkout)?;
        let drafts = access.drafts()?;
        let leases = self.leases_under(under)?;
        if leases.is_empty() {
            check_paths(&access, &drafts, std::slice::from_ref(under))?;
        }
        let change = self.in_catalog(self.catalog().head_change())?;
        Ok(StatusReport {
            holder: Some(holder.clone()),
            mount: self.live_mount(holder)?,
            head: Some(change).filter(|change| change.0 > 0),
            drafts: drafts.iter().filter(|draft| shows(draft, under)).filter_map(draft_status).collect(),
            leases,
            provisional: self.provisional(checkout, std::slice::from_ref(under))?,
            scratch: self.in_catalog(self.catalog().scratch_count(checkout))?,
            recovered: self.recovered_of(holder)?,
            problems: self.problems_of(checkout, holder, under)?,
            asks: self.asks_of(checkout, holder)?,
            sharing: self.sharing_status()?,
        })
    }

    /// What is not settled under a path, a line each: the kind, the path, what happened, and what to do.
    fn problems_of(
        &self,
        checkout: CheckoutId,
        holder: &Holder,
        under: &ArtifactPath,
    ) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        let access = self.access(checkout)?;
        for event in self.in_catalog(self.catalog().problems(holder))? {
            if !access.sees_event(&event)? {
                continue;
            }
            let path = match event.artifact {
                Some(artifact) => self.in_catalog(self.catalog().any_path_of(checkout, artifact))?,
                None => ArtifactPath::root(),
            };
            if path.is_root() || path.is_within(under) {
                lines.push(problem_line(&event, &path));
            }
        }
        Ok(lines)
    }

    /// What a holder was asked for, a line each.
    fn asks_of(&self, checkout: CheckoutId, holder: &Holder) -> Result<Vec<String>> {
        let asks = self.in_catalog(self.catalog().asks(holder))?;
        let line = |ask: Ask| {
            let object = match ask.artifact {
                Some(artifact) => {
                    self.in_catalog(self.catalog().any_path_of(checkout, artifact))?.to_string()
                }
                None => ask.key.to_string(),
            };
            Ok(format!("{object}: {} at {}: {}", ask.asker, ask.at.to_rfc3339(), ask.message))
        };
        asks.into_iter().map(line).collect()
    }

    fn leases_under(&self, under: &ArtifactPath) -> Result<Vec<super::LeaseStatus>> {
        let mut leases = self.leases(&LeaseFilter::default())?;
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

fn problem_line(event: &Event, path: &ArtifactPath) -> String {
    let Event { kind, detail, .. } = event;
    let remedy = match kind.as_str() {
        "lease-lost" => "`leasehold recovered` has what was written since",
        "stale-save" => "read it again, or save it under another name",
        "publish-failed" => "`leasehold revert` it, and save it again",
        "broken" => "ask who broke it; `leasehold recovered` has what was not saved",
        "checkin-failed" => "then `leasehold checkin` it",
        _ => "",
    };
    // A refusal names its object itself, which may be another one.
    let object = format!("{path}: ");
    let named = path.is_root() || detail.starts_with(&object);
    let object = if named { "" } else { &object };
    let remedy = if remedy.is_empty() { String::new() } else { format!("; {remedy}") };
    format!("{kind}: {object}{detail}{remedy}")
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
