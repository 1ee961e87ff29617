use proptest::prelude::*;

use super::*;

const S: u64 = 1_000_000_000;

fn info(no: u8) -> SignalInfo {
    SignalInfo { no, code: 0, pid: 77, uid: 1000 }
}

fn killed() -> ExitKind {
    ExitKind::Signal { no: 9, core: false }
}

/// A guardian at an instant, and what it wanted last.
struct Stage {
    guardian: Guardian,
    now: u64,
}

impl Stage {
    fn new() -> Self {
        Self { guardian: Guardian::new(7, Numbers::default()), now: 1000 * S }
    }

    /// One that runs its first agent.
    fn running() -> Self {
        let mut stage = Self::new();
        assert!(matches!(stage.on(Event::Tick)[..], [Effect::ForkAgent(_)]));
        assert_eq!(stage.on(Event::AgentStarted { pid: 1 }), []);
        stage
    }

    fn on(&mut self, event: Event) -> Vec<Effect> {
        let mut out = Outbox::default();
        self.guardian.handle(Now { boot: BootTime(self.now), wall_ms: 0 }, event, &mut out);
        out.take_effects()
    }

    /// The agent dies and nothing is left below; what follows.
    fn die(&mut self) -> Vec<Effect> {
        let effects = self.on(Event::AgentExited { kind: killed() });
        assert_eq!(effects[effects.len() - 2..], [Effect::KillTree, Effect::Reap]);
        self.on(Event::Swept { survivors: vec![] })
    }
}

/// The page with this grant, of an agent that stands still.
fn grant(until: BootTime) -> Event {
    Event::GrantIs { until, tick: 5 }
}

fn started(effects: &[Effect]) -> &Start {
    match effects {
        [Effect::ForkAgent(start)] => start,
        other => unreachable!("no fork but {other:?}"),
    }
}

#[test]
fn first_tick_forks_and_names_no_dead_incarnation() {
    let mut stage = Stage::new();
    assert!(stage.guardian.deadline().is_some());
    let effects = stage.on(Event::Tick);
    let start = started(&effects);
    assert_eq!((&start.clean_of[..], start.restarts, &start.survivors[..]), (&[][..], 0, &[][..]));
    assert_eq!(stage.on(Event::Tick), [], "one fork at a time");
}

#[test]
fn a_dead_agent_is_swept_and_started_again_as_clean() {
    let mut stage = Stage::running();
    let first = stage.guardian.incarnation().unwrap();
    let effects = stage.on(Event::AgentExited { kind: killed() });
    assert!(matches!(effects[0], Effect::Say(Said::AgentDied { restart: 1, of: 3, .. })));
    assert_eq!(effects[1..], [Effect::KillTree, Effect::Reap]);
    assert_eq!(stage.on(Event::Swept { survivors: vec![5] }), [], "something is left: not yet");
    assert_eq!(stage.on(Event::Tick), [Effect::KillTree, Effect::Reap]);
    let effects = stage.on(Event::Swept { survivors: vec![] });
    let start = started(&effects);
    assert_eq!((&start.clean_of[..], start.restarts), (&[first][..], 1));
    assert_ne!(start.incarnation, first);
}

#[test]
fn the_clean_word_names_all_that_others_may_know() {
    let mut stage = Stage::running();
    let known = stage.guardian.incarnation().unwrap();
    stage.die();
    // The second one never comes up: nobody knows it, and the first one's death is still news.
    let kind = ExitKind::NeverStarted { errno: 11, what: "fork".into() };
    let second = stage.guardian.incarnation().unwrap();
    stage.on(Event::AgentExited { kind });
    stage.on(Event::Swept { survivors: vec![] });
    stage.now += 2 * S;
    let effects = stage.on(Event::Tick);
    assert_eq!(started(&effects).clean_of, [known, second]);
}

