//! The prompt of `salloc`: a person at a terminal.

use std::process::Stdio;

use crate::slurm::{Job, LONG};
use crate::support::leftovers;
use crate::support::relight::{Running, binary};

const TERMINAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stories/terminal.py");

/// What the terminal shows and the exit code.
fn at_prompt(job: &Job, steps: &serde_json::Value, script: &str) -> (i32, String) {
    at_prompt_with(job, steps, script, &[])
}

/// The same with options.
fn at_prompt_with(job: &Job, steps: &serde_json::Value, script: &str, options: &[&str]) -> (i32, String) {
    let script = job.script(script);
    let mut command = job.scene.command("python3");
    command.args([TERMINAL, &steps.to_string()]).arg(binary()).args(["run", "--lost-after", "6"]);
    command.args(options).arg(script);
    for (name, value) in job.environment() {
        command.env(name, value);
    }
    command.env("SLURM_STEP_ID", "4294967290");
    let out = job.scene.path("terminal");
    let child = command.stdout(std::fs::File::create(&out).unwrap()).stderr(Stdio::null()).spawn().unwrap();
    let ended = Running::of(child, out, job.scene.path("nothing")).wait(LONG);
    (ended.code, ended.stdout.replace('\r', ""))
}

#[test]
fn whoever_gives_a_limit_is_not_told_that_none_counts() {
    let job = Job::new(2);
    let steps = serde_json::json!([]);
    let (code, shown) = at_prompt_with(&job, &steps, "sys.exit(0)", &["--heartbeat-timeout=600"]);
    assert_eq!(code, 0, "{shown}");
    assert!(
        shown.contains("relight: interactive: 2 nodes, no restarts. Ctrl-C stops, twice kills\n"),
        "{shown}"
    );
    leftovers::assert_none(&job.scene);
}

#[test]
fn ctrl_c_stops_and_the_next_call_is_a_new_run() {
    let job = Job::new(2);
    let waits = "open('ready', 'a').write('1\\n')\nprint('waiting', flush=True)\ntime.sleep(1000)";
    let (code, shown) = at_prompt(&job, &serde_json::json!([["waiting", ""], ["waiting", "\u{3}"]]), waits);
    assert_eq!(code, 130, "{shown}");
    assert!(
        shown.contains(
            "relight: interactive: 2 nodes, no restarts, hang detection off (terminal). Ctrl-C stops, twice kills\n"
        ),
        "{shown}"
    );
    assert!(!job.scene.path("slurm/forced").exists(), "the terminal's Ctrl-C reached srun: {shown}");
    let (code, shown) = at_prompt(&job, &serde_json::json!([]), "sys.exit(int(os.environ['RANK']) * 3)");
    // No restart at a terminal.
    assert_eq!(code, 1, "{shown}");
    let ids: Vec<_> = job.sruns().iter().map(|call| call["env"]["RELIGHT_RUN_ID"].clone()).collect();
    assert_eq!(ids, ["7.0", "7.1"]);
    leftovers::assert_none(&job.scene);
}
