//! Ring 2: the guardian's process. One thread, no runtime; everything it decides is decided in
//! [`crate::domain::guardian`], everything it does is done by [`crate::sys`].

mod agent;
mod driver;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use crate::domain::guardian::Numbers;
use crate::sys::capability::Capabilities;
use crate::sys::lock::Lock;
use crate::sys::memexec::Image;
use crate::sys::page::PageError;
use crate::sys::spawn::Nofile;

/// The agent's descriptor numbers.
pub mod fds {
    /// A sealed memory file with the agent's configuration.
    pub const CONFIG: i32 = 3;
    /// The agent's end of [`crate::ipc::guardian::Socket`].
    pub const SOCKET: i32 = 4;
    /// The [`crate::sys::page::Page`].
    pub const PAGE: i32 = 5;
    /// The [`crate::sys::lock::LockShare`]; absent without a lock.
    pub const LOCK: i32 = 6;
    /// The binary that the agent was started from, for starting workers: [`crate::sys::memexec::Image`].
    pub const IMAGE: i32 = 7;
}

/// Prints one sentence.
pub type Say = Box<dyn FnMut(&dyn std::fmt::Display)>;

/// Everything a guardian needs. Nothing is read from the environment.
pub struct GuardianConfig {
    /// The binary to start agents from.
    pub image: Image,
    /// The agent's arguments after the program: `["__agent"]`.
    pub args: Vec<OsString>,
    /// The agent's whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Where the agent runs: `/`, so that it holds on to no file system.
    pub cwd: PathBuf,
    /// The agent's configuration, as the agent decodes it; every agent gets the same.
    pub config: Vec<u8>,
    /// The node's lock, held here and inherited by each agent.
    pub lock: Option<Lock>,
    /// The agent's RLIMIT_NOFILE, where it is not ours.
    pub nofile: Option<Nofile>,
    /// What the kernel allows, or is said not to.
    pub caps: Capabilities,
    /// Limits and intervals.
    pub numbers: Numbers,
    /// Prints one sentence; only the command line knows how and where.
    pub say: Say,
}

/// Why no guardian could be set up.
#[derive(Debug, thiserror::Error)]
pub enum GuardianError {
    /// A call of the set-up failed.
    #[error("cannot watch over the agent: {what}: {source}")]
    Call {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// No page.
    #[error("cannot watch over the agent: {0}")]
    Page(#[from] PageError),
}

/// Runs agents until the run is over for this node; returns the exit code for `_exit`. To be called on the main
/// thread, before there is any other: signals are caught here, and the agents' death signals hang on this thread.
/// After it nothing is left below (but what survives SIGKILL, which was said).
pub fn run(config: GuardianConfig) -> i32 {
    let mut say = config.say;
    let lock = config.lock;
    let setup = driver::Setup {
        recipe: agent::Recipe {
            image: config.image,
            args: config.args,
            env: config.env,
            cwd: config.cwd,
            nofile: config.nofile,
        },
        config: &config.config,
        lock: lock.as_ref(),
        caps: config.caps,
        numbers: config.numbers,
    };
    let code = match driver::Driver::new(setup, &mut *say) {
        Ok(driver) => driver.run(),
        Err(error) => {
            say(&error);
            1
        }
    };
    if let Some(lock) = lock {
        // A lock file that stays is no harm: it is free.
        let _ = lock.remove();
    }
    code
}

#[cfg(test)]
mod tests;