#[test]
fn the_fourth_death_within_the_window_ends_with_1() {
    let mut stage = Stage::running();
    for restart in 1..=3 {
        assert_eq!(started(&stage.die()).restarts, restart);
        stage.on(Event::AgentStarted { pid: 1 });
        stage.now += S;
    }
    assert_eq!(stage.die(), [Effect::Exit(1)]);
    assert_eq!(stage.guardian.deadline(), None);
    assert_eq!(stage.on(Event::Signal(info(15))), [], "over is over");
}

#[test]
fn restarts_count_within_the_window_only() {
    let mut stage = Stage::running();
    for _ in 0..40 {
        stage.now += 201 * S; // never more than three within 600 s
        assert_eq!(stage.die().len(), 1);
        assert!(stage.guardian.has_agent());
        stage.on(Event::AgentStarted { pid: 1 });
    }
}

#[test]
fn gone_ends_with_the_code_that_was_said_however_the_agent_ends() {
    let mut stage = Stage::running();
    assert_eq!(stage.on(Event::AgentSays(ToGuardian::Gone { code: 7 })), []);
    assert_eq!(stage.on(Event::AgentExited { kind: killed() }), [Effect::KillTree, Effect::Reap]);
    assert_eq!(stage.on(Event::Swept { survivors: vec![] }), [Effect::Exit(7)]);
}

#[test]
fn an_agent_that_took_leave_and_stays_is_killed() {
    let mut stage = Stage::running();
    stage.on(grant(BootTime::NEVER));
    stage.on(Event::AgentSays(ToGuardian::Gone { code: 0 }));
    let until = stage.guardian.deadline().unwrap();
    stage.now = until.0;
    let effects = stage.on(Event::Tick);
    assert_eq!(effects, [Effect::Say(Said::NeverLeft), Effect::KillTree, Effect::Reap]);
    assert_eq!(stage.on(Event::AgentExited { kind: killed() }), []);
    assert_eq!(stage.on(Event::Swept { survivors: vec![] }), [Effect::Exit(0)]);
}

#[test]
fn the_grant_word_is_read_when_it_runs_out_and_again() {
    let mut stage = Stage::running();
    assert_eq!(stage.on(Event::Tick), [Effect::ReadGrant]);
    stage.on(grant(NO_GRANT));
    assert_eq!(stage.guardian.deadline(), Some(BootTime(stage.now + S / 10)));
    stage.now += S;
    let until = BootTime(stage.now + 5 * S);
    assert_eq!(stage.on(grant(until)), []);
    assert_eq!(stage.guardian.deadline(), Some(until));
    stage.now = until.0;
    assert_eq!(stage.on(Event::Tick), [Effect::ReadGrant]);
    // Renewed meanwhile: nothing to do.
    let later = BootTime(stage.now + 3 * S);
    assert_eq!(stage.on(grant(later)), []);
    stage.now = later.0;
    let effects = stage.on(grant(later));
    let told = Effect::Tell(ToAgent::RanksKilled { grant: later });
    assert_eq!(effects, [Effect::KillRanks, told, Effect::Say(Said::GrantOver)]);
    // Still over: killed again, said once.
    stage.now = stage.guardian.deadline().unwrap().0;
    assert_eq!(stage.on(grant(later)), [Effect::KillRanks]);
    assert_eq!(stage.on(grant(BootTime::NEVER)), []);
    assert_eq!(stage.guardian.deadline(), None, "for ever: nothing to wait for");
}

#[test]
fn a_stop_signal_without_an_agent_ends_after_the_sweep() {
    let mut stage = Stage::running();
    stage.on(Event::AgentExited { kind: killed() });
    stage.on(Event::Swept { survivors: vec![4] });
    assert_eq!(stage.on(Event::Signal(info(15))), [Effect::Say(Said::EndedBySignal { no: 15 })]);
    assert_eq!(stage.on(Event::Swept { survivors: vec![] }), [Effect::Exit(143)]);
}

