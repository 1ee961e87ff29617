//! Which GPUs a rank would see, by their place on the bus: for binding ranks to the CPUs near them.

use std::path::Path;

use super::facts::Process;
use crate::domain::env;

/// A GPU as its driver lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Device {
    /// Its PCI address.
    address: String,
    /// Its UUID, as the variables of visible devices name it; empty where the driver does not say.
    uuid: String,
}

/// PCI addresses of the GPUs that a rank would see, in their order: NVIDIA's, else AMD's. Others are not known: none.
#[must_use]
pub fn visible(process: &Process) -> Vec<String> {
    let list = |var: env::EnvVar| process.known.get(var.name).map(String::as_str);
    let nvidia = nvidia(Path::new("/proc/driver/nvidia/gpus"));
    if !nvidia.is_empty() {
        return visible_of(&nvidia, list(env::CUDA_VISIBLE_DEVICES));
    }
    let amd = amd(Path::new("/sys/class/kfd/kfd/topology/nodes"));
    // AMD's programs read either name, their own first.
    let hip = list(env::HIP_VISIBLE_DEVICES).filter(|list| !list.is_empty());
    visible_of(&amd, hip.or_else(|| list(env::CUDA_VISIBLE_DEVICES)))
}

/// In the order of addresses, which is that of numbers.
fn nvidia(dir: &Path) -> Vec<Device> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let one = |entry: std::fs::DirEntry| {
        let about = std::fs::read_to_string(entry.path().join("information")).unwrap_or_default();
        let uuid = about.lines().find_map(|line| line.strip_prefix("GPU UUID:")).unwrap_or_default();
        Some(Device { address: entry.file_name().into_string().ok()?, uuid: uuid.trim().to_owned() })
    };
    let mut all: Vec<Device> = entries.filter_map(one).collect();
    all.sort_by(|a, b| a.address.cmp(&b.address));
    all
}

/// In the order of the driver's nodes; nodes without a GPU are CPUs.
fn amd(dir: &Path) -> Vec<Device> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let one = |entry: std::fs::DirEntry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        let id = std::fs::read_to_string(entry.path().join("gpu_id")).ok()?;
        let about = std::fs::read_to_string(entry.path().join("properties")).ok()?;
        let property = |name: &str| {
            about
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok())
        };
        let place = property("location_id").filter(|_| id.trim() != "0")?;
        let (bus, slot, function) = (place >> 8 & 0xff, place >> 3 & 0x1f, place & 7);
        let domain = property("domain").unwrap_or(0);
        let uuid = property("unique_id").map(|id| format!("GPU-{id:x}")).unwrap_or_default();
        Some((number, Device { address: format!("{domain:04x}:{bus:02x}:{slot:02x}.{function}"), uuid }))
    };
    let mut all: Vec<(u32, Device)> = entries.filter_map(one).collect();
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, device)| device).collect()
}

/// As the drivers read the list: numbers or UUIDs (a beginning is enough), up to the first that is no device.
fn visible_of(all: &[Device], visible: Option<&str>) -> Vec<String> {
    let Some(list) = visible else { return all.iter().map(|device| device.address.clone()).collect() };
    let device = |entry: &str| match entry.parse::<usize>() {
        Ok(number) => all.get(number),
        Err(_) => all.iter().find(|device| !entry.is_empty() && device.uuid.starts_with(entry)),
    };
    list.split(',').map_while(|entry| device(entry.trim())).map(|device| device.address.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn which_gpus_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        for (address, uuid) in [("0000:9a:00.0", "GPU-bbbb"), ("0000:1b:00.0", "GPU-aaaa")] {
            let about = format!("Model:  \t H100\nGPU UUID:  \t {uuid}\n");
            write(dir.path(), &format!("{address}/information"), &about);
        }
        let all = nvidia(dir.path());
        for (visible, want) in [
            (None, vec!["0000:1b:00.0", "0000:9a:00.0"]),
            (Some("1,0"), vec!["0000:9a:00.0", "0000:1b:00.0"]),
            (Some("GPU-bb"), vec!["0000:9a:00.0"]),
            (Some("0,7,1"), vec!["0000:1b:00.0"]),
            (Some("-1"), vec![]),
            (Some(""), vec![]),
        ] {
            assert_eq!(visible_of(&all, visible), want, "{visible:?}");
        }
        assert!(nvidia(&dir.path().join("none")).is_empty());
    }

    #[test]
    fn gpus_of_amd_are_among_the_drivers_nodes() {
        let dir = tempfile::tempdir().unwrap();
        for (node, id, about) in [
            ("0", "0\n", "cpu_cores_count 64\nlocation_id 0\n"),
            ("10", "777\n", "location_id 49408\ndomain 0\nunique_id 255\n"),
            ("9", "555\n", "location_id 55560\ndomain 1\nunique_id 254\n"),
            ("11", "888\n", "nothing known\n"),
        ] {
            write(dir.path(), &format!("{node}/gpu_id"), id);
            write(dir.path(), &format!("{node}/properties"), about);
        }
        let all = amd(dir.path());
        assert_eq!(visible_of(&all, None), ["0001:d9:01.0", "0000:c1:00.0"]);
        assert_eq!(visible_of(&all, Some("GPU-ff,0")), ["0000:c1:00.0", "0001:d9:01.0"]);
    }
}
