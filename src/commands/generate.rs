use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::{Arg, ArgAction, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use super::error::{CommandError, Result};
use crate::cli::{Cli, EXIT_STATUSES, GenerateArgs, GenerateWhat};

/// What the pages say that they belong to.
const SOURCE: &str = concat!("leasehold ", env!("CARGO_PKG_VERSION"));

/// Writes man pages, or completions.
pub(super) fn run(args: &GenerateArgs, out: &mut dyn Write) -> Result<()> {
    match &args.what {
        GenerateWhat::Man { dir } => {
            let mut command = Cli::command();
            command.build();
            write_pages(&command, dir).map_err(|source| CommandError::File {
                doing: "write man pages into",
                path: dir.clone(),
                source,
            })
        }
        GenerateWhat::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "leasehold", &mut script);
            Ok(out.write_all(&script)?)
        }
    }
}

/// Writes the page of a command, and those of its subcommands.
fn write_pages(command: &clap::Command, dir: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_pages(subcommand, dir)?;
    }
    let man = Man::new(command.clone()).source(SOURCE).manual("Leasehold");
    fs::write(dir.join(man.get_filename()), page(&man, command)?)
}

fn page(man: &Man, command: &clap::Command) -> io::Result<String> {
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    synopsis(command).to_writer(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut text)?;
    }
    exit_status().to_writer(&mut text)?;
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    // Each section brings the definition of the apostrophe with it; one is enough.
    let definition = Roff::new().render();
    Ok(format!("{definition}{}", text.replace(&definition, "")))
}

/// The command line as man-pages(7) writes it, with the values of options and what may be repeated.
fn synopsis(command: &clap::Command) -> Roff {
    let mut line = vec![bold(command.get_bin_name().unwrap_or_else(|| command.get_name()))];
    let shown = |arg: &&Arg| {
        let asks = matches!(arg.get_action(), ArgAction::Help | ArgAction::HelpShort | ArgAction::Version);
        !arg.is_hide_set() && !asks
    };
    let (positionals, options): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().filter(shown).partition(|arg| arg.is_positional());
    options.into_iter().chain(positionals).for_each(|arg| argument(&mut line, arg));
    if command.has_subcommands() {
        let (open, close) = if command.is_subcommand_required_set() { ("", "") } else { ("[", "]") };
        line.extend([roman(format!(" {open}")), italic("COMMAND"), roman(format!("{close} ..."))]);
    }
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]).text(line);
    roff
}

fn argument(line: &mut Vec<Inline>, arg: &Arg) {
    let (open, close) = if arg.is_required_set() { (" ", "") } else { (" [", "]") };
    line.push(roman(open));
    match (arg.get_short(), arg.get_long()) {
        (Some(short), _) => line.push(bold(format!("-{short}"))),
        (None, Some(long)) => line.push(bold(format!("--{long}"))),
        (None, None) => {}
    }
    if arg.get_action().takes_values() {
        let name = arg.get_value_names().map_or_else(|| arg.get_id().to_string(), |names| names.join(" "));
        let space = if arg.is_positional() { "" } else { " " };
        let repeated = arg.get_num_args().is_some_and(|count| count.max_values() > 1);
        line.extend([roman(space), italic(name), roman(if repeated { "..." } else { "" })]);
    }
    line.push(roman(close));
}

fn exit_status() -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    for (status, meaning) in EXIT_STATUSES {
        roff.control("TP", []).text([bold(status.to_string())]).text([roman(meaning)]);
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let args = GenerateArgs { what: GenerateWhat::Man { dir: dir.path().to_owned() } };
        run(&args, &mut Vec::new()).unwrap();
        dir
    }

    #[test]
    fn every_shown_subcommand_has_a_man_page() {
        let dir = pages();
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let page = dir.path().join(format!("leasehold-{}.1", command.get_name()));
            assert!(page.exists(), "{}", page.display());
        }
        assert!(dir.path().join("leasehold.1").exists());
        assert!(dir.path().join("leasehold-lease-acquire.1").exists());
        assert!(!dir.path().join("leasehold-generate.1").exists());
    }

    /// What stands under a heading, without markup.
    fn section(dir: &Path, page: &str, heading: &str) -> String {
        let text = fs::read_to_string(dir.join(page)).unwrap();
        let (_, rest) = text.split_once(&format!(".SH {heading}\n")).expect(heading);
        let section = rest.split(".SH").next().unwrap();
        ["\\fB", "\\fI", "\\fR", "\\"].iter().fold(section.to_owned(), |text, mark| text.replace(mark, ""))
    }

    #[test]
    fn a_synopsis_shows_values_and_repetition() {
        let dir = pages();
        let synopsis = |page: &str| section(dir.path(), page, "SYNOPSIS").trim().to_owned();
        assert_eq!(
            synopsis("leasehold-checkin.1"),
            "leasehold checkin -m MSG [--keep] [--onto N] [-w WORKSPACE] [--as USER] [--checkout NAME] [--json] [PATH...]"
        );
        assert_eq!(
            synopsis("leasehold-recovered-restore.1"),
            "leasehold recovered restore [-w WORKSPACE] [--json] ID DEST"
        );
        assert_eq!(synopsis("leasehold.1"), "leasehold COMMAND ...");
        assert_eq!(
            synopsis("leasehold-recovered.1"),
            "leasehold recovered [-w WORKSPACE] [--json] [COMMAND] ..."
        );
    }

    #[test]
    fn exit_statuses_have_a_section_of_their_own() {
        let dir = pages();
        for page in ["leasehold.1", "leasehold-checkin.1"] {
            assert!(section(dir.path(), page, "\"EXIT STATUS\"").contains("\n3\nheld by someone else\n"));
            assert!(!fs::read_to_string(dir.path().join(page)).unwrap().contains(".SH EXTRA"), "{page}");
        }
    }

    #[test]
    fn completions_name_the_subcommands() {
        let args = GenerateArgs { what: GenerateWhat::Completions { shell: clap_complete::Shell::Bash } };
        let mut out = Vec::new();
        run(&args, &mut out).unwrap();
        let script = String::from_utf8(out).unwrap();
        assert!(script.contains("checkin"), "{script}");
    }
}
