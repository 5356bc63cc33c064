use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// How many items a thread takes at a time, of very many: fewer would be a quarrel over the counter.
const MOST_AT_ONCE: usize = 64;

/// Applies `action` to each item on up to `threads` threads; the results are in order.
pub(super) fn in_parallel<T: Sync, R: Send>(
    threads: usize,
    items: &[T],
    action: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let threads = threads.min(items.len());
    if threads <= 1 {
        return items.iter().map(action).collect();
    }
    let step = (items.len() / threads / 4).clamp(1, MOST_AT_ONCE);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let start = next.fetch_add(step, Ordering::Relaxed);
            let Some(part) = items.get(start..items.len().min(start + step)).filter(|part| !part.is_empty())
            else {
                return done;
            };
            done.push((start, part.iter().map(&action).collect::<Vec<R>>()));
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined =
            workers.into_iter().flat_map(|worker| worker.join().expect("BUG: the work doesn't panic"));
        let mut done: Vec<_> = joined.collect();
        done.sort_by_key(|(start, _)| *start);
        done.into_iter().flat_map(|(_, results)| results).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_and_threads_are_bounded() {
        for count in [0, 1, 7, 40, 5_000] {
            let items: Vec<usize> = (0..count).collect();
            let (running, peak) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let results = in_parallel(16, &items, |item| {
                peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
                item * 2
            });
            assert_eq!(results, items.iter().map(|item| item * 2).collect::<Vec<_>>());
            assert!(peak.into_inner() <= 16);
        }
    }
}
