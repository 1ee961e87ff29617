//! A program that does not advance, and knows nothing of relight.

use std::fs;

use super::support::leftovers;
use super::support::relight::Scene;
use super::{golden, play, run_dir, script};

/// What of torch such a program comes through: its optimizer with its hooks, and a collective.
const TORCH: &[(&str, &str)] = &[
    ("__init__.py", ""),
    ("optim/__init__.py", ""),
    (
        "optim/optimizer.py",
        "
pre, post = [], []
register_optimizer_step_pre_hook, register_optimizer_step_post_hook = pre.append, post.append
def step():
    for hook in pre: hook(None, (), {})
    for hook in post: hook(None, (), {})
",
    ),
    ("distributed/__init__.py", ""),
    (
        "distributed/distributed_c10d.py",
        "
import os, pathlib, time
room = pathlib.Path('room') / os.environ['TORCHELASTIC_RESTART_COUNT']
room.mkdir(parents=True, exist_ok=True)
rank, world = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
count = 0
def all_reduce(_):
    global count
    count += 1
    (room / f'{count}.{rank}').touch()
    while not all((room / f'{count}.{rank}').exists() for rank in range(world)):
        time.sleep(0.01)
",
    ),
];

const TRAIN: &str = "\
import dataset
from torch.distributed import distributed_c10d as dist
from torch.optim import optimizer

for step in range(100):
    dist.all_reduce(dataset.parse(step))
    optimizer.step()
";

const DATASET: &str = "\
import os, time

def parse(step):
    time.sleep(0.02)
    while step == 70 and (os.environ['RANK'], os.environ['TORCHELASTIC_RESTART_COUNT']) == ('2', '0'):
        time.sleep(0.1)
    return step
";

#[test]
fn s3_a_hang_is_named() {
    let scene = Scene::new();
    for (name, text) in TORCH {
        let path = scene.path("exp").join("torch").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    script(&scene, "dataset.py", DATASET);
    script(&scene, "train.py", TRAIN);
    let ended = play(&scene, 4, &["--hang-floor=2", "-r", "3"], &["train.py"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let lines = ended.stderr.lines().filter(|line| line.starts_with("relight: "));
    let said: Vec<&str> = lines.skip_while(|line| !line.contains("has advanced")).collect();
    // Which of two lines the loop was in is a matter of chance.
    let place = regex::Regex::new(r"dataset\.py:\d+").unwrap();
    let said = said.join("\n");
    golden!(scene, "s3", place.replace_all(&said, "dataset.py:[LINE]"));
    let stacks = fs::read_to_string(run_dir(&scene).join("incidents/0000/stacks.txt")).unwrap();
    for rank in 0..4 {
        assert!(stacks.contains(&format!("=== rank {rank} (n01)")), "{stacks}");
    }
    assert!(stacks.contains("in parse") && stacks.contains("in all_reduce"), "{stacks}");
    leftovers::assert_none(&scene);
}
