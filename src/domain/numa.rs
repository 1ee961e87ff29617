//! Which CPUs a rank gets when it is bound to those near its GPU: torchrun's four rules, over what the kernel says of
//! the machine.

use std::collections::{BTreeMap, BTreeSet};

/// How ranks are bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumaBinding {
    /// All CPUs of the NUMA node of its GPU.
    Node,
    /// All CPUs of the NUMA nodes of that socket.
    Socket,
    /// Cores of that NUMA node that no other rank gets.
    Exclusive,
    /// The CPUs of that NUMA node that share one last-level cache.
    CoreComplex,
}

impl NumaBinding {
    const ALL: [Self; 4] = [Self::Node, Self::Socket, Self::Exclusive, Self::CoreComplex];

    /// As it is typed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Socket => "socket",
            Self::Exclusive => "exclusive",
            Self::CoreComplex => "core-complex",
        }
    }

    /// The way of that name.
    #[must_use]
    pub fn named(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == text)
    }
}

/// Where a CPU sits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuPlace {
    /// Its NUMA node.
    pub node: u32,
    /// Its socket.
    pub socket: u32,
    /// The first CPU of its physical core.
    pub core: u32,
    /// The first CPU that shares its last-level cache.
    pub cache: u32,
}

/// What the kernel says of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Every CPU.
    pub cpus: BTreeMap<u32, CpuPlace>,
    /// Those that ranks may use.
    pub allowed: BTreeSet<u32>,
    /// The NUMA node of each GPU that ranks see, in their order.
    pub devices: Vec<u32>,
}

/// A rank that cannot be bound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumaError {
    /// The kernel says nothing of its CPUs.
    #[error("--numa-binding: this machine does not say where its CPUs sit")]
    Unknown,
    /// More ranks than GPUs.
    #[error(
        "--numa-binding: local rank {local_rank} has no GPU: {devices} are visible, and ranks go by their number"
    )]
    NoDevice {
        /// The rank.
        local_rank: u32,
        /// GPUs.
        devices: usize,
    },
    /// The allocation has none there.
    #[error(
        "--numa-binding: no CPU of NUMA node {node} may be used, and the GPU of local rank {local_rank} is there"
    )]
    NoCpus {
        /// The rank.
        local_rank: u32,
        /// The NUMA node.
        node: u32,
    },
    /// Cores cannot be halved.
    #[error("--numa-binding exclusive: NUMA node {node} has {cores} cores for {devices} ranks")]
    TooFewCores {
        /// The NUMA node.
        node: u32,
        /// Cores that may be used.
        cores: usize,
        /// Ranks that share them.
        devices: usize,
    },
}

impl Machine {
    /// Where no GPU is visible ranks are spread over the NUMA nodes whose CPUs may be used, neighbours together.
    pub fn spread(&mut self, ranks: u32) {
        let usable = self.allowed.iter().filter_map(|cpu| self.cpus.get(cpu)).map(|place| place.node);
        let nodes: Vec<u32> = usable.collect::<BTreeSet<u32>>().into_iter().collect();
        let all = ranks as usize;
        self.devices = (0..all).filter_map(|rank| nodes.get(rank * nodes.len() / all).copied()).collect();
    }

    /// The CPUs of one rank.
    ///
    /// # Errors
    /// It has no GPU, or there is no CPU for it.
    pub fn bind(&self, way: NumaBinding, local_rank: u32) -> Result<Vec<u32>, NumaError> {
        let index = local_rank as usize;
        let Some(node) = self.devices.get(index).copied() else {
            return Err(NumaError::NoDevice { local_rank, devices: self.devices.len() });
        };
        let of_node = |node: u32| self.usable(move |place| place.node == node);
        // Ranks before this one whose GPU is on the same NUMA node.
        let before = self.devices.iter().take(index).filter(|there| **there == node).count();
        let cpus = match way {
            NumaBinding::Node => of_node(node),
            NumaBinding::Socket => {
                // Whose first CPU is on the socket belongs to it.
                let socket = self.socket(node);
                self.usable(|place| self.socket(place.node) == socket)
            }
            NumaBinding::Exclusive => {
                let sharing = self.devices.iter().filter(|there| **there == node).count();
                let cores = self.grouped(&of_node(node), |place| place.core);
                if cores.len() < sharing && !cores.is_empty() {
                    return Err(NumaError::TooFewCores { node, cores: cores.len(), devices: sharing });
                }
                let (each, more) = (cores.len() / sharing, cores.len() % sharing);
                let from = before * each + before.min(more);
                let count = each + usize::from(before < more);
                cores.into_values().skip(from).take(count).flatten().collect()
            }
            NumaBinding::CoreComplex => {
                let caches = self.grouped(&of_node(node), |place| place.cache);
                // The largest first, then by number.
                let mut caches: Vec<(u32, Vec<u32>)> = caches.into_iter().collect();
                caches.sort_by_key(|(first, cpus)| (std::cmp::Reverse(cpus.len()), *first));
                let count = caches.len().max(1);
                caches.into_iter().nth(before % count).map(|(_, cpus)| cpus).unwrap_or_default()
            }
        };
        let mut cpus = cpus;
        cpus.sort_unstable();
        if cpus.is_empty() { Err(NumaError::NoCpus { local_rank, node }) } else { Ok(cpus) }
    }

