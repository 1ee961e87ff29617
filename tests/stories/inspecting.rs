//! The commands that look at a run, on runs of every kind.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::console::COLLATE;
use super::support::leftovers;
use super::support::relight::Scene;
use super::support::wait::wait_for;
use super::{LONG, golden, look, play, run, running, script};

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// What the journal gives again is what the last status said.
fn replay_equals_live(scene: &Scene) {
    let (_, status) = look(scene, &["status", "--json"]);
    let status = json(&status);
    let (code, replay) = look(scene, &["events", "--replay"]);
    assert_eq!(code, 0, "{replay}");
    let line = |name: &str| {
        let found = replay.lines().find_map(|l| l.strip_prefix(name));
        found.unwrap_or_else(|| panic!("no {name} in {replay}")).trim().to_owned()
    };
    let live = &status["status"];
    assert_eq!(line("term"), live["term"].to_string());
    assert_eq!(line("attempt"), live["attempt"].to_string());
    assert_eq!(line("leader"), live["leader"].as_str().unwrap());
    assert_eq!(line("restarts").split(' ').next().unwrap(), live["restarts"].to_string());
    let incidents = status["incidents"].as_array().unwrap().len();
    assert_eq!(line("next incident"), incidents.to_string());
    assert_eq!(line("end") == "none", status["end"].is_null(), "{replay} {status}");
}

#[test]
fn a_run_that_runs_is_killed_and_goes_on() {
    let scene = Scene::new();
    let launcher = running(&scene, 2, &["--max-restarts=2"], super::STAY);
    replay_equals_live(&scene);
    let (_, status) = look(&scene, &["status"]);
    golden!(scene, "status_running", status);
    assert_eq!(look(&scene, &["why"]), (0, "nothing failed in run scene: it has not ended\n".into()));
    // Its guardian is killed: everything is gone at once, and the status does not say that it runs.
    kill(Pid::from_raw(launcher.pid()), Signal::SIGKILL).unwrap();
    assert_eq!(launcher.wait(LONG).code, 137);
    wait_for("the run to be seen as interrupted", LONG, || {
        let (code, status) = look(&scene, &["status"]);
        let is = code == 0 && status.contains("interrupted: its agent on n01 is gone");
        if is { Ok(()) } else { Err(status) }
    });
    replay_equals_live(&scene);
    assert_eq!(json(&look(&scene, &["status", "--json"]).1)["alive"], false);
    let (code, gone) = look(&scene, &["inject", "kill-rank", "--rank", "1"]);
    assert!(code == 1 && gone.contains("has ended, or its number belongs to another process now"), "{gone}");
    let (_, kept) = look(&scene, &["gc", "--keep", "0"]);
    assert!(kept.contains("kept scene: it did not end and may be continued"), "{kept}");
    // The same command line goes on with it.
    let launcher = running(&scene, 2, &["--max-restarts=2"], super::STAY);
    let said = std::fs::read_to_string(scene.path("stderr")).unwrap();
    assert!(said.contains("relight: run scene continues: term 1, next attempt 1"), "{said}");
    let (_, kept) = look(&scene, &["gc", "--keep", "0"]);
    assert!(kept.contains("kept scene: it runs"), "{kept}");
    kill(Pid::from_raw(launcher.pid()), Signal::SIGTERM).unwrap();
    launcher.wait(LONG);
    replay_equals_live(&scene);
    let (_, events) = look(&scene, &["events"]);
    let records: Vec<&str> = events.lines().filter_map(|l| l.split_once(" #").map(|(_, r)| r)).collect();
    golden!(scene, "events_interrupted", records.join("\n"));
    assert_eq!(json(&look(&scene, &["status", "--json"]).1)["end"]["code"], 143);
    let (code, dry) = look(&scene, &["gc", "--keep", "0", "--dry-run"]);
    assert!(code == 0 && dry.contains("would remove scene") && super::run_dir(&scene).exists(), "{dry}");
    let (code, gone) = look(&scene, &["gc", "--keep", "0"]);
    assert!(code == 0 && gone.contains("removed scene") && !super::run_dir(&scene).exists(), "{gone}");
    leftovers::assert_none(&scene);
}

