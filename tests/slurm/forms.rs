//! The batch form: a supervisor outside the step looks after the agents.

use std::time::Duration;

use crate::cluster::Cluster;
use crate::job::{Job, SRUN, Training};
use crate::support::wait::wait_for;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const LONG: Training = Training { world: 4, steps: 200, step_time: "0.1", ckpt_every: 10, args: &[] };
const OPTIONS: &[&str] = &["--nproc-per-node=2", "--max-restarts=3"];

/// A batch script of one line, submitted and waited for.
fn batch<'a>(cluster: &'a Cluster, name: &'static str, nodes: u32, training: Training) -> Job<'a> {
    batch_with(cluster, name, nodes, OPTIONS, training)
}

fn batch_with<'a>(
    cluster: &'a Cluster,
    name: &'static str,
    nodes: u32,
    options: &[&str],
    training: Training,
) -> Job<'a> {
    batch_as(cluster, &[], name, nodes, options, training)
}

/// The same with options of the sandbox's `exec`.
fn batch_as<'a>(
    cluster: &'a Cluster,
    who: &[&str],
    name: &'static str,
    nodes: u32,
    options: &[&str],
    training: Training,
) -> Job<'a> {
    let line = Job::line(cluster, name, options, training).join(" ");
    let script = format!("#!/bin/bash\nexec {line}\n");
    let file = cluster.shared().join(format!("{name}.sbatch"));
    std::fs::write(&file, script).unwrap();
    let mut command = cluster.exec(who);
    let nodes = nodes.to_string();
    let out = format!("--output={name}.stdout");
    let err = format!("--error={name}.stderr");
    command
        .args(["sbatch", "--wait", "--no-kill", "-N", &nodes, "--ntasks-per-node=1", &out, &err])
        .arg(file);
    Job::spawn_quiet(cluster, name, command, training)
}

#[test]
fn an_agent_whose_guardian_is_killed_is_started_again_on_its_node() {
    let Some(cluster) = Cluster::up(2) else { return };
    let job = batch(&cluster, "again", 2, LONG);
    job.reached(0, 12);
    let guardian = cluster
        .ours_on(2)
        .into_iter()
        .find(|(_, line)| line.contains("relight run") && !line.contains("srun"))
        .expect("a guardian on the second node");
    cluster.signal_on(2, guardian.0, "KILL");
    let (ended, journal, _) = job.finishes(s(120), &[1, 2]);
    assert_eq!(journal.attempts.len(), 2, "{}", ended.stderr);
}

#[test]
fn the_batch_form_needs_no_rights() {
    let Some(cluster) = Cluster::with(2, &["--proctrack", "cgroup"]) else { return };
    let job = batch_as(&cluster, &["--user", "nobody"], "user", 2, OPTIONS, LONG);
    job.reached(0, 12);
    let guardian = cluster
        .ours_on(2)
        .into_iter()
        .find(|(_, line)| line.contains("relight run") && !line.contains("srun"))
        .expect("a guardian on the second node");
    cluster.signal_on(2, guardian.0, "KILL");
    let (ended, journal, _) = job.finishes(s(120), &[1, 2]);
    assert_eq!(journal.attempts.len(), 2, "{}", ended.stderr);
}

#[test]
fn a_node_that_crashes_and_boots_again_is_waited_for() {
    let Some(cluster) = Cluster::with(2, &["--lost", "120"]) else { return };
    let job = batch(&cluster, "boots", 2, LONG);
    job.reached(0, 12);
    cluster.ok(&["kill-node", "2"]);
    wait_for("the loss to be said", s(30), || {
        let shown = job.shown();
        if shown.contains("n2 is gone") { Ok(()) } else { Err(shown) }
    });
    cluster.ok(&["revive-node", "2"]);
    let (ended, journal, _) = job.finishes(s(150), &[1, 2]);
    assert_eq!(journal.attempts.len(), 2, "{}", ended.stderr);
}

