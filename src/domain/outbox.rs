//! What a machine is, and where it puts what it wants done.

use super::note::Note;
use super::time::{BootTime, Now};

/// A pure state machine. Total: no result, no panic on any input. A deadline is a field and [`deadline`]
/// their minimum; a tick may come late, early or twice, so nothing that was armed can be stale.
///
/// [`deadline`]: Machine::deadline
pub trait Machine {
    /// What can happen to it.
    type Event;
    /// What it wants done; data, carried out by a driver in order.
    type Effect;

    /// Takes one event and puts the effects into the outbox.
    fn handle(&mut self, now: Now, event: Self::Event, out: &mut Outbox<Self::Effect>);

    /// When a tick is wanted next.
    fn deadline(&self) -> Option<BootTime>;
}

/// Effects in order, and explanations beside them.
#[derive(Debug)]
pub struct Outbox<E> {
    effects: Vec<E>,
    notes: Vec<Note>,
}

impl<E> Default for Outbox<E> {
    fn default() -> Self {
        Self { effects: Vec::new(), notes: Vec::new() }
    }
}

impl<E> Outbox<E> {
    /// Wants `effect` done, after everything that was put before it.
    pub fn put(&mut self, effect: E) {
        self.effects.push(effect);
    }

    /// Explains: the driver adds the wall time and writes events, console lines and status from it.
    pub fn note(&mut self, note: Note) {
        self.notes.push(note);
    }

    /// Takes the effects out, in order.
    pub fn take_effects(&mut self) -> Vec<E> {
        std::mem::take(&mut self.effects)
    }

    /// Takes the explanations out, in order.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// Nothing is left to do or to say.
    pub fn is_empty(&self) -> bool {
        self.effects.is_empty() && self.notes.is_empty()
    }
}
