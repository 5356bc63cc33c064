//! The protocol adapter: the vfs as the kernel's FUSE sees it.
//!
//! Each request is decoded, makes one call of the vfs, and is answered. Beside that the module knows threads
//! (readers of requests, a pool for slow answers, one for notifications) and how an open file reaches its bytes.

mod adapter;
mod answer;
mod backing;
mod decode;
mod errno;
mod notifier;
mod pool;
mod unmount;

use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use parking_lot::Mutex;

use crate::sys;
use crate::vfs::Vfs;
use adapter::{Adapter, Shared};
use backing::BackingTable;
use notifier::NotifierThread;

/// The filesystem's type as /proc/mounts shows it: `fuse.leasehold`.
const SUBTYPE: &str = "leasehold";

/// How many threads answer slow calls: as many large saves are published at a time.
const SLOW_THREADS: usize = 8;
/// How many threads answer calls that wait for a shared store; they wait, and take nothing but memory.
const FAR_THREADS: usize = 16;

/// Where and how to mount.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The directory to mount on.
    pub mountpoint: PathBuf,
    /// The workspace, shown as the mount's source.
    pub source: PathBuf,
    /// Whether the kernel refuses every change with EROFS.
    pub read_only: bool,
    /// Whether other users may enter; then the kernel checks the modes of files.
    pub allow_other: bool,
    /// A regular file on the filesystem that holds the blobs, to try passthrough with; none: no passthrough.
    pub passthrough_probe: Option<PathBuf>,
}

/// Why a mount could not be made or ended.
#[derive(Debug, thiserror::Error)]
pub enum FuseError {
    /// The directory to mount on can't be reached.
    #[error("{}: can't be reached to mount on it", mountpoint.display())]
    Mountpoint {
        /// The directory.
        mountpoint: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel or the set-uid helper refused the mount.
    #[error("{}: can't mount", mountpoint.display())]
    Mount {
        /// The directory.
        mountpoint: PathBuf,
        /// What the system or the helper said.
        source: io::Error,
    },
    /// The system gave no more threads.
    #[error("can't start the threads that serve a mount")]
    Threads {
        /// What the system said.
        source: io::Error,
    },
    /// Somebody has an open file, a mapping or a working directory in the mount.
    #[error("{}: busy; close what is open in it, or use --lazy", mountpoint.display())]
    Busy {
        /// The mount.
        mountpoint: PathBuf,
    },
    /// The kernel refused to unmount, or no helper is installed.
    #[error("{}: can't unmount", mountpoint.display())]
    Unmount {
        /// The mount.
        mountpoint: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The set-uid helper refused to unmount.
    #[error("{}: can't unmount: {message}", mountpoint.display())]
    UnmountHelper {
        /// The mount.
        mountpoint: PathBuf,
        /// What the helper said.
        message: String,
    },
    /// Requests could no longer be read from the kernel.
    #[error("{}: the connection with the kernel broke", mountpoint.display())]
    Session {
        /// The mount.
        mountpoint: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A thread that reads requests panicked.
    #[error("BUG: a thread that served {} panicked", mountpoint.display())]
    Panicked {
        /// The mount.
        mountpoint: PathBuf,
    },
}

/// A mount that is being served. Dropping it unmounts, unless the mount is busy.
pub struct Mounted {
    mountpoint: PathBuf,
    shared: Arc<Shared>,
    session: Mutex<Option<JoinHandle<io::Result<()>>>>,
    _notifier: NotifierThread,
}

/// Mounts the vfs and serves it from threads of its own; the mount is usable when this returns.
///
/// Tells the vfs where to report changes, and whether versions are read by passthrough.
pub fn mount(vfs: Arc<Vfs>, options: MountOptions) -> Result<Mounted, FuseError> {
    let threads = |source| FuseError::Threads { source };
    let given = options.mountpoint.clone();
    let mountpoint =
        given.canonicalize().map_err(|source| FuseError::Mountpoint { mountpoint: given, source })?;
    let shared = Arc::new(Shared { vfs, backings: BackingTable::default(), ended: AtomicBool::new(false) });
    let adapter = Adapter::new(Arc::clone(&shared), SLOW_THREADS, FAR_THREADS).map_err(threads)?;
    let session = Session::new(adapter, &mountpoint, &config(&options))
        .map_err(|error| FuseError::Mount { mountpoint: mountpoint.clone(), source: explain(error) })?;
    let notifier = NotifierThread::start(session.notifier()).map_err(threads)?;
    shared.vfs.set_invalidate(notifier.queue());
    choose_reads(&shared, &session, options.passthrough_probe.as_deref());
    let session = session.spawn().and_then(own_thread).map_err(threads)?;
    Ok(Mounted { mountpoint, shared, session: Mutex::new(Some(session)), _notifier: notifier })
}

fn choose_reads(shared: &Shared, session: &Session<Adapter>, probe: Option<&Path>) {
    let outcome = probe.map(|file| backing::probe(session, file));
    if let Some(Err(error)) = &outcome {
        tracing::info!(%error, "versions are read through the page cache: passthrough is not to be had");
    }
    let passthrough = matches!(outcome, Some(Ok(())));
    shared.backings.permit(passthrough);
    shared.vfs.set_reads(passthrough);
}

/// Takes the serving thread out of fuser's handle, and leaks the rest of it.
///
/// The handle unmounts when dropped: lazily for an ordinary user, which cuts off open writers; and again after the
/// mount has ended, by its path, where another mount may be by then (`is_mounted` takes POLLERR for mounted).
fn own_thread(mut session: BackgroundSession) -> io::Result<JoinHandle<io::Result<()>>> {
    let placeholder = thread::Builder::new().spawn(|| Ok(()))?;
    let thread = mem::replace(&mut session.guard, placeholder);
    mem::forget(session);
    Ok(thread)
}

impl Mounted {
    /// The directory that is mounted on, absolute and without symlinks.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Whether the mount has ended, by [`unmount`](Self::unmount) or from outside.
    pub fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire)
    }

    /// Unmounts, but never lazily: `Busy` while anybody uses the mount. Nothing is done if it has ended.
    pub fn unmount(&self) -> Result<(), FuseError> {
        if self.has_ended() {
            return Ok(());
        }
        unmount::unmount(&self.mountpoint)
    }

    /// Waits until the mount has ended, whoever unmounts it, and all its calls are answered.
    ///
    /// The kernel doesn't send the releases that are pending at the end: what the vfs still holds open then will
    /// never be released. Of several callers only the first waits.
    pub fn join(&self) -> Result<(), FuseError> {
        let Some(session) = self.session.lock().take() else { return Ok(()) };
        let mountpoint = self.mountpoint.clone();
        match session.join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(source)) => Err(FuseError::Session { mountpoint, source }),
            Err(_) => Err(FuseError::Panicked { mountpoint }),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let ended = self.unmount().and_then(|()| self.join());
        if let Err(error) = ended {
            tracing::error!(mountpoint = %self.mountpoint.display(), error = &error as &dyn std::error::Error);
        }
    }
}

