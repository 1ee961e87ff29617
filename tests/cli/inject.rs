//! Signals to processes of a run: only to the one that is meant.

use std::process::{Child, Command, Stdio};

use crate::home::Home;

fn sleeper() -> Child {
    Command::new("sleep").arg("300").stdin(Stdio::null()).spawn().unwrap()
}

fn start_time(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(19).unwrap().parse().unwrap()
}

fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.trim().chars().next().unwrap()
}

/// A run whose status names this process as rank 3, with a start time that is off by so much.
fn run_with(home: &Home, pid: u32, off: u64) {
    let start = start_time(pid) + off;
    home.write("runs/r1/run.json", "{}");
    let status = format!(
        r#"{{"phase":"running","world_size":4,"agent_process":{{"pid":{pid},"start_time":{start}}},"rank_processes":[{{"rank":2}},{{"rank":3,"pid":{pid},"start_time":{start},"more":1}}]}}"#
    );
    home.write("runs/r1/status.json", &status);
}

#[test]
fn the_rank_that_is_meant() {
    use std::os::unix::process::ExitStatusExt as _;
    let home = Home::new();
    let mut child = sleeper();
    let pid = child.id();
    run_with(&home, pid, 0);
    let inject = |words: &[&str]| {
        let mut all = vec!["inject"];
        all.extend(words);
        all.extend(["--run-dir", "../runs"]);
        home.screen(&all, &[]).replace(&pid.to_string(), "PID")
    };
    let said = |screen: String| screen.split_once('\n').unwrap().1.to_owned();
    assert_eq!(
        said(inject(&["stop-rank", "r1", "--rank", "3"])),
        "SIGSTOP sent to rank 3 (process PID)\n[exit code 0]\n"
    );
    // The signal is there before its receiver has stopped.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while state(pid) != 'T' {
        assert!(std::time::Instant::now() < until, "state {}", state(pid));
        std::thread::yield_now();
    }
    assert_eq!(
        said(inject(&["cont-rank", "--rank", "3"])),
        "SIGCONT sent to rank 3 (process PID)\n[exit code 0]\n"
    );
    assert_eq!(
        said(inject(&["kill-rank", "--rank", "7"])),
        "relight: error: the run has no rank 7 now\n[exit code 1]\n"
    );
    assert_eq!(
        said(inject(&["kill-rank", "--rank", "2"])),
        "relight: error: the run has no rank 2 now\n[exit code 1]\n"
    );
    assert!(child.try_wait().unwrap().is_none());
    let screen = said(inject(&["kill-agent", "r1", "--signal", "sigterm"]));
    assert_eq!(screen, "SIGTERM sent to agent (process PID)\n[exit code 0]\n");
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    assert_eq!(
        said(inject(&["kill-rank", "--rank", "3"])),
        "relight: error: the process PID (rank 3) has ended, or its number belongs to another process now\n[exit code 1]\n"
    );
}

#[test]
fn never_another_process_with_its_number() {
    let home = Home::new();
    let mut child = sleeper();
    run_with(&home, child.id(), 1);
    let screen = home.screen(&["inject", "kill-rank", "r1", "--rank=3", "--run-dir=../runs"], &[]);
    assert!(screen.contains("belongs to another process now\n[exit code 1]"), "{screen}");
    assert!(child.try_wait().unwrap().is_none(), "it lives");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_status_that_makes_no_sense() {
    let home = Home::new();
    home.write("runs/r1/run.json", "{}");
    let args = ["inject", "kill-rank", "r1", "--run-dir=../runs"];
    assert!(
        home.screen(&args, &[])
            .contains("relight: error: cannot read [HOME]/exp/../runs/r1/status.json: No such")
    );
    let wrong = r#"{"rank_processes":[{"rank":-1}]}"#;
    for text in ["", "[]", wrong, r#"{"rank_processes":[{"rank":0,"pid":-1,"start_time":0}]}"#] {
        home.write("runs/r1/status.json", text);
        let screen = home.screen(&args, &[]);
        assert!(screen.ends_with("[exit code 1]\n"), "{text}: {screen}");
    }
}
