//! Who failed first? "First to exit" is the culprit of a crash, never of a hang.

use std::time::Duration;

use super::attribution::rules::Class;
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

/// A victim's words can be read before those of the rank that it lost: for so long another end may still be the root.
pub const SETTLE: Duration = Duration::from_secs(15);

/// A moment of an error file is the end of a whole second: closer ones are not told apart.
const SURELY: Duration = Duration::from_millis(500);

const SIGABRT: u8 = 6;
const SIGPIPE: u8 = 13;

/// How likely an end is the root among ends that no clock can tell apart; the first is the most likely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// A device or host of its own is broken.
    Broken,
    /// A signal struck it.
    Struck,
    /// It said what it died of, and that is its own.
    Own,
    /// It said nothing that tells.
    Mute,
    /// It lost the connection to a peer: somebody else was gone before.
    PeerLost,
}

impl Standing {
    /// Of one end, with the line that it was recognised by, empty if it was not, and its last words.
    #[must_use]
    pub fn of(exit: &ExitKind, summary: &str, words: &str) -> Self {
        if summary.is_empty() && says_peer_lost(words) || says_peer_lost(summary) {
            return Self::PeerLost;
        }
        match exit {
            ExitKind::Signal { no: SIGPIPE, .. } => Self::PeerLost,
            ExitKind::Signal { .. } | ExitKind::NeverStarted { .. } | ExitKind::Hung => Self::Struck,
            ExitKind::Code(_) | ExitKind::Lost if summary.is_empty() => Self::Mute,
            ExitKind::Code(_) | ExitKind::Lost => Self::Own,
        }
    }
}

impl ExitReport {
    /// How likely it is the root: by the table of what failures look like, else by the words for a lost peer.
    #[must_use]
    pub fn standing(&self) -> Standing {
        match self.evidence.class {
            Some(Class::Cascade) => Standing::PeerLost,
            Some(Class::Root) if self.evidence.row().is_some_and(|rule| rule.hints.decisive) => {
                Standing::Broken
            }
            // Who aborts tells why; the other signals strike.
            Some(Class::Root) => match self.exit {
                ExitKind::Signal { no: SIGABRT | SIGPIPE, .. } | ExitKind::Code(_) | ExitKind::Lost => {
                    Standing::Own
                }
                ExitKind::Signal { .. } | ExitKind::NeverStarted { .. } | ExitKind::Hung => Standing::Struck,
            },
            Some(Class::Confirms | Class::Chatter) | None => {
                Standing::of(&self.exit, &self.summary, &self.words)
            }
        }
    }

    /// It may be the first failure where one that lost its peer would be it otherwise.
    #[must_use]
    pub fn may_be_first(&self) -> bool {
        !self.ours && (self.exit.is_success() || self.standing() != Standing::PeerLost)
    }

    /// When it failed, for an end at `at`: by its own error file, else when it ended.
    #[must_use]
    pub fn moment(&self, at: BootTime) -> BootTime {
        self.recorded.and_then(|recorded| recorded.failed_by(at)).unwrap_or(at)
    }
}

/// The words of sockets, gloo and NCCL for the end of the other side.
fn says_peer_lost(text: &str) -> bool {
    const SIGNS: [&str; 12] = [
        "connection reset",
        "connection closed",
        "connection aborted",
        "connectionreseterror",
        "closed by peer",
        "closed by remote",
        "socket closed",
        "broken pipe",
        "brokenpipeerror",
        "eoferror",
        "remote process exited",
        "ncclremoteerror",
    ];
    let text = text.to_ascii_lowercase();
    SIGNS.iter().any(|sign| text.contains(sign))
}

/// Puts ends in order: by time, and those that no clock tells apart by their [`Standing`].
pub fn order<T>(ends: &mut [T], key: impl Fn(&T) -> (BootTime, Standing)) {
    ends.sort_by_key(|end| key(end).0);
    let mut from = 0;
    while let Some(first) = ends.get(from).map(|end| key(end).0) {
        let tied = ends[from..].iter().take_while(|end| key(end).0 <= first.after(TIE)).count();
        ends[from..from + tied].sort_by_key(|end| key(end).1);
        from += tied;
    }
}

