//! The supervisor of the batch form: holds the `srun` of the agents, passes signals on, starts an agent again where
//! the coordinator asks for one, and ends with the run's code.
//!
//! ```text
//! Launching ─coordinator found─► Watching ─Finish | every srun ended | stop overdue─► Ending ─► exit
//! ```
//! What `srun` returns decides nothing: it is 0 for a step that lost a node, and whatever it likes for one that was
//! stopped. The code is the one that the coordinator says, else the one in the run directory.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::agent::{Heard, Signals};
use super::exit_code;
use super::ids::NodeName;
use super::outbox::{Machine, Outbox};
use super::time::{BootTime, Now, earlier, human};
use super::wire::{FromSupervisor, ToSupervisor};

const TERM: u8 = 15;
const KILL: u8 = 9;
/// HUP, INT, QUIT, TERM: the run shall end.
const STOPS: [u8; 4] = [1, 2, 3, TERM];
/// USR1 and USR2 go to the coordinator.
const PASSED_ON: [u8; 2] = [10, 12];
/// Signals of one number closer together than this are one: Slurm sends them more than once.
const BURST: Duration = Duration::from_secs(3);
/// A coordinator that is not there for so long will not hear of the signal: the agents are told by Slurm.
const UNHEARD: Duration = Duration::from_secs(3);
/// Signals that wait for a coordinator.
const MOST_UNHEARD: usize = 8;
/// Between two starts of an agent on one node that does not stay, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// An agent that lived for so long had begun.
const BEGUN: Duration = Duration::from_secs(60);
/// From the end of the run to the end of its agents.
const LINGER: Duration = Duration::from_secs(8);
/// A step that has lost its `srun`, and with it the only sign of its end, may take so long to show a coordinator.
const ORPHANED: Duration = Duration::from_secs(30);
/// Between two looks into the journal meanwhile.
const LOOK: Duration = Duration::from_secs(1);
/// From a second signal to SIGKILL.
const HURRY: Duration = Duration::from_secs(10);
/// From SIGKILL of a step to SIGKILL of its `srun`, and from there to the end.
const GONE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(2));
/// `srun` ends so when tasks ran; with any other code of a step that nobody answered from it could not start them all.
const OF_TASKS: [i32; 5] = [0, 1, 2, 75, 93];

/// Names one `srun` of ours, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SrunId(pub u32);

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupervisorConfig {
    /// The nodes that get an agent, in order.
    pub nodes: Vec<NodeName>,
    /// From the first signal to SIGKILL of the agents' step: longer than what a stop of the run may take.
    pub stop: Duration,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Everything is prepared.
    Begin,
    /// One of ours has ended.
    SrunEnded {
        /// Which.
        srun: SrunId,
        /// Its exit code.
        rc: i32,
    },
    /// One of ours was killed itself: its step goes on without it.
    SrunKilled {
        /// Which.
        srun: SrunId,
        /// By which signal.
        signal: u8,
    },
    /// There is no `srun` to start.
    NoSrun {
        /// Which was wanted.
        srun: SrunId,
        /// Why, for people.
        why: String,
    },
    /// Slurm knows no step of that `srun` (yet): there was nobody to signal.
    NoStep {
        /// Which.
        srun: SrunId,
    },
    /// A signal came to the supervisor.
    OsSignal {
        /// The number.
        signal: u8,
        /// A terminal sent it.
        terminal: bool,
        /// A process sent it, not the kernel.
        user: bool,
    },
    /// From the coordinator.
    Recv(ToSupervisor),
    /// There is a coordinator, proven.
    LinkUp,
    /// It is gone.
    LinkDown,
    /// From [`Effect::ReadResult`]: the code in the run directory, if the run has ended there.
    Result(Option<u8>),
    /// Time passed.
    Tick,
}

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start agents on these nodes; `SrunEnded` follows, or `NoSrun`.
    Srun {
        /// Names it.
        srun: SrunId,
        /// Where.
        nodes: Vec<NodeName>,
        /// Fail at once where Slurm has no room: it would wait for ever without a word.
        immediate: bool,
    },
    /// Send this signal to the step of that `srun`, by Slurm.
    Scancel {
        /// Which.
        srun: SrunId,
        /// The signal.
        signal: u8,
    },
    /// SIGKILL that `srun` itself: its step, if there is one, goes on.
    KillSrun {
        /// Which.
        srun: SrunId,
    },
    /// Say this to the coordinator.
    Send(FromSupervisor),
    /// Look for a coordinator until one is found: `LinkUp`.
    Connect,
    /// How has the run ended, says the run directory? `Result` follows.
    ReadResult,
    /// What does Slurm mean to do with the job? The coordinator is told, in time or not at all.
    AskJob,
    /// One sentence for people.
    Say(Said),
    /// The end.
    Exit(u8),
}

