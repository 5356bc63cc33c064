use std::error::Error;
use std::io::{self, ErrorKind};

use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::blobs::BlobError;

/// Why a request is not done. Each has a constant text: nothing of a request is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    BadDigest,
    Missing,
    WrongBytes,
    RangedPut,
    BadRequest,
    BrokenOff,
    TooSlow,
    TooLarge,
    TooMany,
    WrongType,
    NoToken,
    ReadOnly,
    Busy,
    StoreFull,
    StoreFailed,
}

impl Refusal {
    fn say(self) -> (StatusCode, &'static str) {
        match self {
            Self::BadDigest => (StatusCode::BAD_REQUEST, "an address is 64 lower-case hexadecimal digits\n"),
            Self::Missing => (StatusCode::NOT_FOUND, "no such blob\n"),
            Self::WrongBytes => (StatusCode::BAD_REQUEST, "the bytes are not those of the address\n"),
            Self::RangedPut => (StatusCode::BAD_REQUEST, "a blob is put in one request\n"),
            Self::BadRequest => {
                (StatusCode::BAD_REQUEST, "expected {\"digests\": [digest...]} and nothing else\n")
            }
            Self::BrokenOff => (StatusCode::BAD_REQUEST, "the body ended before it was whole\n"),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "the body came too slowly\n"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than is taken\n"),
            Self::TooMany => (StatusCode::PAYLOAD_TOO_LARGE, "more than 1000 digests\n"),
            Self::WrongType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body's type is not taken\n"),
            Self::NoToken => (StatusCode::UNAUTHORIZED, "a token is needed\n"),
            Self::ReadOnly => (StatusCode::FORBIDDEN, "this token is for reading only\n"),
            Self::Busy => (StatusCode::TOO_MANY_REQUESTS, "as many requests as can be worked on\n"),
            Self::StoreFull => (StatusCode::INSUFFICIENT_STORAGE, "the store is full\n"),
            Self::StoreFailed => {
                (StatusCode::INTERNAL_SERVER_ERROR, "the store failed; see the server's log\n")
            }
        }
    }

    fn extra_header(self) -> Option<(HeaderName, HeaderValue)> {
        match self {
            Self::NoToken => Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
            Self::Busy => Some((RETRY_AFTER, HeaderValue::from_static("1"))),
            _ => None,
        }
    }

    /// Whether a body may have been left unread: then the connection can't go on.
    fn leaves_a_body(self) -> bool {
        !matches!(self, Self::Missing | Self::WrongBytes | Self::BadRequest | Self::TooMany)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, text) = self.say();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        headers.extend(self.extra_header());
        if self.leaves_a_body() {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        (status, headers, Body::from(text)).into_response()
    }
}

/// What the store's error is to the one who asked; what is the server's own trouble goes to its log.
impl From<BlobError> for Refusal {
    fn from(error: BlobError) -> Self {
        match &error {
            BlobError::Missing { .. } => return Self::Missing,
            BlobError::Source { .. } => return Self::BrokenOff,
            _ => {}
        }
        tracing::error!(error = &error as &dyn Error, "the store failed");
        match error.io_error().map(io::Error::kind) {
            Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => Self::StoreFull,
            _ => Self::StoreFailed,
        }
    }
}
