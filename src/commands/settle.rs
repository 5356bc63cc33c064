use std::io::{self, Write};

use super::error::{CommandError, Result};
use super::forms::{Form, SettleForm};
use super::output::Printer;
use super::output::table;
use super::place::Context;
use crate::cli::SettleArgs;
use crate::engine::SettleReport;

/// Waits until saves are published; fails if some can't be.
pub(super) fn run(args: &SettleArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let common = &args.common;
    let site = context.site(&common.workspace, &common.checkout_of, args.path.as_slice())?;
    let report = site.ops()?.settle(&site.path_or_root())?;
    Printer::new(out, common.format.json).print(&SettleForm::of(&report), |out| human(out, &report))?;
    verdict(&report, site.holder.as_str())
}

fn human(out: &mut dyn Write, report: &SettleReport) -> io::Result<()> {
    let open = report.unsettled.iter().map(|path| vec!["*".into(), path.to_string()]);
    let failed = report.problems.iter().map(|problem| vec!["!".into(), problem.clone()]);
    table(out, "", &open.chain(failed).collect::<Vec<_>>())
}

fn verdict(report: &SettleReport, holder: &str) -> Result<()> {
    let (object, reason) = match (report.unsettled.first(), report.problems.first()) {
        (Some(path), _) => (path.to_string(), "still open with bytes that no save holds; close it".into()),
        (None, Some(problem)) => (holder.to_owned(), problem.clone()),
        (None, None) => return Ok(()),
    };
    Err(CommandError::Unsettled { object, reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ArtifactPath;

    #[test]
    fn what_is_not_settled_is_a_failure() {
        assert!(verdict(&SettleReport::default(), "ada@desk").is_ok());
        let open =
            SettleReport { unsettled: vec![ArtifactPath::parse("a").unwrap()], ..SettleReport::default() };
        assert_eq!(verdict(&open, "ada@desk").unwrap_err().exit_status(), 1);
        let failed = SettleReport { problems: vec!["a: check-in failed".into()], ..SettleReport::default() };
        let error = verdict(&failed, "ada@desk").unwrap_err();
        assert_eq!(error.line(), "ada@desk: not settled: a: check-in failed");
    }
}
