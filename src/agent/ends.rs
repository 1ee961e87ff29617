//! Ends of ranks on their way to the machine: a rank's last words are read first, from its pipes and from its error
//! file, and what no clock tells apart is told with the most likely root first.

use std::path::PathBuf;

use super::driver::Input;
use crate::domain::agent::Event;
use crate::domain::attribution::evidence::{Evidence, Facts, Sighting, Spoken, weigh};
use crate::domain::error_file::{ErrorNote, Recorded};
use crate::domain::exit::ExitKind;
use crate::domain::first_failure::{self, Standing};
use crate::domain::ids::{Attempt, LocalRank};
use crate::domain::last_words::{Kind, Words};
use crate::domain::time::BootTime;
use tokio::sync::mpsc::UnboundedSender;

use crate::logs::pump::Tail;

/// So many error files of an attempt are read on this node: those of its first ends.
const MOST_FILES: usize = 64;

/// One rank's end with its words.
pub(super) struct End {
    pub(super) attempt: Attempt,
    pub(super) local_rank: LocalRank,
    pub(super) kind: ExitKind,
    pub(super) at: BootTime,
    /// The same on the wall clock, unix milliseconds.
    pub(super) wall_ms: u64,
    summary: String,
    /// The same without its place.
    headline: String,
    frame: String,
    words: String,
    /// It said nothing after it.
    last: bool,
    seen: Vec<Sighting>,
    facts: Facts,
    recorded: Option<Recorded>,
    /// Its error file was looked for.
    looked: bool,
}

/// So many lines may follow an exception that was the end.
const AFTERWORD: usize = 5;

impl End {
    /// An end with what the rank said last.
    pub(super) fn new(
        (attempt, local_rank): (Attempt, LocalRank),
        kind: ExitKind,
        (at, wall_ms): (BootTime, u64),
        words: Words,
    ) -> Self {
        // Only a recognised end is what it died of; a last line is just the last line.
        let recognised = !matches!(words.kind, Kind::Lines | Kind::Silent);
        let headline = if recognised { words.headline } else { String::new() };
        Self {
            attempt,
            local_rank,
            kind,
            at,
            wall_ms,
            summary: placed(headline.clone(), &words.place),
            headline,
            frame: words.frame,
            words: words.text,
            last: words.lines_after <= AFTERWORD,
            seen: Vec::new(),
            facts: Facts::default(),
            recorded: None,
            looked: false,
        }
    }

    /// With lines of its last output that say something, and what was measured when it ended.
    pub(super) fn with(mut self, seen: Vec<Sighting>, facts: Facts) -> Self {
        (self.seen, self.facts) = (seen, facts);
        self
    }

    fn evidence(&self) -> Evidence {
        let spoken =
            Spoken { headline: &self.headline, frame: &self.frame, text: &self.words, last: self.last };
        weigh(&self.kind, &spoken, &self.seen, self.facts)
    }

    /// What it wrote down itself is what it died of.
    fn learn(&mut self, note: Option<ErrorNote>, started_ms: u64) {
        self.looked = true;
        let Some(note) = note else { return };
        self.recorded = Some(Recorded::of(note.at_s, started_ms, self.wall_ms));
        self.summary = placed(note.headline.clone(), &note.place);
        (self.headline, self.frame, self.words, self.last) = (note.headline, note.frame, note.text, true);
    }

    fn key(&self) -> (BootTime, Standing) {
        let moment = self.recorded.and_then(|r| r.failed_by(self.at)).unwrap_or(self.at);
        (moment, Standing::of(&self.kind, &self.summary, &self.words))
    }
}

/// `KeyError: 'labels' in collate.py:41`.
fn placed(headline: String, place: &str) -> String {
    if headline.is_empty() || place.is_empty() { headline } else { format!("{headline} in {place}") }
}

