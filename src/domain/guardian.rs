//! The guardian: outlives the agent, starts it again, and holds the node to its grant.
//!
//! ```text
//! Restarting ─► Forking ─► Running ──agent died──► Sweeping ─► Restarting    at most 3 restarts in 10 min, then Sweeping ─► exit 1
//!                             └─ agent said Gone(code) ─► Leaving ─► Sweeping ─► exit code
//! ```
//! While an agent may have ranks the grant word is read when it is due to run out; a grant that is over means
//! [`Effect::KillRanks`], now and again until it is renewed (a rank may have been between fork and setsid).
//! The guardian never decides what a signal means: it hands every one on with its sender. A stop signal ends it only
//! when no agent is there to answer, or when the agent has not ended long after it should have.
//!
//! An agent that stands still (stopped, or stuck) while its grant is over is killed after a while and started again:
//! till then it may come back by itself.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::agent::signals::{Heard, Signals};
use super::exit::{ExitKind, signal_name};
use super::ids::Incarnation;
use super::outbox::{Machine, Outbox};
use super::spec::{GrantMode, RunSpec};
use super::time::{BootTime, Now, earlier, human};

/// SIGHUP, SIGINT, SIGQUIT, SIGTERM: asks for the end.
pub const STOP_SIGNALS: [u8; 4] = [1, 2, 3, 15];

/// The grant word before the first grant of an incarnation.
pub const NO_GRANT: BootTime = BootTime(0);

/// Dead incarnations that an agent is told of.
pub const CLEAN: usize = 16;

/// Survivors that an agent is told of by pid: enough to say that the node is dirty.
const SURVIVORS: usize = 1024;

/// Signals kept for an agent that is not there yet; more are dropped, oldest first.
const PENDING: usize = 16;

const SIGKILL: u8 = 9;

/// `si_code` of what comes from the terminal.
const SI_KERNEL: i32 = 128;

/// Two readings of the page so far apart mean that the guardian itself did not run, and perhaps nobody did: how long
/// the agent stood still is counted anew.
const SLEPT: Duration = Duration::from_secs(1);

/// One signal as the kernel described it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalInfo {
    /// Its number.
    pub no: u8,
    /// `si_code`: 0 (`SI_USER`) from `kill`, 128 (`SI_KERNEL`) from the terminal.
    pub code: i32,
    /// The sender's pid; 0 when the kernel sent it or nothing is known.
    pub pid: u32,
    /// The sender's real user id.
    pub uid: u32,
}

impl SignalInfo {
    /// Whether it asks for the end of the run.
    #[must_use]
    pub fn is_stop(&self) -> bool {
        STOP_SIGNALS.contains(&self.no)
    }
}

/// What an agent is told first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// This life of the agent.
    pub incarnation: Incarnation,
    /// "These incarnations are dead and no rank of them is left", oldest first, the newest [`CLEAN`] of them. One
    /// whose sweep left something is missing until a later sweep leaves nothing: till then its grant has to run
    /// out by itself.
    pub clean_of: Vec<Incarnation>,
    /// Pids that survived SIGKILL: the node is dirty.
    pub survivors: Vec<u32>,
    /// How often the agent was started again within the window, this time included.
    pub restarts: u32,
}

/// Guardian to agent, one message a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToAgent {
    /// The first message, exactly once.
    Start(Start),
    /// A signal that the guardian received.
    Signal(SignalInfo),
    /// The grant that ended at this instant was not renewed in time: the ranks are killed. Their ends are
    /// ours, never evidence.
    RanksKilled {
        /// The grant word that was read.
        grant: BootTime,
    },
}

/// Agent to guardian, one message a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToGuardian {
    /// The run is over for this node and the agent is about to exit: end with this code.
    Gone {
        /// The exit code of the whole command.
        code: u8,
    },
}

