//! Ranks that do not advance: when it is looked into, who is blamed, and what is done.

use super::super::super::board::{Feeder, Phase as RankPhase, Request, Sample};
use super::super::super::ids::Rank;
use super::super::super::liveness::evidence::{Frame, ProcessFacts, RankEvidence, Seen, Stack};
use super::super::super::liveness::limits::{HangAction, HangSpec, Learned, Place, Usual};
use super::super::super::liveness::watch::{Back, RankProgress, Silence};
use super::super::super::record::Outcome;
use super::*;

const STEP: Place = Place::Phase(RankPhase::Step);

fn silence(local: u32, silent_ms: u64, explicit: bool, last: bool) -> Silence {
    Silence {
        local_rank: LocalRank(local),
        place: STEP,
        step: Some(7_100),
        silent_ms,
        limit_ms: if last && !explicit { 300_000 } else { silent_ms },
        explicit,
        last,
        kills: true,
        end_ms: Some(300_000),
        usual_ms: Some(1_800),
    }
}

fn frames(lines: &[(&str, u32, &str)]) -> Vec<Frame> {
    let frame = |(file, line, function): &(&str, u32, &str)| Frame {
        file: (*file).into(),
        line: *line,
        function: (*function).into(),
    };
    lines.iter().map(frame).collect()
}

fn evidence(local: u32, silent_ms: u64, state: char, lines: &[(&str, u32, &str)]) -> RankEvidence {
    let facts = ProcessFacts { pid: 1_000 + local, state: Some(state), ..ProcessFacts::default() };
    RankEvidence {
        local_rank: LocalRank(local),
        sample: Some(Sample {
            pid: 1_000 + local,
            feeder: Feeder::Hook,
            step: Some(7_100),
            phase: RankPhase::Step,
            beat: 3,
            sections: Vec::new(),
            extend_ms: 0,
            collective_timeout_ms: None,
            stack_signal: None,
            request: None,
        }),
        silent_ms,
        before: facts.clone(),
        after: facts,
        between_ms: 200,
        stack: Some(Stack { seen: Seen::Inside, frames: frames(lines), text: "Thread 1\n".into() }),
        flight_recorder: String::new(),
    }
}

const WAITS: &[(&str, u32, &str)] = &[
    ("/opt/site-packages/torch/distributed/distributed_c10d.py", 2_800, "all_reduce"),
    ("/u/train.py", 40, "step"),
];
const PARSES: &[(&str, u32, &str)] = &[("/u/dataset.py", 88, "parse"), ("/u/train.py", 30, "main")];

impl Bed {
    /// Four nodes of 8 ranks that run, with this about hangs.
    fn watched(hang: HangSpec) -> Self {
        let mut bed = Self::with(CoordinatorConfig {
            node: name(1),
            incarnation: Incarnation(1),
            spec: RunSpec { hang, ..spec(4, 0) },
            voters: (1..=4).map(name).collect(),
            ..CoordinatorConfig::default()
        });
        bed.join_all(4);
        bed.event(Event::AuthorityHeld);
        bed.all_start();
        bed.pass(100_000);
        bed.notes.clear();
        bed.effects.clear();
        bed
    }

    fn silent(&mut self, node: u64, silent: Vec<Silence>) {
        let attempt = self.attempt();
        self.says(node, node, CoordinatorMsg::Silent { attempt, silent });
    }

    fn answers(&mut self, node: u64, ranks: Vec<RankEvidence>) {
        let (attempt, id) = (self.attempt(), self.looks().len() as u64 / 4 - 1);
        self.says(node, node, CoordinatorMsg::Inspected { attempt, id, ranks, whole: true });
    }

    /// Rank 11 is in its data set, all others in a collective; all of them for so long.
    fn rank_11_is_outside(&mut self, silent_ms: u64) {
        for node in 1..=4 {
            let of = |local| {
                let outside = node == 2 && local == 3;
                evidence(local, silent_ms, 'S', if outside { PARSES } else { WAITS })
            };
            self.answers(node, (0..8).map(of).collect());
        }
    }

