use std::io::Write;

use serde::Serialize;

use super::error::Result;
use super::forms::{Form, PathForm};
use super::output::Printer;
use super::place::Context;
use crate::cli::SaveAsArgs;

#[derive(Serialize)]
struct SaveAsForm {
    #[serde(flatten)]
    path: PathForm,
    new: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    new_hex: Option<String>,
}

/// Keeps a draft under another name.
pub(super) fn run(args: &SaveAsArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let common = &args.common;
    let both = [args.path.clone(), args.new.clone()];
    let site = context.site(&common.workspace, &common.checkout_of, &both)?;
    let (path, new) = (&site.paths[0], &site.paths[1]);
    site.ops()?.save_as(path, new)?;
    let PathForm { path: new, path_hex: new_hex } = PathForm::of(new);
    let form = SaveAsForm { path: PathForm::of(path), new, new_hex };
    Printer::new(out, common.format.json).print(&form, |_| Ok(()))?;
    Ok(())
}
