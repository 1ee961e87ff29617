//! `relight why`: one incident, from the evidence to what was done.

use super::sentences::{broke, count, decision, end, ended, ms};
use super::{Clock, Said, harmless, logs};
use crate::domain::attribution;
use crate::domain::exit::ExitKind;
use crate::domain::exit_code;
use crate::domain::ids::{Attempt, NodeName, Rank};
use crate::domain::liveness::lineup::{self, Row};
use crate::domain::liveness::vote::HANG;
use crate::domain::policy::progress::Progress;
use crate::domain::record::{Body, Break, Cause, Decision, End, Evict, FirstFailure, Incident, Victim};
use crate::store::look::{self, RunView};

/// Everything that the journal says of one incident.
#[derive(Debug, Default)]
struct Case<'a> {
    number: u64,
    attempt: Attempt,
    ran_ms: Option<u64>,
    first: Option<&'a FirstFailure>,
    lost: &'a [NodeName],
    victims: &'a [Victim],
    decision: Option<&'a Decision>,
    charged: Option<bool>,
    why: Vec<&'a str>,
    found: Option<&'a attribution::Verdict>,
    broke: Option<&'a Break>,
    /// Nodes that were taken out for it, or given back.
    evicted: Vec<&'a Evict>,
    settled: Option<&'a Incident>,
    next: Option<Attempt>,
    end: Option<&'a End>,
    /// Where its ranks were, if they did not advance and that was kept.
    lineup: Vec<Row>,
}

impl Case<'_> {
    fn is_hang(&self) -> bool {
        self.found.is_some_and(|found| found.cause == HANG)
    }

    /// What broke the world, on one line.
    fn what(&self) -> String {
        broke(self.first, self.lost, self.found).replace('\n', " ")
    }
}

/// The case with what is kept of it beside the journal.
fn whole(view: &RunView, number: u64) -> Option<Case<'_>> {
    let mut case = case(view, number)?;
    if case.is_hang() && view.incident_dirs.contains(&number) {
        case.lineup = look::lineup(&view.dir, number);
    }
    Some(case)
}

/// The newest incident: its number, and what it was, on one line.
#[must_use]
pub fn last(view: &RunView) -> Option<(u64, String)> {
    let number = *incidents(view).last()?;
    Some((number, case(view, number)?.what()))
}

fn case(view: &RunView, number: u64) -> Option<Case<'_>> {
    let mut case = Case { number, ..Case::default() };
    let mut known = false;
    // Those that were taken out since the world before was opened.
    let mut evicted: Vec<&Evict> = Vec::new();
    for record in &view.records {
        let here = match &record.body {
            Body::Attempt(world) => match &world.cause {
                Cause::Incident(b) if b.incident == number => {
                    case.attempt = b.attempt;
                    case.ran_ms = Some(b.ran_ms);
                    // The settled verdict knows more, wherever it lies.
                    if case.settled.is_none() {
                        (case.first, case.lost) = (b.first_failure.as_ref(), &b.lost);
                    }
                    case.decision = Some(&b.decision);
                    case.charged = Some(b.charged);
                    case.broke = Some(b);
                    case.found.get_or_insert(&b.verdict);
                    case.evicted.clone_from(&evicted);
                    case.next = Some(record.attempt);
                    true
                }
                _ => false,
            },
            Body::Incident(i) if i.incident == number => {
                case.attempt = i.attempt;
                (case.first, case.lost, case.victims) = (i.first_failure.as_ref(), &i.lost, &i.victims);
                case.decision.get_or_insert(&i.decision);
                case.settled = Some(i);
                if i.verdict != attribution::Verdict::default() {
                    case.found = Some(&i.verdict);
                }
                true
            }
            Body::End(e) if e.incident == Some(number) => {
                case.end = Some(e);
                true
            }
            _ => false,
        };
        match &record.body {
            Body::Evict(evict) => evicted.push(evict),
            Body::Attempt(_) => evicted.clear(),
            _ => {}
        }
        if here {
            known = true;
            for why in record.why.iter().map(String::as_str) {
                if !case.why.contains(&why) {
                    case.why.push(why);
                }
            }
        }
    }
    known.then_some(case)
}

