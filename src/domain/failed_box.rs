//! The report at the end of a run that failed, laid out as torchrun's: people and scripts look for it.

use super::console::ranges;
use super::exit::{ExitKind, signal_name};
use super::ids::{NodeName, Rank};
use super::record::{FirstFailure, Victim};

/// The widest rule, in characters.
const WIDTH: usize = 60;
/// Groups of failures that are only counted.
const GROUPS: usize = 8;

/// What the report is made of.
pub struct FailedBox<'a> {
    /// The program as it was typed.
    pub program: &'a str,
    /// The first failure.
    pub root: &'a FirstFailure,
    /// Those that are shown in full, in their order.
    pub others: &'a [FirstFailure],
    /// Everybody else; who was stopped by us is no failure and not listed.
    pub victims: &'a [Victim],
    /// A time of day for unix milliseconds.
    pub stamp: fn(u64) -> String,
}

impl FailedBox<'_> {
    /// Its lines, without newlines.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let title = printable(&format!("{} FAILED", self.program));
        let mut failures = vec!["Failures:".to_owned()];
        for (i, other) in self.others.iter().enumerate() {
            failures.extend(self.entry(i + 1, other));
        }
        failures.extend(self.rest());
        if failures.len() == 1 {
            failures.push("  <NO_OTHER_FAILURES>".to_owned());
        }
        let mut root = vec!["Root Cause (first observed failure):".to_owned()];
        root.extend(self.entry(0, self.root));
        let longest = std::iter::once(&title).chain(&failures).chain(&root).map(|l| l.chars().count()).max();
        let width = longest.unwrap_or(0).min(WIDTH);
        let (border, section) = ("=".repeat(width), "-".repeat(width));
        let mut lines = vec![border.clone(), title, section.clone()];
        lines.extend(failures);
        lines.push(section);
        lines.extend(root);
        lines.push(border);
        lines
    }

    fn entry(&self, index: usize, failure: &FirstFailure) -> Vec<String> {
        let signal = match &failure.exit {
            ExitKind::Signal { no, .. } => format!("  ({})", signal_name(*no)),
            _ => String::new(),
        };
        let file = if failure.error_file.is_empty() { "<N/A>" } else { &failure.error_file };
        let words = words(failure);
        let mut words = words.lines();
        let mut lines = vec![
            format!("[{index}]:"),
            format!("  time      : {}", (self.stamp)(failure.wall_ms)),
            format!("  host      : {}", failure.node),
            format!("  rank      : {} (local_rank: {})", failure.rank, failure.local_rank),
            format!("  exitcode  : {} (pid: {}){signal}", failure.exit.torch_code(), failure.pid),
            format!("  error_file: {file}"),
            format!("  traceback : {}", words.next().unwrap_or_default()),
        ];
        lines.extend(words.map(|line| format!("  {line}").trim_end().to_owned()));
        lines.iter().map(|line| printable(line)).collect()
    }

    /// Who is not shown in full: one line for each node and way to end.
    fn rest(&self) -> Vec<String> {
        let shown = |rank: Rank| rank == self.root.rank || self.others.iter().any(|o| o.rank == rank);
        let mut groups: Vec<(&NodeName, &ExitKind, Vec<Rank>)> = Vec::new();
        for v in self.victims.iter().filter(|v| !v.ours && !v.exit.is_success() && !shown(v.rank)) {
            // One group beyond the limit counts all that are left.
            let at = groups.iter().position(|(node, exit, _)| *node == &v.node && *exit == &v.exit);
            match groups.get_mut(at.unwrap_or(GROUPS)) {
                Some((.., ranks)) => ranks.push(v.rank),
                None => groups.push((&v.node, &v.exit, vec![v.rank])),
            }
        }
        let more = groups.split_off(groups.len().min(GROUPS));
        let line = |(node, exit, ranks): (&NodeName, &ExitKind, Vec<Rank>)| {
            format!("  also {} ({node}): {exit}", ranges(&ranks))
        };
        let mut lines: Vec<String> = groups.into_iter().map(line).collect();
        lines.extend(more.first().map(|(.., ranks)| format!("  and {} more", ranks.len())));
        lines
    }
}

/// Another node's words are for a terminal here.
fn printable(line: &str) -> String {
    line.chars().filter(|c| !c.is_control()).collect()
}

