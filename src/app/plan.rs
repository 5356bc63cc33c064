use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::{AppError, Result};
use crate::cli::{CheckinMode, MountArgs};
use crate::commands::error::CommandError;
use crate::commands::place::{Context, MountTable, is_dead, locate_mountpoint};
use crate::config::LeasePolicy;
use crate::engine::Workspace;
use crate::model::Holder;
use crate::sys;

/// How often, and how long at a time, a daemon that is ending is waited for.
const ENDING_ATTEMPTS: u32 = 100;
const ENDING_PAUSE: Duration = Duration::from_millis(50);

/// Dead mounts may lie on top of each other, but not without end.
const MAX_DEAD_MOUNTS: u32 = 16;

/// A mount as it will be: every default is filled in, and every path is absolute and without symlinks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MountPlan {
    pub(super) workspace: PathBuf,
    /// The workspace's `log/` directory.
    pub(super) log: PathBuf,
    pub(super) mountpoint: PathBuf,
    pub(super) user: String,
    pub(super) checkout: String,
    pub(super) holder: Holder,
    /// How long leases last, if not as the policy has it.
    pub(super) ttl_ms: Option<i64>,
    pub(super) checkin: CheckinMode,
    pub(super) read_only: bool,
    pub(super) allow_other: bool,
    /// Who is judged by the access rules instead of this user. The daemon inherits it with the environment.
    pub(super) principal: Option<OsString>,
}

impl MountPlan {
    /// Fills in the defaults, and checks that the mount can be made; a dead mount in its place is taken away.
    pub(super) fn new(args: &MountArgs, context: &Context) -> Result<Self> {
        let workspace = context.open(&args.workspace)?;
        if workspace.is_archived() {
            return Err(AppError::Archived(workspace.root().to_owned()));
        }
        let (user, checkout) = context.user_and_checkout(args.user.as_deref(), args.checkout.as_deref())?;
        let holder = context.holder(Some(&user), Some(&checkout))?;
        refuse_mounted(context, &workspace, &holder)?;
        let mountpoint = free_mountpoint(context, &args.mountpoint)?;
        refuse_covering(&mountpoint, workspace.root())?;
        Ok(Self {
            workspace: workspace.root().to_owned(),
            log: workspace.layout().log().to_owned(),
            mountpoint,
            user,
            checkout,
            holder,
            ttl_ms: permitted_ttl(args.ttl_ms, &workspace.policy().leasing)?,
            checkin: args.checkin,
            read_only: args.read_only,
            allow_other: args.allow_other,
            principal: context.principal.clone(),
        })
    }

    /// The arguments that make this program the plan's daemon.
    pub(super) fn daemon_arguments(&self) -> Vec<OsString> {
        let checkin = if self.checkin == CheckinMode::Close { "close" } else { "manual" };
        let mut arguments: Vec<OsString> = vec!["mount".into(), "--foreground".into()];
        // One word each, since a name may begin with a dash.
        arguments.push(format!("--as={}", self.user).into());
        arguments.push(format!("--checkout={}", self.checkout).into());
        arguments.extend(self.ttl_ms.map(|ttl_ms| format!("--ttl={ttl_ms}ms").into()));
        arguments.push(format!("--checkin={checkin}").into());
        arguments.extend(self.read_only.then(|| "--read-only".into()));
        arguments.extend(self.allow_other.then(|| "--allow-other".into()));
        arguments.extend(["--".into(), self.workspace.clone().into(), self.mountpoint.clone().into()]);
        arguments
    }
}

/// The time that is asked for, unless it is longer than what policy permits everywhere; rules may still cut it.
fn permitted_ttl(ttl_ms: Option<i64>, policy: &LeasePolicy) -> Result<Option<i64>> {
    match ttl_ms {
        Some(ttl_ms) if ttl_ms > policy.max_ttl_ms => {
            Err(AppError::TtlTooLong { ttl_ms, max_ttl_ms: policy.max_ttl_ms })
        }
        _ => Ok(ttl_ms),
    }
}

