//! What was collected of ranks that did not advance, as files of an incident.

use serde::Serialize;

use crate::domain::board::Sample;
use crate::domain::coordinator::Collected;
use crate::domain::ids::{NodeName, Rank};
use crate::domain::liveness::evidence::{ProcessFacts, Seen};
use crate::domain::liveness::lineup::{self, Row};

/// The longest file of stacks, in bytes.
const MOST: usize = 4 << 20;

#[derive(Serialize)]
struct BoardRow<'a> {
    rank: Rank,
    node: &'a NodeName,
    silent_ms: u64,
    /// `null`: nobody has claimed its page.
    page: Option<&'a Sample>,
}

#[derive(Serialize)]
struct ProcessRow<'a> {
    rank: Rank,
    node: &'a NodeName,
    before: &'a ProcessFacts,
    after: &'a ProcessFacts,
    between_ms: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    flight_recorder: &'a str,
}

/// Names and contents: a short row a rank, the pages, what the kernel says, the stacks.
pub(super) fn files(collected: &Collected) -> [(&'static str, Vec<u8>); 4] {
    let rows: Vec<Row> =
        collected.ranks.iter().map(|(rank, node, evidence)| Row::of(*rank, node, evidence)).collect();
    let boards: Vec<BoardRow<'_>> = collected
        .ranks
        .iter()
        .map(|(rank, node, e)| BoardRow {
            rank: *rank,
            node,
            silent_ms: e.silent_ms,
            page: e.sample.as_ref(),
        })
        .collect();
    let processes: Vec<ProcessRow<'_>> = collected
        .ranks
        .iter()
        .map(|(rank, node, e)| ProcessRow {
            rank: *rank,
            node,
            before: &e.before,
            after: &e.after,
            between_ms: e.between_ms,
            flight_recorder: &e.flight_recorder,
        })
        .collect();
    // Numbers and strings have no way to fail.
    let json = |bytes: Result<Vec<u8>, serde_json::Error>| bytes.unwrap_or_default();
    [
        (lineup::FILE, json(serde_json::to_vec_pretty(&rows))),
        ("boards.json", json(serde_json::to_vec_pretty(&boards))),
        ("processes.json", json(serde_json::to_vec_pretty(&processes))),
        ("stacks.txt", stacks(collected).into_bytes()),
    ]
}

fn stacks(collected: &Collected) -> String {
    let mut text = String::new();
    for (rank, node, evidence) in &collected.ranks {
        let (from, words) = match &evidence.stack {
            None => ("none could be had", ""),
            Some(stack) => match stack.seen {
                Seen::Inside => ("from its interpreter", stack.text.as_str()),
                Seen::Outside => ("from outside", stack.text.as_str()),
                Seen::Kernel => ("the kernel's side", stack.text.as_str()),
            },
        };
        if text.len() + words.len() > MOST {
            text.push_str("… more ranks are left out\n");
            break;
        }
        text.push_str(&format!(
            "=== rank {rank} ({node}), pid {}: {from}\n{}\n\n",
            evidence.before.pid,
            words.trim_end()
        ));
    }
    text
}
