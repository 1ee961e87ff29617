//! The process that writes. It may block on a file as long as it likes: the pump counts and goes on, and the
//! agent kills a worker that makes no progress. A blocked console does not even block the files.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::console::Console;
use super::files::{self, Combined, Disabled, Filtered, Sink, Trouble};
use super::lines::{LONGEST, Owner, Piece, Splitter};
use super::pump::dropped_marker;
use super::spec::{LogSpec, Show};
use super::wire::{Blob, Source, Stream, ToPump, ToWorker};
use crate::domain::ids::{Attempt, LocalRank};
use crate::ipc::frame::{self, FrameError};

/// Acknowledge at least this often within a batch, in bytes.
const ACK_EVERY: u64 = 64 << 10;
/// What is read from the socket at once, in bytes.
const BUFFER: usize = 256 << 10;

/// Body of `relight __worker logs`: takes frames from the agent until it closes, writes files and our
/// standard output and error, acknowledges. Returns the exit code: 0 after the agent's close and with
/// everything written, 1 where the inherited descriptors are missing or the agent is not understood.
pub fn run(socket: OwnedFd) -> i32 {
    let (stdout, stderr) = (io::stdout(), io::stderr());
    let outputs = (stdout.as_fd().try_clone_to_owned(), stderr.as_fd().try_clone_to_owned());
    match outputs {
        (Ok(out), Ok(err)) => serve(UnixStream::from(socket), File::from(out), File::from(err)),
        _ => 1,
    }
}

/// [`run`] with the console given.
pub(super) fn serve(socket: UnixStream, out: File, err: File) -> i32 {
    // Whoever made the socket may have left it non-blocking.
    let Ok(replies) = socket.set_nonblocking(false).and_then(|()| socket.try_clone()) else { return 1 };
    let replies = Arc::new(Mutex::new(replies));
    let shown = Arc::clone(&replies);
    let Ok(console) = Console::new(out, err, move |total| reply(&shown, &ToPump::Shown(total))) else {
        return 1;
    };
    let mut input = Counted { inner: BufReader::with_capacity(BUFFER, socket), total: 0 };
    let mut worker = match frame::read(&mut input) {
        Ok(ToWorker::Spec(spec)) => {
            look_at_directory(&spec, &replies);
            Worker::new(spec, console)
        }
        Err(FrameError::Closed) => return 0,
        _ => return 1,
    };
    let mut acked = 0;
    let code = loop {
        if !whole_frame(input.inner.buffer()) || input.total - acked >= ACK_EVERY {
            worker.flush();
            tell(&replies, &mut worker.trouble);
            if input.total > acked {
                acked = input.total;
                worker.console.mark(acked);
                reply(&replies, &ToPump::Ack(acked));
            }
        }
        match frame::read(&mut input) {
            Ok(message) => worker.take(message),
            // A frame that broke off was written by an agent that died: nothing more comes either way.
            Err(FrameError::Closed | FrameError::Io(_)) => break 0,
            Err(_) => break 1,
        }
    };
    worker.end();
    code
}

/// Says whether the log directory can be written, before anything depends on it.
fn look_at_directory(spec: &LogSpec, replies: &Mutex<UnixStream>) {
    let mut trouble = Trouble::default();
    if let Some(dir) = spec.dir.as_ref().filter(|_| spec.try_dir) {
        files::try_directory(dir, &mut trouble);
    }
    match trouble.disabled.first() {
        Some(gone) => disabled(replies, gone),
        None => reply(replies, &ToPump::Ready),
    }
}

/// Which files were given up, and how much no file holds because of it.
fn tell(to: &Mutex<UnixStream>, trouble: &mut Trouble) {
    for gone in trouble.disabled.drain(..) {
        disabled(to, &gone);
    }
    let bytes = std::mem::take(&mut trouble.unwritten);
    if bytes > 0 {
        reply(to, &ToPump::Unwritten(bytes));
    }
}

fn disabled(to: &Mutex<UnixStream>, gone: &Disabled) {
    let path = Blob(Cow::Borrowed(gone.path.as_os_str().as_bytes()));
    reply(to, &ToPump::Disabled { path, errno: gone.errno });
}

