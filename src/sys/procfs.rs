//! `/proc`, as far as it never blocks: `stat`, `status` and the `children` lists. Not `cmdline`, `environ`,
//! `maps`: those wait for a lock that a process stuck in the kernel may hold.

use std::collections::BTreeMap;
use std::io;

use super::capability::Capabilities;

/// What `/proc/<pid>/stat` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// `R S D T t Z X I` …
    pub state: char,
    /// The parent's pid.
    pub parent: i32,
    /// The process group.
    pub group: i32,
    /// The session.
    pub session: i32,
    /// Clock ticks from boot to its start (field 22): with the pid it names one life.
    pub start_time: u64,
    /// Clock ticks of CPU time, its own and that of the children that it waited for (fields 14 to 17).
    pub ticks: u64,
}

impl Stat {
    /// It has ended, at most its status is left.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// Reads `/proc/<pid>/stat`; `None` when there is no such process (or no free descriptor).
#[must_use]
pub fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The state letter.
#[must_use]
pub fn state(pid: i32) -> Option<char> {
    stat(pid).map(|stat| stat.state)
}

/// Clock ticks from boot to the process's start.
#[must_use]
pub fn start_time(pid: i32) -> Option<u64> {
    stat(pid).map(|stat| stat.start_time)
}

/// Whether the process has a handler for the signal (SigCgt); `false` if it is gone.
#[must_use]
pub fn catches(pid: i32, signal: i32) -> bool {
    let Ok(text) = std::fs::read(format!("/proc/{pid}/status")) else { return false };
    let caught = String::from_utf8_lossy(&text)
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    let bit = u32::try_from(signal).ok().and_then(|signal| signal.checked_sub(1));
    match (caught, bit) {
        (Some(mask), Some(bit)) => mask.checked_shr(bit).is_some_and(|mask| mask & 1 == 1),
        _ => false,
    }
}

// The name in field 2 may hold spaces and brackets: fields are counted from the last closing one.
fn parse_stat(bytes: &[u8]) -> Option<Stat> {
    let close = bytes.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(bytes.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at - 3)?.parse::<i32>().ok();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: number(4)?,
        group: number(5)?,
        session: number(6)?,
        start_time: fields.get(22 - 3)?.parse().ok()?,
        ticks: (14..=17)
            .filter_map(|at| fields.get(at - 3)?.parse::<u64>().ok())
            .fold(0, u64::saturating_add),
    })
}

/// Where children are looked up: live lists, or one picture of the whole of `/proc`.
#[derive(Debug)]
pub enum Children {
    /// `/proc/<pid>/task/*/children`, read when asked.
    Lists,
    /// Children by parent, as they were when the picture was taken.
    Scan(BTreeMap<i32, Vec<i32>>),
}

impl Children {
    /// The lists where the kernel has them, else a picture of now.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn look(caps: Capabilities) -> io::Result<Self> {
        if caps.children { Ok(Self::Lists) } else { scan().map(Self::Scan) }
    }

    /// The children of a process, zombies among them; none if it is gone.
    ///
    /// # Errors
    /// Anything but its absence (EMFILE): the answer is then unknown, not "none".
    pub fn of(&self, pid: i32) -> io::Result<Vec<i32>> {
        match self {
            Self::Lists => from_lists(pid),
            Self::Scan(by_parent) => Ok(by_parent.get(&pid).cloned().unwrap_or_default()),
        }
    }
}

/// The children of one process, zombies among them.
///
/// # Errors
/// As [`Children::of`].
pub fn children(pid: i32, caps: Capabilities) -> io::Result<Vec<i32>> {
    Children::look(caps)?.of(pid)
}

fn from_lists(pid: i32) -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    let threads = match std::fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(threads) => threads,
        Err(error) if is_gone(&error) => return Ok(found),
        Err(error) => return Err(error),
    };
    for thread in threads {
        let path = match thread {
            Ok(thread) => thread.path().join("children"),
            Err(error) if is_gone(&error) => break,
            Err(error) => return Err(error),
        };
        match std::fs::read(path) {
            Ok(bytes) => found.extend(
                String::from_utf8_lossy(&bytes)
                    .split_ascii_whitespace()
                    .filter_map(|pid| pid.parse::<i32>().ok()),
            ),
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// A picture takes a while, and whoever is forked by one that ends meanwhile hangs in the air: such a picture is taken
/// again. A machine full of short lives never holds still, so that has an end.
const PICTURES: usize = 8;

fn scan() -> io::Result<BTreeMap<i32, Vec<i32>>> {
    let mut picture = Picture::take()?;
    for _ in 1..PICTURES {
        if !picture.torn {
            break;
        }
        picture = Picture::take()?;
    }
    let mut by_parent: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for (pid, parent) in picture.parents {
        by_parent.entry(parent).or_default().push(pid);
    }
    Ok(by_parent)
}

struct Picture {
    parents: BTreeMap<i32, i32>,
    /// Somebody ended while it was taken, or has a parent that is not in it.
    torn: bool,
}

impl Picture {
    fn take() -> io::Result<Self> {
        let mut picture = Self { parents: BTreeMap::new(), torn: false };
        for entry in std::fs::read_dir("/proc")? {
            let name = entry?.file_name();
            if let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) {
                picture.add(pid)?;
            }
        }
        // A parent younger than its place in the walk, or a child that fell to somebody else since.
        let known = |picture: &Self, parent: i32| parent == 0 || picture.parents.contains_key(&parent);
        let loose: Vec<i32> = picture
            .parents
            .iter()
            .filter(|(_, parent)| !known(&picture, **parent))
            .map(|(pid, _)| *pid)
            .collect();
        for mut pid in loose {
            const DEPTH: usize = 64;
            for _ in 0..DEPTH {
                match picture.add(pid)? {
                    Some(parent) if !known(&picture, parent) => pid = parent,
                    _ => break,
                }
            }
        }
        Ok(picture)
    }

    /// Notes the parent of now.
    fn add(&mut self, pid: i32) -> io::Result<Option<i32>> {
        match std::fs::read(format!("/proc/{pid}/stat")) {
            Ok(bytes) => {
                let parent = parse_stat(&bytes).map(|stat| stat.parent);
                if let Some(parent) = parent {
                    self.parents.insert(pid, parent);
                }
                Ok(parent)
            }
            Err(error) if is_gone(&error) => {
                self.parents.remove(&pid);
                self.torn = true;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(nix::libc::ENOENT | nix::libc::ESRCH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_is_no_trap() {
        let line = b"42 (a) R (b)) S 7 40 39 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 100 1";
        let stat = parse_stat(line).unwrap();
        assert_eq!(
            stat,
            Stat { state: 'S', parent: 7, group: 40, session: 39, start_time: 987_654, ticks: 26 }
        );
        assert_eq!(parse_stat(b"42 (x"), None);
        assert_eq!(parse_stat(b""), None);
        assert_eq!(parse_stat(b"1 (x) R"), None);
    }

    #[test]
    fn our_own_entry_reads() {
        let own = super::super::process::own_pid();
        let stat = stat(own).unwrap();
        assert_eq!(stat.parent, super::super::process::parent_pid());
        assert!(stat.start_time > 0);
        assert!(!catches(own, 64));
        assert!(!catches(own, 0));
        assert!(!catches(own, 1000));
        assert!(!catches(i32::MAX, 15));
    }
}