#[test]
fn the_batch_host_is_lost_and_the_job_ends() {
    let Some(cluster) = Cluster::up(3) else { return };
    let training = Training { world: 6, steps: 3000, ..LONG };
    let job = batch(&cluster, "host", 3, training);
    job.reached(0, 5);
    cluster.ok(&["kill-node", "1"]);
    cluster.nothing_left([2, 3], s(40));
    // What the agents say goes through an srun that is dead, too; the job itself must not stay.
    wait_for("Slurm to have no job any more", s(60), || {
        let mut ask = cluster.exec(&[]);
        let said = ask.args(["squeue", "-h", "-t", "RUNNING,PENDING"]).output().unwrap();
        let jobs = String::from_utf8_lossy(&said.stdout).into_owned();
        if jobs.trim().is_empty() { Ok(()) } else { Err(format!("{jobs}\n{}", job.shown())) }
    });
    // What the agents said went through an srun that was dead. Who looks at the run reads it all the same.
    wait_for("the run to be called lost", s(180), || {
        let said = asked(&cluster, "status", "host");
        let all = [
            "no sign of life for ",
            "the run is lost or its nodes are cut off",
            "last word",
            "the run ends here",
        ];
        if all.iter().all(|text| said.contains(text)) { Ok(()) } else { Err(said) }
    });
    let events = asked(&cluster, "events", "host");
    // The one that ended the job may have ended the other with it.
    for node in ["n2", "n3"] {
        let said = format!(" {node} n1, which leads this run, is gone");
        assert!(events.lines().any(|line| line.contains(&said)), "{events}");
    }
    assert!(events.contains("ending job "), "{events}");
}

/// What a command of relight says on the login node about a run.
fn asked(cluster: &Cluster, command: &str, run: &str) -> String {
    let runs = cluster.shared().join("runs").display().to_string();
    let said = cluster.exec(&[]).args(["./relight", command, "--run-dir", &runs, run]).output().unwrap();
    format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr))
}

#[test]
fn a_rack_with_the_batch_host_is_lost_and_the_last_node_ends_the_job() {
    let Some(cluster) = Cluster::up(3) else { return };
    let training = Training { world: 6, steps: 3000, ..LONG };
    let job = batch(&cluster, "rack", 3, training);
    job.reached(0, 5);
    cluster.ok(&["kill-node", "1", "2"]);
    wait_for("Slurm to have no job any more", s(90), || {
        let mut ask = cluster.exec(&[]);
        let said = ask.args(["squeue", "-h", "-t", "RUNNING,PENDING"]).output().unwrap();
        let jobs = String::from_utf8_lossy(&said.stdout).into_owned();
        if jobs.trim().is_empty() { Ok(()) } else { Err(format!("{jobs}\n{}", job.shown())) }
    });
}

#[test]
fn a_node_that_was_cut_off_for_long_does_not_end_what_the_others_train() {
    let Some(cluster) = Cluster::up(3) else { return };
    let training = Training { steps: 700, ..LONG };
    let options = [OPTIONS, &["--nnodes=2", "--spares=1"]].concat();
    let job = batch_with(&cluster, "healthy", 3, &options, training);
    job.reached(0, 12);
    cluster.ok(&["power-off", "2"]);
    job.reached(1, 1);
    // Beyond the time after which the other side gives up; then its network is there again.
    wait_for("the side that was cut off to give up", s(60), || {
        let left = cluster.ours_on(2);
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    cluster.ok(&["power-on", "2"]);
    let (ended, journal, _) = job.finishes(s(150), &[1, 3]);
    assert_eq!(journal.attempts.len(), 2, "{}", ended.stderr);
}

/// Slurm's TERM goes to every process of a step under linuxproc, to the agents' guardians alone under cgroup: under both it is
/// a stop, and nobody's failure.
#[test]
fn a_job_that_is_cancelled_stops_and_blames_nobody() {
    for proctrack in ["linuxproc", "cgroup"] {
        let Some(cluster) = Cluster::with(2, &["--proctrack", proctrack]) else { return };
        let training = Training { steps: 3000, ..LONG };
        let by_srun: Vec<&str> = SRUN.iter().copied().chain(["-N2"]).collect();
        for form in ["srun", "batch"] {
            let job = match form {
                "srun" => Job::start(&cluster, "srun", &by_srun, OPTIONS, training),
                _ => batch(&cluster, "batch", 2, training),
            };
            job.reached(0, 5);
            let mut ask = cluster.exec(&[]);
            let jobs = ask.args(["squeue", "-h", "-t", "RUNNING", "-o", "%i"]).output().unwrap();
            let id = String::from_utf8_lossy(&jobs.stdout).trim().to_owned();
            let cancelled = cluster.exec(&[]).args(["scancel", &id]).status().unwrap();
            assert!(cancelled.success(), "{proctrack} {form}: scancel {id}");
            let shown = job.shown();
            let (_, journal, _) = job.wait(s(60));
            cluster.nothing_left([1, 2], s(20));
            let context = format!("{proctrack} {form}: {journal:#?}\n{shown}");
            assert_eq!(journal.attempts.len(), 1, "{context}");
            assert_eq!(journal.verdicts, [], "{context}");
        }
    }
}
