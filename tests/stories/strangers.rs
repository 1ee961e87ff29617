//! Whatever comes to the port of the coordinator, and whatever answers in its place: nothing of it reaches the run.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use relight::domain::ids::{Incarnation, NodeName, RunId};
use relight::domain::wire::{ToAgent, ToCoordinator};
use relight::net::handshake::{Identity, Role};
use relight::net::secret::Secret;
use relight::net::session::{Session, SessionError};
use serde_json::Value;

use crate::support::procfs;
use crate::support::relight::{RelightCommand, Running, Scene};
use crate::support::wait::wait_for;
use crate::{LONG, script};

/// Two ranks that wait until a file is there.
const UNTIL: &str =
    "import os, sys, time\nos.write(1, b'up\\n')\nwhile not os.path.exists('go'): time.sleep(0.02)\n";

/// `relight run` as one task of a step with these nodes.
fn step(scene: &Scene, nodes: &str, node: &str, options: &[&str]) -> RelightCommand {
    step_beside(scene, scene, nodes, node, options)
}

/// The same on a machine of its own, whose run lies in another scene.
fn step_beside(runs: &Scene, scene: &Scene, nodes: &str, node: &str, options: &[&str]) -> RelightCommand {
    let mut command = RelightCommand::bare(scene);
    command.args(["run", "--run-dir"]).arg(runs.path("run")).args(["--run-id", "scene"]);
    command.args(["--lost-after", "6"]).args(options).arg("until.py");
    for (name, value) in [
        ("SLURM_JOB_ID", "77"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_JOB_NODELIST", nodes),
        ("SLURM_STEP_NODELIST", nodes),
        ("SLURM_STEP_TASKS_PER_NODE", "1"),
        ("SLURMD_NODENAME", node),
    ] {
        command.env(name, value);
    }
    command
}

fn hint_path(scene: &Scene) -> std::path::PathBuf {
    scene.path("run").join("scene").join("coordinator")
}

/// Where the coordinator of the scene says that it listens, on this machine.
fn coordinator(scene: &Scene) -> SocketAddr {
    wait_for("the hint", LONG, || {
        let text = std::fs::read(hint_path(scene)).map_err(|e| e.to_string())?;
        let hint: Value = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
        let address: SocketAddr =
            hint["addresses"][0].as_str().and_then(|a| a.parse().ok()).ok_or("no address")?;
        Ok(SocketAddr::from(([127, 0, 0, 1], address.port())))
    })
}

fn up(scene: &Scene, ranks: usize) {
    wait_for("the ranks to be up", LONG, || {
        let shown = std::fs::read_to_string(scene.path("stdout")).unwrap_or_default();
        if shown.matches("up").count() >= ranks { Ok(()) } else { Err(shown) }
    });
}

fn dial(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// The other end hangs up; what it says before is returned.
fn hears_the_end(mut stream: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    // A reset is an end, too.
    let _ = stream.read_to_end(&mut said);
    said
}

fn hello(protocol: u32, length: u32) -> Vec<u8> {
    let mut bytes = b"relight\n".to_vec();
    bytes.extend(protocol.to_le_bytes());
    bytes.extend(length.to_le_bytes());
    bytes
}

fn identity(node: &str) -> Identity {
    Identity {
        run: RunId::new("scene"),
        role: Role::Agent,
        node: NodeName::new(node),
        incarnation: Incarnation(7),
    }
}

async fn connect(to: SocketAddr, secret: &Secret) -> Result<Session<ToAgent, ToCoordinator>, SessionError> {
    let stream = tokio::net::TcpStream::connect(to).await?;
    Session::connect(stream, &identity("n9"), secret).await
}

fn block<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn agent_memory(running: &Running) -> u64 {
    procfs::usage(&[running.agent().unwrap()]).private_kib
}

#[test]
fn strangers_at_the_port_change_nothing() {
    let scene = Scene::new();
    script(&scene, "until.py", UNTIL);
    let running = step(&scene, "n1", "n1", &["--nproc-per-node=2"]).spawn();
    let to = coordinator(&scene);
    up(&scene, 2);
    let before = agent_memory(&running);
    // Who only connects, as a port scanner does, and stays.
    let idle: Vec<TcpStream> = (0..300).map(|_| dial(to)).collect();
    for first in
        [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), vec![0xff; 64], hello(1, 1 << 30), hello(99, 4)]
    {
        let mut stream = dial(to);
        stream.write_all(&first).unwrap();
        stream.write_all(&[0; 16]).unwrap();
        let said = hears_the_end(stream);
        assert!(said.len() < 4096, "it talks a lot to a stranger: {} bytes", said.len());
    }
    // Half a hello, and away.
    dial(to).write_all(&hello(1, 100)[..9]).unwrap();
    let wrong = block(connect(to, &Secret::from_bytes([5; 32])));
    assert!(matches!(wrong.err(), Some(SessionError::NotBelieved)));
    let text = std::fs::read_to_string(scene.path("run").join("scene").join("secret")).unwrap();
    let secret = Secret::from_hex(&text).unwrap();
    for bytes in
        [vec![1, 0], (1_u32 << 30).to_le_bytes().to_vec(), [&64_u32.to_le_bytes()[..], &[7; 80]].concat()]
    {
        tampers(to, &secret, &bytes);
    }
    let grown = agent_memory(&running).saturating_sub(before);
    assert!(grown < 32 << 10, "the agent has grown by {grown} KiB");
    drop(idle);
    std::fs::write(scene.path("exp").join("go"), "").unwrap();
    let ended = running.wait(LONG);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(!ended.stderr.contains("restart") && !ended.stderr.contains("panicked"), "{}", ended.stderr);
}

/// One who knows the secret and then sends these bytes in the place of a frame.
fn tampers(to: SocketAddr, secret: &Secret, bytes: &[u8]) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    block(async {
        let tcp = tokio::net::TcpStream::connect(to).await.unwrap();
        let (near, far) = tokio::io::duplex(1 << 16);
        let (mut from_near, mut to_near) = tokio::io::split(far);
        let (mut from_tcp, mut to_tcp) = tcp.into_split();
        let back = tokio::spawn(async move { tokio::io::copy(&mut from_tcp, &mut to_near).await });
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let forth = tokio::spawn(async move {
            let mut stopped = stopped;
            let mut buffer = [0; 4096];
            loop {
                tokio::select! {
                    _ = &mut stopped => return to_tcp,
                    read = from_near.read(&mut buffer) => match read {
                        Ok(n) if n > 0 => to_tcp.write_all(&buffer[..n]).await.unwrap(),
                        _ => return to_tcp,
                    },
                }
            }
        });
        let session =
            Session::<ToAgent, ToCoordinator>::connect(near, &identity("n9"), secret).await.unwrap();
        let _ = stop.send(());
        let mut to_tcp = forth.await.unwrap();
        to_tcp.write_all(bytes).await.unwrap();
        to_tcp.shutdown().await.unwrap();
        // The coordinator hangs up, whatever it thinks of the bytes.
        let (_, mut receiver) = session.split();
        assert!(tokio::time::timeout(LONG, receiver.recv()).await.unwrap().is_err());
        let _ = back.await.unwrap();
    });
}

