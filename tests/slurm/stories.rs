//! The stories of `examples/` on a cluster, with their whole consoles as golden files.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cluster::{Cluster, example};
use crate::commit_log::CommitLog;
use crate::support::jax;
use crate::support::relight::Running;
use crate::support::wait::wait_for;

const LIMIT: Duration = Duration::from_secs(120);

/// A batch job of an example.
struct Batch<'a> {
    cluster: &'a Cluster,
    id: String,
    name: &'static str,
}

impl<'a> Batch<'a> {
    /// Submits `examples/NAME.sbatch`.
    fn submit(cluster: &'a Cluster, name: &'static str) -> Self {
        Self::submit_with(cluster, "examples", name, &[])
    }

    /// Submits `FOLDER/NAME.sbatch`, as it is in the repository, from the shared folder.
    fn submit_with(cluster: &'a Cluster, folder: &str, name: &'static str, env: &[(&str, &str)]) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for file in ["examples/toy_trainer.py".to_owned(), format!("{folder}/{name}.sbatch")] {
            let copy = cluster.shared().join(&file);
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::copy(root.join(&file), copy).unwrap();
        }
        let mut sbatch = cluster.exec(&[]);
        sbatch.env("PATH", path(cluster, "")).envs(env.iter().copied());
        sbatch.args([
            "sbatch",
            "--parsable",
            &format!("--job-name={name}"),
            &format!("{folder}/{name}.sbatch"),
        ]);
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

/// PATH with relight and a real interpreter in it, `first` before all.
fn path(cluster: &Cluster, first: &str) -> String {
    let (shared, python) = (cluster.shared(), cluster.python().display().to_string());
    format!("{first}{}:{python}:/usr/local/bin:/usr/bin:/bin", shared.display())
}

/// Compares what people read with a golden file.
pub fn golden(cluster: &Cluster, job: &str, name: &str, text: &str) {
    let escape = |text: &str| text.replace('.', "\\.");
    let shared = escape(&cluster.shared().display().to_string());
    let python = escape(&cluster.python().display().to_string());
    let run = format!(r"(run |status |why |logs |/){job}\.(\d+)");
    let filters = vec![
        (shared.as_str(), "[SHARED]"),
        (python.as_str(), "[PYTHON]"),
        (r"python3(\.\d+)?\b", "python3"),
        (run.as_str(), "$1[JOB].$2"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}", "[WHEN]"),
        (r"\d\d:\d\d:\d\d", "[TIME]"),
        (r"pid \d+", "pid [PID]"),
        (r"(gone after|again after|ran  +) \d+(\.\d+)? s", "$1 [SPAN]"),
        (r#"(toy_trainer\.py(?::|", line ))\d+"#, "$1[LINE]"),
        (r"lost (\d+ min )?\d+(\.\d+)? s", "lost [SPAN]"),
        (r"no sign for \d+(\.\d+)? s", "no sign for [SPAN]"),
        (r"(stopped|SIGKILL) in \d+(\.\d+)? s", "$1 in [SPAN]"),
        (r"relight \d+\.\d+\.\d+\b", "relight [VERSION]"),
        // The cores of a node's share for each rank.
        (r"OMP_NUM_THREADS=\d+", "OMP_NUM_THREADS=[CORES]"),
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
    golden(&cluster, &batch.id, "s1_nodes", &shown);
    // From any shell of the user, by the id that the first lines named.
    for (command, says) in [("status", "finished"), ("why", "rank 3 (n2)"), ("events", "n2")] {
        let mut look = cluster.exec(&["--cwd", "/"]);
        let relight = cluster.shared().join("relight");
        let said = look.arg(relight).args([command, &format!("{}.0", batch.id)]).output().unwrap();
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.status.success() && text.contains(says), "{command}: {said:?}");
        println!("{text}");
    }
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
    golden(&cluster, &batch.id, "s2_nodes", &shown);
}

/// Plays a container runtime: takes its options from srun's line, and hides Slurm's commands from what runs inside.
const RUNTIME: &str = r#"#!/bin/bash
options=() inside=""
for word; do
    case $word in
        --container-image=*) inside=1 ;;
        --container-mounts=*) mounts=${word#*=} ;;
        *) options+=("$word") ;;
    esac
