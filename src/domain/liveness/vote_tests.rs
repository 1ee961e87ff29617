//! What is made of what was collected: one table, and what must hold for any evidence.

use proptest::prelude::*;

use super::super::super::board::{Feeder, Sample};
use super::super::super::ids::LocalRank;
use super::super::evidence::{ProcessFacts, Seen, Stack};
use super::*;

/// `file:line function`, the innermost first.
fn stack(lines: &[&str]) -> Option<Stack> {
    let frame = |line: &&str| {
        let (place, function) = line.split_once(' ').unwrap();
        let (file, line) = place.rsplit_once(':').unwrap();
        Frame { file: file.into(), line: line.parse().unwrap(), function: function.into() }
    };
    Some(Stack { seen: Seen::Inside, frames: lines.iter().map(frame).collect(), text: String::new() })
}

fn rank(state: char, cpu_ms: u64, lines: &[&str]) -> RankEvidence {
    let facts = |cpu_ms| ProcessFacts { pid: 9, state: Some(state), cpu_ms, ..ProcessFacts::default() };
    RankEvidence {
        local_rank: LocalRank(0),
        sample: Some(Sample {
            pid: 9,
            feeder: Feeder::Client,
            step: Some(7),
            phase: Phase::Step,
            beat: 1,
            sections: Vec::new(),
            extend_ms: 0,
            collective_timeout_ms: None,
            stack_signal: Some(10),
            request: None,
        }),
        silent_ms: 62_000,
        before: facts(0),
        after: facts(cpu_ms),
        between_ms: 200,
        stack: if lines.is_empty() { None } else { stack(lines) },
        flight_recorder: String::new(),
    }
}

const C10D: &str = "/opt/site-packages/torch/distributed/distributed_c10d.py:2800 all_reduce";

fn waits() -> RankEvidence {
    rank('S', 0, &[C10D, "/home/u/train.py:40 step", "/home/u/train.py:90 main"])
}

fn in_dataset(state: char, cpu_ms: u64) -> RankEvidence {
    rank(state, cpu_ms, &["/home/u/dataset.py:88 parse", "/home/u/train.py:30 main"])
}

fn at(mut evidence: RankEvidence, step: u64, phase: Phase) -> RankEvidence {
    if let Some(sample) = &mut evidence.sample {
        (sample.step, sample.phase) = (Some(step), phase);
    }
    evidence
}

fn find(all: &[RankEvidence]) -> Finding {
    let nodes: Vec<NodeName> = (0..all.len()).map(|i| NodeName::new(format!("n{:02}", i / 2 + 1))).collect();
    let votes: Vec<Vote<'_>> = all
        .iter()
        .zip(&nodes)
        .enumerate()
        .map(|(i, (evidence, node))| Vote { rank: Rank(u32::try_from(i).unwrap()), node, evidence })
        .collect();
    judge(&votes, true)
}

fn with(mut evidence: RankEvidence, change: impl FnOnce(&mut RankEvidence)) -> RankEvidence {
    change(&mut evidence);
    evidence
}

