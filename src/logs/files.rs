//! Files that the worker appends to: buffered for one batch, given up at the first error.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::lines::{At, Owner, Piece};

/// How much is gathered before it is written, in bytes.
pub(super) const BATCH: usize = 64 << 10;

/// What happened to a file that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Disabled {
    pub(super) path: PathBuf,
    pub(super) errno: i32,
}

/// What went wrong since somebody looked.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    pub(super) disabled: Vec<Disabled>,
    /// Bytes that no file holds, of all files that were given up.
    pub(super) unwritten: u64,
}

/// Makes the directory and writes one byte there: a full disk lets files be made and refuses what is in them.
pub(super) fn try_directory(dir: &Path, trouble: &mut Trouble) {
    let probe = dir.join(format!(".probe-{}", std::process::id()));
    let tried = fs::create_dir_all(dir).and_then(|()| {
        let written = File::create(&probe).and_then(|mut file| {
            file.write_all(b"\n")?;
            // A file server says only now that its disk is full.
            file.sync_data()
        });
        let _ = fs::remove_file(&probe);
        written
    });
    if let Err(e) = tried {
        // Ours, and empty if it is new.
        let _ = fs::remove_dir(dir);
        trouble.disabled.push(Disabled { path: dir.into(), errno: e.raw_os_error().unwrap_or(0) });
    }
}

/// An append-only file. After an error it takes everything and writes nothing.
#[derive(Debug)]
pub(super) struct Sink {
    path: PathBuf,
    file: Option<File>,
    buf: Vec<u8>,
    /// What the file holds, in bytes, as far as this process knows.
    length: u64,
}

impl Sink {
    /// Opens (and makes, with its directories) the file.
    pub(super) fn open(path: &Path, trouble: &mut Trouble) -> Self {
        let opened = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| {
            let file = OpenOptions::new().append(true).create(true).open(path)?;
            let length = file.metadata()?.len();
            Ok((file, length))
        });
        let mut sink = Self { path: path.into(), file: None, buf: Vec::new(), length: 0 };
        match opened {
            Ok((file, length)) => (sink.file, sink.length) = (Some(file), length),
            Err(e) => sink.give_up(&e, trouble),
        }
        sink
    }

    fn give_up(&mut self, e: &io::Error, trouble: &mut Trouble) {
        self.file = None;
        trouble.unwritten += std::mem::take(&mut self.buf).len() as u64;
        trouble.disabled.push(Disabled { path: self.path.clone(), errno: e.raw_os_error().unwrap_or(0) });
    }

    pub(super) fn push(&mut self, bytes: &[u8], trouble: &mut Trouble) {
        self.compose(trouble, |buf| buf.extend_from_slice(bytes));
    }

    /// Lets `add` append to what is gathered.
    fn compose(&mut self, trouble: &mut Trouble, add: impl FnOnce(&mut Vec<u8>)) {
        add(&mut self.buf);
        if self.file.is_none() {
            trouble.unwritten += self.buf.len() as u64;
            self.buf.clear();
        } else if self.buf.len() >= BATCH {
            self.flush(trouble);
        }
    }

    /// Writes what is gathered.
    pub(super) fn flush(&mut self, trouble: &mut Trouble) {
        if self.buf.is_empty() {
            return;
        }
        let Some(file) = &mut self.file else { return };
        // The part that fits before a full disk stays.
        match file.write_all(&self.buf) {
            Ok(()) => {
                self.length += self.buf.len() as u64;
                self.buf.clear();
                self.buf.shrink_to(BATCH);
            }
            Err(e) => self.give_up(&e, trouble),
        }
    }

    fn length(&self) -> u64 {
        self.length + self.buf.len() as u64
    }

    fn ends_inside_a_line(&self) -> bool {
        use std::os::unix::fs::FileExt as _;
        let mut last = [0];
        // An own handle: this one only appends.
        self.length > 0
            && File::open(&self.path).and_then(|f| f.read_exact_at(&mut last, self.length - 1)).is_ok()
            && last != *b"\n"
    }
}

/// Lines of an attempt that match a filter, of all ranks of this node, each behind its prefix.
#[derive(Debug)]
pub(super) struct Filtered {
    sink: Sink,
    at: At,
}

impl Filtered {
    pub(super) fn open(path: &Path, trouble: &mut Trouble) -> Self {
        let sink = Sink::open(path, trouble);
        let at = if sink.ends_inside_a_line() { At::Inside(None) } else { At::LineStart };
        Self { sink, at }
    }

    /// Adds a piece of a line that matches.
    pub(super) fn line(&mut self, owner: Owner, prefix: &[u8], piece: Piece<'_>, trouble: &mut Trouble) {
        let at = &mut self.at;
        self.sink.compose(trouble, |buf| at.line(owner, prefix, piece, buf));
    }

    pub(super) fn flush(&mut self, trouble: &mut Trouble) {
        self.sink.flush(trouble);
    }
}

/// The combined log of an attempt: every line with time, rank and stream; begun anew at a limit.
#[derive(Debug)]
pub(super) struct Combined {
    sink: Sink,
    at: At,
    limit: u64,
    /// The beginning of this millisecond's lines.
    stamp: (u64, String),
    /// The beginning of the newest line; kept for its memory.
    prefix: Vec<u8>,
}

impl Combined {
    pub(super) fn open(path: &Path, limit: u64, trouble: &mut Trouble) -> Self {
        let sink = Sink::open(path, trouble);
        let at = if sink.ends_inside_a_line() { At::Inside(None) } else { At::LineStart };
        Self { sink, at, limit, stamp: (u64::MAX, String::new()), prefix: Vec::new() }
    }

    /// Adds a piece; `who` is the rank, or `-` for ourselves.
    pub(super) fn line(
        &mut self,
        owner: Owner,
        who: &str,
        wall_ms: u64,
        piece: Piece<'_>,
        trouble: &mut Trouble,
    ) {
        if self.sink.length() >= self.limit {
            self.rotate(trouble);
        }
        if self.stamp.0 != wall_ms {
            let time = i64::try_from(wall_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
            self.stamp = (wall_ms, format!("[{:.3} ", time.unwrap_or_default()));
        }
        self.prefix.clear();
        for part in [self.stamp.1.as_str(), who, " ", owner.2.name(), "] "] {
            self.prefix.extend_from_slice(part.as_bytes());
        }
        let (at, prefix) = (&mut self.at, &self.prefix);
        self.sink.compose(trouble, |buf| at.line(owner, prefix, piece, buf));
    }

    /// Ends a rank's unfinished line.
    pub(super) fn close(&mut self, owner: Owner, trouble: &mut Trouble) {
        let at = &mut self.at;
        self.sink.compose(trouble, |buf| at.close(owner, buf));
    }

    pub(super) fn flush(&mut self, trouble: &mut Trouble) {
        self.sink.flush(trouble);
    }

    fn rotate(&mut self, trouble: &mut Trouble) {
        if self.sink.file.is_none() {
            return;
        }
        let at = &mut self.at;
        self.sink.compose(trouble, |buf| at.fresh(buf));
        self.sink.flush(trouble);
        let path = self.sink.path.clone();
        let mut older = path.clone().into_os_string();
        older.push(".1");
        match fs::rename(&path, &older) {
            Ok(()) => self.sink = Sink::open(&path, trouble),
            // Bounded before complete.
            Err(e) => self.sink.give_up(&e, trouble),
        }
    }
}
