//! Several machines without Slurm, each with directories of its own: here all of them are this one, under other names.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::leftovers;
use crate::support::relight::{Ended, RelightCommand, Running, Scene, binary};
use crate::support::wait::wait_for;

const LONG: Duration = Duration::from_secs(90);
/// Who it is, in a line of a file that all ranks append to.
const SAY: &str = "import os, sys, time
open(sys.argv[1], 'a').write('{RANK} {WORLD_SIZE} {GROUP_RANK} {TORCHELASTIC_RESTART_COUNT} {MASTER_PORT}\\n'.format(**os.environ))
";

/// One machine.
struct Machine {
    scene: Scene,
}

impl Machine {
    fn new() -> Self {
        Self { scene: Scene::new() }
    }

    /// `relight run` under this host name, with the script that all have.
    fn run(&self, name: &str, options: &[&str], script: &str, said: &PathBuf) -> RelightCommand {
        fs::write(self.scene.path("exp").join("train.py"), format!("{SAY}{script}\n")).unwrap();
        let secret = self.scene.path("secret");
        fs::write(&secret, "the same on all machines").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let mut command = RelightCommand::bare(&self.scene);
        command.env("SLURMD_NODENAME", name);
        command
            .args(["run", "--lost-after", "6", "--secret-file"])
            .arg(secret)
            .args(options)
            .arg("train.py")
            .arg(said);
        command
    }

    fn shown(&self) -> String {
        fs::read_to_string(self.scene.path("stderr")).unwrap_or_default()
    }
}

/// A port that is free now.
fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

fn lines(said: &PathBuf) -> Vec<String> {
    let text = fs::read_to_string(said).unwrap_or_default();
    let mut lines: Vec<String> =
        text.lines().map(|line| line.rsplit_once(' ').map_or("", |(who, _)| who).to_owned()).collect();
    lines.sort();
    lines
}

fn wait_for_lines(said: &PathBuf, count: usize, machines: &[&Machine]) {
    wait_for("ranks to say who they are", LONG, || {
        let found = lines(said);
        let shown = || machines.iter().map(|m| m.shown()).collect::<Vec<_>>().join("\n--\n");
        if found.len() >= count { Ok(()) } else { Err(format!("{found:?}\n{}", shown())) }
    });
}

fn both(first: Running, second: Running) -> (Ended, Ended) {
    (first.wait(LONG), second.wait(LONG))
}

#[test]
fn machines_with_numbers_meet_where_they_were_told() {
    let (one, two) = (Machine::new(), Machine::new());
    let said = one.scene.path("exp").join("said");
    let port = free_port();
    let options = |rank: &'static str| {
        [
            "--nnodes=2",
            "--nproc-per-node=2",
            "--node-rank",
            rank,
            "--master-addr=127.0.0.1",
            "--master-port",
            port.as_str(),
        ]
        .map(str::to_owned)
    };
    let run = |machine: &Machine, name: &str, rank| {
        let options = options(rank);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        machine.run(name, &options, "", &said).spawn()
    };
    // The second one is there first, and waits. By name it would come first: numbers decide.
    let second = run(&two, "a", "1");
    let (first, second) = both(run(&one, "b", "0"), second);
    assert_eq!((first.code, second.code), (0, 0), "{}\n--\n{}", first.stderr, second.stderr);
    assert_eq!(lines(&said), ["0 4 0 0", "1 4 0 0", "2 4 1 0", "3 4 1 0"]);
    assert!(first.stderr.contains("finished"), "{}", first.stderr);
    let others = second.stderr.lines().filter(|line| !line.contains("looking for the machine that leads"));
    assert_eq!(others.count(), 0, "one of them speaks: {}", second.stderr);
    leftovers::assert_none(&one.scene);
    leftovers::assert_none(&two.scene);
}

