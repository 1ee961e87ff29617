//! The node's side of grants: sends beats, echoes acknowledgements, turns an acknowledgement into a grant.
//!
//! A grant is counted from the *send* of the beat that was acknowledged, on this node's own clock, and is as
//! long as the rest of the coordinator's authority at the send of the acknowledgement: however long either
//! was on its way, the grant ends before that authority does. Lives on the beat thread.
//!
//! ```text
//! Alone ─Welcome─► Beating ─1.5 s unanswered─► Double (two links, first answer wins) ─► Beating
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use super::ids::{Incarnation, Term};
use super::mutant::{Mutant, Mutants};
use super::outbox::{Machine, Outbox};
use super::spec::Numbers;
use super::time::{BootTime, Now, earlier};
use super::wire::{Ack, Beat};

/// Clocks of two machines run apart by less than this share (one in so many).
pub const DRIFT_SHARE: u32 = 200;

/// `span`, and so much more that any clock of the cluster has surely counted `span`.
#[must_use]
pub fn surely(span: Duration) -> Duration {
    span.saturating_add(span / DRIFT_SHARE)
}

/// A pause so long must be survived at any moment, in milliseconds.
const LEAST_MS: u64 = 3_000;
/// Beats that are sent without any pause until the first grant; later ones wait [`HURRY`].
const HURRIED: u32 = 4;
/// Between two hurried beats; twice as long each time, up to the ordinary beat: with thousands of nodes many wait for a
/// majority, and it is told to all of them as soon as it is there.
const HURRY: Duration = Duration::from_millis(20);
/// Before a link is dialled again when none is left.
const REDIAL: Duration = Duration::from_millis(200);
/// Beats whose send time is remembered.
const REMEMBERED: usize = 256;

/// One beat connection, numbered by who opened it (the lease) or took it (the coordinator's driver).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link(pub u64);

/// What can happen to a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A coordinator admitted this agent.
    Welcome {
        /// The life of the coordinator's agent.
        leader: Incarnation,
        /// Its term.
        term: Term,
        /// A world of one node without a spare: the grant is for ever.
        forever: bool,
        /// A guardian said that the leader before this one is dead: this node may vote anew at once.
        previous_leader_dead: bool,
        /// The timers of the run.
        numbers: Box<Numbers>,
    },
    /// An acknowledgement arrived.
    Acked {
        /// On which link.
        link: Link,
        /// What it says.
        ack: Ack,
    },
    /// A dialled link is open.
    LinkUp(Link),
    /// A link could not be opened, or is gone.
    LinkDown(Link),
    /// Time passed.
    Tick {
        /// The tick of the control thread's event loop, as read now.
        tick: u64,
    },
}

/// What a lease wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Open a beat connection to the coordinator; the outcome is `LinkUp` or `LinkDown`.
    Dial(Link),
    /// Close it, opened or not; no event follows.
    CloseLink(Link),
    /// Send a beat.
    SendBeat {
        /// On this link.
        link: Link,
        /// The beat.
        beat: Beat,
    },
    /// Nothing was heard from the leader for as long as a grant may last. Said once, until it answers again.
    LeaderSilent {
        /// Its last sign of life.
        since: BootTime,
    },
    /// Ranks may run until then; never earlier than a grant given before. [`BootTime::NEVER`]: for ever.
    Granted(BootTime),
}

#[derive(Clone, Copy, Debug)]
struct Open {
    link: Link,
    up: bool,
    /// Number of the first beat that was sent on it.
    first: u64,
}

#[derive(Clone, Debug)]
struct Leader {
    incarnation: Incarnation,
    term: Term,
    numbers: Numbers,
    /// Before that this node still keeps its promise to an earlier leader.
    vote_from: Option<BootTime>,
    /// The newest acknowledgement of this leader and when it came.
    newest: Option<(u64, BootTime)>,
    /// When it was last heard, or followed.
    heard: BootTime,
    /// That it is silent was said.
    silent: bool,
    /// This leader has granted something.
    granted: bool,
    /// Beats sent to this leader since it last gave a grant that was not short.
    beats: u32,
    /// The newest beat that only echoed: its acknowledgement is not echoed at once again.
    echoed: u64,
}

/// The lease of one life of an agent.
#[derive(Clone, Debug)]
pub struct Lease {
    incarnation: Incarnation,
    mutants: Mutants,
    leader: Option<Leader>,
    /// The leader that was voted for last, and when its last acknowledgement came.
    promise: Option<(Incarnation, BootTime)>,
    links: Vec<Open>,
    next_link: u64,
    last_dial: Option<BootTime>,
    tick: u64,
    n: u64,
    sent: VecDeque<(u64, BootTime)>,
    unanswered: Option<BootTime>,
    last_beat: Option<BootTime>,
    beat_at: Option<BootTime>,
    grant: Option<BootTime>,
}

