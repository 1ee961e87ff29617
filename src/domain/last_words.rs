//! What a dead rank said last, as a person wants to read it: the Python traceback, the C++ abort or the
//! interpreter's fatal error if there is one, else the last lines.

mod others;

use serde::{Deserialize, Serialize};

/// Longest [`Words::text`], in bytes.
pub const MAX_TEXT: usize = 8 << 10;
/// How many lines are kept where nothing is recognised.
pub const LINES: usize = 20;
/// Longest line, in characters.
const MAX_LINE: usize = 500;
/// What of a text that is too long is kept of its beginning, in bytes.
const HEAD: usize = 1 << 10;
/// How far behind an exception's line a frame can show that it was none.
const LOOKAHEAD: usize = 20;
/// How many lines an exception's message goes on at most.
const MESSAGE: usize = 8;

const TRACEBACK: &str = "Traceback (most recent call last):";
const CHAINS: [&str; 2] = [
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
];

/// What was recognised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Nothing but blanks, or nothing.
    #[default]
    Silent,
    /// The last lines.
    Lines,
    /// A Python traceback with its exception, and those that led to it.
    Traceback,
    /// C++'s `terminate called …`.
    Terminate,
    /// The interpreter's `Fatal Python error: …` (faulthandler).
    Fatal,
    /// A panic of Rust or Go, an exception of Java.
    Panic,
}

/// Last words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Words {
    /// What was recognised.
    pub kind: Kind,
    /// One line: the exception, the error, else the last line.
    pub headline: String,
    /// Where a Python exception was raised, `collate.py:41`: the innermost frame of the program's own files,
    /// else the innermost of all. Empty where nothing tells.
    pub place: String,
    /// The same frame without its line, but with its function, `collate.py:f`: it stays while lines are added elsewhere.
    pub frame: String,
    /// At most [`MAX_TEXT`] bytes; no control characters but line ends.
    pub text: String,
    /// Non-empty lines that came after it: many of them say that the program went on.
    pub lines_after: usize,
}

/// Reads the end of a rank's output. Any bytes will do.
#[must_use]
pub fn last_words(tail: &[u8]) -> Words {
    let decoded = String::from_utf8_lossy(tail);
    let cleaned: Vec<String> = decoded.split('\n').map(clean).collect();
    let lines: Vec<&str> = cleaned.iter().map(String::as_str).collect();
    let found = choose(traceback(&lines), terminate(&lines), fatal(&lines), others::other(&lines));
    if let Some(found) = found {
        let after = lines.iter().skip(found.end).filter(|l| !l.is_empty()).count();
        let (place, frame) = match found.kind {
            Kind::Traceback => place(&found),
            // A crash has no line that raised it: where it was is worth a fingerprint.
            Kind::Fatal => (String::new(), crashed_in(&found)),
            _ => (found.place, found.frame),
        };
        return Words {
            kind: found.kind,
            headline: found.headline,
            place,
            frame,
            text: bounded(&found.text),
            lines_after: after,
        };
    }
    let full: Vec<&str> = lines.iter().copied().filter(|l| !l.trim().is_empty()).collect();
    let Some(last) = full.last() else { return Words::default() };
    Words {
        kind: Kind::Lines,
        headline: last.trim().into(),
        place: String::new(),
        frame: String::new(),
        text: bounded(&full[full.len().saturating_sub(LINES)..]),
        lines_after: 0,
    }
}

