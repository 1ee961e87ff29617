//! What is refused, and what is said once.

use crate::slurm::{Job, LONG};
use crate::support::leftovers;
use crate::support::relight::Ended;

fn refused(job: &Job, ended: &Ended) -> String {
    assert_eq!((ended.code, ended.stdout.as_str()), (2, ""), "{}", ended.stderr);
    assert!(job.sruns().is_empty());
    leftovers::assert_none(&job.scene);
    ended.stderr.clone()
}

#[test]
fn lines_that_cannot_be_supervised() {
    let job = Job::new(2);
    let script = job.script("");
    let script = script.to_str().unwrap();
    let table: [(&[&str], &str); 7] = [
        (
            &["-n", "8", "--", "relight", "run", script],
            "relight: error: relight starts one agent per node, with all of its cores and GPUs: leave -n 8 out\n\
             relight: hint: ranks per node: relight run --nproc-per-node N\n",
        ),
        (
            &["--mpi=pmix", "relight", "run", script],
            "relight: error: --mpi=pmix cannot be: the ranks are started by relight, not by srun\n\
             relight: hint: leave --mpi=pmix out\n",
        ),
        (
            &["-N2"],
            "relight: error: there is no command for srun to start\n\
             relight: hint: relight srun [options of srun] -- relight run SCRIPT\n",
        ),
        (
            &["-N2", "python", script],
            "relight: error: relight srun cannot tell where the options of srun end: `--` is missing before `relight run`\n\
             relight: hint: relight srun [options of srun] -- relight run SCRIPT\n",
        ),
        (
            &["--", "python", script],
            "relight: error: relight srun starts `relight run …`, not python\n\
             relight: hint: relight srun [options of srun] -- relight run SCRIPT\n",
        ),
        (
            &["--", "relight", "status"],
            "relight: error: relight srun starts `relight run …`, not relight status\n\
             relight: hint: relight srun [options of srun] -- relight run SCRIPT\n",
        ),
        (
            &["-N3", "--", "relight", "run", script],
            "relight: error: the job has 2 nodes for srun, 3 are wanted\n",
        ),
    ];
    for (words, expected) in table {
        let ended = job.relight().arg("srun").args(words).spawn().wait(LONG);
        assert_eq!(refused(&job, &ended), expected, "{words:?}");
    }
}

#[test]
fn a_program_that_is_not_there_is_said_once_and_nothing_is_started() {
    let job = Job::new(2);
    let ended = job.relight().args(["run", "nowhere.py"]).spawn().wait(LONG);
    let said = refused(&job, &ended);
    assert!(said.starts_with("relight: error: ") && said.contains("nowhere.py"), "{said}");
    assert!(!job.scene.path("exp/.relight").exists());
}

#[test]
fn several_agents_on_a_node_say_so_once() {
    let job = Job::new(2);
    let script = job.script("");
    let task = |no: u32, local: u32| {
        let mut command = job.relight();
        command
            .env("SLURM_STEP_ID", "0")
            .env("SLURM_STEP_NODELIST", "n[1-2]")
            .env("SLURM_STEP_TASKS_PER_NODE", "8(x2)")
            .env("SLURM_PROCID", no.to_string())
            .env("SLURM_LOCALID", local.to_string());
        let ended = command.arg("run").arg(&script).spawn().wait(LONG);
        refused(&job, &ended)
    };
    assert_eq!(
        task(0, 0),
        "relight: error: 8 agents on n1. Use `srun --ntasks-per-node=1 relight run …` or drop srun\n"
    );
    assert_eq!(task(5, 5), "");
    assert_eq!(task(8, 0), "");
}

#[test]
fn relight_srun_needs_a_job() {
    let job = Job::new(1);
    let mut command = job.relight();
    command.env("SLURM_JOB_ID", "").args(["srun", "--", "relight", "run", "x.py"]);
    let said = refused(&job, &command.spawn().wait(LONG));
    assert!(said.starts_with("relight: error: there is no job here: relight srun runs in one\n"), "{said}");
    let mut command = job.relight();
    command.env("SLURM_STEP_ID", "3").args(["srun", "--", "relight", "run", "x.py"]);
    let said = refused(&job, &command.spawn().wait(LONG));
    assert!(said.contains("this is a step of srun"), "{said}");
}

#[test]
fn what_batch_scripts_need_is_printed() {
    let job = Job::new(1);
    let print = |words: &[&str]| {
        let ended = job.relight().arg("slurm").args(words).spawn().wait(LONG);
        (ended.code, ended.stdout, ended.stderr)
    };
    let (code, out, _) = print(&["env"]);
    assert_eq!(code, 0);
    assert!(out.contains("export SLURM_NO_KILL=set\n"), "{out}");
    let (code, out, _) = print(&["template"]);
    assert_eq!(code, 0);
    for line in out.lines() {
        let (name, _) = line.split_once(' ').unwrap();
        let (code, text, _) = print(&["template", name]);
        assert_eq!(code, 0);
        assert!(text.starts_with("#!/bin/bash\n") && text.contains("relight"), "{name}");
    }
    let (code, _, err) = print(&["template", "nothing-like-it"]);
    assert_eq!(
        (code, err.as_str()),
        (
            2,
            "relight: error: there is no template 'nothing-like-it'\nrelight: hint: relight slurm template lists them\n"
        )
    );
}
