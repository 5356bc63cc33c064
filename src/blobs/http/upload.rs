//! How bytes get to a store elsewhere: in one request, or, where that is asked for, in chunks that can be resumed.

use std::io::Read;

use reqwest::StatusCode;
use reqwest::blocking::{Body, RequestBuilder, Response};
use reqwest::header::{CONTENT_RANGE, CONTENT_TYPE, RANGE};

use super::HttpStore;
use super::exchange::{Operation, declared_length, of_source, plain_number};
use super::spool::Spool;
use crate::blobs::hashing::{Promised, uninterrupted};
use crate::blobs::{BlobError, BlobReader};
use crate::model::Digest;

/// Up to how many bytes a body is sent from memory.
///
/// The answer to a body from memory is always seen. To one that is streamed, an answer that comes before its end is
/// lost (`TransportFault::Unsent`): the client gives up where it can't send on.
const FROM_MEMORY_BYTES: u64 = 1 << 20;

/// How an upload in chunks ended.
enum Chunked {
    /// The server shows the whole blob.
    Done,
    /// The server doesn't take chunks, or doesn't show what it took.
    SendWhole,
}

/// What a server says to a part of a blob.
enum Step {
    /// It waits for more, and has the bytes up to an offset, if it says so.
    More(Option<u64>),
    /// It has taken this for the whole.
    Complete,
    /// It doesn't take parts, or not this one.
    Unsupported,
}

impl HttpStore {
    /// Uploads bytes whose digest and size are known.
    pub(super) fn upload_known(
        &self,
        digest: &Digest,
        size: u64,
        source: Box<dyn Read + Send>,
    ) -> Result<(), BlobError> {
        let mut promised = Promised::new(source, *digest, Some(size));
        if size > FROM_MEMORY_BYTES && !self.goes_in_chunks(size) {
            return self.send_whole(&self.begin_upload(), digest, Body::sized(promised, size));
        }
        let spool = Spool::fill(&self.options.spool, |buffer| {
            uninterrupted(|| promised.read(buffer)).map_err(|error| of_source(error, digest))
        })?;
        self.upload(&spool)
    }

    pub(super) fn upload(&self, spool: &Spool) -> Result<(), BlobError> {
        let operation = self.begin_upload();
        if self.goes_in_chunks(spool.blob.size())
            && let Chunked::Done = self.send_in_chunks(&operation, spool)?
        {
            return Ok(());
        }
        self.send_whole(&operation, &spool.digest, body_of(spool.blob.reader())?)
    }

    fn begin_upload(&self) -> Operation<'_> {
        Operation::begin("take a blob", &*self.clock, self.options.upload_deadline)
    }

    fn goes_in_chunks(&self, size: u64) -> bool {
        self.options.chunk_bytes.is_some_and(|chunk| size > chunk)
    }

    fn send_whole(&self, operation: &Operation<'_>, digest: &Digest, body: Body) -> Result<(), BlobError> {
        let response = operation.send_bytes(self.put_request(digest).body(body), digest)?;
        if response.status().is_success() { Ok(()) } else { Err(operation.refused(&response)) }
    }

    fn put_request(&self, digest: &Digest) -> RequestBuilder {
        self.client.put(self.url_of(digest)).header(CONTENT_TYPE, "application/octet-stream")
    }

    /// Sends what the server doesn't have yet, chunk by chunk.
    ///
    /// That the server shows the whole length at the end is what counts: one that ignores ranges may have answered
    /// that all is well, and have stored the last chunk, or nothing, as the blob.
    fn send_in_chunks(&self, operation: &Operation<'_>, spool: &Spool) -> Result<Chunked, BlobError> {
        if self.shows_whole(operation, spool)? {
            return Ok(Chunked::Done);
        }
        let Some(mut offset) = self.kept_so_far(operation, spool)? else { return Ok(Chunked::SendWhole) };
        while offset < spool.blob.size() {
            let chunk = self.options.chunk_bytes.unwrap_or(u64::MAX).min(spool.blob.size() - offset);
            let end = offset + chunk;
            match self.send_part(operation, spool, offset, chunk)? {
                // Never backwards, or a hostile server would keep us for ever.
                Step::More(kept) => offset = kept.filter(|kept| *kept > offset).unwrap_or(end),
                Step::Complete if end == spool.blob.size() => offset = end,
                Step::Complete | Step::Unsupported => return Ok(Chunked::SendWhole),
            }
        }
        let done = self.shows_whole(operation, spool)?;
        Ok(if done { Chunked::Done } else { Chunked::SendWhole })
    }

    /// Whether the server shows a blob of the right length.
    fn shows_whole(&self, operation: &Operation<'_>, spool: &Spool) -> Result<bool, BlobError> {
        let response = operation.send(self.client.head(self.url_of(&spool.digest)))?;
        Ok(operation.presence(&response)? && declared_length(&response) == Some(spool.blob.size()))
    }

    /// Up to which offset an earlier upload came; none if the server doesn't take chunks.
    fn kept_so_far(&self, operation: &Operation<'_>, spool: &Spool) -> Result<Option<u64>, BlobError> {
        let range = format!("bytes */{}", spool.blob.size());
        let request = self.put_request(&spool.digest).header(CONTENT_RANGE, range).body(Vec::new());
        let response = operation.send(request)?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(Some(0));
        }
        Ok(match step(operation, &response, spool.blob.size())? {
            Step::More(kept) => Some(kept.unwrap_or(0)),
            Step::Complete | Step::Unsupported => None,
        })
    }

    fn send_part(
        &self,
        operation: &Operation<'_>,
        spool: &Spool,
        start: u64,
        length: u64,
    ) -> Result<Step, BlobError> {
        let range = format!("bytes {start}-{}/{}", start + length - 1, spool.blob.size());
        let body = body_of(spool.blob.range(start, length))?;
        let request = self.put_request(&spool.digest).header(CONTENT_RANGE, range).body(body);
        let response = operation.send_bytes(request, &spool.digest)?;
        step(operation, &response, spool.blob.size())
    }
}

fn step(operation: &Operation<'_>, response: &Response, size: u64) -> Result<Step, BlobError> {
    match response.status() {
        StatusCode::PERMANENT_REDIRECT => Ok(Step::More(kept(response).filter(|kept| *kept <= size))),
        status if status.is_success() => Ok(Step::Complete),
        StatusCode::BAD_REQUEST | StatusCode::LENGTH_REQUIRED | StatusCode::RANGE_NOT_SATISFIABLE => {
            Ok(Step::Unsupported)
        }
        _ => Err(operation.refused(response)),
    }
}

/// The offset up to which a server says that it has the bytes (`Range: bytes=0-N`); anything else says nothing.
fn kept(response: &Response) -> Option<u64> {
    let range = response.headers().get(RANGE)?.to_str().ok()?;
    plain_number(range.strip_prefix("bytes=0-")?).map(|last| last + 1)
}

fn body_of(mut range: BlobReader) -> Result<Body, BlobError> {
    let length = range.length();
    if length > FROM_MEMORY_BYTES {
        return Ok(Body::sized(range, length));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
    range.read_to_end(&mut bytes).map_err(|source| BlobError::Source { source })?;
    Ok(Body::from(bytes))
}
