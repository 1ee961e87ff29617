//! How a rank ended.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::errno::errno_name;
use super::time::BootTime;

/// What the kernel said of one rank's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitKind {
    /// It called exit.
    Code(u8),
    /// A signal ended it.
    Signal {
        /// The signal's number.
        no: u8,
        /// A core was dumped.
        core: bool,
    },
    /// It never ran.
    NeverStarted {
        /// The errno of the call that failed.
        errno: i32,
        /// The call and the limit that it met, for people: `pipe for stdout (open files: limit 64)`.
        what: String,
    },
    /// Its node was lost with it.
    Lost,
    /// It lived, did not advance, and was ended for it.
    Hung,
}

/// One rank's end with what is known around it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankExit {
    /// What the kernel said.
    pub kind: ExitKind,
    /// Our own kill ledger explains it: never evidence.
    pub ours: bool,
    /// When, on the clock of the machine that holds this value.
    pub at: BootTime,
}

impl ExitKind {
    /// Exit code 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Code(0))
    }

    /// What it died of, in one line: with its own words if it left any.
    #[must_use]
    pub fn evidence(&self, words: &str) -> String {
        match (self, words) {
            (Self::NeverStarted { .. }, _) => self.to_string(),
            (Self::Lost, "") => "was lost with its node".to_owned(),
            (Self::Hung, "") => self.to_string(),
            (Self::Hung, words) => words.to_owned(),
            (Self::Signal { .. }, "") => format!("died: {self}"),
            (Self::Signal { .. }, words) => format!("died: {self}: {words}"),
            (_, "") => format!("failed: {self}"),
            (_, words) => format!("failed: {words}"),
        }
    }

    /// The number torchrun reports: the code, or minus the signal.
    #[must_use]
    pub fn torch_code(&self) -> i32 {
        match self {
            Self::Code(code) => i32::from(*code),
            Self::Signal { no, .. } => -i32::from(*no),
            Self::NeverStarted { .. } | Self::Lost | Self::Hung => 1,
        }
    }
}

impl fmt::Display for ExitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal { no, core } => {
                f.write_str(&signal_name(*no))?;
                if *core { f.write_str(" (core dumped)") } else { Ok(()) }
            }
            Self::NeverStarted { errno, what } => {
                write!(f, "could not start: {what}: {}", errno_name(*errno))
            }
            Self::Lost => f.write_str("lost with its node"),
            Self::Hung => f.write_str("did not advance"),
        }
    }
}

/// `SIGKILL` for 9; `signal 40` for one without a name.
#[must_use]
pub fn signal_name(no: u8) -> String {
    const NAMES: [&str; 32] = [
        "", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU",
        "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    match NAMES.get(usize::from(no)) {
        Some(name) if !name.is_empty() => format!("SIG{name}"),
        _ => format!("signal {no}"),
    }
}

/// A signal by name, with or without `SIG`, or by number.
#[must_use]
pub fn signal_number(typed: &str) -> Option<u8> {
    if let Ok(no) = typed.parse::<u8>() {
        return (1..=64).contains(&no).then_some(no);
    }
    let name = typed.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    (1..=31).find(|no| signal_name(*no).strip_prefix("SIG") == Some(name))
}
