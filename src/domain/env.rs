//! Every environment variable that relight reads or sets. Nothing else in the program spells one out; the
//! table in `docs/environment.md` is made from [`ALL`].

pub mod gpus;
pub mod rank;
pub mod slurm_view;
pub mod threads;
pub mod virtual_rank;

use std::fmt::Write as _;

pub use gpus::GpuVisibility;
pub use rank::{RankEnvError, RankPlace, rank_argv, rank_environment, substitute};
pub use slurm_view::SlurmEnv;
pub use threads::{Cpus, threads};

/// Who writes a variable and who reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// relight reads it.
    Reads,
    /// relight sets it for every rank.
    Sets,
    /// Both.
    Both,
}

/// One documented environment variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvVar {
    /// Its name.
    pub name: &'static str,
    /// What it means, in one or two sentences.
    pub doc: &'static str,
    /// Who writes and who reads it.
    pub direction: Direction,
}

macro_rules! variables {
    ($($ident:ident = $direction:ident $name:literal: $doc:literal;)*) => {
        $(
            #[doc = $doc]
            pub const $ident: EnvVar =
                EnvVar { name: $name, doc: $doc, direction: Direction::$direction };
        )*
        /// All of them, in the order of the documentation.
        pub const ALL: &[EnvVar] = &[$($ident),*];
    };
}

