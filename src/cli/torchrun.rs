//! torchrun's command line, one row for each option and rule: what relight makes of it. `docs/torchrun.md` is made from
//! this table, and each row is bound to a test.

use std::fmt::Write as _;

/// What relight makes of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// As torchrun.
    Same,
    /// As torchrun, and more.
    Better,
    /// Accepted and looked at; changes nothing.
    WithoutEffect,
    /// Exit code 2, with a sentence.
    Refused,
}

impl Standing {
    /// In the table.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Better => "better",
            Self::WithoutEffect => "without effect",
            Self::Refused => "refused",
        }
    }
}

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// What is typed; the option first.
    pub typed: &'static str,
    /// What becomes of it.
    pub standing: Standing,
    /// In what way.
    pub sentence: &'static str,
}

macro_rules! rows {
    ($($standing:ident $typed:literal: $sentence:literal;)*) => {
        &[$(Row { typed: $typed, standing: Standing::$standing, sentence: $sentence }),*]
    };
}

/// torchrun 2.15, in the order of its help.
pub const OPTIONS: &[Row] = rows! {
    Same "-h": "Help, exit code 0.";
    Better "--print-completion": "bash, zsh and fish, without a Python package; also `relight completions SHELL`.";
    Refused "--print-completion tcsh": "There are no completions for tcsh.";
    Better "--nnodes": "In a job it defaults to the job's nodes less the spares; more nodes than there are is refused at once. MIN:MAX shrinks and grows at restarts only.";
    Better "--nproc-per-node": "A number, auto, gpu, cpu or xpu, counted without importing torch. In a job it defaults to the header's tasks per node, else to the GPUs; under the name torchrun to 1.";
    WithoutEffect "--rdzv-backend": "static or c10d: nodes find each other through Slurm and the run directory.";
    Refused "--rdzv-backend etcd": "relight needs no etcd server, nor does etcd-v2: leave the option out.";
    Refused "--rdzv-backend PLUGIN": "relight cannot load a Python plug-in.";
    Better "--rdzv-endpoint": "`host`, `host:port`, `[v6]:port`; an IPv6 address alone is one, too. Outside Slurm with --nnodes above 1 it says where machines meet; in a job, and for one node, nobody has to name a host.";
    Better "--rdzv-id": "Names the run, as `--run-id` does, with `--standalone` as well: status, logs and journal are found by it. No blank or slash may be in it. A run that finished is not run again.";
    Better "--rdzv-conf": "`join_timeout`, `last_call_timeout` and, for the static backend, `timeout` count; one line names the keys that do not.";
    Better "--standalone": "One node, this one, whatever job it is in. Backend and endpoint are not looked at; MIN:MAX with MIN 1 is that node, more than one is refused, as no other could join.";
    Better "--max-restarts": "One budget for the whole run, not one for each node; `unlimited` is a value. In a batch job the default is no limit while attempts last, under the name torchrun 0.";
    WithoutEffect "--monitor-interval": "Must be above 0; an end is seen at once, whatever it says.";
    WithoutEffect "--start-method": "spawn, fork or forkserver; ranks are programs of their own.";
    Same "--event-log-handler": "null or console: torch's events as JSON lines on standard error, for each rendezvous, each start and end of a rank and for the agent, whose last one is FAILED when the run failed.";
    Refused "--event-log-handler PLUGIN": "relight cannot load a Python plug-in.";
    Same "--role": "ROLE_NAME, and part of the prefix.";
    Same "-m": "`python -u -m MODULE`; also `--module`. Not together with --no-python.";
    Same "--no-python": "The program itself, found on PATH.";
    Better "--run-path": "The script is started as `python -u SCRIPT`, in a process of its own; -m and --no-python do not count then.";
    Better "--log-dir": "The same tree below it, `RUN_NODE/attempt_N/LOCAL_RANK/`, without random letters, and `combined.log` beside it; /dev/null: no files. The default is in the run directory, not in /tmp.";
    Better "-r": "0 to 3, or a map; local ranks of any number of digits. Also `--redirects`.";
    Better "-t": "As -r; lines are never torn. Also `--tee`.";
    Same "--log-line-prefix-template": "${role_name}, ${local_rank}, ${rank} and ${hostname}; else TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE.";
    Same "--local-ranks-filter": "Only the console. Above 16 ranks it shows rank 0 and whatever fails where nothing is said.";
    Same "--duplicate-stdout-filters": "Lines of --tee that hold one of the texts go to `attempt_N/filtered_stdout.log`, too; `,,` is one comma.";
    Same "--duplicate-stderr-filters": "The same for standard error.";
    Better "--node-rank": "Outside Slurm with --nnodes above 1: 0 leads, and ranks follow these numbers; a number that another machine has is refused. In a job Slurm's order decides.";
    Better "--master-addr": "Outside Slurm the machine that leads; each attempt has a store of its own behind a fresh port, also on that machine. Machines prove that they know one secret (--secret-file).";
    Better "--master-port": "Where that machine listens; in a job, and for one node, without effect.";
    Better "--local-addr": "An IP address, never a name that others cannot look up.";
    WithoutEffect "--logs-specs default": "What relight does.";
    Refused "--logs-specs PLUGIN": "relight cannot load a Python plug-in.";
    Better "--numa-binding": "node, socket, exclusive or core-complex by torch's rules, without numactl; the memory follows the first touch. Without a GPU ranks are spread over the NUMA nodes. Tested on descriptions of machines; none with GPUs was at hand.";
    Better "--signals-to-handle": "TERM, INT, HUP and QUIT stop a run whatever it says, USR1 and USR2 always go to the ranks that handle them, without an end. A name that is no signal is warned of.";
    Better "--shutdown-timeout": "For every stop: at the end, for a restart, when another node failed. A second signal does not wait. A fraction and a unit may be given.";
    Same "--virtual-local-rank": "LOCAL_RANK is 0 and CUDA_VISIBLE_DEVICES (HIP_VISIBLE_DEVICES) names the rank's own GPU. Too few GPUs is refused before the start.";
};