/// A sentence of the supervisor's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Nothing was started.
    NoSrun {
        /// Why.
        why: String,
    },
    /// The step of all nodes could not be started.
    OneByOne {
        /// What `srun` returned.
        rc: i32,
    },
    /// The agents do not end.
    Killing {
        /// After so long.
        after: Duration,
    },
    /// Everything ended and nobody said how.
    NoResult {
        /// What the last `srun` returned.
        rc: i32,
    },
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSrun { why } => write!(f, "error: the agents cannot be started: {why}"),
            Self::OneByOne { rc } => {
                write!(
                    f,
                    "srun could not start an agent on every node (it returned {rc}); starting each by itself"
                )
            }
            Self::Killing { after } => {
                write!(f, "the agents have not ended after {}: killing their step", human(*after))
            }
            Self::NoResult { rc } => write!(
                f,
                "error: every agent has ended and none of them left a result; what srun said last stands above (it returned {rc})"
            ),
        }
    }
}

/// Where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No coordinator has answered yet.
    Launching,
    /// One has.
    Watching,
    /// The run is over or was given up.
    Ending,
}

/// One `srun` of ours that runs.
#[derive(Clone, Debug)]
struct Running {
    /// The node that it is for; `None`: all.
    node: Option<NodeName>,
    since: BootTime,
}

/// Starts on one node beside the first step.
#[derive(Clone, Debug)]
struct Again {
    running: bool,
    wanted: bool,
    pause: Duration,
    not_before: BootTime,
}

impl Default for Again {
    fn default() -> Self {
        Self { running: false, wanted: false, pause: PAUSE.0, not_before: BootTime(0) }
    }
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Supervisor {
    config: SupervisorConfig,
    phase: Phase,
    sruns: BTreeMap<SrunId, Running>,
    /// Those that were killed under their steps.
    orphaned: Vec<SrunId>,
    /// For how long they count as alive without a coordinator.
    orphaned_until: Option<BootTime>,
    next: u32,
    again: BTreeMap<NodeName, Again>,
    link: bool,
    /// When the journal is looked into meanwhile.
    look_at: Option<BootTime>,
    /// A coordinator was there once.
    found: bool,
    signals: Signals,
    stopped_at: BootTime,
    passed_on: BTreeMap<u8, BootTime>,
    unheard: Vec<FromSupervisor>,
    code: Option<u8>,
    last_rc: i32,
    reading: bool,
    /// The first step, if it ended before there was a sign of its agents, and what its `srun` returned.
    doubted: Option<(SrunId, i32)>,
    one_by_one: bool,
    /// The agents get a TERM by Slurm, a KILL by Slurm; their `srun` gets a KILL; nobody is waited for any more.
    term_at: Option<BootTime>,
    kill_at: Option<BootTime>,
    srun_kill_at: Option<BootTime>,
    leave_at: Option<BootTime>,
    done: bool,
}

impl Supervisor {
    /// A supervisor that has started nothing.
    #[must_use]
    pub fn new(config: SupervisorConfig) -> Self {
        Self {
            config,
            phase: Phase::Launching,
            sruns: BTreeMap::new(),
            orphaned: Vec::new(),
            orphaned_until: None,
            look_at: None,
            next: 0,
            again: BTreeMap::new(),
            link: false,
            found: false,
            signals: Signals::default(),
            stopped_at: BootTime(0),
            passed_on: BTreeMap::new(),
            unheard: Vec::new(),
            code: None,
            last_rc: 0,
            reading: false,
            doubted: None,
            one_by_one: false,
            term_at: None,
            kill_at: None,
            srun_kill_at: None,
            leave_at: None,
            done: false,
        }
    }

    /// Where it stands.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    fn stopping(&self) -> bool {
        self.signals.first().is_some()
    }

