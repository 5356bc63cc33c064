use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use super::Cli;

/// Why arguments are no command.
#[derive(Debug)]
pub enum Unparsed {
    /// They ask for help or the version: this is it.
    Asked(clap::Error),
    /// They are wrong usage, which this line tells.
    Wrong(String),
}

/// Reads the program's arguments, its name first.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Cli, Unparsed> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    Cli::try_parse_from(&arguments).map_err(|error| match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Unparsed::Asked(error),
        kind => Unparsed::Wrong(line(kind, &error.render().to_string(), &command_name(&arguments))),
    })
}

/// `COMMAND: what is wrong; what may be meant; where the help is`, of the paragraphs that clap writes.
fn line(kind: ErrorKind, text: &str, command: &str) -> String {
    let mut parts = match kind {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            vec!["no command given".to_owned()]
        }
        _ => text.split("\n\n").filter_map(fact_or_tip).collect(),
    };
    parts.push(format!("see `{command} --help`"));
    format!("{command}: {}", parts.join("; "))
}

/// The text of a paragraph that says what is wrong, or what to do; none of the usage and of the word on help.
fn fact_or_tip(paragraph: &str) -> Option<String> {
    let words = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    ["error: ", "tip: "].iter().find_map(|label| words.strip_prefix(label)).map(str::to_owned)
}

/// The program and the subcommands that the arguments name.
fn command_name(arguments: &[OsString]) -> String {
    let mut command = &Cli::command();
    let mut name = command.get_name().to_owned();
    let words = arguments.iter().skip(1).filter_map(|argument| argument.to_str());
    for word in words.filter(|word| !word.starts_with('-')) {
        let Some(subcommand) = command.find_subcommand(word) else { break };
        name = format!("{name} {}", subcommand.get_name());
        command = subcommand;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(arguments: &[&str]) -> String {
        let arguments = ["leasehold"].iter().chain(arguments).map(OsString::from);
        match parse(arguments) {
            Err(Unparsed::Wrong(line)) => line,
            other => panic!("{other:?}"),
        }
    }

    /// Each says in one line what is wrong, and names the command whose help tells more.
    #[test]
    fn wrong_usage_is_one_line() {
        for (arguments, expected) in [
            (&[][..], "leasehold: no command given; see `leasehold --help`"),
            (&["lease"], "leasehold lease: no command given; see `leasehold lease --help`"),
            (
                &["statu"],
                "leasehold: unrecognized subcommand 'statu'; some similar subcommands exist: 'settle', 'status'; see `leasehold --help`",
            ),
            (
                &["cat"],
                "leasehold cat: the following required arguments were not provided: <PATH@@N>; see `leasehold cat --help`",
            ),
            (
                &["log", "-n", "x"],
                "leasehold log: invalid value 'x' for '--max-count <COUNT>': expected a number from 1; see `leasehold log --help`",
            ),
            (
                &["mount", "a", "b", "--checkin", "never"],
                "leasehold mount: invalid value 'never' for '--checkin <WHEN>' [possible values: manual, close]; see `leasehold mount --help`",
            ),
            (
                &["recovered", "-w", "ws", "--jsn", "restore"],
                "leasehold recovered: unexpected argument '--jsn' found; a similar argument exists: '--json'; see `leasehold recovered --help`",
            ),
            (
                &["status", "a", "two\nlines"],
                "leasehold status: unexpected argument 'two lines' found; see `leasehold status --help`",
            ),
        ] {
            assert_eq!(wrong(arguments), expected);
        }
    }

    #[test]
    fn help_and_version_are_no_wrong_usage() {
        for arguments in [&["--help"][..], &["--version"], &["log", "-h"], &["lease", "show", "--help"]] {
            let arguments = ["leasehold"].iter().chain(arguments).map(OsString::from);
            assert!(matches!(parse(arguments), Err(Unparsed::Asked(_))));
        }
    }
}
