//! What NVIDIA's driver says of the GPUs of a node, with a library of ours in its place.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::journal::Journal;
use crate::run::LONG;
use crate::support::leftovers;
use crate::support::relight::{RelightCommand, Running, Scene, binary};
use crate::support::wait::wait_for;

/// Says that it is up, and ends as it is told to by the file `end`.
const WAITS: &str = "
import os, time
os.write(1, b'up\\n')
while not os.path.exists('end'):
    time.sleep(0.02)
raise RuntimeError(open('end').read())
";

/// A library that stands for the driver's, with its folder of words.
struct Driver {
    library: PathBuf,
    folder: PathBuf,
}

impl Driver {
    /// None, and why, where nothing can be compiled or no Python loads it.
    fn new(scene: &Scene) -> Result<Self, String> {
        let (library, folder) = (scene.path("libfake.so"), scene.path("driver"));
        fs::create_dir(&folder).unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/fake_nvml.c");
        let compiled =
            Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).output();
        match compiled {
            Ok(output) if output.status.success() => {}
            Ok(output) => return Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            Err(error) => return Err(format!("cc: {error}")),
        }
        let loads = scene.command("python3").args(["-c", "import ctypes"]).status();
        if !loads.is_ok_and(|status| status.success()) {
            return Err("this Python has no ctypes".to_owned());
        }
        Ok(Self { library, folder })
    }

    fn says(&self, name: &str, text: &str) {
        let fresh = self.folder.join(format!("{name}.new"));
        fs::write(&fresh, text).unwrap();
        fs::rename(fresh, self.folder.join(name)).unwrap();
    }

    fn run(&self, scene: &Scene, options: &[&str]) -> Running {
        fs::write(scene.path("exp").join("train.py"), WAITS).unwrap();
        let mut command = RelightCommand::run(scene);
        command.args(["--nproc-per-node=2"]).args(options).arg("train.py");
        command.env("SLURMD_NODENAME", "n01").env("RELIGHT_NVML", self.library.to_str().unwrap());
        command.env("FAKE_NVML", self.folder.to_str().unwrap()).spawn()
    }

    fn check(&self, scene: &Scene) -> Value {
        let mut command = scene.command(binary());
        command.args(["check", "--json", "--run-dir"]).arg(scene.path("run"));
        command.env("RELIGHT_NVML", &self.library).env("FAKE_NVML", &self.folder);
        let said = command.output().unwrap();
        serde_json::from_slice(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"))
    }
}

fn here(scene: &Scene) -> Option<Driver> {
    match Driver::new(scene) {
        Ok(driver) => Some(driver),
        Err(why) => {
            eprintln!("skipped: no library can stand for the driver's here: {why}");
            None
        }
    }
}

fn until_said(scene: &Scene, stream: &str, words: &str) {
    wait_for(words, LONG, || {
        let said = fs::read_to_string(scene.path(stream)).unwrap_or_default();
        if said.contains(words) { Ok(()) } else { Err(said) }
    });
}

#[test]
fn an_xid_of_a_broken_gpu_is_the_cause_whatever_the_rank_says() {
    let scene = Scene::new();
    let Some(driver) = here(&scene) else { return };
    driver.says("events", "0 63\n");
    let running = driver.run(&scene, &["--max-restarts=0"]);
    until_said(&scene, "stdout", "up");
    // A note first: nothing is said of it, nor of what a program does wrong.
    driver.says("events", "0 63\n1 31\n1 79\n");
    until_said(&scene, "stderr", "n01 fails the check GPUs (NVML): Xid 79 of GPU 1 (GPU-00000001-aaaa)");
    fs::write(scene.path("exp").join("end"), "CUDA error: unspecified launch failure").unwrap();
    let ended = running.wait(LONG);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let journal = Journal::read(&scene.path("run"), "scene");
    let found = &journal.found[0];
    assert_eq!(
        (&found["owner"], &found["nodes"], &found["hardware"], &found["confidence"]),
        (&json!("hardware"), &json!(["n01"]), &json!(true), &json!("high")),
        "{found:#}"
    );
    assert_eq!(found["cause"], "the GPU fell off the bus", "{found:#}");
    let said = found["reasons"].to_string();
    assert!(
        said.contains("Xid 79 of GPU 1 (GPU-00000001-aaaa)") && said.contains("Xid 31 of GPU 1"),
        "{said}"
    );
    leftovers::assert_none(&scene);
}

/// A driver that hangs holds nothing up, and is gone with the run.
#[test]
fn a_driver_that_hangs_or_is_not_there_costs_nothing() {
    for hangs in [true, false] {
        let scene = Scene::new();
        let Some(mut driver) = here(&scene) else { return };
        if hangs {
            driver.says("hang", "");
        } else {
            driver.library = scene.path("no-such-library.so");
        }
        fs::write(scene.path("exp").join("end"), "as it was told to").unwrap();
        let ended = driver.run(&scene, &["--max-restarts=0"]).wait(LONG);
        assert_eq!(ended.code, 1, "{}", ended.stderr);
        assert!(
            ended.stderr.contains("as it was told to") && !ended.stderr.contains("NVML"),
            "{}",
            ended.stderr
        );
        leftovers::assert_none(&scene);
    }
}

#[test]
fn relight_check_asks_the_driver() {
    let scene = Scene::new();
    let Some(driver) = here(&scene) else { return };
    let gpus = |value: &Value| {
        let checks = value["checks"].as_array().unwrap();
        let found = checks.iter().find(|check| check["check"] == "GPUs (NVML)");
        found.map(|check| {
            (check["finding"].as_str().unwrap().to_owned(), check["sentence"].as_str().unwrap().to_owned())
        })
    };
    let pair = |finding: &str, sentence: &str| Some((finding.to_owned(), sentence.to_owned()));
    assert_eq!(gpus(&driver.check(&scene)), pair("pass", "2 GPUs, nothing said against them"));
    driver.says("ecc", "3");
    assert_eq!(
        gpus(&driver.check(&scene)),
        pair("pass", "GPU 1 (GPU-00000001-aaaa): 3 ECC errors could not be corrected")
    );
    driver.says("action", "2");
    let value = driver.check(&scene);
    assert_eq!(
        gpus(&value),
        pair("fail", "the driver wants GPU 1 (GPU-00000001-aaaa) and its node rebooted")
    );
    assert_eq!(value["fit"], false, "{value:#}");
    let off = Driver { library: "off".into(), ..driver };
    assert_eq!(gpus(&off.check(&scene)), None);
}
