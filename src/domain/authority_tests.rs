use super::super::lease::{self, Lease};
use super::*;

const LEADER: Incarnation = Incarnation(100);

fn at(ms: u64) -> Now {
    Now { boot: BootTime::from_millis(ms), wall_ms: ms }
}

fn name(i: u64) -> NodeName {
    NodeName::new(format!("n{i}"))
}

fn numbers() -> Box<Numbers> {
    Box::new(Numbers { lost_ms: 6_000, ..Numbers::default() })
}

struct Bed {
    authority: Authority,
    out: Outbox<Effect>,
    n: u64,
}

impl Bed {
    /// Leads since 0 with so many voters, all admitted.
    fn new(voters: u64, earlier: bool) -> Self {
        let mut bed = Self { authority: Authority::new(Mutants::NONE), out: Outbox::default(), n: 0 };
        let voters: Vec<NodeName> = (0..voters).map(name).collect();
        let lead = Event::Lead {
            term: Term(0),
            leader: LEADER,
            own: name(0),
            voters: voters.clone(),
            numbers: numbers(),
            earlier,
        };
        assert_eq!(bed.event(0, lead), []);
        for (i, node) in (0..).zip(voters) {
            assert_eq!(bed.event(0, Event::Admit { node, incarnation: Incarnation(i) }), []);
        }
        bed
    }

    fn event(&mut self, ms: u64, event: Event) -> Vec<Effect> {
        self.authority.handle(at(ms), event, &mut self.out);
        self.out.take_effects()
    }

    fn beat(&mut self, ms: u64, i: u64, echo: Option<u64>) -> Vec<Effect> {
        self.n += 1;
        let (n, tick) = (self.n, self.n);
        let beat = Beat { incarnation: Incarnation(i), term: Term(0), n, tick, echo };
        self.event(ms, Event::Beat { node: name(i), link: Link(i), beat })
    }

    /// Beats, and returns the acknowledgement's number.
    fn acked(&mut self, ms: u64, i: u64, echo: Option<u64>) -> u64 {
        acks(&self.beat(ms, i, echo)).into_iter().rfind(|a| a.0 == name(i)).unwrap().1
    }

    /// Runs ticks as the driver would, to `ms`, and returns what was said.
    fn ticks(&mut self, from: u64, to: u64) -> Vec<Effect> {
        (from..=to).step_by(100).flat_map(|ms| self.event(ms, Event::Tick)).collect()
    }
}

/// Node, number and rest of each acknowledgement.
fn acks(effects: &[Effect]) -> Vec<(NodeName, u64, u64)> {
    effects
        .iter()
        .filter_map(|e| match e {
            Effect::SendAck { node, ack, .. } => Some((node.clone(), ack.ack, ack.remaining_ms)),
            _ => None,
        })
        .collect()
}

#[test]
fn authority_needs_the_echo_of_a_strict_majority_and_counts_from_the_send() {
    let mut bed = Bed::new(4, false);
    let first: Vec<u64> = (0..4).map(|i| bed.acked(100 + i, i, None)).collect();
    bed.acked(200, 0, Some(first[0]));
    bed.acked(210, 1, Some(first[1]));
    assert_eq!(bed.authority.until(), None, "two of four are no majority");
    let effects = bed.beat(220, 2, Some(first[2]));
    // Three echoed: 102, 101, 100 ms; all three were sent by then, the earliest counts.
    let until = BootTime::from_millis(100 + 5_300);
    assert_eq!(effects[0], Effect::Until(until));
    assert_eq!(bed.authority.until(), Some(until));
    let answered = acks(&effects);
    assert_eq!(answered.len(), 4, "everybody hears of the first authority at once");
    assert!(answered.iter().all(|a| a.2 == 5_400 - 220));
}

#[test]
fn one_voter_has_authority_after_two_round_trips() {
    let mut bed = Bed::new(1, false);
    let ack = bed.acked(0, 0, None);
    assert!(bed.beat(1, 0, Some(ack)).contains(&Effect::Until(BootTime::from_millis(5_300))));
}

