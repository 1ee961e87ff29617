//! `relight ctl`: orders of a person, on the real program.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::support::leftovers;
use super::support::relight::Scene;
use super::support::wait::wait_for;
use super::{LONG, STAY, look, run_dir, running, until_up};

fn rank_of(scene: &Scene) -> i32 {
    let (_, status) = look(scene, &["status", "--json"]);
    let value: serde_json::Value = serde_json::from_str(&status).unwrap_or_default();
    i32::try_from(value["status"]["rank_processes"][0]["pid"].as_i64().unwrap_or(0)).unwrap()
}

fn ctl(scene: &Scene, order: &[&str], why: &str) -> (i32, String) {
    look(scene, &[&["ctl"], order, &["--why", why]].concat())
}

fn until_said(scene: &Scene, words: &str) {
    wait_for(words, LONG, || {
        let said = std::fs::read_to_string(scene.path("stderr")).unwrap_or_default();
        if said.contains(words) { Ok(()) } else { Err(said) }
    });
}

#[test]
fn a_paused_run_trains_on_and_starts_nothing_until_it_is_resumed() {
    let scene = Scene::new();
    let run = running(&scene, 1, &["--max-restarts=3"], STAY);
    assert_eq!(ctl(&scene, &["resume"], "x"), (1, "relight: refused: the run is not paused\n".into()));
    let (code, said) = ctl(&scene, &["pause"], "the file server is being moved");
    assert_eq!(code, 0, "{said}");
    until_said(&scene, "paused by user");
    wait_for("a rank", LONG, || if rank_of(&scene) > 0 { Ok(()) } else { Err("none".to_owned()) });
    kill(Pid::from_raw(rank_of(&scene)), Signal::SIGKILL).unwrap();
    until_said(&scene, "the run is paused: nothing is started");
    let (code, said) = ctl(&scene, &["resume"], "it is there again");
    assert_eq!(code, 0, "{said}");
    until_up(&scene, 2);
    let (code, said) = ctl(&scene, &["restart"], "to see it");
    assert_eq!(code, 0, "{said}");
    until_up(&scene, 3);
    let (_, events) = look(&scene, &["events"]);
    for words in ["paused by user", "resumed by user", "restarted by user", "the file server is being moved"]
    {
        assert!(events.contains(words), "{words}: {events}");
    }
    let (code, said) = ctl(&scene, &["stop"], "enough seen");
    assert_eq!(code, 0, "{said}");
    let ended = run.wait(LONG);
    assert_eq!(ended.code, 93, "{}", ended.stderr);
    assert!(ended.stderr.contains("enough seen"), "{}", ended.stderr);
    assert_eq!(ctl(&scene, &["stop"], "x").0, 1);
    leftovers::assert_none(&scene);
}

#[test]
fn an_order_without_the_secret_is_none() {
    let scene = Scene::new();
    let run = running(&scene, 1, &["--max-restarts=0"], STAY);
    let path = run_dir(&scene).join("secret");
    let own = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{}\n", "0".repeat(own.trim().len()))).unwrap();
    let (code, said) = ctl(&scene, &["stop"], "I am nobody");
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("does not talk to this command"), "{said}");
    std::fs::write(&path, own).unwrap();
    let refusals = [
        (vec!["evict", "n01"], "n01 leads this run: it cannot be taken out"),
        (vec!["evict", "n77"], "this run has no node n77"),
    ];
    for (order, sentence) in refusals {
        assert_eq!(ctl(&scene, &order, "x"), (1, format!("relight: refused: {sentence}\n")));
    }
    assert_eq!(
        ctl(&scene, &["restart"], " "),
        (1, "relight: refused: an order needs a reason: --why TEXT\n".into())
    );
    assert_eq!(ctl(&scene, &["stop"], "the end").0, 0);
    assert_eq!(run.wait(LONG).code, 93);
    leftovers::assert_none(&scene);
}