    /// Every rank says where it is.
    fn progress(&mut self, age_ms: u64) {
        let attempt = self.attempt();
        for node in 1..=4 {
            let of = |local| RankProgress {
                local_rank: LocalRank(local),
                step: Some(7_100),
                phase: RankPhase::Step,
                age_ms,
                feeder: Feeder::Client,
            };
            let ranks = (0..8).map(of).collect();
            self.says(node, node, CoordinatorMsg::Progress { attempt, ranks, learned: None });
        }
    }

    /// Nodes that were asked what their ranks do.
    fn looks(&self) -> Vec<NodeName> {
        let asks = self.sent().filter(|(_, m)| matches!(m, AgentMsg::Inspect { .. }));
        asks.map(|(to, _)| to.clone()).collect()
    }

    fn broke(&self) -> bool {
        self.machine.phase() != Phase::Running
    }
}

fn learned() -> HangSpec {
    HangSpec::default()
}

fn explicit(action: HangAction) -> HangSpec {
    HangSpec { action, timeout_ms: Some(5_000), ..HangSpec::default() }
}

/// Story S3.
#[test]
fn a_hang_is_named_and_the_world_starts_again() {
    let mut bed = Bed::watched(learned());
    bed.progress(1_800);
    bed.pass(60_200);
    bed.silent(3, vec![silence(0, 62_000, false, false)]);
    assert_eq!(bed.looks(), [name(1), name(2), name(3), name(4)]);
    bed.rank_11_is_outside(62_000);
    bed.all_stop(&[]);
    bed.all_start();
    assert_eq!(
        bed.console(),
        [
            "relight: T no rank has advanced for 62 s (usual step 1.8 s); collecting stacks",
            "relight: T 31 ranks wait in all_reduce; rank 11 (n02) is outside it, in dataset.py:88 parse()   -> stacks: /incidents/0000",
            "relight: T restarting (change: --hang-action, --heartbeat-timeout)",
            "relight: T attempt 1 running; lost 0 s     details: relight why r",
        ]
    );
    let record = bed.attempts().pop().unwrap().clone();
    let broke = cause(&record);
    let first = broke.first_failure.clone().unwrap();
    assert_eq!((first.rank, first.node, first.exit), (Rank(11), name(2), ExitKind::Hung));
    assert_eq!(
        first.summary,
        "did not advance for 62 s: it is in dataset.py:88 parse(), and 31 ranks wait in all_reduce"
    );
    assert_eq!(broke.verdict.culprits, [(Rank(11), name(2))]);
    let kept = bed.effects.iter().find_map(|e| match e {
        Effect::Collected(kept) => Some(kept),
        _ => None,
    });
    let kept = kept.unwrap();
    assert_eq!((kept.dir.as_str(), kept.ranks.len()), ("incidents/0000", 32));
}

/// What is settled later must not take the first rank that ended for the culprit.
#[test]
fn whoever_ends_first_is_no_culprit_of_a_hang() {
    let mut bed = Bed::watched(explicit(HangAction::Restart));
    bed.silent(3, vec![silence(0, 5_000, true, true)]);
    bed.rank_11_is_outside(5_000);
    assert!(bed.broke());
    bed.exited(1, vec![report(0, KILL, "")]);
    bed.all_stop(&[]);
    bed.pass(20_000);
    bed.all_start();
    bed.pass(5_000);
    let settled = bed.journal.iter().find_map(|r| match &r.body {
        Body::Incident(incident) => incident.first_failure.clone(),
        _ => None,
    });
    assert_eq!(settled.map(|first| first.rank), Some(Rank(11)));
}

#[test]
fn a_fact_ends_the_look_in_a_moment() {
    for state in ['T', 'D'] {
        let mut bed = Bed::watched(explicit(HangAction::Restart));
        bed.silent(3, vec![silence(0, 5_000, true, true)]);
        bed.answers(3, vec![evidence(0, 5_000, 'S', WAITS), evidence(1, 5_000, state, &[])]);
        bed.pass(299);
        assert!(!bed.broke(), "{state}: what others say in a moment is kept");
        bed.pass(1);
        assert!(bed.broke(), "{state}: nobody else is waited for any longer");
        let incident = cause_of(&mut bed);
        assert_eq!(incident.verdict.culprits, [(Rank(17), name(3))]);
    }
}