/// Tells early and in full what `Workspace::begin_mount` will decide. A daemon whose mount is gone already, or that was
/// killed a moment ago, is about to end, and is waited for.
fn refuse_mounted(context: &Context, workspace: &Workspace, holder: &Holder) -> Result<()> {
    for _ in 0..ENDING_ATTEMPTS {
        match workspace.live_mount(holder)? {
            Some(mount) if !is_served(context, &mount.mountpoint)? => workspace.clock().sleep(ENDING_PAUSE),
            _ => break,
        }
    }
    match workspace.live_mount(holder)? {
        Some(mount) => Err(AppError::CheckoutMounted {
            holder: holder.clone(),
            mountpoint: mount.mountpoint,
            pid: mount.pid,
        }),
        None => Ok(()),
    }
}

fn is_served(context: &Context, mountpoint: &Path) -> Result<bool> {
    Ok(read_mounts()?.on(mountpoint).is_some_and(|mount| !is_dead(context, mount)))
}

/// A mountpoint that is a directory, and on which no mount of ours is, dead or alive.
fn free_mountpoint(context: &Context, argument: &Path) -> Result<PathBuf> {
    let failed = |source| CommandError::File { doing: "mount on", path: argument.to_owned(), source };
    let path = locate_mountpoint(&context.mounts, &context.cwd, argument)?;
    clear_dead(context, &path)?;
    let path = fs::canonicalize(&path).map_err(failed)?;
    if !fs::metadata(&path).map_err(failed)?.is_dir() {
        return Err(AppError::NotADirectory(path));
    }
    match read_mounts()?.on(&path) {
        Some(_) => Err(AppError::MountpointTaken(path)),
        None => Ok(path),
    }
}

/// Takes mounts of ours away whose daemon is gone.
fn clear_dead(context: &Context, mountpoint: &Path) -> Result<()> {
    for _ in 0..MAX_DEAD_MOUNTS {
        if read_mounts()?.on(mountpoint).is_none_or(|mount| !is_dead(context, mount)) {
            break;
        }
        sys::detach_mount(mountpoint).map_err(|source| {
            let path = mountpoint.to_owned();
            CommandError::File { doing: "take away the dead mount on", path, source }
        })?;
    }
    Ok(())
}

fn read_mounts() -> Result<MountTable> {
    MountTable::read().map_err(|source| AppError::Setup { doing: "read /proc/self/mountinfo", source })
}

/// A daemon whose own files lie behind its mount would wait for itself.
fn refuse_covering(mountpoint: &Path, workspace: &Path) -> Result<()> {
    let own = workspace.join(".leasehold");
    if own.starts_with(mountpoint) || mountpoint.starts_with(&own) {
        return Err(AppError::CoversWorkspace(mountpoint.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn the_daemons_arguments_mean_the_same_plan() {
        let plan = MountPlan {
            workspace: "/-w s".into(),
            log: "/-w s/log".into(),
            mountpoint: "/m\nt".into(),
            user: "-ada".into(),
            checkout: "desk=1".into(),
            holder: "-ada@desk=1".parse().unwrap(),
            ttl_ms: Some(90_500),
            checkin: CheckinMode::Close,
            read_only: true,
            allow_other: false,
            principal: None,
        };
        let arguments = std::iter::once("leasehold".into()).chain(plan.daemon_arguments());
        let Command::Mount(args) = Cli::try_parse_from(arguments).unwrap().command else {
            panic!("not mount")
        };
        assert!(args.foreground && args.read_only && !args.allow_other);
        assert_eq!((args.workspace, args.mountpoint), (plan.workspace, plan.mountpoint));
        assert_eq!((args.user, args.checkout), (Some(plan.user), Some(plan.checkout)));
        assert_eq!((args.ttl_ms, args.checkin), (plan.ttl_ms, plan.checkin));
    }

    #[test]
    fn a_mount_must_not_cover_its_workspace() {
        let refused = |mountpoint: &str| refuse_covering(Path::new(mountpoint), Path::new("/a/ws")).is_err();
        assert!(refused("/a/ws") && refused("/a") && refused("/") && refused("/a/ws/.leasehold/x"));
        assert!(!refused("/a/ws/view") && !refused("/a/ws2"));
    }
}