/// Ends that are not told yet.
#[derive(Default)]
pub(super) struct Ends {
    /// Ranks whose end is known and whose last words are still on their way.
    draining: usize,
    ended: Vec<End>,
    /// A sweep that ended before those words came.
    swept: Option<Event>,
    /// Error files are being read.
    reading: bool,
    /// Of this attempt, which began then (unix milliseconds), so many more are read.
    attempt: Attempt,
    started_ms: u64,
    left: usize,
}

impl Ends {
    /// The ranks of an attempt are started.
    pub(super) fn begin(&mut self, attempt: Attempt, wall_ms: u64) {
        (self.attempt, self.started_ms, self.left) = (attempt, wall_ms, MOST_FILES);
    }

    /// A rank ended, and its words are asked for.
    pub(super) fn expect(&mut self) {
        self.draining += 1;
    }

    /// They came.
    pub(super) fn heard(&mut self, end: End) {
        self.draining = self.draining.saturating_sub(1);
        self.ended.push(end);
    }

    /// A sweep ended; it comes back when it may be told.
    pub(super) fn sweep(&mut self, event: Event) -> Option<Event> {
        if self.draining == 0 && self.ended.is_empty() {
            return Some(event);
        }
        self.swept = Some(event);
        None
    }

    /// Whose error files are to be read now, and what is older than to be believed; once, until
    /// [`Ends::read`] says what they are.
    pub(super) fn wanted(&mut self) -> Option<(Vec<LocalRank>, u64)> {
        if self.draining > 0 || self.reading {
            return None;
        }
        let mut wanted: Vec<&mut End> = self
            .ended
            .iter_mut()
            .filter(|end| !end.looked && end.attempt == self.attempt && !end.kind.is_success())
            .filter(|end| !matches!(end.kind, ExitKind::NeverStarted { .. } | ExitKind::Lost))
            .collect();
        wanted.sort_by_key(|end| end.at);
        wanted.truncate(self.left);
        self.left -= wanted.len();
        for end in &mut wanted {
            end.looked = true;
        }
        let ranks: Vec<LocalRank> = wanted.iter().map(|end| end.local_rank).collect();
        self.reading = !ranks.is_empty();
        self.reading.then_some((ranks, self.started_ms))
    }

    /// What the files say; none: no answer in time, and those of this attempt are not asked for again.
    pub(super) fn read(&mut self, attempt: Attempt, notes: Option<Vec<(LocalRank, Option<ErrorNote>)>>) {
        self.reading = false;
        if notes.is_none() && attempt == self.attempt {
            self.left = 0;
        }
        for (local_rank, note) in notes.into_iter().flatten() {
            let started_ms = self.started_ms;
            let end = self.ended.iter_mut().find(|e| e.attempt == attempt && e.local_rank == local_rank);
            if let Some(end) = end {
                end.learn(note, started_ms);
            }
        }
    }

    /// All that ended so far is known: in the order in which it is told, a sweep last.
    pub(super) fn take(&mut self) -> Vec<Event> {
        if self.draining > 0 || self.reading {
            return Vec::new();
        }
        let mut ends = std::mem::take(&mut self.ended);
        first_failure::order(&mut ends, End::key);
        let event = |end: End| Event::RankExited {
            evidence: Box::new(end.evidence()),
            attempt: end.attempt,
            local_rank: end.local_rank,
            kind: end.kind,
            at: end.at,
            summary: end.summary,
            words: end.words,
            recorded: end.recorded,
        };
        ends.into_iter().map(event).chain(self.swept.take()).collect()
    }
}

/// The answer to a drain, also when the pump goes away without giving one.
pub(super) struct Answer {
    pub(super) inbox: UnboundedSender<Input>,
    pub(super) input: Option<(Attempt, LocalRank, ExitKind, BootTime)>,
}

impl Answer {
    pub(super) fn give(&mut self, tail: Option<Tail>) {
        if let Some((attempt, local_rank, kind, at)) = self.input.take() {
            let _ = self.inbox.send(Input::Drained { attempt, local_rank, kind, at, tail });
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.give(None);
    }
}

/// Files to be read: whose, and where.
pub type Files = Vec<(LocalRank, PathBuf)>;

#[cfg(test)]
mod tests {
    use super::*;

