//! Tables: one for each rule.

use super::super::attribution::{Confidence, Owner, Verdict as Found};
use super::super::board::Feeder;
use super::super::exit::ExitKind;
use super::super::ids::{Incarnation, NodeName, Rank, Seq, Slot, Term};
use super::super::mutant::Mutants;
use super::super::record::{
    AttemptBody, Body, Break, Cause, Decision, Evict, FirstFailure, Ground, Lead, Member, RECORD_VERSION,
    Record, Writer,
};
use super::super::spec::{JobRef, Numbers, Offer, RunSpec};
use super::*;

/// A run with a journal, that fails as it is told.
struct Run {
    ledger: Ledger,
    nodes: u64,
    max_restarts: Option<u32>,
    wall_ms: u64,
    spares: usize,
    sought: Sought,
    signalled: bool,
    restore: Restore,
    gone: Vec<NodeName>,
    hung: bool,
}

fn name(i: u64) -> NodeName {
    NodeName::new(format!("n{i:02}"))
}

/// A failure of the rank on this node.
fn fails(node: u64, exit: ExitKind, summary: &str) -> FirstFailure {
    FirstFailure {
        rank: Rank(u32::try_from(node).unwrap() - 1),
        local_rank: 0,
        node: name(node),
        pid: 1,
        exit,
        wall_ms: 0,
        summary: summary.into(),
        words: String::new(),
        error_file: String::new(),
        recorded_s: None,
    }
}

fn error(node: u64, summary: &str) -> FirstFailure {
    fails(node, ExitKind::Code(1), summary)
}

fn client(first: u64, most: u64) -> Reached {
    Reached { first: Some(first), most: Some(most), feeder: Some(Feeder::Client), ..Reached::default() }
}

fn hook(most: u64) -> Reached {
    Reached { first: Some(0), most: Some(most), feeder: Some(Feeder::Hook), ..Reached::default() }
}

impl Run {
    fn new(nodes: u64) -> Self {
        let mut run = Self {
            ledger: Ledger::default(),
            nodes,
            max_restarts: None,
            wall_ms: 1_000_000,
            spares: 0,
            sought: Sought::default(),
            signalled: false,
            restore: Restore::default(),
            gone: Vec::new(),
            hung: false,
        };
        run.launch(0);
        run.open(Cause::Start);
        run
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self.launch(0);
        self
    }

    fn write(&mut self, body: Body) {
        let attempt = match &body {
            Body::Attempt(_) => self.ledger.next_attempt(),
            _ => self.ledger.attempt().unwrap_or_default(),
        };
        let record = Record {
            v: RECORD_VERSION,
            seq: self.ledger.next(),
            kind: body.kind(),
            term: self.ledger.term().map_or(Term(0), Term::next),
            attempt,
            writer: Writer::default(),
            nonce: 0,
            wall_ms: self.wall_ms,
            why: vec!["a test".into()],
            body,
        };
        self.ledger.apply(&record).unwrap();
        // What is remembered is in the snapshot, too.
        let snapshot = self.ledger.snapshot();
        let mut other = Ledger::default();
        let body = Body::Snapshot(Box::new(snapshot.clone()));
        other.apply(&Record { seq: self.ledger.next(), kind: body.kind(), body, ..record }).unwrap();
        assert_eq!(other.history(), self.ledger.history());
        assert_eq!(snapshot.next(), Seq(self.ledger.next().0 + 1));
    }

    /// Slurm started the job for the so-manieth time.
    fn launch(&mut self, restart: u32) {
        let nodes = u32::try_from(self.nodes).unwrap();
        let spec = RunSpec {
            min_nodes: nodes,
            max_nodes: nodes,
            max_restarts: self.max_restarts,
            numbers: Numbers::default(),
            ..RunSpec::default()
        };
        self.write(Body::Lead(Lead {
            node: name(1),
            addresses: vec![],
            job: Some(JobRef { id: "7".into(), restart }),
            launch: String::new(),
            voters: vec![name(1)],
            ground: Ground::First,
            spec: Some(spec),
        }));
    }

