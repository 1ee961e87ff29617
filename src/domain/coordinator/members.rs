//! Who is there: joins, links, silence, and who may still have ranks.

use std::sync::Arc;
use std::time::Duration;

use super::super::ids::{Attempt, Incarnation, NodeName, Seq, Slot};
use super::super::mutant::Mutant;
use super::super::note::{Note, Sign, Stale};
use super::super::outbox::Outbox;
use super::super::record::{Body, RECORD_VERSION, Record, Writer};
use super::super::time::{BootTime, Now};
use super::super::wire::{AgentMsg, CoordinatorMsg, RefusedWhy, Survivor, ToAgent, ToCoordinator};
use super::Effect;
use super::state::{Busy, Coordinator, Peer, Phase};

impl Coordinator {
    pub(super) fn join(&mut self, now: Now, node: NodeName, frame: ToCoordinator, out: &mut Outbox<Effect>) {
        let CoordinatorMsg::Join { spec, offer, store, proof, clean_of, running, next, survivors } =
            frame.msg
        else {
            return;
        };
        let incarnation = frame.incarnation;
        if self.dead.contains(&incarnation) && !self.config.mutants.has(Mutant::AcceptStale) {
            return out.note(Note::Dropped { stale: Stale::Incarnation });
        }
        let known = self.peers.get(&node).filter(|p| p.incarnation == incarnation);
        if known.is_some_and(|p| p.seen.is_some_and(|seen| frame.n <= seen)) {
            return out.note(Note::Dropped { stale: Stale::Repeated });
        }
        let (is_new, sent) = known.map_or((true, 0), |peer| (false, peer.sent));
        let earlier = self.peers.get(&node);
        let was_lost = earlier.is_some_and(|p| p.lost);
        // One that never came has no life.
        let returns = earlier.is_some_and(|p| p.lost && p.incarnation != Incarnation::default());
        let first_life = earlier.is_none_or(|p| p.incarnation == Incarnation::default());
        let why = self.refusal(&node, store.is_some() && store != self.config.store);
        let why = why.or_else(|| self.same_name(&node, incarnation, &clean_of));
        if let Some(why) = why.or_else(|| self.told_otherwise(&node, &spec)) {
            return self.refuse(node, incarnation, sent, why, out);
        }
        self.check_proof(&node, proof, out);
        self.doubts.remove(&node);
        self.ended_tasks.remove(&node);
        self.refused.remove(&node);
        if let Some(old) = self.peers.get(&node).filter(|_| is_new) {
            self.dead.insert(old.incarnation);
        }
        let script = spec.script_digest.filter(|_| is_new);
        let peer = Peer {
            incarnation,
            spec: *spec,
            offer,
            linked: true,
            unlinked: None,
            lost: false,
            left: false,
            survivors: Vec::new(),
            sent,
            seen: Some(frame.n),
        };
        self.peers.insert(node.clone(), peer);
        if is_new {
            out.note(Note::Joined { node: node.clone(), incarnation, clean_of: clean_of.clone() });
        }
        self.check_script(&node, script, out);
        self.quiet_by_join(&node, incarnation, &clean_of, running, out);
        // A join of such a life that is still on its way is too late.
        self.dead.extend(clean_of);
        if was_lost || is_new {
            out.put(Effect::Admit { node: node.clone(), incarnation });
        }
        if returns {
            let placed = self.ledger.member(&node).is_some() || self.phase == Phase::Gathering;
            out.note(Note::NodeBack { node: node.clone(), spare: !placed });
        } else if first_life {
            self.came_late(now, &node, out);
        }
        self.survived(&node, survivors, out);
        let welcome = AgentMsg::Welcome {
            answers: frame.n,
            store: self.config.store.clone(),
            spec: Box::new(self.config.spec.clone()),
            leader: self.config.incarnation,
            dead: self.config.clean_of.clone(),
            forever: self.forever(),
            tail: self.tail(now, next),
        };
        self.send(&node, welcome, out);
        self.ask_probe(&node, out);
        self.replaced(now, &node, incarnation, out);
        self.orders(now, &node, out);
    }

