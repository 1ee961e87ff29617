//! Who failed first? "First to exit" is the culprit of a crash, never of a hang.

use std::time::Duration;

use super::exit::ExitKind;
use super::ids::{NodeName, Rank};
use super::time::BootTime;
use super::wire::ExitReport;

/// One rank's end on the coordinator's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The rank.
    pub rank: Rank,
    /// Its node.
    pub node: NodeName,
    /// What its agent reported.
    pub report: ExitReport,
    /// When, on the coordinator's clock.
    pub at: BootTime,
}

/// Ends closer together than this are not told apart by their time.
pub const TIE: Duration = Duration::from_millis(5);

/// The index of the first failure among the ends of one attempt; none if nobody failed by himself.
///
/// Ends that we caused are no evidence. An early exit 0 is the root when a peer then fails with a code, an
/// abort or a broken pipe (its connections broke); a peer that died by any other signal is its own root.
/// Within [`TIE`] a death by signal goes before an exit code.
#[must_use]
pub fn first_failure(ends: &[Seen]) -> Option<usize> {
    let own = |s: &&Seen| !s.report.ours;
    let failures = || ends.iter().filter(own).filter(|s| !s.report.exit.is_success());
    let earliest = failures().min_by_key(|s| s.at)?;
    let tie = earliest.at.after(TIE);
    let signal = failures()
        .filter(|s| s.at <= tie && matches!(s.report.exit, ExitKind::Signal { .. }))
        .min_by_key(|s| s.at);
    let failure = signal.unwrap_or(earliest);
    let root = match failure.report.exit {
        ExitKind::Code(_) | ExitKind::Signal { no: 6 | 13, .. } => {
            let early = ends.iter().filter(own).filter(|s| s.report.exit.is_success() && s.at < failure.at);
            early.min_by_key(|s| s.at).unwrap_or(failure)
        }
        _ => failure,
    };
    ends.iter().position(|s| std::ptr::eq(s, root))
}
