//! Bursts of signals: Slurm sends TERM CONT TERM, a terminal sends INT to everybody, people press twice.

use std::time::Duration;

use super::super::time::BootTime;

/// Signals of one kind closer together than this are one.
pub(super) const BURST: Duration = Duration::from_secs(3);

const SIGINT: u8 = 2;

/// What a stop signal means, given those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The first one: stop.
    First,
    /// Part of the same burst, or of no weight.
    Same,
    /// Asked again: do not wait.
    Again,
}

/// The stop signals so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signals {
    first: Option<(u8, BootTime)>,
}

impl Signals {
    /// Takes one stop signal in. A second one escalates only three seconds later and only from a user or a
    /// terminal, except the second press of Ctrl-C, which escalates at once.
    pub fn hear(&mut self, now: BootTime, signal: u8, terminal: bool, user: bool) -> Heard {
        let Some((_, since)) = self.first else {
            self.first = Some((signal, now));
            return Heard::First;
        };
        let pressed_twice = signal == SIGINT && terminal;
        let later = now.since(since) >= BURST && (user || terminal);
        if pressed_twice || later { Heard::Again } else { Heard::Same }
    }

    /// The signal that was heard first.
    #[must_use]
    pub fn first(&self) -> Option<u8> {
        self.first.map(|(signal, _)| signal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_one_and_escalation_is_wanted() {
        let at = BootTime::from_millis;
        // Signals as (ms, number, terminal, user), and what the last one means.
        type Row = (&'static [(u64, u8, bool, bool)], Heard);
        let table: &[Row] = &[
            (&[(0, 15, false, true)], Heard::First),
            (&[(0, 15, false, true), (2_999, 15, false, true)], Heard::Same),
            (&[(0, 15, false, true), (3_000, 15, false, true)], Heard::Again),
            (&[(0, 15, false, false), (9_000, 15, false, false)], Heard::Same),
            (&[(0, 2, true, true), (10, 2, true, true)], Heard::Again),
            (&[(0, 2, false, true), (10, 2, false, true)], Heard::Same),
            (&[(0, 15, false, true), (10, 2, true, true)], Heard::Again),
        ];
        for (signals, expected) in table {
            let mut heard = Signals::default();
            let mut last = Heard::Same;
            for (ms, no, terminal, user) in *signals {
                last = heard.hear(at(*ms), *no, *terminal, *user);
            }
            assert_eq!(last, *expected, "{signals:?}");
        }
    }
}
