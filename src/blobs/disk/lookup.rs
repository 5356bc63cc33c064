//! Which blobs of many are there.

use std::collections::HashSet;
use std::fs::File;
use std::sync::OnceLock;

use super::DiskStore;
use super::ground::Dir;
use super::publish::fan_out_of;
use crate::blobs::BlobError;
use crate::blobs::parallel::in_parallel;
use crate::model::Digest;

/// How many probes are on their way at once: enough for a disk's queue, and no burden for a server's.
const PROBES: usize = 16;

/// How many digests make another thread worth its start.
const DIGESTS_PER_THREAD: usize = 8;

/// The directories that many look-ups share, each opened once.
struct Lookup<'a> {
    store: &'a DiskStore,
    objects: Option<File>,
    fan_outs: [OnceLock<Option<Dir>>; 256],
}

impl Lookup<'_> {
    fn has(&self, digest: &Digest) -> Result<bool, BlobError> {
        let Some(objects) = &self.objects else { return Ok(false) };
        let number = fan_out_of(digest);
        let slot = &self.fan_outs[usize::from(number)];
        let dir = match slot.get() {
            Some(dir) => dir,
            None => {
                let opened = self.store.open_fan_out(objects, number)?;
                slot.get_or_init(|| opened)
            }
        };
        dir.as_ref().map_or(Ok(false), |dir| self.store.is_file_in(dir, digest))
    }
}

impl DiskStore {
    /// The digests, of those given and in their order, that no regular file is at the address of; each once.
    pub(super) fn missing_of(&self, digests: &[Digest]) -> Result<Vec<Digest>, BlobError> {
        let mut asked = HashSet::with_capacity(digests.len());
        let digests: Vec<Digest> = digests.iter().copied().filter(|digest| asked.insert(*digest)).collect();
        if digests.is_empty() {
            return Ok(digests);
        }
        let fan_outs = [const { OnceLock::new() }; 256];
        let lookup = Lookup { store: self, objects: self.open_objects()?, fan_outs };
        let threads = PROBES.min(digests.len().div_ceil(DIGESTS_PER_THREAD));
        let present = in_parallel(threads, &digests, |digest| lookup.has(digest));
        let mut missing = Vec::new();
        for (digest, present) in digests.into_iter().zip(present) {
            if !present? {
                missing.push(digest);
            }
        }
        Ok(missing)
    }
}
