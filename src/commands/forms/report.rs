use serde::{Deserialize, Serialize};

use super::text::{read_text, read_time};
use super::{Form, FormError, HostPathForm, LeaseStatusForm, PathForm, all, read_all};
use crate::engine::{
    Action, ChangedItem, CheckInReport, DraftStatus, LogEntry, LoggedItem, MountStatus, RecoveryCopy,
    RevertReport, SettleReport, SharingStatus, StatusReport, Unshared,
};
use crate::model::{ArtifactId, ArtifactPath, ChangeNumber, Kind, VersionNumber};

/// What is done to an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", remote = "Action")]
enum ActionForm {
    Added,
    Modified,
    Deleted,
    Renamed,
}

/// What sort of thing it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", remote = "Kind")]
enum KindForm {
    File,
    Symlink,
    Directory,
    Fifo,
    Socket,
}

/// One artifact in a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemForm {
    /// `added`, `modified`, `deleted` or `renamed`.
    #[serde(with = "ActionForm")]
    pub action: Action,
    /// Where it is, or was.
    #[serde(flatten)]
    pub path: PathForm,
    /// Where it was before a rename.
    #[serde(default)]
    pub from: Option<String>,
    /// Its bytes, where they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_hex: Option<String>,
    /// Its new version.
    #[serde(default)]
    pub version: Option<i64>,
}

impl Form for ItemForm {
    type Value = ChangedItem;

    fn of(item: &ChangedItem) -> Self {
        let (from, from_hex) = write_from(item.from.as_ref());
        Self {
            action: item.action,
            path: PathForm::of(&item.path),
            from,
            from_hex,
            version: item.version.map(|v| v.0),
        }
    }

    fn read(self) -> Result<ChangedItem, FormError> {
        Ok(ChangedItem {
            action: self.action,
            path: self.path.read()?,
            from: read_from(self.from, self.from_hex)?,
            version: self.version.map(VersionNumber),
        })
    }
}

fn write_from(path: Option<&ArtifactPath>) -> (Option<String>, Option<String>) {
    path.map(PathForm::of).map_or((None, None), |form| (Some(form.path), form.path_hex))
}

fn read_from(path: Option<String>, path_hex: Option<String>) -> Result<Option<ArtifactPath>, FormError> {
    path.map(|path| PathForm { path, path_hex }.read()).transpose()
}

/// What a check-in did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckInForm {
    /// The new change; null if there was nothing to check in.
    pub change: Option<i64>,
    /// What it holds.
    pub items: Vec<ItemForm>,
    /// Files with ambiguous names that were touched too lately to count as documents.
    #[serde(default)]
    pub left_out: Vec<PathForm>,
}

impl Form for CheckInForm {
    type Value = CheckInReport;

    fn of(report: &CheckInReport) -> Self {
        let change = report.change.map(|c| c.0);
        Self { change, items: all(&report.items), left_out: all(&report.left_out) }
    }

    fn read(self) -> Result<CheckInReport, FormError> {
        let change = self.change.map(ChangeNumber);
        Ok(CheckInReport { change, items: read_all(self.items)?, left_out: read_all(self.left_out)? })
    }
}

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountForm {
    /// The mountpoint.
    pub mountpoint: String,
    /// Its bytes, where they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mountpoint_hex: Option<String>,
    /// The daemon.
    pub pid: u32,
    /// `passthrough` or `cached`; null where the daemon doesn't answer.
    #[serde(default)]
    pub reads: Option<String>,
}

impl Form for MountForm {
    type Value = MountStatus;

    fn of(mount: &MountStatus) -> Self {
        let HostPathForm { path: mountpoint, path_hex: mountpoint_hex } = HostPathForm::of(&mount.mountpoint);
        Self { mountpoint, mountpoint_hex, pid: mount.pid, reads: mount.reads.clone() }
    }

    fn read(self) -> Result<MountStatus, FormError> {
        let mountpoint = HostPathForm { path: self.mountpoint, path_hex: self.mountpoint_hex }.read()?;
        Ok(MountStatus { mountpoint, pid: self.pid, reads: self.reads })
    }
}

