//! Voters, snapshots, the supervisor, and who is not admitted.

use super::*;

fn memberships(bed: &Bed) -> Vec<(Vec<NodeName>, Vec<NodeName>)> {
    let found = bed.journal.iter().filter_map(|r| match &r.body {
        Body::Membership(m) => Some((m.removed.clone(), m.added.clone())),
        _ => None,
    });
    found.collect()
}

fn silent(bed: &mut Bed, i: u64) {
    bed.event(Event::Silent { node: name(i), silent: Duration::from_secs(6) });
}

/// All of them are cut off at once, and missed one after another.
fn cut_off(bed: &mut Bed, nodes: &[u64]) {
    for i in nodes {
        bed.quiet(*i, 3_000);
    }
    for i in nodes {
        silent(bed, *i);
        bed.pass(1);
    }
}

#[test]
fn p0_1_lost_voters_are_removed_by_a_record_with_half_of_them_and_not_with_fewer() {
    let mut bed = Bed::running(2, 2);
    cut_off(&mut bed, &[4, 3]);
    assert_eq!(memberships(&bed), [(vec![name(4)], vec![]), (vec![name(3)], vec![])]);
    assert!(bed.effects.contains(&Effect::Voters(vec![name(1), name(2)])));
    assert_eq!(bed.machine.phase(), Phase::Running);

    let mut bed = Bed::running(2, 3);
    cut_off(&mut bed, &[5, 4, 3]);
    assert_eq!((memberships(&bed), bed.machine.phase()), (vec![], Phase::StoodDown));

    let mut bed = Bed::running(2, 3);
    for i in [5, 4, 3] {
        silent(&mut bed, i);
        bed.pass(10_000);
    }
    assert_eq!(
        (memberships(&bed).len(), bed.machine.phase()),
        (3, Phase::Running),
        "one by one is another matter"
    );
}

#[test]
fn fewer_than_half_open_no_world() {
    let mut bed = Bed::running(2, 4);
    // Four of six are cut off; nobody has missed them yet when a rank fails.
    for i in 3..=6 {
        bed.event(Event::LinkDown { node: name(i), incarnation: Incarnation(i) });
    }
    bed.exited(1, vec![report(0, KILL, "")]);
    bed.all_stop(&[]);
    assert_eq!(bed.attempt(), Attempt(0));
    for i in 3..=6 {
        silent(&mut bed, i);
    }
    assert_eq!(bed.machine.phase(), Phase::StoodDown);
}

#[test]
fn before_anything_ran_missing_voters_are_waited_for() {
    let mut bed = Bed::new(4, 0);
    bed.join(1, 1);
    for i in 2..=4 {
        silent(&mut bed, i);
    }
    bed.pass(30_000);
    assert_eq!((bed.machine.phase(), memberships(&bed)), (Phase::Gathering, vec![]));
    for i in 2..=4 {
        bed.join(i, i);
    }
    assert_eq!(bed.starts(Attempt(0)).len(), 4);
    assert_eq!(bed.lost(), [], "who never came is not lost");

    let mut bed = Bed::new(4, 0);
    bed.join(1, 1);
    (2..=4).for_each(|i| silent(&mut bed, i));
    bed.pass(600_000);
    assert!(
        matches!(bed.machine.phase(), Phase::Closed { code: 1 }),
        "{:?}: {:?}",
        bed.machine.phase(),
        bed.console()
    );
}

#[test]
fn p0_8_a_removal_that_cannot_be_written_ends_authority_and_a_whole_world_needs_none() {
    let mut bed = Bed::running(2, 2);
    bed.writes = false;
    bed.pass(120_000);
    assert_eq!(bed.machine.phase(), Phase::Running);
    silent(&mut bed, 4);
    bed.pass(14_999);
    assert_eq!(bed.machine.phase(), Phase::Running);
    bed.pass(1);
    assert_eq!(bed.machine.phase(), Phase::StoodDown);
    let why = "relight: T this coordinator ends: the loss of n04 could not be written for 15 s; ";
    assert!(bed.console().iter().any(|l| l.starts_with(why)), "{:?}", bed.console());
}

