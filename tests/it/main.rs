//! The integration tests: the shape of the sources, the program on a mounted workspace, the
//! store's commands, and a reference model.
//!
//! `scripts/test.sh` runs what has `mount` in its name a second time as an ordinary user, from a copy of this
//! program, with `LEASEHOLD_BIN` naming the program under test. What needs root is in `privileged`.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may fail where it stands, and waits by the machine's own clock"
)]

mod admission;
mod agent;
mod faults;
mod folding;
mod host;
mod kernel;
mod lease_storm;
mod model;
mod mounted;
mod peer;
mod privileged;
mod rules;
mod serve;
mod sharing;
mod store;
mod storm;
mod tidy;
mod tidy_source;
mod users;