#[test]
fn silence_is_said_once_and_so_is_the_return() {
    let mut bed = Bed::new(2, false);
    bed.acked(1_000, 1, None);
    for ms in (0..7_000).step_by(500) {
        bed.acked(ms, 0, None);
        let effects = bed.event(ms, Event::Tick);
        assert_eq!(effects, [], "at {ms}");
    }
    let since = BootTime::from_millis(1_000);
    assert_eq!(bed.event(7_000, Event::Tick), [Effect::Silent { node: name(1), since }]);
    assert_eq!(bed.event(7_100, Event::Tick), []);
    assert_eq!(bed.beat(7_200, 1, None)[0], Effect::Back { node: name(1) });
}

#[test]
fn a_voter_that_never_came_is_silent_once() {
    let mut bed = Bed::new(1, false);
    bed.event(0, Event::Voters(vec![name(0), name(1)]));
    let said: Vec<Effect> = bed
        .ticks(0, 9_000)
        .into_iter()
        .filter(|e| matches!(e, Effect::Silent { node, .. } if *node == name(1)))
        .collect();
    assert_eq!(said, [Effect::Silent { node: name(1), since: BootTime(0) }]);
}

#[test]
fn a_beat_whose_tick_stands_still_is_no_life() {
    let mut bed = Bed::new(2, false);
    let mut said = Vec::new();
    let mut answers = 0;
    for ms in (0..12_000).step_by(500) {
        let others = bed.beat(ms, 0, None);
        said.extend(others.into_iter().filter(|e| !matches!(e, Effect::SendAck { .. })).map(|e| (ms, e)));
        bed.n += 1;
        let beat = Beat { incarnation: Incarnation(1), term: Term(0), n: bed.n, tick: 7, echo: None };
        answers += acks(&bed.event(ms, Event::Beat { node: name(1), link: Link(1), beat })).len();
        said.extend(bed.event(ms, Event::Tick).into_iter().map(|e| (ms, e)));
    }
    assert_eq!(answers, 6, "answered for 3 s");
    let since = BootTime::from_millis(2_500);
    let quiet = (5_500, Effect::Quiet { node: name(1), since });
    assert_eq!(said, [quiet, (8_500, Effect::Silent { node: name(1), since })]);
}

#[test]
fn a_node_is_in_doubt_after_3_s_and_a_late_beat_is_told() {
    let mut bed = Bed::new(2, false);
    for ms in [0, 1_000] {
        bed.acked(ms, 0, None);
        bed.acked(ms, 1, None);
    }
    let told = |effects: Vec<Effect>| -> Vec<Effect> {
        effects.into_iter().filter(|e| !matches!(e, Effect::SendAck { .. })).collect()
    };
    let since = BootTime::from_millis(1_000);
    let mut said = Vec::new();
    for ms in (1_500..=4_500).step_by(500) {
        said.extend(told(bed.beat(ms, 0, None)).into_iter().map(|e| (ms, e)));
        said.extend(told(bed.event(ms, Event::Tick)).into_iter().map(|e| (ms, e)));
    }
    assert_eq!(said, [(4_000, Effect::Quiet { node: name(1), since })], "once");
    let late = |ms| Effect::Late { node: name(1), silent: Duration::from_millis(ms) };
    assert_eq!(told(bed.beat(4_600, 1, None)), [late(3_600)]);
    assert_eq!(told(bed.beat(6_000, 1, None)), [], "no other link was dialled for it yet");
    assert_eq!(told(bed.beat(7_499, 1, None)), []);
    bed.beat(7_499, 0, None);
    assert_eq!(told(bed.beat(8_999, 1, None)), [late(1_500)]);
}

#[test]
fn who_slept_declares_nobody_silent_for_one_lease_but_loses_its_authority() {
    let mut bed = Bed::new(1, false);
    let ack = bed.acked(0, 0, None);
    bed.acked(1, 0, Some(ack));
    assert_eq!(bed.event(9_000, Event::Tick), [Effect::Over]);
    assert_eq!(bed.ticks(9_000, 14_200), []);
    let since = BootTime::from_millis(1);
    assert_eq!(bed.ticks(14_300, 14_300), [Effect::Silent { node: name(0), since }]);
}

