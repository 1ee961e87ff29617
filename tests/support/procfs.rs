//! Just enough of /proc.

use std::collections::BTreeMap;
use std::fs;

/// One process as /proc shows it.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its parent.
    pub ppid: i32,
    /// Its state letter.
    pub state: char,
    /// Its command line, spaces between words; empty for a zombie.
    pub cmdline: String,
}

/// Every process of this pid namespace.
pub fn all() -> BTreeMap<i32, Process> {
    let entries = fs::read_dir("/proc").expect("/proc is mounted");
    entries
        .flatten()
        .filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?))
        .map(|p| (p.pid, p))
        .collect()
}

/// One process, none if it is gone.
pub fn read(pid: i32) -> Option<Process> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let ppid = fields.next()?.parse().ok()?;
    let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let cmdline = String::from_utf8_lossy(&cmdline).replace('\0', " ").trim().to_owned();
    Some(Process { pid, ppid, state, cmdline })
}

/// Everything below `root`, itself not included.
pub fn below(root: i32) -> Vec<Process> {
    let all = all();
    let mut found: Vec<Process> = Vec::new();
    let mut todo = vec![root];
    while let Some(parent) = todo.pop() {
        for process in all.values().filter(|p| p.ppid == parent) {
            todo.push(process.pid);
            found.push(process.clone());
        }
    }
    found
}

/// The processes whose first environment holds `NAME=value`.
pub fn with_environment(name_value: &str) -> Vec<Process> {
    let marked = |pid: i32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|b| *b == 0).any(|entry| entry == name_value.as_bytes())
    };
    all().into_values().filter(|p| marked(p.pid)).collect()
}

/// What a set of processes uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How many there are.
    pub processes: u64,
    /// Their threads.
    pub threads: u64,
    /// Their open files.
    pub files: u64,
    /// Memory of their own, KiB: what would be free if they were gone.
    pub private_kib: u64,
}

/// Adds up what these processes use; those that are gone count nothing.
pub fn usage(pids: &[i32]) -> Usage {
    let mut sum = Usage::default();
    for pid in pids {
        let Ok(rollup) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) else { continue };
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        sum.processes += 1;
        sum.threads += number(&status, "Threads:");
        sum.files += fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |fds| fds.count() as u64);
        sum.private_kib += number(&rollup, "Private_Dirty:");
    }
    sum
}

fn number(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|n| n.parse().ok()).unwrap_or(0)
}
