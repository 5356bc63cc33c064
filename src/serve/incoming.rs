//! A request's body on its way to the store, from the runtime to a blocking thread.

use std::io::{self, Read};
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::answers::Refusal;
use super::metrics::Metrics;
use crate::clock::Clock;

/// After this time the body as a whole must have come at [`LEAST_BYTES_PER_SECOND`] at least.
const START_MS: i64 = 60_000;
/// The slowest that a sender may be: one byte each half minute would hold a place for years.
const LEAST_BYTES_PER_SECOND: i64 = 16 << 10;
/// How many pieces may wait for the disk.
const PIECES: usize = 4;

/// A piece of a body.
enum Piece {
    Bytes(Bytes),
    /// All has come. Without this the body was broken off.
    End,
}

/// The blocking side: reads what the other side gives.
pub(super) struct Incoming {
    pieces: mpsc::Receiver<Piece>,
    current: Bytes,
    ended: bool,
}

/// The runtime's side.
pub(super) struct Feed(mpsc::Sender<Piece>);

/// Makes both sides of one body.
pub(super) fn channel() -> (Feed, Incoming) {
    let (sender, pieces) = mpsc::channel(PIECES);
    (Feed(sender), Incoming { pieces, current: Bytes::new(), ended: false })
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() && !self.ended {
            match self.pieces.blocking_recv() {
                Some(Piece::Bytes(bytes)) => self.current = bytes,
                Some(Piece::End) => self.ended = true,
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let count = buffer.len().min(self.current.len());
        buffer[..count].copy_from_slice(&self.current.split_to(count));
        Ok(count)
    }
}

impl Feed {
    /// Hands a body on to its end. A reader that has gone wants no more, and knows why.
    pub(super) async fn run(
        self,
        mut body: Body,
        bound: u64,
        silence: Duration,
        clock: &dyn Clock,
        metrics: &Metrics,
    ) -> Result<(), Refusal> {
        let begin_ms = clock.now().boot_ms;
        let mut received: u64 = 0;
        loop {
            let frame = tokio::select! {
                () = self.0.closed() => return Ok(()),
                frame = timeout(silence, next_frame(&mut body)) => frame.map_err(|_| Refusal::TooSlow)?,
            };
            let Some(frame) = frame else { break };
            let Ok(bytes) = frame.map_err(|_| Refusal::BrokenOff)?.into_data() else { continue };
            received += bytes.len() as u64;
            metrics.received_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            if received > bound {
                return Err(Refusal::TooLarge);
            }
            if is_too_slow(received, clock.now().boot_ms - begin_ms) {
                return Err(Refusal::TooSlow);
            }
            if self.0.send(Piece::Bytes(bytes)).await.is_err() {
                return Ok(());
            }
        }
        let _reader_gone = self.0.send(Piece::End).await;
        Ok(())
    }
}

/// The next part of a body; none at its end.
async fn next_frame(body: &mut Body) -> Option<Result<Frame<Bytes>, axum::Error>> {
    std::future::poll_fn(|context| std::pin::Pin::new(&mut *body).poll_frame(context)).await
}

fn is_too_slow(received: u64, elapsed_ms: i64) -> bool {
    let expected = (elapsed_ms - START_MS).max(0) / 1000 * LEAST_BYTES_PER_SECOND;
    received < u64::try_from(expected).unwrap_or(0)
}

/// Reads a short body whole.
pub(super) async fn read_short(mut body: Body, bound: usize, silence: Duration) -> Result<Vec<u8>, Refusal> {
    let mut whole = Vec::new();
    while let Some(frame) = timeout(silence, next_frame(&mut body)).await.map_err(|_| Refusal::TooSlow)? {
        let Ok(bytes) = frame.map_err(|_| Refusal::BrokenOff)?.into_data() else { continue };
        if whole.len() + bytes.len() > bound {
            return Err(Refusal::TooLarge);
        }
        whole.extend_from_slice(&bytes);
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_may_begin_slowly_and_must_not_stay_slow() {
        for (received, elapsed_ms, expected) in [
            (0, 0, false),
            (0, 60_999, false),
            (0, 61_000, true),
            (16 << 10, 61_999, false),
            (16 << 10, 62_000, true),
            (1 << 30, 3_600_000, false),
            (1 << 20, 3_600_000, true),
            (0, -5, false),
        ] {
            assert_eq!(is_too_slow(received, elapsed_ms), expected, "{received} {elapsed_ms}");
        }
    }
}
