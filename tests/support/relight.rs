//! The launcher in a scene of its own: nothing of the developer's environment reaches it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::procfs;
use super::wait::wait_for;

/// The variable that marks every process of a scene.
pub const MARK: &str = "RELIGHT_TEST_SCENE";

/// Folders of one test; gone with it.
pub struct Scene {
    root: tempfile::TempDir,
    mark: String,
}

impl Scene {
    /// Makes the folders and becomes the reaper of whatever gets lost below this test.
    pub fn new() -> Self {
        nix::sys::prctl::set_child_subreaper(true).expect("a process may be a subreaper");
        let root = tempfile::Builder::new().prefix("relight-scene-").tempdir().expect("a temporary folder");
        for name in ["tmp", "run", "home", "exp", "runtime"] {
            fs::create_dir(root.path().join(name)).expect("a folder of the scene");
        }
        private(&root.path().join("runtime"));
        let mark = root.path().file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
        Self { root, mark }
    }

    /// A place in the scene.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// `NAME=value` that every process of the scene inherits.
    pub fn mark(&self) -> String {
        format!("{MARK}={}", self.mark)
    }

    /// Any program in this scene's environment.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().current_dir(self.path("exp")).stdin(Stdio::null());
        for name in ["PATH", "LD_LIBRARY_PATH", "PYTHONHOME"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("HOME", self.path("home")).env("TMPDIR", self.path("tmp"));
        command
            .env("XDG_RUNTIME_DIR", self.path("runtime"))
            .env("XDG_STATE_HOME", self.path("home").join("state"));
        command.env("RELIGHT_RESTART_BACKOFF", "0");
        command.env("PYTHONDONTWRITEBYTECODE", "1").env("LANG", "C.UTF-8").env(MARK, &self.mark);
        command
    }
}

/// The launcher under test: the one that was built with the tests, unless RELIGHT_TEST_BIN names another (a release build).
pub fn binary() -> PathBuf {
    std::env::var_os("RELIGHT_TEST_BIN")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_relight")), PathBuf::from)
}

fn private(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).expect("own folder");
}

/// `relight run`, to be started in a scene.
pub struct RelightCommand {
    command: Command,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl RelightCommand {
    /// `relight run --run-dir … --run-id scene` so far.
    pub fn run(scene: &Scene) -> Self {
        let mut this = Self::bare(scene);
        this.args(["run", "--run-dir"]).arg(scene.path("run")).args(["--run-id", "scene"]);
        this
    }

    /// `relight` so far.
    pub fn bare(scene: &Scene) -> Self {
        let command = scene.command(binary());
        Self { command, stdout: scene.path("stdout"), stderr: scene.path("stderr") }
    }

    /// Under a limit of open files, as `ulimit -n`.
    pub fn open_files(&mut self, limit: u32) -> &mut Self {
        self.behind(&["/bin/sh", "-c", &format!("ulimit -n {limit}; exec \"$@\""), "sh"])
    }

    /// Started by another program, which gets the command line so far behind its own arguments.
    pub fn behind<S: AsRef<OsStr>>(&mut self, program: &[S]) -> &mut Self {
        let (first, rest) = program.split_first().expect("a program");
        let mut outer = Command::new(first);
        outer.args(rest).arg(self.command.get_program()).args(self.command.get_args());
        outer.env_clear().stdin(Stdio::null());
        for (name, value) in self.command.get_envs() {
            if let Some(value) = value {
                outer.env(name, value);
            }
        }
        if let Some(folder) = self.command.get_current_dir() {
            outer.current_dir(folder);
        }
        self.command = outer;
        self
    }

    /// One more argument.
    pub fn arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Self {
        self.command.arg(arg);
        self
    }

    /// More arguments.
    pub fn args(&mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> &mut Self {
        self.command.args(args);
        self
    }

    /// One more variable.
    pub fn env(&mut self, name: &str, value: impl AsRef<OsStr>) -> &mut Self {
        self.command.env(name, value);
        self
    }

    /// Starts it; its output goes to files, so that nothing of ours can block it.
    pub fn spawn(&mut self) -> Running {
        let out = File::create(&self.stdout).expect("a file of the scene");
        let err = File::create(&self.stderr).expect("a file of the scene");
        let child = self.command.stdout(out).stderr(err).spawn().expect("relight starts");
        Running { child, started: Instant::now(), stdout: self.stdout.clone(), stderr: self.stderr.clone() }
    }
}

/// A launcher that runs; killed with everything below it if the test gives up.
pub struct Running {
    child: Child,
    started: Instant,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// How it ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; 128 + n for a signal.
    pub code: i32,
    /// Its standard output, lossily.
    pub stdout: String,
    /// Its standard error, lossily.
    pub stderr: String,
    /// How long it ran.
    pub took: Duration,
}

impl Running {
    /// Any child whose output goes to these files.
    pub fn of(child: Child, stdout: PathBuf, stderr: PathBuf) -> Self {
        Self { child, started: Instant::now(), stdout, stderr }
    }

    /// The guardian.
    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// The agent: the guardian's child that says so.
    pub fn agent(&self) -> Option<i32> {
        procfs::below(self.pid()).into_iter().find(|p| p.cmdline.contains("__agent")).map(|p| p.pid)
    }

    /// It is still there.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end; panics with its last words when it takes too long.
    pub fn wait(mut self, timeout: Duration) -> Ended {
        let (stdout, stderr) = (self.stdout.clone(), self.stderr.clone());
        let status = wait_for("relight to end", timeout, || match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            Ok(None) => Err(format!("still running\n{}\n{}", tail(&stdout), tail(&stderr))),
            Err(error) => Err(error.to_string()),
        });
        let code = status.code().or(status.signal().map(|no| 128 + no)).unwrap_or(-1);
        let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        Ended { code, stdout: read(&stdout), stderr: read(&stderr), took: self.started.elapsed() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.is_running() {
            let mut doomed = procfs::below(self.pid());
            doomed.retain(|p| p.state != 'Z');
            let _ = self.child.kill();
            for process in doomed {
                let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
            }
            let _ = self.child.wait();
        }
    }
}

/// The last 4 KiB of a file, for messages.
pub fn tail(path: &Path) -> String {
    let data = fs::read(path).unwrap_or_default();
    let from = data.len().saturating_sub(4096);
    String::from_utf8_lossy(data.get(from..).unwrap_or_default()).into_owned()
}