    fn open(&mut self, cause: Cause) {
        let fit: Vec<u64> = (1..)
            .filter(|i| !self.ledger.is_evicted(&name(*i)))
            .take(usize::try_from(self.nodes).unwrap())
            .collect();
        // A slot keeps its node; a free one goes to the next.
        let old: Vec<Option<NodeName>> = (0..self.nodes)
            .map(|slot| {
                let member = self.ledger.world().and_then(|w| w.members.get(usize::try_from(slot).unwrap()));
                member.map(|m| m.node.clone()).filter(|n| !self.ledger.is_evicted(n))
            })
            .collect();
        let mut free =
            fit.into_iter().map(name).filter(|n| !old.contains(&Some(n.clone()))).collect::<Vec<_>>();
        let members = old.iter().zip(0..).map(|(node, slot)| Member {
            slot: Slot(slot),
            node: node.clone().unwrap_or_else(|| free.remove(0)),
            incarnation: Incarnation(1),
            nproc: 1,
            log_dir: String::new(),
            role: String::new(),
        });
        let members = members.collect();
        self.write(Body::Attempt(AttemptBody {
            members,
            spares: vec![],
            voters: vec![name(1)],
            master: Offer::default(),
            resume: None,
            cause,
        }));
    }

    fn decide(&self, first: Option<&FirstFailure>, found: &Found, reached: Reached, ran_ms: u64) -> Verdict {
        let leader = name(1);
        decide(
            &self.ledger,
            &Broken {
                first,
                hung: self.hung,
                gone: &self.gone,
                dirty: None,
                unstartable: false,
                ran_ms,
                spares: self.spares,
                found,
                reached,
                slot: first.and_then(|first| self.ledger.slot(&first.node)),
                leader: &leader,
                because: None,
                sought: self.sought,
                signalled: self.signalled,
                restore: self.restore,
                wall_ms: self.wall_ms,
                random: 20,
                mutants: Mutants::NONE,
            },
        )
    }

    /// The newest world breaks; what is decided is done, if something is started again.
    fn breaks(&mut self, first: &FirstFailure, found: &Found, reached: Reached, ran_ms: u64) -> Verdict {
        self.ends(Some(first), found, reached, ran_ms)
    }

    fn ends(
        &mut self,
        first: Option<&FirstFailure>,
        found: &Found,
        reached: Reached,
        ran_ms: u64,
    ) -> Verdict {
        let verdict = self.decide(first, found, reached, ran_ms);
        if matches!(verdict.decision, Decision::Stop { .. }) {
            return verdict;
        }
        for evict in verdict.evict.clone() {
            self.spares = if evict.back { self.spares + 1 } else { self.spares.saturating_sub(1) };
            self.write(Body::Evict(evict));
        }
        let broke = Break {
            incident: self.ledger.next_incident(),
            attempt: self.ledger.attempt().unwrap(),
            ran_ms,
            slot: first.and_then(|first| self.ledger.slot(&first.node)),
            first_failure: first.cloned(),
            lost: vec![],
            decision: verdict.decision.clone(),
            charged: verdict.charged,
            verdict: found.clone(),
            reached,
            progress: verdict.progress,
            wait_ms: verdict.wait_ms,
            source: verdict.source,
            followed: verdict.followed.clone(),
        };
        self.open(Cause::Incident(Box::new(broke)));
        verdict
    }
}

fn stopped(verdict: &Verdict) -> Option<(u8, &str)> {
    match verdict.decision {
        Decision::Stop { code } => Some((code, verdict.why.last().map_or("", String::as_str))),
        _ => None,
    }
}

const HOUR: u64 = 3_600_000;

fn user_error() -> Found {
    Found {
        owner: Owner::User,
        confidence: Confidence::High,
        deterministic: true,
        fingerprint: "KeyError collate.py".into(),
        ..Found::default()
    }
}

