//! Events in words: one sentence each, as a person reads it.

use crate::domain::console;
use crate::domain::exit::signal_name;
use crate::domain::ids::NodeName;
use crate::domain::note::{Note, Stale};
use crate::domain::record::Decision;
use crate::domain::time::human;
use crate::domain::wire::RefusedWhy;

/// What an event says. What people have read on the console is said in the same words.
#[must_use]
pub fn sentence(note: &Note) -> String {
    console::sentence(note).unwrap_or_else(|| beside_the_console(note))
}

#[allow(clippy::too_many_lines)] // One arm a note.
fn beside_the_console(note: &Note) -> String {
    match note {
        Note::Leads { term, node, continues, next_attempt } => {
            let how = if *continues { "the run continues" } else { "a new run" };
            format!("{node} leads in term {term}: {how}, next attempt {next_attempt}")
        }
        Note::Joined { node, clean_of, .. } if clean_of.is_empty() => format!("the agent of {node} joined"),
        Note::Joined { node, .. } => {
            format!("the agent of {node} joined; its guardian says that an earlier one left no ranks")
        }
        Note::RankFailed { attempt, first, stopped, .. } => {
            format!("attempt {attempt} broke: {}; {} other ranks are stopped", first.sentence(), stopped)
        }
        Note::InDoubt { node, silent } => {
            format!("nothing was heard of {node} for {}: other nodes are asked", human(*silent))
        }
        Note::BeatsLate { node, silent } => {
            format!("beats of {node} came late, after {}: it goes on", human(*silent))
        }
        Note::Unproven { node } => {
            format!("{node} does not know what was written into the run directory: it may see another one")
        }
        Note::NotExclusive { nodes: [one, other], .. } => format!(
            "neither {one} nor {other} could make a file in the run directory: whether it can decide between two coordinators is unknown"
        ),
        Note::Refused { node, why } => format!("the agent of {node} is not admitted: {}", refused(why)),
        Note::AgentWanted { node } => format!("the supervisor is asked for an agent on {node}"),
        Note::TaskEnded { node, rc } => {
            format!("the supervisor says that the task on {node} ended with exit code {rc}")
        }
        Note::Decided { decision, .. } => decided(decision),
        Note::AttemptRunning { attempt, ranks, nodes, down, .. } => {
            let down = down.map_or(String::new(), |d| format!(", {} after the first failure", human(d)));
            format!("attempt {attempt} runs: {}, {}{down}", many(*ranks, "rank"), many(*nodes, "node"))
        }
        Note::Ended { code, sentence } => format!("the run is over, exit code {code}: {sentence}"),
        Note::Written { seq, took } => format!("record {seq} is written, after {}", human(*took)),
        Note::AppendLost { seq } => format!("record {seq} was written by somebody else first"),
        Note::Dropped { stale } => format!("a message {} came late and changed nothing", stale_words(*stale)),
        Note::Paused { slept } => {
            format!("this process stood still for {}: nobody is declared lost for a while", human(*slept))
        }
        Note::GrantOver { attempt } => {
            format!("the grant of this node ran out: its ranks of attempt {attempt} are killed")
        }
        Note::Spawned { attempt, rank, pid } => {
            format!("rank {rank} of attempt {attempt} started, pid {pid}")
        }
        Note::RankEnded { attempt, rank, how, ours } => {
            let ours = if *ours { ", stopped by relight" } else { "" };
            format!("rank {rank} of attempt {attempt} ended: {how}{ours}")
        }
        Note::SignalPassed { signal } => {
            format!("{} was passed on to the ranks that handle it", signal_name(*signal))
        }
        Note::NoCoordinator { patience } => {
            format!("the agent has no coordinator: it looks for one for {} more", human(*patience))
        }
        Note::HangFound { attempt, incident, sentence, next, .. } => {
            let what = if incident.is_some() { "attempt" } else { "in attempt" };
            let ends = if incident.is_some() { " hangs" } else { "" };
            let next = if next.is_empty() { String::new() } else { format!("; {next}") };
            format!("{what} {attempt}{ends}: {sentence}{next}")
        }
        Note::Said { text } => text.clone(),
        Note::UnknownOp { .. } => "an answer came that nobody waits for any more".to_owned(),
        // The console has words for these.
        Note::AgentReturned { .. }
        | Note::GrantRanOut { .. }
        | Note::NodeLost { .. }
        | Note::NodeBack { .. }
        | Note::PassedOver { .. }
        | Note::NodeDirty { .. }
        | Note::WaitingForNodes { .. }
        | Note::SlotFilled { .. }
        | Note::LastCall { .. }
        | Note::Resized { .. }
        | Note::CameLate { .. }
        | Note::StopRequested { .. }
        | Note::AllStopped { .. }
        | Note::NotWaitedFor { .. }
        | Note::StoreTrouble { .. }
        | Note::StoreBack { .. }
        | Note::LogsDisabled { .. }
        | Note::StoreLate { .. }
        | Note::RendezvousStore { .. }
        | Note::LogsLost { .. }
        | Note::StoodDown { .. }
        | Note::Unhealthy { .. }
        | Note::NoneBlamed { .. }
        | Note::OtherScript { .. }
        | Note::LeaderGone { .. }
        | Note::NoPlace { .. }
        | Note::GaveUp { .. }
        | Note::Suspected { .. }
        | Note::GoesOn { .. }
        | Note::RankAsks { .. }
        | Note::Evicted { .. }
        | Note::KeptIn { .. }
        | Note::Ordered { .. }
        | Note::HeldBack
        | Note::TakenOut { .. } => String::new(),
    }
}

