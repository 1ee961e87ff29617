//! From layers to one [`Settings`], and from there to what the machines get.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::advice::bad_hint;
use super::args::{Args, Facts};
use super::direct::Meeting;
use super::file::ConfigFile;
use super::hang::HangSettings;
use super::health::HealthSettings;
use super::hints::Hints;
use super::key::Key;
use super::output::OutputSettings;
use super::value::{self, LogDir, Nodes, Nproc, Origin, StreamMap, Value, ValueProblem};
use super::{behind, launch, place};
use crate::domain::env::{self, GpuVisibility, SlurmEnv};
use crate::domain::ids::{NodeName, RunId};
use crate::domain::numa::NumaBinding;
use crate::domain::slurm_env::{Form, SlurmPlace};
use crate::domain::spec::{
    GrantMode, LaunchPlace, NodeSpec, Numbers, NumbersError, ProgramKind, RunSpec, StoreHost,
};

/// Where a faulty value was written, with its spelling there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The setting.
    pub key: Key,
    /// What it says.
    pub typed: String,
    /// Where.
    pub origin: Origin,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, typed) = (self.key.name(), &self.typed);
        match &self.origin {
            Origin::CommandLine | Origin::Default(_) => write!(f, "--{name} '{typed}'"),
            Origin::Env(name) => write!(f, "{name}='{typed}'"),
            Origin::File(path, line) => {
                write!(f, "{}, line {}: {name} '{typed}'", path.display(), line.0)
            }
        }
    }
}

/// Settings that cannot hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A text is no value of its setting.
    #[error("{place} {problem}")]
    Bad {
        /// Where it is written.
        place: Box<Place>,
        /// Why.
        problem: ValueProblem,
    },
    /// Two settings exclude each other.
    #[error("--no-python and --module exclude each other")]
    ModuleWithoutPython,
    /// The timers contradict each other.
    #[error(transparent)]
    Numbers(#[from] NumbersError),
    /// There is no place for run directories.
    #[error("there is no place for the run directory: neither HOME nor XDG_STATE_HOME is an absolute path")]
    NoRunDir,
}

impl SettingsError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoRunDir => Some("name one: --run-dir DIR".to_owned()),
            Self::Bad { place, problem } => bad_hint(place, problem),
            Self::ModuleWithoutPython | Self::Numbers(_) => None,
        }
    }
}

