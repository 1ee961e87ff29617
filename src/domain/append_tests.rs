use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn now(ms: u64) -> Now {
    Now { boot: BootTime::from_millis(ms), wall_ms: ms }
}

fn step(machine: &mut Append, ms: u64, event: AppendEvent) -> Vec<AppendEffect> {
    let mut out = Outbox::default();
    machine.handle(now(ms), event, &mut out);
    out.take_effects()
}

const SEQ: Seq = Seq(7);

fn begun(again: bool) -> (Append, Vec<AppendEffect>) {
    let mut machine = Append::new(Mutants::NONE);
    let effects = step(&mut machine, 0, AppendEvent::Begin { seq: SEQ, nonce: 9, again });
    (machine, effects)
}

fn ended(outcome: Outcome) -> Vec<AppendEffect> {
    vec![AppendEffect::Ended { seq: SEQ, outcome }]
}

#[test]
fn a_clean_success_is_written_without_a_read() {
    let (mut machine, effects) = begun(false);
    assert_eq!(effects, [AppendEffect::TryCreate { op: Op(0), seq: SEQ, nonce: 9 }]);
    assert_eq!(step(&mut machine, 1, AppendEvent::Created(Op(0))), ended(Outcome::Written));
    assert_eq!(machine.in_flight(), None);
}

#[test]
fn a_taken_number_is_lost_only_to_another_nonce() {
    for (nonce, outcome) in [(9, Outcome::Written), (8, Outcome::Lost)] {
        let (mut machine, _) = begun(false);
        let effects = step(&mut machine, 1, AppendEvent::Exists(Op(0)));
        assert_eq!(effects, [AppendEffect::ReadBack { op: Op(1), seq: SEQ }]);
        let found = AppendEvent::ReadBackIs(Op(1), Found::Record { nonce });
        assert_eq!(step(&mut machine, 2, found), ended(outcome));
    }
}

#[test]
fn an_absent_record_is_created_again_with_the_same_nonce_after_growing_pauses() {
    let (mut machine, _) = begun(false);
    let (mut ms, mut op, mut pauses) = (0, Op(0), Vec::new());
    for _ in 0..10 {
        step(&mut machine, ms, AppendEvent::Unknown(op, TroubleKind::Io));
        let trouble = step(&mut machine, ms, AppendEvent::ReadBackIs(op.next(), Found::Absent));
        assert_eq!(trouble, [AppendEffect::Trouble { kind: TroubleKind::Io, since: BootTime(0) }]);
        let until = machine.deadline().unwrap().0 / 1_000_000;
        assert!(step(&mut machine, until - 1, AppendEvent::Tick).is_empty());
        pauses.push(until - ms);
        ms = until;
        op = op.next().next();
        let tried = step(&mut machine, ms, AppendEvent::Tick);
        assert_eq!(tried, [AppendEffect::TryCreate { op, seq: SEQ, nonce: 9 }]);
    }
    assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]);
}

#[test]
fn what_cannot_be_read_is_read_again_and_never_overwritten() {
    for (found, kind) in
        [(Found::Unreadable, TroubleKind::Unreadable), (Found::Failed(TroubleKind::Gone), TroubleKind::Gone)]
    {
        let (mut machine, _) = begun(false);
        step(&mut machine, 0, AppendEvent::Exists(Op(0)));
        let effects = step(&mut machine, 3, AppendEvent::ReadBackIs(Op(1), found));
        assert_eq!(effects, [AppendEffect::Trouble { kind, since: BootTime::from_millis(3) }]);
        let effects = step(&mut machine, 53, AppendEvent::Tick);
        assert_eq!(effects, [AppendEffect::ReadBack { op: Op(2), seq: SEQ }]);
    }
}

#[test]
fn a_repeated_append_reads_first_and_then_creates_at_once() {
    let (mut machine, effects) = begun(true);
    assert_eq!(effects, [AppendEffect::ReadBack { op: Op(0), seq: SEQ }]);
    let effects = step(&mut machine, 1, AppendEvent::ReadBackIs(Op(0), Found::Absent));
    assert_eq!(effects, [AppendEffect::TryCreate { op: Op(1), seq: SEQ, nonce: 9 }]);
}

#[test]
fn late_answers_and_a_second_begin_change_nothing() {
    let (mut machine, _) = begun(false);
    step(&mut machine, 0, AppendEvent::Unknown(Op(0), TroubleKind::Late));
    assert!(step(&mut machine, 1, AppendEvent::Created(Op(0))).is_empty());
    let second = AppendEvent::Begin { seq: Seq(8), nonce: 1, again: false };
    assert!(step(&mut machine, 1, second).is_empty());
    assert_eq!(machine.in_flight(), Some((SEQ, 9)));
}