fn cause_of(bed: &mut Bed) -> Break {
    bed.all_stop(&[]);
    cause(bed.attempts().pop().unwrap()).clone()
}

#[test]
fn an_explicit_limit_ends_the_world_though_nobody_answers() {
    let mut bed = Bed::watched(explicit(HangAction::Restart));
    bed.silent(3, vec![silence(0, 5_000, true, true)]);
    bed.pass(4_900);
    assert!(!bed.broke());
    bed.pass(200);
    assert!(bed.broke(), "5 s are enough");
    assert_eq!(cause_of(&mut bed).verdict.culprits, []);
}

/// A limit, what is done about a hang, what the ranks do: whether the world ends by it.
#[test]
fn what_is_learned_needs_evidence_or_its_ceiling() {
    type Change = fn(&mut RankEvidence);
    let nothing: Change = |_| {};
    let waits: Change = |e| e.stack.as_mut().unwrap().frames = frames(WAITS);
    let advances: Change = |e| {
        if e.local_rank == LocalRank(0) {
            e.silent_ms = 500;
        }
    };
    let debugged: Change = |e| e.after.traced = true;
    let reads: Change = |e| e.after.io_bytes = 10 << 20;
    for (what, last, change, ends) in [
        ("one is outside", false, nothing, true),
        ("nothing tells", false, waits, false),
        ("nothing tells, at the ceiling", true, waits, true),
        ("some advance", false, advances, false),
        ("some advance, at the ceiling", true, advances, false),
        ("a debugger", true, debugged, false),
        ("traffic", true, reads, false),
    ] {
        let mut bed = Bed::watched(learned());
        let silent_ms = if last { 300_000 } else { 60_000 };
        bed.silent(3, vec![silence(0, silent_ms, false, last)]);
        for node in 1..=4 {
            let of = |local| {
                let outside = node == 2 && local == 3;
                let mut e = evidence(local, silent_ms, 'S', if outside { PARSES } else { WAITS });
                change(&mut e);
                e
            };
            bed.answers(node, (0..8).map(of).collect());
        }
        assert_eq!(bed.broke(), ends, "{what}: {:?}", bed.console());
        let kept = bed.effects.iter().any(|e| matches!(e, Effect::Collected(_)));
        assert!(kept, "{what}: what was collected is kept in any case");
    }
}

#[test]
fn actions() {
    for (action, running) in [
        (HangAction::Restart, false),
        (HangAction::Warn, true),
        (HangAction::Off, true),
        (HangAction::Stop, false),
    ] {
        let mut bed = Bed::watched(explicit(action));
        bed.silent(3, vec![silence(0, 5_000, true, true)]);
        if action == HangAction::Off {
            assert_eq!(bed.looks(), Vec::<NodeName>::new());
            continue;
        }
        bed.rank_11_is_outside(5_000);
        assert_eq!(!bed.broke(), running, "{action:?}");
        if bed.broke() {
            bed.all_stop(&[]);
        }
        let end = bed.journal.iter().find_map(|r| match &r.body {
            Body::End(end) => Some((end.outcome, end.code)),
            _ => None,
        });
        assert_eq!(end, (action == HangAction::Stop).then_some((Outcome::Failed, 1)));
        if action == HangAction::Warn {
            assert_eq!(
                bed.console(),
                [
                    "relight: T rank 16 (n03) has not advanced for 5 s (step), limit 5 s; collecting stacks",
                    "relight: T 31 ranks wait in all_reduce; rank 11 (n02) is outside it, in dataset.py:88 parse(); nothing is done (--hang-action warn)   -> stacks: /incidents/look-00",
                ]
            );
        }
    }
}

