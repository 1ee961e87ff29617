use super::*;

const LEADER: Incarnation = Incarnation(100);

fn at(ms: u64) -> Now {
    Now { boot: BootTime::from_millis(ms), wall_ms: ms }
}

fn numbers() -> Numbers {
    Numbers { lost_ms: 6_000, ..Numbers::default() }
}

struct Bed {
    lease: Lease,
    out: Outbox<Effect>,
}

impl Bed {
    fn new() -> Self {
        Self { lease: Lease::new(Incarnation(1), Mutants::NONE), out: Outbox::default() }
    }

    fn event(&mut self, ms: u64, event: Event) -> Vec<Effect> {
        self.lease.handle(at(ms), event, &mut self.out);
        self.out.take_effects()
    }

    fn welcome(&mut self, ms: u64, leader: Incarnation, term: u64, dead: bool) -> Vec<Effect> {
        let term = Term(term);
        let numbers = Box::new(numbers());
        self.event(ms, Event::Welcome { leader, term, forever: false, previous_leader_dead: dead, numbers })
    }

    fn ack(&mut self, ms: u64, link: u64, n: u64, ack: u64, remaining_ms: u64) -> Vec<Effect> {
        let ack = Ack { term: Term(0), leader: LEADER, ack, n, remaining_ms, wall_ms: 0 };
        self.event(ms, Event::Acked { link: Link(link), ack })
    }

    fn tick(&mut self, ms: u64) -> Vec<Effect> {
        self.event(ms, Event::Tick { tick: ms })
    }

    /// Admitted, one link up, first beat sent at 0.
    fn beating() -> Self {
        let mut bed = Self::new();
        assert_eq!(bed.welcome(0, LEADER, 0, false), [Effect::Dial(Link(0))]);
        assert_eq!(beats(&bed.event(0, Event::LinkUp(Link(0)))), [(0, 1, None)]);
        bed
    }
}

/// Link, number and echo of each beat.
fn beats(effects: &[Effect]) -> Vec<(u64, u64, Option<u64>)> {
    effects
        .iter()
        .filter_map(|e| match e {
            Effect::SendBeat { link, beat } => Some((link.0, beat.n, beat.echo)),
            _ => None,
        })
        .collect()
}

fn granted(effects: &[Effect]) -> Vec<BootTime> {
    effects.iter().filter_map(|e| if let Effect::Granted(g) = e { Some(*g) } else { None }).collect()
}

#[test]
fn a_grant_is_counted_from_the_send_of_the_beat() {
    let mut bed = Bed::beating();
    let effects = bed.ack(900, 0, 1, 1, 5_000);
    assert_eq!(granted(&effects), [BootTime::from_millis(5_000)]);
    assert_eq!(bed.lease.grant(), Some(BootTime::from_millis(5_000)));
}

#[test]
fn a_grant_is_never_shortened() {
    let mut bed = Bed::beating();
    bed.ack(0, 0, 1, 1, 5_000);
    bed.tick(1_000);
    assert_eq!(granted(&bed.ack(1_010, 0, 3, 2, 3_000)), []);
    assert_eq!(granted(&bed.ack(1_020, 0, 3, 3, 4_500)), [BootTime::from_millis(5_500)]);
}

#[test]
fn until_the_first_grant_each_ack_is_answered_at_once_then_once_a_second() {
    let mut bed = Bed::beating();
    assert_eq!(beats(&bed.ack(1, 0, 1, 1, 0)), [(0, 2, Some(1))]);
    assert_eq!(beats(&bed.ack(2, 0, 2, 2, 5_300)), []);
    assert_eq!(bed.lease.deadline(), Some(BootTime::from_millis(1_001)));
    assert_eq!(beats(&bed.tick(1_001)), [(0, 3, Some(2))]);
}

#[test]
fn an_acknowledgement_is_echoed_at_once_and_that_echo_is_not() {
    let mut bed = Bed::beating();
    assert_eq!(beats(&bed.ack(1, 0, 1, 1, 5_300)), [(0, 2, Some(1))]);
    assert_eq!(beats(&bed.ack(2, 0, 2, 2, 5_300)), []);
    assert_eq!(beats(&bed.tick(1_001)), [(0, 3, Some(2))]);
    assert_eq!(beats(&bed.ack(1_002, 0, 3, 3, 5_300)), [(0, 4, Some(3))]);
    assert_eq!(beats(&bed.ack(1_003, 0, 4, 4, 5_300)), []);
    // One that comes twice or late is echoed with the next beat.
    assert_eq!(beats(&bed.ack(1_004, 0, 3, 5, 5_300)), []);
    assert_eq!(bed.lease.deadline(), Some(BootTime::from_millis(2_002)));
}