/// Every setting of a run with its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The run.
    pub run_id: Value<RunId>,
    /// The directory under which run directories lie, absolute.
    pub run_dir: Value<PathBuf>,
    /// `--standalone`: changes nothing in a world of one node.
    pub standalone: Value<bool>,
    /// Nodes of the world.
    pub nnodes: Value<Nodes>,
    /// Nodes beyond those that wait to replace one.
    pub spares: Value<u32>,
    /// Ranks of this node, counted.
    pub nproc: Value<u32>,
    /// Failures that may be followed by a restart; `None`: no limit.
    pub max_restarts: Value<Option<u32>>,
    /// The program is a Python module.
    pub module: Value<bool>,
    /// The program is no Python.
    pub no_python: Value<bool>,
    /// The program is a script, whatever else is said of it.
    pub run_path: Value<bool>,
    /// Each rank sees its own GPU alone, as the first.
    pub virtual_local_rank: Value<bool>,
    /// Which CPUs a rank gets; `None`: all that the node has.
    pub numa: Value<Option<NumaBinding>>,
    /// Where the ranks' logs go.
    pub log_dir: Value<LogDir>,
    /// Streams that go to files only.
    pub redirects: Value<StreamMap>,
    /// Streams that go to files and, with a prefix, to the console.
    pub tee: Value<StreamMap>,
    /// `ROLE_NAME`.
    pub role: Value<String>,
    /// Local ranks that the console shows; `None`: all.
    pub console_ranks: Value<Option<Vec<u32>>>,
    /// TERM to KILL for every stop, in milliseconds; `None`: each stop has its own.
    pub shutdown_timeout_ms: Value<Option<u64>>,
    /// Silence after which a node is lost, in milliseconds.
    pub lost_ms: Value<u64>,
    /// How long a world may wait for its nodes, in milliseconds.
    pub join_timeout_ms: Value<u64>,
    /// With MIN:MAX: how long MIN nodes wait for more, in milliseconds.
    pub last_call_ms: Value<u64>,
    /// The first pause before a restart after failures at one point, in milliseconds.
    pub backoff_ms: Value<u64>,
    /// How long a run goes on without its store, in milliseconds.
    pub store_timeout_ms: Value<u64>,
    /// How long ranks may run without a word from the coordinator.
    pub grant: Value<GrantMode>,
    /// The address of this node that others are told; `None`: found out.
    pub local_addr: Value<Option<String>>,
    /// Who hosts the ranks' rendezvous store.
    pub rdzv_store: Value<StoreHost>,
    /// Programs that are asked about a node.
    pub health: HealthSettings,
    /// Prefix, filters and events of what ranks say.
    pub output: OutputSettings,
    /// What counts as a hang.
    pub hang: HangSettings,
    /// torchrun's settings of its rendezvous and its agent.
    pub hints: Hints,
    /// What ranks see of Slurm, in a job.
    pub slurm_env: Value<SlurmEnv>,
    /// Which GPUs of its node a rank sees.
    pub gpus: Value<GpuVisibility>,
    /// Scripts that do not know of the heartbeat board feed it by hooks in torch.
    pub heartbeat_hooks: Value<bool>,
    /// CPUs of one rank: `OMP_NUM_THREADS` where nobody sets it.
    pub threads: Option<u32>,
    /// What was given and has no effect, as it was spelled (`--rdzv-backend`, `PET_MASTER_ADDR`).
    pub ignored: Vec<String>,
    /// Where machines outside Slurm meet.
    pub meeting: Meeting,
    /// Script, module or binary; empty where only settings were asked for.
    pub program: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// The Slurm job that the default run id was made from.
    pub job: Option<String>,
    /// Where in Slurm this process stands; `None`: it does not, or shall not care.
    pub slurm: Option<SlurmPlace>,
    /// A person is at the terminal.
    pub interactive: bool,
    /// The name of this node.
    pub node: String,
}

/// What one node's processes need beside [`RunSpec`] and [`NodeSpec`]: places, output, environment. It travels
/// to the agent through an inherited descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeContext {
    /// This node.
    pub node: NodeName,
    /// The directory under which run directories lie.
    pub run_base: PathBuf,
    /// The directory of this run.
    pub run_dir: PathBuf,
    /// Where the ranks' logs lie (`<log dir>/<run id>_<node>`); `None`: files are off.
    pub log_dir: Option<PathBuf>,
    /// Streams that go to files only.
    pub redirects: StreamMap,
    /// Streams that go to files and to the console.
    pub tee: StreamMap,
    /// Local ranks that the console shows; `None`: all.
    pub console_ranks: Option<Vec<u32>>,
    /// What stands before a line of a rank on the console; empty: torchrun's.
    pub line_prefix: String,
    /// Texts; lines of standard output and of standard error that hold one of them are written once more.
    pub filters: [Vec<String>; 2],
    /// Events of ranks and agent are printed as JSON.
    pub events: bool,
    /// `--signals-to-handle`, for the ranks to read.
    pub signals: String,
    /// The CPUs of each local rank; empty: all ranks get all.
    pub cpus: Vec<Vec<u32>>,
    /// The interpreter; empty for a binary.
    pub interpreter: PathBuf,
    /// Why this one (`CONDA_PREFIX`).
    pub interpreter_from: String,
    /// The ranks' working directory.
    pub cwd: PathBuf,
    /// A directory of this node, ours alone, for sockets.
    pub private_dir: PathBuf,
    /// The command line, for people.
    pub command: Vec<String>,
    /// `RELIGHT_FORCE_FALLBACK`: calls to be treated as missing.
    pub fallbacks: String,
    /// `RELIGHT_NVML`: the library by which the driver of GPUs is asked, or `off`.
    pub nvml: String,
    /// `RELIGHT_LOG`: what relight logs about itself.
    pub log_filter: Option<String>,
    /// The environment that ranks inherit.
    pub base_env: Vec<(OsString, OsString)>,
    /// CPUs of one rank: `OMP_NUM_THREADS` where nobody sets it.
    pub threads: Option<u32>,
    /// What ranks see of Slurm, in a job.
    pub slurm_env: SlurmEnv,
    /// Which GPUs a rank sees.
    pub gpus: GpuVisibility,
    /// Ranks get the start-up module whose hooks feed the heartbeat board.
    pub heartbeat_hooks: bool,
    /// Names that were given and have no effect: said once.
    pub ignored: Vec<String>,
    /// Local rank 0 may read the terminal.
    pub interactive: bool,
    /// Who hosts the ranks' rendezvous store.
    pub rdzv_store: StoreHost,
    /// Where this node stands in its launch.
    pub place: LaunchPlace,
}

