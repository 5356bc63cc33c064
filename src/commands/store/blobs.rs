use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::super::error::{CommandError, Result};
use super::super::output::{Printer, copy_out};
use super::super::place::Context;
use super::{digest, digests, open};
use crate::cli::{StoreDigestArgs, StoreGetArgs, StoreMissingArgs, StorePutArgs};
use crate::engine::ObjectStore;
use crate::model::Digest;

#[derive(Serialize)]
struct StoredForm {
    digest: String,
    size: u64,
}

#[derive(Serialize)]
struct PresentForm {
    digest: String,
    present: bool,
}

/// Stores a file or standard input, and prints its digest.
pub(super) fn put(args: &StorePutArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let mut source = open_source(&args.file)?;
    let (digest, size) = open(&args.objects, context)?.put(&mut *source)?;
    let form = StoredForm { digest: digest.to_hex(), size };
    Printer::new(out, args.objects.format.json).print(&form, |out| writeln!(out, "{digest}"))?;
    Ok(())
}

fn open_source(path: &Path) -> Result<Box<dyn Read>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    let open = || {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(file) }
    };
    let file =
        open().map_err(|source| CommandError::File { doing: "read", path: path.to_owned(), source })?;
    Ok(Box::new(file))
}

/// Writes a blob's bytes to standard output or a file.
pub(super) fn get(args: &StoreGetArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let digest = digest(args.digest.as_bytes())?;
    let store = open(&args.objects, context)?;
    match args.output.as_deref().filter(|path| *path != Path::new("-")) {
        Some(path) => get_file(&store, &digest, path, context, args, out),
        None => {
            let unreadable =
                |source| CommandError::File { doing: "read", path: digest.to_hex().into(), source };
            copy_out(&mut *store.get(&digest)?, out, unreadable)
        }
    }
}

/// Writes beside the file and renames, so that it is whole or as it was.
fn get_file(
    store: &ObjectStore,
    digest: &Digest,
    path: &Path,
    context: &Context,
    args: &StoreGetArgs,
    out: &mut dyn Write,
) -> Result<()> {
    let beside = beside(path, &context.environment.ids.token());
    let write = |source| CommandError::File { doing: "write", path: path.to_owned(), source };
    let file = OpenOptions::new().write(true).create_new(true).open(&beside).map_err(write)?;
    let copied = store.copy_to(digest, &file, &beside).map_err(CommandError::from);
    let named = copied.and_then(|size| fs::rename(&beside, path).map(|()| size).map_err(write));
    let size = named.inspect_err(|_| {
        // What failed is the news.
        let _ = fs::remove_file(&beside);
    })?;
    let form = StoredForm { digest: digest.to_hex(), size };
    Printer::new(out, args.objects.format.json).print(&form, |_| Ok(()))?;
    Ok(())
}

fn beside(path: &Path, token: &str) -> PathBuf {
    path.with_file_name(format!(".leasehold.tmp-{token}"))
}

/// Says whether a blob is there: by the exit status, 0 or 1.
pub(super) fn has(args: &StoreDigestArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let digest = digest(args.digest.as_bytes())?;
    let present = open(&args.objects, context)?.has(&digest)?;
    let form = PresentForm { digest: digest.to_hex(), present };
    Printer::new(out, args.objects.format.json).print(&form, |_| Ok(()))?;
    if present { Ok(()) } else { Err(CommandError::Ended(1)) }
}

/// Prints which of many digests no blob is there of.
pub(super) fn missing(args: &StoreMissingArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let asked = digests(&args.list)?;
    let missing = open(&args.objects, context)?.find_missing(&asked)?;
    let form: Vec<String> = missing.iter().map(Digest::to_hex).collect();
    Printer::new(out, args.objects.format.json)
        .print(&form, |out| form.iter().try_for_each(|digest| writeln!(out, "{digest}")))?;
    Ok(())
}
