//! Is a node fit for ranks? What checks found, and the rules that make a finding of what was measured.
//!
//! Only *fail* takes a node out, and a check must say why it fails. A check that hangs, breaks or says nothing is
//! *unknown*, never bad.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::exit::ExitKind;
use super::last_words::{Kind, last_words};

/// How long a user's program may take, in milliseconds.
pub const TIMEOUT_MS: u64 = 60_000;
/// Clocks that are further apart are worth a word, in milliseconds.
pub const CLOCK_MS: u64 = 50;
/// Of what a program prints the last so many bytes are read.
pub const MOST_OUTPUT: usize = 16 << 10;
/// The longest sentence, in characters.
const LONGEST: usize = 200;

/// What a check found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// It is as it should be.
    Pass,
    /// There is nothing to look at here.
    Skipped,
    /// Nobody can tell.
    #[default]
    Unknown,
    /// Ranks should not run here.
    Fail,
}

impl Finding {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Skipped => "skipped",
            Self::Unknown => "unknown",
            Self::Fail => "fail",
        }
    }
}

/// One check of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    /// Its name; a user's program by its command line.
    pub check: String,
    /// What it found.
    pub finding: Finding,
    /// It passed, and something is worth a word all the same.
    pub warns: bool,
    /// One sentence.
    pub sentence: String,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

impl CheckResult {
    /// The same check found the same.
    #[must_use]
    pub fn says_as(&self, other: &Self) -> bool {
        (&self.check, self.finding, self.warns, &self.sentence)
            == (&other.check, other.finding, other.warns, &other.sentence)
    }

    /// Somebody should hear of it.
    #[must_use]
    pub fn is_noteworthy(&self) -> bool {
        self.warns || matches!(self.finding, Finding::Unknown | Finding::Fail)
    }
}

/// The first check that failed.
#[must_use]
pub fn failed(results: &[CheckResult]) -> Option<&CheckResult> {
    results.iter().find(|result| result.finding == Finding::Fail)
}

/// The programs that a user wants to be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthSpec {
    /// Command lines for a shell.
    pub commands: Vec<String>,
    /// How long each of them may take, in milliseconds.
    pub timeout_ms: u64,
}

impl Default for HealthSpec {
    fn default() -> Self {
        Self { commands: Vec::new(), timeout_ms: TIMEOUT_MS }
    }
}

/// What a check says, without its name and time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// What it found.
    pub finding: Finding,
    /// It passed, and something is worth a word.
    pub warns: bool,
    /// One sentence.
    pub sentence: String,
}

impl Said {
    /// As it should be.
    #[must_use]
    pub fn pass(sentence: impl Into<String>) -> Self {
        Self { finding: Finding::Pass, warns: false, sentence: sentence.into() }
    }

    /// It passes, with a word of warning.
    #[must_use]
    pub fn warn(sentence: impl Into<String>) -> Self {
        Self { finding: Finding::Pass, warns: true, sentence: sentence.into() }
    }

    /// Nobody can tell.
    #[must_use]
    pub fn unknown(sentence: impl Into<String>) -> Self {
        Self { finding: Finding::Unknown, warns: false, sentence: sentence.into() }
    }

    /// Ranks should not run here.
    #[must_use]
    pub fn fail(sentence: impl Into<String>) -> Self {
        Self { finding: Finding::Fail, warns: false, sentence: sentence.into() }
    }

    /// Nothing to look at.
    #[must_use]
    pub fn skipped(sentence: impl Into<String>) -> Self {
        Self { finding: Finding::Skipped, warns: false, sentence: sentence.into() }
    }

    /// With its name and its time.
    #[must_use]
    pub fn named(self, check: impl Into<String>, took_ms: u64) -> CheckResult {
        let Self { finding, warns, sentence } = self;
        CheckResult { check: check.into(), finding, warns, sentence, took_ms }
    }
}

/// What a user's program says by its end. NHC's rule: 0 is healthy, 1 to 125 is not, and the last line says why. One that
/// could not be started, died of a signal, broke with a traceback or gives no reason says nothing about the node.
#[must_use]
pub fn program(end: &ExitKind, output: &[u8]) -> Said {
    const NOT_EXECUTED: u8 = 126;
    let words = last_words(output);
    let line: String = words.headline.chars().take(LONGEST).collect();
    match end {
        ExitKind::Code(0) => Said::pass(if readable(&line) { line } else { "exit code 0".to_owned() }),
        ExitKind::Code(code) if *code < NOT_EXECUTED => match words.kind {
            Kind::Lines if readable(&line) => Said::fail(line),
            Kind::Silent | Kind::Lines => Said::unknown(format!("it ended with {code} and did not say why")),
            Kind::Traceback | Kind::Terminate | Kind::Fatal | Kind::Panic => {
                Said::unknown(format!("it broke: {line}"))
            }
        },
        other => Said::unknown(format!("it did not come to an answer: {other}")),
    }
}