/// One path that differs from the head tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraftForm {
    /// Where it is in the checkout.
    #[serde(flatten)]
    pub path: PathForm,
    /// Where it is in the head tree, if elsewhere.
    #[serde(default)]
    pub from: Option<String>,
    /// Its bytes, where they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_hex: Option<String>,
    /// `added`, `modified`, `deleted` or `renamed`.
    #[serde(with = "ActionForm")]
    pub action: Action,
    /// `file`, `symlink`, `directory`, `fifo` or `socket`.
    #[serde(with = "KindForm")]
    pub kind: Kind,
    /// Whether bytes were written that no save holds yet.
    pub dirty: bool,
    /// Whether the head has moved since.
    pub stale: bool,
    /// The version that it was made on.
    #[serde(default)]
    pub base: Option<i64>,
    /// The size of the last save, in bytes.
    pub size: u64,
}

impl Form for DraftForm {
    type Value = DraftStatus;

    fn of(draft: &DraftStatus) -> Self {
        let (from, from_hex) = write_from(draft.from.as_ref());
        Self {
            path: PathForm::of(&draft.path),
            from,
            from_hex,
            action: draft.action,
            kind: draft.kind,
            dirty: draft.dirty,
            stale: draft.stale,
            base: draft.base.map(|v| v.0),
            size: draft.size,
        }
    }

    fn read(self) -> Result<DraftStatus, FormError> {
        Ok(DraftStatus {
            path: self.path.read()?,
            from: read_from(self.from, self.from_hex)?,
            action: self.action,
            kind: self.kind,
            dirty: self.dirty,
            stale: self.stale,
            base: self.base.map(VersionNumber),
            size: self.size,
        })
    }
}

/// Bytes that were written and are in no draft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryForm {
    /// Names the copy.
    pub id: String,
    /// The artifact's identity.
    #[serde(default)]
    pub artifact: Option<String>,
    /// Where it was.
    #[serde(flatten)]
    pub path: PathForm,
    /// The version that the bytes were made on.
    #[serde(default)]
    pub base: Option<i64>,
    /// Whose they are.
    pub holder: String,
    /// When they were put aside.
    pub at: String,
    /// How many bytes.
    pub size: u64,
    /// Why they are no draft.
    pub reason: String,
}

impl Form for RecoveryForm {
    type Value = RecoveryCopy;

    fn of(copy: &RecoveryCopy) -> Self {
        Self {
            id: copy.id.clone(),
            artifact: copy.artifact.map(|id| id.to_string()),
            path: PathForm::of(&copy.path),
            base: copy.base.map(|v| v.0),
            holder: copy.holder.to_string(),
            at: copy.at.to_rfc3339(),
            size: copy.size,
            reason: copy.reason.clone(),
        }
    }

    fn read(self) -> Result<RecoveryCopy, FormError> {
        let artifact = self.artifact.map(|id| read_text(&id, "artifact", "identity")).transpose()?;
        Ok(RecoveryCopy {
            id: self.id,
            artifact: artifact.map(ArtifactId),
            path: self.path.read()?,
            base: self.base.map(VersionNumber),
            holder: read_text(&self.holder, "holder", "holder")?,
            at: read_time(&self.at, "at")?,
            size: self.size,
            reason: self.reason,
        })
    }
}

/// What the shared store is not known to have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharingForm {
    /// How many changes.
    pub changes: u64,
    /// How many blobs of theirs.
    pub blobs: u64,
    /// The bytes of those that versions name.
    pub bytes: u64,
    /// When the shared store could not be brought up to date; null if it could at last.
    #[serde(default)]
    pub failed_at: Option<String>,
    /// Why.
    #[serde(default)]
    pub failure: Option<String>,
}

impl Form for SharingForm {
    type Value = SharingStatus;

    fn of(status: &SharingStatus) -> Self {
        let Unshared { changes, blobs, bytes } = status.unshared;
        let (failed_at, failure) = match &status.failure {
            Some((at, text)) => (Some(at.to_rfc3339()), Some(text.clone())),
            None => (None, None),
        };
        Self { changes, blobs, bytes, failed_at, failure }
    }

    fn read(self) -> Result<SharingStatus, FormError> {
        let Self { changes, blobs, bytes, failed_at, failure } = self;
        let failed_at = failed_at.map(|at| read_time(&at, "failed_at")).transpose()?;
        Ok(SharingStatus { unshared: Unshared { changes, blobs, bytes }, failure: failed_at.zip(failure) })
    }
}

