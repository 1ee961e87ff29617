//! The clocks: CLOCK_BOOTTIME for rules (it counts while the machine sleeps), the wall clock for records.

use std::path::PathBuf;
use std::sync::OnceLock;
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
    let wall_ms = u64::try_from(wall.as_millis()).unwrap_or(u64::MAX);
    Now { boot: boot(), wall_ms: SHIFT.get().map_or(wall_ms, |shift| shift.of(wall_ms)) }
}

/// A wall clock that goes wrong on order: for tests, set once at the start of a process.
static SHIFT: OnceLock<Shift> = OnceLock::new();

#[derive(Debug, PartialEq, Eq)]
struct Shift {
    ms: i64,
    /// From when this file is there on.
    once: Option<PathBuf>,
}

impl Shift {
    /// `SECONDS` or `SECONDS@FILE`; anything else is none.
    fn parse(text: &str) -> Option<Self> {
        let (seconds, file) = text.split_once('@').map_or((text, None), |(s, file)| (s, Some(file)));
        let ms = seconds.parse::<i64>().ok()?.checked_mul(1_000)?;
        Some(Self { ms, once: file.map(PathBuf::from) })
    }

    fn of(&self, wall_ms: u64) -> u64 {
        let begun = self.once.as_ref().is_none_or(|file| file.exists());
        if begun { wall_ms.saturating_add_signed(self.ms) } else { wall_ms }
    }
}

/// Has [`now`] say a wall clock that is off, as `RELIGHT_TEST_CLOCK` asks for. Something else than that changes nothing.
pub fn shift_wall(text: &str) {
    if let Some(shift) = Shift::parse(text) {
        // Set before: the first one stays.
        let _ = SHIFT.set(shift);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_that_is_off() {
        let shift = |text: &str| Shift::parse(text).map(|shift| shift.of(10_000));
        assert_eq!(shift("7"), Some(17_000));
        assert_eq!(shift("-7"), Some(3_000));
        assert_eq!(shift("-7200"), Some(0), "there is no time before 1970");
        assert_eq!(shift("7@/nowhere/at/all"), Some(10_000), "not yet");
        assert_eq!(shift("7@/proc/self/stat"), Some(17_000));
        for text in ["", "x", "1.5", "9223372036854775807", "@/proc/self/stat"] {
            assert_eq!(shift(text), None, "{text}");
        }
    }
}
