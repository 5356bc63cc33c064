use std::io::{self, Write};

use super::error::{Result, one_line};
use super::forms::{Form, StatusForm};
use super::output::{Printer, human_size, letter, table, time_left};
use super::place::Context;
use crate::cli::StatusArgs;
use crate::config::duration_text;
use crate::engine::{DraftStatus, LeaseStatus, RecoveryCopy, SharingStatus, StatusReport, Unshared};
use crate::model::{ArtifactPath, Instant};

/// Shows what a checkout changed and holds.
pub(super) fn run(args: &StatusArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let common = &args.common;
    let site = context.site(&common.workspace, &common.checkout_of, args.path.as_slice())?;
    let report = site.ops()?.status(&site.path_or_root())?;
    let now = context.environment.clock.now();
    let quiet_ms = site.workspace.policy().quiet_ms;
    Printer::new(out, common.format.json)
        .print(&StatusForm::of(&report), |out| human(out, &report, now, quiet_ms))?;
    Ok(())
}

fn human(out: &mut dyn Write, report: &StatusReport, now: Instant, quiet_ms: i64) -> io::Result<()> {
    head(out, report)?;
    section(out, "drafts", &draft_rows(&report.drafts))?;
    left_out(out, &report.provisional, quiet_ms)?;
    section(out, "leases", &lease_rows(&report.leases, now))?;
    section(
        out,
        "recovery copies (`leasehold recovered restore ID DEST`)",
        &recovery_rows(&report.recovered),
    )?;
    let problems: Vec<_> = report.problems.iter().map(|problem| vec![problem.clone()]).collect();
    section(out, "problems", &problems)?;
    let asks: Vec<_> = report.asks.iter().map(|ask| vec![ask.clone()]).collect();
    section(out, "asked of you (`leasehold lease release` gives it back)", &asks)?;
    sharing(out, report.sharing.as_ref())?;
    if report.scratch > 0 {
        writeln!(out, "scratch files: {}", report.scratch)?;
    }
    Ok(())
}

fn head(out: &mut dyn Write, report: &StatusReport) -> io::Result<()> {
    let holder = report.holder.as_ref().map_or_else(|| "nobody".into(), ToString::to_string);
    let change = report.head.map_or_else(|| "no change yet".into(), |head| format!("change {head}"));
    let Some(mount) = &report.mount else { return writeln!(out, "{holder}, not mounted, {change}") };
    let reads = mount.reads.as_ref().map_or_else(String::new, |reads| format!(", {reads} reads"));
    let mountpoint = one_line(&mount.mountpoint.display().to_string());
    writeln!(out, "{holder} on {mountpoint} (process {}{reads}), {change}", mount.pid)
}

/// What is not in the shared store yet; nothing if all is, and there is no failure to tell.
fn sharing(out: &mut dyn Write, status: Option<&SharingStatus>) -> io::Result<()> {
    let Some(SharingStatus { unshared, failure }) = status else { return Ok(()) };
    if unshared.changes > 0 {
        let Unshared { changes, blobs, bytes } = unshared;
        writeln!(out, "not shared yet: {changes} changes, {blobs} blobs, {}", human_size(*bytes))?;
    }
    if let Some((at, text)) = failure {
        writeln!(out, "sharing failed at {}: {}", at.to_rfc3339(), one_line(text))?;
    }
    Ok(())
}

/// Prints a headed list; nothing if there is nothing.
pub(super) fn section(out: &mut dyn Write, heading: &str, rows: &[Vec<String>]) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "{heading}:")?;
    table(out, "  ", rows)
}

/// Names ambiguous files that are no documents yet, with why and what to do.
pub(super) fn left_out(out: &mut dyn Write, paths: &[ArtifactPath], quiet_ms: i64) -> io::Result<()> {
    let heading = format!(
        "names that may be temporary, left out until untouched for {} (`leasehold add PATH` takes one at once)",
        duration_text(quiet_ms)
    );
    section(out, &heading, &paths.iter().map(|path| vec![path.to_string()]).collect::<Vec<_>>())
}

/// `M*` and the path: the action's letter, `!` for stale, `*` for bytes that no save holds yet.
pub(super) fn draft_rows(drafts: &[DraftStatus]) -> Vec<Vec<String>> {
    drafts.iter().map(draft_row).collect()
}