variables! {
    // What a rank is told: torchrun's names.
    RANK = Sets "RANK": "Global rank: ranks of lower group ranks first, then by local rank.";
    LOCAL_RANK = Sets "LOCAL_RANK": "Rank within the node, from 0; 0 for all with `--virtual-local-rank`.";
    WORLD_SIZE = Sets "WORLD_SIZE": "Ranks of the whole world.";
    LOCAL_WORLD_SIZE = Sets "LOCAL_WORLD_SIZE": "Ranks of this node.";
    GROUP_RANK = Sets "GROUP_RANK": "Index of the node in the world, dense.";
    GROUP_WORLD_SIZE = Sets "GROUP_WORLD_SIZE": "Nodes of the world.";
    ROLE_RANK = Sets "ROLE_RANK": "Rank among the ranks of the same role, in the order of `RANK`.";
    ROLE_WORLD_SIZE = Sets "ROLE_WORLD_SIZE": "Ranks of the same role.";
    ROLE_NAME = Sets "ROLE_NAME": "The value of `--role` on the node.";
    MASTER_ADDR = Sets "MASTER_ADDR": "Where the store of `env://` is hosted.";
    MASTER_PORT = Sets "MASTER_PORT": "Its port, fresh for every attempt.";
    TORCHELASTIC_RESTART_COUNT = Sets "TORCHELASTIC_RESTART_COUNT": "The attempt: counts the worlds of the run from 0, the same on every node, never reused.";
    TORCHELASTIC_MAX_RESTARTS = Sets "TORCHELASTIC_MAX_RESTARTS": "The value of `--max-restarts`; 2147483647 where there is no limit.";
    TORCHELASTIC_RUN_ID = Sets "TORCHELASTIC_RUN_ID": "The run id. PyTorch takes its presence for \"started by an elastic launcher\".";
    TORCHELASTIC_SIGNALS_TO_HANDLE = Sets "TORCHELASTIC_SIGNALS_TO_HANDLE": "The value of `--signals-to-handle`, as torchrun leaves it to its workers.";
    TORCHELASTIC_USE_AGENT_STORE = Sets "TORCHELASTIC_USE_AGENT_STORE": "`True`: the agent of the first node hosts the store; `False` with `--rdzv-store rank0`.";
    TORCHELASTIC_ERROR_FILE = Both "TORCHELASTIC_ERROR_FILE": "Where the rank may leave its error as JSON (`torch.distributed.elastic.multiprocessing.errors.record`); empty with `--log-dir /dev/null`. Where relight itself is given one, it leaves the root of a failed run there.";
    TORCH_NCCL_ASYNC_ERROR_HANDLING = Both "TORCH_NCCL_ASYNC_ERROR_HANDLING": "Passed on; `1` when unset.";
    TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC = Reads "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "Passed on. A program that does not advance is looked into, and ended if nothing speaks against it, before it would end by itself after this time.";
    TORCH_NCCL_ENABLE_MONITORING = Reads "TORCH_NCCL_ENABLE_MONITORING": "Passed on. `0`: that time means nothing.";
    TORCH_NCCL_DEBUG_INFO_PIPE_FILE = Reads "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "Passed on. Where it is set, a rank that does not advance is asked through its pipe for what its flight recorder knows, before anything is killed.";
    TORCH_FR_DEBUG_INFO_PIPE_FILE = Reads "TORCH_FR_DEBUG_INFO_PIPE_FILE": "The same by its newer name, which wins.";
    TORCH_NCCL_DEBUG_INFO_TEMP_FILE = Reads "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "Passed on. Tells an incident where the flight recorder wrote.";
    TORCH_FR_DUMP_TEMP_FILE = Reads "TORCH_FR_DUMP_TEMP_FILE": "The same by its newer name, which wins.";
    OMP_NUM_THREADS = Both "OMP_NUM_THREADS": "Passed on. When unset: in a job the CPUs of one rank, that is what the header asks for a task where ranks are in the place of its tasks, else an even share of the node's. Outside, with more than one rank, the same share; under the name torchrun `1`.";
    CUDA_VISIBLE_DEVICES = Both "CUDA_VISIBLE_DEVICES": "Passed on; with `--gpu-visibility own` or `--virtual-local-rank` the entry of the rank. Counts the GPUs of `--nproc-per-node gpu`.";
    HIP_VISIBLE_DEVICES = Both "HIP_VISIBLE_DEVICES": "Passed on; with `--gpu-visibility own` or `--virtual-local-rank` the entry of the rank. Counts the GPUs of `--nproc-per-node gpu` on AMD machines.";
    // Ours.
    RELIGHT_RUN_ID = Both "RELIGHT_RUN_ID": "The run id. Read as the default of `--run-id`, and set for every rank. A `relight run` inside a rank does not take the id of the run around it.";
    RELIGHT_ATTEMPT = Both "RELIGHT_ATTEMPT": "The attempt, as `TORCHELASTIC_RESTART_COUNT`. Its presence tells a nested `relight run` that it runs inside a rank.";
    RELIGHT_BOARD = Sets "RELIGHT_BOARD": "The rank's page of the heartbeat board (`docs/heartbeat-board.md`).";
    PYTHONPATH = Both "PYTHONPATH": "Passed on, with the folder of the start-up module that feeds the heartbeat board before it (not with `--heartbeat-hooks off`), and that of the module `relight` behind it.";
    RELIGHT_RUN_DIR = Both "RELIGHT_RUN_DIR": "The directory under which run directories lie. Read as the default of `--run-dir`, and set for every rank.";
    RELIGHT_SUPERVISED = Both "RELIGHT_SUPERVISED": "`1` for an agent that `relight srun` started: it never starts a supervisor of its own.";
    RELIGHT_NODELIST = Both "RELIGHT_NODELIST": "What `relight srun` tells its agents: the nodes of the run in order, as Slurm writes them.";
    RELIGHT_HEADER_TASKS = Both "RELIGHT_HEADER_TASKS": "What `relight srun` tells its agents: the tasks per node that the job's header asks for.";
    RELIGHT_HEADER_CPUS = Both "RELIGHT_HEADER_CPUS": "What `relight srun` tells its agents: the CPUs per task that the job's header asks for.";
    RELIGHT_LAUNCH = Both "RELIGHT_LAUNCH": "What `relight srun` tells its agents: a random word, the same for all agents of one launch and of no other.";
    RELIGHT_TERMINAL = Both "RELIGHT_TERMINAL": "What `relight srun` tells its agents: `1` where a person at a terminal started it.";
    RELIGHT_SUPERVISOR_PORT = Both "RELIGHT_SUPERVISOR_PORT": "What `relight srun` tells its agents: a port of its own, open as long as it lives.";
    RELIGHT_NODE_ADDRS = Both "RELIGHT_NODE_ADDRS": "What `relight srun` tells its agents: Slurm's address of each node that has another one than its name, as `node=address`, comma-separated.";
    RELIGHT_SPARES = Reads "RELIGHT_SPARES": "Default of `--spares`.";
    RELIGHT_CONFIG = Reads "RELIGHT_CONFIG": "Default of `--config`.";
    RELIGHT_LOST_AFTER = Reads "RELIGHT_LOST_AFTER": "Default of `--lost-after`.";
    RELIGHT_JOIN_TIMEOUT = Reads "RELIGHT_JOIN_TIMEOUT": "Default of `--join-timeout`.";
    RELIGHT_LAST_CALL = Reads "RELIGHT_LAST_CALL": "Default of `--last-call`.";
    RELIGHT_STORE_TIMEOUT = Reads "RELIGHT_STORE_TIMEOUT": "Default of `--store-timeout`.";
    RELIGHT_RESTART_BACKOFF = Reads "RELIGHT_RESTART_BACKOFF": "Default of `--restart-backoff`.";
    RELIGHT_HEARTBEAT_TIMEOUT = Reads "RELIGHT_HEARTBEAT_TIMEOUT": "Default of `--heartbeat-timeout`.";
    RELIGHT_PHASE_TIMEOUT = Reads "RELIGHT_PHASE_TIMEOUT": "Default of `--phase-timeout`.";
    RELIGHT_HANG_ACTION = Reads "RELIGHT_HANG_ACTION": "Default of `--hang-action`.";
    RELIGHT_HANG_FLOOR = Reads "RELIGHT_HANG_FLOOR": "Default of `--hang-floor`.";
    RELIGHT_HEALTH_CMD = Reads "RELIGHT_HEALTH_CMD": "Default of `--health-cmd`, one command a line.";
    RELIGHT_HEALTH_TIMEOUT = Reads "RELIGHT_HEALTH_TIMEOUT": "Default of `--health-timeout`.";
    RELIGHT_GRANT = Reads "RELIGHT_GRANT": "Default of `--grant`.";
    RELIGHT_RDZV_STORE = Reads "RELIGHT_RDZV_STORE": "Default of `--rdzv-store`.";
    RELIGHT_SLURM_ENV = Reads "RELIGHT_SLURM_ENV": "Default of `--slurm-env`.";
    RELIGHT_GPU_VISIBILITY = Reads "RELIGHT_GPU_VISIBILITY": "Default of `--gpu-visibility`.";
    RELIGHT_HEARTBEAT_HOOKS = Reads "RELIGHT_HEARTBEAT_HOOKS": "Default of `--heartbeat-hooks`.";
    RELIGHT_LOG = Reads "RELIGHT_LOG": "What the agent logs about itself, on standard error: a filter such as `debug` or `relight::store=warn,relight::agent=debug` (targets: `relight::agent`, `relight::coordinator`, `relight::store`).";
    RELIGHT_FORCE_FALLBACK = Reads "RELIGHT_FORCE_FALLBACK": "Kernel features to be treated as missing, comma-separated: `pidfd`, `close_range`, `children`, or `all` (tests of old kernels).";
    RELIGHT_NVML = Reads "RELIGHT_NVML": "The library by which NVIDIA's driver is asked about the GPUs of a node (default: `libnvidia-ml.so.1` where there is a `/dev/nvidiactl`); `off`: it is not asked.";
    RELIGHT_TEST_CLOCK = Reads "RELIGHT_TEST_CLOCK": "`SECONDS` or `SECONDS@FILE`: relight's own wall clock is off by so many seconds, with a file from when that is there on (tests of clocks that are wrong or are set).";
    RELIGHT_SECRET_FILE = Reads "RELIGHT_SECRET_FILE": "Default of `--secret-file`.";
    RELIGHT_SECRET = Reads "RELIGHT_SECRET": "Kept for the secret of a run without a shared directory; only looked at to be taken away: it is never passed on to a rank.";
    // torchrun's defaults of options.
    PET_NNODES = Reads "PET_NNODES": "Default of `--nnodes`.";
    PET_NPROC_PER_NODE = Reads "PET_NPROC_PER_NODE": "Default of `--nproc-per-node`.";
    PET_STANDALONE = Reads "PET_STANDALONE": "Default of `--standalone`: 0 or 1.";
    PET_MAX_RESTARTS = Reads "PET_MAX_RESTARTS": "Default of `--max-restarts`.";
    PET_MODULE = Reads "PET_MODULE": "Default of `--module`: 0 or 1.";
    PET_NO_PYTHON = Reads "PET_NO_PYTHON": "Default of `--no-python`: 0 or 1.";
    PET_LOG_DIR = Reads "PET_LOG_DIR": "Default of `--log-dir`.";
    PET_REDIRECTS = Reads "PET_REDIRECTS": "Default of `--redirects`.";
    PET_TEE = Reads "PET_TEE": "Default of `--tee`.";
    PET_ROLE = Reads "PET_ROLE": "Default of `--role`.";
    PET_LOCAL_RANKS_FILTER = Reads "PET_LOCAL_RANKS_FILTER": "Default of `--local-ranks-filter`.";
    PET_SHUTDOWN_TIMEOUT = Reads "PET_SHUTDOWN_TIMEOUT": "Default of `--shutdown-timeout`.";
    TORCH_ELASTIC_SHUTDOWN_TIMEOUT = Reads "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "Default of `--shutdown-timeout` after `PET_SHUTDOWN_TIMEOUT`.";
    PET_RDZV_ID = Reads "PET_RDZV_ID": "Default of `--run-id` after `RELIGHT_RUN_ID`.";
    PET_RDZV_BACKEND = Reads "PET_RDZV_BACKEND": "Default of `--rdzv-backend`.";
    PET_RDZV_ENDPOINT = Reads "PET_RDZV_ENDPOINT": "Default of `--rdzv-endpoint`: looked at, without effect.";
    PET_RDZV_CONF = Reads "PET_RDZV_CONF": "Default of `--rdzv-conf`.";
    PET_MASTER_ADDR = Reads "PET_MASTER_ADDR": "Accepted, without effect.";
    PET_MASTER_PORT = Reads "PET_MASTER_PORT": "Accepted, without effect.";
    PET_NODE_RANK = Reads "PET_NODE_RANK": "Accepted, without effect.";
    PET_LOCAL_ADDR = Reads "PET_LOCAL_ADDR": "Default of `--local-addr`.";
    PET_MONITOR_INTERVAL = Reads "PET_MONITOR_INTERVAL": "Default of `--monitor-interval`: looked at, without effect.";
    PET_START_METHOD = Reads "PET_START_METHOD": "Accepted, without effect.";
    PET_EVENT_LOG_HANDLER = Reads "PET_EVENT_LOG_HANDLER": "Default of `--event-log-handler`.";
    PET_RUN_PATH = Reads "PET_RUN_PATH": "Default of `--run-path`: 0 or 1.";
    PET_VIRTUAL_LOCAL_RANK = Reads "PET_VIRTUAL_LOCAL_RANK": "Default of `--virtual-local-rank`: 0 or 1.";
    PET_SIGNALS_TO_HANDLE = Reads "PET_SIGNALS_TO_HANDLE": "Default of `--signals-to-handle`: looked at, without effect.";
    PET_LOG_LINE_PREFIX_TEMPLATE = Reads "PET_LOG_LINE_PREFIX_TEMPLATE": "Default of `--log-line-prefix-template`.";
    TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE = Reads "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "Default of `--log-line-prefix-template` after `PET_LOG_LINE_PREFIX_TEMPLATE`.";
    PET_DUPLICATE_STDOUT_FILTERS = Reads "PET_DUPLICATE_STDOUT_FILTERS": "Default of `--duplicate-stdout-filters`.";
    PET_DUPLICATE_STDERR_FILTERS = Reads "PET_DUPLICATE_STDERR_FILTERS": "Default of `--duplicate-stderr-filters`.";
    ZE_AFFINITY_MASK = Reads "ZE_AFFINITY_MASK": "Counts the GPUs of `--nproc-per-node xpu`.";
    // Where things are.
    PYTHON_EXEC = Reads "PYTHON_EXEC": "The Python interpreter of the ranks; comes before every other way to find one.";
    VIRTUAL_ENV = Reads "VIRTUAL_ENV": "Its `bin` is searched for the interpreter.";
    CONDA_PREFIX = Reads "CONDA_PREFIX": "Its `bin` is searched for the interpreter, after `VIRTUAL_ENV`.";
    PATH = Reads "PATH": "Searched for the interpreter at last, and for the program of `--no-python`.";
    HOME = Reads "HOME": "Run directories lie under `$HOME/.local/state/relight` outside Slurm.";
    XDG_STATE_HOME = Reads "XDG_STATE_HOME": "Run directories lie under `$XDG_STATE_HOME/relight` outside Slurm.";
    XDG_CACHE_HOME = Reads "XDG_CACHE_HOME": "Where torch's flight recorder writes when nothing else is said.";
    XDG_RUNTIME_DIR = Reads "XDG_RUNTIME_DIR": "Sockets lie there when it can be used.";
    SLURM_JOB_ID = Reads "SLURM_JOB_ID": "The run id is `<job id>.<k>` in a batch job.";
    SLURM_SUBMIT_DIR = Reads "SLURM_SUBMIT_DIR": "Run directories lie under `$SLURM_SUBMIT_DIR/.relight` in a job, where they do not lie beside its output.";
    SLURMD_NODENAME = Reads "SLURMD_NODENAME": "The name of this node; else the host name.";
    SLURM_JOB_NODELIST = Reads "SLURM_JOB_NODELIST": "The nodes of the job, in order.";
    SLURM_NODELIST = Sets "SLURM_NODELIST": "Of a rank: the nodes of the world by group rank.";
    SLURM_STEP_NODELIST = Both "SLURM_STEP_NODELIST": "The nodes of the step: those of a run that is started by a plain `srun`. Of a rank: the nodes of the world by group rank.";
    SLURM_STEP_ID = Reads "SLURM_STEP_ID": "Tells a step from a batch script and from the prompt of `salloc`.";
    SLURM_STEP_TASKS_PER_NODE = Both "SLURM_STEP_TASKS_PER_NODE": "Tasks of the step by node: one agent per node is enough. Of a rank: ranks by node.";
    SLURM_STEP_NUM_TASKS = Sets "SLURM_STEP_NUM_TASKS": "Of a rank: as `WORLD_SIZE`.";
    SLURM_STEP_NUM_NODES = Sets "SLURM_STEP_NUM_NODES": "Of a rank: as `GROUP_WORLD_SIZE`.";
    SLURM_RESTART_COUNT = Reads "SLURM_RESTART_COUNT": "How often Slurm has requeued the job.";
    SLURM_LAUNCH_NODE_IPADDR = Reads "SLURM_LAUNCH_NODE_IPADDR": "An address of the network that the nodes share: of several addresses of a node, others are told the one that faces it.";
    SLURM_PROCID = Both "SLURM_PROCID": "The task within the step. Of a rank: as `RANK`.";
    SLURM_LOCALID = Both "SLURM_LOCALID": "The task within its node: one of several agents on a node says why they do not start. Of a rank: as `LOCAL_RANK`.";
    SLURM_NODEID = Both "SLURM_NODEID": "The node within the step. Of a rank: as `GROUP_RANK`.";
    SLURM_GTIDS = Both "SLURM_GTIDS": "The tasks of the step on this node, where `SLURM_STEP_TASKS_PER_NODE` does not tell. Of a rank: the ranks of its node.";
    SLURM_NTASKS = Both "SLURM_NTASKS": "Present in a batch script whose header asks for tasks; then `SLURM_TASKS_PER_NODE` counts. Of a rank: as `WORLD_SIZE`.";
    SLURM_JOB_NUM_NODES = Sets "SLURM_JOB_NUM_NODES": "Of a rank: the nodes of the job, as Slurm says it.";
    SLURM_NPROCS = Sets "SLURM_NPROCS": "Of a rank: as `WORLD_SIZE`.";
    SLURM_NNODES = Sets "SLURM_NNODES": "Of a rank: as `GROUP_WORLD_SIZE`.";
    SLURM_NTASKS_PER_NODE = Both "SLURM_NTASKS_PER_NODE": "Tasks per node of the header: default of `--nproc-per-node` in a job when above 1. Of a rank: as `LOCAL_WORLD_SIZE`.";
    SLURM_TASKS_PER_NODE = Both "SLURM_TASKS_PER_NODE": "The same by node, where `SLURM_NTASKS_PER_NODE` is not set. Of a rank: ranks by node.";
    SLURM_CPUS_PER_TASK = Both "SLURM_CPUS_PER_TASK": "CPUs per task of the header. Of a rank: its own, where the agent has this variable.";
    SLURM_CPUS_ON_NODE = Reads "SLURM_CPUS_ON_NODE": "CPUs of the job or step on this node: no more are shared out as `OMP_NUM_THREADS`.";
    SLURM_JOB_CPUS_PER_NODE = Reads "SLURM_JOB_CPUS_PER_NODE": "CPUs of the job by node: an agent gets all of its node's.";
    SLURM_GPUS_ON_NODE = Reads "SLURM_GPUS_ON_NODE": "GPUs of the job or step on this node.";
    SLURM_HET_SIZE = Reads "SLURM_HET_SIZE": "Components of a heterogeneous job, which relight does not run in.";
    NO_COLOR = Reads "NO_COLOR": "No colours, whatever the terminal can do.";
    TZ = Reads "TZ": "The time zone of the times that people see.";
}

