//! The line of `srun` that starts agents.

use std::ffi::OsString;

use super::line::SrunLine;
use crate::domain::env;
use crate::domain::hostlist;
use crate::domain::ids::NodeName;

/// How long Slurm may look for room for one agent, in seconds: without a limit it waits for ever without a word.
const IMMEDIATE: u32 = 10;

/// Everything that the lines of one supervisor have in common.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The user's own options.
    pub line: SrunLine,
    /// What every node runs: `relight run …`.
    pub command: Vec<String>,
    /// CPUs that each agent is to have: all of its node's. `None`: Slurm gives them without being asked.
    pub cpus: Option<u32>,
    /// GPUs that each agent is to have, where the job's own request would give it fewer.
    pub gpus: Option<u32>,
    /// This `srun` knows `--oom-kill-step`.
    pub oom_kill_step: bool,
    /// Variables for the agents beside those of this process.
    pub tell: Vec<(&'static str, String)>,
}

impl Plan {
    /// The line for these nodes. `immediate`: it fails where Slurm has no room now.
    #[must_use]
    pub fn argv(&self, nodes: &[NodeName], immediate: bool) -> Vec<OsString> {
        let mut argv = vec!["srun".to_owned()];
        argv.extend(self.line.options.iter().cloned());
        argv.extend(
            [
                "--no-kill",
                "--kill-on-bad-exit=0",
                "--wait=0",
                "--overlap",
                "--mpi=none",
                "--cpu-bind=none",
                "--input=none",
                "--unbuffered",
            ]
            .map(str::to_owned),
        );
        argv.push(format!("--export={}", self.export()));
        if self.oom_kill_step {
            argv.push("--oom-kill-step=0".to_owned());
        }
        if let Some(cpus) = self.cpus.filter(|_| !self.line.has_cpus) {
            argv.push(format!("--cpus-per-task={cpus}"));
        }
        if let Some(gpus) = self.gpus.filter(|_| !self.line.has_gpus) {
            argv.push(format!("--gpus-per-node={gpus}"));
        }
        if immediate {
            argv.push(format!("--immediate={IMMEDIATE}"));
        }
        argv.push("--ntasks-per-node=1".to_owned());
        argv.push(format!("--nodes={}", nodes.len()));
        argv.push(format!("--ntasks={}", nodes.len()));
        argv.push(format!("--nodelist={}", hostlist::compress(nodes)));
        argv.extend(self.command.iter().cloned());
        argv.into_iter().map(OsString::from).collect()
    }

    /// The environment of `srun`, made from that of this process.
    #[must_use]
    pub fn env(&self, own: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
        let told = |name: &str| self.tell.iter().any(|(other, _)| *other == name);
        let keep = |name: &OsString| !name.to_str().is_some_and(|name| env::srun_reads(name) || told(name));
        let kept = own.iter().filter(|(name, _)| keep(name)).cloned();
        kept.chain(self.tell.iter().map(|(name, value)| (name.into(), value.into()))).collect()
    }

    /// What the agents inherit: what the user wants, and always what we tell them.
    fn export(&self) -> String {
        match self.line.export.as_deref() {
            None => "ALL".to_owned(),
            Some(all) if all == "ALL" || all.starts_with("ALL,") => all.to_owned(),
            Some(some) => {
                // NONE and NIL stand for nothing at all only where they stand alone.
                let listed =
                    some.split(',').filter(|name| !name.is_empty() && *name != "NONE" && *name != "NIL");
                listed.chain(self.tell.iter().map(|(name, _)| *name)).collect::<Vec<_>>().join(",")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(options: &str) -> Plan {
        let words: Vec<String> = options.split_whitespace().map(str::to_owned).collect();
        Plan {
            line: SrunLine::parse(&words).unwrap(),
            command: ["relight", "run", "train.py"].map(str::to_owned).to_vec(),
            cpus: Some(96),
            tell: vec![(env::RELIGHT_SUPERVISED.name, "1".into())],
            ..Plan::default()
        }
    }

    fn argv(plan: &Plan, nodes: &str, immediate: bool) -> String {
        let argv = plan.argv(&hostlist::expand(nodes).unwrap(), immediate);
        argv.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    const FLAGS: &str = "--no-kill --kill-on-bad-exit=0 --wait=0 --overlap --mpi=none --cpu-bind=none --input=none --unbuffered";

    #[test]
    fn the_users_options_come_first_and_ours_name_everything() {
        let mut plan = plan("--container-image=llm.sqsh -N2 -l");
        assert_eq!(
            argv(&plan, "n[1-2]", false),
            format!(
                "srun --container-image=llm.sqsh -l {FLAGS} --export=ALL --cpus-per-task=96 --ntasks-per-node=1 --nodes=2 \
                 --ntasks=2 --nodelist=n[1-2] relight run train.py"
            )
        );
        plan.oom_kill_step = true;
        plan.cpus = None;
        plan.gpus = Some(8);
        assert_eq!(
            argv(&plan, "n2", true),
            format!(
                "srun --container-image=llm.sqsh -l {FLAGS} --export=ALL --oom-kill-step=0 --gpus-per-node=8 --immediate=10 \
                 --ntasks-per-node=1 --nodes=1 --ntasks=1 --nodelist=n2 relight run train.py"
            )
        );
    }

    #[test]
    fn what_the_user_says_of_cpus_and_gpus_stays() {
        let mut plan = plan("-c 4 --gres=gpu:2");
        plan.gpus = Some(8);
        let line = argv(&plan, "n1", false);
        assert!(
            line.starts_with("srun -c 4 --gres=gpu:2 ")
                && !line.contains("per-task")
                && !line.contains("gpus-per")
        );
    }

    #[test]
    fn agents_inherit_what_they_need_whatever_is_exported() {
        for (option, expected) in [
            ("--export=ALL,A=1", "ALL,A=1"),
            ("--export=A,B=2", "A,B=2,RELIGHT_SUPERVISED"),
            ("--export=NONE", "RELIGHT_SUPERVISED"),
        ] {
            assert!(argv(&plan(option), "n1", false).contains(&format!(" --export={expected} ")), "{option}");
        }
    }

    #[test]
    fn sizes_of_the_job_are_no_options_of_ours() {
        let own = [
            ("SLURM_JOB_ID", "7"),
            ("SLURM_JOB_NODELIST", "n[1-2]"),
            ("SLURM_NTASKS", "16"),
            ("SLURM_NTASKS_PER_NODE", "8"),
            ("SLURM_CPU_BIND_LIST", "0xff"),
            ("SLURM_NNODES", "2"),
            ("RELIGHT_SUPERVISED", "0"),
            ("HOME", "/home/a"),
        ];
        let own: Vec<(OsString, OsString)> = own.iter().map(|(k, v)| (k.into(), v.into())).collect();
        let env: Vec<String> =
            plan("").env(&own).iter().map(|(k, v)| format!("{k:?}={v:?}").replace('"', "")).collect();
        assert_eq!(
            env,
            ["SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[1-2]", "HOME=/home/a", "RELIGHT_SUPERVISED=1"]
        );
    }
}