fn draft_row(draft: &DraftStatus) -> Vec<String> {
    let mut marks = letter(draft.action).to_string();
    marks.extend(draft.stale.then_some('!'));
    marks.extend(draft.dirty.then_some('*'));
    let from = draft.from.as_ref().map_or_else(String::new, |from| format!("{from} -> "));
    let base = draft.base.map_or_else(|| "new".into(), |base| format!("on v{base}"));
    vec![marks, format!("{from}{}", draft.path), base, human_size(draft.size)]
}

/// Path or key, holder, expiry and time left.
pub(super) fn lease_rows(leases: &[LeaseStatus], now: Instant) -> Vec<Vec<String>> {
    leases.iter().map(|status| lease_row(status, now)).collect()
}

fn lease_row(status: &LeaseStatus, now: Instant) -> Vec<String> {
    let lease = &status.lease;
    let object = status.path.as_ref().map_or_else(|| lease.key.to_string(), ToString::to_string);
    vec![object, lease.holder.to_string(), lease.expires.to_rfc3339(), time_left(lease, now)]
}

/// Id, time, size, path and reason.
pub(super) fn recovery_rows(copies: &[RecoveryCopy]) -> Vec<Vec<String>> {
    copies.iter().map(recovery_row).collect()
}

fn recovery_row(copy: &RecoveryCopy) -> Vec<String> {
    let base = copy.base.map_or_else(String::new, |base| format!(" (on v{base})"));
    vec![
        copy.id.clone(),
        copy.at.to_rfc3339(),
        copy.holder.to_string(),
        human_size(copy.size),
        format!("{}{base}", copy.path),
        copy.reason.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock, ManualClock};
    use crate::engine::{Action, MountStatus};
    use crate::model::{ChangeNumber, Generation, Kind, Lease, ResourceKey, VersionNumber};

    fn draft(path: &str, action: Action, dirty: bool, stale: bool) -> DraftStatus {
        let path = ArtifactPath::parse(path).unwrap();
        let base = Some(VersionNumber(3));
        DraftStatus { path, from: None, action, kind: Kind::File, dirty, stale, base, size: 2048 }
    }

    #[test]
    fn a_status_reads_like_a_list() {
        let now = ManualClock::new().now();
        let lease = Lease {
            key: ResourceKey::Free("thread:1".into()),
            holder: "bob@desk".parse().unwrap(),
            generation: Generation(1),
            expires_boot_ms: now.boot_ms + 90_000,
            boot: now.boot,
            expires: now.wall,
            fenced: false,
        };
        let report = StatusReport {
            holder: Some("ada@desk".parse().unwrap()),
            mount: Some(MountStatus { mountpoint: "/mnt/a\nb".into(), pid: 7, reads: Some("cached".into()) }),
            head: Some(ChangeNumber(4)),
            drafts: vec![
                draft("a/b.docx", Action::Modified, true, true),
                draft("c", Action::Deleted, false, false),
            ],
            leases: vec![LeaseStatus { path: None, lease, live: true, quarantined: false }],
            provisional: vec![ArtifactPath::parse("x.part").unwrap()],
            scratch: 2,
            sharing: Some(SharingStatus {
                unshared: Unshared { changes: 1, blobs: 2, bytes: 2048 },
                failure: Some((now.wall, "no\nconnection".into())),
            }),
            ..StatusReport::default()
        };
        let mut out = Vec::new();
        human(&mut out, &report, now, 90_000).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "ada@desk on /mnt/a\\x0ab (process 7, cached reads), change 4\n\
             drafts:\n  M!*  a/b.docx  on v3  2.00 KiB\n  D    c         on v3  2.00 KiB\n\
             names that may be temporary, left out until untouched for 1m30s (`leasehold add PATH` takes one at once):\n  x.part\n\
             leases:\n  thread:1  bob@desk  2026-11-30T00:53:20Z  1m30s left\n\
             not shared yet: 1 changes, 2 blobs, 2.00 KiB\n\
             sharing failed at 2026-11-30T00:53:20Z: no\\x0aconnection\n\
             scratch files: 2\n"
        );
    }
}