/// A person can make something of it: more letters and blanks than anything else, and none that was no text.
fn readable(line: &str) -> bool {
    let plain = line.chars().filter(|c| c.is_alphanumeric() || *c == ' ').count();
    let letters = line.chars().filter(|c| c.is_alphabetic()).count();
    letters >= 2 && plain * 2 >= line.chars().count() && !line.contains('\u{fffd}')
}

/// Shared memory: NCCL and loaders of data live there.
#[must_use]
pub fn shared_memory(free: u64, total: u64) -> Said {
    let room = format!("{} of {} free", size(free), size(total));
    match () {
        () if total == 0 => Said::unknown("its size cannot be told"),
        () if free < total / 100 => Said::fail(format!("/dev/shm is full: {room}")),
        () if free < total / 10 => Said::warn(format!("/dev/shm is almost full: {room}")),
        () => Said::pass(room),
    }
}

/// Memory of the machine, or of the group that limits this job, whichever has less left.
#[must_use]
pub fn memory(available: u64, total: u64) -> Said {
    let room = format!("{} of {} available", size(available), size(total));
    match () {
        () if total == 0 => Said::unknown("it cannot be told"),
        () if available < total / 100 => Said::fail(format!("no memory is left: {room}")),
        () if available < total / 20 => Said::warn(format!("little memory is left: {room}")),
        () => Said::pass(room),
    }
}

/// Room for files of ours. Training goes on without, so a lack of it takes no node out.
#[must_use]
pub fn space(free: Option<u64>) -> Said {
    const LITTLE: u64 = 64 << 20;
    match free {
        None => Said::unknown("it cannot be told"),
        Some(free) if free < LITTLE => Said::warn(format!("only {} free", size(free))),
        Some(free) => Said::pass(format!("{} free", size(free))),
    }
}

/// How a file of ours could be made, renamed, read and removed in the shared directory; the error by its number.
#[must_use]
pub fn shared_directory(tried: Result<(), (i32, String)>) -> Said {
    const FULL: [i32; 2] = [28, 122];
    // EIO, EROFS, ENOTCONN, ESTALE, EREMOTEIO: the mount is broken on this node. ENOENT, ENOTDIR: it is not there.
    const BROKEN: [i32; 7] = [5, 30, 107, 116, 121, 2, 20];
    match tried {
        Ok(()) => Said::pass("a file can be made and read there"),
        Err((errno, text)) if FULL.contains(&errno) => Said::warn(format!("nothing can be written: {text}")),
        Err((errno, text)) if BROKEN.contains(&errno) => Said::fail(format!("it cannot be used: {text}")),
        Err((_, text)) => Said::unknown(format!("it was tried in vain: {text}")),
    }
}

/// What is said of a check that has not answered.
#[must_use]
pub fn late(limit_ms: u64) -> Said {
    let limit = super::time::human(std::time::Duration::from_millis(limit_ms));
    Said::unknown(format!("it has not answered for {limit} and was given up"))
}

/// How far this machine's wall clock is ahead of the coordinator's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offset {
    /// In milliseconds; negative: it is behind.
    pub ms: i64,
    /// It may be so much more or less.
    pub error_ms: u64,
}

impl Offset {
    /// From one question and its answer: when it was sent and when the answer came, by this clock, and when it was answered,
    /// by the other one; unix milliseconds. None where this clock was set in between.
    #[must_use]
    pub fn measured(sent_ms: u64, answered_ms: u64, came_ms: u64) -> Option<Self> {
        let error_ms = came_ms.checked_sub(sent_ms)?.div_ceil(2);
        let middle = i64::try_from(sent_ms.checked_add(error_ms)?).ok()?;
        Some(Self { ms: middle.checked_sub(i64::try_from(answered_ms).ok()?)?, error_ms })
    }

    /// Surely further apart than [`CLOCK_MS`].
    #[must_use]
    pub fn is_off(self) -> bool {
        self.ms.unsigned_abs() > CLOCK_MS.saturating_add(self.error_ms)
    }

    /// No clock of ours is compared across machines, so this takes no node out; programs and MUNGE may suffer.
    #[must_use]
    pub fn said(self) -> Said {
        let span = super::time::human(std::time::Duration::from_millis(self.ms.unsigned_abs()));
        if !self.is_off() {
            return Said::pass(format!(
                "within {} ms of the coordinator's",
                CLOCK_MS.saturating_add(self.error_ms)
            ));
        }
        let side = if self.ms > 0 { "ahead of" } else { "behind" };
        Said::warn(format!("{span} {side} the coordinator's"))
    }
}

/// Compares this machine's clock with the coordinator's, beat by beat.
#[derive(Clone, Debug, Default)]
pub struct Clocks {
    sent: VecDeque<(u64, u64)>,
    said: Option<Offset>,
}