/// Any text as [`Words::text`] is: cleaned, and of too much the beginning and the end.
#[must_use]
pub fn cleaned(text: &[u8]) -> String {
    let decoded = String::from_utf8_lossy(text);
    let lines: Vec<String> = decoded.trim_end().split('\n').map(clean).collect();
    bounded(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Where the last exception of a traceback was raised: file and line, file and function. A group has no place: its
/// exceptions have.
fn place(found: &Found<'_>) -> (String, String) {
    let last = found.text.iter().rposition(|line| line.contains(TRACEBACK)).unwrap_or(0);
    let raised = found.text.iter().skip(last).position(|line| line.trim_end().ends_with(&found.headline));
    let block = found.text.get(last..last + raised.unwrap_or(0)).unwrap_or_default();
    if block.iter().any(|line| line.trim_start().starts_with(['|', '+'])) {
        return Default::default();
    }
    let frames: Vec<Frame<'_>> = block.iter().filter_map(|line| frame(line)).collect();
    let own = frames.iter().rev().find(|frame| is_own(frame.file)).or(frames.last());
    own.map(|frame| (format!("{}:{}", frame.base(), frame.line), frame.named())).unwrap_or_default()
}

/// Where a crash was, by the stack of the thread that had it, its innermost call first.
fn crashed_in(found: &Found<'_>) -> String {
    let current = found.text.iter().position(|line| line.starts_with("Current thread ")).unwrap_or(0);
    let stack = found.text.iter().skip(current + 1).map_while(|line| frame(line));
    let frames: Vec<Frame<'_>> = stack.collect();
    let own = frames.iter().find(|frame| is_own(frame.file)).or(frames.first());
    own.map(Frame::named).unwrap_or_default()
}

/// `File "/a/b.py", line 41, in f`, whatever stands before it.
struct Frame<'a> {
    file: &'a str,
    line: &'a str,
    function: &'a str,
}

impl Frame<'_> {
    fn base(&self) -> &str {
        self.file.rsplit('/').next().unwrap_or(self.file)
    }

    fn named(&self) -> String {
        format!("{}:{}", self.base(), self.function)
    }
}

fn frame(line: &str) -> Option<Frame<'_>> {
    let (file, rest) = line.split_once("  File \"")?.1.split_once("\", line ")?;
    let line = rest.split(|c: char| !c.is_ascii_digit()).next().filter(|number| !number.is_empty())?;
    // A traceback has a comma there, the fault handler has none; a syntax error has no function.
    let function = rest.split_once(" in ").map_or("", |(_, function)| function.trim());
    Some(Frame { file, line, function })
}

/// Neither an installed package nor Python itself.
fn is_own(file: &str) -> bool {
    const OTHERS: [&str; 3] = ["/site-packages/", "/dist-packages/", "/lib/python"];
    !file.starts_with('<') && !OTHERS.iter().any(|part| file.contains(part))
}

/// Something recognised: lines `start..end`, of which `text` are its own.
struct Found<'a> {
    kind: Kind,
    start: usize,
    end: usize,
    headline: String,
    text: Vec<&'a str>,
    /// Where, if that is known already: file and line.
    place: String,
    /// File and function.
    frame: String,
}

/// The latest one is what ended the program, but an abort is reported twice (by C++, then by faulthandler),
/// and one without an exception is how threads of a program end that fails already.
fn choose<'a>(
    traceback: Option<Found<'a>>,
    terminate: Option<Found<'a>>,
    fatal: Option<Found<'a>>,
    other: Option<Found<'a>>,
) -> Option<Found<'a>> {
    let aborted = |f: &Found<'_>| f.headline.ends_with("Aborted");
    let abort = match (terminate, fatal) {
        (Some(t), Some(f)) if f.start < t.start || aborted(&f) => Some(t),
        (t, f) => f.or(t),
    };
    let known = match (traceback, abort) {
        (Some(t), Some(a)) => {
            let follows = a.start < t.end + LINES && a.headline.contains("without an active exception");
            Some(if follows || a.start < t.start { t } else { a })
        }
        (t, a) => t.or(a),
    };
    match (known, other) {
        (Some(known), Some(other)) => Some(if other.start < known.start { known } else { other }),
        (known, other) => known.or(other),
    }
}

/// One line without escape sequences, overwritten parts and control characters.
fn clean(line: &str) -> String {
    // A progress bar writes its line again and again: the last state counts.
    let line = line.split('\r').rfind(|part| !part.is_empty()).unwrap_or_default();
    let mut out = String::new();
    let mut chars = line.chars().peekable();
    let mut count = 0;
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => skip_escape(&mut chars),
            '\t' => {
                let wide = (MAX_LINE - count).min(4);
                out.extend(std::iter::repeat_n(' ', wide));
                count += wide - 1;
            }
            c if c.is_control() || is_format(c) => continue,
            c => out.push(c),
        }
        count += 1;
        if count == MAX_LINE {
            out.push('…');
            break;
        }
    }
    out.truncate(out.trim_end().len());
    out
}

/// Marks that turn the direction of what follows.
pub(super) fn is_format(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.next() {
        Some('[') => {
            // Ends with a letter or one of a few signs.
            for c in chars.by_ref() {
                if ('\x40'..='\x7e').contains(&c) {
                    return;
                }
            }
        }
        Some(']') => {
            // A title: ends with BEL or ESC \.
            while let Some(c) = chars.next() {
                if c == '\x07' {
                    return;
                }
                if c == '\x1b' {
                    chars.next();
                    return;
                }
            }
        }
        _ => {}
    }
}