#[test]
fn events_as_json_are_one_value_a_line() {
    let scene = Scene::new();
    script(&scene, "collate.py", COLLATE);
    assert_eq!(play(&scene, 2, &["--max-restarts=1"], &["collate.py"]).code, 1);
    replay_equals_live(&scene);
    let (code, events) = look(&scene, &["events", "--json"]);
    assert_eq!(code, 0);
    let kinds: Vec<String> =
        events.lines().map(json).filter_map(|value| Some(value.get("kind")?.as_str()?.to_owned())).collect();
    assert_eq!(kinds, ["lead", "attempt", "attempt", "incident", "incident", "end"]);
    let folder = super::run_dir(&scene);
    let by_path = super::ask(&scene, &["events", "--replay", folder.to_str().unwrap()]);
    assert_eq!(by_path, look(&scene, &["events", "--replay"]));
}

#[test]
fn logs_by_rank_attempt_stream_and_tail() {
    let scene = Scene::new();
    let text = "\
import os, sys
rank, attempt = os.environ['RANK'], os.environ['TORCHELASTIC_RESTART_COUNT']
for i in range(3):
    os.write(1, f'out {rank} {attempt} {i}\\n'.encode())
    os.write(2, f'err {rank} {attempt} {i}\\n'.encode())
if attempt == '0' and rank == '1':
    os._exit(4)
if attempt == '0':
    import time; time.sleep(120)
";
    script(&scene, "train.py", text);
    assert_eq!(play(&scene, 2, &["--max-restarts=1"], &["train.py"]).code, 0);
    let shown = |options: &[&str]| {
        let (code, text) = look(&scene, &[&["logs"], options].concat());
        assert_eq!(code, 0, "{text}");
        let mut lines: Vec<String> = text
            .lines()
            .filter(|l| !l.contains("relight: "))
            .map(|l| l.split_once("] ").unwrap().1.to_owned())
            .collect();
        lines.sort();
        lines.join(",")
    };
    assert_eq!(shown(&["--rank=1", "--attempt=0", "--stream=stderr"]), "err 1 0 0,err 1 0 1,err 1 0 2");
    assert_eq!(shown(&["--rank=0", "--stream=stdout", "--tail=2"]), "out 0 1 1,out 0 1 2");
    assert_eq!(shown(&["scene", "--rank=1", "-n", "1", "--stream=stdout"]), "out 1 1 2");
    assert_eq!(shown(&[]).split(',').count(), 12);
    let (code, said) = look(&scene, &["logs", "--rank=2"]);
    assert!(code == 2 && said.contains("attempt 1 has no rank 2: it has 2 ranks, from 0"), "{said}");
    let (code, said) = look(&scene, &["logs", "--attempt=7"]);
    assert!(code == 2 && said.contains("this run has no attempt 7: the newest is 1"), "{said}");
}

/// The word behind `name` in what `status --json` says of a rank.
fn state_of_rank(scene: &Scene, rank: usize) -> char {
    let status = json(&look(scene, &["status", "--json"]).1);
    let pid = status["status"]["rank_processes"][rank]["pid"].as_i64().unwrap();
    super::support::procfs::read(i32::try_from(pid).unwrap()).map_or('-', |p| p.state)
}

