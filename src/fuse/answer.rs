//! The one path from a call to its reply: errors become numbers, panics are contained.

use std::any::Any;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fuser::Errno;

use super::errno;
use crate::vfs::VfsError;

/// A call that is answered with an error number, and why.
pub(super) struct Refusal {
    errno: Errno,
    cause: Option<VfsError>,
}

impl From<VfsError> for Refusal {
    fn from(cause: VfsError) -> Self {
        Self { errno: errno::of(&cause), cause: Some(cause) }
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self { errno, cause: None }
    }
}

impl Refusal {
    /// EIO is somebody's fault and belongs in the log; every other number is the call's ordinary outcome.
    fn log(&self, operation: &'static str) {
        let error = self.cause.as_ref().map(|cause| cause as &dyn Error);
        let errno = i32::from(self.errno);
        if self.errno == Errno::EIO {
            tracing::error!(operation, errno, error, "call failed");
        } else {
            tracing::debug!(operation, errno, error, "call refused");
        }
    }
}

/// A reply that can carry an error number. One that is dropped unsent answers EIO by itself.
pub(super) trait Reply {
    /// Answers with `errno`.
    fn refuse(self, errno: Errno);
}

macro_rules! replies {
    ($($reply:ident),+) => {
        $(impl Reply for fuser::$reply {
            fn refuse(self, errno: Errno) {
                self.error(errno);
            }
        })+
    };
}
replies!(ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry);
replies!(ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr);

/// Makes a call and sends its outcome: `send` on success, the error's number otherwise, EIO if either panics.
pub(super) fn answer<R: Reply, T, E: Into<Refusal>>(
    operation: &'static str,
    mut reply: R,
    call: impl FnOnce(&mut R) -> Result<T, E>,
    send: impl FnOnce(R, T),
) {
    contain(operation, || match call(&mut reply) {
        Ok(value) => send(reply, value),
        Err(error) => {
            let refusal: Refusal = error.into();
            refusal.log(operation);
            reply.refuse(refusal.errno);
        }
    });
}

/// Runs `work`; a panic ends it alone, not the thread that serves the mount, and is logged as the bug that it is.
pub(super) fn contain<T>(operation: &'static str, work: impl FnOnce() -> T) -> Option<T> {
    let outcome = catch_unwind(AssertUnwindSafe(work));
    outcome
        .inspect_err(|panic| tracing::error!(operation, panic = message(&**panic), "BUG: a call panicked"))
        .ok()
}

/// The text of a panic; macros make it one of two types.
fn message(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Records what was sent, and answers EIO when dropped unsent, as fuser's replies do.
    struct Fake<'a>(&'a Cell<Option<i32>>);

    impl Reply for Fake<'_> {
        fn refuse(self, errno: Errno) {
            self.0.set(Some(errno.code()));
        }
    }

    impl Drop for Fake<'_> {
        fn drop(&mut self) {
            let sent = self.0.get().or(Some(Errno::EIO.code()));
            self.0.set(sent);
        }
    }

    fn sent(call: impl FnOnce() -> Result<i32, Refusal>) -> Option<i32> {
        let slot = Cell::new(None);
        answer("test", Fake(&slot), |_| call(), |reply, value| reply.0.set(Some(value)));
        slot.get()
    }

    /// Each outcome of a call is answered exactly once, a panic too.
    #[test]
    fn every_outcome_is_answered() {
        assert_eq!(sent(|| Ok(0)), Some(0));
        assert_eq!(sent(|| Err(VfsError::NotFound.into())), Some(Errno::ENOENT.code()));
        assert_eq!(sent(|| Err(Errno::EINVAL.into())), Some(Errno::EINVAL.code()));
        assert_eq!(sent(|| panic!("BUG: provoked by the test")), Some(Errno::EIO.code()));
    }

    /// A panic while sending is contained as well.
    #[test]
    fn a_panic_in_the_reply_is_contained() {
        let slot = Cell::new(None);
        let send = |_reply: Fake<'_>, ()| panic!("BUG: provoked by the test");
        answer("test", Fake(&slot), |_| Ok::<_, Refusal>(()), send);
        assert_eq!(slot.get(), Some(Errno::EIO.code()));
    }
}
