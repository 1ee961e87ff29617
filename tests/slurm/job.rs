//! A run of the trainer on a cluster, and what must be true of it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::cluster::{Cluster, example};
use crate::commit_log::CommitLog;
use crate::journal::Journal;
use crate::support::relight::{Ended, Running};
use crate::support::wait::wait_for;

/// What the trainer does.
#[derive(Clone, Copy)]
pub struct Training {
    /// Ranks of the world.
    pub world: u64,
    /// Steps.
    pub steps: u64,
    /// Seconds a step.
    pub step_time: &'static str,
    /// Steps between two checkpoints.
    pub ckpt_every: u64,
    /// More arguments.
    pub args: &'static [&'static str],
}

/// A run that was started.
pub struct Job<'a> {
    cluster: &'a Cluster,
    training: Training,
    running: Running,
    name: &'static str,
    runs: PathBuf,
}

/// `srun` as in the drop-in form, with what `relight slurm env` sets.
pub const SRUN: &[&str] = &[
    "srun",
    "--no-kill",
    "--kill-on-bad-exit=0",
    "--wait=0",
    "--mpi=none",
    "--ntasks-per-node=1",
    "--export=ALL",
];

impl<'a> Job<'a> {
    /// Starts `launcher… relight run options… toy_trainer.py …` on the login node, with the run id `name`.
    pub fn start(
        cluster: &'a Cluster,
        name: &'static str,
        launcher: &[&str],
        options: &[&str],
        training: Training,
    ) -> Self {
        let mut command = cluster.exec(&[]);
        command.args(launcher).args(Self::line(cluster, name, options, training));
        Self::spawn(cluster, name, command, training)
    }

    /// The same with run directories in another place.
    pub fn start_in(
        cluster: &'a Cluster,
        runs: &Path,
        name: &'static str,
        launcher: &[&str],
        options: &[&str],
        training: Training,
    ) -> Self {
        let mut line = Self::line(cluster, name, options, training);
        line[3] = runs.display().to_string();
        let mut command = cluster.exec(&[]);
        command.args(launcher).args(line);
        let mut job = Self::spawn(cluster, name, command, training);
        job.runs = runs.to_owned();
        job
    }

    /// The same as an ordinary user.
    pub fn start_as(
        cluster: &'a Cluster,
        user: &str,
        name: &'static str,
        launcher: &[&str],
        options: &[&str],
        training: Training,
    ) -> Self {
        let mut command = cluster.exec(&["--user", user]);
        command.args(launcher).args(Self::line(cluster, name, options, training));
        Self::spawn(cluster, name, command, training)
    }

    /// `./relight run …` with the trainer.
    pub fn line(cluster: &Cluster, name: &str, options: &[&str], training: Training) -> Vec<String> {
        let shared = cluster.shared();
        let place = |leaf: &str| shared.join(format!("{name}.{leaf}")).display().to_string();
        let mut line: Vec<String> = ["./relight", "run", "--run-dir"].map(str::to_owned).to_vec();
        line.extend([shared.join("runs").display().to_string(), "--run-id".into(), name.into()]);
        line.extend(["--lost-after".to_owned(), "6".to_owned()]);
        line.extend(options.iter().map(|o| (*o).to_owned()));
        line.push("toy_trainer.py".into());
        line.extend([format!("--steps={}", training.steps), "--step-time".into(), training.step_time.into()]);
        line.extend([format!("--ckpt-every={}", training.ckpt_every), "--ckpt-dir".into(), place("ckpt")]);
        line.extend(["--log".to_owned(), place("log")]);
        line.extend(training.args.iter().map(|a| (*a).to_owned()));
        line
    }

    /// Starts any command that runs the trainer with the files of `name`.
    pub fn spawn(cluster: &'a Cluster, name: &'static str, mut command: Command, training: Training) -> Self {
        let file = |leaf: &str| cluster.shared().join(format!("{name}.{leaf}"));
        let (out, err) = (file("stdout"), file("stderr"));
        let create = |path: &PathBuf| File::create(path).expect("a file of the shared folder");
        let child = command.stdout(create(&out)).stderr(create(&err)).spawn().expect("the script starts");
        let runs = cluster.shared().join("runs");
        Self { cluster, training, running: Running::of(child, out, err), name, runs }
    }