#[test]
fn authority_comes_back_with_a_majority() {
    let mut bed = Bed::new(2, false);
    for i in 0..2 {
        let ack = bed.acked(0, i, None);
        bed.acked(1, i, Some(ack));
    }
    let mut ack = None;
    for ms in (500..=5_500).step_by(500) {
        let effects = bed.beat(ms, 0, ack);
        assert_eq!(effects.contains(&Effect::Over), ms == 5_500, "half of the voters are no majority");
        ack = acks(&effects).first().map(|a| a.1);
        assert_eq!(acks(&effects)[0].2 > 0, ms < 5_300);
    }
    assert_eq!(
        bed.event(6_000, Event::Voters(vec![name(0)])),
        [Effect::Until(BootTime::from_millis(10_300)), {
            let leader = LEADER;
            let ack = Ack {
                term: Term(0),
                leader,
                ack: ack.unwrap() + 1,
                n: bed.n,
                remaining_ms: 4_300,
                wall_ms: 0,
            };
            Effect::SendAck { node: name(0), link: Link(0), ack }
        }]
    );
}

#[test]
fn closed_grants_are_over_when_fence_and_drift_have_passed() {
    let mut bed = Bed::new(1, false);
    let ack = bed.acked(0, 0, None);
    bed.acked(1, 0, Some(ack));
    let node = name(0);
    // Granted until 5.3 s, 0.2 s until the guardian has killed, 0.5 % of T for the clocks.
    let over_at = BootTime::from_millis(5_300).after(Duration::from_micros(226_500));
    assert_eq!(
        bed.event(100, Event::CloseGrants { node: node.clone() }),
        [Effect::GrantsClosed { node: node.clone(), over_at }]
    );
    assert_eq!(bed.beat(200, 0, None), [], "no more answers");
    assert_eq!(bed.event(300, Event::Admit { node, incarnation: Incarnation(0) }), []);
    assert_eq!(acks(&bed.beat(400, 0, None)).len(), 1);
}

#[test]
fn a_node_without_a_grant_is_over_at_once_unless_an_earlier_leader_may_have_granted() {
    let node = name(7);
    let over_at = BootTime::from_millis(100);
    assert_eq!(
        Bed::new(1, false).event(100, Event::CloseGrants { node: node.clone() }),
        [Effect::GrantsClosed { node: node.clone(), over_at }]
    );
    let over_at = BootTime::from_millis(5_300).after(Duration::from_micros(226_500));
    assert_eq!(
        Bed::new(1, true).event(100, Event::CloseGrants { node: node.clone() }),
        [Effect::GrantsClosed { node, over_at }]
    );
}

#[test]
fn stale_beats_change_nothing() {
    let mut bed = Bed::new(2, false);
    for (incarnation, term, node) in [(9, 0, 0), (0, 1, 0), (0, 0, 9)] {
        let beat =
            Beat { incarnation: Incarnation(incarnation), term: Term(term), n: 1, tick: 1, echo: None };
        assert_eq!(bed.event(1, Event::Beat { node: name(node), link: Link(0), beat }), []);
    }
}