/// Lines joined; of too much, the beginning and the end.
fn bounded(lines: &[&str]) -> String {
    let whole = lines.join("\n");
    if whole.len() <= MAX_TEXT {
        return whole;
    }
    let mut head = String::new();
    let mut first = 0;
    while first < lines.len() && head.len() + lines[first].len() < HEAD {
        head.push_str(lines[first]);
        head.push('\n');
        first += 1;
    }
    head.push('…');
    let mut room = MAX_TEXT - head.len();
    let mut from = lines.len();
    while from > first && lines[from - 1].len() < room {
        from -= 1;
        room -= lines[from].len() + 1;
    }
    for line in &lines[from..] {
        head.push('\n');
        head.push_str(line);
    }
    head
}

/// One `Traceback` block with its exception.
struct Block<'a> {
    start: usize,
    end: usize,
    headline: &'a str,
    text: Vec<&'a str>,
    /// It goes with the block before it.
    chained: bool,
    /// Python printed it and went on.
    ignored: bool,
}

fn traceback<'a>(lines: &[&'a str]) -> Option<Found<'a>> {
    let mut blocks: Vec<Block<'a>> = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let before = blocks.last().map_or(0, |b| b.end);
        match lines[at].find(TRACEBACK).and_then(|column| block(lines, at, column, before)) {
            Some(block) => {
                at = block.end;
                blocks.push(block);
            }
            None => at += 1,
        }
    }
    // A chain counts as a whole: from a block that does not go with the one before it to its last.
    let mut chain = Vec::new();
    while let Some(block) = blocks.pop() {
        let (chained, ignored) = (block.chained && !blocks.is_empty(), block.ignored);
        chain.push(block);
        if chained {
            continue;
        }
        if ignored {
            chain.clear();
            continue;
        }
        break;
    }
    chain.reverse();
    let last = chain.last()?;
    let (start, end, headline) = (last.start, last.end, last.headline.trim().to_owned());
    let text = chain.into_iter().flat_map(|b| b.text).collect();
    Some(Found {
        kind: Kind::Traceback,
        start,
        end,
        headline,
        text,
        place: String::new(),
        frame: String::new(),
    })
}

/// The block whose header is on line `at` from `column` on; `None` if no exception follows.
fn block<'a>(lines: &[&'a str], at: usize, column: usize, before: usize) -> Option<Block<'a>> {
    let mut prefix = &lines[at][..column];
    let group = prefix.ends_with("Exception Group ");
    let nested = prefix.ends_with("Original ");
    for word in ["Original ", "Exception Group ", "+ "] {
        prefix = prefix.strip_suffix(word).unwrap_or(prefix);
    }
    if group {
        prefix = prefix.strip_suffix("  ").unwrap_or(prefix);
    }
    // torch puts `[rank0]: ` before each line; a logger's words stand before the first only.
    if !lines.get(at + 1).is_some_and(|next| next.starts_with(prefix)) {
        prefix = "";
    }
    let (mut text, body_end, headline) =
        if group { group_body(lines, at, prefix)? } else { body(lines, at, prefix)? };
    let own = |i: usize| strip(lines[i], prefix);
    let between = before..at;
    let link = between.clone().rev().find(|i| own(*i).is_some_and(|l| CHAINS.contains(&l.trim())));
    let mut start = at;
    let mut lead = Vec::new();
    let mut ignored = false;
    if let Some(link) = link {
        lead.extend(["", lines[link], ""]);
    } else if at > before {
        let previous = lines[at - 1].strip_prefix(prefix).unwrap_or(lines[at - 1]);
        ignored = previous.starts_with("Exception ignored in");
        if previous.starts_with("Exception in thread ")
            || (previous.starts_with("Process ") && previous.ends_with(':'))
        {
            start = at - 1;
            lead.push(lines[start]);
        }
    }
    lead.push(lines[at]);
    lead.append(&mut text);
    Some(Block { start, end: body_end, headline, text: lead, chained: link.is_some() || nested, ignored })
}

fn strip<'a>(line: &'a str, prefix: &str) -> Option<&'a str> {
    line.strip_prefix(prefix).or_else(|| (line == prefix.trim_end()).then_some(""))
}

