//! A page as it lies in memory: `docs/heartbeat-board.md` describes it for those who write one.

use super::{Feeder, Phase, Request, Sample, Section};
use crate::domain::ids::Attempt;

/// Size of a page, in bytes.
pub const PAGE_BYTES: usize = 4096;

/// `rlboard` and the version of the layout, as eight bytes.
const MAGIC: [u8; 8] = *b"rlboard1";

// Offsets, in bytes.
const ATTEMPT: usize = 8;
const OWNER: usize = 16;
const BEAT: usize = 24;
const TIME: usize = 32;
const EXTEND: usize = 40;
const COLLECTIVE: usize = 48;
const STACKS: usize = 56;
const SECTIONS: usize = 128;
const REQUEST: usize = 640;

const DEPTH: usize = 8;
const SECTION_BYTES: usize = 64;
/// Of a section: entry, timeout, name; then the check of all that.
const SECTION_CHECK: usize = 48;
const REQUEST_BYTES: usize = 256;
const REQUEST_CHECK: usize = 248;

/// In the flags: the step is known.
const STEP_KNOWN: u64 = 1;
/// In the flags: the program itself feeds the page.
const BY_CLIENT: u64 = 2;
/// Lower signals have a meaning of their own.
const REAL_TIME: std::ops::RangeInclusive<u64> = 34..=64;

/// A page that nobody has claimed.
#[must_use]
pub fn blank(attempt: Attempt) -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    page[..ATTEMPT].copy_from_slice(&MAGIC);
    page[ATTEMPT..OWNER].copy_from_slice(&attempt.0.to_le_bytes());
    page
}

/// What stands in a page; `None`: nobody has claimed it, or it is no page. Parts that are being written are left out: the
/// next look finds them whole.
#[must_use]
pub fn read(page: &[u8]) -> Option<Sample> {
    let page: &[u8; PAGE_BYTES] = page.get(..PAGE_BYTES)?.try_into().ok()?;
    if page[..ATTEMPT] != MAGIC {
        return None;
    }
    let pid = u32::try_from(word(page, OWNER)).ok().filter(|pid| (1..=i32::MAX as u32).contains(pid))?;
    let (beat, time) = (word(page, BEAT), word(page, TIME));
    let flags = beat & 0xffff;
    let some = |value: u64| (value != 0).then_some(value);
    Some(Sample {
        pid,
        feeder: if flags & BY_CLIENT == 0 { Feeder::Hook } else { Feeder::Client },
        step: (flags & STEP_KNOWN != 0).then_some(beat >> 24),
        phase: phase(beat >> 16 & 0xff),
        // One of both words may be written alone.
        beat: time.rotate_left(32).wrapping_add(beat),
        sections: (0..DEPTH).filter_map(|at| section(&page[SECTIONS + at * SECTION_BYTES..])).collect(),
        extend_ms: extension(word(page, EXTEND), time ^ beat >> 24),
        collective_timeout_ms: some(word(page, COLLECTIVE)),
        stack_signal: u8::try_from(word(page, STACKS)).ok().filter(|no| REAL_TIME.contains(&u64::from(*no))),
        request: request(&page[REQUEST..REQUEST + REQUEST_BYTES]),
    })
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let eight = bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok());
    eight.map_or(0, u64::from_le_bytes)
}

/// A phase of a later layout is a step of which nothing is known.
fn phase(code: u64) -> Phase {
    match code {
        0 => Phase::Init,
        1 => Phase::Data,
        2 => Phase::Forward,
        3 => Phase::Backward,
        4 => Phase::Optimizer,
        5 => Phase::Checkpoint,
        6 => Phase::Eval,
        _ => Phase::Step,
    }
}

/// The upper half names the beat since which it counts, by the lower half of that one's time and step.
fn extension(word: u64, beat: u64) -> u64 {
    if word >> 32 == beat & 0xffff_ffff { word & 0xffff_ffff } else { 0 }
}

fn section(slot: &[u8]) -> Option<Section> {
    let entry = word(slot, 0);
    if entry == 0 || !is_whole(slot, SECTION_CHECK) {
        return None;
    }
    let timeout = word(slot, 8);
    let name = printable(slot.get(16..SECTION_CHECK)?);
    Some(Section { name, timeout_ms: (timeout != 0).then_some(timeout), entry })
}

fn request(area: &[u8]) -> Option<Request> {
    let kind = word(area, 0);
    if kind == 0 || !is_whole(area, REQUEST_CHECK) {
        return None;
    }
    let reason = printable(area.get(8..REQUEST_CHECK)?);
    match kind {
        1 => Some(Request::Evict { reason }),
        2 => Some(Request::Stop { reason }),
        _ => None,
    }
}

/// Whether these bytes are as their writer left them: the CRC-32 of what lies before `check` is there.
fn is_whole(area: &[u8], check: usize) -> bool {
    area.get(..check).is_some_and(|bytes| word(area, check) == u64::from(crc32(bytes)))
}

/// zlib's.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        let mut crc = crc ^ u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
        crc
    })
}

/// The text before the first zero byte; what no terminal should get is a question mark.
fn printable(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let plain = |c: char| if c.is_control() || c == char::REPLACEMENT_CHARACTER { '?' } else { c };
    String::from_utf8_lossy(text).chars().map(plain).collect()
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