/// A small model of two leaders and their voters: one-way cuts, delays to 4 s, drift, frozen nodes.
mod disjoint {
    use super::*;
    use proptest::prelude::*;

    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }
        fn below(&mut self, n: u64) -> u64 {
            self.next() % n
        }
    }

    #[derive(Clone)]
    enum Mail {
        Welcome(usize),
        Beat { leader: usize, voter: usize, link: Link, beat: Beat },
        Ack { leader: usize, voter: usize, link: Link, ack: Ack },
    }

    /// Nodes 0 and 1 lead (node 1 from `second_at` on); every node votes.
    struct Model {
        random: Random,
        now: u64,
        drift: Vec<i64>,
        leases: Vec<Lease>,
        authorities: [Authority; 2],
        cut: [Vec<(bool, bool)>; 2],
        frozen: Vec<u64>,
        mail: Vec<(u64, Mail)>,
        talks_to: Vec<usize>,
    }

    impl Model {
        /// Node's own clock, ns; drifts by up to 200 ppm.
        fn clock(&self, node: usize) -> Now {
            let us = 1_000_000_000 + self.now * 1_000 + node as u64 * 77_777;
            let drifted = i128::from(us) + i128::from(us) * i128::from(self.drift[node]) / 1_000_000;
            Now { boot: BootTime(u64::try_from(drifted).unwrap() * 1_000), wall_ms: 0 }
        }

        fn send(&mut self, mail: Mail, leader: usize, voter: usize, up: bool) {
            let (to, from) = self.cut[leader][voter];
            if (if up { to } else { from }) || self.random.below(20) == 0 {
                return;
            }
            let delay = match self.random.below(10) {
                0 => self.random.below(4_000),
                1..4 => self.random.below(400),
                _ => self.random.below(5),
            };
            self.mail.push((self.now + delay, mail));
        }

        fn lease(&mut self, voter: usize, event: lease::Event) {
            let mut out = Outbox::default();
            let now = self.clock(voter);
            self.leases[voter].handle(now, event, &mut out);
            let leader = self.talks_to[voter];
            for effect in out.take_effects() {
                match effect {
                    lease::Effect::Dial(link) => self.lease(voter, lease::Event::LinkUp(link)),
                    lease::Effect::SendBeat { link, beat } => {
                        self.send(Mail::Beat { leader, voter, link, beat }, leader, voter, true);
                    }
                    _ => {}
                }
            }
        }

        fn authority(&mut self, leader: usize, event: Event) {
            let mut out = Outbox::default();
            let now = self.clock(leader);
            self.authorities[leader].handle(now, event, &mut out);
            for effect in out.take_effects() {
                if let Effect::SendAck { node, link, ack } = effect {
                    let voter: usize = node.as_str()[1..].parse().unwrap();
                    self.send(Mail::Ack { leader, voter, link, ack }, leader, voter, false);
                }
            }
        }

        fn lead(&mut self, leader: usize) {
            let nodes = self.leases.len() as u64;
            self.authority(
                leader,
                Event::Lead {
                    term: Term(leader as u64),
                    leader: Incarnation(100 + leader as u64),
                    own: name(leader as u64),
                    voters: (0..nodes).map(name).collect(),
                    numbers: numbers(),
                    earlier: leader > 0,
                },
            );
            for i in 0..nodes {
                self.authority(leader, Event::Admit { node: name(i), incarnation: Incarnation(i) });
                let at = self.now + self.random.below(3_000);
                self.mail.push((at, Mail::Welcome(leader | (i as usize) << 1)));
            }
        }

        fn deliver(&mut self, mail: Mail) {
            match mail {
                Mail::Welcome(code) => {
                    let (leader, voter) = (code & 1, code >> 1);
                    if leader < self.talks_to[voter] {
                        return;
                    }
                    self.talks_to[voter] = leader;
                    self.lease(
                        voter,
                        lease::Event::Welcome {
                            leader: Incarnation(100 + leader as u64),
                            term: Term(leader as u64),
                            forever: false,
                            previous_leader_dead: false,
                            numbers: numbers(),
                        },
                    );
                }
                Mail::Beat { leader, voter, link, beat } => {
                    if self.frozen[leader] > self.now {
                        let at = self.frozen[leader];
                        self.mail.push((at, Mail::Beat { leader, voter, link, beat }));
                    } else {
                        self.authority(leader, Event::Beat { node: name(voter as u64), link, beat });
                    }
                }
                Mail::Ack { leader, voter, link, ack } => {
                    if self.frozen[voter] > self.now {
                        let at = self.frozen[voter];
                        self.mail.push((at, Mail::Ack { leader, voter, link, ack }));
                    } else {
                        self.lease(voter, lease::Event::Acked { link, ack });
                    }
                }
            }
        }

        fn faults(&mut self, nodes: usize) {
            let (leader, node) = (self.random.below(2) as usize, self.random.below(nodes as u64) as usize);
            match self.random.below(400) {
                0 => self.cut[leader][node].0 = !self.cut[leader][node].0,
                1 => self.cut[leader][node].1 = !self.cut[leader][node].1,
                2 => self.frozen[node] = self.now + self.random.below(8_000),
                3 => self.cut[leader].fill((true, true)),
                4 | 5 => self.cut[leader].fill((false, false)),
                _ => {}
            }
        }

        fn step(&mut self) {
            let nodes = self.leases.len();
            self.faults(nodes);
            let now = self.now;
            let (due, later): (Vec<_>, Vec<_>) =
                std::mem::take(&mut self.mail).into_iter().partition(|(at, _)| *at <= now);
            self.mail = later;
            for (_, mail) in due {
                self.deliver(mail);
            }
            for node in 0..nodes {
                if self.frozen[node] <= now {
                    self.lease(node, lease::Event::Tick { tick: now });
                    if node < 2 {
                        self.authority(node, Event::Tick);
                    }
                }
            }
            self.now += 10;
        }
    }

    fn holds(model: &Model, leader: usize) -> bool {
        model.authorities[leader].has_authority(model.clock(leader).boot)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn two_leaders_never_have_authority_at_once(seed: u64, nodes in 3_usize..7, second_at in 0_u64..20_000) {
            let mut random = Random(seed);
            let drift = (0..nodes).map(|_| random.below(401) as i64 - 200).collect();
            let mut model = Model {
                drift,
                now: 0,
                leases: (0..nodes).map(|i| Lease::new(Incarnation(i as u64), Mutants::NONE)).collect(),
                authorities: [Authority::new(Mutants::NONE), Authority::new(Mutants::NONE)],
                cut: [vec![(false, false); nodes], vec![(false, false); nodes]],
                frozen: vec![0; nodes],
                mail: Vec::new(),
                talks_to: vec![0; nodes],
                random,
            };
            model.lead(0);
            while model.now < 40_000 {
                if model.now / 10 == second_at / 10 {
                    model.lead(1);
                }
                model.step();
                let both = (holds(&model, 0), holds(&model, 1));
                prop_assert!(both != (true, true), "at {} ms", model.now);
            }
        }
    }
}

