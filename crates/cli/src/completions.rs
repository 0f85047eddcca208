//! Shell completions and manual pages.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use thiserror::Error;

/// Print what a shell needs to complete commands and options.
///
/// For bash: `causeway completions bash > ~/.local/share/bash-completion/completions/causeway`. For zsh write it to a
/// file `_causeway` in a folder of `fpath`, for fish to ~/.config/fish/completions/causeway.fish.
#[derive(Debug, Args)]
pub struct CompletionArguments {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Print the manual page, or write one for each command to a folder.
///
/// `man -l FILE` shows a page; in a folder `man1` of MANPATH, such as ~/.local/share/man/man1, `man causeway-run` finds it.
#[derive(Debug, Args)]
pub struct ManArguments {
    /// The folder, which is made when it is not there. If not given: the page of `causeway` itself goes to standard
    /// output.
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Why nothing was written.
#[derive(Debug, Error)]
pub enum ManualError {
    /// Nobody reads it.
    #[error("cannot print this: {0}")]
    Print(#[from] io::Error),
    /// The folder takes no files.
    #[error("cannot write the manual pages to {folder}: {cause}")]
    Write {
        /// The folder.
        folder: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
}

/// Prints what a shell needs.
pub fn completions(arguments: &CompletionArguments, command: Command) -> Result<ExitCode, ManualError> {
    // Writing to memory does not fail, which the library takes for granted.
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut with_visible_options(command), "causeway", &mut text);
    io::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints or writes manual pages.
pub fn man(arguments: &ManArguments, command: Command) -> Result<ExitCode, ManualError> {
    let command = with_visible_options(command).disable_help_subcommand(true);
    let Some(folder) = &arguments.folder else {
        let mut text = Vec::new();
        Man::new(command).render(&mut text)?;
        io::stdout().write_all(&text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let pages = write_pages(command, folder);
    let count = pages.map_err(|cause| ManualError::Write { folder: folder.clone(), cause })?;
    writeln!(io::stdout(), "{count} manual pages are in {}", folder.display())?;
    Ok(ExitCode::SUCCESS)
}

fn write_pages(command: Command, folder: &Path) -> io::Result<usize> {
    std::fs::create_dir_all(folder)?;
    clap_mangen::generate_to(command, folder)?;
    let pages = std::fs::read_dir(folder)?.flatten();
    Ok(pages.filter(|page| page.path().extension().is_some_and(|ending| ending == "1")).count())
}

/// The command line without what people do not type.
fn with_visible_options(command: Command) -> Command {
    let kept: Vec<_> = command.get_subcommands().filter(|one| !one.is_hide_set()).cloned().collect();
    let mut all = Command::new(command.get_name().to_owned())
        .version(command.get_version().unwrap_or_default().to_owned());
    if let Some(about) = command.get_about() {
        all = all.about(about.clone());
    }
    if let Some(about) = command.get_long_about() {
        all = all.long_about(about.clone());
    }
    if let Some(end) = command.get_after_long_help() {
        all = all.after_long_help(end.clone());
    }
    all.subcommands(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command() -> Command {
        let run = Command::new("run").about("Runs.").arg(clap::Arg::new("on").long("on"));
        Command::new("causeway").version("1").subcommand(run).subcommand(Command::new("worker").hide(true))
    }

    #[test]
    fn shells_learn_commands_and_options_and_nothing_of_what_is_hidden() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut with_visible_options(command()), "causeway", &mut text);
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains("run") && text.contains("on"), "{text}");
            assert!(!text.contains("worker"), "{text}");
        }
    }

    #[test]
    fn each_command_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("man1");
        let count =
            write_pages(with_visible_options(command()).disable_help_subcommand(true), &folder).unwrap();
        let mut names: Vec<_> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!((count, names), (2, vec!["causeway-run.1".to_owned(), "causeway.1".to_owned()]));
        let page = std::fs::read_to_string(folder.join("causeway-run.1")).unwrap();
        assert!(page.contains("Runs.") && page.contains("\\-\\-on"), "{page}");
    }
}
