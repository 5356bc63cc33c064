use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};

use super::{parse_duration_ms, parse_size_bytes};
use crate::model::{AccessGlob, Principal, Role};

/// Which workspace. Where a command has subcommands, before or after their names.
#[derive(Debug, Clone, Default, Args)]
pub struct WorkspaceArgs {
    /// The workspace; by default that of a PATH inside a mount, of LEASEHOLD_WORKSPACE, or of a parent directory
    #[arg(short, long, value_name = "WORKSPACE", global = true)]
    pub workspace: Option<PathBuf>,
}

/// Whose checkout.
#[derive(Debug, Clone, Default, Args)]
pub struct CheckoutOfArgs {
    /// Whose checkout, if not that of the mount; by default the login name
    #[arg(long = "as", value_name = "USER")]
    pub user: Option<String>,
    /// Which checkout of that user, if not that of the mount; by default LEASEHOLD_CHECKOUT or the host name
    #[arg(long, value_name = "NAME")]
    pub checkout: Option<String>,
}

/// The form of the output. Where a command has subcommands, before or after their names.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct FormatArgs {
    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// What the commands on a checkout share.
#[derive(Debug, Clone, Default, Args)]
pub struct CommonArgs {
    /// Which workspace.
    #[command(flatten)]
    pub workspace: WorkspaceArgs,
    /// Whose checkout.
    #[command(flatten)]
    pub checkout_of: CheckoutOfArgs,
    /// The form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// The arguments of `init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// The directory to make a workspace
    pub workspace: PathBuf,
    /// Import what lies in DIR as change 1
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,
    /// Let the members of GROUP share the workspace: all that is made in it is the group's to read and write
    #[arg(long, value_name = "GROUP")]
    pub shared: Option<String>,
    /// The form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// The arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Files and directories to check in
    #[arg(required = true, value_name = "SRC")]
    pub sources: Vec<PathBuf>,
    /// The directory of the workspace that they go into; by default the root
    #[arg(long, value_name = "PATH")]
    pub into: Option<PathBuf>,
    /// Why
    #[arg(short, long, value_name = "MSG")]
    pub message: String,
    /// What the commands on a checkout share.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// What a mount does once the last writer of a file has closed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckinMode {
    /// Keep the draft until `checkin`
    Manual,
    /// Check in, and release the lease
    Close,
}

/// The arguments of `mount`.
#[derive(Debug, Args)]
pub struct MountArgs {
    /// The workspace
    pub workspace: PathBuf,
    /// An existing directory, over which the checkout will show
    pub mountpoint: PathBuf,
    /// Whose checkout; by default the login name
    #[arg(long = "as", value_name = "USER")]
    pub user: Option<String>,
    /// Which checkout of that user; by default LEASEHOLD_CHECKOUT or the host name
    #[arg(long, value_name = "NAME")]
    pub checkout: Option<String>,
    /// How long a lease lasts after the last write, such as 8h or 30m; by default as config.toml says
    #[arg(long = "ttl", value_name = "DURATION", value_parser = parse_duration_ms)]
    pub ttl_ms: Option<i64>,
    /// When to check in: on command, or soon after the last writer closed a file
    #[arg(long, value_enum, value_name = "WHEN", default_value = "manual")]
    pub checkin: CheckinMode,
    /// Refuse all writes
    #[arg(long)]
    pub read_only: bool,
    /// Let other users in, as far as permissions say
    #[arg(long)]
    pub allow_other: bool,
    /// Stay in the foreground, and log to standard error
    #[arg(long)]
    pub foreground: bool,
}