/// What a checkout changed and holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusForm {
    /// The holder of the checkout's leases.
    pub holder: Option<String>,
    /// Where it is mounted; null if it isn't.
    pub mount: Option<MountForm>,
    /// The newest change.
    pub head: Option<i64>,
    /// What is changed.
    pub drafts: Vec<DraftForm>,
    /// The leases that anybody holds.
    pub leases: Vec<LeaseStatusForm>,
    /// Files with ambiguous names, which a check-in takes as documents once they were left alone for a time.
    #[serde(default)]
    pub provisional: Vec<PathForm>,
    /// The number of scratch files.
    pub scratch: u64,
    /// The recovery copies of the checkout.
    pub recovered: Vec<RecoveryForm>,
    /// What failed in the background.
    pub problems: Vec<String>,
    /// What others asked the holder for, a line each.
    #[serde(default)]
    pub asks: Vec<String>,
    /// What the shared store is not known to have; null where none is configured.
    #[serde(default)]
    pub sharing: Option<SharingForm>,
}

impl Form for StatusForm {
    type Value = StatusReport;

    fn of(report: &StatusReport) -> Self {
        Self {
            holder: report.holder.as_ref().map(ToString::to_string),
            mount: report.mount.as_ref().map(MountForm::of),
            head: report.head.map(|c| c.0),
            drafts: all(&report.drafts),
            leases: all(&report.leases),
            provisional: all(&report.provisional),
            scratch: report.scratch,
            recovered: all(&report.recovered),
            problems: report.problems.clone(),
            asks: report.asks.clone(),
            sharing: report.sharing.as_ref().map(SharingForm::of),
        }
    }

    fn read(self) -> Result<StatusReport, FormError> {
        Ok(StatusReport {
            holder: self.holder.map(|text| read_text(&text, "holder", "holder")).transpose()?,
            mount: self.mount.map(Form::read).transpose()?,
            head: self.head.map(ChangeNumber),
            drafts: read_all(self.drafts)?,
            leases: read_all(self.leases)?,
            provisional: read_all(self.provisional)?,
            scratch: self.scratch,
            recovered: read_all(self.recovered)?,
            problems: self.problems,
            asks: self.asks,
            sharing: self.sharing.map(Form::read).transpose()?,
        })
    }
}

/// What a revert did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevertForm {
    /// The paths that show the head again.
    pub reverted: Vec<PathForm>,
    /// Where their bytes are.
    pub recovered: Vec<RecoveryForm>,
}

impl Form for RevertForm {
    type Value = RevertReport;

    fn of(report: &RevertReport) -> Self {
        Self { reverted: all(&report.reverted), recovered: all(&report.recovered) }
    }

    fn read(self) -> Result<RevertReport, FormError> {
        Ok(RevertReport { reverted: read_all(self.reverted)?, recovered: read_all(self.recovered)? })
    }
}

/// What settling came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettleForm {
    /// Files with bytes that are no save yet.
    pub unsettled: Vec<PathForm>,
    /// What failed.
    pub problems: Vec<String>,
}

impl Form for SettleForm {
    type Value = SettleReport;

    fn of(report: &SettleReport) -> Self {
        Self { unsettled: all(&report.unsettled), problems: report.problems.clone() }
    }

    fn read(self) -> Result<SettleReport, FormError> {
        Ok(SettleReport { unsettled: read_all(self.unsettled)?, problems: self.problems })
    }
}

/// One artifact in a change, as a log shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LoggedForm {
    /// What was done.
    #[serde(flatten)]
    pub item: ItemForm,
    /// The version's bytes, `sha256:` and 64 digits.
    pub digest: Option<String>,
    /// Their number.
    pub size: u64,
    /// The version that it was made on.
    pub base: Option<i64>,
}

impl LoggedForm {
    fn of(logged: &LoggedItem) -> Self {
        Self {
            item: ItemForm::of(&logged.item),
            digest: logged.digest.map(|digest| format!("sha256:{digest}")),
            size: logged.size,
            base: logged.base.map(|v| v.0),
        }
    }
}