#[test]
fn machines_of_an_endpoint_restart_together_and_lose_one_another() {
    let (one, two) = (Machine::new(), Machine::new());
    let said = one.scene.path("exp").join("said");
    let endpoint = format!("localhost:{}", free_port());
    let script = "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' and os.environ['RANK'] == '1':
    while open(sys.argv[1]).read().count('\\n') < 2: time.sleep(0.02)
    sys.exit(3)
while not os.path.exists(sys.argv[1] + '.go'): time.sleep(0.02)";
    let options = [
        "--nnodes=2",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint",
        &endpoint,
        "--max-restarts=3",
        "--join-timeout=60",
    ];
    let run = |machine: &Machine, name: &str| machine.run(name, &options, script, &said).spawn();
    let first = run(&one, "a");
    wait_for("the first machine to lead", LONG, || {
        let shown = one.shown();
        if shown.contains("logs, journal") { Ok(()) } else { Err(shown) }
    });
    let second = run(&two, "b");
    // Both attempts, on both machines.
    wait_for_lines(&said, 4, &[&one, &two]);
    fs::write(said.with_extension("go"), "").unwrap();
    let (first, second) = both(first, second);
    assert_eq!((first.code, second.code), (0, 0), "{}\n--\n{}", first.stderr, second.stderr);
    assert_eq!(lines(&said), ["0 2 0 0", "0 2 0 1", "1 2 1 0", "1 2 1 1"]);
    assert!(first.stderr.contains("rank 1 (b)"), "{}", first.stderr);
    leftovers::assert_none(&one.scene);
    leftovers::assert_none(&two.scene);
}

/// The verdicts in the journals below a folder.
fn verdicts(folder: &Path, found: &mut Vec<Value>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            verdicts(&path, found);
        } else if path.parent().is_some_and(|dir| dir.ends_with("journal")) {
            let record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap_or_default();
            found.extend(record["body"]["incident"].get("verdict").cloned());
        }
    }
}

/// Scenario 12: whoever ends all ranks of a machine at once, it is the machine's.
#[test]
fn ranks_of_a_machine_that_end_together_are_one_cause() {
    let (one, two) = (Machine::new(), Machine::new());
    let said = one.scene.path("exp").join("said");
    let port = free_port();
    let script = "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':
    while open(sys.argv[1]).read().count('\\n') < 4: time.sleep(0.02)
    if os.environ['GROUP_RANK'] == '1': os.kill(os.getpid(), 9)
    time.sleep(600)";
    let run = |machine: &Machine, name: &str, rank: &str| {
        let options = [
            "--nnodes=2",
            "--nproc-per-node=2",
            "--max-restarts=1",
            "--node-rank",
            rank,
            "--master-addr=127.0.0.1",
            "--master-port",
            port.as_str(),
        ];
        machine.run(name, &options, script, &said).spawn()
    };
    let second = run(&two, "b", "1");
    let (first, second) = both(run(&one, "a", "0"), second);
    assert_eq!((first.code, second.code), (0, 0), "{}\n--\n{}", first.stderr, second.stderr);
    let mut found = Vec::new();
    verdicts(&one.scene.path(""), &mut found);
    assert_eq!(found.len(), 1, "{found:#?}\n{}", first.stderr);
    assert_eq!((&found[0]["nodes"], &found[0]["culprits"]), (&json!(["b"]), &json!([])), "{found:#?}");
    leftovers::assert_none(&one.scene);
    leftovers::assert_none(&two.scene);
}

