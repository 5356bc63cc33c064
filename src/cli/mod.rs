//! The command line: what can be asked for, and nothing of how it is done.

mod args;
mod duration;
mod lease;
mod size;
mod usage;

pub use args::*;
pub use duration::{DurationError, parse_duration_ms};
pub use lease::*;
pub use size::{SizeError, parse_size_bytes};
pub use usage::{Unparsed, parse};

use clap::{Parser, Subcommand};

/// The program's arguments.
#[derive(Debug, Parser)]
#[command(
    name = "leasehold",
    version,
    about = "A filesystem for documents that can't be merged",
    long_about = "Leasehold shows versioned documents as ordinary files. The first write of any application takes a \
                  lease on the document, saves are kept, and a check-in publishes a new version.",
    after_help = exit_status_line(),
    disable_help_subcommand = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What each exit status means.
pub const EXIT_STATUSES: [(u8, &str); 6] = [
    (0, "done"),
    (1, "failed"),
    (2, "wrong usage"),
    (3, "held by someone else"),
    (4, "stale (made on an older version)"),
    (5, "`store has` could not find out"),
];

fn exit_status_line() -> String {
    format!(
        "Exit status: {}.",
        EXIT_STATUSES.map(|(status, meaning)| format!("{status} {meaning}")).join(", ")
    )
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create a workspace
    ///
    /// Makes WORKSPACE, and .leasehold in it. With --from, what lies in DIR becomes change 1.
    Init(InitArgs),
    /// Check in files and directories from elsewhere, as one change
    Import(ImportArgs),
    /// Show a checkout of a workspace as a directory
    ///
    /// Returns when the mount is usable; a process in the background serves it, and logs below .leasehold/log. A mount
    /// whose process has died is replaced. A checkout has one mount at a time. SIGTERM and SIGINT flush, unmount, and
    /// leave drafts and leases as they are. LEASEHOLD_LOG sets the level of the log (error, warn, info, debug, trace).
    Mount(MountArgs),
    /// Take a mount away; drafts and leases stay as they are
    ///
    /// Refuses while processes have files open in it, and names them. Tells what is still checked out. Returns when
    /// every save is flushed and the mount's process has ended.
    #[command(visible_alias = "unmount")]
    Umount(UmountArgs),
    /// Show drafts, leases, recovery copies and problems
    Status(StatusArgs),
    /// Take leases before editing, all or none
    ///
    /// Applications take a lease by themselves with their first write; this takes it earlier. Again, it renews it.
    Checkout(CheckoutArgs),
    /// Publish drafts as one change, and release their leases
    ///
    /// All or nothing. Refuses drafts that were made on an older version than the newest (exit status 4).
    Checkin(CheckinArgs),
    /// Keep a draft under another name, as a new artifact
    SaveAs(SaveAsArgs),
    /// Wait until saves are published
    ///
    /// Waits for check-ins on close as well. Fails if some files can't be settled, and names them.
    Settle(SettleArgs),
    /// Make a scratch file an artifact
    Add(AddArgs),
    /// Drop drafts, keep their bytes as recovery copies, and release their leases
    ///
    /// `leasehold recovered` lists the copies.
    Revert(RevertArgs),
    /// Show the changes, the newest first
    Log(LogArgs),
    /// Write a version of a file to standard output
    ///
    /// A file that is really named PATH@@N wins over version N of PATH.
    Cat(CatArgs),
    /// Make an old version the draft of its path
    Restore(RestoreArgs),
    /// List all leases
    Leases(LeasesArgs),
    /// Show, take, renew, give back and watch leases
    ///
    /// A lease is on an artifact, on something of which the machine has one (host:NAME), or on any key of the form
    /// KIND:ID, to which its users give a meaning. An intent tells others what somebody means to work on.
    Lease(LeaseArgs),
    /// Show or change who may see and change what
    ///
    /// Globs are those of config.toml, from the root of the workspace, and cover what lies below what they match. What
    /// nobody has restricted may be read and written by everybody. Judged is the user who runs a command or mount, or whom
    /// LEASEHOLD_PRINCIPAL names, which only root and owners of everything may set.
    Access(AccessArgs),
    /// List or fetch bytes that were written and are in no draft
    Recovered(RecoveredArgs),
    /// Remove stored bytes that nothing needs any more
    ///
    /// Keeps what versions, drafts, saves, open files of live mounts, running imports, manifests and the files of
    /// .leasehold/pins need, and everything younger than the grace time. Does nothing while a backup runs.
    Gc(GcArgs),
    /// Read every stored byte, and tell what is lost
    ///
    /// Names lost bytes by path and version, and ends with status 1 if there are any. Safe while mounted.
    Fsck(FsckArgs),
    /// Make a new catalog from what check-ins left in the store
    ///
    /// For a workspace whose catalog.db is lost or damaged, which is set aside. Versions and names come back; drafts
    /// become recovery copies at the next mount of their checkout; leases are forgotten.
    Rescue(RescueArgs),
    /// Copy the workspace to a backup, or bring one up to date
    ///
    /// Safe while mounted and in use. What the backup has already is not copied again, and a backup that was cut short
    /// goes on where it was.
    Backup(BackupArgs),
    /// Upload to the shared store what it lacks of what was checked in
    ///
    /// A mount does so by itself, and `checkin` where nothing is mounted. Fails if something could not be uploaded.
    Share(ShareArgs),
    /// Make a workspace of a backup
    ///
    /// Every byte is verified on the way.
    RestoreBackup(RestoreBackupArgs),
    /// Serve the blobs of a workspace, or of a directory, to other machines
    ///
    /// Speaks Bazel's HTTP cache protocol: GET, PUT and HEAD of /cas/DIGEST, POST of /cas/findMissing; beside it /metrics
    /// for Prometheus and /healthz. Prints the address, and serves until SIGTERM, SIGINT or SIGHUP; requests that are
    /// being answered then have half a minute to end. LEASEHOLD_LOG sets the level of the log.
    Serve(ServeArgs),
    /// Put and get bytes by their SHA-256, in a workspace or a directory of blobs
    ///
    /// For programs: every error begins with its code, with --json it is an object.
    Store(StoreArgs),
    /// Write man pages or shell completions
    #[command(hide = true)]
    Generate(GenerateArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_documented_command_line_is_understood() {
        for line in [
            "leasehold init ws",
            "leasehold init ws --from dir",
            "leasehold import a b -m msg",
            "leasehold import -w ws a --into x/y -m msg",
            "leasehold mount ws mnt --as ada --checkout desk --ttl 8h --checkin close --read-only --allow-other --foreground",
            "leasehold mount ws mnt --checkin manual",
            "leasehold umount mnt --checkin -m msg",
            "leasehold unmount mnt --lazy",
            "leasehold status",
            "leasehold status a --json",
            "leasehold checkout a b --as ada --checkout desk",
            "leasehold checkin -m msg",
            "leasehold checkin a b -m msg --keep --onto 3",
            "leasehold save-as a b",
            "leasehold settle",
            "leasehold settle a",
            "leasehold add a",
            "leasehold revert a b",
            "leasehold log",
            "leasehold log a --json",
            "leasehold log -n 3",
            "leasehold log a --max-count 1",
            "leasehold cat a@@3",
            "leasehold restore a@@3",
            "leasehold leases",
            "leasehold lease show thread:1",
            "leasehold lease acquire thread:1 --ttl 5m --as bob@desk",
            "leasehold lease release a/b",
            "leasehold recovered",
            "leasehold recovered --json",
            "leasehold recovered list",
            "leasehold recovered restore 12 dest",
            "leasehold gc",
            "leasehold gc --grace 14d --dry-run -w ws --json",
            "leasehold fsck --repair",
            "leasehold share",
            "leasehold share -w ws --json",
            "leasehold rescue ws",
            "leasehold backup dest --verify -w ws",
            "leasehold restore-backup src ws",
            "leasehold serve",
            "leasehold serve -w ws --listen 127.0.0.1:0 --token-file a --read-only-token-file b",
            "leasehold serve --objects dir --listen [::1]:8417 --max-body 512M --max-requests 8",
            "leasehold store put file --objects dir --durability best-effort",
            "leasehold store put - --json",
            "leasehold store get DIGEST -o file --coordination process",
            "leasehold store has DIGEST -w ws",
            "leasehold store missing DIGEST DIGEST",
            "leasehold store missing -",
            "leasehold store inventory --objects dir --json",
            "leasehold store remove DIGEST --if-unmodified-since 1796000000000",
            "leasehold store hold-backup-lease --objects dir -- cp -r a b",
            "leasehold store stats --json",
            "leasehold generate man dir",
            "leasehold generate completions bash",
        ] {
            assert!(parse(line).is_ok(), "{line}: {}", parse(line).unwrap_err());
        }
    }

    /// What commands with subcommands share can stand on either side of the subcommand's name.
    #[test]
    fn options_go_before_or_after_a_subcommand() {
        for line in [
            "leasehold recovered -w ws --json restore 12 dest",
            "leasehold recovered restore -w ws 12 dest --json",
            "leasehold recovered -w ws restore 12 --json dest",
        ] {
            let Command::Recovered(args) = parse(line).expect(line).command else { panic!("{line}") };
            assert_eq!((args.workspace.workspace, args.format.json), (Some("ws".into()), true), "{line}");
            let Some(RecoveredAction::Restore(restored)) = args.action else { panic!("{line}") };
            assert_eq!((restored.id, restored.dest), ("12".into(), "dest".into()), "{line}");
        }
        for line in ["leasehold lease -w ws --json show a", "leasehold lease show a -w ws --json"] {
            let Command::Lease(args) = parse(line).expect(line).command else { panic!("{line}") };
            assert_eq!((args.workspace.workspace, args.format.json), (Some("ws".into()), true), "{line}");
        }
        let Command::Recovered(args) = parse("leasehold recovered -w a list").unwrap().command else {
            panic!()
        };
        assert_eq!(args.workspace.workspace, Some("a".into()));
    }

    #[test]
    fn wrong_usage_ends_with_status_2() {
        for line in [
            "leasehold",
            "leasehold init",
            "leasehold import a",
            "leasehold mount ws",
            "leasehold mount ws mnt --ttl 0s",
            "leasehold mount ws mnt --ttl soon",
            "leasehold mount ws mnt --checkin sometimes",
            "leasehold umount mnt --checkin",
            "leasehold umount mnt -m msg",
            "leasehold checkout",
            "leasehold checkin a",
            "leasehold checkin -m msg --onto 0",
            "leasehold log -n 0",
            "leasehold revert",
            "leasehold lease acquire",
            "leasehold recovered restore 12",
            "leasehold gc --grace -1d",
            "leasehold rescue",
            "leasehold backup",
            "leasehold restore-backup src",
            "leasehold serve -w ws --objects dir",
            "leasehold serve --listen 8417",
            "leasehold serve --listen localhost:8417",
            "leasehold serve --max-body 0",
            "leasehold serve --max-requests 0",
            "leasehold store",
            "leasehold store get",
            "leasehold store missing",
            "leasehold store remove DIGEST",
            "leasehold store remove DIGEST --if-unmodified-since soon",
            "leasehold store hold-backup-lease",
            "leasehold store stats --objects dir -w ws",
        ] {
            assert_eq!(parse(line).expect_err(line).exit_code(), 2, "{line}");
        }
    }
}