#[test]
fn faults_on_order() {
    let scene = Scene::new();
    let launcher = running(&scene, 2, &["--max-restarts=5"], super::STAY);
    let inject = |words: &[&str]| {
        let (code, said) = look(&scene, &[&["inject"], words].concat());
        assert_eq!(code, 0, "{words:?}: {said}");
    };
    inject(&["stop-rank", "scene", "--rank", "1"]);
    wait_for("rank 1 to stop", LONG, || match state_of_rank(&scene, 1) {
        'T' => Ok(()),
        other => Err(other.to_string()),
    });
    inject(&["cont-rank", "--rank", "1"]);
    wait_for("rank 1 to go on", LONG, || match state_of_rank(&scene, 1) {
        'T' => Err("T".into()),
        _ => Ok(()),
    });
    inject(&["kill-rank", "--rank", "1"]);
    super::until_up(&scene, 4);
    let attempt = || json(&look(&scene, &["status", "--json"]).1)["status"]["attempt"].as_u64().unwrap();
    assert_eq!(attempt(), 1);
    inject(&["kill-rank", "--rank", "0", "--signal", "SEGV"]);
    super::until_up(&scene, 6);
    assert_eq!(attempt(), 2);
    inject(&["kill-agent"]);
    super::until_up(&scene, 8);
    wait_for("attempt 3", LONG, || if attempt() == 3 { Ok(()) } else { Err(attempt().to_string()) });
    let said = std::fs::read_to_string(scene.path("stderr")).unwrap();
    for part in [
        "rank 1 (n01) died: SIGKILL",
        "rank 0 (n01) died: SIGSEGV",
        "the agent on this node ended (SIGKILL); starting it again (1 of 3)",
        "attempt 3 running",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(said.matches("logs, journal: ").count(), 1, "the first lines are said once: {said}");
    kill(Pid::from_raw(launcher.pid()), Signal::SIGTERM).unwrap();
    assert_eq!(launcher.wait(LONG).code, 143);
    replay_equals_live(&scene);
    leftovers::assert_none(&scene);
}

#[test]
fn a_stopped_agent_loses_its_grant() {
    let scene = Scene::new();
    script(&scene, "stay.py", super::STAY);
    let launcher =
        run(&scene, 2, &["--max-restarts=5", "--grant=lease", "--lost-after=6"], &["stay.py"]).spawn();
    super::until_up(&scene, 2);
    let rank =
        json(&look(&scene, &["status", "--json"]).1)["status"]["rank_processes"][0]["pid"].as_i64().unwrap();
    assert_eq!(look(&scene, &["inject", "stop-agent"]).0, 0);
    wait_for("the guardian to kill the ranks", LONG, || {
        let left = super::support::procfs::read(i32::try_from(rank).unwrap()).filter(|p| p.state != 'Z');
        left.map_or(Ok(()), |p| Err(format!("{p:?}")))
    });
    let agent = launcher.agent().unwrap();
    kill(Pid::from_raw(agent), Signal::SIGCONT).unwrap();
    super::until_up(&scene, 4);
    kill(Pid::from_raw(launcher.pid()), Signal::SIGTERM).unwrap();
    let ended = launcher.wait(LONG);
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert!(ended.stderr.contains("this node's grant ran out"), "{}", ended.stderr);
    leftovers::assert_none(&scene);
}

/// What lies in a run directory may be anything.
#[test]
fn odd_files_are_a_sentence_or_a_bounded_one() {
    let scene = Scene::new();
    script(&scene, "train.py", "print('done')");
    assert_eq!(play(&scene, 1, &[], &["train.py"]).code, 0);
    let events = super::run_dir(&scene).join("events.jsonl");
    let whole = std::fs::read(&events).unwrap();
    let (code, before) = look(&scene, &["events"]);
    assert_eq!(code, 0);
    // 20 GB of nothing in front of the events, which take no room.
    let file = std::fs::File::create(&events).unwrap();
    file.set_len(20_000_000_000).unwrap();
    let mut file = std::fs::OpenOptions::new().append(true).open(&events).unwrap();
    std::io::Write::write_all(&mut file, &[b"\n", &whole[..]].concat()).unwrap();
    let (code, after) = look(&scene, &["events"]);
    let (first, rest) = after.split_once('\n').unwrap();
    assert!(
        code == 0 && first.starts_with("the oldest events are left out, 20000000001 bytes of "),
        "{first}"
    );
    let seen = |text: &str| {
        text.lines().filter(|l| !l.contains("a line of ")).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(seen(rest), seen(&before));
    let (code, lines) = look(&scene, &["events", "--json"]);
    assert_eq!((code, json(lines.lines().next().unwrap())["events_left_out_bytes"].is_u64()), (0, true));
    std::fs::write(&events, whole).unwrap();
    // A pipe has no writer: who opens it waits for ever.
    let status = super::run_dir(&scene).join("status.json");
    std::fs::remove_file(&status).unwrap();
    nix::unistd::mkfifo(&status, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for command in [&["status"][..], &["why"], &["events"], &["logs"], &["inject", "kill-agent"]] {
        let (code, said) = look(&scene, command);
        assert!(code != 0 && said.contains("it is a pipe, not a plain file"), "{command:?}: {code} {said}");
        assert!(said.contains("status.json") && said.starts_with("relight: error: "), "{command:?}: {said}");
    }
    let (code, said) = look(&scene, &["gc", "--keep", "0"]);
    assert!(code == 0 && said.contains("removed scene"), "{said}");
}