impl Clocks {
    /// A beat of this number went out at this time of ours, unix milliseconds.
    pub fn sent(&mut self, n: u64, wall_ms: u64) {
        const REMEMBERED: usize = 16;
        self.sent.push_back((n, wall_ms));
        if self.sent.len() > REMEMBERED {
            self.sent.pop_front();
        }
    }

    /// It was acknowledged, at this time of the coordinator's, and the word came at this one of ours. Something is given where
    /// it is news: the clocks are off, or are so no more, or by something else.
    pub fn acknowledged(&mut self, n: u64, theirs_ms: u64, wall_ms: u64) -> Option<Said> {
        let (_, sent_ms) = self.sent.iter().find(|(sent, _)| *sent == n)?;
        let offset = Offset::measured(*sent_ms, theirs_ms, wall_ms)?;
        let sure = CLOCK_MS.saturating_add(offset.error_ms);
        let news = match self.said {
            None => offset.is_off(),
            // An answer that was slow says nothing of what was said before.
            Some(_) if offset.error_ms > CLOCK_MS => false,
            Some(before) => before.ms.abs_diff(offset.ms) > sure.saturating_add(before.ms.unsigned_abs() / 2),
        };
        if !news {
            return None;
        }
        self.said = offset.is_off().then_some(offset);
        Some(offset.said())
    }
}

/// The name of the check that compares clocks.
pub const CLOCK: &str = "clock";