/// One change, as a log shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogForm {
    /// The change.
    pub change: i64,
    /// When.
    pub at: String,
    /// Who.
    pub author: String,
    /// Why.
    pub message: String,
    /// What it did.
    pub items: Vec<LoggedForm>,
}

impl LogForm {
    /// Writes a change.
    pub fn of(entry: &LogEntry) -> Self {
        Self {
            change: entry.change.0,
            at: entry.at.to_rfc3339(),
            author: entry.author.to_string(),
            message: entry.message.clone(),
            items: entry.items.iter().map(LoggedForm::of).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    use super::*;
    use crate::engine::LeaseStatus;
    use crate::model::{Generation, Lease, ResourceKey, Timestamp};

    fn path(bytes: &[u8]) -> ArtifactPath {
        ArtifactPath::parse(Path::new(std::ffi::OsStr::from_bytes(bytes))).unwrap()
    }

    fn report() -> StatusReport {
        let lease = Lease {
            key: ResourceKey::Free("thread:1".into()),
            holder: "ada@desk".parse().unwrap(),
            generation: Generation(4),
            expires_boot_ms: 77,
            boot: 1,
            expires: Timestamp(1_796_000_000_000_000_000),
            fenced: false,
        };
        let draft = DraftStatus {
            path: path(b"new\xff"),
            from: Some(path(b"old")),
            action: Action::Renamed,
            kind: Kind::File,
            dirty: true,
            stale: false,
            base: Some(VersionNumber(3)),
            size: 12,
        };
        let copy = RecoveryCopy {
            id: "7".into(),
            artifact: Some(ArtifactId(uuid::Uuid::from_u128(9))),
            path: path(b"a"),
            base: None,
            holder: "ada@desk".parse().unwrap(),
            at: Timestamp(1_796_000_000_000_000_000),
            size: 5,
            reason: "the lease was lost".into(),
        };
        StatusReport {
            holder: Some("ada@desk".parse().unwrap()),
            mount: Some(MountStatus { mountpoint: "/mnt/x y".into(), pid: 5, reads: Some("cached".into()) }),
            head: Some(ChangeNumber(8)),
            drafts: vec![draft],
            leases: vec![
                LeaseStatus {
                    path: Some(path(b"a\xfe")),
                    lease: lease.clone(),
                    live: true,
                    quarantined: false,
                },
                LeaseStatus { path: None, lease, live: false, quarantined: true },
            ],
            provisional: vec![path(b"a.part")],
            scratch: 2,
            recovered: vec![copy],
            sharing: Some(SharingStatus {
                unshared: Unshared { changes: 1, blobs: 2, bytes: 3 },
                failure: Some((Timestamp(1), "down".into())),
            }),
            problems: vec!["a: check-in failed".into()],
            asks: vec!["a: bob@desk: please".into()],
        }
    }

    #[test]
    fn a_status_survives_its_json() {
        let form = StatusForm::of(&report());
        let json = serde_json::to_string(&form).unwrap();
        let again: StatusForm = serde_json::from_str(&json).unwrap();
        assert_eq!(again, form);
        let value = again.read().unwrap();
        assert_eq!((value.drafts, value.leases, value.recovered, value.provisional), {
            let r = report();
            (r.drafts, r.leases, r.recovered, r.provisional)
        });
    }

    /// The names are a contract with other programs.
    #[test]
    fn field_names_are_as_documented() {
        let json = serde_json::to_value(StatusForm::of(&report())).unwrap();
        assert_eq!(
            json["drafts"][0],
            serde_json::json!({
                "path": "new\\xff", "path_hex": "6e6577ff", "from": "old", "action": "renamed",
                "kind": "file", "dirty": true, "stale": false, "base": 3, "size": 12
            })
        );
        assert_eq!(
            json["leases"][1],
            serde_json::json!({
                "key": "thread:1", "holder": "ada@desk", "generation": 4, "expires": "2026-11-30T00:53:20Z",
                "expires_boot_ms": 77, "boot": 1, "fenced": false, "live": false, "quarantined": true
            })
        );
        assert_eq!(json["mount"], serde_json::json!({"mountpoint": "/mnt/x y", "pid": 5, "reads": "cached"}));
        assert_eq!(json["recovered"][0]["at"], "2026-11-30T00:53:20Z");
    }
}
