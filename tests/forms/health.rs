//! The gate before a world, with programs of the user.

use std::fs;

use crate::slurm::{Job, LONG};
use crate::support::leftovers;

/// Says who it is, in one line of a file that all ranks append to.
const SAY: &str = "open('ranks', 'a').write('{SLURMD_NODENAME} '.format(**os.environ))";

/// A run of two of three nodes with these options; its ranks' nodes, sorted, and what it said.
fn run(options: &[&str]) -> (Vec<String>, String) {
    let job = Job::new(3);
    let mut command = job.relight();
    command.args(["run", "--nnodes=2", "--spares=1", "--lost-after", "6"]).args(options);
    let ended = command.arg(job.script(SAY)).spawn().wait(LONG);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let text = fs::read_to_string(job.scene.path("exp/ranks")).unwrap();
    let mut nodes: Vec<String> = text.split_ascii_whitespace().map(str::to_owned).collect();
    nodes.sort();
    leftovers::assert_none(&job.scene);
    (nodes, ended.stderr)
}

#[test]
fn a_node_whose_program_says_no_gets_no_ranks() {
    let bad = "test \"$SLURMD_NODENAME\" != n2 || { echo 'ERROR: GPU 3 is gone'; exit 1; }";
    let (nodes, said) = run(&["--health-cmd", "echo fine", "--health-cmd", bad]);
    assert_eq!(nodes, ["n1", "n3"], "{said}");
    assert!(said.contains("n2 fails the check test ") && said.contains("ERROR: GPU 3 is gone"), "{said}");
}

/// Scenario 56.
#[test]
fn a_program_that_hangs_crashes_or_talks_nonsense_takes_nobody_out() {
    let hangs = "test \"$SLURMD_NODENAME\" != n1 || sleep 1000";
    let crashes = "test \"$SLURMD_NODENAME\" != n2 || kill -SEGV $$";
    let babbles = "test \"$SLURMD_NODENAME\" != n2 || { head -c 2000000 /dev/urandom; exit 1; }";
    let options =
        ["--health-timeout=1", "--health-cmd", hangs, "--health-cmd", crashes, "--health-cmd", babbles];
    let (nodes, said) = run(&options);
    assert_eq!(nodes, ["n1", "n2"], "{said}");
    assert!(
        said.contains("n1 gives no answer to the check") && said.contains("n2 gives no answer"),
        "{said}"
    );
}

/// Scenario 55: of three nodes two; the third may come later.
#[test]
fn a_program_that_says_no_almost_everywhere_blames_nobody() {
    let bad = "test \"$SLURMD_NODENAME\" = n3 || { echo 'ERROR: no license'; exit 1; }";
    let (nodes, said) = run(&["--health-cmd", bad]);
    assert_eq!(nodes, ["n1", "n2"], "{said}");
    assert!(said.contains("nodes fail a check together (n1 and n2): none is blamed"), "{said}");
}
