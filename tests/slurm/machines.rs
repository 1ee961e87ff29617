//! Machines that no Slurm brings together, with names and addresses of their own: the nodes of a cluster, without its Slurm.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Child;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::support::wait::wait_for;

const LONG: Duration = Duration::from_secs(90);

/// Machines with a secret and a launcher that is called torchrun.
fn machines(count: u32) -> Option<Cluster> {
    let cluster = Cluster::up(count)?;
    let shared = cluster.shared();
    std::os::unix::fs::symlink("relight", shared.join("torchrun")).unwrap();
    fs::write(shared.join("secret"), "the same on all machines").unwrap();
    fs::set_permissions(shared.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    Some(cluster)
}

/// torchrun's own line, on one of them.
fn torchrun(cluster: &Cluster, node: u32, rank: &str, trainer: &[&str]) -> Child {
    let mut command = cluster.exec(&["--node", &node.to_string()]);
    command.args([
        "./torchrun",
        "--nnodes=2",
        "--nproc-per-node=2",
        "--master-addr=n1",
        "--secret-file=secret",
    ]);
    command.args(["--node-rank", rank, "toy_trainer.py"]).args(trainer);
    let said = fs::File::create(said_at(cluster, node)).unwrap();
    command.stdout(said.try_clone().unwrap()).stderr(said).spawn().unwrap()
}

fn said_at(cluster: &Cluster, node: u32) -> std::path::PathBuf {
    cluster.shared().join(format!("said-{node}"))
}

fn said(cluster: &Cluster, node: u32) -> String {
    fs::read_to_string(said_at(cluster, node)).unwrap_or_default()
}

fn ended(cluster: &Cluster, node: u32, mut child: Child) -> Option<i32> {
    wait_for("a machine to end", LONG, || match child.try_wait().unwrap() {
        Some(status) => Ok(status.code()),
        None => Err(said(cluster, node)),
    })
}

/// As a person at the machine would.
fn stop(cluster: &Cluster, node: u32) {
    cluster.on_node(node, "kill -TERM $(pgrep -o -f '^[.]/torchrun')");
}

#[test]
fn torchruns_line_on_two_machines() {
    let Some(cluster) = machines(2) else { return };
    let log = cluster.shared().join("commit.log");
    let log = log.to_str().unwrap();
    let trainer = ["--steps=20", "--step-time=0.02", "--ckpt-every=0", "--log", log];
    // The second one is there first.
    let second = torchrun(&cluster, 2, "1", &trainer);
    let first = torchrun(&cluster, 1, "0", &trainer);
    let codes = (ended(&cluster, 1, first), ended(&cluster, 2, second));
    assert_eq!(codes, (Some(0), Some(0)), "{}\n--\n{}", said(&cluster, 1), said(&cluster, 2));
    let log = crate::commit_log::CommitLog::read(cluster.shared().join("commit.log").as_path());
    let mut ranks: Vec<u64> = log.of("start").map(|event| event.rank).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, [0, 1, 2, 3], "{}", said(&cluster, 1));
    cluster.nothing_left([1, 2], Duration::from_secs(5));
}

#[test]
fn of_two_machines_with_the_number_0_one_says_so_and_goes() {
    let Some(cluster) = machines(2) else { return };
    let first = torchrun(&cluster, 1, "0", &["--steps=1"]);
    wait_for("the first machine to lead", LONG, || {
        let shown = said(&cluster, 1);
        if shown.contains("logs, journal") { Ok(()) } else { Err(shown) }
    });
    let twin = torchrun(&cluster, 2, "0", &["--steps=1"]);
    assert_eq!(ended(&cluster, 2, twin), Some(2), "{}", said(&cluster, 2));
    let shown = said(&cluster, 2);
    assert!(shown.contains("--node-rank 0 leads, and another machine does at n1, port 29500"), "{shown}");
    stop(&cluster, 1);
    assert_eq!(ended(&cluster, 1, first), Some(143), "{}", said(&cluster, 1));
    // Alone with an address that is another machine's it leads, and says what is odd.
    let alone = torchrun(&cluster, 2, "0", &["--steps=1"]);
    wait_for("the second machine to lead", LONG, || {
        let shown = said(&cluster, 2);
        if shown.contains("logs, journal") { Ok(()) } else { Err(shown) }
    });
    let shown = said(&cluster, 2);
    assert!(shown.contains("warning: this machine leads (--node-rank 0), and n1 is no address"), "{shown}");
    stop(&cluster, 2);
    assert_eq!(ended(&cluster, 2, alone), Some(143), "{}", said(&cluster, 2));
    cluster.nothing_left([1, 2], Duration::from_secs(5));
}
