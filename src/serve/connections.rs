//! Connections: how many, how long they may be silent, and how they end.

use std::future::Future;
use std::io;
use std::net::TcpStream as StdTcpStream;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::quiet::Quiet;
use super::routes::router;
use super::shared::Shared;

/// How long the pause is after a connection could not be taken: without descriptors it can't be taken at once either.
const PAUSE: Duration = Duration::from_millis(100);

/// Takes connections until `stop` is over, and then waits for what is being answered.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>, stop: impl Future<Output = ()>) {
    let graceful = GracefulShutdown::new();
    let service = TowerToHyperService::new(router(&shared));
    let patience = shared.options.patience;
    let mut stop = pin!(stop);
    loop {
        let taken = tokio::select! {
            () = &mut stop => break,
            taken = take(&listener, &shared.connections) => taken,
        };
        let (stream, place) = match taken {
            Ok(taken) => taken,
            // It was gone before it was taken: nothing of ours.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                tracing::warn!(%error, "can't take a connection");
                sleep(PAUSE).await;
                continue;
            }
        };
        let (stream, rest) = match split_off(stream) {
            Ok(both) => both,
            Err(error) => {
                tracing::warn!(%error, "can't use a connection");
                continue;
            }
        };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            // Who has nothing more to send may still read why it was too little.
            .half_close(true)
            .header_read_timeout(patience.head)
            .serve_connection(TokioIo::new(Quiet::new(stream, patience.silence)), service.clone());
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection broke");
            }
            linger(rest, patience.linger).await;
            drop(place);
        });
    }
    drop(listener);
    if timeout(patience.stop, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests that are not done yet are broken off");
    }
}

/// Waits for a place, and then for a connection.
async fn take(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, place))
}

/// The connection, and a second descriptor of it that keeps it from being closed with the first.
fn split_off(stream: TcpStream) -> io::Result<(TcpStream, StdTcpStream)> {
    stream.set_nodelay(true)?;
    let stream = stream.into_std()?;
    let rest = stream.try_clone()?;
    Ok((TcpStream::from_std(stream)?, rest))
}

/// Reads what still comes, until the other side has closed or the time is over.
async fn linger(rest: StdTcpStream, time: Duration) {
    let Ok(mut rest) = TcpStream::from_std(rest) else { return };
    let mut ignored = vec![0; 64 << 10];
    let drained = async { while rest.read(&mut ignored).await.is_ok_and(|count| count > 0) {} };
    let _late = timeout(time, drained).await;
}
