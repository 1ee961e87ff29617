//! `relight completions` and torchrun's `--print-completion`.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::facts::Process;
use super::failure::{Failure, UsageError};
use super::flags::{self, Cli, CompletionShell};
use super::{is_torchrun, output};
use crate::domain::exit_code::Outcome;

/// Prints what a shell reads to complete the command.
///
/// # Errors
/// The output cannot be written.
pub fn print(shell: CompletionShell) -> Result<Outcome, Failure> {
    generate(shell, Cli::command(), "relight")
}

fn generate(shell: CompletionShell, mut command: clap::Command, name: &str) -> Result<Outcome, Failure> {
    let shell = match shell {
        CompletionShell::Bash => Shell::Bash,
        CompletionShell::Zsh => Shell::Zsh,
        CompletionShell::Fish => Shell::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut text);
    output::print(&String::from_utf8_lossy(&text)).map(|()| Outcome::Finished)
}

/// The same for a shell by name; a link named torchrun completes as such.
///
/// # Errors
/// There are none for it.
pub fn print_named(process: &Process, name: &str) -> Result<Outcome, Failure> {
    let shell = match name {
        "bash" => CompletionShell::Bash,
        "zsh" => CompletionShell::Zsh,
        "fish" => CompletionShell::Fish,
        _ => return Err(UsageError::NoCompletions { shell: name.to_owned() }.into()),
    };
    if is_torchrun(&process.called_as) {
        return generate(shell, flags::subcommand(&["run"]).name("torchrun"), "torchrun");
    }
    print(shell)
}
