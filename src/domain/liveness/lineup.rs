//! Who was where when a program did not advance: one short row a rank, as it is kept with the incident and told.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::ids::{NodeName, Rank};
use super::super::time::human;
use super::evidence::RankEvidence;
use super::limits::phase_name;
use super::vote;

/// The file of an incident that holds the rows.
pub const FILE: &str = "ranks.json";
/// So many groups of ranks are told one by one.
const MOST_GROUPS: usize = 12;
/// So many ranges of ranks are written out, and so many nodes.
const MOST_RANGES: usize = 8;
const MOST_NODES: usize = 3;

/// Where one rank was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Row {
    /// The rank.
    pub rank: Rank,
    /// Its node.
    pub node: NodeName,
    /// Its process.
    pub pid: u32,
    /// The step that was under way; none before the first, or where it says nothing.
    pub step: Option<u64>,
    /// What it did, by its own word; empty: it says nothing.
    pub phase: String,
    /// Since its last sign, in milliseconds.
    pub silent_ms: u64,
    /// `R S D T t Z`; none: there was no such process.
    pub state: Option<char>,
    /// What it waited for in the kernel; empty where that cannot be read.
    pub wchan: String,
    /// What it did, after its name; empty: nothing tells.
    pub does: String,
    /// The innermost frame that is known, the program's own where there is one; empty: none.
    pub frame: String,
}

impl Row {
    /// The row of a rank of which this was collected.
    #[must_use]
    pub fn of(rank: Rank, node: &NodeName, evidence: &RankEvidence) -> Self {
        let sample = evidence.sample.as_ref();
        Self {
            rank,
            node: node.clone(),
            pid: evidence.before.pid,
            step: sample.and_then(|sample| sample.step),
            phase: sample.map(|sample| phase_name(sample.phase).to_owned()).unwrap_or_default(),
            silent_ms: evidence.silent_ms,
            state: evidence.after.state,
            wchan: evidence.after.wchan.clone(),
            does: vote::does_of(evidence),
            frame: vote::innermost(evidence),
        }
    }

    fn says_as(&self, other: &Self) -> bool {
        // Who looks again and again whether the others are there runs or sleeps by chance.
        let state = |row: &Self| if row.state == Some('R') { Some('S') } else { row.state };
        (&self.does, &self.frame, state(self), self.step, &self.phase)
            == (&other.does, &other.frame, state(other), other.step, &other.phase)
    }

    /// What is known of it, after its name.
    fn text(&self) -> String {
        let mut parts = Vec::new();
        match (self.does.as_str(), self.frame.as_str()) {
            ("", "") => parts.push("nothing tells what it did".to_owned()),
            ("", frame) => parts.push(format!("is in {frame}")),
            (does, frame) if frame.is_empty() || does.contains(frame) => parts.push(does.to_owned()),
            (does, frame) => parts.push(format!("{does}, in {frame}")),
        }
        if let Some(state) = self.state.filter(|_| !self.does.contains("(state ")) {
            let at = if self.wchan.is_empty() { String::new() } else { format!(" in {}", self.wchan) };
            parts.push(format!("state {state}{at}"));
        }
        match (self.step, self.phase.as_str()) {
            (_, "") => parts.push("it never gave a sign".to_owned()),
            (None, phase) => parts.push(format!("no step, {phase}")),
            (Some(step), phase) => parts.push(format!("step {step}, {phase}")),
        }
        parts.push(format!("silent for {}", human(Duration::from_millis(self.silent_ms))));
        parts.join("; ")
    }
}

/// Ranks that stood alike, one line each group: the culprits first, then the largest.
#[must_use]
pub fn lines(rows: &[Row], culprits: &[Rank]) -> Vec<String> {
    let mut groups: Vec<(bool, Vec<&Row>)> = Vec::new();
    for row in rows {
        let guilty = culprits.contains(&row.rank);
        match groups
            .iter_mut()
            .find(|(of, group)| *of == guilty && group.first().is_some_and(|r| r.says_as(row)))
        {
            Some((_, group)) => group.push(row),
            None => groups.push((guilty, vec![row])),
        }
    }
    groups.sort_by_key(|(guilty, group)| (!guilty, std::cmp::Reverse(group.len())));
    let left_out: usize = groups.iter().skip(MOST_GROUPS).map(|(_, group)| group.len()).sum();
    let mut lines: Vec<String> =
        groups.iter().take(MOST_GROUPS).map(|(guilty, group)| line(*guilty, group)).collect();
    if left_out > 0 {
        lines.push(format!("and {left_out} ranks elsewhere: {FILE} has all"));
    }
    lines
}

