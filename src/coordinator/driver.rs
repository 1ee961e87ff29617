//! The coordinator's task on the control thread of the agent that it lives in.

use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;

use crate::domain::coordinator::{Collected, Coordinator, Effect, Event};
use crate::domain::ids::{Incarnation, NodeName, Op, Term};
use crate::domain::note::Note;
use crate::domain::outbox::{Machine, Outbox};
use crate::domain::policy::Ask;
use crate::domain::record::{Incident, Record};
use crate::domain::wire::{ToAgent, ToOperator, ToSupervisor};
use crate::sys::clock;

/// What the coordinator's task asks of the rest of the process.
pub trait Hooks {
    /// Say this to an agent; a frame that cannot go out is a lost link.
    fn send(&mut self, to: NodeName, incarnation: Incarnation, frame: ToAgent);
    /// Write this record; the answer comes as an event.
    fn append(&mut self, op: Op, record: Box<Record>);
    /// This term leads.
    fn lead(&mut self, term: Term, voters: Vec<NodeName>);
    /// Who votes from here on.
    fn voters(&mut self, voters: Vec<NodeName>);
    /// No more acknowledgements to this node.
    fn close_grants(&mut self, node: NodeName);
    /// Acknowledgements to this life of a node's agent.
    fn admit(&mut self, node: NodeName, incarnation: Incarnation);
    /// Close the connections of a node that is lost, so that it joins anew when it can.
    fn disconnect(&mut self, node: NodeName);
    /// Say this to the supervisor, if there is one.
    fn supervisor(&mut self, message: ToSupervisor);
    /// Make this file among the probes of the run directory, and say so with `Event::Probed`.
    fn probe(&mut self, name: String);
    /// Keep what was collected of the ranks.
    fn collected(&mut self, collected: Collected);
    /// Find this out, and say so with `Event::Found`.
    fn seek(&mut self, ask: Ask);
    /// Tell a person's command what became of its order.
    fn answer(&mut self, id: u64, answer: ToOperator);
    /// An incident is settled.
    fn report(&mut self, incident: &Incident);
    /// An explanation.
    fn note(&mut self, note: Note);
    /// Something may have changed; `quiet`: the clock only went on, and nothing followed from it.
    fn changed(&mut self, coordinator: &Coordinator, quiet: bool);
    /// The run is over and everybody left.
    fn over(&mut self, code: u8);
    /// The coordinator ends without a word.
    fn stand_down(&mut self);
}

/// What takes so long is not done event by event.
const LONG: Duration = Duration::from_micros(300);
/// The longest pause after it.
const PAUSE: Duration = Duration::from_millis(5);
/// So many events at most are taken in at one time.
const BURST: usize = 1024;

/// An event and those that wait behind it.
fn together(first: Event, inbox: &mut UnboundedReceiver<Event>) -> Event {
    let Ok(second) = inbox.try_recv() else { return first };
    let mut all = vec![first, second];
    while all.len() < BURST
        && let Ok(next) = inbox.try_recv()
    {
        all.push(next);
    }
    Event::Burst(all)
}

/// The task.
pub struct Driver<H> {
    coordinator: Coordinator,
    hooks: H,
}

impl<H: Hooks> Driver<H> {
    /// A task over this machine; nothing happens before [`Driver::run`].
    pub fn new(coordinator: Coordinator, hooks: H) -> Self {
        Self { coordinator, hooks }
    }

    /// Works until the inbox is closed.
    pub async fn run(mut self, mut inbox: UnboundedReceiver<Event>) {
        self.handle(Event::Begin);
        loop {
            let event = match self.coordinator.deadline() {
                None => inbox.recv().await,
                Some(at) => {
                    let left = at.since(clock::boot());
                    match tokio::time::timeout(left, inbox.recv()).await {
                        Ok(event) => event,
                        Err(_) => Some(Event::Tick),
                    }
                }
            };
            match event {
                None => return,
                Some(event) => {
                    let began = clock::boot();
                    self.handle(together(event, &mut inbox));
                    let took = clock::boot().since(began);
                    if took >= LONG {
                        // With thousands of nodes an event costs a look at each of them: more are let come together, and
                        // others have their time.
                        tokio::time::sleep(took.min(PAUSE)).await;
                    }
                }
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let mut out = Outbox::default();
        let tick = event == Event::Tick;
        self.coordinator.handle(clock::now(), event, &mut out);
        let quiet = tick && out.is_empty();
        let effects = out.take_effects();
        // Reports first: the note that the run ended is told with the verdict at hand.
        for effect in &effects {
            if let Effect::Report(incident) = effect {
                self.hooks.report(incident);
            }
        }
        for note in out.take_notes() {
            self.hooks.note(note);
        }
        for effect in effects {
            self.perform(effect);
        }
        self.hooks.changed(&self.coordinator, quiet);
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Send { to, incarnation, frame } => self.hooks.send(to, incarnation, frame),
            Effect::Append { op, record } => self.hooks.append(op, record),
            Effect::Lead { term, voters } => self.hooks.lead(term, voters),
            Effect::Voters(voters) => self.hooks.voters(voters),
            Effect::CloseGrants { node } => self.hooks.close_grants(node),
            Effect::Admit { node, incarnation } => self.hooks.admit(node, incarnation),
            Effect::Disconnect { node } => self.hooks.disconnect(node),
            Effect::Probe { name } => self.hooks.probe(name),
            Effect::Supervisor(message) => self.hooks.supervisor(message),
            Effect::Seek(ask) => self.hooks.seek(ask),
            Effect::Answer { id, answer } => self.hooks.answer(id, answer),
            Effect::Report(_) => {}
            Effect::Collected(collected) => self.hooks.collected(*collected),
            Effect::Over { code } => self.hooks.over(code),
            Effect::StandDown { .. } => self.hooks.stand_down(),
        }
    }
}
