//! What Slurm means to do with the job, asked by `squeue`.

use serde::{Deserialize, Serialize};

/// What Slurm says of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobWord {
    /// It runs.
    Runs,
    /// It is being ended.
    Ends,
    /// No answer, or no job.
    Unknown,
}

/// States of a job that is being ended, as `squeue --format=%T` writes them.
const ENDS: [&str; 8] =
    ["CANCELLED", "COMPLETING", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "FAILED", "COMPLETED", "DEADLINE"];

impl JobWord {
    /// The words of the question.
    #[must_use]
    pub fn question(job: &str) -> Vec<String> {
        let job = format!("--jobs={job}");
        ["squeue", "--noheader", "--format=%T", "--states=all", &job].map(str::to_owned).to_vec()
    }

    /// Reads the states that `squeue` printed, one a line; an answer that is none is unknown.
    pub fn read<E>(answer: Result<String, E>) -> Self {
        let answer = answer.unwrap_or_default();
        let said = |state: &dyn Fn(&str) -> bool| answer.lines().any(|line| state(line.trim()));
        if said(&|state| ENDS.contains(&state)) {
            Self::Ends
        } else if said(&|state| state == "RUNNING") {
            Self::Runs
        } else {
            Self::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_and_what_is_none_is_unknown() {
        for (answer, word) in [
            (Ok("RUNNING\n"), JobWord::Runs),
            (Ok(" COMPLETING \n"), JobWord::Ends),
            // Of two steps of one job the end counts.
            (Ok("RUNNING\nPREEMPTED\n"), JobWord::Ends),
            (Ok(""), JobWord::Unknown),
            (Ok("SUSPENDED"), JobWord::Unknown),
            (Err("Unable to contact slurm controller"), JobWord::Unknown),
        ] {
            assert_eq!(JobWord::read(answer.map(str::to_owned)), word, "{answer:?}");
        }
        assert_eq!(JobWord::question("7").join(" "), "squeue --noheader --format=%T --states=all --jobs=7");
    }
}
