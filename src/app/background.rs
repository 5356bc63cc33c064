use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::error::{AppError, Result};
use super::plan::MountPlan;
use super::readiness;
use crate::commands::error::CommandError;
use crate::commands::remote::file_name;
use crate::sys;

/// A log that has grown beyond this is put aside at the next mount; one old log is kept.
const MAX_LOG_BYTES: u64 = 8 * 1024 * 1024;

/// Starts the plan's daemon, and returns when the mount is usable.
pub(super) fn start(plan: &MountPlan) -> Result<()> {
    let log = plan.log.join(file_name(&plan.holder, "log"));
    let log_file = open_log(&log)?;
    let (reader, writer) =
        std::io::pipe().map_err(|source| AppError::Setup { doing: "make a pipe", source })?;
    // The command holds the pipe's writing end, and is dropped with this statement: then the daemon alone has it.
    let mut daemon = Command::new("/proc/self/exe")
        .args(plan.daemon_arguments())
        .env(readiness::VARIABLE, readiness::STDOUT)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(log_file)
        .spawn()
        .map_err(|source| AppError::Setup { doing: "start the mount's process", source })?;
    match readiness::wait(BufReader::new(reader)) {
        Some(outcome) => outcome,
        None => {
            // It has closed the pipe without a word, so that it ends; its status says no more than its log.
            let _ = daemon.wait();
            Err(AppError::DaemonDied { log })
        }
    }
}

fn open_log(path: &Path) -> Result<File> {
    let failed = |source| CommandError::File { doing: "open the log", path: path.to_owned(), source };
    if let Some(directory) = path.parent() {
        sys::make_dirs(directory, 0o700).map_err(failed)?;
    }
    if fs::metadata(path).is_ok_and(|log| log.len() > MAX_LOG_BYTES) {
        fs::rename(path, old_log(path)).map_err(failed)?;
    }
    Ok(sys::open_to_append(path).map_err(failed)?)
}

fn old_log(path: &Path) -> PathBuf {
    path.with_extension("log.old")
}
