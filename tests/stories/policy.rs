//! When a run is started again and when it is not: by its progress, on the real program.

use super::support::leftovers;
use super::support::relight::Scene;
use super::{golden, look, play, script};

/// Every rank fails at its start.
const BUG: &str = "\
def collate(batch):
    return batch['labels']
collate({})
";

/// Rank 1 fails at one step, each time; it says where it is long enough before.
const STEP: &str = "\
import os, time, relight
relight.heartbeat(57)
if os.environ['RANK'] == '1':
    time.sleep(2.5)
    raise KeyError('labels')
time.sleep(120)
";

/// Gets ten steps further in each attempt, and fails in all but the last.
const FURTHER: &str = "\
import os, sys, time, relight
attempt = int(os.environ['TORCHELASTIC_RESTART_COUNT'])
for step in range(attempt * 10, attempt * 10 + 11):
    relight.heartbeat(step)
    time.sleep(0.15)
if attempt < 5:
    raise KeyError('labels')
";

/// Another rank fails in each attempt, in another way.
const WANDERS: &str = "\
import os, time
attempt = int(os.environ['TORCHELASTIC_RESTART_COUNT'])
if int(os.environ['RANK']) == attempt % 4:
    os._exit(10 + attempt)
time.sleep(120)
";

fn attempts(scene: &Scene) -> usize {
    let records = std::fs::read_dir(scene.path("run/scene/journal")).unwrap();
    let read = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(entry.unwrap().path());
    records.map(read).filter(|text| text.as_ref().unwrap().contains("\"kind\": \"attempt\"")).count()
}

#[test]
fn s5_a_bug_is_not_retried_for_ever() {
    let scene = Scene::new();
    script(&scene, "bug.py", BUG);
    let ended = play(&scene, 4, &["-r", "3"], &["bug.py"]);
    assert_eq!(ended.code, 93, "{}", ended.stderr);
    let lines: Vec<&str> = ended.stderr.lines().filter(|l| l.starts_with("relight: ")).collect();
    // Any of them may be the first, and some are stopped before they fail by themselves.
    let any = regex::Regex::new(r"rank \d \(n01\)|on \d of 4").unwrap();
    let said = lines[2..4].join("\n");
    let said =
        any.replace_all(
            &said,
            |found: &regex::Captures<'_>| {
                if found[0].starts_with("rank") { "rank [N] (n01)" } else { "on [N] of 4" }
            },
        );
    golden!(scene, "s5", said);
    leftovers::assert_none(&scene);
}

#[test]
fn s5_the_same_failure_at_the_same_step_is_made_sure_of_once() {
    let scene = Scene::new();
    script(&scene, "step.py", STEP);
    let ended = play(&scene, 2, &["-r", "3"], &["step.py"]);
    assert_eq!(ended.code, 93, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("restarted once to make sure; it failed at the same step 57. Exit 93."),
        "{}",
        ended.stderr
    );
    let (_, why) = look(&scene, &["why", "scene", "0"]);
    assert!(why.contains("step 57; no progress"), "{why}");
    let (code, json) = look(&scene, &["why", "scene", "0", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((code, &value["reached"]["most"], &value["progress"]), (0, &57.into(), &"none".into()));
}

#[test]
fn scenario_8_a_run_that_gets_further_each_time_goes_on() {
    let scene = Scene::new();
    script(&scene, "further.py", FURTHER);
    let ended = play(&scene, 1, &["-r", "3"], &["further.py"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[test]
fn scenario_54_failures_that_wander_stop_at_the_third() {
    let scene = Scene::new();
    script(&scene, "wanders.py", WANDERS);
    let ended = play(&scene, 4, &["-r", "3"], &["wanders.py"]);
    assert_eq!(ended.code, 93, "{}", ended.stderr);
    assert!(ended.stderr.contains("3 attempts in a row ended before their first step"), "{}", ended.stderr);
    assert_eq!(attempts(&scene), 3, "{}", ended.stderr);
}

#[test]
fn max_restarts_is_kept_whatever_fails() {
    let scene = Scene::new();
    script(&scene, "bug.py", BUG);
    let ended = play(&scene, 2, &["--max-restarts=4", "-r", "3"], &["bug.py"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert_eq!(attempts(&scene), 5, "{}", ended.stderr);
}