fn decided(decision: &Decision) -> String {
    match decision {
        Decision::Restart => "the ranks are started again on the same nodes".to_owned(),
        Decision::Replace { nodes } => format!("the ranks are started again without {}", names(nodes)),
        Decision::Shrink { nodes } => {
            format!("the ranks are started again on fewer nodes, without {}", names(nodes))
        }
        Decision::Stop { code } => format!("the run ends with exit code {code}"),
    }
}

fn refused(why: &RefusedWhy) -> String {
    match why {
        RefusedWhy::Ended(code) => format!("the run is over, exit code {code}"),
        RefusedWhy::OtherStore => "it reads another directory under the same name".to_owned(),
        RefusedWhy::Evicted => "its node is kept out of this run".to_owned(),
        RefusedWhy::SameName => "another machine has its name".to_owned(),
        RefusedWhy::Differs { what, leader } => format!("it {}", what.what(leader)),
    }
}

fn stale_words(stale: Stale) -> &'static str {
    match stale {
        Stale::Term => "of another term",
        Stale::Attempt => "of an attempt that is over",
        Stale::Incarnation => "of an earlier life of an agent",
        Stale::Repeated => "that was repeated or overtaken",
        Stale::Op => "that answers a forgotten question",
    }
}

fn names(nodes: &[NodeName]) -> String {
    nodes.iter().map(|n| n.as_str()).collect::<Vec<_>>().join(", ")
}

fn many(n: u32, noun: &str) -> String {
    super::sentences::count(usize::try_from(n).unwrap_or(usize::MAX), noun)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::domain::ids::{Attempt, Incarnation, Op, Rank, Seq, Term};

    #[test]
    fn every_kind_of_event_is_a_sentence() {
        let node = NodeName::new("n2");
        let (long, attempt) = (Duration::from_secs(4), Attempt(1));
        let notes = [
            Note::Leads { term: Term(0), node: node.clone(), continues: true, next_attempt: attempt },
            Note::Joined { node: node.clone(), incarnation: Incarnation(7), clean_of: vec![] },
            Note::InDoubt { node: node.clone(), silent: long },
            Note::BeatsLate { node: node.clone(), silent: long },
            Note::Unproven { node: node.clone() },
            Note::Refused { node: node.clone(), why: RefusedWhy::Ended(3) },
            Note::AgentWanted { node: node.clone() },
            Note::TaskEnded { node: node.clone(), rc: 137 },
            Note::NodeBack { node: node.clone(), spare: true },
            Note::LogsLost { bytes: 41_000_000 },
            Note::AttemptRunning { attempt, ranks: 8, nodes: 1, down: Some(long), spares: 0 },
            Note::Written { seq: Seq(4), took: Duration::from_millis(12) },
            Note::AppendLost { seq: Seq(4) },
            Note::Dropped { stale: Stale::Incarnation },
            Note::Paused { slept: long },
            Note::GrantOver { attempt },
            Note::Spawned { attempt, rank: Rank(3), pid: 77 },
            Note::RankEnded { attempt, rank: Rank(3), how: "SIGTERM".into(), ours: true },
            Note::SignalPassed { signal: 10 },
            Note::NoCoordinator { patience: long },
            Note::UnknownOp { op: Op(3) },
        ];
        let said: Vec<String> = notes.iter().map(sentence).collect();
        insta::assert_snapshot!(said.join("\n"), @r"
        n2 leads in term 0: the run continues, next attempt 1
        the agent of n2 joined
        nothing was heard of n2 for 4 s: other nodes are asked
        beats of n2 came late, after 4 s: it goes on
        n2 does not know what was written into the run directory: it may see another one
        the agent of n2 is not admitted: the run is over, exit code 3
        the supervisor is asked for an agent on n2
        the supervisor says that the task on n2 ended with exit code 137
        n2 is back: it waits as a spare
        logs: 41 MB of output are in no file, as none could be written
        attempt 1 runs: 8 ranks, 1 node, 4 s after the first failure
        record 4 is written, after 0.02 s
        record 4 was written by somebody else first
        a message of an earlier life of an agent came late and changed nothing
        this process stood still for 4 s: nobody is declared lost for a while
        the grant of this node ran out: its ranks of attempt 1 are killed
        rank 3 of attempt 1 started, pid 77
        rank 3 of attempt 1 ended: SIGTERM, stopped by relight
        SIGUSR1 was passed on to the ranks that handle it
        the agent has no coordinator: it looks for one for 4 s more
        an answer came that nobody waits for any more
        ");
        assert!(said.iter().all(|text| !text.is_empty() && !text.contains('_')), "{said:?}");
    }
}
