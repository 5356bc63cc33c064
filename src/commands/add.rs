use std::io::Write;

use super::error::Result;
use super::forms::{Form, PathForm};
use super::output::Printer;
use super::place::Context;
use crate::cli::AddArgs;

/// Makes a scratch file an artifact.
pub(super) fn run(args: &AddArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let common = &args.common;
    let site = context.site(&common.workspace, &common.checkout_of, std::slice::from_ref(&args.path))?;
    site.ops()?.add(&site.paths[0])?;
    Printer::new(out, common.format.json).print(&PathForm::of(&site.paths[0]), |_| Ok(()))?;
    Ok(())
}
