//! `docs/from-torchrun.md`: both lines of each pair start the same ranks.

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
