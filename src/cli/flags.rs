//! The command line's shape, for clap. Values stay texts here: what they mean is decided in one place for the
//! command line, variables and files alike ([`crate::domain::settings`]).

use clap::{Args as ClapArgs, CommandFactory as _, Parser, Subcommand, ValueEnum};

use crate::domain::settings::{Args, Key};

/// relight relights the torch: it starts the ranks of a training job, sees one die, and restarts them in place.
#[derive(Debug, Parser)]
#[command(
    name = "relight",
    version,
    disable_help_subcommand = true,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    args_override_self = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program in several ranks and keep it alive
    Run(Box<RunFlags>),
    /// Run it on the nodes of a job by a line of `srun` of your own, and look after its agents
    Srun(SrunArgs),
    /// Show where a run stands
    Status(StatusArgs),
    /// Explain the incidents of a run
    Why(WhyArgs),
    /// Give an order to a run: pause, resume, restart, evict, stop
    Ctl {
        /// The order.
        #[command(subcommand)]
        command: CtlCommand,
    },
    /// Show the output of a run's ranks
    Logs(LogsArgs),
    /// Show the journal of a run
    Events(EventsArgs),
    /// Look whether this node is fit for ranks
    Check(CheckArgs),
    /// Remove the directories of finished runs
    Gc(GcArgs),
    /// Show settings
    Config {
        /// What about them.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Show what batch scripts need
    Slurm {
        /// What.
        #[command(subcommand)]
        command: SlurmCommand,
    },
    /// Make something fail in a run, to see it recover
    Inject(InjectArgs),
    /// Print completions for a shell: relight completions bash > FILE
    Completions {
        /// Which
        shell: CompletionShell,
    },
    /// Print a part of the documentation
    #[command(hide = true)]
    Gen {
        /// Which.
        what: Generated,
    },
}

/// `relight srun`
#[derive(Debug, ClapArgs)]
#[command(
    override_usage = "relight srun [OPTIONS OF SRUN] -- relight run [OPTIONS] SCRIPT [ARGS]...",
    after_help = AFTER_SRUN
)]
pub struct SrunArgs {
    /// Options of `srun`, and the command
    #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<String>,
}

const AFTER_SRUN: &str = "Any option of srun may stand before --, except those that set the number of tasks, bind them \
or end them all together: relight starts one agent on each node, with all of its cores and GPUs. In a batch script, and at \
the prompt of salloc, `relight run …` alone is short for `relight srun -- relight run …`.";

/// `relight slurm …`
#[derive(Debug, Subcommand)]
pub enum SlurmCommand {
    /// Print what a plain `srun` line needs in its environment, for eval "$(relight slurm env)"
    Env,
    /// Print a template of a batch script; without a name, list them
    Template {
        /// Which
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
}

/// `relight config …`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show every setting that a run would have
    Show(Box<ConfigShow>),
}

/// `relight config show`
#[derive(Debug, ClapArgs)]
pub struct ConfigShow {
    /// Say where each value comes from
    #[arg(long)]
    pub origin: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Options of `run`.
    #[command(flatten)]
    pub run: RunOptions,
}

/// `relight run`
#[derive(Debug, ClapArgs)]
#[command(override_usage = "relight run [OPTIONS] SCRIPT [ARGS]...", after_help = AFTER_RUN)]
pub struct RunFlags {
    /// Show what would be started, and start nothing
    #[arg(long)]
    pub dry_run: bool,
    /// With --dry-run: print JSON
    #[arg(long)]
    pub json: bool,
    /// Options that are settings.
    #[command(flatten)]
    pub run: RunOptions,
    /// Script, module or program, and its arguments
    #[arg(value_name = "SCRIPT", trailing_var_arg = true)]
    pub program: Vec<String>,
}

const AFTER_RUN: &str = "Options end at SCRIPT: everything behind it is the script's. Long options may be written \
with hyphens or underscores and shortened while they stay unique. Each has a variable or a line in a configuration \
file as its default: relight config show --origin.";

