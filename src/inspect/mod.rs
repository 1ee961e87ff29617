//! What a run directory says, for people: `status`, `events`, `why`, `logs`, `gc`, replay.
//!
//! Functions here take what [`crate::store::look`] has read and return text and an exit code; the command
//! line prints.

use jiff::Timestamp;
use jiff::tz::TimeZone;

pub mod events;
pub mod gc;
pub mod logs;
pub mod notes;
pub mod replay;
pub mod sentences;
pub mod status;
pub mod why;

/// What a command says and how it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// For stdout, with a newline at the end unless it is empty.
    pub text: String,
    /// The exit code.
    pub code: u8,
}

/// Turns wall-clock milliseconds into what people read.
#[derive(Clone, Debug)]
pub struct Clock(TimeZone);

impl Clock {
    /// The reader's own time zone.
    #[must_use]
    pub fn local() -> Self {
        Self(TimeZone::system())
    }

    /// Universal time, for tests.
    #[must_use]
    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// `2026-12-01 14:03:22.120`; a number that is no time stays a number.
    #[must_use]
    pub fn stamp(&self, wall_ms: u64) -> String {
        match i64::try_from(wall_ms).map(Timestamp::from_millisecond) {
            Ok(Ok(at)) => at.to_zoned_datetime(self.0.clone()).strftime("%Y-%m-%d %H:%M:%S%.3f").to_string(),
            _ => format!("@{wall_ms}"),
        }
    }
}

/// `4.1 MB`; decimal, as disk sizes are.
#[must_use]
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let mut value = bytes;
    let mut unit = 0;
    while value >= 999_950 && unit + 1 < UNITS.len() {
        value /= 1000;
        unit += 1;
    }
    let tenths = value.saturating_add(50) / 100;
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// Text from a rank or a file, safe for a terminal: control characters except newline and tab are shown.
#[must_use]
pub fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\n' && c != '\t' { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
pub(crate) mod testing;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (4_096, "4.1 kB"),
            (999_949, "999.9 kB"),
            (999_950, "1.0 MB"),
            (16 << 20, "16.8 MB"),
            (u64::MAX, "18446.7 PB"),
        ] {
            assert_eq!(human_bytes(bytes), text);
        }
        assert_eq!(Clock::utc().stamp(1_700_000_000_123), "2023-11-14 22:13:20.123");
        assert_eq!(Clock::utc().stamp(u64::MAX), format!("@{}", u64::MAX));
        assert_eq!(harmless("a\tb\n\u{1b}[31m\0"), "a\tb\n\\u{1b}[31m\\u{0}");
    }
}