fn line(guilty: bool, group: &[&Row]) -> String {
    let Some(longest) = group.iter().max_by_key(|row| row.silent_ms) else { return String::new() };
    let ranks: Vec<u32> = group.iter().map(|row| row.rank.0).collect();
    let nodes: BTreeSet<&str> = group.iter().map(|row| row.node.as_str()).collect();
    let mut on: Vec<&str> = nodes.iter().take(MOST_NODES).copied().collect();
    let more = format!("and {} more", nodes.len().saturating_sub(MOST_NODES));
    if nodes.len() > MOST_NODES {
        on.push(&more);
    }
    let name = if ranks.len() == 1 { "rank" } else { "ranks" };
    let culprit = if guilty { "culprit: " } else { "" };
    format!("{culprit}{name} {} ({}): {}", ranges(&ranks), on.join(", "), longest.text())
}

/// `0-6, 8`.
fn ranges(ranks: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match ranges.last_mut() {
            Some((_, to)) if to.checked_add(1) == Some(rank) => *to = rank,
            _ => ranges.push((rank, rank)),
        }
    }
    let left_out: usize = ranges.iter().skip(MOST_RANGES).map(|(from, to)| (to - from) as usize + 1).sum();
    let mut text: Vec<String> = ranges
        .iter()
        .take(MOST_RANGES)
        .map(|(from, to)| if from == to { from.to_string() } else { format!("{from}-{to}") })
        .collect();
    if left_out > 0 {
        text.push(format!("{left_out} more"));
    }
    text.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(rank: u32, node: &str, does: &str, state: char) -> Row {
        Row {
            rank: Rank(rank),
            node: NodeName::new(node),
            pid: 100 + rank,
            step: Some(40),
            phase: "forward".into(),
            silent_ms: 3_000 + u64::from(rank),
            state: Some(state),
            does: does.into(),
            ..Row::default()
        }
    }

    #[test]
    fn ranks_that_stand_alike_are_one_line_and_culprits_come_first() {
        let mut rows: Vec<Row> = (0..12)
            .map(|rank| row(rank, if rank < 8 { "n01" } else { "n02" }, "waits in barrier", 'S'))
            .collect();
        rows[5] = row(5, "n01", "is stopped by a signal (state T)", 'T');
        rows[9] = Row { rank: Rank(9), node: NodeName::new("n02"), silent_ms: 2_000, ..Row::default() };
        let expected = [
            "culprit: rank 5 (n01): is stopped by a signal (state T); step 40, forward; silent for 3 s",
            "ranks 0-4, 6-8, 10-11 (n01, n02): waits in barrier; state S; step 40, forward; silent for 3 s",
            "rank 9 (n02): nothing tells what it did; it never gave a sign; silent for 2 s",
        ];
        assert_eq!(lines(&rows, &[Rank(5)]), expected);
    }

    #[test]
    fn many_that_stand_apart_are_counted() {
        let rows: Vec<Row> = (0..100)
            .map(|rank| row(2 * rank, &format!("n{rank:02}"), &format!("is in f{}()", rank % 50), 'S'))
            .collect();
        let lines = lines(&rows, &[]);
        assert_eq!(lines.len(), MOST_GROUPS + 1);
        assert_eq!(lines[MOST_GROUPS], "and 76 ranks elsewhere: ranks.json has all");
        let alike: Vec<Row> =
            (0..20).map(|rank| row(3 * rank, &format!("n{rank:02}"), "burns CPU", 'R')).collect();
        assert!(
            super::lines(&alike, &[])[0]
                .starts_with("ranks 0, 3, 6, 9, 12, 15, 18, 21, 12 more (n00, n01, n02, and 17 more): "),
            "{:?}",
            super::lines(&alike, &[])
        );
    }
}
