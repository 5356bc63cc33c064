use std::fmt::Write;
use std::sync::LazyLock;

use super::policy::LIVE;
use crate::model::{AMBIGUOUS, DOCUMENTS, KnownGlob, SCRATCH};

/// The `config.toml` of a new workspace: every key, explained, with its default, and commented out.
pub static DEFAULT_CONFIG_TOML: LazyLock<String> = LazyLock::new(|| {
    let mut text = String::from(HEAD);
    text.push_str(SCRATCH_TEXT);
    push_list(&mut text, "scratch", SCRATCH);
    text.push_str(AMBIGUOUS_TEXT);
    push_list(&mut text, "ambiguous", AMBIGUOUS);
    text.push_str(DOCUMENTS_TEXT);
    push_list(&mut text, "documents", DOCUMENTS);
    text.push_str(LIVE_TEXT);
    writeln!(text, "# live = {LIVE:?}").expect("BUG: a String takes any text");
    text.push_str(RULE_TEXT);
    text.push_str(REMOTE_TEXT);
    text
});

const HEAD: &str = r##"## The policy of this workspace.
##
## Lines with ## explain. A line with a single # is a setting with its default: to change it, remove the # and
## the space after it. Mounts take over what is written here at once; only [remote] waits for the next mount.
## Durations are whole numbers with units, largest unit first: 1d, 8h, 1h30m, 5s, 250ms. None may be zero.

## How leases work. Each key from here to "break" can be different for some paths: see [[rule]], at the end.

## Whether writing needs a lease. "required": from the open for writing on. "on-first-write": from the first write on,
## for applications that open what they only show. "none": never; only the version that a save was made on guards it.
# lease = "required"

## How long a lease lasts, and how long at most, whoever asks for it.
# ttl = "8h"
# max_ttl = "30d"

## What renews a lease. "activity": opening for write, writing and saving. "open": these, and time, while somebody has
## the file open for writing. "never": nothing.
# renew = "activity"

## What gives a lease back. "checkin": the check-in or revert. "close": these, and the last writer's close, after the
## grace.
# release = "checkin"

## A write to what somebody else holds. "block": it is refused. "warn": it goes on, and both are told; the first to
## check in wins. on_intent_overlap: the same for what was announced with `leasehold lease begin`.
# on_conflict = "block"
# on_intent_overlap = "block"

## When a lease has ended, but its holder's mount still has unpublished writes. "quarantine": nobody gets it until
## that writer has closed, is proven dead, or is resolved by hand. "take": the next one gets it, and the writer's
## bytes become a recovery copy.
# on_unresolved_writer = "quarantine"

## Which users may break the lease of somebody else, with a reason. "*": everybody.
# break = ["*"]

## How long the gap inside one save may be: a file that was cut to nothing waits so long for the bytes that follow, and
## with `--checkin close` a name that is gone waits so long to come back before it counts as a deletion.
# grace = "5s"

## For mounts with `--checkin close`: how long after the last writer closed a document it is checked in.
# checkin_delay = "5s"

## What a power cut may take after an application closed a file. "grouped": at most the last second.
## "durable": nothing; each close waits for the disk. (fsync, leases and check-ins never wait for this.)
# close = "grouped"

## Which extended attributes are listed; all of them always answer by name.
## "lease": holder and expiry while a lease is held. "all": every one. "none".
# list_xattrs = "lease"

## The old spelling of a [[rule]] with lease = "on-first-write", which stands before all others: a list of path globs.
# on_first_write = []

## After how long an ambiguous name (below) that is still there is a document.
# quiet = "30s"

## In the globs * stands for any characters, ? and [a-z] for one byte, {a,b} for either, \ takes away a meaning.
## (?i) at the beginning: in any case.
"##;

const SCRATCH_TEXT: &str = r##"
## Names that are never versioned and never leased: they stay in the checkout where they were made.
## With / at the end: directories too, with all that lies below them.
"##;

const AMBIGUOUS_TEXT: &str = r##"
## Names that a program may have made for a moment: not versioned while they are new, or stand beside the document
## that the first * stands for. One that stays (quiet, above) is a document.
"##;

const DOCUMENTS_TEXT: &str = r##"
## Names that look ambiguous but are documents.
"##;

const LIVE_TEXT: &str = r##"
## Documents that applications edit in place, with a journal of their own: a crash leaves the draft as it would leave
## the file on a local disk, instead of going back to the last save.
"##;

/// Has two marks: there is no default rule.
const RULE_TEXT: &str = r##"
## What is different for some paths: each of the keys about leases above. A glob without / matches names, one with / the
## path from the root, where ** is any number of directories. Of several rules that match, the last one that has a key
## says it. Rules go by the path that an artifact has in the head tree; before its first check-in, in its checkout.
## [[rule]]
## paths = ["renders/**"]
## lease = "none"
"##;

/// The keys have two marks: a table that is there needs an address, and there is no default one.
const REMOTE_TEXT: &str = r##"
## A store elsewhere that others share (`leasehold serve`, or any HTTP cache of Bazel's kind): what is not here is read
## from there, and what is checked in is uploaded. The address is https, or http to this machine. The token is sent as
## a bearer token; its file is for its owner alone, and a relative path begins where this file is.
## policy: what is kept of what comes from there. "all": what is read, and ahead of that all that the head tree names.
## "toplevel": what is read. "minimal": nothing.
## [remote]
## url = "https://cache.example/team"
## token_file = "token"
## policy = "all"
## upload_timeout = "60s"
## download_timeout = "60s"
## write_back_timeout = "60s"
"##;

fn push_list(text: &mut String, key: &str, globs: &[KnownGlob]) {
    writeln!(text, "# {key} = [").expect("BUG: a String takes any text");
    for (glob, program) in globs {
        writeln!(text, "#     {glob:?},  # {program}").expect("BUG: a String takes any text");
    }
    text.push_str("# ]\n");
}
