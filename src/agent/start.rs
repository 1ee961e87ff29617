//! What a rank is started with: from the rules in `domain` to a request for the process thread.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use crate::domain::agent::Seat;
use crate::domain::env::{RankEnvError, RankPlace, rank_argv, rank_environment};
use crate::domain::ids::{Attempt, Slot};
use crate::domain::settings::NodeContext;
use crate::domain::spec::{ProgramKind, RunSpec};
use crate::domain::wire::World;
use crate::ipc::board::Boards;
use crate::logs::spec::LogSpec;
use crate::sys::spawn::{Nofile, SpawnRequest, Stdin, explain};

/// Ranks are the kernel's choice when memory is short, before agent and arenas.
const OOM_SCORE_ADJ: i32 = 500;
const SIGHUP: i32 = 1;
const SIGKILL: i32 = 9;
const SIGUSR1: i32 = 10;
const SIGUSR2: i32 = 12;

/// Why a rank cannot be started: errno and what, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) errno: i32,
    pub(super) what: String,
}

impl Refused {
    fn call(call: &str, error: &io::Error) -> Self {
        let errno = error.raw_os_error().unwrap_or(0);
        Self { errno, what: explain(call, errno) }
    }
}

impl From<RankEnvError> for Refused {
    fn from(error: RankEnvError) -> Self {
        const EINVAL: i32 = 22;
        Self { errno: EINVAL, what: error.to_string() }
    }
}

/// All that the ranks of one attempt have in common.
pub(super) struct Starter<'a> {
    pub(super) spec: &'a RunSpec,
    pub(super) context: &'a NodeContext,
    pub(super) logs: &'a LogSpec,
    pub(super) world: &'a World,
    pub(super) slot: Slot,
    pub(super) attempt: Attempt,
    /// SIGHUP was ignored when the launcher was started (`nohup`): it stays so for the ranks.
    pub(super) ignore_hangup: bool,
    /// Their pages of the heartbeat board, where there is one.
    pub(super) boards: Option<&'a Boards>,
    /// Where Python finds our modules.
    pub(super) python: [Option<&'a Path>; 2],
    /// Their RLIMIT_NOFILE, where the agent's is another.
    pub(super) nofile: Option<Nofile>,
}

/// A request and the ends of the pipes that the log pump reads.
pub(super) struct Started {
    pub(super) request: SpawnRequest,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
}

impl Starter<'_> {
    /// The request for one rank. What it inherits is exactly what is named here.
    pub(super) fn request(&self, seat: Seat) -> Result<Started, Refused> {
        let error_file = self.logs.error_file(self.attempt, seat.local_rank);
        let board = self.boards.map(|boards| boards.path(seat.local_rank));
        let env = rank_environment(&RankPlace {
            base: &self.context.base_env,
            world: self.world,
            slot: self.slot,
            local_rank: seat.local_rank,
            attempt: self.attempt,
            spec: self.spec,
            error_file: error_file.as_deref(),
            run_base: Some(&self.context.run_base),
            signals: &self.context.signals,
            slurm_env: self.context.slurm_env,
            threads: self.context.threads,
            gpus: self.context.gpus,
            board: board.as_deref(),
            python: self.python,
        })?;
        let argv: Vec<OsString> = rank_argv(self.spec, &self.context.interpreter, seat.local_rank);
        let pipe = |what| io::pipe().map_err(|e| Refused::call(what, &e));
        let (stdout, stdout_rank) = pipe("pipe for standard output")?;
        let (stderr, stderr_rank) = pipe("pipe for standard error")?;
        let mut ignore = Vec::new();
        if self.spec.kind != ProgramKind::Binary {
            // Python without a handler would die of a warning signal; one that wants it installs a handler.
            ignore.extend([SIGUSR1, SIGUSR2]);
        }
        if self.ignore_hangup {
            ignore.push(SIGHUP);
        }
        let terminal = self.context.interactive && seat.local_rank.0 == 0 && self.world.members.len() == 1;
        Ok(Started {
            request: SpawnRequest {
                argv,
                env,
                cwd: PathBuf::from(&self.context.cwd),
                stdin: if terminal { Stdin::Inherit } else { Stdin::Null },
                stdout: Some(stdout_rank.into()),
                stderr: Some(stderr_rank.into()),
                session: true,
                death_signal: Some(SIGKILL),
                ignore,
                cpus: self.context.cpus.get(seat.local_rank.0 as usize).cloned().unwrap_or_default(),
                oom_score_adj: Some(OOM_SCORE_ADJ),
                nofile: self.nofile,
                ..SpawnRequest::default()
            },
            stdout: stdout.into(),
            stderr: stderr.into(),
        })
    }
}
