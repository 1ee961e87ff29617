//! Texts that tell where a process stands: what Python's `faulthandler` writes, what `py-spy dump` prints, and the
//! kernel's side. Any bytes will do.
//!
//! Of several threads the main one is taken; where it has no frame, the one that the text names last.

use super::super::last_words::{cleaned, is_format};
use super::evidence::{Frame, Seen, Stack};

/// So many frames are kept, the innermost ones.
pub const MAX_FRAMES: usize = 64;
/// Their files and functions together, in bytes; also the longest [`Stack::text`].
pub const MAX_BYTES: usize = 8 << 10;
/// Of a text that is longer only the beginning is read, in bytes: a hundred threads of a hundred frames.
pub const MAX_DUMP: usize = 1 << 20;

const RECENT_FIRST: &str = "(most recent call first):";

/// One thread of a text.
#[derive(Default)]
struct Thread {
    /// It is known to be the main one.
    main: bool,
    frames: Vec<Frame>,
}

/// What `faulthandler` wrote (CPython 3.6 to 3.14), none if there is no frame in it. The signal was sent to the main
/// thread, so that is the one that is marked as current.
#[must_use]
pub fn inside(dump: &[u8]) -> Option<Stack> {
    let text = lossy(dump);
    let mut threads: Vec<Thread> = Vec::new();
    for line in text.lines() {
        if let Some(main) = header(line) {
            threads.push(Thread { main, frames: Vec::new() });
        } else if let (Some(thread), Some(frame)) = (threads.last_mut(), python_frame(line)) {
            push(&mut thread.frames, frame);
        }
    }
    chosen(threads, Seen::Inside, dump)
}

/// Whether a dump that was being written has all of its parts so far: a thread with its frames, and no half line. More
/// may follow all the same; a writer that is done writes no more.
#[must_use]
pub fn is_whole(dump: &[u8]) -> bool {
    let text = lossy(dump);
    // The current one is the oldest, and comes last; of more than a hundred threads it is left out.
    let has_current = text.lines().skip_while(|line| header(line) != Some(true)).nth(1).is_some();
    text.ends_with("\n...\n") || (has_current && text.ends_with('\n'))
}

/// What `py-spy dump` printed of this process.
#[must_use]
pub fn outside(dump: &[u8], pid: u32) -> Option<Stack> {
    let text = lossy(dump);
    let mut threads: Vec<Thread> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Thread ") {
            let number = rest.split_ascii_whitespace().next().unwrap_or_default();
            let main = number.parse() == Ok(pid) || rest.trim_end().ends_with("\"MainThread\"");
            threads.push(Thread { main, frames: Vec::new() });
        } else if let (Some(thread), Some(frame)) = (threads.last_mut(), py_spy_frame(line)) {
            push(&mut thread.frames, frame);
        }
    }
    chosen(threads, Seen::Outside, dump)
}

/// What `/proc/<pid>/stack` says.
#[must_use]
pub fn kernel(dump: &[u8]) -> Option<Stack> {
    let text = lossy(dump);
    let mut thread = Thread::default();
    for line in text.lines() {
        // `[<0>] do_wait+0x5d/0xe0`
        let Some((_, call)) = line.split_once("] ").filter(|_| line.starts_with("[<")) else { continue };
        let function = call.split(['+', ' ']).next().unwrap_or_default();
        push(&mut thread.frames, Frame { file: String::new(), line: 0, function: function.into() });
    }
    chosen(vec![thread], Seen::Kernel, dump)
}

fn chosen(threads: Vec<Thread>, seen: Seen, dump: &[u8]) -> Option<Stack> {
    let mut full: Vec<Thread> = threads.into_iter().filter(|thread| !thread.frames.is_empty()).collect();
    let at = full.iter().rposition(|thread| thread.main).or(full.len().checked_sub(1))?;
    let frames = std::mem::take(&mut full[at].frames);
    Some(Stack { seen, frames, text: cleaned(dump.get(..MAX_DUMP).unwrap_or(dump)) })
}

fn lossy(dump: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(dump.get(..MAX_DUMP).unwrap_or(dump))
}

/// A line that begins a thread, and whether it is the current one. The only thread of a text is.
fn header(line: &str) -> Option<bool> {
    let line = line.trim_end().strip_suffix(RECENT_FIRST)?;
    let current = line.starts_with("Current thread 0x") || line == "Stack ";
    (current || line.starts_with("Thread 0x")).then_some(current)
}

/// `  File "train.py", line 41 in step`. A file may have any name.
fn python_frame(line: &str) -> Option<Frame> {
    let (file, rest) = line.strip_prefix("  File \"")?.rsplit_once("\", line ")?;
    let (number, function) = rest.split_once(" in ")?;
    Some(Frame { file: file.into(), line: number.parse().unwrap_or(0), function: function.into() })
}

/// `    step (/w/train.py:41)`, without `:41` where no line is known.
fn py_spy_frame(line: &str) -> Option<Frame> {
    let (function, place) = line.strip_prefix("    ")?.trim_end().strip_suffix(')')?.split_once(" (")?;
    let (file, number) = match place.rsplit_once(':') {
        Some((file, number)) => (file, number.parse().ok()?),
        None => (place, 0),
    };
    Some(Frame { file: file.into(), line: number, function: function.into() })
}

/// One more, as long as there is room; without what a terminal would act on.
fn push(frames: &mut Vec<Frame>, frame: Frame) {
    let frame = Frame { file: plain(&frame.file), line: frame.line, function: plain(&frame.function) };
    let size = |frame: &Frame| frame.file.len() + frame.function.len();
    let have: usize = frames.iter().map(size).sum();
    if frames.len() < MAX_FRAMES && have + size(&frame) <= MAX_BYTES {
        frames.push(frame);
    }
}

/// The end of a long path tells more than its beginning.
fn plain(text: &str) -> String {
    const LONGEST: usize = 256;
    let skip = text.chars().count().saturating_sub(LONGEST);
    text.chars().skip(skip).filter(|c| !c.is_control() && !is_format(*c)).collect()
}

#[cfg(test)]
#[path = "stack_tests.rs"]
mod tests;
