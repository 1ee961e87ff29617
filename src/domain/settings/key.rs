//! The settings by name: one row each.

use crate::domain::env::{self, EnvVar};

/// A setting. Its name is the long option and the key in a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// One node, whatever else is said.
    Standalone,
    /// N or MIN:MAX.
    Nnodes,
    /// Nodes beyond those that wait to replace one.
    Spares,
    /// Ranks of a node.
    NprocPerNode,
    /// Failures that may be followed by a restart.
    MaxRestarts,
    /// The program is a Python module.
    Module,
    /// The program is no Python.
    NoPython,
    /// The script runs in its interpreter as `runpy.run_path` does it.
    RunPath,
    /// Each rank sees its own GPU alone, as the first.
    VirtualLocalRank,
    /// Which CPUs a rank gets.
    NumaBinding,
    /// Where logs lie.
    LogDir,
    /// Which streams go to files.
    Redirects,
    /// Which streams go to files and to the console.
    Tee,
    /// `ROLE_NAME`.
    Role,
    /// Whose streams the console shows.
    LocalRanksFilter,
    /// What stands before a line on the console.
    LogLinePrefixTemplate,
    /// Which lines of standard output are written once more.
    DuplicateStdoutFilters,
    /// Which lines of standard error are written once more.
    DuplicateStderrFilters,
    /// Whether events of the ranks are printed.
    EventLogHandler,
    /// TERM to KILL.
    ShutdownTimeout,
    /// The run.
    RunId,
    /// Where run directories lie.
    RunDir,
    /// Silence after which a node is lost.
    LostAfter,
    /// How long a world may wait for its nodes.
    JoinTimeout,
    /// With MIN:MAX: how long MIN nodes wait for more.
    LastCall,
    /// How long is waited before a restart after the second failure at one point.
    RestartBackoff,
    /// How long a run goes on without its store.
    StoreTimeout,
    /// How long ranks may run without a word from the coordinator.
    Grant,
    /// Programs that are asked whether a node is fit.
    HealthCmd,
    /// How long each of them may take.
    HealthTimeout,
    /// The address of this node that others are told.
    LocalAddr,
    /// Who hosts the ranks' rendezvous store.
    RdzvStore,
    /// How torchrun's agents find each other.
    RdzvBackend,
    /// Where torchrun's agents find each other.
    RdzvEndpoint,
    /// Timeouts of torchrun's rendezvous.
    RdzvConf,
    /// How often torchrun looks at its ranks.
    MonitorInterval,
    /// How torchrun starts functions.
    StartMethod,
    /// Which signals torchrun handles.
    SignalsToHandle,
    /// A plug-in of torchrun's.
    LogsSpecs,
    /// What ranks see of Slurm.
    SlurmEnv,
    /// Which GPUs of its node a rank sees.
    GpuVisibility,
    /// Whether scripts that do not know of the heartbeat board feed it.
    HeartbeatHooks,
    /// This machine's number outside Slurm.
    NodeRank,
    /// Where machines outside Slurm meet.
    MasterAddr,
    /// On which port.
    MasterPort,
    /// What tells them from strangers.
    SecretFile,
    /// Nothing does.
    Insecure,
    /// Silence of a rank that is a hang.
    HeartbeatTimeout,
    /// The same for phases and sections by name.
    PhaseTimeout,
    /// What is done about a hang.
    HangAction,
    /// The shortest limit that is learned.
    HangFloor,
}