#[test]
fn many_voters_are_counted_when_a_majority_can_have_voted_and_not_at_every_beat() {
    const VOTERS: u64 = 200;
    let mut bed = Bed::new(VOTERS, false);
    let first: Vec<u64> = (0..VOTERS).map(|i| bed.acked(10, i, None)).collect();
    for (i, ack) in (0..100).zip(&first) {
        bed.beat(20, i, Some(*ack));
        assert_eq!(bed.authority.until(), None, "{} of {VOTERS} have voted", i + 1);
    }
    // The one that makes them a majority, and everybody hears of it at once.
    let effects = bed.beat(20, 100, Some(first[100]));
    assert_eq!(bed.authority.until(), Some(BootTime::from_millis(10 + 5_300)));
    assert!(acks(&effects).len() >= usize::try_from(VOTERS).unwrap());
    // It goes on as it does with few.
    let mut echo: Vec<u64> = (0..VOTERS).map(|i| bed.acked(30, i, None)).collect();
    for second in 1..20 {
        let now = 1_000 * second;
        for (i, echo) in (0..VOTERS).zip(echo.iter_mut()) {
            *echo = bed.acked(now + i, i, Some(*echo));
        }
        let until = bed.authority.until().unwrap();
        let least = BootTime::from_millis(now - 1_000 + 5_300);
        assert!(until >= least, "{until:?} after {second} s");
        assert_eq!(bed.event(now + VOTERS + 300, Event::Tick), []);
    }
}

#[test]
fn one_that_falls_silent_among_many_that_beat_is_noticed_in_time() {
    const VOTERS: u64 = 100;
    let mut bed = Bed::new(VOTERS, false);
    let mut said = Vec::new();
    for ms in (0..8_000).step_by(10) {
        said.extend(bed.beat(ms, 1 + (ms / 10) % (VOTERS - 1), None).into_iter().map(|e| (ms, e)));
    }
    let of = |wanted: fn(&Effect) -> bool| said.iter().find(|(_, e)| wanted(e)).map(|(ms, _)| *ms);
    let quiet = of(|e| matches!(e, Effect::Quiet { node, .. } if *node == name(0))).unwrap();
    let silent = of(|e| matches!(e, Effect::Silent { node, .. } if *node == name(0))).unwrap();
    assert!((3_000..=3_020).contains(&quiet), "{quiet}");
    assert!((6_000..=6_020).contains(&silent), "{silent}");
}