#[test]
fn a_snapshot_follows_after_so_many_records_and_replaces_them() {
    let mut bed = Bed::with(CoordinatorConfig {
        node: name(1),
        incarnation: Incarnation(1),
        spec: spec(2, 1),
        voters: vec![name(1), name(2), name(3)],
        snapshot_every: 6,
        ..CoordinatorConfig::default()
    });
    bed.join_all(3);
    bed.event(Event::AuthorityHeld);
    bed.all_start();
    for _ in 0..12 {
        bed.pass(60_000);
        bed.exited(2, vec![report(0, KILL, "")]);
        bed.all_stop(&[]);
        bed.all_start();
    }
    let at: Vec<u64> =
        bed.journal.iter().filter(|r| matches!(r.body, Body::Snapshot(_))).map(|r| r.seq.0).collect();
    assert!(at.len() >= 3, "{at:?}");
    assert!(at.windows(2).all(|w| (7..=8).contains(&(w[1] - w[0]))), "{at:?}");
    let whole = Ledger::replay(&bed.journal).unwrap();
    assert_eq!(&whole, bed.machine.ledger());
    for from in 0..bed.journal.len() {
        let tail = &bed.journal[from..];
        let complete = from == 0 || tail.iter().any(|r| matches!(r.body, Body::Snapshot(_)));
        assert_eq!(Ledger::resume(tail).ok().filter(|l| *l == whole).is_some(), complete, "from {from}");
    }
}

#[test]
fn a_joining_agent_reads_one_record_however_long_the_journal_is() {
    let mut bed = Bed::running(2, 1);
    for _ in 0..40 {
        bed.pass(60_000);
        bed.exited(2, vec![report(0, KILL, "")]);
        bed.all_stop(&[]);
        bed.all_start();
    }
    bed.effects.clear();
    bed.join(3, 30);
    let tail = bed
        .sent()
        .find_map(|(_, m)| match m {
            AgentMsg::Welcome { tail, .. } => Some(tail.clone()),
            _ => None,
        })
        .unwrap();
    assert_eq!(tail.len(), 1);
    let mut ledger = Ledger::default();
    ledger.apply(&tail[0]).unwrap();
    let before = bed.journal.iter().filter(|r| r.seq < ledger.next());
    assert_eq!(Ledger::replay(before), Ok(ledger.clone()));
    // And goes on from there.
    let from = ledger.next();
    for record in bed.journal.iter().filter(|r| r.seq >= from) {
        ledger.apply(record).unwrap();
    }
    assert_eq!(&ledger, bed.machine.ledger());
}

#[test]
fn the_supervisor_is_asked_for_an_agent_after_3_s_and_again_every_30() {
    let mut bed = Bed::running(2, 1);
    let asked = |bed: &mut Bed| -> Vec<NodeName> {
        let found = std::mem::take(&mut bed.effects).into_iter().filter_map(|e| match e {
            Effect::Supervisor(ToSupervisor::StartAgent { node }) => Some(node),
            _ => None,
        });
        found.collect()
    };
    silent(&mut bed, 3);
    bed.pass(10_000);
    assert_eq!(asked(&mut bed), [], "there is none");
    bed.event(Event::Supervisor(FromSupervisor::Attach));
    bed.pass(2_999);
    assert_eq!(asked(&mut bed), []);
    bed.pass(1);
    assert_eq!(asked(&mut bed), [name(3)]);
    bed.pass(29_999);
    assert_eq!(asked(&mut bed), []);
    bed.pass(1);
    assert_eq!(asked(&mut bed), [name(3)]);
    bed.event(Event::Supervisor(FromSupervisor::Attach));
    bed.pass(0);
    assert_eq!(asked(&mut bed), [name(3)], "a new session has not heard of it");
    bed.join(3, 30);
    bed.pass(60_000);
    assert_eq!(asked(&mut bed), []);
    bed.event(Event::LinkDown { node: name(2), incarnation: Incarnation(2) });
    bed.pass(1_000);
    bed.join_with(2, 20, vec![Incarnation(2)]);
    bed.pass(60_000);
    assert_eq!(asked(&mut bed), [], "its guardian did it");
}