/// What can happen to the guardian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Outcome of [`Effect::ForkAgent`]: it runs.
    AgentStarted {
        /// Its pid.
        pid: u32,
    },
    /// The agent ended; or [`Effect::ForkAgent`] failed, as [`ExitKind::NeverStarted`].
    AgentExited {
        /// How.
        kind: ExitKind,
    },
    /// A signal arrived.
    Signal(SignalInfo),
    /// The agent said something.
    AgentSays(ToGuardian),
    /// Outcome of [`Effect::ReadGrant`].
    GrantIs {
        /// The grant word: 0 none yet, [`BootTime::NEVER`] for ever (then it is for ever).
        until: BootTime,
        /// The count that goes up as long as the agent moves.
        tick: u64,
    },
    /// Outcome of [`Effect::Reap`]: what is left below the guardian right now.
    Swept {
        /// Pids, zombies that could not be reaped included.
        survivors: Vec<u32>,
    },
    /// Time passed, or a child ended.
    Tick,
}

/// What the guardian wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Reset the page (this incarnation, no grant), fork and exec an agent, send it this message; answered by
    /// `AgentStarted` or `AgentExited{NeverStarted}`.
    ForkAgent(Start),
    /// SIGKILL everything below the guardian, the agent included. One pass.
    KillTree,
    /// Reap what has ended below the guardian; answered by `Swept`. Does not wait.
    Reap,
    /// SIGKILL every descendant outside the agent's session: ranks and all theirs, not agent nor workers.
    KillRanks,
    /// Read the page; answered by `GrantIs`.
    ReadGrant,
    /// Send this to the agent.
    Tell(ToAgent),
    /// One sentence for people.
    Say(Said),
    /// End with this code. Always the last effect.
    Exit(u8),
}

/// What the guardian has to say for itself; [`fmt::Display`] gives the sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The agent ended without taking leave and is started again.
    AgentDied {
        /// How.
        kind: ExitKind,
        /// This restart's number within the window.
        restart: u32,
        /// The limit.
        of: u32,
    },
    /// It ended once too often.
    TooManyDeaths {
        /// How it ended last.
        kind: ExitKind,
        /// How often within the window.
        deaths: u32,
    },
    /// A stop signal came while no agent could answer it.
    EndedBySignal {
        /// Which.
        no: u8,
    },
    /// The agent ended without taking leave after a stop signal that it was told of.
    DiedStopping {
        /// How.
        kind: ExitKind,
        /// Which.
        no: u8,
    },
    /// The agent did not end in time after a stop signal.
    StopOverdue {
        /// Which.
        no: u8,
        /// How long ago it came.
        after: Duration,
    },
    /// The agent stood still for so long after its grant ran out.
    Silent {
        /// How long.
        after: Duration,
    },
    /// The grant ran out.
    GrantOver,
    /// Processes survived SIGKILL.
    Survivors {
        /// Which.
        pids: Vec<u32>,
    },
    /// The agent took leave and then did not exit.
    NeverLeft,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AgentDied { kind, restart, of } => {
                write!(f, "the agent on this node ended ({kind}); starting it again ({restart} of {of})")
            }
            Self::TooManyDeaths { kind, deaths } => {
                write!(
                    f,
                    "the agent on this node ended {deaths} times within 10 min, last with {kind}; giving up"
                )
            }
            Self::EndedBySignal { no } => {
                write!(f, "{} arrived while the agent on this node was down; ending", signal_name(*no))
            }
            Self::DiedStopping { kind, no } => {
                write!(
                    f,
                    "the agent on this node ended ({kind}) while it was stopping ({}); ending",
                    signal_name(*no)
                )
            }
            Self::StopOverdue { no, after } => {
                let (no, after) = (signal_name(*no), human(*after));
                write!(
                    f,
                    "{no} arrived {after} ago and the agent on this node has not ended; killing it and its ranks"
                )
            }
            Self::Silent { after } => {
                write!(
                    f,
                    "the agent on this node stands still {} after its grant ran out; killing it",
                    human(*after)
                )
            }
            Self::GrantOver => f.write_str(
                "this node's grant ran out (no word from the coordinator in time); its ranks are killed",
            ),
            Self::Survivors { pids } => {
                write!(f, "{} process(es) on this node survive SIGKILL (", pids.len())?;
                for (i, pid) in pids.iter().take(8).enumerate() {
                    write!(f, "{}{pid}", if i == 0 { "pid " } else { ", " })?;
                }
                f.write_str(if pids.len() > 8 { ", …); the node is dirty" } else { "); the node is dirty" })
            }
            Self::NeverLeft => f.write_str("the agent on this node took leave and did not exit; killing it"),
        }
    }
}

