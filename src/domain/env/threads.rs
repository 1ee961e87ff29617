//! How many CPUs are one rank's: `OMP_NUM_THREADS` where nobody sets it.

/// What is known of the CPUs of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpus {
    /// In a job of Slurm.
    pub in_job: bool,
    /// Called by the name torchrun.
    pub as_torchrun: bool,
    /// CPUs that the launcher may run on.
    pub usable: u32,
    /// CPUs of the job or step on this node, where Slurm says it: without containment more may be usable.
    pub allotted: Option<u32>,
    /// Tasks per node that the job's header asks for.
    pub header_tasks: Option<u32>,
    /// CPUs per task that the job's header asks for.
    pub header_cpus: Option<u32>,
}

/// CPUs of each of `nproc` ranks. `None`: nobody shall be told, as under torchrun with one rank.
///
/// In a job: what the header asks for a task, where ranks are in the place of its tasks; else an even share of the node's,
/// at least 1. Outside: torchrun's 1 under its name, else the same share.
#[must_use]
pub fn threads(cpus: &Cpus, nproc: u32) -> Option<u32> {
    let there = cpus.allotted.unwrap_or(u32::MAX).min(cpus.usable);
    let share = there.checked_div(nproc).unwrap_or(0).max(1);
    match cpus {
        Cpus { in_job: true, header_tasks, header_cpus: Some(asked), .. }
            if header_tasks.unwrap_or(1) == nproc && *asked > 0 =>
        {
            Some(*asked)
        }
        Cpus { in_job: true, .. } => Some(share),
        _ if nproc <= 1 => None,
        Cpus { as_torchrun: true, .. } => Some(1),
        _ => Some(share),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_a_rank() {
        let job = Cpus { in_job: true, usable: 96, ..Cpus::default() };
        let outside = Cpus { in_job: false, ..job };
        let header = |tasks, cpus| Cpus { header_tasks: tasks, header_cpus: cpus, ..job };
        for (cpus, nproc, want) in [
            (job, 8, Some(12)),
            (job, 1, Some(96)),
            (job, 100, Some(1)),
            (Cpus { allotted: Some(16), ..job }, 8, Some(2)),
            (Cpus { allotted: Some(128), ..job }, 8, Some(12)),
            (Cpus { usable: 0, ..job }, 0, Some(1)),
            // The header's ranks are its tasks.
            (header(Some(8), Some(10)), 8, Some(10)),
            // One task for all ranks: what it asks for is shared.
            (header(Some(1), Some(96)), 8, Some(12)),
            (header(None, Some(96)), 8, Some(12)),
            (header(Some(8), None), 8, Some(12)),
            (header(Some(8), Some(0)), 8, Some(12)),
            (header(Some(4), Some(24)), 8, Some(12)),
            (Cpus { as_torchrun: true, ..job }, 8, Some(12)),
            (outside, 8, Some(12)),
            (outside, 1, None),
            (Cpus { as_torchrun: true, ..outside }, 8, Some(1)),
            (Cpus { as_torchrun: true, ..outside }, 1, None),
        ] {
            assert_eq!(threads(&cpus, nproc), want, "{cpus:?}, {nproc} ranks");
        }
    }
}
