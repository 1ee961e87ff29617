//! May this job go on with a run that another one began?
//!
//! A record that says who leads is legal for whoever can append it, so a job that was submitted twice, or a chained one
//! that starts while the one before is still being cleaned up, could take a run over that trains. The newest `lead` names
//! its job: another one goes on only after an `end`, or when Slurm says that that job has ended.

use std::time::Duration;

use super::ids::NodeName;
use super::ledger::Ledger;
use super::spec::JobRef;

/// How long a job that is being cleaned up is waited for: Slurm's own patience with what it kills is a minute or two.
pub const CLEANING: Duration = Duration::from_secs(180);
/// Between two questions meanwhile.
pub const ASK_AGAIN: Duration = Duration::from_secs(2);
/// So many questions without an answer are enough.
pub const UNANSWERED: u32 = 3;

/// Who may still be at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Nobody: the run is new, has ended, or was begun by an earlier start of this job, or by this very launch.
    Free,
    /// This job, or this step of our job, unless Slurm says that it has ended.
    Slurm {
        /// The job, or `job.step`.
        id: String,
    },
    /// A launcher outside any job, on another machine: nobody can be asked.
    Machine {
        /// Where.
        node: NodeName,
    },
    /// A later start of this very job: we are what Slurm believes to have ended.
    Later,
}

/// Who we are.
#[derive(Clone, Copy, Debug)]
pub struct Claimant<'a> {
    /// This node.
    pub node: &'a NodeName,
    /// Our job, if any.
    pub job: Option<&'a JobRef>,
    /// Our launch; empty outside a job.
    pub launch: &'a str,
}

/// Who may still be at the run with this journal.
#[must_use]
pub fn claim(ledger: &Ledger, us: Claimant<'_>) -> Claim {
    let Some((lead, _)) = ledger.leader().filter(|_| ledger.end().is_none()) else { return Claim::Free };
    match (&lead.job, us.job) {
        // One launch; and on one machine a lock keeps launches apart.
        _ if !us.launch.is_empty() && lead.launch == us.launch => Claim::Free,
        (None, _) if lead.node == *us.node => Claim::Free,
        (None, _) => Claim::Machine { node: lead.node.clone() },
        (Some(theirs), Some(ours)) if theirs.id == ours.id => {
            if theirs.restart > ours.restart {
                return Claim::Later;
            }
            let step = if theirs.restart == ours.restart { step(&lead.launch, theirs) } else { None };
            // A script's commands follow each other, and on each node a lock keeps their agents apart.
            step.map_or(Claim::Free, |step| Claim::Slurm { id: format!("{}.{step}", theirs.id) })
        }
        (Some(theirs), _) => Claim::Slurm { id: theirs.id.clone() },
    }
}

/// The step in the name of a launch by `srun` (`job.restart.step`).
fn step<'a>(launch: &'a str, job: &JobRef) -> Option<&'a str> {
    let step = launch.strip_prefix(&format!("{}.{}.", job.id, job.restart))?;
    (!step.is_empty() && step.bytes().all(|b| b.is_ascii_digit())).then_some(step)
}

/// What Slurm says of a job or step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Nothing of it runs.
    Ended,
    /// It is being cleaned up.
    Completing,
    /// It is there, in this state.
    Alive(String),
}

/// States in which no process of a job is left, as `squeue --format=%T` writes them.
const ENDED: [&str; 14] = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PENDING",
    "PREEMPTED",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "REVOKED",
    "TIMEOUT",
];

/// Reads the states that `squeue` printed, one a line; a job that it does not list any more has ended.
#[must_use]
pub fn said(states: &str) -> Said {
    let mut said = Said::Ended;
    for state in states.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match state {
            _ if ENDED.contains(&state) => {}
            "COMPLETING" if said == Said::Ended => said = Said::Completing,
            "COMPLETING" => {}
            // Also what we do not know.
            other => return Said::Alive(other.to_owned()),
        }
    }
    said
}

/// Slurm's word for a job that it has forgotten.
#[must_use]
pub fn is_forgotten(error: &str) -> bool {
    error.contains("Invalid job id") || error.contains("Invalid job/step")
}

/// The words of the question.
#[must_use]
pub fn question(id: &str) -> Vec<String> {
    let which = if id.contains('.') { format!("--steps={id}") } else { format!("--jobs={id}") };
    // A step that is listed runs; its listing has no states.
    let format = if id.contains('.') { "--format=RUNNING" } else { "--format=%T" };
    ["squeue", "--noheader", which.as_str(), format].map(str::to_owned).to_vec()
}

/// What to do about a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on with the run.
    Take,
    /// Ask again in [`ASK_AGAIN`].
    Wait,
    /// Leave it: a sentence and what to do.
    Refuse {
        /// What is wrong.
        sentence: String,
        /// What to do.
        hint: String,
    },
}

/// Where the questions stand.
#[derive(Clone, Debug, Default)]
pub struct Inquiry {
    unanswered: u32,
}

impl Inquiry {
    /// Judges an answer, or the reason why there is none, `waited` after the first question.
    pub fn judge(&mut self, run: &str, id: &str, answer: Result<&str, &str>, waited: Duration) -> Verdict {
        let what = if id.contains('.') { "step" } else { "job" };
        let refuse = |why: String| Verdict::Refuse {
            sentence: format!("run {run} belongs to {what} {id}, which {why}"),
            hint: format!("wait for it, or end it: scancel {id}; another --run-id starts a new run"),
        };
        let answer = match answer {
            Err(error) if is_forgotten(error) => Ok(Said::Ended),
            Err(error) => Err(error),
            Ok(states) => Ok(said(states)),
        };
        match answer {
            Ok(Said::Ended) => Verdict::Take,
            Ok(Said::Completing) if waited < CLEANING => Verdict::Wait,
            Ok(Said::Completing) => refuse("is still being cleaned up".to_owned()),
            Ok(Said::Alive(state)) => refuse(format!("has not ended ({state})")),
            Err(error) => {
                self.unanswered = self.unanswered.saturating_add(1);
                if self.unanswered < UNANSWERED {
                    return Verdict::Wait;
                }
                refuse(format!("has left no end there, and Slurm does not say whether it has ended: {error}"))
            }
        }
    }
}

/// Why a run of another machine, or of a later start, is left alone.
#[must_use]
pub fn refusal(run: &str, claim: &Claim) -> Option<(String, String)> {
    match claim {
        Claim::Free | Claim::Slurm { .. } => None,
        Claim::Machine { node } => Some((
            format!("run {run} was begun on {node}, outside any job, and has not ended there"),
            format!("go on with it on {node}, or start a new run with another --run-id"),
        )),
        Claim::Later => Some((
            format!("run {run} is led by a later start of this job"),
            "nothing is to be done: this start of the job has ended for Slurm".to_owned(),
        )),
    }
}

#[cfg(test)]
#[path = "takeover_tests.rs"]
mod tests;