/// What is no option.
pub const RULES: &[Row] = rows! {
    Better "x.py --nnodes 3": "Everything behind the program is the program's; an option of the launcher's that was given nowhere else is named as without effect.";
    Same "-- x.py": "A `--` in front of the program is taken away, and so is one directly behind it.";
    Same "--nproc_per_node": "Underscores for hyphens.";
    Better "--nproc": "A prefix that is unique. torchrun refuses those of options with two spellings; every prefix that it takes means the same here.";
    Same "--max-restarts 1 --max-restarts 2": "The last counts.";
    Same "-r3": "`-r3`, `-r 3`.";
    Better "PET_NPROC_PER_NODE=2": "`PET_…` variables are defaults of options; the command line wins. One that is not UTF-8 is refused, unless an option says the same.";
    Better "PET_STANDALONE=1": "Flags are whole numbers, 0 is off; torchrun stumbles over `true`.";
    Same "${local_rank}": "Replaced in arguments, `$$` is a dollar sign, other names stay.";
    Same "PYTHON_EXEC": "The interpreter. Else the Python of relight's own environment, VIRTUAL_ENV, CONDA_PREFIX, PATH.";
    Same "--bogus": "Exit code 2 and nothing started.";
    Better "--nproc-per-node foo": "A value that makes no sense is exit code 2 and one sentence; torchrun's is a traceback and 1.";
    Better "exit 3": "A rank that fails ends the run with 1, and the report names its own code.";
    Better "no_such_script.py": "A program that is not there is exit code 2 before anything starts.";
    Same "torchrun": "A link of that name behaves as `relight run`: one rank, no restart.";
};

/// Every option of torchrun by its first spelling, without dashes.
fn names() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().filter_map(|row| row.typed.split(' ').next()?.strip_prefix("--"))
}

/// torchrun's own option that a word is a beginning of, by torchrun's rule: each spelling counts, and one must match.
#[must_use]
pub fn meant(typed: &str) -> Option<String> {
    // -m, -r and -t stand in the table by their letters.
    let all = names().chain(["module", "redirects", "tee", "help"]);
    let mut matching: Vec<String> = Vec::new();
    for name in all {
        for spelling in [name.to_owned(), name.replace('-', "_")] {
            if spelling.starts_with(typed) && !matching.contains(&spelling) {
                matching.push(spelling);
            }
        }
    }
    match matching.as_slice() {
        [only] => Some(only.replace('_', "-")),
        _ => None,
    }
}

/// The tables of `docs/torchrun.md`.
#[must_use]
pub fn markdown() -> String {
    let mut out = String::new();
    for (title, rows) in [("Options", OPTIONS), ("Rules", RULES)] {
        // Writing to a String cannot fail.
        let _ = write!(out, "## {title}\n\n| torchrun | here | |\n|---|---|---|\n");
        for row in rows {
            let _ = writeln!(out, "| `{}` | {} | {} |", row.typed, row.standing.word(), row.sentence);
        }
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings() {
        for (typed, want) in [
            ("run-", Some("run-path")),
            ("run_", Some("run-path")),
            // Both spellings begin so.
            ("run", None),
            ("stand", Some("standalone")),
            ("rdzv-en", Some("rdzv-endpoint")),
            ("l", None),
            ("", None),
        ] {
            assert_eq!(meant(typed).as_deref(), want, "{typed}");
        }
    }

    #[test]
    fn rows_are_whole() {
        for row in OPTIONS.iter().chain(RULES) {
            assert!(row.sentence.ends_with('.') && !row.sentence.contains(['|', '\n']), "{}", row.typed);
        }
    }
}