/// The guardian's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Restarts of the agent within [`window`](Self::window).
    pub restarts: u32,
    /// The window in which restarts count.
    pub window: Duration,
    /// How long SIGKILL may take before what is left counts as survivor.
    pub sweep: Duration,
    /// Between two passes of a sweep, when no child's end wakes it earlier.
    pub pass: Duration,
    /// Between two readings of the grant word while there is none yet, and between two kills while it is over.
    pub look: Duration,
    /// From `Gone` to the agent's exit.
    pub leave: Duration,
    /// Before a fork that failed is tried again.
    pub retry: Duration,
    /// From the first stop signal to the end of an agent that did not end.
    pub stop: Duration,
    /// The same from a stop signal that says not to wait.
    pub again: Duration,
    /// How long an agent may stand still after its grant ran out.
    pub silent: Duration,
}

impl Numbers {
    /// The numbers of a run. What the agent takes for a stop is its ranks' grace, a sweep, the last output and the end
    /// of the journal; where grants roll, the leader's agent waits for those of nodes that fall silent meanwhile, too.
    #[must_use]
    pub fn of(spec: &RunSpec) -> Self {
        const BEYOND: Duration = Duration::from_secs(10);
        const PARTING: Duration = Duration::from_secs(5);
        let ms = Duration::from_millis;
        let numbers = &spec.numbers;
        let forever = spec.max_nodes == 1 && spec.spares == 0 && numbers.grant == GrantMode::Auto;
        let others = if forever { Duration::ZERO } else { ms(numbers.lost_ms).saturating_add(PARTING) };
        let grace = ms(spec.shutdown_timeout_ms.unwrap_or(numbers.leave_ms));
        Self { stop: grace.saturating_add(BEYOND).saturating_add(others), ..Self::default() }
    }
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            restarts: 3,
            window: Duration::from_secs(600),
            sweep: Duration::from_secs(5),
            pass: Duration::from_millis(10),
            look: Duration::from_millis(100),
            leave: Duration::from_secs(5),
            retry: Duration::from_secs(1),
            stop: Duration::from_secs(40),
            again: Duration::from_secs(10),
            silent: Duration::from_secs(10),
        }
    }
}

/// What follows a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Fork { not_before: BootTime },
    Exit(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No agent and nothing below; forks at this instant.
    Restarting { at: BootTime },
    /// The fork was asked for.
    Forking,
    /// An agent runs.
    Running,
    /// It said `Gone`; killed with everything else at `until`.
    Leaving { code: u8, until: BootTime },
    /// The agent is gone (or to be killed): kill and reap passes until nothing is left, or until `until`.
    Sweeping { next: Next, until: BootTime, pass_at: BootTime },
    /// `Exit` was put.
    Over,
}

/// A grant that is over and was not renewed since.
#[derive(Clone, Copy, Debug)]
struct Fence {
    /// The agent's count when it moved last, as far as was seen.
    tick: u64,
    /// When that was, or when the grant was found to be over.
    since: BootTime,
    /// When the page was read last.
    looked: BootTime,
}

impl Fence {
    fn new(now: BootTime, tick: u64) -> Self {
        Self { tick, since: now, looked: now }
    }

    /// How long the agent stands still by now.
    fn still(&mut self, now: BootTime, tick: u64) -> Duration {
        if tick != self.tick || now.since(self.looked) > SLEPT {
            (self.tick, self.since) = (tick, now);
        }
        self.looked = now;
        now.since(self.since)
    }
}

