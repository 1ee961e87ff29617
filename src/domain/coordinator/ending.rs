//! The end of a run: ranks are stopped, the record is written, everybody goes.

use super::super::exit_code;
use super::super::ids::{Incarnation, NodeName};
use super::super::note::Note;
use super::super::outbox::Outbox;
use super::super::record::{Body, Cause, End, Outcome};
use super::super::time::Now;
use super::super::wire::StopOrder;
use super::Effect;
use super::state::{Coordinator, Ending, PARTING, Phase};

const SIGTERM: u8 = 15;
const SIGKILL: u8 = 9;

impl Coordinator {
    /// How ranks are stopped now.
    pub(super) fn stop_order(&self) -> StopOrder {
        match &self.ending {
            Some(ending) => ending.order,
            None => StopOrder { signal: SIGTERM, grace_ms: self.restart_grace() },
        }
    }

    /// An explicit `--shutdown-timeout` wins over ours.
    fn restart_grace(&self) -> u64 {
        self.config.spec.shutdown_timeout_ms.unwrap_or(self.config.spec.numbers.stop_ms)
    }

    /// The run ends. The first end counts.
    pub(super) fn end(
        &mut self,
        now: Now,
        outcome: Outcome,
        code: u8,
        sentence: String,
        out: &mut Outbox<Effect>,
    ) {
        let incident = self.breaking.as_ref().filter(|_| outcome == Outcome::Failed).map(|b| b.incident);
        let ending = Ending { incident, ..self.ending_of(now, outcome, code, sentence) };
        self.begin_ending(now, ending, out);
    }

    fn ending_of(&self, now: Now, outcome: Outcome, code: u8, sentence: String) -> Ending {
        Ending {
            outcome,
            code,
            sentence,
            incident: None,
            requeue: false,
            order: StopOrder { signal: SIGTERM, grace_ms: self.restart_grace() },
            asked: false,
            since: now.boot,
            quiet: None,
        }
    }

    /// The last rung before a stop: too few nodes are left and none came, and another allocation of the same job would have
    /// others. Where nodes never came it is the launch that is wrong.
    fn wants_requeue(&self) -> bool {
        let lost = matches!(self.want.as_ref().map(|want| &want.cause), Some(Cause::Incident(_)));
        lost && self.config.job.is_some()
    }

    fn begin_ending(&mut self, now: Now, ending: Ending, out: &mut Outbox<Effect>) {
        if self.ending.is_some() || self.is_closed() {
            return;
        }
        self.ending = Some(ending);
        self.want = None;
        if self.phase != Phase::Electing {
            self.phase = Phase::Ending;
            self.order_everybody(now, out);
        }
    }

    /// Somebody sent a signal that means stop.
    pub(super) fn asked_to_stop(
        &mut self,
        now: Now,
        signal: u8,
        terminal: bool,
        from: Option<(u32, u32)>,
        again: bool,
        out: &mut Outbox<Effect>,
    ) {
        if self.is_closed() {
            return;
        }
        let leave = self.config.spec.shutdown_timeout_ms.unwrap_or(self.config.spec.numbers.leave_ms);
        let order = if again {
            StopOrder { signal: SIGKILL, grace_ms: 0 }
        } else {
            StopOrder { signal, grace_ms: leave }
        };
        let ranks = self.ranks_alive();
        let grace = std::time::Duration::from_millis(order.grace_ms);
        match &mut self.ending {
            Some(ending) if again => ending.order = order,
            Some(_) => return,
            None => {
                let sentence = format!("stopped by {}", super::super::exit::signal_name(signal));
                let code = 128_u8.saturating_add(signal);
                let ending = self.ending_of(now, Outcome::Stopped, code, sentence);
                let ending = Ending { order, asked: true, ..ending };
                out.note(Note::StopRequested { signal, terminal, from, ranks, grace, again });
                return self.begin_ending(now, ending, out);
            }
        }
        out.note(Note::StopRequested { signal, terminal, from, ranks, grace, again });
        self.order_everybody(now, out);
    }

    fn ranks_alive(&self) -> u32 {
        let busy = self.busy.keys().filter_map(|n| self.ledger.member(n));
        busy.fold(0, |sum, m| sum.saturating_add(m.nproc))
    }

    /// Tells every node that may have ranks to stop them.
    pub(super) fn order_everybody(&mut self, now: Now, out: &mut Outbox<Effect>) {
        for node in self.busy.keys().cloned().collect::<Vec<NodeName>>() {
            self.orders(now, &node, out);
        }
    }

