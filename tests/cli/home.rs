//! A home of its own for each test: an empty environment, a directory, a `python3` that is not run.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Stdio;

use assert_cmd::Command;
use tempfile::TempDir;

pub(crate) struct Home {
    dir: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        let home = Self { dir: tempfile::tempdir().unwrap() };
        home.write("exp/train.py", "");
        home.program("bin/python3");
        home
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// An executable that fails when it is run.
    pub(crate) fn program(&self, name: &str) {
        self.write(name, "#!/bin/false\n");
        fs::set_permissions(self.path().join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A link to the program under test.
    pub(crate) fn link(&self, name: &str) {
        symlink(env!("CARGO_BIN_EXE_relight"), self.path().join(name)).unwrap();
    }

    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Command {
        let mut command = std::process::Command::new(program);
        command
            .args(args)
            .env_clear()
            .env("PATH", self.path().join("bin"))
            .env("HOME", self.path().join("home"))
            .env("SLURMD_NODENAME", "node1")
            .env("TZ", "UTC")
            .current_dir(self.path().join("exp"))
            .stdin(Stdio::null());
        Command::from_std(command)
    }

    pub(crate) fn relight(&self, args: &[&str]) -> Command {
        self.command(env!("CARGO_BIN_EXE_relight"), args)
    }

    /// Runs it; the command, what it printed on both streams, and its exit code, with this home's path replaced.
    pub(crate) fn screen(&self, args: &[&str], env: &[(&str, &str)]) -> String {
        self.screen_of(self.relight(args).envs(env.iter().copied()), args, env)
    }

    pub(crate) fn screen_of(&self, command: &mut Command, args: &[&str], env: &[(&str, &str)]) -> String {
        let output = command.output().unwrap();
        let mut out = String::from("$");
        for (name, value) in env {
            write!(out, " {name}={value}").unwrap();
        }
        writeln!(out, " relight {}", args.join(" ")).unwrap();
        out.push_str(&String::from_utf8_lossy(&output.stdout));
        out.push_str(&String::from_utf8_lossy(&output.stderr));
        let code = output.status.code().map_or_else(|| output.status.to_string(), |code| code.to_string());
        writeln!(out, "[exit code {code}]").unwrap();
        out.replace(self.path().to_str().unwrap(), "[HOME]")
    }
}

/// Columns are as wide as the longest path in them: runs of spaces inside a line become two.
pub(crate) fn squeezed(screen: &str) -> String {
    let line = |line: &str| {
        let text = line.trim_start();
        let indent = &line[..line.len() - text.len()];
        let words: Vec<&str> = text.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
        format!("{indent}{}\n", words.join("  "))
    };
    screen.lines().map(line).collect()
}