/// The agent may be gone: what it sent is written all the same.
fn reply(to: &Mutex<UnixStream>, message: &ToPump<'_>) {
    let _ = frame::write(&mut *to.lock().unwrap_or_else(PoisonError::into_inner), message);
}

fn whole_frame(buffered: &[u8]) -> bool {
    buffered.first_chunk::<4>().is_some_and(|h| {
        let length = usize::try_from(u32::from_le_bytes(*h)).unwrap_or(usize::MAX);
        buffered.len() - 4 >= length
    })
}

struct Counted {
    inner: BufReader<UnixStream>,
    total: u64,
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = match self.inner.fill_buf() {
            Ok(have) => {
                let n = have.len().min(buf.len());
                buf[..n].copy_from_slice(&have[..n]);
                n
            }
            Err(e) => return Err(e),
        };
        self.inner.consume(n);
        self.total += n as u64;
        Ok(n)
    }
}

/// One stream of one rank.
struct Output {
    owner: Owner,
    show: Show,
    file: Option<Sink>,
    lines: Splitter,
    /// Its lines may be written once more.
    filter: bool,
    /// The line that it is in is.
    copies: bool,
    /// End of raw bytes, after the last line end: kept until the batch ends, so that lines stay whole where
    /// that costs no time.
    held: Vec<u8>,
}

struct RankOutputs {
    who: String,
    prefix: Vec<u8>,
    outputs: [Output; 2],
}

struct Worker {
    spec: LogSpec,
    console: Console,
    ranks: BTreeMap<(Attempt, LocalRank), RankOutputs>,
    combined: BTreeMap<Attempt, Combined>,
    filtered: BTreeMap<(Attempt, Stream), Filtered>,
    /// Ranks of the newest attempt whose output is shown although the console's rules hide it.
    revealed: BTreeSet<(Attempt, LocalRank)>,
    trouble: Trouble,
    /// Time of the newest bytes, Unix ms.
    newest_ms: u64,
}

impl Worker {
    fn new(spec: LogSpec, console: Console) -> Self {
        Self {
            spec,
            console,
            ranks: BTreeMap::new(),
            combined: BTreeMap::new(),
            filtered: BTreeMap::new(),
            revealed: BTreeSet::new(),
            trouble: Trouble::default(),
            newest_ms: 0,
        }
    }

    fn take(&mut self, message: ToWorker<'static>) {
        match message {
            ToWorker::Spec(spec) => self.spec = spec,
            ToWorker::Open(source) => self.open(source),
            ToWorker::Data { source, stream, wall_ms, bytes } => self.data(source, stream, wall_ms, &bytes.0),
            ToWorker::Dropped { source, stream, wall_ms, bytes } => {
                self.dropped(source, stream, wall_ms, bytes);
            }
            ToWorker::Say { stream, wall_ms, bytes } => self.say(stream, wall_ms, &bytes.0),
            ToWorker::Reveal { source, stream, bytes } => self.reveal(source, stream, &bytes.0),
            ToWorker::Close { source, wall_ms } => self.close(source, wall_ms),
        }
    }

    /// Makes the rank's directory, files and the combined log, if they are not there.
    fn open(&mut self, source: Source) {
        let Self { spec, ranks, combined, filtered, revealed, trouble, .. } = self;
        let (attempt, local_rank) = (source.attempt, source.local_rank);
        for stream in Stream::BOTH {
            let path = spec.filtered_file(attempt, stream);
            if let Some(path) = path.filter(|_| !filtered.contains_key(&(attempt, stream))) {
                filtered.insert((attempt, stream), Filtered::open(&path, trouble));
                while filtered.len() > 4 {
                    if let Some((_, mut oldest)) = filtered.pop_first() {
                        oldest.flush(trouble);
                    }
                }
            }
        }
        if let Some(path) = spec.combined_file(attempt)
            && !combined.contains_key(&attempt)
        {
            combined.insert(attempt, Combined::open(&path, spec.combined_limit, trouble));
            // Late words of the attempt before may still come; older ones are opened again if need be.
            while combined.len() > 2 {
                if let Some((_, mut oldest)) = combined.pop_first() {
                    oldest.flush(trouble);
                }
            }
        }
        ranks.entry((attempt, local_rank)).or_insert_with(|| {
            revealed.retain(|(a, _)| *a >= attempt);
            if let Some(dir) = spec.rank_dir(attempt, local_rank) {
                make_dir(&dir, trouble);
            }
            let outputs = Stream::BOTH.map(|stream| Output {
                owner: Owner(attempt, local_rank, stream),
                show: match spec.show(source, stream) {
                    Show::Nothing
                        if revealed.contains(&(attempt, local_rank)) && spec.may_reveal(source, stream) =>
                    {
                        Show::Lines
                    }
                    show => show,
                },
                file: spec.stream_file(attempt, local_rank, stream).map(|p| Sink::open(&p, trouble)),
                lines: Splitter::default(),
                filter: spec.filters_of(local_rank, stream),
                copies: false,
                held: Vec::new(),
            });
            let prefix = spec.line_prefix(source).into_bytes();
            RankOutputs { who: source.rank.to_string(), prefix, outputs }
        });
    }

