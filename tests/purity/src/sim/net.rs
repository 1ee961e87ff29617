//! Connections between agents and the coordinator: messages get lost, doubled, reordered and late; ways are cut.

use std::collections::BTreeMap;

use super::faults::Way;
use super::node::AgentProcess;
use super::world::{Ev, MS, Ns, Task, Thread, World};
use crate::domain::lease::Link;
use crate::domain::{agent, coordinator, lease};

/// One connection from the agent of a node to the coordinator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conn {
    pub(super) node: usize,
    pub(super) agent: u64,
    pub(super) lead: u64,
    /// The lease's number of a beat connection.
    pub(super) beat: Option<Link>,
    pub(super) open: bool,
}

#[derive(Debug)]
pub(super) struct Net {
    pub(super) conns: BTreeMap<u64, Conn>,
    /// Cuts in force from each node to the coordinator, and from it.
    to: Vec<u32>,
    from: Vec<u32>,
    /// What is sent again when the way is free.
    held: Vec<(usize, bool, Ev)>,
    pub(super) storms: u32,
    /// When the last message in order arrives, for each node towards the coordinator and back.
    last: Vec<[Ns; 2]>,
}

/// A connection over a cut way breaks after this.
const BROKEN: Ns = 9_000 * MS;

impl Net {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            conns: BTreeMap::new(),
            to: vec![0; nodes],
            from: vec![0; nodes],
            held: Vec::new(),
            storms: 0,
            last: vec![[0; 2]; nodes],
        }
    }

    pub(super) fn passes(&self, node: usize, up: bool) -> bool {
        (if up { self.to[node] } else { self.from[node] }) == 0
    }
}

impl World {
    pub(super) fn cut(&mut self, node: usize, way: Way, on: bool) {
        let (to, from) = (way != Way::From, way != Way::To);
        for (up, hit) in [(true, to), (false, from)] {
            if !hit {
                continue;
            }
            let cuts = if up { &mut self.net.to[node] } else { &mut self.net.from[node] };
            if on {
                *cuts += 1;
                continue;
            }
            *cuts -= 1;
            if *cuts == 0 {
                let held = std::mem::take(&mut self.net.held);
                let (free, rest) = held.into_iter().partition(|(n, u, _)| (*n, *u) == (node, up));
                self.net.held = rest;
                for (_, _, ev) in free {
                    let delay = self.rng.below(200) * MS;
                    self.after(delay, ev);
                }
            }
        }
        if on {
            if way == Way::Both {
                self.counters.cuts += 1;
            } else {
                self.counters.one_way_cuts += 1;
            }
            self.after(BROKEN, Ev::ConnCheck(node));
        }
    }

    /// Sends to the other machine of `node` and the coordinator; `up`: to the coordinator.
    pub(super) fn send(&mut self, node: usize, up: bool, ev: Ev) {
        if node == 0 {
            return self.after(30_000, ev);
        }
        if !self.net.passes(node, up) {
            self.counters.dropped += 1;
            if self.rng.chance(300) {
                self.net.held.push((node, up, ev));
            }
            return;
        }
        let storm = u64::from(self.net.storms.min(1));
        if self.rng.chance(self.scenario.drop + 250 * storm) {
            self.counters.dropped += 1;
            return;
        }
        if self.rng.chance(self.scenario.double + 200 * storm) {
            self.counters.doubled += 1;
            let delay = self.latency(storm).0;
            self.after(delay, ev.clone());
        }
        // Most come in order, some overtake or are overtaken.
        let (delay, late) = self.latency(storm);
        if late || self.rng.chance(20) {
            return self.after(delay, ev);
        }
        let at = (self.now + delay).max(self.net.last[node][usize::from(up)]);
        self.net.last[node][usize::from(up)] = at;
        self.at(at, ev);
    }

    /// How long a message takes, and whether that is unusual.
    fn latency(&mut self, storm: u64) -> (Ns, bool) {
        match self.rng.below(100) {
            0 => {
                self.counters.late += 1;
                (self.rng.below(3_000) * MS, true)
            }
            n if n < 5 + 40 * storm => (self.rng.below(400) * MS, true),
            _ => (self.rng.range(50_000, 2 * MS), false),
        }
    }

    /// The process that leads and can be talked to, if this node reaches it both ways.
    fn reachable(&self, node: usize) -> Option<u64> {
        let process = self.nodes[0].agent.as_ref()?;
        let open = process.lead.is_some() && process.frozen == 0;
        (open && self.net.passes(node, true) && self.net.passes(node, false)).then_some(process.id)
    }

    fn connect(&mut self, node: usize, beat: Option<Link>) -> Option<u64> {
        let lead = self.reachable(node)?;
        let agent = self.nodes[node].agent.as_ref()?.id;
        let id = self.id();
        self.net.conns.insert(id, Conn { node, agent, lead, beat, open: true });
        Some(id)
    }