#[test]
fn a_machine_with_another_secret_or_the_same_name_stays_outside() {
    let (one, two, three) = (Machine::new(), Machine::new(), Machine::new());
    let said = one.scene.path("exp").join("said");
    let endpoint = format!("127.0.0.1:{}", free_port());
    let script = "while not os.path.exists(sys.argv[1] + '.go'): time.sleep(0.02)";
    let options = ["--nnodes=2", "--rdzv-backend=c10d", "--rdzv-endpoint", &endpoint];
    let first = one.run("a", &options, script, &said).spawn();
    wait_for("the first machine to lead", LONG, || {
        let shown = one.shown();
        if shown.contains("logs, journal") { Ok(()) } else { Err(shown) }
    });
    // The same name as the one that leads.
    let twin = two.run("a", &options, script, &said).spawn().wait(LONG);
    assert_eq!(twin.code, 2, "{}", twin.stderr);
    assert!(one.shown().contains("a second machine calls itself a: it cannot take part"), "{}", one.shown());
    // Long before --join-timeout, and both ends say it.
    let mut command = three.run("c", &options, script, &said);
    fs::write(three.scene.path("secret"), "another one, just as long").unwrap();
    let stranger = command.spawn().wait(LONG);
    assert_eq!(stranger.code, 2, "{}", stranger.stderr);
    assert!(stranger.stderr.contains("their secrets differ"), "{}", stranger.stderr);
    assert!(stranger.stderr.contains("hint: --secret-file must be the same"), "{}", stranger.stderr);
    let warned = "warning: 127.0.0.1 wants to take part and does not know the secret of this run";
    assert_eq!(one.shown().matches(warned).count(), 1, "{}", one.shown());
    // Another run may end, and is waited for.
    let other = [&options[..], &["--rdzv-id=other", "--join-timeout=3"]].concat();
    let stranger = three.run("c", &other, script, &said).spawn().wait(LONG);
    assert_eq!(stranger.code, 1, "{}", stranger.stderr);
    assert!(stranger.stderr.contains("another run is led there: waiting for its end"), "{}", stranger.stderr);
    assert!(stranger.stderr.contains("--secret-file and --rdzv-id must say the same"), "{}", stranger.stderr);
    let second = two.run("b", &options, script, &said).spawn();
    wait_for_lines(&said, 2, &[&one, &two]);
    fs::write(said.with_extension("go"), "").unwrap();
    let (first, second) = both(first, second);
    assert_eq!((first.code, second.code), (0, 0), "{}\n--\n{}", first.stderr, second.stderr);
    for machine in [&one, &two, &three] {
        leftovers::assert_none(&machine.scene);
    }
}

/// `relight ctl` on the machine that leads, with this secret file.
fn ctl(machine: &Machine, order: &[&str], secret: &Path) -> (i32, String) {
    let mut command = machine.scene.command(binary());
    command.arg("ctl").args(order).args(["--why", "a test", "--secret-file"]).arg(secret);
    let said = command.env("SLURMD_NODENAME", "a").output().unwrap();
    let text = [said.stdout, said.stderr].concat();
    (said.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}

/// Who knows the secret of the machines may give orders; a machine that is taken out ends well, and the run goes on.
#[test]
fn machines_take_orders_of_whoever_knows_their_secret() {
    let machines = [Machine::new(), Machine::new(), Machine::new()];
    let [one, two, three] = &machines;
    let said = one.scene.path("exp").join("said");
    let endpoint = format!("127.0.0.1:{}", free_port());
    let options = [
        "--nnodes=2",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint",
        &endpoint,
        "--max-restarts=3",
        "--join-timeout=60",
    ];
    let first = one.run("a", &options, "time.sleep(600)", &said).spawn();
    wait_for("the first machine to lead", LONG, || {
        let shown = one.shown();
        if shown.contains("logs, journal") { Ok(()) } else { Err(shown) }
    });
    let second = two.run("b", &options, "time.sleep(600)", &said).spawn();
    wait_for_lines(&said, 2, &[one, two]);
    let spare = three.run("c", &options, "time.sleep(600)", &said).spawn();
    let secret = one.scene.path("secret");
    let other = one.scene.path("other");
    fs::write(&other, "somebody else's, just as long").unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap();
    let (code, text) = ctl(one, &["stop"], &other);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("its machines know each other by another secret"), "{text}");
    assert!(text.contains("hint: name the secret file of the run: --secret-file FILE"), "{text}");
    // The third machine is there as soon as it may be taken.
    wait_for("a spare", LONG, || {
        let mut status = one.scene.command(binary());
        let status = status.arg("status").output().unwrap();
        let text = String::from_utf8_lossy(&status.stdout).into_owned();
        if text.contains("c: spare") { Ok(()) } else { Err(text) }
    });
    let (code, text) = ctl(one, &["evict", "b"], &secret);
    assert_eq!((code, text.as_str()), (0, "b is being taken out\n"));
    let second = second.wait(LONG);
    assert_eq!(second.code, 0, "an agent that is taken out is no failure: {}", second.stderr);
    wait_for_lines(&said, 4, &[one, three]);
    let (code, text) = ctl(one, &["stop"], &secret);
    assert_eq!((code, text.as_str()), (0, "stopping the run\n"));
    let (first, spare) = both(first, spare);
    assert_eq!((first.code, spare.code), (93, 93), "{}\n--\n{}", first.stderr, spare.stderr);
    for machine in &machines {
        leftovers::assert_none(&machine.scene);
    }
}