/// Where options stand that exist for torchrun's sake.
const TORCHRUN: &str = "Options of torchrun, mostly without effect";
/// Options of several machines that no Slurm brings together.
const MACHINES: &str = "Several machines without Slurm";

/// The options of `run` that are settings.
#[derive(Debug, Default, ClapArgs)]
pub struct RunOptions {
    /// One node, this one, whatever job it is in
    #[arg(long, help_heading = "Ranks")]
    pub standalone: bool,
    /// Nodes of the world [default: those of the job less the spares, else 1]
    #[arg(long, value_name = "N|MIN:MAX", help_heading = "Ranks")]
    pub nnodes: Option<String>,
    /// Nodes beyond those that wait to replace one [default: what --nnodes leaves of the job]
    #[arg(long, value_name = "N", help_heading = "Ranks")]
    pub spares: Option<String>,
    /// Ranks of this node [default: in a job the header's tasks per node, else its GPUs; else 1]
    #[arg(long, value_name = "N|auto|gpu|cpu|xpu", help_heading = "Ranks")]
    pub nproc_per_node: Option<String>,
    /// What ranks see of Slurm in a job: as if srun had started each of them, nothing of its tasks, or what their agent
    /// sees [default: task]
    #[arg(long, value_name = "task|hide|keep", help_heading = "Ranks")]
    pub slurm_env: Option<String>,
    /// GPUs that a rank sees: those of its node, or its own alone [default: all]
    #[arg(long, value_name = "all|own", help_heading = "Ranks")]
    pub gpu_visibility: Option<String>,
    /// Heartbeats of scripts that send none: hooks in torch's optimizers count steps [default: on]
    #[arg(long, value_name = "on|off", help_heading = "Ranks")]
    pub heartbeat_hooks: Option<String>,
    /// SCRIPT is a Python module, as for `python -m`
    #[arg(short, long, help_heading = "Ranks")]
    pub module: bool,
    /// SCRIPT is a program, not Python
    #[arg(long, help_heading = "Ranks")]
    pub no_python: bool,
    /// SCRIPT is a script, whatever -m and --no-python say
    #[arg(long, help_heading = "Ranks")]
    pub run_path: bool,
    /// Each rank sees its own GPU alone, as the first, and LOCAL_RANK is 0
    #[arg(long, help_heading = "Ranks")]
    pub virtual_local_rank: bool,
    /// Bind each rank to CPUs near the GPU of its number: node, socket, exclusive (cores of its own), core-complex (one
    /// last-level cache)
    #[arg(long, value_name = "HOW", help_heading = "Ranks")]
    pub numa_binding: Option<String>,
    /// ROLE_NAME of the ranks, and part of the prefix of their lines [default: default]
    #[arg(long, value_name = "NAME", help_heading = "Ranks")]
    pub role: Option<String>,

