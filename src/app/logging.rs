use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Sends the log to standard error: what `LEASEHOLD_LOG` asks for (a level, or directives of `tracing`), else `default`.
pub(super) fn start(default: &str) {
    let filter = EnvFilter::try_from_env("LEASEHOLD_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // A second start in one process (tests) keeps the first one's.
    let _ = log.try_init();
}
