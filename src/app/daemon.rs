use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};

use super::asks::Asks;
use super::control::{Control, Serving};
use super::error::{AppError, Result};
use super::logging;
use super::plan::MountPlan;
use super::readiness::Readiness;
use super::stop::{Cause, Causes, StopRequest};
use super::timers::{Driven, Timers};
use crate::cli::CheckinMode;
use crate::clock::Clock;
use crate::commands::error::chain;
use crate::engine::{Environment, PolicyLook, Workspace};
use crate::fuse::{self, MountOptions, Mounted};
use crate::sys;
use crate::vfs::{Vfs, VfsOptions};

/// How long a signal waits for a busy mount, as often as [`BUSY_PAUSE`] goes into it.
const BUSY_ATTEMPTS: u32 = 50;
/// The pause between two attempts to unmount.
const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// How long the kernel may take to end the session of a mount that is gone.
const SESSION_END: Duration = Duration::from_secs(5);
/// How long the thread that shares may take to end.
const SHARING_END: Duration = Duration::from_secs(2);
/// How long tasks of the runtime may take to end.
const RUNTIME_END: Duration = Duration::from_secs(2);

/// What time and other processes' commits drive.
struct Drives {
    vfs: Arc<Vfs>,
    asks: Asks,
}

impl Driven for Drives {
    fn tick(&self) {
        self.vfs.tick();
        self.asks.look();
    }

    fn wake(&self) {
        self.vfs.wake();
        self.asks.look();
    }

    fn renew(&self) {
        self.vfs.renew_open();
    }

    fn policy_written(&self) {
        self.vfs.look_at_policy(PolicyLook::Written);
    }
}

/// Mounts, serves until somebody ends it, and leaves nothing unsaved; drafts and leases stay as they are.
pub(super) fn run(
    plan: &MountPlan,
    environment: Environment,
    readiness: &mut Option<Readiness>,
) -> Result<()> {
    logging::start("info");
    if let Err(error) = sys::raise_open_files() {
        tracing::warn!(%error, "can't raise the limit of open files");
    }
    let runtime = Runtime::new().map_err(|source| AppError::Setup { doing: "start the runtime", source })?;
    let outcome = {
        let _inside = runtime.enter();
        mount_and_serve(plan, environment, readiness, &runtime)
    };
    runtime.shutdown_timeout(RUNTIME_END);
    outcome
}

fn mount_and_serve(
    plan: &MountPlan,
    environment: Environment,
    readiness: &mut Option<Readiness>,
    runtime: &Runtime,
) -> Result<()> {
    let clock = Arc::clone(&environment.clock);
    let (stop, requests) = mpsc::channel(4);
    let causes = Causes::new(requests)?;
    let workspace = Workspace::open_in_mount(&plan.workspace, &environment)?;
    let workspace = Arc::new(match &plan.principal {
        Some(principal) => workspace.acting_as(&principal.to_string_lossy())?,
        None => workspace,
    });
    // Of two starts at once one gets this, and only that one may touch the socket and the mountpoint.
    let guard = workspace.begin_mount(&plan.holder, &plan.mountpoint)?;
    let vfs = Vfs::new(Arc::clone(&workspace), vfs_options(plan))?;
    let run = workspace.layout().run().to_owned();
    let control = Control::bind(&run, &plan.holder)?;
    let asks = Asks::new(Arc::clone(&workspace), plan.holder.clone())?;
    let drives = Arc::new(Drives { vfs: Arc::clone(&vfs), asks });
    let mounted = mount(plan, &workspace, &vfs)?;
    let daemon = Daemon {
        plan,
        runtime,
        clock: Arc::clone(&clock),
        timers: Timers::start(&drives, workspace.layout(), clock)?,
        serving: control.serve(Arc::clone(&vfs) as _, stop),
        vfs,
        mounted,
    };
    let sharing = Sharing::start(&workspace)?;
    tracing::info!(holder = %plan.holder, mountpoint = %plan.mountpoint.display(), "mounted");
    if let Some(readiness) = readiness.take() {
        readiness.report_ready();
    }
    daemon.serve(causes);
    workspace.end_sharing();
    sharing.wait_shortly();
    Ok(guard.end()?)
}

/// A thread that keeps the shared store up to date. It may be waiting for a server when the mount ends; what it does
/// not finish is done by the next mount.
struct Sharing(std::sync::mpsc::Receiver<()>);

impl Sharing {
    fn start(workspace: &Arc<Workspace>) -> Result<Self> {
        let (workspace, (ends, ended)) = (Arc::clone(workspace), std::sync::mpsc::channel());
        let body = move || {
            workspace.keep_shared();
            // The last one to drop it closes the catalog.
            drop(workspace);
            drop(ends);
        };
        let thread = thread::Builder::new().name("share".into()).spawn(body);
        thread.map_err(|source| AppError::Setup { doing: "start a thread", source })?;
        Ok(Self(ended))
    }

    /// Waits for the end of the thread, unless that takes long.
    fn wait_shortly(self) {
        if self.0.recv_timeout(SHARING_END) == Err(RecvTimeoutError::Timeout) {
            tracing::info!("ended though the shared store had not answered yet");
        }
    }
}

fn vfs_options(plan: &MountPlan) -> VfsOptions {
    let (uid, gid) = sys::effective_ids();
    VfsOptions {
        holder: plan.holder.clone(),
        ttl_ms: plan.ttl_ms,
        checkin_on_close: plan.checkin == CheckinMode::Close,
        read_only: plan.read_only,
        allow_other: plan.allow_other,
        uid,
        gid,
    }
}

