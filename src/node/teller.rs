//! Tells people: console lines through the log pump, events through the store worker. Both may be slow or
//! gone; nobody waits for them.

use std::cell::RefCell;
use std::rc::Rc;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::store::StoreLine;
use crate::domain::console::Console;
use crate::domain::ids::NodeName;
use crate::domain::note::Note;
use crate::domain::record::Incident;
use crate::logs::Stream;
use crate::logs::pump::Handle;
use crate::store::plain;
use crate::store::status::EventLine;
use crate::sys::clock;

/// `2026-11-30_23:41:27`, as torch's report has it.
pub(crate) fn stamp(wall_ms: u64) -> String {
    let stamp = Timestamp::from_millisecond(i64::try_from(wall_ms).unwrap_or(0)).unwrap_or_default();
    stamp.to_zoned_datetime(TimeZone::system()).strftime("%Y-%m-%d_%H:%M:%S").to_string()
}

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Agent,
    Coordinator,
}

struct State {
    console: Console,
    pump: Handle,
    store: StoreLine,
    node: NodeName,
    zone: TimeZone,
    /// The events of a run are written by who leads; several writers of one file on a file server would tear it.
    files: bool,
    /// What an agent that follows has said of its own: its file, line by line.
    own: Vec<String>,
}

/// Lines of an agent's own file at most; the newest count.
const MAX_OWN: usize = 32;

/// Shared by the tasks of the control thread.
#[derive(Clone)]
pub(crate) struct Teller(Rc<RefCell<State>>);

impl Teller {
    pub(crate) fn new(console: Console, pump: Handle, store: StoreLine, node: NodeName) -> Self {
        Self(Rc::new(RefCell::new(State {
            console,
            pump,
            store,
            node,
            zone: TimeZone::system(),
            files: true,
            own: Vec::new(),
        })))
    }

    /// A note of the agent or of the coordinator. Only the coordinator talks to people, except when there is
    /// none.
    pub(crate) fn note(&self, who: Who, note: Note) {
        match who {
            Who::Agent => tracing::debug!(target: "relight::agent", ?note),
            Who::Coordinator => tracing::debug!(target: "relight::coordinator", ?note),
        }
        let mut state = self.0.borrow_mut();
        let wall_ms = clock::now().wall_ms;
        let for_people = who == Who::Coordinator || note.is_for_people();
        if for_people {
            let time = state.time_of_day(wall_ms);
            for line in state.console.lines(&note, &time) {
                state.say(&line);
            }
        }
        if note.is_of_an_agent() {
            state.keep(wall_ms, &note);
        }
        if state.files {
            let line = EventLine { wall_ms, node: state.node.clone(), note }.to_line();
            state.store.event(line);
        }
    }

    /// The verdict of an incident, for the report at the end.
    pub(crate) fn settled(&self, incident: &Incident) {
        self.0.borrow_mut().console.settled(incident);
    }

    /// Somebody else leads: what this agent says when nobody leads any more goes into a file of its own.
    pub(crate) fn follow(&self) {
        self.0.borrow_mut().files = false;
    }

    /// This is not the first life of this agent: people have read the first lines.
    pub(crate) fn returned(&self) {
        self.0.borrow_mut().console.returned();
    }

    /// A sentence that no machine says.
    pub(crate) fn say(&self, text: &str) {
        let mut state = self.0.borrow_mut();
        state.say(&format!("relight: {text}"));
        state.keep(clock::now().wall_ms, &Note::Said { text: text.to_owned() });
    }
}

impl State {
    fn say(&self, line: &str) {
        self.pump.say(Stream::Err, format!("{line}\n"));
    }

    /// Its console may be lost with an srun; the run directory is what people look at then.
    fn keep(&mut self, wall_ms: u64, note: &Note) {
        if self.files {
            return;
        }
        let line = EventLine { wall_ms, node: self.node.clone(), note: note.clone() }.to_line();
        if self.own.len() >= MAX_OWN {
            self.own.remove(0);
        }
        self.own.push(line + "\n");
        self.store.write(plain::agent_file(&self.node), self.own.concat().into_bytes());
    }

    fn time_of_day(&self, wall_ms: u64) -> String {
        let ms = i64::try_from(wall_ms).unwrap_or(0);
        let stamp = Timestamp::from_millisecond(ms).unwrap_or_default();
        stamp.to_zoned_datetime(self.zone.clone()).strftime("%H:%M:%S").to_string()
    }
}
