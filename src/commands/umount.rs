use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::checkin;
use super::error::{CommandError, Result};
use super::forms::{CheckInForm, DraftForm, Form, HostPathForm, LeaseStatusForm, all};
use super::output::Printer;
use super::place::{Context, Mount, holder_of_mount, is_dead, locate_mountpoint};
use super::remote::Remote;
use super::status::{draft_rows, lease_rows, section};
use super::users::{Target, users_of};
use crate::cli::UmountArgs;
use crate::clock::Clock;
use crate::engine::{CheckInReport, CheckInRequest, CheckoutOps, DraftStatus, LeaseStatus, MountStatus};
use crate::model::{ArtifactPath, Holder, Instant};
use crate::sys;

/// How often the daemon is looked for, until it has ended.
const POLL: Duration = Duration::from_millis(20);
/// How long a daemon may take to end once it has answered that all is flushed.
const MAX_POLLS: u32 = 3_000;

/// What an unmounted checkout leaves behind.
struct Farewell {
    holder: Holder,
    check_in: Option<CheckInReport>,
    drafts: Vec<DraftStatus>,
    leases: Vec<LeaseStatus>,
    problems: Vec<String>,
    quiet_ms: i64,
}

#[derive(Serialize)]
struct UmountForm {
    mountpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mountpoint_hex: Option<String>,
    /// Null if the mount was dead.
    holder: Option<String>,
    checkin: Option<CheckInForm>,
    drafts: Vec<DraftForm>,
    leases: Vec<LeaseStatusForm>,
    problems: Vec<String>,
}

/// Takes a mount away, and tells what is still checked out.
pub(super) fn run(args: &UmountArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let mount = find_mount(context, &args.mountpoint)?;
    leave_directory()?;
    let farewell = if is_dead(context, mount) {
        detach_dead(&mount.mountpoint)?;
        None
    } else {
        let holder = holder_of_mount(&context.mounts, mount)?;
        Some(unmount(args, context, mount, holder)?)
    };
    let now = context.environment.clock.now();
    let form = form_of(&mount.mountpoint, farewell.as_ref());
    let human = |out: &mut dyn Write| farewell.as_ref().map_or(Ok(()), |left| print(out, left, now));
    Printer::new(out, args.format.json).print(&form, human)?;
    Ok(())
}

fn find_mount<'a>(context: &'a Context, argument: &Path) -> Result<&'a Mount> {
    let path = locate_mountpoint(&context.mounts, &context.cwd, argument)?;
    let mount = context.mounts.on(&path).ok_or_else(|| CommandError::NotAMount(argument.to_owned()))?;
    let original = context.mounts.original(mount);
    if original.mountpoint == mount.mountpoint {
        return Ok(mount);
    }
    Err(CommandError::Alias { path, mountpoint: original.mountpoint.clone() })
}

/// Our own working directory must not keep the mount busy.
fn leave_directory() -> Result<()> {
    let root = Path::new("/");
    std::env::set_current_dir(root).map_err(|source| file_error("enter", root, source))
}

fn detach_dead(mountpoint: &Path) -> Result<()> {
    sys::detach_mount(mountpoint).map_err(|source| file_error("unmount", mountpoint, source))
}

fn file_error(doing: &'static str, path: &Path, source: io::Error) -> CommandError {
    CommandError::File { doing, path: path.to_owned(), source }
}

fn unmount(args: &UmountArgs, context: &Context, mount: &Mount, holder: Holder) -> Result<Farewell> {
    let workspace = context.open(&mount.source)?;
    let status = workspace.live_mount(&holder)?;
    let status = status.ok_or_else(|| CommandError::NotAMount(mount.mountpoint.clone()))?;
    let daemon = sys::process(status.pid).map_err(|source| silent(&status, source))?;
    let remote = Remote::of(&workspace, &holder, status.clone())?;
    if !args.lazy {
        refuse_if_used(context, mount, status.pid)?;
    }
    let mut farewell = prepare(args, &remote, holder, workspace.policy().quiet_ms)?;
    let asked = remote.unmount(args.lazy);
    if asked.is_err() {
        // Somebody may have come in since we looked; then his name says more than the daemon's error.
        refuse_if_used(context, mount, status.pid)?;
    }
    farewell.problems.extend(asked?);
    if !args.lazy {
        wait_for_end(&*context.environment.clock, daemon, &mount.mountpoint)?;
    }
    Ok(farewell)
}

