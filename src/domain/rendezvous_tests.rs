use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::ids::{Attempt, Seq, Term};
use super::super::record::{Body, Record, Writer};
use super::*;

fn name(i: u32) -> NodeName {
    NodeName::new(format!("n{i:02}"))
}

fn candidate(i: u32) -> Candidate {
    Candidate {
        node: name(i),
        incarnation: Incarnation(u64::from(i)),
        spec: NodeSpec { nproc: 1 + i % 3, order: i, ..NodeSpec::default() },
        offer: Some(Offer { address: format!("10.0.0.{i}"), port: 20_000, hosted: true }),
    }
}

/// The ledger after a world that this plan opened.
fn after(mut ledger: Ledger, plan: Plan) -> Ledger {
    let body = Body::Attempt(plan.body(Cause::Start));
    let record = Record {
        v: super::super::record::RECORD_VERSION,
        seq: ledger.next(),
        kind: body.kind(),
        term: Term(0),
        attempt: ledger.next_attempt(),
        writer: Writer::default(),
        nonce: 0,
        wall_ms: 0,
        why: vec!["a test".into()],
        body,
    };
    ledger.apply(&record).unwrap();
    assert!(ledger.attempt() >= Some(Attempt(0)) && ledger.next() > Seq(0));
    ledger
}

fn planned(ledger: &Ledger, there: &[u32], size: (u32, u32), replace: &[u32]) -> Result<Plan, Waiting> {
    let candidates: Vec<Candidate> = there.iter().map(|i| candidate(*i)).collect();
    let replace = replace.iter().map(|i| name(*i)).collect();
    let size = Size { min: size.0, max: size.1 };
    plan(ledger, &candidates, size, &replace, Mutants::NONE)
}

/// Node numbers by slot.
fn seats(plan: &Plan) -> Vec<(u32, u32)> {
    plan.members.iter().map(|m| (m.slot.0, m.node.as_str()[1..].parse().unwrap())).collect()
}

#[test]
fn who_gets_which_slot() {
    // (nodes of a first world of up to 4, size, who is there then, who failed first twice, seats, spares)
    #[allow(clippy::type_complexity)]
    let table: &[(&[u32], (u32, u32), &[u32], &[u32], &[(u32, u32)], &[u32])] = &[
        (&[1, 2, 3, 4], (4, 4), &[4, 3, 2, 1, 5], &[], &[(0, 1), (1, 2), (2, 3), (3, 4)], &[5]),
        (&[1, 2, 3, 4], (4, 4), &[1, 3, 4, 5], &[], &[(0, 1), (1, 5), (2, 3), (3, 4)], &[]),
        (&[1, 2, 3, 4], (4, 4), &[1, 2, 3, 4], &[2], &[(0, 1), (1, 2), (2, 3), (3, 4)], &[]),
        (&[1, 2, 3, 4], (4, 4), &[1, 2, 3, 4, 5], &[2], &[(0, 1), (1, 5), (2, 3), (3, 4)], &[2]),
        // A smaller world leaves slots empty, and nobody moves.
        (&[1, 2, 3, 4], (2, 4), &[1, 3, 4], &[], &[(0, 1), (2, 3), (3, 4)], &[]),
        (&[1, 2, 3, 4], (2, 4), &[3, 4], &[], &[(2, 3), (3, 4)], &[]),
        // The free slots go to newcomers in order.
        (&[1, 3], (1, 4), &[1, 3, 7, 5, 6], &[], &[(0, 1), (1, 3), (2, 5), (3, 6)], &[7]),
        // A node that failed first twice is kept only where the world would be smaller without it.
        (&[1, 2, 3], (2, 4), &[1, 2, 3], &[2], &[(0, 1), (1, 2), (2, 3)], &[]),
        (&[1, 2, 3], (2, 4), &[1, 2, 3, 5], &[2], &[(0, 1), (1, 5), (2, 3)], &[2]),
        (&[1, 2, 3], (2, 4), &[1, 2, 3, 5, 6], &[2], &[(0, 1), (1, 5), (2, 3), (3, 6)], &[2]),
    ];
    for (first, size, there, replace, expected, spares) in table {
        let opened = planned(&Ledger::default(), first, (1, 4), &[]).unwrap();
        let next = planned(&after(Ledger::default(), opened), there, *size, replace).unwrap();
        assert_eq!(seats(&next), *expected, "{first:?} then {there:?}");
        assert_eq!(next.spares, spares.iter().map(|i| name(*i)).collect::<Vec<_>>(), "{there:?}");
    }
}

