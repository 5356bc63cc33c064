//! What a store elsewhere has: one digest by HEAD, many by `findMissing`.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use reqwest::StatusCode;
use reqwest::blocking::Response;
use reqwest::header::CONTENT_TYPE;
use serde::{Deserialize, Serialize};

use super::HttpStore;
use super::exchange::{Operation, declared_length};
use crate::blobs::{BlobError, TransportFault};
use crate::model::Digest;

/// How many digests one request may name.
const BATCH: usize = 1000;
/// How long an answer to `findMissing` may be; a request of [`BATCH`] digests has 67 kB.
const ANSWER_BYTES: usize = 256 << 10;
/// How many probes of single digests run at a time.
const PROBES: usize = 16;

#[derive(Serialize)]
struct Asked {
    digests: Vec<String>,
}

#[derive(Deserialize)]
struct Answered {
    missing: Vec<String>,
}

impl HttpStore {
    pub(super) fn probe(&self, digest: &Digest) -> Result<bool, BlobError> {
        let operation = Operation::begin("look for a blob", &*self.clock, self.options.probe_deadline);
        let response = operation.send(self.client.head(self.url_of(digest)))?;
        operation.presence(&response)
    }

    pub(super) fn missing_of(&self, digests: &[Digest]) -> Result<Vec<Digest>, BlobError> {
        let mut seen = HashSet::with_capacity(digests.len());
        let distinct: Vec<Digest> = digests.iter().copied().filter(|digest| seen.insert(*digest)).collect();
        let mut missing = Vec::new();
        for batch in distinct.chunks(BATCH) {
            let found = match self.missing_of_batch(batch)? {
                Some(found) => found,
                None => self.missing_by_probes(batch)?,
            };
            missing.extend(found);
        }
        Ok(missing)
    }

    /// Asks for all at once; none if the server can't be asked that.
    fn missing_of_batch(&self, batch: &[Digest]) -> Result<Option<Vec<Digest>>, BlobError> {
        let operation = Operation::begin("look for blobs", &*self.clock, self.options.probe_deadline);
        let asked = Asked { digests: batch.iter().map(Digest::to_hex).collect() };
        let body = serde_json::to_vec(&asked).expect("BUG: texts are JSON");
        let url = format!("{}findMissing", self.base);
        let request = self.client.post(url).header(CONTENT_TYPE, "application/json").body(body);
        let response = operation.send(request)?;
        match response.status() {
            status if status.is_success() => read_answer(&operation, response, batch).map(Some),
            // A plain HTTP cache.
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => Ok(None),
            _ => Err(operation.refused(&response)),
        }
    }

    /// Probes each digest by itself, and stops soon after the first failure.
    fn missing_by_probes(&self, batch: &[Digest]) -> Result<Vec<Digest>, BlobError> {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut absent = Vec::new();
            while let Some(digest) = batch.get(next.fetch_add(1, Ordering::Relaxed)) {
                match self.probe(digest) {
                    Ok(true) => {}
                    Ok(false) => absent.push(*digest),
                    Err(error) => {
                        next.store(batch.len(), Ordering::Relaxed);
                        return Err(error);
                    }
                }
            }
            Ok(absent)
        };
        let absent: Result<Vec<_>, BlobError> = thread::scope(|scope| {
            let workers: Vec<_> = (0..PROBES.min(batch.len())).map(|_| scope.spawn(work)).collect();
            workers.into_iter().map(|worker| worker.join().expect("BUG: a probe panicked")).collect()
        });
        let absent: HashSet<Digest> = absent?.into_iter().flatten().collect();
        Ok(batch.iter().copied().filter(|digest| absent.contains(digest)).collect())
    }
}

/// The digests of the batch that the answer names, in the batch's order; what was not asked for is left out.
fn read_answer(
    operation: &Operation<'_>,
    mut response: Response,
    batch: &[Digest],
) -> Result<Vec<Digest>, BlobError> {
    let too_large = || operation.failed(TransportFault::TooLarge);
    if declared_length(&response).is_some_and(|length| length > ANSWER_BYTES as u64) {
        return Err(too_large());
    }
    let mut bytes = vec![0; ANSWER_BYTES + 1];
    let mut filled = 0;
    loop {
        match operation.read(&mut response, &mut bytes[filled..])? {
            0 if filled == bytes.len() => return Err(too_large()),
            0 => break,
            count => filled += count,
        }
    }
    let answered: Answered =
        serde_json::from_slice(&bytes[..filled]).map_err(|_| operation.failed(TransportFault::BadAnswer))?;
    let named: HashSet<Digest> = answered.missing.iter().filter_map(|text| text.parse().ok()).collect();
    Ok(batch.iter().copied().filter(|digest| named.contains(digest)).collect())
}
