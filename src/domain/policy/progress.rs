//! Did an attempt make progress? A newer agreed generation, or after a resume a client's step beyond all earlier
//! attempts. Steps that are done again are none, and no more are the counts of hooks, which begin at 0 each time.

use serde::{Deserialize, Serialize};

use super::super::board::Feeder;
use super::super::record::Resume;
use super::history::History;

/// An attempt that ends sooner after its first step, in milliseconds, is early.
pub const SOON_MS: u64 = 300_000;

/// How far an attempt came, by the word of its ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// The first step that any rank told.
    pub first: Option<u64>,
    /// The furthest.
    pub most: Option<u64>,
    /// Whose word it is; none: no rank said anything.
    pub feeder: Option<Feeder>,
    /// From the first step to the end, in milliseconds.
    pub stepping_ms: Option<u64>,
    /// The newest generation that was agreed on.
    pub generation: Option<Resume>,
}

impl Reached {
    /// The program itself counts its steps.
    #[must_use]
    pub fn is_client(&self) -> bool {
        self.feeder == Some(Feeder::Client)
    }

    /// A step that means the same in every attempt.
    #[must_use]
    pub fn at_step(&self) -> Option<u64> {
        self.most.filter(|_| self.is_client())
    }

    /// Takes in what a rank says.
    pub fn hear(&mut self, step: Option<u64>, feeder: Feeder) {
        if self.feeder != Some(Feeder::Client) && feeder == Feeder::Client {
            // What hooks count does not compare with it.
            (self.first, self.most) = (None, None);
        }
        if self.feeder == Some(Feeder::Client) && feeder == Feeder::Hook {
            return;
        }
        self.feeder = Some(feeder);
        if let Some(step) = step {
            self.first = Some(self.first.map_or(step, |first| first.min(step)));
            self.most = self.most.max(Some(step));
        }
    }
}

/// What can be said of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// It went beyond all before it.
    Made,
    /// It did not.
    None,
    /// Nobody counts.
    #[default]
    Unknown,
}

/// The progress of an attempt that came so far, after those of this history.
#[must_use]
pub fn of(history: &History, reached: &Reached) -> Progress {
    if reached.generation > history.generation {
        return Progress::Made;
    }
    match (reached.at_step(), history.best) {
        (Some(most), Some(best)) if most > best && resumed(reached, best) => Progress::Made,
        (Some(_), _) => Progress::None,
        // Where clients count, one that said nothing did nothing.
        (None, Some(_)) if reached.feeder != Some(Feeder::Hook) => Progress::None,
        (None, _) if reached.generation.is_some() || history.generation.is_some() => Progress::None,
        (None, _) => Progress::Unknown,
    }
}

/// It did not begin from 0 again. Whoever saves every N steps resumes beyond the half of what was reached, whatever N is.
fn resumed(reached: &Reached, best: u64) -> bool {
    reached.first.is_some_and(|first| first > 0 && first.saturating_mul(2) >= best)
}

/// It ended before its first step or soon after. One that ran for less has no earlier first step.
#[must_use]
pub fn is_early(ran_ms: u64, reached: &Reached) -> bool {
    reached.stepping_ms.unwrap_or(ran_ms) < SOON_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_what_nobody_has_to_do_again() {
        let reached = |first, most, feeder| Reached { first, most, feeder, ..Reached::default() };
        let (client, hook) = (Some(Feeder::Client), Some(Feeder::Hook));
        // What earlier attempts reached, and what this one did.
        let table = [
            (None, reached(None, None, None), Progress::Unknown, "nobody counts"),
            (None, reached(Some(0), Some(90), hook), Progress::Unknown, "hooks begin at 0 each time"),
            (Some(40), reached(Some(0), Some(90), hook), Progress::Unknown, "hooks do not compare"),
            (
                None,
                reached(Some(0), Some(90), client),
                Progress::None,
                "the first attempt is what others go beyond",
            ),
            (Some(90), reached(Some(80), Some(91), client), Progress::Made, "resumed, and beyond"),
            (Some(90), reached(Some(80), Some(90), client), Progress::None, "steps that were done again"),
            (
                Some(90),
                reached(Some(0), Some(95), client),
                Progress::None,
                "begun anew: all of it was done again",
            ),
            (Some(90), reached(None, None, None), Progress::None, "died before it said anything"),
            (Some(0), reached(Some(0), Some(10), client), Progress::None, "nothing was resumed"),
            (Some(0), reached(Some(10), Some(10), client), Progress::Made, "ten steps further each time"),
        ];
        for (best, reached, expected, why) in table {
            assert_eq!(of(&History { best, ..History::default() }, &reached), expected, "{why}");
        }
    }

    #[test]
    fn a_newer_generation_is_progress_whoever_counts_steps() {
        use super::super::super::ids::Attempt;
        let at = |attempt, step| Some(Resume { attempt: Attempt(attempt), step });
        let history = History { generation: at(0, 100), best: Some(130), ..History::default() };
        let of = |generation| of(&history, &Reached { generation, ..Reached::default() });
        assert_eq!(of(at(1, 110)), Progress::Made);
        assert_eq!(of(at(0, 100)), Progress::None);
    }

    #[test]
    fn a_client_wins_over_hooks() {
        let mut reached = Reached::default();
        reached.hear(Some(3), Feeder::Hook);
        reached.hear(Some(1_003), Feeder::Client);
        reached.hear(Some(4), Feeder::Hook);
        reached.hear(Some(1_001), Feeder::Client);
        assert_eq!((reached.first, reached.most, reached.at_step()), (Some(1_001), Some(1_003), Some(1_003)));
    }
}
