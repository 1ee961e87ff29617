//! Cutting a byte stream into lines, and putting lines of several writers into one output untorn.

use crate::domain::ids::{Attempt, LocalRank};

use super::wire::Stream;

/// A line longer than this goes out in pieces, in bytes.
pub(super) const LONGEST: usize = 64 << 10;

/// Part of a line. The pieces of a stream, joined, are the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    pub(super) bytes: &'a [u8],
    /// Nothing of this line went out before.
    pub(super) first: bool,
}

/// Holds back an unfinished line, at most [`LONGEST`] bytes of it.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    partial: Vec<u8>,
    /// Part of the current line is out already.
    inside: bool,
}

impl Splitter {
    pub(super) fn push(&mut self, mut bytes: &[u8], mut emit: impl FnMut(Piece<'_>)) {
        while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
            let (line, rest) = bytes.split_at(end + 1);
            bytes = rest;
            if self.partial.is_empty() {
                emit(Piece { bytes: line, first: !self.inside });
            } else {
                self.partial.extend_from_slice(line);
                emit(Piece { bytes: &self.partial, first: !self.inside });
                self.partial.clear();
            }
            self.inside = false;
        }
        self.partial.extend_from_slice(bytes);
        if self.partial.len() >= LONGEST {
            self.flush(emit);
        } else if self.partial.is_empty() && self.partial.capacity() > 4096 {
            self.partial = Vec::new();
        }
    }

    /// Lets the unfinished line go.
    pub(super) fn flush(&mut self, mut emit: impl FnMut(Piece<'_>)) {
        if !self.partial.is_empty() {
            emit(Piece { bytes: &self.partial, first: !self.inside });
            self.inside = true;
            self.partial.clear();
        }
    }
}

/// Whose line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner(pub(super) Attempt, pub(super) LocalRank, pub(super) Stream);

/// Where one output stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum At {
    #[default]
    LineStart,
    /// Within a line of this owner; `None`: of raw bytes.
    Inside(Option<Owner>),
}

impl At {
    /// Adds a piece of `owner`'s line to `to`: behind its own beginning as it is, else on a new line with
    /// `prefix`.
    pub(super) fn line(&mut self, owner: Owner, prefix: &[u8], piece: Piece<'_>, to: &mut Vec<u8>) {
        let goes_on = !piece.first && *self == Self::Inside(Some(owner));
        if !goes_on {
            if !piece.first && piece.bytes == b"\n" {
                // The end of a line that somebody else's line has ended already.
                return;
            }
            self.fresh(to);
            to.extend_from_slice(prefix);
        }
        to.extend_from_slice(piece.bytes);
        *self = if piece.bytes.ends_with(b"\n") { Self::LineStart } else { Self::Inside(Some(owner)) };
    }

    /// Adds bytes as they are.
    pub(super) fn raw(&mut self, bytes: &[u8], to: &mut Vec<u8>) {
        to.extend_from_slice(bytes);
        match bytes.last() {
            Some(b'\n') => *self = Self::LineStart,
            Some(_) => *self = Self::Inside(None),
            None => {}
        }
    }

    /// Ends whatever line is open.
    pub(super) fn fresh(&mut self, to: &mut Vec<u8>) {
        if *self != Self::LineStart {
            to.push(b'\n');
            *self = Self::LineStart;
        }
    }

    /// Ends the line of `owner`, if that one is open.
    pub(super) fn close(&mut self, owner: Owner, to: &mut Vec<u8>) {
        if *self == Self::Inside(Some(owner)) {
            self.fresh(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn owner(n: u32) -> Owner {
        Owner(Attempt(0), LocalRank(n), Stream::Out)
    }

    #[test]
    fn long_lines_go_out_in_pieces_with_one_prefix() {
        let mut splitter = Splitter::default();
        let mut at = At::default();
        let mut out = Vec::new();
        let long = vec![b'x'; LONGEST];
        for part in [&long[..], &long[..], b"end\nnext"] {
            splitter.push(part, |p| at.line(owner(0), b"[0]:", p, &mut out));
        }
        let mut want = b"[0]:".to_vec();
        want.extend_from_slice(&long);
        want.extend_from_slice(&long);
        want.extend_from_slice(b"end\n");
        assert!(out == want);
        splitter.flush(|p| at.line(owner(0), b"[0]:", p, &mut out));
        at.close(owner(0), &mut out);
        assert!(out.ends_with(b"end\n[0]:next\n"));
    }

    #[test]
    fn nobody_writes_into_another_ones_line() {
        let mut at = At::default();
        let mut out = Vec::new();
        at.line(owner(0), b"[0]:", Piece { bytes: b"part", first: true }, &mut out);
        at.line(owner(1), b"[1]:", Piece { bytes: b"whole\n", first: true }, &mut out);
        at.line(owner(0), b"[0]:", Piece { bytes: b"rest\n", first: false }, &mut out);
        at.line(owner(0), b"[0]:", Piece { bytes: b"p", first: true }, &mut out);
        at.raw(b"raw", &mut out);
        at.close(owner(0), &mut out);
        at.line(owner(0), b"[0]:", Piece { bytes: b"\n", first: false }, &mut out);
        at.fresh(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "[0]:part\n[1]:whole\n[0]:rest\n[0]:praw\n");
    }

    proptest! {
        #[test]
        fn pieces_joined_are_the_input(parts in prop::collection::vec(prop_oneof![
            prop::collection::vec(prop_oneof![Just(b'\n'), Just(b'a'), any::<u8>()], 0..40),
            (0_usize..3 * LONGEST).prop_map(|n| vec![b'z'; n]),
        ], 0..12)) {
            let mut splitter = Splitter::default();
            let mut joined = Vec::new();
            let mut starts = Vec::new();
            for p in &parts {
                splitter.push(p, |piece| {
                    starts.push((joined.len(), piece.first));
                    joined.extend_from_slice(piece.bytes);
                });
                prop_assert!(splitter.partial.len() < LONGEST);
            }
            splitter.flush(|piece| {
                starts.push((joined.len(), piece.first));
                joined.extend_from_slice(piece.bytes);
            });
            prop_assert_eq!(&joined, &parts.concat());
            for (at, first) in starts {
                prop_assert_eq!(first, at == 0 || joined[at - 1] == b'\n');
            }
        }
    }
}