    /// Failures that may be followed by a restart: a number or `unlimited` [default: 0 at a terminal and under the
    /// name torchrun, else unlimited]
    #[arg(long, value_name = "N", help_heading = "Failures")]
    pub max_restarts: Option<String>,
    /// From the first signal to SIGKILL, for every stop [default: 2 s for a restart, 30 s at the end]
    #[arg(long, value_name = "TIME", help_heading = "Failures")]
    pub shutdown_timeout: Option<String>,
    /// Silence after which a node is lost [default: 20 s]
    #[arg(long, value_name = "TIME", help_heading = "Failures")]
    pub lost_after: Option<String>,
    /// How long a world may wait for its nodes [default: 10 min]
    #[arg(long, value_name = "TIME", help_heading = "Failures")]
    pub join_timeout: Option<String>,
    /// Pause before a restart after the second failure at one point; doubled at each one after it, up to 30 times as
    /// long [default: 10 s]
    #[arg(long, value_name = "TIME", help_heading = "Failures")]
    pub restart_backoff: Option<String>,
    /// With MIN:MAX: how long MIN nodes wait for more [default: 30 s]
    #[arg(long, value_name = "TIME", help_heading = "Failures")]
    pub last_call: Option<String>,
    /// How long a run goes on while its run directory cannot be written [default: 10 min]
    #[arg(long, value_name = "TIME", help_heading = "Failures")]
    pub store_timeout: Option<String>,
    /// A rank that gives no sign for so long hangs, whatever it does; before its first sign it counts from its start
    /// [default: learned]
    #[arg(long, value_name = "TIME", help_heading = "Failures")]
    pub heartbeat_timeout: Option<String>,
    /// The same for one phase (init, first-step, step, data, forward, backward, optimizer, eval, checkpoint) or section;
    /// may be repeated
    #[arg(long, value_name = "NAME=TIME", help_heading = "Failures")]
    pub phase_timeout: Vec<String>,
    /// What is done about a hang: restart, warn, stop, off [default: restart; off at a terminal]
    #[arg(long, value_name = "WHAT", help_heading = "Failures")]
    pub hang_action: Option<String>,
    /// No limit that is learned is shorter [default: 60 s]
    #[arg(long, value_name = "TIME", help_heading = "Failures")]
    pub hang_floor: Option<String>,
    /// How long ranks may run without a word from the coordinator. lease: rolling grants also in a world of one
    /// node [default: auto]
    #[arg(long, value_name = "auto|lease", help_heading = "Failures")]
    pub grant: Option<String>,
    /// A command that says whether a node is fit, asked on every node before every start: 0 it is, 1 to 125 with a reason
    /// on the last line it is not. May be given several times
    #[arg(long, value_name = "COMMAND", help_heading = "Failures")]
    pub health_cmd: Vec<String>,
    /// How long such a command may take; one that is late says nothing of the node [default: 60 s]
    #[arg(long, value_name = "TIME", help_heading = "Failures")]
    pub health_timeout: Option<String>,

    /// Where the ranks' logs lie; /dev/null: no files [default: in the run directory]
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub log_dir: Option<String>,
    /// Streams that go to files only: 0 none, 1 stdout, 2 stderr, 3 both, or a map such as 0:3,1:1
    #[arg(short, long, value_name = "STREAMS", help_heading = "Output")]
    pub redirects: Option<String>,
    /// Streams that go to files and, behind a prefix, to the console
    #[arg(short, long, value_name = "STREAMS", help_heading = "Output")]
    pub tee: Option<String>,
    /// Local ranks that the console shows [default: all]
    #[arg(long, value_name = "N,N,…", help_heading = "Output")]
    pub local_ranks_filter: Option<String>,
    /// What stands before a line that --tee shows: ${role_name}, ${local_rank}, ${rank} and ${hostname} are replaced
    /// [default: [${role_name}${local_rank}]:]
    #[arg(long, value_name = "TEXT", help_heading = "Output")]
    pub log_line_prefix_template: Option<String>,
    /// Write lines that --tee shows and that hold one of these texts to filtered_stdout.log, too; ,, is one comma
    #[arg(long, value_name = "TEXT,…", help_heading = "Output")]
    pub duplicate_stdout_filters: Option<String>,
    /// The same for standard error, to filtered_stderr.log
    #[arg(long, value_name = "TEXT,…", help_heading = "Output")]
    pub duplicate_stderr_filters: Option<String>,
    /// console: print an event as JSON when a rank starts or ends [default: null]
    #[arg(long, value_name = "null|console", help_heading = "Output")]
    pub event_log_handler: Option<String>,