    fn end(local: u32, at_ms: u64, kind: ExitKind) -> End {
        End::new(
            (Attempt(1), LocalRank(local)),
            kind,
            (BootTime::from_millis(at_ms), at_ms),
            Words::default(),
        )
    }

    fn note(at_s: u64) -> Option<ErrorNote> {
        let headline = "ValueError: x".to_owned();
        Some(ErrorNote {
            headline,
            place: "t.py:1".into(),
            text: "text".into(),
            at_s: Some(at_s),
            ..ErrorNote::default()
        })
    }

    fn told(ends: &mut Ends) -> Vec<(u32, String)> {
        let name = |event: Event| match event {
            Event::RankExited { local_rank, summary, .. } => (local_rank.0, summary),
            _ => (99, String::new()),
        };
        ends.take().into_iter().map(name).collect()
    }

    const ONE: ExitKind = ExitKind::Code(1);

    #[test]
    fn nothing_is_told_before_words_and_files_are_read() {
        let mut ends = Ends::default();
        ends.begin(Attempt(1), 0);
        ends.expect();
        ends.expect();
        ends.heard(end(0, 9_000, ONE));
        assert!(ends.wanted().is_none() && told(&mut ends).is_empty());
        ends.heard(end(1, 9_500, ONE));
        assert_eq!(ends.wanted().unwrap().0, [LocalRank(0), LocalRank(1)]);
        assert!(ends.sweep(Event::Tick).is_none());
        assert!(ends.wanted().is_none() && told(&mut ends).is_empty());
        ends.read(Attempt(1), Some(vec![(LocalRank(1), note(7)), (LocalRank(0), None)]));
        assert!(ends.wanted().is_none());
        assert_eq!(
            told(&mut ends),
            [(1, "ValueError: x in t.py:1".into()), (0, String::new()), (99, String::new())]
        );
        assert!(ends.sweep(Event::Tick).is_some());
    }

    #[test]
    fn who_ends_meanwhile_is_read_too_and_a_dead_server_is_asked_once() {
        let mut ends = Ends::default();
        ends.begin(Attempt(1), 0);
        ends.expect();
        ends.heard(end(0, 1, ONE));
        assert!(ends.wanted().is_some());
        ends.expect();
        ends.heard(end(1, 2, ONE));
        ends.read(Attempt(1), Some(vec![]));
        assert_eq!(ends.wanted().unwrap().0, [LocalRank(1)]);
        ends.expect();
        ends.heard(end(2, 3, ONE));
        ends.read(Attempt(1), None);
        assert!(ends.wanted().is_none(), "it did not answer");
        assert_eq!(told(&mut ends).len(), 3);
        ends.begin(Attempt(2), 0);
        ends.expect();
        ends.heard(end(3, 4, ONE));
        assert!(ends.wanted().is_none(), "of an attempt that is over");
        assert_eq!(told(&mut ends).len(), 1);
    }

    #[test]
    fn only_the_first_ends_are_looked_at() {
        let mut ends = Ends::default();
        ends.begin(Attempt(1), 0);
        ends.heard(end(0, 1, ExitKind::Code(0)));
        ends.heard(end(1, 1, ExitKind::NeverStarted { errno: 2, what: String::new() }));
        assert!(ends.wanted().is_none());
        for i in 0..200 {
            ends.heard(end(10 + i, 1_000 - u64::from(i), ONE));
        }
        let wanted = ends.wanted().unwrap().0;
        assert_eq!((wanted.len(), wanted[0]), (MOST_FILES, LocalRank(209)));
        ends.read(Attempt(1), Some(vec![]));
        assert!(ends.wanted().is_none());
        assert_eq!(told(&mut ends).len(), 202);
    }
}
