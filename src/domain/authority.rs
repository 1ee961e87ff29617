//! The coordinator's side of grants: answers beats, knows until when it has authority, says who is silent.
//!
//! Authority lasts until T after the *send* of the newest acknowledgements that a strict majority of the
//! voters has echoed; the coordinator's own node votes by the same messages. An acknowledgement carries the
//! rest of that authority. Lives on the beat thread of the agent that leads.
//!
//! Authority that ran out comes back with the next echoes of a majority: with exactly half of the voters left
//! the removal of the others is what brings it back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::ids::{Incarnation, NodeName, Term};
use super::lease::{Link, surely};
use super::mutant::{Mutant, Mutants};
use super::outbox::{Machine, Outbox};
use super::spec::Numbers;
use super::time::{BootTime, Now, earlier};
use super::wire::{Ack, Beat};

/// A node of which nothing was heard for so long is in doubt: peers are asked about it.
pub const QUIET: Duration = Duration::from_secs(3);
/// A control thread whose tick stands still for so long is no life.
const STUCK: Duration = Duration::from_secs(3);
/// An event so much later than the deadline means that this process slept.
const SLEPT: Duration = Duration::from_secs(1);
/// The machine wants to be woken so often, to notice that it slept.
const WAKE: Duration = Duration::from_millis(500);
/// With more voters than these votes are not counted at every beat.
const FEW: usize = 64;
/// Between two counts of many voters, as long as authority lasts for long.
const COUNT: Duration = Duration::from_millis(50);
/// Acknowledgements to one node whose send time is remembered.
const REMEMBERED: usize = 256;

/// What can happen to an authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The `lead` record of this term is written.
    Lead {
        /// The term.
        term: Term,
        /// The life of the leading agent.
        leader: Incarnation,
        /// Its node.
        own: NodeName,
        /// Who votes.
        voters: Vec<NodeName>,
        /// The timers of the run.
        numbers: Box<Numbers>,
        /// Another leader, which is surely dead by now, may have granted before.
        earlier: bool,
    },
    /// The coordinator admits this life of the agent of a node: its beats are answered from now on. To be
    /// handled before the node is told.
    Admit {
        /// The node.
        node: NodeName,
        /// The life.
        incarnation: Incarnation,
    },
    /// A beat arrived.
    Beat {
        /// From which node (the session proved it).
        node: NodeName,
        /// On which link.
        link: Link,
        /// What it says.
        beat: Beat,
    },
    /// No more acknowledgements to this node until it is admitted again.
    CloseGrants {
        /// The node.
        node: NodeName,
    },
    /// A record changed who votes.
    Voters(Vec<NodeName>),
    /// The coordinator leads no more: nothing is answered.
    StandDown,
    /// Time passed.
    Tick,
}

/// What an authority wants done or told to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send an acknowledgement.
    SendAck {
        /// To this node.
        node: NodeName,
        /// On this link.
        link: Link,
        /// What it says.
        ack: Ack,
    },
    /// Tell the coordinator: no life from this node for too long, be it admitted or a voter that never came.
    Silent {
        /// The node.
        node: NodeName,
        /// Its last sign of life.
        since: BootTime,
    },
    /// Tell the coordinator: no life from this admitted node for [`QUIET`]. Said once, until it beats again.
    Quiet {
        /// The node.
        node: NodeName,
        /// Its last sign of life.
        since: BootTime,
    },
    /// Tell the coordinator: a beat came so late that another link was dialled for it.
    Late {
        /// The node.
        node: NodeName,
        /// How long nothing was heard.
        silent: Duration,
    },
    /// Tell the coordinator: a silent node beats again.
    Back {
        /// The node.
        node: NodeName,
    },
    /// Tell the coordinator: authority lasts until then.
    Until(BootTime),
    /// Tell the coordinator: authority ran out; a later [`Effect::Until`] says that it is back.
    Over,
    /// Tell the coordinator: the grant of a node is surely over, and enforced, from then on.
    GrantsClosed {
        /// The node.
        node: NodeName,
        /// From when on.
        over_at: BootTime,
    },
}

