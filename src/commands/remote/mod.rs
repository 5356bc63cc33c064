//! A mounted checkout, by way of its daemon's control socket.
//!
//! One connection carries one request and its response, each one line of JSON. While the daemon works it sends empty
//! lines, so that a client can tell a long check-in from a daemon that hangs.

mod client;
mod protocol;
mod socket;

pub use client::Remote;
pub use protocol::{ErrorForm, Kind, MAX_LINE_BYTES, Request, Response, answer};
pub use socket::{address, file_name};
