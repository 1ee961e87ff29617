//! Where CPUs and GPUs sit, as the kernel's files say it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::domain::numa::{CpuPlace, Machine, cpu_list};

/// The CPUs below a mount point of sysfs (`/sys`), without devices. A CPU that says nothing of itself is its own core,
/// on NUMA node 0 and socket 0.
#[must_use]
pub fn read(sysfs: &Path) -> Machine {
    let mut machine = Machine { allowed: allowed(), ..Machine::default() };
    let nodes = fs::read_dir(sysfs.join("devices/system/node")).into_iter().flatten().flatten();
    for entry in nodes {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node")).and_then(|no| no.parse().ok());
        let Some(node) = number else { continue };
        for cpu in cpu_list(&text(&entry.path().join("cpulist"))) {
            machine.cpus.insert(cpu, place(sysfs, cpu, node));
        }
    }
    if machine.cpus.is_empty() {
        // A kernel without NUMA.
        for cpu in cpu_list(&text(&sysfs.join("devices/system/cpu/present"))) {
            machine.cpus.insert(cpu, place(sysfs, cpu, 0));
        }
    }
    machine
}

/// The NUMA node of a PCI device (`0000:1b:00.0`); 0 where the kernel knows none, as torch takes it.
#[must_use]
pub fn node_of(sysfs: &Path, address: &str) -> u32 {
    let path = sysfs.join("bus/pci/devices").join(address.to_ascii_lowercase()).join("numa_node");
    text(&path).trim().parse().unwrap_or(0)
}

fn place(sysfs: &Path, cpu: u32, node: u32) -> CpuPlace {
    let dir = sysfs.join(format!("devices/system/cpu/cpu{cpu}"));
    let first = |path: &Path| cpu_list(&text(path)).first().copied();
    CpuPlace {
        node,
        socket: text(&dir.join("topology/physical_package_id")).trim().parse().unwrap_or(0),
        core: first(&dir.join("topology/thread_siblings_list")).unwrap_or(cpu),
        cache: last_level(&dir.join("cache")).unwrap_or(cpu),
    }
}

/// The first CPU that shares the highest cache for data.
fn last_level(caches: &Path) -> Option<u32> {
    let mut best: Option<(u32, u32)> = None;
    for entry in fs::read_dir(caches).ok()?.flatten() {
        let dir = entry.path();
        if !matches!(text(&dir.join("type")).trim(), "Unified" | "Data") {
            continue;
        }
        let level: Option<u32> = text(&dir.join("level")).trim().parse().ok();
        let first = cpu_list(&text(&dir.join("shared_cpu_list"))).first().copied();
        if let (Some(level), Some(first)) = (level, first)
            && best.is_none_or(|(known, _)| level > known)
        {
            best = Some((level, first));
        }
    }
    best.map(|(_, first)| first)
}

/// The CPUs that this process may use, and so its children.
fn allowed() -> BTreeSet<u32> {
    let status = text(Path::new("/proc/self/status"));
    status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(cpu_list).unwrap_or_default()
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::numa::NumaBinding;

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Two NUMA nodes on two sockets, two cores each, no threads; one cache a node.
    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for (node, cpus) in [(0, "0-1"), (1, "2-3")] {
            write(root, &format!("devices/system/node/node{node}/cpulist"), &format!("{cpus}\n"));
        }
        write(root, "devices/system/node/possible", "0-1\n");
        for cpu in 0..4 {
            let base = format!("devices/system/cpu/cpu{cpu}");
            let (socket, shared) = if cpu < 2 { ("0\n", "0-1\n") } else { ("1\n", "2-3\n") };
            write(root, &format!("{base}/topology/physical_package_id"), socket);
            write(root, &format!("{base}/topology/thread_siblings_list"), &format!("{cpu}\n"));
            for (index, kind, level, list) in [
                (0, "Data", "1", format!("{cpu}\n")),
                (1, "Instruction", "9", "0-3\n".into()),
                (2, "Unified", "3", shared.into()),
            ] {
                write(root, &format!("{base}/cache/index{index}/type"), &format!("{kind}\n"));
                write(root, &format!("{base}/cache/index{index}/level"), &format!("{level}\n"));
                write(root, &format!("{base}/cache/index{index}/shared_cpu_list"), &list);
            }
        }
        write(root, "bus/pci/devices/0000:1b:00.0/numa_node", "1\n");
        write(root, "bus/pci/devices/0000:1c:00.0/numa_node", "-1\n");
        dir
    }

    #[test]
    fn a_machine_of_files() {
        let tree = tree();
        let mut machine = read(tree.path());
        assert_eq!(machine.cpus[&3], CpuPlace { node: 1, socket: 1, core: 3, cache: 2 });
        assert_eq!(machine.cpus.len(), 4);
        let devices = ["0000:1B:00.0", "0000:1c:00.0", "0000:ff:00.0"];
        machine.devices = devices.map(|address| node_of(tree.path(), address)).to_vec();
        assert_eq!(machine.devices, [1, 0, 0]);
        machine.allowed = (0..4).collect();
        assert_eq!(machine.bind(NumaBinding::Socket, 0), Ok(vec![2, 3]));
        assert_eq!(machine.bind(NumaBinding::Exclusive, 2), Ok(vec![1]));
    }

    #[test]
    fn this_machine_and_an_empty_one() {
        let machine = read(Path::new("/sys"));
        assert!(!machine.allowed.is_empty());
        let none = tempfile::tempdir().unwrap();
        assert!(read(none.path()).cpus.is_empty());
        write(none.path(), "devices/system/cpu/present", "0-1\n");
        assert_eq!(read(none.path()).cpus[&1], CpuPlace { node: 0, socket: 0, core: 1, cache: 1 });
    }
}
