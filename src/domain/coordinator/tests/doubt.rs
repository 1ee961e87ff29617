//! Who is lost before its silence is long enough, and who is not.

use super::*;

#[test]
fn two_that_cannot_reach_it_either_confirm_a_silence() {
    let mut bed = Bed::running(4, 2);
    bed.effects.clear();
    bed.quiet(3, 3_000);
    assert_eq!(bed.asked(3), [name(2), name(4)], "its neighbours");
    bed.pass(980);
    bed.reach(2, 3, false);
    assert_eq!(bed.lost(), []);
    bed.pass(20);
    bed.reach(4, 3, false);
    assert_eq!(bed.lost(), [(name(3), Sign::Unreachable { from: vec![name(2), name(4)] })]);
    assert!(bed.effects.contains(&Effect::CloseGrants { node: name(3) }));
    assert!(bed.effects.contains(&Effect::Disconnect { node: name(3) }));
}

#[test]
fn p0_1_an_attempt_without_a_lost_node_waits_until_its_grant_is_surely_over() {
    let mut bed = Bed::running(4, 2);
    bed.quiet(3, 3_000);
    bed.pass(1_000);
    bed.reach(2, 3, false);
    bed.reach(4, 3, false);
    bed.grants_closed(3, 1_500);
    bed.all_stop(&[3]);
    assert_eq!(bed.attempt(), Attempt(1), "it is written");
    assert_eq!(bed.starts(Attempt(1)), [], "and not begun");
    bed.pass(1_499);
    assert_eq!(bed.starts(Attempt(1)), []);
    bed.pass(1);
    assert_eq!(bed.starts(Attempt(1)), [name(1), name(2), name(4), name(5)]);
}

#[test]
fn a_guardians_word_frees_a_node_at_once() {
    let mut bed = Bed::running(4, 2);
    bed.event(Event::LinkDown { node: name(3), incarnation: Incarnation(3) });
    bed.join_with(3, 30, vec![Incarnation(3)]);
    bed.all_stop(&[]);
    assert_eq!(bed.starts(Attempt(1)), [name(1), name(2), name(3), name(4)]);
    assert_eq!(bed.lost(), []);
}

#[test]
fn one_that_reaches_it_speaks_for_it_and_the_question_is_put_once_a_second() {
    let mut bed = Bed::running(4, 2);
    bed.effects.clear();
    bed.quiet(3, 3_000);
    assert_eq!(bed.asked(3).len(), 2);
    bed.reach(2, 3, true);
    bed.reach(4, 3, false);
    bed.pass(999);
    assert_eq!(bed.asked(3), []);
    bed.pass(1);
    assert_eq!(bed.asked(3), [name(2), name(4)], "a new round");
    // Half of an answer is none, and an old one is not counted with a new one.
    bed.reach(2, 3, false);
    bed.pass(1_499);
    assert_eq!(bed.asked(3), [], "an answer may still come");
    bed.pass(1);
    assert_eq!(bed.asked(3).len(), 2);
    bed.reach(4, 3, false);
    assert_eq!(bed.lost(), []);
    bed.event(Event::Late { node: name(3), silent: Duration::from_secs(5) });
    bed.reach(2, 3, false);
    bed.pass(10_000);
    assert_eq!((bed.asked(3), bed.lost()), (vec![], vec![]), "it beats again");
    assert!(bed.notes.iter().any(|n| matches!(n, Note::BeatsLate { .. })), "and an event counts it");
}

#[test]
fn with_fewer_than_two_to_ask_only_silence_counts() {
    let mut bed = Bed::running(3, 0);
    bed.effects.clear();
    bed.quiet(3, 3_000);
    bed.pass(2_900);
    assert_eq!((bed.asked(3), bed.lost()), (vec![], vec![]));
    bed.event(Event::Silent { node: name(3), silent: Duration::from_secs(6) });
    assert_eq!(bed.lost(), [(name(3), Sign::Silence)]);
}

#[test]
fn nodes_in_doubt_are_not_asked_about_each_other() {
    let mut bed = Bed::running(5, 0);
    bed.effects.clear();
    bed.quiet(3, 3_000);
    bed.asked(3);
    bed.quiet(4, 3_000);
    assert_eq!(bed.asked(4), [name(2), name(5)]);
}

#[test]
fn a_closed_connection_counts_beside_silence_only() {
    let mut bed = Bed::running(3, 0);
    bed.event(Event::LinkDown { node: name(3), incarnation: Incarnation(3) });
    bed.pass(2_000);
    assert_eq!(bed.lost(), [], "it may still beat");
    bed.quiet(3, 3_000);
    assert_eq!(bed.lost(), [(name(3), Sign::Closed)]);

    let mut bed = Bed::running(3, 0);
    bed.quiet(3, 3_000);
    bed.event(Event::LinkDown { node: name(3), incarnation: Incarnation(3) });
    bed.pass(900);
    assert_eq!(bed.lost(), [], "it has a second to come back");
    bed.pass(100);
    assert_eq!(bed.lost(), [(name(3), Sign::Closed)]);
}

#[test]
fn an_ended_task_is_a_hint_and_no_proof() {
    let mut bed = Bed::running(3, 0);
    let ended = || Event::Supervisor(FromSupervisor::AgentEnded { node: name(3), rc: 137 });
    bed.event(ended());
    bed.pass(5_000);
    assert_eq!(bed.lost(), [], "its agent beats");
    bed.join(3, 3);
    bed.quiet(3, 3_000);
    assert_eq!(bed.lost(), [], "that was another one");
    bed.event(ended());
    assert_eq!(bed.lost(), [(name(3), Sign::TaskEnded)]);

    let mut bed = Bed::running(3, 0);
    bed.event(ended());
    bed.pass(60_000);
    bed.quiet(3, 3_000);
    assert_eq!(bed.lost(), [], "a second task of the node ended long ago");
}

#[test]
fn p1_9_who_slept_believes_nothing_for_one_lease() {
    let mut bed = Bed::running(4, 2);
    bed.effects.clear();
    bed.quiet(3, 3_000);
    bed.asked(3);
    bed.reach(2, 3, false);
    // Stopped here, for long enough that a beat may wait unread.
    bed.ms += 1_600;
    bed.reach(4, 3, false);
    assert_eq!(bed.lost(), []);
    bed.pass(5_200);
    assert_eq!((bed.asked(3), bed.lost()), (vec![], vec![]));
    bed.pass(100);
    assert_eq!(bed.asked(3), [name(2), name(4)]);
}

#[test]
fn a_node_in_doubt_is_not_counted_on() {
    let mut bed = Bed::running(2, 2);
    bed.quiet(2, 3_000);
    bed.exited(1, vec![report(0, KILL, "")]);
    bed.all_stop(&[]);
    assert_eq!(bed.attempt(), Attempt(0), "whether it lives is settled first");
    bed.event(Event::Late { node: name(2), silent: Duration::from_secs(4) });
    assert_eq!(bed.attempt(), Attempt(1));
    assert_eq!(bed.starts(Attempt(1)), [name(1), name(2)]);
}
