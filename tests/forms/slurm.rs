//! A job of a fake Slurm.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::support::relight::{RelightCommand, Running, Scene};
use crate::support::wait::wait_for;

/// More than anything here may take on a busy machine.
pub const LONG: Duration = Duration::from_secs(90);

/// A job of `nodes` nodes, n1 first, where the batch script runs.
pub struct Job {
    pub scene: Scene,
    nodes: u32,
}

impl Job {
    pub fn new(nodes: u32) -> Self {
        let scene = Scene::new();
        let bin = scene.path("bin");
        for folder in ["bin", "slurm", "slurm/steps", "slurm/nodes"] {
            fs::create_dir(scene.path(folder)).unwrap();
        }
        let fake = bin.join("fake_slurm.py");
        fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/forms/fake_slurm.py"), &fake).unwrap();
        fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["srun", "scancel", "scontrol", "squeue"] {
            symlink(&fake, bin.join(name)).unwrap();
        }
        Self { scene, nodes }
    }

    /// What the batch script of this job has in its environment.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let shown = |name: &str| self.scene.path(name).display().to_string();
        vec![
            ("PATH", format!("{}:{}", shown("bin"), std::env::var("PATH").unwrap())),
            ("FAKE_SLURM", shown("slurm")),
            ("SLURM_JOB_ID", "7".to_owned()),
            ("SLURM_JOB_NODELIST", format!("n[1-{}]", self.nodes)),
            ("SLURM_JOB_CPUS_PER_NODE", format!("4(x{})", self.nodes)),
            ("SLURM_SUBMIT_DIR", shown("exp")),
            ("SLURMD_NODENAME", "n1".to_owned()),
            ("SLURM_PROCID", "0".to_owned()),
            ("SLURM_NODEID", "0".to_owned()),
        ]
    }

    /// `relight`, as the batch script of this job starts it.
    pub fn relight(&self) -> RelightCommand {
        let mut command = RelightCommand::bare(&self.scene);
        for (name, value) in self.environment() {
            command.env(name, value);
        }
        command
    }

    /// `relight run` with ranks that do this in Python.
    pub fn run(&self, script: &str) -> RelightCommand {
        let mut command = self.relight();
        command.args(["run", "--lost-after", "6"]).arg(self.script(script));
        command
    }

    pub fn script(&self, text: &str) -> PathBuf {
        let path = self.scene.path("exp").join("train.py");
        fs::write(&path, format!("import os, signal, sys, time\n{text}\n")).unwrap();
        path
    }

    /// Leaves a word for the fake.
    pub fn leave(&self, name: &str, text: &str) {
        fs::write(self.scene.path("slurm").join(name), text).unwrap();
    }

    fn log(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.scene.path("slurm").join(name)).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Every call of srun.
    pub fn sruns(&self) -> Vec<Value> {
        self.log("srun.log")
    }

    /// Every call of scancel, as one text.
    pub fn scancels(&self) -> Vec<String> {
        self.calls("scancel.log")
    }

    /// Every call of squeue, as one text.
    pub fn squeues(&self) -> Vec<String> {
        self.calls("squeue.log")
    }

    fn calls(&self, log: &str) -> Vec<String> {
        let words = |call: &Value| {
            call.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        self.log(log).iter().map(|call| words(call).join(" ")).collect()
    }

    /// Waits until so many steps have tasks, and gives the pids of the newest one's.
    pub fn wait_for_step(&self, steps: usize) -> Value {
        wait_for("a step", LONG, || {
            let path = self.scene.path("slurm/steps").join((steps - 1).to_string());
            let text = fs::read_to_string(path).unwrap_or_default();
            serde_json::from_str(&text).map_err(|_| format!("no step {}", steps - 1))
        })
    }

    /// Waits until this file of the working directory has so many lines.
    pub fn wait_for_lines(&self, name: &str, lines: usize, running: &mut Running) -> Vec<String> {
        wait_for(&format!("{lines} lines in {name}"), LONG, || {
            let text = fs::read_to_string(self.scene.path("exp").join(name)).unwrap_or_default();
            let found: Vec<String> = text.lines().map(str::to_owned).collect();
            if found.len() >= lines {
                Ok(found)
            } else {
                Err(format!(
                    "{found:?}; running: {}; it says:\n{}",
                    running.is_running(),
                    fs::read_to_string(self.scene.path("stderr")).unwrap_or_default()
                ))
            }
        })
    }
}

/// An argument list as one text.
pub fn argv(call: &Value) -> String {
    call["argv"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect::<Vec<_>>().join(" ")
}