#[test]
fn where_grants_are_long_the_next_beat_echoes() {
    let mut bed = Bed::beating();
    // 3 s and three beats are left: a pause of 3 s is survived although the next two beats are not answered.
    assert_eq!(beats(&bed.ack(1, 0, 1, 1, 6_000)), []);
    assert_eq!(beats(&bed.tick(1_000)), [(0, 2, Some(1))]);
    assert_eq!(beats(&bed.ack(1_001, 0, 2, 2, 5_999)), [(0, 3, Some(2))]);
}

#[test]
fn what_a_pause_left_of_a_grant_is_made_whole_at_once() {
    let mut bed = Bed::beating();
    bed.ack(0, 0, 1, 1, 5_300);
    bed.ack(0, 0, 2, 2, 5_300);
    bed.tick(1_000);
    // Stopped here; the answer to the third beat is read 4.4 s late.
    assert_eq!(beats(&bed.tick(5_400)), [(0, 4, Some(2))]);
    assert_eq!(granted(&bed.ack(5_400, 0, 3, 3, 4_300)), []);
    // The fourth beat echoed an old acknowledgement: what it earns would be over before the sixth.
    let effects = bed.ack(5_401, 0, 4, 4, 899);
    assert_eq!(granted(&effects), [BootTime::from_millis(6_299)]);
    assert_eq!(beats(&effects), [(0, 5, Some(4))]);
    assert_eq!(granted(&bed.ack(5_402, 0, 5, 5, 5_299)), [BootTime::from_millis(10_700)]);
    assert_eq!(bed.lease.deadline(), Some(BootTime::from_millis(6_401)));
}

#[test]
fn grants_that_stay_short_are_hurried_a_few_times_only() {
    let mut bed = Bed::beating();
    bed.ack(1, 0, 1, 1, 5_300);
    let mut sent = 0;
    for ms in 1_000..11_000 {
        let n = bed.lease.n;
        sent += beats(&bed.tick(ms)).len() as u64;
        sent += beats(&bed.ack(ms, 0, n, ms, 500)).len() as u64;
    }
    assert!(sent <= 10 + u64::from(HURRIED), "{sent} beats in ten seconds");
}

#[test]
fn without_a_majority_the_hurry_ends() {
    let mut bed = Bed::beating();
    let mut sent = 1;
    for ms in 1..1_000 {
        sent += beats(&bed.ack(ms, 0, sent, ms, 0)).len() as u64;
    }
    // Not more than a few beyond the ordinary ones: thousands of nodes may wait for their majority.
    assert!(sent <= u64::from(HURRIED) + 7, "{sent} beats in a second");
}

#[test]
fn unanswered_dials_a_second_link_beats_on_both_and_keeps_the_one_that_answers() {
    let mut bed = Bed::beating();
    bed.ack(0, 0, 1, 1, 5_300);
    bed.ack(0, 0, 2, 2, 5_300);
    assert_eq!(beats(&bed.tick(1_000)), [(0, 3, Some(2))]);
    assert_eq!(beats(&bed.tick(2_000)), [(0, 4, Some(2))]);
    assert_eq!(bed.tick(2_500), [Effect::Dial(Link(1))]);
    assert_eq!(beats(&bed.event(2_510, Event::LinkUp(Link(1)))), [(0, 5, Some(2)), (1, 5, Some(2))]);
    // An answer that was held up says nothing about the first link as it is now.
    assert_eq!(bed.ack(2_520, 0, 3, 3, 100), []);
    let effects = bed.ack(2_530, 1, 5, 4, 5_300);
    assert_eq!(effects[0], Effect::CloseLink(Link(0)));
    assert_eq!(beats(&effects), [(1, 6, Some(4))]);
    assert_eq!(beats(&bed.tick(3_530)), [(1, 7, Some(4))]);
}

#[test]
fn a_long_outage_rotates_links_and_never_holds_more_than_two() {
    let mut bed = Bed::beating();
    let mut open = 1_i32;
    for ms in (0..30_000).step_by(100) {
        for effect in bed.tick(ms) {
            match effect {
                Effect::Dial(link) => {
                    open += 1;
                    for e in bed.event(ms, Event::LinkUp(link)) {
                        assert!(matches!(e, Effect::SendBeat { .. }));
                    }
                }
                Effect::CloseLink(_) => open -= 1,
                _ => {}
            }
            assert!((1..=2).contains(&open));
        }
    }
    assert!(bed.lease.next_link > 10);
}