    /// What an agent that has read up to `next` is missing, in one piece however long the journal is: a snapshot
    /// of here and now, which is no record of the journal.
    fn tail(&mut self, now: Now, next: Seq) -> Vec<Arc<Record>> {
        let Some(last) = self.ledger.next().0.checked_sub(1).map(Seq).filter(|last| next <= *last) else {
            return Vec::new();
        };
        if let Some((_, record)) = self.newest.as_ref().filter(|(seq, _)| *seq == last) {
            return vec![record.clone()];
        }
        let body = Body::Snapshot(Box::new(self.ledger.clone()));
        let record = Record {
            v: RECORD_VERSION,
            seq: last,
            kind: body.kind(),
            term: self.term.unwrap_or_default(),
            attempt: self.ledger.attempt().unwrap_or_default(),
            writer: Writer { node: self.config.node.clone(), incarnation: self.config.incarnation },
            nonce: 0,
            wall_ms: now.wall_ms,
            why: vec!["an agent joined".to_owned()],
            body,
        };
        let record = Arc::new(record);
        self.newest = Some((last, record.clone()));
        vec![record]
    }

    fn refusal(&self, node: &NodeName, other_store: bool) -> Option<RefusedWhy> {
        match self.phase {
            Phase::Closed { code } => Some(RefusedWhy::Ended(code)),
            _ if other_store => Some(RefusedWhy::OtherStore),
            _ if self.ledger.is_evicted(node) => Some(RefusedWhy::Evicted),
            _ => None,
        }
    }

    /// Another machine of this name is here: what comes is no later life of its agent.
    fn same_name(
        &self,
        node: &NodeName,
        incarnation: Incarnation,
        clean_of: &[Incarnation],
    ) -> Option<RefusedWhy> {
        let there = self.peers.get(node).filter(|p| self.config.distinct && !p.lost && !p.left)?;
        let other = ![incarnation, Incarnation::default()].contains(&there.incarnation);
        (other && !clean_of.contains(&there.incarnation)).then_some(RefusedWhy::SameName)
    }

    fn refuse(
        &mut self,
        to: NodeName,
        incarnation: Incarnation,
        n: u64,
        why: RefusedWhy,
        out: &mut Outbox<Effect>,
    ) {
        let Some(term) = self.term else { return };
        let told = matches!(why, RefusedWhy::Ended(_));
        if !told && self.refused.insert(to.clone(), incarnation) != Some(incarnation) {
            out.note(Note::Refused { node: to.clone(), why: why.clone() });
        }
        out.put(Effect::Send { to, incarnation, frame: ToAgent { term, n, msg: AgentMsg::Refused(why) } });
    }

    /// What a join says about ranks on its node: the agent's own word for this life, the guardian's word for
    /// an earlier one. About any other life it says nothing, so that one's grant must run out.
    fn quiet_by_join(
        &mut self,
        node: &NodeName,
        incarnation: Incarnation,
        clean_of: &[Incarnation],
        running: Option<Attempt>,
        out: &mut Outbox<Effect>,
    ) {
        if let Some(running) = running {
            // A `Start` of the newest attempt may be on its way to a node that still sweeps an older one.
            let known = self.busy.get(node).filter(|b| b.incarnation == incarnation);
            let attempt = known.map_or(running, |b| b.attempt.max(running));
            self.busy.insert(node.clone(), Busy { incarnation, attempt, over_at: None });
            return;
        }
        let Some(busy) = self.busy.get(node) else { return };
        // A `Start` of this life may still be on its way: only its own report frees it.
        let on_its_way = busy.incarnation == incarnation && Some(busy.attempt) == self.ledger.attempt();
        let vouched = busy.incarnation == incarnation || clean_of.contains(&busy.incarnation);
        if vouched && !on_its_way {
            self.busy.remove(node);
        } else if !vouched && busy.over_at.is_none() {
            out.put(Effect::CloseGrants { node: node.clone() });
        }
    }

    pub(super) fn link_down(&mut self, now: Now, node: &NodeName, incarnation: Incarnation) {
        if let Some(peer) = self.peers.get_mut(node).filter(|p| p.incarnation == incarnation) {
            peer.linked = false;
            peer.unlinked.get_or_insert(now.boot);
        }
    }

