//! The subcommands, one file each: read the arguments, ask the engine, print.
//!
//! A command doesn't know whether its checkout is mounted: [`place::Site::ops`] gives it the daemon or the catalog.

pub mod error;
pub mod forms;
pub mod output;
pub mod place;
pub mod remote;
