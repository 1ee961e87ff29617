//! Lightning finds its ranks by itself: its own code, as published, asks under the environment that ranks get in a job.

use std::fs;
use std::process::Command;

use crate::RUN;
use crate::slurm::Job;
use crate::support::leftovers;

/// Which environment Lightning chooses, and what each of the two that it could choose says.
const ASKS: &str = "import warnings
warnings.simplefilter('ignore')
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment
def says(env):
    return ' '.join(str(part) for part in (env.global_rank(), env.world_size(), env.local_rank(), env.node_rank()))
def slurm():
    if not SLURMEnvironment.detect():
        return 'no'
    env = SLURMEnvironment()
    env.validate_settings(num_devices=2, num_nodes=2)
    return says(env)
chosen = Fabric(accelerator='cpu', devices=2, num_nodes=2, strategy='ddp')._connector.cluster_environment
told = ' '.join(os.environ[name] for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'GROUP_RANK'))
line = f'{told} | {type(chosen).__name__} {says(chosen)} | {slurm()}\\n'
open('ranks', 'a').write(line)";

#[test]
fn lightning_finds_its_ranks() {
    let Some(python) = crate::python() else { return };
    let has = Command::new(&python).args(["-c", "import lightning_fabric"]).output();
    if !has.is_ok_and(|said| said.status.success()) {
        eprintln!("skipped: this Python has no lightning_fabric (`scripts/torch-env` could not install it)");
        return;
    }
    for mode in ["task", "hide"] {
        let job = Job::new(2);
        let mut command = job.relight();
        command.args(["run", "--lost-after", "6", "--slurm-env", mode]).arg(job.script(ASKS));
        command.env("PYTHON_EXEC", &python);
        command.env("SLURM_NTASKS_PER_NODE", "2").env("SLURM_NTASKS", "4").env("SLURM_JOB_NAME", "train");
        let ended = command.spawn().wait(RUN);
        assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
        let text = fs::read_to_string(job.scene.path("exp/ranks")).unwrap();
        let mut ranks: Vec<&str> = text.lines().collect();
        ranks.sort_unstable();
        let wanted: Vec<String> = ["0 4 0 0", "1 4 1 0", "2 4 0 1", "3 4 1 1"]
            .iter()
            .map(|rank| {
                let slurm = if mode == "task" { rank } else { "no" };
                format!("{rank} | TorchElasticEnvironment {rank} | {slurm}")
            })
            .collect();
        assert_eq!(ranks, wanted, "{mode}");
        leftovers::assert_none(&job.scene);
    }
}
