//! A cluster of one test: `scripts/slurm-sandbox` with a state folder of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Output, Stdio};
use std::time::Duration;

use crate::support::relight::binary;
use crate::support::wait::wait_for;

/// Nodes `n1`…, with a shared folder that holds the launcher and the trainer.
pub struct Cluster {
    state: tempfile::TempDir,
    python: PathBuf,
    /// When the test is killed this ends, and the cluster with it.
    lifeline: Option<ChildStdin>,
}

impl Cluster {
    /// Brings `nodes` nodes up; `None`, and a line that says why, where that cannot be.
    pub fn up(nodes: u32) -> Option<Self> {
        Self::with(nodes, &[])
    }

    /// Slurm itself gives up no node that is silent for a while: with the sandbox's ten seconds it does if the next world
    /// takes a little longer than usual, and ends the node's agent when it is back.
    pub fn patient(nodes: u32) -> Option<Self> {
        Self::with(nodes, &["--lost", "300"])
    }

    /// With more options of `slurm-sandbox up`.
    pub fn with(nodes: u32, options: &[&str]) -> Option<Self> {
        let able = script().arg("check").args(options).output().expect("the script starts");
        const CANNOT: i32 = 3;
        assert!(able.status.success() || able.status.code() == Some(CANNOT), "{}", told(&able));
        if !able.status.success() {
            println!("skipped: {}", String::from_utf8_lossy(&able.stderr).trim());
            return None;
        }
        let state =
            tempfile::Builder::new().prefix("relight-cluster-").tempdir().expect("a temporary folder");
        // Ordinary users go in, too.
        fs::set_permissions(state.path(), fs::Permissions::from_mode(0o755)).expect("own folder");
        let mut cluster = Self { state, python: python(), lifeline: None };
        cluster.start(nodes, options);
        let shared = cluster.shared();
        fs::copy(binary(), shared.join("relight")).expect("the launcher can be copied");
        fs::copy(example("toy_trainer.py"), shared.join("toy_trainer.py"))
            .expect("the trainer can be copied");
        for name in ["relight", "toy_trainer.py"] {
            fs::set_permissions(shared.join(name), fs::Permissions::from_mode(0o755)).expect("own file");
        }
        Some(cluster)
    }

    fn start(&mut self, nodes: u32, options: &[&str]) {
        let mut up = self.script();
        up.args(["up", &nodes.to_string(), "--while-stdin"]).args(options);
        up.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = up.spawn().expect("the script starts");
        self.lifeline = child.stdin.take();
        let output = child.wait_with_output().expect("the script ends");
        assert!(output.status.success(), "{}", told(&output));
    }

    /// The folder that every node sees.
    pub fn shared(&self) -> PathBuf {
        self.state.path().join("shared").canonicalize().expect("the sandbox made it")
    }

    /// A pipe `gate` where the trainer works: who writes there (`--fault=write=gate:…`) stands still until it is read.
    pub fn gate(&self) -> PathBuf {
        let gate = self.shared().join("gate");
        nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::from_bits_truncate(0o666))
            .expect("a shared folder can");
        gate
    }

    /// Where the interpreter of the ranks lies.
    pub fn python(&self) -> &Path {
        &self.python
    }

    /// The script with this cluster's state folder.
    pub fn script(&self) -> Command {
        let mut command = script();
        command.arg("--state").arg(self.state.path());
        command
    }

    /// A command of the script that must succeed; its standard output.
    pub fn ok<S: AsRef<std::ffi::OsStr>>(&self, args: &[S]) -> String {
        let output = self.script().args(args).output().expect("the script starts");
        assert!(output.status.success(), "{}", told(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A command on the login node, with the environment of a user.
    pub fn exec(&self, options: &[&str]) -> Command {
        let mut command = self.script();
        command.arg("exec").args(options).current_dir(self.shared());
        command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", self.python.display()));
        let home = self.shared().join("home");
        let _ = fs::create_dir(&home);
        let _ = fs::set_permissions(&home, fs::Permissions::from_mode(0o777));
        command.env("HOME", home).env_remove("XDG_STATE_HOME").env_remove("XDG_RUNTIME_DIR");
        command.env("RELIGHT_RESTART_BACKOFF", "0");
        command.env("LANG", "C.UTF-8").env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// What a shell line prints on a node; empty where the node is dead.
    pub fn on_node(&self, node: u32, line: &str) -> String {
        let node = node.to_string();
        let output =
            self.exec(&["--node", &node]).args(["sh", "-c", line]).output().expect("the script starts");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Processes of launcher and trainer on a node, one line each: pid, state and command line.
    pub fn ours_on(&self, node: u32) -> Vec<(i32, String)> {
        let listed = self.on_node(node, "for p in /proc/[0-9]*; do printf '%s ' ${p#/proc/}; tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null");
        let ours = |line: &&str| {
            line.contains("__agent")
                || line.contains("__worker")
                || line.contains("relight run")
                || line.contains("toy_trainer")
        };
        let parse = |line: &str| {
            let (pid, rest) = line.split_once(' ')?;
            Some((pid.parse().ok()?, rest.to_owned()))
        };
        listed.lines().filter(ours).filter(|line| !line.contains("for p in")).filter_map(parse).collect()
    }

    /// The agent on a node.
    pub fn agent_on(&self, node: u32) -> i32 {
        wait_for("an agent on the node", Duration::from_secs(20), || {
            let ours = self.ours_on(node);
            let agent = ours.iter().find(|(_, line)| line.contains("__agent")).map(|(pid, _)| *pid);
            agent.ok_or_else(|| format!("{ours:?}"))
        })
    }

    /// Signals a process of a node.
    pub fn signal_on(&self, node: u32, pid: i32, signal: &str) {
        self.on_node(node, &format!("kill -{signal} {pid}"));
    }

    /// Panics unless no process of ours is left on these nodes within `limit`.
    pub fn nothing_left(&self, nodes: impl IntoIterator<Item = u32> + Clone, limit: Duration) {
        wait_for("nothing of the run to be left", limit, || {
            let left: Vec<_> = nodes.clone().into_iter().flat_map(|node| self.ours_on(node)).collect();
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        });
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let down = self.script().args(["down", "--purge"]).output();
        let ended = down.as_ref().is_ok_and(|output| output.status.success());
        if !ended && !std::thread::panicking() {
            panic!("the cluster does not go down: {down:?}");
        }
    }
}

fn script() -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/slurm-sandbox"));
    command.stdin(Stdio::null());
    command
}

/// A file of `examples/`.
pub fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name)
}

/// The folder of a real interpreter: a shim of a version manager would ask for the home directory.
fn python() -> PathBuf {
    let output =
        Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().expect("python3");
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    path.parent().expect("a folder").to_owned()
}

fn told(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
