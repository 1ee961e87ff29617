//! Machines without Slurm that were told another run.

use super::*;
use crate::domain::note::NoPlace;
use crate::domain::told::{Difference, Told};

fn join(bed: &mut Bed, i: u64, script: u64, change: impl FnOnce(&mut Told)) {
    let mut told = bed.machine.config.spec.told(Some(u32::try_from(i).unwrap() - 1));
    change(&mut told);
    let spec = NodeSpec {
        nproc: 1,
        order: told.rank.unwrap_or(1),
        script_digest: Some(script),
        told: Some(told),
        ..NodeSpec::default()
    };
    let join = CoordinatorMsg::Join {
        spec: Box::new(spec),
        offer: Some(Offer { address: "10.0.0.1".into(), port: 20_000, hosted: true }),
        store: None,
        proof: None,
        clean_of: Vec::new(),
        running: None,
        next: Seq(0),
        survivors: Vec::new(),
    };
    bed.says(i, i, join);
}

fn machines() -> Bed {
    let mut bed = Bed::with(CoordinatorConfig {
        node: name(1),
        incarnation: Incarnation(1),
        spec: spec(2, 1),
        voters: vec![name(1)],
        distinct: true,
        ..CoordinatorConfig::default()
    });
    join(&mut bed, 1, 7, |_| ());
    bed.event(Event::AuthorityHeld);
    bed
}

#[test]
fn each_difference_keeps_a_machine_out_and_is_said_once() {
    type Change = fn(&mut Told);
    let table: [(Change, Difference); 3] = [
        (|told| told.command += 1, Difference::Command),
        (|told| told.nodes = (1, 3), Difference::Nodes { told: (1, 3), leads: (2, 2) }),
        (|told| told.rank = Some(0), Difference::Rank { rank: 0, other: name(1) }),
    ];
    for (change, what) in table {
        let mut bed = machines();
        bed.notes.clear();
        join(&mut bed, 2, 7, change);
        join(&mut bed, 2, 7, change);
        let why = RefusedWhy::Differs { what: what.clone(), leader: name(1) };
        assert_eq!(
            bed.sent().filter(|(to, m)| **to == name(2) && **m == AgentMsg::Refused(why.clone())).count(),
            2
        );
        assert!(!bed.machine.admits(&name(2), Incarnation(2)), "{what:?}");
        assert_eq!(bed.console(), [format!("relight: T {}", what.of(&name(2), &name(1)))]);
        let here = Note::NoPlace { why: NoPlace::Differs { what: what.clone(), leader: name(1) } };
        assert!(here.is_for_people(), "its own console says it, too");
        // What is told right is admitted.
        join(&mut bed, 2, 7, |_| ());
        assert!(bed.machine.admits(&name(2), Incarnation(2)), "{what:?}");
    }
}

#[test]
fn another_text_of_the_script_is_a_warning() {
    let mut bed = machines();
    join(&mut bed, 2, 8, |_| ());
    assert!(bed.machine.admits(&name(2), Incarnation(2)));
    let warned =
        bed.console().iter().filter(|line| line.contains("on n02 is not the same file as on n01")).count();
    assert_eq!(warned, 1, "{:?}", bed.console());
}

#[test]
fn the_number_of_a_machine_that_is_gone_is_free() {
    let mut bed = machines();
    join(&mut bed, 2, 7, |_| ());
    let same: fn(&mut Told) = |told| told.rank = Some(1);
    join(&mut bed, 3, 7, same);
    assert!(!bed.machine.admits(&name(3), Incarnation(3)));
    bed.event(Event::LinkDown { node: name(2), incarnation: Incarnation(2) });
    join(&mut bed, 3, 7, same);
    assert!(bed.machine.admits(&name(3), Incarnation(3)));
}
