//! The clocks: CLOCK_BOOTTIME for rules (it counts while the machine sleeps), the wall clock for records.

use std::time::{SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

use crate::domain::time::{BootTime, Now};

/// This machine's CLOCK_BOOTTIME.
#[must_use]
pub fn boot() -> BootTime {
    // The call fails only for an unknown clock; this one is there since Linux 2.6.39.
    let Ok(time) = clock_gettime(ClockId::CLOCK_BOOTTIME) else { return BootTime::default() };
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec()).unwrap_or(0);
    BootTime(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// The instant at which an event is handled: boot clock and Unix time in milliseconds.
#[must_use]
pub fn now() -> Now {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { boot: boot(), wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX) }
}
