use super::history::changed_item;
use super::{Access, CheckInReport, CheckInRequest, EngineError, Result, Sealed, Workspace};
use crate::catalog::{Actor, CatalogError, CheckIn, CheckedIn, DraftInfo};
use crate::model::{ArtifactPath, CheckoutId, Content, Ino, Timestamp};

impl Workspace {
    /// Checks in drafts that nobody is writing to, after bringing their bytes into the store.
    ///
    /// Returns what the command is told, and what the mounted tree has to know.
    pub fn check_in(&self, actor: &Actor, request: &CheckInRequest) -> Result<(CheckInReport, CheckedIn)> {
        self.promote_settled(actor)?;
        let access = self.access(actor.checkout)?;
        let drafts = access.drafts()?;
        check_paths(&access, &drafts, &request.paths)?;
        let Some(paths) = access.narrowed(&drafts, &request.paths)? else {
            return Ok((CheckInReport::default(), CheckedIn::default()));
        };
        let request = &CheckInRequest { paths, ..request.clone() };
        let selected: Vec<&DraftInfo> =
            drafts.iter().filter(|draft| selects(&request.paths, draft)).collect();
        self.publish_drafts(actor, &selected, &request.busy)?;
        let checked_in = self.check_in_published(actor, request, &drafts)?;
        self.wake();
        self.store_manifests();
        self.note_share_due();
        let items = checked_in.items.iter();
        let items =
            items.map(|item| changed_item(item.before.clone(), item.after.clone(), item.version)).collect();
        let left_out = self.provisional(actor.checkout, &request.paths)?;
        Ok((CheckInReport { change: checked_in.change, items, left_out }, checked_in))
    }

    /// Checks in; what the selection turns out to depend on is published when the catalog names it.
    fn check_in_published(
        &self,
        actor: &Actor,
        request: &CheckInRequest,
        drafts: &[DraftInfo],
    ) -> Result<CheckedIn> {
        let CheckInRequest { paths, message, keep, onto, busy } = request.clone();
        let first = paths.first().cloned().unwrap_or_default();
        let request = CheckIn { paths, message, keep, onto, busy };
        let mut left = drafts.iter().collect::<Vec<_>>();
        loop {
            let error = match self.catalog().check_in(actor, &request) {
                Ok(checked_in) => return Ok(checked_in),
                Err(error) => error,
            };
            let unpublished = match &error {
                CatalogError::Unpublished { artifact } => left.iter().position(|d| d.artifact == *artifact),
                _ => None,
            };
            match unpublished {
                Some(position) => self.publish_drafts(actor, &[left.swap_remove(position)], &request.busy)?,
                None => return Err(self.refusal(Some(actor.checkout), &first, error)),
            }
        }
    }

    /// Brings the bytes of drafts into the store.
    fn publish_drafts(&self, actor: &Actor, drafts: &[&DraftInfo], busy: &[Ino]) -> Result<()> {
        let (mut sealed, mut paths) = (Vec::new(), Vec::new());
        for draft in drafts {
            match &draft.content {
                Content::Staged(file) => {
                    sealed.push(sealed_save(actor, draft, file));
                    paths.push(&draft.path);
                }
                Content::Direct(file) => {
                    let open = busy.contains(&draft.ino);
                    self.publish_direct(actor.checkout, (draft.artifact, draft.base), file, open)?;
                }
                Content::None | Content::Blob(_) | Content::Target(_) => {}
            }
        }
        for (path, published) in paths.into_iter().zip(self.publish(&sealed)?) {
            published.map_err(|source| EngineError::NotStored { path: path.clone(), source })?;
        }
        Ok(())
    }

    /// Makes documents of ambiguous files that have been left alone for the policy's quiet time.
    pub(super) fn promote_settled(&self, actor: &Actor) -> Result<()> {
        let before = Timestamp(actor.now.wall.0.saturating_sub(self.policy().quiet_ms * 1_000_000));
        for artifact in self.in_catalog(self.catalog().settled_provisional(actor.checkout, before))? {
            match self.catalog().promote(actor, artifact) {
                // Its name is somebody else's, or it is no file: it stays scratch.
                Ok(_) | Err(CatalogError::Held { .. } | CatalogError::NotFound) => {}
                Err(error) => return self.in_catalog(Err(error)),
            }
        }
        Ok(())
    }

    /// The ambiguous files at and below some paths (none: all) that no check-in has taken as documents yet, by path.
    pub(super) fn provisional(
        &self,
        checkout: CheckoutId,
        under: &[ArtifactPath],
    ) -> Result<Vec<ArtifactPath>> {
        let mut paths = Vec::new();
        let (access, ever) = (self.access(checkout)?, Timestamp(i64::MAX));
        for artifact in self.in_catalog(self.catalog().settled_provisional(checkout, ever))? {
            if !access.sees(artifact)? {
                continue;
            }
            paths.extend(self.in_catalog(self.catalog().path_of(checkout, artifact))?);
        }
        paths.retain(|path| under.is_empty() || under.iter().any(|wanted| path.is_within(wanted)));
        paths.sort();
        Ok(paths)
    }

    /// Refuses a path that names neither a draft of a checkout nor anything else.
    pub fn refuse_unknown(&self, checkout: CheckoutId, path: &ArtifactPath) -> Result<()> {
        let access = self.access(checkout)?;
        check_paths(&access, &access.drafts()?, std::slice::from_ref(path))
    }
}

/// Refuses paths that name neither a draft nor anything else, as far as may be seen.
pub(super) fn check_paths(access: &Access<'_>, drafts: &[DraftInfo], paths: &[ArtifactPath]) -> Result<()> {
    for path in paths {
        // A directory may be visible as part of a draft's former path only.
        if !drafts.iter().any(|draft| selects(std::slice::from_ref(path), draft)) {
            access.entry(path)?;
        }
    }
    Ok(())
}

pub(super) fn sealed_save(actor: &Actor, draft: &DraftInfo, file: &str) -> Sealed {
    Sealed { checkout: actor.checkout, artifact: draft.artifact, file: file.to_owned() }
}

/// Whether a request for some paths (none: everything) names a draft.
pub(super) fn selects(paths: &[ArtifactPath], draft: &DraftInfo) -> bool {
    let of_draft = [Some(&draft.path), draft.before.as_ref()];
    paths.is_empty()
        || paths.iter().any(|wanted| of_draft.into_iter().flatten().any(|path| path.is_within(wanted)))
}
