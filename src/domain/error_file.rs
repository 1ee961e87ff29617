//! What a rank leaves in its `TORCHELASTIC_ERROR_FILE` (torch's `@record` does), and what may be believed of it.
//!
//! Two forms: `{"message": {"message", "extraInfo": {"py_callstack", "timestamp"}}}` and
//! `{"message": "text", "timestamp": 1}`. Whoever writes it is a stranger's program: every field may be missing or of
//! another kind, and all text is cut and cleaned before it goes anywhere.

use std::time::Duration;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::ids::{Attempt, LocalRank};
use super::last_words::{self, Kind};
use super::time::BootTime;

/// The most of a file that is read, in bytes: a longer one is none.
pub const MAX_FILE: usize = 1 << 20;
/// An error that was noted so long before the rank's end is another one, which the program survived.
pub const CREDIBLE: Duration = Duration::from_secs(15 * 60);

/// The file as it is written.
#[derive(Debug, Deserialize)]
pub struct Raw {
    message: Message,
    #[serde(default)]
    timestamp: Option<Stamp>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Message {
    Text(String),
    Whole(Whole),
}

#[derive(Debug, Deserialize)]
struct Whole {
    #[serde(default)]
    message: Option<Text>,
    #[serde(default, rename = "extraInfo")]
    extra: Option<Extra>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Extra {
    Known(ExtraInfo),
    Other(IgnoredAny),
}

#[derive(Debug, Deserialize)]
struct ExtraInfo {
    #[serde(default)]
    py_callstack: Option<Text>,
    #[serde(default)]
    timestamp: Option<Stamp>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Text {
    Known(String),
    Other(IgnoredAny),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Stamp {
    Whole(u64),
    Part(f64),
    Text(String),
    Other(IgnoredAny),
}

impl Text {
    fn get(self) -> String {
        match self {
            Self::Known(text) => text,
            Self::Other(_) => String::new(),
        }
    }
}

impl Stamp {
    /// Unix seconds; nothing for what is no such number.
    fn seconds(self) -> Option<u64> {
        /// Beyond it no clock that is right stands; in the year 2286.
        const LAST: u64 = 9_999_999_999;
        let seconds = match self {
            Self::Whole(seconds) => seconds,
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "in bounds, and cut to seconds"
            )]
            Self::Part(seconds) if seconds >= 1.0 && seconds <= LAST as f64 => seconds as u64,
            // `1700000000` or `1700000000.5`.
            Self::Text(text) => text.trim().split('.').next()?.parse().ok()?,
            Self::Part(_) | Self::Other(_) => return None,
        };
        (1..=LAST).contains(&seconds).then_some(seconds)
    }
}

/// What the file says, bounded: [`text`](Self::text) has at most [`last_words::MAX_TEXT`] bytes and no control
/// characters but line ends, the other texts are one line each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorNote {
    /// The exception.
    pub headline: String,
    /// Where it was raised, `collate.py:41`; empty where nothing tells.
    pub place: String,
    /// Its file and function, `collate.py:f`.
    pub frame: String,
    /// The traceback, else the message.
    pub text: String,
    /// When, unix seconds on the clock of the rank's machine, cut to whole ones.
    pub at_s: Option<u64>,
}

impl Raw {
    /// What counts of it; nothing where it says nothing.
    #[must_use]
    pub fn note(self) -> Option<ErrorNote> {
        let (message, stack, inner) = match self.message {
            Message::Text(text) => (text, String::new(), None),
            Message::Whole(whole) => {
                let (stack, stamp) = match whole.extra {
                    Some(Extra::Known(extra)) => (extra.py_callstack.map(Text::get), extra.timestamp),
                    Some(Extra::Other(_)) | None => (None, None),
                };
                (whole.message.map(Text::get).unwrap_or_default(), stack.unwrap_or_default(), stamp)
            }
        };
        let at_s = inner.or(self.timestamp).and_then(Stamp::seconds);
        let said = last_words::last_words(stack.as_bytes());
        let first = last_words::cleaned(message.as_bytes());
        let line = first.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned();
        Some(match said.kind {
            Kind::Silent if line.is_empty() => return None,
            Kind::Silent => ErrorNote { headline: line, text: first, at_s, ..ErrorNote::default() },
            // A message of a library's own says more than the last line of something else.
            Kind::Traceback => ErrorNote {
                headline: said.headline,
                place: said.place,
                frame: said.frame,
                text: said.text,
                at_s,
            },
            _ => {
                let headline = if line.is_empty() { said.headline } else { line };
                ErrorNote { headline, text: said.text, at_s, ..ErrorNote::default() }
            }
        })
    }
}

/// Where the file of a rank lies, `<dir>/attempt_<n>/<local rank>/error.json`.
#[must_use]
pub fn path(dir: &str, attempt: Attempt, local_rank: LocalRank) -> String {
    format!("{dir}/attempt_{attempt}/{local_rank}/error.json")
}

/// That a rank noted its error before it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// When, unix seconds on the clock of its machine, for people: machines' clocks differ.
    pub at_s: Option<u64>,
    /// How long before its end, in milliseconds and at least: both moments are of the clock of one machine. None where
    /// the file does not say it, or says what cannot be.
    pub lead_ms: Option<u64>,
}

impl Recorded {
    /// What an error that was noted at `at_s` is worth for a rank that started and ended then, as unix milliseconds of
    /// the same machine. A whole second may be a second early.
    #[must_use]
    pub fn of(at_s: Option<u64>, started_ms: u64, ended_ms: u64) -> Self {
        let lead = at_s.and_then(|at| {
            let (first, last) = (at.saturating_mul(1_000), at.saturating_add(1).saturating_mul(1_000));
            if last <= started_ms || first > ended_ms {
                return None;
            }
            let lead = ended_ms.saturating_sub(last);
            (u128::from(lead) <= CREDIBLE.as_millis()).then_some(lead)
        });
        Self { at_s, lead_ms: lead }
    }

    /// The moment by which it had failed, for an end at `ended` on any clock.
    #[must_use]
    pub fn failed_by(&self, ended: BootTime) -> Option<BootTime> {
        self.lead_ms.map(|lead| ended.before(Duration::from_millis(lead)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_within_the_life_of_its_rank() {
        let lead = |at, started, ended| Recorded::of(Some(at), started, ended).lead_ms;
        assert_eq!(lead(100, 90_000, 105_500), Some(4_500));
        assert_eq!(lead(100, 90_000, 100_200), Some(0), "in the same second");
        assert_eq!(lead(100, 101_000, 105_000), None, "of an earlier life");
        assert_eq!(lead(106, 90_000, 105_500), None, "after its end");
        assert_eq!(lead(100, 0, 100_000 + 15 * 60_000 + 1_001), None, "survived");
        assert_eq!(Recorded::of(None, 0, 9).failed_by(BootTime::from_millis(9)), None);
        let recorded = Recorded::of(Some(u64::MAX), 0, u64::MAX);
        assert_eq!(recorded.failed_by(BootTime(0)), Some(BootTime(0)));
    }
}