/// The machine. The first [`Event::Tick`] forks the first agent.
#[derive(Clone, Debug)]
pub struct Guardian {
    numbers: Numbers,
    state: State,
    /// Source of incarnations (splitmix64).
    seed: u64,
    /// The agent of now, or the last one.
    incarnation: Option<Incarnation>,
    /// Dead incarnations of which nothing is left, oldest first.
    clean_of: Vec<Incarnation>,
    /// Dead incarnations of which something may be left.
    dead: Vec<Incarnation>,
    survivors: Vec<u32>,
    /// When it was started again, oldest first, at most `numbers.restarts`.
    restarts: VecDeque<BootTime>,
    /// Signals for the next agent.
    pending: VecDeque<SignalInfo>,
    /// Whose run it is.
    user: Option<u32>,
    /// The stop signals that an agent was told of.
    signals: Signals,
    /// The first of them.
    stop: Option<(u8, BootTime)>,
    /// When the agent must have ended for it.
    stop_due: Option<BootTime>,
    /// When the grant word is to be read next.
    look_at: Option<BootTime>,
    /// The grant was found to be over and was not renewed since.
    fence: Option<Fence>,
}

impl Guardian {
    /// A guardian; `seed` is the source of its incarnations and must be random outside tests.
    #[must_use]
    pub fn new(seed: u64, numbers: Numbers) -> Self {
        Self {
            numbers,
            state: State::Restarting { at: BootTime(0) },
            seed,
            incarnation: None,
            clean_of: Vec::new(),
            dead: Vec::new(),
            survivors: Vec::new(),
            restarts: VecDeque::new(),
            pending: VecDeque::new(),
            user: None,
            signals: Signals::default(),
            stop: None,
            stop_due: None,
            look_at: None,
            fence: None,
        }
    }

    /// The user whose second stop signal means "do not wait"; without this only a terminal can say so.
    #[must_use]
    pub fn of_user(mut self, uid: u32) -> Self {
        self.user = Some(uid);
        self
    }