    fn socket(&self, node: u32) -> Option<u32> {
        self.cpus.values().find(|place| place.node == node).map(|place| place.socket)
    }

    fn usable(&self, wanted: impl Fn(&CpuPlace) -> bool) -> Vec<u32> {
        let all = self.cpus.iter().filter(|(cpu, place)| self.allowed.contains(cpu) && wanted(place));
        all.map(|(cpu, _)| *cpu).collect()
    }

    fn grouped(&self, cpus: &[u32], by: impl Fn(&CpuPlace) -> u32) -> BTreeMap<u32, Vec<u32>> {
        let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for cpu in cpus {
            if let Some(place) = self.cpus.get(cpu) {
                groups.entry(by(place)).or_default().push(*cpu);
            }
        }
        groups
    }
}

/// A list of the kernel's: `0-3,8,10-11`. What is no number is left out; more CPUs than any machine has are, too.
#[must_use]
pub fn cpu_list(text: &str) -> BTreeSet<u32> {
    const MOST: u32 = 1 << 16;
    let mut all = BTreeSet::new();
    for part in text.trim().split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(from), Ok(to)) = (from.trim().parse::<u32>(), to.trim().parse::<u32>()) {
            all.extend(from..=to.min(MOST));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sockets of two NUMA nodes of four cores with two threads each: CPU c and c+16 share a core; two cores share
    /// a cache.
    fn machine(devices: &[u32]) -> Machine {
        let place = |cpu: u32| {
            let core = cpu % 16;
            CpuPlace { node: core / 4, socket: core / 8, core, cache: core / 2 * 2 }
        };
        let cpus: BTreeMap<u32, CpuPlace> = (0..32).map(|cpu| (cpu, place(cpu))).collect();
        Machine { allowed: cpus.keys().copied().collect(), cpus, devices: devices.to_vec() }
    }

    #[test]
    fn torchruns_rules() {
        use NumaBinding::{CoreComplex, Exclusive, Node, Socket};
        // Devices 0 and 1 at node 0, 2 at node 3, 3 and 4 at node 1.
        let machine = machine(&[0, 0, 3, 1, 1]);
        for (way, rank, want) in [
            (Node, 0, "0,1,2,3,16,17,18,19"),
            (Node, 2, "12,13,14,15,28,29,30,31"),
            (Socket, 2, "8,9,10,11,12,13,14,15,24,25,26,27,28,29,30,31"),
            (Exclusive, 0, "0,1,16,17"),
            (Exclusive, 1, "2,3,18,19"),
            (Exclusive, 2, "12,13,14,15,28,29,30,31"),
            (CoreComplex, 0, "0,1,16,17"),
            (CoreComplex, 1, "2,3,18,19"),
            (CoreComplex, 3, "4,5,20,21"),
        ] {
            let got: Vec<String> = machine.bind(way, rank).unwrap().iter().map(u32::to_string).collect();
            assert_eq!(got.join(","), want, "{way:?} {rank}");
        }
        assert_eq!(machine.bind(Node, 5), Err(NumaError::NoDevice { local_rank: 5, devices: 5 }));
    }

    #[test]
    fn only_what_may_be_used() {
        let mut machine = machine(&[0, 0, 0]);
        machine.allowed = [0, 1, 2, 3].into();
        // Four cores for three ranks: the first one gets one more.
        let all: Vec<_> = (0..3).map(|rank| machine.bind(NumaBinding::Exclusive, rank).unwrap()).collect();
        assert_eq!(all, [vec![0, 1], vec![2], vec![3]]);
        // The larger part of a cache comes first.
        machine.allowed = [1, 2, 3].into();
        assert_eq!(machine.bind(NumaBinding::CoreComplex, 0), Ok(vec![2, 3]));
        assert_eq!(machine.bind(NumaBinding::CoreComplex, 1), Ok(vec![1]));
        assert_eq!(machine.bind(NumaBinding::CoreComplex, 2), Ok(vec![2, 3]));
        machine.allowed = [1, 2].into();
        let few = NumaError::TooFewCores { node: 0, cores: 2, devices: 3 };
        assert_eq!(machine.bind(NumaBinding::Exclusive, 0), Err(few));
        machine.allowed = [9].into();
        for way in NumaBinding::ALL {
            let none = NumaError::NoCpus { local_rank: 0, node: 0 };
            assert_eq!(machine.bind(way, 0), Err(none), "{way:?}");
        }
    }

    #[test]
    fn without_gpus_ranks_are_spread() {
        let mut machine = machine(&[]);
        machine.spread(8);
        assert_eq!(machine.devices, [0, 0, 1, 1, 2, 2, 3, 3]);
        machine.allowed = [5, 9].into();
        machine.spread(3);
        assert_eq!(machine.devices, [1, 1, 2]);
        machine.allowed.clear();
        machine.spread(1);
        assert!(machine.bind(NumaBinding::Node, 0).is_err());
    }

    #[test]
    fn lists() {
        let list = |text| cpu_list(text).into_iter().collect::<Vec<u32>>();
        assert_eq!(list("0-2,8,10-11\n"), [0, 1, 2, 8, 10, 11]);
        assert_eq!(list(""), [0_u32; 0]);
        assert_eq!(list("x,3-,2-1, 5 "), [5]);
        assert_eq!(list("7-4294967295").len(), 65_530);
        for way in NumaBinding::ALL {
            assert_eq!(NumaBinding::named(way.name()), Some(way));
        }
    }
}
