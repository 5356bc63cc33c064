use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use super::super::program::{as_shells_tell, failed};

use serde::Serialize;

use super::super::error::{CommandError, Result};
use super::super::output::{Printer, table};
use super::super::place::Context;
use super::{digest, open};
use crate::cli::{StoreArgsOnly, StoreBackupArgs, StoreRemoveArgs};
use crate::sys;

#[derive(Serialize)]
struct BlobForm {
    digest: String,
    size: u64,
    mtime_ms: i64,
}

#[derive(Serialize)]
struct RemovedForm {
    digest: String,
    removed: bool,
}

#[derive(Serialize)]
struct StatsForm {
    blobs: u64,
    bytes: u64,
    counters: CountersForm,
}

#[derive(Serialize)]
struct CountersForm {
    puts: u64,
    gets: u64,
}

/// Lists every blob.
pub(super) fn inventory(args: &StoreArgsOnly, context: &Context, out: &mut dyn Write) -> Result<()> {
    let stored = open(&args.objects, context)?.inventory()?;
    let form = |blob: &crate::engine::Stored| BlobForm {
        digest: blob.digest.to_hex(),
        size: blob.size,
        mtime_ms: blob.mtime_ms,
    };
    let forms: Vec<_> = stored.iter().map(form).collect();
    Printer::new(out, args.objects.format.json).print(&forms, |out| {
        forms.iter().try_for_each(|blob| writeln!(out, "{} {} {}", blob.digest, blob.size, blob.mtime_ms))
    })?;
    Ok(())
}

/// Removes a blob that nobody has put since, and says whether it did.
pub(super) fn remove(args: &StoreRemoveArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let digest = digest(args.digest.as_bytes())?;
    let removed = open(&args.objects, context)?.remove(&digest, args.if_unmodified_since_ms)?;
    let form = RemovedForm { digest: digest.to_hex(), removed };
    let text = if removed { "removed" } else { "not removed" };
    Printer::new(out, args.objects.format.json).print(&form, |out| writeln!(out, "{text}"))?;
    Ok(())
}

/// Runs a command while nobody may remove a blob, and ends as it does; fails if somebody might have.
pub(super) fn hold_backup_lease(args: &StoreBackupArgs, context: &Context) -> Result<()> {
    let store = open(&args.objects, context)?;
    let [program, arguments @ ..] = &args.command[..] else { unreachable!("BUG: the command is required") };
    // The marker goes when the command has ended, whichever way that is.
    sys::hold_ending_signals().map_err(|source| failed(program, source))?;
    let lease = store.begin_backup()?;
    let ran = run(program, arguments);
    lease.finish().map_err(crate::engine::EngineError::from)?;
    match ran? {
        0 => Ok(()),
        status => Err(CommandError::Ended(status)),
    }
}

fn run(program: &OsString, arguments: &[OsString]) -> Result<u8> {
    let mut child = sys::let_signals_end(Command::new(program).args(arguments))
        .spawn()
        .map_err(|source| failed(program, source))?;
    let status = sys::wait_handing_on(&mut child).map_err(|source| failed(program, source))?;
    Ok(as_shells_tell(status))
}

/// Counts what is there, and what this process did.
pub(super) fn stats(args: &StoreArgsOnly, context: &Context, out: &mut dyn Write) -> Result<()> {
    let stats = open(&args.objects, context)?.stats()?;
    let counters = CountersForm { puts: stats.puts, gets: stats.gets };
    let form = StatsForm { blobs: stats.blobs, bytes: stats.bytes, counters };
    let rows = [("blobs", stats.blobs), ("bytes", stats.bytes), ("puts", stats.puts), ("gets", stats.gets)];
    let rows = rows.map(|(name, count)| vec![name.to_owned(), count.to_string()]);
    Printer::new(out, args.objects.format.json).print(&form, |out| table(out, "", &rows))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_ends_as_in_a_shell() {
        let run = |script: &str| run(&"sh".into(), &["-c".into(), script.into()]).unwrap();
        assert_eq!(run("exit 7"), 7);
        assert_eq!(run("kill -9 $$"), 137);
        assert!(super::run(&"/none".into(), &[]).unwrap_err().line().contains("/none"));
    }
}
