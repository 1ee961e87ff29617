//! Starting a program. Fork and exec by hand, because the start must not wait: a child whose binary lies on a stalled
//! file system sits in exec for as long as it likes, and the one who forked goes on ([`begin`], [`Starting`]).
//!
//! Between fork and exec only system calls are made; everything they need is laid out before ([`child`]).

mod child;
mod explain;

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::fcntl::OFlag;
use nix::libc;

use super::capability::Capabilities;
use super::{pidfd, poll, procfs, wait};
use child::{Plan, Step};
pub use explain::explain;

/// Where the child's standard input comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stdin {
    /// `/dev/null`.
    #[default]
    Null,
    /// Ours.
    Inherit,
}

/// What to start and in which surroundings. Signals start unblocked and with their default actions.
#[derive(Debug, Default)]
pub struct SpawnRequest {
    /// The program and its arguments. Without a slash the program is looked for in `PATH` of `env`, as execvp does.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Where it starts; a relative one is relative to ours.
    pub cwd: PathBuf,
    /// Standard input.
    pub stdin: Stdin,
    /// Standard output; `None`: ours.
    pub stdout: Option<OwnedFd>,
    /// Standard error; `None`: ours.
    pub stderr: Option<OwnedFd>,
    /// Further descriptors, each under the number that it shall have in the child. All others are closed.
    pub inherit: Vec<(i32, OwnedFd)>,
    /// It leads a session of its own, and with it a group.
    pub session: bool,
    /// The signal that it gets when the thread that calls [`begin`] ends.
    pub death_signal: Option<i32>,
    /// Signals that it ignores from the start.
    pub ignore: Vec<i32>,
    /// Its `oom_score_adj`, where we may set it.
    pub oom_score_adj: Option<i32>,
    /// The CPUs that it may run on; empty: ours.
    pub cpus: Vec<u32>,
    /// Its RLIMIT_NOFILE, where ours is not what the user had.
    pub nofile: Option<Nofile>,
}

/// A limit of open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nofile {
    /// What is enforced.
    pub soft: u64,
    /// Up to where the process may raise it.
    pub hard: u64,
}

/// A process that we started. Without a pidfd its pid is safe until it is reaped.
#[derive(Debug)]
pub struct StartRecord {
    /// Its pid; with `session` also its group and session.
    pub pid: i32,
    /// Clock ticks from boot to its start; 0 if it could not be read.
    pub start_time: u64,
    /// Readable when it has ended.
    pub pidfd: Option<OwnedFd>,
}

/// Why a program did not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {}", io::Error::from_raw_os_error(*errno))]
pub struct SpawnError {
    /// The errno of the call that failed.
    pub errno: i32,
    /// The call and, in brackets, the limit that it met or what to do: `fork (processes: limit 30)`.
    pub what: String,
}

/// A child on its way to its program. Readable when it is known how that went.
#[derive(Debug)]
pub struct Starting {
    report: OwnedFd,
    program: String,
    cwd: String,
}

impl AsFd for Starting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.report.as_fd()
    }
}

impl Starting {
    /// How it went: `None` not known yet; `Ok` the program runs (or the child was killed before). After an error
    /// the child is ending by itself and must be reaped. Never blocks.
    pub fn outcome(&mut self) -> Option<Result<(), SpawnError>> {
        let mut bytes = [0; Step::REPORT];
        loop {
            return match nix::unistd::read(&self.report, &mut bytes) {
                Ok(0) => Some(Ok(())),
                Ok(_) => Some(Err(self.error(Step::from_report(bytes)))),
                Err(nix::errno::Errno::EINTR) => continue,
                Err(nix::errno::Errno::EAGAIN) => None,
                // Not possible for a pipe of ours; the child is there, so it counts as started.
                Err(_) => Some(Ok(())),
            };
        }
    }

    fn error(&self, (step, errno): (Step, i32)) -> SpawnError {
        explain::failed_step(step, errno, &self.program, &self.cwd)
    }
}

/// Forks the child and returns at once. The child is ours to reap from now on, however its start goes.
///
/// # Errors
/// What kept it from being forked: EMFILE, EAGAIN (processes), ENOMEM, EINVAL (a NUL byte, no program, a
/// descriptor number twice).
pub fn begin(request: &SpawnRequest, caps: Capabilities) -> Result<(StartRecord, Starting), SpawnError> {
    let mut plan = Plan::new(request, caps)?;
    let (read, write) = nix::unistd::pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(|errno| {
        SpawnError { errno: errno as i32, what: explain("pipe for the start", errno as i32) }
    })?;
    let pid = fork(&mut plan, write.as_raw_fd())?;
    drop(write);
    let record =
        StartRecord { pid, start_time: procfs::start_time(pid).unwrap_or(0), pidfd: pidfd::open(pid, caps) };
    if let Some(adj) = request.oom_score_adj {
        // Lowering it needs a capability; a rank without it runs all the same.
        let _ = std::fs::write(format!("/proc/{pid}/oom_score_adj"), adj.to_string());
    }
    let program = request.argv.first().map(|arg| arg.to_string_lossy().into_owned()).unwrap_or_default();
    Ok((record, Starting { report: read, program, cwd: request.cwd.display().to_string() }))
}

/// Starts a program and waits until it runs. Only where the program cannot lie on a stalled file system.
///
/// # Errors
/// As [`begin`], and whatever the child met before its program ran; it is reaped then.
pub fn spawn(request: &SpawnRequest, caps: Capabilities) -> Result<StartRecord, SpawnError> {
    let (record, mut starting) = begin(request, caps)?;
    loop {
        match starting.outcome() {
            Some(Ok(())) => return Ok(record),
            Some(Err(error)) => {
                let _ = wait::reap_blocking(record.pid);
                return Err(error);
            }
            None => {
                let _ = poll::readable(starting.as_fd(), None);
            }
        }
    }
}

/// Forks with all signals blocked, so that no handler of ours runs in the child.
fn fork(plan: &mut Plan, report: RawFd) -> Result<i32, SpawnError> {
    // SAFETY: the sets are written by the calls before they are read.
    let old = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        old
    };
    // SAFETY: the child makes system calls on memory that was laid out before, and ends in exec or _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: we are the child, which has this one thread.
        unsafe { child::run(plan, report) }
    }
    let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN);
    // SAFETY: `old` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, std::ptr::null_mut()) };
    if pid < 0 {
        return Err(SpawnError { errno, what: explain("fork", errno) });
    }
    Ok(pid)
}

/// Text for the kernel.
fn c_string(bytes: &[u8], what: &str) -> Result<CString, SpawnError> {
    CString::new(bytes)
        .map_err(|_| SpawnError { errno: libc::EINVAL, what: format!("{what} (it holds a NUL byte)") })
}

/// Where a program may lie, as execvp tries it.
fn candidates(program: &OsString, env: &[(OsString, OsString)]) -> Result<Vec<CString>, SpawnError> {
    let name = program.as_bytes();
    if name.contains(&b'/') {
        return Ok(vec![c_string(name, "program")?]);
    }
    let path = env.iter().rev().find(|(key, _)| key == "PATH").map(|(_, value)| value.as_bytes());
    let path = path.unwrap_or(b"/usr/local/bin:/usr/bin:/bin");
    let join = |dir: &[u8]| {
        let mut full = if dir.is_empty() { b".".to_vec() } else { dir.to_vec() };
        full.push(b'/');
        full.extend_from_slice(name);
        c_string(&full, "program")
    };
    path.split(|byte| *byte == b':').map(join).collect()
}

#[cfg(test)]
mod tests;
