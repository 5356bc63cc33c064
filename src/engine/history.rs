use std::io::Read;

use super::{Action, ChangedItem, EngineError, LogEntry, LoggedItem, Result, Workspace};
use crate::catalog::{ChangeRecord, ChangeRecordItem};
use crate::model::{ArtifactPath, CheckoutId, Content, VersionInfo, VersionNumber};

impl Workspace {
    /// The newest `limit` changes (none: all), newest first; of one path, those that touched what is or was there, across renames.
    pub fn log(&self, under: Option<&ArtifactPath>, limit: Option<usize>) -> Result<Vec<LogEntry>> {
        let access = self.access(CheckoutId(0))?;
        let hidden = under.is_some_and(|path| !access.sees_path(path));
        // The catalog's errors are what the closure can fail with; others it keeps.
        let mut failed = None;
        let mut sees = |item: &ChangeRecordItem| match access.sees_item(item) {
            Ok(seen) => seen,
            Err(error) => {
                failed = Some(error);
                false
            }
        };
        let records = self.in_catalog(self.catalog().log_seen(under, limit, hidden, &mut sees))?;
        if let Some(error) = failed {
            return Err(error);
        }
        if let Some(path) = under.filter(|path| records.is_empty() && !path.is_root()) {
            return Err(EngineError::NotFound(path.clone()));
        }
        Ok(records.into_iter().map(log_entry).collect())
    }

    /// Opens the bytes of a version of a path's file (none: the newest), also of one that is deleted; of a symlink,
    /// its target.
    pub fn read_version(&self, path: &ArtifactPath, number: Option<VersionNumber>) -> Result<Box<dyn Read>> {
        match self.version_at(path, number)?.content {
            Content::Blob(digest) => Ok(Box::new(self.open_blob(&digest)?)),
            Content::Target(target) => Ok(Box::new(std::io::Cursor::new(target))),
            Content::None | Content::Staged(_) | Content::Direct(_) => {
                Err(EngineError::Refused(format!("{path}: is a directory; name a file")))
            }
        }
    }

    /// A version of what a path names in the head tree, or named last; without a number the newest.
    pub(super) fn version_at(
        &self,
        path: &ArtifactPath,
        number: Option<VersionNumber>,
    ) -> Result<VersionInfo> {
        let access = self.access(CheckoutId(0))?;
        let known = self.in_catalog(self.catalog().artifact_at(path, !access.sees_path(path)))?;
        let not_found = || EngineError::NotFound(path.clone());
        let known = known.ok_or_else(not_found)?;
        if !access.sees(known.artifact)? {
            return Err(not_found());
        }
        let newest = known.newest.ok_or_else(|| EngineError::NotFound(path.clone()))?;
        let number = number.unwrap_or(newest);
        let version = self.in_catalog(self.catalog().version(known.artifact, number))?;
        version.ok_or_else(|| {
            EngineError::Refused(format!("{path}: has no version {number}; the newest is {newest}"))
        })
    }
}

fn log_entry(record: ChangeRecord) -> LogEntry {
    LogEntry {
        change: record.number,
        at: record.at,
        author: record.author,
        message: record.message,
        items: record.items.into_iter().map(logged_item).collect(),
    }
}

fn logged_item(item: ChangeRecordItem) -> LoggedItem {
    let digest = item.version.as_ref().and_then(|version| match version.content {
        Content::Blob(digest) => Some(digest),
        _ => None,
    });
    let size = item.version.as_ref().map_or(0, |version| version.size);
    let number = item.version.map(|version| version.number);
    LoggedItem { item: changed_item(item.before, item.after, number), digest, size, base: item.base }
}

/// Says by paths what was done to an artifact.
pub(super) fn changed_item(
    before: Option<ArtifactPath>,
    after: Option<ArtifactPath>,
    version: Option<VersionNumber>,
) -> ChangedItem {
    match (before, after) {
        (Some(before), Some(after)) if before == after => {
            ChangedItem { action: Action::Modified, path: after, from: None, version }
        }
        (Some(before), Some(after)) => {
            ChangedItem { action: Action::Renamed, path: after, from: Some(before), version }
        }
        (None, Some(after)) => ChangedItem { action: Action::Added, path: after, from: None, version },
        (before, None) => {
            ChangedItem { action: Action::Deleted, path: before.unwrap_or_default(), from: None, version }
        }
    }
}
