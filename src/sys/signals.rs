//! Signals as something to poll, with who sent them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::libc;
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::exfiltrator::origin::Origin;
use signal_hook::low_level::siginfo::{Cause, Chld, Sent};

/// The signals' numbers by name.
pub use signal_hook::consts::signal as number;

/// One signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Its number.
    pub signal: i32,
    /// `si_code`: SI_USER 0 from `kill`, SI_KERNEL 128 from a terminal or the kernel, negative from other calls.
    pub code: i32,
    /// Who sent it, where the kernel says (0 from outside our pid namespace).
    pub pid: Option<i32>,
    /// The sender's user.
    pub uid: Option<u32>,
}

/// Signals of this process, caught and kept until they are asked for. Several of one number before that are kept up
/// to a small count (5); later ones merge.
#[derive(Debug)]
pub struct Signals {
    delivery: SignalDelivery<UnixStream, WithOrigin>,
}

impl Signals {
    /// Catches these signals from now on, and unblocks them in the calling thread. SIGHUP stays ignored if it was at
    /// the start (`nohup`). Those that cannot be caught are an error.
    ///
    /// # Errors
    /// EMFILE, or EINVAL for a number that is no signal or cannot be caught.
    pub fn catch(signals: &[i32]) -> io::Result<Self> {
        let refused =
            |signal: &i32| signal_hook::consts::FORBIDDEN.contains(signal) || !(1..=64).contains(signal);
        if signals.iter().any(refused) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let wanted: Vec<i32> = signals
            .iter()
            .copied()
            .filter(|signal| *signal != libc::SIGHUP || !is_ignored(*signal))
            .collect();
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        let delivery = SignalDelivery::with_pipe(read, write, WithOrigin::default(), &wanted)?;
        unblock(&wanted);
        Ok(Self { delivery })
    }

    /// What came since the last call, by number and then in order of arrival. Never blocks.
    pub fn pending(&mut self) -> Vec<Received> {
        self.delivery.pending().map(|origin| received(&origin)).collect()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.delivery.get_read().as_fd()
    }
}

/// Whether this process ignores the signal now.
#[must_use]
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: an all-zero sigaction is a valid place to write the old one to.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: no new action is set; `old` lives through the call.
    let rc = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut old) };
    rc == 0 && old.sa_sigaction == libc::SIG_IGN
}

/// Signals that would end this process unheard, and that nobody sends for a reason: timers that a parent left
/// running, real-time signals. They wait for ever from now on; what is spawned starts with a mask of its own. What a
/// fault of this process raises cannot be held off, nor KILL and STOP.
pub fn hold_off_strays() {
    const STRAY: [i32; 7] = [
        libc::SIGALRM,
        libc::SIGVTALRM,
        libc::SIGPROF,
        libc::SIGSTKFLT,
        libc::SIGIO,
        libc::SIGPWR,
        libc::SIGXCPU,
    ];
    // SAFETY: the set is initialised by sigemptyset before it is used; the numbers are signals.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in STRAY.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX()) {
            libc::sigaddset(&raw mut set, signal);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

// A launcher that blocks signals in its own threads hands that mask on to us.
fn unblock(signals: &[i32]) {
    // SAFETY: the set is initialised by sigemptyset before it is used; the numbers were checked.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        for signal in signals {
            libc::sigaddset(&raw mut set, *signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
    }
}

fn received(origin: &Origin) -> Received {
    let code = match origin.cause {
        Cause::Sent(Sent::User) => libc::SI_USER,
        Cause::Sent(Sent::TKill) => libc::SI_TKILL,
        Cause::Sent(Sent::Queue) => libc::SI_QUEUE,
        Cause::Sent(Sent::MesgQ) => libc::SI_MESGQ,
        Cause::Chld(Chld::Exited) => libc::CLD_EXITED,
        Cause::Chld(Chld::Killed) => libc::CLD_KILLED,
        Cause::Chld(Chld::Dumped) => libc::CLD_DUMPED,
        Cause::Chld(Chld::Trapped) => libc::CLD_TRAPPED,
        Cause::Chld(Chld::Stopped) => libc::CLD_STOPPED,
        Cause::Chld(Chld::Continued) => libc::CLD_CONTINUED,
        // Unknown ones come from the kernel: nobody is named.
        _ => libc::SI_KERNEL,
    };
    Received {
        signal: origin.signal,
        code,
        pid: origin.process.map(|process| process.pid),
        uid: origin.process.map(|process| process.uid),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::sys::{poll, process};

    #[test]
    fn a_signal_comes_with_its_sender() {
        let mut signals = Signals::catch(&[libc::SIGUSR1, libc::SIGCONT]).unwrap();
        assert!(signals.pending().is_empty());
        process::kill(process::own_pid(), libc::SIGUSR1).unwrap();
        assert!(poll::readable(signals.as_fd(), Some(Duration::from_secs(5))).unwrap());
        let got = signals.pending();
        let own = Received {
            signal: libc::SIGUSR1,
            code: libc::SI_USER,
            pid: Some(process::own_pid()),
            // SAFETY: no argument, cannot fail.
            uid: Some(unsafe { libc::getuid() }),
        };
        assert_eq!(got, vec![own]);
        assert!(signals.pending().is_empty());
        assert!(!poll::readable(signals.as_fd(), Some(Duration::ZERO)).unwrap());
    }

    #[test]
    fn strays_end_nobody() {
        hold_off_strays();
        let strays = [libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF, libc::SIGXCPU, libc::SIGIO];
        for signal in strays.into_iter().chain([libc::SIGRTMIN(), libc::SIGRTMIN() + 5, libc::SIGRTMAX()]) {
            // SAFETY: to this thread alone, which has just held them off; others of this test process have not.
            assert_eq!(unsafe { libc::raise(signal) }, 0);
        }
    }

    #[test]
    fn what_cannot_be_caught_is_refused() {
        assert!(Signals::catch(&[libc::SIGKILL]).is_err());
        assert!(Signals::catch(&[0]).is_err());
        assert!(Signals::catch(&[1000]).is_err());
    }

    #[test]
    fn nohup_stays_in_force() {
        // SAFETY: sets a disposition of this test's process.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
        let mut signals = Signals::catch(&[libc::SIGHUP, libc::SIGUSR2]).unwrap();
        assert!(is_ignored(libc::SIGHUP));
        process::kill(process::own_pid(), libc::SIGHUP).unwrap();
        process::kill(process::own_pid(), libc::SIGUSR2).unwrap();
        assert!(poll::readable(signals.as_fd(), Some(Duration::from_secs(5))).unwrap());
        let got: Vec<i32> = signals.pending().iter().map(|received| received.signal).collect();
        assert_eq!(got, vec![libc::SIGUSR2]);
    }
}
