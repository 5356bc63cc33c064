use std::error::Error;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::Method;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::access::Access;
use super::answers::Refusal;
use super::metrics::Metrics;
use super::outgoing::{Buffers, Outgoing};
use super::{ServeOptions, Source};
use crate::blobs::{BlobError, DiskStore};
use crate::clock::Clock;
use crate::model::Digest;

/// How many connections there are at a time; more wait in the kernel.
const CONNECTIONS: usize = 1024;

/// What all requests share.
pub(super) struct Shared {
    pub(super) options: ServeOptions,
    source: Source,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Metrics,
    buffers: Arc<Buffers>,
    /// Places for requests that are worked on.
    places: Arc<Semaphore>,
    /// Places for connections.
    pub(super) connections: Arc<Semaphore>,
}

impl Shared {
    pub(super) fn new(options: ServeOptions, source: Source, clock: Arc<dyn Clock>) -> Self {
        Self {
            places: Arc::new(Semaphore::new(options.max_requests)),
            connections: Arc::new(Semaphore::new(CONNECTIONS)),
            metrics: Metrics::default(),
            buffers: Arc::default(),
            options,
            source,
            clock,
        }
    }

    /// Whether a request may come in.
    pub(super) fn admit(&self, request: &Request) -> Result<(), Refusal> {
        let access = self.options.tokens.access(request.headers()).ok_or(Refusal::NoToken)?;
        if request.method() == Method::PUT && access != Access::Write {
            return Err(Refusal::ReadOnly);
        }
        Ok(())
    }

    /// A place among the requests that are worked on.
    pub(super) fn place(&self) -> Result<OwnedSemaphorePermit, Refusal> {
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| Refusal::Busy)
    }

    /// Asks the store, on a thread that may wait for the disk.
    pub(super) async fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        question: impl FnOnce(&Self) -> Result<T, BlobError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let shared = Arc::clone(self);
        let asked = tokio::task::spawn_blocking(move || question(&shared)).await;
        asked
            .map_err(|error| {
                tracing::error!(error = &error as &dyn Error, "a request ended without an answer");
                Refusal::StoreFailed
            })?
            .map_err(Refusal::from)
    }

    pub(super) fn store(&self) -> &DiskStore {
        self.source.store()
    }

    /// Opens a verified blob, and reads the beginning of it.
    pub(super) fn open(&self, digest: &Digest) -> Result<Outgoing, BlobError> {
        let store = self.store();
        let file = store.open_verified(digest)?;
        let opened = file.metadata().and_then(|is| Outgoing::begin(file, is.len(), &self.buffers));
        opened.map_err(|source| BlobError::Io { action: "read", path: store.path_of(digest), source })
    }

    /// How many requests are worked on.
    pub(super) fn in_progress(&self) -> usize {
        self.options.max_requests - self.places.available_permits()
    }

    pub(super) fn open_connections(&self) -> usize {
        CONNECTIONS - self.connections.available_permits()
    }
}