#[test]
fn an_agent_that_dies_of_a_stop_is_not_started_again() {
    let mut stage = Stage::running();
    assert_eq!(stage.on(Event::Signal(info(2))), [Effect::Tell(ToAgent::Signal(info(2)))]);
    stage.now += S;
    let effects = stage.on(Event::AgentExited { kind: killed() });
    assert_eq!(effects[0], Effect::Say(Said::DiedStopping { kind: killed(), no: 2 }));
    assert_eq!(stage.on(Event::Swept { survivors: vec![] }), [Effect::Exit(130)]);
}

#[test]
fn an_agent_that_does_not_end_for_a_stop_is_killed() {
    // Signals as (ms after the first, number, code, pid, uid), and when the agent must have ended.
    type Row = (&'static [(u64, u8, i32, u32, u32)], u64);
    let table: &[Row] = &[
        (&[(0, 15, 0, 77, 1000)], 40_000),
        (&[(0, 1, 0, 77, 0)], 40_000),
        // A burst is one, and Slurm's own second one makes nobody hurry.
        (&[(0, 15, 0, 77, 1000), (2_000, 15, 0, 77, 1000)], 40_000),
        (&[(0, 15, 0, 77, 0), (20_000, 15, 0, 77, 0)], 40_000),
        // The user's does, and the second press of Ctrl-C at once.
        (&[(0, 15, 0, 77, 1000), (4_000, 15, 0, 77, 1000)], 14_000),
        (&[(0, 2, SI_KERNEL, 0, 0), (10, 2, SI_KERNEL, 0, 0)], 10_010),
        (&[(0, 2, 0, 77, 1000), (35_000, 2, SI_KERNEL, 0, 0)], 40_000),
    ];
    for (signals, due) in table {
        let mut stage = Stage::running();
        stage.guardian = stage.guardian.of_user(1000);
        stage.on(grant(BootTime::NEVER));
        let begin = stage.now;
        for (ms, no, code, pid, uid) in *signals {
            stage.now = begin + ms * (S / 1000);
            let info = SignalInfo { no: *no, code: *code, pid: *pid, uid: *uid };
            assert_eq!(stage.on(Event::Signal(info)), [Effect::Tell(ToAgent::Signal(info))]);
        }
        let until = begin + due * (S / 1000);
        assert_eq!(stage.guardian.deadline(), Some(BootTime(until)), "{signals:?}");
        stage.now = until - 1;
        assert_eq!(stage.on(Event::Tick), []);
        stage.now = until;
        let no = signals[0].1;
        let said = Effect::Say(Said::StopOverdue { no, after: Duration::from_millis(*due) });
        assert_eq!(stage.on(Event::Tick), [said, Effect::KillTree, Effect::Reap]);
        assert_eq!(stage.on(Event::AgentExited { kind: killed() }), []);
        assert_eq!(stage.on(Event::Swept { survivors: vec![] }), [Effect::Exit(128 + no)]);
    }
}

#[test]
fn an_agent_that_takes_leave_in_time_is_not_overdue() {
    let mut stage = Stage::running();
    stage.on(grant(BootTime::NEVER));
    stage.on(Event::Signal(info(15)));
    stage.now += 39 * S;
    stage.on(Event::AgentSays(ToGuardian::Gone { code: 143 }));
    stage.now += 2 * S;
    assert_eq!(stage.on(Event::Tick), []);
    stage.on(Event::AgentExited { kind: ExitKind::Code(0) });
    assert_eq!(stage.on(Event::Swept { survivors: vec![] }), [Effect::Exit(143)]);
}

/// Readings of the page every 0.1 s under a grant that is over: the first one that says more than to kill ranks.
fn read_until_said(
    stage: &mut Stage,
    until: BootTime,
    seconds: u64,
    tick: impl Fn(u64) -> u64,
) -> Option<Vec<Effect>> {
    for n in 0..seconds * 10 {
        stage.now += S / 10;
        let effects = stage.on(Event::GrantIs { until, tick: tick(n) });
        if effects != [Effect::KillRanks] {
            return Some(effects);
        }
    }
    None
}

#[test]
fn an_agent_that_stands_still_under_a_grant_that_is_over_is_started_again() {
    let mut stage = Stage::running();
    let first = stage.guardian.incarnation().unwrap();
    let over = BootTime(stage.now);
    stage.on(grant(over));
    assert_eq!(read_until_said(&mut stage, over, 9, |_| 5), None, "it may come back by itself");
    let effects = read_until_said(&mut stage, over, 2, |_| 5).unwrap();
    let died = Said::AgentDied { kind: killed(), restart: 1, of: 3 };
    let silent = Said::Silent { after: Duration::from_secs(10) };
    let expected =
        [Effect::KillRanks, Effect::Say(silent), Effect::Say(died), Effect::KillTree, Effect::Reap];
    assert_eq!(effects, expected);
    assert_eq!(stage.on(Event::AgentExited { kind: killed() }), []);
    let effects = stage.on(Event::Swept { survivors: vec![] });
    assert_eq!(started(&effects).clean_of, [first]);
}

#[test]
fn an_agent_that_moves_or_slept_with_its_guardian_is_left_alone() {
    let mut stage = Stage::running();
    let over = BootTime(stage.now);
    // It moves, if only now and then, and cannot reach anybody.
    stage.on(grant(over));
    assert_eq!(read_until_said(&mut stage, over, 60, |n| n / 80), None);
    // Everybody sleeps for a minute.
    stage.now += 60 * S;
    assert_eq!(read_until_said(&mut stage, over, 9, |_| 9), None);
    // It has its next grant, and loses that one, too: counted anew.
    stage.on(grant(BootTime(stage.now + S)));
    stage.now += 2 * S;
    let over = BootTime(stage.now);
    assert!(stage.on(Event::GrantIs { until: over, tick: 9 }).contains(&Effect::Say(Said::GrantOver)));
    assert_eq!(read_until_said(&mut stage, over, 9, |_| 9), None);
    // One that takes leave has its own deadline.
    stage.on(Event::AgentSays(ToGuardian::Gone { code: 0 }));
    assert_eq!(read_until_said(&mut stage, over, 3, |_| 9), None);
}

#[test]
fn an_agent_that_stands_still_after_a_stop_is_not_started_again() {
    let mut stage = Stage::running();
    let over = BootTime(stage.now);
    stage.on(grant(over));
    stage.on(Event::Signal(info(15)));
    let effects = read_until_said(&mut stage, over, 11, |_| 5).unwrap();
    assert_eq!(effects[2], Effect::Say(Said::DiedStopping { kind: killed(), no: 15 }));
    assert_eq!(stage.on(Event::Swept { survivors: vec![] }), [Effect::Exit(143)]);
}

#[test]
fn numbers_follow_the_run() {
    let mut spec = RunSpec { max_nodes: 1, ..RunSpec::default() };
    let stop = |spec: &RunSpec| Numbers::of(spec).stop.as_secs();
    assert_eq!(stop(&spec), 30 + 10);
    spec.shutdown_timeout_ms = Some(2_000);
    assert_eq!(stop(&spec), 2 + 10);
    spec.numbers.grant = GrantMode::Lease;
    assert_eq!(stop(&spec), 2 + 10 + 20 + 5);
    (spec.numbers.grant, spec.spares) = (GrantMode::Auto, 1);
    assert_eq!(stop(&spec), 2 + 10 + 20 + 5);
}

#[test]
fn other_signals_wait_for_the_next_agent() {
    let mut stage = Stage::running();
    stage.on(Event::AgentExited { kind: killed() });
    assert_eq!(stage.on(Event::Signal(info(12))), []);
    stage.on(Event::Swept { survivors: vec![] });
    assert_eq!(stage.on(Event::Signal(info(15))), [], "forking: kept");
    let effects = stage.on(Event::AgentStarted { pid: 3 });
    assert_eq!(effects, [12, 15].map(|no| Effect::Tell(ToAgent::Signal(info(no)))));
}

#[test]
fn survivors_make_the_next_agent_dirty_until_nothing_is_left() {
    let mut stage = Stage::running();
    let first = stage.guardian.incarnation().unwrap();
    stage.die();
    stage.on(Event::AgentStarted { pid: 1 });
    let second = stage.guardian.incarnation().unwrap();
    stage.on(Event::AgentExited { kind: killed() });
    stage.now += 4 * S;
    assert_eq!(stage.on(Event::Swept { survivors: vec![9] }), []);
    stage.now += S;
    let effects = stage.on(Event::Swept { survivors: vec![9] });
    assert_eq!(effects[0], Effect::Say(Said::Survivors { pids: vec![9] }));
    let start = started(&effects[1..]);
    assert_eq!(
        (&start.clean_of[..], &start.survivors[..]),
        (&[first][..], &[9][..]),
        "the second one is not clean"
    );
    let third = start.incarnation;
    stage.on(Event::AgentStarted { pid: 1 });
    let effects = stage.die();
    let start = started(&effects);
    assert_eq!((&start.clean_of[..], &start.survivors[..]), (&[first, second, third][..], &[][..]));
}

#[test]
fn the_list_of_the_dead_is_bounded() {
    let mut stage = Stage::running();
    for _ in 0..50 {
        stage.now += 300 * S;
        let effects = stage.die();
        assert!(started(&effects).clean_of.len() <= CLEAN);
        stage.on(Event::AgentStarted { pid: 1 });
    }
}

#[test]
fn pending_signals_are_bounded_and_a_stop_is_kept() {
    let mut stage = Stage::new();
    stage.on(Event::Tick);
    stage.on(Event::Signal(info(15)));
    for _ in 0..1000 {
        stage.on(Event::Signal(info(10)));
    }
    let effects = stage.on(Event::AgentStarted { pid: 3 });
    assert_eq!(effects.len(), PENDING);
    assert!(effects.contains(&Effect::Tell(ToAgent::Signal(info(15)))));
}

#[test]
fn sentences_read_well() {
    let said = Said::AgentDied { kind: killed(), restart: 1, of: 3 };
    assert_eq!(said.to_string(), "the agent on this node ended (SIGKILL); starting it again (1 of 3)");
    let said = Said::Survivors { pids: vec![3, 4] };
    assert_eq!(said.to_string(), "2 process(es) on this node survive SIGKILL (pid 3, 4); the node is dirty");
    let said = Said::DiedStopping { kind: killed(), no: 15 };
    assert_eq!(
        said.to_string(),
        "the agent on this node ended (SIGKILL) while it was stopping (SIGTERM); ending"
    );
    let said = Said::StopOverdue { no: 15, after: Duration::from_secs(40) };
    let text = "SIGTERM arrived 40 s ago and the agent on this node has not ended; killing it and its ranks";
    assert_eq!(said.to_string(), text);
    let said = Said::Silent { after: Duration::from_secs(10) };
    let text = "the agent on this node stands still 10 s after its grant ran out; killing it";
    assert_eq!(said.to_string(), text);
}

/// What happens around the guardian in a random life.
#[derive(Clone, Debug)]
enum Do {
    Wait(u64),
    Dies,
    Says(ToGuardian),
    Signal(u8),
    /// The agent writes this grant: none, for ever, or so many ms from now.
    Grant(Option<Option<u32>>),
    /// The agent has so many ranks more.
    Spawn(u8),
    /// The next fork fails.
    Refuse,
    /// SIGKILL does not work on ranks from now on, or works again.
    Stuck(bool),
    /// The agent stands still from now on, or moves again.
    Freeze(bool),
    /// An event out of place.
    Stray(u8),
}

fn something() -> impl Strategy<Value = Do> {
    prop_oneof![
        8 => (0_u64..8_000).prop_map(Do::Wait),
        1 => (0_u64..700_000).prop_map(Do::Wait),
        2 => Just(Do::Dies),
        1 => (0_u8..20).prop_map(|code| Do::Says(ToGuardian::Gone { code })),
        2 => prop::sample::select(vec![1_u8, 2, 3, 15, 10, 12, 18]).prop_map(Do::Signal),
        4 => prop::option::of(prop::option::of(0_u32..7_000)).prop_map(Do::Grant),
        4 => (1_u8..9).prop_map(Do::Spawn),
        1 => Just(Do::Refuse),
        1 => any::<bool>().prop_map(Do::Stuck),
        2 => any::<bool>().prop_map(Do::Freeze),
        1 => (0_u8..5).prop_map(Do::Stray),
    ]
}

/// A driver and a node without a kernel: carries out effects at once and checks the rules.
struct Life {
    guardian: Guardian,
    now: u64,
    agent: bool,
    ranks: u32,
    stuck: bool,
    refuse: bool,
    grant: BootTime,
    forks: Vec<u64>,
    last: Option<Incarnation>,
    sweep_began: Option<u64>,
    exit: Option<u8>,
    fenced_at: Option<u64>,
    tick: u64,
    /// Since when the agent stands still.
    frozen: Option<u64>,
    /// When it was last seen to move.
    moved: u64,
    /// When the first stop signal was sent.
    stopped: Option<u64>,
    leaves: bool,
}

impl Life {
    fn event(&mut self, event: Event) {
        let mut queue = VecDeque::from([event]);
        while let Some(event) = queue.pop_front() {
            if self.exit.is_some() {
                return;
            }
            if matches!(event, Event::AgentExited { .. }) {
                self.sweep_began = Some(self.now);
            }
            let mut out = Outbox::default();
            self.guardian.handle(Now { boot: BootTime(self.now), wall_ms: 0 }, event, &mut out);
            for effect in out.take_effects() {
                assert_eq!(self.exit, None, "an effect after exit: {effect:?}");
                queue.extend(self.perform(effect));
            }
        }
    }

    fn perform(&mut self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::ForkAgent(start) => {
                assert!(!self.agent, "two agents");
                let waited = self.sweep_began.is_some_and(|at| self.now >= at + 5 * S);
                assert!(self.ranks == 0 || waited, "forks while {} descendants remain", self.ranks);
                let unclean = self.ranks > 0 && self.last.is_some_and(|last| start.clean_of.contains(&last));
                assert!(!unclean, "says clean with ranks left");
                self.last = Some(start.incarnation);
                assert_eq!(start.survivors.is_empty(), self.ranks == 0);
                self.forks.push(self.now);
                let now = self.now;
                let recent = self.forks[1..].iter().filter(|at| now - **at <= 590 * S).count();
                assert!(recent <= 3, "{recent} restarts within the window");
                (self.grant, self.tick, self.frozen, self.moved) = (NO_GRANT, 0, None, now);
                if std::mem::take(&mut self.refuse) {
                    return Some(Event::AgentExited {
                        kind: ExitKind::NeverStarted { errno: 11, what: "fork".into() },
                    });
                }
                self.agent = true;
                return Some(Event::AgentStarted { pid: 2 });
            }
            Effect::KillTree => {
                if std::mem::take(&mut self.agent) {
                    self.sweep_began = Some(self.now);
                    // An agent that goes on for no time at all does not move.
                    let still = self.frozen.is_some() && self.now >= self.moved + 10 * S - S / 5;
                    let overdue = self.stopped.is_some_and(|at| self.now >= at + 10 * S);
                    assert!(still || overdue || self.leaves, "kills an agent that moves");
                }
                self.kill();
            }
            Effect::KillRanks => {
                assert!(self.grant.0 <= self.now && self.grant != NO_GRANT, "kills under a grant");
                self.kill();
            }
            Effect::Reap => {
                let survivors: Vec<u32> = (0..self.ranks).collect();
                return Some(Event::Swept { survivors });
            }
            Effect::ReadGrant => {
                if self.frozen.is_none() {
                    (self.tick, self.moved) = (self.tick + 1, self.now);
                }
                return Some(Event::GrantIs { until: self.grant, tick: self.tick });
            }
            Effect::Tell(_) => assert!(self.agent, "tells nobody"),
            Effect::Say(said) => assert!(!said.to_string().is_empty()),
            Effect::Exit(code) => {
                assert!(!self.agent, "leaves an agent behind");
                self.exit = Some(code);
            }
        }
        None
    }

    fn kill(&mut self) {
        if !self.stuck {
            self.ranks = 0;
        }
    }

    /// Time passes; ticks come when they are wanted.
    fn wait(&mut self, ms: u64) {
        let end = self.now + ms * 1_000_000;
        let mut ticks = 0;
        while let Some(at) = self.guardian.deadline().filter(|at| at.0 <= end) {
            if self.exit.is_some() {
                return;
            }
            self.now = self.now.max(at.0);
            self.event(Event::Tick);
            ticks += 1;
            assert!(ticks < 100_000, "spins: {:?}", self.guardian);
            self.check();
        }
        self.now = end;
        self.check();
    }

    fn check(&mut self) {
        let over = self.agent && self.grant != NO_GRANT && self.grant.0 < self.now;
        if over && self.ranks > 0 && !self.stuck {
            let since = *self.fenced_at.get_or_insert(self.now);
            assert!(self.now - since.min(self.now) <= S / 5, "ranks outlive the grant by more than 0.2 s");
        } else {
            self.fenced_at = None;
        }
        if self.exit.is_none() && !self.agent {
            assert!(self.guardian.deadline().is_some(), "no agent and nothing planned: {:?}", self.guardian);
        }
        let at = self.stopped.filter(|_| self.exit.is_none()).unwrap_or(self.now);
        assert!(self.now - at <= 51 * S, "does not end for a stop: {:?}", self.guardian);
    }

    fn act(&mut self, act: Do) {
        match act {
            Do::Wait(ms) => return self.wait(ms),
            Do::Dies if self.agent => {
                self.agent = false;
                self.event(Event::AgentExited { kind: killed() });
            }
            Do::Says(word) if self.agent => {
                self.leaves = true;
                self.event(Event::AgentSays(word));
            }
            Do::Signal(no) => {
                if info(no).is_stop() {
                    self.stopped.get_or_insert(self.now);
                }
                self.event(Event::Signal(info(no)));
            }
            Do::Freeze(true) if self.agent => drop(self.frozen.get_or_insert(self.now)),
            Do::Freeze(false) => self.frozen = None,
            Do::Grant(grant) if self.agent => {
                // By contract the word only grows within an incarnation, and for ever is for ever.
                let wanted = match grant {
                    None => NO_GRANT,
                    Some(None) => BootTime::NEVER,
                    Some(Some(ms)) => BootTime(self.now + u64::from(ms) * 1_000_000),
                };
                self.grant = self.grant.max(wanted);
            }
            Do::Spawn(n) if self.agent && self.grant.0 > self.now => self.ranks += u32::from(n),
            Do::Refuse => self.refuse = true,
            Do::Stuck(stuck) => self.stuck = stuck,
            Do::Stray(0) => self.event(Event::Tick),
            Do::Stray(1) => self.event(Event::GrantIs { until: self.grant, tick: self.tick }),
            Do::Stray(2) => self.event(Event::AgentStarted { pid: 9 }),
            _ => {}
        }
        self.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Never forks while descendants remain, never two agents, restarts bounded, `clean_of` only after an
    /// empty sweep, ranks only under a grant, nothing after `Exit`, always a plan, no spinning, a stop always ends it,
    /// no agent is killed that moves and was not told to end.
    #[test]
    fn rules_hold_in_any_life(acts in prop::collection::vec(something(), 1..120), seed: u64) {
        let mut life = Life {
            guardian: Guardian::new(seed, Numbers::default()),
            now: 50 * S,
            agent: false,
            ranks: 0,
            stuck: false,
            refuse: false,
            grant: NO_GRANT,
            forks: vec![],
            last: None,
            sweep_began: None,
            exit: None,
            fenced_at: None,
            tick: 0,
            frozen: None,
            moved: 0,
            stopped: None,
            leaves: false,
        };
        life.event(Event::Tick);
        for act in acts {
            life.act(act);
            if life.exit.is_some() {
                break;
            }
        }
    }
}
