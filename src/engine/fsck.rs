//! The check of a whole workspace: that each reference has its bytes, and that each blob is what its name says.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use super::backup::is_gone;
use super::collect::Tally;
use super::manifest::{is_manifest, read_manifest};
use super::{EngineError, Result, Workspace};
use crate::blobs::{BlobError, BlobStore};
use crate::catalog::Reference;
use crate::model::{ArtifactPath, CheckoutId, Content, Digest, Holder, Seq, VersionNumber};

/// How far a check is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FsckProgress {
    /// Blobs that were read.
    pub blobs: u64,
    /// All blobs, those that are missing included.
    pub total: u64,
    /// The bytes that were read.
    pub bytes: u64,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FsckReport {
    /// The blobs that were read.
    pub checked: Tally,
    /// Those of them that nothing refers to.
    pub unreferenced: Tally,
    /// Blobs that were missing or wrong and are whole again.
    pub healed: Vec<Digest>,
    /// What is lost.
    pub lost: Vec<Lost>,
    /// What is wrong with the catalog and with files outside the store, a line each.
    pub problems: Vec<String>,
}

impl FsckReport {
    /// Whether everything is there, by now.
    pub fn is_clean(&self) -> bool {
        self.lost.is_empty() && self.problems.is_empty()
    }
}

/// Bytes that can't be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// The address.
    pub digest: Digest,
    /// Why, in one line.
    pub reason: String,
    /// Whose bytes they are; empty for a blob that nothing refers to.
    pub users: Vec<LostUse>,
}

/// What refers to lost bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LostUse {
    /// A version of an artifact.
    Version {
        /// Where the artifact is, or was.
        path: ArtifactPath,
        /// Which version.
        version: VersionNumber,
    },
    /// A draft.
    Draft {
        /// Where it is in its checkout.
        path: ArtifactPath,
        /// Whose.
        holder: Holder,
    },
    /// The manifest of a change; it can be made again.
    Manifest,
}

impl Workspace {
    /// Reads every blob, and looks at every reference.
    ///
    /// With `repair` what is not whole is fetched from the other store, if there is one, and lost manifests are made
    /// again.
    pub fn fsck(&self, repair: bool, progress: &dyn Fn(FsckProgress)) -> Result<FsckReport> {
        let source = self.remote().filter(|_| repair).map(|remote| remote.store().shared());
        if repair {
            self.renew_manifests()?;
        }
        let mut references: BTreeMap<Digest, Vec<Reference>> = BTreeMap::new();
        for (digest, reference) in self.in_catalog(self.catalog().references())? {
            references.entry(digest).or_default().push(reference);
        }
        let stored = self.blobs().inventory()?;
        let mut wanted: BTreeMap<Digest, u64> = references.keys().map(|digest| (*digest, 0)).collect();
        wanted.extend(stored.iter().map(|blob| (blob.digest, blob.size)));
        let mut report = FsckReport { problems: self.problems_outside()?, ..FsckReport::default() };
        let mut done = FsckProgress { total: wanted.len() as u64, ..FsckProgress::default() };
        for (digest, size) in wanted {
            progress(done);
            let users = references.get(&digest).map_or(&[][..], Vec::as_slice);
            self.check_blob(&mut report, source, (digest, size), users)?;
            done.blobs += 1;
            done.bytes += size;
        }
        progress(done);
        Ok(report)
    }

    fn check_blob(
        &self,
        report: &mut FsckReport,
        source: Option<&dyn BlobStore>,
        (digest, size): (Digest, u64),
        users: &[Reference],
    ) -> Result<()> {
        let Err(error) = self.blobs().check(&digest) else {
            for tally in [Some(&mut report.checked), users.is_empty().then_some(&mut report.unreferenced)] {
                tally.into_iter().for_each(|tally| tally.count(size));
            }
            if users.is_empty() {
                report.problems.extend(self.unknown_change(&digest)?);
            }
            return Ok(());
        };
        if let Some(source) = source
            && self.heal(source, &digest)?
        {
            report.healed.push(digest);
            return Ok(());
        }
        let mut named = Vec::new();
        for user in users {
            if self.may_name(user)? {
                named.push(self.lost_use(user)?);
            }
        }
        report.lost.push(Lost { digest, reason: reason(&error), users: named });
        Ok(())
    }

