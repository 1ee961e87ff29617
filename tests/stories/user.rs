//! Everything works for an ordinary user.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use super::script;
use super::support::leftovers;
use super::support::relight::{Scene, binary};

const NOBODY: u32 = 65_534;

/// A scene of nobody's with the launcher in it, and a Python that nobody can start.
fn nobodys() -> Option<(Scene, String)> {
    if !nix::unistd::geteuid().is_root() {
        eprintln!(
            "skipped: this test changes its user, only root can; all others run as an ordinary user now"
        );
        return None;
    }
    let scene = Scene::new();
    fs::set_permissions(scene.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["tmp", "run", "home", "exp", "runtime"] {
        chown(scene.path(name), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    fs::copy(binary(), scene.path("relight")).unwrap();
    let works = |python: &&&str| {
        let mut command = Command::new(python);
        command.arg("-c").arg("").uid(NOBODY).gid(NOBODY).current_dir("/");
        command.status().is_ok_and(|status| status.success())
    };
    let Some(python) = ["/usr/bin/python3", "/usr/local/bin/python3", "python3"].iter().find(works) else {
        eprintln!("skipped: there is no Python that an ordinary user can start");
        return None;
    };
    Some((scene, (*python).to_owned()))
}

fn launch(scene: &Scene, python: &str, base: &Path, program: &str) -> (i32, String) {
    let mut command = scene.command(scene.path("relight"));
    command.args(["run", "--nproc-per-node=2", "--max-restarts=1", "--run-id=scene", "--run-dir"]);
    command.arg(base).arg(program).env("PYTHON_EXEC", python).uid(NOBODY).gid(NOBODY);
    let said = command.output().unwrap();
    (said.status.code().unwrap_or(-1), String::from_utf8_lossy(&said.stderr).into_owned())
}

#[test]
fn runs_and_restarts() {
    let Some((scene, python)) = nobodys() else { return };
    let text = "\
import os, signal, time
assert os.geteuid() == 65534
if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':
    if os.environ['RANK'] == '1':
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(120)
";
    script(&scene, "train.py", text);
    let (code, said) = launch(&scene, &python, &scene.path("run"), "train.py");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("attempt 1 running"), "{said}");
    leftovers::assert_none(&scene);
}

#[test]
fn directories_that_are_not_for_us() {
    let Some((scene, python)) = nobodys() else { return };
    script(&scene, "train.py", "");
    let base = scene.path("run/base");
    let refused = |what: &str, sentence: &str| {
        let (code, said) = launch(&scene, &python, &base, "train.py");
        assert!(code == 2 && said.contains(sentence), "{what}: {code} {said}");
    };
    let make = |mode: u32, owner: u32| {
        fs::remove_dir_all(&base).ok();
        fs::create_dir(&base).unwrap();
        fs::set_permissions(&base, fs::Permissions::from_mode(mode)).unwrap();
        chown(&base, Some(owner), None).unwrap();
    };
    make(0o555, NOBODY);
    refused("read-only", "the run directory");
    make(0o700, 0);
    refused("unreadable", "Permission denied");
    make(0o777, 0);
    fs::create_dir(base.join("scene")).unwrap();
    refused("foreign", "belongs to user 0, not to us (user 65534)");
    make(0o700, NOBODY);
    fs::create_dir(base.join("scene")).unwrap();
    fs::set_permissions(base.join("scene"), fs::Permissions::from_mode(0o777)).unwrap();
    chown(base.join("scene"), Some(NOBODY), None).unwrap();
    let (code, said) = launch(&scene, &python, &base, "train.py");
    assert!(code == 0 || code == 2, "{code} {said}");
    fs::set_permissions(scene.path("exp/train.py"), fs::Permissions::from_mode(0o200)).unwrap();
    refused("script", "cannot read the script");
    leftovers::assert_none(&scene);
}
