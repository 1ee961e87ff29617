//! Killing the ranks and nothing else. Ranks lead sessions of their own, and nothing below them can come back
//! into ours; the agent and its workers never leave ours.

use std::collections::BTreeSet;
use std::io;

use nix::libc::SIGKILL;

use super::capability::Capabilities;
use super::process;
use super::procfs::{self, Children};
use super::tree::Owned;

/// Passes of one call: who is forked during one is met by the next.
const PASSES: usize = 16;

/// Sends SIGKILL to every descendant outside our session, by whole groups (atomic against fork), again until a walk
/// meets nobody new or [`PASSES`] are over. The spared children and all below them are passed over. Returns how
/// many live ones the last walk met: those that are dying, and those that cannot.
///
/// A rank between its fork and its setsid is still in our session: call again after a moment.
///
/// # Errors
/// Our own session is not readable, or the children could not be listed.
pub fn kill_ranks(spare: &Owned, caps: Capabilities) -> io::Result<usize> {
    let mut killed = BTreeSet::new();
    let mut alive = 0;
    for _ in 0..PASSES {
        let found = pass(spare, caps)?;
        alive = found.len();
        let news = found.iter().any(|pid| !killed.contains(pid));
        killed.extend(found);
        if !news {
            break;
        }
    }
    Ok(alive)
}

fn pass(spare: &Owned, caps: Capabilities) -> io::Result<BTreeSet<i32>> {
    let own_pid = process::own_pid();
    let own_session = procfs::stat(own_pid).ok_or(io::ErrorKind::NotFound)?.session;
    let source = Children::look(caps)?;
    let mut found = BTreeSet::new();
    let mut seen = BTreeSet::from([own_pid]);
    let mut groups = BTreeSet::new();
    let children = source.of(own_pid)?.into_iter().filter(|pid| !spare.contains(*pid));
    let mut todo: Vec<(i32, i32)> = children.map(|pid| (own_pid, pid)).collect();
    while let Some((parent, pid)) = todo.pop() {
        // A picture of /proc can hold a circle when numbers were reused while it was taken.
        if !seen.insert(pid) {
            continue;
        }
        let Some(stat) = procfs::stat(pid) else { continue };
        if stat.parent != parent {
            // Its parent ended: the next pass meets it under its new one. Or the number is somebody else's by now.
            continue;
        }
        todo.extend(source.of(pid)?.into_iter().map(|child| (pid, child)));
        // Group 1 and below would name init's, ours, or everybody's.
        if stat.session == own_session || stat.is_dead() || stat.group <= 1 {
            continue;
        }
        found.insert(pid);
        if groups.insert(stat.group) {
            // ESRCH: they ended by themselves meanwhile.
            let _ = process::kill_group(stat.group, SIGKILL);
        }
    }
    Ok(found)
}