    fn srun(&mut self, now: Now, node: Option<NodeName>, out: &mut Outbox<Effect>) {
        let srun = SrunId(self.next);
        self.next += 1;
        let immediate = node.is_some();
        let nodes = node.clone().map_or_else(|| self.config.nodes.clone(), |node| vec![node]);
        self.sruns.insert(srun, Running { node, since: now.boot });
        out.put(Effect::Srun { srun, nodes, immediate });
    }

    /// The coordinator misses the agent of a node.
    fn start_agent(&mut self, node: NodeName) {
        // One that is on its way, or runs and has not joined yet, is not started a second time.
        if self.phase != Phase::Ending && !self.stopping() && self.config.nodes.contains(&node) {
            let again = self.again.entry(node).or_default();
            again.wanted |= !again.running;
        }
    }

    fn start_what_is_due(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let mut due = Vec::new();
        for (node, again) in &mut self.again {
            if again.wanted && now.boot >= again.not_before {
                (again.wanted, again.running) = (false, true);
                due.push(node.clone());
            }
        }
        for node in due {
            self.srun(now, Some(node), out);
        }
    }

    fn srun_ended(&mut self, now: Now, srun: SrunId, rc: i32, out: &mut Outbox<Effect>) {
        let Some(ended) = self.sruns.remove(&srun) else { return };
        self.last_rc = rc;
        let without: Vec<NodeName> = match &ended.node {
            Some(node) => {
                let again = self.again.entry(node.clone()).or_default();
                again.running = false;
                if now.boot.since(ended.since) >= BEGUN {
                    again.pause = PAUSE.0;
                }
                again.not_before = now.boot.after(again.pause);
                again.pause = (again.pause * 2).min(PAUSE.1);
                vec![node.clone()]
            }
            None => {
                let runs = |node: &&NodeName| self.again.get(*node).is_some_and(|again| again.running);
                self.config.nodes.iter().filter(|node| !runs(node)).cloned().collect()
            }
        };
        if self.code.is_some() {
            // The run is over: nobody misses an agent.
        } else if self.link {
            for node in without {
                out.put(Effect::Send(FromSupervisor::AgentEnded { node, rc }));
            }
        } else if ended.node.is_none() && self.phase == Phase::Launching && !OF_TASKS.contains(&rc) {
            self.doubt_start(srun, rc, out);
        }
    }

    /// Its agents are not missed: they live. One on a single node may be started again if it is asked for.
    fn srun_killed(&mut self, now: Now, srun: SrunId, signal: u8) {
        let Some(killed) = self.sruns.remove(&srun) else { return };
        self.last_rc = i32::from(exit_code::SIGNAL_BASE) + i32::from(signal);
        if let Some(again) = killed.node.as_ref().and_then(|node| self.again.get_mut(node)) {
            again.running = false;
        }
        self.orphaned.push(srun);
        self.hope(now);
    }

    /// Agents whose `srun` is dead, and no link to their coordinator: one of them may lead again, or the run is over
    /// already and nobody could tell us.
    fn hope(&mut self, now: Now) {
        let hope = !self.orphaned.is_empty() && !self.link;
        self.orphaned_until = hope.then(|| now.boot.after(ORPHANED));
        self.look_at = hope.then(|| now.boot.after(LOOK));
    }

    /// A first step that ended before a coordinator was found: it could not start, or was over before we looked.
    fn doubt_start(&mut self, srun: SrunId, rc: i32, out: &mut Outbox<Effect>) {
        if self.one_by_one || self.stopping() || self.config.nodes.len() < 2 {
            return;
        }
        self.doubted = Some((srun, rc));
        self.reading = true;
        out.put(Effect::ReadResult);
    }

    /// A node that does not answer lets the start of the whole step fail: the others can do without it.
    fn go_one_by_one(&mut self, srun: SrunId, rc: i32, out: &mut Outbox<Effect>) {
        self.one_by_one = true;
        out.put(Effect::Say(Said::OneByOne { rc }));
        // What it did start must not stay beside the new ones.
        out.put(Effect::Scancel { srun, signal: KILL });
        for node in self.config.nodes.clone() {
            self.start_agent(node);
        }
    }

