use std::io::{self, IsTerminal, Write};

use tracing_subscriber::EnvFilter;

/// Standard error, which may be a file on the full disk that is just being reported: what can't be logged is dropped,
/// since a daemon that ends for it would take the mount along.
struct Unfailing(io::Stderr);

impl Write for Unfailing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.0.write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends the log to standard error: what `LEASEHOLD_LOG` asks for (a level, or directives of `tracing`), else `default`.
pub(super) fn start(default: &str) {
    let filter = EnvFilter::try_from_env("LEASEHOLD_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Unfailing(io::stderr()))
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    // A second start in one process (tests) keeps the first one's.
    let _ = log.try_init();
}
