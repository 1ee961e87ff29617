//! The stories of `examples/` on a cluster, with their whole consoles as golden files.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::cluster::{Cluster, example};
use crate::commit_log::CommitLog;
use crate::support::wait::wait_for;

const LIMIT: Duration = Duration::from_secs(120);

/// A batch job of an example.
struct Batch<'a> {
    cluster: &'a Cluster,
    id: String,
    name: &'static str,
}

impl<'a> Batch<'a> {
    fn submit(cluster: &'a Cluster, name: &'static str) -> Self {
        let folder = cluster.shared().join("examples");
        fs::create_dir_all(&folder).unwrap();
        for file in ["toy_trainer.py".to_owned(), format!("{name}.sbatch")] {
            fs::copy(example(&file), folder.join(&file)).unwrap();
        }
        let path = format!(
            "{}:{}:/usr/local/bin:/usr/bin:/bin",
            cluster.shared().display(),
            cluster.python().display()
        );
        let mut sbatch = cluster.exec(&[]);
        sbatch.env("PATH", path).args(["sbatch", "--parsable", &format!("examples/{name}.sbatch")]);
        let said = sbatch.output().unwrap();
        assert!(said.status.success(), "{said:?}");
        Self { cluster, id: String::from_utf8_lossy(&said.stdout).trim().to_owned(), name }
    }

    fn file(&self, kind: &str) -> PathBuf {
        self.cluster.shared().join(format!("{kind}-{}", self.id))
    }

    fn output(&self) -> String {
        let path = self.cluster.shared().join(format!("{}-{}.out", self.name, self.id));
        fs::read_to_string(path).unwrap_or_default()
    }

    fn reached(&self, attempt: u64, step: u64) {
        wait_for("a step", LIMIT, || match CommitLog::read_so_far(&self.file("log")).reached(attempt, 0) {
            at if at >= step => Ok(()),
            at => Err(format!("attempt {attempt} is at step {at}\n{}", self.output())),
        });
    }

    /// Waits for the end of the job: its exit code as Slurm has it (`0:0`) and all that it showed.
    fn ends(&self) -> (String, String) {
        let code = wait_for("the job to end", LIMIT, || {
            let mut ask = self.cluster.exec(&[]);
            let said = ask.args(["scontrol", "show", "job", "-o", &self.id]).output().unwrap();
            let text = String::from_utf8_lossy(&said.stdout).into_owned();
            let field = |name: &str| {
                text.split_whitespace()
                    .find_map(|word| word.strip_prefix(name))
                    .unwrap_or_default()
                    .to_owned()
            };
            match field("JobState=").as_str() {
                "COMPLETED" | "FAILED" | "CANCELLED" | "NODE_FAIL" | "TIMEOUT" => Ok(field("ExitCode=")),
                state => Err(format!("{state}\n{}", self.output())),
            }
        });
        // What srun says of its own depends on how soon it notices what.
        let lines = self.output();
        let shown = lines.lines().filter(|line| !line.starts_with("srun: "));
        (code, shown.map(|line| format!("{line}\n")).collect())
    }
}

fn golden(cluster: &Cluster, batch: &Batch<'_>, name: &str, text: &str) {
    let escape = |text: &str| text.replace('.', "\\.");
    let shared = escape(&cluster.shared().display().to_string());
    let python = escape(&cluster.python().display().to_string());
    let run = format!(r"\b{}\.(\d+)", batch.id);
    let filters = vec![
        (shared.as_str(), "[SHARED]"),
        (python.as_str(), "[PYTHON]"),
        (r"python3(\.\d+)?\b", "python3"),
        (run.as_str(), "[JOB].$1"),
        (r"\d\d:\d\d:\d\d", "[TIME]"),
        (r"lost (\d+ min )?\d+(\.\d+)? s", "lost [SPAN]"),
        (r"no sign for \d+(\.\d+)? s", "no sign for [SPAN]"),
    ];
    insta::with_settings!({ filters => filters, prepend_module_to_snapshot => false, omit_expression => true, snapshot_path => "snapshots" }, {
        insta::assert_snapshot!(name, text);
    });
}

#[test]
fn s1_a_rank_dies() {
    let Some(cluster) = Cluster::up(2) else { return };
    let batch = Batch::submit(&cluster, "rank_dies");
    let (code, shown) = batch.ends();
    assert_eq!(code, "0:0", "{shown}");
    golden(&cluster, &batch, "s1_nodes", &shown);
    cluster.nothing_left([1, 2], Duration::from_secs(5));
}

#[test]
fn s2_a_node_loses_power_and_a_spare_steps_in() {
    let Some(cluster) = Cluster::up(4) else { return };
    let batch = Batch::submit(&cluster, "node_lost");
    batch.reached(0, 15);
    cluster.ok(&["power-off", "3"]);
    let (code, shown) = batch.ends();
    assert_eq!(code, "0:0", "{shown}");
    golden(&cluster, &batch, "s2_nodes", &shown);
}
