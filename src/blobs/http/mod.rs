//! A store elsewhere, by Bazel's HTTP cache protocol: `cas/<digest>`, and `cas/findMissing` where the server has it.
//!
//! A server is neither trusted nor trusting: what it sends is hashed before a byte of it is handed on, redirects are not
//! followed, since they would take credentials elsewhere, and nothing is tried twice. Any plain HTTP cache will do that
//! answers GET, HEAD and PUT; without `findMissing` each digest is probed by itself, 16 at a time.
//!
//! Bytes wait in temporary files without names, so that memory stays small however large a blob is.

mod exchange;
mod options;
mod probe;
mod spool;
mod upload;

#[cfg(test)]
mod tests;

pub use options::HttpOptions;

use std::fmt;
use std::io::Read;
use std::sync::Arc;

use reqwest::StatusCode;
use reqwest::blocking::Client;
use reqwest::header::CONTENT_LENGTH;

use self::exchange::{Operation, declared_length};
use self::spool::Spool;
use super::hashing::uninterrupted;
use super::{Blob, BlobError, BlobStore, TransportFault};
use crate::clock::Clock;
use crate::model::Digest;

/// Keeps blobs in a store elsewhere.
///
/// Not for use by a thread that drives an asynchronous runtime: it waits.
pub struct HttpStore {
    client: Client,
    /// Where digests are appended.
    base: String,
    options: HttpOptions,
    clock: Arc<dyn Clock>,
}

impl HttpStore {
    /// Checks the options; sends nothing.
    ///
    /// # Errors
    /// `Configuration`, whose message never repeats a value.
    pub fn new(options: HttpOptions, clock: Arc<dyn Clock>) -> Result<Self, BlobError> {
        Ok(Self { base: options.base()?, client: options.client()?, options, clock })
    }

    fn url_of(&self, digest: &Digest) -> String {
        format!("{}{digest}", self.base)
    }

    /// Brings a whole blob here, and verifies it.
    fn download(&self, digest: &Digest) -> Result<Spool, BlobError> {
        let operation = Operation::begin("send a blob", &*self.clock, self.options.download_deadline);
        let mut response = operation.send(self.client.get(self.url_of(digest)))?;
        if response.status() == StatusCode::NOT_FOUND {
            return Err(BlobError::Missing { digest: *digest });
        }
        if !response.status().is_success() {
            return Err(operation.refused(&response));
        }
        self.check_declared_length(&operation, &response)?;
        let mut left = self.options.max_download_bytes;
        let spool = Spool::fill(&self.options.spool, |buffer| {
            let count = operation.read(&mut response, buffer)?;
            left =
                left.checked_sub(count as u64).ok_or_else(|| operation.failed(TransportFault::TooLarge))?;
            Ok(count)
        })?;
        if spool.digest != *digest {
            tracing::error!(%digest, found = %spool.digest, "a shared store sent other bytes than asked for");
            return Err(BlobError::Corrupt { digest: *digest, found: spool.digest });
        }
        Ok(spool)
    }

    fn check_declared_length(
        &self,
        operation: &Operation<'_>,
        response: &reqwest::blocking::Response,
    ) -> Result<(), BlobError> {
        match declared_length(response) {
            Some(length) if length > self.options.max_download_bytes => {
                Err(operation.failed(TransportFault::TooLarge))
            }
            None if response.headers().contains_key(CONTENT_LENGTH) => {
                Err(operation.failed(TransportFault::BadAnswer))
            }
            _ => Ok(()),
        }
    }
}

impl BlobStore for HttpStore {
    /// Uploads the bytes, also if the server has them; how durable they are then is the server's word.
    fn put(&self, source: &mut dyn Read) -> Result<(Digest, u64), BlobError> {
        let spool = Spool::fill(&self.options.spool, |buffer| {
            uninterrupted(|| source.read(buffer)).map_err(|source| BlobError::Source { source })
        })?;
        self.upload(&spool)?;
        Ok((spool.digest, spool.blob.size()))
    }

    /// Streams the bytes, unless they go in chunks: a request whose source fails is broken off before the last of
    /// them, so that a server which doesn't verify gets no whole blob either.
    fn put_known(&self, digest: &Digest, size: u64, source: Box<dyn Read + Send>) -> Result<(), BlobError> {
        self.upload_known(digest, size, source)
    }

    fn open(&self, digest: &Digest) -> Result<Blob, BlobError> {
        Ok(self.download(digest)?.blob)
    }

    fn has(&self, digest: &Digest) -> Result<bool, BlobError> {
        self.probe(digest)
    }

    fn find_missing(&self, digests: &[Digest]) -> Result<Vec<Digest>, BlobError> {
        self.missing_of(digests)
    }
}

/// Without what may be secret.
impl fmt::Debug for HttpStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpStore").finish_non_exhaustive()
    }
}