#[test]
fn a_machine_that_was_told_otherwise_ends_with_one_sentence() {
    let (one, two, three) = (Machine::new(), Machine::new(), Machine::new());
    let said = one.scene.path("exp").join("said");
    let port = free_port();
    let script = "while not os.path.exists(sys.argv[1] + '.go'): time.sleep(0.02)";
    let with = |machine: &Machine, name: &str, rank: &str, more: &[&str]| {
        let port = format!("--master-port={port}");
        let rank = format!("--node-rank={rank}");
        let options = [&["--nnodes=2", "--master-addr=127.0.0.1", &rank, &port], more].concat();
        machine.run(name, &options, script, &said)
    };
    let first = with(&one, "a", "0", &[]).spawn();
    wait_for("the first machine to lead", LONG, || {
        let shown = one.shown();
        if shown.contains("logs, journal") { Ok(()) } else { Err(shown) }
    });
    let refused = |mut command: RelightCommand, here: &str, there: &str| {
        let ended = command.spawn().wait(LONG);
        assert_eq!(ended.code, 2, "{}", ended.stderr);
        assert_eq!(ended.stderr.matches("relight: ").count(), 1, "one sentence: {}", ended.stderr);
        assert!(ended.stderr.contains(here), "{}", ended.stderr);
        assert_eq!(one.shown().matches(there).count(), 1, "{}", one.shown());
    };
    let mut command = with(&two, "b", "1", &[]);
    command.arg("--lr=3");
    refused(
        command,
        "this machine was told to start another program, or other arguments, than a, which leads",
        "b was told to start another program",
    );
    let command = with(&two, "b", "1", &["--nnodes=3"]);
    refused(command, "was told --nnodes=3, and a, which leads, 2", "b was told --nnodes=3");
    let mut command = with(&two, "b", "1", &[]);
    let file = two.scene.path("exp").join("train.py");
    fs::write(&file, format!("{}# a later one\n", fs::read_to_string(&file).unwrap())).unwrap();
    let second = command.spawn();
    wait_for_lines(&said, 2, &[&one, &two]);
    let warned = "warning: train.py on b is not the same file as on a";
    assert_eq!(one.shown().matches(warned).count(), 1, "{}", one.shown());
    let command = with(&three, "c", "1", &[]);
    refused(command, "was told --node-rank=1, which b has", "c was told --node-rank=1");
    fs::write(said.with_extension("go"), "").unwrap();
    let (first, second) = both(first, second);
    assert_eq!((first.code, second.code), (0, 0), "{}\n--\n{}", first.stderr, second.stderr);
    for machine in [&one, &two, &three] {
        leftovers::assert_none(&machine.scene);
    }
}

#[test]
fn what_is_missing_is_said_at_once() {
    let machine = Machine::new();
    let said = machine.scene.path("exp").join("said");
    let run = |options: &[&str]| {
        let ended = machine.run("a", options, "", &said).spawn().wait(LONG);
        assert_eq!(
            ended.code,
            if ended.stderr.contains("nobody has led") { 1 } else { 2 },
            "{}",
            ended.stderr
        );
        ended.stderr
    };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let direct = ["--nnodes=2", "--master-addr=127.0.0.1", "--master-port", &port];
    let text = run(&direct);
    assert!(text.contains(&format!("port {port} of this machine cannot be listened on")), "{text}");
    drop(taken);
    let text = run(&[&direct[..], &["--node-rank=1", "--join-timeout=1"]].concat());
    assert!(text.contains(&format!("nobody has led at 127.0.0.1, port {port}, for 1 s")), "{text}");
    let text =
        run(&["--nnodes=2", "--node-rank=1", "--master-addr=no.such.host.invalid", "--join-timeout=1"]);
    assert!(text.contains("no.such.host.invalid is not known on this machine"), "{text}");
    fs::set_permissions(machine.scene.path("secret"), fs::Permissions::from_mode(0o644)).unwrap();
    leftovers::assert_none(&machine.scene);
}