#[test]
fn another_version_in_the_place_of_the_coordinator_is_named() {
    let scene = Scene::new();
    script(&scene, "until.py", UNTIL);
    let first = step(&scene, "n[1-2]", "n1", &["--nproc-per-node=1"]).spawn();
    coordinator(&scene);
    // Killed with everything below it; its hint stays.
    drop(first);
    let fake = TcpListener::bind("127.0.0.1:0").unwrap();
    let text = std::fs::read_to_string(hint_path(&scene)).unwrap();
    let mut hint: Value = serde_json::from_str(&text).unwrap();
    hint["addresses"] = serde_json::json!([fake.local_addr().unwrap().to_string()]);
    std::fs::write(hint_path(&scene), hint.to_string()).unwrap();
    let answering = std::thread::spawn(move || {
        for stream in fake.incoming().take(3) {
            let mut stream = stream.unwrap();
            let version = b"\x059.9.9";
            stream.write_all(&hello(99, version.len() as u32)).unwrap();
            stream.write_all(version).unwrap();
            hears_the_end(stream);
        }
    });
    let ended = step(&scene, "n[1-2]", "n2", &["--nproc-per-node=1"]).spawn().wait(Duration::from_secs(60));
    answering.join().unwrap();
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("relight 9.9.9 with protocol 99"), "{}", ended.stderr);
}

/// Nobody knows the nodes' addresses, and the file that says where the coordinator is cannot be read: the journal can.
#[test]
fn without_a_hint_the_journal_says_where_the_coordinator_is() {
    let (one, two) = (Scene::new(), Scene::new());
    for scene in [&one, &two] {
        script(scene, "until.py", "");
    }
    let first = step(&one, "n[1-2]", "n1", &["--nproc-per-node=1"]).spawn();
    coordinator(&one);
    std::fs::remove_file(hint_path(&one)).unwrap();
    std::fs::create_dir(hint_path(&one)).unwrap();
    let second = step_beside(&one, &two, "n[1-2]", "n2", &["--nproc-per-node=1"]).spawn().wait(LONG);
    let first = first.wait(LONG);
    assert_eq!((first.code, second.code), (0, 0), "{}\n--\n{}", first.stderr, second.stderr);
}