/// The traceback, else what is known in its place.
fn words(failure: &FirstFailure) -> String {
    match &failure.exit {
        _ if !failure.words.is_empty() => failure.words.clone(),
        ExitKind::Signal { no, .. }
            if failure.summary == failure.exit.evidence("") || failure.summary.is_empty() =>
        {
            format!("Signal {no} ({}) received by PID {}", signal_name(*no), failure.pid)
        }
        _ if !failure.summary.is_empty() => failure.summary.replace('\n', " "),
        exit => exit.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILL: ExitKind = ExitKind::Signal { no: 9, core: false };

    fn failure(rank: u32, exit: ExitKind, summary: &str, words: &str) -> FirstFailure {
        FirstFailure {
            rank: Rank(rank),
            local_rank: rank % 8,
            node: NodeName::new("n01"),
            pid: 100 + rank,
            exit,
            wall_ms: 5,
            summary: summary.into(),
            words: words.into(),
            error_file: String::new(),
            recorded_s: None,
        }
    }

    fn victim(rank: u32, node: &str, exit: ExitKind, ours: bool) -> Victim {
        Victim { rank: Rank(rank), node: NodeName::new(node), exit, ours }
    }

    fn render(root: &FirstFailure, others: &[FirstFailure], victims: &[Victim]) -> Vec<String> {
        let stamp = |ms: u64| format!("T{ms}");
        FailedBox { program: "train.py", root, others, victims, stamp }.lines()
    }

    #[test]
    fn one_failure() {
        let words = "Traceback (most recent call last):\n  File \"train.py\", line 3\nValueError: boom";
        let mut root = failure(1, ExitKind::Code(1), "failed: ValueError: boom", words);
        root.error_file = "/logs/r_n01/attempt_0/1/error.json".into();
        let stopped = [victim(0, "n01", ExitKind::Signal { no: 15, core: false }, true)];
        assert_eq!(
            render(&root, &[], &stopped),
            [
                "================================================",
                "train.py FAILED",
                "------------------------------------------------",
                "Failures:",
                "  <NO_OTHER_FAILURES>",
                "------------------------------------------------",
                "Root Cause (first observed failure):",
                "[0]:",
                "  time      : T5",
                "  host      : n01",
                "  rank      : 1 (local_rank: 1)",
                "  exitcode  : 1 (pid: 101)",
                "  error_file: /logs/r_n01/attempt_0/1/error.json",
                "  traceback : Traceback (most recent call last):",
                "    File \"train.py\", line 3",
                "  ValueError: boom",
                "================================================",
            ]
        );
    }

    #[test]
    fn others_are_listed_and_the_rest_is_counted() {
        let root = failure(3, KILL, "died: SIGKILL", "");
        let others = [failure(0, ExitKind::Code(1), "failed: EOFError", "")];
        let mut victims: Vec<_> =
            (0..40).map(|r| victim(r, &format!("n{}", r / 2), ExitKind::Code(1), false)).collect();
        victims.push(victim(40, "n01", KILL, true));
        assert_eq!(
            render(&root, &others, &victims),
            [
                "====================================================",
                "train.py FAILED",
                "----------------------------------------------------",
                "Failures:",
                "[1]:",
                "  time      : T5",
                "  host      : n01",
                "  rank      : 0 (local_rank: 0)",
                "  exitcode  : 1 (pid: 100)",
                "  error_file: <N/A>",
                "  traceback : failed: EOFError",
                "  also rank 1 (n0): exit code 1",
                "  also rank 2 (n1): exit code 1",
                "  also ranks 4-5 (n2): exit code 1",
                "  also ranks 6-7 (n3): exit code 1",
                "  also ranks 8-9 (n4): exit code 1",
                "  also ranks 10-11 (n5): exit code 1",
                "  also ranks 12-13 (n6): exit code 1",
                "  also ranks 14-15 (n7): exit code 1",
                "  and 24 more",
                "----------------------------------------------------",
                "Root Cause (first observed failure):",
                "[0]:",
                "  time      : T5",
                "  host      : n01",
                "  rank      : 3 (local_rank: 3)",
                "  exitcode  : -9 (pid: 103)  (SIGKILL)",
                "  error_file: <N/A>",
                "  traceback : Signal 9 (SIGKILL) received by PID 103",
                "====================================================",
            ]
        );
    }
}