fn config(options: &MountOptions) -> Config {
    let mut config = Config::default();
    config.mount_options = mount_options(options);
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    let threads = thread::available_parallelism().map_or(4, |threads| threads.get().clamp(4, 8));
    config.n_threads = Some(threads);
    config.clone_fd = true;
    config
}

fn mount_options(options: &MountOptions) -> Vec<MountOption> {
    let source = options.source.to_string_lossy();
    let source = if needs_helper() { escape(&source) } else { source.into_owned() };
    let mut list = vec![
        MountOption::FSName(source),
        // fuser passes its own `Subtype` to the helper only; the kernel knows the option too (5.4 and later).
        MountOption::CUSTOM(format!("subtype={SUBTYPE}")),
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    if options.read_only {
        list.push(MountOption::RO);
    }
    if options.allow_other {
        // Without it a directory that is cached lets other users in, whatever its mode.
        list.push(MountOption::DefaultPermissions);
    }
    list
}

/// Whether fuser will mount through fusermount3: it does when mount(2) answers EPERM.
fn needs_helper() -> bool {
    !sys::may_mount().unwrap_or(false)
}

/// Says what the helper said without its line breaks and its name, and that there is none.
fn explain(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::NotFound && needs_helper() {
        return io::Error::new(error.kind(), "fusermount3 can't be found; install the package fuse3");
    }
    if error.raw_os_error().is_some() {
        return error;
    }
    io::Error::new(error.kind(), unmount::said(&error.to_string()))
}

/// Protects commas and backslashes from the helper, which splits its options at commas (util/fusermount.c of
/// libfuse, `get_string_opt`).
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace(',', "\\,")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(read_only: bool, allow_other: bool) -> MountOptions {
        let (mountpoint, source) = (PathBuf::from("/mnt"), PathBuf::from("/home/a/work space"));
        MountOptions { mountpoint, source, read_only, allow_other, passthrough_probe: None }
    }

    /// Other users come in only together with the kernel's own check of modes.
    #[test]
    fn others_are_let_in_only_with_permission_checks() {
        let own = config(&options(true, false));
        assert_eq!(own.acl, SessionACL::Owner);
        assert!(own.mount_options.contains(&MountOption::RO));
        assert!(!own.mount_options.contains(&MountOption::DefaultPermissions));
        let shared = config(&options(false, true));
        assert_eq!(shared.acl, SessionACL::All);
        assert!(!shared.mount_options.contains(&MountOption::RO));
        assert!(shared.mount_options.contains(&MountOption::DefaultPermissions));
    }

    #[test]
    fn a_name_is_escaped_as_the_helper_reads_it() {
        assert_eq!(escape(r"/a b/c,d\e"), r"/a b/c\,d\\e");
    }
}
