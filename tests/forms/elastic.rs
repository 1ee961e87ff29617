//! `--nnodes MIN:MAX`, from the line in the script to what ranks see.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::slurm::{Job, LONG};
use crate::support::relight::RelightCommand;
use crate::support::{leftovers, procfs};

/// Says who it is; the ranks of the first world never end.
const SAY: &str = "see = '{RANK}/{WORLD_SIZE} {GROUP_RANK}/{GROUP_WORLD_SIZE} {SLURM_NODEID}/{SLURM_NNODES} {SLURMD_NODENAME}'
open('ranks', 'a').write('{TORCHELASTIC_RESTART_COUNT}: '.format(**os.environ) + see.format(**os.environ) + '\\n')
if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': time.sleep(1000)";

fn line(job: &Job, nnodes: &str) -> RelightCommand {
    let mut command = job.relight();
    command.args(["run", "--lost-after", "6", "--nproc-per-node", "1"]);
    command.args(["--join-timeout", "8", "--nnodes", nnodes]).arg(job.script(SAY));
    command
}

/// Guardian, agent and ranks of the task with this number, at once, and no agent can be started again.
fn lose(job: &Job, task: usize) {
    let step = job.wait_for_step(1);
    job.leave("refuse", "1");
    let guardian = step["tasks"][task].as_i64().unwrap() as i32;
    for process in procfs::below(guardian).iter().map(|p| p.pid).chain([guardian]) {
        let _ = kill(Pid::from_raw(process), Signal::SIGKILL);
    }
}

#[test]
fn without_a_spare_the_world_shrinks_and_ranks_see_no_gap() {
    let job = Job::new(3);
    // More than the job has: all that it has.
    let mut running = line(&job, "2:8").spawn();
    job.wait_for_lines("ranks", 3, &mut running);
    lose(&job, 1);
    let ended = running.wait(LONG);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let text = fs::read_to_string(job.scene.path("exp/ranks")).unwrap();
    let mut ranks: Vec<&str> = text.lines().collect();
    ranks.sort_unstable();
    assert_eq!(ranks[..3], ["0: 0/3 0/3 0/3 n1", "0: 1/3 1/3 1/3 n2", "0: 2/3 2/3 2/3 n3"]);
    assert_eq!(ranks[ranks.len() - 2..], [ranks[3], ranks[4]], "{ranks:?}\n{}", ended.stderr);
    let seen: Vec<&str> = ranks[3..].iter().map(|rank| rank.split_once(": ").unwrap().1).collect();
    assert_eq!(seen, ["0/2 0/2 0/2 n1", "1/2 1/2 1/2 n3"], "{}", ended.stderr);
    let shrinks = "2 of 3 nodes: n2 missing; the world shrinks to 2 ranks";
    assert_eq!(ended.stderr.matches(shrinks).count(), 1, "{}", ended.stderr);
    leftovers::assert_none(&job.scene);
}

#[test]
fn below_min_the_code_is_1_and_the_sentence_says_why() {
    let job = Job::new(2);
    let mut running = line(&job, "2:8").spawn();
    job.wait_for_lines("ranks", 2, &mut running);
    lose(&job, 1);
    let ended = running.wait(LONG);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let last = "ended: waited 8.0 s for 2 nodes that can run ranks, 1 is there. Exit 1.";
    assert!(
        ended.stderr.contains(last) || ended.stderr.contains(&last.replace("8.0 s", "8 s")),
        "{}",
        ended.stderr
    );
    leftovers::assert_none(&job.scene);
}
