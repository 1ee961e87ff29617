//! The parts of `docs/` that are made from the program, so that they cannot differ from it.

use std::fmt::Write as _;

use clap::CommandFactory as _;

use super::flags::{Cli, Generated};
use super::torchrun;
use crate::domain::attribution::rules;
use crate::domain::{env, exit_code};

/// The generated text.
#[must_use]
pub fn text(what: Generated) -> String {
    match what {
        Generated::EnvTable => env::markdown(),
        Generated::ExitCodes => exit_code::markdown(),
        Generated::Cli => cli(),
        Generated::Torchrun => torchrun::markdown(),
        Generated::Attribution => rules::markdown(),
    }
}

/// The help of every command.
fn cli() -> String {
    let mut command = Cli::command().term_width(100).disable_version_flag(true);
    command.build();
    let mut out = String::new();
    section(&mut command, "relight", &mut out);
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn section(command: &mut clap::Command, name: &str, out: &mut String) {
    let help = command.render_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    // Writing to a String cannot fail.
    let _ = write!(out, "## {name}\n\n```text\n{}\n```\n\n", lines.join("\n").trim_end());
    for sub in command.get_subcommands_mut().filter(|sub| !sub.is_hide_set()) {
        let full = format!("{name} {}", sub.get_name());
        section(sub, &full, out);
    }
}
