//! Whose fault it was: the verdict in the journal, for ends that do not tell it by themselves.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::journal::Journal;
use crate::run::{Job, LONG};

/// The verdict on the first incident of a job with this fault, which then ends well.
fn verdict(job: &Job, options: &[&str], faults: &[&str]) -> (String, Journal, Value) {
    let mut all = vec!["--step-time=0.02"];
    all.extend(faults);
    let options = [&["--max-restarts=1"], options].concat();
    let running = job.command(&options, &all).spawn();
    let (ended, journal) = job.finishes(running, LONG);
    let found = journal.found.first().cloned().unwrap_or_else(|| panic!("no incident: {}", ended.stderr));
    (ended.stderr, journal, found)
}

fn culprits(found: &Value) -> Vec<u64> {
    let culprits = found["culprits"].as_array().map(Vec::as_slice).unwrap_or_default();
    culprits.iter().filter_map(|culprit| culprit[0].as_u64()).collect()
}

#[test]
fn s17_victims_speak_before_the_root() {
    let job = Job::new(4, 30);
    let (stderr, journal, found) = verdict(&job, &[], &["--fault=late=3:2:13"]);
    let roots = journal.roots();
    assert_eq!(roots.first().and_then(|root| root.map(|f| f.rank)), Some(2), "{stderr}\n{found:#}");
    assert_eq!(journal.attempts[1].first_failure.as_ref().map(|f| f.rank), Some(2), "{stderr}");
    assert_eq!((culprits(&found), &found["owner"]), (vec![2], &json!("user")), "{found:#}");
    assert!(stderr.contains("late words of rank 2"), "{stderr}");
}

#[test]
fn s27_tensors_of_different_sizes() {
    let job = Job::new(4, 30);
    let fault =
        "--fault=terminate=[enforce fail at pair.cc] op.preamble.length <= op.nbytes. 4096 vs 2048:1:13";
    let (_, journal, found) = verdict(&job, &[], &[fault]);
    assert_eq!(journal.roots()[0].map(|f| f.rank), Some(1), "{found:#}");
    assert_eq!((culprits(&found), &found["owner"]), (vec![1], &json!("user")), "{found:#}");
    assert_eq!(found["cause"], "ranks sent tensors of different sizes");
    assert!(
        found["fingerprint"].as_str().is_some_and(|print| print.contains("op.preamble.length")),
        "{found:#}"
    );
}

#[test]
fn an_exception_has_a_fingerprint() {
    let job = Job::new(2, 30);
    let (_, _, found) = verdict(&job, &[], &["--fault=exception=sample 417 has no labels:1:13"]);
    let print = found["fingerprint"].as_str().unwrap_or_default();
    assert_eq!(print, "root|RuntimeError|toy_trainer.py:fault_exception|sample # has no labels", "{found:#}");
    assert_eq!(found["entity"], "sample 417");
}

/// A memory cgroup of our own, gone with it.
pub struct Group(PathBuf);

impl Group {
    /// Below that of this process, where the kernel and we may make one.
    pub fn new(name: &str, bytes: u64) -> Result<Self, String> {
        let groups = fs::read_to_string("/proc/self/cgroup").map_err(|e| e.to_string())?;
        let path = |wanted: &str| {
            groups.lines().find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                let (controllers, path) = rest.split_once(':')?;
                (controllers == wanted).then(|| path.trim_start_matches('/').to_owned())
            })
        };
        let name = format!("relight-test-{name}-{}", std::process::id());
        let (dir, limit) = match (path("memory"), path("")) {
            (Some(own), _) => {
                (PathBuf::from("/sys/fs/cgroup/memory").join(own).join(name), "memory.limit_in_bytes")
            }
            (None, Some(own)) => (PathBuf::from("/sys/fs/cgroup").join(own).join(name), "memory.max"),
            _ => return Err("no memory cgroup".to_owned()),
        };
        fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let group = Self(dir);
        fs::write(group.0.join(limit), bytes.to_string()).map_err(|e| format!("{limit}: {e}"))?;
        Ok(group)
    }

    /// A shell that moves itself into it and becomes the command behind it.
    pub fn within(&self) -> Vec<String> {
        let script = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.0.display());
        ["/bin/sh", "-c", &script, "sh"].map(str::to_owned).to_vec()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A group whose last process has just ended may need a moment.
        crate::support::wait::wait_for("an empty group", LONG, || {
            fs::remove_dir(&self.0).map_err(|e| e.to_string())
        });
    }
}

#[test]
fn s57_memory_of_a_cgroup_is_used_up() {
    let group = match Group::new("once", 400 << 20) {
        Ok(group) => group,
        Err(why) => {
            eprintln!("skipped: no memory cgroup of our own can be made here: {why}");
            return;
        }
    };
    let job = Job::new(2, 30);
    let mut command = job.command(&["--max-restarts=1"], &["--step-time=0.02", "--fault=memory=2000:1:13"]);
    let running = command.behind(&group.within()).spawn();
    let (ended, journal) = job.finishes(running, LONG);
    let found = &journal.found[0];
    assert_eq!(
        journal.roots()[0].map(|f| (f.rank, f.exit.clone())),
        Some((1, "signal 9".into())),
        "{found:#}"
    );
    assert_eq!((culprits(found), &found["owner"]), (vec![1], &json!("memory")), "{found:#}");
    assert_eq!(
        (&found["cause"], &found["confidence"]),
        (&json!("out of memory: the cgroup's limit of 400 MB"), &json!("high"))
    );
    assert!(
        ended.stderr.contains("died: SIGKILL: out of memory: the cgroup's limit of 400 MB"),
        "{}",
        ended.stderr
    );
}

#[test]
fn s58_shared_memory_is_full() {
    let job = Job::new(2, 30);
    let probe = job.scene.command("unshare").args(["-m", "true"]).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no mount namespace of our own can be made here");
        return;
    }
    let script = "mount -t tmpfs -o size=16m tmpfs /dev/shm && exec \"$@\"";
    let mut command = job.command(&["--max-restarts=1"], &["--step-time=0.02", "--fault=shm=64:1:13"]);
    let running = command.behind(&["unshare", "-m", "/bin/sh", "-c", script, "sh"]).spawn();
    let (ended, journal) = job.finishes(running, LONG);
    let found = &journal.found[0];
    assert_eq!(
        journal.roots()[0].map(|f| (f.rank, f.exit.clone())),
        Some((1, "signal 7".into())),
        "{found:#}"
    );
    assert_eq!((culprits(found), &found["owner"]), (vec![1], &json!("memory")), "{found:#}");
    assert_eq!(found["cause"], "/dev/shm is full");
    assert!(ended.stderr.contains("/dev/shm is full"), "{}", ended.stderr);
}
