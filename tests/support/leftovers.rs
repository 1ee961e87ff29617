//! After the end of a launcher nothing of it is left.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::procfs::{self, Process};
use super::relight::Scene;
use super::wait::wait_for;

/// Panics if a process, a socket or a temporary file of the scene is left; kills what it finds.
///
/// Processes: every one that carries the scene's mark, and, where this test is a process of its own (nextest),
/// every one below it, whatever it did to its environment. A process may take a moment to die: the launcher has
/// killed and reaped it before its own end, so the moment is short.
pub fn assert_none(scene: &Scene) {
    let found = || {
        let mut found = procfs::with_environment(&scene.mark());
        if std::env::var_os("NEXTEST").is_some() {
            reap();
            found.extend(procfs::below(std::process::id() as i32));
        }
        found.retain(|p| p.state != 'Z');
        found
    };
    let first = found();
    for process in &first {
        let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
    }
    if !first.is_empty() {
        wait_for("leftovers to die", Duration::from_secs(5), || match found() {
            left if left.is_empty() => Ok(()),
            left => Err(listed(&left)),
        });
    }
    assert!(first.is_empty(), "processes are left:\n{}", listed(&first));
    let mut files = Vec::new();
    for name in ["tmp", "runtime"] {
        walk(&scene.path(name), &mut files);
    }
    files.extend(pages(scene));
    assert!(files.is_empty(), "temporary files or sockets are left: {files:?}");
}

/// Folders of heartbeat pages of this scene's runs.
fn pages(scene: &Scene) -> Vec<PathBuf> {
    let all = format!("/dev/shm/relight-{}", nix::unistd::geteuid());
    let folders = fs::read_dir(all).into_iter().flatten().flatten().map(|entry| entry.path());
    let ours = |folder: &PathBuf| {
        fs::read_to_string(folder.join("run")).is_ok_and(|run| Path::new(&run).starts_with(scene.path("")))
    };
    folders.filter(ours).collect()
}

/// Panics if somebody still listens on this port of the loopback interface.
pub fn assert_port_free(port: u16) {
    let answer = std::net::TcpStream::connect(("127.0.0.1", port));
    assert!(answer.is_err(), "port {port} is still held");
}

fn reap() {
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
    // Orphans that were handed to us: the launcher itself has been waited for before.
    while let Ok(status) = waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG) {
        if status == WaitStatus::StillAlive {
            break;
        }
    }
}

fn listed(processes: &[Process]) -> String {
    let line = |p: &Process| format!("  {} (parent {}, {}): {}", p.pid, p.ppid, p.state, p.cmdline);
    processes.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Everything but folders below `folder`.
fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), found),
            _ => found.push(entry.path()),
        }
    }
}