    /// Name of the run [default: the time and a random number; in a batch job its id and a count]
    #[arg(long, alias = "rdzv-id", value_name = "ID", help_heading = "Run")]
    pub run_id: Option<String>,
    /// Where run directories lie [default: in a batch script .relight beside the job's output, else in a job
    /// $SLURM_SUBMIT_DIR/.relight, else $XDG_STATE_HOME/relight or ~/.local/state/relight]
    #[arg(long, value_name = "DIR", help_heading = "Run")]
    pub run_dir: Option<String>,
    /// The IP address of this node that other nodes are told [default: the one that faces them]
    #[arg(long, value_name = "ADDRESS", help_heading = "Run")]
    pub local_addr: Option<String>,
    /// Who hosts the store by which ranks find each other (torch's TCPStore): relight's agent on the first node, or
    /// the process of rank 0 [default: agent]
    #[arg(long, value_name = "agent|rank0", help_heading = "Run")]
    pub rdzv_store: Option<String>,
    /// A file with one `option = value` a line
    #[arg(long, value_name = "FILE", help_heading = "Run")]
    pub config: Option<String>,

    /// Print the completions of this command for a shell
    #[arg(long, value_name = "SHELL", help_heading = "Run")]
    pub print_completion: Option<String>,

    /// Of --rdzv-conf join_timeout, last_call_timeout and, for static, timeout count, in seconds
    #[arg(long, value_name = "KEY=N,…", help_heading = TORCHRUN)]
    pub rdzv_conf: Option<String>,
    /// static or c10d: relight finds its nodes itself
    #[arg(long, value_name = "NAME", help_heading = TORCHRUN)]
    pub rdzv_backend: Option<String>,
    /// Looked at: relight finds its nodes itself
    #[arg(long, value_name = "HOST:PORT", help_heading = TORCHRUN)]
    pub rdzv_endpoint: Option<String>,
    /// Looked at: an end is seen at once
    #[arg(long, value_name = "SECONDS", help_heading = TORCHRUN)]
    pub monitor_interval: Option<String>,
    /// Looked at: ranks are programs of their own
    #[arg(long, value_name = "NAME", help_heading = TORCHRUN)]
    pub start_method: Option<String>,
    /// Looked at: TERM, INT, HUP and QUIT stop a run, USR1 and USR2 are passed on
    #[arg(long, value_name = "SIG,…", help_heading = TORCHRUN)]
    pub signals_to_handle: Option<String>,
    /// default: relight cannot load a Python plug-in
    #[arg(long, value_name = "NAME", help_heading = TORCHRUN)]
    pub logs_specs: Option<String>,
    /// Outside Slurm, with --nnodes above 1: the number of this machine, and 0 leads [default: 0; with c10d whose address
    /// the endpoint is]
    #[arg(long, value_name = "N", help_heading = MACHINES)]
    pub node_rank: Option<String>,
    /// The machine that leads: a name or an address
    #[arg(long, value_name = "HOST", help_heading = MACHINES)]
    pub master_addr: Option<String>,
    /// Its port, the same on every machine [default: 29500]
    #[arg(long, value_name = "PORT", help_heading = MACHINES)]
    pub master_port: Option<String>,
    /// A file of this user alone with a secret that all machines know
    #[arg(long, value_name = "FILE", help_heading = MACHINES)]
    pub secret_file: Option<String>,
    /// Without a secret: whoever reaches the port may start programs on all machines
    #[arg(long, help_heading = MACHINES)]
    pub insecure: bool,
}

