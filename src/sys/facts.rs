//! What the kernel says of processes that may be stuck. Only what takes no lock that such a process may hold: `stat`,
//! `status`, `wchan`, `syscall`, `io`, the `children` lists and the links of descriptors.

use nix::libc;

use super::capability::Capabilities;
use super::procfs::{self, Children};
use crate::domain::liveness::evidence::ProcessFacts;

/// So many processes of a rank are looked at.
const MOST: usize = 2_048;
/// A way down through wrappers is no longer than this.
const DEPTH: usize = 16;

/// A process and everything below it, itself first; itself alone where children cannot be told.
#[must_use]
pub fn family(pid: i32, caps: Capabilities) -> Vec<i32> {
    let mut all = vec![pid];
    let Ok(source) = Children::look(caps) else { return all };
    let mut at = 0;
    while let Some(parent) = all.get(at).copied() {
        for child in source.of(parent).unwrap_or_default() {
            if all.len() < MOST && !all.contains(&child) {
                all.push(child);
            }
        }
        at += 1;
    }
    all
}

/// The one of a family that matters: the owner of the page, where it is one of them, by its number here or in its own
/// namespace; without one the first that does not merely wait for its only child, as wrappers do.
#[must_use]
pub fn subject(family: &[i32], owner: Option<u32>, caps: Capabilities) -> i32 {
    let first = family.first().copied().unwrap_or(0);
    let owner = owner.and_then(|pid| i32::try_from(pid).ok()).filter(|pid| *pid > 0);
    if let Some(owner) = owner {
        let by_name = |pid: &&i32| Status::of(**pid).is_some_and(|status| status.inner == Some(owner));
        return match family.contains(&owner) {
            true => owner,
            false => family.iter().find(by_name).copied().unwrap_or(first),
        };
    }
    let mut pid = first;
    for _ in 0..DEPTH {
        let only = match procfs::children(pid, caps).as_deref() {
            Ok([only]) if family.contains(only) => *only,
            _ => break,
        };
        if wchan(pid) != "do_wait" {
            break;
        }
        pid = only;
    }
    pid
}

/// State, place in the kernel, tracer and threads of one process: costs three short files.
#[must_use]
pub fn glance(pid: i32) -> ProcessFacts {
    let status = Status::of(pid).unwrap_or_default();
    ProcessFacts {
        pid: u32::try_from(pid).unwrap_or(0),
        state: procfs::state(pid),
        wchan: wchan(pid),
        traced: status.traced,
        threads: status.threads,
        ..ProcessFacts::default()
    }
}

/// All that is known of one process, with the time and the bytes of its whole family.
#[must_use]
pub fn look(subject: i32, family: &[i32]) -> ProcessFacts {
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    let per_second = per_second.and_then(|n| u64::try_from(n).ok()).filter(|n| *n > 0).unwrap_or(100);
    let ticks: u64 = family.iter().filter_map(|pid| procfs::stat(*pid)).map(|stat| stat.ticks).sum();
    ProcessFacts {
        reads: reads(subject),
        cpu_ms: ticks.saturating_mul(1_000) / per_second,
        io_bytes: family.iter().map(|pid| io_bytes(*pid)).fold(0, u64::saturating_add),
        ..glance(subject)
    }
}

/// The kernel's side of its main thread's stack, where we may see it.
#[must_use]
pub fn kernel_stack(pid: i32) -> Vec<u8> {
    std::fs::read(format!("/proc/{pid}/stack")).unwrap_or_default()
}

fn wchan(pid: i32) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    let plain = text.trim();
    // In no call, or not for our eyes.
    if plain == "0" { String::new() } else { plain.chars().take(64).filter(|c| !c.is_control()).collect() }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Status {
    traced: bool,
    threads: u32,
    /// Its number in its own namespace, where that is another.
    inner: Option<i32>,
}

