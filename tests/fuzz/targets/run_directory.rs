//! A run directory with any content: files of it, each behind a byte 29, in the order of [`FILES`].

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use relight::domain::ids::{NodeName, RunId, Seq, StoreId, Term};
use relight::inspect::{Clock, events, status, why};
use relight::store::hint::{HINT, HINT_VERSION, Hint};
use relight::store::layout::{RunJson, names};
use relight::store::look::{self, read_run};
use relight::store::posix::record_name;
use relight::store::status::{Phase, STATUS_VERSION, Status};
use relight::store::{codec, faults::Hands, hint};

use super::coordinator_machine::{Bed, fails};
use crate::engine::{Target, behaviour, shape};

pub const TARGET: Target = Target {
    name: "run_directory",
    seeds,
    run,
    longest: 64 << 10,
    heap: |length| 160 * length + (2 << 20),
    words: &[b"\x1d", br#""v":1"#, br#""phase":"running""#, br#"{"ms":1,"node":"n","note":{}}"#],
};

/// Names in the directory; records follow.
const FILES: [&str; 5] = [names::RUN, names::STATUS, names::EVENTS, names::OLD_EVENTS, HINT];

static PLACE: LazyLock<tempfile::TempDir> = LazyLock::new(|| tempfile::tempdir().unwrap());

fn seeds() -> Vec<Vec<u8>> {
    let mut bed = Bed::new();
    fails(1).into_iter().for_each(|step| bed.step(step));
    let (store, run, node) = (StoreId::new("5e"), RunId::new("r"), NodeName::new("n01"));
    let run_json = RunJson {
        v: 1,
        store: store.clone(),
        run: run.clone(),
        created_ms: 1,
        command: vec!["relight".into()],
    };
    let status = Status {
        v: STATUS_VERSION,
        run,
        phase: Phase::Running,
        since_ms: 1,
        wall_ms: 2,
        term: Term(0),
        attempt: None,
        leader: node.clone(),
        pid: 7,
        world_size: 8,
        restarts: 1,
        max_restarts: Some(1),
        incident: Some(0),
        waiting: None,
        paused: false,
        without_progress: 0,
        budgets: Vec::new(),
        nodes: vec![],
        agent_process: None,
        rank_processes: vec![],
        reach: None,
        ranks: vec![],
    };
    let hint = Hint {
        v: HINT_VERSION,
        store,
        launch: "l".into(),
        term: Term(0),
        node,
        addresses: vec!["10.0.0.1:1".into()],
        proof: 3,
    };
    let events = br#"{"wall_ms":7,"node":"n01","note":{"ended":{"code":0,"sentence":"finished"}}}"#.to_vec();
    let mut files = vec![
        serde_json::to_vec(&run_json).unwrap(),
        status.to_bytes(),
        events.clone(),
        events,
        hint.to_bytes(),
    ];
    files.extend(bed.journal.iter().map(|record| codec::encode(record).unwrap()));
    vec![files.join(&29)]
}

fn run(input: &[u8]) -> u64 {
    let dir = PLACE.path().join("r");
    let _ = fs::remove_dir_all(&dir);
    let journal = dir.join(names::JOURNAL);
    fs::create_dir_all(&journal).unwrap();
    for (i, bytes) in input.split(|byte| *byte == 29).take(64).enumerate() {
        let path = match FILES.get(i) {
            Some(name) => dir.join(name),
            None => journal.join(record_name(Seq((i - FILES.len()) as u64))),
        };
        // An empty one is not there.
        if !bytes.is_empty() {
            fs::write(path, bytes).unwrap();
        }
    }
    judge(&dir)
}

fn judge(dir: &Path) -> u64 {
    let hint = hint::read(&mut Hands::default(), dir).is_some();
    let listed = look::list(dir.parent().unwrap()).unwrap().len();
    let view = match read_run(dir) {
        Ok(view) => view,
        Err(error) => return behaviour((hint, listed, shape(error))),
    };
    let clock = Clock::utc();
    let said = [
        events::render(&view, true, &clock),
        events::render(&view, false, &clock),
        status::render(&view, "r", status::Alive::No, 9, true, &clock),
        status::render(&view, "r", status::Alive::Yes, 9, false, &clock),
        why::render(&view, None, &clock),
    ];
    let told: Vec<_> = said.iter().map(|said| (said.code, said.text.lines().count().min(40))).collect();
    behaviour((hint, listed, view.records.len(), view.damage.is_some(), view.status.is_some(), told))
}