    fn data(&mut self, source: Source, stream: Stream, wall_ms: u64, bytes: &[u8]) {
        self.open(source);
        self.newest_ms = wall_ms;
        let Self { spec, ranks, combined, filtered, console, trouble, .. } = self;
        let Some(rank) = ranks.get_mut(&(source.attempt, source.local_rank)) else { return };
        let RankOutputs { who, prefix, outputs } = rank;
        let Output { owner, show, file, lines, filter, copies, held } = &mut outputs[stream.index()];
        if let Some(file) = file {
            file.push(bytes, trouble);
        }
        let mut log = combined.get_mut(&source.attempt);
        let mut copy = filtered.get_mut(&(source.attempt, stream)).filter(|_| *filter);
        lines.push(bytes, |piece| {
            if let Some(log) = &mut log {
                log.line(*owner, who, wall_ms, piece, trouble);
            }
            if let Some(copy) = &mut copy {
                *copies = if piece.first { spec.matches(stream, piece.bytes) } else { *copies };
                if *copies {
                    copy.line(*owner, prefix, piece, trouble);
                }
            }
            if *show == Show::Lines {
                console.line(*owner, prefix, piece);
            }
        });
        if *show == Show::Raw {
            let cut = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
            if cut > 0 && !held.is_empty() {
                console.raw(stream, held);
                held.clear();
            }
            console.raw(stream, &bytes[..cut]);
            held.extend_from_slice(&bytes[cut..]);
            if held.len() >= LONGEST {
                console.raw(stream, held);
                *held = Vec::new();
            }
        }
    }

    fn dropped(&mut self, source: Source, stream: Stream, wall_ms: u64, bytes: u64) {
        let text = dropped_marker(bytes);
        self.open(source);
        self.end_lines(source, stream, wall_ms);
        let Self { ranks, combined, console, trouble, .. } = self;
        let Some(rank) = ranks.get_mut(&(source.attempt, source.local_rank)) else { return };
        let output = &mut rank.outputs[stream.index()];
        if let Some(file) = &mut output.file {
            // Its last line was cut, most likely.
            file.push(b"\n", trouble);
            file.push(text.as_bytes(), trouble);
        }
        let piece = Piece { bytes: text.as_bytes(), first: true };
        if let Some(log) = combined.get_mut(&source.attempt) {
            log.line(output.owner, &rank.who, wall_ms, piece, trouble);
        }
        match output.show {
            Show::Nothing => {}
            Show::Raw => console.own(stream, text.as_bytes()),
            Show::Lines => console.line(output.owner, &rank.prefix, piece),
        }
        // What follows begins within some line, but it is the first that is seen of it.
        output.lines = Splitter::default();
    }