/// The index of the first failure among the ends of one attempt; none if nobody failed by himself.
///
/// Ends that we caused are no evidence. An early exit 0 is the root when a peer then fails with a code, an
/// abort or a broken pipe (its connections broke); a peer that died by any other signal is its own root.
/// Within [`TIE`] the better [`Standing`] goes first: a rank that was killed before one that lost its peer.
///
/// Who lost its peer is the root only where nobody else can be: not when somebody failed by itself within [`SETTLE`], and
/// not when one that we had to end had said why it was about to.
///
/// Who noted an error and then took long to end failed when it noted it, even if we had to end it at last. That is
/// believed against ends on the same node only: the times in such files are of one machine's clock.
#[must_use]
pub fn first_failure(ends: &[Seen]) -> Option<usize> {
    let own = |s: &&Seen| !s.report.ours;
    let failures = || ends.iter().filter(own).filter(|s| !s.report.exit.is_success());
    let earliest = failures().min_by_key(|s| s.at)?;
    let tie = earliest.at.after(TIE);
    let tied = failures().filter(|s| s.at <= tie).min_by_key(|s| (s.report.standing(), s.at));
    let failure = not_a_victim(ends, by_own_word(ends, tied.unwrap_or(earliest)));
    let root = match failure.report.exit {
        // What does not speak of a lost peer needs nobody who left early.
        ExitKind::Code(_) if failure.report.standing() != Standing::PeerLost => failure,
        ExitKind::Code(_) | ExitKind::Signal { no: SIGABRT | SIGPIPE, .. } => {
            let early = ends.iter().filter(own).filter(|s| s.report.exit.is_success() && s.at < failure.at);
            early.min_by_key(|s| s.at).unwrap_or(failure)
        }
        _ => failure,
    };
    ends.iter().position(|s| std::ptr::eq(s, root))
}

/// Somebody who failed for a reason of its own, if this one is a victim and nobody left early before it.
fn not_a_victim<'a>(ends: &'a [Seen], failure: &'a Seen) -> &'a Seen {
    let victim = |s: &Seen| s.report.standing() == Standing::PeerLost;
    let left_early = |s: &Seen| !s.report.ours && s.report.exit.is_success() && s.at < failure.at;
    if !victim(failure) || ends.iter().any(left_early) {
        return failure;
    }
    let within = ends.iter().filter(|s| s.at <= failure.at.after(SETTLE) && !s.report.exit.is_success());
    let own = within.clone().filter(|s| !s.report.ours && !victim(s)).min_by_key(|s| s.at);
    let said = |s: &&Seen| s.report.evidence.last && s.report.evidence.class == Some(Class::Root);
    own.or_else(|| within.filter(|s| s.report.ours).filter(said).min_by_key(|s| s.at)).unwrap_or(failure)
}

/// The end on this failure's node that was noted before it, if there is one.
fn by_own_word<'a>(ends: &'a [Seen], failure: &'a Seen) -> &'a Seen {
    let moment = |s: &Seen| s.report.moment(s.at);
    let failed = moment(failure);
    let lost = |s: &Seen| s.report.standing() == Standing::PeerLost;
    let noted = ends.iter().filter(|s| s.node == failure.node && !s.report.exit.is_success());
    let before = noted.filter(|s| moment(s).after(SURELY) <= failed && (!lost(s) || lost(failure)));
    before.filter(|s| s.report.recorded.is_some()).min_by_key(|s| moment(s)).unwrap_or(failure)
}

#[cfg(test)]
mod tests {
    use super::super::error_file::Recorded;
    use super::super::ids::LocalRank;
    use super::*;

    fn end(rank: u32, us: u64, exit: ExitKind, summary: &str, words: &str) -> Seen {
        let at = BootTime(us * 1_000);
        let report = ExitReport {
            local_rank: LocalRank(rank),
            pid: rank,
            exit,
            ours: false,
            at,
            ago_ms: 0,
            summary: summary.into(),
            words: words.into(),
            recorded: None,
            evidence: Default::default(),
        };
        Seen { rank: Rank(rank), node: NodeName::new("n1"), report, at }
    }

    const KILL: ExitKind = ExitKind::Signal { no: 9, core: false };
    const ABORT: ExitKind = ExitKind::Signal { no: 6, core: false };
    const ONE: ExitKind = ExitKind::Code(1);
    const GLOO: &str =
        "RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:3021";