#[test]
fn the_supervisor_hears_the_end_before_the_agents_do() {
    let mut bed = Bed::running(2, 0);
    bed.event(Event::Supervisor(FromSupervisor::Attach));
    bed.effects.clear();
    bed.event(Event::Supervisor(FromSupervisor::Signal { signal: 15, terminal: false, again: false }));
    bed.all_stop(&[]);
    let finish = Effect::Supervisor(ToSupervisor::Finish { code: 143, requeue: false });
    let at = |wanted: &dyn Fn(&Effect) -> bool| bed.effects.iter().position(wanted).unwrap();
    let agents =
        at(&|e| matches!(e, Effect::Send { frame, .. } if matches!(frame.msg, AgentMsg::Finish { .. })));
    assert!(at(&|e| *e == finish) < agents);
    bed.effects.clear();
    bed.event(Event::Supervisor(FromSupervisor::Attach));
    assert!(bed.effects.contains(&finish), "one that comes late hears it too");
}

#[test]
fn p0_3_a_node_that_reads_another_directory_is_named_once_and_not_admitted() {
    let mut bed = Bed::running(2, 0);
    bed.machine.config.store = Some(super::super::super::ids::StoreId::new("right"));
    bed.event(Event::Supervisor(FromSupervisor::Attach));
    for n in 0..3 {
        let join = CoordinatorMsg::Join {
            spec: Box::default(),
            offer: None,
            store: Some(super::super::super::ids::StoreId::new("wrong")),
            proof: None,
            clean_of: vec![],
            running: None,
            next: Seq(0),
            survivors: vec![],
        };
        bed.says(3, 30, join);
        bed.pass(n);
    }
    bed.pass(60_000);
    assert_eq!(
        bed.console(),
        [
            "relight: T n03 reads another directory under the same name: it cannot take part; look at the mounts there"
        ]
    );
    assert!(!bed.machine.admits(&name(3), Incarnation(30)));
    let refused = AgentMsg::Refused(RefusedWhy::OtherStore);
    assert_eq!(bed.sent().filter(|(to, m)| **to == name(3) && **m == refused).count(), 3);
    assert!(!bed.machine.ledger().voters().contains(&name(3)));
    assert!(!bed.effects.iter().any(|e| matches!(e, Effect::Supervisor(_))), "nor started again");
}

/// Without Slurm nobody names machines apart; in the same place a later life of the agent, which its guardian vouches for, is
/// the same machine.
#[test]
fn a_second_machine_of_the_same_name_is_kept_out() {
    let mut bed = Bed::with(CoordinatorConfig {
        node: name(1),
        incarnation: Incarnation(1),
        spec: spec(2, 1),
        voters: vec![name(1)],
        distinct: true,
        ..CoordinatorConfig::default()
    });
    bed.join(1, 1);
    bed.event(Event::AuthorityHeld);
    bed.join(2, 20);
    bed.all_start();
    let join = |clean_of: Vec<Incarnation>| CoordinatorMsg::Join {
        spec: Box::default(),
        offer: None,
        store: None,
        proof: None,
        clean_of,
        running: None,
        next: Seq(0),
        survivors: vec![],
    };
    bed.says(2, 21, join(vec![]));
    assert!(!bed.machine.admits(&name(2), Incarnation(21)));
    assert!(bed.machine.admits(&name(2), Incarnation(20)));
    let said = "relight: T a second machine calls itself n02: it cannot take part; give each machine a host name of its own";
    assert_eq!(bed.console().last().map(String::as_str), Some(said));
    bed.says(2, 22, join(vec![Incarnation(20)]));
    assert!(bed.machine.admits(&name(2), Incarnation(22)));
}

