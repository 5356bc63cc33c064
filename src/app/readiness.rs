use std::fs::File;
use std::io::{BufRead, Write};
use std::os::fd::AsFd;

use super::error::{AppError, Result};
use crate::sys;

/// Names the descriptor on which a daemon says that it is ready; standard output, so that nothing else is inherited.
pub(super) const VARIABLE: &str = "LEASEHOLD_READY_FD";
/// The value of [`VARIABLE`].
pub(super) const STDOUT: &str = "1";

/// Where a daemon in the background tells its starter how it went: one line, `0` or `STATUS ERROR`.
#[derive(Debug)]
pub(super) struct Readiness(File);

impl Readiness {
    /// Takes over standard output and leaves the starter's session, if this process was started in the background.
    pub(super) fn from_environment() -> Result<Option<Self>> {
        if std::env::var_os(VARIABLE).is_none_or(|value| value != STDOUT) {
            return Ok(None);
        }
        let setup = |doing| move |source| AppError::Setup { doing, source };
        let pipe = std::io::stdout().as_fd().try_clone_to_owned().map_err(setup("take over the pipe"))?;
        sys::close_stdout().map_err(setup("close standard output"))?;
        sys::new_session().map_err(setup("start a session"))?;
        Ok(Some(Self(pipe.into())))
    }

    /// Tells that the mount is usable.
    pub(super) fn report_ready(mut self) {
        self.send("0\n");
    }

    /// Tells why there will be no mount.
    pub(super) fn report_failed(mut self, status: u8, line: &str) {
        self.send(&format!("{status} {line}\n"));
    }

    fn send(&mut self, line: &str) {
        if let Err(error) = self.0.write_all(line.as_bytes()) {
            tracing::warn!(%error, "nobody waits for this mount to be ready");
        }
    }
}

/// Waits for a daemon's line; none if it ended without one.
pub(super) fn wait(mut pipe: impl BufRead) -> Option<Result<()>> {
    let mut line = Vec::new();
    pipe.read_until(b'\n', &mut line).ok()?;
    let line = String::from_utf8(line).ok()?;
    let line = line.strip_suffix('\n')?;
    if line == "0" {
        return Some(Ok(()));
    }
    let (status, line) = line.split_once(' ')?;
    let status = status.parse().ok().filter(|status| *status > 0)?;
    Some(Err(AppError::DaemonRefused { status, line: line.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_starter_learns_status_and_error() {
        assert!(matches!(wait(&b"0\n"[..]), Some(Ok(()))));
        let Some(Err(error)) = wait(&b"3 a: held by bob\n"[..]) else { panic!("no error") };
        assert_eq!((error.exit_status(), error.line()), (3, "a: held by bob".into()));
    }

    #[test]
    fn a_daemon_that_dies_tells_nothing() {
        for cut in [&b""[..], b"0", b"3 a: he", b"\n", b"x y\n", b"0 y\n", b"\xff\n"] {
            assert!(wait(cut).is_none(), "{cut:?}");
        }
    }
}
