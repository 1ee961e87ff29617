//! Who reads the same run directory, and whether it can decide.

use super::*;

impl Bed {
    fn probe(&self) -> String {
        let made = self.effects.iter().find_map(|e| match e {
            Effect::Probe { name } => Some(name.clone()),
            _ => None,
        });
        made.unwrap()
    }

    fn probed_by(&self) -> Vec<NodeName> {
        let asked = self.effects.iter().filter_map(|e| match e {
            Effect::Send { to, frame, .. } if matches!(frame.msg, AgentMsg::Probe { .. }) => Some(to.clone()),
            _ => None,
        });
        asked.collect()
    }

    fn warned(&self) -> bool {
        self.notes.iter().any(|note| matches!(note, Note::NotExclusive { .. }))
    }
}

#[test]
fn one_other_node_makes_the_other_half_of_the_probe() {
    for (own, other, warns) in
        [(true, false, false), (false, true, false), (true, true, true), (false, false, true)]
    {
        let mut bed = Bed::new(3, 0);
        bed.join_all(3);
        assert_eq!(bed.probed_by(), [name(2)]);
        let probe = bed.probe();
        bed.says(2, 2, CoordinatorMsg::Probed { name: probe.clone(), won: other });
        // Of no meaning: a node that was not asked, another file.
        bed.says(3, 3, CoordinatorMsg::Probed { name: probe.clone(), won: own });
        bed.says(2, 2, CoordinatorMsg::Probed { name: "0".into(), won: own });
        assert!(!bed.warned());
        bed.event(Event::Probed { name: probe, won: own });
        assert_eq!(bed.warned(), warns, "{own} {other}");
    }
}

#[test]
fn another_node_is_asked_when_the_first_one_is_gone() {
    let mut bed = Bed::new(3, 0);
    bed.join(1, 1);
    bed.join(2, 2);
    bed.event(Event::LinkDown { node: name(2), incarnation: Incarnation(2) });
    bed.join(3, 3);
    assert_eq!(bed.probed_by(), [name(2), name(3)]);
}

#[test]
fn an_answer_that_is_lost_is_asked_for_again_with_another_file() {
    let mut bed = Bed::new(2, 0);
    bed.join_all(2);
    bed.event(Event::AuthorityHeld);
    bed.all_start();
    let first = bed.probe();
    bed.event(Event::Probed { name: first.clone(), won: true });
    bed.effects.clear();
    bed.pass(31_000);
    let second = bed.probe();
    assert_ne!(first, second, "who made a file cannot make it again");
    assert_eq!(bed.probed_by(), [name(2)]);
    bed.says(2, 2, CoordinatorMsg::Probed { name: first, won: true });
    bed.event(Event::Probed { name: second.clone(), won: false });
    assert!(!bed.warned(), "the first file is of no meaning any more");
    bed.says(2, 2, CoordinatorMsg::Probed { name: second, won: true });
    bed.effects.clear();
    bed.pass(600_000);
    assert!(bed.probed_by().is_empty() && !bed.warned(), "known is known");
}

#[test]
fn who_never_answers_is_not_asked_for_ever() {
    let mut bed = Bed::new(2, 0);
    bed.join_all(2);
    bed.event(Event::AuthorityHeld);
    bed.all_start();
    bed.pass(600_000);
    assert_eq!(bed.probed_by().len(), 5);
}

#[test]
fn a_world_of_one_node_probes_nothing() {
    let mut bed = Bed::new(1, 0);
    bed.join(1, 1);
    assert!(!bed.effects.iter().any(|e| matches!(e, Effect::Probe { .. })));
}

#[test]
fn a_node_that_does_not_know_the_hint_is_noted_once() {
    let mut bed = Bed::with(CoordinatorConfig {
        node: name(1),
        incarnation: Incarnation(1),
        spec: spec(2, 0),
        voters: vec![name(1), name(2)],
        proof: Some(9),
        ..CoordinatorConfig::default()
    });
    bed.join(1, 1);
    bed.join(2, 2);
    bed.join(2, 3);
    let unproven: Vec<_> = bed.notes.iter().filter(|n| matches!(n, Note::Unproven { .. })).collect();
    assert_eq!(unproven.len(), 1, "{unproven:?}");
}
