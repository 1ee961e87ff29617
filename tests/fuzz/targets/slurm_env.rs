//! Slurm's variables, one `NAME=value` a line, and the words of an srun line.

use std::collections::BTreeMap;

use relight::domain::slurm_env::SlurmPlace;
use relight::slurm::line::SrunLine;

use crate::engine::{Target, behaviour, shape};

pub const TARGET: Target = Target {
    name: "slurm_env",
    seeds: || {
        let step = "SLURM_JOB_ID=7\nSLURM_STEP_ID=0\nSLURM_NODEID=1\nSLURM_PROCID=1\nSLURM_LOCALID=0\nSLURMD_NODENAME=n2\n\
                    SLURM_STEP_NODELIST=n[1-2]\nSLURM_JOB_NODELIST=n[1-4]\nSLURM_TASKS_PER_NODE=8(x2)\n\
                    SLURM_STEP_TASKS_PER_NODE=1(x2)\nSLURM_JOB_CPUS_PER_NODE=96(x2),48\nSLURM_GPUS_ON_NODE=8\n\
                    SLURM_RESTART_COUNT=1\nSLURM_HET_SIZE=2\nSLURM_LAUNCH_NODE_IPADDR=10.0.0.9\n";
        let supervised = "SLURM_JOB_ID=7\nRELIGHT_SUPERVISED=1\nRELIGHT_NODELIST=n[1-2]\nRELIGHT_LAUNCH=w\nRELIGHT_HEADER_TASKS=8\n\
                          RELIGHT_SUPERVISOR_PORT=20001\nSLURMD_NODENAME=n1\n";
        let words = "srun\n-N\n2\n--ntasks-per-node=1\n-w\nn[1-2]\n--\nrelight\nrun\n";
        [step, supervised, words].map(|text| text.as_bytes().to_vec()).to_vec()
    },
    run,
    longest: 16 << 10,
    // A list of nodes may say 65,536 of them in a few bytes.
    heap: |length| 64 * length + (64 << 20),
    words: &[
        b"SLURM_STEP_ID=4294967290\n",
        b"SLURM_JOB_ID=",
        b"SLURM_NTASKS_PER_NODE=",
        b"(x4294967295)",
        b"RELIGHT_ATTEMPT=0\n",
        b"--nodelist=",
        b"--exclusive\n",
        b"-n\n",
    ],
};

fn run(input: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(input);
    let vars: BTreeMap<String, String> =
        text.lines().filter_map(|line| line.split_once('=')).map(|(k, v)| (k.into(), v.into())).collect();
    let place = match SlurmPlace::read(&vars) {
        Err(error) => shape(error),
        Ok(None) => 0,
        Ok(Some(place)) => {
            assert!(place.tasks_here > 0 && place.components > 0, "{place:?}");
            behaviour((
                place.form as u8,
                place.nodes.len(),
                place.index,
                place.header_tasks,
                place.cpus,
                place.gpus,
            ))
        }
    };
    let words: Vec<String> = text.lines().map(str::to_owned).collect();
    let line = match SrunLine::parse(&words) {
        Err(error) => shape(error),
        Ok(line) => behaviour(line.choose(&[]).is_ok()),
    };
    behaviour((place, line))
}
