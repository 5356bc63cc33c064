//! What is answered to which request.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::header::{
    CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderValue, TRANSFER_ENCODING,
};
use axum::http::{StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};

use super::answers::Refusal;
use super::incoming::{channel, read_short};
use super::outgoing::Placed;
use super::shared::Shared;
use crate::blobs::{BlobError, BlobStore};
use crate::model::Digest;

/// How many digests one request may name.
const BATCH: usize = 1000;
/// How long such a request may be.
const BATCH_BYTES: usize = 256 << 10;
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

type Server = State<Arc<Shared>>;

/// The service of each connection.
pub(super) fn router(shared: &Arc<Shared>) -> Router {
    let blob = || get(send).head(describe).put(receive);
    Router::new()
        .route("/cas/findMissing", post(find_missing))
        .route("/cas/", blob())
        .route("/cas/{*address}", blob())
        .layer(from_fn_with_state(Arc::clone(shared), take_place))
        // When all places are taken it is of the most interest.
        .route("/metrics", get(metrics))
        .layer(from_fn_with_state(Arc::clone(shared), enter))
        .route("/healthz", get(|| async { "ok\n" }))
        .with_state(Arc::clone(shared))
}

/// Lets in who has a token, and counts the answers.
async fn enter(State(shared): Server, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let response = match shared.admit(&request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    shared.metrics.answered(&method, response.status());
    response
}

/// Keeps a place for the request until its answer is written.
async fn take_place(State(shared): Server, request: Request, next: Next) -> Result<Response, Refusal> {
    let place = shared.place()?;
    let response = next.run(request).await;
    Ok(response.map(|body| Body::new(Placed::new(body, place))))
}

/// The digest of a path, as it was sent: an escaped digit is none.
fn address(uri: &Uri) -> Result<Digest, Refusal> {
    let text = uri.path().strip_prefix("/cas/").unwrap_or_default();
    Digest::from_str(text).map_err(|_| Refusal::BadDigest)
}

async fn send(State(shared): Server, uri: Uri) -> Result<Response, Refusal> {
    let digest = address(&uri)?;
    let body = shared.ask(move |shared| shared.open(&digest)).await?;
    shared.metrics.gets.fetch_add(1, Ordering::Relaxed);
    let length = HttpBody::size_hint(&body).lower();
    shared.metrics.sent_bytes.fetch_add(length, Ordering::Relaxed);
    Ok(([(CONTENT_TYPE, OCTETS)], Body::new(body)).into_response())
}

async fn describe(State(shared): Server, uri: Uri) -> Result<Response, Refusal> {
    let digest = address(&uri)?;
    let size = shared.ask(move |shared| shared.store().size(&digest)).await?;
    let size = size.ok_or(Refusal::Missing)?;
    Ok(([(CONTENT_TYPE, OCTETS), (CONTENT_LENGTH, HeaderValue::from(size))], ()).into_response())
}

async fn receive(
    State(shared): Server,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Refusal> {
    let digest = address(&uri)?;
    if headers.contains_key(CONTENT_RANGE) {
        return Err(Refusal::RangedPut);
    }
    if !is_type(&headers, "application/octet-stream").unwrap_or(true) {
        return Err(Refusal::WrongType);
    }
    let bound = shared.options.max_body_bytes;
    let declared = HttpBody::size_hint(&body).exact().filter(|_| !headers.contains_key(TRANSFER_ENCODING));
    if declared.is_some_and(|declared| declared > bound) {
        return Err(Refusal::TooLarge);
    }
    let (feed, incoming) = channel();
    let storing = shared.ask(move |shared| {
        let store = shared.store();
        let known = store.has(&digest)?;
        match store.put_known(&digest, declared.unwrap_or(0), Box::new(incoming)) {
            // What came is other bytes than were promised: what is at the address is not meant.
            Err(BlobError::Corrupt { .. }) => Ok(None),
            stored => stored.map(|()| Some(known)),
        }
    });
    let silence = shared.options.patience.silence;
    let feeding = feed.run(body, bound, silence, &*shared.clock, &shared.metrics);
    // The store is waited for in any case: what came is removed before the answer says so.
    let (fed, stored) = tokio::join!(feeding, storing);
    fed?;
    let known = stored?.ok_or(Refusal::WrongBytes)?;
    shared.metrics.puts.fetch_add(1, Ordering::Relaxed);
    Ok(if known { StatusCode::OK } else { StatusCode::CREATED })
}

/// Whether the body is of a media type, whatever its parameters; none if nothing is said.
fn is_type(headers: &HeaderMap, expected: &str) -> Option<bool> {
    let given = headers.get(CONTENT_TYPE)?.to_str().unwrap_or_default();
    Some(given.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(expected))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    digests: Vec<String>,
}

#[derive(Serialize)]
struct Answered {
    missing: Vec<String>,
}

async fn find_missing(State(shared): Server, headers: HeaderMap, body: Body) -> Result<Response, Refusal> {
    if is_type(&headers, "application/json") != Some(true) {
        return Err(Refusal::WrongType);
    }
    let body = read_short(body, BATCH_BYTES, shared.options.patience.silence).await?;
    let asked: Asked = serde_json::from_slice(&body).map_err(|_| Refusal::BadRequest)?;
    if asked.digests.len() > BATCH {
        return Err(Refusal::TooMany);
    }
    let digests: Result<Vec<Digest>, _> = asked.digests.iter().map(|text| text.parse()).collect();
    let digests = digests.map_err(|_| Refusal::BadDigest)?;
    let missing = shared.ask(move |shared| shared.store().find_missing(&digests)).await?;
    let answered = Answered { missing: missing.iter().map(Digest::to_hex).collect() };
    let text = serde_json::to_string(&answered).expect("BUG: texts are JSON");
    Ok(([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], text).into_response())
}

async fn metrics(State(shared): Server) -> Response {
    let text = shared.metrics.text(shared.in_progress(), shared.open_connections());
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(CONTENT_TYPE, kind)], text).into_response()
}
