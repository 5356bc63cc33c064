use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{FormatArgs, WorkspaceArgs, parse_duration_ms};

/// The arguments of `lease`.
#[derive(Debug, Args)]
pub struct LeaseArgs {
    /// What to do.
    #[command(subcommand)]
    pub action: LeaseAction,
    /// Which workspace.
    #[command(flatten)]
    pub workspace: WorkspaceArgs,
    /// The form of the output.
    #[command(flatten)]
    pub format: FormatArgs,
}

/// The subcommands of `lease`.
#[derive(Debug, Subcommand)]
pub enum LeaseAction {
    /// Show who holds something, and until when
    Show(LeaseTargetsArgs),
    /// List leases and intents
    List(LeaseListArgs),
    /// Take or renew leases, all or none
    ///
    /// Lists everybody who is in the way (exit status 3). With --request-id a repeated request gets the same answer, and
    /// takes nothing again.
    Acquire(LeaseAcquireArgs),
    /// Extend leases that have not ended, all or none
    Renew(LeaseRenewArgs),
    /// Give leases back
    Release(LeaseTargetsArgs),
    /// Say by the exit status whose something is: 0 mine, 1 nobody's, 3 someone else's
    Guard(LeaseTargetsArgs),
    /// Hold leases while a command runs
    ///
    /// Takes them, renews them while CMD runs, and gives them back. Ends as CMD does.
    Run(LeaseRunArgs),
    /// Begin a task: take task:TASK, and tell everybody what it is to work on
    Begin(LeaseBeginArgs),
    /// End a task, and withdraw what it was to work on
    End(LeaseEndArgs),
    /// Ask a holder for what he has; he sees it in `status`, by event and on his desktop
    Ask(LeaseAskArgs),
    /// End somebody else's lease
    ///
    /// He learns it at his next write; what he has not saved becomes a recovery copy.
    Break(LeaseBreakArgs),
    /// End the waiting for a writer whose lease has ended and who is not known to have stopped
    Resolve(LeaseResolveArgs),
    /// Show what happened to leases and files, the oldest first
    ///
    /// With --json each event is a line of its own.
    Events(LeaseEventsArgs),
}

/// Who asks.
#[derive(Debug, Clone, Default, Args)]
pub struct LeaseHolderArgs {
    /// Who asks, in full; by default the holder of the mount, or USER@CHECKOUT
    #[arg(long = "as", value_name = "HOLDER")]
    pub holder: Option<String>,
}

/// Resources, and who asks for them.
#[derive(Debug, Clone, Args)]
pub struct LeaseTargetsArgs {
    /// Keys such as thread:42, host:port:3000 or artifact:ID, paths (write ./a:b for a file that looks like a key), or
    /// intents: a directory and all below it is 'DIR/**'
    #[arg(value_name = "KEY|PATH", required = true)]
    pub targets: Vec<PathBuf>,
    /// Who asks.
    #[command(flatten)]
    pub who: LeaseHolderArgs,
}

/// One resource, and who asks for it.
#[derive(Debug, Clone, Args)]
pub struct LeaseTargetArgs {
    /// A key or a path
    #[arg(value_name = "KEY|PATH")]
    pub target: PathBuf,
    /// Who asks.
    #[command(flatten)]
    pub who: LeaseHolderArgs,
}

/// For how long.
#[derive(Debug, Clone, Default, Args)]
pub struct LeaseTtlArgs {
    /// For how long from now, such as 8h or 30m; by default as config.toml says
    #[arg(long = "ttl", value_name = "DURATION", value_parser = parse_duration_ms)]
    pub ttl_ms: Option<i64>,
}

/// How long to wait.
#[derive(Debug, Clone, Default, Args)]
pub struct LeaseWaitArgs {
    /// Wait so long for who is in the way; by default not at all
    #[arg(long = "wait", value_name = "DURATION", value_parser = parse_duration_ms)]
    pub wait_ms: Option<i64>,
}

/// A request that may be repeated.
#[derive(Debug, Clone, Default, Args)]
pub struct LeaseRequestArgs {
    /// Names the request: repeated, it gets the same answer and takes nothing again
    #[arg(long, value_name = "ID")]
    pub request_id: Option<String>,
}

