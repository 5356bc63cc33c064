//! Leasehold: a filesystem for documents that can't be merged.
//!
//! `docs/ARCHITECTURE.md` tells how the modules stand on each other.

pub mod app;
pub mod blobs;
pub mod catalog;
pub mod cli;
pub mod clock;
pub mod commands;
pub mod config;
pub mod engine;
pub mod fuse;
pub mod host;
pub mod ids;
pub mod model;
pub mod serve;
pub mod sys;
pub mod vfs;
