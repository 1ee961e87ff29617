//! Back-off: from the second failure at one resume point on nothing is started at once.

use super::super::ledger::Ledger;
use super::progress::Progress;

/// The longest wait is so many times the first.
const MOST: u64 = 30;

/// How long to wait before the next attempt, in milliseconds: the first of it at the second failure, doubled at each
/// one after it, 20 % more or less. Where the attempt that broke made progress its failure is the first at its point.
#[must_use]
pub fn before(ledger: &Ledger, progress: Progress, random: u64) -> u64 {
    let first = ledger.spec().map_or(0, |spec| spec.numbers.backoff_ms);
    let earlier = if progress == Progress::Made { 0 } else { ledger.history().at_point };
    let Some(doubled) = earlier.checked_sub(1) else { return 0 };
    let factor = 1_u64.checked_shl(doubled).unwrap_or(MOST).min(MOST);
    let base = first.saturating_mul(factor);
    // 80 % to 120 %, in steps of 1 %.
    base.saturating_mul(80 + random % 41) / 100
}