    #[test]
    fn in_a_tie_a_victim_is_not_the_root() {
        let table = [
            ("a kill before a lost peer", vec![end(0, 0, ONE, GLOO, ""), end(1, 400, KILL, "", "")], 1),
            ("its own error too", vec![end(0, 0, ONE, GLOO, ""), end(1, 4, ONE, "ValueError: x", "")], 1),
            ("a mute one too", vec![end(0, 0, ONE, "", "EOFError\n"), end(1, 4, ONE, "", "step 3")], 1),
            (
                "an abort over a lost peer",
                vec![end(0, 0, ABORT, GLOO, ""), end(1, 9, ONE, "ValueError", "")],
                1,
            ),
            ("two of a kind by time", vec![end(0, 9, KILL, "", ""), end(1, 3, KILL, "", "")], 1),
            (
                "a pipe is no strike",
                vec![end(0, 0, ExitKind::Signal { no: 13, core: false }, "", ""), end(1, 3, ONE, "", "")],
                1,
            ),
            (
                "who left early is no reason for an error of one's own",
                vec![end(0, 0, ExitKind::Code(0), "", ""), end(1, 9_000, ONE, "bdb.BdbQuit", "")],
                1,
            ),
            (
                "nor is it for a code without words",
                vec![end(0, 0, ExitKind::Code(0), "", ""), end(1, 9_000, ExitKind::Code(7), "", "")],
                1,
            ),
            (
                "but it is for a lost peer",
                vec![
                    end(0, 0, ExitKind::Code(0), "", ""),
                    end(1, 9_000, ONE, GLOO, ""),
                    end(2, 19_100, ONE, "", ""),
                ],
                0,
            ),
            (
                "beyond the tie time decides",
                vec![end(0, 0, ONE, "ValueError: x", ""), end(1, 5_001, KILL, "", "")],
                0,
            ),
            ("but never for a victim", vec![end(0, 0, ONE, GLOO, ""), end(1, 5_001, KILL, "", "")], 1),
            (
                "unless the other is far off",
                vec![end(0, 0, ONE, GLOO, ""), end(1, 15_000_001, KILL, "", "")],
                0,
            ),
            ("of victims the first", vec![end(0, 9_000, ONE, GLOO, ""), end(1, 0, ONE, GLOO, "")], 1),
            (
                "a chain ends with its headline",
                vec![end(0, 0, ONE, "ValueError: x", "OSError: Broken pipe"), end(1, 3, ONE, GLOO, "")],
                0,
            ),
        ];
        for (name, ends, root) in table {
            assert_eq!(first_failure(&ends), Some(root), "{name}");
        }
    }

    /// An end that was noted so many seconds before it.
    fn noted(mut seen: Seen, lead_s: u64, ours: bool) -> Seen {
        seen.report.recorded = Some(Recorded { at_s: Some(1), lead_ms: Some(lead_s * 1_000) });
        seen.report.ours = ours;
        seen
    }

    #[test]
    fn who_noted_an_error_first_failed_first_on_its_node_only() {
        let s = 1_000_000;
        let slow = || noted(end(0, 9 * s, ONE, "ValueError: x", ""), 6, false);
        let quick = || end(1, 5 * s, ONE, "RuntimeError: y", "");
        assert_eq!(first_failure(&[quick(), slow()]), Some(1), "it ended 4 s later and failed 2 s earlier");
        let stopped = noted(end(0, 9 * s, KILL, "ValueError: x", ""), 6, true);
        assert_eq!(first_failure(&[quick(), stopped]), Some(1), "we had to end it");
        let elsewhere = Seen { node: NodeName::new("n2"), ..slow() };
        assert_eq!(first_failure(&[quick(), elsewhere]), Some(0), "never across machines");
        assert_eq!(
            first_failure(&[noted(quick(), 2, false), slow()]),
            Some(0),
            "both noted it, in one second"
        );
        let victim = noted(end(0, 9 * s, ONE, GLOO, ""), 6, false);
        assert_eq!(first_failure(&[quick(), victim]), Some(0), "a lost peer has a reason");
        let done = noted(end(0, 9 * s, ExitKind::Code(0), "", ""), 6, false);
        assert_eq!(first_failure(&[quick(), done]), Some(0), "it ended well");
        assert_eq!(
            first_failure(&[noted(end(0, 9 * s, KILL, "x", ""), 6, true)]),
            None,
            "nobody else failed"
        );
    }

    #[test]
    fn ends_are_told_in_the_order_of_blame() {
        let ms = BootTime::from_millis;
        let mut ends = [
            ("late", ms(20), Standing::Struck),
            ("victim", ms(0), Standing::PeerLost),
            ("root", ms(2), Standing::Struck),
            ("next", ms(6), Standing::Struck),
        ];
        order(&mut ends, |end| (end.1, end.2));
        assert_eq!(ends.map(|end| end.0), ["root", "victim", "next", "late"]);
        order::<(BootTime, Standing)>(&mut [], |end| *end);
    }

    #[test]
    fn an_early_exit_0_is_the_root_of_broken_connections() {
        let ends = [end(0, 0, ExitKind::Code(0), "", ""), end(1, 90_000, ONE, GLOO, "")];
        assert_eq!(first_failure(&ends), Some(0));
        let ends = [end(0, 0, ExitKind::Code(0), "", ""), end(1, 90_000, KILL, "", "")];
        assert_eq!(first_failure(&ends), Some(1));
        assert_eq!(first_failure(&ends[..1]), None);
    }
}
