//! `relight status`: what a run is doing now, from a login node too.

use super::sentences::{count, end, ms};
use super::{Clock, Said, harmless, notes};
use crate::domain::exit_code;
use crate::domain::note::Note;
use crate::store::look::RunView;
use crate::store::status::{EventLine, Phase, Status};

/// Whether the agent that wrote the status still lives, as far as the caller can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alive {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// It runs on another node.
    Unknown,
}

/// Whoever leads writes the status again every 30 s, changed or not. After so long, in ms, nobody does.
const SILENT_MS: u64 = 120_000;
/// An agent that gave its coordinator up so much later, in ms, than the newest status was not merely cut off.
const GIVEN_UP_MS: u64 = 60_000;

/// Nobody leads this run any more, as far as its directory tells.
fn is_lost(view: &RunView, status: &Status, now_ms: u64) -> bool {
    let given_up = given_up(view).is_some_and(|line| line.wall_ms > status.wall_ms + GIVEN_UP_MS);
    let over = view.end().is_some() || status.phase == Phase::Closed;
    !over && (given_up || now_ms.saturating_sub(status.wall_ms) >= SILENT_MS)
}

/// The newest word of an agent that gave its coordinator up.
fn given_up(view: &RunView) -> Option<EventLine> {
    let lines = view.agents.iter().filter_map(|line| serde_json::from_str::<EventLine>(line).ok());
    lines.filter(|line| matches!(line.note, Note::GaveUp { leader: Some(_), .. })).max_by_key(|l| l.wall_ms)
}

/// The words for a phase.
fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Gathering => "waits for nodes",
        Phase::Starting => "starts its ranks",
        Phase::Running => "runs",
        Phase::Breaking => "stops its ranks after a failure",
        Phase::Closing => "ends",
        Phase::Closed => "is over",
        Phase::Unknown => "does what this relight does not know",
    }
}

/// The run in a few lines; `now_ms` is the reader's wall clock, `call` what names the run in a command.
#[must_use]
pub fn render(view: &RunView, call: &str, alive: Alive, now_ms: u64, json: bool, clock: &Clock) -> Said {
    if json {
        return as_json(view, alive, now_ms);
    }
    let mut text = format!("run {}\n", view.run.run);
    let mut line = |name: &str, value: &str| text.push_str(&format!("  {name:<10}{value}\n"));
    match (view.end(), &view.status) {
        (Some(ended), _) => line("state", &end(ended)),
        (None, Some(status)) => {
            let lost = alive != Alive::Yes && is_lost(view, status, now_ms);
            line("state", &state(status, alive, lost, now_ms));
            if let Some(last) = given_up(view).filter(|_| lost) {
                let said = notes::sentence(&last.note);
                line("last word", &harmless(&format!("{} {}: {said}", clock.stamp(last.wall_ms), last.node)));
            }
            if let Some(waiting) = &status.waiting {
                line("waits for", &harmless(waiting));
            }
        }
        (None, None) => {
            line("state", if alive == Alive::Yes { "starting" } else { "unknown: no status yet" })
        }
    }
    if let Some(status) = &view.status {
        numbers(view, status, &mut line);
    }
    if view.status.as_ref().is_none_or(|s| s.attempt.is_none()) {
        line("created", &clock.stamp(view.run.created_ms));
    }
    line("command", &harmless(&view.run.command.join(" ")));
    line("directory", &view.dir.display().to_string());
    if let Some(damage) = &view.damage {
        line("damage", damage);
    }
    let incidents = super::why::incidents(view);
    if let Some(last) = incidents.last() {
        line("incidents", &format!("{}; details: relight why {call} {last}", incidents.len()));
    }
    if let Some((number, what)) = super::why::last(view) {
        line("last", &format!("incident {number}: {what}"));
    }
    Said { text, code: if view.damage.is_some() { exit_code::FAILED } else { 0 } }
}

fn state(status: &Status, alive: Alive, lost: bool, now_ms: u64) -> String {
    let since = ms(now_ms.saturating_sub(status.since_ms));
    let age = ms(now_ms.saturating_sub(status.wall_ms));
    match alive {
        Alive::Yes => format!("{} (for {since})", phase(status.phase)),
        Alive::No => format!("interrupted: its agent on {} is gone; last sign {age} ago", status.leader),
        Alive::Unknown if lost => {
            format!("no sign of life for {age}: the run is lost or its nodes are cut off")
        }
        Alive::Unknown => {
            format!("{}, as {} wrote {age} ago", phase(status.phase), status.leader)
        }
    }
}