    pub(super) fn back(&mut self, node: &NodeName) {
        // A node that was declared lost comes back through a join, never by a beat alone.
        let _ = node;
    }

    pub(super) fn silent(&mut self, now: Now, node: &NodeName, silent: Duration, out: &mut Outbox<Effect>) {
        let Some(peer) = self.peers.get(node) else {
            // A voter that never came: it can be removed like one that went.
            return self.never_came(node);
        };
        if !peer.lost {
            self.lose(now, node, silent, Sign::Silence, out);
        }
    }

    /// A node is lost. The wait for its grant begins here.
    pub(super) fn lose(
        &mut self,
        now: Now,
        node: &NodeName,
        silent: Duration,
        sign: Sign,
        out: &mut Outbox<Effect>,
    ) {
        let evicted = self.ledger.is_evicted(node);
        let Some(peer) = self.peers.get_mut(node) else { return };
        peer.lost = true;
        peer.linked = false;
        self.doubts.remove(node);
        if evicted {
            // It was told to go.
            out.put(Effect::CloseGrants { node: node.clone() });
            return out.put(Effect::Disconnect { node: node.clone() });
        }
        out.note(Note::NodeLost { node: node.clone(), silent, slot: self.slot_of(node), sign });
        out.put(Effect::CloseGrants { node: node.clone() });
        out.put(Effect::Disconnect { node: node.clone() });
        self.node_gone(now, node, true, out);
    }

    /// Its slot in the newest world, or in the one before if it was left out and never came back since.
    fn slot_of(&self, node: &NodeName) -> Option<Slot> {
        let left_out = || {
            let before = self.before.as_ref()?.members.iter().find(|m| m.node == *node)?;
            let same = self.peers.get(node).is_some_and(|p| p.incarnation == before.incarnation);
            (same && !self.ledger.voters().contains(node)).then_some(before.slot)
        };
        self.ledger.slot(node).or_else(left_out)
    }

    fn never_came(&mut self, node: &NodeName) {
        if self.ledger.voters().contains(node) {
            let peer = Peer {
                incarnation: Incarnation::default(),
                spec: Default::default(),
                offer: None,
                linked: false,
                unlinked: None,
                lost: true,
                left: false,
                survivors: Vec::new(),
                sent: 0,
                seen: None,
            };
            self.peers.insert(node.clone(), peer);
        }
    }

    pub(super) fn grants_closed(&mut self, node: &NodeName, over_at: BootTime, out: &mut Outbox<Effect>) {
        if let Some(busy) = self.busy.get_mut(node) {
            busy.over_at = Some(busy.over_at.map_or(over_at, |at| at.max(over_at)));
        }
        // It was closed for the sake of an earlier life; the admitted one may go on.
        if let Some(peer) = self.peers.get(node).filter(|p| !p.lost) {
            out.put(Effect::Admit { node: node.clone(), incarnation: peer.incarnation });
        }
    }

    pub(super) fn survived(&mut self, node: &NodeName, survivors: Vec<Survivor>, out: &mut Outbox<Effect>) {
        let Some(peer) = self.peers.get_mut(node) else { return };
        if survivors.is_empty() && !peer.survivors.is_empty() {
            let placed = self.ledger.member(node).is_some();
            out.note(Note::NodeBack { node: node.clone(), spare: !placed });
        }
        if !survivors.is_empty() && peer.survivors != survivors {
            let list = survivors.iter().map(|s| (s.pid, s.state)).collect();
            out.note(Note::NodeDirty { node: node.clone(), survivors: list });
        }
        peer.survivors = survivors;
    }

    /// An attempt that includes an earlier life of this node's agent cannot go on.
    fn replaced(&mut self, now: Now, node: &NodeName, incarnation: Incarnation, out: &mut Outbox<Effect>) {
        let other = self.ledger.member(node).is_some_and(|m| m.incarnation != incarnation);
        if other && matches!(self.phase, Phase::Starting | Phase::Running) {
            self.node_gone(now, node, false, out);
        }
    }
}