impl RunOptions {
    /// As typed, with the program that follows the options.
    #[must_use]
    pub fn args(&self, program: &[String]) -> Args {
        let flag = |given: bool| given.then(|| "1".to_owned());
        let text = |value: &Option<String>| value.clone();
        let given = Key::ALL.into_iter().filter_map(|key| {
            let typed = match key {
                Key::Standalone => flag(self.standalone),
                Key::Nnodes => text(&self.nnodes),
                Key::Spares => text(&self.spares),
                Key::NprocPerNode => text(&self.nproc_per_node),
                Key::MaxRestarts => text(&self.max_restarts),
                Key::Module => flag(self.module),
                Key::NoPython => flag(self.no_python),
                Key::LogDir => text(&self.log_dir),
                Key::Redirects => text(&self.redirects),
                Key::Tee => text(&self.tee),
                Key::Role => text(&self.role),
                Key::LocalRanksFilter => text(&self.local_ranks_filter),
                Key::ShutdownTimeout => text(&self.shutdown_timeout),
                Key::RunId => text(&self.run_id),
                Key::RunDir => text(&self.run_dir),
                Key::LostAfter => text(&self.lost_after),
                Key::JoinTimeout => text(&self.join_timeout),
                Key::StoreTimeout => text(&self.store_timeout),
                Key::Grant => text(&self.grant),
                Key::HealthCmd => (!self.health_cmd.is_empty()).then(|| self.health_cmd.join("\n")),
                Key::HealthTimeout => text(&self.health_timeout),
                Key::LocalAddr => text(&self.local_addr),
                Key::RdzvStore => text(&self.rdzv_store),
                Key::LastCall => text(&self.last_call),
                Key::RestartBackoff => text(&self.restart_backoff),
                Key::RunPath => flag(self.run_path),
                Key::VirtualLocalRank => flag(self.virtual_local_rank),
                Key::NumaBinding => text(&self.numa_binding),
                Key::LogLinePrefixTemplate => text(&self.log_line_prefix_template),
                Key::DuplicateStdoutFilters => text(&self.duplicate_stdout_filters),
                Key::DuplicateStderrFilters => text(&self.duplicate_stderr_filters),
                Key::EventLogHandler => text(&self.event_log_handler),
                Key::RdzvBackend => text(&self.rdzv_backend),
                Key::RdzvEndpoint => text(&self.rdzv_endpoint),
                Key::RdzvConf => text(&self.rdzv_conf),
                Key::MonitorInterval => text(&self.monitor_interval),
                Key::StartMethod => text(&self.start_method),
                Key::SignalsToHandle => text(&self.signals_to_handle),
                Key::LogsSpecs => text(&self.logs_specs),
                Key::NodeRank => text(&self.node_rank),
                Key::MasterAddr => text(&self.master_addr),
                Key::MasterPort => text(&self.master_port),
                Key::SecretFile => text(&self.secret_file),
                Key::Insecure => flag(self.insecure),
                Key::HeartbeatTimeout => text(&self.heartbeat_timeout),
                Key::PhaseTimeout => (!self.phase_timeout.is_empty()).then(|| self.phase_timeout.join(",")),
                Key::HangAction => text(&self.hang_action),
                Key::HangFloor => text(&self.hang_floor),
                Key::SlurmEnv => text(&self.slurm_env),
                Key::GpuVisibility => text(&self.gpu_visibility),
                Key::HeartbeatHooks => text(&self.heartbeat_hooks),
            };
            typed.map(|typed| (key, typed))
        });
        Args {
            values: given.collect(),
            program: program.first().cloned(),
            args: program.get(1..).unwrap_or_default().to_vec(),
        }
    }
}

/// Which run.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct RunRef {
    /// Run id, or path of a run directory [default: the newest run]
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
    /// Where run directories lie
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<String>,
}

/// `relight status`
#[derive(Debug, ClapArgs)]
pub struct StatusArgs {
    /// Which run.
    #[command(flatten)]
    pub run: RunRef,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `relight check`
#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Ends with 0 if no check fails, with 1 if one does. In an allocation: srun relight check."
)]
pub struct CheckArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// A command that says whether the node is fit, as for `run`. May be given several times
    #[arg(long, value_name = "COMMAND")]
    pub health_cmd: Vec<String>,
    /// How long such a command may take [default: 60 s]
    #[arg(long, value_name = "TIME")]
    pub health_timeout: Option<String>,
    /// Where run directories lie
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<String>,
}

