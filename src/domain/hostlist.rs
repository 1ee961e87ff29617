//! Slurm's way to write a list of nodes: `n[1-4,7],gpu[001-003]`. Order, repetitions and zeros in front are kept.
//!
//! ```text
//! list   := item {sep item}      sep: comma or white space, outside brackets
//! item   := text with any number of [ranges], also with text behind the last one
//! ranges := range {"," range}    range: digits | digits "-" digits, padded to the width of the low end
//! ```
//! Doubtful input is an error: what Slurm itself writes never is. The functions that its commands understand
//! (`feature{x}`, `host*2`) never stand in a variable and are refused, too.

use std::fmt::Write as _;

use super::ids::NodeName;

/// So many nodes are expanded at most, whatever a list says. Slurm allows as many in one range.
pub const MOST: usize = 65_536;
/// A name is no longer than so many bytes.
pub const LONGEST: usize = 255;
/// Bracket groups of one item.
const MOST_GROUPS: usize = 16;
/// Digits of one number.
const MOST_DIGITS: usize = 18;

/// Why a text is no list of nodes. `at` counts bytes from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostlistError {
    /// `[` without `]`, or one within another.
    #[error("the bracket at position {at} is not closed")]
    Unclosed {
        /// Where it stands.
        at: usize,
    },
    /// `]` without `[`.
    #[error("the bracket at position {at} was never opened")]
    Unopened {
        /// Where it stands.
        at: usize,
    },
    /// Something else than digits where a number belongs.
    #[error("a number of at most {MOST_DIGITS} digits belongs at position {at}")]
    NotANumber {
        /// Where.
        at: usize,
    },
    /// The high end is below the low end.
    #[error("the range at position {at} ends below its beginning")]
    Backwards {
        /// Where the range begins.
        at: usize,
    },
    /// No node name has this character.
    #[error("the character at position {at} belongs to no node name")]
    Character {
        /// Where it stands.
        at: usize,
    },
    /// A node would have a longer name than [`LONGEST`], or an item too many brackets.
    #[error("the name at position {at} is too long")]
    NameTooLong {
        /// Where it begins.
        at: usize,
    },
    /// More nodes than wanted.
    #[error("there are more than {limit} nodes in the list, at position {at}")]
    TooMany {
        /// Where the limit is passed.
        at: usize,
        /// The limit.
        limit: usize,
    },
}

/// All nodes of a list, in Slurm's order, at most [`MOST`].
///
/// # Errors
/// It is no list.
pub fn expand(text: &str) -> Result<Vec<NodeName>, HostlistError> {
    expand_within(text, MOST)
}

