//! What strangers, peers, ranks and old disks send, changed at random: nothing may panic us, take long, or take more
//! memory than its bytes justify. One file a target in `targets/`, its inputs in `corpus/<target>/`.
//!
//! Two seconds of a processor each in the suite; `scripts/fuzz` runs longer.

#![allow(
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stderr,
    clippy::unwrap_used
)]

mod engine;
mod heap;
mod mutate;
mod steps;

/// A file of `targets/` with a `TARGET` is one test.
macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        mod targets { $(pub mod $name;)* }
        $(#[test] fn $name() { engine::play(&targets::$name::TARGET); })*
    };
}

targets! {
    agent_machine,
    board,
    coordinator_machine,
    error_file,
    frames,
    handshake,
    hint,
    hostlist,
    ipc,
    journal,
    last_words,
    log_pump,
    patterns,
    run_directory,
    slurm_env,
    stack_parser,
    torch_store,
}
