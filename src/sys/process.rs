//! Calls about this process, and signals by number.

use std::io;

use nix::libc;

use super::spawn::Nofile;

/// Ends the process at once: no destructor, no flush, no wait for another thread.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` takes a number and does not return.
    unsafe { libc::_exit(code) }
}

/// This process's id.
#[must_use]
pub fn own_pid() -> i32 {
    // SAFETY: no argument, cannot fail.
    unsafe { libc::getpid() }
}

/// The parent's id; changes when the parent dies.
#[must_use]
pub fn parent_pid() -> i32 {
    // SAFETY: no argument, cannot fail.
    unsafe { libc::getppid() }
}

/// Orphaned descendants become children of this process from now on.
///
/// # Errors
/// Only before Linux 3.4.
pub fn become_subreaper() -> io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

/// The signal this process gets when the *thread* that made it ends; 0 for none. The caller must look at
/// [`parent_pid`] afterwards: a parent that died before gives no signal.
///
/// # Errors
/// EINVAL for a number that is no signal.
pub fn set_death_signal(signal: i32) -> io::Result<()> {
    // SAFETY: PR_SET_PDEATHSIG takes one number.
    let rc = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends a signal to one process by number. Safe against reuse of the number only for a child that was not
/// reaped.
///
/// # Errors
/// ESRCH, EPERM, EINVAL; also EINVAL for a pid that is not positive (those would name groups).
pub fn kill(pid: i32, signal: i32) -> io::Result<()> {
    if pid <= 0 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: two numbers.
    if unsafe { libc::kill(pid, signal) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends a signal to the main thread of a process. Which life has the number is the caller's to know.
///
/// # Errors
/// As [`kill`].
pub fn kill_main_thread(pid: i32, signal: i32) -> io::Result<()> {
    if pid <= 0 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: three numbers.
    let rc = unsafe { libc::syscall(libc::SYS_tgkill, pid, pid, signal) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends a signal to every process of a group.
///
/// # Errors
/// As [`kill`]; group ids of 1 and below are refused with EINVAL (0 would be our own group, 1 every process).
pub fn kill_group(group: i32, signal: i32) -> io::Result<()> {
    if group <= 1 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: two numbers.
    if unsafe { libc::kill(-group, signal) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How many files this process may open, as far as the kernel tells.
#[must_use]
pub fn nofile() -> u64 {
    const USUAL: u64 = 1024;
    nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).map_or(USUAL, |(soft, _)| soft)
}

/// Lets this process open at least so many files, or as many as it may at most. What it could open before, where
/// that was changed; `None`: it is as it was.
pub fn raise_nofile(wanted: u64) -> Option<Nofile> {
    let resource = nix::sys::resource::Resource::RLIMIT_NOFILE;
    let (soft, hard) = nix::sys::resource::getrlimit(resource).ok()?;
    let raised = wanted.min(hard);
    if soft >= raised {
        return None;
    }
    nix::sys::resource::setrlimit(resource, raised, hard).ok()?;
    Some(Nofile { soft, hard })
}
