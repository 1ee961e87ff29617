//! What the policy allows before it does something else, and how much of it is used: for people.

use serde::{Deserialize, Serialize};

use super::super::ledger::Ledger;
use super::{evict, stop};

/// One budget.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Of what, after a number: `attempts in a row without progress`.
    pub what: String,
    /// So much is used.
    pub used: u32,
    /// So much is allowed: when all of it is used, the run ends, or no more nodes are taken out.
    pub of: u32,
}

/// All of them but `--max-restarts`, which takes the place of those that end a run.
#[must_use]
pub fn all(ledger: &Ledger, wall_ms: u64) -> Vec<Budget> {
    let budget = |what: &str, used, of| Budget { what: what.to_owned(), used, of };
    let history = ledger.history();
    let mut all = match ledger.spec().and_then(|spec| spec.max_restarts) {
        Some(_) => Vec::new(),
        None => vec![
            budget("attempts in a row without progress", history.without, stop::WITHOUT),
            budget(
                "attempts in a row that ended at or soon after their start, without known progress",
                history.early,
                stop::EARLY,
            ),
            budget(
                "attempts in a row without known progress",
                history.without.saturating_add(history.unknown),
                stop::UNKNOWN,
            ),
        ],
    };
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let (taken, most) = evict::breaker(ledger, wall_ms);
    all.push(budget("nodes taken out by inference in 10 min", number(taken), number(most)));
    all
}
