//! Finds the rows of the table in what was printed: a few literals first, and a regular expression only where one is.
//!
//! Time is linear in the text, and a line counts only around its literal ([`MAX_LINE`]): nothing that is printed makes it
//! slow or large.

use std::sync::{LazyLock, OnceLock};

use aho_corasick::AhoCorasick;
use regex::bytes::{Regex, RegexBuilder};

use super::rules::{self, Class, Place, Rule};

/// The most of one line that is looked at, in bytes: half of it on each side of a literal.
pub const MAX_LINE: usize = 4 << 10;

/// The driver's word before a number and a device.
const XID: &str = "Xid (";

/// What a library suggests when it does not know: from the sentence with such a phrase on, a line says nothing.
const GUESSES: [&str; 12] = [
    "might be caused by",
    "may be caused by",
    "could be caused by",
    "can be caused by",
    "possibly due to",
    "may be due to",
    "might be due to",
    "could be due to",
    "please try",
    "is possible that",
    "consider passing",
    "for debugging",
];

/// A line that fits a row.
#[derive(Clone, Copy, Debug)]
pub struct Hit<'a> {
    /// The row.
    pub rule: &'static Rule<'static>,
    /// The line, or what of it was looked at.
    pub line: &'a [u8],
    /// Where that begins in the text.
    pub at: usize,
}

/// The table, ready to be looked for.
#[derive(Debug)]
pub struct Engine {
    keys: AhoCorasick,
    /// The row of each key; none: an Xid.
    rows: Vec<Option<usize>>,
    /// By row; made when first needed.
    patterns: Vec<OnceLock<Option<Regex>>>,
    guesses: AhoCorasick,
}

static ENGINE: LazyLock<Option<Engine>> = LazyLock::new(Engine::new);

impl Engine {
    /// Built from the table; nothing if that is no table, which a test rules out.
    fn new() -> Option<Self> {
        let (mut keys, mut rows) = (vec![XID], vec![None]);
        for (at, rule) in rules::rules().iter().enumerate().filter(|(_, rule)| rule.place == Place::Text) {
            keys.extend(&rule.keys);
            rows.extend(rule.keys.iter().map(|_| Some(at)));
        }
        let literals = |words: &[&str]| {
            AhoCorasick::builder()
                .ascii_case_insensitive(true)
                .kind(Some(aho_corasick::AhoCorasickKind::DFA))
                .build(words)
                .ok()
        };
        let patterns = rules::rules().iter().map(|_| OnceLock::new()).collect();
        Some(Self { keys: literals(&keys)?, rows, patterns, guesses: literals(&GUESSES)? })
    }

    /// The row that a line fits: the first of the table.
    #[must_use]
    pub fn line(&self, line: &[u8]) -> Option<&'static Rule<'static>> {
        self.judge(&line[..line.len().min(MAX_LINE)])
    }

    /// Every line that fits a row, in order; chatter too.
    pub fn scan<'a>(&self, text: &'a [u8], mut found: impl FnMut(Hit<'a>)) {
        let mut from = 0;
        while let Some(key) = self.keys.find(&text[from..]) {
            let (start, end) = (from + key.start(), from + key.end());
            let line = around(text, from, start, end);
            if let Some(rule) = self.judge(&text[line.clone()]) {
                found(Hit { rule, line: &text[line.clone()], at: line.start });
            }
            from = line.end;
        }
    }

    fn judge(&self, line: &[u8]) -> Option<&'static Rule<'static>> {
        let mut xid = false;
        let mut rows = Vec::new();
        for key in self.keys.find_overlapping_iter(line) {
            match self.rows.get(key.pattern().as_usize()).copied().flatten() {
                Some(row) => rows.push(row),
                None => xid = true,
            }
        }
        if let Some(number) = xid.then(|| self::xid(line)).flatten() {
            return of_xid(number, line);
        }
        rows.sort_unstable();
        rows.dedup();
        // Chatter is recognised by the whole line.
        let sure = self.certain(line);
        rows.into_iter().find_map(|row| {
            let rule = rules::rules().get(row)?;
            let text = if rule.class == Class::Chatter { line } else { sure };
            self.fits(row, rule, text).then_some(rule)
        })
    }

    /// What stands before the first sentence that only guesses.
    fn certain<'a>(&self, line: &'a [u8]) -> &'a [u8] {
        let Some(guess) = self.guesses.find(line) else { return line };
        let before = &line[..guess.start()];
        let sentence = before.windows(2).rposition(|pair| matches!(pair, b". " | b"; " | b": "));
        &before[..sentence.unwrap_or(0)]
    }

    fn fits(&self, row: usize, rule: &Rule<'_>, text: &[u8]) -> bool {
        if rule.pattern.is_empty() {
            return self
                .keys
                .find_overlapping_iter(text)
                .any(|key| self.rows.get(key.pattern().as_usize()) == Some(&Some(row)));
        }
        let Some(pattern) = self.patterns.get(row) else { return false };
        let pattern = pattern.get_or_init(|| compile(rule.pattern));
        pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
    }
}

fn compile(pattern: &str) -> Option<Regex> {
    RegexBuilder::new(pattern).unicode(false).size_limit(1 << 20).dfa_size_limit(1 << 18).build().ok()
}

/// The table, ready; none if it is no table, which a test rules out.
#[must_use]
pub fn engine() -> Option<&'static Engine> {
    ENGINE.as_ref()
}

/// The line around a literal, not beyond `from` and not longer than [`MAX_LINE`].
fn around(text: &[u8], from: usize, start: usize, end: usize) -> std::ops::Range<usize> {
    let is_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let first = from.max(start.saturating_sub(MAX_LINE / 2));
    let last = text.len().min(end + MAX_LINE / 2);
    let begin = text[first..start].iter().rposition(is_end).map_or(first, |at| first + at + 1);
    let close = text[end..last].iter().position(is_end).map_or(last, |at| end + at);
    begin..close
}

/// The number in `NVRM: Xid (PCI:0000:1b:00): 79, pid=4711, …`.
#[must_use]
pub fn xid(line: &[u8]) -> Option<u32> {
    let text = String::from_utf8_lossy(line);
    let (_, rest) = text.split_once(XID)?;
    let (_, rest) = rest.split_once("):")?;
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).take(6).collect();
    digits.parse().ok()
}

/// 154 says in words what the driver asks for, and that is sometimes nothing.
fn of_xid(number: u32, line: &[u8]) -> Option<&'static Rule<'static>> {
    const ACTION: u32 = 154;
    let nothing =
        || String::from_utf8_lossy(line).rsplit(" to ").next().is_some_and(|to| to.contains("(None)"));
    if number == ACTION && nothing() {
        return rules::by_id("xid-note");
    }
    rules::for_number(Place::Xid, number)
}
