//! Why a start failed, in words that name the limit or the fix.

use std::path::{Path, PathBuf};

use nix::libc;
use nix::sys::resource::{Resource, getrlimit};

use super::SpawnError;
use super::child::Step;

/// The call and, in brackets, what stands behind its errno: `pipe for stdout (open files: limit 64)`.
#[must_use]
pub fn explain(call: &str, errno: i32) -> String {
    let reason = match errno {
        libc::EMFILE => format!("open files: limit {}", limit_text(Resource::RLIMIT_NOFILE)),
        libc::ENFILE => "open files of the whole machine: fs.file-max is reached".to_owned(),
        libc::EAGAIN => format!("processes: {}", process_limit()),
        libc::ENOMEM => format!("memory: {}", memory_limit()),
        libc::E2BIG => "arguments and environment are too long together".to_owned(),
        libc::ENOSPC => "no room left".to_owned(),
        libc::EPERM => "not allowed".to_owned(),
        _ => return call.to_owned(),
    };
    format!("{call} ({reason})")
}

/// What the child met.
pub(super) fn failed_step(step: Step, errno: i32, program: &str, cwd: &str) -> SpawnError {
    let what = match (step, errno) {
        (Step::Descriptors, libc::EINVAL) => explain("descriptors of the child", libc::EMFILE),
        (Step::Descriptors, _) => explain("descriptors of the child", errno),
        (Step::Null, _) => explain("open /dev/null", errno),
        (Step::Session, _) => explain("setsid", errno),
        (Step::DeathSignal, _) => explain("prctl PDEATHSIG", errno),
        (Step::Orphaned, _) => "start (the launcher ended meanwhile)".to_owned(),
        (Step::Limit, _) => explain("setrlimit of open files", errno),
        (Step::Affinity, _) => explain("bind to the CPUs of --numa-binding", errno),
        (Step::Directory, libc::ENOENT) => format!("chdir {cwd} (no such directory on this node)"),
        (Step::Directory, libc::ENOTDIR) => format!("chdir {cwd} (it is no directory)"),
        (Step::Directory, libc::EACCES) => format!("chdir {cwd} (no permission)"),
        (Step::Directory, _) => explain(&format!("chdir {cwd}"), errno),
        (Step::Interpreter, _) => {
            format!("exec {program} (the file is there, but not the interpreter or loader that it names)")
        }
        (Step::Exec, _) => exec(program, errno),
    };
    SpawnError { errno, what }
}

fn exec(program: &str, errno: i32) -> String {
    let call = format!("exec {program}");
    match errno {
        libc::ENOENT | libc::ENOTDIR if program.contains('/') => {
            format!("{call} (no such file on this node)")
        }
        libc::ENOENT | libc::ENOTDIR => format!("{call} (not found on PATH)"),
        libc::EACCES => format!("{call} (not executable: chmod +x, a directory, or a noexec mount)"),
        libc::ENOEXEC => format!("{call} (not a program of this machine, and no #! line)"),
        libc::ETXTBSY => format!("{call} (somebody has it open for writing)"),
        _ => explain(&call, errno),
    }
}

fn limit_text(resource: Resource) -> String {
    finite(resource).map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string())
}

fn finite(resource: Resource) -> Option<u64> {
    getrlimit(resource).ok().map(|(soft, _)| soft).filter(|soft| *soft != libc::RLIM_INFINITY)
}

/// Who refuses another process: a full cgroup, else the user's limit, else the machine.
fn process_limit() -> String {
    if let Some(limit) = full_cgroup() {
        return format!("limit {limit} of the control group");
    }
    match finite(Resource::RLIMIT_NPROC) {
        Some(limit) => format!("limit {limit}"),
        None => "the machine's limit (kernel.pid_max, kernel.threads-max)".to_owned(),
    }
}

fn memory_limit() -> String {
    match finite(Resource::RLIMIT_AS) {
        Some(limit) => format!("limit {} MiB of address space", limit >> 20),
        None => "none left on the node or in its control group".to_owned(),
    }
}

/// The `pids.max` of the control group, ours or one above, that is used up. These are the kernel's files: reading
/// them never waits.
fn full_cgroup() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let number =
        |dir: &Path, name: &str| std::fs::read_to_string(dir.join(name)).ok()?.trim().parse::<u64>().ok();
    let roots = text.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let root = match controllers {
            "" => "/sys/fs/cgroup",
            list if list.split(',').any(|name| name == "pids") => "/sys/fs/cgroup/pids",
            _ => return None,
        };
        Some((PathBuf::from(root), path.to_owned()))
    });
    roots
        .flat_map(|(root, path)| {
            let full = root.join(path);
            full.ancestors()
                .take_while(|dir| dir.starts_with(&root))
                .map(Path::to_path_buf)
                .collect::<Vec<_>>()
        })
        .find_map(|dir| {
            let limit = number(&dir, "pids.max")?;
            (number(&dir, "pids.current")? >= limit).then_some(limit)
        })
}