/// What torchrun handles where nobody says otherwise.
pub const SIGNALS: &str = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";

/// Prefixes of variables that tell a rank that another launcher started it; removed where ranks get a view of
/// Slurm of their own.
pub const FOREIGN_LAUNCHERS: [&str; 4] = ["PMI", "PMI2", "PMIX", "OMPI"];

/// Variables that `srun` reads as options, or writes for its tasks, and that say something else than what a
/// supervisor wants: the size of the step, how tasks are bound, what ends the step. A name with `*` is a prefix.
pub const SRUN_READS: &[&str] = &[
    "SLURM_CPUS_PER_GPU",
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPU_BIND*",
    "SLURM_DISTRIBUTION",
    "SLURM_DIST_PLANESIZE",
    "SLURM_EXACT",
    "SLURM_EXCLUSIVE",
    "SLURM_EXPORT_ENV",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GPU_BIND",
    "SLURM_GTIDS",
    "SLURM_HINT",
    "SLURM_HOSTFILE",
    "SLURM_IMMEDIATE",
    "SLURM_JOB_NUM_NODES",
    "SLURM_KILL_BAD_EXIT",
    "SLURM_LOCALID",
    "SLURM_MEM_BIND*",
    "SLURM_MPI_TYPE",
    "SLURM_NNODES",
    "SLURM_NODEID",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_*",
    "SLURM_OVERCOMMIT",
    "SLURM_PROCID",
    "SLURM_RELATIVE",
    "SLURM_SPREAD_JOB",
    "SLURM_STDINMODE",
    "SLURM_STEPID",
    "SLURM_STEP_*",
    "SLURM_TASKS_PER_NODE",
    "SLURM_TASK_PID",
    "SLURM_THREADS_PER_CORE",
    "SLURM_TRES_BIND",
    "SLURM_TRES_PER_TASK",
    "SLURM_USE_ENV",
    "SLURM_WAIT",
    "SRUN_CPUS_PER_TASK",
    "SRUN_EXPORT_ENV",
];