    /// The same where the command's own output says nothing: the job has files of its own.
    pub fn spawn_quiet(
        cluster: &'a Cluster,
        name: &'static str,
        mut command: Command,
        training: Training,
    ) -> Self {
        let file = |leaf: &str| cluster.shared().join(format!("{name}.{leaf}"));
        let (out, err) = (file("stdout"), file("stderr"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the script starts");
        let runs = cluster.shared().join("runs");
        Self { cluster, training, running: Running::of(child, out, err), name, runs }
    }

    /// What the trainer has told so far.
    pub fn log(&self) -> CommitLog {
        CommitLog::read_so_far(&self.file("log"))
    }

    fn file(&self, leaf: &str) -> PathBuf {
        self.cluster.shared().join(format!("{}.{leaf}", self.name))
    }

    /// What was shown so far.
    pub fn shown(&self) -> String {
        fs::read_to_string(self.file("stderr")).unwrap_or_default()
    }

    fn run_file(&self, name: &str) -> String {
        fs::read_to_string(self.runs.join(self.name).join(name)).unwrap_or_default()
    }

    /// How `status.json` says a node stands; empty while it says nothing of it.
    pub fn standing(&self, node: u32) -> String {
        let status: Value = serde_json::from_str(&self.run_file("status.json")).unwrap_or_default();
        let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
        let found = nodes.iter().find(|n| n["node"] == format!("n{node}"));
        found.and_then(|n| n["state"].as_str()).unwrap_or_default().to_owned()
    }

    /// Waits until `status.json` says so of a node.
    pub fn stands(&self, node: u32, state: &str, limit: Duration) {
        wait_for(&format!("n{node} to be called {state}"), limit, || match self.standing(node) {
            now if now == state => Ok(()),
            now => Err(format!("{now:?}\n{}", self.shown())),
        });
    }

    /// What the events of this name say, in order.
    pub fn events(&self, name: &str) -> Vec<Value> {
        events_of(&self.runs.join(self.name), name)
    }

    /// Waits until a rank of an attempt has done a step.
    pub fn reached(&self, attempt: u64, step: u64) {
        wait_for("a step", Duration::from_secs(60), || {
            let log = self.log();
            match log.reached(attempt, 0) {
                at if at >= step => Ok(()),
                at => Err(format!("attempt {attempt} is at step {at} of {step}\n{}", self.shown())),
            }
        });
    }

    /// The end, whatever it is.
    pub fn wait(self, limit: Duration) -> (Ended, Journal, CommitLog) {
        let (log, name, runs) = (self.file("log"), self.name, self.runs.clone());
        let ended = self.running.wait(limit);
        let journal = Journal::read(&runs, name);
        (ended, journal, CommitLog::read(&log))
    }

    /// The end of a run that must finish as if nothing had happened; `nodes` of the cluster are alive.
    pub fn finishes(self, limit: Duration, nodes: &[u32]) -> (Ended, Journal, CommitLog) {
        let done = self.finishes_but_for_slurm(limit, nodes);
        assert_eq!(done.0.code, 0, "exit code of srun\n{}", done.0.stderr);
        done
    }

    /// The same where a node is dead at the end: srun then has a code of its own.
    pub fn finishes_but_for_slurm(self, limit: Duration, nodes: &[u32]) -> (Ended, Journal, CommitLog) {
        let (cluster, training) = (self.cluster, self.training);
        let (ended, journal, log) = self.wait(limit);
        let context = format!("{journal:#?}\n{}\n{}", ended.stdout, ended.stderr);
        assert!(!context.contains("panicked at"), "{context}");
        let hash = golden(training);
        assert!(
            ended.stdout.contains(&format!("final hash {hash}")),
            "the final hash is not {hash}\n{context}"
        );
        log.check(training.world, training.steps, training.ckpt_every);
        assert_eq!(journal.end_code, Some(0), "{context}");
        cluster.nothing_left(nodes.to_vec(), Duration::from_secs(5));
        (ended, journal, log)
    }
}

/// What the events of this name say in a run directory, in order.
pub fn events_of(run: &Path, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(run.join("events.jsonl")).unwrap_or_default();
    let notes = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    notes.filter_map(|event| event["note"].get(name).cloned()).collect()
}

/// The kinds of the records in a run directory, in order.
pub fn kinds_of(run: &Path) -> Vec<String> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(run.join("journal")).unwrap().flatten().map(|e| e.path()).collect();
    files.sort();
    let kind = |file: &PathBuf| {
        let record: Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
        record["kind"].as_str().map(str::to_owned)
    };
    files.iter().filter_map(kind).collect()
}

fn golden(training: Training) -> String {
    let mut command = Command::new("python3");
    command
        .arg(example("toy_trainer.py"))
        .arg("--print-hash-only")
        .arg(format!("--steps={}", training.steps));
    command.args(training.args.iter().filter(|arg| arg.starts_with("--global-batch=")));
    let output = command.arg(format!("--world={}", training.world)).output().expect("python3 starts");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
