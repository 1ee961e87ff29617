//! What `relight why` and `relight status` tell of a hang, on the real program.

use super::support::leftovers;
use super::support::relight::Scene;
use super::{golden, look, play, script};

/// What differs from machine to machine in a look at processes.
fn steady(text: &str) -> String {
    let rules = [
        (r"state [RS]( in \w+)?", "state S"),
        (r"\d+ % of a CPU", "[N] % of a CPU"),
        (r"train\.py:\d+", "train.py:[LINE]"),
    ];
    let rule = |text: String, (pattern, by): &(&str, &str)| {
        regex::Regex::new(pattern).unwrap().replace_all(&text, *by).into_owned()
    };
    rules.iter().fold(text.to_owned(), rule)
}

#[test]
fn why_tells_who_was_where_and_what_follows() {
    let scene = Scene::new();
    script(&scene, "train.py", include_str!("../faults/hang.py"));
    let options = ["--max-restarts=1", "--heartbeat-timeout=3", "--phase-timeout=init=60", "-r", "3"];
    let ended = play(&scene, 3, &options, &["train.py", "data"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let (code, why) = look(&scene, &["why", "scene", "0"]);
    assert_eq!(code, 0, "{why}");
    // The stack is the interpreter's own text.
    assert!(why.contains("in load"), "{why}");
    let told = why.split("\n\n  its stack:").next().unwrap();
    golden!(scene, "why_hang", steady(told));
    let (_, json) = look(&scene, &["why", "scene", "0", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let rows = value["ranks"].as_array().unwrap();
    assert_eq!(rows.len(), 3, "{json}");
    assert_eq!((&rows[1]["phase"], &rows[1]["step"]), (&"data".into(), &40.into()), "{json}");
    assert!(rows[1]["frame"].as_str().unwrap().ends_with(" load()"), "{json}");
    assert!(rows[1]["silent_ms"].as_u64().unwrap() >= 3_000, "{json}");
    assert_eq!(value["first_failure"]["rank"], 1);
    assert_eq!(value["next_attempt"], 1);
    let (_, status) = look(&scene, &["status"]);
    assert!(status.contains("last      incident 0: rank 1 (n01) did not advance for "), "{status}");
    leftovers::assert_none(&scene);
}

/// Says where it is, unevenly, and stays.
const UNEVEN: &str = "\
import os, time, relight
rank = int(os.environ['RANK'])
relight.heartbeat(40 if rank == 1 else 47)
with relight.phase('data'):
    os.write(1, b'up\\n')
    time.sleep(120)
";

#[test]
fn status_tells_how_far_ranks_are_and_who_is_behind() {
    use super::support::wait::wait_for;
    let scene = Scene::new();
    let running = super::running(&scene, 3, &["--restart-backoff=0"], UNEVEN);
    wait_for("steps in the status", super::LONG, || {
        let (_, status) = look(&scene, &["status"]);
        let wanted = "  steps     47; behind: rank 1 (n01) by 7, in data\n";
        if status.contains(wanted) { Ok(()) } else { Err(status) }
    });
    let (_, json) = look(&scene, &["status", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let live = &value["status"];
    assert_eq!((&live["attempt"], &live["nodes"][0]["slot"]), (&0.into(), &0.into()), "{json}");
    assert_eq!(
        (&live["ranks"][1]["step"], &live["ranks"][1]["lag"], &live["ranks"][1]["phase"]),
        (&40.into(), &7.into(), &"data".into())
    );
    let budgets = live["budgets"].as_array().unwrap();
    let budget = |what: &str| budgets.iter().find(|b| b["what"] == what).cloned().unwrap_or_default();
    assert_eq!(budget("attempts in a row without progress")["of"], 3, "{json}");
    assert_eq!(budget("nodes taken out by inference in 10 min")["of"], 2, "{json}");
    assert!(value["last_incident"].is_null(), "{json}");
    assert_eq!(look(&scene, &["ctl", "stop", "--why", "enough seen"]).0, 0);
    running.wait(super::LONG);
    leftovers::assert_none(&scene);
}