/// The numbers of all incidents.
#[must_use]
pub fn incidents(view: &RunView) -> Vec<u64> {
    let numbers = view.records.iter().filter_map(|r| match &r.body {
        Body::Attempt(world) => match &world.cause {
            Cause::Incident(b) => Some(b.incident),
            Cause::Start => None,
        },
        Body::Incident(i) => Some(i.incident),
        Body::End(e) => e.incident,
        _ => None,
    });
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// The named incident, or the last one.
#[must_use]
pub fn render(view: &RunView, number: Option<u64>, clock: &Clock) -> Said {
    let all = incidents(view);
    let run = &view.run.run;
    let Some(wanted) = number.or(all.last().copied()) else {
        let how = view.end().map_or_else(|| "it has not ended".into(), end);
        return damaged(view, format!("nothing failed in run {run}: {how}\n"));
    };
    let Some(case) = whole(view, wanted) else {
        let known = match (all.first(), all.last()) {
            (Some(a), Some(b)) if a != b => format!("it has incidents {a} to {b}"),
            (Some(a), _) => format!("it has incident {a} only"),
            _ => "it has none".into(),
        };
        let text = format!("run {run} has no incident {wanted}: {known}\n");
        return Said { text, code: exit_code::USAGE };
    };
    damaged(view, write(view, &case, clock))
}

/// What was read, and that there may be more where the journal cannot be read.
fn damaged(view: &RunView, mut text: String) -> Said {
    let Some(damage) = &view.damage else { return Said { text, code: 0 } };
    text.push_str(&format!("the journal is damaged, there may be more: {damage}\n"));
    Said { text, code: exit_code::FAILED }
}

fn write(view: &RunView, case: &Case<'_>, clock: &Clock) -> String {
    let mut text = format!("incident {} of run {}, attempt {}\n", case.number, view.run.run, case.attempt);
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            text.push_str(&format!("  {name:<10}{value}\n"));
        }
    };
    let what = case.what();
    if case.first.is_some() || !case.lost.is_empty() || case.settled.is_some() || case.next.is_some() {
        line("what", &what);
    }
    if let Some(first) = case.first {
        line("when", &clock.stamp(first.wall_ms));
        if first.pid != 0 {
            line("process", &format!("pid {}, local rank {} on {}", first.pid, first.local_rank, first.node));
        }
    }
    line("noted in", &case.first.map(|first| harmless(&first.error_file)).unwrap_or_default());
    if let Some(ran) = case.ran_ms {
        let never = case.first.is_some_and(|first| matches!(first.exit, ExitKind::NeverStarted { .. }));
        // Else 0 says that nobody saw its start.
        let text = match ran {
            0 if never => "never".into(),
            0 => String::new(),
            ran => ms(ran),
        };
        line("ran", &text);
    }
    line("verdict", verdict(case));
    if let Some(found) = case.found.filter(|found| **found != attribution::Verdict::default()) {
        line("cause", &harmless(&found.sentence()));
        line("owner", &format!("{}, confidence {}", found.owner.word(), confidence(found.confidence)));
        line("culprit", &culprits(found));
        // The first one was said above.
        for reason in found.reasons.iter().skip(1) {
            line("because", &harmless(reason));
        }
    }
    line("reached", &case.broke.map(reached).unwrap_or_default());
    line("victims", &victims(case.victims));
    if let Some(done) = case.decision {
        let charged = match case.charged {
            Some(true) => " (counts against --max-restarts)",
            Some(false) => " (does not count against --max-restarts)",
            None => "",
        };
        line("decision", &format!("{}{charged}", decision(done)));
    }
    for evict in &case.evicted {
        let what = if evict.back { "given back" } else { "taken out" };
        line("node", &format!("{} {what}: {}", evict.node, harmless(&evict.reason)));
    }
    if let Some(wait) = case.broke.map(|broke| broke.wait_ms).filter(|wait| *wait > 0) {
        line("waited", &format!("{} before the next attempt", ms(wait)));
    }
    let why: Vec<&str> = case.why.iter().copied().filter(|why| !what.starts_with(why)).collect();
    line("why", &harmless(&why.join("; ")));
    line("next", &next(case));
    if let Some(settled) = case.settled {
        let running = settled.running_ms.map(|r| format!(", running again after {}", ms(r)));
        let gone = ms(settled.stopped_ms);
        line("timings", &format!("all ranks gone after {gone}{}", running.unwrap_or_default()));
    }
    for place in places(view, case) {
        line("logs", &place);
    }
    if view.incident_dirs.contains(&case.number) {
        let dir = view.dir.join("incidents").join(format!("{:04}", case.number));
        line("files", &dir.display().to_string());
    }
    if !case.lineup.is_empty() {
        let culprits: Vec<Rank> =
            case.found.iter().flat_map(|found| &found.culprits).map(|(rank, _)| *rank).collect();
        text.push_str("\n  where its ranks were:\n");
        for words in lineup::lines(&case.lineup, &culprits) {
            text.push_str(&format!("    {}\n", harmless(&words).replace('\n', " ")));
        }
    }
    if let Some(words) = case.first.map(|f| f.words.trim_end()).filter(|w| !w.is_empty()) {
        let title = if case.is_hang() { "its stack" } else { "its last words" };
        text.push_str(&format!("\n  {title}:\n"));
        for words in harmless(words).lines() {
            text.push_str(&format!("    {words}\n"));
        }
    }
    text
}

