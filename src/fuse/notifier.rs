//! A thread of its own that tells the kernel what to forget.
//!
//! A notification waits for locks of the kernel (`inode_lock` of the parent in `fuse_reverse_inval_entry`, page
//! locks in `fuse_reverse_inval_inode`) that are held by calls which wait for an answer of ours. So it must come
//! neither from a thread that answers calls nor under a lock that such a call may want.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fuser::INodeNo;

use super::answer::contain;
use crate::model::{Ino, Name};
use crate::vfs::Invalidate;

/// How long somebody waits for his notifications at most.
const SETTLE: Duration = Duration::from_secs(5);

/// Which of an inode's cached things the kernel is to drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// The attributes.
    Attributes,
    /// The attributes and all pages.
    Content,
}

/// The receiving end of notifications: the kernel, or a test.
pub(super) trait Kernel: Send + 'static {
    /// Drops what is cached for a name.
    fn forget_entry(&self, parent: Ino, name: &OsStr) -> io::Result<()>;
    /// Drops what is cached for an inode.
    fn forget_inode(&self, ino: Ino, scope: Scope) -> io::Result<()>;
}

impl Kernel for fuser::Notifier {
    fn forget_entry(&self, parent: Ino, name: &OsStr) -> io::Result<()> {
        self.inval_entry(INodeNo(parent.0), name)
    }

    /// A negative offset spares the pages, and a length of 0 reaches to the end (`fuse_reverse_inval_inode`).
    fn forget_inode(&self, ino: Ino, scope: Scope) -> io::Result<()> {
        let offset = match scope {
            Scope::Attributes => -1,
            Scope::Content => 0,
        };
        self.inval_inode(INodeNo(ino.0), offset, 0)
    }
}

#[derive(Debug)]
enum Message {
    Entry(Ino, Name),
    Inode(Ino, Scope),
    /// Answered when all before it is delivered.
    Settle(Sender<()>),
    Stop,
}

/// The running thread; dropping it stops the thread after what is queued by then.
///
/// The drop doesn't wait: the kernel may hold a notification for as long as an application's call takes.
pub(super) struct NotifierThread {
    queue: Arc<Queue>,
    _thread: JoinHandle<()>,
}

/// The sending end: it only queues, in an unbounded channel, and so never blocks.
struct Queue(Sender<Message>);

impl NotifierThread {
    /// Starts the thread; fails if the system gives no more threads.
    pub(super) fn start(kernel: impl Kernel) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let thread = thread::Builder::new().name("fuse-notifier".into());
        let thread = thread.spawn(move || deliver_all(&kernel, &receiver))?;
        Ok(Self { queue: Arc::new(Queue(sender)), _thread: thread })
    }

    /// Where the vfs reports changes; it may outlive the thread and is silent then.
    pub(super) fn queue(&self) -> Arc<dyn Invalidate> {
        Arc::clone(&self.queue) as Arc<dyn Invalidate>
    }
}

impl Drop for NotifierThread {
    fn drop(&mut self) {
        self.queue.send(Message::Stop);
    }
}

impl Queue {
    /// The channel is closed once the mount has ended, and with it went all that the kernel had cached.
    fn send(&self, message: Message) {
        if let Err(unsent) = self.0.send(message) {
            tracing::trace!(message = ?unsent.0, "no mount left to notify");
        }
    }
}

impl Invalidate for Queue {
    fn entry(&self, parent: Ino, name: &Name) {
        self.send(Message::Entry(parent, name.clone()));
    }

    fn content(&self, ino: Ino) {
        self.send(Message::Inode(ino, Scope::Content));
    }

    fn attributes(&self, ino: Ino) {
        self.send(Message::Inode(ino, Scope::Attributes));
    }

    fn settle(&self) {
        let (done, delivered) = channel();
        self.send(Message::Settle(done));
        // The kernel may hold a notification for as long as an application's call takes: then it comes when it comes.
        let _ = delivered.recv_timeout(SETTLE);
    }
}

fn deliver_all(kernel: &impl Kernel, receiver: &Receiver<Message>) {
    for message in receiver {
        let outcome = match &message {
            Message::Entry(parent, name) => {
                contain("notify", || kernel.forget_entry(*parent, name.as_os_str()))
            }
            Message::Inode(ino, scope) => contain("notify", || kernel.forget_inode(*ino, *scope)),
            Message::Settle(done) => {
                // Whoever waited may have given up.
                let _ = done.send(());
                continue;
            }
            Message::Stop => return,
        };
        if let Some(Err(error)) = outcome {
            tracing::debug!(?message, error = &error as &dyn std::error::Error, "notification refused");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    enum Told {
        Entry(Ino, Vec<u8>),
        Inode(Ino, Scope),
    }

    /// Takes notifications only when the gate says so, fails each, and says when it is gone.
    struct Slow {
        gate: Receiver<()>,
        told: Sender<Told>,
    }

    impl Slow {
        fn tell(&self, told: Told) -> io::Result<()> {
            self.gate.recv().map_err(io::Error::other)?;
            self.told.send(told).map_err(|_| io::Error::other("test ended"))?;
            Err(io::ErrorKind::NotFound.into())
        }
    }

    impl Kernel for Slow {
        fn forget_entry(&self, parent: Ino, name: &OsStr) -> io::Result<()> {
            self.tell(Told::Entry(parent, name.as_encoded_bytes().to_vec()))
        }

        fn forget_inode(&self, ino: Ino, scope: Scope) -> io::Result<()> {
            self.tell(Told::Inode(ino, scope))
        }
    }

    fn start() -> (NotifierThread, Sender<()>, Receiver<Told>) {
        let ((open, gate), (told, heard)) = (channel(), channel());
        (NotifierThread::start(Slow { gate, told }).unwrap(), open, heard)
    }

    /// Senders get on while the kernel takes nothing, and the order is kept over errors.
    #[test]
    fn senders_never_wait_and_order_is_kept() {
        let (thread, open, heard) = start();
        let queue = thread.queue();
        queue.entry(Ino::ROOT, &Name::new("a").unwrap());
        queue.content(Ino(7));
        queue.attributes(Ino(8));
        for n in 0..1_000 {
            queue.content(Ino(n));
        }
        assert!(heard.try_recv().is_err());
        (0..1_003).for_each(|_| open.send(()).unwrap());
        assert_eq!(heard.recv(), Ok(Told::Entry(Ino::ROOT, b"a".to_vec())));
        assert_eq!(heard.recv(), Ok(Told::Inode(Ino(7), Scope::Content)));
        assert_eq!(heard.recv(), Ok(Told::Inode(Ino(8), Scope::Attributes)));
        for n in 0..1_000 {
            assert_eq!(heard.recv(), Ok(Told::Inode(Ino(n), Scope::Content)));
        }
    }

    /// What was queued before the stop is delivered, and a queue that outlives its thread is silent.
    #[test]
    fn a_stopped_thread_delivers_and_ends() {
        let (thread, open, heard) = start();
        let queue = thread.queue();
        queue.content(Ino(7));
        drop(thread);
        open.send(()).unwrap();
        assert_eq!(heard.recv(), Ok(Told::Inode(Ino(7), Scope::Content)));
        assert!(heard.recv().is_err(), "BUG: the thread did not end");
        queue.content(Ino(8));
    }
}
