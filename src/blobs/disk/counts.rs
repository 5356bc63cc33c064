use std::sync::atomic::{AtomicU64, Ordering};

/// What a store has done since it was opened; what failed isn't counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskCounts {
    /// Blobs that were put, those that were there already included.
    pub puts: u64,
    /// Blobs that were handed out.
    pub gets: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    puts: AtomicU64,
    gets: AtomicU64,
}

impl Counters {
    pub(super) fn note_puts(&self, count: usize) {
        self.puts.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(super) fn note_get(&self) {
        self.gets.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> DiskCounts {
        DiskCounts { puts: self.puts.load(Ordering::Relaxed), gets: self.gets.load(Ordering::Relaxed) }
    }
}
