//! Time as an argument. Rules use [`BootTime`]; the wall clock only goes into records and into windows that
//! outlive a process.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Nanoseconds of this machine's CLOCK_BOOTTIME. Never compared across machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootTime(pub u64);

impl BootTime {
    /// Later than any instant that comes: "for ever".
    pub const NEVER: Self = Self(u64::MAX);

    /// An instant so many milliseconds after boot (tests and tables).
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    /// This instant plus `by`, saturating.
    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// This instant minus `by`, saturating at boot.
    #[must_use]
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is not.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for BootTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000_000_000, self.0 / 1_000_000 % 1000)
    }
}

/// The instant at which an event is handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// This machine's CLOCK_BOOTTIME.
    pub boot: BootTime,
    /// Unix time in milliseconds; only for records and for people.
    pub wall_ms: u64,
}

/// The earlier of two optional deadlines.
#[must_use]
pub fn earlier(a: Option<BootTime>, b: Option<BootTime>) -> Option<BootTime> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) => one,
        (None, other) => other,
    }
}

/// How a person reads a duration: `0.04 s`, `0.8 s`, `42 s`, `3 min 5 s`, `2 h 10 min`.
#[must_use]
pub fn human(d: Duration) -> String {
    let ms = d.as_millis();
    let s = d.as_secs();
    match s {
        // Nothing that took its time took none.
        0 if (1..95).contains(&ms) => format!("0.{:02} s", ms.div_ceil(10)),
        0..=9 if ms % 1000 >= 50 => format!("{:.1} s", d.as_secs_f64()),
        0..=119 => format!("{s} s"),
        120..=7199 if s.is_multiple_of(60) => format!("{} min", s / 60),
        120..=7199 => format!("{} min {} s", s / 60, s % 60),
        _ if s % 3600 < 60 => format!("{} h", s / 3600),
        _ => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}
