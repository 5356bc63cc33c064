//! Worker threads for calls that may take long: publishing, verifying, copying, waiting for the disk.
//!
//! The threads that read requests from the kernel hand such a call over with its reply and read on.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};

use super::answer::contain;

type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of threads that run jobs in the order of their arrival.
///
/// The queue is not bounded by us: a full one would have to block the thread that reads requests, which is what
/// the pool is there to prevent. The kernel bounds it: an application waits for each of its calls, and calls
/// that nobody waits for (writeback, release) are limited by `max_background`.
pub(super) struct Pool {
    queue: Arc<Queue>,
    workers: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Pool {
    /// Starts `threads` workers, named by what they are for; fails if the system gives no more threads.
    pub(super) fn start(what: &str, threads: usize) -> io::Result<Self> {
        let mut pool = Self { queue: Arc::default(), workers: Vec::with_capacity(threads) };
        for number in 0..threads {
            let queue = Arc::clone(&pool.queue);
            let name = format!("fuse-{what}-{number}");
            pool.workers.push(thread::Builder::new().name(name).spawn(move || queue.work())?);
        }
        Ok(pool)
    }

    /// Queues a job and returns at once.
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) {
        self.queue.state.lock().jobs.push_back(Box::new(job));
        self.queue.changed.notify_one();
    }
}

/// Runs what is queued to its end, then stops the workers.
impl Drop for Pool {
    fn drop(&mut self) {
        self.queue.state.lock().closed = true;
        self.queue.changed.notify_all();
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                tracing::error!("BUG: a worker of the pool panicked outside a job");
            }
        }
    }
}

impl Queue {
    fn work(&self) {
        while let Some(job) = self.next() {
            contain("slow call", job);
        }
    }

    /// Waits for a job; none once the pool is closed and its queue is empty.
    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        while state.jobs.is_empty() && !state.closed {
            self.changed.wait(&mut state);
        }
        state.jobs.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    /// More panics than there are workers leave workers for the next job.
    #[test]
    fn a_panic_costs_no_worker() {
        let pool = Pool::start("test", 2).unwrap();
        for _ in 0..5 {
            pool.run(|| panic!("BUG: provoked by the test"));
        }
        let (sender, receiver) = channel();
        pool.run(move || sender.send(7).unwrap());
        assert_eq!(receiver.recv(), Ok(7));
    }

    /// A caller gets on while all workers are busy, and nothing queued is lost when the pool ends.
    #[test]
    fn the_queue_never_blocks_and_is_finished_at_the_end() {
        let pool = Pool::start("test", 1).unwrap();
        let (release, blocked) = channel::<()>();
        pool.run(move || assert!(blocked.recv().is_ok()));
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..100 {
            let done = Arc::clone(&done);
            pool.run(move || {
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        assert_eq!(done.load(Ordering::SeqCst), 0);
        release.send(()).unwrap();
        drop(pool);
        assert_eq!(done.load(Ordering::SeqCst), 100);
    }
}