    /// The agent's driver looks for a coordinator.
    pub(super) fn dial(&mut self, node: usize) {
        let Some(process) = &mut self.nodes[node].agent else { return };
        if process.conn.is_some() || !process.dialling {
            return;
        }
        let Some(id) = self.connect(node, None) else {
            let pause = self.rng.range(100, 400) * MS;
            return self.task(node, pause, Thread::Control, Task::Dial);
        };
        if let Some(process) = &mut self.nodes[node].agent {
            process.conn = Some(id);
            process.dialling = false;
        }
        if let Some(lead) = self.nodes[0].agent.as_mut().and_then(|p| p.lead.as_mut()) {
            lead.conns.insert(World::name(node), id);
        }
        self.task(node, MS, Thread::Control, Task::Agent(agent::Event::LinkUp));
    }

    pub(super) fn dial_beat(&mut self, node: usize, link: Link) {
        if self.connect(node, Some(link)).is_some() {
            return self.task(node, MS, Thread::Beat, Task::Lease(lease::Event::LinkUp(link)));
        }
        // Refused at once, or no answer at all.
        let cut = !self.net.passes(node, true) || !self.net.passes(node, false);
        let delay = if cut { 3_000 * MS } else { MS };
        self.task(node, delay, Thread::Beat, Task::Lease(lease::Event::LinkDown(link)));
    }

    /// One end closes: the other hears of it if the way is free.
    pub(super) fn close(&mut self, id: u64, by_agent: bool) {
        let Some(conn) = self.net.conns.get_mut(&id).filter(|c| c.open) else { return };
        conn.open = false;
        let conn = *conn;
        let (to, process) = if by_agent { (0, conn.lead) } else { (conn.node, conn.agent) };
        let thread = if conn.beat.is_some() { Thread::Beat } else { Thread::Control };
        let ev = Ev::Task(to, process, thread, Task::Closed(id));
        if conn.node == 0 || self.net.passes(conn.node, by_agent) {
            let delay = self.rng.range(1, 30) * MS;
            self.after(delay, ev);
        } else {
            self.net.held.push((conn.node, by_agent, ev));
        }
    }

    /// Everything that this process had open is closed.
    pub(super) fn close_all(&mut self, process: &AgentProcess, power: bool) {
        let mine = |c: &Conn| c.open && (c.agent == process.id || c.lead == process.id);
        let open: Vec<(u64, bool)> = self
            .net
            .conns
            .iter()
            .filter(|(_, c)| mine(c))
            .map(|(id, c)| (*id, c.agent == process.id))
            .collect();
        for (id, by_agent) in open {
            if !power {
                self.close(id, by_agent);
                continue;
            }
            let Some(conn) = self.net.conns.get_mut(&id) else { continue };
            conn.open = false;
            let (to, process) = if by_agent { (0, conn.lead) } else { (conn.node, conn.agent) };
            let thread = if conn.beat.is_some() { Thread::Beat } else { Thread::Control };
            // Nobody says that it is gone: the kernel finds out.
            self.after(BROKEN, Ev::Task(to, process, thread, Task::Closed(id)));
        }
    }

    /// An end is told that its connection is gone.
    pub(super) fn closed_conn(&mut self, node: usize, id: u64) {
        let Some(conn) = self.net.conns.get_mut(&id) else { return };
        conn.open = false;
        let conn = *conn;
        let Some(process) = &mut self.nodes[node].agent else { return };
        if conn.agent == process.id {
            match conn.beat {
                Some(link) => return self.lease(node, lease::Event::LinkDown(link)),
                None if process.conn == Some(id) => {
                    process.conn = None;
                    self.agent(node, agent::Event::LinkDown);
                }
                None => {}
            }
        }
        let Some(process) = &mut self.nodes[node].agent else { return };
        if conn.lead == process.id && conn.beat.is_none() {
            let name = World::name(conn.node);
            let incarnation = self.net_incarnation(&conn);
            let Some(lead) = self.nodes[node].agent.as_mut().and_then(|p| p.lead.as_mut()) else { return };
            if lead.conns.get(&name) == Some(&id) {
                lead.conns.remove(&name);
                self.coordinator(node, coordinator::Event::LinkDown { node: name, incarnation });
            }
        }
    }

    fn net_incarnation(&self, conn: &Conn) -> crate::domain::ids::Incarnation {
        self.nodes[conn.node].lives.get(&conn.agent).copied().unwrap_or_default()
    }

    /// After a long cut both ends give the connection up.
    pub(super) fn conn_check(&mut self, node: usize) {
        if self.net.passes(node, true) && self.net.passes(node, false) {
            return;
        }
        self.reset(node);
        self.after(BROKEN, Ev::ConnCheck(node));
    }

    /// Both ends of this node's control connection learn that it is gone.
    pub(super) fn reset(&mut self, node: usize) {
        let control = |c: &Conn| c.open && c.node == node && c.beat.is_none();
        let found = self.net.conns.iter().find(|(_, c)| control(c)).map(|(id, c)| (*id, *c));
        let Some((id, conn)) = found else { return };
        let delays = (self.rng.below(500) * MS, self.rng.below(500) * MS);
        self.after(delays.0, Ev::Task(node, conn.agent, Thread::Control, Task::Closed(id)));
        self.after(delays.1, Ev::Task(0, conn.lead, Thread::Control, Task::Closed(id)));
    }
}
