//! Fault scenarios: a training job with a known result under `relight run`, something breaks, and the job must
//! end as if nothing had happened. One row is one test; the numbers are those of the project's list of scenarios.

#![allow(
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stderr,
    clippy::unwrap_used
)]

#[path = "../support/mod.rs"]
mod support;

mod again;
mod attribution;
mod commit_log;
mod devices;
mod guarded;
mod hangs;
mod journal;
mod moments;
mod run;
mod scenario;
mod sessions;
mod soak;
mod stops;
mod store;
mod torchrun;

use std::time::Duration;

use nix::sys::signal::Signal;
use scenario::{Inject, Limit, Row};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What most rows share: four ranks, one of which fails once.
const ONCE: Row = Row {
    number: 0,
    world: 4,
    max_restarts: 3,
    steps: 30,
    step_time: "0.02",
    ckpt_every: 5,
    args: &[],
    env: &[],
    inject: Inject::Nothing,
    limit: Limit::None,
    code: 0,
    roots: &[],
    console: &[],
    detect: ms(1_000),
    resume: ms(10_000),
    total: ms(60_000),
};

/// Two exit codes that are seen at one look cannot be told apart by time, and on a loaded machine a look may come
/// that late. Rank 0 is the hub of the trainer's collective: while it sleeps nobody loses a connection.
const PEERS_NOTICE_LATER: &str = "--fault=slow=2:0:13";

macro_rules! scenarios {
    ($($name:ident: $row:expr;)*) => { $(#[test] fn $name() { scenario::play(&$row); })* };
}

scenarios! {
    s01_sigkill_of_a_rank: Row {
        number: 1,
        inject: Inject::Kill { rank: 2, after_step: 12, signal: Signal::SIGKILL },
        roots: &[Some((2, "signal 9"))],
        console: &["rank 2", "SIGKILL"],
        ..ONCE
    };
    s01_sigkill_of_a_rank_on_an_old_kernel: Row {
        number: 1,
        env: &[("RELIGHT_FORCE_FALLBACK", "all")],
        inject: Inject::Kill { rank: 2, after_step: 12, signal: Signal::SIGKILL },
        roots: &[Some((2, "signal 9"))],
        console: &["rank 2", "SIGKILL"],
        ..ONCE
    };
    s18_grandchildren_on_an_old_kernel: Row {
        number: 18,
        env: &[("RELIGHT_FORCE_FALLBACK", "all")],
        args: &["--fault=grandchildren:1:13", PEERS_NOTICE_LATER],
        roots: &[Some((1, "code 9"))],
        console: &["rank 1"],
        resume: ms(15_000),
        ..ONCE
    };
    s36_sigkill_of_the_agent_on_an_old_kernel: Row {
        number: 36,
        env: &[("RELIGHT_FORCE_FALLBACK", "all")],
        inject: Inject::KillAgent { after_step: 12 },
        roots: &[None],
        detect: ms(5_000),
        resume: ms(15_000),
        ..ONCE
    };
    s02_sigkill_of_rank_0: Row {
        number: 2,
        inject: Inject::Kill { rank: 0, after_step: 12, signal: Signal::SIGKILL },
        roots: &[Some((0, "signal 9"))],
        console: &["rank 0", "SIGKILL"],
        ..ONCE
    };
    s03_native_crash: Row {
        number: 3,
        args: &["--fault", "segv:1:13"],
        roots: &[Some((1, "signal 11"))],
        console: &["rank 1", "SIGSEGV"],
        ..ONCE
    };
    s04_abort: Row {
        number: 4,
        args: &["--fault", "abort:3:13"],
        roots: &[Some((3, "signal 6"))],
        console: &["rank 3", "SIGABRT"],
        ..ONCE
    };
    s05_bus_error_of_a_truncated_file: Row {
        number: 5,
        args: &["--fault", "bus:1:13"],
        roots: &[Some((1, "signal 7"))],
        console: &["rank 1", "SIGBUS"],
        ..ONCE
    };
    s06_exception_once: Row {
        number: 6,
        args: &["--fault=exception=labels are missing:2:13", PEERS_NOTICE_LATER],
        roots: &[Some((2, "code 1"))],
        console: &["rank 2", "RuntimeError: labels are missing"],
        ..ONCE
    };
    s09_early_exit_0_is_the_root: Row {
        number: 9,
        args: &["--fault=exit0:1:13", "--fault=slow=0.5:0:13"],
        roots: &[Some((1, "code 0"))],
        console: &["rank 1"],
        ..ONCE
    };
    s14_a_rank_dies_while_another_is_recovered: Row {
        number: 14,
        args: &["--fault", "signal=KILL:1:13", "--fault", "signal=KILL:2:0:1"],
        roots: &[Some((1, "signal 9")), Some((2, "signal 9"))],
        console: &["rank 1", "rank 2"],
        resume: ms(20_000),
        ..ONCE
    };
    s18_grandchildren_hold_ports_and_shared_memory: Row {
        number: 18,
        args: &["--fault=grandchildren:1:13", PEERS_NOTICE_LATER],
        roots: &[Some((1, "code 9"))],
        console: &["rank 1"],
        resume: ms(15_000),
        ..ONCE
    };
    s19_a_rank_ignores_sigterm: Row {
        number: 19,
        args: &["--fault", "ignore-term:1:1", "--fault", "hang:1:13", "--fault", "exit=3:2:13"],
        roots: &[Some((2, "code 3"))],
        console: &["rank 2"],
        resume: ms(15_000),
        ..ONCE
    };
    s20_crash_before_the_first_step: Row {
        number: 20,
        args: &["--fault", "import-crash:1:0"],
        roots: &[Some((1, "code 1"))],
        console: &["rank 1", "ImportError"],
        resume: ms(15_000),
        ..ONCE
    };
    s36_sigkill_of_the_agent: Row {
        number: 36,
        inject: Inject::KillAgent { after_step: 12 },
        roots: &[None],
        detect: ms(5_000),
        resume: ms(15_000),
        ..ONCE
    };
    s64_a_rank_meets_the_limit_of_open_files: Row {
        number: 64,
        args: &["--fault=nofile=64:1:13", PEERS_NOTICE_LATER],
        roots: &[Some((1, "code 1"))],
        console: &["rank 1", "Too many open files"],
        ..ONCE
    };
    s64_the_launcher_meets_the_limit_of_open_files: Row {
        number: 64,
        world: 40,
        max_restarts: 1,
        limit: Limit::OpenFiles(64),
        code: 1,
        console: &["open files", "64"],
        ..ONCE
    };
    s65_floods_of_output: Row {
        number: 65,
        world: 2,
        args: &[
            "--fault=flood=2:*:13",
            "--fault=exception=found behind the flood:1:20",
            "--fault=slow=2:0:20",
        ],
        roots: &[Some((1, "code 1"))],
        console: &["found behind the flood"],
        limit: Limit::Pss { kib: 60 * 1024 },
        ..ONCE
    };
}
