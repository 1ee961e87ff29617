//! What ranks see of Slurm. Many programs ask Slurm's variables for their place before any others, and those of an agent
//! would tell every rank of a node the same.

use serde::{Deserialize, Serialize};

use super::rank::RankNumbers;
use super::{EnvVar, FOREIGN_LAUNCHERS, OF_TASKS, OF_THE_AGENT, among};
use crate::domain::hostlist;
use crate::domain::ids::{LocalRank, NodeName};
use crate::domain::record::Member;
use crate::domain::slurm_env::by_node;
use crate::domain::wire::World;

/// `--slurm-env`: what ranks see of Slurm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlurmEnv {
    /// What they would see if `srun` had started each of them.
    #[default]
    Task,
    /// The job alone, and nothing of its tasks.
    Hide,
    /// What the agent sees.
    Keep,
}

impl SlurmEnv {
    /// Every value.
    pub const ALL: [Self; 3] = [Self::Task, Self::Hide, Self::Keep];

    /// As it is typed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Hide => "hide",
            Self::Keep => "keep",
        }
    }

    /// What people are told about it before a run.
    #[must_use]
    pub fn sentence(self) -> String {
        let see = match self {
            Self::Task => "ranks see SLURM_PROCID/LOCALID/NTASKS as under srun",
            Self::Hide => "ranks see no SLURM_PROCID/LOCALID/NTASKS",
            Self::Keep => "ranks see SLURM_PROCID/LOCALID/NTASKS of their agent",
        };
        format!("{see} (--slurm-env {})", self.name())
    }
}

/// Does a rank not inherit this variable? `in_job`: there is a job whose view is asked for.
pub(super) fn is_hidden(name: &str, mode: SlurmEnv, in_job: bool) -> bool {
    let foreign = || {
        FOREIGN_LAUNCHERS.iter().any(|prefix| {
            name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
        })
    };
    match mode {
        _ if !in_job => false,
        SlurmEnv::Keep => false,
        SlurmEnv::Hide => among(OF_TASKS, name) || foreign(),
        SlurmEnv::Task => among(OF_THE_AGENT, name) || foreign(),
    }
}

/// What all ranks of a node share.
pub(super) struct View<'a> {
    pub(super) world: &'a World,
    pub(super) local_rank: LocalRank,
    pub(super) numbers: RankNumbers,
    /// CPUs of one rank, where the agent's environment tells how many a task has.
    pub(super) cpus: Option<u32>,
}

impl View<'_> {
    /// Slurm's variables as if `srun` had started one task for each rank.
    pub(super) fn variables(&self) -> Vec<(EnvVar, String)> {
        let mut members: Vec<&Member> = self.world.members.iter().collect();
        members.sort_by_key(|member| member.slot);
        let names: Vec<&NodeName> = members.iter().map(|member| &member.node).collect();
        let counts = by_node(members.iter().map(|member| member.nproc));
        let nodes = hostlist::compress(names);
        let n = &self.numbers;
        let first = n.rank.0.saturating_sub(self.local_rank.0);
        let ids: Vec<String> = (0..n.local_world).map(|no| first.saturating_add(no).to_string()).collect();
        let (world, groups) = (n.world.to_string(), n.groups.to_string());
        let mut all = vec![
            (super::SLURM_PROCID, n.rank.to_string()),
            (super::SLURM_LOCALID, self.local_rank.to_string()),
            (super::SLURM_NODEID, n.group_rank.to_string()),
            (super::SLURM_NTASKS, world.clone()),
            (super::SLURM_NPROCS, world.clone()),
            (super::SLURM_NTASKS_PER_NODE, n.local_world.to_string()),
            (super::SLURM_TASKS_PER_NODE, counts.clone()),
            (super::SLURM_NNODES, groups.clone()),
            (super::SLURM_NODELIST, nodes.clone()),
            (super::SLURM_STEP_NUM_TASKS, world),
            (super::SLURM_STEP_NUM_NODES, groups),
            (super::SLURM_STEP_TASKS_PER_NODE, counts),
            (super::SLURM_STEP_NODELIST, nodes),
            (super::SLURM_GTIDS, ids.join(",")),
        ];
        all.extend(self.cpus.map(|cpus| (super::SLURM_CPUS_PER_TASK, cpus.to_string())));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_inherited() {
        use SlurmEnv::{Hide, Keep, Task};
        for (name, task, hide) in [
            ("SLURM_JOB_ID", false, false),
            ("SLURM_JOB_NODELIST", false, false),
            ("SLURM_NODELIST", false, false),
            ("SLURM_SUBMIT_DIR", false, false),
            ("SLURM_PROCID", false, true),
            ("SLURM_STEP_ID", false, true),
            ("SLURM_STEP_GPUS", false, true),
            ("SLURM_STEPID", false, true),
            ("SLURM_NTASKS_PER_NODE", true, true),
            ("SLURM_NTASKS_PER_GPU", true, true),
            ("SLURM_TASK_PID", true, true),
            ("SLURM_CPUS_PER_TASK", false, true),
            ("PMI_RANK", true, true),
            ("PMI2_RANK", true, true),
            ("PMIX_NAMESPACE", true, true),
            ("OMPI_COMM_WORLD_RANK", true, true),
            ("PMIGHTY", false, false),
            ("OMPIX", false, false),
            ("RANK", false, false),
        ] {
            assert_eq!(
                (is_hidden(name, Task, true), is_hidden(name, Hide, true), is_hidden(name, Keep, true)),
                (task, hide, false),
                "{name}"
            );
            assert!(!is_hidden(name, Task, false) && !is_hidden(name, Hide, false), "{name} outside a job");
        }
    }

    #[test]
    fn sentences() {
        assert_eq!(
            SlurmEnv::Task.sentence(),
            "ranks see SLURM_PROCID/LOCALID/NTASKS as under srun (--slurm-env task)"
        );
        assert!(SlurmEnv::ALL.iter().all(|mode| mode.sentence().ends_with(&format!("{})", mode.name()))));
    }
}