/// Variables that describe the tasks of a step; a name with `*` is a prefix. Those that tell of the job stay.
pub const OF_TASKS: &[&str] = &[
    "SLURM_CPUS_PER_TASK",
    "SLURM_DISTRIBUTION",
    "SLURM_GTIDS",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_*",
    "SLURM_PROCID",
    "SLURM_SRUN_COMM_*",
    "SLURM_STEPID",
    "SLURM_STEP_*",
    "SLURM_TASKS_PER_NODE",
    "SLURM_TASK_PID",
];

/// What is true of an agent and would be of no rank: the pid of a task, and other ways to count tasks than by node.
pub const OF_THE_AGENT: &[&str] = &["SLURM_DISTRIBUTION", "SLURM_NTASKS_PER_*", "SLURM_TASK_PID"];

/// Is this name one of a list's? A name with `*` is a prefix.
fn among(list: &[&str], name: &str) -> bool {
    list.iter().any(|known| match known.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == *known,
    })
}

/// Is this one of [`SRUN_READS`]?
#[must_use]
pub fn srun_reads(name: &str) -> bool {
    among(SRUN_READS, name)
}

/// With one of these in its environment a number of CPUs does not mean to `srun` what it means in a header.
pub const COUNTS_CORES: &[&str] = &["SLURM_HINT", "SLURM_THREADS_PER_CORE"];