fn silent(status: &MountStatus, source: io::Error) -> CommandError {
    CommandError::DaemonSilent { mountpoint: status.mountpoint.clone(), pid: status.pid, source }
}

fn refuse_if_used(context: &Context, mount: &Mount, daemon: u32) -> Result<()> {
    let target = Target { mountpoints: &context.mounts.mountpoints_of(&mount.device), device: &mount.device };
    let users = users_of(&target, &[daemon, std::process::id()]);
    if users.is_empty() {
        return Ok(());
    }
    let users: Vec<_> = users.iter().map(|user| format!("{} ({})", user.pid, user.command)).collect();
    Err(CommandError::Busy { mountpoint: mount.mountpoint.clone(), users: users.join(", ") })
}

/// Settles, checks in if that was asked for, and sees what is left.
fn prepare(args: &UmountArgs, remote: &Remote, holder: Holder, quiet_ms: i64) -> Result<Farewell> {
    let settled = remote.settle(&ArtifactPath::root())?;
    let check_in = args.message.as_deref().map(|message| check_in_all(remote, message)).transpose()?;
    let status = remote.status(&ArtifactPath::root())?;
    let own = |status: &LeaseStatus| status.live && status.lease.holder == holder;
    let leases = status.leases.into_iter().filter(own).collect();
    let (drafts, problems) = (status.drafts, settled.problems);
    Ok(Farewell { holder, check_in, drafts, leases, problems, quiet_ms })
}

fn check_in_all(remote: &Remote, message: &str) -> Result<CheckInReport> {
    let request = CheckInRequest { message: message.to_owned(), ..CheckInRequest::default() };
    Ok(remote.check_in(&request)?)
}

fn wait_for_end(clock: &dyn Clock, daemon: sys::ProcessKey, mountpoint: &Path) -> Result<()> {
    for _ in 0..MAX_POLLS {
        if !sys::is_alive(daemon) {
            return Ok(());
        }
        clock.sleep(POLL);
    }
    let mountpoint = PathBuf::from(mountpoint);
    Err(CommandError::StillSaving { mountpoint, pid: daemon.pid })
}

fn form_of(mountpoint: &Path, farewell: Option<&Farewell>) -> UmountForm {
    let HostPathForm { path: mountpoint, path_hex: mountpoint_hex } = HostPathForm::of(mountpoint);
    UmountForm {
        mountpoint,
        mountpoint_hex,
        holder: farewell.map(|left| left.holder.to_string()),
        checkin: farewell.and_then(|left| left.check_in.as_ref()).map(CheckInForm::of),
        drafts: farewell.map_or_else(Vec::new, |left| all(&left.drafts)),
        leases: farewell.map_or_else(Vec::new, |left| all(&left.leases)),
        problems: farewell.map_or_else(Vec::new, |left| left.problems.clone()),
    }
}

fn print(out: &mut dyn Write, farewell: &Farewell, now: Instant) -> io::Result<()> {
    if let Some(report) = &farewell.check_in {
        checkin::human(out, report, farewell.quiet_ms)?;
    }
    let holder = &farewell.holder;
    section(out, &format!("drafts that {holder} keeps"), &draft_rows(&farewell.drafts))?;
    section(out, &format!("leases that {holder} keeps"), &lease_rows(&farewell.leases, now))?;
    let problems: Vec<_> = farewell.problems.iter().map(|problem| vec![problem.clone()]).collect();
    section(out, "problems", &problems)
}