#[test]
fn fewer_than_the_least_are_no_world() {
    let ledger = Ledger::default();
    assert_eq!(planned(&ledger, &[1, 2], (3, 5), &[]), Err(Waiting::Nodes { have: 2, need: 3 }));
    assert!(planned(&ledger, &[1, 2, 3], (3, 5), &[]).is_ok());
    assert_eq!(planned(&ledger, &[], (1, 5), &[]), Err(Waiting::Nodes { have: 0, need: 1 }));
}

#[test]
fn ranks_are_dense_over_the_slots_that_are_taken() {
    let opened = planned(&Ledger::default(), &[1, 2, 3, 4], (1, 4), &[]).unwrap();
    let next = planned(&after(Ledger::default(), opened), &[1, 3, 4], (1, 4), &[]).unwrap();
    let firsts: Vec<_> = next.members.iter().map(|m| first_rank(&next.members, &m.node).unwrap().0).collect();
    assert_eq!((firsts, world_size(&next.members)), (vec![0, 2, 3], 5));
}

proptest! {
    /// Through any coming and going: no slot twice, nobody moves, never below the least, as many as can be used.
    #[test]
    fn worlds_shrink_and_grow(
        min in 1_u32..4,
        more in 0_u32..4,
        turns in proptest::collection::vec((proptest::collection::btree_set(0_u32..10, 0..10), proptest::option::of(0_u32..10)), 1..12),
    ) {
        let max = min + more;
        let mut ledger = Ledger::default();
        let mut last: BTreeMap<NodeName, Slot> = BTreeMap::new();
        for (there, twice) in turns {
            let there: Vec<u32> = there.into_iter().collect();
            let replace: Vec<u32> = twice.into_iter().collect();
            let old = last.len();
            let next = match planned(&ledger, &there, (min, max), &replace) {
                Ok(next) => next,
                Err(Waiting::Nodes { have, need }) => {
                    prop_assert!(have < min && need == min && there.len() == have as usize);
                    continue;
                }
                Err(Waiting::Offer) => return Err(TestCaseError::fail("all of them have offers")),
            };
            let slots: BTreeSet<Slot> = next.members.iter().map(|m| m.slot).collect();
            let nodes: BTreeSet<NodeName> = next.members.iter().map(|m| m.node.clone()).collect();
            prop_assert_eq!(slots.len(), next.members.len());
            prop_assert_eq!(nodes.len(), next.members.len());
            prop_assert!(slots.iter().all(|s| s.0 < max));
            prop_assert!(next.members.is_sorted_by_key(|m| m.slot), "ranks follow slots");
            prop_assert!(next.members.len() >= min as usize);
            prop_assert!(next.spares.iter().all(|s| !nodes.contains(s)));
            prop_assert_eq!(nodes.len() + next.spares.len(), there.len());
            // Whoever could be used is, but for one that failed first twice where the world is no smaller for it.
            let most = there.len().min(max as usize);
            let benched = replace.iter().filter(|i| next.spares.contains(&name(**i))).count();
            prop_assert!(next.members.len() == most || next.members.len() + benched == most && next.members.len() >= old);
            for member in &next.members {
                let kept = last.get(&member.node).filter(|_| !replace.contains(&member.node.as_str()[1..].parse().unwrap()));
                prop_assert!(kept.is_none_or(|slot| *slot == member.slot), "{} moves", member.node);
            }
            last = next.members.iter().map(|m| (m.node.clone(), m.slot)).collect();
            ledger = after(ledger, next);
        }
    }
}