#[cfg(feature = "mutants")]
#[test]
fn seeded_bugs_show() {
    let mut machine = Append::new(Mutants::only(Mutant::ForgetUnknownAppend));
    step(&mut machine, 0, AppendEvent::Begin { seq: SEQ, nonce: 9, again: false });
    let effects = step(&mut machine, 0, AppendEvent::Unknown(Op(0), TroubleKind::Io));
    assert_eq!(effects, ended(Outcome::Forgotten));

    let mut machine = Append::new(Mutants::only(Mutant::NewBytesSameSeq));
    step(&mut machine, 0, AppendEvent::Begin { seq: SEQ, nonce: 9, again: false });
    step(&mut machine, 0, AppendEvent::Unknown(Op(0), TroubleKind::Io));
    step(&mut machine, 0, AppendEvent::ReadBackIs(Op(1), Found::Absent));
    let effects = step(&mut machine, 50, AppendEvent::Tick);
    assert_eq!(effects, [AppendEffect::TryCreate { op: Op(2), seq: SEQ, nonce: 10 }]);
}

/// What the model store does with one create.
#[derive(Clone, Copy, Debug)]
enum Create {
    /// Answers truly.
    Honest,
    /// Stores, then reports an error.
    StoresButFails,
    /// Reports an error; the request lands after so many further steps.
    LandsLate(u8),
    /// Reports an error and stores nothing.
    Fails,
}

fn creates() -> impl Strategy<Value = Create> {
    prop_oneof![
        Just(Create::Honest),
        Just(Create::StoresButFails),
        (1_u8..6).prop_map(Create::LandsLate),
        Just(Create::Fails),
    ]
}

proptest! {
    /// Whatever the store does: who is told *written* owns the number, who is told *lost* does not, both
    /// hear it once the store answers honestly, and nothing is ever created under another nonce.
    #[test]
    fn two_writers_on_one_number(
        plan in proptest::collection::vec((creates(), 0_u8..10, 0_usize..2), 0..40),
    ) {
        let mut store: BTreeMap<Seq, u64> = BTreeMap::new();
        let mut late: Vec<(u8, u64)> = Vec::new();
        let mut machines = [Append::new(Mutants::NONE), Append::new(Mutants::NONE)];
        let mut asked: [Option<AppendEffect>; 2] = [None, None];
        let mut told: [Option<Outcome>; 2] = [None, None];
        let mut ms = 0;
        for (i, machine) in machines.iter_mut().enumerate() {
            let nonce = 100 + i as u64;
            asked[i] = step(machine, 0, AppendEvent::Begin { seq: SEQ, nonce, again: i == 1 }).pop();
        }
        let honest = (0..80).map(|i| (Create::Honest, 9, i % 2));
        for (create, read, who) in plan.into_iter().chain(honest) {
            ms += 10_000;
            late.retain_mut(|(steps, nonce)| {
                *steps -= 1;
                if *steps == 0 {
                    store.entry(SEQ).or_insert(*nonce);
                }
                *steps > 0
            });
            let event = match asked[who].take() {
                Some(AppendEffect::TryCreate { op, seq, nonce }) => {
                    prop_assert_eq!(nonce, 100 + who as u64);
                    match create {
                        Create::Honest if store.contains_key(&seq) => AppendEvent::Exists(op),
                        Create::Honest => {
                            store.insert(seq, nonce);
                            AppendEvent::Created(op)
                        }
                        Create::StoresButFails => {
                            store.entry(seq).or_insert(nonce);
                            AppendEvent::Unknown(op, TroubleKind::Io)
                        }
                        Create::LandsLate(steps) => {
                            late.push((steps, nonce));
                            AppendEvent::Unknown(op, TroubleKind::Late)
                        }
                        Create::Fails => AppendEvent::Unknown(op, TroubleKind::Full),
                    }
                }
                Some(AppendEffect::ReadBack { op, seq }) => AppendEvent::ReadBackIs(op, match (read, store.get(&seq)) {
                    (0, _) => Found::Failed(TroubleKind::Io),
                    (1, Some(_)) => Found::Unreadable,
                    (_, Some(&nonce)) => Found::Record { nonce },
                    (_, None) => Found::Absent,
                }),
                _ => AppendEvent::Tick,
            };
            for effect in step(&mut machines[who], ms, event) {
                match effect {
                    AppendEffect::Ended { outcome, .. } => {
                        prop_assert_eq!(told[who].replace(outcome), None);
                        let mine = store.get(&SEQ) == Some(&(100 + who as u64));
                        prop_assert_eq!(outcome == Outcome::Written, mine);
                    }
                    AppendEffect::Trouble { .. } => {}
                    ask => asked[who] = Some(ask),
                }
            }
        }
        prop_assert!(told[0].is_some() && told[1].is_some(), "{:?} {:?}", told, machines);
        prop_assert!(told[0] != told[1]);
    }
}
