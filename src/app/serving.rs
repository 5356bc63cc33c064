use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::error::{AppError, Result};
use super::logging;
use super::stop::Signals;
use crate::blobs::{DiskSettings, DiskStore, MemoryStamps};
use crate::cli::ServeArgs;
use crate::commands::error::CommandError;
use crate::commands::place::Context;
use crate::engine::Environment;
use crate::serve::{Patience, ServeOptions, Server, Source, Tokens};
use crate::sys;

/// How long what is broken off at the end may take to notice.
const RUNTIME_END: Duration = Duration::from_secs(2);

/// Serves blobs until a signal comes.
pub(super) fn run(args: &ServeArgs, context: &Context) -> Result<()> {
    logging::start("info");
    if let Err(error) = sys::raise_open_files() {
        tracing::warn!(%error, "can't raise the limit of open files");
    }
    let tokens = Tokens::from_files(args.token_file.as_deref(), args.read_only_token_file.as_deref())?;
    let options = ServeOptions {
        listen: args.listen,
        tokens,
        max_body_bytes: args.max_body_bytes,
        max_requests: usize::try_from(args.max_requests).unwrap_or(usize::MAX),
        patience: Patience::default(),
    };
    options.check()?;
    let source = match &args.objects {
        Some(objects) => Source::Objects(Box::new(bare_store(objects, &context.environment)?)),
        None => Source::Workspace(Arc::new(context.workspace(&args.workspace)?)),
    };
    let runtime = Runtime::new().map_err(|source| AppError::Setup { doing: "start the runtime", source })?;
    let outcome = runtime.block_on(serve(options, source, &context.environment));
    runtime.shutdown_timeout(RUNTIME_END);
    outcome
}

fn bare_store(objects: &Path, environment: &Environment) -> Result<DiskStore> {
    let stamps = Arc::new(MemoryStamps::default());
    DiskStore::bare(objects, &environment.store_parts(DiskSettings::default(), stamps))
        .map_err(|source| AppError::Objects { path: objects.to_owned(), source })
}

async fn serve(options: ServeOptions, source: Source, environment: &Environment) -> Result<()> {
    let mut signals = Signals::catch()?;
    let server = Server::bind(options, source, Arc::clone(&environment.clock)).await?;
    say_where(&server).map_err(CommandError::from)?;
    let stop = async {
        let signal = signals.next().await;
        tracing::info!(signal, "takes no more requests");
    };
    server.run(stop).await;
    Ok(())
}

/// Tells the address, for whoever asked for any free port.
fn say_where(server: &Server) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "listening on http://{}", server.address())?;
    out.flush()
}