/// The incident as data: what the journal says of it.
#[must_use]
pub fn as_json(view: &RunView, number: Option<u64>) -> Said {
    let wanted = number.or(incidents(view).last().copied());
    let Some(case) = wanted.and_then(|wanted| whole(view, wanted)) else {
        let value = serde_json::json!({ "run": view.run.run, "incident": null, "end": view.end() });
        let code = if number.is_some() { exit_code::USAGE } else { 0 };
        return Said { text: format!("{value:#}\n"), code };
    };
    let value = serde_json::json!({
        "run": view.run.run,
        "incident": case.number,
        "attempt": case.attempt,
        "ran_ms": case.ran_ms,
        "first_failure": case.first,
        "lost": case.lost,
        "victims": case.victims,
        "ranks": case.lineup,
        "settled": case.settled.is_some(),
        "verdict": case.found,
        "reached": case.broke.map(|broke| &broke.reached),
        "progress": case.broke.map(|broke| broke.progress),
        "decision": case.decision,
        "charged": case.charged,
        "evicted": case.evicted,
        "waited_ms": case.broke.map(|broke| broke.wait_ms),
        "why": case.why,
        "next_attempt": case.next,
        "stopped_ms": case.settled.map(|settled| settled.stopped_ms),
        "running_ms": case.settled.and_then(|settled| settled.running_ms),
        "end": case.end,
        "damage": view.damage,
    });
    let code = if view.damage.is_some() { exit_code::FAILED } else { 0 };
    Said { text: format!("{value:#}\n"), code }
}

fn confidence(confidence: attribution::Confidence) -> &'static str {
    match confidence {
        attribution::Confidence::Low => "low",
        attribution::Confidence::Medium => "medium",
        attribution::Confidence::High => "high",
    }
}

fn culprits(found: &attribution::Verdict) -> String {
    let ranks = found.culprits.iter().map(|(rank, node)| format!("rank {rank} ({node})"));
    let nodes = found.nodes.iter().map(|node| format!("node {node}"));
    ranks.chain(nodes).collect::<Vec<_>>().join(", ")
}

/// How far it came, and whether that is progress.
fn reached(broke: &Break) -> String {
    let made = match broke.progress {
        Progress::Made => "that is progress",
        Progress::None => "no progress",
        Progress::Unknown => "progress is unknown",
    };
    match (broke.reached.most, broke.charged) {
        (Some(step), _) => format!("step {step}; {made}"),
        (None, true) => format!("no step is known; {made}"),
        (None, false) => String::new(),
    }
}

