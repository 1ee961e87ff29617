//! Whole consoles: one line per state change; blame with rank, node and evidence; a decision with its next step; the
//! last line says where to look.

use super::support::leftovers;
use super::support::relight::{Scene, binary};
use super::{golden, look, play, script};

const TOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/toy_trainer.py");
const TERMINAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stories/terminal.py");

/// Rank 1 fails in a function of a file of its own; the others stay.
pub const COLLATE: &str = "\
import os, time
def collate(batch):
    return batch['labels']
if os.environ['RANK'] == '1':
    collate({})
time.sleep(120)
";

#[test]
fn s1_a_rank_dies_and_the_job_goes_on() {
    let scene = Scene::new();
    let toy =
        [TOY, "--steps", "20", "--step-time", "0.01", "--ckpt-dir", "ckpt", "--fault", "signal=KILL:2:8"];
    let ended = play(&scene, 4, &["--max-restarts=3", "-r", "3"], &toy);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(ended.stdout, "", "-r 3: the ranks' output goes to files only");
    golden!(scene, "s1", ended.stderr);
    leftovers::assert_none(&scene);
}

#[test]
fn a_failed_run_names_the_first_failure_and_its_victims() {
    let scene = Scene::new();
    script(&scene, "collate.py", COLLATE);
    let ended = play(&scene, 3, &["--max-restarts=1", "-r", "3"], &["collate.py"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    golden!(scene, "failed", ended.stderr);
    let (code, why) = look(&scene, &["why"]);
    let (_, first) = look(&scene, &["why", "scene", "0"]);
    let (_, status) = look(&scene, &["status"]);
    assert_eq!(code, 0);
    golden!(scene, "failed_why", format!("{why}----\n{first}----\n{status}"));
    leftovers::assert_none(&scene);
}

#[test]
fn last_lines_where_there_is_no_traceback() {
    let scene = Scene::new();
    script(&scene, "quits.py", "import os\nos.write(2, b'loading\\nno such shard: 17\\n')\nos._exit(7)\n");
    let ended = play(&scene, 1, &["--max-restarts=0", "-r", "3"], &["quits.py"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    golden!(scene, "failed_lines", ended.stderr);
}

/// What the terminal shows and the exit code.
fn at_terminal(scene: &Scene, nproc: u32, steps: &serde_json::Value, program: &str) -> (i32, String) {
    let mut command = scene.command("python3");
    command.args([TERMINAL, &steps.to_string()]).arg(binary()).arg("run");
    command.arg("--run-dir").arg(scene.path("run")).args(["--run-id", "scene"]);
    command.arg(format!("--nproc-per-node={nproc}")).arg(program).env(super::NODE.0, super::NODE.1);
    let said = command.output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout).replace("\r\n", "\n");
    (said.status.code().unwrap_or(-1), text + &String::from_utf8_lossy(&said.stderr))
}

#[test]
fn s8_ctrl_c_stops() {
    let scene = Scene::new();
    let text = "import os, signal, time\nsignal.signal(signal.SIGINT, lambda *_: os._exit(0))\n\
                if os.environ['RANK'] == '0':\n    time.sleep(1)\n    os.write(1, b'up\\n')\ntime.sleep(120)\n";
    script(&scene, "train.py", text);
    let (code, screen) = at_terminal(&scene, 2, &serde_json::json!([["up", "\u{3}"]]), "train.py");
    assert_eq!(code, 130, "{screen}");
    golden!(scene, "s8", screen);
    leftovers::assert_none(&scene);
}

#[test]
fn s8_a_second_press_kills() {
    let scene = Scene::new();
    let text = "import os, signal, time\nfor no in (2, 15):\n    signal.signal(no, signal.SIG_IGN)\n\
                if os.environ['RANK'] == '0':\n    time.sleep(1)\n    os.write(1, b'up\\n')\ntime.sleep(120)\n";
    script(&scene, "train.py", text);
    let steps = serde_json::json!([["up", "\u{3}"], ["stopping", "\u{3}"]]);
    let (code, screen) = at_terminal(&scene, 2, &steps, "train.py");
    assert_eq!(code, 130, "{screen}");
    golden!(scene, "s8_twice", screen);
    leftovers::assert_none(&scene);
}

#[test]
fn s8_rank_0_can_be_talked_to() {
    let scene = Scene::new();
    let text = "import os\nif os.environ['RANK'] == '0':\n    answer = input('who? ')\n    breakpoint()\n    \
                print('hello', answer)\nelse:\n    import sys\n    assert sys.stdin.read() == ''\n";
    script(&scene, "train.py", text);
    let steps = serde_json::json!([["who? ", "me\n"], ["(Pdb) ", "p answer * 2\n"], ["(Pdb) ", "c\n"]]);
    let (code, screen) = at_terminal(&scene, 2, &steps, "train.py");
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("'meme'") && screen.contains("hello me"), "{screen}");
    leftovers::assert_none(&scene);
}
