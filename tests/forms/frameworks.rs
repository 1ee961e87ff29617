//! JAX finds its ranks by itself: its own code, as published, asks under the environment that ranks get.
//!
//! Needs a Python with jax, named by RELIGHT_JAX_PYTHON: `scripts/test` makes one. Without it the test says so and is
//! counted as skipped. Lightning's detection needs torch and is asked in `tests/torch`.

use std::fs;

use crate::slurm::{Job, LONG};
use crate::support::{jax, leftovers};

/// Joins with no word of its own but where the coordinator is: here all nodes are one machine and have no names.
const JAX: &str = "os.environ['JAX_PLATFORMS'] = 'cpu'
import jax
from jax._src.clusters import ClusterEnv
found = [env.name for env in ClusterEnv._cluster_types if not env.opt_in_only_method and env.is_env_present()]
slurm = next(env for env in ClusterEnv._cluster_types if env.name == 'slurm')
first = slurm.get_coordinator_address(10, None).split(':')[0]
jax.distributed.initialize(coordinator_address='127.0.0.1:' + os.environ['MASTER_PORT'])
told = ' '.join(os.environ[name] for name in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK'))
local = slurm.get_local_process_id()
open('ranks', 'a').write(f'{told}: {found[0]} {jax.process_index()} {jax.process_count()} {local} {first}\\n')
jax.distributed.shutdown()";

#[test]
fn jax_finds_its_ranks() {
    let Some(python) = jax::python() else { return };
    let job = Job::new(2);
    let mut command = job.run(JAX);
    // The port of the coordinator is rank 0's to listen on.
    command.env("PYTHON_EXEC", python).env("RELIGHT_RDZV_STORE", "rank0");
    command.env("SLURM_NTASKS_PER_NODE", "2").env("SLURM_NTASKS", "4");
    let ended = command.spawn().wait(LONG);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    let text = fs::read_to_string(job.scene.path("exp/ranks")).unwrap();
    let mut ranks: Vec<&str> = text.lines().collect();
    ranks.sort_unstable();
    assert_eq!(
        ranks,
        ["0 4 0: slurm 0 4 0 n1", "1 4 1: slurm 1 4 1 n1", "2 4 0: slurm 2 4 0 n1", "3 4 1: slurm 3 4 1 n1"]
    );
    leftovers::assert_none(&job.scene);
}
