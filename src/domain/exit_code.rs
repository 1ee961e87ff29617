//! The launcher's exit codes: a contract with batch scripts and with Slurm.

use std::fmt::Write as _;

/// The run finished.
pub const FINISHED: u8 = 0;
/// The run failed.
pub const FAILED: u8 = 1;
/// The command line, a setting, a file that it names or this node does not allow a run; nothing was started.
pub const USAGE: u8 = 2;
/// The job should be requeued and could not be.
pub const REQUEUE: u8 = 75;
/// The run failed in a way that a requeue would only repeat.
pub const DO_NOT_REQUEUE: u8 = 93;
/// Plus the number of the signal by which a person ended the run.
pub const SIGNAL_BASE: u8 = 128;

/// How the launcher ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every rank ended with 0.
    Finished,
    /// The restarts are used up, or something that relight needs is gone.
    Failed,
    /// Nothing was started.
    Usage,
    /// To be requeued, by somebody else.
    Requeue,
    /// Not to be requeued.
    DoNotRequeue,
    /// A person's signal.
    Signal(u8),
}

impl Outcome {
    /// The exit code. A number that is no signal counts as a failure.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Finished => FINISHED,
            Self::Failed => FAILED,
            Self::Usage => USAGE,
            Self::Requeue => REQUEUE,
            Self::DoNotRequeue => DO_NOT_REQUEUE,
            Self::Signal(no @ 1..=64) => SIGNAL_BASE + no,
            Self::Signal(_) => FAILED,
        }
    }

    /// What an exit code of a run says; codes that relight never ends with count as failed.
    #[must_use]
    pub const fn of(code: u8) -> Self {
        match code {
            FINISHED => Self::Finished,
            USAGE => Self::Usage,
            REQUEUE => Self::Requeue,
            DO_NOT_REQUEUE => Self::DoNotRequeue,
            129..=192 => Self::Signal(code - SIGNAL_BASE),
            _ => Self::Failed,
        }
    }

    /// One row of the documented table: the code, its name, what it means, what a batch script should do.
    #[must_use]
    pub const fn doc(self) -> (&'static str, &'static str, &'static str, &'static str) {
        match self {
            Self::Finished => ("0", "finished", "Every rank of an attempt ended with 0.", "go on"),
            Self::Failed => (
                "1",
                "failed",
                "A rank failed and no restart is left, or something that the run needs was lost. The final report names the first failure.",
                "look at the report, `relight why RUN`",
            ),
            Self::Usage => (
                "2",
                "usage",
                "The command line, a setting or a file that it names is wrong, or this node lacks a place that a run needs. Nothing was started.",
                "correct it",
            ),
            Self::Requeue => (
                "75",
                "requeue",
                "The job should run again and relight could not requeue it itself.",
                "requeue",
            ),
            Self::DoNotRequeue => (
                "93",
                "do not requeue",
                "A requeue would fail the same way: the program itself is at fault, or no progress was made. Or a person (`relight ctl stop`) or a rank (`relight.request_stop`) asked for the end of the run.",
                "do not requeue; look at `relight why RUN`",
            ),
            Self::Signal(_) => (
                "128+n",
                "signal",
                "Signal n of a person or of the system ended the run (130 for SIGINT, 143 for SIGTERM).",
                "as you meant it",
            ),
        }
    }

    /// One of each kind, in the order of the table.
    pub const ALL: [Self; 6] =
        [Self::Finished, Self::Failed, Self::Usage, Self::Requeue, Self::DoNotRequeue, Self::Signal(15)];
}

/// The table of `docs/exit-codes.md`.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::from("| code | name | meaning | what to do |\n|---|---|---|---|\n");
    for outcome in Outcome::ALL {
        let (code, name, meaning, then) = outcome.doc();
        // Writing to a String cannot fail.
        let _ = writeln!(out, "| {code} | {name} | {meaning} | {then} |");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_says_what_it_was_made_of() {
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::of(outcome.code()), outcome);
        }
        for code in 0..=u8::MAX {
            let outcome = Outcome::of(code);
            assert!(outcome.code() == code || outcome == Outcome::Failed, "{code}");
        }
    }

    #[test]
    fn the_codes_are_a_contract() {
        let codes: Vec<u8> = Outcome::ALL.iter().map(|outcome| outcome.code()).collect();
        assert_eq!(codes, [0, 1, 2, 75, 93, 143]);
        assert_eq!(Outcome::Signal(0).code(), FAILED);
        assert_eq!(Outcome::Signal(200).code(), FAILED);
    }
}