#[test]
fn who_goes_on_is_no_hang_any_more() {
    let mut bed = Bed::watched(learned());
    let attempt = bed.attempt();
    bed.silent(3, vec![silence(0, 60_000, false, false)]);
    let back = vec![Back { local_rank: LocalRank(0), silent_ms: 61_000, step: Some(7_100) }];
    bed.says(3, 3, CoordinatorMsg::Back { attempt, back });
    bed.rank_11_is_outside(60_000);
    bed.pass(10_000);
    assert!(!bed.broke());
    assert_eq!(bed.console().pop().unwrap(), "relight: T rank 16 (n03) advances again after 61 s");
}

/// A program that says nothing of itself is told of once in a run, however often it is started.
#[test]
fn a_program_that_never_beats_is_warned_of_once() {
    let mut bed = Bed::watched(learned());
    let start = |local| Silence {
        place: Place::Start,
        kills: false,
        end_ms: None,
        ..silence(local, 600_000, false, false)
    };
    bed.silent(3, vec![start(0), start(1)]);
    for node in 1..=4 {
        bed.answers(
            node,
            (0..8)
                .map(|local| RankEvidence { sample: None, ..evidence(local, 600_000, 'S', PARSES) })
                .collect(),
        );
    }
    bed.silent(2, vec![start(0)]);
    assert!(!bed.broke());
    assert_eq!(bed.looks().len(), 4);
    assert_eq!(bed.console().len(), 2, "{:?}", bed.console());
}

#[test]
fn what_an_earlier_attempt_says_is_nothing() {
    let mut bed = Bed::watched(explicit(HangAction::Restart));
    let old = Attempt(7);
    bed.says(3, 3, CoordinatorMsg::Silent { attempt: old, silent: vec![silence(0, 5_000, true, true)] });
    assert_eq!(bed.looks(), Vec::<NodeName>::new());
    // A rank that the node does not have is nobody's.
    bed.silent(3, vec![silence(8, 5_000, true, true)]);
    assert_eq!(bed.looks(), Vec::<NodeName>::new());
}

#[test]
fn a_crash_while_it_is_looked_into_is_a_crash() {
    let mut bed = Bed::watched(explicit(HangAction::Restart));
    bed.silent(3, vec![silence(0, 5_000, true, true)]);
    bed.exited(1, vec![report(0, KILL, "")]);
    let incident = cause_of(&mut bed);
    assert_eq!(incident.first_failure.map(|first| (first.rank, first.exit)), Some((Rank(0), KILL)));
    bed.pass(30_000);
    assert_eq!(bed.attempts().len(), 2);
}

#[test]
fn what_is_learned_is_written_rarely() {
    let mut bed = Bed::watched(learned());
    let attempt = bed.attempt();
    let teach = |bed: &mut Bed, p99_ms| {
        let step = Some(Usual { median_ms: p99_ms / 2, p99_ms, count: 100 });
        let learned = Some(Box::new(Learned { step, ..Learned::default() }));
        bed.says(2, 2, CoordinatorMsg::Progress { attempt, ranks: Vec::new(), learned });
        bed.pass(1_000);
        bed.journal.iter().filter(|r| matches!(r.body, Body::Limits(_))).count()
    };
    assert_eq!(teach(&mut bed, 1_000), 1);
    assert_eq!(teach(&mut bed, 1_100), 1, "the same, more or less");
    assert_eq!(teach(&mut bed, 4_000), 1, "not yet");
    bed.pass(600_000);
    assert_eq!(bed.journal.iter().filter(|r| matches!(r.body, Body::Limits(_))).count(), 2);
    assert_eq!(bed.machine.ledger().limits().step.map(|u| u.p99_ms), Some(4_000));
    assert_eq!(Ledger::replay(&bed.journal).unwrap().limits(), bed.machine.ledger().limits());
}