#[test]
fn p1_11_a_first_node_that_is_passed_over_can_only_join() {
    let mut bed = Bed::with(CoordinatorConfig {
        node: name(2),
        incarnation: Incarnation(2),
        spec: spec(2, 1),
        voters: vec![name(1), name(2), name(3)],
        ..CoordinatorConfig::default()
    });
    bed.join(2, 2);
    bed.join(3, 3);
    bed.event(Event::AuthorityHeld);
    bed.pass(10_000);
    bed.all_start();
    let lines = bed.console();
    assert_eq!(
        lines,
        ["relight: T n02 leads in the place of n01: it comes first and did not answer in time"]
    );
    let world = world(bed.attempts()[0]);
    assert_eq!(world.members.iter().map(|m| m.slot).collect::<Vec<_>>(), [Slot(0), Slot(1)]);
    assert_eq!(world.voters, [name(2), name(3)]);
    bed.join(1, 1);
    assert_eq!(memberships(&bed), [(vec![], vec![name(1)])], "it waits as a spare");
    assert_eq!(bed.attempt(), Attempt(0));
}

#[test]
fn p1_13_half_of_the_nodes_cut_off_and_back_evicts_nobody() {
    let mut bed = Bed::running(4, 0);
    for i in [3, 4] {
        silent(&mut bed, i);
        bed.grants_closed(i, 200);
    }
    bed.all_stop(&[3, 4]);
    bed.pass(30_000);
    assert_eq!(bed.machine.phase(), Phase::Gathering);
    bed.join(3, 3);
    bed.join(4, 4);
    bed.all_start();
    bed.pass(1_000);
    assert_eq!(bed.machine.phase(), Phase::Running);
    assert!(bed.journal.iter().all(|r| !matches!(r.body, Body::Evict(_))));
    let broke = cause(bed.attempts().last().unwrap());
    assert_eq!(
        (&broke.decision, broke.charged),
        (&Decision::Restart, false),
        "the same nodes in their slots"
    );
    assert!(!bed.notes.iter().any(|n| matches!(n, Note::SlotFilled { why: Replaced::Lost, .. })));
}

#[test]
fn p1_12_an_agent_of_a_dead_life_changes_nothing() {
    let mut bed = Bed::running(2, 0);
    bed.join_with(2, 20, vec![Incarnation(2)]);
    let before = format!("{:?}", bed.machine);
    let effects = bed.effects.len();
    bed.join(2, 2);
    bed.says(2, 2, CoordinatorMsg::Started(Attempt(0)));
    assert_eq!((format!("{:?}", bed.machine), bed.effects.len()), (before, effects));
}

#[test]
fn p1_11_who_loses_the_number_of_the_lead_to_another_of_its_launch_joins() {
    for (launch, joins) in [("7.0.0", true), ("6.0.0", false)] {
        let lead = |i: u64, launch: &str| CoordinatorConfig {
            node: name(i),
            incarnation: Incarnation(i),
            spec: spec(1, 1),
            voters: vec![name(1), name(2)],
            launch: launch.into(),
            ..CoordinatorConfig::default()
        };
        let written = Bed::with(lead(2, launch)).journal.remove(0);
        let mut machine = Coordinator::new(lead(1, "7.0.0"), Ledger::default());
        let mut out = Outbox::default();
        let now = Now { boot: BootTime::from_millis(1), wall_ms: 1 };
        machine.handle(now, Event::Begin, &mut out);
        let mut appends = out.take_effects().into_iter().filter_map(|effect| match effect {
            Effect::Append { op, .. } => Some(op),
            _ => None,
        });
        let op = appends.next_back().unwrap();
        machine.handle(now, Event::Appended { op, outcome: Appended::Lost(Box::new(written)) }, &mut out);
        let effects = out.take_effects();
        let down = effects.iter().any(|e| matches!(e, Effect::StandDown { .. }));
        let again = effects.iter().any(|e| matches!(e, Effect::Append { .. }));
        assert_eq!((down, again), (joins, !joins), "{effects:?}");
    }
}