#[test]
fn a_lost_link_is_dialled_again() {
    let mut bed = Bed::beating();
    assert_eq!(bed.event(100, Event::LinkDown(Link(0))), []);
    assert_eq!(bed.lease.deadline(), Some(BootTime::from_millis(200)));
    assert_eq!(bed.tick(200), [Effect::Dial(Link(1))]);
}

#[test]
fn no_other_leader_gets_a_vote_for_t_after_the_last_acknowledgement() {
    let mut bed = Bed::beating();
    bed.ack(1, 0, 1, 1, 5_300);
    let other = Incarnation(200);
    assert_eq!(bed.welcome(500, other, 1, false), [Effect::CloseLink(Link(0)), Effect::Dial(Link(1))]);
    bed.event(501, Event::LinkUp(Link(1)));
    let n = bed.lease.n;
    let ack = Ack { term: Term(1), leader: other, ack: 1, n, remaining_ms: 0, wall_ms: 0 };
    let mut echoes = beats(&bed.event(502, Event::Acked { link: Link(1), ack }));
    for ms in (600..8_000).step_by(10) {
        let effects = bed.tick(ms);
        for (_, n, echo) in beats(&effects) {
            assert_eq!(echo.is_some(), ms > 5_301 + 26, "at {ms}");
            echoes.push((1, n, echo));
            let ack = Ack { term: Term(1), leader: other, ack: n, n, remaining_ms: 0, wall_ms: 0 };
            bed.event(ms + 1, Event::Acked { link: Link(1), ack });
        }
    }
    assert!(echoes.iter().any(|e| e.2.is_some()));
}

#[test]
fn a_leader_proven_dead_frees_the_vote() {
    let mut bed = Bed::beating();
    bed.ack(1, 0, 1, 1, 5_300);
    let other = Incarnation(200);
    bed.welcome(500, other, 1, true);
    bed.event(501, Event::LinkUp(Link(1)));
    let n = bed.lease.n;
    let ack = Ack { term: Term(1), leader: other, ack: 9, n, remaining_ms: 0, wall_ms: 0 };
    let effects = bed.event(502, Event::Acked { link: Link(1), ack });
    assert_eq!(beats(&effects), [(1, n + 1, Some(9))]);
}

#[test]
fn acknowledgements_of_another_leader_or_for_unknown_beats_change_nothing() {
    let mut bed = Bed::beating();
    for (leader, term, n) in [(7, 0, 1), (100, 1, 1), (100, 0, 99), (100, 0, 0)] {
        let leader = Incarnation(leader);
        let ack = Ack { term: Term(term), leader, ack: 5, n, remaining_ms: 5_300, wall_ms: 0 };
        assert_eq!(bed.event(5, Event::Acked { link: Link(0), ack }), []);
    }
    assert_eq!(bed.lease.grant(), None);
}

#[test]
fn alone_the_grant_is_for_ever() {
    let mut bed = Bed::new();
    let numbers = Box::new(numbers());
    let effects = bed.event(
        0,
        Event::Welcome { leader: LEADER, term: Term(0), forever: true, previous_leader_dead: false, numbers },
    );
    assert_eq!(granted(&effects), [BootTime::NEVER]);
    bed.event(0, Event::LinkUp(Link(0)));
    assert_eq!(granted(&bed.ack(1, 0, 1, 1, 5_000)), []);
}

#[test]
fn a_leader_that_says_nothing_for_as_long_as_a_grant_may_last_is_silent() {
    let mut bed = Bed::beating();
    bed.ack(1, 0, 1, 1, 5_300);
    let silent = |effects: &[Effect]| effects.iter().any(|e| matches!(e, Effect::LeaderSilent { .. }));
    for ms in (500..=5_300).step_by(400) {
        assert!(!silent(&bed.tick(ms)), "{ms}");
    }
    let since = BootTime::from_millis(1);
    assert!(bed.tick(5_301).contains(&Effect::LeaderSilent { since }));
    assert!(!silent(&bed.tick(8_000)), "once");
    bed.welcome(8_100, LEADER, 0, false);
    assert!(!silent(&bed.tick(13_300)));
    assert!(silent(&bed.tick(13_400)), "and again after it was heard");
    let mut alone = Bed::new();
    let numbers = Box::new(numbers());
    alone.event(
        0,
        Event::Welcome { leader: LEADER, term: Term(0), forever: true, previous_leader_dead: false, numbers },
    );
    assert!(!silent(&alone.tick(60_000)), "a grant for ever needs nobody");
}