    /// Lets unfinished lines of a stream go, ended.
    fn end_lines(&mut self, source: Source, stream: Stream, wall_ms: u64) {
        let Self { spec, ranks, combined, filtered, console, trouble, .. } = self;
        let Some(rank) = ranks.get_mut(&(source.attempt, source.local_rank)) else { return };
        let Output { owner, show, lines, filter, copies, held, .. } = &mut rank.outputs[stream.index()];
        if !held.is_empty() {
            console.raw(stream, held);
            held.clear();
        }
        let mut log = combined.get_mut(&source.attempt);
        let mut copy = filtered.get_mut(&(source.attempt, stream)).filter(|_| *filter);
        lines.flush(|piece| {
            if let Some(log) = &mut log {
                log.line(*owner, &rank.who, wall_ms, piece, trouble);
            }
            if let Some(copy) = &mut copy {
                *copies = if piece.first { spec.matches(stream, piece.bytes) } else { *copies };
                if *copies {
                    copy.line(*owner, &rank.prefix, piece, trouble);
                    if !piece.bytes.ends_with(b"\n") {
                        let end = Piece { bytes: b"\n", first: false };
                        copy.line(*owner, &rank.prefix, end, trouble);
                    }
                }
            }
            if *show == Show::Lines {
                console.line(*owner, &rank.prefix, piece);
            }
        });
        if let Some(log) = log {
            log.close(*owner, trouble);
        }
        console.close(*owner);
    }

    fn say(&mut self, stream: Stream, wall_ms: u64, bytes: &[u8]) {
        self.let_go_of_held();
        self.console.own(stream, bytes);
        if let Some(entry) = self.combined.last_entry() {
            let owner = Owner(*entry.key(), LocalRank(u32::MAX), stream);
            let log = entry.into_mut();
            for line in bytes.split_inclusive(|b| *b == b'\n') {
                log.line(owner, "-", wall_ms, Piece { bytes: line, first: true }, &mut self.trouble);
            }
            log.close(owner, &mut self.trouble);
        }
    }

    fn reveal(&mut self, source: Source, stream: Stream, bytes: &[u8]) {
        if self.spec.show(source, stream) != Show::Nothing || !self.spec.may_reveal(source, stream) {
            return;
        }
        let key = (source.attempt, source.local_rank);
        self.revealed.insert(key);
        if let Some(rank) = self.ranks.get_mut(&key) {
            rank.outputs[stream.index()].show = Show::Lines;
        }
        let owner = Owner(source.attempt, source.local_rank, stream);
        let prefix = self.spec.line_prefix(source);
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            self.console.line(owner, prefix.as_bytes(), Piece { bytes: line, first: true });
        }
        self.console.close(owner);
    }

    fn close(&mut self, source: Source, wall_ms: u64) {
        for stream in Stream::BOTH {
            self.end_lines(source, stream, wall_ms);
        }
        if let Some(mut rank) = self.ranks.remove(&(source.attempt, source.local_rank)) {
            for file in rank.outputs.iter_mut().filter_map(|o| o.file.as_mut()) {
                file.flush(&mut self.trouble);
            }
        }
    }

    fn let_go_of_held(&mut self) {
        for output in self.ranks.values_mut().flat_map(|r| &mut r.outputs) {
            if !output.held.is_empty() {
                self.console.raw(output.owner.2, &output.held);
                output.held.clear();
            }
        }
    }

    /// Writes everything that was taken, but for lines that have no end yet.
    fn flush(&mut self) {
        self.let_go_of_held();
        for file in self.ranks.values_mut().flat_map(|r| &mut r.outputs).filter_map(|o| o.file.as_mut()) {
            file.flush(&mut self.trouble);
        }
        for log in self.combined.values_mut() {
            log.flush(&mut self.trouble);
        }
        for log in self.filtered.values_mut() {
            log.flush(&mut self.trouble);
        }
        self.console.flush();
    }

    fn end(&mut self) {
        let open: Vec<_> = self.ranks.values().flat_map(|r| r.outputs.iter().map(|o| o.owner)).collect();
        for Owner(attempt, local_rank, stream) in open {
            let source =
                Source { attempt, local_rank, rank: crate::domain::ids::Rank::default(), world_size: 0 };
            self.end_lines(source, stream, self.newest_ms);
        }
        self.flush();
        self.console.finish();
    }
}

fn make_dir(dir: &Path, trouble: &mut Trouble) {
    if let Err(e) = fs::create_dir_all(dir) {
        trouble.disabled.push(Disabled { path: dir.into(), errno: e.raw_os_error().unwrap_or(0) });
    }
}
