//! The memory group that this process and its children are in: how many of it the kernel killed for want of memory, and
//! what it may use. Version 1 and 2; only files of the kernel, which never wait.

use std::fs;
use std::path::{Path, PathBuf};

/// A memory cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryGroup {
    /// Its directory.
    dir: PathBuf,
    /// Where its hierarchy is mounted.
    mount: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl MemoryGroup {
    /// That of this process; none where the kernel has no such thing, or it cannot be seen from here.
    #[must_use]
    pub fn own() -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        Self::find(&groups, &mounts).into_iter().find(|group| group.kills().is_some())
    }

    /// Where it can be, by what `/proc` says: version 1 before 2, since where both are mounted memory is with 1.
    fn find(groups: &str, mounts: &str) -> Vec<Self> {
        let mut found = Vec::new();
        for version in [Version::One, Version::Two] {
            let path = groups.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':');
                let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
                let fits = match version {
                    Version::One => controllers.split(',').any(|name| name == "memory"),
                    Version::Two => controllers.is_empty(),
                };
                fits.then_some(path)
            });
            let mount = mounts.lines().filter_map(|line| mount(line, version));
            for (root, mount) in mount {
                let Some(path) = path else { continue };
                // In a container the hierarchy may be mounted from the container's own group on.
                let below =
                    path.strip_prefix(root.trim_end_matches('/')).unwrap_or(path).trim_start_matches('/');
                let mount = PathBuf::from(mount);
                found.push(Self { dir: mount.join(below), mount, version });
            }
        }
        found
    }

    /// Processes of it that the kernel killed for want of memory, since it was made.
    #[must_use]
    pub fn kills(&self) -> Option<u64> {
        let file = match self.version {
            Version::One => "memory.oom_control",
            Version::Two => "memory.events",
        };
        let text = fs::read_to_string(self.dir.join(file)).ok()?;
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
    }

    /// What it may use, in bytes: the least limit from here up; none if there is no limit.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        /// Version 1 writes the largest number of pages for "none".
        const NONE: u64 = 1 << 60;
        let file = match self.version {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        };
        let levels = self.dir.ancestors().take_while(|dir| dir.starts_with(&self.mount));
        let limits =
            levels.filter_map(|dir| fs::read_to_string(dir.join(file)).ok()?.trim().parse::<u64>().ok());
        limits.filter(|limit| *limit < NONE).min()
    }
}

/// The root within its hierarchy and the mount point, of a line of `mountinfo` that mounts one with memory.
fn mount(line: &str, version: Version) -> Option<(&str, &str)> {
    let (first, last) = line.split_once(" - ")?;
    let mut last = last.split(' ');
    let (kind, _, options) = (last.next()?, last.next()?, last.next()?);
    let fits = match version {
        Version::One => kind == "cgroup" && options.split(',').any(|option| option == "memory"),
        Version::Two => kind == "cgroup2",
    };
    let mut first = first.split(' ').skip(3);
    fits.then_some((first.next()?, first.next()?))
}

/// Whether `/dev/shm` is full: less than a mebibyte is left.
#[must_use]
pub fn shared_memory_is_full() -> bool {
    super::files::free_bytes(Path::new("/dev/shm")).is_some_and(|free| free < 1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_found_in_containers_and_outside() {
        let find = |groups, mounts| {
            MemoryGroup::find(groups, mounts)
                .into_iter()
                .map(|group| (group.dir.display().to_string(), group.version))
                .collect::<Vec<_>>()
        };
        let two = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate";
        let slurm = "0::/system.slice/slurmstepd.scope/job_9/step_0/user/task_0\n";
        let wanted = "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_9/step_0/user/task_0";
        assert_eq!(find(slurm, two), [(wanted.to_owned(), Version::Two)]);
        let one = "36 32 0:33 /docker/ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory";
        let both = format!("{one}\n{}", two.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified"));
        assert_eq!(
            find("4:memory:/docker/ab/job_9\n0::/x\n", &both),
            [
                ("/sys/fs/cgroup/memory/job_9".to_owned(), Version::One),
                ("/sys/fs/cgroup/unified/x".to_owned(), Version::Two)
            ]
        );
        assert!(find("", &both).is_empty() && find("garbage\n::\n", "garbage - x\n").is_empty());
    }

    #[test]
    fn counters_and_limits_are_read() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("job/step");
        fs::create_dir_all(&dir).unwrap();
        let group = |version| MemoryGroup { dir: dir.clone(), mount: root.path().to_owned(), version };
        assert_eq!((group(Version::Two).kills(), group(Version::Two).limit()), (None, None));
        fs::write(dir.join("memory.events"), "low 0\nmax 9\noom 1\noom_kill 3\n").unwrap();
        fs::write(dir.join("memory.max"), "max\n").unwrap();
        fs::write(root.path().join("job/memory.max"), "536870912\n").unwrap();
        assert_eq!((group(Version::Two).kills(), group(Version::Two).limit()), (Some(3), Some(512 << 20)));
        fs::write(dir.join("memory.oom_control"), "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n").unwrap();
        fs::write(dir.join("memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        assert_eq!((group(Version::One).kills(), group(Version::One).limit()), (Some(7), None));
    }

    #[test]
    fn this_process_does_not_panic() {
        let _ = MemoryGroup::own().map(|group| (group.kills(), group.limit()));
        let _ = shared_memory_is_full();
    }
}