    fn signal(&mut self, now: Now, signal: u8, terminal: bool, user: bool, out: &mut Outbox<Effect>) {
        if PASSED_ON.contains(&signal) {
            let last = self.passed_on.get(&signal);
            if last.is_none_or(|last| now.boot.since(*last) >= BURST) {
                self.passed_on.insert(signal, now.boot);
                self.tell(FromSupervisor::Signal { signal, terminal, again: false }, out);
            }
            return;
        }
        if !STOPS.contains(&signal) {
            return;
        }
        let again = match self.signals.hear(now.boot, signal, terminal, user) {
            Heard::Same => return,
            Heard::First => {
                self.stopped_at = now.boot;
                self.kill_at = earlier(self.kill_at, Some(now.boot.after(self.config.stop)));
                // Nobody new is started.
                self.again.values_mut().for_each(|again| again.wanted = false);
                false
            }
            Heard::Again => {
                self.kill_at = earlier(self.kill_at, Some(now.boot.after(HURRY)));
                true
            }
        };
        self.tell(FromSupervisor::Signal { signal, terminal, again }, out);
        if !self.link {
            self.term_at = Some(now.boot.after(if again { Duration::ZERO } else { UNHEARD }));
        }
    }

    fn tell(&mut self, message: FromSupervisor, out: &mut Outbox<Effect>) {
        if self.link {
            out.put(Effect::Send(message));
        } else if self.unheard.len() < MOST_UNHEARD {
            self.unheard.push(message);
        }
    }

    fn link_up(&mut self, out: &mut Outbox<Effect>) {
        self.link = true;
        self.found = true;
        self.orphaned_until = None;
        if self.phase == Phase::Launching {
            self.phase = Phase::Watching;
        }
        self.term_at = None;
        out.put(Effect::Send(FromSupervisor::Attach));
        for message in std::mem::take(&mut self.unheard) {
            out.put(Effect::Send(message));
        }
    }

    fn link_down(&mut self, now: Now, out: &mut Outbox<Effect>) {
        if !std::mem::take(&mut self.link) {
            return;
        }
        out.put(Effect::Connect);
        self.hope(now);
        if let Some(signal) = self.signals.first()
            && self.code.is_none()
        {
            // Another coordinator knows nothing of it.
            self.unheard.push(FromSupervisor::Signal { signal, terminal: false, again: false });
            self.term_at = Some(now.boot.after(UNHEARD));
        }
    }

    fn finish(&mut self, now: Now, code: u8, requeue: bool) {
        self.phase = Phase::Ending;
        self.code = Some(if requeue { exit_code::REQUEUE } else { code });
        self.term_at = None;
        self.again.values_mut().for_each(|again| again.wanted = false);
        self.kill_at = earlier(self.kill_at, Some(now.boot.after(LINGER)));
    }

    fn scancel_all(&self, signal: u8, out: &mut Outbox<Effect>) {
        for srun in self.orphaned.iter().chain(self.sruns.keys()) {
            out.put(Effect::Scancel { srun: *srun, signal });
        }
    }

    /// Somebody of ours may live.
    fn is_alive(&self) -> bool {
        self.link || !self.sruns.is_empty() || !self.orphaned.is_empty()
    }

    fn due(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let is_due = |at: &mut Option<BootTime>| at.take_if(|at| now.boot >= *at).is_some();
        is_due(&mut self.orphaned_until);
        if is_due(&mut self.look_at) && self.orphaned_until.is_some() && self.code.is_none() {
            self.look_at = Some(now.boot.after(LOOK));
            if !std::mem::replace(&mut self.reading, true) {
                out.put(Effect::ReadResult);
            }
        }
        if is_due(&mut self.term_at) {
            self.scancel_all(TERM, out);
        }
        if is_due(&mut self.kill_at) && self.is_alive() {
            if self.code.is_none() {
                out.put(Effect::Say(Said::Killing { after: now.boot.since(self.stopped_at) }));
            }
            self.phase = Phase::Ending;
            self.term_at = None;
            self.scancel_all(KILL, out);
            self.srun_kill_at = Some(now.boot.after(GONE.0));
        }
        if is_due(&mut self.srun_kill_at) && self.is_alive() {
            for srun in self.sruns.keys() {
                out.put(Effect::KillSrun { srun: *srun });
            }
            self.leave_at = Some(now.boot.after(GONE.1));
        }
        if is_due(&mut self.leave_at) {
            self.sruns.clear();
            self.orphaned_until = None;
            self.link = false;
        }
    }