/// All that an agent is told when it is started, through an inherited descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentConfig {
    /// What is run.
    pub spec: RunSpec,
    /// What this node brings.
    pub node: NodeSpec,
    /// Places, output, environment.
    pub context: NodeContext,
}

/// The layers in which a value is looked up.
pub(super) struct Layers<'a> {
    args: &'a Args,
    env: &'a BTreeMap<String, String>,
    files: &'a [ConfigFile],
    nested: bool,
}

impl Layers<'_> {
    pub(super) fn find(&self, key: Key) -> Option<(&str, Origin)> {
        if let Some(typed) = self.args.values.get(&key) {
            return Some((typed, Origin::CommandLine));
        }
        for var in key.env() {
            // A run inside a rank is another run than the one around it.
            let outer = *var == env::RELIGHT_RUN_ID || *var == env::RELIGHT_RUN_DIR;
            let value = self.env.get(var.name).filter(|value| !value.is_empty());
            if let Some(value) = value.filter(|_| !(outer && self.nested)) {
                return Some((value, Origin::Env(var.name)));
            }
        }
        let file = self.files.iter().find_map(|file| file.values.get(&key).map(|found| (file, found)));
        file.map(|(file, (line, text))| (text.as_str(), Origin::File(file.path.clone(), *line)))
    }

    pub(super) fn get<T>(
        &self,
        key: Key,
        parse: impl FnOnce(&str) -> Result<T, ValueProblem>,
        default: impl FnOnce() -> (T, &'static str),
    ) -> Result<Value<T>, SettingsError> {
        let Some((typed, origin)) = self.find(key) else {
            let (value, why) = default();
            return Ok(Value { value, origin: Origin::Default(why) });
        };
        match parse(typed) {
            Ok(value) => Ok(Value { value, origin }),
            Err(problem) => {
                let place = Box::new(Place { key, typed: typed.to_owned(), origin });
                Err(SettingsError::Bad { place, problem })
            }
        }
    }

    pub(super) fn flag(&self, key: Key) -> Result<Value<bool>, SettingsError> {
        self.get(key, value::flag, || (false, ""))
    }

    /// A variable that is there and not empty.
    pub(super) fn var(&self, var: env::EnvVar) -> Option<&str> {
        self.env.get(var.name).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn ignored(&self, hints: &Hints, meeting: &Meeting) -> Vec<String> {
        let mut all = hints.without_effect(meeting.at.is_some());
        all.extend(meeting.without_effect(hints));
        all.sort();
        all.dedup();
        all.extend(behind::without_effect(self.args, |key| self.find(key).is_some()));
        all
    }
}

impl Settings {
    /// Resolves every setting: command line, then `RELIGHT_*` and `PET_*` variables, then the files in order,
    /// then the default.
    ///
    /// # Errors
    /// The first setting that cannot hold.
    pub fn resolve(
        args: &Args,
        facts: &Facts,
        env: &BTreeMap<String, String>,
        files: &[ConfigFile],
    ) -> Result<Self, SettingsError> {
        let nested = env.contains_key(env::RELIGHT_ATTEMPT.name);
        let layers = Layers { args, env, files, nested };
        let numbers = Numbers::default();
        let standalone = layers.flag(Key::Standalone)?;
        let slurm = facts.slurm.clone().filter(|place| place.form != Form::Nested && !standalone.value);
        let (nnodes, spares) = launch::nodes(&layers, slurm.as_ref(), standalone.value)?;
        let several = slurm.is_none() && nnodes.value.max > 1;
        let job = layers.var(env::SLURM_JOB_ID).map(str::to_owned);
        let by_job = job.as_deref().filter(|job| !facts.at_terminal && value::run_id(job).is_ok());
        let streams = || (StreamMap::default(), "");
        let hints = Hints::resolve(&layers, standalone.value)?;
        let meeting =
            Meeting::resolve(&layers, &hints, nnodes.value.max.saturating_add(spares.value), several)?;
        let by_conf = |of: Option<u64>, ms: u64| match of {
            Some(ms) => (ms, "--rdzv-conf"),
            None => (ms, ""),
        };
        let nproc = layers.get(
            Key::NprocPerNode,
            |text| count(value::nproc(text)?, facts),
            || launch::default_nproc(facts, slurm.as_ref()),
        )?;
        let settings = Self {
            run_id: layers.get(
                Key::RunId,
                |text| value::run_id(text).map(RunId),
                || default_run_id(facts, by_job, slurm.as_ref()),
            )?,
            run_dir: place::run_dir(&layers, facts)?,
            standalone,
            nnodes,
            spares,
            threads: launch::threads(facts, nproc.value),
            nproc,
            max_restarts: layers.get(Key::MaxRestarts, value::max_restarts, || default_restarts(facts))?,
            module: layers.flag(Key::Module)?,
            no_python: layers.flag(Key::NoPython)?,
            run_path: layers.flag(Key::RunPath)?,
            virtual_local_rank: layers.flag(Key::VirtualLocalRank)?,
            numa: layers.get(Key::NumaBinding, value::numa, || (None, "all CPUs"))?,
            log_dir: layers
                .get(Key::LogDir, value::log_dir, || (LogDir::InRunDir, "in the run directory"))?,
            redirects: layers.get(Key::Redirects, value::stream_map, streams)?,
            tee: layers.get(Key::Tee, value::stream_map, streams)?,
            role: layers.get(Key::Role, value::role, || ("default".to_owned(), ""))?,
            console_ranks: layers.get(Key::LocalRanksFilter, value::ranks, || (None, "all ranks"))?,
            shutdown_timeout_ms: layers.get(
                Key::ShutdownTimeout,
                |text| value::duration_ms(text).map(Some),
                || (None, "2 s for a restart, 30 s at the end"),
            )?,
            lost_ms: layers.get(Key::LostAfter, value::duration_ms, || (numbers.lost_ms, ""))?,
            join_timeout_ms: layers.get(Key::JoinTimeout, value::duration_at_least_1ms, || {
                by_conf(hints.join_ms(), numbers.join_timeout_ms)
            })?,
            last_call_ms: layers.get(Key::LastCall, value::duration_ms, || {
                by_conf(hints.conf.value.last_call_ms, numbers.last_call_ms)
            })?,
            backoff_ms: layers.get(Key::RestartBackoff, value::duration_ms, || (numbers.backoff_ms, ""))?,
            store_timeout_ms: layers
                .get(Key::StoreTimeout, value::duration_at_least_1ms, || (numbers.store_timeout_ms, ""))?,
            grant: layers.get(Key::Grant, value::grant, || (GrantMode::Auto, ""))?,
            local_addr: layers.get(Key::LocalAddr, launch::address, || (None, "found out"))?,
            rdzv_store: layers.get(Key::RdzvStore, value::store_host, || (StoreHost::Agent, ""))?,
            health: HealthSettings::resolve(&layers)?,
            output: OutputSettings::resolve(&layers)?,
            hang: HangSettings::resolve(&layers, facts.at_terminal)?,
            ignored: layers.ignored(&hints, &meeting),
            hints,
            meeting,
            slurm_env: layers.get(Key::SlurmEnv, launch::slurm_env, || (SlurmEnv::Task, ""))?,
            gpus: layers.get(Key::GpuVisibility, launch::gpus, || (GpuVisibility::All, ""))?,
            heartbeat_hooks: layers.get(Key::HeartbeatHooks, launch::hooks, || (true, ""))?,
            program: args.program.clone().unwrap_or_default(),
            args: args.args.clone(),
            job: by_job.map(str::to_owned),
            slurm,
            interactive: facts.at_terminal,
            node: facts.node.clone(),
        };
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), SettingsError> {
        if self.module.value && self.no_python.value && !self.run_path.value {
            return Err(SettingsError::ModuleWithoutPython);
        }
        self.numbers().check()?;
        Ok(())
    }

    fn numbers(&self) -> Numbers {
        Numbers {
            lost_ms: self.lost_ms.value,
            join_timeout_ms: self.join_timeout_ms.value,
            last_call_ms: self.last_call_ms.value,
            store_timeout_ms: self.store_timeout_ms.value,
            backoff_ms: self.backoff_ms.value,
            grant: self.grant.value,
            ..Numbers::default()
        }
    }

    /// How the program is started.
    #[must_use]
    pub fn kind(&self) -> ProgramKind {
        match (self.module.value, self.no_python.value) {
            _ if self.run_path.value => ProgramKind::Script,
            (true, _) => ProgramKind::Module,
            (false, true) => ProgramKind::Binary,
            (false, false) => ProgramKind::Script,
        }
    }

    /// The default run id of a Slurm job counts the relight commands of the job: this is the `k`-th. Ids that
    /// somebody chose stay, and the answer is false.
    pub fn count_in_job(&mut self, k: u32) -> bool {
        match (&self.run_id.origin, &self.job) {
            (Origin::Default(why), Some(job)) if *why == env::SLURM_JOB_ID.name => {
                self.run_id.value = RunId(format!("{job}.{k}"));
                true
            }
            _ => false,
        }
    }

    /// The directory of this run.
    #[must_use]
    pub fn own_dir(&self) -> PathBuf {
        self.run_dir.value.join(self.run_id.value.as_str())
    }

    /// What the coordinator binds for the run.
    #[must_use]
    pub fn run_spec(&self) -> RunSpec {
        RunSpec {
            run_id: self.run_id.value.clone(),
            kind: self.kind(),
            program: self.program.clone(),
            args: self.args.clone(),
            min_nodes: self.nnodes.value.min,
            max_nodes: self.nnodes.value.max,
            spares: self.spares.value,
            max_restarts: self.max_restarts.value,
            role: self.role.value.clone(),
            shutdown_timeout_ms: self.shutdown_timeout_ms.value,
            virtual_local_rank: self.virtual_local_rank.value,
            interactive: self.interactive,
            numbers: self.numbers(),
            hang: self.hang.spec(),
            health: self.health.spec(),
        }
    }

    /// What this node brings.
    #[must_use]
    pub fn node_spec(&self, cwd: &Path) -> NodeSpec {
        let log_dir = self.node_log_dir(cwd).unwrap_or_default();
        NodeSpec {
            nproc: self.nproc.value,
            role: self.role.value.clone(),
            script_digest: None,
            log_dir: log_dir.to_string_lossy().into_owned(),
            // Known when the agent listens; until then, and on a machine by itself, this.
            address: "127.0.0.1".to_owned(),
            addresses: vec!["127.0.0.1".to_owned()],
            port: 0,
            order: self.place().index,
            told: self.meeting.at.as_ref().map(|at| self.run_spec().told(at.rank)),
        }
    }

    /// What this node's processes need beside the specifications.
    #[must_use]
    pub fn node_context(
        &self,
        cwd: &Path,
        interpreter: Option<(PathBuf, String)>,
        base_env: Vec<(OsString, OsString)>,
    ) -> NodeContext {
        let (interpreter, interpreter_from) = interpreter.unwrap_or_default();
        NodeContext {
            node: NodeName::new(self.node.clone()),
            run_base: self.run_dir.value.clone(),
            run_dir: self.own_dir(),
            log_dir: self.node_log_dir(cwd),
            redirects: self.redirects.value.clone(),
            tee: self.tee.value.clone(),
            console_ranks: self.console_ranks.value.clone(),
            line_prefix: self.output.prefix.value.clone(),
            filters: [self.output.stdout_filters.value.clone(), self.output.stderr_filters.value.clone()],
            events: self.output.events.value,
            signals: self.hints.signals.value.as_ref().map_or(env::SIGNALS.to_owned(), |all| all.join(",")),
            interpreter,
            interpreter_from,
            cwd: cwd.to_owned(),
            threads: self.threads,
            slurm_env: self.slurm_env.value,
            gpus: self.gpus.value,
            heartbeat_hooks: self.heartbeat_hooks.value,
            base_env,
            ignored: self.ignored.clone(),
            interactive: self.interactive,
            rdzv_store: self.rdzv_store.value,
            place: self.place(),
            ..NodeContext::default()
        }
    }

    fn node_log_dir(&self, cwd: &Path) -> Option<PathBuf> {
        let base = match &self.log_dir.value {
            LogDir::InRunDir => self.own_dir().join("logs"),
            LogDir::At(path) => cwd.join(path),
            LogDir::Off => return None,
        };
        Some(base.join(format!("{}_{}", self.run_id.value, self.node)))
    }
}

fn count(wanted: Nproc, facts: &Facts) -> Result<u32, ValueProblem> {
    match wanted {
        Nproc::Count(n) => Ok(n),
        Nproc::Gpu if facts.gpus == 0 => Err(ValueProblem::NoGpu),
        Nproc::Xpu if facts.xpus == 0 => Err(ValueProblem::NoXpu),
        Nproc::Gpu => Ok(facts.gpus),
        Nproc::Xpu => Ok(facts.xpus),
        Nproc::Auto if facts.gpus > 0 => Ok(facts.gpus),
        Nproc::Auto if facts.xpus > 0 => Ok(facts.xpus),
        Nproc::Auto | Nproc::Cpu => Ok(facts.cpus.max(1)),
    }
}

fn default_restarts(facts: &Facts) -> (Option<u32>, &'static str) {
    if facts.as_torchrun {
        (Some(0), "called as torchrun")
    } else if facts.at_terminal {
        (Some(0), "stdin is a terminal")
    } else {
        (None, "stdin is no terminal")
    }
}

fn default_run_id(facts: &Facts, job: Option<&str>, slurm: Option<&SlurmPlace>) -> (RunId, &'static str) {
    match job {
        Some(job) if slurm.is_some_and(|place| place.form == Form::Step) => {
            let step = slurm.and_then(|place| place.step).unwrap_or(0);
            (RunId(format!("{job}.s{step}")), env::SLURM_STEP_ID.name)
        }
        Some(job) => (RunId(format!("{job}.0")), env::SLURM_JOB_ID.name),
        None => (RunId(format!("{}-{:04x}", facts.stamp, facts.random)), "time and a random number"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::settings::JobOutput;

    fn facts() -> Facts {
        Facts {
            as_torchrun: false,
            at_terminal: false,
            cpus: 6,
            gpus: 0,
            xpus: 0,
            node: "n01".into(),
            cwd: "/home/u/exp".into(),
            stamp: "20261201-080000".into(),
            random: 0xbeef,
            slurm: None,
            job_output: None,
        }
    }

    fn resolve(typed: &[(Key, &str)], env: &[(&str, &str)], file: &str) -> Result<Settings, SettingsError> {
        resolve_with(&facts(), typed, env, file)
    }

    fn resolve_with(
        facts: &Facts,
        typed: &[(Key, &str)],
        env: &[(&str, &str)],
        file: &str,
    ) -> Result<Settings, SettingsError> {
        let args = Args {
            values: typed.iter().map(|(key, text)| (*key, (*text).to_owned())).collect(),
            program: Some("train.py".into()),
            ..Args::default()
        };
        let mut all: BTreeMap<String, String> = BTreeMap::from([("HOME".into(), "/home/u".into())]);
        all.extend(env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let files = [ConfigFile::parse(Path::new("/etc/relight.conf"), file).unwrap()];
        Settings::resolve(&args, facts, &all, &files)
    }

    #[test]
    fn precedence() {
        let file = "max-restarts = 1\nrole = filed";
        let env = [("PET_MAX_RESTARTS", "2"), ("PET_TEE", "")];
        let all = resolve(&[(Key::MaxRestarts, "3")], &env, file).unwrap();
        assert_eq!(all.max_restarts, Value { value: Some(3), origin: Origin::CommandLine });
        let all = resolve(&[], &env, file).unwrap();
        assert_eq!(all.max_restarts, Value { value: Some(2), origin: Origin::Env("PET_MAX_RESTARTS") });
        let all = resolve(&[], &[], file).unwrap();
        assert_eq!((all.max_restarts.value, all.role.value.as_str()), (Some(1), "filed"));
        assert_eq!(all.role.origin.to_string(), "/etc/relight.conf:2");
        assert_eq!(all.tee.origin, Origin::Default(""));
    }

    #[test]
    fn default_restarts_follow_the_terminal_and_the_name() {
        let mut facts = facts();
        assert_eq!(resolve_with(&facts, &[], &[], "").unwrap().max_restarts.value, None);
        facts.at_terminal = true;
        assert_eq!(resolve_with(&facts, &[], &[], "").unwrap().max_restarts.value, Some(0));
        facts.at_terminal = false;
        facts.as_torchrun = true;
        assert_eq!(resolve_with(&facts, &[], &[], "").unwrap().max_restarts.value, Some(0));
        let typed = [(Key::MaxRestarts, "unlimited")];
        assert_eq!(resolve_with(&facts, &typed, &[], "").unwrap().max_restarts.value, None);
    }

    #[test]
    fn nodes_of_a_job_of_four() {
        let job = [("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "n[1-4]"), ("SLURMD_NODENAME", "n1")];
        let job = job.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let facts = Facts { slurm: SlurmPlace::read(&job).unwrap(), ..facts() };
        let of = |nnodes: &str, spares: &str| {
            let typed = [(Key::Nnodes, nnodes), (Key::Spares, spares)];
            let typed: Vec<_> = typed.into_iter().filter(|(_, text)| !text.is_empty()).collect();
            match resolve_with(&facts, &typed, &[], "") {
                Ok(all) => format!("{} + {}", all.nnodes.value, all.spares.value),
                Err(error) => error.to_string(),
            }
        };
        for (nnodes, spares, expected) in [
            ("", "", "4 + 0"),
            ("", "1", "3 + 1"),
            ("3", "", "3 + 1"),
            ("5", "", "--nnodes '5' asks for more nodes than the 4 that are there"),
            ("2:4", "", "2:4 + 0"),
            ("2:3", "", "2:3 + 1"),
            ("1:1", "", "1 + 3"),
            // One line for jobs of any size.
            ("2:64", "", "2:4 + 0"),
            ("2:64", "1", "2:3 + 1"),
            ("4:64", "", "4 + 0"),
            ("5:8", "", "--nnodes '5:8' asks for more nodes than the 4 that are there"),
            ("4:64", "1", "--spares '1' asks for more nodes than the 4 that are there"),
        ] {
            assert_eq!(of(nnodes, spares), expected, "--nnodes={nnodes} --spares={spares}");
        }
        let spec = resolve_with(&facts, &[(Key::Nnodes, "2:4")], &[], "").unwrap().run_spec();
        assert_eq!((spec.min_nodes, spec.max_nodes, spec.numbers.last_call_ms), (2, 4, 30_000));
    }

    #[test]
    fn ids_and_places() {
        let all = resolve(&[], &[], "").unwrap();
        assert_eq!(all.own_dir(), Path::new("/home/u/.local/state/relight/20261201-080000-beef"));
        let job = [("SLURM_JOB_ID", "77"), ("SLURM_SUBMIT_DIR", "/scratch/x")];
        let mut all = resolve(&[], &job, "").unwrap();
        assert_eq!(all.own_dir(), Path::new("/scratch/x/.relight/77.0"));
        assert!(all.count_in_job(3));
        assert_eq!(all.run_id.value.as_str(), "77.3");
        let output = JobOutput {
            file: "/scratch/logs/77.out".into(),
            plain: true,
            writable: true,
            shared: false,
            with_submission: true,
        };
        let beside = Facts { job_output: Some(output), ..facts() };
        let all = resolve_with(&beside, &[], &job, "").unwrap();
        assert_eq!(all.own_dir(), Path::new("/scratch/logs/.relight/77.0"));
        assert_eq!(all.run_dir.origin, Origin::Default("beside the job's output"));
        let filed = resolve_with(&beside, &[], &job, "run-dir = /site").unwrap();
        assert_eq!(filed.own_dir(), Path::new("/site/77.0"));
        let env = [("RELIGHT_RUN_ID", "a"), ("RELIGHT_RUN_DIR", "r"), ("PET_RDZV_ID", "b")];
        let mut all = resolve(&[], &env, "").unwrap();
        assert_eq!(all.own_dir(), Path::new("/home/u/exp/r/a"));
        assert!(!all.count_in_job(3));
        assert_eq!(all.node_spec(Path::new("/home/u/exp")).log_dir, "/home/u/exp/r/a/logs/a_n01");
        let nested = [env[0], env[1], ("RELIGHT_ATTEMPT", "0")];
        let all = resolve(&[], &nested, "").unwrap();
        assert_eq!(all.own_dir(), Path::new("/home/u/.local/state/relight/20261201-080000-beef"));
        let none = resolve(&[], &[("HOME", ""), ("XDG_STATE_HOME", "relative")], "");
        assert_eq!(none, Err(SettingsError::NoRunDir));
    }

    #[test]
    fn counts() {
        let mut facts = facts();
        let nproc = |facts: &Facts, text| {
            resolve_with(facts, &[(Key::NprocPerNode, text)], &[], "").map(|all| all.nproc.value)
        };
        assert_eq!((nproc(&facts, "auto"), nproc(&facts, "cpu"), nproc(&facts, "3")), (Ok(6), Ok(6), Ok(3)));
        assert!(nproc(&facts, "gpu").is_err());
        facts.gpus = 8;
        assert_eq!(
            (nproc(&facts, "auto"), nproc(&facts, "gpu"), nproc(&facts, "cpu")),
            (Ok(8), Ok(8), Ok(6))
        );
    }

    #[test]
    fn sentences() {
        for (key, text, sentence, hint) in [
            (Key::NprocPerNode, "4097", "--nproc-per-node '4097' is too large (at most 4096)", None),
            (Key::NprocPerNode, "0", "--nproc-per-node '0' must be at least 1", None),
            (
                Key::NprocPerNode,
                "gpus",
                "--nproc-per-node 'gpus' is neither a number nor one of auto, gpu, cpu, xpu",
                Some("did you mean 'gpu'?"),
            ),
            (
                Key::Nnodes,
                "2",
                "--nnodes '2' asks for several nodes, and this is no Slurm job (or --standalone was given)",
                Some(
                    "in a job of Slurm nothing more is needed; elsewhere say where the machines meet: --master-addr HOST and a \
                     --node-rank for each, or --rdzv-backend c10d --rdzv-endpoint HOST:PORT",
                ),
            ),
            (
                Key::LostAfter,
                "2",
                "--lost-after 2000 ms is too short for a beat of 1000 ms: a pause of 3 s must be survived (use at least 5701 ms)",
                None,
            ),
            (Key::ShutdownTimeout, "-1", "--shutdown-timeout '-1' is negative", None),
        ] {
            let error = resolve(&[(key, text)], &[], "").unwrap_err();
            assert_eq!(error.to_string(), sentence);
            assert_eq!(error.hint().as_deref(), hint);
        }
        let error = resolve(&[], &[("PET_NNODES", "x")], "").unwrap_err();
        assert_eq!(error.to_string(), "PET_NNODES='x' is neither N nor MIN:MAX");
        let error = resolve(&[], &[], "\ntee = 9").unwrap_err();
        assert!(error.to_string().starts_with("/etc/relight.conf, line 2: tee '9' selects no streams"));
        let both = [(Key::Module, "1"), (Key::NoPython, "1")];
        assert_eq!(resolve(&both, &[], ""), Err(SettingsError::ModuleWithoutPython));
    }

    #[test]
    fn what_the_machines_get() {
        let typed = [
            (Key::NprocPerNode, "4"),
            (Key::LostAfter, "6"),
            (Key::Grant, "lease"),
            (Key::ShutdownTimeout, "0.5"),
            (Key::LogDir, "/dev/null"),
            (Key::Module, "1"),
        ];
        let all = resolve(&typed, &[("PET_MASTER_ADDR", "x")], "").unwrap();
        let spec = all.run_spec();
        assert_eq!((spec.numbers.lost_ms, spec.numbers.grant), (6_000, GrantMode::Lease));
        assert_eq!((spec.kind, spec.shutdown_timeout_ms), (ProgramKind::Module, Some(500)));
        let context = all.node_context(Path::new("/home/u/exp"), Some(("/p".into(), "PATH".into())), vec![]);
        assert_eq!((context.log_dir, context.threads), (None, Some(1)));
        assert_eq!(context.ignored, ["PET_MASTER_ADDR"]);
        assert_eq!(all.rows().len(), Key::ALL.len());
    }
}
