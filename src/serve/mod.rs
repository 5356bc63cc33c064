//! The store for others: Bazel's HTTP cache protocol over blobs of this machine.
//!
//! Nothing is published before all of it has come and is what its address says; nothing is sent before it is verified.
//! Who is slow, in sending or in reading, is dropped; who is one too many is sent away at once; bodies of refused
//! requests aren't read. Reading and writing the disk is done on blocking threads, one per admitted request at most.

mod access;
mod answers;
mod connections;
mod incoming;
mod metrics;
mod outgoing;
mod quiet;
mod routes;
mod shared;
mod source;

#[cfg(test)]
mod tests;

pub use access::Tokens;
pub use source::Source;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;

use self::shared::Shared;
use crate::clock::Clock;

/// How a server serves.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Where to listen; port 0 is any free one.
    pub listen: SocketAddr,
    /// Who may come in.
    pub tokens: Tokens,
    /// How many bytes an uploaded blob may have.
    pub max_body_bytes: u64,
    /// How many requests are worked on at a time; more are sent away.
    pub max_requests: usize,
    /// How long others are waited for.
    pub patience: Patience,
}

/// How long a server waits for others.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// How long the head of a request may take, counted from the end of the one before: connections that nobody uses
    /// are closed as well.
    pub head: Duration,
    /// How long a sender or a reader of a body may be silent.
    pub silence: Duration,
    /// How long requests may go on after the stop.
    pub stop: Duration,
    /// How long is read, into nothing, what a refused sender still sends: a socket that is closed before makes the
    /// kernel reset the connection, and the sender may never see why.
    pub linger: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { head: seconds(30), silence: seconds(30), stop: seconds(30), linger: seconds(2) }
    }
}

impl ServeOptions {
    /// Refuses an address that others can reach where no token would keep them out.
    pub fn check(&self) -> Result<(), ServeError> {
        if !self.listen.ip().is_loopback() && self.tokens.are_none() {
            return Err(ServeError::OpenToAll(self.listen));
        }
        Ok(())
    }
}

/// Why a server doesn't start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address can't be listened on.
    #[error("{address}: can't listen")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// Everybody who can reach the address could read and write.
    #[error("{0}: not on loopback, and would be open to everybody; use --token-file, or listen on 127.0.0.1")]
    OpenToAll(SocketAddr),
    /// The file of a token can't be used; the token is not repeated.
    #[error("{}: {problem}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The file of a token can't be read.
    #[error("{}: can't read the token", path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Server {
    /// Begins to listen; must be called within a tokio runtime.
    ///
    /// # Errors
    /// What [`ServeOptions::check`] refuses, and `Listen`.
    pub async fn bind(
        options: ServeOptions,
        source: Source,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ServeError> {
        options.check()?;
        let address = options.listen;
        let failed = |source| ServeError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, shared: Arc::new(Shared::new(options, source, clock)) })
    }

    /// Where it listens, with the port that it got.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is over; then takes no more requests, and ends those that it works on, for a while.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        connections::serve(self.listener, self.shared, stop).await;
    }
}