impl Key {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 51] = [
        Self::RunId,
        Self::RunDir,
        Self::Standalone,
        Self::Nnodes,
        Self::Spares,
        Self::NprocPerNode,
        Self::MaxRestarts,
        Self::Module,
        Self::NoPython,
        Self::RunPath,
        Self::VirtualLocalRank,
        Self::NumaBinding,
        Self::LogDir,
        Self::Redirects,
        Self::Tee,
        Self::Role,
        Self::LocalRanksFilter,
        Self::LogLinePrefixTemplate,
        Self::DuplicateStdoutFilters,
        Self::DuplicateStderrFilters,
        Self::EventLogHandler,
        Self::ShutdownTimeout,
        Self::LostAfter,
        Self::JoinTimeout,
        Self::LastCall,
        Self::StoreTimeout,
        Self::RestartBackoff,
        Self::HeartbeatTimeout,
        Self::PhaseTimeout,
        Self::HangAction,
        Self::HangFloor,
        Self::Grant,
        Self::HealthCmd,
        Self::HealthTimeout,
        Self::LocalAddr,
        Self::RdzvStore,
        Self::RdzvBackend,
        Self::RdzvEndpoint,
        Self::RdzvConf,
        Self::MonitorInterval,
        Self::StartMethod,
        Self::SignalsToHandle,
        Self::LogsSpecs,
        Self::SlurmEnv,
        Self::GpuVisibility,
        Self::HeartbeatHooks,
        Self::NodeRank,
        Self::MasterAddr,
        Self::MasterPort,
        Self::SecretFile,
        Self::Insecure,
    ];

    /// The long option without its dashes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Nnodes => "nnodes",
            Self::Spares => "spares",
            Self::NprocPerNode => "nproc-per-node",
            Self::MaxRestarts => "max-restarts",
            Self::Module => "module",
            Self::NoPython => "no-python",
            Self::RunPath => "run-path",
            Self::VirtualLocalRank => "virtual-local-rank",
            Self::NumaBinding => "numa-binding",
            Self::LogDir => "log-dir",
            Self::Redirects => "redirects",
            Self::Tee => "tee",
            Self::Role => "role",
            Self::LocalRanksFilter => "local-ranks-filter",
            Self::LogLinePrefixTemplate => "log-line-prefix-template",
            Self::DuplicateStdoutFilters => "duplicate-stdout-filters",
            Self::DuplicateStderrFilters => "duplicate-stderr-filters",
            Self::EventLogHandler => "event-log-handler",
            Self::ShutdownTimeout => "shutdown-timeout",
            Self::RunId => "run-id",
            Self::RunDir => "run-dir",
            Self::LostAfter => "lost-after",
            Self::JoinTimeout => "join-timeout",
            Self::LastCall => "last-call",
            Self::StoreTimeout => "store-timeout",
            Self::RestartBackoff => "restart-backoff",
            Self::Grant => "grant",
            Self::HealthCmd => "health-cmd",
            Self::HealthTimeout => "health-timeout",
            Self::LocalAddr => "local-addr",
            Self::RdzvStore => "rdzv-store",
            Self::RdzvBackend => "rdzv-backend",
            Self::RdzvEndpoint => "rdzv-endpoint",
            Self::RdzvConf => "rdzv-conf",
            Self::MonitorInterval => "monitor-interval",
            Self::StartMethod => "start-method",
            Self::SignalsToHandle => "signals-to-handle",
            Self::LogsSpecs => "logs-specs",
            Self::SlurmEnv => "slurm-env",
            Self::GpuVisibility => "gpu-visibility",
            Self::HeartbeatHooks => "heartbeat-hooks",
            Self::NodeRank => "node-rank",
            Self::MasterAddr => "master-addr",
            Self::MasterPort => "master-port",
            Self::SecretFile => "secret-file",
            Self::Insecure => "insecure",
            Self::HeartbeatTimeout => "heartbeat-timeout",
            Self::PhaseTimeout => "phase-timeout",
            Self::HangAction => "hang-action",
            Self::HangFloor => "hang-floor",
        }
    }

    /// The variables that give it, first come first.
    #[must_use]
    pub const fn env(self) -> &'static [EnvVar] {
        match self {
            Self::Standalone => &[env::PET_STANDALONE],
            Self::Nnodes => &[env::PET_NNODES],
            Self::Spares => &[env::RELIGHT_SPARES],
            Self::NprocPerNode => &[env::PET_NPROC_PER_NODE],
            Self::MaxRestarts => &[env::PET_MAX_RESTARTS],
            Self::Module => &[env::PET_MODULE],
            Self::NoPython => &[env::PET_NO_PYTHON],
            Self::RunPath => &[env::PET_RUN_PATH],
            Self::VirtualLocalRank => &[env::PET_VIRTUAL_LOCAL_RANK],
            Self::NumaBinding => &[],
            Self::LogDir => &[env::PET_LOG_DIR],
            Self::Redirects => &[env::PET_REDIRECTS],
            Self::Tee => &[env::PET_TEE],
            Self::Role => &[env::PET_ROLE],
            Self::LocalRanksFilter => &[env::PET_LOCAL_RANKS_FILTER],
            Self::LogLinePrefixTemplate => {
                &[env::PET_LOG_LINE_PREFIX_TEMPLATE, env::TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE]
            }
            Self::DuplicateStdoutFilters => &[env::PET_DUPLICATE_STDOUT_FILTERS],
            Self::DuplicateStderrFilters => &[env::PET_DUPLICATE_STDERR_FILTERS],
            Self::EventLogHandler => &[env::PET_EVENT_LOG_HANDLER],
            Self::ShutdownTimeout => &[env::PET_SHUTDOWN_TIMEOUT, env::TORCH_ELASTIC_SHUTDOWN_TIMEOUT],
            Self::RunId => &[env::RELIGHT_RUN_ID, env::PET_RDZV_ID],
            Self::RunDir => &[env::RELIGHT_RUN_DIR],
            Self::LostAfter => &[env::RELIGHT_LOST_AFTER],
            Self::JoinTimeout => &[env::RELIGHT_JOIN_TIMEOUT],
            Self::LastCall => &[env::RELIGHT_LAST_CALL],
            Self::StoreTimeout => &[env::RELIGHT_STORE_TIMEOUT],
            Self::RestartBackoff => &[env::RELIGHT_RESTART_BACKOFF],
            Self::Grant => &[env::RELIGHT_GRANT],
            Self::HealthCmd => &[env::RELIGHT_HEALTH_CMD],
            Self::HealthTimeout => &[env::RELIGHT_HEALTH_TIMEOUT],
            Self::LocalAddr => &[env::PET_LOCAL_ADDR],
            Self::RdzvStore => &[env::RELIGHT_RDZV_STORE],
            Self::RdzvBackend => &[env::PET_RDZV_BACKEND],
            Self::RdzvEndpoint => &[env::PET_RDZV_ENDPOINT],
            Self::RdzvConf => &[env::PET_RDZV_CONF],
            Self::MonitorInterval => &[env::PET_MONITOR_INTERVAL],
            Self::StartMethod => &[env::PET_START_METHOD],
            Self::SignalsToHandle => &[env::PET_SIGNALS_TO_HANDLE],
            Self::LogsSpecs => &[],
            Self::SlurmEnv => &[env::RELIGHT_SLURM_ENV],
            Self::GpuVisibility => &[env::RELIGHT_GPU_VISIBILITY],
            Self::HeartbeatHooks => &[env::RELIGHT_HEARTBEAT_HOOKS],
            Self::NodeRank => &[env::PET_NODE_RANK],
            Self::MasterAddr => &[env::PET_MASTER_ADDR],
            Self::MasterPort => &[env::PET_MASTER_PORT],
            Self::SecretFile => &[env::RELIGHT_SECRET_FILE],
            Self::Insecure => &[],
            Self::HeartbeatTimeout => &[env::RELIGHT_HEARTBEAT_TIMEOUT],
            Self::PhaseTimeout => &[env::RELIGHT_PHASE_TIMEOUT],
            Self::HangAction => &[env::RELIGHT_HANG_ACTION],
            Self::HangFloor => &[env::RELIGHT_HANG_FLOOR],
        }
    }

    /// The setting of that name; underscores count as hyphens, `rdzv-id` is `run-id`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let name = name.replace('_', "-");
        if name == "rdzv-id" {
            return Some(Self::RunId);
        }
        Self::ALL.into_iter().find(|key| key.name() == name)
    }
}
