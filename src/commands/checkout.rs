use std::io::Write;

use super::error::Result;
use super::forms::{LeaseStatusForm, all};
use super::output::Printer;
use super::output::table;
use super::place::Context;
use super::status::lease_rows;
use crate::cli::CheckoutArgs;
use crate::engine::LeaseStatus;
use crate::model::{ArtifactPath, Lease};

/// Takes leases before editing.
pub(super) fn run(args: &CheckoutArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let common = &args.common;
    let site = context.site(&common.workspace, &common.checkout_of, &args.paths)?;
    let leases = site.ops()?.checkout(&site.paths)?;
    let leases = with_paths(&site.paths, leases);
    let now = context.environment.clock.now();
    let form: Vec<LeaseStatusForm> = all(&leases);
    Printer::new(out, common.format.json).print(&form, |out| table(out, "", &lease_rows(&leases, now)))?;
    Ok(())
}

/// Puts the paths beside their leases, which come in the same order.
fn with_paths(paths: &[ArtifactPath], leases: Vec<Lease>) -> Vec<LeaseStatus> {
    let same = paths.len() == leases.len();
    let path = |index: usize| same.then(|| paths[index].clone());
    let status = |(index, lease)| LeaseStatus { path: path(index), lease, live: true, quarantined: false };
    leases.into_iter().enumerate().map(status).collect()
}
