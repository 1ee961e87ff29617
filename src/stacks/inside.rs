//! Stacks that an interpreter writes of itself: `faulthandler`, on a signal that it registered.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use crate::domain::liveness::evidence::Stack;
use crate::domain::liveness::stack::{self, MAX_DUMP};
use crate::sys::{clock, files, process, procfs};

/// So long it has time to write.
const LIMIT: Duration = Duration::from_secs(1);
/// Between two looks at the file.
const LOOK: Duration = Duration::from_millis(5);
/// It wrote nothing for so many looks: it is done.
const QUIET: u32 = 4;

/// The signals that a program has for itself; a page's word is a stranger's, and others end or stop a process.
const REAL_TIME: std::ops::RangeInclusive<u8> = 34..=64;

/// Asks a process for its stacks. It must be one of the rank's: the caller knows. None if it does not catch that signal
/// or writes nothing.
pub(super) fn read(pid: i32, signal: u8, file: &Path) -> Option<Stack> {
    if !REAL_TIME.contains(&signal) || !procfs::catches(pid, i32::from(signal)) {
        return None;
    }
    let file = files::open_plain(file).ok()?;
    let from = file.metadata().ok()?.len();
    process::kill_main_thread(pid, i32::from(signal)).ok()?;
    let until = clock::boot().after(LIMIT);
    let (mut dump, mut quiet) = (Vec::new(), 0);
    while clock::boot() < until {
        std::thread::sleep(LOOK);
        let now = written(&file, from)?;
        quiet = if now.len() == dump.len() { quiet + 1 } else { 0 };
        dump = now;
        if quiet >= QUIET && stack::is_whole(&dump) {
            break;
        }
    }
    stack::inside(&dump)
}

/// What was written behind `from`.
fn written(file: &File, from: u64) -> Option<Vec<u8>> {
    let length = file.metadata().ok()?.len().saturating_sub(from);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(MAX_DUMP).min(MAX_DUMP)];
    let mut have = 0;
    while have < bytes.len() {
        let at = from.saturating_add(u64::try_from(have).ok()?);
        match file.read_at(bytes.get_mut(have..)?, at).ok()? {
            0 => break,
            count => have += count,
        }
    }
    bytes.truncate(have);
    Some(bytes)
}