#[derive(Clone, Debug)]
struct Peer {
    incarnation: Incarnation,
    /// Its beats are answered.
    open: bool,
    /// The newest beat: its link and number.
    newest: Option<(Link, u64)>,
    tick: Option<u64>,
    tick_since: BootTime,
    alive_at: BootTime,
    quiet: bool,
    silent: bool,
    /// Acknowledgements that may still be echoed, with the time of their send.
    acks: VecDeque<(u64, BootTime)>,
    /// Send of the newest acknowledgement that was echoed.
    echoed: Option<BootTime>,
    /// When the grants that were given to this node end.
    granted: Option<BootTime>,
}

#[derive(Clone, Debug)]
struct Leading {
    term: Term,
    leader: Incarnation,
    own: NodeName,
    voters: Vec<NodeName>,
    numbers: Numbers,
    /// Grants of earlier leaders end by then.
    earlier: Option<BootTime>,
    since: BootTime,
    /// Voters that never came, of which that was said.
    absent: BTreeSet<NodeName>,
}

/// The authority of one life of a coordinator.
#[derive(Clone, Debug)]
pub struct Authority {
    mutants: Mutants,
    leading: Option<Leading>,
    peers: BTreeMap<NodeName, Peer>,
    acks: u64,
    until: Option<BootTime>,
    over: bool,
    /// After a pause of our own nobody is silent before that.
    guard: BootTime,
    wake: Option<BootTime>,
    /// When votes were counted last.
    counted: BootTime,
    /// No more lives than these have echoed anything.
    voted: u32,
}

impl Authority {
    /// An authority that does not lead yet.
    #[must_use]
    pub fn new(mutants: Mutants) -> Self {
        Self {
            mutants,
            leading: None,
            peers: BTreeMap::new(),
            acks: 0,
            until: None,
            over: false,
            guard: BootTime(0),
            wake: None,
            counted: BootTime(0),
            voted: 0,
        }
    }

    /// Until when this coordinator has authority, if it ever had.
    #[must_use]
    pub fn until(&self) -> Option<BootTime> {
        self.until
    }

    fn lead(&mut self, now: BootTime, leading: Leading) {
        self.leading = Some(leading);
        self.peers.clear();
        self.voted = 0;
        self.until = None;
        self.over = false;
        self.guard = now;
    }

    fn admit(&mut self, now: BootTime, node: NodeName, incarnation: Incarnation) {
        let known = self.peers.remove(&node);
        let granted = known.as_ref().and_then(|peer| peer.granted);
        let peer = match known {
            Some(peer) if peer.incarnation == incarnation => {
                Peer { open: true, quiet: false, silent: false, alive_at: now, tick_since: now, ..peer }
            }
            // What the earlier life echoed is forgotten with it: so is what it promised.
            _ => Peer {
                incarnation,
                open: true,
                newest: None,
                tick: None,
                tick_since: now,
                alive_at: now,
                quiet: false,
                silent: false,
                acks: VecDeque::new(),
                echoed: None,
                granted,
            },
        };
        self.peers.insert(node, peer);
    }

    fn beat(&mut self, now: BootTime, node: NodeName, link: Link, beat: Beat, out: &mut Outbox<Effect>) {
        let stale_ok = self.mutants.has(Mutant::AcceptStale);
        let Some(leading) = &self.leading else { return };
        let Some(peer) = self.peers.get_mut(&node) else { return };
        if (beat.term != leading.term || beat.incarnation != peer.incarnation) && !stale_ok {
            return;
        }
        if peer.newest.is_none_or(|(_, n)| beat.n > n) {
            peer.newest = Some((link, beat.n));
            if peer.tick != Some(beat.tick) {
                peer.tick = Some(beat.tick);
                peer.tick_since = now;
            }
            if now.since(peer.tick_since) < STUCK {
                let gap = now.since(peer.alive_at);
                peer.alive_at = now;
                peer.quiet = false;
                if std::mem::replace(&mut peer.silent, false) {
                    out.put(Effect::Back { node: node.clone() });
                } else if peer.open && gap >= Duration::from_millis(leading.numbers.second_link_ms) {
                    out.put(Effect::Late { node: node.clone(), silent: gap });
                }
            }
        }
        if now.since(peer.tick_since) >= STUCK {
            return; // its control thread stands still: no life, no vote, no grant
        }
        let mut voted = false;
        if let Some(sent) = beat.echo.and_then(|echo| peer.acks.iter().find(|(ack, _)| *ack == echo)) {
            let sent = sent.1;
            voted = true;
            self.voted = self.voted.saturating_add(u32::from(peer.echoed.is_none()));
            peer.echoed = Some(peer.echoed.map_or(sent, |e| e.max(sent)));
            peer.acks.retain(|(_, at)| *at >= sent);
        }
        let had = self.has_authority(now);
        if voted && self.may_count(now) {
            self.count(now, out);
        }
        if !had && self.has_authority(now) {
            self.acknowledge_others(now, &node, out);
        }
        self.acknowledge(now, &node, link, beat.n, out);
    }