/// As [`expand`], with a limit of one's own. Nothing beyond the limit is ever allocated.
///
/// # Errors
/// It is no list, or one of more nodes.
pub fn expand_within(text: &str, limit: usize) -> Result<Vec<NodeName>, HostlistError> {
    let mut nodes = Vec::new();
    let mut start = 0;
    let mut open = None;
    for (at, byte) in text.bytes().chain([b',']).enumerate() {
        match byte {
            b'[' if open.is_some() => return Err(HostlistError::Unclosed { at: open.unwrap_or(at) }),
            b'[' => open = Some(at),
            b']' if open.is_none() => return Err(HostlistError::Unopened { at }),
            b']' => open = None,
            b',' | b' ' | b'\t' | b'\n' if open.is_none() => {
                if start < at {
                    item(&text[start..at], start, limit, &mut nodes)?;
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    match open {
        Some(at) => Err(HostlistError::Unclosed { at }),
        None => Ok(nodes),
    }
}

/// A range of numbers with the width that each is padded to.
struct Range {
    low: u64,
    high: u64,
    width: usize,
}

impl Range {
    fn len(&self) -> usize {
        usize::try_from(self.high - self.low).unwrap_or(usize::MAX).saturating_add(1)
    }
}

/// The numbers of one bracket.
struct Group(Vec<Range>);

impl Group {
    fn len(&self) -> usize {
        self.0.iter().map(Range::len).fold(0, usize::saturating_add)
    }

    fn write(&self, mut index: usize, to: &mut String) {
        for range in &self.0 {
            if index < range.len() {
                // Writing to a String cannot fail.
                let _ = write!(to, "{:0width$}", range.low + index as u64, width = range.width);
                return;
            }
            index -= range.len();
        }
    }
}

/// One item; its brackets are known to match.
fn item(text: &str, at: usize, limit: usize, nodes: &mut Vec<NodeName>) -> Result<(), HostlistError> {
    // Texts and groups take turns: texts[0] groups[0] texts[1] … texts[n].
    let (mut texts, mut groups) = (Vec::new(), Vec::new());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('[') {
        let place = at + (text.len() - behind.len());
        let (inside, after) = behind.split_once(']').ok_or(HostlistError::Unclosed { at: place - 1 })?;
        texts.push(plain(before, place - 1 - before.len())?);
        groups.push(group(inside, place)?);
        rest = after;
        if groups.len() > MOST_GROUPS {
            return Err(HostlistError::NameTooLong { at });
        }
    }
    texts.push(plain(rest, at + (text.len() - rest.len()))?);
    let fixed: usize = texts.iter().map(|text| text.len()).sum();
    let widest = |group: &Group| group.0.iter().map(|r| r.width.max(digits(r.high))).max().unwrap_or(0);
    if fixed + groups.iter().map(widest).sum::<usize>() > LONGEST {
        return Err(HostlistError::NameTooLong { at });
    }
    let count = groups.iter().map(Group::len).fold(1, usize::saturating_mul);
    if nodes.len().saturating_add(count) > limit {
        return Err(HostlistError::TooMany { at, limit });
    }
    for index in 0..count {
        let mut name = String::with_capacity(fixed + 8);
        let picked = pick(&groups, index);
        for (no, text) in texts.iter().enumerate() {
            name.push_str(text);
            if let (Some(group), Some(index)) = (groups.get(no), picked.get(no)) {
                group.write(*index, &mut name);
            }
        }
        nodes.push(NodeName::new(name));
    }
    Ok(())
}

/// Which number of each group belongs to the `index`-th name. Slurm counts the last bracket fastest, then the
/// first, then those between.
fn pick(groups: &[Group], mut index: usize) -> Vec<usize> {
    let mut picked = vec![0; groups.len()];
    let Some(last) = groups.len().checked_sub(1) else { return picked };
    for no in std::iter::once(last).chain(0..last) {
        let length = groups[no].len().max(1);
        picked[no] = index % length;
        index /= length;
    }
    picked
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

fn plain(text: &str, at: usize) -> Result<&str, HostlistError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    match text.char_indices().find(|(_, c)| !fits(*c)) {
        Some((no, _)) => Err(HostlistError::Character { at: at + no }),
        None => Ok(text),
    }
}

fn group(text: &str, at: usize) -> Result<Group, HostlistError> {
    let (mut ranges, mut place) = (Vec::new(), at);
    for part in text.split(',') {
        let (low, high) = match part.split_once('-') {
            Some((low, high)) => (low, Some(high)),
            None => (part, None),
        };
        let (from, width) = (number(low, place)?, low.len());
        let to = high.map_or(Ok(from), |high| number(high, place + low.len() + 1))?;
        if to < from {
            return Err(HostlistError::Backwards { at: place });
        }
        ranges.push(Range { low: from, high: to, width });
        place += part.len() + 1;
    }
    Ok(Group(ranges))
}

fn number(text: &str, at: usize) -> Result<u64, HostlistError> {
    let fits = (1..=MOST_DIGITS).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    fits.then(|| text.parse().ok()).flatten().ok_or(HostlistError::NotANumber { at })
}

/// Writes nodes as Slurm does, in their order and with repetitions: what [`expand`] reads back. Names are taken
/// as they are.
#[must_use]
pub fn compress<'a>(nodes: impl IntoIterator<Item = &'a NodeName>) -> String {
    let mut out = String::new();
    let mut open: Option<Open<'a>> = None;
    for node in nodes {
        let name = node.as_str();
        let (prefix, tail) = name.split_at(name.trim_end_matches(|c: char| c.is_ascii_digit()).len());
        // More digits than a number has: the front ones belong to the text.
        let (prefix, tail) = match tail.len().checked_sub(MOST_DIGITS) {
            Some(more) => name.split_at(prefix.len() + more),
            None => (prefix, tail),
        };
        let Ok(number) = tail.parse::<u64>() else {
            flush(&mut out, open.take());
            separate(&mut out);
            out.push_str(name);
            continue;
        };
        match &mut open {
            Some(group) if group.prefix == prefix => group.add(tail, number),
            _ => {
                flush(&mut out, open.take());
                open = Some(Open { prefix, runs: vec![Run { low: tail, last: number, count: 1 }] });
            }
        }
    }
    flush(&mut out, open);
    out
}

/// Neighbours with one prefix.
struct Open<'a> {
    prefix: &'a str,
    runs: Vec<Run<'a>>,
}

/// Numbers that count up by one.
struct Run<'a> {
    low: &'a str,
    last: u64,
    count: u64,
}

impl<'a> Open<'a> {
    fn add(&mut self, tail: &'a str, number: u64) {
        if let Some(run) = self.runs.last_mut()
            && run.last.checked_add(1) == Some(number)
            && format!("{number:0width$}", width = run.low.len()) == tail
        {
            run.last = number;
            run.count += 1;
        } else {
            self.runs.push(Run { low: tail, last: number, count: 1 });
        }
    }
}

fn separate(out: &mut String) {
    if !out.is_empty() {
        out.push(',');
    }
}

fn flush(out: &mut String, open: Option<Open<'_>>) {
    let Some(open) = open else { return };
    separate(out);
    out.push_str(open.prefix);
    let alone = open.runs.len() == 1 && open.runs.iter().all(|run| run.count == 1);
    if !alone {
        out.push('[');
    }
    for (no, run) in open.runs.iter().enumerate() {
        if no > 0 {
            out.push(',');
        }
        out.push_str(run.low);
        if run.count > 1 {
            // Writing to a String cannot fail.
            let _ = write!(out, "-{:0width$}", run.last, width = run.low.len());
        }
    }
    if !alone {
        out.push(']');
    }
}

#[cfg(test)]
#[path = "hostlist_tests.rs"]
mod tests;
