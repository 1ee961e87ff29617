use super::*;
use crate::domain::ids::{Attempt, Seq, Term};
use crate::domain::record::{
    Decision, End, Incident, Kind, Lead, Membership, Outcome, RECORD_VERSION, Writer,
};

fn record(seq: u64, kind: Kind, body: Body) -> Record {
    Record {
        v: RECORD_VERSION,
        seq: Seq(seq),
        kind,
        term: Term(0),
        attempt: Attempt(0),
        writer: Writer { node: NodeName::new("n01"), incarnation: Incarnation(1) },
        nonce: 1,
        wall_ms: 0,
        why: vec!["because".into()],
        body,
    }
}

fn lead(launch: &str) -> Record {
    let lead = Lead {
        node: NodeName::new("n01"),
        addresses: Vec::new(),
        job: None,
        launch: launch.into(),
        voters: vec![NodeName::new("n01")],
        ground: Ground::First,
        spec: None,
    };
    record(0, Kind::Lead, Body::Lead(lead))
}

fn end() -> Record {
    let (outcome, sentence) = (Outcome::Finished, "finished".into());
    record(1, Kind::End, Body::End(End { outcome, code: 3, requeue: false, incident: None, sentence }))
}

fn seeker(index: u32, lives: &[u64]) -> Seeker {
    Seeker {
        index,
        launch: "7.0.0".into(),
        clean_of: lives.iter().copied().map(Incarnation).collect(),
        join_timeout: Duration::from_secs(600),
    }
}

#[test]
fn the_journal_says_whom_to_follow() {
    // Earlier lives, the journal, what it means.
    let table: [(&[u64], Vec<Record>, Standing); 6] = [
        (&[], vec![], Standing::Nobody),
        (&[], vec![lead("6.0.0")], Standing::Nobody),
        (&[1], vec![lead("6.0.0")], Standing::Nobody),
        (&[], vec![lead("7.0.0")], Standing::Follow),
        (&[9, 1], vec![lead("7.0.0")], Standing::Again),
        (&[1], vec![lead("7.0.0"), end()], Standing::Ended(3)),
    ];
    for (lives, records, expected) in table {
        let ledger = Ledger::replay(&records).unwrap();
        assert_eq!(seeker(1, lives).standing(&ledger), expected, "{lives:?} {records:?}");
    }
    // Outside a launch nobody is followed, whatever the journal says.
    let alone = Seeker { launch: String::new(), ..seeker(0, &[]) };
    assert_eq!(alone.standing(&Ledger::replay(&[lead("")]).unwrap()), Standing::Nobody);
    assert_eq!(seeker(0, &[1]).ground(&Ledger::replay(&[lead("x")]).unwrap()), Ground::Returned);
    assert_eq!(seeker(0, &[2]).ground(&Ledger::replay(&[lead("x")]).unwrap()), Ground::First);
}

#[test]
fn each_node_waits_ten_seconds_for_each_before_it() {
    let turns: Vec<u64> = (0..4).map(|index| seeker(index, &[]).turn().as_secs()).collect();
    assert_eq!(turns, [0, 10, 20, 30]);
    let mut pauses = vec![Seeker::pause(None)];
    while pauses.len() < 8 {
        pauses.push(Seeker::pause(pauses.last().copied()));
    }
    assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]), "{pauses:?}");
    assert_eq!(pauses.last(), Some(&Duration::from_secs(1)));
    let ends: Vec<u64> = [0, 1, 2, 3, 4, 900].map(|index| closing_turn(index).as_secs()).to_vec();
    assert_eq!(ends, [0, 0, 10, 20, 30, 30]);
}

#[test]
fn only_who_is_missed_waits_for_a_directory_that_stands_still() {
    let soon = Duration::from_secs(20);
    assert!(seeker(0, &[]).outwaits(soon));
    assert!(!seeker(0, &[]).outwaits(Duration::from_secs(600)));
    let alone = Seeker { launch: String::new(), ..seeker(0, &[]) };
    assert!(!alone.outwaits(soon), "somebody looks on");
    assert!(Seeker { clean_of: vec![Incarnation(4)], ..alone }.outwaits(soon), "its run waits for it");
}

#[test]
fn who_was_cut_off_ends_nothing_that_goes_on_elsewhere() {
    let (own, other) = (NodeName::new("n02"), NodeName::new("n03"));
    let membership = |voters: &[&NodeName]| {
        let voters = voters.iter().map(|node| (*node).clone()).collect();
        record(2, Kind::Membership, Body::Membership(Membership { voters, removed: vec![], added: vec![] }))
    };
    let incident = || {
        let body = Incident {
            incident: 0,
            attempt: Attempt(0),
            first_failure: None,
            lost: Vec::new(),
            victims: Vec::new(),
            others: Vec::new(),
            decision: Decision::Restart,
            stopped_ms: 0,
            running_ms: None,
            verdict: Default::default(),
        };
        record(3, Kind::Incident, Body::Incident(body))
    };
    assert!(is_abandoned(&[], &own));
    assert!(is_abandoned(&[membership(&[&own]), incident()], &own));
    assert!(!is_abandoned(&[membership(&[&other])], &own));
    assert!(!is_abandoned(&[lead("8")], &own), "somebody leads");
    assert!(!is_abandoned(&[end()], &own), "it has its end");
}