    /// Says so if a blob that nothing refers to is the manifest of a change that is newer than the catalog's newest: the
    /// catalog is older than the store then, and would give its number to another change.
    fn unknown_change(&self, digest: &Digest) -> Result<Option<String>> {
        let path = self.blobs().path_of(digest);
        if !File::open(path).is_ok_and(is_manifest) {
            return Ok(None);
        }
        let Ok(manifest) = self.blobs().get(digest).map_err(io::Error::other).and_then(read_manifest) else {
            return Ok(None);
        };
        let ours = self.in_catalog(self.catalog().workspace_id())?;
        let (number, head) = (manifest.change.number, self.in_catalog(self.catalog().head_change())?);
        Ok((manifest.change.workspace == ours && number > head).then(|| {
            format!(
                "change {number} is in the store, and the catalog knows none after {head}: it has lost some; \
                 unmount the workspace and let `leasehold rescue` make another"
            )
        }))
    }

    /// Gets a blob from another store; false if that one hasn't it either.
    fn heal(&self, source: &dyn BlobStore, digest: &Digest) -> Result<bool> {
        let mut bytes = match source.get(digest) {
            Ok(bytes) => bytes,
            Err(error) => {
                tracing::warn!(%digest, error = &error as &dyn std::error::Error, "can't heal a blob");
                return Ok(false);
            }
        };
        let (stored, _) = self.blobs().put(&mut bytes)?;
        Ok(stored == *digest)
    }

    /// Whether a reference may be named to who asked: that its bytes are lost is told in any case.
    fn may_name(&self, reference: &Reference) -> Result<bool> {
        match *reference {
            Reference::Version { artifact, .. } => self.access(CheckoutId(0))?.sees(artifact),
            Reference::Draft { artifact, checkout } => self.access(checkout)?.sees(artifact),
            Reference::Manifest => Ok(true),
        }
    }

    fn lost_use(&self, reference: &Reference) -> Result<LostUse> {
        match *reference {
            Reference::Version { artifact, version } => {
                // No row has the number 0: the path is the head tree's.
                let path = self.in_catalog(self.catalog().any_path_of(CheckoutId(0), artifact))?;
                Ok(LostUse::Version { path, version })
            }
            Reference::Draft { artifact, checkout } => {
                let path = self.in_catalog(self.catalog().any_path_of(checkout, artifact))?;
                let holder = self.in_catalog(self.catalog().checkout_holder(checkout))?;
                let holder = holder.ok_or_else(|| EngineError::NotFound(path.clone()))?;
                Ok(LostUse::Draft { path, holder })
            }
            Reference::Manifest => Ok(LostUse::Manifest),
        }
    }

    /// The draft's files that are gone, though the catalog still names them and no blob has taken their place.
    fn missing_files(&self, checkout: CheckoutId) -> Result<Vec<(Seq, PathBuf)>> {
        let files = || -> Result<Vec<_>> {
            let mut gone = Vec::new();
            for (artifact, content) in self.in_catalog(self.catalog().draft_files(checkout))? {
                let file = match content {
                    Content::Staged(file) if self.has_become_blob(self.catalog(), &file)? => continue,
                    Content::Staged(file) => self.layout().staging().join(file),
                    Content::Direct(file) => self.layout().scratch().join(file),
                    _ => continue,
                };
                gone.extend(is_gone(&file).then_some((artifact, file)));
            }
            Ok(gone)
        };
        let first = files()?;
        if first.is_empty() {
            return Ok(first);
        }
        // A mount may have published some of them between the two looks.
        let again = files()?;
        Ok(first.into_iter().filter(|file| again.contains(file)).collect())
    }

    /// What the database says of itself, and files that drafts name and that are gone.
    fn problems_outside(&self) -> Result<Vec<String>> {
        let mut problems = self.in_catalog(self.catalog().check_integrity())?;
        for (checkout, holder) in self.in_catalog(self.catalog().checkouts())? {
            for (artifact, file) in self.missing_files(checkout)? {
                if !self.access(checkout)?.sees(artifact)? {
                    problems.push(format!("a draft of {holder} is lost: {} is gone", file.display()));
                    continue;
                }
                let path = self.in_catalog(self.catalog().any_path_of(checkout, artifact))?;
                problems.push(format!("{path}: the draft of {holder} is lost: {} is gone", file.display()));
            }
        }
        Ok(problems)
    }
}

fn reason(error: &BlobError) -> String {
    match error {
        BlobError::Missing { .. } => "missing".into(),
        BlobError::Corrupt { found, .. } => format!("corrupt: its bytes are {found}"),
        error => match error.io_error() {
            Some(source) => format!("unreadable: {source}"),
            None => error.to_string(),
        },
    }
}
