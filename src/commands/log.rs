use std::io::{self, Write};

use super::checkin::item_row;
use super::error::{Result, one_line};
use super::forms::LogForm;
use super::output::{Printer, human_size, table};
use super::place::Context;
use crate::cli::LogArgs;
use crate::engine::{LogEntry, LoggedItem};

/// Shows the changes.
pub(super) fn run(args: &LogArgs, context: &Context, out: &mut dyn Write) -> Result<()> {
    let common = &args.common;
    let site = context.site(&common.workspace, &common.checkout_of, args.path.as_slice())?;
    let entries = site.workspace.log(site.paths.first(), args.max_count)?;
    let form: Vec<LogForm> = entries.iter().map(LogForm::of).collect();
    Printer::new(out, common.format.json).print(&form, |out| human(out, &entries))?;
    Ok(())
}

fn human(out: &mut dyn Write, entries: &[LogEntry]) -> io::Result<()> {
    for (index, entry) in entries.iter().enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        print_entry(out, entry)?;
    }
    Ok(())
}

fn print_entry(out: &mut dyn Write, entry: &LogEntry) -> io::Result<()> {
    writeln!(out, "change {}  {}  {}", entry.change, entry.at.to_rfc3339(), entry.author)?;
    for line in entry.message.lines() {
        writeln!(out, "    {}", one_line(line))?;
    }
    table(out, "  ", &entry.items.iter().map(logged_row).collect::<Vec<_>>())
}

fn logged_row(logged: &LoggedItem) -> Vec<String> {
    let mut row = item_row(&logged.item);
    if logged.item.version.is_some() {
        row.push(human_size(logged.size));
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Action, ChangedItem};
    use crate::model::{ArtifactPath, ChangeNumber, Timestamp, VersionNumber};

    #[test]
    fn a_log_is_readable_and_tells_renames() {
        let item = ChangedItem {
            action: Action::Renamed,
            path: ArtifactPath::parse("new").unwrap(),
            from: Some(ArtifactPath::parse("old").unwrap()),
            version: Some(VersionNumber(2)),
        };
        let entry = LogEntry {
            change: ChangeNumber(3),
            at: Timestamp(1_796_000_000_000_000_000),
            author: "ada@desk".parse().unwrap(),
            message: "two\nlines\u{1b}".into(),
            items: vec![LoggedItem { item, digest: None, size: 5, base: None }],
        };
        let mut out = Vec::new();
        human(&mut out, &[entry]).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "change 3  2026-11-30T00:53:20Z  ada@desk\n    two\n    lines\\x1b\n  R  old -> new  v2  5 B\n"
        );
    }
}
