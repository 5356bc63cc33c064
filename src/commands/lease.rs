use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use super::error::{CommandError, Result, one_line};
use super::forms::{Form, LeaseStatusForm};
use super::output::{Printer, table};
use super::place::Context;
use super::status::lease_rows;
use crate::cli::{CheckoutOfArgs, LeaseAction, LeaseArgs, LeaseTargetArgs, WorkspaceArgs};
use crate::engine::{EngineError, LeaseStatus, Workspace};
use crate::model::{Holder, Instant, ResourceKey};

/// Shows, takes or gives back one lease.
pub(super) fn run(args: &LeaseArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let find = |target| Target::find(&args.workspace, target, context);
    let now = context.environment.clock.now();
    let mut printer = Printer::new(out, args.format.json);
    match &args.action {
        LeaseAction::Show(target) => show(&find(target)?, now, &mut printer),
        LeaseAction::Acquire(acquired) => {
            acquire(&find(&acquired.target)?, acquired.ttl_ms, now, &mut printer)
        }
        LeaseAction::Release(target) => release(find(target)?, &mut printer),
    }
}

#[derive(Serialize)]
struct ShowForm {
    key: String,
    lease: Option<LeaseStatusForm>,
}

#[derive(Serialize)]
struct ReleaseForm {
    key: String,
    released: bool,
}

/// The resource that a command's argument means, and who asks.
struct Target {
    workspace: Arc<Workspace>,
    key: ResourceKey,
    holder: Holder,
    /// The argument, for messages.
    object: String,
}

impl Target {
    fn find(workspace: &WorkspaceArgs, args: &LeaseTargetArgs, context: &Context) -> Result<Self> {
        let key = key_of_text(&args.target);
        let paths = if key.is_some() { &[][..] } else { std::slice::from_ref(&args.target) };
        let site = context.site(workspace, &CheckoutOfArgs::default(), paths)?;
        let holder = args.holder.as_deref().map(parse_holder).transpose()?.unwrap_or(site.holder);
        let key = match (key, site.paths.first()) {
            (Some(key), _) => key,
            (None, path) => site.workspace.key_of(&path.cloned().unwrap_or_default(), &holder)?,
        };
        Ok(Self { workspace: site.workspace, key, holder, object: args.target.display().to_string() })
    }

    fn status(&self) -> Result<Option<LeaseStatus>> {
        Ok(self.workspace.lease(&self.key)?)
    }

    /// Names the refused resource as the user wrote it, which the engine can't know.
    fn name_object(&self, error: EngineError) -> CommandError {
        match error {
            EngineError::Held { lease, .. } | EngineError::KeyHeld { lease, .. } => {
                CommandError::Held { object: self.object.clone(), lease }
            }
            other => other.into(),
        }
    }
}

/// Reads `kind:id`; a file of such a name is written `./kind:id`.
fn key_of_text(target: &Path) -> Option<ResourceKey> {
    std::str::from_utf8(target.as_os_str().as_bytes()).ok()?.parse().ok()
}

fn parse_holder(text: &str) -> Result<Holder> {
    text.parse().map_err(|source| CommandError::BadHolder {
        what: "a holder",
        option: "--as",
        text: text.to_owned(),
        source,
    })
}

fn show(target: &Target, now: Instant, printer: &mut Printer<'_>) -> Result<()> {
    let lease = target.workspace.lease_over(&target.key, &target.holder)?;
    let form = ShowForm { key: target.key.to_string(), lease: lease.as_ref().map(LeaseStatusForm::of) };
    printer.print(&form, |out| match &lease {
        Some(lease) => print_lease(out, lease, now),
        None => writeln!(out, "{}  free", one_line(&target.object)),
    })?;
    Ok(())
}

fn acquire(target: &Target, ttl_ms: Option<i64>, now: Instant, printer: &mut Printer<'_>) -> Result<()> {
    let acquired = target.workspace.acquire(&target.key, &target.holder, ttl_ms);
    let lease = acquired.map_err(|error| target.name_object(error))?;
    let path = target.status()?.and_then(|status| status.path);
    let status = LeaseStatus { path, lease, live: true };
    let form = LeaseStatusForm::of(&status);
    printer.print(&form, |out| print_lease(out, &status, now))?;
    Ok(())
}

fn print_lease(out: &mut dyn Write, status: &LeaseStatus, now: Instant) -> io::Result<()> {
    table(out, "", &lease_rows(std::slice::from_ref(status), now))
}

fn release(target: Target, printer: &mut Printer<'_>) -> Result<()> {
    let released = target.workspace.release(&target.key, &target.holder);
    let released = released.map_err(|error| target.name_object(error))?;
    let other = if released { None } else { target.status()?.filter(|status| status.live) };
    if let Some(status) = other {
        return Err(CommandError::Held { object: target.object, lease: Some(Box::new(status.lease)) });
    }
    let form = ReleaseForm { key: target.key.to_string(), released };
    printer.print(&form, |_| Ok(()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_paths_are_told_apart_by_their_spelling() {
        let is_key = |text: &str| key_of_text(Path::new(text)).is_some();
        assert!(is_key("thread:42"));
        assert!(is_key("artifact:01890a5d-ac96-774b-bcce-b302099a8057"));
        for path in ["./thread:42", "a/b:c", "Report:final.docx", "plain", "artifact:x", ":x", "x:"] {
            assert!(!is_key(path), "{path}");
        }
    }
}
