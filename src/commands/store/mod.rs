//! The store for programs: `leasehold store …`.

mod blobs;
mod sweep;

use std::io::{BufRead, Write};
use std::os::unix::ffi::OsStrExt;

use super::error::{CommandError, Result};
use super::place::Context;
use crate::cli::{CoordinationMode, DigestList, DurabilityMode, ObjectsArgs, StoreAction};
use crate::engine::{Coordination, DiskSettings, Durability, ObjectStore};
use crate::model::{Digest, ParseDigestError};

/// The exit status of `has` where it could not find out: 1 would say that the blob is not there.
const UNKNOWN: u8 = 5;

/// Runs a subcommand; an error carries its code.
pub(super) fn run(action: &StoreAction, context: &Context, out: &mut dyn Write) -> Result<()> {
    let json = action.objects().format.json;
    let ran = match action {
        StoreAction::Put(args) => blobs::put(args, context, out),
        StoreAction::Get(args) => blobs::get(args, context, out),
        StoreAction::Has(args) => blobs::has(args, context, out),
        StoreAction::Missing(args) => blobs::missing(args, context, out),
        StoreAction::Inventory(args) => sweep::inventory(args, context, out),
        StoreAction::Remove(args) => sweep::remove(args, context, out),
        StoreAction::HoldBackupLease(args) => sweep::hold_backup_lease(args, context),
        StoreAction::Stats(args) => sweep::stats(args, context, out),
    };
    ran.map_err(|error| coded(error, json, matches!(action, StoreAction::Has(_))))
}

/// Adds the code to an error, but to those that say nothing at all.
fn coded(error: CommandError, json: bool, asks: bool) -> CommandError {
    if matches!(error, CommandError::Ended(_)) || error.is_closed_pipe() {
        return error;
    }
    let (code, status) = match (error.code(), error.exit_status()) {
        (code, 1) if asks => (code, UNKNOWN),
        other => other,
    };
    CommandError::Store { code, status, json, source: Box::new(error) }
}

/// Opens the store that the arguments mean.
fn open(args: &ObjectsArgs, context: &Context) -> Result<ObjectStore> {
    let durability = match args.durability {
        DurabilityMode::Required => Durability::Required,
        DurabilityMode::BestEffort => Durability::BestEffort,
    };
    let coordination = match args.coordination {
        CoordinationMode::Required => Coordination::Required,
        CoordinationMode::Process => Coordination::Process,
    };
    let settings = DiskSettings { durability, coordination, ..DiskSettings::default() };
    let store = match &args.objects {
        Some(objects) => ObjectStore::bare(objects, settings, &context.environment),
        None => ObjectStore::of_workspace(&context.workspace(&args.workspace)?, settings),
    };
    Ok(store?)
}

/// Takes text for a digest; what it said is repeated nowhere.
fn digest(text: &[u8]) -> Result<Digest> {
    let text = std::str::from_utf8(text).map_err(|_| ParseDigestError)?;
    Ok(text.parse()?)
}

/// All digests of the command line, or for `-` of standard input, one a line.
fn digests(list: &DigestList) -> Result<Vec<Digest>> {
    match &list.digests[..] {
        [only] if only == "-" => {
            let lines = std::io::stdin().lock().split(b'\n');
            let read = |source| CommandError::File { doing: "read", path: "-".into(), source };
            lines.map(|line| digest(&line.map_err(read)?)).collect()
        }
        given => given.iter().map(|text| digest(text.as_bytes())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_digest_is_never_repeated() {
        let secret = "not-a-digest-but-a-secret";
        let list = DigestList { digests: vec!["0".repeat(64).into(), secret.into()] };
        let error = coded(digests(&list).unwrap_err(), false, false);
        assert_eq!((error.exit_status(), error.line().contains(secret)), (2, false));
        assert!(error.line().starts_with("invalid_digest: ") && error.line().len() < 100);
        let error = coded(digest(&[0xff; 64]).unwrap_err(), true, true);
        let object: serde_json::Value = serde_json::from_str(&error.line()).unwrap();
        assert_eq!((object["code"].as_str(), error.exit_status()), (Some("invalid_digest"), 2));
    }
}