fn numbers(view: &RunView, status: &Status, line: &mut impl FnMut(&str, &str)) {
    if let Some(attempt) = status.attempt {
        // At the end nobody is there any more; the journal knows who was.
        let members = super::logs::members(view, attempt).map(<[_]>::len);
        let nodes = members.unwrap_or_else(|| status.nodes.iter().filter(|n| n.slot.is_some()).count());
        let (ranks, nodes) = (count(status.world_size as usize, "rank"), count(nodes, "node"));
        line("attempt", &format!("{attempt}: {ranks} on {nodes}"));
    }
    if let Some(reach) = status.reach.as_ref().filter(|_| view.end().is_none()) {
        let missing = reach.missing().unwrap_or_default();
        line(
            "store",
            &harmless(&format!("{} of {} ranks reached it; not yet: {missing}", reach.there, reach.world)),
        );
    }
    let budget = status.max_restarts.map(|m| format!(" of {m}"));
    let without = match status.without_progress {
        // Where they end the run, budgets tell it.
        _ if status.max_restarts.is_none() && !status.budgets.is_empty() => String::new(),
        0 => String::new(),
        n => format!("; {} in a row without known progress", count(n as usize, "attempt")),
    };
    line("restarts", &format!("{}{}{without}", status.restarts, budget.unwrap_or_default()));
    // What nothing was taken of need not be told.
    for budget in status.budgets.iter().filter(|budget| budget.used > 0) {
        line("budget", &format!("{} of {} {}", budget.used, budget.of, budget.what));
    }
    if status.paused {
        line("paused", "nothing is started after a failure until `relight ctl resume`");
    }
    let spares = status.nodes.iter().filter(|n| n.state == "spare").count();
    if spares > 0 {
        line("spares", &spares.to_string());
    }
    line("leader", &format!("{} (pid {}, term {})", status.leader, status.pid, status.term));
    line_up(status, line);
    // Whoever simply works is in the lines above.
    for node in status.nodes.iter().filter(|n| n.state != "active") {
        line("node", &format!("{}: {}", node.node, harmless(&node.state)));
    }
}

/// So many slots are listed, and so many ranks that are behind.
const SHOWN: usize = 16;
const LAGGARDS: usize = 4;

/// Which node has which slot, and how far ranks are.
fn line_up(status: &Status, line: &mut impl FnMut(&str, &str)) {
    let mut slots: Vec<(u32, &str)> =
        status.nodes.iter().filter_map(|n| Some((n.slot?.0, n.node.as_str()))).collect();
    slots.sort_unstable();
    if slots.len() > 1 {
        let shown: Vec<String> =
            slots.iter().take(SHOWN).map(|(slot, node)| format!("{slot} {node}")).collect();
        let more = slots.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        line("slots", &format!("{}{more}", shown.join(", ")));
    }
    let Some(front) = status.ranks.iter().filter_map(|rank| Some(rank.step?.saturating_add(rank.lag))).max()
    else {
        return;
    };
    let mut behind: Vec<_> = status.ranks.iter().filter(|rank| rank.lag > 0).collect();
    behind.sort_by_key(|rank| (std::cmp::Reverse(rank.lag), rank.rank));
    let named = behind.iter().take(LAGGARDS).map(|rank| {
        format!("rank {} ({}) by {}, in {}", rank.rank, rank.node, rank.lag, harmless(&rank.phase))
    });
    let named = named.collect::<Vec<_>>().join("; ");
    let more = behind.len().saturating_sub(LAGGARDS);
    let more = if more > 0 { format!(" and {} more", count(more, "rank")) } else { String::new() };
    let behind = if behind.is_empty() { String::new() } else { format!("; behind: {named}{more}") };
    line("steps", &format!("{front}{behind}"));
}

