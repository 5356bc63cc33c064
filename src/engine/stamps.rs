use std::sync::Arc;

use crate::blobs::{Stamp, Stamps};
use crate::catalog::{Catalog, StampRow};
use crate::model::Digest;

/// Keeps the store's stamps in the catalog. One that can't be read or written costs a verification, nothing else.
pub(super) struct CatalogStamps(pub(super) Arc<Catalog>);

impl Stamps for CatalogStamps {
    fn stamp(&self, digest: &Digest) -> Option<Stamp> {
        match self.0.stamp(digest) {
            Ok(row) => row.map(|row| Stamp {
                inode: row.inode,
                size: row.size,
                mtime_ns: row.mtime_ns,
                ctime_ns: row.ctime_ns,
            }),
            Err(error) => {
                tracing::warn!(%digest, %error, "can't read a stamp");
                None
            }
        }
    }

    fn record(&self, stamps: &[(Digest, Stamp)]) {
        let row = |stamp: &Stamp| StampRow {
            inode: stamp.inode,
            size: stamp.size,
            mtime_ns: stamp.mtime_ns,
            ctime_ns: stamp.ctime_ns,
        };
        let rows: Vec<_> = stamps.iter().map(|(digest, stamp)| (*digest, row(stamp))).collect();
        if let Err(error) = self.0.record_stamps(&rows) {
            tracing::warn!(%error, "can't record stamps");
        }
    }
}