impl Status {
    fn of(pid: i32) -> Option<Self> {
        Some(Self::parse(&String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/status")).ok()?)))
    }

    fn parse(text: &str) -> Self {
        let value = |name: &str| {
            let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            rest.map(str::trim).unwrap_or_default()
        };
        let spaces: Vec<&str> = value("NSpid").split_ascii_whitespace().collect();
        Self {
            traced: value("TracerPid").parse::<i32>().is_ok_and(|pid| pid != 0),
            threads: value("Threads").parse().unwrap_or(0),
            inner: spaces.last().filter(|_| spaces.len() > 1).and_then(|pid| pid.parse().ok()),
        }
    }
}

/// Bytes of all reads and writes and of what came from and went to storage, which a mapped file needs no call for: they
/// tell movement, some of them are counted twice.
fn io_bytes(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let counted = |line: &str| {
        let (name, number) = line.split_once(": ")?;
        let moved = matches!(name, "rchar" | "wchar" | "read_bytes" | "write_bytes");
        number.trim().parse::<u64>().ok().filter(|_| moved)
    };
    text.lines().filter_map(counted).fold(0, u64::saturating_add)
}

/// What its main thread waits to read from; empty: it does not.
fn reads(pid: i32) -> String {
    let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    let Some(fd) = read_from(&call) else { return String::new() };
    let link = std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap_or_default();
    link.to_string_lossy().chars().take(256).filter(|c| !c.is_control()).collect()
}

/// The descriptor that a line of `/proc/<pid>/syscall` waits to read from: `0 0x3 0x7ffc… …`.
fn read_from(line: &str) -> Option<u32> {
    const ONE: [i64; 6] = [
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_pread64,
        libc::SYS_preadv,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
    ];
    let mut words = line.split_ascii_whitespace();
    let call: i64 = words.next()?.parse().ok()?;
    let first = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    if ONE.contains(&call) {
        return u32::try_from(first).ok();
    }
    // Descriptors below 1: it is standard input that is waited for, as line editors do.
    (is_select(call) && first == 1).then_some(0)
}

#[cfg(target_arch = "x86_64")]
fn is_select(call: i64) -> bool {
    call == libc::SYS_select || call == libc::SYS_pselect6
}

#[cfg(not(target_arch = "x86_64"))]
fn is_select(call: i64) -> bool {
    call == libc::SYS_pselect6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_calls() {
        let read = libc::SYS_read;
        let select = libc::SYS_pselect6;
        let table = [
            (format!("{read} 0x3 0x7ffd 0x1000 0x0 0x0 0x0 0x7ffc 0x7f1e\n"), Some(3)),
            (format!("{read} 0xffffffffffffffff 0x0 0x0 0x0 0x0 0x0 0x0 0x0"), None),
            (format!("{select} 0x1 0x7ffd 0x0 0x0 0x0 0x0 0x7ffc 0x7f1e"), Some(0)),
            (format!("{select} 0x8 0x7ffd 0x0 0x0 0x0 0x0 0x7ffc 0x7f1e"), None),
            ("running\n".into(), None),
            ("-1 0x7ffc 0x7f1e\n".into(), None),
            (String::new(), None),
            (read.to_string(), None),
            (format!("{read} 3"), None),
        ];
        for (line, wanted) in table {
            assert_eq!(read_from(&line), wanted, "{line}");
        }
    }

    #[test]
    fn lines_of_status() {
        let text = "Name:\tpython3\nState:\tD (disk sleep)\nTracerPid:\t7\nNSpid:\t4242\t17\nThreads:\t12\n";
        assert_eq!(Status::parse(text), Status { traced: true, threads: 12, inner: Some(17) });
        let text = "TracerPid:\t0\nNSpid:\t4242\nThreads:\t1\n";
        assert_eq!(Status::parse(text), Status { traced: false, threads: 1, inner: None });
        assert_eq!(Status::parse("Threads: \nNSpid:\n"), Status::default());
    }
}
