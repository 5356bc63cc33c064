use std::io::Write;

use super::error::Result;
use super::forms::{LeaseStatusForm, all};
use super::output::{Printer, table};
use super::place::Context;
use super::status::lease_rows;
use crate::cli::LeasesArgs;
use crate::engine::LeaseFilter;

/// Lists all leases.
pub(super) fn run(args: &LeasesArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let leases = context.workspace(&args.workspace)?.leases(&LeaseFilter::default())?;
    let now = context.environment.clock.now();
    let form: Vec<LeaseStatusForm> = all(&leases);
    Printer::new(out, args.format.json).print(&form, |out| table(out, "", &lease_rows(&leases, now)))?;
    Ok(())
}