/// The arguments of `lease list`.
#[derive(Debug, Args)]
pub struct LeaseListArgs {
    /// Only leases on this and what lies below it, and intents that meet it
    #[arg(long, value_name = "PATH")]
    pub under: Option<PathBuf>,
    /// Ended ones as well
    #[arg(long)]
    pub all: bool,
}

/// The arguments of `lease acquire`.
#[derive(Debug, Args)]
pub struct LeaseAcquireArgs {
    /// The resources, and who asks for them.
    #[command(flatten)]
    pub targets: LeaseTargetsArgs,
    /// For how long.
    #[command(flatten)]
    pub ttl: LeaseTtlArgs,
    /// How long to wait.
    #[command(flatten)]
    pub wait: LeaseWaitArgs,
    /// Whether it may be repeated.
    #[command(flatten)]
    pub request: LeaseRequestArgs,
}

/// The arguments of `lease renew`.
#[derive(Debug, Args)]
pub struct LeaseRenewArgs {
    /// The resources, and who has them.
    #[command(flatten)]
    pub targets: LeaseTargetsArgs,
    /// For how long.
    #[command(flatten)]
    pub ttl: LeaseTtlArgs,
}

/// What `lease run` does when a lease is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnLoss {
    /// It says so, and lets CMD go on
    Warn,
    /// It ends CMD by SIGTERM, and ten seconds later by SIGKILL
    Kill,
}

/// The arguments of `lease run`.
#[derive(Debug, Args)]
pub struct LeaseRunArgs {
    /// The resources, and who asks for them.
    #[command(flatten)]
    pub targets: LeaseTargetsArgs,
    /// For how long each renewal lasts.
    #[command(flatten)]
    pub ttl: LeaseTtlArgs,
    /// How long to wait.
    #[command(flatten)]
    pub wait: LeaseWaitArgs,
    /// What to do when a lease is lost while CMD runs
    #[arg(long, value_enum, default_value_t = OnLoss::Warn)]
    pub on_loss: OnLoss,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// The arguments of `lease begin`.
#[derive(Debug, Args)]
pub struct LeaseBeginArgs {
    /// The task's name
    pub task: String,
    /// What it is to work on: paths, there or not yet; a directory and all below it is 'DIR/**'
    #[arg(long, value_name = "PATH", num_args = 1.., required = true)]
    pub paths: Vec<PathBuf>,
    /// Who asks.
    #[command(flatten)]
    pub who: LeaseHolderArgs,
    /// For how long.
    #[command(flatten)]
    pub ttl: LeaseTtlArgs,
    /// How long to wait.
    #[command(flatten)]
    pub wait: LeaseWaitArgs,
    /// Whether it may be repeated.
    #[command(flatten)]
    pub request: LeaseRequestArgs,
}

/// The arguments of `lease end`.
#[derive(Debug, Args)]
pub struct LeaseEndArgs {
    /// The task's name
    pub task: String,
    /// Who asks.
    #[command(flatten)]
    pub who: LeaseHolderArgs,
}

/// The arguments of `lease ask`.
#[derive(Debug, Args)]
pub struct LeaseAskArgs {
    /// The resource, and who asks for it.
    #[command(flatten)]
    pub target: LeaseTargetArgs,
    /// In your words
    #[arg(short, long, value_name = "TEXT")]
    pub message: String,
}

/// The arguments of `lease break`.
#[derive(Debug, Args)]
pub struct LeaseBreakArgs {
    /// The resource, and who breaks its lease.
    #[command(flatten)]
    pub target: LeaseTargetArgs,
    /// Why: the holder is told
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
}

/// The arguments of `lease resolve`.
#[derive(Debug, Args)]
pub struct LeaseResolveArgs {
    /// The resource, and who resolves its writer.
    #[command(flatten)]
    pub target: LeaseTargetArgs,
    /// Keep what the writer has not saved as a recovery copy, when his mount comes to it; the default
    #[arg(long, conflicts_with = "discard")]
    pub keep: bool,
    /// Drop what the writer has not saved
    #[arg(long)]
    pub discard: bool,
}

/// The arguments of `lease events`.
#[derive(Debug, Args)]
pub struct LeaseEventsArgs {
    /// Only those after this number; by default all that are kept, with --follow only new ones
    #[arg(long, value_name = "SEQ")]
    pub after: Option<i64>,
    /// Wait for more, until interrupted
    #[arg(long)]
    pub follow: bool,
}