fn verdict(case: &Case<'_>) -> &'static str {
    match (case.settled, case.first, case.lost.is_empty()) {
        (None, ..) => "not settled: as seen when it was decided",
        (Some(_), Some(_), true) if case.is_hang() => "settled: it held up the others",
        (Some(_), None, true) if case.is_hang() => "settled: no rank is to blame",
        (Some(_), Some(_), true) => "settled: the first to fail",
        (Some(_), _, false) => "settled: lost with its node",
        (Some(_), None, true) => "settled: no rank failed by itself",
    }
}

/// Victims by how they ended, the largest group first: `rank 0, 1, 3: stopped by relight`.
fn victims(victims: &[Victim]) -> String {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for victim in victims {
        let how = if victim.ours { "stopped by relight".to_owned() } else { ended(&victim.exit) };
        match groups.iter_mut().find(|(known, _)| *known == how) {
            Some((_, ranks)) => ranks.push(victim.rank.to_string()),
            None => groups.push((how, vec![victim.rank.to_string()])),
        }
    }
    groups.sort_by_key(|(_, ranks)| std::cmp::Reverse(ranks.len()));
    let text = groups.into_iter().map(|(how, ranks)| {
        const SHOWN: usize = 16;
        let more = ranks.len().saturating_sub(SHOWN);
        let shown = ranks[..ranks.len() - more].join(", ");
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{} {shown}{more}: {how}", if ranks.len() == 1 { "rank" } else { "ranks" })
    });
    text.collect::<Vec<_>>().join("; ")
}

fn next(case: &Case<'_>) -> String {
    match (case.next, case.end) {
        (Some(attempt), _) => format!("attempt {attempt}"),
        (None, Some(e)) => format!("the run ended: {}", end(e)),
        (None, None) => "nothing yet".into(),
    }
}

fn places(view: &RunView, case: &Case<'_>) -> Vec<String> {
    let Some(members) = logs::members(view, case.attempt) else { return vec![] };
    let node = case.first.map(|f| &f.node);
    let shown =
        members.iter().filter(|m| node.is_none_or(|n| *n == m.node)).filter(|m| !m.log_dir.is_empty());
    let mut places: Vec<String> =
        shown.take(4).map(|m| logs::combined(m, case.attempt).display().to_string()).collect();
    if node.is_none() && members.len() > 4 {
        places.push(format!("and on {} more", count(members.len() - 4, "node")));
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::testing::{crashed, view};

    #[test]
    fn a_settled_incident() {
        let said = render(&view(crashed()), Some(0), &Clock::utc());
        assert_eq!(said.code, 0);
        insta::assert_snapshot!(said.text, @r#"
        incident 0 of run r1, attempt 0
          what      rank 5 (n02) failed: ValueError: boom (exit code 1)
          when      2023-11-14 22:14:02.000
          process   pid 4005, local rank 1 on n02
          ran       39 s
          verdict   settled: the first to fail
          reached   no step is known; progress is unknown
          victims   ranks 0, 1, 2, 3, 6, 7: stopped by relight; rank 4: ended with exit code 1
          decision  restart on the same nodes (counts against --max-restarts)
          why       restart 1 of 1; all exits are in
          next      attempt 1
          timings   all ranks gone after 0.3 s, running again after 0.9 s
          logs      /logs/r1_n02/attempt_0/combined.log
          files     /base/r1/incidents/0000

          its last words:
            Traceback (most recent call last):
              File "train.py", line 41
            ValueError: \u{1b}[31mboom
        "#);
    }

    #[test]
    fn an_incident_that_ended_the_run_before_it_was_settled() {
        let said = render(&view(crashed()), None, &Clock::utc());
        assert_eq!(said.code, 0);
        insta::assert_snapshot!(said.text, @r"
        incident 1 of run r1, attempt 1
          what      rank 2 (n01) died: SIGKILL
          when      2023-11-14 22:14:20.000
          process   pid 4002, local rank 2 on n01
          verdict   settled: the first to fail
          decision  stop with exit code 1
          why       no restart is left
          next      the run ended: failed, exit code 1: 1 of 1 restarts used
          timings   all ranks gone after 0.1 s
          logs      /logs/r1_n01/attempt_1/combined.log
        ");
    }

    #[test]
    fn nothing_to_tell() {
        let all = crashed();
        let said = |records, number| render(&view(records), number, &Clock::utc());
        let unknown = said(all.clone(), Some(7));
        assert_eq!(unknown.code, 2);
        let start = all[..2].to_vec();
        let texts = [unknown.text, said(start.clone(), None).text, said(start, Some(0)).text].concat();
        insta::assert_snapshot!(texts, @r"
        run r1 has no incident 7: it has incidents 0 to 1
        nothing failed in run r1: it has not ended
        run r1 has no incident 0: it has none
        ");
    }
}
