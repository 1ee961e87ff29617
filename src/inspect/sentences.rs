//! Records in words.

use std::time::Duration;

use super::harmless;
use crate::domain::attribution::Verdict;
use crate::domain::exit::ExitKind;
use crate::domain::liveness::limits::Learned;
use crate::domain::liveness::vote::HANG;
use crate::domain::record::{
    AttemptBody, Body, Break, Cause, Decision, End, FirstFailure, Ground, Incident, Lead, Order, Outcome,
    Record,
};
use crate::domain::time::human;

/// `1 node`, `2 nodes`.
#[must_use]
pub fn count(n: usize, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// Milliseconds in words.
#[must_use]
pub fn ms(ms: u64) -> String {
    human(Duration::from_millis(ms))
}

/// How a rank ended: `died of SIGKILL`, `ended with exit code 1`, `could not start: …`.
#[must_use]
pub fn ended(exit: &ExitKind) -> String {
    match exit {
        ExitKind::Code(code) => format!("ended with exit code {code}"),
        ExitKind::Signal { .. } => format!("died of {exit}"),
        ExitKind::NeverStarted { .. } => harmless(&exit.to_string()),
        ExitKind::Lost => "was lost with its node".into(),
        ExitKind::Hung => "did not advance".into(),
    }
}

/// `rank 2 (n01) died: SIGKILL`, on one line.
#[must_use]
pub fn first_failure(first: &FirstFailure) -> String {
    harmless(&first.sentence_with_exit()).replace('\n', " ")
}

/// What broke a world; the verdict tells where no rank and no node did.
#[must_use]
pub fn broke(
    first: Option<&FirstFailure>,
    lost: &[crate::domain::ids::NodeName],
    found: Option<&Verdict>,
) -> String {
    let hang = found.filter(|found| found.cause == HANG).and_then(|found| found.reasons.first());
    let lost: Vec<&str> = lost.iter().map(|n| n.as_str()).collect();
    match (first, lost.is_empty()) {
        (Some(first), true) => first_failure(first),
        (Some(first), false) => format!("{}; lost {}", first_failure(first), lost.join(", ")),
        (None, false) => format!("lost {}", lost.join(", ")),
        (None, true) => hang.map_or_else(
            || "an agent was lost with its ranks".into(),
            |reason| format!("the program did not advance: {}", harmless(reason).replace('\n', " ")),
        ),
    }
}

/// What is done about it.
#[must_use]
pub fn decision(decision: &Decision) -> String {
    match decision {
        Decision::Restart => "restart on the same nodes".into(),
        Decision::Replace { nodes } => {
            let nodes: Vec<&str> = nodes.iter().map(|n| n.as_str()).collect();
            format!("restart without {}", nodes.join(", "))
        }
        Decision::Shrink { nodes } => {
            let nodes: Vec<&str> = nodes.iter().map(|n| n.as_str()).collect();
            format!("restart with fewer nodes, without {}", nodes.join(", "))
        }
        Decision::Stop { code } => format!("stop with exit code {code}"),
    }
}

/// How the run ended.
#[must_use]
pub fn end(end: &End) -> String {
    let how = match end.outcome {
        Outcome::Finished => "finished",
        Outcome::Failed => "failed",
        Outcome::Stopped => "stopped",
    };
    let mut text = format!("{how}, exit code {}", end.code);
    if !end.sentence.is_empty() && end.sentence != how {
        text.push_str(": ");
        text.push_str(&harmless(&end.sentence));
    }
    if end.requeue {
        text.push_str("; to be requeued");
    }
    text
}

fn lead(record: &Record, lead: &Lead) -> String {
    let ground = match lead.ground {
        Ground::First => "a launch",
        Ground::Returned => "its agent was started again",
    };
    let job = lead.job.as_ref().map(|j| format!(", job {} (start {})", j.id, j.restart.saturating_add(1)));
    format!("{} leads term {}: {ground}{}", lead.node, record.term, job.unwrap_or_default())
}

fn attempt(record: &Record, world: &AttemptBody) -> String {
    let ranks: u64 = world.members.iter().map(|m| u64::from(m.nproc)).sum();
    let ranks = count(usize::try_from(ranks).unwrap_or(usize::MAX), "rank");
    let mut text = format!("attempt {}: {}, {ranks}", record.attempt, count(world.members.len(), "node"));
    if !world.spares.is_empty() {
        text.push_str(&format!(", {}", count(world.spares.len(), "spare")));
    }
    if let Cause::Incident(b) = &world.cause {
        let Break { incident, first_failure, lost, verdict, .. } = &**b;
        let what = broke(first_failure.as_ref(), lost, Some(verdict));
        text.push_str(&format!(" after incident {incident}: {what}; {}", decision(&b.decision)));
    }
    text
}

fn incident(i: &Incident) -> String {
    let what = broke(i.first_failure.as_ref(), &i.lost, Some(&i.verdict));
    let mut text = format!("incident {} settled: {what}", i.incident);
    if !i.victims.is_empty() {
        text.push_str(&format!("; {} because of it", count(i.victims.len(), "victim")));
    }
    text.push_str(&format!("; stopped in {}", ms(i.stopped_ms)));
    if let Some(running) = i.running_ms {
        text.push_str(&format!(", running again after {}", ms(running)));
    }
    text
}

fn order(order: &Order) -> String {
    match order {
        Order::Pause => "paused".into(),
        Order::Resume => "resumed".into(),
        Order::Restart => "restarted".into(),
        Order::Evict { node } => format!("{node} is to be taken out"),
        Order::Stop => "stopped".into(),
    }
}

fn limits(learned: &Learned) -> String {
    let each =
        [("a step", learned.step), ("an evaluation", learned.eval), ("a checkpoint", learned.checkpoint)];
    let known = each.iter().filter_map(|(what, usual)| {
        let usual = usual.as_ref()?;
        Some(format!("{what} takes {}, 99 of 100 at most {}", ms(usual.median_ms), ms(usual.p99_ms)))
    });
    format!("learned: {}", known.collect::<Vec<_>>().join("; "))
}

/// One record in one line, without its number and time.
#[must_use]
pub fn record(record: &Record) -> String {
    let text = match &record.body {
        Body::Lead(body) => lead(record, body),
        Body::Attempt(body) => attempt(record, body),
        Body::Membership(m) => {
            let names = |nodes: &[crate::domain::ids::NodeName]| {
                nodes.iter().map(|n| n.as_str()).collect::<Vec<_>>().join(", ")
            };
            let mut text = format!("voters: {}", names(&m.voters));
            if !m.removed.is_empty() {
                text.push_str(&format!("; removed {}", names(&m.removed)));
            }
            if !m.added.is_empty() {
                text.push_str(&format!("; added {}", names(&m.added)));
            }
            text
        }
        Body::Incident(body) => incident(body),
        Body::Evict(e) if e.back => format!("{} is given back: {}", e.node, harmless(&e.reason)),
        Body::Evict(e) => format!("{} is kept out: {}", e.node, harmless(&e.reason)),
        Body::Order(o) => format!("{} by {}: {}", order(&o.order), harmless(&o.by), harmless(&o.reason)),
        Body::End(body) => end(body),
        Body::Snapshot(_) => "everything up to here".into(),
        Body::Limits(learned) => limits(learned),
        Body::Unknown => {
            format!("a record of a newer relight: {}", harmless(&record.why.join("; ")))
        }
    };
    text.replace('\n', " ")
}