fn as_json(view: &RunView, alive: Alive, now_ms: u64) -> Said {
    let lost =
        alive != Alive::Yes && view.status.as_ref().is_some_and(|status| is_lost(view, status, now_ms));
    let alive = match alive {
        Alive::Yes => Some(true),
        Alive::No => Some(false),
        Alive::Unknown => None,
    };
    let value = serde_json::json!({
        "run": view.run.run,
        "store": view.run.store,
        "dir": view.dir,
        "created_ms": view.run.created_ms,
        "command": view.run.command,
        "alive": alive,
        "lost": lost,
        "end": view.end(),
        "status": view.status,
        "incidents": super::why::incidents(view),
        "last_incident": super::why::last(view).map(|(number, what)| serde_json::json!({ "number": number, "what": what })),
        "damage": view.damage,
    });
    let code = if view.damage.is_some() { exit_code::FAILED } else { 0 };
    Said { text: format!("{value:#}\n"), code }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{NodeName, Rank};
    use crate::domain::torch_store::seen::{Gap, Reach};
    use crate::inspect::testing::{crashed, status, view};

    const NOW: u64 = 1_700_000_065_000;

    #[test]
    fn a_running_an_interrupted_and_a_remote_run() {
        let mut view = view(crashed()[..5].to_vec());
        view.status = Some(status());
        let said = |alive| render(&view, "r1", alive, NOW, false, &Clock::utc()).text;
        insta::assert_snapshot!(said(Alive::Yes), @r"
        run r1
          state     runs (for 22 s)
          attempt   1: 8 ranks on 2 nodes
          restarts  1 of 3
          spares    1
          leader    n01 (pid 3999, term 0)
          slots     0 n01, 1 n02
          node      n03: spare
          command   relight run train.py
          directory /base/r1
          incidents 2; details: relight why r1 1
          last      incident 1: rank 2 (n01) died: SIGKILL
        ");
        let lines: Vec<String> =
            [Alive::No, Alive::Unknown].map(|a| said(a).lines().nth(1).unwrap().to_owned()).to_vec();
        insta::assert_snapshot!(lines.join("\n"), @r"
        state     interrupted: its agent on n01 is gone; last sign 3 s ago
        state     runs, as n01 wrote 3 s ago
        ");
    }

    #[test]
    fn a_run_of_which_nothing_is_heard_is_not_said_to_run() {
        let mut view = view(crashed()[..5].to_vec());
        view.status = Some(status());
        let written = status().wall_ms;
        let said = |view: &RunView, alive, now: u64| {
            let text = render(view, "r1", alive, now, false, &Clock::utc()).text;
            text.lines()
                .map(str::trim)
                .filter(|l| l.starts_with("state ") || l.starts_with("last word"))
                .collect::<Vec<_>>()
                .join("\n")
        };
        insta::assert_snapshot!(said(&view, Alive::Unknown, written + 119_000), @"state     runs, as n01 wrote 119 s ago");
        insta::assert_snapshot!(said(&view, Alive::Unknown, written + 130_000), @"state     no sign of life for 2 min 10 s: the run is lost or its nodes are cut off");
        // On its own node the lock tells.
        insta::assert_snapshot!(said(&view, Alive::Yes, written + 130_000), @"state     runs (for 2 min 29 s)");
        let gave_up = |at: u64| {
            let silent = std::time::Duration::from_secs(36);
            let note = Note::GaveUp {
                leader: Some(crate::domain::ids::NodeName::new("n01")),
                first: true,
                silent,
                speaks: true,
            };
            EventLine { wall_ms: at, node: crate::domain::ids::NodeName::new("n02"), note }.to_line()
        };
        // One node gave up early: the others go on.
        let (early, late) = (gave_up(written), gave_up(written + 66_000));
        view.agents = vec![early];
        insta::assert_snapshot!(said(&view, Alive::Unknown, written + 20_000), @"state     runs, as n01 wrote 20 s ago");
        view.agents = vec![late];
        insta::assert_snapshot!(said(&view, Alive::Unknown, written + 70_000), @r"
        state     no sign of life for 70 s: the run is lost or its nodes are cut off
        last word 2023-11-14 22:15:28.000 n02: the first node n01 is gone (no sign for 36 s): the run ends here. Exit 1
        ");
    }

    /// While ranks start it is seen how far they are, and who is missing.
    #[test]
    fn who_has_not_reached_the_store() {
        let mut view = view(crashed()[..5].to_vec());
        let gaps = vec![Gap { node: Some(NodeName::new("n02")), first: Rank(5), of: 1, there: 0 }];
        view.status = Some(Status { reach: Some(Reach { there: 7, world: 8, gaps }), ..status() });
        let store = |view: &RunView| {
            let text = render(view, "r1", Alive::Yes, NOW, false, &Clock::utc()).text;
            text.lines().find(|line| line.starts_with("  store")).map(|line| line.trim().to_owned())
        };
        insta::assert_snapshot!(store(&view).unwrap(), @"store     7 of 8 ranks reached it; not yet: rank 5 (n02)");
        view.status = Some(status());
        assert_eq!(store(&view), None);
    }

    #[test]
    fn an_ended_run_and_one_that_never_got_going() {
        let ended = render(&view(crashed()), "r1", Alive::No, NOW, false, &Clock::utc());
        let empty = render(&view(vec![]), "r1", Alive::No, NOW, false, &Clock::utc());
        assert_eq!((ended.code, empty.code), (0, 0));
        insta::assert_snapshot!(ended.text + &empty.text, @r"
        run r1
          state     failed, exit code 1: 1 of 1 restarts used
          created   2023-11-14 22:13:20.000
          command   relight run train.py
          directory /base/r1
          incidents 2; details: relight why r1 1
          last      incident 1: rank 2 (n01) died: SIGKILL
        run r1
          state     unknown: no status yet
          created   2023-11-14 22:13:20.000
          command   relight run train.py
          directory /base/r1
        ");
    }

    #[test]
    fn json_has_all_of_it() {
        let mut view = view(crashed());
        view.status = Some(status());
        let said = render(&view, "r1", Alive::Unknown, NOW, true, &Clock::utc());
        let value: serde_json::Value = serde_json::from_str(&said.text).unwrap();
        assert_eq!(value["end"]["code"], 1);
        assert_eq!(value["status"]["phase"], "running");
        assert_eq!(value["incidents"], serde_json::json!([0, 1]));
        assert!(value["alive"].is_null());
    }
}