#[test]
fn three_attempts_without_progress_end_a_run_ten_of_which_nothing_is_known_and_three_that_are_short() {
    let found = Found::default();
    // What each attempt reaches, how long it runs, and after how many the run ends.
    type Row = (&'static str, fn(u64) -> Reached, u64, Option<u64>);
    let table: [Row; 7] = [
        ("the same steps again and again", |_| client(0, 500), 2 * HOUR, Some(3)),
        ("further each time", |n| client(90 * n, 90 * n + 100), 1_000, None),
        ("further each time, and nobody counts", |_| Reached::default(), 2 * HOUR, Some(10)),
        ("hooks count from 0", |n| Reached { stepping_ms: Some(HOUR), ..hook(100 * n) }, 2 * HOUR, Some(10)),
        ("before the first step, or soon after", |_| Reached::default(), 20_000, Some(3)),
        (
            "soon after the first step",
            |_| Reached { stepping_ms: Some(200_000), ..hook(3) },
            2 * HOUR,
            Some(3),
        ),
        ("later than that", |_| Reached { stepping_ms: Some(301_000), ..hook(3) }, 2 * HOUR, Some(10)),
    ];
    for (what, reached, ran_ms, ends) in table {
        let mut run = Run::new(1);
        let end = (1..=20).find(|n| {
            // A different root each time: scenario 54.
            let first = error(1, &format!("error {n}"));
            stopped(&run.breaks(&first, &found, reached(*n), ran_ms)).is_some_and(|(code, _)| code == 93)
        });
        assert_eq!(end, ends, "{what}");
    }
}

#[test]
fn an_explicit_number_takes_the_place_of_every_budget() {
    for max in [1, 5] {
        let mut run = Run::new(1).with(|run| run.max_restarts = Some(max));
        let first = error(1, "KeyError");
        for _ in 0..max {
            assert_eq!(run.breaks(&first, &user_error(), client(0, 5), 1_000).decision, Decision::Restart);
        }
        assert_eq!(stopped(&run.breaks(&first, &user_error(), client(0, 5), 1_000)).unwrap().0, 1);
    }
}

#[test]
fn p1_20_a_program_that_fails_everywhere_at_its_start_is_not_started_again_unless_it_is_an_outage() {
    let (yes, no) = (Some(true), Some(false));
    let table = [
        (Probes { storage: yes, names: yes }, true, "all works"),
        (Probes { storage: no, names: yes }, false, "storage is away"),
        (Probes { storage: yes, names: no }, false, "names are away"),
        (Probes { storage: None, names: yes }, false, "nobody knows"),
    ];
    for (probes, stops, what) in table {
        let mut run = Run::new(2);
        let first = error(1, "ImportError");
        let asking = run.decide(Some(&first), &user_error(), Reached::default(), 3_000);
        assert_eq!((asking.ask, stopped(&asking)), (Some(Ask::Probes), None), "{what}");
        run.sought.probes = Some(probes);
        let verdict = run.breaks(&first, &user_error(), Reached::default(), 3_000);
        assert_eq!(stopped(&verdict).is_some(), stops, "{what}");
        if stops {
            assert_eq!(stopped(&verdict), Some((93, "the same program would fail again")));
        } else {
            assert_eq!(verdict.wait_ms, stop::OUTAGE_MS, "{what}");
            // The same again after that: no outage lasts for ever.
            let verdict = run.breaks(&first, &user_error(), Reached::default(), 3_000);
            assert_eq!(stopped(&verdict), Some((93, "the same program would fail again")), "{what}");
        }
    }
    // Once it has made a step it is not that program any more.
    let mut run = Run::new(2);
    run.sought.probes = Some(Probes { storage: yes, names: yes });
    let _ = run.breaks(&error(1, "other"), &Found::default(), hook(9), HOUR);
    assert_eq!(
        stopped(&run.breaks(&error(1, "ImportError"), &user_error(), Reached::default(), 3_000)),
        None
    );
}

#[test]
fn s5_the_same_root_at_the_same_step_is_made_sure_of_once() {
    let found = Found { deterministic: false, confidence: Confidence::Medium, ..user_error() };
    let first = error(2, "KeyError: 'labels'");
    let mut run = Run::new(4);
    assert_eq!(run.breaks(&first, &found, client(0, 57), HOUR).decision, Decision::Restart);
    let verdict = run.breaks(&first, &found, client(50, 57), HOUR);
    assert_eq!(stopped(&verdict), Some((93, "restarted once to make sure; it failed at the same step 57")));
    // Another step, or another root.
    for (found, step) in [(found.clone(), 58), (Found { fingerprint: "other".into(), ..found.clone() }, 57)] {
        let mut run = Run::new(4);
        let _ = run.breaks(&first, &found, client(0, 57), HOUR);
        let other = Found { fingerprint: found.fingerprint.clone(), ..found };
        let again = if step == 57 { user_error() } else { other };
        assert_eq!(stopped(&run.breaks(&first, &again, client(0, step), HOUR)), None);
    }
}

#[test]
fn scenario_57_out_of_memory_twice_is_a_matter_for_its_owner() {
    let found = Found { owner: Owner::Memory, fingerprint: "oom".into(), ..Found::default() };
    let first = fails(1, ExitKind::Signal { no: 9, core: false }, "");
    let mut run = Run::new(1);
    assert_eq!(run.breaks(&first, &found, hook(4), HOUR).decision, Decision::Restart);
    let verdict = run.breaks(&first, &found, hook(9), HOUR);
    let (code, why) = stopped(&verdict).unwrap();
    assert!(code == 93 && why.contains("--mem"), "{why}");
}

#[test]
fn scenario_53_a_node_on_which_ranks_fail_first_twice_is_taken_out() {
    let mut run = Run::new(4).with(|run| run.spares = 2);
    let (killed, found) = (ExitKind::Signal { no: 9, core: false }, Found::default());
    assert_eq!(run.breaks(&fails(3, killed.clone(), ""), &found, client(0, 10), HOUR).evict, []);
    let verdict = run.breaks(&error(3, "x"), &found, client(10, 90), HOUR);
    assert_eq!(verdict.decision, Decision::Replace { nodes: vec![name(3)] });
    let evict = &verdict.evict[0];
    assert_eq!((&evict.node, evict.inferred, evict.slot), (&name(3), true, Some(Slot(2))));
    assert!(run.ledger.is_evicted(&name(3)));
    // A swapped node is no reason to wait.
    assert_eq!(verdict.wait_ms, 0);
}

#[test]
fn who_leads_and_who_has_no_spare_is_kept() {
    for (node, spares, why) in [(1, 2, "leads this run: kept"), (3, 0, "no spare is left: kept")] {
        let mut run = Run::new(4).with(|run| run.spares = spares);
        let _ = run.breaks(&error(node, "a"), &Found::default(), client(0, 10), HOUR);
        let verdict = run.breaks(&error(node, "b"), &Found::default(), client(10, 90), HOUR);
        assert_eq!((verdict.evict.len(), &verdict.decision), (0, &Decision::Restart));
        assert!(verdict.why.iter().any(|w| w.ends_with(why)), "{:?}", verdict.why);
    }
}

#[test]
fn p1_23_a_failure_that_follows_the_slot_is_not_the_nodes() {
    let mut run = Run::new(4).with(|run| run.spares = 2);
    let found = Found { fingerprint: "bad shard".into(), ..Found::default() };
    let long = |n: u64| client(10 * n, 10 * n + 20);
    let _ = run.breaks(&error(3, "x"), &found, long(0), HOUR);
    let _ = run.breaks(&error(3, "x"), &found, long(2), HOUR);
    assert!(run.ledger.is_evicted(&name(3)));
    let heir = run.ledger.world().unwrap().members[2].node.clone();
    assert_eq!(heir, name(5));
    let mut first = error(5, "x");
    first.rank = Rank(2);
    let verdict = run.breaks(&first, &found, long(4), HOUR);
    let back = Evict { node: name(3), back: true, ..Evict::default() };
    assert_eq!(verdict.evict.iter().map(|e| (&e.node, e.back)).collect::<Vec<_>>(), [(&back.node, true)]);
    assert!(!run.ledger.is_evicted(&name(3)));
    // And no other node is taken out for it, however often.
    for n in 6..12 {
        let verdict = run.breaks(&first, &found, long(n), HOUR);
        assert_eq!((verdict.evict, verdict.decision), (vec![], Decision::Restart));
    }
    // Without progress there is nothing to be won.
    let last = run.breaks(&first, &found, client(0, 5), HOUR);
    assert_eq!(last.evict, []);
}

#[test]
fn the_breaker_lets_two_nodes_or_one_in_twenty_go_in_ten_minutes() {
    for (nodes, most) in [(4, 2), (40, 2), (100, 5)] {
        let mut run = Run::new(nodes).with(|run| run.spares = 50);
        let mut out = 0;
        for node in 2..12 {
            for root in ["a", "b"] {
                let first = error(node, &format!("{root} {node}"));
                let n = 10 * (2 * node + u64::from(root == "b"));
                out += run.breaks(&first, &Found::default(), client(n, n + 20), HOUR).evict.len();
            }
        }
        assert_eq!(out, most, "of {nodes}");
        run.wall_ms += 600_000;
        assert_eq!(evict::allowed(&run.ledger, run.wall_ms, Mutants::NONE), most, "ten minutes later");
    }
}

#[test]
fn hardware_evidence_takes_a_node_out_at_once_and_many_nodes_at_one_time_none() {
    let bad = |nodes: &[u64]| Found {
        hardware: true,
        confidence: Confidence::High,
        cause: "Xid 79".into(),
        nodes: nodes.iter().map(|n| name(*n)).collect(),
        ..Found::default()
    };
    let mut run = Run::new(8).with(|run| run.spares = 3);
    let verdict = run.breaks(&error(3, "CUDA error"), &bad(&[3]), Reached::default(), 1_000);
    assert_eq!(verdict.decision, Decision::Replace { nodes: vec![name(3)] });
    let verdict = run.decide(Some(&error(4, "CUDA error")), &bad(&[4, 5]), Reached::default(), 1_000);
    assert_eq!(verdict.evict, [], "two of eight at one time");
    run.gone = vec![name(6), name(7)];
    let verdict = run.decide(Some(&error(4, "CUDA error")), &bad(&[4]), Reached::default(), 1_000);
    assert_eq!(verdict.evict, [], "a mass loss blames nobody");
}

#[test]
fn scenario_55_a_check_that_fails_everywhere_blames_itself() {
    let run = Run::new(10);
    let failed = |n: u64| (2..2 + n).map(|i| (name(i), "no GPU".to_owned())).collect::<Vec<_>>();
    for (n, out) in [(1, 1), (2, 2), (3, 0), (9, 0)] {
        let chosen = evict::failed_gate(&run.ledger, &failed(n), 10, run.wall_ms, Mutants::NONE);
        assert_eq!(chosen.evict.len(), out, "{n} of 10");
        assert_eq!(chosen.why.is_empty(), out > 0);
    }
}

#[test]
fn p1_14_deaths_around_a_signal_from_outside_are_nobodys_fault() {
    let killed = |no| fails(1, ExitKind::Signal { no, core: false }, "");
    for no in [10, 12, 15] {
        let mut run = Run::new(2);
        let ask = |run: &Run| run.decide(Some(&killed(no)), &Found::default(), Reached::default(), 1_000);
        assert_eq!(ask(&run).ask, Some(Ask::Signals));
        // Nobody heard it: it was meant for that rank.
        run.sought.signals = true;
        assert_eq!((ask(&run).ask, ask(&run).charged), (None, true));
        run.signalled = true;
        assert_eq!(ask(&run).ask, Some(Ask::Slurm));
        for (job, code) in [(JobWord::Runs, None), (JobWord::Unknown, None), (JobWord::Ends, Some(143))] {
            run.sought.job = Some(job);
            let verdict = ask(&run);
            assert_eq!((verdict.ask, verdict.charged, stopped(&verdict).map(|s| s.0)), (None, false, code));
        }
    }
    // SIGKILL and SIGSEGV are no such signals.
    let run = Run::new(2);
    assert_eq!(run.decide(Some(&killed(9)), &Found::default(), Reached::default(), 1_000).ask, None);
}

#[test]
fn p1_19_a_failure_soon_after_a_restore_first_changes_the_source() {
    let bad = Found { bad_state: true, ..user_error() };
    let table = [
        (Restore { restored: true, copies: 1, older: 2 }, &bad, client(100, 105), Some(Source::OtherCopy)),
        (Restore { restored: true, copies: 0, older: 1 }, &bad, client(100, 105), Some(Source::Older)),
        (Restore { restored: true, copies: 0, older: 0 }, &bad, client(100, 105), None),
        (Restore { restored: true, copies: 1, older: 2 }, &bad, client(100, 900), None),
        (Restore { restored: false, copies: 1, older: 2 }, &bad, client(100, 105), None),
        (Restore { restored: true, copies: 1, older: 2 }, &Found::default(), client(100, 105), None),
    ];
    for (restore, found, reached, source) in table {
        let mut run = Run::new(1);
        let _ = run.breaks(&error(1, "nan"), found, reached, 1_000);
        run.restore = restore;
        let verdict = run.decide(Some(&error(1, "nan")), found, reached, 1_000);
        assert_eq!(verdict.source, source, "{restore:?}");
        // Two generations where two exist: only then is it the program.
        assert_eq!(stopped(&verdict).is_some(), source.is_none(), "{restore:?} {reached:?}");
    }
}

#[test]
fn from_the_second_failure_at_one_point_on_it_waits() {
    let mut run = Run::new(1).with(|run| run.max_restarts = Some(99));
    let waits: Vec<u64> = (0..9)
        .map(|n| run.breaks(&error(1, &format!("e{n}")), &Found::default(), client(0, 5), HOUR).wait_ms)
        .collect();
    assert_eq!(waits, [0, 10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000, 300_000]);
    let verdict = run.breaks(&error(1, "e"), &Found::default(), client(5, 9), HOUR);
    assert_eq!(verdict.wait_ms, 0, "after progress it is the first failure again");
    let jitter = |random| wait::before(&run.ledger, Progress::None, random);
    assert_eq!((jitter(0), jitter(20), jitter(40)), (8_000, 10_000, 12_000));
}

#[test]
fn what_was_counted_survives_a_requeue_and_not_a_new_launch() {
    let mut run = Run::new(1);
    for n in 0..2 {
        let _ = run.breaks(&error(1, &format!("e{n}")), &Found::default(), client(0, 5), HOUR);
    }
    let mut requeued = Run { ledger: run.ledger.clone(), ..Run::new(1) };
    requeued.launch(1);
    assert!(stopped(&requeued.decide(Some(&error(1, "e")), &Found::default(), client(0, 5), HOUR)).is_some());
    run.launch(0);
    assert_eq!(stopped(&run.decide(Some(&error(1, "e")), &Found::default(), client(0, 5), HOUR)), None);
}

#[test]
fn budgets_say_what_is_used_and_what_is_left() {
    let shown = |run: &Run| {
        let all = budget::all(&run.ledger, run.wall_ms);
        all.iter().map(|b| format!("{} of {} {}", b.used, b.of, b.what)).collect::<Vec<_>>()
    };
    let mut run = Run::new(6);
    let _ = run.breaks(&error(2, "x"), &Found::default(), client(0, 5), HOUR);
    run.write(Body::Evict(Evict { node: name(6), inferred: true, ..Evict::default() }));
    assert_eq!(
        shown(&run),
        [
            "1 of 3 attempts in a row without progress",
            "0 of 3 attempts in a row that ended at or soon after their start, without known progress",
            "1 of 10 attempts in a row without known progress",
            "1 of 2 nodes taken out by inference in 10 min",
        ]
    );
    run.wall_ms += 600_000;
    assert_eq!(shown(&run)[3], "0 of 2 nodes taken out by inference in 10 min");
    let limited = Run::new(2).with(|run| run.max_restarts = Some(4));
    assert_eq!(shown(&limited).len(), 1, "--max-restarts takes the place of the others");
}

/// A file system that hangs has no culprit, and is no reason to go on for ever.
#[test]
fn a_hang_without_a_culprit_counts_like_any_failure() {
    let reason = "all 2 ranks wait for a file system; no node is to blame";
    let found = Found {
        owner: Owner::Storage,
        cause: "hang".into(),
        fingerprint: "hang storage".into(),
        reasons: vec![reason.into()],
        ..Found::default()
    };
    let mut run = Run::new(2).with(|run| run.hung = true);
    for _ in 0..2 {
        let verdict = run.ends(None, &found, client(0, 7), HOUR);
        assert_eq!((stopped(&verdict), verdict.charged), (None, true));
        assert!(verdict.why.contains(&reason.to_owned()), "{verdict:?}");
        assert!(verdict.evict.is_empty(), "{verdict:?}");
    }
    assert_eq!(run.ledger.charged(), 2);
    let verdict = run.ends(None, &found, client(0, 7), HOUR);
    let why = "3 attempts in a row made no progress beyond step 7 (change: --max-restarts)";
    assert_eq!(stopped(&verdict), Some((93, why)));
    assert_eq!(verdict.why[0], reason);
    // One that goes beyond what was reached goes on.
    let verdict = run.ends(None, &found, client(7, 9), HOUR);
    assert_eq!(stopped(&verdict), None);
    let mut limited = Run::new(2).with(|run| (run.hung, run.max_restarts) = (true, Some(1)));
    assert_eq!(stopped(&limited.ends(None, &found, client(0, 7), HOUR)), None);
    let verdict = limited.ends(None, &found, client(7, 9), HOUR);
    assert_eq!(stopped(&verdict), Some((1, "the one restart that was allowed is used")));
    // Ranks that are gone with their agent are no hang.
    let mut lost = Run::new(2);
    assert!(!lost.ends(None, &Found::default(), client(0, 7), HOUR).charged);
}
