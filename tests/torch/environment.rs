//! What torchrun gives its workers, and what relight gives its ranks, name for name and value for value.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::process::{Command, Stdio};

use crate::RUN;
use crate::support::leftovers;
use crate::support::relight::{Running, Scene, binary};

const SAY: &str = "import json, os
json.dump(dict(os.environ), open('environment-' + os.environ['RANK'], 'w'))";

type Environment = BTreeMap<String, String>;

fn ranks(scene: &Scene) -> Vec<Environment> {
    let read = |rank: u32| {
        let text = fs::read_to_string(scene.path("exp").join(format!("environment-{rank}"))).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    (0..2).map(read).collect()
}

/// Of the ranks that a launcher starts.
fn started_by(
    python: &OsString,
    scene: &Scene,
    mut launcher: Command,
    env: &[(&str, &str)],
) -> Vec<Environment> {
    fs::write(scene.path("exp").join("say.py"), SAY).unwrap();
    launcher.arg("say.py").env("PYTHON_EXEC", python).envs(env.iter().copied()).stdin(Stdio::null());
    let [out, err] = ["launcher.out", "launcher.err"].map(|name| scene.path(name));
    launcher.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&err).unwrap());
    let child = launcher.spawn().unwrap();
    let ended = Running::of(child, out, err).wait(RUN);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    ranks(scene)
}

/// Of both, with the same options and variables.
fn both(python: &OsString, options: &[&str], env: &[(&str, &str)]) -> [Vec<Environment>; 2] {
    let scene = Scene::new();
    let mut torchrun = scene.command(python);
    torchrun.args(["-m", "torch.distributed.run"]).args(options);
    let theirs = started_by(python, &scene, torchrun, env);
    let scene = Scene::new();
    let link = scene.path("torchrun");
    std::os::unix::fs::symlink(binary(), &link).unwrap();
    let mut ours = scene.command(link);
    ours.args(options);
    let ours = started_by(python, &scene, ours, env);
    leftovers::assert_none(&scene);
    [theirs, ours]
}

/// What has the same form and another value: where the store is, the name of the run, the rank's own file.
const DIFFERS: [&str; 5] = [
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_ERROR_FILE",
    "TORCHELASTIC_USE_AGENT_STORE",
];

/// Of the process that started it, not of the launcher: the interpreter's own, the scene's folders.
fn of_the_surroundings(name: &str) -> bool {
    // PYTHONPATH: where the ranks of relight find its client.
    const NAMES: [&str; 7] =
        ["LC_CTYPE", "PYTHON_EXEC", "PYTHONPATH", "PWD", "SHLVL", "_", "KMP_INIT_AT_FORK"];
    NAMES.contains(&name)
        || ["HOME", "TMPDIR", "XDG_", "RELIGHT_"].iter().any(|prefix| name.starts_with(prefix))
}

fn compare(python: &OsString, options: &[&str], env: &[(&str, &str)]) {
    let [theirs, ours] = both(python, options, env);
    for (theirs, ours) in theirs.iter().zip(&ours) {
        for (name, value) in theirs.iter().filter(|(name, _)| !of_the_surroundings(name)) {
            let got = ours.get(name).unwrap_or_else(|| panic!("{name}={value} is missing in {ours:?}"));
            if DIFFERS.contains(&name.as_str()) {
                assert_eq!(got.is_empty(), value.is_empty(), "{name}: {got:?} for {value:?}");
            } else {
                assert_eq!(got, value, "{name}");
            }
        }
        let more = ours.keys().filter(|name| !theirs.contains_key(*name) && !of_the_surroundings(name));
        assert_eq!(more.collect::<Vec<_>>(), Vec::<&String>::new());
    }
    // A file of its own for each rank, which its program can make.
    let files: Vec<&String> = ours.iter().map(|env| &env["TORCHELASTIC_ERROR_FILE"]).collect();
    assert!(files[0].is_empty() || files[0] != files[1], "{files:?}");
}

#[test]
fn ranks_have_what_torchruns_workers_have() {
    let Some(python) = crate::python() else { return };
    compare(&python, &["--nnodes=1", "--nproc-per-node=2", "--role=trainer", "--max-restarts=3"], &[]);
    let chosen = [
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"),
        ("OMP_NUM_THREADS", "5"),
        ("CUDA_VISIBLE_DEVICES", "4,6"),
        ("RANK", "77"),
        ("TORCHELASTIC_RESTART_COUNT", "9"),
        ("PMI_RANK", "2"),
    ];
    compare(&python, &["--standalone", "--nproc-per-node=2", "--log-dir=/dev/null"], &chosen);
    let virtual_ranks = ["--nproc-per-node=2", "--virtual-local-rank", "--signals-to-handle=SIGTERM,SIGUSR2"];
    compare(&python, &virtual_ranks, &[("CUDA_VISIBLE_DEVICES", "4,6")]);
}
