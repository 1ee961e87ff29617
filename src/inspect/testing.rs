//! A journal made by hand: two nodes, a crash that is followed by a restart, a second one that ends the run.

use std::path::PathBuf;

use crate::domain::exit::ExitKind;
use crate::domain::ids::{Attempt, Incarnation, NodeName, Rank, RunId, Seq, Slot, StoreId, Term};
use crate::domain::record::{
    AttemptBody, Body, Break, Cause, Decision, End, FirstFailure, Ground, Incident, Lead, Member, Outcome,
    RECORD_VERSION, Record, Victim, Writer,
};
use crate::domain::spec::{Offer, RunSpec};
use crate::store::layout::RunJson;
use crate::store::look::RunView;
use crate::store::status::{NodeStatus, Phase, STATUS_VERSION, Status};

const START_MS: u64 = 1_700_000_000_000;

fn node(n: u32) -> NodeName {
    NodeName::new(format!("n{n:02}"))
}

fn record(seq: u64, after_ms: u64, attempt: u64, why: &str, body: Body) -> Record {
    Record {
        v: RECORD_VERSION,
        seq: Seq(seq),
        kind: body.kind(),
        term: Term(0),
        attempt: Attempt(attempt),
        writer: Writer { node: node(1), incarnation: Incarnation(7) },
        nonce: 1000 + seq,
        wall_ms: START_MS + after_ms,
        why: vec![why.into()],
        body,
    }
}

fn world(cause: Cause) -> Body {
    let member = |n: u32| Member {
        slot: Slot(n - 1),
        node: node(n),
        incarnation: Incarnation(u64::from(n)),
        nproc: 4,
        log_dir: format!("/logs/r1_n{n:02}"),
        role: String::new(),
    };
    Body::Attempt(AttemptBody {
        members: vec![member(1), member(2)],
        spares: vec![],
        voters: vec![node(1), node(2)],
        master: Offer { address: "n01".into(), port: 20_001, hosted: false },
        resume: None,
        cause,
    })
}

fn failure(rank: u32, exit: ExitKind, after_ms: u64, summary: &str, words: &str) -> FirstFailure {
    FirstFailure {
        rank: Rank(rank),
        local_rank: rank % 4,
        node: node(1 + rank / 4),
        pid: 4000 + rank,
        exit,
        wall_ms: START_MS + after_ms,
        summary: summary.into(),
        words: words.into(),
        error_file: String::new(),
        recorded_s: None,
    }
}

/// The journal.
pub(crate) fn crashed() -> Vec<Record> {
    let words =
        "Traceback (most recent call last):\n  File \"train.py\", line 41\nValueError: \u{1b}[31mboom\n";
    let first = failure(5, ExitKind::Code(1), 42_000, "failed: ValueError: boom", words);
    let killed = failure(2, ExitKind::Signal { no: 9, core: false }, 60_000, "", "");
    let victims = (0..8)
        .filter(|r| *r != 5)
        .map(|r| Victim {
            rank: Rank(r),
            node: node(1 + r / 4),
            exit: if r == 4 { ExitKind::Code(1) } else { ExitKind::Signal { no: 15, core: false } },
            ours: r != 4,
        })
        .collect();
    let lead = Lead {
        node: node(1),
        addresses: vec![],
        job: None,
        launch: String::new(),
        voters: vec![node(1), node(2)],
        ground: Ground::First,
        spec: Some(RunSpec { run_id: RunId::new("r1"), max_restarts: Some(1), ..RunSpec::default() }),
    };
    let broke = Break {
        incident: 0,
        attempt: Attempt(0),
        ran_ms: 39_500,
        first_failure: Some(first.clone()),
        lost: vec![],
        decision: Decision::Restart,
        charged: true,
        verdict: Default::default(),
        slot: None,
        reached: Default::default(),
        progress: Default::default(),
        wait_ms: 0,
        source: None,
        followed: None,
    };
    let incident = Incident {
        incident: 0,
        attempt: Attempt(0),
        first_failure: Some(first),
        lost: vec![],
        victims,
        others: vec![],
        decision: Decision::Restart,
        stopped_ms: 310,
        running_ms: Some(860),
        verdict: Default::default(),
    };
    let last = Incident {
        incident: 1,
        attempt: Attempt(1),
        first_failure: Some(killed),
        lost: vec![],
        victims: vec![],
        others: vec![],
        decision: Decision::Stop { code: 1 },
        stopped_ms: 120,
        running_ms: None,
        verdict: Default::default(),
    };
    let end = End {
        outcome: Outcome::Failed,
        code: 1,
        requeue: false,
        incident: Some(1),
        sentence: "1 of 1 restarts used".into(),
    };
    vec![
        record(0, 0, 0, "nobody leads", Body::Lead(lead)),
        record(1, 2_000, 0, "2 of 2 nodes are here", world(Cause::Start)),
        record(2, 42_100, 1, "restart 1 of 1", world(Cause::Incident(Box::new(broke)))),
        record(3, 46_000, 1, "all exits are in", Body::Incident(incident)),
        record(4, 60_500, 1, "no restart is left", Body::Incident(last)),
        record(5, 61_000, 1, "no restart is left", Body::End(end)),
    ]
}

/// A run directory with these records.
pub(crate) fn view(records: Vec<Record>) -> RunView {
    RunView {
        dir: PathBuf::from("/base/r1"),
        run: RunJson {
            v: 1,
            store: StoreId::new("5706e"),
            run: RunId::new("r1"),
            created_ms: START_MS,
            command: ["relight", "run", "train.py"].map(str::to_owned).to_vec(),
        },
        records,
        damage: None,
        events: vec![],
        events_left_out: 0,
        agents: vec![],
        status: None,
        incident_dirs: vec![0],
    }
}

/// A status in the second attempt.
pub(crate) fn status() -> Status {
    let of = |n: u32, state: &str| NodeStatus {
        node: node(n),
        slot: (n < 3).then(|| Slot(n - 1)),
        nproc: 4,
        state: state.into(),
    };
    Status {
        v: STATUS_VERSION,
        run: RunId::new("r1"),
        phase: Phase::Running,
        since_ms: START_MS + 43_000,
        wall_ms: START_MS + 62_000,
        term: Term(0),
        attempt: Some(Attempt(1)),
        leader: node(1),
        pid: 3999,
        world_size: 8,
        agent_process: None,
        rank_processes: Vec::new(),
        reach: None,
        ranks: Vec::new(),
        restarts: 1,
        max_restarts: Some(3),
        incident: Some(0),
        waiting: None,
        paused: false,
        without_progress: 0,
        budgets: Vec::new(),
        nodes: vec![of(1, "active"), of(2, "active"), of(3, "spare")],
    }
}