/// With one of these in its environment a job's GPUs belong to tasks: a step of fewer tasks gets fewer.
pub const GPUS_BY_TASK: &[&str] = &["SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_NTASKS_PER_GPU"];

/// What a plain `srun` line needs in its environment to be as that of `relight srun`, with Slurm's names.
pub const FOR_PLAIN_SRUN: &[(&str, &str)] = &[
    // `1` is no value of it: srun would refuse to start.
    ("SLURM_NO_KILL", "set"),
    ("SLURM_KILL_BAD_EXIT", "0"),
    ("SLURM_WAIT", "0"),
    ("SLURM_MPI_TYPE", "none"),
    ("SLURM_CPU_BIND", "none"),
];

/// Variables that never reach a rank.
pub const SECRETS: &[EnvVar] = &[RELIGHT_SECRET];

/// The table of `docs/environment.md`.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::new();
    for (title, wanted) in [
        ("Set for every rank", [Direction::Sets, Direction::Both]),
        ("Read by relight", [Direction::Reads, Direction::Both]),
    ] {
        // Writing to a String cannot fail.
        let _ = write!(out, "## {title}\n\n| variable | meaning |\n|---|---|\n");
        for var in ALL.iter().filter(|var| wanted.contains(&var.direction)) {
            let _ = writeln!(out, "| `{}` | {} |", var.name, var.doc);
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_name_once_and_documented() {
        let names: BTreeSet<&str> = ALL.iter().map(|var| var.name).collect();
        assert_eq!(names.len(), ALL.len());
        for var in ALL {
            assert!(var.doc.ends_with('.') && !var.doc.contains(['|', '\n']), "{}", var.name);
            assert!(var.name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'));
        }
    }
}
