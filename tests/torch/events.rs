//! `--event-log-handler console` beside torchrun's: the same events of ranks and of the agent, with the same fields.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::python;
use crate::support::relight::{Scene, binary};

/// Rank 1 fails while rank 0 runs. Asked to stop, that one ends well: torchrun takes any other end for a failure.
const PROGRAM: &str = "ready=ready.$TORCHELASTIC_RUN_ID
if [ $LOCAL_RANK = 1 ]; then
    while [ ! -e $ready ]; do sleep 0.05; done
    exit 3
fi
trap 'exit 0' TERM
touch $ready
sleep 600 &
wait";

/// Fields of an event, of its metadata and of what is packed in there, and which of them are null.
fn shape(event: &Value) -> Vec<String> {
    let metadata = &event["metadata"];
    let packed: Value = serde_json::from_str(metadata["metadata"].as_str().unwrap()).unwrap();
    let mut out = Vec::new();
    for (place, object) in [("", event), ("metadata.", metadata), ("packed.", &packed)] {
        for (name, value) in object.as_object().unwrap() {
            let null = value.is_null() || *value == serde_json::json!([null]);
            // torch writes what the rank noted, or that it noted nothing.
            let null = null && name != "raw_error";
            out.push(format!("{place}{name}{}", if null { " (null)" } else { "" }));
        }
    }
    out.sort();
    out
}

/// By name and rank (none: the agent's), each event's shape, in the order of time where there are several.
type Events = BTreeMap<(String, Option<u64>), Vec<Vec<String>>>;

/// What the agent says when it goes is its own: torchrun's agent succeeded whatever became of its ranks.
fn is_told_by_both(event: &Value) -> bool {
    event["source"] == "WORKER" || !event["metadata"]["duration_ms"].is_null()
}

fn events(mut command: Command, restarts: u32) -> Events {
    let max_restarts = format!("--max-restarts={restarts}");
    let output = command
        .args(["--event-log-handler", "console", "--nproc-per-node=2", &max_restarts, "--no-python"])
        .args(["sh", "-c", PROGRAM])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let lines = text.lines().filter(|line| line.starts_with(r#"{"name""#));
    let all = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut events = Events::new();
    for event in all.filter(is_told_by_both) {
        let name = event["name"].as_str().unwrap().to_owned();
        let key = (name, event["metadata"]["global_rank"].as_u64());
        events.entry(key).or_default().push(shape(&event));
    }
    assert!(!events.is_empty(), "{text}");
    events
}

/// Torchrun's and ours.
fn both(restarts: u32) -> Option<(Events, Events)> {
    let python = python()?;
    let scene = Scene::new();
    let mut theirs = scene.command(&python);
    theirs.args(["-m", "torch.distributed.run"]);
    let mut ours = scene.command(binary());
    ours.arg("run");
    Some((events(theirs, restarts), events(ours, restarts)))
}

#[test]
fn events_are_torchruns() {
    let Some((theirs, ours)) = both(0) else { return };
    assert_eq!(ours, theirs);
    assert_eq!(ours.len(), 6, "a world, its ranks' numbers, two starts, a failure, and one that was stopped");
}

#[test]
fn a_restart_is_told_as_torchrun_tells_it() {
    let Some((theirs, ours)) = both(1) else { return };
    let starts = |events: &Events| -> Events {
        let told = |name: &str| !name.ends_with("FAILED") && !name.ends_with("TERMINATED");
        events.clone().into_iter().filter(|((name, _), _)| told(name)).collect()
    };
    // How ranks of an attempt that is followed by another ended, torchrun tells nobody.
    assert_eq!(starts(&ours), starts(&theirs));
    assert_eq!(ours[&("torchelastic.worker.status.RENDEZVOUS".to_owned(), None)].len(), 2);
}
