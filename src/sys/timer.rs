//! A timer on CLOCK_BOOTTIME as something to poll. The timeout of `poll` itself stands still while the machine
//! sleeps, and grants do not.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::domain::time::BootTime;

/// Readable from the instant that was set last. Closed on exec.
#[derive(Debug)]
pub struct Timer {
    timer: TimerFd,
    set: Option<BootTime>,
}

impl Timer {
    /// One that is not set.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn new() -> io::Result<Self> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        Ok(Self { timer: TimerFd::new(ClockId::CLOCK_BOOTTIME, flags)?, set: None })
    }

    /// Sets the instant; `None` and [`BootTime::NEVER`]: never. An instant that was set before is forgotten.
    ///
    /// # Errors
    /// None that the kernel documents for a valid timer.
    pub fn set(&mut self, at: Option<BootTime>) -> io::Result<()> {
        let at = at.filter(|at| *at != BootTime::NEVER);
        if at == self.set && at.is_none() {
            return Ok(());
        }
        match at {
            None => self.timer.unset()?,
            Some(at) => {
                // All zero would switch the timer off; far beyond any uptime is as good as never.
                let since_boot = Duration::from_nanos(at.0.clamp(1, i64::MAX as u64));
                let once = Expiration::OneShot(TimeSpec::from_duration(since_boot));
                self.timer.set(once, TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
            }
        }
        self.set = at;
        Ok(())
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{clock, poll};

    #[test]
    fn is_readable_from_its_instant_on() {
        let ready = |timer: &Timer, patience| poll::readable(timer.as_fd(), Some(patience)).unwrap();
        let mut timer = Timer::new().unwrap();
        assert!(!ready(&timer, Duration::ZERO));
        let at = clock::boot().after(Duration::from_millis(30));
        timer.set(Some(at)).unwrap();
        assert!(ready(&timer, Duration::from_secs(5)));
        assert!(clock::boot() >= at);
        timer.set(Some(BootTime::NEVER)).unwrap();
        assert!(!ready(&timer, Duration::ZERO), "set anew: not ready");
        timer.set(Some(BootTime(0))).unwrap();
        assert!(ready(&timer, Duration::from_secs(5)), "the past is now");
        timer.set(None).unwrap();
        assert!(!ready(&timer, Duration::ZERO));
    }
}
