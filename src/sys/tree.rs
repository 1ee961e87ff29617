//! Everything below this process: killing it, and reaping what nobody owns.
//!
//! This process is a subreaper, so whoever loses its parent becomes our child: a walk over our own children that
//! is repeated until there are none reaches everybody. Children are asked after one by one. "Any child" is never
//! waited for: reaping that way takes statuses from their owners, and peeking that way shows the same first zombie
//! for ever.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::libc::SIGKILL;

use super::capability::Capabilities;
use super::procfs::{self, Children, Stat};
use super::wait::{self, Waited};
use super::{clock, pidfd, process};
use crate::domain::exit::ExitKind;

/// Children whose status somebody waits for: no walk reaps them. Kept by the one thread that spawns, so that a
/// child is in here before anybody can look for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owned(BTreeSet<i32>);

impl Owned {
    /// Nobody.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// This child has an owner from now on.
    pub fn add(&mut self, pid: i32) {
        self.0.insert(pid);
    }

    /// This child's owner has its status, or wants it no more.
    pub fn remove(&mut self, pid: i32) {
        self.0.remove(&pid);
    }

    /// Whether somebody owns it.
    #[must_use]
    pub fn contains(&self, pid: i32) -> bool {
        self.0.contains(&pid)
    }
}

impl Reaped {
    /// Nobody was there. A walk that reaped somebody does not say that: who ended may have forked just before.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.left.is_empty()
    }
}

impl FromIterator<i32> for Owned {
    fn from_iter<I: IntoIterator<Item = i32>>(pids: I) -> Self {
        Self(pids.into_iter().collect())
    }
}

/// A process that is still there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// Its pid.
    pub pid: i32,
    /// Its state letter; `D` is stuck in the kernel.
    pub state: char,
}

/// What a walk over our own children found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reaped {
    /// Orphans that had ended and were reaped.
    pub ended: Vec<(i32, ExitKind)>,
    /// Children that nobody owns and that have not ended.
    pub left: Vec<i32>,
}

/// Reaps every child that has ended and that nobody owns. Never blocks.
///
/// # Errors
/// The children could not be listed: unknown, not "none".
pub fn reap_orphans(owned: &Owned, caps: Capabilities) -> io::Result<Reaped> {
    let mut reaped = Reaped::default();
    for pid in procfs::children(process::own_pid(), caps)? {
        if owned.contains(pid) {
            continue;
        }
        match wait::reap(pid) {
            Waited::Running => reaped.left.push(pid),
            Waited::Ended(kind) => reaped.ended.push((pid, kind)),
            Waited::NotOurs => {}
        }
    }
    Ok(reaped)
}

/// Sends SIGKILL to every descendant but the spared children and what is below them. Returns who was alive. One walk does not see who is forked meanwhile: repeat until nobody is left.
///
/// Whole groups are killed where they lie outside our session: that is atomic against fork, so a group that
/// forks faster than a walk reads dies in one call.
///
/// # Errors
/// The children could not be listed.
pub fn kill_descendants(spare: &Owned, caps: Capabilities) -> io::Result<Vec<Survivor>> {
    let own_pid = process::own_pid();
    let own_session = procfs::stat(own_pid).map(|stat| stat.session);
    let source = Children::look(caps)?;
    let mut groups = BTreeSet::new();
    let mut alive = Vec::new();
    let mut seen = BTreeSet::new();
    let mut todo: Vec<(i32, i32)> = source
        .of(own_pid)?
        .into_iter()
        .filter(|pid| !spare.contains(*pid))
        .map(|pid| (own_pid, pid))
        .collect();
    while let Some((parent, pid)) = todo.pop() {
        // A picture of /proc can hold a circle when numbers were reused while it was taken.
        if !seen.insert(pid) || pid == own_pid {
            continue;
        }
        let Some(stat) = procfs::stat(pid) else { continue };
        if stat.parent != parent {
            // Its parent died: it is our child by now, and the next walk finds it there.
            continue;
        }
        todo.extend(source.of(pid)?.into_iter().map(|child| (pid, child)));
        // A zombie's group as well: whoever lives for one fork only is a zombie by now, and its child is in there.
        let foreign = own_session.is_some_and(|session| session != stat.session) && stat.group > 1;
        if foreign && groups.insert(stat.group) {
            let _ = process::kill_group(stat.group, SIGKILL);
        }
        if stat.is_dead() {
            continue;
        }
        alive.push(Survivor { pid, state: stat.state });
        if foreign {
            // Done with its group.
        } else if parent == own_pid {
            let _ = process::kill(pid, SIGKILL);
        } else {
            kill_checked(pid, &stat, caps);
        }
    }
    Ok(alive)
}

/// Everybody alive below a process as one walk sees them; the spared and what is below them left out.
///
/// # Errors
/// The children could not be listed.
pub fn below(root: i32, spare: &Owned, caps: Capabilities) -> io::Result<Vec<i32>> {
    let source = Children::look(caps)?;
    let (mut found, mut seen) = (Vec::new(), BTreeSet::from([root]));
    let mut todo = source.of(root)?;
    while let Some(pid) = todo.pop() {
        // A picture of /proc can hold a circle when numbers were reused while it was taken.
        if !spare.contains(pid) && seen.insert(pid) {
            todo.extend(source.of(pid)?);
            found.push(pid);
        }
    }
    Ok(found)
}

/// Somebody else's child may be reaped, and its number used again, between the look and the kill.
fn kill_checked(pid: i32, seen: &Stat, caps: Capabilities) {
    let handle = pidfd::open(pid, caps);
    if procfs::start_time(pid) != Some(seen.start_time) {
        return;
    }
    let _ = match handle {
        Some(fd) => pidfd::send(fd.as_fd(), SIGKILL),
        None => process::kill(pid, SIGKILL),
    };
}

/// Kills and reaps everything below but the spared children, again and again until nobody is left or the time is
/// over. Blocks for at most `patience` (and one walk). Returns who is left.
#[must_use]
pub fn kill_all(spare: &Owned, caps: Capabilities, patience: Duration) -> Vec<Survivor> {
    let end = clock::boot().after(patience);
    let mut pause = Duration::from_micros(200);
    loop {
        let alive = kill_descendants(spare, caps);
        let reaped = reap_orphans(spare, caps);
        match (alive, reaped) {
            (Ok(alive), Ok(reaped)) if alive.is_empty() && reaped.is_empty() => return Vec::new(),
            (alive, reaped) => {
                if clock::boot() >= end {
                    return survivors(alive.unwrap_or_default(), reaped.unwrap_or_default().left);
                }
            }
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

/// Who of those is still alive, each once, with its state of now.
#[must_use]
pub fn survivors(walked: Vec<Survivor>, children: Vec<i32>) -> Vec<Survivor> {
    let pids: BTreeSet<i32> = walked.into_iter().map(|survivor| survivor.pid).chain(children).collect();
    let still = |pid| {
        let stat = procfs::stat(pid)?;
        (!stat.is_dead()).then_some(Survivor { pid, state: stat.state })
    };
    pids.into_iter().filter_map(still).collect()
}