    /// Nobody is left that could go on: no `srun`, and no coordinator whose `srun` was killed under it.
    fn end_if_over(&mut self, out: &mut Outbox<Effect>) {
        let wanted = self.again.values().any(|again| again.wanted);
        // Agents whose srun was killed end with their coordinator, or a little later.
        let ending = self.code.is_some() && self.kill_at.is_none();
        let alive = (self.link && !ending) || (self.code.is_none() && self.orphaned_until.is_some());
        if self.done || self.reading || wanted || alive || !self.sruns.is_empty() {
            return;
        }
        self.phase = Phase::Ending;
        match self.code {
            Some(code) => self.exit(code, out),
            None => {
                self.reading = true;
                out.put(Effect::ReadResult);
            }
        }
    }

    fn result(&mut self, result: Option<u8>, out: &mut Outbox<Effect>) {
        if !std::mem::take(&mut self.reading) {
            return;
        }
        let doubted = self.doubted.take();
        if let Some(code) = self.code.or(result) {
            return self.exit(code, out);
        }
        match doubted {
            // A coordinator was found meanwhile: it says what it misses.
            Some(_) if self.found && !self.stopping() => return,
            Some((srun, rc)) if !self.stopping() => return self.go_one_by_one(srun, rc, out),
            _ => {}
        }
        if self.orphaned_until.is_some() {
            // Its agents may live, and have not ended it.
            return;
        }
        // A step whose srun was killed may go on without anybody: it ends with us.
        for srun in (0..self.next).map(SrunId) {
            out.put(Effect::Scancel { srun, signal: KILL });
        }
        match self.signals.first() {
            Some(signal) => self.exit(exit_code::SIGNAL_BASE.saturating_add(signal), out),
            // They could not begin, and have said why.
            None if !self.found && self.last_rc == i32::from(exit_code::USAGE) => {
                self.exit(exit_code::USAGE, out);
            }
            None => {
                out.put(Effect::Say(Said::NoResult { rc: self.last_rc }));
                self.exit(exit_code::FAILED, out);
            }
        }
    }

    fn exit(&mut self, code: u8, out: &mut Outbox<Effect>) {
        self.done = true;
        out.put(Effect::Exit(code));
    }
}

impl Machine for Supervisor {
    type Event = Event;
    type Effect = Effect;

    fn handle(&mut self, now: Now, event: Event, out: &mut Outbox<Effect>) {
        if self.done {
            return;
        }
        match event {
            Event::Begin if self.next == 0 => {
                self.srun(now, None, out);
                out.put(Effect::Connect);
            }
            Event::Begin | Event::Tick => {}
            Event::SrunEnded { srun, rc } => self.srun_ended(now, srun, rc, out),
            Event::SrunKilled { srun, signal } => self.srun_killed(now, srun, signal),
            Event::NoSrun { srun, why } => {
                if self.phase == Phase::Launching && self.sruns.len() == 1 && !self.one_by_one {
                    self.sruns.clear();
                    out.put(Effect::Say(Said::NoSrun { why }));
                    self.exit(exit_code::USAGE, out);
                } else {
                    self.srun_ended(now, srun, -1, out);
                }
            }
            Event::NoStep { srun } => {
                // Slurm has not given it any node yet: there is only itself to be ended.
                if self.stopping() && self.sruns.contains_key(&srun) {
                    out.put(Effect::KillSrun { srun });
                }
            }
            Event::OsSignal { signal, terminal, user } => self.signal(now, signal, terminal, user, out),
            Event::Recv(ToSupervisor::StartAgent { node }) => self.start_agent(node),
            Event::Recv(ToSupervisor::Finish { code, requeue }) => self.finish(now, code, requeue),
            Event::Recv(ToSupervisor::AskJob) => out.put(Effect::AskJob),
            Event::LinkUp => self.link_up(out),
            Event::LinkDown => self.link_down(now, out),
            Event::Result(result) => self.result(result, out),
        }
        if self.done {
            return;
        }
        self.due(now, out);
        self.start_what_is_due(now, out);
        self.end_if_over(out);
    }

    fn deadline(&self) -> Option<BootTime> {
        let starts = self.again.values().filter(|again| again.wanted).map(|again| again.not_before).min();
        let looks = [self.orphaned_until, self.look_at];
        let stops = [self.term_at, self.kill_at, self.srun_kill_at, self.leave_at].into_iter().chain(looks);
        if self.done { None } else { stops.fold(starts, earlier) }
    }
}

#[cfg(test)]
#[path = "supervisor_tests.rs"]
mod tests;