/// The arguments of `gc`.
#[derive(Debug, Args)]
pub struct GcArgs {
    /// How old bytes that nothing needs must be, such as 14d
    #[arg(long = "grace", value_name = "DURATION", value_parser = parse_duration_ms, default_value = "14d")]
    pub grace_ms: i64,
    /// Remove nothing, and tell what would be removed
    #[arg(long)]
    pub dry_run: bool,
    /// Which workspace.
    #[command(flatten)]
    pub workspace: WorkspaceArgs,
    /// The form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// The arguments of `fsck`.
#[derive(Debug, Args)]
pub struct FsckArgs {
    /// Fetch what is lost from the remote store, and make manifests again
    #[arg(long)]
    pub repair: bool,
    /// Which workspace.
    #[command(flatten)]
    pub workspace: WorkspaceArgs,
    /// The form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// The arguments of `share`.
#[derive(Debug, Args)]
pub struct ShareArgs {
    /// Which workspace.
    #[command(flatten)]
    pub workspace: WorkspaceArgs,
    /// The form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// The arguments of `rescue`.
#[derive(Debug, Args)]
pub struct RescueArgs {
    /// The workspace whose catalog is lost or damaged
    pub workspace: PathBuf,
    /// The form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// The arguments of `backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The backup's directory: new, empty, or an earlier backup of this workspace, which is brought up to date
    pub dest: PathBuf,
    /// Read again what the backup has already, and replace what is not whole
    #[arg(long)]
    pub verify: bool,
    /// Which workspace.
    #[command(flatten)]
    pub workspace: WorkspaceArgs,
    /// The form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// The arguments of `restore-backup`.
#[derive(Debug, Args)]
pub struct RestoreBackupArgs {
    /// A backup's directory
    #[arg(value_name = "SRC")]
    pub source: PathBuf,
    /// The directory to make a workspace
    pub workspace: PathBuf,
    /// The form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// The arguments of `umount`.
#[derive(Debug, Args)]
pub struct UmountArgs {
    /// The mount to take away
    pub mountpoint: PathBuf,
    /// Check in every draft first
    #[arg(long, requires = "message")]
    pub checkin: bool,
    /// Why, for the check-in
    #[arg(short, long, value_name = "MSG", requires = "checkin")]
    pub message: Option<String>,
    /// Take the name away at once; the daemon ends when the last open file is closed
    #[arg(long)]
    pub lazy: bool,
    /// The form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// The arguments of `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Only what lies at and under PATH
    pub path: Option<PathBuf>,
    /// What the commands on a checkout share.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// The arguments of `checkout`.
#[derive(Debug, Args)]
pub struct CheckoutArgs {
    /// The artifacts; a directory stands for all that lies under it
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// What the commands on a checkout share.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// The arguments of `checkin`.
#[derive(Debug, Args)]
pub struct CheckinArgs {
    /// What to check in, with all that lies under it; by default every draft of the checkout
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// Why
    #[arg(short, long, value_name = "MSG")]
    pub message: String,
    /// Keep the leases
    #[arg(long)]
    pub keep: bool,
    /// Check in over version N, though the drafts were made on an older one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub onto: Option<i64>,
    /// What the commands on a checkout share.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// The arguments of `save-as`.
#[derive(Debug, Args)]
pub struct SaveAsArgs {
    /// The file with the draft
    pub path: PathBuf,
    /// The name that the draft gets
    pub new: PathBuf,
    /// What the commands on a checkout share.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// The arguments of `settle`.
#[derive(Debug, Args)]
pub struct SettleArgs {
    /// Only what lies at and under PATH
    pub path: Option<PathBuf>,
    /// What the commands on a checkout share.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// The arguments of `add`.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// The scratch file
    pub path: PathBuf,
    /// What the commands on a checkout share.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// The arguments of `revert`.
#[derive(Debug, Args)]
pub struct RevertArgs {
    /// What to revert, with all that lies under it
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,
    /// What the commands on a checkout share.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Reads a number from 1.
fn parse_count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "expected a number from 1".to_owned())
}

/// The arguments of `log`.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// Only changes of what lies at and under PATH
    pub path: Option<PathBuf>,
    /// Only the newest COUNT of them
    #[arg(short = 'n', long = "max-count", value_name = "COUNT", value_parser = parse_count)]
    pub max_count: Option<usize>,
    /// What the commands on a checkout share.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// The arguments of `cat`.
#[derive(Debug, Args)]
pub struct CatArgs {
    /// The file, and the number of a version or `head`; without @@N the newest version
    #[arg(value_name = "PATH@@N")]
    pub path: PathBuf,
    /// Which workspace.
    #[command(flatten)]
    pub workspace: WorkspaceArgs,
    /// Whose checkout.
    #[command(flatten)]
    pub checkout_of: CheckoutOfArgs,
}

/// The arguments of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The file, and the number of a version or `head`
    #[arg(value_name = "PATH@@N")]
    pub path: PathBuf,
    /// What the commands on a checkout share.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// The arguments of `leases`.
#[derive(Debug, Args)]
pub struct LeasesArgs {
    /// Which workspace.
    #[command(flatten)]
    pub workspace: WorkspaceArgs,
    /// The form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// The arguments of `access`.
#[derive(Debug, Args)]
pub struct AccessArgs {
    /// What to do with the rules.
    #[command(subcommand)]
    pub action: AccessAction,
    /// Which workspace.
    #[command(flatten)]
    pub workspace: WorkspaceArgs,
    /// The form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// The subcommands of `access`.
#[derive(Debug, Subcommand)]
pub enum AccessAction {
    /// Show your role and the rules that you may know of, or with PATH those that cover it
    List(AccessListArgs),
    /// Give a role where a glob covers: viewer (see and read), editor (write, check in, lease) or owner (grant, restrict)
    Grant(AccessGrantArgs),
    /// Take roles away, on GLOB or on all that you own
    Revoke(AccessRevokeArgs),
    /// Hide what a glob covers from all who have no role there
    Restrict(AccessRestrictArgs),
}

/// The arguments of `access list`.
#[derive(Debug, Args)]
pub struct AccessListArgs {
    /// The file or directory
    pub path: Option<PathBuf>,
}

/// The arguments of `access grant`.
#[derive(Debug, Args)]
pub struct AccessGrantArgs {
    /// The name of a user, or * for everybody
    #[arg(value_parser = parse_text::<Principal>)]
    pub principal: Principal,
    /// viewer, editor or owner
    #[arg(value_parser = parse_text::<Role>)]
    pub role: Role,
    /// Where, such as 'media/**'
    #[arg(value_parser = parse_glob)]
    pub glob: AccessGlob,
}

/// The arguments of `access revoke`.
#[derive(Debug, Args)]
pub struct AccessRevokeArgs {
    /// The name of a user, or * for everybody
    #[arg(value_parser = parse_text::<Principal>)]
    pub principal: Principal,
    /// Where, as it was granted
    #[arg(value_parser = parse_glob)]
    pub glob: Option<AccessGlob>,
}

/// The arguments of `access restrict`.
#[derive(Debug, Args)]
pub struct AccessRestrictArgs {
    /// Where, such as 'hr/**'
    #[arg(value_parser = parse_glob)]
    pub glob: AccessGlob,
    /// Take the restriction back
    #[arg(long)]
    pub undo: bool,
}

fn parse_text<T: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn parse_glob(text: &str) -> Result<AccessGlob, String> {
    AccessGlob::new(text).map_err(|error| error.to_string())
}

/// The arguments of `recovered`.
#[derive(Debug, Args)]
pub struct RecoveredArgs {
    /// What to do; by default `list`.
    #[command(subcommand)]
    pub action: Option<RecoveredAction>,
    /// Which workspace.
    #[command(flatten)]
    pub workspace: WorkspaceArgs,
    /// The form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// The subcommands of `recovered`.
#[derive(Debug, Subcommand)]
pub enum RecoveredAction {
    /// List the recovery copies
    List,
    /// Copy one to a new file
    Restore(RecoveredRestoreArgs),
}

/// The arguments of `recovered restore`.
#[derive(Debug, Args)]
pub struct RecoveredRestoreArgs {
    /// The copy, as `list` names it
    pub id: String,
    /// The new file, or a directory to put it into
    pub dest: PathBuf,
}

/// The arguments of `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Which workspace.
    #[command(flatten)]
    pub workspace: WorkspaceArgs,
    /// Serve a bare directory of blobs instead of a workspace; the first upload makes it if it is missing
    #[arg(long, value_name = "DIR", conflicts_with = "workspace")]
    pub objects: Option<PathBuf>,
    /// Where to listen; port 0 is any free one. Another address than loopback needs a token
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8417")]
    pub listen: SocketAddr,
    /// The bearer token that each request needs, in a file that only its owner may read
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// A second token, which doesn't let its users write; alone, nobody may write
    #[arg(long, value_name = "FILE")]
    pub read_only_token_file: Option<PathBuf>,
    /// The largest blob that is taken
    #[arg(long = "max-body", value_name = "SIZE", default_value = "16G", value_parser = parse_size_bytes)]
    pub max_body_bytes: u64,
    /// How many requests are worked on at a time; more are told to come back
    #[arg(long, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=400))]
    pub max_requests: u32,
}

/// The arguments of `store`.
#[derive(Debug, Args)]
pub struct StoreArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: StoreAction,
}

/// The subcommands of `store`.
#[derive(Debug, Subcommand)]
pub enum StoreAction {
    /// Store a file, durably, and print its digest
    Put(StorePutArgs),
    /// Write a blob to standard output or a file, never a byte that is not its own
    Get(StoreGetArgs),
    /// Say by the exit status whether a blob is there: 0 yes, 1 no, 5 could not find out
    Has(StoreDigestArgs),
    /// Print which blobs are not there, in the order asked
    Missing(StoreMissingArgs),
    /// List all blobs: digest, size, mtime in milliseconds
    Inventory(StoreArgsOnly),
    /// Remove a blob that nobody has put since a time, and print whether it was removed
    Remove(StoreRemoveArgs),
    /// Run a command, such as a copy of the directory, while nobody may remove a blob
    ///
    /// Ends with the command's status, and fails if blobs may have been removed meanwhile.
    HoldBackupLease(StoreBackupArgs),
    /// Count blobs, bytes, and what this process did
    Stats(StoreArgsOnly),
}

impl StoreAction {
    /// What all of them share.
    pub fn objects(&self) -> &ObjectsArgs {
        match self {
            Self::Put(args) => &args.objects,
            Self::Get(args) => &args.objects,
            Self::Has(args) => &args.objects,
            Self::Missing(args) => &args.objects,
            Self::Inventory(args) | Self::Stats(args) => &args.objects,
            Self::Remove(args) => &args.objects,
            Self::HoldBackupLease(args) => &args.objects,
        }
    }
}

/// What a successful put promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DurabilityMode {
    /// It survives a power cut, or fails
    Required,
    /// As far as the filesystem can sync
    BestEffort,
}

/// Whom an address is locked against while it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CoordinationMode {
    /// All processes that share the directory
    Required,
    /// The threads of this process alone
    Process,
}

/// Which store, and how it works.
#[derive(Debug, Args)]
pub struct ObjectsArgs {
    /// A directory of blobs, made by the first put; by default the workspace's
    #[arg(long, value_name = "DIR", conflicts_with = "workspace")]
    pub objects: Option<PathBuf>,
    /// What a put promises
    #[arg(long, value_enum, value_name = "MODE", default_value = "required")]
    pub durability: DurabilityMode,
    /// Whom an address is locked against while it changes
    #[arg(long, value_enum, value_name = "MODE", default_value = "required")]
    pub coordination: CoordinationMode,
    /// Which workspace.
    #[command(flatten)]
    pub workspace: WorkspaceArgs,
    /// The form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// The arguments of `store put`.
#[derive(Debug, Args)]
pub struct StorePutArgs {
    /// The file, or - for standard input
    pub file: PathBuf,
    /// Which store.
    #[command(flatten)]
    pub objects: ObjectsArgs,
}

/// The arguments of `store get`.
#[derive(Debug, Args)]
pub struct StoreGetArgs {
    /// The SHA-256, 64 lower-case hexadecimal digits
    pub digest: OsString,
    /// A file to write instead of standard output; it is whole or as it was before
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Which store.
    #[command(flatten)]
    pub objects: ObjectsArgs,
}

/// The arguments of `store has`.
#[derive(Debug, Args)]
pub struct StoreDigestArgs {
    /// The SHA-256, 64 lower-case hexadecimal digits
    pub digest: OsString,
    /// Which store.
    #[command(flatten)]
    pub objects: ObjectsArgs,
}

/// Digests.
#[derive(Debug, Args)]
pub struct DigestList {
    /// Digests, or - for standard input with one a line
    #[arg(required = true, value_name = "DIGEST")]
    pub digests: Vec<OsString>,
}

/// The arguments of `store missing`.
#[derive(Debug, Args)]
pub struct StoreMissingArgs {
    /// Which digests.
    #[command(flatten)]
    pub list: DigestList,
    /// Which store.
    #[command(flatten)]
    pub objects: ObjectsArgs,
}

/// The arguments of `store inventory` and `store stats`.
#[derive(Debug, Args)]
pub struct StoreArgsOnly {
    /// Which store.
    #[command(flatten)]
    pub objects: ObjectsArgs,
}

/// The arguments of `store remove`.
#[derive(Debug, Args)]
pub struct StoreRemoveArgs {
    /// The SHA-256, 64 lower-case hexadecimal digits
    pub digest: OsString,
    /// Milliseconds since 1970: a blob that was put after them stays
    #[arg(long = "if-unmodified-since", value_name = "MS", allow_negative_numbers = true)]
    pub if_unmodified_since_ms: i64,
    /// Which store.
    #[command(flatten)]
    pub objects: ObjectsArgs,
}

/// The arguments of `store hold-backup-lease`.
#[derive(Debug, Args)]
pub struct StoreBackupArgs {
    /// Which store.
    #[command(flatten)]
    pub objects: ObjectsArgs,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// The arguments of `generate`.
#[derive(Debug, Args)]
pub struct GenerateArgs {
    /// What to write.
    #[command(subcommand)]
    pub what: GenerateWhat,
}

/// The subcommands of `generate`.
#[derive(Debug, Subcommand)]
pub enum GenerateWhat {
    /// Write a man page for each command into DIR
    Man {
        /// An existing directory
        dir: PathBuf,
    },
    /// Write completions to standard output
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}