    /// The agent of now, or the last one.
    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.incarnation
    }

    /// Whether an agent may be alive.
    #[must_use]
    pub fn has_agent(&self) -> bool {
        matches!(self.state, State::Forking | State::Running | State::Leaving { .. })
    }

    fn fork(&mut self, out: &mut Outbox<Effect>) {
        let incarnation = self.next_incarnation();
        self.incarnation = Some(incarnation);
        self.state = State::Forking;
        out.put(Effect::ForkAgent(Start {
            incarnation,
            clean_of: self.clean_of.clone(),
            survivors: self.survivors.clone(),
            restarts: u32::try_from(self.restarts.len()).unwrap_or(u32::MAX),
        }));
    }

    fn next_incarnation(&mut self) -> Incarnation {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Incarnation((z ^ (z >> 31)).max(1)) // 0 is "nobody" on the page
    }

    fn sweep(&mut self, now: BootTime, next: Next, out: &mut Outbox<Effect>) {
        self.look_at = None;
        self.fence = None;
        self.stop_due = None;
        self.state = State::Sweeping { next, until: now.after(self.numbers.sweep), pass_at: now };
        self.pass(now, out);
    }

    fn pass(&mut self, now: BootTime, out: &mut Outbox<Effect>) {
        if let State::Sweeping { pass_at, .. } = &mut self.state {
            *pass_at = now.after(self.numbers.pass);
            out.put(Effect::KillTree);
            out.put(Effect::Reap);
        }
    }

    fn exited(&mut self, now: BootTime, kind: ExitKind, out: &mut Outbox<Effect>) {
        match self.state {
            State::Leaving { code, .. } => self.sweep(now, Next::Exit(code), out),
            State::Running | State::Forking => self.died(now, kind, out),
            // Swept away by us, or not ours at all.
            State::Restarting { .. } | State::Sweeping { .. } | State::Over => {}
        }
    }

    /// The agent ended without taking leave.
    fn died(&mut self, now: BootTime, kind: ExitKind, out: &mut Outbox<Effect>) {
        let window = self.numbers.window;
        // It was told to stop and died of it, or before it could hear: the user's word stands.
        let ended = match (self.stop, self.pending.iter().find(|signal| signal.is_stop())) {
            (Some((no, _)), _) => Some((no, Said::DiedStopping { kind: kind.clone(), no })),
            (None, Some(signal)) => Some((signal.no, Said::EndedBySignal { no: signal.no })),
            (None, None) => None,
        };
        if let Some((no, said)) = ended {
            out.put(Effect::Say(said));
            return self.sweep(now, Next::Exit(128_u8.saturating_add(no)), out);
        }
        while self.restarts.front().is_some_and(|at| now.since(*at) > window) {
            self.restarts.pop_front();
        }
        let so_far = u32::try_from(self.restarts.len()).unwrap_or(u32::MAX);
        if so_far >= self.numbers.restarts {
            out.put(Effect::Say(Said::TooManyDeaths { kind, deaths: so_far.saturating_add(1) }));
            return self.sweep(now, Next::Exit(1), out);
        }
        self.restarts.push_back(now);
        let not_before = match kind {
            ExitKind::NeverStarted { .. } => now.after(self.numbers.retry),
            _ => now,
        };
        out.put(Effect::Say(Said::AgentDied { kind, restart: so_far + 1, of: self.numbers.restarts }));
        self.sweep(now, Next::Fork { not_before }, out);
    }

    fn swept(&mut self, now: BootTime, mut survivors: Vec<u32>, out: &mut Outbox<Effect>) {
        let State::Sweeping { next, until, .. } = self.state else { return };
        if !survivors.is_empty() && now < until {
            return; // the next pass is already a deadline
        }
        if !survivors.is_empty() {
            out.put(Effect::Say(Said::Survivors { pids: survivors.clone() }));
        }
        // With a survivor the word "no rank left" would be false, and nobody can tell of which incarnation it is;
        // once nothing is left at all the word is true of everyone before.
        self.dead.extend(self.incarnation);
        if survivors.is_empty() {
            self.clean_of.append(&mut self.dead);
            self.clean_of.drain(..self.clean_of.len().saturating_sub(CLEAN));
        }
        survivors.truncate(SURVIVORS);
        self.survivors = survivors;
        match next {
            Next::Exit(code) => self.exit(code, out),
            Next::Fork { not_before } if not_before > now => {
                self.state = State::Restarting { at: not_before }
            }
            Next::Fork { .. } => self.fork(out),
        }
    }

    fn exit(&mut self, code: u8, out: &mut Outbox<Effect>) {
        self.state = State::Over;
        out.put(Effect::Exit(code));
    }

    fn signal(&mut self, now: BootTime, signal: SignalInfo, out: &mut Outbox<Effect>) {
        match &mut self.state {
            State::Running | State::Leaving { .. } => self.tell_signal(now, signal, out),
            // Nothing runs below: there is nobody whom a stop could still concern.
            State::Restarting { .. } if signal.is_stop() => {
                out.put(Effect::Say(Said::EndedBySignal { no: signal.no }));
                self.exit(128_u8.saturating_add(signal.no), out);
            }
            State::Sweeping { next: next @ Next::Fork { .. }, .. } if signal.is_stop() => {
                *next = Next::Exit(128_u8.saturating_add(signal.no));
                out.put(Effect::Say(Said::EndedBySignal { no: signal.no }));
            }
            State::Forking | State::Restarting { .. } | State::Sweeping { next: Next::Fork { .. }, .. } => {
                if self.pending.len() == PENDING {
                    // The oldest goes, but never a stop.
                    let oldest = self.pending.iter().position(|kept| !kept.is_stop()).unwrap_or(0);
                    self.pending.remove(oldest);
                }
                self.pending.push_back(signal);
            }
            State::Sweeping { next: Next::Exit(_), .. } | State::Over => {}
        }
    }

    fn tell_signal(&mut self, now: BootTime, signal: SignalInfo, out: &mut Outbox<Effect>) {
        if signal.is_stop() {
            // As the agent hears it: what makes it hurry makes us hurry.
            let terminal = signal.code == SI_KERNEL && signal.pid == 0;
            let user = terminal || (signal.pid != 0 && self.user == Some(signal.uid));
            let due = match self.signals.hear(now, signal.no, terminal, user) {
                Heard::First => Some(now.after(self.numbers.stop)),
                Heard::Again => Some(now.after(self.numbers.again)),
                Heard::Same => None,
            };
            self.stop.get_or_insert((signal.no, now));
            self.stop_due = earlier(self.stop_due, due);
        }
        out.put(Effect::Tell(ToAgent::Signal(signal)));
    }

    fn grant_is(&mut self, now: BootTime, grant: BootTime, tick: u64, out: &mut Outbox<Effect>) {
        if !matches!(self.state, State::Running | State::Leaving { .. }) {
            return;
        }
        if grant == NO_GRANT {
            self.look_at = Some(now.after(self.numbers.look));
        } else if grant == BootTime::NEVER {
            self.look_at = None;
            self.fence = None;
        } else if grant > now {
            self.look_at = Some(grant);
            self.fence = None;
        } else {
            self.look_at = Some(now.after(self.numbers.look));
            out.put(Effect::KillRanks);
            let Some(fence) = &mut self.fence else {
                self.fence = Some(Fence::new(now, tick));
                out.put(Effect::Tell(ToAgent::RanksKilled { grant }));
                return out.put(Effect::Say(Said::GrantOver));
            };
            let after = fence.still(now, tick);
            if self.state == State::Running && after >= self.numbers.silent {
                out.put(Effect::Say(Said::Silent { after }));
                self.died(now, ExitKind::Signal { no: SIGKILL, core: false }, out);
            }
        }
    }

    /// The agent had all the time that a stop may take.
    fn stop_overdue(&mut self, now: BootTime, out: &mut Outbox<Effect>) {
        let Some((no, at)) = self.stop else { return };
        out.put(Effect::Say(Said::StopOverdue { no, after: now.since(at) }));
        self.sweep(now, Next::Exit(128_u8.saturating_add(no)), out);
    }

    fn tick(&mut self, now: BootTime, out: &mut Outbox<Effect>) {
        match self.state {
            State::Restarting { at } if at <= now => self.fork(out),
            State::Leaving { code, until } if until <= now => {
                out.put(Effect::Say(Said::NeverLeft));
                self.sweep(now, Next::Exit(code), out);
            }
            State::Sweeping { .. } => self.pass(now, out),
            State::Running if self.stop_due.is_some_and(|at| at <= now) => self.stop_overdue(now, out),
            State::Running | State::Leaving { .. } if self.look_at.is_some_and(|at| at <= now) => {
                out.put(Effect::ReadGrant);
            }
            _ => {}
        }
    }
}

