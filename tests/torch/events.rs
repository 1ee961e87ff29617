//! `--event-log-handler console` beside torchrun's: the same events of ranks, with the same fields.

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

/// The events of ranks by state and rank.
fn events(mut command: Command) -> BTreeMap<(String, u64), Vec<String>> {
    let output = command
        .args(["--event-log-handler", "console", "--nproc-per-node=2", "--max-restarts=0", "--no-python"])
        .args(["sh", "-c", PROGRAM])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    let lines = text.lines().filter(|line| line.starts_with(r#"{"name""#));
    let all = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_ranks = all.filter(|event| event["source"] == "WORKER");
    let events: BTreeMap<_, _> = of_ranks
        .map(|event| {
            let name = event["name"].as_str().unwrap().to_owned();
            ((name, event["metadata"]["global_rank"].as_u64().unwrap()), shape(&event))
        })
        .collect();
    assert!(!events.is_empty(), "{text}");
    events
}

#[test]
fn events_are_torchruns() {
    let Some(python) = python() else { return };
    let scene = Scene::new();
    let mut theirs = scene.command(&python);
    theirs.args(["-m", "torch.distributed.run"]);
    let mut ours = scene.command(binary());
    ours.arg("run");
    let (theirs, ours) = (events(theirs), events(ours));
    assert_eq!(ours, theirs);
    assert_eq!(ours.len(), 4, "two starts, a failure, and one that was stopped");
}
