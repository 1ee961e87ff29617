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
    /// How long a run goes on without its store.
    StoreTimeout,
    /// How long ranks may run without a word from the coordinator.
    Grant,
    /// The address of this node that others are told.
    LocalAddr,
    /// Who hosts the ranks' rendezvous store.
    RdzvStore,
}

impl Key {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 21] = [
        Self::RunId,
        Self::RunDir,
        Self::Standalone,
        Self::Nnodes,
        Self::Spares,
        Self::NprocPerNode,
        Self::MaxRestarts,
        Self::Module,
        Self::NoPython,
        Self::LogDir,
        Self::Redirects,
        Self::Tee,
        Self::Role,
        Self::LocalRanksFilter,
        Self::ShutdownTimeout,
        Self::LostAfter,
        Self::JoinTimeout,
        Self::StoreTimeout,
        Self::Grant,
        Self::LocalAddr,
        Self::RdzvStore,
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
            Self::LogDir => "log-dir",
            Self::Redirects => "redirects",
            Self::Tee => "tee",
            Self::Role => "role",
            Self::LocalRanksFilter => "local-ranks-filter",
            Self::ShutdownTimeout => "shutdown-timeout",
            Self::RunId => "run-id",
            Self::RunDir => "run-dir",
            Self::LostAfter => "lost-after",
            Self::JoinTimeout => "join-timeout",
            Self::StoreTimeout => "store-timeout",
            Self::Grant => "grant",
            Self::LocalAddr => "local-addr",
            Self::RdzvStore => "rdzv-store",
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
            Self::LogDir => &[env::PET_LOG_DIR],
            Self::Redirects => &[env::PET_REDIRECTS],
            Self::Tee => &[env::PET_TEE],
            Self::Role => &[env::PET_ROLE],
            Self::LocalRanksFilter => &[env::PET_LOCAL_RANKS_FILTER],
            Self::ShutdownTimeout => &[env::PET_SHUTDOWN_TIMEOUT, env::TORCH_ELASTIC_SHUTDOWN_TIMEOUT],
            Self::RunId => &[env::RELIGHT_RUN_ID, env::PET_RDZV_ID],
            Self::RunDir => &[env::RELIGHT_RUN_DIR],
            Self::LostAfter => &[env::RELIGHT_LOST_AFTER],
            Self::JoinTimeout => &[env::RELIGHT_JOIN_TIMEOUT],
            Self::StoreTimeout => &[env::RELIGHT_STORE_TIMEOUT],
            Self::Grant => &[env::RELIGHT_GRANT],
            Self::LocalAddr => &[env::PET_LOCAL_ADDR],
            Self::RdzvStore => &[env::RELIGHT_RDZV_STORE],
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

/// Options of torchrun that are accepted and change nothing here, with their variable.
pub const IGNORED: &[(&str, EnvVar)] = &[
    ("rdzv-backend", env::PET_RDZV_BACKEND),
    ("rdzv-endpoint", env::PET_RDZV_ENDPOINT),
    ("rdzv-conf", env::PET_RDZV_CONF),
    ("master-addr", env::PET_MASTER_ADDR),
    ("master-port", env::PET_MASTER_PORT),
    ("node-rank", env::PET_NODE_RANK),
    ("monitor-interval", env::PET_MONITOR_INTERVAL),
    ("start-method", env::PET_START_METHOD),
    ("event-log-handler", env::PET_EVENT_LOG_HANDLER),
];