/// `1.5 GiB`.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1 << 10 {
        return format!("{bytes} B");
    }
    let (mut whole, mut rest, mut at) = (bytes >> 10, ((bytes & 1023) * 10) >> 10, 0);
    while whole >= 1 << 10 && at + 1 < UNITS.len() {
        (whole, rest, at) = (whole >> 10, ((whole & 1023) * 10) >> 10, at + 1);
    }
    if whole < 10 { format!("{whole}.{rest} {}", UNITS[at]) } else { format!("{whole} {}", UNITS[at]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_say_by_their_ends() {
        let code = |code| ExitKind::Code(code);
        let traceback =
            "Traceback (most recent call last):\n  File \"c.py\", line 1, in <module>\nKeyError: 'x'\n";
        let table: &[(ExitKind, &[u8], Finding, &str)] = &[
            (code(0), b"", Finding::Pass, "exit code 0"),
            (code(0), b"all 8 GPUs are fine\n", Finding::Pass, "all 8 GPUs are fine"),
            (code(0), b"\xff\xfe\x01", Finding::Pass, "exit code 0"),
            (
                code(1),
                b"ERROR:  nhc:  Health check failed:  check_fs_mount:  /home not mounted\n",
                Finding::Fail,
                "ERROR:  nhc:  Health check failed:  check_fs_mount:  /home not mounted",
            ),
            (
                code(2),
                b"debug\nCRITICAL - GPU 3 fell off the bus\n\n",
                Finding::Fail,
                "CRITICAL - GPU 3 fell off the bus",
            ),
            (code(125), b"no GPU", Finding::Fail, "no GPU"),
            // It says nothing, or nothing that could be read.
            (code(1), b"", Finding::Unknown, "it ended with 1 and did not say why"),
            (code(1), b"\n \n", Finding::Unknown, "it ended with 1 and did not say why"),
            (
                code(1),
                b"\x7fELF\x02\x01\x01\xf3\xa0\xc3\x28",
                Finding::Unknown,
                "it ended with 1 and did not say why",
            ),
            (code(1), b"@#$%^&*()_!@#$%^&*(ab", Finding::Unknown, "it ended with 1 and did not say why"),
            // It broke, or was never run.
            (code(1), traceback.as_bytes(), Finding::Unknown, "it broke: KeyError: 'x'"),
            (
                code(126),
                b"sh: 1: ./check: Permission denied",
                Finding::Unknown,
                "it did not come to an answer: exit code 126",
            ),
            (
                code(127),
                b"sh: 1: nhc: not found",
                Finding::Unknown,
                "it did not come to an answer: exit code 127",
            ),
            (code(255), b"bad", Finding::Unknown, "it did not come to an answer: exit code 255"),
            (
                ExitKind::Signal { no: 11, core: true },
                b"bad",
                Finding::Unknown,
                "it did not come to an answer: SIGSEGV",
            ),
        ];
        for (end, output, finding, sentence) in table {
            let said = program(end, output);
            assert_eq!((said.finding, said.warns), (*finding, false), "{said:?}");
            assert!(said.sentence.starts_with(sentence), "{said:?}, wanted {sentence}");
        }
        let long = program(&code(1), "bad ".repeat(1_000).as_bytes());
        assert!(long.finding == Finding::Fail && long.sentence.chars().count() <= LONGEST);
    }

    #[test]
    fn limits_of_memory_and_files() {
        const GIB: u64 = 1 << 30;
        let table = [
            (shared_memory(60 * GIB, 64 * GIB), Finding::Pass, false, "60 GiB of 64 GiB free"),
            (shared_memory(64 << 20, 64 << 20), Finding::Pass, false, "64 MiB of 64 MiB free"),
            (
                shared_memory(5 * GIB, 64 * GIB),
                Finding::Pass,
                true,
                "/dev/shm is almost full: 5.0 GiB of 64 GiB free",
            ),
            (shared_memory(0, 64 * GIB), Finding::Fail, false, "/dev/shm is full: 0 B of 64 GiB free"),
            (shared_memory(0, 0), Finding::Unknown, false, "its size cannot be told"),
            (memory(40 * GIB, 64 * GIB), Finding::Pass, false, "40 GiB of 64 GiB available"),
            (
                memory(2 * GIB, 64 * GIB),
                Finding::Pass,
                true,
                "little memory is left: 2.0 GiB of 64 GiB available",
            ),
            (
                memory(GIB / 2, 64 * GIB),
                Finding::Fail,
                false,
                "no memory is left: 512 MiB of 64 GiB available",
            ),
            (space(Some(u64::MAX)), Finding::Pass, false, "16383 PiB free"),
            (space(Some(1_500)), Finding::Pass, true, "only 1.4 KiB free"),
            (space(None), Finding::Unknown, false, "it cannot be told"),
            (shared_directory(Ok(())), Finding::Pass, false, "a file can be made and read there"),
            (
                shared_directory(Err((28, "ENOSPC".into()))),
                Finding::Pass,
                true,
                "nothing can be written: ENOSPC",
            ),
            (
                shared_directory(Err((116, "ESTALE".into()))),
                Finding::Fail,
                false,
                "it cannot be used: ESTALE",
            ),
            (
                shared_directory(Err((13, "EACCES".into()))),
                Finding::Unknown,
                false,
                "it was tried in vain: EACCES",
            ),
            (late(15_000), Finding::Unknown, false, "it has not answered for 15 s and was given up"),
        ];
        for (said, finding, warns, sentence) in table {
            assert_eq!((said.finding, said.warns, said.sentence.as_str()), (finding, warns, sentence));
        }
    }

    #[test]
    fn clocks_that_are_apart() {
        let table = [
            (1_000, 1_010, 1_020, Some((0, 10)), false),
            (1_000, 900, 1_000, Some((100, 0)), true),
            (1_000, 1_100, 1_000, Some((-100, 0)), true),
            // A slow answer proves nothing.
            (1_000, 1_100, 1_300, Some((50, 150)), false),
            (7_201_000, 1_000, 7_201_002, Some((7_200_001, 1)), true),
            // Set back in between.
            (1_000, 1_000, 900, None, false),
            (u64::MAX, 0, u64::MAX, None, false),
        ];
        for (sent, answered, came, wanted, off) in table {
            let offset = Offset::measured(sent, answered, came);
            assert_eq!(offset.map(|o| (o.ms, o.error_ms)), wanted);
            assert_eq!(offset.is_some_and(Offset::is_off), off);
        }
        let ahead = Offset { ms: 7_200_000, error_ms: 1 }.said();
        assert_eq!((ahead.finding, ahead.warns), (Finding::Pass, true));
        assert!(ahead.sentence.ends_with(" ahead of the coordinator's"), "{}", ahead.sentence);
        assert!(Offset { ms: -900, error_ms: 1 }.said().sentence.contains("behind"));
        assert!(!Offset { ms: 3, error_ms: 1 }.said().warns);
    }

    #[test]
    fn a_clock_that_is_off_is_said_once() {
        let mut clocks = Clocks::default();
        let mut beat = |n: u64, ours: u64, ahead: i64, took: u64| {
            clocks.sent(n, ours);
            let theirs = (ours + took / 2).checked_add_signed(-ahead).unwrap();
            clocks.acknowledged(n, theirs, ours + took).map(|said| said.warns)
        };
        let wall = 1_000_000_000;
        assert_eq!(beat(1, wall, 0, 2), None);
        // Two hours off, and still so, by a little more or less.
        assert_eq!(beat(2, wall, 7_200_000, 2), Some(true));
        assert_eq!(beat(3, wall, 7_200_030, 2), None);
        assert_eq!(beat(4, wall, 7_199_000, 2), None);
        // A slow answer proves nothing.
        assert_eq!(beat(5, wall, 0, 9_000), None);
        // It was set right, once.
        assert_eq!(beat(6, wall, 1, 2), Some(false));
        assert_eq!(beat(7, wall, 1, 2), None);
        assert_eq!(clocks.acknowledged(99, 0, wall), None);
    }
}
