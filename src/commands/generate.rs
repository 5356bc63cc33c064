use std::io::Write;

use clap::CommandFactory;

use super::error::{CommandError, Result};
use crate::cli::{Cli, GenerateArgs, GenerateWhat};

/// Writes man pages, or completions.
pub(super) fn run(args: &GenerateArgs, out: &mut dyn Write) -> Result<()> {
    match &args.what {
        GenerateWhat::Man { dir } => clap_mangen::generate_to(Cli::command(), dir).map_err(|source| {
            CommandError::File { doing: "write man pages into", path: dir.clone(), source }
        }),
        GenerateWhat::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "leasehold", &mut script);
            Ok(out.write_all(&script)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shown_subcommand_has_a_man_page() {
        let dir = tempfile::tempdir().unwrap();
        let args = GenerateArgs { what: GenerateWhat::Man { dir: dir.path().to_owned() } };
        run(&args, &mut Vec::new()).unwrap();
        for command in Cli::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let page = dir.path().join(format!("leasehold-{}.1", command.get_name()));
            assert!(page.exists(), "{}", page.display());
        }
        assert!(dir.path().join("leasehold.1").exists());
        assert!(dir.path().join("leasehold-lease-acquire.1").exists());
    }

    #[test]
    fn completions_name_the_subcommands() {
        let mut out = Vec::new();
        let args = GenerateArgs { what: GenerateWhat::Completions { shell: clap_complete::Shell::Bash } };
        run(&args, &mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().contains("save-as"));
    }
}
