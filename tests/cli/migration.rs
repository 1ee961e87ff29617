//! `docs/from-torchrun.md`: both lines of each pair start the same ranks, and what is refused is.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::home::Home;

/// What a user's shell would run: srun is played by a script that drops its options and names a step.
const SRUN: &str = "#!/bin/sh
while [ \"${1#-}\" != \"$1\" ]; do shift; done
SLURM_STEP_ID=0 SLURM_STEP_NODELIST=n[1-2] SLURM_STEP_TASKS_PER_NODE='1(x2)' SLURM_PROCID=0 SLURM_NODEID=0
export SLURM_STEP_ID SLURM_STEP_NODELIST SLURM_STEP_TASKS_PER_NODE SLURM_PROCID SLURM_NODEID
exec \"$@\"
";

/// Settings that may differ: names, what has no effect, and the default of restarts.
const MAY_DIFFER: [&str; 15] = [
    "run-id",
    "role",
    "log-line-prefix-template",
    "run-dir",
    "rdzv-backend",
    "rdzv-endpoint",
    "master-addr",
    "master-port",
    "node-rank",
    "rdzv-conf",
    "spares",
    "monitor-interval",
    "start-method",
    "signals-to-handle",
    "logs-specs",
];

fn pairs() -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/from-torchrun.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("## Line by line\n").expect("the section");
    let section = section.split("\n## ").next().unwrap();
    let blocks = section.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks
        .map(|block| {
            let lines: Vec<&str> = block.lines().collect();
            assert_eq!(lines.len(), 2, "a pair has two lines: {block}");
            (lines[0].to_owned(), lines[1].to_owned())
        })
        .collect()
}

fn plan(home: &Home, line: &str, in_job: bool) -> Value {
    let line = line
        .replace("python -m torch.distributed.run", "torchrun")
        .replace("torchrun ", "torchrun --dry-run --json ")
        .replace("relight run ", "relight run --dry-run --json ");
    assert!(line.contains("--dry-run"), "{line}");
    let mut command = home.command("/bin/sh", &["-c", &line]);
    let path = format!("{}:/usr/bin:/bin", home.path().join("bin").display());
    command.env("PATH", path).env("SLURMD_NODENAME", "n1");
    if in_job {
        command.env("SLURM_JOB_ID", "77").env("SLURM_JOB_NODELIST", "n[1-2]").env("SLURM_NNODES", "2");
        command.env("SLURM_SUBMIT_DIR", home.path()).env("SLURM_JOB_CPUS_PER_NODE", "4(x2)");
        // As slurmd gives it to a batch script.
        command.env("SLURM_PROCID", "0");
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("{line}\n{text}{complaint}"))
}

fn value<'a>(plan: &'a Value, name: &str) -> &'a Value {
    let rows = plan["settings"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name);
    &row.unwrap_or_else(|| panic!("no setting {name}"))["value"]
}

#[test]
fn both_lines_of_a_pair_start_the_same() {
    let home = Home::new();
    home.link("bin/torchrun");
    home.link("bin/relight");
    home.program("bin/srun");
    home.write("bin/srun", SRUN);
    home.program("exp/train.sh");
    let pairs = pairs();
    assert!(pairs.len() >= 9, "{} pairs", pairs.len());
    for (before, after) in pairs {
        let in_job = before.contains("srun ");
        let (old, new) = (plan(&home, &before, in_job), plan(&home, &after, in_job));
        for row in old["settings"].as_array().unwrap() {
            let name = row["name"].as_str().unwrap();
            let may = MAY_DIFFER.contains(&name) || (name == "max-restarts" && !before.contains("restarts"));
            assert!(may || row["value"] == *value(&new, name), "{name}:\n{before}\n{after}");
        }
        let ranks = |plan: &Value| plan["ranks"].as_array().unwrap().clone();
        let (old_ranks, new_ranks) = (ranks(&old), ranks(&new));
        assert_eq!(old_ranks.len(), new_ranks.len(), "{before}\n{after}");
        for (old, new) in old_ranks.iter().zip(&new_ranks) {
            assert_eq!(old["argv"], new["argv"], "{before}\n{after}");
            for name in
                ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "OMP_NUM_THREADS"]
            {
                assert_eq!(old["env"][name], new["env"][name], "{name}: {before}\n{after}");
            }
        }
        assert_eq!(new["without_effect"], serde_json::json!([]), "{after}");
    }
}

/// The rows of a table below a heading, as their cells.
fn table(heading: &str) -> Vec<Vec<String>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/from-torchrun.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once(&format!("## {heading}\n")).expect("the section");
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    rows.skip(1).map(|row| row.split(" | ").map(str::to_owned).collect()).collect()
}

/// What stands between backticks.
fn code(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// A row's words are typed, and its answer comes.
#[test]
fn what_is_refused_is_refused_with_that_answer() {
    let home = Home::new();
    for program in ["torchrun", "accelerate", "deepspeed", "ft_launcher", "srun", "mpirun", "python"] {
        home.program(&format!("bin/{program}"));
    }
    let rows = table("What is refused");
    assert!(rows.len() >= 8, "{rows:?}");
    let mut wrong = Vec::new();
    for row in &rows {
        let [typed, answer] = &row[..] else { panic!("{row:?}") };
        let answer = answer.split(" (").next().unwrap();
        let lines = code(typed);
        assert!(!lines.is_empty(), "{typed}");
        for line in lines {
            let words: Vec<&str> = match line.strip_prefix("relight ") {
                Some(words) => words.split(' ').collect(),
                None => vec!["run", line, "train.py"],
            };
            let mut command = home.relight(&words);
            if typed.contains("in a job of 4 nodes") {
                command.envs([
                    ("SLURM_JOB_ID", "77"),
                    ("SLURM_JOB_NODELIST", "n[1-4]"),
                    ("SLURM_NNODES", "4"),
                ]);
                command.envs([("SLURM_PROCID", "0"), ("SLURM_JOB_CPUS_PER_NODE", "4(x4)")]);
                command.env("SLURMD_NODENAME", "n1").env("SLURM_SUBMIT_DIR", home.path());
            }
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            let first = said.lines().next().unwrap_or_default();
            if output.status.code() != Some(2) || !first.contains(answer) || !output.stdout.is_empty() {
                wrong.push(format!("{line}: {:?} {said}", output.status.code()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