impl Machine for Guardian {
    type Event = Event;
    type Effect = Effect;

    fn handle(&mut self, now: Now, event: Event, out: &mut Outbox<Effect>) {
        let now = now.boot;
        match event {
            Event::AgentStarted { pid: _ } => {
                if self.state == State::Forking {
                    self.state = State::Running;
                    self.look_at = Some(now);
                    for signal in std::mem::take(&mut self.pending) {
                        self.tell_signal(now, signal, out);
                    }
                }
            }
            Event::AgentExited { kind } => self.exited(now, kind, out),
            Event::Signal(signal) => self.signal(now, signal, out),
            Event::AgentSays(ToGuardian::Gone { code }) => {
                if self.state == State::Running {
                    self.state = State::Leaving { code, until: now.after(self.numbers.leave) };
                }
            }
            Event::GrantIs { until, tick } => self.grant_is(now, until, tick, out),
            Event::Swept { survivors } => self.swept(now, survivors, out),
            Event::Tick => self.tick(now, out),
        }
    }

    fn deadline(&self) -> Option<BootTime> {
        match self.state {
            State::Restarting { at } => Some(at),
            State::Running => earlier(self.stop_due, self.look_at),
            State::Leaving { until, .. } => earlier(Some(until), self.look_at),
            State::Sweeping { pass_at, .. } => Some(pass_at),
            State::Forking | State::Over => None,
        }
    }
}

#[cfg(test)]
#[path = "guardian_tests.rs"]
mod tests;