fn mount(plan: &MountPlan, workspace: &Workspace, vfs: &Arc<Vfs>) -> Result<Mounted> {
    let options = MountOptions {
        mountpoint: plan.mountpoint.clone(),
        source: plan.workspace.clone(),
        passthrough_probe: probe_file(&workspace.layout().wake()),
        read_only: plan.read_only,
        allow_other: plan.allow_other,
    };
    let mounted = fuse::mount(Arc::clone(vfs), options);
    vfs.set_mountpoint(&plan.mountpoint);
    Ok(mounted?)
}

/// A file on the store's filesystem to try passthrough with; never the catalog, whose locks would go with its closing.
fn probe_file(path: &Path) -> Option<PathBuf> {
    let made = sys::open_to_append(path);
    made.inspect_err(|error| tracing::warn!(%error, "no passthrough: can't make {}", path.display())).ok()?;
    Some(path.to_owned())
}

/// How a mount was taken away.
enum End {
    /// By us, or by somebody else: no file is open any more.
    Unmounted,
    /// By us, and a client waits for the last saves.
    UnmountedFor(oneshot::Sender<std::result::Result<Vec<String>, String>>),
    /// From the tree only: files may still be open.
    Detached,
    /// From the tree only, and whoever signalled doesn't wait for the files that are open.
    Abandoned,
}

/// A mount that is served.
struct Daemon<'a> {
    plan: &'a MountPlan,
    runtime: &'a Runtime,
    clock: Arc<dyn Clock>,
    vfs: Arc<Vfs>,
    mounted: Mounted,
    timers: Timers,
    serving: Serving,
}

impl Daemon<'_> {
    /// Serves until the mount is gone, then flushes and ends.
    fn serve(self, mut causes: Causes) {
        let end = self.wait_for_end(&mut causes);
        causes.refuse_requests();
        let Self { plan, runtime, vfs, mounted, timers, serving, .. } = self;
        let session = SessionEnd::of(mounted);
        match end {
            End::Detached => runtime.block_on(async {
                tokio::select! {
                    () = session.wait() => {}
                    signal = causes.next_signal() => tracing::warn!(signal, "ends though files are open"),
                }
            }),
            End::Unmounted | End::UnmountedFor(_) | End::Abandoned => {
                runtime.block_on(session.wait_shortly())
            }
        }
        let problems = vfs.close();
        for problem in &problems {
            tracing::warn!(problem, "not settled");
        }
        // No work is left that the timers could do.
        drop(timers);
        if let End::UnmountedFor(reply) = end {
            // The client may be gone.
            let _ = reply.send(Ok(problems));
        }
        runtime.block_on(serving.finish());
        tracing::info!(mountpoint = %plan.mountpoint.display(), "ended");
    }

    fn wait_for_end(&self, causes: &mut Causes) -> End {
        loop {
            match self.runtime.block_on(causes.next(|| self.mounted.has_ended())) {
                Cause::Gone => return End::Unmounted,
                Cause::Signal(signal) => return self.end_by_signal(signal),
                Cause::Request(StopRequest { lazy: true, reply }) => {
                    let detached = self.detach();
                    let done = detached.is_ok();
                    let _ = reply.send(detached.map(|()| Vec::new()));
                    if done {
                        return End::Detached;
                    }
                }
                Cause::Request(StopRequest { lazy: false, reply }) => match self.mounted.unmount() {
                    Ok(()) => return End::UnmountedFor(reply),
                    Err(error) => {
                        let _ = reply.send(Err(chain(&error)));
                    }
                },
            }
        }
    }

    fn end_by_signal(&self, signal: &str) -> End {
        tracing::info!(signal, "flushes and ends");
        drain(&self.vfs);
        for _ in 0..BUSY_ATTEMPTS {
            if self.mounted.unmount().is_ok() {
                return End::Unmounted;
            }
            self.clock.sleep(BUSY_PAUSE);
        }
        tracing::warn!(
            "files are still open: the mount is taken out of the tree, and whoever has them open gets errors soon"
        );
        drain(&self.vfs);
        if let Err(error) = self.detach() {
            tracing::error!(error, "can't detach");
        }
        End::Abandoned
    }

    fn detach(&self) -> std::result::Result<(), String> {
        let mountpoint = &self.plan.mountpoint;
        sys::detach_mount(mountpoint)
            .map_err(|error| format!("{}: can't detach: {error}", mountpoint.display()))
    }
}

/// Settles everything, and logs what could not be.
fn drain(vfs: &Vfs) -> Vec<String> {
    let problems = vfs.drain();
    for problem in &problems {
        tracing::warn!(problem, "not settled");
    }
    problems
}

/// The end of a mount's session with the kernel.
struct SessionEnd(oneshot::Receiver<()>);

impl SessionEnd {
    /// Waits in a thread of its own, since a kernel that still has files open keeps it waiting.
    fn of(mounted: Mounted) -> Self {
        let (sender, ended) = oneshot::channel();
        thread::spawn(move || {
            if let Err(error) = mounted.join() {
                tracing::error!(error = &error as &dyn std::error::Error, "the session broke");
            }
            let _ = sender.send(());
        });
        Self(ended)
    }

    async fn wait(self) {
        let _ = self.0.await;
    }

    async fn wait_shortly(self) {
        if tokio::time::timeout(SESSION_END, self.wait()).await.is_err() {
            tracing::warn!("the kernel still holds the session; whoever has files open gets errors");
        }
    }
}
