//! A person's orders: refused with one sentence, or written and then followed.
//!
//! A paused run trains on. What fails meanwhile is stopped as ever, and nothing is started until it is resumed.

use super::super::exit_code;
use super::super::note::Note;
use super::super::outbox::Outbox;
use super::super::record::{Evict, Order, Ordered, Outcome};
use super::super::time::Now;
use super::super::wire::ToOperator;
use super::Effect;
use super::breaking::What;
use super::state::{Coordinator, Phase};

/// Orders that wait to be written.
const MOST: usize = 16;
/// The longest reason, in bytes.
const LONGEST: usize = 400;

impl Coordinator {
    /// Somebody with the run's secret wants something.
    pub(super) fn order(&mut self, _now: Now, id: u64, mut ordered: Ordered, out: &mut Outbox<Effect>) {
        ordered.reason = printable(&ordered.reason);
        ordered.by = printable(&ordered.by);
        match self.refuses(&ordered) {
            Some(sentence) => out.put(Effect::Answer { id, answer: ToOperator::Refused { sentence } }),
            None => self.acting.orders.push((id, ordered)),
        }
    }

    fn refuses(&self, ordered: &Ordered) -> Option<String> {
        let runs = matches!(self.phase, Phase::Gathering | Phase::Starting | Phase::Running);
        if !runs || self.ending.is_some() {
            return Some("the run is ending".to_owned());
        }
        if ordered.reason.is_empty() {
            return Some("an order needs a reason: --why TEXT".to_owned());
        }
        if self.acting.orders.len() >= MOST {
            return Some("too many orders wait to be written".to_owned());
        }
        match &ordered.order {
            Order::Pause if self.ledger.paused() => Some("the run is paused already".to_owned()),
            Order::Resume if !self.ledger.paused() => Some("the run is not paused".to_owned()),
            Order::Restart if self.phase != Phase::Running => {
                Some("no ranks run that could be restarted".to_owned())
            }
            Order::Evict { node } => {
                let known = self.peers.contains_key(node) || self.ledger.ever().contains(node);
                if self.ledger.is_evicted(node) {
                    Some(format!("{node} was taken out already"))
                } else if *node == self.config.node {
                    Some(format!("{node} leads this run: it cannot be taken out"))
                } else if !known {
                    Some(format!("this run has no node {node}"))
                } else {
                    None
                }
            }
            Order::Pause | Order::Resume | Order::Restart | Order::Stop => None,
        }
    }

    /// The record of an order is written: it is followed.
    pub(super) fn ordered(&mut self, now: Now, ordered: &Ordered, out: &mut Outbox<Effect>) {
        let at = self.acting.orders.iter().position(|(_, waiting)| waiting == ordered);
        if let Some((id, _)) = at.map(|at| self.acting.orders.remove(at)) {
            let sentence = follows(&ordered.order);
            out.put(Effect::Answer { id, answer: ToOperator::Done { sentence } });
        }
        out.note(Note::Ordered { ordered: ordered.clone() });
        let why = format!("{} asked for it: {}", ordered.by, ordered.reason);
        match &ordered.order {
            Order::Pause => {}
            Order::Resume => {
                if let Some(want) = &mut self.want {
                    (want.since, want.said_waiting) = (now.boot, false);
                }
            }
            Order::Restart => {
                if let Some(attempt) = self.ledger.attempt().filter(|_| self.phase == Phase::Running)
                    && self.may_break(attempt)
                {
                    self.break_world(now, What::Asked(format!("a restart: {why}")), out);
                }
            }
            Order::Evict { node } => self.acting.asked.push(Evict {
                node: node.clone(),
                reason: why,
                slot: self.ledger.slot(node),
                ..Evict::default()
            }),
            Order::Stop => {
                let sentence = format!("stopped: {why}");
                self.end(now, Outcome::Stopped, exit_code::DO_NOT_REQUEUE, sentence, out);
            }
        }
    }
}

/// What the person is told.
fn follows(order: &Order) -> String {
    match order {
        Order::Pause => {
            "paused: ranks go on; after a failure nothing is started until `relight ctl resume`".to_owned()
        }
        Order::Resume => "resumed".to_owned(),
        Order::Restart => "restarting all ranks".to_owned(),
        Order::Evict { node } => format!("{node} is being taken out"),
        Order::Stop => "stopping the run".to_owned(),
    }
}

fn printable(text: &str) -> String {
    let mut text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let end = (0..=LONGEST).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.truncate(end);
    text.trim().to_owned()
}
