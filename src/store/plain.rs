//! Files of the run directory that are no records: replaced as a whole, or appended line by line.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use super::error::IoTrouble;
use super::faults::{Call, Hands};
use super::layout::names;
use super::posix;
use crate::domain::ids::NodeName;
use crate::sys::files;

/// `events.jsonl` is renamed to `events.jsonl.1` before it grows over this, in bytes.
pub const MAX_EVENTS: u64 = 16 << 20;

/// Where a relative path of a request leads; none for one that is not allowed.
#[must_use]
pub fn resolve(dir: &Path, relative: &str) -> Option<PathBuf> {
    let parts: Vec<&str> = relative.split('/').collect();
    let allowed = match parts.as_slice() {
        [file] => [names::RESULT, names::STATUS, super::hint::HINT].contains(file),
        [names::INCIDENTS, incident, file] => [incident, file].iter().all(|p| files::is_plain_name(p)),
        [names::AGENTS, file] => files::is_plain_name(file),
        _ => false,
    };
    allowed.then(|| dir.join(relative))
}

/// Where an agent that follows puts down what it says, relative to the run directory.
#[must_use]
pub fn agent_file(node: &NodeName) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = node.as_str().chars().map(plain).collect();
    format!("{}/{name}.jsonl", names::AGENTS)
}

/// Replaces the file by these bytes: a reader sees the old ones or the new ones. `durable`: after success
/// the new ones survive a power loss.
pub fn replace(hands: &mut Hands, path: &Path, bytes: &[u8], durable: bool) -> Result<(), IoTrouble> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let temporary = dir.join(posix::temporary_name());
    let mut file = hands.call(Call::Open, &temporary, || files::create_exclusive(&temporary))?;
    let mut put = || {
        hands.call(Call::Write, &temporary, || file.write_all(bytes))?;
        if durable {
            hands.call(Call::Fsync, &temporary, || file.sync_all())?;
        }
        hands.call(Call::Rename, path, || std::fs::rename(&temporary, path))?;
        if durable {
            let handle = hands.call(Call::Open, dir, || files::open_dir(dir))?;
            hands.call(Call::FsyncDir, dir, || files::sync_dir(&handle))?;
        }
        Ok(())
    };
    let done = put();
    if done.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    done
}

/// Makes the directory of this file if it is not there.
pub fn make_dir_of(hands: &mut Hands, path: &Path) -> Result<(), IoTrouble> {
    let Some(dir) = path.parent().filter(|d| files::look(d).is_err()) else { return Ok(()) };
    match hands.call(Call::Mkdir, dir, || files::make_private_dir(dir)) {
        Err(e) if files::meaning(&e.source) != files::Meaning::Exists => Err(e),
        _ => Ok(()),
    }
}

/// Appends lines to `events.jsonl` with one write; a full file first becomes the old one.
pub fn append_events(hands: &mut Hands, dir: &Path, lines: &[String]) -> Result<(), IoTrouble> {
    let path = dir.join(names::EVENTS);
    let mut bytes = Vec::new();
    for line in lines {
        // A line is a line, whatever was put into it.
        bytes.extend(line.bytes().map(|b| if b == b'\n' { b' ' } else { b }));
        bytes.push(b'\n');
    }
    let size = std::fs::metadata(&path).map_or(0, |m| m.len());
    if size > 0 && size + bytes.len() as u64 > MAX_EVENTS {
        let old = dir.join(names::OLD_EVENTS);
        hands.call(Call::Rename, &path, || std::fs::rename(&path, &old))?;
    }
    let mut file = hands.call(Call::Open, &path, || files::open_append(&path))?;
    hands.call(Call::Write, &path, || file.write_all(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_places_of_ours_are_written() {
        let dir = Path::new("/run");
        for good in
            ["result.json", "status.json", "coordinator", "incidents/0003/why.json", "agents/n01.jsonl"]
        {
            assert_eq!(resolve(dir, good), Some(dir.join(good)));
        }
        for bad in [
            "",
            "/etc/passwd",
            "..",
            "../x",
            "secret",
            "journal/1",
            "incidents/../secret",
            "incidents/a/../b",
            "incidents//x",
            "incidents/a",
            "incidents/./x",
            "incidents/a/b/c",
            "agents/../secret",
            "agents/a/b",
            "a\0b",
        ] {
            assert_eq!(resolve(dir, bad), None, "{bad:?}");
        }
    }

    #[test]
    fn events_are_lines_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let mut hands = Hands::default();
        append_events(&mut hands, dir.path(), &["a\nb".into(), "c".into()]).unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join(names::EVENTS)).unwrap(), "a b\nc\n");
        let large = "x".repeat(6 << 20);
        for _ in 0..6 {
            append_events(&mut hands, dir.path(), std::slice::from_ref(&large)).unwrap();
        }
        let size = |name| std::fs::metadata(dir.path().join(name)).unwrap().len();
        assert!(size(names::EVENTS) <= MAX_EVENTS && size(names::OLD_EVENTS) <= MAX_EVENTS);
    }

    #[test]
    fn a_file_is_replaced_whole_and_a_failure_leaves_the_old_one() {
        use crate::store::faults::{Fault, FaultPlan, What};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("result.json");
        replace(&mut Hands::default(), &path, b"old", true).unwrap();
        let full = Fault { call: Call::Write, from: 0, times: 1, what: What::Fail(28) };
        let error = replace(&mut Hands::new(FaultPlan(vec![full])), &path, b"new", true).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("ENOSPC") && text.contains(".tmp-"), "{text}");
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        replace(&mut Hands::default(), &path, b"new", false).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }
}