impl Lease {
    /// A lease without a coordinator.
    #[must_use]
    pub fn new(incarnation: Incarnation, mutants: Mutants) -> Self {
        Self {
            incarnation,
            mutants,
            leader: None,
            promise: None,
            links: Vec::new(),
            next_link: 0,
            last_dial: None,
            tick: 0,
            n: 0,
            sent: VecDeque::new(),
            unanswered: None,
            last_beat: None,
            beat_at: None,
            grant: None,
        }
    }

    /// Until when ranks may run, if they ever were allowed to.
    #[must_use]
    pub fn grant(&self) -> Option<BootTime> {
        self.grant
    }

    fn welcome(
        &mut self,
        now: BootTime,
        leader: Leader,
        dead: bool,
        forever: bool,
        out: &mut Outbox<Effect>,
    ) {
        let same = self
            .leader
            .as_ref()
            .is_some_and(|l| l.incarnation == leader.incarnation && l.term == leader.term);
        if !same {
            for open in self.links.drain(..) {
                out.put(Effect::CloseLink(open.link));
            }
            let vote_from = match self.promise {
                Some((other, at)) if other != leader.incarnation && !dead => {
                    Some(at.after(surely(leader.numbers.authority())))
                }
                _ => None,
            };
            self.leader = Some(Leader { vote_from, ..leader });
            self.unanswered = None;
            self.beat_at = None;
            self.last_dial = None;
        } else if let Some(known) = &mut self.leader {
            // Welcomed anew by the same one: it was heard.
            (known.heard, known.silent) = (now, false);
        }
        if forever {
            self.give(BootTime::NEVER, out);
        }
        if self.links.is_empty() {
            self.dial(now, out);
        }
    }

    fn give(&mut self, until: BootTime, out: &mut Outbox<Effect>) {
        if self.grant.is_none_or(|grant| until > grant) {
            self.grant = Some(until);
            out.put(Effect::Granted(until));
        }
    }

    fn acked(&mut self, now: BootTime, link: Link, ack: Ack, out: &mut Outbox<Effect>) {
        let stale_ok = self.mutants.has(Mutant::AcceptStale);
        let Some(leader) = &mut self.leader else { return };
        if (ack.leader != leader.incarnation || ack.term != leader.term) && !stale_ok {
            return;
        }
        let Some(&(_, sent)) = self.sent.iter().find(|(n, _)| *n == ack.n) else { return };
        (leader.heard, leader.silent) = (now, false);
        if leader.newest.is_none_or(|(newest, _)| ack.ack > newest) {
            leader.newest = Some((ack.ack, now));
        }
        if leader.vote_from.is_none() {
            self.promise = Some((leader.incarnation, now));
        }
        let first = !leader.granted;
        leader.granted |= ack.remaining_ms > 0;
        if ack.remaining_ms >= leader.numbers.beat_ms.saturating_mul(2) {
            leader.beats = 0;
            // Echoed at once, not with the next beat: authority is a beat longer for it, and so is every grant. Where
            // grants are long that is not needed, and would be half of a large run's beats.
            let short = ack.remaining_ms < LEAST_MS + leader.numbers.beat_ms.saturating_mul(3);
            let echo = short && ack.n == self.n && ack.n != leader.echoed;
            self.beat_at = self.last_beat.filter(|_| echo);
            if echo {
                leader.echoed = self.n + 1;
            }
        } else if leader.beats < HURRIED && (first || ack.n == self.n) {
            // None yet; or a pause used most of it up, and it would be over before the answer to the next beat. With
            // an answer still on its way there is nothing to hurry for.
            self.beat_at = self.last_beat;
            leader.echoed = self.n + 1;
        } else if !leader.granted {
            let times = 1_u32.checked_shl(leader.beats.saturating_sub(HURRIED)).unwrap_or(u32::MAX);
            self.beat_at = self.last_beat.map(|at| at.after(HURRY.saturating_mul(times)));
        }
        self.unanswered = self.sent.iter().find(|(n, _)| *n > ack.n).map(|&(_, at)| at);
        self.first_answer_wins(link, ack.n, out);
        if ack.remaining_ms > 0 {
            let from = if self.mutants.has(Mutant::GrantFromReceipt) { now } else { sent };
            self.give(from.after(Duration::from_millis(ack.remaining_ms)), out);
        }
    }

    /// With two links, the one that answers a beat that both carried stays.
    fn first_answer_wins(&mut self, link: Link, n: u64, out: &mut Outbox<Effect>) {
        if self.links.len() < 2 || !self.links.iter().any(|open| open.link == link) {
            return;
        }
        if self.links.iter().any(|open| open.link != link && open.up && open.first > n) {
            return; // an old answer, held up on its way
        }
        self.links.retain(|open| {
            if open.link != link {
                out.put(Effect::CloseLink(open.link));
            }
            open.link == link
        });
    }