#[test]
fn where_ranks_are() {
    let mut bed = Bed::watched(learned());
    bed.progress(0);
    let attempt = bed.attempt();
    let ranks = vec![RankProgress {
        local_rank: LocalRank(1),
        step: Some(7_090),
        phase: RankPhase::Data,
        age_ms: 0,
        feeder: Feeder::Client,
    }];
    bed.says(2, 2, CoordinatorMsg::Progress { attempt, ranks, learned: None });
    let states = bed.machine.rank_states();
    assert_eq!(states.len(), 32);
    let behind: Vec<_> = states.iter().filter(|s| s.lag > 0).map(|s| (s.rank, s.lag, s.phase)).collect();
    assert_eq!(behind, [(Rank(9), 10, RankPhase::Data)]);
}

#[test]
fn a_rank_may_ask_for_the_end_of_the_run() {
    let mut bed = Bed::watched(learned());
    let attempt = bed.attempt();
    let request = Request::Stop { reason: "the loss is NaN".into() };
    bed.says(2, 2, CoordinatorMsg::Asked { attempt, local_rank: LocalRank(1), request });
    bed.all_stop(&[]);
    let end = bed.journal.iter().find_map(|r| match &r.body {
        Body::End(end) => Some((end.outcome, end.code, end.sentence.clone())),
        _ => None,
    });
    let sentence = "rank 9 (n02) asked for the end of the run: the loss is NaN".to_owned();
    assert_eq!(end, Some((Outcome::Stopped, 93, sentence)));
}

/// Whoever asks for the end and fails in the same breath, or after somebody else, is not started again.
#[test]
fn a_rank_that_wants_the_end_gets_it_though_the_world_broke_before() {
    let mut bed = Bed::watched(learned());
    let attempt = bed.attempt();
    bed.exited(1, vec![report(0, KILL, "")]);
    assert!(bed.broke());
    let request = Request::Stop { reason: "the loss is NaN".into() };
    bed.says(2, 2, CoordinatorMsg::Asked { attempt, local_rank: LocalRank(1), request });
    bed.all_stop(&[]);
    bed.pass(5_000);
    let end = bed.journal.iter().find_map(|r| match &r.body {
        Body::End(end) => Some((end.outcome, end.code)),
        _ => None,
    });
    assert_eq!(end, Some((Outcome::Stopped, 93)));
}

/// One rank evaluates alone, all others wait for it in a collective.
#[test]
fn who_waits_for_an_evaluation_is_no_hang_until_that_is_one() {
    let mut bed = Bed::watched(learned());
    let evaluates = |bed: &mut Bed, silent_ms| {
        for node in 1..=4 {
            let of = |local| {
                let alone = node == 1 && local == 0;
                let mut found = evidence(local, silent_ms, 'S', if alone { PARSES } else { WAITS });
                found.sample.as_mut().unwrap().phase =
                    if alone { RankPhase::Eval } else { RankPhase::Backward };
                found
            };
            bed.answers(node, (0..8).map(of).collect());
        }
    };
    bed.silent(3, vec![silence(0, 62_000, false, false)]);
    evaluates(&mut bed, 62_000);
    assert!(!bed.broke());
    let said = bed.console().join("\n");
    assert!(said.contains("waiting: another rank is given more time"), "{said}");
    // Its own time is over.
    bed.silent(1, vec![silence(0, 300_000, false, false)]);
    evaluates(&mut bed, 300_000);
    assert!(bed.broke());
    assert_eq!(cause_of(&mut bed).verdict.culprits, [(Rank(0), name(1))]);
}

/// The collectives of the program give up before an explicit limit: that is told before, and ends nothing.
#[test]
fn a_look_before_an_explicit_limit_ends_nothing() {
    let mut bed = Bed::watched(explicit(HangAction::Restart));
    let early = Silence { end_ms: Some(900_000), ..silence(0, 540_000, true, false) };
    bed.silent(3, vec![early]);
    bed.rank_11_is_outside(540_000);
    assert!(!bed.broke());
    let said = bed.console().join("\n");
    assert!(said.contains("restarting if it is still so after 15 min"), "{said}");
    bed.silent(3, vec![silence(0, 900_000, true, true)]);
    bed.rank_11_is_outside(900_000);
    assert!(bed.broke());
}