    /// Whether votes are counted for this beat: a count looks at every voter. With few of them always; with many not before
    /// a majority can have voted, and while authority lasts for long not more often than [`COUNT`].
    fn may_count(&self, now: BootTime) -> bool {
        let Some(leading) = &self.leading else { return false };
        let many = leading.voters.len() > FEW;
        let enough = self.voted as usize > leading.voters.len() / 2;
        let long = leading.numbers.authority() / 2;
        let lasts = self.until.is_some_and(|until| until.since(now) > long);
        !many || (enough && !(lasts && now.since(self.counted) < COUNT))
    }

    fn has_authority(&self, now: BootTime) -> bool {
        self.until.is_some_and(|until| until > now)
    }

    /// Counts the votes anew. Authority that was given is never taken back: it was handed on.
    fn count(&mut self, now: BootTime, out: &mut Outbox<Effect>) {
        self.counted = now;
        let Some(leading) = &self.leading else { return };
        let mut echoed: Vec<Option<BootTime>> = leading
            .voters
            .iter()
            .map(|voter| {
                if *voter == leading.own && self.mutants.has(Mutant::CoordinatorCountsItself) {
                    return Some(now);
                }
                self.peers.get(voter).and_then(|peer| peer.echoed)
            })
            .collect();
        let middle = echoed.len() / 2;
        if echoed.is_empty() {
            return;
        }
        let (_, sent, _) = echoed.select_nth_unstable_by(middle, |a, b| b.cmp(a));
        let Some(sent) = *sent else { return };
        let until = sent.after(leading.numbers.authority());
        if until > now && self.until.is_none_or(|u| until > u) {
            self.until = Some(until);
            self.over = false;
            out.put(Effect::Until(until));
        }
    }

    /// Whoever was answered without a grant need not ask again: it hears of the new authority at once. An
    /// old beat is not answered: that would grant nothing and count as a grant to a node that may be dead.
    fn acknowledge_others(&mut self, now: BootTime, but: &NodeName, out: &mut Outbox<Effect>) {
        let Some(leading) = &self.leading else { return };
        let old = leading.numbers.authority();
        let others: Vec<(NodeName, Link, u64)> = self
            .peers
            .iter()
            .filter(|(node, peer)| *node != but && !peer.silent && now.since(peer.alive_at) < old)
            .filter_map(|(node, peer)| peer.newest.map(|(link, n)| (node.clone(), link, n)))
            .collect();
        for (node, link, n) in others {
            self.acknowledge(now, &node, link, n, out);
        }
    }

    fn acknowledge(&mut self, now: BootTime, node: &NodeName, link: Link, n: u64, out: &mut Outbox<Effect>) {
        let Some(leading) = &self.leading else { return };
        let Some(peer) = self.peers.get_mut(node) else { return };
        if !peer.open {
            return;
        }
        let rest = self.until.map_or(Duration::ZERO, |until| until.since(now));
        let remaining_ms = u64::try_from(rest.as_millis()).unwrap_or(0);
        if remaining_ms > 0 {
            peer.granted = self.until;
        }
        self.acks += 1;
        peer.acks.push_back((self.acks, now));
        if peer.acks.len() > REMEMBERED {
            peer.acks.pop_front();
        }
        // Whoever sends it puts the time on it.
        let ack =
            Ack { term: leading.term, leader: leading.leader, ack: self.acks, n, remaining_ms, wall_ms: 0 };
        out.put(Effect::SendAck { node: node.clone(), link, ack });
    }

    fn close(&mut self, now: BootTime, node: NodeName, out: &mut Outbox<Effect>) {
        let Some(leading) = &self.leading else { return };
        let mut granted = leading.earlier;
        if let Some(peer) = self.peers.get_mut(&node) {
            peer.open = false;
            granted = granted.max(peer.granted);
        }
        let over_at = granted.map_or(now, |until| {
            let margin = surely(leading.numbers.authority()).saturating_sub(leading.numbers.authority());
            until.after(leading.numbers.fence()).after(margin)
        });
        out.put(Effect::GrantsClosed { node, over_at });
    }

