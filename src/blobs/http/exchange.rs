//! One request and its answer, under a deadline for the whole, with errors that repeat nothing.

use std::error::Error;
use std::io::{self, Read};
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::blocking::{RequestBuilder, Response};
use reqwest::header::CONTENT_LENGTH;

use crate::blobs::error::repeat;
use crate::blobs::hashing::{WrongBytes, uninterrupted};
use crate::blobs::{BlobError, TransportFault};
use crate::clock::Clock;
use crate::model::Digest;

/// The largest integer that every implementation of the protocol can count to (2^53 - 1, ECMA-262 section 21.1.2.8).
pub(super) const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// An operation that has to be over at some time, with all its requests.
pub(super) struct Operation<'a> {
    /// For errors: a verb and an object.
    name: &'static str,
    clock: &'a dyn Clock,
    end_boot_ms: i64,
}

impl<'a> Operation<'a> {
    pub(super) fn begin(name: &'static str, clock: &'a dyn Clock, deadline: Duration) -> Self {
        let length_ms = i64::try_from(deadline.as_millis()).unwrap_or(i64::MAX).max(1);
        Self { name, clock, end_boot_ms: clock.now().boot_ms.saturating_add(length_ms) }
    }

    /// Sends a request, and returns when the head of its answer is there.
    ///
    /// The time left is both the time of the exchange with the last byte of its body, and that of each wait in it.
    pub(super) fn send(&self, request: RequestBuilder) -> Result<Response, BlobError> {
        let response = request.timeout(self.left()?).send();
        response.map_err(|error| self.broken_off(&error))
    }

    /// Sends a request whose body is `digest`'s bytes, read from a source that can fail.
    pub(super) fn send_bytes(&self, request: RequestBuilder, digest: &Digest) -> Result<Response, BlobError> {
        let response = request.timeout(self.left()?).send();
        response.map_err(|error| match source_error(&error) {
            Some(source) => of_source(source, digest),
            None => self.broken_off(&error),
        })
    }

    /// Reads some of an answer's body.
    pub(super) fn read(&self, response: &mut Response, buffer: &mut [u8]) -> Result<usize, BlobError> {
        self.left()?;
        uninterrupted(|| response.read(buffer)).map_err(|error| self.broken_off(&error))
    }

    /// Whichever side of the client notices first that the time is over, it is the deadline.
    fn broken_off(&self, error: &(dyn Error + 'static)) -> BlobError {
        self.left().err().unwrap_or_else(|| self.failed(fault_of(error)))
    }

    pub(super) fn failed(&self, fault: TransportFault) -> BlobError {
        BlobError::Transport { operation: self.name, fault }
    }

    pub(super) fn refused(&self, response: &Response) -> BlobError {
        self.failed(TransportFault::Status(response.status().as_u16()))
    }

    fn left(&self) -> Result<Duration, BlobError> {
        let left_ms = self.end_boot_ms.saturating_sub(self.clock.now().boot_ms);
        match u64::try_from(left_ms) {
            Ok(left_ms) if left_ms > 0 => Ok(Duration::from_millis(left_ms)),
            _ => Err(self.failed(TransportFault::Deadline)),
        }
    }

    /// Whether the probed blob is there.
    pub(super) fn presence(&self, response: &Response) -> Result<bool, BlobError> {
        match response.status() {
            status if status.is_success() => Ok(true),
            StatusCode::NOT_FOUND => Ok(false),
            _ => Err(self.refused(response)),
        }
    }
}

/// The length that an answer declares, if it declares one that every implementation could.
pub(super) fn declared_length(response: &Response) -> Option<u64> {
    response.headers().get(CONTENT_LENGTH)?.to_str().ok().and_then(plain_number)
}

/// A number of plain digits that is a safe integer.
pub(super) fn plain_number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| digits && *number <= MAX_SAFE_INTEGER)
}

/// What a source that failed means: other bytes than promised are a corrupt blob.
pub(super) fn of_source(source: io::Error, digest: &Digest) -> BlobError {
    match source.get_ref().and_then(|inner| inner.downcast_ref()) {
        Some(WrongBytes { found }) => BlobError::Corrupt { digest: *digest, found: *found },
        None => BlobError::Source { source },
    }
}

/// The error of the body's reader, if it was that which broke the request off.
fn source_error(error: &reqwest::Error) -> Option<io::Error> {
    let source = error.source().filter(|_| error.is_body())?.downcast_ref::<io::Error>()?;
    Some(match source.get_ref().and_then(|inner| inner.downcast_ref::<WrongBytes>()) {
        Some(wrong) => io::Error::new(source.kind(), *wrong),
        None => repeat(source),
    })
}

/// Reduces an error to what can't hold a secret: a tag and a number.
fn fault_of(error: &(dyn Error + 'static)) -> TransportFault {
    let causes = causes(error);
    let client = causes.iter().find_map(|cause| cause.downcast_ref::<reqwest::Error>());
    let errno = causes.iter().find_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error());
    let is_late = |cause: &&(dyn Error + 'static)| {
        cause.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_timeout)
    };
    if causes.iter().any(is_late) {
        TransportFault::Deadline
    } else if causes.iter().any(|cause| cause.is::<rustls::Error>()) {
        TransportFault::Tls
    } else if client.is_some_and(reqwest::Error::is_connect) {
        TransportFault::Connect(errno)
    } else if client.is_some_and(reqwest::Error::is_body) {
        TransportFault::Unsent(errno)
    } else {
        TransportFault::Broken(errno)
    }
}

/// An error and all that caused it.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> Vec<&'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |last| cause_of(*last)).collect()
}

/// What caused an error, or what an `io::Error` wraps.
fn cause_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}