    /// All ranks are gone: settle what is open, then write the end.
    pub(super) fn end_if_quiet(&mut self, now: Now, out: &mut Outbox<Effect>) {
        if !self.busy.is_empty() {
            return;
        }
        let Some(ending) = &mut self.ending else { return };
        if ending.quiet.is_none() {
            ending.quiet = Some(now.boot);
            if ending.asked {
                out.note(Note::AllStopped { took: now.boot.since(ending.since) });
            }
        }
        if let Some(mut broke) = self.breaking.take() {
            broke.stopped.get_or_insert(now.boot);
            self.settling.push(broke);
        }
        if self.append.is_some() {
            return;
        }
        if !self.settling.is_empty() {
            return self.settle_next(now, out);
        }
        let Some(ending) = &self.ending else { return };
        let end = End {
            outcome: ending.outcome,
            code: ending.code,
            requeue: ending.requeue,
            incident: ending.incident,
            sentence: ending.sentence.clone(),
        };
        let why = vec![end.sentence.clone()];
        self.propose(now, Body::End(end), why, out);
    }

    /// A process that survives SIGKILL, on a node whose grant never ends, must not hold up the end for ever.
    pub(super) fn stop_waiting(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let Some(ending) = &self.ending else { return };
        if !self.busy.is_empty() && now.boot.since(ending.since) >= self.longest_stop(ending) {
            out.note(Note::NotWaitedFor { nodes: self.busy.keys().cloned().collect() });
            self.busy.clear();
        }
    }

    /// Within this every node has stopped its ranks, or is lost, or has something that cannot be killed.
    pub(super) fn longest_stop(&self, ending: &Ending) -> std::time::Duration {
        let ms = std::time::Duration::from_millis;
        let numbers = &self.config.spec.numbers;
        ms(ending.order.grace_ms) + ms(numbers.sweep_ms) * 2 + ms(numbers.lost_ms) + PARTING
    }

    /// Nodes that were expected and never came. They may read another directory, and lead there by themselves.
    fn who_never_came(&self) -> String {
        let missing = self
            .config
            .voters
            .iter()
            .filter(|n| self.peers.get(*n).is_none_or(|peer| peer.incarnation == Incarnation::default()));
        let names: Vec<&str> = missing.take(8).map(|n| n.as_str()).collect();
        match names.as_slice() {
            [] => String::new(),
            [one] => {
                format!("; {one} never came: was relight started there, and does it see this run directory?")
            }
            several => {
                let names = several.join(", ");
                format!(
                    "; never came: {names}: was relight started there, and do they see this run directory?"
                )
            }
        }
    }

    /// Not enough nodes came in time.
    pub(super) fn join_timed_out(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let have = self.present().len();
        let (size, join) = (self.size(), self.config.spec.numbers.join_timeout_ms);
        let waited = super::super::time::human(std::time::Duration::from_millis(join));
        let need = size.min;
        let sentence = if self.elastic() {
            let (nodes, are) =
                (if need == 1 { "node" } else { "nodes" }, if have == 1 { "is" } else { "are" });
            let max = size.max;
            format!(
                "waited {waited} for at least {need} {nodes} that can run ranks (--nnodes {need}:{max}), {have} {are} there"
            )
        } else {
            let are = if have == 1 { "is" } else { "are" };
            format!("waited {waited} for {need} nodes that can run ranks, {have} {are} there")
        };
        let sentence = sentence + &self.who_never_came();
        let incident = match self.want.as_ref().map(|want| &want.cause) {
            Some(Cause::Incident(broke)) => Some(broke.incident),
            _ => None,
        };
        let requeue = self.wants_requeue();
        let ending = self.ending_of(now, Outcome::Failed, exit_code::FAILED, sentence);
        self.begin_ending(now, Ending { incident, requeue, ..ending }, out);
    }

    /// The end is written, or cannot be.
    pub(super) fn close(&mut self, now: Now, code: u8, sentence: &str, out: &mut Outbox<Effect>) {
        self.phase = Phase::Closed { code };
        self.closed_at = Some(now.boot);
        out.note(Note::Ended { code, sentence: sentence.to_owned() });
        self.finish_supervisor(code, out);
        self.repeat(now, out);
    }

    pub(super) fn close_unwritten(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let Some(ending) = &self.ending else { return };
        let (code, sentence) = (ending.code, format!("{} (this could not be written)", ending.sentence));
        self.append = None;
        self.ending = None;
        self.close(now, code, &sentence, out);
    }

    /// After the end: wait until everybody has left, not for ever.
    pub(super) fn parting(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let (Phase::Closed { code }, Some(closed), false) = (self.phase, self.closed_at, self.over_said)
        else {
            return;
        };
        let here = self.peers.values().any(|p| p.linked && !p.left);
        if !here || now.boot.since(closed) >= PARTING {
            self.over_said = true;
            out.put(Effect::Over { code });
        }
    }
}
