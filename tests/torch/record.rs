//! torch's own `@record`: what it writes is understood, and what we leave is understood by torch.

use std::fs;

use serde_json::Value;

use super::support::leftovers;
use super::support::relight::{RelightCommand, Running, Scene, binary};
use super::{RUN, python};

/// Rank 1 fails without a word on its standard error.
const TRAIN: &str = "\
import os, sys, time
from torch.distributed.elastic.multiprocessing.errors import record

def collate(batch):
    return batch['labels']

@record
def main():
    if os.environ['RANK'] == '1':
        os.dup2(os.open('/dev/null', os.O_WRONLY), 2)
        collate({})
    time.sleep(240)

main()
";

fn train(scene: &Scene) -> String {
    let path = scene.path("exp").join("train.py");
    fs::write(&path, TRAIN).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn what_record_writes_is_the_root() {
    let Some(python) = python() else { return };
    let scene = Scene::new();
    let own = scene.path("home").join("error.json");
    let mut command = RelightCommand::run(&scene);
    command.env("PYTHON_EXEC", python).env("TORCHELASTIC_ERROR_FILE", &own);
    let ended = command.args(["--nproc-per-node=2", "--max-restarts=0"]).arg(train(&scene)).spawn().wait(RUN);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let (_, root) = ended.stderr.split_once("Root Cause (first observed failure):").expect("a report");
    for text in ["rank      : 1 (local_rank: 1)", "/1/error.json", "in collate", "KeyError: 'labels'"] {
        assert!(root.contains(text), "{text}: {}", ended.stderr);
    }
    let left: Value = serde_json::from_slice(&fs::read(&own).unwrap()).unwrap();
    assert_eq!(left["message"]["message"], "KeyError: 'labels'", "{left}");
    assert_eq!(left["message"]["errorCode"], 1, "{left}");
    leftovers::assert_none(&scene);
}

#[test]
fn torchrun_around_relight_reports_the_root() {
    let Some(python) = python() else { return };
    let scene = Scene::new();
    let mut command = scene.command(&python);
    command
        .args(["-m", "torch.distributed.run", "--no-python", "--log-dir"])
        .arg(scene.path("home").join("outer"));
    command.arg(binary()).args([
        "run",
        "--run-id=scene",
        "--nproc-per-node=2",
        "--max-restarts=0",
        "--run-dir",
    ]);
    command.arg(scene.path("run")).arg(train(&scene)).env("PYTHON_EXEC", &python);
    let (out, err) = (scene.path("stdout"), scene.path("stderr"));
    command.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&err).unwrap());
    let ended = Running::of(command.spawn().unwrap(), out, err).wait(RUN);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let outer = ended.stderr.rsplit("Root Cause (first observed failure):").next().unwrap();
    assert!(outer.contains("in collate") && outer.contains("KeyError: 'labels'"), "{}", ended.stderr);
    assert!(!outer.contains("To enable traceback"), "{}", ended.stderr);
}
