//! What is looked at on a node. One more check is one more `Check`: of a GPU, of a port of the network.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::gpus::{Driver, Gpus};
use crate::domain::health::{self, CheckResult, MOST_OUTPUT, Said};
use crate::sys::capability::Capabilities;
use crate::sys::capture::{self, End};
use crate::sys::spawn::SpawnRequest;
use crate::sys::{clock, files};

/// How long a check of ours may take.
pub const LIMIT: Duration = Duration::from_secs(5);

/// One thing that can be looked at. May hang: it is given up then.
pub trait Check: Send {
    /// Its name.
    fn name(&self) -> String;
    /// After so long it is given up.
    fn limit(&self) -> Duration {
        LIMIT
    }
    /// Looks.
    fn look(&self) -> Said;
}

/// What is to be looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Shared memory and memory.
    pub local: bool,
    /// Directories in which there should be room, each with what it is.
    pub rooms: Vec<(String, PathBuf)>,
    /// A directory that all nodes share, and a name of this node in it.
    pub shared: Option<(PathBuf, String)>,
    /// Where it is not there, the nearest one above it is tried.
    pub above: bool,
    /// How the driver of the GPUs is asked; none: it is not.
    pub gpus: Option<Driver>,
    /// Command lines of the user.
    pub programs: Vec<String>,
    /// How long each of them may take, in milliseconds.
    pub timeout_ms: u64,
    /// Their environment.
    pub env: Vec<(OsString, OsString)>,
    /// Where they run.
    pub cwd: PathBuf,
}

impl Plan {
    /// The checks.
    #[must_use]
    pub fn checks(self) -> Vec<Box<dyn Check>> {
        let mut all: Vec<Box<dyn Check>> = Vec::new();
        if self.local {
            all.push(Box::new(SharedMemory));
            all.push(Box::new(Memory));
        }
        for (what, path) in self.rooms {
            all.push(Box::new(Room { what, path }));
        }
        if let Some((dir, name)) = self.shared {
            all.push(Box::new(SharedDirectory { dir, name, above: self.above }));
        }
        all.extend(self.gpus.map(|driver| Box::new(Gpus(driver)) as Box<dyn Check>));
        for command in self.programs {
            let limit = Duration::from_millis(self.timeout_ms);
            all.push(Box::new(Program { command, limit, env: self.env.clone(), cwd: self.cwd.clone() }));
        }
        all
    }
}

/// Runs one check.
#[must_use]
pub fn run(check: &dyn Check) -> CheckResult {
    let began = clock::boot();
    let said = check.look();
    said.named(check.name(), u64::try_from(clock::boot().since(began).as_millis()).unwrap_or(u64::MAX))
}

/// The checks that cannot wait for anything: whoever must not wait may run them.
#[must_use]
pub fn local() -> Vec<CheckResult> {
    Plan { local: true, ..Plan::default() }.checks().iter().map(|check| run(check.as_ref())).collect()
}

struct SharedMemory;

impl Check for SharedMemory {
    fn name(&self) -> String {
        "/dev/shm".into()
    }

    fn look(&self) -> Said {
        match files::room(Path::new("/dev/shm")) {
            Some((free, total)) => health::shared_memory(free, total),
            None => Said::skipped("there is none"),
        }
    }
}

struct Memory;

impl Check for Memory {
    fn name(&self) -> String {
        "memory".into()
    }

    fn look(&self) -> Said {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let limits = groups(&own).into_iter().filter_map(|group| limit_of(&group));
        let machine = machine(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
        let least = limits.chain(machine).min_by_key(|(available, _)| *available);
        let (available, total) = least.unwrap_or((0, 0));
        health::memory(available, total)
    }
}

/// What of the machine's memory can be had, and all of it, in bytes.
fn machine(meminfo: &str) -> Option<(u64, u64)> {
    let value = |name: &str| {
        let rest = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    Some((value("MemAvailable")?, value("MemTotal")?))
}

/// The directories of the groups that may limit this process's memory, from its own up.
fn groups(own: &str) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let root = match controllers {
            "" => Path::new("/sys/fs/cgroup"),
            some if some.split(',').any(|name| name == "memory") => Path::new("/sys/fs/cgroup/memory"),
            _ => continue,
        };
        let whole = root.join(path.trim_start_matches('/'));
        all.extend(whole.ancestors().take_while(|dir| dir.starts_with(root)).map(Path::to_path_buf));
    }
    all
}

/// What is left of a group's memory, and its limit, in bytes; none where it has no limit. What was read from files is
/// given back when it is needed.
fn limit_of(group: &Path) -> Option<(u64, u64)> {
    let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    let limit = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
    // The first version writes a number without meaning where there is no limit.
    if limit > 1 << 60 {
        return None;
    }
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let pages = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        let file = matches!(name, "inactive_file" | "active_file");
        count.trim().parse::<u64>().ok().filter(|_| file)
    };
    let cache: u64 = stat.lines().filter_map(pages).fold(0, u64::saturating_add);
    Some((limit.saturating_sub(used.saturating_sub(cache)), limit))
}

struct Room {
    what: String,
    path: PathBuf,
}

impl Check for Room {
    fn name(&self) -> String {
        format!("room in the {}", self.what)
    }

    fn look(&self) -> Said {
        health::space(files::free_bytes(&self.path))
    }
}

struct SharedDirectory {
    dir: PathBuf,
    name: String,
    above: bool,
}

impl Check for SharedDirectory {
    fn name(&self) -> String {
        "run directory".into()
    }

    fn look(&self) -> Said {
        let errno = |error: &io::Error| error.raw_os_error().unwrap_or(0);
        health::shared_directory(self.try_it().map_err(|error| (errno(&error), files::error_text(&error))))
    }
}

impl SharedDirectory {
    /// Makes a file, gives it another name, reads it and removes it.
    fn try_it(&self) -> io::Result<()> {
        const TEXT: &[u8] = b"relight looks whether this directory can be used\n";
        let dir = self.dir.ancestors().find(|dir| !self.above || dir.is_dir()).unwrap_or(&self.dir);
        let fresh = dir.join(format!(".health-{}.new", self.name));
        let there = dir.join(format!(".health-{}", self.name));
        // One that was given up may have left it.
        let _ = fs::remove_file(&fresh);
        let tried = files::create_exclusive(&fresh)
            .and_then(|mut file| file.write_all(TEXT))
            .and_then(|()| fs::rename(&fresh, &there))
            .and_then(|()| files::read_small(&there, 4 << 10))
            .and_then(|(bytes, _)| match bytes == TEXT {
                true => Ok(()),
                false => Err(io::Error::other("it holds something else than was written")),
            });
        let removed = fs::remove_file(&there);
        let _ = fs::remove_file(&fresh);
        tried.and(removed)
    }
}

struct Program {
    command: String,
    limit: Duration,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
}

impl Check for Program {
    fn name(&self) -> String {
        self.command.clone()
    }

    fn limit(&self) -> Duration {
        self.limit
    }

    fn look(&self) -> Said {
        let argv = ["/bin/sh", "-c", &self.command].into_iter().map(OsString::from).collect();
        let request =
            SpawnRequest { argv, env: self.env.clone(), cwd: self.cwd.clone(), ..SpawnRequest::default() };
        let said = capture::run(request, self.limit, MOST_OUTPUT, Capabilities::probe());
        match said.end {
            End::Ended(kind) => health::program(&kind, &said.output),
            End::Late => health::late(u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX)),
            End::NotStarted(error) => Said::unknown(format!("it could not be started: {error}")),
        }
    }
}

#[cfg(test)]
#[path = "check_tests.rs"]
mod tests;
