//! A blob on its way to a connection, in large pieces, from buffers that are used again.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

/// How much of a file is read at once: each piece costs two changes of threads, whatever its size.
const PIECE_BYTES: usize = 1 << 20;
/// How many buffers are kept for the next pieces.
const KEPT_BUFFERS: usize = 32;

/// Buffers of [`PIECE_BYTES`]: fresh memory of that size would be zeroed by the kernel, page by page, for each piece.
#[derive(Default)]
pub(super) struct Buffers(Mutex<Vec<Vec<u8>>>);

/// The filled part of a buffer, which goes back when the connection has written it.
struct Lent {
    buffer: Vec<u8>,
    length: usize,
    home: Arc<Buffers>,
}

impl Buffers {
    fn take(&self) -> Vec<u8> {
        self.0.lock().pop().unwrap_or_else(|| vec![0; PIECE_BYTES])
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        let mut kept = self.home.0.lock();
        if kept.len() < KEPT_BUFFERS {
            kept.push(buffer);
        }
    }
}

/// A file that is being sent.
pub(super) struct Outgoing {
    file: Arc<File>,
    size: u64,
    /// Up to where it is read, and up to where it is handed on.
    read: u64,
    sent: u64,
    buffers: Arc<Buffers>,
    first: Option<Bytes>,
    /// The piece that is read while the one before it is written.
    next: Option<JoinHandle<io::Result<Bytes>>>,
}

impl Outgoing {
    /// Reads the first piece, which is all of most blobs; blocks.
    pub(super) fn begin(file: File, size: u64, buffers: &Arc<Buffers>) -> io::Result<Self> {
        let first = read_piece(&file, 0, size, buffers)?;
        let (file, buffers) = (Arc::new(file), Arc::clone(buffers));
        Ok(Self { file, size, read: first.len() as u64, sent: 0, buffers, first: Some(first), next: None })
    }

    fn hand_on(&mut self, piece: Bytes) -> Frame<Bytes> {
        self.sent += piece.len() as u64;
        if self.read < self.size {
            let (file, from, size) = (Arc::clone(&self.file), self.read, self.size);
            let buffers = Arc::clone(&self.buffers);
            self.next = Some(tokio::task::spawn_blocking(move || read_piece(&file, from, size, &buffers)));
        }
        Frame::data(piece)
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(self.hand_on(first))));
        }
        let Some(next) = &mut self.next else { return Poll::Ready(None) };
        let piece = ready!(Pin::new(next).poll(context)).map_err(io::Error::other).flatten();
        self.next = None;
        Poll::Ready(Some(piece.map(|piece| {
            self.read += piece.len() as u64;
            self.hand_on(piece)
        })))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.size - self.sent)
    }
}

fn read_piece(file: &File, from: u64, size: u64, buffers: &Arc<Buffers>) -> io::Result<Bytes> {
    let length = usize::try_from(size - from).unwrap_or(usize::MAX).min(PIECE_BYTES);
    let mut lent = Lent { buffer: buffers.take(), length, home: Arc::clone(buffers) };
    file.read_exact_at(&mut lent.buffer[..length], from)?;
    Ok(Bytes::from_owner(lent))
}

/// An answer's body with the place that its request has: the place is free again when the body is written or dropped.
pub(super) struct Placed {
    body: axum::body::Body,
    _place: OwnedSemaphorePermit,
}

impl Placed {
    pub(super) fn new(body: axum::body::Body, place: OwnedSemaphorePermit) -> Self {
        Self { body, _place: place }
    }
}

impl Body for Placed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