/// `relight why`
#[derive(Debug, ClapArgs)]
pub struct WhyArgs {
    /// Which run.
    #[command(flatten)]
    pub run: RunRef,
    /// This incident [default: the newest]
    #[arg(value_name = "INCIDENT")]
    pub number: Option<u64>,
    /// As INCIDENT, for the newest run
    #[arg(long, value_name = "N", conflicts_with = "number")]
    pub incident: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `relight ctl`
#[derive(Debug, Subcommand)]
pub enum CtlCommand {
    /// Start nothing after a failure until the run is resumed; what runs goes on
    Pause(CtlArgs),
    /// End a pause
    Resume(CtlArgs),
    /// Stop all ranks and start them again
    Restart(CtlArgs),
    /// Take a node out of the run; a spare takes its slot
    Evict {
        /// The node
        #[arg(value_name = "NODE")]
        node: String,
        /// Why, and of which run.
        #[command(flatten)]
        args: CtlArgs,
    },
    /// End the run (exit code 93)
    Stop(CtlArgs),
}

/// Why, and of which run.
#[derive(Debug, ClapArgs)]
pub struct CtlArgs {
    /// Why: it is kept in the journal
    #[arg(long, value_name = "TEXT")]
    pub why: String,
    /// Of a run of several machines without Slurm: the secret that they know each other by
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<String>,
    /// Which run.
    #[command(flatten)]
    pub run: RunRef,
}

/// `relight logs`
#[derive(Debug, ClapArgs)]
pub struct LogsArgs {
    /// Which run.
    #[command(flatten)]
    pub run: RunRef,
    /// Only this rank
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,
    /// Only this attempt [default: the newest]
    #[arg(long, value_name = "N")]
    pub attempt: Option<u64>,
    /// Only this stream
    #[arg(long, value_name = "NAME")]
    pub stream: Option<OutputStream>,
    /// Only the last so many lines of each file
    #[arg(short = 'n', long, visible_alias = "tail", value_name = "N")]
    pub lines: Option<usize>,
}

/// A stream of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OutputStream {
    /// Standard output
    Stdout,
    /// Standard error
    Stderr,
}

/// `relight events`
#[derive(Debug, ClapArgs)]
pub struct EventsArgs {
    /// Which run.
    #[command(flatten)]
    pub run: RunRef,
    /// Show what follows from the journal as a whole
    #[arg(long)]
    pub replay: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `relight gc`
#[derive(Debug, ClapArgs)]
pub struct GcArgs {
    /// Where run directories lie
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<String>,
    /// Keep so many of the newest finished runs
    #[arg(long, value_name = "N")]
    pub keep: Option<usize>,
    /// Only runs without a sign of life for so many days [default without --keep: 30]
    #[arg(long, value_name = "DAYS")]
    pub older_than: Option<u64>,
    /// Show what would be removed, and remove nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// `relight inject`
#[derive(Debug, ClapArgs)]
pub struct InjectArgs {
    /// What to do
    pub fault: Fault,
    /// Which run.
    #[command(flatten)]
    pub run: RunRef,
    /// For kill-rank, stop-rank and cont-rank: the global rank
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    pub rank: u32,
    /// For kill-rank and kill-agent: the signal, by name or number
    #[arg(long, value_name = "NAME", default_value = "KILL")]
    pub signal: String,
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Fault {
    /// Signal a rank
    KillRank,
    /// Stop a rank (SIGSTOP): it hangs
    StopRank,
    /// Let a stopped rank go on
    ContRank,
    /// Signal the agent
    KillAgent,
    /// Stop the agent (SIGSTOP)
    StopAgent,
}

/// A shell that can complete commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompletionShell {
    /// For ~/.local/share/bash-completion/completions/relight
    Bash,
    /// For a file _relight in a directory of $fpath
    Zsh,
    /// For ~/.config/fish/completions/relight.fish
    Fish,
}

/// A generated part of the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Generated {
    /// Of docs/environment.md
    EnvTable,
    /// Of docs/exit-codes.md
    ExitCodes,
    /// Of docs/cli.md
    Cli,
    /// Of docs/torchrun.md
    Torchrun,
    /// Of docs/attribution.md
    Attribution,
}

/// The definition of a command, built.
#[must_use]
pub fn subcommand(path: &[&str]) -> clap::Command {
    let mut command = Cli::command();
    command.build();
    for name in path {
        match command.find_subcommand(name) {
            Some(found) => command = found.clone(),
            None => break,
        }
    }
    command
}