    fn dial(&mut self, now: BootTime, out: &mut Outbox<Effect>) {
        if self.links.len() >= 2 {
            out.put(Effect::CloseLink(self.links.remove(0).link));
        }
        let link = Link(self.next_link);
        self.next_link += 1;
        self.links.push(Open { link, up: false, first: self.n + 1 });
        self.last_dial = Some(now);
        out.put(Effect::Dial(link));
    }

    /// When another link is dialled: none is left, or nothing was answered for too long.
    fn dial_at(&self) -> Option<BootTime> {
        let leader = self.leader.as_ref()?;
        let last = self.last_dial?;
        if self.links.is_empty() {
            return Some(last.after(REDIAL));
        }
        let late = Duration::from_millis(leader.numbers.second_link_ms);
        match self.unanswered {
            Some(since) => Some(since.max(last).after(late)),
            None if self.links.iter().any(|open| open.up) => None,
            None => Some(last.after(late)),
        }
    }

    /// When the leader has been silent for as long as a grant may last. Where grants are for ever nobody needs it.
    fn silent_at(&self) -> Option<BootTime> {
        let leader = self.leader.as_ref().filter(|l| !l.silent && self.grant != Some(BootTime::NEVER))?;
        Some(leader.heard.after(leader.numbers.authority()))
    }

    /// When the next beat is due.
    fn next_beat(&self) -> Option<BootTime> {
        let leader = self.leader.as_ref()?;
        if !self.links.iter().any(|open| open.up) {
            return None;
        }
        let Some(last) = self.last_beat else { return Some(BootTime(0)) };
        earlier(Some(last.after(Duration::from_millis(leader.numbers.beat_ms))), self.beat_at)
    }

    fn run(&mut self, now: BootTime, out: &mut Outbox<Effect>) {
        if self.silent_at().is_some_and(|at| now >= at)
            && let Some(leader) = &mut self.leader
        {
            leader.silent = true;
            out.put(Effect::LeaderSilent { since: leader.heard });
        }
        if self.dial_at().is_some_and(|at| now >= at) {
            self.dial(now, out);
        }
        if self.next_beat().is_some_and(|at| now >= at) {
            self.beat(now, out);
        }
    }

    fn beat(&mut self, now: BootTime, out: &mut Outbox<Effect>) {
        let Some(leader) = &mut self.leader else { return };
        if leader.vote_from.is_some_and(|from| now >= from) {
            leader.vote_from = None;
        }
        let mut echo = None;
        if leader.vote_from.is_none()
            && let Some((ack, at)) = leader.newest
        {
            echo = Some(ack);
            self.promise = Some((leader.incarnation, at));
        }
        self.n += 1;
        leader.beats = leader.beats.saturating_add(1);
        let beat =
            Beat { incarnation: self.incarnation, term: leader.term, n: self.n, tick: self.tick, echo };
        for open in self.links.iter().filter(|open| open.up) {
            out.put(Effect::SendBeat { link: open.link, beat });
        }
        let useless = leader.numbers.authority();
        self.sent.push_back((self.n, now));
        while self.sent.len() > REMEMBERED || self.sent.front().is_some_and(|f| now.since(f.1) > useless) {
            self.sent.pop_front();
        }
        self.unanswered.get_or_insert(now);
        self.last_beat = Some(now);
        self.beat_at = None;
    }
}

impl Machine for Lease {
    type Event = Event;
    type Effect = Effect;

    fn handle(&mut self, now: Now, event: Event, out: &mut Outbox<Effect>) {
        let now = now.boot;
        match event {
            Event::Welcome { leader, term, forever, previous_leader_dead, numbers } => {
                let leader = Leader {
                    incarnation: leader,
                    term,
                    numbers: *numbers,
                    vote_from: None,
                    newest: None,
                    heard: now,
                    silent: false,
                    granted: false,
                    beats: 0,
                    echoed: 0,
                };
                self.welcome(now, leader, previous_leader_dead, forever, out);
            }
            Event::Acked { link, ack } => self.acked(now, link, ack, out),
            Event::LinkUp(link) => {
                let next = self.n + 1;
                if let Some(open) = self.links.iter_mut().find(|open| open.link == link && !open.up) {
                    *open = Open { up: true, first: next, ..*open };
                    self.beat(now, out);
                }
            }
            Event::LinkDown(link) => self.links.retain(|open| open.link != link),
            Event::Tick { tick } => self.tick = tick,
        }
        self.run(now, out);
    }

    fn deadline(&self) -> Option<BootTime> {
        earlier(self.silent_at(), earlier(self.dial_at(), self.next_beat()))
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