    fn run(&mut self, now: BootTime, out: &mut Outbox<Effect>) {
        if !self.over && self.until.is_some_and(|until| now >= until) {
            self.over = true;
            out.put(Effect::Over);
        }
        let Some(leading) = &mut self.leading else { return };
        let lost = Duration::from_millis(leading.numbers.lost_ms);
        if now < self.guard {
            return;
        }
        if now.since(leading.since) >= lost {
            for node in leading.voters.iter().filter(|node| !self.peers.contains_key(*node)) {
                if leading.absent.insert(node.clone()) {
                    out.put(Effect::Silent { node: node.clone(), since: leading.since });
                }
            }
        }
        for (node, peer) in self.peers.iter_mut().filter(|(_, peer)| peer.open && !peer.silent) {
            let (silent, since) = (now.since(peer.alive_at), peer.alive_at);
            if silent >= lost {
                peer.silent = true;
                out.put(Effect::Silent { node: node.clone(), since });
            } else if silent >= QUIET && !peer.quiet {
                peer.quiet = true;
                out.put(Effect::Quiet { node: node.clone(), since });
            }
        }
    }

    /// Who slept has heard nobody and knows nothing about them.
    fn notice_pause(&mut self, now: BootTime) {
        let Some(leading) = &self.leading else { return };
        let slept = self.wake.is_some_and(|wake| now > wake.after(SLEPT));
        if slept && !self.mutants.has(Mutant::NoPauseGuard) {
            self.guard = now.after(leading.numbers.authority());
            for peer in self.peers.values_mut() {
                peer.tick_since = now;
            }
        }
    }

    fn next_wake(&self, now: BootTime) -> Option<BootTime> {
        let leading = self.leading.as_ref()?;
        let lost = Duration::from_millis(leading.numbers.lost_ms);
        let silence = self
            .peers
            .values()
            .filter(|peer| peer.open && !peer.silent)
            .map(|peer| peer.alive_at.after(if peer.quiet { lost } else { QUIET.min(lost) }))
            .chain((now.since(leading.since) < lost).then_some(leading.since.after(lost)))
            .map(|at| at.max(self.guard))
            .min();
        let over = if self.over { None } else { self.until };
        earlier(Some(now.after(WAKE)), earlier(silence, over))
    }
}

impl Machine for Authority {
    type Event = Event;
    type Effect = Effect;

    fn handle(&mut self, now: Now, event: Event, out: &mut Outbox<Effect>) {
        let now = now.boot;
        self.notice_pause(now);
        // A beat or an admission only puts off what the clock would bring: until then nobody else has to be looked at for it.
        let later = matches!(event, Event::Beat { .. } | Event::Admit { .. });
        let idle = later && self.wake.is_some_and(|wake| now < wake);
        if !later {
            self.run(now, out);
        } else if !self.over && self.until.is_some_and(|until| now >= until) {
            self.over = true; // said before the beat may bring it back
            out.put(Effect::Over);
        }
        match event {
            Event::Lead { term, leader, own, voters, numbers, earlier } => {
                let earlier = earlier.then(|| now.after(numbers.authority()));
                let (numbers, since, absent) = (*numbers, now, BTreeSet::new());
                self.lead(now, Leading { term, leader, own, voters, numbers, earlier, since, absent });
            }
            Event::Admit { node, incarnation } => self.admit(now, node, incarnation),
            Event::Beat { node, link, beat } => self.beat(now, node, link, beat, out),
            Event::CloseGrants { node } => self.close(now, node, out),
            Event::Voters(voters) => {
                if let Some(leading) = &mut self.leading {
                    leading.voters = voters;
                }
                let had = self.has_authority(now);
                self.count(now, out);
                if !had && self.has_authority(now) {
                    self.acknowledge_others(now, &NodeName::default(), out);
                }
            }
            Event::StandDown => {
                self.leading = None;
                self.peers.clear();
                self.until = None;
            }
            Event::Tick => {}
        }
        if !idle {
            self.run(now, out);
            self.wake = self.next_wake(now);
        }
    }

    fn deadline(&self) -> Option<BootTime> {
        self.wake
    }
}

#[cfg(test)]
#[path = "authority_tests.rs"]
mod tests;