done
[ -n "$inside" ] || exec /usr/bin/srun "$@"
export HIDDEN=$mounts RUNTIME=$0
for ((at = 0; at < ${#options[@]}; at++)); do
    case ${options[at]} in */relight | relight) break ;; esac
done
exec /usr/bin/srun "${options[@]:0:at}" "$(dirname "$0")/inside" "${options[@]:at}"
"#;

const INSIDE: &str = r#"#!/bin/bash
exec unshare -m /bin/bash -c '
    for name in srun sbatch salloc scontrol squeue scancel sinfo; do mount --bind /dev/null /usr/bin/$name; done
    mount --bind /dev/null "$RUNTIME"
    [ "$HIDDEN" != nothing ] || mount -t tmpfs none "$SLURM_SUBMIT_DIR/.relight"
    exec "$@"' inside "$@"
"#;

fn runtime(cluster: &Cluster) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = cluster.shared().join("runtime");
    fs::create_dir(&folder).unwrap();
    for (name, text) in [("srun", RUNTIME), ("inside", INSIDE)] {
        fs::write(folder.join(name), text).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    path(cluster, &format!("{}:", folder.display()))
}

#[test]
fn s6_agents_in_a_container_without_slurms_commands() {
    let Some(cluster) = Cluster::up(2) else { return };
    let path = runtime(&cluster);
    let batch = Batch::submit_with(&cluster, "examples", "container", &[("PATH", &path)]);
    let (code, shown) = batch.ends();
    assert_eq!(code, "0:0", "{shown}");
    // The supervisor says it when it has found the coordinator, which talks already.
    let inside = |line: &&str| line.contains("agents run inside llm.sqsh (relight ");
    assert_eq!(shown.lines().filter(inside).count(), 1, "{shown}");
    let rest: String = shown.lines().filter(|line| !inside(line)).map(|line| format!("{line}\n")).collect();
    golden(&cluster, &batch.id, "s6_nodes", &rest);
    let blind = [("PATH", path.as_str()), ("MOUNTS", "nothing")];
    let batch = Batch::submit_with(&cluster, "examples", "container", &blind);
    let (code, shown) = batch.ends();
    assert_eq!(code, "2:0", "{shown}");
    golden(&cluster, &batch.id, "s6_not_mounted", &shown);
    cluster.nothing_left([1, 2], Duration::from_secs(5));
}

#[test]
fn s7_a_header_with_one_task_per_gpu() {
    let Some(cluster) = Cluster::with(2, &["--cpus", "8"]) else { return };
    let batch = Batch::submit(&cluster, "task_per_gpu");
    let (code, shown) = batch.ends();
    assert_eq!(code, "0:0", "{shown}");
    // What the header asks for a task.
    assert!(shown.contains(", OMP_NUM_THREADS=1\n"), "{shown}");
    golden(&cluster, &batch.id, "s7_nodes", &shown);
    let mut srun = cluster.exec(&[]);
    srun.env("PATH", path(&cluster, ""));
    srun.args(["srun", "-N2", "--ntasks-per-node=8", "--overcommit", "relight", "run", "toy_trainer.py"]);
    let said = srun.output().unwrap();
    let shown = String::from_utf8_lossy(&said.stderr).into_owned();
    assert_eq!(said.status.code(), Some(2), "{shown}");
    let ours: String = shown.lines().filter(|l| l.starts_with("relight")).map(|l| format!("{l}\n")).collect();
    golden(&cluster, "0", "s7_several_agents", &ours);
}

/// Joins as its manual says for Slurm, with no argument at all, and adds a number up over all ranks.
const JAX: &str = "import os, pathlib
os.environ['JAX_PLATFORMS'] = 'cpu'
os.environ['JAX_CPU_COLLECTIVES_IMPLEMENTATION'] = 'gloo'
import jax
from jax.experimental import multihost_utils
jax.distributed.initialize()
told = os.environ['RANK'], os.environ['WORLD_SIZE']
assert told == (str(jax.process_index()), str(jax.process_count())), told
ranks = multihost_utils.process_allgather(jax.numpy.array([jax.process_index()]))
pathlib.Path('jax-' + told[0]).write_text(str([int(rank) for rank in ranks.ravel()]))
jax.distributed.shutdown()";

#[test]
fn s7_jax_finds_its_ranks_without_arguments() {
    let Some(python) = jax::python() else { return };
    let Some(cluster) = Cluster::with(2, &["--cpus", "8"]) else { return };
    let shared = cluster.shared();
    fs::write(shared.join("train.py"), JAX).unwrap();
    let script = "#!/bin/bash\nexec relight run train.py\n";
    fs::write(shared.join("jax.sbatch"), script).unwrap();
    let mut sbatch = cluster.exec(&[]);
    sbatch.env("PATH", path(&cluster, "")).env("PYTHON_EXEC", python);
    sbatch.args(["sbatch", "--wait", "-N2", "--ntasks-per-node=2", "--output=jax.out", "jax.sbatch"]);
    let said = sbatch.output().unwrap();
    let shown = fs::read_to_string(shared.join("jax.out")).unwrap_or_default();
    assert!(said.status.success(), "{said:?}\n{shown}");
    for rank in 0..4 {
        assert_eq!(fs::read_to_string(shared.join(format!("jax-{rank}"))).unwrap(), "[0, 1, 2, 3]");
    }
    cluster.nothing_left([1, 2], Duration::from_secs(5));
}

#[test]
fn s8_interactive_on_two_nodes() {
    let Some(cluster) = Cluster::up(2) else { return };
    for name in ["interactive.sh", "toy_trainer.py"] {
        fs::create_dir_all(cluster.shared().join("examples")).unwrap();
        fs::copy(example(name), cluster.shared().join("examples").join(name)).unwrap();
    }
    const TERMINAL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stories/terminal.py");
    let script = cluster.exec(&[]);
    let mut command = std::process::Command::new("python3");
    let steps = serde_json::json!([["step 3/", "\u{3}"]]);
    command.args([TERMINAL, &steps.to_string()]).arg(script.get_program()).args(script.get_args());
    command.current_dir(cluster.shared()).env("PATH", path(&cluster, "")).arg("examples/interactive.sh");
    let (out, err) = (cluster.shared().join("terminal"), cluster.shared().join("terminal.err"));
    let file = |path: &Path| fs::File::create(path).unwrap();
    let child = command.stdout(file(&out)).stderr(file(&err)).spawn().unwrap();
    let ended = Running::of(child, out, err).wait(LIMIT);
    let shown = ended.stdout.replace('\r', "");
    assert_eq!(ended.code, 130, "{shown}");
    // When the terminal shows the key that was pressed is its own business.
    let ours = shown.lines().filter(|l| l.contains("relight:")).map(|l| l.trim_start_matches("^C"));
    let ours: String = ours.map(|line| format!("{line}\n")).collect();
    golden(&cluster, "1", "s8_nodes", &ours);
    cluster.nothing_left([1, 2], Duration::from_secs(5));
}

#[test]
fn every_template_runs_as_it_stands() {
    let Some(cluster) = Cluster::up(4) else { return };
    let path = runtime(&cluster);
    let env = [("PATH", path.as_str()), ("TRAIN_ARGS", "--steps=10 --step-time=0.02")];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("slurm");
    let mut ran = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Some(name) = name.strip_suffix(".sbatch") else { continue };
        let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
        let (code, shown) = Batch::submit_with(&cluster, "slurm", name, &env).ends();
        assert_eq!(code, "0:0", "{name}: {shown}");
        assert!(shown.contains("final hash") && shown.contains("finished"), "{name}: {shown}");
        ran += 1;
    }
    assert!(ran >= 6, "{ran} templates");
    cluster.nothing_left(1..=4, Duration::from_secs(5));
}

/// Writes what a rank sees of Slurm to a file of its own.
const SEES: &str = "import json, os, pathlib
view = {name: value for name, value in os.environ.items() if name.startswith(('SLURM_', 'PMI'))}
pathlib.Path('sees-' + os.environ['RANK']).write_text(json.dumps(view))";

/// The names and values of a rank, or of a task of a real `srun`.
fn seen(cluster: &Cluster, rank: u32) -> Vec<(String, String)> {
    let text = fs::read_to_string(cluster.shared().join(format!("sees-{rank}"))).unwrap();
    let view: std::collections::BTreeMap<String, String> = serde_json::from_str(&text).unwrap();
    view.into_iter().collect()
}

/// A rank's view of Slurm is compared with that of a task of `srun python`, name by name; the run lies beside the output.
#[test]
fn s7_ranks_see_what_tasks_of_srun_see() {
    let Some(cluster) = Cluster::with(2, &["--cpus", "8"]) else { return };
    let shared = cluster.shared();
    fs::create_dir(shared.join("job logs")).unwrap();
    fs::write(shared.join("sees.py"), SEES).unwrap();
    fs::write(shared.join("plain.sh"), "#!/bin/bash\nRANK=$SLURM_PROCID exec python3 sees.py\n").unwrap();
    let submit = |name: &str, line: &str| {
        let script = shared.join(format!("{name}.sbatch"));
        fs::write(&script, format!("#!/bin/bash\n{line}\n")).unwrap();
        let mut sbatch = cluster.exec(&[]);
        sbatch.env("PATH", path(&cluster, "")).args(["sbatch", "--wait", "--parsable", "-N2"]);
        sbatch.args([
            "--ntasks-per-node=4",
            "--cpus-per-task=2",
            &format!("--output=job logs/{name}-%j.out"),
        ]);
        let said = sbatch.arg(script).output().unwrap();
        let id = String::from_utf8_lossy(&said.stdout).trim().to_owned();
        let shown = fs::read_to_string(shared.join(format!("job logs/{name}-{id}.out"))).unwrap_or_default();
        assert!(said.status.success(), "{said:?}\n{shown}");
        (id, (0..8).map(|rank| seen(&cluster, rank)).collect::<Vec<_>>())
    };
    let (_, plain) = submit("plain", "srun --cpus-per-task=2 bash plain.sh");
    // Whatever becomes of the line's own output.
    let (id, ranks) = submit("ours", "exec relight run sees.py > other.out 2>&1");
    assert!(shared.join(format!("job logs/.relight/{id}.0/run.json")).is_file());
    assert!(!shared.join(".relight").exists());
    // Of another job, of another step, of the agent's own srun, or of the process itself.
    let differs = |name: &str| {
        let own = ["SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NAME", "SLURM_STEP_ID", "SLURM_STEPID"];
        let process =
            ["SLURM_TASK_PID", "SLURM_SCRIPT_CONTEXT", "SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME"];
        let srun = ["SLURM_SRUN_COMM_PORT", "SLURM_STEP_LAUNCHER_PORT", "SLURM_DISTRIBUTION"];
        let bound = ["SLURM_CPU_BIND", "SLURM_MPI_TYPE", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_UMASK"];
        own.iter().chain(&process).chain(&srun).any(|known| name == *known)
            || bound.iter().any(|known| name.starts_with(known))
            || name.starts_with("PMI")
    };
    for (rank, (task, ours)) in plain.iter().zip(&ranks).enumerate() {
        let of = |view: &[(String, String)]| -> Vec<(String, String)> {
            view.iter().filter(|(name, _)| !differs(name)).cloned().collect()
        };
        let (task, ours) = (of(task), of(ours));
        let missing: Vec<_> = task.iter().filter(|pair| !ours.contains(pair)).collect();
        assert!(missing.is_empty(), "rank {rank} does not see {missing:?}; it sees {ours:?}");
        assert!(task.iter().any(|(name, value)| name == "SLURM_PROCID" && *value == rank.to_string()));
    }
    assert!(ranks.iter().flatten().all(|(name, _)| !name.starts_with("PMI")));
    cluster.nothing_left([1, 2], Duration::from_secs(5));
}
