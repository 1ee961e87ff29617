//! `relight slurm`: what a plain `srun` line needs in its environment, and templates of batch scripts.

use super::facts::Process;
use super::failure::{Failure, UsageError};
use super::flags::{RunOptions, SlurmCommand};
use super::{output, run, show};
use crate::domain::env;
use crate::domain::exit_code::Outcome;
use crate::domain::settings::Settings;
use crate::domain::suggest::closest;

macro_rules! templates {
    ($($name:literal),*) => {
        /// Every template with its text.
        pub const TEMPLATES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../slurm/", $name, ".sbatch")))),*];
    };
}

templates!("multi-node", "with-spares", "container", "interactive", "drop-in", "task-per-gpu");

/// Performs `relight slurm …`.
///
/// # Errors
/// There is no such template, or the output cannot be written.
pub fn slurm(process: &Process, command: &SlurmCommand) -> Result<Outcome, Failure> {
    let text = match command {
        SlurmCommand::Env => environment() + &place(process),
        SlurmCommand::Template { name: None } => list(),
        SlurmCommand::Template { name: Some(name) } => template(name)?.to_owned(),
    };
    output::print(&text).map(|()| Outcome::Finished)
}

/// For `eval`.
fn environment() -> String {
    env::FOR_PLAIN_SRUN.iter().map(|(name, value)| format!("export {name}={value}\n")).collect()
}

/// Agents of a plain line ask nobody where the job's output goes: the batch script asks once, for all of them.
fn place(process: &Process) -> String {
    // A setting that makes no sense is said by the command that needs it.
    let settings = run::settings(process, &RunOptions::default(), &[]).ok();
    let Some(settings) = settings.filter(Settings::is_beside_output) else { return String::new() };
    let dir = show::quoted(&settings.run_dir.value.to_string_lossy());
    format!("export {}={dir}\n", env::RELIGHT_RUN_DIR.name)
}

/// Each name with the first sentence of its template.
fn list() -> String {
    let width = TEMPLATES.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let line = |(name, text): &(&str, &str)| {
        let about = text.lines().nth(1).unwrap_or_default().trim_start_matches(['#', ' ']);
        let sentence = about.split(". ").next().unwrap_or(about).trim_end_matches('.');
        format!("{name:width$}  {sentence}\n")
    };
    TEMPLATES.iter().map(line).collect()
}

fn template(name: &str) -> Result<&'static str, UsageError> {
    let plain = name.strip_suffix(".sbatch").unwrap_or(name);
    let found = TEMPLATES.iter().find(|(known, _)| *known == plain);
    found.map(|(_, text)| *text).ok_or_else(|| UsageError::NoTemplate {
        name: name.to_owned(),
        closest: closest(plain, TEMPLATES.iter().map(|(name, _)| *name)).map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_found_by_either_name() {
        assert_eq!(template("drop-in").unwrap(), template("drop-in.sbatch").unwrap());
        let error = Failure::from(template("dropin").unwrap_err());
        assert_eq!(error.to_string(), "there is no template 'dropin'");
        assert_eq!(error.hint().as_deref(), Some("did you mean drop-in?"));
    }

    #[test]
    fn every_file_is_a_template_and_its_list_says_what_it_is() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("slurm");
        let files =
            std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut files: Vec<String> =
            files.filter_map(|name| Some(name.strip_suffix(".sbatch")?.to_owned())).collect();
        files.sort();
        let mut known: Vec<&str> = TEMPLATES.iter().map(|(name, _)| *name).collect();
        known.sort_unstable();
        assert_eq!(files, known);
        assert!(list().lines().all(|line| line.len() > 30), "{}", list());
    }

    #[test]
    fn the_environment_of_a_plain_srun() {
        assert_eq!(
            environment(),
            "export SLURM_NO_KILL=set\nexport SLURM_KILL_BAD_EXIT=0\nexport SLURM_WAIT=0\nexport SLURM_MPI_TYPE=none\n\
             export SLURM_CPU_BIND=none\n"
        );
    }
}