/// Text, first line behind it, headline.
type Body<'a> = (Vec<&'a str>, usize, &'a str);

/// Frames and exception behind a header; lines of others in between are left out.
fn body<'a>(lines: &[&'a str], at: usize, prefix: &str) -> Option<Body<'a>> {
    let mut text = Vec::new();
    let mut i = at + 1;
    let (line, headline) = loop {
        let line = *lines.get(i)?;
        i += 1;
        let Some(own) = strip(line, prefix) else { continue };
        if own.contains(TRACEBACK) {
            return None;
        }
        if own.starts_with("  ") {
            text.push(line);
        } else if is_exception(own) && !frame_follows(lines, i, prefix) {
            break (line, own);
        }
    };
    text.push(line);
    let mut end = i;
    let first = end;
    for (i, line) in lines.iter().enumerate().skip(first).take(MESSAGE) {
        let Some(own) = strip(line, prefix) else { continue };
        if message_ends(own) {
            break;
        }
        text.push(line);
        end = i + 1;
    }
    Some((text, end, headline))
}

/// Does this line stand behind an exception's message, not in it?
fn message_ends(line: &str) -> bool {
    let starts = [
        "[",
        "<",
        "Exception ignored",
        "Exception in thread",
        "Process ",
        "Fatal Python",
        "terminate called",
    ];
    line.is_empty() || line.contains(TRACEBACK) || starts.iter().any(|s| line.starts_with(s))
}

fn frame_follows(lines: &[&str], from: usize, prefix: &str) -> bool {
    lines
        .iter()
        .skip(from)
        .take(LOOKAHEAD)
        .filter_map(|l| strip(l, prefix))
        .take_while(|l| !l.is_empty() && !l.contains(TRACEBACK))
        .any(|l| l.starts_with("  File \"") && l.contains("\", line ") && l.contains(", in "))
}

/// The tree of an exception group: all lines that begin with its bars.
fn group_body<'a>(lines: &[&'a str], at: usize, prefix: &str) -> Option<Body<'a>> {
    let mut text = Vec::new();
    let mut headline = None;
    let mut end = at + 1;
    for (i, line) in lines.iter().enumerate().skip(at + 1) {
        let Some(own) = strip(line, prefix) else { continue };
        let tree = own.trim_start();
        if !tree.starts_with(['|', '+']) {
            break;
        }
        if let Some(inner) = tree.strip_prefix("| ")
            && headline.is_none()
            && is_exception(inner)
        {
            headline = Some(inner);
        }
        text.push(*line);
        end = i + 1;
    }
    Some((text, end, headline?))
}

/// `dotted.Name: message` or `Name`, not a log level and not `loss: 0.3`.
fn is_exception(line: &str) -> bool {
    let end = line.find(|c: char| !c.is_alphanumeric() && !"_.<>".contains(c)).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    if !name.starts_with(|c: char| c.is_alphabetic() || c == '_') || name.ends_with('.') {
        return false;
    }
    let class = name.rsplit('.').next().unwrap_or(name);
    if rest.is_empty() {
        return name.contains('.')
            || [
                "Error",
                "Exception",
                "Interrupt",
                "Exit",
                "Warning",
                "Iteration",
                "Expired",
                "Full",
                "Empty",
            ]
            .iter()
            .any(|e| class.ends_with(e));
    }
    let level = ["INFO", "WARNING", "WARN", "ERROR", "DEBUG", "CRITICAL", "FATAL", "NOTE", "TRACE"];
    (rest == ":" || rest.starts_with(": "))
        && !level.iter().any(|l| l.eq_ignore_ascii_case(name))
        && (name.contains('.') || class.contains(|c: char| c.is_uppercase()))
}

fn terminate<'a>(lines: &[&'a str]) -> Option<Found<'a>> {
    let start = lines.iter().rposition(|l| l.contains("terminate called "))?;
    let line = &lines[start][lines[start].find("terminate called ")?..];
    let class = line.split_once("instance of '").and_then(|(_, r)| r.split_once('\''));
    let what = lines.iter().skip(start + 1).take(5).find_map(|l| l.trim().strip_prefix("what():"));
    let headline = match (class, what) {
        (Some((class, _)), Some(what)) => format!("{class}: {}", what.trim()),
        _ => line.trim().to_owned(),
    };
    let mut text = Vec::new();
    let mut end = start;
    while end < lines.len() && text.len() < LINES && !lines[end].contains(TRACEBACK) {
        if !lines[end].is_empty() {
            text.push(lines[end]);
        }
        end += 1;
    }
    Some(Found {
        kind: Kind::Terminate,
        start,
        end,
        headline,
        text,
        place: String::new(),
        frame: String::new(),
    })
}