/// What was collected, who is named, the owner, the sentence, whether it is decisive, whether it is enough.
type Row = (&'static str, Vec<RankEvidence>, &'static [u32], Owner, &'static str, bool, bool);

#[allow(clippy::too_many_lines)] // A table.
fn rows() -> Vec<Row> {
    let barrier =
        |line: u32| rank('S', 0, &["/home/u/sync.py:5 barrier", &format!("/home/u/train.py:{line} main")]);
    let loader = rank(
        'S',
        0,
        &["/opt/site-packages/torch/utils/data/dataloader.py:1400 _next_data", "/home/u/train.py:30 main"],
    );
    let reads = |state| {
        with(rank(state, 0, &["/home/u/data.py:12 load"]), |e| e.after.wchan = "folio_wait_bit_common".into())
    };
    let ranks = |n: usize, other: RankEvidence| {
        let mut all = vec![waits(); n];
        all[n - 1] = other;
        all
    };
    vec![
        (
            "one is outside the collective",
            ranks(32, in_dataset('S', 0)),
            &[31],
            Owner::User,
            "31 ranks wait in all_reduce; rank 31 (n16) is outside it, in dataset.py:88 parse()",
            false,
            true,
        ),
        (
            "one of two is outside",
            ranks(2, in_dataset('S', 0)),
            &[1],
            Owner::User,
            "1 rank waits in all_reduce; rank 1 (n01) is outside it, in dataset.py:88 parse()",
            false,
            true,
        ),
        (
            "a stopped one",
            ranks(4, in_dataset('T', 0)),
            &[3],
            Owner::Unknown,
            "3 ranks wait in all_reduce; rank 3 (n02) is stopped by a signal (state T)",
            true,
            true,
        ),
        (
            "the only rank is stopped",
            vec![in_dataset('T', 0)],
            &[0],
            Owner::Unknown,
            "rank 0 (n01) is stopped by a signal (state T)",
            true,
            true,
        ),
        (
            "one in uninterruptible sleep",
            ranks(4, with(rank('D', 0, &[]), |e| e.after.wchan = "nfs_wait".into())),
            &[3],
            Owner::Storage,
            "3 ranks wait in all_reduce; rank 3 (n02) is in uninterruptible sleep (state D), in nfs_wait",
            true,
            true,
        ),
        (
            "one spins",
            ranks(4, in_dataset('R', 200)),
            &[3],
            Owner::User,
            "3 ranks wait in all_reduce; rank 3 (n02) burns CPU in dataset.py:88 parse()",
            false,
            true,
        ),
        (
            "one holds its interpreter",
            ranks(4, rank('R', 200, &[])),
            &[3],
            Owner::User,
            "3 ranks wait in all_reduce; rank 3 (n02) burns CPU and holds its interpreter: it does not answer",
            false,
            true,
        ),
        (
            "one waits for data",
            ranks(4, loader),
            &[3],
            Owner::User,
            "3 ranks wait in all_reduce; rank 3 (n02) waits for data, in train.py:30 main()",
            false,
            true,
        ),
        (
            "waiting ranks that spin in the library are no culprits",
            vec![
                with(waits(), |e| e.after.cpu_ms = 200),
                with(waits(), |e| e.after.cpu_ms = 200),
                in_dataset('S', 0),
            ],
            &[2],
            Owner::User,
            "2 ranks wait in all_reduce; rank 2 (n02) is outside it, in dataset.py:88 parse()",
            false,
            true,
        ),
        (
            "two wait for different things",
            vec![barrier(10), barrier(20)],
            &[0, 1],
            Owner::User,
            "rank 0 (n01) waits in barrier, called in train.py:10 main(), rank 1 (n01) waits in barrier, called in train.py:20 main()",
            false,
            true,
        ),
        (
            "all read",
            vec![reads('S'), reads('S'), reads('D'), reads('D')],
            &[],
            Owner::Storage,
            "all 4 ranks wait for a file system, in data.py:12 load(); no node is to blame",
            false,
            false,
        ),
        (
            "all are in uninterruptible sleep",
            vec![reads('D'), reads('D')],
            &[],
            Owner::Storage,
            "all 2 ranks wait for a file system, in folio_wait_bit_common; no node is to blame",
            false,
            false,
        ),
        (
            "all wait for the same",
            vec![waits(), waits()],
            &[],
            Owner::Unknown,
            "each of the 2 ranks waits in all_reduce, called in train.py:40 step(); nothing tells which one holds up the others",
            false,
            false,
        ),
        (
            "one is a step behind",
            vec![at(waits(), 8, Phase::Step), at(waits(), 8, Phase::Step), at(waits(), 7, Phase::Step)],
            &[2],
            Owner::Unknown,
            "2 ranks wait in all_reduce; rank 2 (n02) is behind the others, at step 7, step; it waits in all_reduce, called in train.py:40 step()",
            false,
            false,
        ),
        (
            "nothing is known but the phase",
            vec![
                at(rank('S', 0, &[]), 7, Phase::Data),
                at(rank('S', 0, &[]), 7, Phase::Backward),
                at(rank('S', 0, &[]), 7, Phase::Backward),
            ],
            &[0],
            Owner::User,
            "rank 0 (n01) is behind the others, at step 7, data; it waits for data, in data()",
            false,
            false,
        ),
        (
            "a program alone",
            vec![in_dataset('S', 0)],
            &[0],
            Owner::User,
            "the rank is in dataset.py:88 parse()",
            false,
            false,
        ),
        (
            "a program alone that spins",
            vec![in_dataset('R', 200)],
            &[0],
            Owner::User,
            "rank 0 (n01) burns CPU in dataset.py:88 parse()",
            false,
            true,
        ),
    ]
}

#[test]
fn culprits_are_named() {
    for (what, all, culprits, owner, sentence, decisive, corroborated) in rows() {
        let found = find(&all);
        let named: Vec<u32> = found.verdict.culprits.iter().map(|(rank, _)| rank.0).collect();
        assert_eq!(named, culprits, "{what}: {found:#?}");
        assert_eq!(found.verdict.reasons[0], sentence, "{what}");
        assert_eq!(found.verdict.owner, owner, "{what}");
        assert_eq!((found.decisive, found.corroborated), (decisive, corroborated), "{what}");
        assert!(
            found.verdict.nodes.is_empty() && !found.verdict.hardware,
            "{what}: no node is blamed for a hang"
        );
        assert!(found.verdict.fingerprint.starts_with("hang "), "{what}");
    }
}

#[test]
fn the_same_hang_has_the_same_fingerprint() {
    let of = |line: u32| {
        let frame = format!("/home/u/dataset.py:{line} parse");
        find(&[waits(), waits(), rank('S', 0, &[&frame])]).verdict.fingerprint
    };
    assert_eq!(of(88), of(91));
    assert_eq!(of(88), "hang outside dataset.py:parse");
}

#[test]
fn some_things_speak_against_an_end() {
    let plain = [waits(), waits()];
    assert_eq!(find(&plain).spared, None);
    let mut debugged = plain.clone();
    debugged[1].after.traced = true;
    let mut typed = plain.clone();
    typed[0].after.reads = "/dev/pts/3".into();
    let mut busy = plain;
    busy[1].after.io_bytes = 10 << 20;
    for (all, word) in [(debugged, "debugger"), (typed, "/dev/pts/3"), (busy, "reads or writes")] {
        assert!(find(&all).spared.is_some_and(|why| why.contains(word)), "{word}");
    }
}

/// Of a few answers only facts are believed: who has not answered may be the one.
#[test]
fn before_all_have_answered_only_facts_count() {
    let node = NodeName::new("n01");
    let judge_one = |evidence: &RankEvidence, other: &RankEvidence| {
        let vote = |i, evidence| Vote { rank: Rank(i), node: &node, evidence };
        judge(&[vote(0, evidence), vote(1, other)], false)
    };
    assert_eq!(judge_one(&waits(), &in_dataset('S', 0)), Finding::default());
    assert!(judge_one(&waits(), &in_dataset('T', 0)).decisive);
    // All of those that are known: a file system may be to blame.
    assert!(!judge_one(&rank('D', 0, &[]), &rank('D', 0, &[])).decisive);
    assert_eq!(judge(&[], true).verdict.culprits, vec![]);
}

/// A rank that is stopped and held by a debugger is no culprit of ours.
#[test]
fn a_debugger_is_no_signal() {
    let held = with(in_dataset('T', 0), |e| e.after.traced = true);
    assert!(!find(&[waits(), held]).decisive);
}

fn any_evidence() -> impl Strategy<Value = RankEvidence> {
    let frames = proptest::collection::vec(("[a-z/_.:]{0,30}", any::<u32>(), "[a-z_.:é]{0,20}"), 0..6);
    let facts =
        || (proptest::option::of(any::<char>()), "[a-z_]{0,12}", any::<u64>(), any::<u64>(), any::<bool>());
    (frames, facts(), facts(), any::<u64>(), any::<u64>()).prop_map(
        |(frames, before, after, between_ms, silent_ms)| {
            let facts = |(state, wchan, cpu_ms, io_bytes, traced)| ProcessFacts {
                state,
                wchan,
                cpu_ms,
                io_bytes,
                traced,
                ..ProcessFacts::default()
            };
            let frames: Vec<Frame> =
                frames.into_iter().map(|(file, line, function)| Frame { file, line, function }).collect();
            let stack =
                (!frames.is_empty()).then_some(Stack { seen: Seen::Outside, frames, text: String::new() });
            RankEvidence {
                before: facts(before),
                after: facts(after),
                between_ms,
                silent_ms,
                stack,
                ..waits()
            }
        },
    )
}

proptest! {
    #[test]
    fn any_evidence_has_a_verdict(all in proptest::collection::vec(any_evidence(), 0..12)) {
        let found = find(&all);
        prop_assert_eq!(&found, &find(&all));
        for (rank, _) in &found.verdict.culprits {
            prop_assert!((rank.0 as usize) < all.len());
        }
        // A minority is named, or everybody where each waits for something else.
        prop_assert!(found.decisive || found.verdict.culprits.len() <= all.len());
        prop_assert!(all.is_empty() || !found.verdict.reasons.is_empty());
    }

    /// Who is to blame does not depend on where in the world it is.
    #[test]
    fn the_place_in_the_world_is_nothing(world in 2_usize..40, at in any::<proptest::sample::Index>()) {
        let mut all = vec![waits(); world];
        let culprit = at.index(world);
        all[culprit] = in_dataset('S', 0);
        let found = find(&all);
        prop_assert_eq!(found.verdict.culprits.len(), 1);
        prop_assert_eq!(found.verdict.culprits[0].0.0 as usize, culprit);
    }
}
