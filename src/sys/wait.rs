//! Asking after one child at a time. Never "any child": that would take statuses that belong to somebody else.

use nix::libc;

use crate::domain::exit::ExitKind;

/// What the kernel says of a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waited {
    /// It has not ended (stopped counts as running).
    Running,
    /// It has ended.
    Ended(ExitKind),
    /// It is no child of ours, or it was reaped already.
    NotOurs,
}

/// Looks without reaping: the zombie stays, and with it its pid and group id. Never blocks.
#[must_use]
pub fn peek(pid: i32) -> Waited {
    wait_for(pid, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT)
}

/// Reaps the child if it has ended. Never blocks.
#[must_use]
pub fn reap(pid: i32) -> Waited {
    wait_for(pid, libc::WEXITED | libc::WNOHANG)
}

/// Waits until the child has ended, and reaps it. Only for children that are sure to end.
#[must_use]
pub fn reap_blocking(pid: i32) -> Waited {
    wait_for(pid, libc::WEXITED)
}

// Not nix's `waitid`: it fails with EINVAL, the child already reaped, when a real-time signal ended it.
fn wait_for(pid: i32, flags: i32) -> Waited {
    let Ok(id) = libc::id_t::try_from(pid) else { return Waited::NotOurs };
    if id == 0 {
        return Waited::NotOurs;
    }
    loop {
        // SAFETY: an all-zero siginfo is a valid one; the kernel writes into it or leaves it.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: `info` lives through the call.
        let rc = unsafe { libc::waitid(libc::P_PID, id, &raw mut info, flags) };
        if rc != 0 {
            if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) {
                continue;
            }
            return Waited::NotOurs;
        }
        // SAFETY: after success the kernel filled the SIGCHLD part, or left it zero (nothing has ended).
        let (ended, status) = unsafe { (info.si_pid(), info.si_status()) };
        if ended == 0 {
            return Waited::Running;
        }
        return Waited::Ended(kind(info.si_code, status));
    }
}

fn kind(code: i32, status: i32) -> ExitKind {
    let low = u8::try_from(status & 0xff).unwrap_or(u8::MAX);
    match code {
        libc::CLD_KILLED => ExitKind::Signal { no: low, core: false },
        libc::CLD_DUMPED => ExitKind::Signal { no: low, core: true },
        _ => ExitKind::Code(low),
    }
}