fn fatal<'a>(lines: &[&'a str]) -> Option<Found<'a>> {
    let start = lines.iter().rposition(|l| l.contains("Fatal Python error: "))?;
    let headline = lines[start][lines[start].find("Fatal Python error: ")?..].trim().to_owned();
    let mut text = vec![lines[start]];
    let mut end = start + 1;
    for (i, line) in lines.iter().enumerate().skip(start + 1) {
        let stack = ["  ", "Current thread ", "Thread 0x", "Extension modules:", "Python runtime state", "<"]
            .iter()
            .any(|s| line.starts_with(s));
        if !stack && !line.is_empty() {
            // Another thread wrote in between, if the stacks go on behind it.
            let goes_on =
                |l: &&str| l.starts_with("  File \"") && l.contains(", line ") && !l.contains(", in ");
            if lines.iter().skip(i).take(LOOKAHEAD).any(goes_on) {
                continue;
            }
            break;
        }
        text.push(line);
        if stack {
            end = i + 1;
        }
    }
    while text.last().is_some_and(|l| l.is_empty()) {
        text.pop();
    }
    Some(Found { kind: Kind::Fatal, start, end, headline, text, place: String::new(), frame: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name, the output, the kind, the headline, what the text holds, what it does not hold.
    type Row =
        (&'static str, &'static str, Kind, &'static str, &'static [&'static str], &'static [&'static str]);

    const TABLE: &[Row] = &[
        ("nothing", "", Kind::Silent, "", &[], &[]),
        ("blanks", "\n \n\t\n", Kind::Silent, "", &[], &[]),
        ("lines", "step 1\n\nstep 2\nKilled\n", Kind::Lines, "Killed", &["step 1\nstep 2\nKilled"], &[]),
        (
            "plain",
            "step 1\nTraceback (most recent call last):\n  File \"t.py\", line 3, in <module>\n    main()\n    ~~~~^^\n  File \"t.py\", line 2, in main\n    raise ValueError(\"boom\")\nValueError: boom\n",
            Kind::Traceback,
            "ValueError: boom",
            &["Traceback", "line 2, in main", "    ~~~~^^"],
            &["step 1"],
        ),
        (
            "chain, during",
            "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\nKeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \"t.py\", line 2, in g\nRuntimeError: no a\n",
            Kind::Traceback,
            "RuntimeError: no a",
            &[
                "KeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback",
            ],
            &[],
        ),
        (
            "chain, cause, below an older one that was caught",
            "Traceback (most recent call last):\n  File \"o.py\", line 1, in o\nOSError: old\nretrying\nTraceback (most recent call last):\n  File \"t.py\", line 1, in f\nTimeoutError\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n  File \"t.py\", line 2, in g\nIOError: x\n",
            Kind::Traceback,
            "IOError: x",
            &["TimeoutError", "direct cause"],
            &["OSError: old"],
        ),
        (
            "torch's rank prefix, another thread in between",
            "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"/opt/t.py\", line 9, in <module>\n[W1201 03:00:00.1 ProcessGroupNCCL.cpp:1] Warning: slow\n[rank1]:     loss.backward()\n[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\nstep 7\n",
            Kind::Traceback,
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            &["[rank1]:     loss.backward()"],
            &["W1201", "step 7"],
        ),
        (
            "log lines among the frames",
            "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\nINFO: saving\nDataset: 40 files\n    g()\n  File \"t.py\", line 2, in g\n    h()\nKeyboardInterrupt\n",
            Kind::Traceback,
            "KeyboardInterrupt",
            &["line 1, in f\n    g()\n  File"],
            &["INFO", "Dataset"],
        ),
        (
            "message of several lines",
            "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\nRuntimeError: CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n\nbye\n",
            Kind::Traceback,
            "RuntimeError: CUDA error: device-side assert triggered",
            &["CUDA_LAUNCH_BLOCKING=1"],
            &["bye"],
        ),
        (
            "data loader",
            "Traceback (most recent call last):\n  File \"t.py\", line 5, in <module>\nRuntimeError: Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  File \"w.py\", line 1, in fetch\nFileNotFoundError: shard-7.tar\n",
            Kind::Traceback,
            "FileNotFoundError: shard-7.tar",
            &["Caught RuntimeError", "Original Traceback"],
            &[],
        ),
        (
            "ignored at exit",
            "Traceback (most recent call last):\n  File \"t.py\", line 5, in <module>\nValueError: real\nException ignored in: <function D.__del__ at 0x7f>\nTraceback (most recent call last):\n  File \"d.py\", line 1, in __del__\nAttributeError: 'NoneType'\n",
            Kind::Traceback,
            "ValueError: real",
            &["line 5"],
            &["NoneType"],
        ),
        (
            "thread",
            "Exception in thread Thread-1 (run):\nTraceback (most recent call last):\n  File \"t.py\", line 5, in run\nqueue.Empty\n",
            Kind::Traceback,
            "queue.Empty",
            &["Exception in thread Thread-1"],
            &[],
        ),
        (
            "group",
            "  + Exception Group Traceback (most recent call last):\n  |   File \"t.py\", line 3, in <module>\n  |     raise ExceptionGroup(\"eg\", [ValueError(1)])\n  | ExceptionGroup: eg (1 sub-exception)\n  +-+---------------- 1 ----------------\n    | Traceback (most recent call last):\n    |   File \"t.py\", line 1, in f\n    | ValueError: 1\n    +------------------------------------\nend\n",
            Kind::Traceback,
            "ExceptionGroup: eg (1 sub-exception)",
            &["| ValueError: 1"],
            &["end"],
        ),
        (
            "syntax error",
            "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    import b\n  File \"/x/b.py\", line 4\n    def (\n        ^\nSyntaxError: invalid syntax\n",
            Kind::Traceback,
            "SyntaxError: invalid syntax",
            &["    def ("],
            &[],
        ),
        (
            "cut off",
            "hello\nTraceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n    imp",
            Kind::Lines,
            "imp",
            &["hello"],
            &[],
        ),
        (
            "segmentation fault",
            "step 1\nFatal Python error: Segmentation fault\n\nThread 0x00007f11 (most recent call first):\n  File \"/usr/lib/python3.11/threading.py\", line 324 in wait\n\nCurrent thread 0x00007f10 (most recent call first):\n  File \"t.py\", line 3 in f\n  File \"t.py\", line 9 in <module>\n\nExtension modules: numpy, torch._C (total: 2)\n",
            Kind::Fatal,
            "Fatal Python error: Segmentation fault",
            &["line 9 in <module>", "Extension modules"],
            &["step 1"],
        ),
        (
            "a caught exception, later a fault",
            "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\nOSError: caught\n\nFatal Python error: Bus error\n\nCurrent thread 0x1 (most recent call first):\n  File \"t.py\", line 3 in f\n",
            Kind::Fatal,
            "Fatal Python error: Bus error",
            &["line 3 in f"],
            &["caught"],
        ),
        (
            "terminate, then faulthandler",
            "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [PG ID 0 Rank 1] Process group watchdog thread terminated with exception: CUDA error\nException raised from run at ProcessGroupNCCL.cpp:1\nframe #0: c10::Error::Error + 0x56 (0x7f in libc10.so)\n\nFatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n  File \"t.py\", line 3 in f\n",
            Kind::Terminate,
            "c10::DistBackendError: [PG ID 0 Rank 1] Process group watchdog thread terminated with exception: CUDA error",
            &["frame #0", "Fatal Python error: Aborted"],
            &[],
        ),
        (
            "an exception, then threads that end badly",
            "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\nValueError: first\nterminate called without an active exception\nFatal Python error: Aborted\n",
            Kind::Traceback,
            "ValueError: first",
            &[],
            &["terminate"],
        ),
        (
            "progress bar, colours, controls",
            "\x1b[31mred\x1b[0m \x07bell\x00\n 10%|#\r 50%|##\r100%|####\r\n\x1b]0;title\x07done\u{202e}\r\n",
            Kind::Lines,
            "done",
            &["red bell\n100%|####\ndone"],
            &["\x1b", "50%", "title"],
        ),
    ];

    #[test]
    fn table() {
        for (name, input, kind, headline, holds, lacks) in TABLE {
            let words = last_words(input.as_bytes());
            assert_eq!((words.kind, words.headline.as_str()), (*kind, *headline), "{name}: {words:#?}");
            for text in *holds {
                assert!(words.text.contains(text), "{name} lacks {text:?}: {}", words.text);
            }
            for text in *lacks {
                assert!(!words.text.contains(text), "{name} has {text:?}: {}", words.text);
            }
        }
    }

    #[test]
    fn says_how_much_came_after() {
        let mut text =
            String::from("Traceback (most recent call last):\n  File \"t\", line 1, in f\nOSError: x\n\n");
        assert_eq!(last_words(text.as_bytes()).lines_after, 0);
        text.push_str(&"step\n".repeat(100));
        assert_eq!(last_words(text.as_bytes()).lines_after, 100);
    }

    #[test]
    fn long_things_are_bounded_and_keep_both_ends() {
        let mut text = String::from("Traceback (most recent call last):\n");
        for i in 0..2000 {
            text.push_str(&format!("  File \"t.py\", line {i}, in f\n    f()\n"));
        }
        text.push_str("RecursionError: maximum recursion depth exceeded\n");
        let words = last_words(text.as_bytes());
        assert!(words.text.len() <= MAX_TEXT && words.text.len() > MAX_TEXT / 2, "{}", words.text.len());
        assert!(words.text.starts_with(TRACEBACK) && words.text.ends_with("depth exceeded"));
        for line in [vec![b'x'; 1 << 20], [&[b'x'; 497][..], &[b'\t'; 900], b"x"].concat()] {
            assert_eq!(last_words(&line).headline.chars().count(), MAX_LINE + 1);
        }
        let words = last_words("€\n".repeat(30_000).as_bytes());
        assert_eq!(words.text.lines().count(), LINES);
        let wide = format!("{}\n", "€".repeat(499)).repeat(30);
        assert!(last_words(wide.as_bytes()).text.len() <= MAX_TEXT);
    }

    /// Any bytes, made of pieces that mean something here.
    #[test]
    fn whatever_comes_is_survived() {
        let pieces: [&[u8]; 16] = [
            b"Traceback (most recent call last):\n",
            b"  File \"t.py\", line 1, in f\n",
            b"ValueError: x\n",
            b"[rank0]: ",
            b"  + Exception Group ",
            b"  | ",
            b"Original ",
            b"\n",
            b"\xff\xfe\0",
            b"\x1b[",
            b"\x1b]",
            b"Fatal Python error: Aborted",
            b"terminate called after throwing an instance of '",
            b"During handling of the above exception, another exception occurred:\n",
            "\u{e9}\u{20ac}".as_bytes(),
            b"Exception ignored in: x\n",
        ];
        let mut seed = 1_u64;
        for _ in 0..5000 {
            let mut input = Vec::new();
            for _ in 0..24 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                input.extend_from_slice(pieces[(seed >> 60) as usize]);
            }
            let words = last_words(&input);
            assert!(words.text.len() <= MAX_TEXT);
            assert!(words.text.chars().all(|c| c == '\n' || !c.is_control()), "{:?}", words.text);
            assert!(!words.headline.contains('\n'));
        }
    }

    #[test]
    fn the_place_is_the_innermost_frame_of_ones_own() {
        let place = |text: &str| last_words(text.as_bytes()).place;
        let own = "Traceback (most recent call last):\n  File \"/w/train.py\", line 9, in <module>\n    main()\n  \
                   File \"/w/collate.py\", line 41, in f\n    x['labels']\nKeyError: 'labels'\n";
        assert_eq!(place(own), "collate.py:41");
        let installed = own.replace("/w/collate.py", "/env/lib/python3.11/site-packages/torch/x.py");
        assert_eq!(place(&installed), "train.py:9");
        assert_eq!(place(&installed.replace("/w/train.py", "<string>")), "x.py:41");
        // Of a chain the last; torch's prefix; a syntax error names its own line.
        let chain = format!("{own}\n{}\n\n{}", CHAINS[0], own.replace("41", "43"));
        assert_eq!(place(&chain), "collate.py:43");
        let prefixed: String = own.lines().map(|l| format!("[rank3]: {l}\n")).collect();
        assert_eq!(place(&prefixed), "collate.py:41");
        let syntax =
            own.replace(", line 41, in f", ", line 41").replace("KeyError: 'labels'", "SyntaxError: no");
        assert_eq!(place(&syntax), "collate.py:41");
        assert_eq!(place("no traceback\n"), "");
    }
}
